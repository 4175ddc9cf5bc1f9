//! What a generation says, piece by piece.

use forebay_core::request::{FinishReason, RequestError};
use forebay_core::units::TokenId;

/// What a choice of a generation says. Exactly one of `Finished` and `Failed` comes for each, last.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// It has its seat; so many tokens of its prompt were in the KV cache. At most once, first.
    Admitted {
        cached_tokens: usize,
    },
    /// Before all text, where the prompt's logprobs were asked for: those of its tokens from the second on.
    Prompt(Vec<TokenLogprob>),
    Text(TextDelta),
    /// Of an embedding: the pooled state of the prompt.
    Embedded(Vec<f32>),
    Finished {
        reason: FinishReason,
        /// Up to the token that ended the completion, that one included.
        completion_tokens: u32,
        /// The stop string that ended it.
        stop: Option<String>,
    },
    Failed(RequestError),
}

/// Whole characters and the tokens that began in them. The texts of a choice's deltas, concatenated, are its completion;
/// their tokens, concatenated, are its tokens, end token included.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextDelta {
    pub text: String,
    /// What the model thought before its answer.
    pub reasoning: String,
    pub calls: Vec<CallDelta>,
    /// Where nothing of the above came, those that are left over at the end.
    pub tokens: Vec<TokenId>,
    /// How many of `tokens` were spent on thinking, tags included.
    pub reasoning_tokens: usize,
    /// One for each of `tokens` where logprobs were asked for, else none.
    pub logprobs: Vec<TokenLogprob>,
}

/// A part of a call. Its first delta has an id and a name and no arguments; the arguments of all, joined, are JSON as far as
/// the model can write it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallDelta {
    /// The choice's calls are counted from 0.
    pub index: usize,
    pub begins: Option<CallBegins>,
    pub arguments: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallBegins {
    /// Unlike any other call's.
    pub id: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: TokenId,
    /// The token on its own, U+FFFD where it holds part of a character.
    pub text: String,
    pub bytes: Vec<u8>,
    /// It adds nothing to the text: a special token.
    pub hidden: bool,
    pub logprob: f32,
    /// Among all tokens, from 1.
    pub rank: usize,
    /// Best first.
    pub top: Vec<TopLogprob>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TopLogprob {
    pub token: TokenId,
    pub text: String,
    pub bytes: Vec<u8>,
    pub logprob: f32,
}
