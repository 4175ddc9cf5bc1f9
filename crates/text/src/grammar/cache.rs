//! Compiled grammars that were used lately.

use std::collections::HashMap;

use super::{Grammar, GrammarSpec};

/// At most so many grammars, and so many bytes of what clients wrote for them; of more, those that were not used for the
/// longest time go.
pub struct Cache {
    most: usize,
    most_bytes: usize,
    entries: HashMap<GrammarSpec, Entry>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    grammar: Grammar,
    used: u64,
}

impl Cache {
    /// `most` 0 keeps nothing.
    pub fn new(most: usize, most_bytes: usize) -> Cache {
        Cache { most, most_bytes, entries: HashMap::new(), bytes: 0, uses: 0 }
    }

    pub fn get(&mut self, spec: &GrammarSpec) -> Option<Grammar> {
        self.uses += 1;
        let entry = self.entries.get_mut(spec)?;
        entry.used = self.uses;
        Some(entry.grammar.clone())
    }

    pub fn put(&mut self, spec: GrammarSpec, grammar: Grammar) {
        self.uses += 1;
        let (bytes, entry) = (spec.bytes(), Entry { grammar, used: self.uses });
        if self.entries.insert(spec, entry).is_none() {
            self.bytes += bytes;
        }
        while self.entries.len() > self.most || self.bytes > self.most_bytes {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(spec, _)| spec.clone());
            let Some(oldest) = oldest else { break };
            self.bytes -= oldest.bytes();
            self.entries.remove(&oldest);
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
