//! A router over a scripted engine loop: the test says what each submission hears.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::mpsc;
use tower::ServiceExt;

use super::*;
use crate::generate::{Embeddings, Generator, GeneratorParts};
use forebay_clock::Clock;
use forebay_core::intake::Capacity;
use forebay_core::request::{Event, FinishReason, Limits};
use forebay_core::step::{Logprobs, Sampled};
use forebay_core::units::TokenId;
use forebay_engine::EngineHandle;
use forebay_engine::command::{Accepted, EngineCommand, Submission};
use forebay_engine::heartbeat::Heartbeat;
use forebay_engine::metrics::Metrics;
use forebay_engine::permit::Gate;
use forebay_engine::workers::Pool;
use forebay_store::Store;
use forebay_text::{ChatTemplate, ParserChoices, Tokenizer, fixtures};

pub const CONTEXT: u32 = 64;

/// As Qwen3's, in short.
pub const QWEN: &str = "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif %}\
    {% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}\
    {% for call in m.tool_calls %}<tool_call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</tool_call>{% endfor %};{% endfor %}\
    {% if add_generation_prompt %}A:{% if enable_thinking %}<think>\n{% endif %}{% endif %}";

/// Everything but the loop, whose end of the command channel the test holds.
pub struct Scene {
    pub state: State,
    pub heartbeat: Arc<Heartbeat>,
    pub commands: mpsc::Receiver<EngineCommand>,
    pub tokenizer: Arc<Tokenizer>,
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::with("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}", CONTEXT)
    }

    /// With another chat template and context.
    pub fn with(template: &str, context: u32) -> Scene {
        let (sender, commands) = mpsc::channel(64);
        let tokenizer = Arc::new(fixtures::byte_level());
        let engine = EngineHandle::new(sender, Gate::new(Capacity { requests: 1_000, tokens: 1 << 30 }));
        let (clock, heartbeat, metrics) = (Clock::manual(), Arc::new(Heartbeat::default()), Metrics::new());
        heartbeat.rest();
        let workers = Pool::single(engine, heartbeat.clone(), clock.clone(), metrics.clone());
        let generator = Generator::new(GeneratorParts {
            workers: workers.clone(),
            tokenizer: tokenizer.clone(),
            template: Some(ChatTemplate::new(template, None, None).unwrap()),
            eos: vec![fixtures::END],
            limits: Limits::new(context, fixtures::VOCAB, tokenizer.max_token_bytes()),
            model_id: "org/storyteller".into(),
            aliases: vec!["tiny".into()],
            adapters: Vec::new(),
            parsers: ParserChoices::default(),
            grammars: forebay_text::grammar::GrammarConfig::default(),
            embeddings: Embeddings { width: 4, ..Embeddings::default() },
        });
        let health = Health::new(workers.clone());
        health.loaded();
        let front = Front {
            metrics,
            health: Arc::new(health),
            info: Arc::new(ServerInfo { created: 1_700_000_000, system_fingerprint: "fp_test".into() }),
            body: BodyLimits { max_bytes: 100_000, ..BodyLimits::default() },
            clock,
            workers,
            admin: Access::Any,
            keys: None,
            hosts: crate::api::Hosts::default(),
            origins: None,
            store: Store::new(forebay_store::Config::memory()),
            batches: Arc::default(),
            max_file_bytes: 1 << 20,
            proxies: Proxies::default(),
            drain: Arc::default(),
            canaries: Arc::default(),
            live: Arc::default(),
            instance: "test:1".into(),
            reload: Reload::default(),
            access_log: Arc::default(),
            telemetry: None,
        };
        let state = State { front, generator, replays: Arc::default(), stream_hold: Duration::from_secs(15) };
        Scene { state, heartbeat, commands, tokenizer }
    }

    /// One request that must be answered without the engine hearing of it.
    pub async fn send(&mut self, request: Request<Body>) -> Answer {
        let answer = answer(&self.state, request).await;
        assert!(self.commands.try_recv().is_err(), "the engine heard of it");
        answer
    }

    pub async fn refused(&mut self, path: &str, body: Value) -> (u16, Value) {
        let answer = self.send(json_post(path, &body)).await;
        (answer.status.as_u16(), answer.error())
    }

    /// One request of which each submitted sequence, in order, hears what `script` says.
    pub async fn play(&mut self, path: &str, body: &Value, script: &[Vec<Event>]) -> Answer {
        let mut scripts = script.iter();
        let commands = &mut self.commands;
        let answering = answer(&self.state, json_post(path, body));
        tokio::pin!(answering);
        loop {
            tokio::select! {
                answer = &mut answering => return answer,
                Some(command) = commands.recv() => for submission in submitted(command) {
                    let events = scripts.next().expect("a script for each sequence");
                    events.iter().for_each(|event| submission.events.try_send(event.clone()).unwrap());
                },
            }
        }
    }

    /// The tokens of `text`, then an end.
    pub fn says(&self, text: &str, reason: FinishReason) -> Vec<Event> {
        let tokens = self.tokenizer.encode(text, false).unwrap();
        tokens.into_iter().map(token).chain([Event::Finished(reason)]).collect()
    }

    pub async fn metric(&self, series: &str) -> f64 {
        let text = self.state.metrics.render(0);
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
    }
}

