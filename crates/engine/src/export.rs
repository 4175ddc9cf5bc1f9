//! The way of ended traces out of the loop, to who makes spans of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use super::trace::Trace;

/// Takes traces and never waits: what does not fit is counted and left out. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Export {
    sender: mpsc::Sender<Arc<Trace>>,
    lost: Arc<AtomicU64>,
}

impl Export {
    /// At most `capacity` wait to be read.
    pub fn new(capacity: usize) -> (Export, mpsc::Receiver<Arc<Trace>>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Export { sender, lost: Arc::default() }, receiver)
    }

    /// Only sequences whose request is traced are wanted.
    pub fn offer(&self, ended: &Arc<Trace>) {
        if ended.origin.span.is_some() && self.sender.try_send(ended.clone()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Traces that did not fit.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Traces;
    use forebay_core::request::{Origin, Priority, SpanParent};
    use forebay_core::units::{Micros, SeqId};

    #[test]
    fn what_is_not_traced_or_does_not_fit_is_left_out() {
        let (export, mut receiver) = Export::new(2);
        let mut traces = Traces::default();
        for n in 0..4 {
            let span = (n > 0).then_some(SpanParent { trace: 1, span: n });
            traces.begin(SeqId(n), Origin { span, ..Origin::default() }, Priority::Normal, 8);
            export.offer(traces.end(SeqId(n), "stop", Micros(n)).unwrap());
        }
        assert_eq!(receiver.try_recv().map(|trace| trace.seq), Ok(SeqId(1)));
        assert_eq!(receiver.try_recv().map(|trace| trace.seq), Ok(SeqId(2)));
        assert!(receiver.try_recv().is_err());
        assert_eq!(export.lost(), 1);
    }
}
