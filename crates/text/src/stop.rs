//! Stop strings, found across token boundaries. Pure.

/// What a piece of text brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scan {
    /// Text that is certainly not part of a stop string; may be empty.
    Pass(String),
    /// A stop string is complete. The text before it; nothing follows.
    Stop(String),
}

/// Passes text on until the first stop string, holding back what may be the beginning of one.
///
/// The stop that is complete first wins (of two complete at once, the longer), which does not depend on how the text was
/// cut into pieces. At most the longest stop string less one byte is held.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    matched: Option<String>,
}

impl StopMatcher {
    /// Empty stop strings are ignored.
    pub fn new(stops: Vec<String>) -> StopMatcher {
        StopMatcher {
            stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(),
            held: String::new(),
            matched: None,
        }
    }

    pub fn push(&mut self, text: &str) -> Scan {
        self.held.push_str(text);
        if let Some((end, start)) = self.earliest_stop() {
            self.matched = Some(self.held[start..end].to_owned());
            self.held.truncate(start);
            return Scan::Stop(std::mem::take(&mut self.held));
        }
        let kept = self.held.split_off(self.held.len() - self.suspicious());
        Scan::Pass(std::mem::replace(&mut self.held, kept))
    }

    /// The held text, when nothing can complete it any more.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// The stop string that was found.
    pub fn matched(&self) -> Option<&str> {
        self.matched.as_deref()
    }

    /// Where the stop string that is complete first ends and begins.
    fn earliest_stop(&self) -> Option<(usize, usize)> {
        let ends = self.stops.iter().filter_map(|stop| self.held.find(stop).map(|start| (start + stop.len(), start)));
        ends.min()
    }

    /// Bytes of the longest end of `held` that begins a stop string.
    fn suspicious(&self) -> usize {
        let longest = |stop: &String| {
            let ends = (1..stop.len()).rev().filter(|&len| len <= self.held.len());
            ends.into_iter().find(|&len| self.held.as_bytes().ends_with(&stop.as_bytes()[..len])).unwrap_or(0)
        };
        self.stops.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pushes the pieces; shows what each released, `!` at a stop, and the rest after `|`.
    fn check(stops: &[&str], pieces: &[&str], expected: &str) {
        let mut matcher = StopMatcher::new(stops.iter().map(|stop| stop.to_string()).collect());
        let mut seen = Vec::new();
        for piece in pieces {
            match matcher.push(piece) {
                Scan::Pass(text) => seen.push(text),
                Scan::Stop(text) => {
                    seen.push(text + "!");
                    break;
                }
            }
        }
        assert_eq!(format!("{}|{}", seen.join(","), matcher.finish()), expected);
    }

    #[test]
    fn text_without_a_stop_passes_at_once() {
        check(&[], &["a", "b"], "a,b|");
        check(&["END"], &["one", "two"], "one,two|");
    }

    #[test]
    fn a_stop_across_pieces_never_leaks() {
        check(&["STOP"], &["a S", "TO", "Pxyz"], "a ,,!|");
        check(&["\n\n"], &["a\n", "b\n", "\nc"], "a,\nb,!|");
    }

    #[test]
    fn a_beginning_that_comes_to_nothing_is_released() {
        check(&["STOP"], &["ST", "ART"], ",START|");
        check(&["STOP"], &["a ST"], "a |ST");
        check(&["aab"], &["aaa", "ab"], "a,a!|");
    }

    #[test]
    fn the_stop_that_is_complete_first_wins() {
        check(&["abcd", "bc"], &["abcd"], "a!|");
        check(&["bc", "abc"], &["xabc"], "x!|");
    }

    #[test]
    fn stops_of_several_bytes_per_character() {
        check(&["é!"], &["caf", "é", "!"], "caf,,!|");
        // `è` and `é` share their first byte: whole characters are held, none is split.
        check(&["é!"], &["è"], "è|");
    }

    /// The definition: feed one character at a time and stop when the text ends with a stop string.
    fn by_definition(stops: &[String], text: &str) -> (String, bool) {
        let ends = text.char_indices().map(|(at, c)| &text[..at + c.len_utf8()]);
        for seen in ends {
            if let Some(stop) = stops.iter().filter(|stop| seen.ends_with(*stop)).max_by_key(|stop| stop.len()) {
                return (seen[..seen.len() - stop.len()].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    proptest! {
        #[test]
        fn any_cutting_gives_the_definition(
            stops in proptest::collection::vec("[aé]{1,4}", 0..4),
            pieces in proptest::collection::vec("[aé]{0,3}b?[aé]{0,3}", 0..8),
        ) {
            let mut matcher = StopMatcher::new(stops.clone());
            let (mut text, mut stopped) = (String::new(), false);
            for piece in &pieces {
                match matcher.push(piece) {
                    Scan::Pass(passed) => text += &passed,
                    Scan::Stop(passed) => { text += &passed; stopped = true; break }
                }
            }
            text += &matcher.finish();
            prop_assert_eq!((text, stopped), by_definition(&stops, &pieces.concat()));
        }
    }
}
