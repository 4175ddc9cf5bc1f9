//! What the answers of both endpoints share: identity, usage, timings, headers, logprobs of prompts.

use axum::http::{HeaderValue, Response};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::head::Head;
use super::running::{Running, Timings};
use crate::api::State;
use crate::generate::{Effective, TokenLogprob};
use forebay_clock::unix_seconds;
use forebay_core::units::Micros;
use forebay_engine::trace::{Trace, TraceFact, TraceLine};
use forebay_engine::workers::Pool;

/// The fields that all chunks of a stream repeat.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub system_fingerprint: String,
}

impl Identity {
    pub fn new(state: &State, head: &Head, object: &'static str) -> Identity {
        Identity {
            id: head.id.clone(),
            object,
            created: unix_seconds(),
            model: state.generator.name(head.adapter).to_owned(),
            system_fingerprint: state.info.system_fingerprint.clone(),
        }
    }

    /// A body or chunk with these choices.
    pub fn wrap(&self, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "choices": choices,
        })
    }
}

pub fn usage_of(running: &Running) -> Value {
    let (prompt_tokens, completion_tokens) = (running.prompt_token_count(), running.completion_tokens);
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": running.cached_token_count()},
        "completion_tokens_details": {"reasoning_tokens": running.reasoning_tokens},
    })
}

/// With llama-server's names. The prompt's time begins with the request's arrival and so includes its time in the queue.
pub fn timings(timings: &Timings) -> Value {
    let ms = |time: Micros| time.0 as f64 / 1_000.0;
    let per = |whole: f64, count: f64| if count > 0.0 { whole / count } else { 0.0 };
    let computed = timings.prompt_tokens - timings.cached_tokens;
    let (prompt_n, predicted_n) = (computed as f64, timings.completion_tokens as f64);
    let (prompt_ms, predicted_ms) = (ms(timings.prompt), ms(timings.completion));
    json!({
        "cache_n": timings.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": per(prompt_ms, prompt_n),
        "prompt_per_second": per(prompt_n * 1_000.0, prompt_ms),
        "predicted_n": timings.completion_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": per(predicted_ms, predicted_n),
        "predicted_per_second": per(predicted_n * 1_000.0, predicted_ms),
    })
}

/// A prompt's logprobs in vLLM's shape: nothing for the first token, then an object by token id. `count` alternatives.
pub fn prompt_logprobs(tokens: &[TokenLogprob], count: i64) -> Value {
    let entry =
        |text: &str, value: f32, rank: usize| json!({"logprob": logprob(value), "rank": rank, "decoded_token": text});
    let of = |token: &TokenLogprob| {
        let mut map = serde_json::Map::new();
        for (rank, top) in token.top.iter().take(count.max(0) as usize).enumerate() {
            map.insert(top.token.to_string(), entry(&top.text, top.logprob, rank + 1));
        }
        map.entry(token.token.to_string()).or_insert_with(|| entry(&token.text, token.logprob, token.rank));
        Value::Object(map)
    };
    std::iter::once(Value::Null).chain(tokens.iter().map(of)).collect()
}

/// JSON has no infinity; OpenAI writes this for what cannot happen.
pub fn logprob(value: f32) -> f32 {
    if value.is_finite() { value } else { -9999.0 }
}

/// The headers of a completion's answer: what was ignored, and when the first token was expected.
pub fn headers<B>(response: &mut Response<B>, about: About) {
    name_ignored(response, about.ignored);
    let headers = response.headers_mut();
    if let Some(predicted) = about.predicted_ttft {
        headers.insert("x-predicted-ttft-ms", HeaderValue::from(predicted.as_millis()));
    }
    if let Some(value) = about.effective.and_then(|effective| HeaderValue::try_from(effective).ok()) {
        headers.insert("x-effective-sampling", value);
    }
}

/// What the headers of an answer say, gathered before its body is made.
pub struct About {
    ignored: Vec<String>,
    predicted_ttft: Option<Micros>,
    effective: Option<String>,
}

impl About {
    pub fn new(running: &Running, mut ignored: Vec<String>) -> About {
        if let Some(clamped) = running.started.iter().find_map(|started| started.clamped) {
            ignored.insert(0, clamped.into());
        }
        let several = running.started.len() > 1;
        let effective = |effective: &Effective| effective_sampling(effective, several);
        About {
            ignored,
            // Of the last of its prompts.
            predicted_ttft: running.started.iter().rev().find_map(|started| started.predicted_ttft),
            effective: running.started.first().and_then(|started| started.effective.as_ref()).map(effective),
        }
    }
}

