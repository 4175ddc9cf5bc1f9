//! The one parser of all families. Pure.

use std::collections::{HashSet, VecDeque};

use super::family::ToolFamily;
use super::object::{Found, Nest, ObjectScan};
use super::piece::Piece;
use super::syntax::Syntax;
use crate::glyph::{self, Glyph, Spells};

/// What may be held of a call that has not begun, in characters. Only arguments that stand before their name come near.
const MAX_HELD: usize = 64 << 10;
/// The same for what stands between a mark and the arguments in calls that are no objects.
const MAX_HEAD: usize = 512;

/// Finds calls in text that arrives in chunks.
///
/// Pieces, neighbours of a kind joined, do not depend on how the text was cut; the work is linear in it. White space between
/// calls, around them at the answer's beginning and after the last one is dropped, as are marks; all other text comes out.
pub struct ToolParser {
    syntax: &'static Syntax,
    names: HashSet<String>,
    only_first: bool,
    state: State,
    /// In the list of calls that a `[` opened.
    in_list: bool,
    /// What is to be looked at, again or for the first time.
    queue: VecDeque<Glyph>,
    /// White space that is dropped if a call follows and text if not.
    lead: Vec<Glyph>,
    /// What `state` has not decided about.
    held: Vec<Glyph>,
    pieces: Vec<Piece>,
}

enum State {
    /// `start`: only white space has come.
    Text {
        start: bool,
    },
    /// After a mark or a separator: a list, an object or a name may follow.
    Opened,
    Object {
        scan: ObjectScan,
        begun: bool,
    },
    /// Before the arguments of a call that is no object.
    Head {
        text: String,
    },
    /// In them.
    Arguments(Nest),
    /// Right after a call.
    After,
    /// After the only call that was wanted; nothing more is read.
    Ended,
}

impl ToolParser {
    /// Calls of anything but `names` are text. With `only_first` nothing is read after the first call.
    pub fn new(family: ToolFamily, names: impl IntoIterator<Item = String>, only_first: bool) -> ToolParser {
        ToolParser {
            syntax: family.syntax(),
            names: names.into_iter().collect(),
            only_first,
            state: State::Text { start: true },
            in_list: false,
            queue: VecDeque::new(),
            lead: Vec::new(),
            held: Vec::new(),
            pieces: Vec::new(),
        }
    }

    pub fn push(&mut self, text: impl IntoIterator<Item = Glyph>) -> Vec<Piece> {
        self.queue.extend(text);
        self.run();
        std::mem::take(&mut self.pieces)
    }

    /// The text ended: what has not begun to be a call is text.
    pub fn finish(&mut self) -> Vec<Piece> {
        loop {
            match &self.state {
                State::Text { .. } => {
                    let rest = std::mem::take(&mut self.held);
                    self.put_text(rest);
                    break;
                }
                State::Opened | State::Object { begun: false, .. } | State::Head { .. } => {
                    self.give_up();
                    self.run();
                }
                // What is left says nothing: the end of a call's object, a part of a close tag.
                State::Object { begun: true, .. } | State::Arguments(_) | State::After | State::Ended => {
                    self.held.clear();
                    break;
                }
            }
        }
        // White space at the end of an answer without words is still its text; after a call it is nothing.
        let lead = std::mem::take(&mut self.lead);
        if matches!(self.state, State::Text { .. }) {
            self.put_text(lead);
        }
        std::mem::take(&mut self.pieces)
    }

    /// The only call that was wanted is complete.
    pub fn ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Bytes of the text so far that no piece has accounted for.
    pub fn held_bytes(&self) -> usize {
        glyph::bytes(&self.lead) + glyph::bytes(&self.held)
    }

    fn run(&mut self) {
        while let Some(glyph) = self.queue.pop_front() {
            self.step(glyph);
        }
    }

    fn step(&mut self, glyph: Glyph) {
        match &mut self.state {
            State::Text { start } => {
                let start = *start;
                self.text(start, glyph);
            }
            State::Opened => self.opened(glyph),
            // A mark that is a special token is never a part of arguments.
            State::Object { begun: true, .. } | State::Arguments(_) if glyph.special => {}
            State::Object { scan, .. } => {
                let found = scan.push(glyph.c, |name| self.names.contains(name));
                self.object(glyph, found);
            }
            State::Head { text } => {
                text.push(glyph.c);
                self.held.push(glyph);
                self.head(glyph.c);
            }
            State::Arguments(nest) => {
                let closed = nest.push(glyph.c);
                self.put_argument(glyph.c);
                if closed {
                    self.call_ended();
                }
            }
            State::After => self.after(glyph),
            State::Ended => {}
        }
    }

    fn text(&mut self, start: bool, glyph: Glyph) {
        if self.held.is_empty() {
            if start && glyph.c.is_whitespace() {
                return self.lead.push(glyph);
            }
            if start && self.syntax.bare && matches!(glyph.c, '{' | '[') {
                return self.opened(glyph);
            }
        }
        self.held.push(glyph);
        match Spells::any(&self.held, self.syntax.marks) {
            Spells::Whole => self.state = State::Opened,
            Spells::Beginning => {}
            Spells::No => self.give_up(),
        }
    }

