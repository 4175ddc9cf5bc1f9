//! A prompt in any form becomes token ids.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use tracing::warn;

use crate::clock;
use crate::request::{ChatMessage, Limits, Prompt, RequestError, check_tokens};
use crate::text::{ChatTemplate, ContentGuard, Tokenizer, TokenizerError};
use crate::units::TokenId;

/// Longer prompts are prepared off the async threads: tokenising runs at a few MB/s, so this is some milliseconds.
const INLINE_BYTES: usize = 8 << 10;
/// What a message costs beside its text, for the comparison above.
const MESSAGE_BYTES: usize = 64;

/// What turns prompts into tokens.
pub struct Preparer {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub guard: ContentGuard,
    pub limits: Limits,
}

/// Whether a text gets the tokens that the tokenizer puts around one, such as BOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddSpecial {
    Yes,
    No,
}

/// The prompt's tokens, each below the width of the logits. Their number is not checked here.
pub async fn tokens(
    preparer: &Arc<Preparer>,
    prompt: Prompt,
    add_special: AddSpecial,
) -> Result<Vec<TokenId>, RequestError> {
    if bytes(&prompt) <= INLINE_BYTES {
        return preparer.tokens(&prompt, add_special);
    }
    let preparer = Arc::clone(preparer);
    // A panic in there ends this request only.
    spawn_blocking(move || preparer.tokens(&prompt, add_special)).await.unwrap_or(Err(RequestError::Internal))
}

/// Of its text; token ids count one each, for they are only compared with the vocabulary.
pub fn bytes(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Text(text) => text.len(),
        Prompt::Tokens(ids) => ids.len(),
        Prompt::Chat(messages) => messages
            .iter()
            .map(|m| m.role.len() + m.content.len() + m.name.as_ref().map_or(0, String::len) + MESSAGE_BYTES)
            .sum(),
    }
}

impl Preparer {
    fn tokens(&self, prompt: &Prompt, add_special: AddSpecial) -> Result<Vec<TokenId>, RequestError> {
        match prompt {
            Prompt::Text(text) => {
                let tokens = self.tokenizer.encode(text, add_special == AddSpecial::Yes).map_err(tokenizer_error)?;
                self.in_vocabulary("prompt", tokens)
            }
            Prompt::Tokens(ids) => check_tokens("prompt", ids, self.limits.max_model_len as usize, &self.limits),
            Prompt::Chat(messages) => self.in_vocabulary("messages", self.chat(messages)?),
        }
    }

    /// The template writes its own BOS, so the post-processor's tokens are left out.
    fn chat(&self, messages: &[ChatMessage]) -> Result<Vec<TokenId>, RequestError> {
        let Some(template) = &self.template else {
            let message = "the model has no chat template; use /v1/completions".to_owned();
            return Err(RequestError::Template { message });
        };
        if messages.is_empty() {
            return Err(RequestError::invalid("messages", "must have at least one entry"));
        }
        let rendered = template
            .render(&self.guard.mark(messages), true, clock::unix_seconds())
            .map_err(|error| RequestError::Template { message: error.to_string() })?;
        let mut tokens = Vec::new();
        for piece in ContentGuard::pieces(&rendered) {
            tokens.extend(self.tokenizer.encode(piece, false).map_err(tokenizer_error)?);
        }
        Ok(tokens)
    }

    /// A tokenizer may know added tokens that the model has no row for.
    fn in_vocabulary(&self, param: &str, tokens: Vec<TokenId>) -> Result<Vec<TokenId>, RequestError> {
        match tokens.iter().find(|&&token| token >= self.limits.vocab_size) {
            Some(token) => Err(RequestError::invalid(param, format!("holds the token {token}, which the model lacks"))),
            None => Ok(tokens),
        }
    }
}

/// The details may quote the prompt, so the log names only the kind.
pub fn tokenizer_error(error: TokenizerError) -> RequestError {
    warn!(panicked = error == TokenizerError::Panicked, "the tokenizer failed on a prompt");
    RequestError::Internal
}