/// How tokens are drawn, defaults of the model's makers included; sent back as parameters, it gives the same answer. Several
/// prompts have a seed each, which no parameter could say.
fn effective_sampling(effective: &Effective, several: bool) -> String {
    let Effective { sampling, shaping, max_tokens } = effective;
    let seed = (!several).then(|| format!("seed={}", sampling.seed as i64));
    let mut list = vec![
        format!("temperature={}", sampling.temperature),
        format!("top_p={}", sampling.top_p),
        format!("top_k={}", sampling.top_k),
        format!("min_p={}", sampling.min_p),
        format!("typical_p={}", sampling.typical_p),
        format!("repetition_penalty={}", shaping.repetition),
        format!("presence_penalty={}", shaping.presence),
        format!("frequency_penalty={}", shaping.frequency),
    ];
    list.extend(seed);
    list.push(format!("max_tokens={max_tokens}"));
    list.join(", ")
}

/// How the sequences of an answer were scheduled, for `x-forebay-trace`. `null` when the engine has gone.
pub async fn trace(workers: &Pool, id: &str) -> Value {
    let traces = workers.traces(id.to_owned()).await.unwrap_or_default();
    traces.iter().map(trace_object).collect()
}

/// Times are microseconds since the request was received.
pub fn trace_object(trace: &Trace) -> Value {
    let fact = |(name, fact): (&'static str, TraceFact)| match fact {
        TraceFact::Number(number) => (name.to_owned(), json!(number)),
        TraceFact::Text(text) => (name.to_owned(), json!(text)),
    };
    let line = |line: TraceLine| {
        let mut object = json!({"at_us": line.at.0, "what": line.what});
        if line.until > line.at {
            object["until_us"] = json!(line.until.0);
        }
        line.facts.into_iter().map(fact).for_each(|(name, value)| object[name] = value);
        object
    };
    json!({
        "sequence": trace.seq.to_string(),
        "priority": trace.priority.name(),
        "events": trace.lines().into_iter().map(line).collect::<Vec<_>>(),
        "events_left_out": trace.dropped,
        "steps": {"prefill": trace.course.prefill_steps, "decode": trace.course.decode_steps},
        "tokens": trace.course.tokens,
    })
}

/// An answer that is whole at once.
pub fn answer(body: Value, ignored: Vec<String>) -> Response<axum::body::Body> {
    let mut response = axum::Json(body).into_response();
    name_ignored(&mut response, ignored);
    response
}

/// Names in `x-ignored-params` what was not acted on. Names come from the client, so they are bounded and made harmless; what
/// is too much to name is counted: `a,b,14 more`.
pub fn name_ignored<B>(response: &mut Response<B>, names: Vec<String>) {
    const MOST: usize = 16;
    const LONGEST: usize = 64;
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "_-. []".contains(c) { c } else { '_' };
    let shown = |name: &String| name.chars().take(LONGEST).map(harmless).collect::<String>();
    let mut list: Vec<String> = names.iter().take(MOST).map(shown).collect();
    if names.len() > MOST {
        list.push(format!("{} more", names.len() - MOST));
    }
    if let (false, Ok(value)) = (list.is_empty(), HeaderValue::try_from(list.join(","))) {
        response.headers_mut().insert("x-ignored-params", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_names_are_bounded_and_harmless() {
        let named = |names: Vec<String>| {
            let mut response = Response::new(());
            name_ignored(&mut response, names);
            response.headers().get("x-ignored-params").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(named(vec![]), None);
        assert_eq!(named(vec!["a".into(), "b\r\nc,é".into()]).unwrap(), "a,b__c__");
        let many = named(vec!["x".repeat(1000); 100]).unwrap();
        assert_eq!(many, format!("{}84 more", format!("{},", "x".repeat(64)).repeat(16)));
    }

    #[test]
    fn logprobs_are_always_numbers() {
        assert_eq!([-0.5, f32::NEG_INFINITY, f32::NAN].map(logprob), [-0.5, -9999.0, -9999.0]);
    }
}
