//! What a GGUF file to be written is made of: keys and values, in the order in which they are said, strings and padding.

use std::io::{self, Write};

// Value types of GGUF.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

#[derive(Default)]
pub(crate) struct Entries {
    /// Before the names of [`Entries::count`] and its like, with a dot between.
    pub prefix: Option<&'static str>,
    bytes: Vec<u8>,
    entries: u64,
}

impl Entries {
    /// How many there are, and they.
    pub(crate) fn written(&self) -> Vec<u8> {
        [&self.entries.to_le_bytes()[..], &self.bytes].concat()
    }

    fn key(&mut self, name: &str, kind: u32) {
        match self.prefix {
            Some(prefix) => string(&mut self.bytes, &format!("{prefix}.{name}")),
            None => string(&mut self.bytes, name),
        }
        self.bytes.extend(kind.to_le_bytes());
        self.entries += 1;
    }

    fn array(&mut self, name: &str, kind: u32, count: usize) {
        self.key(name, ARRAY);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((count as u64).to_le_bytes());
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.key(name, STRING);
        string(&mut self.bytes, text);
    }

    pub(crate) fn count(&mut self, name: &str, count: usize) {
        self.key(name, U32);
        self.bytes.extend((count as u32).to_le_bytes());
    }

    pub(crate) fn number(&mut self, name: &str, number: f32) {
        self.key(name, F32);
        self.bytes.extend(number.to_le_bytes());
    }

    pub(crate) fn flag(&mut self, name: &str, flag: bool) {
        self.key(name, BOOL);
        self.bytes.push(u8::from(flag));
    }

    pub(crate) fn texts(&mut self, name: &str, texts: &[Vec<u8>]) {
        self.array(name, STRING, texts.len());
        for text in texts {
            self.bytes.extend((text.len() as u64).to_le_bytes());
            self.bytes.extend_from_slice(text);
        }
    }

    pub(crate) fn integers(&mut self, name: &str, integers: &[i32]) {
        self.array(name, I32, integers.len());
        self.bytes.extend(integers.iter().flat_map(|x| x.to_le_bytes()));
    }

    pub(crate) fn numbers(&mut self, name: &str, numbers: &[f32]) {
        self.array(name, F32, numbers.len());
        self.bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
    }
}

/// Appends a length, then that many bytes.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Zeros up to the next multiple of `alignment`.
pub(crate) fn pad(out: &mut impl Write, written: usize, alignment: usize) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), (written.next_multiple_of(alignment) - written) as u64), out).map(drop)
}
