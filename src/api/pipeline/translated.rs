//! A request of another protocol, put into a chat's words: answered or counted like any chat, with what is wrong and what is ignored
//! told in the protocol's own.

use axum::Json;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::answer_format::{self, AnswerFormat};
use super::chat::parse_translated;
use super::head::Head;
use super::rename::renamed;
use super::running::Running;
use super::wire::{self, About};
use crate::api::State;
use forebay_core::request::RequestError;

/// Answers with the protocol's own name of a chat's field; `None` where it is the same.
pub type Names = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A request as a chat.
pub struct Translated {
    pub chat: Map<String, Value>,
    pub ignored: Vec<String>,
    pub named: Names,
}

impl Translated {
    /// The answer, whole or as a stream of events, in the format that `format` makes for it.
    pub async fn answer<F: AnswerFormat>(
        self,
        state: &State,
        mut head: Head,
        format: impl FnOnce(&State, &Head) -> F,
    ) -> Result<Response, RequestError> {
        let Translated { chat, ignored, named } = self;
        let asked = parse_translated(state, &head, chat, ignored, &named)?;
        let stream = asked.delivery.stream;
        head.adapter = asked.raw.parameters.adapter;
        let running = Running::start(state, &head, vec![asked.raw], asked.delivery).await;
        let running = running.map_err(|error| renamed(error, &named))?;
        let about = About::new(&running, asked.ignored);
        let format = format(state, &head);
        let mut response = if stream {
            answer_format::stream(state, &head, running, format).await?
        } else {
            Json(answer_format::whole(state, &head, running, format).await?).into_response()
        };
        wire::headers(&mut response, about);
        Ok(response)
    }

    /// How many tokens its prompt has, and what of it was ignored.
    pub async fn count(self, state: &State, head: &Head) -> Result<(usize, Vec<String>), RequestError> {
        let Translated { chat, ignored, named } = self;
        let asked = parse_translated(state, head, chat, ignored, &named)?;
        let tokens = state.generator.prompt_tokens(&asked.raw).await.map_err(|error| renamed(error, &named))?;
        Ok((tokens.len(), asked.ignored))
    }
}
