//! The C interface: `include/forebay.h` is made from this file and `types.rs` by cbindgen. It checks, converts and calls
//! [`Embedded`], nothing else.
//!
//! A handle is a number in a pointer's clothes and is never followed: one that was destroyed, or never given out, is an
//! error and not a crash. A panic ends at the boundary as `FOREBAY_ERROR_PANIC`.
#![allow(unsafe_code)] // reading what C points to, writing where it asks for

mod guard;
mod types;

use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::app::embedded::{Embedded, EmbeddedError, Room};
use crate::generate::{Prompt, RawRequest};
use forebay_core::request::{Parameters, Priority};
use forebay_core::scheduler::policy::PolicyKind;
use forebay_text::ChatMessage;

use guard::*;
pub use types::*;

/// The longest character of UTF-8.
const MAX_CHAR_BYTES: usize = 4;

/// The message of this thread's last call that failed: UTF-8, valid until its next call. Empty before the first.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_error() -> *const c_char {
    last_error()
}

/// Loads a model and starts its engine. `model` is a folder with safetensors, a GGUF file or a hub id, "" the embedded
/// model; null: what `config_file` says. `config_file` is a `config.yaml` as of `forebay serve`; null: defaults. Returns
/// when the model is loaded.
///
/// # Safety
/// `model` and `config_file` are null or end with NUL; `engine` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_create(
    model: *const c_char,
    config_file: *const c_char,
    engine: *mut *mut Engine,
) -> i32 {
    guard(|| {
        let engine = required(engine, "engine")?;
        // SAFETY: the caller's promise.
        let (model, file) = unsafe { (optional_text(model, "model")?, optional_text(config_file, "config_file")?) };
        let started = Arc::new(Embedded::start(model, file.map(Path::new))?);
        let handle = engines().add(started);
        // SAFETY: `engine` is not null and, by the caller's promise, may be written.
        unsafe { engine.write(std::ptr::without_provenance_mut(handle)) };
        Ok(())
    })
}

/// Ends an engine: its requests are cancelled and calls of other threads return. The handle is not valid any more.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_engine_destroy(engine: *mut Engine) -> i32 {
    guard(|| {
        let engine = engines().take(engine)?;
        engine.shut_down();
        Ok(())
    })
}

/// Sets every field of `params` to the model's default.
///
/// # Safety
/// `params` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_params_init(params: *mut Params) -> i32 {
    guard(|| {
        // SAFETY: it is not null and, by the caller's promise, may be written.
        unsafe { required(params, "params")?.write(Params::default()) };
        Ok(())
    })
}

/// Queues the completion of a text. `params` may be null: defaults.
///
/// # Safety
/// `prompt` is null or ends with NUL; `params` is null or points to what `forebay_params_init` has set; `request` is null
/// or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_submit(
    engine: *mut Engine,
    prompt: *const c_char,
    params: *const Params,
    request: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let prompt = unsafe { text(prompt, "prompt")? }.to_owned();
        // SAFETY: the caller's promise.
        unsafe { submit(engine, Prompt::Text(prompt), params, request) }
    })
}

/// Queues the completion of `count` tokens.
///
/// # Safety
/// As `forebay_engine_submit`; `tokens` is null or points to `count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_submit_tokens(
    engine: *mut Engine,
    tokens: *const u32,
    count: usize,
    params: *const Params,
    request: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let tokens = unsafe { items(tokens, count, "tokens")? };
        let prompt = Prompt::Tokens(tokens.iter().map(|&token| token.into()).collect());
        // SAFETY: the caller's promise.
        unsafe { submit(engine, prompt, params, request) }
    })
}

/// Queues the answer to a chat of `count` messages, rendered by the model's chat template.
///
/// # Safety
/// As `forebay_engine_submit`; `messages` is null or points to `count` messages, their texts end with NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_submit_chat(
    engine: *mut Engine,
    messages: *const Message,
    count: usize,
    params: *const Params,
    request: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: the caller's promise.
        let messages = unsafe { items(messages, count, "messages")? };
        let message = |message: &Message| {
            // SAFETY: the caller's promise.
            let (role, content) = unsafe { (text(message.role, "role")?, text(message.content, "content")?) };
            Ok(ChatMessage::new(role, content))
        };
        let messages = messages.iter().map(message).collect::<Result<_, Fault>>()?;
        // SAFETY: the caller's promise.
        unsafe { submit(engine, Prompt::Chat(messages), params, request) }
    })
}

