//! Grammars in llama.cpp's notation (`llama.cpp/grammars/README.md`), as Lark.
//!
//! There a rule speaks of characters, while Lark has a lexer that takes the longest word it can. So that the texts stay the
//! same, a grammar without recursion becomes one regular expression, and any other one in which each word is one character.

use std::collections::HashMap;
use std::fmt::Write;

use super::GrammarError;
use super::pattern::escaped;

/// The longest regular expression that rules are written out into.
const MOST_WRITTEN_OUT: usize = 64 << 10;
const MOST_REPETITIONS: usize = 10_000;
/// Like `*` in `a**`.
const MOST_SUFFIXES: usize = 4;

#[derive(Debug)]
enum Node {
    /// A regular expression for exactly one character.
    Char(String),
    Rule(String),
    Sequence(Vec<Node>),
    Either(Vec<Node>),
    Repeat(Box<Node>, usize, Option<usize>),
}

/// A grammar of the same texts. Its root is the rule `root`.
pub fn to_lark(grammar: &str) -> Result<String, GrammarError> {
    let rules = Parser { left: grammar, line: 1 }.rules()?;
    let names = names(&rules)?;
    if !rules.contains_key("root") {
        return Err(GrammarError::Invalid("there is no rule 'root'".into()));
    }
    let mut pattern = String::new();
    if write_out(&rules["root"], &rules, &mut vec!["root"], &mut pattern) {
        return Ok(format!("start: /{pattern}/\n"));
    }
    let mut lark = format!("start: {}\n", names["root"]);
    let mut sorted: Vec<_> = rules.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| *name);
    for (name, node) in sorted {
        let _ = writeln!(lark, "{}: {}", names[name.as_str()], word_by_word(node, &names));
    }
    Ok(lark)
}

/// What each rule is called in Lark, whose names are stricter. Every rule that is referred to has to be there.
fn names(rules: &HashMap<String, Node>) -> Result<HashMap<&str, String>, GrammarError> {
    let mut sorted: Vec<&str> = rules.keys().map(String::as_str).collect();
    sorted.sort_unstable();
    let names: HashMap<&str, String> =
        sorted.into_iter().enumerate().map(|(index, name)| (name, format!("rule_{index}"))).collect();
    let mut left: Vec<&Node> = rules.values().collect();
    while let Some(node) = left.pop() {
        match node {
            Node::Char(_) => {}
            Node::Rule(name) if names.contains_key(name.as_str()) => {}
            Node::Rule(name) => {
                return Err(GrammarError::Invalid(format!("the rule '{name}' is not defined")));
            }
            Node::Sequence(parts) | Node::Either(parts) => left.extend(parts),
            Node::Repeat(part, ..) => left.push(part),
        }
    }
    Ok(names)
}

/// Appends `node` as a regular expression. False where it is recursive or too long; then `into` is of no use.
fn write_out<'a>(
    node: &'a Node,
    rules: &'a HashMap<String, Node>,
    inside: &mut Vec<&'a str>,
    into: &mut String,
) -> bool {
    if into.len() > MOST_WRITTEN_OUT {
        return false;
    }
    match node {
        Node::Char(pattern) => into.push_str(pattern),
        Node::Rule(name) if inside.contains(&name.as_str()) => return false,
        Node::Rule(name) => {
            let Some(rule) = rules.get(name) else { return false };
            inside.push(name);
            let done = write_out(rule, rules, inside, into);
            inside.pop();
            return done;
        }
        Node::Sequence(parts) => return parts.iter().all(|part| write_out(part, rules, inside, into)),
        Node::Either(parts) => {
            into.push_str("(?:");
            for (index, part) in parts.iter().enumerate() {
                if index > 0 {
                    into.push('|');
                }
                if !write_out(part, rules, inside, into) {
                    return false;
                }
            }
            into.push(')');
        }
        Node::Repeat(part, least, most) => {
            into.push_str("(?:");
            if !write_out(part, rules, inside, into) {
                return false;
            }
            into.push(')');
            into.push_str(&times(*least, *most));
        }
    }
    into.len() <= MOST_WRITTEN_OUT
}

