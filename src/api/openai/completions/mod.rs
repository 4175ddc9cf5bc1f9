//! `POST /v1/completions`.

mod answer;
mod legacy;
pub mod request;

use axum::Json;
use axum::extract::{Request, State as Extract};
use axum::response::{IntoResponse, Response};

use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::pipeline::frames::{self, Chunk, Chunks};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::logprobs::prompt_logprobs;
use crate::api::pipeline::params::Fields;
use crate::api::pipeline::prompts::prompts;
use crate::api::pipeline::request_headers::{ConversationHeader, RequestHeaders, Strictness};
use crate::api::pipeline::running::{Finished, Running};
use crate::api::pipeline::sampling::{
    Delivery, check_model, check_special, check_stream, take_delivery, take_sampling,
};
use crate::api::pipeline::traces::traces;
use crate::api::pipeline::usage::{Timings, Usage};
use crate::api::pipeline::wire::{self, About, Identity};
use crate::generate::{Generator, Prompt, RawRequest, Started, TextDelta, TokenLogprob};
use answer::{Completion, CompletionChoice, CompletionDelta};
use forebay_core::request::{FinishReason, RequestError};
use forebay_engine::metrics::Route;
use legacy::Legacy;
use request::CompletionRequest;

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
        (Completion = "application/json"), (Chunk<CompletionDelta> = "text/event-stream"),
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
        let trace = if delivery.traced { Some(traces(&state.workers, &head.id).await) } else { None };
        let whole = Choices { generator: &state.generator, running: &running, delivery, shown: asked.shown };
        Json(Completion {
            id: identity.id,
            object: identity.object,
            created: identity.created,
            model: identity.model,
            system_fingerprint: identity.system_fingerprint,
            choices: choices.into_iter().enumerate().map(|(index, choice)| whole.choice(index, choice)).collect(),
            usage: Usage::of(&running),
            timings: Timings::of(&running),
            forebay_trace: trace,
        })
        .into_response()
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

/// What choices are whole with.
struct Choices<'a> {
    generator: &'a Generator,
    running: &'a Running,
    delivery: Delivery,
    /// Choices per prompt.
    shown: usize,
}

impl Choices<'_> {
    fn choice(&self, index: usize, finished: Finished) -> CompletionChoice {
        let delivery = self.delivery;
        let started = self.running.started.get(index / self.shown);
        let prompt = finished.prompt.as_deref().unwrap_or_default();
        let echoed = started.filter(|_| delivery.echo);
        let logprobs = delivery.logprobs.map(|count| {
            let mut legacy = Legacy::new(count);
            if let Some(started) = echoed {
                legacy.prompt(self.generator, &started.prompt_tokens, prompt);
            }
            finished.logprobs.iter().for_each(|token| legacy.push(token));
            legacy.into_answer()
        });
        let mut text = finished.text;
        text.insert_str(0, echoed.and_then(|started| started.prompt_text.as_deref()).unwrap_or_default());
        CompletionChoice {
            index,
            text,
            logprobs,
            finish_reason: finished.reason.map(FinishReason::name),
            prompt_logprobs: delivery.prompt_logprobs.map(|count| prompt_logprobs(prompt, count)),
            prompt_token_ids: started.filter(|_| delivery.token_ids).map(|started| started.prompt_tokens.clone()),
            token_ids: delivery.token_ids.then_some(finished.tokens),
        }
    }
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

    fn chunk(&mut self, index: usize, delta: TextDelta, logprobs: Option<Legacy>) -> CompletionDelta {
        let shown = self.choices.get_mut(index).filter(|_| self.delivery.token_ids);
        let (token_ids, prompt_token_ids) = shown.map_or((None, None), |choice| {
            let first = !std::mem::replace(&mut choice.opened, true);
            (Some(delta.tokens), first.then(|| choice.started.prompt_tokens.clone()))
        });
        CompletionDelta {
            index,
            text: delta.text,
            logprobs: logprobs.map(Legacy::into_answer),
            finish_reason: None,
            token_ids,
            prompt_token_ids,
        }
    }

    /// The prompt as the first chunk's text. Its logprobs, where asked for, come with the first token.
    fn echo(&mut self, index: usize, logprobs: Option<Vec<TokenLogprob>>) -> Option<CompletionDelta> {
        let choice = self.choices.get_mut(index)?;
        let delta = TextDelta { text: choice.started.prompt_text.clone().unwrap_or_default(), ..TextDelta::default() };
        let logprobs = logprobs.zip(self.delivery.logprobs).map(|(logprobs, count)| {
            let mut legacy = Legacy::from(count, choice.offset);
            legacy.prompt(&self.generator, &choice.started.prompt_tokens, &logprobs);
            choice.offset = legacy.offset();
            legacy
        });
        Some(self.chunk(index, delta, logprobs))
    }
}

impl Chunks for TextChunks {
    const ROUTE: Route = Route::Completions;
    const OBJECT: &'static str = "text_completion";
    type Choice = CompletionDelta;

    fn opening(&mut self, running: &Running) -> Vec<CompletionDelta> {
        if !self.delivery.echo || self.delivery.logprobs.is_some() {
            return Vec::new();
        }
        (0..running.total()).filter_map(|index| self.echo(index, None)).collect()
    }

    fn prompt(&mut self, index: usize, logprobs: Vec<TokenLogprob>) -> Option<CompletionDelta> {
        if self.delivery.echo { self.echo(index, Some(logprobs)) } else { None }
    }

    fn text(&mut self, index: usize, delta: TextDelta) -> Vec<CompletionDelta> {
        let shown = !delta.text.is_empty() || !delta.logprobs.is_empty() || self.delivery.token_ids;
        let Some(choice) = self.choices.get_mut(index).filter(|_| shown) else { return Vec::new() };
        let logprobs = self.delivery.logprobs.map(|count| {
            let mut legacy = Legacy::from(count, choice.offset);
            delta.logprobs.iter().for_each(|token| legacy.push(token));
            choice.offset = legacy.offset();
            legacy
        });
        vec![self.chunk(index, delta, logprobs)]
    }

    fn finish(&mut self, index: usize, reason: FinishReason) -> CompletionDelta {
        let chunk = self.chunk(index, TextDelta::default(), None);
        CompletionDelta { finish_reason: Some(reason.name()), ..chunk }
    }
}
