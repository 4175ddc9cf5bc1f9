//! The only reader of the system's clock, with a manual twin for tests, and dates as text.
//!
//! Everything else takes time as a value ([`Micros`]), so that tests, the simulator and the replay say what time it is. It
//! knows nothing but those units.
//!
//! ```
//! use forebay_clock::{Clock, rfc3339};
//! use forebay_core::units::Micros;
//!
//! let clock = Clock::manual();
//! clock.advance(Micros::from_millis(250));
//! assert_eq!(clock.now(), Micros(250_000));
//! assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use forebay_core::units::Micros;

/// A source of monotonic time. Cheap to clone; clones agree.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    System(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// Time since this call, by the system's monotonic clock.
    pub fn system() -> Clock {
        Clock(Kind::System(Instant::now()))
    }

    /// A clock that stands still until [`Clock::advance`] moves it.
    pub fn manual() -> Clock {
        Clock(Kind::Manual(Arc::default()))
    }

    pub fn now(&self) -> Micros {
        match &self.0 {
            Kind::System(start) => Micros(start.elapsed().as_micros() as u64),
            Kind::Manual(micros) => Micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// The wall clock in milliseconds since 1970, for what outlives the process. A manual clock begins in November 2023.
    pub fn unix_millis(&self) -> i64 {
        match &self.0 {
            Kind::System(_) => unix_millis(),
            Kind::Manual(_) => 1_700_000_000_000 + self.now().as_millis() as i64,
        }
    }

    /// Moves a manual clock on. Does nothing to the system's.
    pub fn advance(&self, by: Micros) {
        if let Kind::Manual(micros) = &self.0 {
            micros.fetch_add(by.0, Ordering::SeqCst);
        }
    }
}

fn unix_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// The wall clock, in seconds since 1970: for dates shown to people, never for durations. 0 when it is set before 1970.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `2026-11-21T17:46:36.250Z`, for a moment in milliseconds since 1970; years 1 to 9999.
pub fn rfc3339(unix_ms: i64) -> String {
    let (days, millis) = (unix_ms.div_euclid(86_400_000), unix_ms.rem_euclid(86_400_000));
    // After Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last of a year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * from_march + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let (year, day) = (era * 400 + year_of_era + i64::from(month <= 2), from_march - (153 * march_month + 2) / 5 + 1);
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Milliseconds since 1970 of `2026-11-21T17:46:36Z`, with or without a fraction, in UTC or with an offset such as `+02:00`.
pub fn from_rfc3339(text: &str) -> Option<i64> {
    let digits = |range: std::ops::Range<usize>| -> Option<i64> {
        let part = text.get(range)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let marks = [(4, '-'), (7, '-'), (10, 'T'), (13, ':'), (16, ':')];
    let marked =
        |&(at, mark): &(usize, char)| text.get(at..=at).is_some_and(|c| c.eq_ignore_ascii_case(&mark.to_string()));
    if !marks.iter().all(marked) {
        return None;
    }
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let longest = *days.get(usize::try_from(month - 1).ok()?)?;
    // 60 is a leap second, which Unix time does not have: it counts as the second after.
    if !(1..=longest).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (millis, zone) = fraction(text.get(19..)?)?;
    let (march_year, march_month) = (year - i64::from(month <= 2), (month + 9) % 12);
    let (era, year_of_era) = (march_year.div_euclid(400), march_year.rem_euclid(400));
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * march_month + 2) / 5 + day - 1;
    let days = era * 146_097 + day_of_era - 719_468;
    Some(((days * 24 + hour) * 60 + minute - offset_minutes(zone)?) * 60_000 + second * 1_000 + millis)
}

/// Milliseconds of `.25`, and what comes after.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(text) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let digits: String = text[..end].chars().chain("000".chars()).take(3).collect();
    (end > 0).then_some((digits.parse().ok()?, &text[end..]))
}

/// Of `Z` or `+02:00`. A plus that a query string turned into a blank counts as one.
fn offset_minutes(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, rest) = match zone.as_bytes().first()? {
        b'+' | b' ' => (1, &zone[1..]),
        b'-' => (-1, &zone[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let two = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i64>().ok())?;
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (rest.len() == 5 && hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_written_and_read() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59.000Z"),
        ] {
            assert_eq!((rfc3339(millis).as_str(), from_rfc3339(text)), (text, Some(millis)));
        }
        let noon = from_rfc3339("2026-11-21T12:00:00Z");
        for same in [
            "2026-11-21T14:00:00+02:00",
            "2026-11-21T14:00:00 02:00",
            "2026-11-21t06:30:00.0-05:30",
            "2026-11-21T12:00:00.0009z",
        ] {
            assert_eq!(from_rfc3339(same), noon, "{same}");
        }
    }

    #[test]
    fn what_is_no_moment_is_not_read() {
        for text in [
            "",
            "now",
            "2026-11-21",
            "2026-11-21T12:00:00",
            "2026-11-21T12:00:00.Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+2:00",
            "2026-01-01T00:00:00+02:000",
            "2026-01-01 00:00:00Z",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00ZZ",
            "2026-01-0äT00:00:00Z",
        ] {
            assert_eq!(from_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_comes_back(millis in -62_135_596_800_000i64..253_402_300_800_000) {
            prop_assert_eq!(from_rfc3339(&rfc3339(millis)), Some(millis));
        }

        #[test]
        fn nothing_that_is_read_makes_it_panic(text in "\\PC{0,40}") {
            let _ = from_rfc3339(&text);
        }
    }
}
