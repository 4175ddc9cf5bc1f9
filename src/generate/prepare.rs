//! A prompt in any form becomes token ids.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use tracing::warn;

use forebay_core::request::{Limits, RequestError, check_tokens};
use forebay_core::units::TokenId;
use forebay_text::{ChatMessage, TemplateOptions};
use forebay_text::{
    ChatTemplate, ContentGuard, TemplateError, Tokenizer, TokenizerError, ToolsIn, detokenize, in_plain_words,
};

use super::infill;
use super::raw::Prompt;

/// Longer prompts are prepared off the async threads: tokenising runs at a few MB/s, so this is some milliseconds.
const INLINE_BYTES: usize = 8 << 10;
/// What a message costs beside its text, for the comparison above.
const MESSAGE_BYTES: usize = 64;

/// What turns prompts into tokens.
pub struct Preparer {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub guard: ContentGuard,
    /// Tools and calls that the template has no place for are told in plain words.
    pub plain_words: bool,
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
    options: TemplateOptions,
) -> Result<Vec<TokenId>, RequestError> {
    if bytes(&prompt, &options) <= INLINE_BYTES {
        return preparer.tokens(&prompt, add_special, &options);
    }
    let preparer = Arc::clone(preparer);
    // A panic in there ends this request only.
    spawn_blocking(move || preparer.tokens(&prompt, add_special, &options)).await.unwrap_or(Err(RequestError::Internal))
}

/// Of its text; token ids count one each, for they are only compared with the vocabulary.
pub fn bytes(prompt: &Prompt, options: &TemplateOptions) -> usize {
    // Templates may indent them, and the way to call them is told beside.
    let tools = options.tools.as_ref().map_or(0, |tools| 2 * tools.json.len() + 512);
    tools
        + match prompt {
            Prompt::Text(text) => text.len(),
            Prompt::Infill { before, after } => before.len() + after.len(),
            Prompt::Tokens(ids) => ids.len(),
            Prompt::Chat(messages) => {
                messages.iter().map(|message| message.texts().map(String::len).sum::<usize>() + MESSAGE_BYTES).sum()
            }
        }
}

impl Preparer {
    fn tokens(
        &self,
        prompt: &Prompt,
        add_special: AddSpecial,
        options: &TemplateOptions,
    ) -> Result<Vec<TokenId>, RequestError> {
        match prompt {
            Prompt::Text(text) => {
                let tokens = self.tokenizer.encode(text, add_special == AddSpecial::Yes).map_err(tokenizer_error)?;
                self.in_vocabulary("prompt", tokens)
            }
            Prompt::Tokens(ids) => check_tokens("prompt", ids, usize::MAX, &self.limits),
            Prompt::Infill { before, after } => {
                let encode = |text: &str| self.tokenizer.encode(text, false).map_err(tokenizer_error);
                self.in_vocabulary("prompt", infill::tokens(&self.tokenizer, encode, before, after)?)
            }
            Prompt::Chat(messages) => self.in_vocabulary("messages", self.chat(messages, options)?),
        }
    }

    /// The template writes its own BOS, so the post-processor's tokens are left out.
    fn chat(&self, messages: &[ChatMessage], options: &TemplateOptions) -> Result<Vec<TokenId>, RequestError> {
        let Some(template) = &self.template else {
            let message = "the model has no chat template; use /v1/completions".to_owned();
            return Err(RequestError::Template { message });
        };
        if messages.is_empty() {
            return Err(RequestError::invalid("messages", "must have at least one entry"));
        }
        let mut tools = options.tools.clone();
        let told = tools.take_if(|_| template.tools_in() == ToolsIn::Nowhere);
        let calling = |message: &ChatMessage| !message.tool_calls.is_empty() || message.role == "tool";
        let lost = messages.iter().position(calling).filter(|_| !template.mentions("tool_calls"));
        if let Some(index) = lost.filter(|_| !self.plain_words) {
            let message = "the chat template of this model has no place for calls and their results".to_owned();
            return Err(RequestError::Unsupported { param: format!("messages[{index}]"), message });
        }
        let plain = (told.is_some() || lost.is_some())
            .then(|| in_plain_words(messages, told.as_ref().map(|tools| tools.json.as_str())));
        let marked = self.guard.mark(plain.as_deref().unwrap_or(messages));
        let variables =
            options.variables.iter().map(|(name, json)| (name.clone(), self.guard.mark_json(json))).collect();
        tools.iter_mut().for_each(|tools| tools.json = self.guard.mark_json(&tools.json));
        let guarded = TemplateOptions { variables, tools, ..options.clone() };
        let mut rendered =
            template.render_with(&marked, &guarded, forebay_clock::unix_seconds()).map_err(template_error)?;
        if let Some(last) = marked.last().filter(|_| options.continue_final_message) {
            reopen(&mut rendered, &last.content)?;
        }
        let mut tokens = Vec::new();
        for piece in ContentGuard::pieces(&rendered) {
            tokens.extend(self.tokenizer.encode(piece, false).map_err(tokenizer_error)?);
        }
        Ok(tokens)
    }

    /// The end of a prompt's text, special tokens spelled out: enough to see a tag there.
    pub fn last_words(&self, tokens: &[TokenId]) -> Result<String, RequestError> {
        const ENOUGH: usize = 16;
        detokenize(&self.tokenizer, &tokens[tokens.len().saturating_sub(ENOUGH)..]).map_err(tokenizer_error)
    }

    /// The text of a prompt's tokens, special ones left out.
    pub fn spell(&self, tokens: &[TokenId]) -> Result<String, RequestError> {
        let text: Vec<TokenId> = tokens.iter().copied().filter(|&token| self.tokenizer.is_text(token)).collect();
        detokenize(&self.tokenizer, &text).map_err(tokenizer_error)
    }

    /// A tokenizer may know added tokens that the model has no row for.
    fn in_vocabulary(&self, param: &str, tokens: Vec<TokenId>) -> Result<Vec<TokenId>, RequestError> {
        match tokens.iter().find(|&&token| token >= self.limits.vocab_size) {
            Some(token) => Err(RequestError::invalid(param, format!("holds the token {token}, which the model lacks"))),
            None => Ok(tokens),
        }
    }
}

/// Takes away what the template wrote after the last message's text (as Transformers does).
fn reopen(rendered: &mut String, content: &str) -> Result<(), RequestError> {
    // Templates may trim.
    let end = [content, content.trim()].into_iter().find_map(|text| Some(rendered.rfind(text)? + text.len()));
    let Some(end) = end.filter(|_| !content.trim().is_empty()) else {
        let message = "the chat template does not write the last message as it is, so it cannot be continued";
        return Err(RequestError::invalid("continue_final_message", message));
    };
    rendered.truncate(end);
    Ok(())
}

fn template_error(error: TemplateError) -> RequestError {
    let message = error.to_string();
    match error {
        TemplateError::TooMuchWork { .. } | TemplateError::TooLong { .. } => RequestError::TemplateLimit { message },
        TemplateError::Syntax { .. } | TemplateError::Raised { .. } | TemplateError::Failed { .. } => {
            RequestError::Template { message }
        }
    }
}

/// The details may quote the prompt, so the log names only the kind.
pub fn tokenizer_error(error: TokenizerError) -> RequestError {
    warn!(panicked = error == TokenizerError::Panicked, "the tokenizer failed on a prompt");
    RequestError::Internal
}