/// The prompt that the engine gets for `body`.
pub async fn prompt_of(template: &str, path: &'static str, body: Value) -> String {
    let mut scene = Scene::with(template, 4_096);
    let state = scene.state.clone();
    let client = tokio::spawn(async move { answer(&state, json_post(path, &body)).await });
    let group = submitted(scene.commands.recv().await.unwrap());
    let ids = group[0].request.prompt().to_vec();
    group[0].events.try_send(Event::Finished(FinishReason::Length)).unwrap();
    assert_eq!(client.await.unwrap().status, 200);
    let bytes: Vec<u8> = ids.iter().flat_map(|&id| scene.tokenizer.token_bytes(id).to_vec()).collect();
    String::from_utf8(bytes).unwrap()
}

/// Accepts a submission; aborts are none.
pub fn submitted(command: EngineCommand) -> Vec<Submission> {
    match command {
        EngineCommand::Submit { group, reply } => {
            reply.send(Ok(Accepted::default())).unwrap();
            group
        }
        EngineCommand::Abort { .. } => Vec::new(),
        other => panic!("{other:?}"),
    }
}

pub fn token(token: TokenId) -> Event {
    Event::Token(Sampled { token, logprobs: None })
}

pub fn token_with(token: TokenId, sampled: f32, top: Vec<(TokenId, f32)>) -> Event {
    Event::Token(Sampled { token, logprobs: Some(Logprobs { sampled, rank: 1, top, prompt: Vec::new() }) })
}

pub fn json_post(path: &str, body: &Value) -> Request<Body> {
    raw(path, body.to_string())
}

pub fn raw(path: &str, body: impl Into<Body>) -> Request<Body> {
    let builder = Request::post(path).header("content-type", "application/json");
    builder.body(body.into()).unwrap()
}

pub fn get_request(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

pub async fn answer(state: &State, request: Request<Body>) -> Answer {
    read(router(state.clone()).oneshot(request).await.unwrap()).await
}

/// Without waiting for the body.
pub async fn status(state: &State, request: Request<Body>) -> StatusCode {
    router(state.clone()).oneshot(request).await.unwrap().status()
}

pub async fn read(response: Response) -> Answer {
    let (parts, body) = response.into_parts();
    Answer { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }

    /// The error object, whose shape is checked.
    pub fn error(&self) -> Value {
        let body = self.json();
        let error = body["error"].as_object().unwrap_or_else(|| panic!("no error: {body}"));
        assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"]);
        assert!(self.headers.contains_key("x-request-id"));
        assert_eq!(self.headers["content-type"], "application/json");
        body["error"].clone()
    }

    /// The frames of a stream before `[DONE]`, which must be last.
    pub fn frames(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).unwrap();
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let data = text.split("\n\n").filter_map(|frame| frame.strip_prefix("data: "));
        let mut frames: Vec<&str> = data.collect();
        frames.pop();
        frames.into_iter().map(|frame| serde_json::from_str(frame).unwrap()).collect()
    }
}
