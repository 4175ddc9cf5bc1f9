//! What a sequence tells its client.

use crate::step::Sampled;

use super::RequestError;

/// What a sequence tells its client. Exactly one of `Finished` and `Failed` comes, last.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It has its seat; so many tokens of its prompt were in the KV cache already. Comes once, before all else.
    Admitted {
        cached_tokens: usize,
    },
    /// A token, the one that ended the completion included.
    Token(Sampled),
    /// The pooled state of its prompt, as wide as the model. `Finished` follows.
    Embedded(Vec<f32>),
    Finished(FinishReason),
    Failed(RequestError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// An EOS or stop token was drawn (it is the last `Token` event), a stop string was found, or the grammar is complete.
    Stop,
    /// As `Stop`, after at least one call of a tool.
    ToolCalls,
    /// `max_tokens` or the context is full.
    Length,
    /// The client went away or the operator ended it.
    Abort,
}

impl FinishReason {
    pub const fn name(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::ToolCalls => "tool_calls",
            FinishReason::Length => "length",
            FinishReason::Abort => "abort",
        }
    }
}
