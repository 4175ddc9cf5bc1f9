//! How urgent a request is. Pure.

/// Who goes first, highest first in the derived order's ascending sense: `Critical < High < Normal < Low < Batch`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    Critical,
    High,
    #[default]
    Normal,
    Low,
    /// Nobody waits for it: it runs on what the others leave, and gives its seat and blocks to any of them. Unlike the
    /// others it never rises by waiting.
    Batch,
}

/// How many there are, for tables by [`Priority::index`].
pub const CLASSES: usize = 5;

impl Priority {
    /// Highest first; `Priority::ALL[p.index()] == p`.
    pub const ALL: [Priority; CLASSES] =
        [Priority::Critical, Priority::High, Priority::Normal, Priority::Low, Priority::Batch];

    pub const fn index(self) -> usize {
        self as usize
    }

    pub const fn name(self) -> &'static str {
        match self {
            Priority::Critical => "critical",
            Priority::High => "high",
            Priority::Normal => "normal",
            Priority::Low => "low",
            Priority::Batch => "batch",
        }
    }

    pub fn from_name(name: &str) -> Option<Priority> {
        Priority::ALL.into_iter().find(|priority| priority.name().eq_ignore_ascii_case(name))
    }

    /// vLLM's numbers, where lower is earlier.
    pub const fn from_integer(number: i64) -> Priority {
        match number {
            ..=-10 => Priority::Critical,
            -9..=-1 => Priority::High,
            0..=9 => Priority::Normal,
            10.. => Priority::Low,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        use Priority::{Critical, High, Low, Normal};
        for (number, priority) in [
            (i64::MIN, Critical),
            (-11, Critical),
            (-10, Critical),
            (-9, High),
            (-1, High),
            (0, Normal),
            (9, Normal),
            (10, Low),
            (i64::MAX, Low),
        ] {
            assert_eq!(Priority::from_integer(number), priority, "{number}");
        }
        for (name, priority) in [("critical", Some(Critical)), ("HIGH", Some(High)), ("normal", Some(Normal))] {
            assert_eq!(Priority::from_name(name), priority);
        }
        assert_eq!((Priority::from_name("low"), Priority::from_name("urgent")), (Some(Low), None));
        assert!(Priority::ALL.iter().enumerate().all(|(index, priority)| priority.index() == index));
    }
}
