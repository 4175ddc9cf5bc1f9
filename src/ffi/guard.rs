//! Where C meets Rust: handles, pointers that are checked before they are followed, errors as codes, no panic beyond.
#![allow(unsafe_code)] // reading what C points to

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::app::embedded::{Embedded, EmbeddedError};
use forebay_core::request::RequestError;

use super::types::*;

/// The engines that live, by handle.
static ENGINES: Mutex<Engines> = Mutex::new(Engines { last: 0, alive: BTreeMap::new() });

pub(super) struct Engines {
    /// A handle is never used twice.
    last: usize,
    alive: BTreeMap<usize, Arc<Embedded>>,
}

impl Engines {
    /// Its handle.
    pub fn add(&mut self, engine: Arc<Embedded>) -> usize {
        self.last += 1;
        self.alive.insert(self.last, engine);
        self.last
    }

    /// Its handle is not valid any more.
    pub fn take(&mut self, engine: *mut Engine) -> Result<Arc<Embedded>, Fault> {
        self.alive.remove(&engine.addr()).ok_or_else(bad_handle)
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// A code and what `forebay_last_error` says of it.
pub(super) struct Fault(i32, String);

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

pub(super) fn code_of(error: &RequestError) -> i32 {
    use RequestError as E;
    match error {
        E::QueueFull { .. } | E::PromiseUnreachable { .. } | E::ThermalLimit { .. } => FOREBAY_ERROR_QUEUE_FULL,
        E::ShuttingDown | E::EngineStopped => FOREBAY_ERROR_STOPPED,
        E::Aborted => FOREBAY_ERROR_CANCELLED,
        E::InvalidValue { .. }
        | E::Unsupported { .. }
        | E::EmptyPrompt
        | E::ContextLength { .. }
        | E::PromptLength { .. }
        | E::OnlyEmbeds
        | E::Template { .. }
        | E::TemplateLimit { .. }
        | E::GrammarTooComplex { .. } => FOREBAY_ERROR_ARGUMENT,
        _ => FOREBAY_ERROR_FAILED,
    }
}

/// Valid until this thread's next call that fails.
pub(super) fn last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|text| text.as_ptr())
}

/// Runs a call: its code, its message, and no panic beyond this point.
pub(super) fn guard(call: impl FnOnce() -> Result<(), Fault>) -> i32 {
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return FOREBAY_OK,
        Ok(Err(fault)) => fault,
        Err(_) => Fault(FOREBAY_ERROR_PANIC, "the library panicked".into()),
    };
    let text = CString::new(fault.1.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = text);
    fault.0
}

pub(super) fn engines() -> MutexGuard<'static, Engines> {
    ENGINES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn find(engine: *mut Engine) -> Result<Arc<Embedded>, Fault> {
    required(engine, "engine")?;
    engines().alive.get(&engine.addr()).cloned().ok_or_else(bad_handle)
}

fn bad_handle() -> Fault {
    Fault(FOREBAY_ERROR_HANDLE, "engine: it was destroyed, or never created".into())
}

pub(super) fn argument(message: &str) -> Fault {
    Fault(FOREBAY_ERROR_ARGUMENT, message.into())
}

pub(super) fn required<T>(pointer: *mut T, name: &str) -> Result<*mut T, Fault> {
    if pointer.is_null() { Err(null(name)) } else { Ok(pointer) }
}

pub(super) fn null(name: &str) -> Fault {
    Fault(FOREBAY_ERROR_NULL, format!("{name} is null"))
}

/// # Safety
/// `pointer` is null, or ends with NUL and stays as it is for `'a`.
pub(super) unsafe fn optional_text<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null, and ends with NUL by the caller's promise.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map(Some).map_err(|_| argument(&format!("{name} is not UTF-8")))
}

/// # Safety
/// As [`optional_text`].
pub(super) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Fault> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(pointer, name)? }.ok_or_else(|| null(name))
}

/// # Safety
/// `pointer` is null or points to `count` values that stay as they are for `'a`.
pub(super) unsafe fn items<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Fault> {
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
