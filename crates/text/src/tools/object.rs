//! A call that is a JSON object, read character by character. Pure.

/// The longest name, in the model's spelling, that is looked at.
const MAX_NAME_BYTES: usize = 256;

/// What a character meant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing yet, or nothing to hand out.
    More,
    /// The call begins, and so much of its arguments has come, this character included.
    Begin { name: String, arguments: String },
    /// The character is one of the arguments.
    Argument,
    /// The object is complete, and with it the call.
    End,
    /// The object is complete and is a call without arguments.
    Whole { name: String },
    /// This is no call; if one had begun, it ended before this character.
    Bad,
}

/// Reads what follows the `{` of `{"name": "f", "arguments": {…}}`: `parameters` is another word for `arguments`, their
/// order is free, they may be written as a string of JSON, and other fields are passed over. Its memory is the name, and
/// the arguments where they stand before it.
pub(super) struct ObjectScan {
    at: At,
    /// What the value is that is being read.
    field: Field,
    /// The string being read, in the file's spelling without its quotes.
    text: String,
    name: Option<String>,
    /// Arguments that came before the name.
    early: Option<String>,
    begun: bool,
}

#[derive(Clone, Copy)]
enum At {
    FirstKey,
    Key,
    InKey(Escape),
    Colon,
    Value,
    InText(Escape),
    InNest(Nest),
    /// A number, true, false or null.
    InWord,
    Comma,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    No,
    Backslash,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Other,
}

impl ObjectScan {
    pub fn new() -> ObjectScan {
        ObjectScan { at: At::FirstKey, field: Field::Other, text: String::new(), name: None, early: None, begun: false }
    }

    /// `known` says whether a tool has this name.
    pub fn push(&mut self, c: char, known: impl Fn(&str) -> bool) -> Found {
        match self.at {
            At::FirstKey | At::Key | At::Colon | At::Value if c.is_ascii_whitespace() => Found::More,
            At::FirstKey | At::Key if c == '"' => {
                self.text.clear();
                self.go(At::InKey(Escape::No))
            }
            At::InKey(escape) => match self.spell(escape, c) {
                Some(escape) => self.go(At::InKey(escape)),
                None => {
                    self.field = match self.text.as_str() {
                        "name" if self.name.is_none() => Field::Name,
                        "arguments" | "parameters" if self.early.is_none() && !self.begun => Field::Arguments,
                        _ => Field::Other,
                    };
                    self.go(At::Colon)
                }
            },
            At::Colon if c == ':' => self.go(At::Value),
            At::Value => self.value(c),
            At::InText(escape) => match self.spell(escape, c) {
                Some(escape) => self.go(At::InText(escape)),
                None => {
                    self.at = At::Comma;
                    self.text_ended(known)
                }
            },
            At::InNest(mut nest) => {
                self.at = if nest.push(c) { At::Comma } else { At::InNest(nest) };
                match (self.field, &mut self.early) {
                    (Field::Arguments, Some(early)) => early.push(c),
                    (Field::Arguments, None) => return Found::Argument,
                    _ => {}
                }
                Found::More
            }
            At::InWord if c.is_ascii_alphanumeric() || "+-.".contains(c) => {
                self.text.push(c);
                Found::More
            }
            At::InWord if self.field == Field::Arguments && self.text != "null" => Found::Bad,
            At::InWord | At::Comma => match c {
                ',' => self.go(At::Key),
                '}' => self.ended(),
                _ if c.is_ascii_whitespace() => self.go(At::Comma),
                _ => Found::Bad,
            },
            At::FirstKey | At::Key | At::Colon => Found::Bad,
        }
    }

    fn go(&mut self, at: At) -> Found {
        self.at = at;
        Found::More
    }

    /// Adds to the string being read; `None` when `c` ends it.
    fn spell(&mut self, escape: Escape, c: char) -> Option<Escape> {
        let next = match (escape, c) {
            (Escape::No, '"') => return None,
            (Escape::No, '\\') => Escape::Backslash,
            _ => Escape::No,
        };
        // Of other fields' strings nothing is kept, nor of a key that is too long to be one of ours.
        if self.field != Field::Other || matches!(self.at, At::InKey(_)) && self.text.len() < MAX_NAME_BYTES {
            self.text.push(c);
        }
        Some(next)
    }

    fn value(&mut self, c: char) -> Found {
        match (c, self.field) {
            ('"', _) => {
                self.text.clear();
                self.go(At::InText(Escape::No))
            }
            ('{', Field::Arguments) => {
                self.at = At::InNest(Nest::new());
                self.arguments_begin(c.to_string())
            }
            ('{' | '[', Field::Other) => self.go(At::InNest(Nest::new())),
            ('-' | '0'..='9' | 't' | 'f' | 'n', Field::Other) | ('n', Field::Arguments) => {
                self.text.clear();
                self.text.push(c);
                self.go(At::InWord)
            }
            _ => Found::Bad,
        }
    }

    /// They are told once the name is known; some models write it behind them.
    fn arguments_begin(&mut self, arguments: String) -> Found {
        match &self.name {
            Some(name) => {
                self.begun = true;
                Found::Begin { name: name.clone(), arguments }
            }
            None => {
                self.early = Some(arguments);
                Found::More
            }
        }
    }

    fn text_ended(&mut self, known: impl Fn(&str) -> bool) -> Found {
        let decoded = || serde_json::from_str::<String>(&format!("\"{}\"", self.text)).ok();
        match self.field {
            Field::Other => Found::More,
            Field::Name => {
                let name = Some(&self.text).filter(|text| text.len() <= MAX_NAME_BYTES).and_then(|_| decoded());
                let Some(name) = name.filter(|name| known(name)) else { return Found::Bad };
                self.name = Some(name.clone());
                match self.early.take() {
                    Some(arguments) => {
                        self.begun = true;
                        Found::Begin { name, arguments }
                    }
                    None => Found::More,
                }
            }
            Field::Arguments => {
                let Some(arguments) = decoded().filter(|text| text.trim_start().starts_with('{')) else {
                    return Found::Bad;
                };
                self.arguments_begin(arguments)
            }
        }
    }

    fn ended(&mut self) -> Found {
        match self.name.take() {
            _ if self.begun => Found::End,
            Some(name) => Found::Whole { name },
            None => Found::Bad,
        }
    }
}

/// Follows braces, brackets and strings to the end of an object or a list that has just opened. It does not mind what
/// stands between them.
#[derive(Clone, Copy)]
pub(super) struct Nest {
    depth: u32,
    in_text: bool,
    escaped: bool,
}

impl Nest {
    pub fn new() -> Nest {
        Nest { depth: 1, in_text: false, escaped: false }
    }

    /// Whether `c` closes it.
    pub fn push(&mut self, c: char) -> bool {
        match c {
            _ if self.escaped => self.escaped = false,
            '\\' if self.in_text => self.escaped = true,
            '"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            '{' | '[' => self.depth = self.depth.saturating_add(1),
            '}' | ']' => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }
}
