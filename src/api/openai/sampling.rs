//! The parameters that completions and chat share.

use super::head::Head;
use super::params::Fields;
use crate::api::State;
use crate::request::{RawRequest, RequestError};

use super::models;

/// How the client wants its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    pub stream: bool,
    /// `stream_options.include_usage`.
    pub usage_chunk: bool,
    /// `return_token_ids`, as vLLM has it.
    pub token_ids: bool,
    /// `x-forebay-trace`: how it was scheduled is told at the end.
    pub traced: bool,
    /// How many alternatives each token's logprobs hold; `None` without logprobs.
    pub logprobs: Option<i64>,
}

/// Refuses models that are not served; none is the default one.
pub fn check_model(state: &State, fields: &mut Fields) -> Result<(), RequestError> {
    fields.string("model")?.map_or(Ok(()), |name| models::check(state, &name))
}

/// Everything of a [`RawRequest`] but its prompt, default `max_tokens` and logprobs.
pub fn take_sampling(fields: &mut Fields, head: &Head) -> Result<RawRequest, RequestError> {
    let (max_tokens, max_tokens_param) = take_max_tokens(fields)?;
    let n = fields.integer("n")?;
    if let Some(best_of) = fields.integer("best_of")?
        && best_of != n.unwrap_or(1)
    {
        let message = "only best_of = n; ranking is not implemented".into();
        return Err(RequestError::Unsupported { param: "best_of".into(), message });
    }
    let mut raw = RawRequest {
        max_tokens,
        max_tokens_param,
        n,
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        top_k: fields.integer("top_k")?,
        min_p: fields.number("min_p")?,
        seed: fields.integer("seed")?,
        stop: fields.strings("stop")?,
        stop_token_ids: fields.integers("stop_token_ids")?,
        ignore_eos: fields.flag("ignore_eos")?,
        ..RawRequest::default()
    };
    head.complete(fields, &mut raw)?;
    Ok(raw)
}

/// The newer name, the older one, or both if they agree.
fn take_max_tokens(fields: &mut Fields) -> Result<(Option<i64>, &'static str), RequestError> {
    let (new, old) = (fields.integer("max_completion_tokens")?, fields.integer("max_tokens")?);
    match (new, old) {
        (Some(new), Some(old)) if new != old => {
            Err(RequestError::invalid("max_tokens", format!("is {old}, but max_completion_tokens is {new}")))
        }
        (Some(new), _) => Ok((Some(new), "max_completion_tokens")),
        (None, old) => Ok((old, "max_tokens")),
    }
}

/// Everything of a [`Delivery`] but logprobs.
pub fn take_delivery(fields: &mut Fields, head: &Head) -> Result<Delivery, RequestError> {
    let stream = fields.flag("stream")?;
    let token_ids = fields.flag("return_token_ids")?;
    let mut usage_chunk = false;
    if let Some(mut options) = fields.object("stream_options")? {
        if !stream {
            return Err(RequestError::invalid("stream_options", "is only allowed when stream is true"));
        }
        usage_chunk = options.flag("include_usage")?;
        for name in ["include_obfuscation", "continuous_usage_stats"] {
            if options.flag(name)? {
                let param = format!("stream_options.{name}");
                return Err(RequestError::Unsupported { param, message: "it is not implemented".into() });
            }
        }
        fields.absorb("stream_options", options);
    }
    Ok(Delivery { stream, usage_chunk, token_ids, traced: head.traced, logprobs: None })
}
