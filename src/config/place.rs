//! Where in a YAML file each key stands, for messages that an editor can jump to.

use std::collections::BTreeMap;
use std::fmt;

use yaml_rust2::Event;
use yaml_rust2::parser::{MarkedEventReceiver, Parser};
use yaml_rust2::scanner::Marker;

/// Both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

impl Place {
    fn of(mark: &Marker) -> Place {
        // The scanner counts columns from 0.
        Place { line: mark.line(), column: mark.col() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Of each key its path, `server.port`, and where its name stands; or where the text stops being YAML, and why.
pub fn places(text: &str) -> Result<BTreeMap<String, Place>, (Place, String)> {
    let mut walk = Walk::default();
    match Parser::new_from_str(text).load(&mut walk, true) {
        Ok(()) => Ok(walk.found),
        Err(error) => Err((Place::of(error.marker()), error.info().to_owned())),
    }
}

/// What the walk is in.
enum Level {
    Mapping {
        /// Of its keys' paths, with the dot.
        prefix: String,
        /// The key whose value comes next.
        key: Option<String>,
    },
    Sequence,
}

#[derive(Default)]
struct Walk {
    levels: Vec<Level>,
    found: BTreeMap<String, Place>,
}

impl Walk {
    /// A value begins; returns the path of the key that it belongs to.
    fn value(&mut self) -> String {
        match self.levels.last_mut() {
            Some(Level::Mapping { key, .. }) => key.take().unwrap_or_default(),
            Some(Level::Sequence) | None => String::new(),
        }
    }
}

impl MarkedEventReceiver for Walk {
    fn on_event(&mut self, event: Event, mark: Marker) {
        match event {
            Event::Scalar(text, ..) => match self.levels.last_mut() {
                Some(Level::Mapping { prefix, key: key @ None }) => {
                    let path = format!("{prefix}{text}");
                    self.found.entry(path.clone()).or_insert(Place::of(&mark));
                    *key = Some(path);
                }
                _ => drop(self.value()),
            },
            Event::Alias(_) => drop(self.value()),
            Event::MappingStart(..) => {
                let path = self.value();
                let prefix = if path.is_empty() { path } else { format!("{path}.") };
                self.levels.push(Level::Mapping { prefix, key: None });
            }
            Event::SequenceStart(..) => {
                self.value();
                self.levels.push(Level::Sequence);
            }
            Event::MappingEnd | Event::SequenceEnd => drop(self.levels.pop()),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart | Event::DocumentEnd => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_where_an_editor_shows_them() {
        let text = "# first\nserver:\n  port: 1\n  host: x\nmodel:\n  lora: [a, {b: c}]\n  path: y\n\"engine\": {threads: 2}\n";
        let found = places(text).unwrap();
        let at = |key: &str| found.get(key).map(|place| (place.line, place.column));
        assert_eq!(at("server"), Some((2, 1)));
        assert_eq!(at("server.port"), Some((3, 3)));
        assert_eq!(at("server.host"), Some((4, 3)));
        assert_eq!(at("model.path"), Some((7, 3)), "after a list");
        assert_eq!(at("engine.threads"), Some((8, 12)));
        assert_eq!(at("nothing"), None);
    }

    #[test]
    fn what_is_no_yaml_ends_at_a_place() {
        let (place, why) = places("server:\n  port: [1\n").unwrap_err();
        assert!(place.line >= 2 && !why.is_empty(), "{place} {why}");
        // The scanner tells where the value ended that cannot go on like this.
        let (place, _) = places("a: 1\n\tb: 2\n").unwrap_err();
        assert!(matches!(place.line, 1 | 2), "{place}");
    }
}
