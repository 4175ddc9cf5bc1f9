//! What a grammar that comes from a client may cost.

/// What a grammar may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of what the client wrote.
    pub bytes: usize,
    /// Brackets within brackets.
    pub depth: usize,
    /// States of the lexer, 1 to 2 kB each, for each sequence.
    pub lexer_states: usize,
    /// Symbols in productions.
    pub symbols: usize,
    /// Ways in which a text may be read at one place. What a token costs grows with the square, and where a text can be read
    /// in ever more ways, with the cube.
    pub items_in_row: usize,
    /// The same at all places that one mask looks at. 499 optional keys need 4,000, ordinary grammars some hundred; 8,000 of
    /// a grammar whose readings multiply take a few hundred milliseconds.
    pub items_in_mask: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bytes: 256 << 10,
            depth: 64,
            lexer_states: 20_000,
            symbols: 100_000,
            items_in_row: 2_000,
            items_in_mask: 8_000,
        }
    }
}
