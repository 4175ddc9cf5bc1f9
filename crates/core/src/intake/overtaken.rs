//! How many later arrivals were given seats before a request. Pure.

use std::collections::VecDeque;

use super::lanes::Order;
use crate::request::CLASSES;

/// Orders of arrival that have been given seats, by class, from the oldest that is still queued on: one bit each.
#[derive(Debug, Default)]
pub(super) struct Overtaken {
    /// Blocks already dropped.
    first: u64,
    /// A word of 64 orders for each class.
    blocks: VecDeque<[u64; CLASSES]>,
}

impl Overtaken {
    pub fn record(&mut self, order: Order, class: usize) {
        // Older than everything that is still queued: it overtook nobody.
        let Some(block) = (order / 64).checked_sub(self.first) else { return };
        let block = block as usize;
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, [0; CLASSES]);
        }
        self.blocks[block][class] |= 1 << (order % 64);
    }

    /// Seats given to arrivals after `order`, by class.
    pub fn after(&self, order: Order) -> [usize; CLASSES] {
        let mut counts = [0; CLASSES];
        let Some(first) = (order / 64).checked_sub(self.first) else { return counts };
        for (at, block) in self.blocks.iter().enumerate().skip(first as usize) {
            // Shifted twice, since a shift by 64 is no shift.
            let later = if at == first as usize { (u64::MAX << (order % 64)) << 1 } else { u64::MAX };
            for (count, word) in counts.iter_mut().zip(block) {
                *count += (word & later).count_ones() as usize;
            }
        }
        counts
    }

    /// Forgets what nobody queued can have been overtaken by. `oldest` is the oldest order that is queued or may come.
    pub fn forget_before(&mut self, oldest: Order) {
        while self.first < oldest / 64 && self.blocks.pop_front().is_some() {
            self.first += 1;
        }
        if self.blocks.is_empty() {
            self.first = oldest / 64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_equal_those_of_a_plain_list() {
        let mut overtaken = Overtaken::default();
        let mut list = Vec::new();
        let mut random = 1u64;
        for round in 0..2_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (order, class) = (round / 2 + (random >> 33) % 200, (random >> 61) as usize % CLASSES);
            if !list.contains(&(order, class)) {
                list.push((order, class));
                overtaken.record(order, class);
            }
            overtaken.forget_before(round / 2);
            let asked = round / 2 + (random >> 40) % 300;
            let after = |class| list.iter().filter(|&&(o, c)| o > asked && c == class).count();
            let expected: [usize; CLASSES] = std::array::from_fn(after);
            assert_eq!(overtaken.after(asked), expected, "round {round}");
        }
        assert!(overtaken.blocks.len() < 8);
    }
}
