//! Everything a client may meet. Pure.

use thiserror::Error;

/// Everything a client may meet. `api/error.rs` gives each variant its status and OpenAI error object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("the body is not valid JSON: {message}")]
    InvalidJson { message: String },
    #[error("'{param}': {message}")]
    InvalidValue { param: String, message: String },
    #[error("{why}; send a valid key as 'Authorization: Bearer KEY' or 'x-api-key: KEY'")]
    Unauthorized { why: &'static str },
    #[error("the limit of this API key of {limit} {what} is reached; try again in {retry_after_ms} ms")]
    RateLimited { what: &'static str, limit: u32, retry_after_ms: u64 },
    #[error("this API key has used {used} of its {limit} tokens of this month")]
    QuotaExceeded { used: u64, limit: u64 },
    #[error("the usage of earlier requests is not written down yet, so no more are taken")]
    LedgerFull,
    #[error("'{param}' is not supported: {message}")]
    Unsupported { param: String, message: String },
    /// What its parameter asks to enforce would cost more than the server gives.
    #[error("'{param}': {message}")]
    GrammarTooComplex { param: String, message: String },
    #[error("the server is compiling other requests' grammars; try again in {retry_after_s} s")]
    GrammarBusy { retry_after_s: u32 },
    #[error("the prompt is empty")]
    EmptyPrompt,
    #[error(
        "This model's maximum context length is {limit} tokens, but the prompt has {prompt} and at least one must be left to generate."
    )]
    ContextLength { prompt: usize, limit: u32 },
    /// Where nothing is to be generated.
    #[error("This model's maximum context length is {limit} tokens, but the prompt has {prompt}.")]
    PromptLength { prompt: usize, limit: u32 },
    #[error("this model only embeds: it has answers for /v1/embeddings and /v1/rerank")]
    OnlyEmbeds,
    #[error("the chat template refused the messages: {message}")]
    Template { message: String },
    /// It did more, or wrote more, than any template needs.
    #[error("{message}")]
    TemplateLimit { message: String },
    #[error("the model '{model}' does not exist")]
    ModelNotFound { model: String },
    #[error("there is no such route: {path}")]
    RouteNotFound { path: String },
    /// It says that it is for a host whose name nobody gave this server.
    #[error("this server is not known as {host}; its operator can add the name to server.hosts")]
    Misdirected { host: String },
    #[error("{message}")]
    Forbidden { message: String },
    #[error("{method} is not allowed here")]
    MethodNotAllowed { method: String },
    #[error("the body is larger than {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("the body did not arrive within {seconds} s")]
    BodyTimeout { seconds: u64 },
    #[error("content-type must be application/json")]
    UnsupportedMediaType,
    #[error("compressed bodies are not accepted; send it without content-encoding")]
    UnsupportedEncoding,
    #[error("the queue is full ({capacity} requests); try again in {retry_after_s} s")]
    QueueFull { capacity: usize, retry_after_s: u32 },
    #[error("the deadline of {after_ms} ms has passed")]
    Timeout { after_ms: u64 },
    #[error("the deadline of {after_ms} ms cannot be met: the last token is expected after {predicted_ms} ms")]
    DeadlineUnreachable { after_ms: u64, predicted_ms: u64 },
    #[error(
        "a first token within {promised_ms} ms is promised to this priority and expected after {predicted_ms} ms; try again in {retry_after_s} s"
    )]
    PromiseUnreachable { promised_ms: u64, predicted_ms: u64, retry_after_s: u32 },
    #[error("the request waited {waited_ms} ms and no batch could take it")]
    BatchTimeout { waited_ms: u64 },
    #[error("the server is too hot to take requests; try again in {retry_after_s} s")]
    ThermalLimit { retry_after_s: u32 },
    #[error("there is no {what} '{name}'; valid are {valid}")]
    UnknownName { what: &'static str, name: String, valid: String },
    #[error("no such {what}: {id}")]
    NotFound { what: &'static str, id: String },
    #[error("content-type must be multipart/form-data with a boundary")]
    NotMultipart,
    #[error("the store has no room left; delete files, or give it more")]
    StoreFull,
    #[error("the store is busy; try again")]
    StoreBusy,
    #[error("the store cannot be reached")]
    StoreUnavailable,
    #[error("the model is being loaded")]
    ModelLoading,
    #[error("a step has been running for {seconds} s")]
    EngineStalled { seconds: u64 },
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The worker died, or nobody is there who could take the request.
    #[error("no worker is there to take the request")]
    EngineStopped,
    #[error("all workers that could take the request keep failing; try again in {retry_after_s} s")]
    CircuitOpen { retry_after_s: u32 },
    #[error("the request was ended by the server's operator")]
    Aborted,
    #[error("the configuration was refused, and is as it was: {message}")]
    Configuration { message: String },
    #[error("the stream has ended: {why}")]
    StreamEnded { why: &'static str },
    #[error("the model produced values that are not finite for this request")]
    NonFiniteLogits,
    #[error("the grammar cannot go on: {message}")]
    Grammar { message: String },
    #[error("the model failed on this request")]
    StepFailed,
    #[error("the device has no memory left to compute this request; a shorter prompt takes less")]
    OutOfMemory,
    #[error("the server failed on this request")]
    Internal,
}

impl RequestError {
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> RequestError {
        RequestError::InvalidValue { param: param.into(), message: message.into() }
    }

    /// Whether the worker is to blame, so that another may do better.
    pub fn is_worker_fault(&self) -> bool {
        matches!(self, RequestError::EngineStopped | RequestError::StepFailed | RequestError::OutOfMemory)
    }
}
