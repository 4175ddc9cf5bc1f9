//! A client of OpenAI-compatible servers that measures: streams completions and notes when each token came. `load` sends a
//! scenario's requests and fills the records that the simulator fills, too.
//!
//! ```no_run
//! use forebay::client::{Ask, Client, Prompt};
//!
//! # async fn example() -> Result<(), forebay::client::ClientError> {
//! let client = Client::new("http://127.0.0.1:8080")?.with_model("default");
//! let ask = Ask { prompt: Prompt::Text("Once upon a time".into()), max_tokens: 40, ..Ask::default() };
//! let mut stream = client.stream(&ask).await?;
//! while let Some(chunk) = stream.next().await? {
//!     print!("{}", chunk.text);
//! }
//! println!("\n{:?}", stream.usage());
//! # Ok(())
//! # }
//! ```

pub mod load;

use serde_json::{Value, json};
use thiserror::Error;

use forebay_core::request::Priority;
use forebay_engine::https;

/// A server to ask. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// Without a slash at its end, and without `/v1`.
    base: String,
    model: String,
    key: Option<String>,
}

/// What to complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    pub prompt: Prompt,
    pub max_tokens: u32,
    /// The completion goes on to `max_tokens` (vLLM's field; Forebay and llama-server know it, too).
    pub ignore_eos: bool,
    pub temperature: f64,
    /// Sent where it is not normal.
    pub priority: Priority,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

impl Default for Ask {
    fn default() -> Ask {
        Ask {
            prompt: Prompt::Text(String::new()),
            max_tokens: 16,
            ignore_eos: false,
            temperature: 0.0,
            priority: Priority::Normal,
        }
    }
}

#[derive(Debug, Error)]
pub enum ClientError {
    #[error("{url} cannot be asked: {message}")]
    Url { url: String, message: &'static str },
    /// No connection, or it broke.
    #[error("{0}")]
    Transport(#[from] reqwest::Error),
    /// The server's answer, as far as it has a message.
    #[error("status {status}: {message}")]
    Refused { status: u16, message: String },
    /// An error after the first byte of a stream.
    #[error("the stream ended with an error: {0}")]
    Failed(String),
    /// A frame without `[DONE]` at the end, or one that is not JSON.
    #[error("the stream is broken: {0}")]
    Broken(&'static str),
}

impl ClientError {
    /// Turned away for lack of room, not for what was asked.
    pub fn is_refusal(&self) -> bool {
        matches!(self, ClientError::Refused { status: 429 | 503, .. })
    }
}

/// Tokens that came together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub text: String,
}

/// What the server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
}

impl Client {
    /// `base` is `http://host:port` or `https://host`, with or without `/v1`.
    pub fn new(base: &str) -> Result<Client, ClientError> {
        let refused = |message| ClientError::Url { url: base.into(), message };
        if !https::is_asked(base) {
            return Err(refused("it must begin with http:// or https://"));
        }
        let base = base.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        // Every request at once, on a connection of its own: the server's queue is measured, not the client's.
        let http = https::client(&base).pool_max_idle_per_host(1_024).tcp_nodelay(true).build()?;
        Ok(Client { http, base, model: "default".into(), key: None })
    }

    pub fn with_model(self, model: impl Into<String>) -> Client {
        Client { model: model.into(), ..self }
    }

    pub fn with_key(self, key: impl Into<String>) -> Client {
        Client { key: Some(key.into()), ..self }
    }

    /// The first model that the server lists.
    pub async fn first_model(&self) -> Result<String, ClientError> {
        let models = self.get("/v1/models").await?;
        let id = models["data"][0]["id"].as_str();
        Ok(id.ok_or(ClientError::Broken("/v1/models lists none"))?.to_owned())
    }

    /// A JSON document of the server, such as `/admin/cost`.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        let answer = self.authorised(self.http.get(format!("{}{path}", self.base))).send().await?;
        Ok(accepted(answer).await?.json().await?)
    }

    /// Begins a completion; returns when the server has accepted it.
    pub async fn stream(&self, ask: &Ask) -> Result<Stream, ClientError> {
        let request = self.http.post(format!("{}/v1/completions", self.base)).json(&self.body(ask));
        let answer = accepted(self.authorised(request).send().await?).await?;
        Ok(Stream { answer, buffer: Vec::new(), usage: None, done: false })
    }

