//! What part of its time a worker had work, lately. Pure.

use crate::units::Micros;

/// What happened so long ago counts a third of what happens now.
const MEMORY_S: f64 = 10.0;

/// An average that forgets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    share: f64,
    looked: Micros,
}

impl Busy {
    pub fn new(now: Micros) -> Busy {
        Busy { share: 0.0, looked: now }
    }

    /// Until `now` it had work, or not. To be told whenever that changes.
    pub fn until(&mut self, now: Micros, had_work: bool) {
        let fading = (-now.since(self.looked).as_secs_f64() / MEMORY_S).exp();
        self.share = self.share * fading + f64::from(u8::from(had_work)) * (1.0 - fading);
        self.looked = now;
    }

    /// 0 to 1.
    pub fn share(&self) -> f64 {
        self.share
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn work_counts_and_fades() {
        let mut busy = Busy::new(Micros::ZERO);
        busy.until(Micros(100_000_000), true);
        assert!(busy.share() > 0.999);
        busy.until(Micros(110_000_000), false);
        assert!((busy.share() - (-1.0f64).exp()).abs() < 1e-3);
    }

    proptest! {
        /// However often one looks.
        #[test]
        fn looking_changes_nothing(times in proptest::collection::vec(0u64..5_000_000, 1..20)) {
            let (mut often, mut once) = (Busy::new(Micros::ZERO), Busy::new(Micros::ZERO));
            let mut now = Micros::ZERO;
            for &time in &times {
                now = now + Micros(time);
                often.until(now, true);
            }
            once.until(now, true);
            prop_assert!((often.share() - once.share()).abs() < 1e-9);
            prop_assert!((0.0..=1.0).contains(&often.share()));
        }
    }
}
