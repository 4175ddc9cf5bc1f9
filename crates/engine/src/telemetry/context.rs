//! W3C Trace Context: where a request stands in a trace that others began, or a new one. Pure but for the dice.

use std::str::FromStr;

use opentelemetry::trace::TraceState;
use uuid::Uuid;

use forebay_core::request::SpanParent;

/// A span, before it has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanContext {
    pub trace: u128,
    pub span: u64,
    /// `None` is the root of the trace.
    pub parent: Option<u64>,
    pub parent_is_remote: bool,
    /// Whether anybody will see it.
    pub sampled: bool,
    /// What others say of the trace, passed on.
    pub state: TraceState,
}

impl SpanContext {
    /// Who began the trace has decided whether it is sampled; of new ones the part `sample` is.
    pub fn enter(traceparent: Option<&str>, tracestate: Option<&str>, sample: f64) -> SpanContext {
        if let Some((trace, parent, sampled)) = traceparent.and_then(parse) {
            let state = tracestate.and_then(|text| TraceState::from_str(text).ok()).unwrap_or_default();
            return SpanContext {
                trace,
                span: new_span(),
                parent: Some(parent),
                parent_is_remote: true,
                sampled,
                state,
            };
        }
        let trace = Uuid::new_v4().as_u128();
        SpanContext {
            trace,
            span: new_span(),
            parent: None,
            parent_is_remote: false,
            sampled: chosen(trace, sample),
            state: TraceState::default(),
        }
    }

    /// A span inside this one.
    pub fn inside(parent: SpanParent) -> SpanContext {
        SpanContext {
            trace: parent.trace,
            span: new_span(),
            parent: Some(parent.span),
            parent_is_remote: false,
            sampled: true,
            state: TraceState::default(),
        }
    }

    /// For spans inside it; `None` where nobody will see them.
    pub fn parent_of_others(&self) -> Option<SpanParent> {
        self.sampled.then_some(SpanParent { trace: self.trace, span: self.span })
    }

    /// For servers that are asked on its behalf.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// Version, trace, parent, flags, as <https://www.w3.org/TR/trace-context/> has it; what is not so is ignored.
fn parse(text: &str) -> Option<(u128, u64, bool)> {
    let mut parts = text.trim().split('-');
    let mut hex = |length: usize| {
        let part = parts.next()?;
        let sound = part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        sound.then(|| u128::from_str_radix(part, 16).ok()).flatten()
    };
    let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    // Later versions may add parts; ours has none.
    let sound = version != 0xff && trace != 0 && span != 0 && (version > 0 || parts.next().is_none());
    sound.then_some((trace, span as u64, flags & 1 == 1))
}

/// Half of a random UUID, which is never 0.
fn new_span() -> u64 {
    Uuid::new_v4().as_u64_pair().1
}

/// The same for the same trace.
fn chosen(trace: u128, sample: f64) -> bool {
    // The low bits: those of the version are elsewhere.
    let dice = (trace & 0xffff_ffff_ffff) as f64 / (1u64 << 48) as f64;
    dice < sample
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_given_trace_goes_on_and_comes_out_again() {
        let context = SpanContext::enter(Some(GIVEN), Some("vendor=1"), 0.0);
        assert_eq!((context.trace, context.parent), (0x4bf92f3577b34da6a3ce929d0e0e4736, Some(0x00f067aa0ba902b7)));
        assert!(context.sampled && context.parent_is_remote);
        assert_eq!(context.state.get("vendor"), Some("1"));
        let told = context.traceparent();
        assert_eq!(parse(&told), Some((context.trace, context.span, true)));
        assert_ne!(parse(&told).unwrap().1, 0x00f067aa0ba902b7, "a span of our own");
        let declined = SpanContext::enter(Some(&GIVEN.replace("-01", "-00")), None, 1.0);
        assert!(!declined.sampled && declined.parent_of_others().is_none());
    }

    #[test]
    fn what_is_no_traceparent_begins_a_trace() {
        for odd in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(odd), None, "{odd}");
        }
        assert!(parse("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later").is_some());
        let root = SpanContext::enter(Some("nonsense"), None, 1.0);
        assert!(root.parent.is_none() && root.sampled && root.trace != 0 && root.span != 0);
        assert!(!SpanContext::enter(None, None, 0.0).sampled);
    }

    #[test]
    fn about_the_share_that_was_asked_for_is_sampled() {
        let sampled = (0..4_000).filter(|_| SpanContext::enter(None, None, 0.25).sampled).count();
        assert!((700..1_300).contains(&sampled), "{sampled} of 4000");
    }
}
