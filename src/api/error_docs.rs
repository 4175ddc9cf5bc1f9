//! `docs/errors.md`, made from the table in `error.rs`: each error's face, whether a retry helps, and its body.
//!
//! `FOREBAY_BLESS=1 cargo test error_docs` writes the file; otherwise the test compares.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::discriminant;

use crate::api::error::{Retry, face, object};
use forebay_core::request::RequestError;

/// One of each variant, with values as a client meets them, and when it happens.
pub fn examples() -> Vec<(RequestError, &'static str)> {
    use RequestError as E;
    let text = |text: &str| text.to_owned();
    vec![
        (
            E::InvalidJson { message: text("EOF while parsing a value at line 1 column 11") },
            "the body is no JSON object: broken, nested deeper than 128 levels, not UTF-8, lone surrogates",
        ),
        (E::invalid("temperature", "must be between 0 and 2, got 9"), "a value has the wrong type or is out of range"),
        (
            E::Unsupported {
                param: text("suffix"),
                message: text("the model's vocabulary has no tokens for filling in the middle"),
            },
            "a parameter that we know and cannot honour; with `?strict=1` also what would be ignored",
        ),
        (
            E::GrammarTooComplex {
                param: text("guided_regex"),
                message: text("has 1048576 bytes, at most 8192 are allowed"),
            },
            "a schema or grammar is larger, deeper or harder to compile than the server allows",
        ),
        (
            E::GrammarBusy { retry_after_s: 2 },
            "a schema or grammar waited for others to be compiled, five times as long as its own compilation may take",
        ),
        (
            E::Unauthorized { why: "incorrect API key provided" },
            "no API key, an unknown one, or one that has expired or was revoked (`keys.required`)",
        ),
        (
            E::RateLimited { what: "requests per minute", limit: 60, retry_after_ms: 800 },
            "the key's requests or tokens per minute, or its requests at once, are used up",
        ),
        (E::QuotaExceeded { used: 1_000_412, limit: 1_000_000 }, "the key's tokens of the calendar month are used up"),
        (E::LedgerFull, "as many billed requests run or wait for the ledger as may (`keys.spool`)"),
        (E::EmptyPrompt, "`prompt` or one of its entries is empty"),
        (E::ContextLength { prompt: 1_200, limit: 1_024 }, "the prompt leaves no room for a token in the context"),
        (
            E::PromptLength { prompt: 700, limit: 512 },
            "the prompt is longer than the context of a model that only embeds",
        ),
        (E::OnlyEmbeds, "the model makes vectors and generates nothing"),
        (
            E::Template { message: text("Conversation roles must alternate user/assistant") },
            "the model's chat template raised an exception or failed; the model has none",
        ),
        (
            E::TemplateLimit { message: text("the chat template needs more than 200000 steps for these messages") },
            "the model's chat template worked or wrote too much for these messages",
        ),
        (E::ModelNotFound { model: text("gpt-17") }, "`model` is not served here"),
        (E::RouteNotFound { path: text("/v1/nothing") }, "no such route"),
        (
            E::Misdirected { host: text("evil.example") },
            "`Host` is neither an address nor `localhost` nor in `server.hosts`, where no API key is asked for, or at `/admin`",
        ),
        (
            E::Forbidden { message: text("/admin answers to loopback only") },
            "`/admin` asked from elsewhere (`server.admin`), a key without the role, or a priority above the key's",
        ),
        (E::MethodNotAllowed { method: text("DELETE") }, "the route has other methods"),
        (E::BodyTooLarge { limit: 8_388_608 }, "the body is larger than the server reads; the connection is closed"),
        (E::BodyTimeout { seconds: 30 }, "the body came too slowly; the connection is closed"),
        (E::UnsupportedMediaType, "the content type is not JSON in UTF-8"),
        (E::UnsupportedEncoding, "the body is compressed"),
        (
            E::QueueFull { capacity: 10_000, retry_after_s: 3 },
            "as many requests or prompt tokens wait as may (`batching.queue_capacity`)",
        ),
        (E::Timeout { after_ms: 2_000 }, "the request's own `timeout_ms` or `deadline_ms` has passed"),
        (
            E::DeadlineUnreachable { after_ms: 500, predicted_ms: 1_800 },
            "the last token is expected after the request's deadline",
        ),
        (
            E::PromiseUnreachable { promised_ms: 2_000, predicted_ms: 9_000, retry_after_s: 7 },
            "what `batching.slo_*` promises to its priority cannot be kept, and `batching.slo_refuse` is on",
        ),
        (
            E::Grammar { message: text("Too many items (limit 8000)") },
            "the completion met a limit of its own grammar; a part of it may have been sent",
        ),
        (
            E::BatchTimeout { waited_ms: 60_000 },
            "no batch took the request in time (`batching`), or an upstream did not answer in time (`workers`)",
        ),
        (E::ThermalLimit { retry_after_s: 10 }, "the machine is too hot for new requests"),
        (
            E::UnknownName { what: "policy", name: text("fast"), valid: text("fair, latency_first, throughput_first") },
            "an `/admin` route names what does not exist",
        ),
        (E::NotFound { what: "file", id: text("file-17") }, "a file or a batch that is not there, or not any more"),
        (E::NotMultipart, "an upload that is no form"),
        (E::StoreFull, "the disk is full, or the store has its `store.max_mib`; what was acknowledged is kept"),
        (E::StoreBusy, "another process has kept the store's lock for longer than 5 s"),
        (E::StoreUnavailable, "the store's database does not answer"),
        (E::ModelLoading, "probes only: the server is not ready yet"),
        (E::EngineStalled { seconds: 60 }, "probes only: a step takes longer than `engine.stall_timeout`"),
        (E::ShuttingDown, "the server drains; the request did not run to its end"),
        (
            E::EngineStopped,
            "no worker is there: the engine loop died, or no upstream with this model is up; a stream may have begun",
        ),
        (
            E::CircuitOpen { retry_after_s: 12 },
            "every worker that could take the request has failed too often in a row (`health.failure_threshold`)",
        ),
        (E::Aborted, "the operator ended the request"),
        (
            E::Configuration { message: text("config.yaml:3:5: while parsing a block mapping") },
            "`POST /admin/reload` found a mistake in the file or the environment; `error.line` and `error.column` say where in the file",
        ),
        (
            E::StreamEnded { why: "another request of its conversation has begun" },
            "a stream with `X-Conversation-Id` was deleted, replaced, or pushed out while somebody read it, or its reader was too slow",
        ),
        (E::NonFiniteLogits, "the model computed NaN or infinities for this request; others are not affected"),
        (E::StepFailed, "the forward pass failed on this request alone; others are not affected"),
        (
            E::OutOfMemory,
            "a GPU had no memory left for this request's step, even for it alone; others are not affected, and `kv_cache.memory` leaves too little",
        ),
        (E::Internal, "a bug of ours, caught"),
    ]
}

