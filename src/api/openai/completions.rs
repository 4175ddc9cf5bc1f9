//! `POST /v1/completions`.

use axum::Json;
use axum::extract::{Request, State as Extract};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::legacy::Legacy;
use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::openapi::shapes::completions::{Completion, CompletionChunk, CompletionRequest};
use crate::api::openapi::shapes::parameters::{ConversationHeader, RequestHeaders, Strictness};
use crate::api::pipeline::frames::{self, Chunks};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::params::Fields;
use crate::api::pipeline::prompts::prompts;
use crate::api::pipeline::running::{Finished, Running};
use crate::api::pipeline::sampling::{
    Delivery, check_model, check_special, check_stream, take_delivery, take_sampling,
};
use crate::api::pipeline::wire::{self, About, Identity};
use crate::generate::{Generator, Started, TextDelta, TokenLogprob};
use crate::generate::{Prompt, RawRequest};
use forebay_core::request::{FinishReason, RequestError};
use forebay_engine::metrics::Route;

/// As OpenAI has it.
const DEFAULT_MAX_TOKENS: u32 = 16;
const MAX_PROMPTS: usize = 64;
/// As OpenAI has it; chat allows more.
const MAX_LOGPROBS: i64 = 5;
const MAX_BEST_OF: i64 = 8;

struct Asked {
    raws: Vec<RawRequest>,
    delivery: Delivery,
    ignored: Vec<String>,
    /// Of the choices of each prompt, so many are shown: those that are most likely per token.
    shown: usize,
}

/// Goes on writing a text.
#[utoipa::path(
    post,
    path = "/v1/completions",
    operation_id = "completions",
    tag = "openai",
    params(Strictness, RequestHeaders, ConversationHeader),
    request_body = CompletionRequest,
    responses((status = 200, description = "The text, or a stream of it", content(
        (Completion = "application/json"), (CompletionChunk = "text/event-stream"),
    ))),
)]
pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let mut head = Head::read(&state, &request, "cmpl-")?;
    let asked = parse(&state, &head, Fields::new(read_object(request, state.body).await?))?;
    let delivery = asked.delivery;
    head.adapter = asked.raws.first().and_then(|raw| raw.parameters.adapter);
    let running = Running::start(&state, &head, asked.raws, delivery).await?;
    let about = About::new(&running, asked.ignored);
    let mut response = if delivery.stream {
        let chunks = TextChunks::new(&running, delivery, state.generator.clone());
        frames::stream(&state, &head, running, chunks, delivery).await?
    } else {
        let identity = Identity::new(&state, &head, "text_completion");
        let (running, choices) = running.collect().await?;
        let choices = best(choices, running.choices, asked.shown);
        let mut body = whole(&state.generator, &identity, &running, choices, asked.shown, delivery);
        if delivery.traced {
            body["forebay_trace"] = wire::trace(&state.workers, &head.id).await;
        }
        Json(body).into_response()
    };
    wire::headers(&mut response, about);
    Ok(response)
}

/// The requests that a body makes, and what of it is ignored.
pub fn raws(state: &State, head: &Head, fields: Fields) -> Result<(Vec<RawRequest>, Vec<String>), RequestError> {
    parse(state, head, fields).map(|asked| (asked.raws, asked.ignored))
}

