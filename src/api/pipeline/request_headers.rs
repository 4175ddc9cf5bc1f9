//! Headers and query parameters that many routes share, as the document describes them; `head.rs` reads them.

#![expect(dead_code, reason = "they describe what head.rs reads, and are never made")]

use utoipa::IntoParams;

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Strictness {
    /// `1` refuses a request whose fields would be ignored or clamped, instead of naming them in `x-ignored-params`. The header
    /// `x-strict` says the same.
    #[param(inline)]
    strict: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct RequestHeaders {
    /// `critical`, `high`, `normal`, `low`, `batch` or an integer; the body's `priority` goes before it.
    #[param(rename = "x-priority")]
    priority: Option<String>,
    /// Whom the fair share counts the request for; goes before `user`. This and the following count only from
    /// `server.trusted_proxies`; from others they are named in `x-ignored-params`.
    #[param(rename = "x-llm-d-inference-fairness-id")]
    fairness_id: Option<String>,
    /// The same, by its old name.
    #[param(rename = "x-gateway-inference-fairness-id")]
    old_fairness_id: Option<String>,
    /// A priority's name, or one of `server.objectives`; goes before `priority`.
    #[param(rename = "x-llm-d-inference-objective")]
    objective: Option<String>,
    /// The same, by its old name.
    #[param(rename = "x-gateway-inference-objective")]
    old_objective: Option<String>,
    /// Milliseconds until the first token. Both of these and `max_tokens` make a deadline for the whole answer.
    #[param(rename = "x-llm-d-slo-ttft-ms")]
    slo_ttft_ms: Option<f64>,
    /// Milliseconds for each token after the first.
    #[param(rename = "x-llm-d-slo-tpot-ms")]
    slo_tpot_ms: Option<f64>,
    /// `1` adds `forebay_trace`: how the request was scheduled.
    #[param(rename = "x-forebay-trace")]
    trace: Option<String>,
    /// 1 to 64 letters, digits, `_` and `-`; comes back in the answer.
    #[param(rename = "x-request-id")]
    request_id: Option<String>,
    /// See [`Strictness`].
    #[param(rename = "x-strict")]
    strict: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct ConversationHeader {
    /// The stream can be read again under `/v1/stream/{id}`.
    #[param(rename = "x-conversation-id")]
    conversation: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ReadFrom {
    /// The number of the first payload that is wanted, from 0.
    from: Option<u64>,
}
