//! The C interface: `include/forebay.h` is made from this file by cbindgen. It checks, converts and calls
//! [`Embedded`], nothing else.
//!
//! A handle is a number in a pointer's clothes and is never followed: one that was destroyed, or never given out, is an
//! error and not a crash. A panic ends at the boundary as `FOREBAY_ERROR_PANIC`.
#![allow(unsafe_code)] // reading what C points to, writing where it asks for

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::app::embedded::{Embedded, EmbeddedError, Room};
use crate::request::{ChatMessage, FinishReason, Priority, Prompt, RawRequest, RequestError};
use crate::scheduler::policy::PolicyKind;

pub const FOREBAY_OK: i32 = 0;
/// A pointer that must point somewhere is null.
pub const FOREBAY_ERROR_NULL: i32 = -1;
/// The engine was destroyed, or never created.
pub const FOREBAY_ERROR_HANDLE: i32 = -2;
/// A value is out of range, text is not UTF-8, or the prompt does not fit.
pub const FOREBAY_ERROR_ARGUMENT: i32 = -3;
/// The configuration or the model cannot be used.
pub const FOREBAY_ERROR_START: i32 = -4;
/// No such request: it was read to its end, cancelled, or never submitted.
pub const FOREBAY_ERROR_REQUEST: i32 = -5;
/// The queue is full; try again later.
pub const FOREBAY_ERROR_QUEUE_FULL: i32 = -6;
/// The engine is ending, or has ended.
pub const FOREBAY_ERROR_STOPPED: i32 = -7;
/// The request was ended by somebody else's cancel.
pub const FOREBAY_ERROR_CANCELLED: i32 = -8;
/// The request failed in the engine; others are not touched.
pub const FOREBAY_ERROR_FAILED: i32 = -9;
/// A mistake of the library's.
pub const FOREBAY_ERROR_PANIC: i32 = -10;

pub const FOREBAY_POLICY_FAIR: u32 = 0;
pub const FOREBAY_POLICY_LATENCY_FIRST: u32 = 1;
pub const FOREBAY_POLICY_THROUGHPUT_FIRST: u32 = 2;

/// More is to come.
pub const FOREBAY_RUNNING: u32 = 0;
/// An end token or a stop string.
pub const FOREBAY_FINISHED_STOP: u32 = 1;
/// `max_tokens`, or the context is full.
pub const FOREBAY_FINISHED_LENGTH: u32 = 2;

pub const FOREBAY_PRIORITY_LOW: u32 = 0;
pub const FOREBAY_PRIORITY_NORMAL: u32 = 1;
pub const FOREBAY_PRIORITY_HIGH: u32 = 2;
pub const FOREBAY_PRIORITY_CRITICAL: u32 = 3;

/// An engine. It has no inside that could be looked into.
pub struct Engine {
    _private: [u8; 0],
}

/// How a completion is drawn. `forebay_params_init` sets each field to the model's default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// -1: the rest of the context.
    pub max_tokens: i64,
    /// NaN: the model's default, as for the next three.
    pub temperature: f64,
    pub top_p: f64,
    pub min_p: f64,
    pub repetition_penalty: f64,
    /// -1: the model's default; 0: no limit.
    pub top_k: i64,
    /// Used if `has_seed`; otherwise each request draws its own.
    pub seed: i64,
    pub has_seed: bool,
    /// Goes on behind the model's end tokens.
    pub ignore_eos: bool,
    /// One of `FOREBAY_PRIORITY_*`.
    pub priority: u32,
    /// A text that ends the completion and is no part of it; null: none.
    pub stop: *const c_char,
}

/// One message of a chat: UTF-8, ended by NUL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub role: *const c_char,
    pub content: *const c_char,
}

/// What a poll gave.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// `FOREBAY_RUNNING`, or `FOREBAY_FINISHED_*` when everything has been given.
    pub state: u32,
    /// Tokens drawn, the end token included; 0 while it runs.
    pub completion_tokens: u32,
    /// Bytes written, without the NUL behind them.
    pub text_bytes: usize,
    /// Token ids written.
    pub token_count: usize,
    pub prompt_tokens: usize,
    /// Tokens of the prompt that were in the KV cache.
    pub cached_tokens: usize,
}

/// The engines that live, by handle.
static ENGINES: Mutex<Engines> = Mutex::new(Engines { last: 0, alive: BTreeMap::new() });

struct Engines {
    /// A handle is never used twice.
    last: usize,
    alive: BTreeMap<usize, Arc<Embedded>>,
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// A code and what `forebay_last_error` says of it.
struct Fault(i32, String);

impl From<EmbeddedError> for Fault {
    fn from(error: EmbeddedError) -> Fault {
        let code = match &error {
            EmbeddedError::Start(_) => FOREBAY_ERROR_START,
            EmbeddedError::UnknownRequest(_) => FOREBAY_ERROR_REQUEST,
            EmbeddedError::Request(error) => code_of(error),
        };
        Fault(code, error.to_string())
    }
}

fn code_of(error: &RequestError) -> i32 {
    use RequestError as E;
    match error {
        E::QueueFull { .. } | E::ThermalLimit { .. } => FOREBAY_ERROR_QUEUE_FULL,
        E::ShuttingDown | E::EngineStopped => FOREBAY_ERROR_STOPPED,
        E::Aborted => FOREBAY_ERROR_CANCELLED,
        E::InvalidValue { .. }
        | E::Unsupported { .. }
        | E::EmptyPrompt
        | E::ContextLength { .. }
        | E::Template { .. }
        | E::TemplateLimit { .. }
        | E::GrammarTooComplex { .. } => FOREBAY_ERROR_ARGUMENT,
        _ => FOREBAY_ERROR_FAILED,
    }
}

/// The message of this thread's last call that failed: UTF-8, valid until its next call. Empty before the first.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
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
        let mut engines = engines();
        engines.last += 1;
        let handle = engines.last;
        engines.alive.insert(handle, started);
        // SAFETY: `engine` is not null and, by the caller's promise, may be written.
        unsafe { engine.write(std::ptr::without_provenance_mut(handle)) };
        Ok(())
    })
}

