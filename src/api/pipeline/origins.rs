//! Where the messages of a translated chat came from, for the names in errors.

/// Of each message of a chat: the place in the body that it was made of, and those of its calls.
#[derive(Debug, Default)]
pub struct Origins(Vec<Origin>);

#[derive(Debug, Default)]
struct Origin {
    place: String,
    calls: Vec<String>,
}

impl Origins {
    /// The next message comes from `place`.
    pub fn message(&mut self, place: impl Into<String>) {
        self.0.push(Origin { place: place.into(), calls: Vec::new() });
    }

    /// The next call of the last message comes from `place`.
    pub fn call(&mut self, place: impl Into<String>) {
        if let Some(last) = self.0.last_mut() {
            last.calls.push(place.into());
        }
    }

    /// The place of `messages[2].tool_calls[1].id` and its like, and what is left of the name; `None` for other names. Of a place
    /// that is a text as a whole, nothing is left.
    pub fn find<'a>(&self, param: &'a str) -> Option<(&str, &'a str)> {
        let (origin, rest) = indexed(param, "messages[").and_then(|(index, rest)| Some((self.0.get(index)?, rest)))?;
        let call = indexed(rest, ".tool_calls[").and_then(|(index, rest)| Some((origin.calls.get(index)?, rest)));
        Some(match call {
            Some((place, rest)) => (place, rest),
            None if origin.place.ends_with(']') => (&origin.place, rest),
            None => (&origin.place, ""),
        })
    }
}

/// `prefix`, a number, `]`: the number, and what follows.
fn indexed<'a>(text: &'a str, prefix: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = text.strip_prefix(prefix)?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_calls_are_found_again() {
        let mut origins = Origins::default();
        origins.message("system");
        origins.message("input[3]");
        origins.call("input[4]");
        origins.call("input[5]");
        for (param, expected) in [
            ("messages[0].content", Some(("system", ""))),
            ("messages[1].role", Some(("input[3]", ".role"))),
            ("messages[1].tool_calls[1].id", Some(("input[5]", ".id"))),
            ("messages[1].tool_calls[9].id", Some(("input[3]", ".tool_calls[9].id"))),
            ("messages[7].role", None),
            ("messages", None),
            ("n", None),
        ] {
            assert_eq!(origins.find(param), expected, "{param}");
        }
    }
}