fn parse(state: &State, head: &Head, mut fields: Fields) -> Result<Asked, RequestError> {
    let adapter = check_model(state, &mut fields)?;
    let prompts = prompts("prompt", fields.take("prompt"), MAX_PROMPTS)?;
    let prompts = match fields.string("suffix")?.filter(|suffix| !suffix.is_empty()) {
        Some(after) => prompts.into_iter().map(|prompt| infill(prompt, &after)).collect::<Result<_, _>>()?,
        None => prompts,
    };
    check_special(&mut fields, true)?;
    let mut delivery = take_delivery(&mut fields, head)?;
    let mut raw = take_sampling(&mut fields, head)?;
    raw.parameters.adapter = adapter;
    raw.parameters.default_max_tokens = Some(DEFAULT_MAX_TOKENS);
    delivery.logprobs = fields.integer("logprobs")?;
    if delivery.logprobs.is_some_and(|count| !(0..=MAX_LOGPROBS).contains(&count)) {
        return Err(RequestError::invalid("logprobs", format!("must be between 0 and {MAX_LOGPROBS}")));
    }
    delivery.echo = fields.flag("echo")?;
    delivery.prompt_logprobs = raw.parameters.prompt_logprobs;
    check_stream(&delivery)?;
    raw.parameters.logprobs = delivery.logprobs;
    raw.parameters.logprobs_param = "logprobs";
    raw.echo = delivery.echo;
    if delivery.echo && delivery.logprobs.is_some() {
        raw.parameters.prompt_logprobs = raw.parameters.prompt_logprobs.max(delivery.logprobs);
    }
    if raw.parameters.max_tokens == Some(0) && (delivery.echo || delivery.prompt_logprobs.is_some()) {
        // The prompt's own logprobs are what evaluation harnesses ask for. One token is drawn and dropped.
        delivery.no_completion = true;
        raw.parameters.max_tokens = Some(1);
    }
    let shown = take_best_of(&mut fields, &mut raw, delivery)?;
    let raws = prompts.into_iter().map(|prompt| RawRequest { prompt, ..raw.clone() }).collect();
    Ok(Asked { raws, delivery, ignored: fields.finish(head.strict)?, shown })
}

/// Makes `raw` draw `best_of` choices; returns how many of them are shown.
fn take_best_of(fields: &mut Fields, raw: &mut RawRequest, delivery: Delivery) -> Result<usize, RequestError> {
    let n = raw.parameters.n.unwrap_or(1);
    let refuse = |message: String| Err(RequestError::invalid("best_of", message));
    match fields.integer("best_of")? {
        None => {}
        Some(best_of) if !(1..=MAX_BEST_OF).contains(&best_of) => {
            return refuse(format!("must be between 1 and {MAX_BEST_OF}, got {best_of}"));
        }
        Some(best_of) if best_of < n => return refuse(format!("is {best_of}, but n is {n}")),
        Some(best_of) if best_of > n && delivery.stream => {
            return refuse("cannot be streamed: which are best is known at the end".into());
        }
        Some(best_of) if best_of > n => {
            raw.parameters.n = Some(best_of);
            raw.parameters.logprobs = raw.parameters.logprobs.or(Some(0));
        }
        Some(_) => {}
    }
    // Out of range is found where all of a request's numbers are checked.
    Ok(usize::try_from(n).unwrap_or(0))
}

/// Of each prompt's `drawn` choices the `shown` most likely per token, best first.
fn best(mut choices: Vec<Finished>, drawn: usize, shown: usize) -> Vec<Finished> {
    if drawn == shown {
        return choices;
    }
    let mean = |choice: &Finished| {
        let sum: f64 = choice.logprobs.iter().map(|token| f64::from(token.logprob)).sum();
        sum / choice.logprobs.len().max(1) as f64
    };
    let mut kept = Vec::new();
    while !choices.is_empty() {
        let mut group: Vec<Finished> = choices.drain(..drawn.min(choices.len())).collect();
        group.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        kept.extend(group.into_iter().take(shown));
    }
    kept
}

fn infill(prompt: Prompt, after: &str) -> Result<Prompt, RequestError> {
    match prompt {
        Prompt::Text(before) => Ok(Prompt::Infill { before, after: after.to_owned() }),
        _ => Err(RequestError::invalid("suffix", "needs a prompt that is text")),
    }
}

fn whole(
    generator: &Generator,
    identity: &Identity,
    running: &Running,
    choices: Vec<Finished>,
    shown: usize,
    delivery: Delivery,
) -> Value {
    let choice = |(index, finished): (usize, Finished)| {
        let started = running.started.get(index / shown);
        let mut echoed = None;
        let mut text = finished.text;
        if let Some(started) = started.filter(|_| delivery.echo) {
            text.insert_str(0, started.prompt_text.as_deref().unwrap_or_default());
            echoed = Some((generator, started, finished.prompt.as_deref().unwrap_or_default()));
        }
        let logprobs = delivery.logprobs.map(|count| {
            let mut legacy = Legacy::new(count);
            if let Some((generator, started, logprobs)) = echoed {
                legacy.prompt(generator, &started.prompt_tokens, logprobs);
            }
            finished.logprobs.iter().for_each(|token| legacy.push(token));
            legacy.into_value()
        });
        let mut choice = json!({
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finished.reason.map(FinishReason::name),
        });
        if let Some(count) = delivery.prompt_logprobs {
            choice["prompt_logprobs"] = wire::prompt_logprobs(finished.prompt.as_deref().unwrap_or_default(), count);
        }
        if delivery.token_ids {
            choice["prompt_token_ids"] = json!(started.map(|started| &started.prompt_tokens));
            choice["token_ids"] = json!(finished.tokens);
        }
        choice
    };
    let mut body = identity.wrap(choices.into_iter().enumerate().map(choice).collect());
    body["usage"] = wire::usage_of(running);
    body["timings"] = wire::timings(&running.timings());
    body
}

