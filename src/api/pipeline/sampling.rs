//! The parameters that completions and chat share.

use serde_json::Value;

use super::head::Head;
use super::params::{Fields, wrong};
use super::structured::take_grammar;
use crate::api::State;
use crate::generate::RawRequest;
use forebay_core::request::{Parameters, RawShaping, RequestError};

/// How the client wants its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    pub stream: bool,
    /// `stream_options.include_usage`.
    pub usage_chunk: bool,
    /// `stream_options.continuous_usage_stats`: the usage so far in each chunk.
    pub continuous_usage: bool,
    /// `return_progress`, as llama-server has it: how far the prompt has been computed.
    pub progress: bool,
    /// `return_token_ids`, as vLLM has it.
    pub token_ids: bool,
    /// `x-forebay-trace`: how it was scheduled is told at the end.
    pub traced: bool,
    /// How many alternatives each token's logprobs hold; `None` without logprobs.
    pub logprobs: Option<i64>,
    /// The same for the tokens of the prompt, in vLLM's shape.
    pub prompt_logprobs: Option<i64>,
    /// Completions begin with their prompt.
    pub echo: bool,
    /// `max_tokens` 0: only the prompt was asked about, so what is drawn is dropped.
    pub no_completion: bool,
}

/// Refuses models that are not served; none is the default one. Returns the adapter that the name stands for.
pub fn check_model(state: &State, fields: &mut Fields) -> Result<Option<u32>, RequestError> {
    let Some(name) = fields.string("model")? else { return Ok(None) };
    check_name(state, &name)?;
    Ok(state.generator.adapter(&name))
}

/// `Ok` if the model is served here.
pub fn check_name(state: &State, name: &str) -> Result<(), RequestError> {
    const SHOWN: usize = 200;
    if state.generator.served(name) {
        return Ok(());
    }
    Err(RequestError::ModelNotFound { model: name.chars().take(SHOWN).collect() })
}

/// Everything of a [`RawRequest`] but its prompt, default `max_tokens` and logprobs.
pub fn take_sampling(fields: &mut Fields, head: &Head) -> Result<RawRequest, RequestError> {
    let (max_tokens, max_tokens_param) = take_max_tokens(fields)?;
    let parameters = Parameters {
        max_tokens,
        max_tokens_param,
        n: fields.integer("n")?,
        temperature: fields.number("temperature")?,
        top_p: fields.number("top_p")?,
        top_k: fields.integer("top_k")?,
        min_p: fields.number("min_p")?,
        typical_p: fields.number("typical_p")?,
        seed: fields.integer("seed")?,
        shaping: take_shaping(fields)?,
        stop_token_ids: fields.integers("stop_token_ids")?,
        ignore_eos: fields.flag("ignore_eos")?,
        prompt_logprobs: fields.integer("prompt_logprobs")?,
        prompt_logprobs_param: "prompt_logprobs",
        truncate_prompt_tokens: fields.integer("truncate_prompt_tokens")?,
        cache_prompt: fields.optional_flag("cache_prompt")?,
        cache_salt: fields.string("cache_salt")?,
        strict: head.strict,
        ..Parameters::default()
    };
    let mut raw = RawRequest {
        stop: fields.strings("stop")?,
        include_stop: fields.flag("include_stop_str_in_output")?,
        keep_special_tokens: fields.optional_flag("skip_special_tokens")? == Some(false),
        grammar: take_grammar(fields)?,
        parameters,
        ..RawRequest::default()
    };
    head.complete(fields, &mut raw)?;
    Ok(raw)
}