fn times(least: usize, most: Option<usize>) -> String {
    match (least, most) {
        (0, None) => "*".into(),
        (1, None) => "+".into(),
        (0, Some(1)) => "?".into(),
        (least, None) => format!("{{{least},}}"),
        (least, Some(most)) => format!("{{{least},{most}}}"),
    }
}

fn word_by_word(node: &Node, names: &HashMap<&str, String>) -> String {
    let join =
        |parts: &[Node], with: &str| parts.iter().map(|part| word_by_word(part, names)).collect::<Vec<_>>().join(with);
    match node {
        Node::Char(pattern) => format!("/{pattern}/"),
        Node::Rule(name) => names[name.as_str()].clone(),
        Node::Sequence(parts) if parts.is_empty() => r#""""#.into(),
        Node::Sequence(parts) => join(parts, " "),
        Node::Either(parts) => format!("({})", join(parts, " | ")),
        Node::Repeat(part, least, most) => format!("({}){}", word_by_word(part, names), times(*least, *most)),
    }
}

struct Parser<'a> {
    left: &'a str,
    line: usize,
}

/// Where a line break is space and where it ends a rule.
#[derive(Clone, Copy, PartialEq)]
enum Breaks {
    Skip,
    Stop,
}

impl Parser<'_> {
    fn rules(mut self) -> Result<HashMap<String, Node>, GrammarError> {
        let mut rules = HashMap::new();
        loop {
            self.space(Breaks::Skip);
            if self.left.is_empty() {
                return Ok(rules);
            }
            let name = self.name()?;
            self.space(Breaks::Stop);
            self.expect("::=")?;
            self.space(Breaks::Skip);
            let node = self.alternatives(Breaks::Stop)?;
            if !self.left.is_empty() && !self.left.starts_with(['\n', '\r']) {
                return Err(self.error("the rule should end here"));
            }
            if rules.insert(name.clone(), node).is_some() {
                return Err(self.error(&format!("the rule '{name}' is there twice")));
            }
        }
    }

    fn alternatives(&mut self, breaks: Breaks) -> Result<Node, GrammarError> {
        let mut parts = vec![self.sequence(breaks)?];
        while self.eat("|") {
            self.space(Breaks::Skip);
            parts.push(self.sequence(breaks)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Node::Either(parts) })
    }

    fn sequence(&mut self, breaks: Breaks) -> Result<Node, GrammarError> {
        let mut parts = Vec::new();
        while let Some(first) = self.left.chars().next() {
            let part = match first {
                '"' => self.literal()?,
                '[' => Node::Char(self.class()?),
                '.' => {
                    self.advance(1);
                    Node::Char("(?s:.)".into())
                }
                '(' => {
                    self.advance(1);
                    self.space(Breaks::Skip);
                    let group = self.alternatives(Breaks::Skip)?;
                    self.expect(")")?;
                    group
                }
                c if is_name(c) => Node::Rule(self.name()?),
                _ => break,
            };
            parts.push(self.repeated(part)?);
            self.space(breaks);
        }
        Ok(Node::Sequence(parts))
    }

    fn repeated(&mut self, mut part: Node) -> Result<Node, GrammarError> {
        for _ in 0..MOST_SUFFIXES {
            let (least, most) = match self.left.chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    let (least, most) = self.braces()?;
                    part = Node::Repeat(Box::new(part), least, most);
                    continue;
                }
                _ => return Ok(part),
            };
            self.advance(1);
            part = Node::Repeat(Box::new(part), least, most);
        }
        Err(self.error("too many repetitions of one thing"))
    }

    /// `{m}`, `{m,}` or `{m,n}`.
    fn braces(&mut self) -> Result<(usize, Option<usize>), GrammarError> {
        let Some(end) = self.left.find('}') else { return Err(self.error("'{' is not closed")) };
        let inside = &self.left[1..end];
        let number = |text: &str| text.trim().parse().ok().filter(|number| *number <= MOST_REPETITIONS);
        let bounds = match inside.split_once(',') {
            None => number(inside).map(|count| (count, Some(count))),
            Some((least, most)) if most.trim().is_empty() => number(least).map(|least| (least, None)),
            Some((least, most)) => number(least).zip(number(most)).map(|(least, most)| (least, Some(most))),
        };
        let bounds = bounds.filter(|(least, most)| most.is_none_or(|most| *least <= most));
        let bounds = bounds.ok_or_else(|| self.error(&format!("a repetition is {{m,n}} up to {MOST_REPETITIONS}")))?;
        self.advance(end + 1);
        Ok(bounds)
    }

    fn literal(&mut self) -> Result<Node, GrammarError> {
        self.advance(1);
        let mut parts = Vec::new();
        while !self.eat("\"") {
            let c = self.character()?;
            parts.push(Node::Char(escaped(c.encode_utf8(&mut [0; 4]))));
        }
        Ok(Node::Sequence(parts))
    }

    /// `[a-z]` or `[^a-z]`, as a regular expression.
    fn class(&mut self) -> Result<String, GrammarError> {
        self.advance(1);
        let mut pattern = String::from(if self.eat("^") { "[^" } else { "[" });
        let empty = pattern.len();
        while !self.eat("]") {
            let first = self.character()?;
            let ranged = self.left.starts_with('-') && !self.left.starts_with("-]");
            let last = if ranged {
                self.advance(1);
                self.character()?
            } else {
                first
            };
            if last < first {
                return Err(self.error("a range of characters runs backwards"));
            }
            let _ = write!(pattern, "\\x{{{:X}}}-\\x{{{:X}}}", u32::from(first), u32::from(last));
        }
        if pattern.len() == empty {
            return Err(self.error("a class has no characters"));
        }
        pattern.push(']');
        Ok(pattern)
    }

    /// One character of a literal or class, possibly escaped.
    fn character(&mut self) -> Result<char, GrammarError> {
        let mut chars = self.left.chars();
        match (chars.next(), chars.next()) {
            (Some('\\'), Some(c @ ('x' | 'u' | 'U'))) => {
                let digits = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let code = self.left.get(2..2 + digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let Some(c) = code.and_then(char::from_u32) else { return Err(self.error("no such character")) };
                self.advance(2 + digits);
                Ok(c)
            }
            (Some('\\'), Some(c)) => {
                let c = match c {
                    't' => '\t',
                    'r' => '\r',
                    'n' => '\n',
                    '\\' | '"' | '[' | ']' | '-' | '^' => c,
                    _ => return Err(self.error("no such escape")),
                };
                self.advance(2);
                Ok(c)
            }
            (Some('\n') | None, _) => Err(self.error("a literal or class is not closed")),
            (Some(c), _) => {
                self.advance(c.len_utf8());
                Ok(c)
            }
        }
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        let end = self.left.find(|c| !is_name(c)).unwrap_or(self.left.len());
        let name = self.left[..end].to_owned();
        if name.is_empty() {
            return Err(self.error("a rule's name should stand here"));
        }
        self.advance(end);
        Ok(name)
    }

    /// Blanks and comments.
    fn space(&mut self, breaks: Breaks) {
        loop {
            let blank = |c: char| c == ' ' || c == '\t' || breaks == Breaks::Skip && (c == '\n' || c == '\r');
            let end = self.left.find(|c| !blank(c)).unwrap_or(self.left.len());
            self.advance(end);
            if !self.left.starts_with('#') {
                return;
            }
            self.advance(self.left.find('\n').unwrap_or(self.left.len()));
        }
    }

    fn expect(&mut self, text: &str) -> Result<(), GrammarError> {
        if self.eat(text) { Ok(()) } else { Err(self.error(&format!("'{text}' should stand here"))) }
    }

    fn eat(&mut self, text: &str) -> bool {
        let there = self.left.starts_with(text);
        if there {
            self.advance(text.len());
        }
        there
    }

    fn advance(&mut self, bytes: usize) {
        let (passed, left) = self.left.split_at(bytes);
        self.line += passed.matches('\n').count();
        self.left = left;
    }

    fn error(&self, what: &str) -> GrammarError {
        GrammarError::Invalid(format!("line {}: {what}", self.line))
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}