struct TextChunks {
    delivery: Delivery,
    generator: Generator,
    /// Of each choice.
    choices: Vec<ChoiceSoFar>,
}

struct ChoiceSoFar {
    started: Started,
    /// In characters: where its next token begins.
    offset: usize,
    /// The ids of its prompt have been sent.
    opened: bool,
}

impl TextChunks {
    fn new(running: &Running, delivery: Delivery, generator: Generator) -> TextChunks {
        let choice = |index| ChoiceSoFar {
            started: running.prompt_of(index).cloned().unwrap_or_default(),
            offset: 0,
            opened: false,
        };
        TextChunks { delivery, generator, choices: (0..running.total()).map(choice).collect() }
    }

    fn chunk(
        &mut self,
        index: usize,
        delta: &TextDelta,
        logprobs: Option<Legacy>,
        reason: Option<FinishReason>,
    ) -> Value {
        let mut chunk = json!({
            "index": index,
            "text": delta.text,
            "logprobs": logprobs.map(Legacy::into_value),
            "finish_reason": reason.map(FinishReason::name),
        });
        if let Some(choice) = self.choices.get_mut(index).filter(|_| self.delivery.token_ids) {
            chunk["token_ids"] = json!(delta.tokens);
            if !std::mem::replace(&mut choice.opened, true) {
                chunk["prompt_token_ids"] = json!(choice.started.prompt_tokens);
            }
        }
        chunk
    }

    /// The prompt as the first chunk's text. Its logprobs, where asked for, come with the first token.
    fn echo(&mut self, index: usize, logprobs: Option<Vec<TokenLogprob>>) -> Option<Value> {
        let choice = self.choices.get_mut(index)?;
        let delta = TextDelta { text: choice.started.prompt_text.clone().unwrap_or_default(), ..TextDelta::default() };
        let logprobs = logprobs.zip(self.delivery.logprobs).map(|(logprobs, count)| {
            let mut legacy = Legacy::from(count, choice.offset);
            legacy.prompt(&self.generator, &choice.started.prompt_tokens, &logprobs);
            choice.offset = legacy.offset();
            legacy
        });
        Some(self.chunk(index, &delta, logprobs, None))
    }
}

impl Chunks for TextChunks {
    const ROUTE: Route = Route::Completions;
    const OBJECT: &'static str = "text_completion";

    fn opening(&mut self, running: &Running) -> Vec<Value> {
        if !self.delivery.echo || self.delivery.logprobs.is_some() {
            return Vec::new();
        }
        (0..running.total()).filter_map(|index| self.echo(index, None)).collect()
    }

    fn prompt(&mut self, index: usize, logprobs: Vec<TokenLogprob>) -> Option<Value> {
        if self.delivery.echo { self.echo(index, Some(logprobs)) } else { None }
    }

    fn text(&mut self, index: usize, delta: TextDelta) -> Vec<Value> {
        let shown = !delta.text.is_empty() || !delta.logprobs.is_empty() || self.delivery.token_ids;
        let Some(choice) = self.choices.get_mut(index).filter(|_| shown) else { return Vec::new() };
        let logprobs = self.delivery.logprobs.map(|count| {
            let mut legacy = Legacy::from(count, choice.offset);
            delta.logprobs.iter().for_each(|token| legacy.push(token));
            choice.offset = legacy.offset();
            legacy
        });
        vec![self.chunk(index, &delta, logprobs, None)]
    }

    fn finish(&mut self, index: usize, reason: FinishReason) -> Value {
        self.chunk(index, &TextDelta::default(), None, Some(reason))
    }
}