/// Ends an engine: its requests are cancelled and calls of other threads return. The handle is not valid any more.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_engine_destroy(engine: *mut Engine) -> i32 {
    guard(|| {
        let engine = engines().alive.remove(&engine.addr()).ok_or_else(bad_handle)?;
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

/// The longest character of UTF-8.
const MAX_CHAR_BYTES: usize = 4;

impl Default for Params {
    fn default() -> Params {
        Params {
            max_tokens: -1,
            temperature: f64::NAN,
            top_p: f64::NAN,
            min_p: f64::NAN,
            repetition_penalty: f64::NAN,
            top_k: -1,
            seed: 0,
            has_seed: false,
            ignore_eos: false,
            priority: FOREBAY_PRIORITY_NORMAL,
            stop: std::ptr::null(),
        }
    }
}

/// Runs a call: its code, its message, and no panic beyond this point.
fn guard(call: impl FnOnce() -> Result<(), Fault>) -> i32 {
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return FOREBAY_OK,
        Ok(Err(fault)) => fault,
        Err(_) => Fault(FOREBAY_ERROR_PANIC, "the library panicked".into()),
    };
    let text = CString::new(fault.1.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = text);
    fault.0
}

fn engines() -> MutexGuard<'static, Engines> {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(engine: *mut Engine) -> Result<Arc<Embedded>, Fault> {
    required(engine, "engine")?;
    engines().alive.get(&engine.addr()).cloned().ok_or_else(bad_handle)
}

fn bad_handle() -> Fault {
    Fault(FOREBAY_ERROR_HANDLE, "engine: it was destroyed, or never created".into())
}

fn argument(message: &str) -> Fault {
    Fault(FOREBAY_ERROR_ARGUMENT, message.into())
}

fn required<T>(pointer: *mut T, name: &str) -> Result<*mut T, Fault> {
    if pointer.is_null() { Err(null(name)) } else { Ok(pointer) }
}

fn null(name: &str) -> Fault {
    Fault(FOREBAY_ERROR_NULL, format!("{name} is null"))
}

/// # Safety
/// `pointer` is null, or ends with NUL and stays as it is for `'a`.
unsafe fn optional_text<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null, and ends with NUL by the caller's promise.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map(Some).map_err(|_| argument(&format!("{name} is not UTF-8")))
}

/// # Safety
/// As [`optional_text`].
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Fault> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(pointer, name)? }.ok_or_else(|| null(name))
}

/// # Safety
/// `pointer` is null or points to `count` values that stay as they are for `'a`.
unsafe fn items<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Fault> {
    match (pointer.is_null(), count) {
        (true, _) => Err(null(name)),
        (false, 0) => Ok(&[]),
        _ if pointer.is_aligned() && count <= isize::MAX as usize / size_of::<T>() => {
            // SAFETY: aligned, not null, not too long, and as long as said by the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
        }
        _ => Err(argument(&format!("{name} is no array of {count}"))),
    }
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
    let mut raw = RawRequest {
        prompt,
        max_tokens: Some(params.max_tokens).filter(|&count| count != -1),
        max_tokens_param: "max_tokens",
        temperature: number(params.temperature),
        top_p: number(params.top_p),
        min_p: number(params.min_p),
        top_k: Some(params.top_k).filter(|&count| count != -1),
        seed: params.has_seed.then_some(params.seed),
        ignore_eos: params.ignore_eos,
        stop: stop.map(str::to_owned).into_iter().collect(),
        priority: match params.priority {
            FOREBAY_PRIORITY_LOW => Priority::Low,
            FOREBAY_PRIORITY_NORMAL => Priority::Normal,
            FOREBAY_PRIORITY_HIGH => Priority::High,
            FOREBAY_PRIORITY_CRITICAL => Priority::Critical,
            _ => return Err(argument("priority must be 0 (low), 1 (normal), 2 (high) or 3 (critical)")),
        },
        ..RawRequest::default()
    };
    raw.shaping.repetition_penalty = number(params.repetition_penalty);
    Ok(raw)
}

fn number_of(kind: PolicyKind) -> u32 {
    match kind {
        PolicyKind::Fair => FOREBAY_POLICY_FAIR,
        PolicyKind::LatencyFirst => FOREBAY_POLICY_LATENCY_FIRST,
        PolicyKind::ThroughputFirst => FOREBAY_POLICY_THROUGHPUT_FIRST,
    }
}

fn state_of(reason: FinishReason) -> u32 {
    match reason {
        FinishReason::Length => FOREBAY_FINISHED_LENGTH,
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Abort => FOREBAY_FINISHED_STOP,
    }
}
