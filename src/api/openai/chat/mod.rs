//! `POST /v1/chat/completions`.

mod answer;
pub mod request;

use axum::Json;
use axum::extract::{Request, State as Extract};
use axum::response::{IntoResponse, Response};

use crate::api::State;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::api::pipeline::chat;
use crate::api::pipeline::frames::{self, Chunk, Chunks};
use crate::api::pipeline::head::Head;
use crate::api::pipeline::logprobs::prompt_logprobs;
use crate::api::pipeline::params::Fields;
use crate::api::pipeline::request_headers::{ConversationHeader, RequestHeaders, Strictness};
use crate::api::pipeline::running::{Finished, Running};
use crate::api::pipeline::sampling::Delivery;
use crate::api::pipeline::traces::{SequenceTrace, traces};
use crate::api::pipeline::usage::{Timings, Usage};
use crate::api::pipeline::wire::{self, About, Identity};
use crate::generate::TextDelta;
use answer::{AnswerMessage, ChatChoice, ChatCompletion, ChatDelta, ChatLogprobs, MessageDelta, ToolCallDelta};
use forebay_core::request::FinishReason;
use forebay_engine::metrics::Route;
use request::ChatRequest;

/// Answers a chat.
#[utoipa::path(
    post,
    path = "/v1/chat/completions",
    operation_id = "chat",
    tag = "openai",
    params(Strictness, RequestHeaders, ConversationHeader),
    request_body = ChatRequest,
    responses((status = 200, description = "The answer, or a stream of it", content(
        (ChatCompletion = "application/json"), (Chunk<ChatDelta> = "text/event-stream"),
    ))),
)]
pub async fn handle(Extract(state): Extract<State>, request: Request) -> Result<Response, ApiError> {
    let mut head = Head::read(&state, &request, "chatcmpl-")?;
    let asked = chat::parse(&state, &head, Fields::new(read_object(request, state.body).await?))?;
    let delivery = asked.delivery;
    head.adapter = asked.raw.parameters.adapter;
    let running = Running::start(&state, &head, vec![asked.raw], delivery).await?;
    let about = About::new(&running, asked.ignored);
    let mut response = if delivery.stream {
        frames::stream(&state, &head, running, ChatChunks { delivery }, delivery).await?
    } else {
        let identity = Identity::new(&state, &head, "chat.completion");
        let (running, choices) = running.collect().await?;
        let trace = if delivery.traced { Some(traces(&state.workers, &head.id).await) } else { None };
        Json(whole(identity, &running, choices, delivery, trace)).into_response()
    };
    wire::headers(&mut response, about);
    Ok(response)
}

fn whole(
    identity: Identity,
    running: &Running,
    choices: Vec<Finished>,
    delivery: Delivery,
    forebay_trace: Option<Vec<SequenceTrace>>,
) -> ChatCompletion {
    let prompt_logprobs = delivery.prompt_logprobs.map(|count| {
        let prompt = choices.first().and_then(|first| first.prompt.as_deref());
        prompt_logprobs(prompt.unwrap_or_default(), count)
    });
    let started = running.started.first();
    let choice = |(index, mut finished): (usize, Finished)| {
        let (tokens, logprobs) = (std::mem::take(&mut finished.tokens), std::mem::take(&mut finished.logprobs));
        ChatChoice {
            index,
            finish_reason: finished.reason.map(FinishReason::name),
            message: AnswerMessage::of(finished),
            logprobs: delivery.logprobs.map(|_| ChatLogprobs::of(logprobs)),
            token_ids: delivery.token_ids.then_some(tokens),
        }
    };
    ChatCompletion {
        id: identity.id,
        object: identity.object,
        created: identity.created,
        model: identity.model,
        system_fingerprint: identity.system_fingerprint,
        choices: choices.into_iter().enumerate().map(choice).collect(),
        usage: Usage::of(running),
        timings: Timings::of(running),
        prompt_logprobs,
        prompt_token_ids: started.filter(|_| delivery.token_ids).map(|started| started.prompt_tokens.clone()),
        forebay_trace,
    }
}

struct ChatChunks {
    delivery: Delivery,
}

impl Chunks for ChatChunks {
    const ROUTE: Route = Route::Chat;
    const OBJECT: &'static str = "chat.completion.chunk";
    type Choice = ChatDelta;

    /// A role for each choice.
    fn opening(&mut self, running: &Running) -> Vec<ChatDelta> {
        let started = running.started.first().filter(|_| self.delivery.token_ids);
        let chunk = |index| ChatDelta {
            index,
            delta: MessageDelta { role: Some("assistant"), content: Some(String::new()), ..MessageDelta::default() },
            prompt_token_ids: started.map(|started| started.prompt_tokens.clone()),
            ..ChatDelta::default()
        };
        (0..running.total()).map(chunk).collect()
    }

    /// One for thinking and words, one for each part of a call. The first has the tokens.
    fn text(&mut self, index: usize, delta: TextDelta) -> Vec<ChatDelta> {
        let TextDelta { text, reasoning, calls, tokens, logprobs, .. } = delta;
        let silent = text.is_empty() && reasoning.is_empty();
        let words = !silent || calls.is_empty() && (!logprobs.is_empty() || self.delivery.token_ids);
        let words = words.then(|| MessageDelta {
            content: Some(text).filter(|text| !text.is_empty() || reasoning.is_empty()),
            reasoning_content: Some(reasoning).filter(|reasoning| !reasoning.is_empty()),
            ..MessageDelta::default()
        });
        let calls = calls
            .into_iter()
            .map(|call| MessageDelta { tool_calls: Some(vec![ToolCallDelta::of(call)]), ..MessageDelta::default() });
        let deltas = words.into_iter().chain(calls);
        let mut chunks: Vec<ChatDelta> =
            deltas.map(|delta| ChatDelta { index, delta, ..ChatDelta::default() }).collect();
        if let Some(first) = chunks.first_mut() {
            first.logprobs = self.delivery.logprobs.map(|_| ChatLogprobs::of(logprobs));
            first.token_ids = self.delivery.token_ids.then_some(tokens);
        }
        chunks
    }

    fn finish(&mut self, index: usize, reason: FinishReason) -> ChatDelta {
        ChatDelta { index, finish_reason: Some(reason.name()), ..ChatDelta::default() }
    }
}