fn take_shaping(fields: &mut Fields) -> Result<RawShaping, RequestError> {
    let (ours, theirs) = (fields.number("repetition_penalty")?, fields.number("repeat_penalty")?);
    if let (Some(ours), Some(theirs)) = (ours, theirs)
        && ours != theirs
    {
        return Err(RequestError::invalid("repeat_penalty", format!("is {theirs}, but repetition_penalty is {ours}")));
    }
    Ok(RawShaping {
        presence_penalty: fields.number("presence_penalty")?,
        frequency_penalty: fields.number("frequency_penalty")?,
        repetition_penalty: ours.or(theirs),
        repetition_param: if ours.is_some() { "repetition_penalty" } else { "repeat_penalty" },
        logit_bias: fields.take("logit_bias").map_or(Ok(Vec::new()), logit_bias)?,
        min_tokens: fields.integer("min_tokens")?,
    })
}

/// `{"id": bias}` as OpenAI has it, or `[[id, bias]]` as llama-server has it too.
fn logit_bias(value: Value) -> Result<Vec<(i64, f64)>, RequestError> {
    const NAME: &str = "logit_bias";
    const EXPECTED: &str = "an object of token ids and numbers";
    let number = |value: &Value| value.as_f64().ok_or_else(|| wrong(NAME, EXPECTED, value));
    match value {
        Value::Object(map) => {
            let pair = |(id, bias): (&String, &Value)| match id.parse::<i64>() {
                Ok(id) => Ok((id, number(bias)?)),
                Err(_) => {
                    let shown: String = id.chars().take(40).collect();
                    Err(RequestError::invalid(NAME, format!("'{shown}' is not a token id")))
                }
            };
            map.iter().map(pair).collect()
        }
        Value::Array(list) => {
            let pair = |pair: &Value| match (pair[0].as_i64(), pair.as_array().map(Vec::len)) {
                (Some(id), Some(2)) => Ok((id, number(&pair[1])?)),
                _ => Err(wrong(NAME, EXPECTED, pair)),
            };
            list.iter().map(pair).collect()
        }
        other => Err(wrong(NAME, EXPECTED, &other)),
    }
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
    let progress = fields.flag("return_progress")?;
    if progress && !stream {
        return Err(RequestError::invalid("return_progress", "is only allowed when stream is true"));
    }
    let mut delivery = Delivery { stream, progress, token_ids, traced: head.traced, ..Delivery::default() };
    if let Some(mut options) = fields.object("stream_options")? {
        if !stream {
            return Err(RequestError::invalid("stream_options", "is only allowed when stream is true"));
        }
        delivery.usage_chunk = options.flag("include_usage")?;
        delivery.continuous_usage = options.flag("continuous_usage_stats")?;
        if options.flag("include_obfuscation")? {
            fields.ignore("stream_options.include_obfuscation");
        }
        fields.absorb("stream_options", options);
    }
    Ok(delivery)
}

/// `add_special_tokens`: texts have those of the tokenizer, chats those of the template.
pub fn check_special(fields: &mut Fields, added: bool) -> Result<(), RequestError> {
    match fields.optional_flag("add_special_tokens")? {
        Some(asked) if asked != added => {
            let message = format!("must be {added} here");
            Err(RequestError::Unsupported { param: "add_special_tokens".into(), message })
        }
        _ => Ok(()),
    }
}

/// What a stream cannot carry.
pub fn check_stream(delivery: &Delivery) -> Result<(), RequestError> {
    if delivery.stream && delivery.prompt_logprobs.is_some() {
        return Err(RequestError::invalid("prompt_logprobs", "is not available with stream; use echo with logprobs"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn biases_as_an_object_or_as_pairs() {
        assert_eq!(logit_bias(json!({"5": -100, "7": 1.5})), Ok(vec![(5, -100.0), (7, 1.5)]));
        assert_eq!(logit_bias(json!([[5, 2]])), Ok(vec![(5, 2.0)]));
        for bad in [
            json!({"a": 1}),
            json!({"5": "1"}),
            json!({"1.5": 1}),
            json!([5]),
            json!([[5]]),
            json!([["a", 1]]),
            json!(1),
        ] {
            let refused = logit_bias(bad.clone());
            assert!(
                matches!(refused, Err(RequestError::InvalidValue { ref param, .. }) if param == "logit_bias"),
                "{bad}"
            );
        }
    }
}