    fn opened(&mut self, glyph: Glyph) {
        self.held.push(glyph);
        match glyph.c {
            c if c.is_whitespace() => self.state = State::Opened,
            '{' => self.state = State::Object { scan: ObjectScan::new(), begun: false },
            '[' if !self.in_list => {
                self.in_list = true;
                self.state = State::Opened;
            }
            c if self.syntax.name_of.is_some() && !self.in_list => self.state = State::Head { text: c.to_string() },
            _ => self.give_up(),
        }
        if self.held.len() > MAX_HELD {
            self.give_up();
        }
    }

    fn object(&mut self, glyph: Glyph, found: Found) {
        match found {
            Found::More => {
                self.held.push(glyph);
                if self.held.len() > MAX_HELD && matches!(self.state, State::Object { begun: false, .. }) {
                    self.give_up();
                }
            }
            Found::Begin { name, arguments } => {
                self.begin(name, arguments);
                if let State::Object { begun, .. } = &mut self.state {
                    *begun = true;
                }
            }
            Found::Argument => self.put_argument(glyph.c),
            Found::End => self.call_ended(),
            Found::Whole { name } if !self.syntax.bare => {
                self.begin(name, "{}".to_owned());
                self.call_ended();
            }
            Found::Whole { .. } | Found::Bad => {
                self.held.push(glyph);
                match self.state {
                    // The call has all it needs; what follows is text.
                    State::Object { begun: true, .. } => {
                        let tail = std::mem::take(&mut self.held);
                        self.call_ended();
                        self.again(tail);
                    }
                    _ => self.give_up(),
                }
            }
        }
    }

    fn head(&mut self, c: char) {
        let State::Head { text } = &self.state else { return };
        if c == '{' {
            let name = self.syntax.name_of.and_then(|name_of| name_of(&text[..text.len() - 1]));
            match name.filter(|name| self.names.contains(*name)).map(str::to_owned) {
                Some(name) => {
                    self.begin(name, c.to_string());
                    self.state = State::Arguments(Nest::new());
                }
                None => self.give_up(),
            }
        } else if text.len() > MAX_HEAD {
            self.give_up();
        }
    }

    fn after(&mut self, glyph: Glyph) {
        if self.held.is_empty() {
            match glyph.c {
                c if c.is_whitespace() => return self.lead.push(glyph),
                ']' if self.in_list => {
                    self.in_list = false;
                    return self.lead.clear();
                }
                ',' if self.in_list => {
                    self.held.push(glyph);
                    return self.state = State::Opened;
                }
                c if !self.in_list && self.syntax.separator == Some(c) => {
                    self.held.push(glyph);
                    return self.state = State::Opened;
                }
                '{' if !self.in_list && self.syntax.bare => return self.opened(glyph),
                _ => {}
            }
        }
        self.held.push(glyph);
        match Spells::any(&self.held, self.syntax.closes) {
            Spells::Whole => {
                self.held.clear();
                self.lead.clear();
                self.in_list = false;
            }
            Spells::Beginning => {}
            Spells::No => {
                let held = std::mem::take(&mut self.held);
                self.again(held);
            }
        }
    }

    fn begin(&mut self, name: String, arguments: String) {
        self.lead.clear();
        self.held.clear();
        self.pieces.push(Piece::Call { name });
        self.pieces.push(Piece::Arguments(arguments));
    }

    fn call_ended(&mut self) {
        self.held.clear();
        self.state = State::After;
        if self.only_first {
            self.queue.clear();
            self.state = State::Ended;
        }
    }

    /// What is held is no call: its first character is text, and the others are looked at again.
    fn give_up(&mut self) {
        let mut held = std::mem::take(&mut self.held).into_iter();
        let first: Vec<Glyph> = held.next().into_iter().collect();
        self.put_text(first);
        self.again(held.collect());
    }

    fn again(&mut self, glyphs: Vec<Glyph>) {
        if !self.ended() {
            self.state = State::Text { start: false };
            self.in_list = false;
            glyphs.into_iter().rev().for_each(|glyph| self.queue.push_front(glyph));
        }
    }

    fn put_text(&mut self, glyphs: Vec<Glyph>) {
        let lead = if glyphs.is_empty() { Vec::new() } else { std::mem::take(&mut self.lead) };
        let text = glyph::visible(lead.into_iter().chain(glyphs));
        match self.pieces.last_mut() {
            Some(Piece::Text(before)) => before.push_str(&text),
            _ if text.is_empty() => {}
            _ => self.pieces.push(Piece::Text(text)),
        }
    }

    fn put_argument(&mut self, c: char) {
        match self.pieces.last_mut() {
            Some(Piece::Arguments(before)) => before.push(c),
            _ => self.pieces.push(Piece::Arguments(c.to_string())),
        }
    }
}
