//! What a route understood of its JSON, and the checks that need no tokenizer.

use std::sync::Arc;

use forebay_core::request::{Checked, Goal, Limits, Parameters, Payer, RequestError, Truncated, check_prompt_length};
use forebay_text::grammar::GrammarSpec;
use forebay_text::{ChatMessage, TemplateOptions};

/// What a route understood of its JSON, before any limit was checked.
#[derive(Clone, Debug, Default)]
pub struct RawRequest {
    pub prompt: Prompt,
    /// The text of the prompt is wanted too.
    pub echo: bool,
    pub template: TemplateOptions,
    pub stop: Vec<String>,
    /// The stop string or token that ended the completion is part of its text.
    pub include_stop: bool,
    /// Special tokens are spelled out in the text.
    pub keep_special_tokens: bool,
    /// Hears what it takes.
    pub payer: Option<Arc<dyn Payer>>,
    /// What the completion is to be.
    pub grammar: Option<Arc<RawGrammar>>,
    /// What is asked of the engine.
    pub parameters: Parameters,
}

/// What a completion is to be, and the name of the field that said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawGrammar {
    pub param: String,
    pub spec: GrammarSpec,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<i64>),
    Chat(Vec<ChatMessage>),
    /// The text before and after a hole that the model is to fill.
    Infill {
        before: String,
        after: String,
    },
}

impl Default for Prompt {
    fn default() -> Prompt {
        Prompt::Text(String::new())
    }
}

impl RawRequest {
    /// Checks everything that needs no tokenizer. `entropy` becomes the seed when the client gave none.
    pub fn check(&self, limits: &Limits, entropy: u64) -> Result<Checked, RequestError> {
        let asked = &self.parameters;
        if limits.only_embeds && asked.goal == Goal::Completion {
            return Err(RequestError::OnlyEmbeds);
        }
        if limits.simulated {
            let grammar = self.grammar.as_ref().map(|grammar| grammar.param.as_str());
            let logprobs = asked.logprobs.is_some().then_some(asked.logprobs_name());
            let prompt_logprobs = asked.prompt_logprobs.is_some().then_some(asked.prompt_logprobs_name());
            let embedding = matches!(asked.goal, Goal::Embedding(_)).then_some("model");
            if let Some(param) = grammar.or(logprobs).or(prompt_logprobs).or(embedding) {
                let message = "the simulated model has one word, no probabilities and no vectors".into();
                return Err(RequestError::Unsupported { param: param.into(), message });
            }
        }
        let truncate = asked.truncation(limits)?;
        match &self.prompt {
            Prompt::Text(text) if text.is_empty() => return Err(RequestError::EmptyPrompt),
            Prompt::Chat(messages) if messages.is_empty() => {
                return Err(RequestError::invalid("messages", "must have at least one message"));
            }
            // Cut before its length matters.
            Prompt::Tokens(tokens) if truncate.is_some() && !tokens.is_empty() => {}
            prompt => prompt.check_size(limits)?,
        }
        check_stops(&self.stop, limits)?;
        self.template.check()?;
        Ok(asked.check(limits, entropy)?.cutting(self.truncated(limits)))
    }

    /// What is left of a prompt that is cut. An encoder was trained on beginnings, and on the tokens around a text.
    fn truncated(&self, limits: &Limits) -> Truncated {
        match (&self.prompt, limits.only_embeds) {
            (_, false) => Truncated::End,
            (Prompt::Tokens(_), true) => Truncated::Beginning,
            (_, true) => Truncated::BeginningAndLast,
        }
    }
}

impl Prompt {
    /// A prompt of more bytes than the context's longest tokens could hold is refused before it is tokenised.
    pub fn check_size(&self, limits: &Limits) -> Result<(), RequestError> {
        let bytes = match self {
            Prompt::Text(text) => text.len(),
            Prompt::Infill { before, after } => before.len() + after.len(),
            Prompt::Chat(messages) => messages.iter().flat_map(ChatMessage::texts).map(String::len).sum(),
            Prompt::Tokens(tokens) => return check_prompt_length(tokens.len(), limits),
        };
        if bytes > limits.max_token_bytes.saturating_mul(limits.max_model_len as usize) {
            let at_least = bytes.div_ceil(limits.max_token_bytes.max(1));
            return Err(limits.too_long(at_least));
        }
        Ok(())
    }
}

fn check_stops(stops: &[String], limits: &Limits) -> Result<(), RequestError> {
    let (max, max_bytes) = (limits.max_stop_strings, limits.max_stop_bytes);
    if stops.len() > max {
        return Err(RequestError::invalid("stop", format!("has {} strings, at most {max} are allowed", stops.len())));
    }
    if stops.iter().any(|stop| stop.is_empty() || stop.len() > max_bytes) {
        return Err(RequestError::invalid("stop", format!("each stop string must have 1 to {max_bytes} bytes")));
    }
    Ok(())
}

#[cfg(test)]
#[path = "raw_tests.rs"]
mod tests;
