//! The numbers and structs that C sees.

use std::ffi::c_char;

use forebay_core::request::FinishReason;
use forebay_core::scheduler::policy::PolicyKind;

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
pub const FOREBAY_POLICY_SLO: u32 = 3;

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

pub(super) fn number_of(kind: PolicyKind) -> u32 {
    match kind {
        PolicyKind::Fair => FOREBAY_POLICY_FAIR,
        PolicyKind::LatencyFirst => FOREBAY_POLICY_LATENCY_FIRST,
        PolicyKind::ThroughputFirst => FOREBAY_POLICY_THROUGHPUT_FIRST,
        PolicyKind::Slo => FOREBAY_POLICY_SLO,
    }
}

pub(super) fn state_of(reason: FinishReason) -> u32 {
    match reason {
        FinishReason::Length => FOREBAY_FINISHED_LENGTH,
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Abort => FOREBAY_FINISHED_STOP,
    }
}