    fn body(&self, ask: &Ask) -> Value {
        let mut body = json!({
            "model": self.model,
            "prompt": match &ask.prompt {
                Prompt::Text(text) => json!(text),
                Prompt::Tokens(tokens) => json!(tokens),
            },
            "max_tokens": ask.max_tokens,
            "temperature": ask.temperature,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        // Servers that know neither field see neither, unless it is asked for.
        if ask.ignore_eos {
            body["ignore_eos"] = json!(true);
        }
        if ask.priority != Priority::Normal {
            body["priority"] = number_of(ask.priority);
        }
        body
    }

    fn authorised(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }
}

/// vLLM's numbers, of which lower ones go first; batches have none, and only Forebay knows their name.
fn number_of(priority: Priority) -> Value {
    match priority {
        Priority::Critical => json!(-10),
        Priority::High => json!(-1),
        Priority::Normal => json!(0),
        Priority::Low => json!(10),
        Priority::Batch => json!(Priority::Batch.name()),
    }
}

async fn accepted(answer: reqwest::Response) -> Result<reqwest::Response, ClientError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let text = answer.text().await.unwrap_or_default();
    let message = serde_json::from_str::<Value>(&text).ok().and_then(|body| message_of(&body));
    const SHOWN: usize = 300;
    let message = message.unwrap_or(text).chars().take(SHOWN).collect();
    Err(ClientError::Refused { status: status.as_u16(), message })
}

fn message_of(body: &Value) -> Option<String> {
    body["error"]["message"].as_str().map(str::to_owned)
}

/// A completion under way. Dropped, it is aborted.
#[derive(Debug)]
pub struct Stream {
    answer: reqwest::Response,
    /// Bytes of frames that have not ended.
    buffer: Vec<u8>,
    usage: Option<Usage>,
    done: bool,
}

impl Stream {
    /// The next tokens; `None` when the completion is whole.
    pub async fn next(&mut self) -> Result<Option<Chunk>, ClientError> {
        while !self.done {
            while let Some(line) = take_line(&mut self.buffer) {
                match read_frame(&line)? {
                    Frame::Chunk(chunk) => return Ok(Some(chunk)),
                    Frame::Usage(usage) => self.usage = Some(usage),
                    Frame::Done => self.done = true,
                    Frame::Nothing => {}
                }
            }
            if self.done {
                break;
            }
            match self.answer.chunk().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => return Err(ClientError::Broken("it ended without [DONE]")),
            }
        }
        Ok(None)
    }

    /// At the end, from servers that tell.
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }
}

#[derive(Debug, PartialEq)]
enum Frame {
    Chunk(Chunk),
    Usage(Usage),
    Done,
    /// A comment, an empty line, a chunk without text: no token came.
    Nothing,
}

/// The first whole line, without its end.
fn take_line(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = buffer.iter().position(|byte| *byte == b'\n')?;
    let mut line: Vec<u8> = buffer.drain(..=end).collect();
    line.pop();
    line.pop_if(|byte| *byte == b'\r');
    Some(line)
}

fn read_frame(line: &[u8]) -> Result<Frame, ClientError> {
    let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else { return Ok(Frame::Nothing) };
    if data == b"[DONE]" {
        return Ok(Frame::Done);
    }
    let frame: Value = serde_json::from_slice(data).map_err(|_| ClientError::Broken("a frame is not JSON"))?;
    if let Some(message) = message_of(&frame) {
        return Err(ClientError::Failed(message));
    }
    let choice = &frame["choices"][0];
    if let Some(text) = choice["text"].as_str().filter(|text| !text.is_empty()) {
        return Ok(Frame::Chunk(Chunk { text: text.into() }));
    }
    let count = |name: &str| frame["usage"][name].as_u64().map(|count| count as u32);
    match (count("prompt_tokens"), count("completion_tokens")) {
        (Some(prompt_tokens), Some(completion_tokens)) => Ok(Frame::Usage(Usage { prompt_tokens, completion_tokens })),
        _ => Ok(Frame::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_however_they_arrive() {
        let text = b": ping\r\n\r\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata:{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\
            \"completion_tokens\":2}}\n\ndata: {\"choices\":[{\"text\":\"\"}]}\n\ndata: [DONE]\n\n";
        for size in [1, 7, text.len()] {
            let (mut buffer, mut frames) = (Vec::new(), Vec::new());
            for bytes in text.chunks(size) {
                buffer.extend_from_slice(bytes);
                while let Some(line) = take_line(&mut buffer) {
                    frames.push(read_frame(&line).unwrap());
                }
            }
            frames.retain(|frame| *frame != Frame::Nothing);
            let usage = Usage { prompt_tokens: 3, completion_tokens: 2 };
            assert_eq!(frames, [Frame::Chunk(Chunk { text: "a".into() }), Frame::Usage(usage), Frame::Done]);
        }
    }

    #[test]
    fn errors_in_a_stream_are_errors() {
        let failed = read_frame(b"data: {\"error\": {\"message\": \"too hot\"}}");
        assert!(matches!(failed, Err(ClientError::Failed(message)) if message == "too hot"));
        assert!(matches!(read_frame(b"data: {"), Err(ClientError::Broken(_))));
    }

    #[test]
    fn only_what_was_asked_for_is_sent() {
        let client = Client::new("http://localhost:1/v1/").unwrap().with_model("m");
        assert_eq!(client.base, "http://localhost:1");
        let plain = client.body(&Ask { prompt: Prompt::Tokens(vec![1, 2]), ..Ask::default() });
        assert_eq!((&plain["prompt"], plain.get("ignore_eos"), plain.get("priority")), (&json!([1, 2]), None, None));
        let ask = Ask { ignore_eos: true, priority: Priority::High, ..Ask::default() };
        let body = client.body(&ask);
        assert_eq!(Priority::from_integer(body["priority"].as_i64().unwrap()), Priority::High);
        assert_eq!(body["ignore_eos"], true);
        for bad in ["localhost:8080", "ftp://x", ""] {
            assert!(matches!(Client::new(bad), Err(ClientError::Url { .. })), "{bad}");
        }
    }
}
