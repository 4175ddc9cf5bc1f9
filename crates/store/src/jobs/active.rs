//! A batch under way: what of it is being asked, and how far its lines were read.

use std::collections::{HashMap, VecDeque};

use tokio::task::{AbortHandle, Id};

use crate::{Batch, Item};

/// Lines that are read ahead.
pub const READ_AHEAD: usize = 64;

#[derive(Debug)]
pub struct Active {
    pub batch: Batch,
    /// Read, and not asked yet.
    pub ready: VecDeque<Item>,
    /// The last line that was read.
    pub cursor: i64,
    /// There is none behind it.
    pub all_read: bool,
    /// Being asked.
    pub asked: HashMap<Id, AbortHandle>,
    /// Answered, and not in the store yet.
    pub unwritten: usize,
}

impl Active {
    pub fn new(batch: Batch) -> Active {
        Active { batch, ready: VecDeque::new(), cursor: 0, all_read: false, asked: HashMap::new(), unwritten: 0 }
    }

    /// Every line has its answer in the store.
    pub fn is_done(&self) -> bool {
        self.all_read && self.ready.is_empty() && self.asked.is_empty() && self.unwritten == 0
    }

    pub fn needs_lines(&self) -> bool {
        self.ready.is_empty() && !self.all_read
    }

    pub fn read(&mut self, items: Vec<Item>) {
        self.all_read = items.len() < READ_AHEAD;
        self.cursor = items.last().map_or(self.cursor, |last| last.line);
        self.ready.extend(items);
    }

    /// Nothing more is asked, and what is being asked ends.
    pub fn stop(&mut self) {
        self.ready.clear();
        self.asked.drain().for_each(|(_, task)| task.abort());
    }
}
