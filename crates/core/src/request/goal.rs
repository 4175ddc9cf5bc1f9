//! What a sequence is computed for. Pure.

/// What a sequence is computed for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// Tokens are drawn until it ends.
    #[default]
    Completion,
    /// It ends with its prompt, whose hidden states become one vector.
    Embedding(Pooling),
}

/// How the hidden states of a prompt become one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// That of the last token, as decoders that were trained to embed have it (Qwen3-Embedding, E5-Mistral).
    #[default]
    Last,
    /// Their mean.
    Mean,
    /// That of the first token.
    Cls,
}

impl Pooling {
    pub const ALL: [Pooling; 3] = [Pooling::Last, Pooling::Mean, Pooling::Cls];

    pub const fn name(self) -> &'static str {
        match self {
            Pooling::Last => "last",
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
        }
    }

    /// Whether it reads no state but the last one. States of tokens that the prefix cache has are not computed again.
    pub const fn reads_only_the_last(self) -> bool {
        matches!(self, Pooling::Last)
    }
}
