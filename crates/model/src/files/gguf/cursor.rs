//! Reading little-endian numbers one after another without ever leaving the file.

use std::ops::Range;

use crate::types::error::GgufRule;

pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that follow.
    pub(super) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Steps over `count` bytes; returns where they lie. `what` they are is for the error.
    pub(super) fn skip(&mut self, count: u64, what: &'static str) -> Result<Range<usize>, GgufRule> {
        match usize::try_from(count) {
            Ok(count) if count <= self.left() => {
                let start = self.at;
                self.at += count;
                Ok(start..self.at)
            }
            _ => Err(GgufRule::End { what, at: self.at, claimed: count, present: self.left() }),
        }
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufRule> {
        let range = self.skip(N as u64, what)?;
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[range]);
        Ok(out)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufRule> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufRule> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A length, then that many bytes.
    pub(super) fn string(&mut self, what: &'static str) -> Result<Range<usize>, GgufRule> {
        let length = self.u64(what)?;
        self.skip(length, what)
    }

    /// A string of 1 to `limit` bytes of UTF-8.
    pub(super) fn name(&mut self, what: &'static str, limit: usize) -> Result<&'a str, GgufRule> {
        let at = self.at;
        let length = self.u64(what)?;
        if length == 0 || length > limit as u64 {
            return Err(GgufRule::NameLength { what, at, claimed: length, limit });
        }
        let range = self.skip(length, what)?;
        std::str::from_utf8(&self.bytes[range]).map_err(|_| GgufRule::NameText { what, at })
    }

    /// A count of things that take at least `least` bytes each.
    pub(super) fn count(&self, claimed: u64, what: &'static str, least: usize) -> Result<usize, GgufRule> {
        let limit = self.left() / least;
        match usize::try_from(claimed) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(GgufRule::Count { what, claimed, limit }),
        }
    }
}