/// Takes what is new of an answer. Waits up to `timeout_ms` while there is nothing; 0 does not wait. Writes whole UTF-8
/// characters and a NUL to `text` (5 bytes at least), and token ids to `tokens`; what does not fit comes with the next
/// call. `tokens` may be null with a capacity of 0: then they are dropped. When `output->state` is not `FOREBAY_RUNNING`,
/// or the request failed, it is forgotten.
///
/// # Safety
/// `text`, `tokens` and `output` are null or may be written, for as many bytes and ids as their capacities say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_poll(
    engine: *mut Engine,
    request: u64,
    timeout_ms: u32,
    text: *mut c_char,
    text_capacity: usize,
    tokens: *mut u32,
    token_capacity: usize,
    output: *mut Output,
) -> i32 {
    guard(|| {
        let engine = find(engine)?;
        let (text, output) = (required(text, "text")?, required(output, "output")?);
        if text_capacity <= MAX_CHAR_BYTES {
            return Err(argument("text_capacity must be 5 at least: the longest character and a NUL"));
        }
        let wanted = token_capacity > 0;
        if wanted {
            required(tokens, "tokens")?;
        }
        let room = Room { text: text_capacity - 1, tokens: if wanted { token_capacity } else { usize::MAX } };
        let piece = engine.poll(request, Duration::from_millis(timeout_ms.into()), room)?;
        let bytes = piece.text.len();
        // SAFETY: neither is null; the piece has at most `text_capacity - 1` bytes and `token_capacity` ids, for which
        // there is room by the caller's promise; buffers of C do not overlap our own.
        unsafe {
            text.copy_from_nonoverlapping(piece.text.as_ptr().cast(), bytes);
            text.add(bytes).write(0);
            if wanted {
                tokens.copy_from_nonoverlapping(piece.tokens.as_ptr(), piece.tokens.len());
            }
            output.write(Output {
                state: piece.finished.map_or(FOREBAY_RUNNING, |finished| state_of(finished.reason)),
                completion_tokens: piece.finished.map_or(0, |finished| finished.completion_tokens),
                text_bytes: bytes,
                token_count: if wanted { piece.tokens.len() } else { 0 },
                prompt_tokens: piece.prompt_tokens,
                cached_tokens: piece.cached_tokens,
            });
        }
        Ok(())
    })
}

/// Ends a request and forgets it. A thread that polls it gets `FOREBAY_ERROR_CANCELLED`.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_engine_cancel(engine: *mut Engine, request: u64) -> i32 {
    guard(|| Ok(find(engine)?.cancel(request)?))
}

/// One of `FOREBAY_POLICY_*`, from the next step on. No request is lost by it.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_engine_set_scheduling_policy(engine: *mut Engine, policy: u32) -> i32 {
    guard(|| {
        let engine = find(engine)?;
        let kind = PolicyKind::ALL.into_iter().find(|kind| number_of(*kind) == policy);
        let kind =
            kind.ok_or_else(|| argument("policy must be 0 (fair), 1 (latency first) or 2 (throughput first)"))?;
        Ok(engine.select_policy(kind.name())?)
    })
}

/// # Safety
/// `policy` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_scheduling_policy(engine: *mut Engine, policy: *mut u32) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { tell(engine, policy, "policy", |engine| Ok(number_of(engine.stats()?.tuning.scheduler.policy.kind))) }
}

/// Tokens drawn since the engine was created.
///
/// # Safety
/// `total` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_total_tokens(engine: *mut Engine, total: *mut u64) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { tell(engine, total, "total", |engine| Ok(engine.stats()?.total_tokens_generated)) }
}

/// Tokens drawn in a second, since the engine was created or `forebay_engine_reset_stats_window` was called.
///
/// # Safety
/// `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_engine_tok_per_sec(engine: *mut Engine, out: *mut f64) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { tell(engine, out, "out", |engine| Ok(engine.stats()?.window.tok_per_sec())) }
}

/// Begins a new window of measurement.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_engine_reset_stats_window(engine: *mut Engine) -> i32 {
    guard(|| Ok(find(engine)?.reset_stats()?))
}

/// Writes what `ask` finds.
///
/// # Safety
/// `out` is null or may be written.
unsafe fn tell<T>(
    engine: *mut Engine,
    out: *mut T,
    name: &str,
    ask: impl FnOnce(&Embedded) -> Result<T, EmbeddedError>,
) -> i32 {
    guard(|| {
        let (engine, out) = (find(engine)?, required(out, name)?);
        let told = ask(&engine)?;
        // SAFETY: it is not null and, by the caller's promise, may be written.
        unsafe { out.write(told) };
        Ok(())
    })
}

/// # Safety
/// As `forebay_engine_submit`.
unsafe fn submit(engine: *mut Engine, prompt: Prompt, params: *const Params, request: *mut u64) -> Result<(), Fault> {
    let (engine, request) = (find(engine)?, required(request, "request")?);
    // SAFETY: null or readable, by the caller's promise.
    let params = unsafe { params.as_ref() }.copied().unwrap_or_default();
    // SAFETY: the caller's promise.
    let stop = unsafe { optional_text(params.stop, "stop")? };
    let id = engine.submit(raw_request(prompt, &params, stop)?)?;
    // SAFETY: it is not null and, by the caller's promise, may be written.
    unsafe { request.write(id) };
    Ok(())
}

fn raw_request(prompt: Prompt, params: &Params, stop: Option<&str>) -> Result<RawRequest, Fault> {
    let number = |value: f64| Some(value).filter(|value| !value.is_nan());
    let mut parameters = Parameters {
        max_tokens: Some(params.max_tokens).filter(|&count| count != -1),
        max_tokens_param: "max_tokens",
        temperature: number(params.temperature),
        top_p: number(params.top_p),
        min_p: number(params.min_p),
        top_k: Some(params.top_k).filter(|&count| count != -1),
        seed: params.has_seed.then_some(params.seed),
        ignore_eos: params.ignore_eos,
        priority: match params.priority {
            FOREBAY_PRIORITY_LOW => Priority::Low,
            FOREBAY_PRIORITY_NORMAL => Priority::Normal,
            FOREBAY_PRIORITY_HIGH => Priority::High,
            FOREBAY_PRIORITY_CRITICAL => Priority::Critical,
            _ => return Err(argument("priority must be 0 (low), 1 (normal), 2 (high) or 3 (critical)")),
        },
        ..Parameters::default()
    };
    parameters.shaping.repetition_penalty = number(params.repetition_penalty);
    let stop = stop.map(str::to_owned).into_iter().collect();
    Ok(RawRequest { prompt, stop, parameters, ..RawRequest::default() })
}