fn document() -> String {
    let mut out = String::from(
        "# Errors\n\nGenerated from the table in `src/api/error.rs`; a test compares. Every error, on every route, is OpenAI's object:\n\n\
         `{\"error\": {\"message\", \"type\", \"param\", \"code\"}}`\n\n\
         Inside a stream it is one `data: {\"error\": ...}` frame, then `data: [DONE]`. *Retry*: whether the same request may succeed\n\
         later. OpenAI's SDKs retry 408, 409, 429 and 5xx by themselves; where that cannot help, `x-should-retry: false` tells them so.\n\n\
         | status | type | code | param | retry | when |\n|---|---|---|---|---|---|\n",
    );
    for (error, when) in examples() {
        let face = face(&error);
        let param = match (&error, &face.param) {
            (
                RequestError::InvalidValue { .. }
                | RequestError::Unsupported { .. }
                | RequestError::GrammarTooComplex { .. },
                _,
            ) => "its name".to_owned(),
            (_, Some(param)) => format!("`{param}`"),
            (_, None) => String::new(),
        };
        let retry = match face.retry() {
            Retry::Never => "no",
            Retry::Later => "yes",
            Retry::After => "after `Retry-After`",
        };
        let (status, kind, code) = (face.status.as_u16(), face.kind, face.code);
        writeln!(out, "| {status} | `{kind}` | `{code}` | {param} | {retry} | {when} |").unwrap();
    }
    out.push_str(
        "\n`/health/ready` also answers 503 with the codes `model_loading`, `engine_stalled` and `shutting_down`.\n\n\
         ## Bodies\n\n```json\n",
    );
    for (error, _) in examples() {
        writeln!(out, "{}", serde_json::to_string(&object(&error)).unwrap()).unwrap();
    }
    out + "```\n"
}

#[test]
fn the_document_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
    let document = document();
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(path, &document).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, document, "FOREBAY_BLESS=1 cargo test the_document_is_the_table");
}

#[test]
fn every_variant_is_in_the_table_once() {
    let variants = include_str!("../../crates/core/src/request/error.rs").matches("#[error(").count();
    let examples = examples();
    assert_eq!(examples.len(), variants);
    for (index, (error, _)) in examples.iter().enumerate() {
        assert!(examples[..index].iter().all(|(other, _)| discriminant(other) != discriminant(error)), "{error}");
    }
}

/// The SDKs decide by status unless told otherwise; what they are told must agree with the table.
#[test]
fn client_faults_are_never_5xx_and_never_worth_a_retry() {
    let ours: BTreeSet<u16> = [408, 429, 500, 503, 504, 507].into();
    for (error, _) in examples() {
        let face = face(&error);
        let status = face.status.as_u16();
        let is_retried = status == 408 || status == 409 || status == 429 || status >= 500;
        assert_eq!(is_retried, ours.contains(&status), "{error}");
        assert_eq!(face.retry() == Retry::Never, !is_retried || face.never_retry, "{error}");
    }
}
