//! From text to typed values, with errors that name the key, its origin and what is allowed.

use std::str::FromStr;
use std::time::Duration;

use super::ConfigError;
use super::keys::{self, Kind};
use super::raw::{Entry, Merged};
use forebay_core::units::Micros;

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Reads the merged layers. Asking for a key that is not in the table is a bug of ours.
pub struct Reader<'a>(&'a Merged);

impl<'a> Reader<'a> {
    pub fn new(merged: &'a Merged) -> Reader<'a> {
        Reader(merged)
    }

    fn entry(&self, key: &'static str) -> &'a Entry {
        self.0.get(key).unwrap_or_else(|| panic!("{key} is not in the table of keys"))
    }

    fn kind(key: &'static str) -> Kind {
        keys::find(key).unwrap_or_else(|| panic!("{key} is not in the table of keys")).kind
    }

    pub fn text(&self, key: &'static str) -> &'a str {
        self.entry(key).text.trim()
    }

    pub fn refuse(&self, key: &'static str, allowed: String) -> ConfigError {
        let Entry { text, origin } = self.entry(key).clone();
        ConfigError::BadValue { key, value: text, origin, allowed }
    }

    /// Two keys that do not go together; the mistake is where `section.param` stands.
    pub fn contradiction(&self, section: &'static str, param: &'static str, message: String) -> ConfigError {
        let entry = self.0.get(format!("{section}.{param}").as_str());
        let place = entry.and_then(|entry| entry.origin.place());
        ConfigError::Contradiction { section, param, message, place }
    }

    fn out_of_range(&self, key: &'static str) -> ConfigError {
        self.refuse(key, Self::kind(key).range())
    }

    pub fn parsed<T: FromStr>(&self, key: &'static str, allowed: &str) -> Result<T, ConfigError> {
        self.text(key).parse().map_err(|_| self.refuse(key, allowed.into()))
    }

    pub fn boolean(&self, key: &'static str) -> Result<bool, ConfigError> {
        self.text(key).parse().map_err(|_| self.out_of_range(key))
    }

    pub fn integer(&self, key: &'static str) -> Result<u64, ConfigError> {
        let (Kind::Integer { min, max } | Kind::AutoInteger { min, max }) = Self::kind(key) else {
            panic!("{key} is no integer");
        };
        let number = self.text(key).replace('_', "").parse().ok().filter(|n| (min..=max).contains(n));
        number.ok_or_else(|| self.out_of_range(key))
    }

    /// `auto` is `None`.
    pub fn auto(&self, key: &'static str) -> Result<Option<u64>, ConfigError> {
        if self.text(key) == "auto" { Ok(None) } else { self.integer(key).map(Some) }
    }

    /// GiB as bytes; `auto` is `None`.
    pub fn gib(&self, key: &'static str) -> Result<Option<usize>, ConfigError> {
        if self.text(key) == "auto" {
            return Ok(None);
        }
        let gib = self.text(key).parse::<f64>().ok().filter(|gib| gib.is_finite() && *gib > 0.0 && *gib < 1e9);
        gib.map(|gib| Some((gib * (1u64 << 30) as f64) as usize)).ok_or_else(|| self.out_of_range(key))
    }

    pub fn duration(&self, key: &'static str) -> Result<Duration, ConfigError> {
        let Kind::Duration { min_ms, max_ms } = Self::kind(key) else { panic!("{key} is no duration") };
        let millis = millis(self.text(key)).filter(|ms| (min_ms..=max_ms).contains(ms));
        millis.map(Duration::from_millis).ok_or_else(|| self.out_of_range(key))
    }

    /// Milliseconds in a key whose name says so.
    pub fn ms(&self, key: &'static str) -> Result<Micros, ConfigError> {
        self.integer(key).map(Micros::from_millis)
    }

    pub fn micros(&self, key: &'static str) -> Result<Micros, ConfigError> {
        self.duration(key).map(|duration| Micros(duration.as_micros() as u64))
    }

    pub fn share(&self, key: &'static str) -> Result<f64, ConfigError> {
        let share = self.text(key).parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
        share.ok_or_else(|| self.out_of_range(key))
    }

    pub fn number(&self, key: &'static str) -> Result<f64, ConfigError> {
        let Kind::Number { min, max } = Self::kind(key) else { panic!("{key} is no number") };
        let number = self.text(key).parse::<f64>().ok().filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| self.out_of_range(key))
    }

    pub fn one_of<T: Copy>(&self, key: &'static str, values: &[(&str, T)]) -> Result<T, ConfigError> {
        let text = self.text(key);
        values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| self.out_of_range(key))
    }

    /// A level, or directives such as `info,forebay=debug`. A bare word that is no level would silence the whole log.
    pub fn log_level(&self, key: &'static str) -> Result<String, ConfigError> {
        let level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word.trim()));
        let directive = |part: &str| part.rsplit_once('=').map_or(level(part), |(_, after)| level(after));
        if !self.text(key).split(',').all(directive) {
            let levels = LEVELS.join(", ");
            return Err(self.refuse(key, format!("one of {levels}, or directives such as info,forebay=debug")));
        }
        Ok(self.text(key).to_owned())
    }

    pub fn list(&self, key: &'static str) -> Vec<String> {
        self.text(key).split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }
}

/// `1.5s` is 1500. A number without a unit is nobody's guess.
fn millis(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 60e3,
        "h" => 3_600e3,
        _ => return None,
    };
    let millis = number.parse::<f64>().ok()? * factor;
    (0.0..1e15).contains(&millis).then_some(millis as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_carry_a_unit() {
        let cases = [("250ms", Some(250)), ("30s", Some(30_000)), ("1.5m", Some(90_000)), ("1h", Some(3_600_000))];
        for (text, millis) in cases.into_iter().chain([("30", None), ("s", None), ("-1s", None), ("1d", None)]) {
            assert_eq!(super::millis(text), millis, "{text}");
        }
    }
}
