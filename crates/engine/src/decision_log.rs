//! Where a loop's decisions are recorded, while somebody reads them and there is room.

use tokio::sync::mpsc;

use forebay_turn::decision_log::Entry;

/// The writing end of a bounded log. Recording ends when the log is full or its reader has gone.
#[derive(Debug, Default)]
pub struct DecisionLog(Option<mpsc::Sender<Entry>>);

impl DecisionLog {
    /// A log of at most `most` entries, and its reader.
    pub fn new(most: usize) -> (DecisionLog, mpsc::Receiver<Entry>) {
        let (sender, entries) = mpsc::channel(most.max(1));
        (DecisionLog(Some(sender)), entries)
    }

    pub fn is_recording(&self) -> bool {
        self.0.is_some()
    }

    /// Writes what `entry` makes; it is called only while the log records.
    pub fn note(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(sender) = &self.0
            && sender.try_send(entry()).is_err()
        {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_log_ends_without_a_gap() {
        let (mut log, mut entries) = DecisionLog::new(2);
        (0..3).for_each(|_| log.note(|| Entry::Paused));
        assert!(!log.is_recording());
        assert_eq!(entries.try_recv(), Ok(Entry::Paused));
        log.note(|| unreachable!("nobody reads on"));
    }
}
