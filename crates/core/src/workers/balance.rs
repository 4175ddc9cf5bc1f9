//! Which of the workers that could take a request takes it. Pure; randomness is an argument.

/// How to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balancer {
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest sequences under way.
    LeastLoaded,
    /// Of two at random the one with fewer: nearly as even, and no herd where several routers share workers.
    PowerOfTwo,
    /// The one that has most of the prompt in its cache, unless it is overloaded.
    #[default]
    PrefixAware,
}

impl Balancer {
    pub const ALL: [Balancer; 4] =
        [Balancer::RoundRobin, Balancer::LeastLoaded, Balancer::PowerOfTwo, Balancer::PrefixAware];

    pub fn name(self) -> &'static str {
        match self {
            Balancer::RoundRobin => "round_robin",
            Balancer::LeastLoaded => "least_loaded",
            Balancer::PowerOfTwo => "power_of_two",
            Balancer::PrefixAware => "prefix_aware",
        }
    }

    pub fn from_name(name: &str) -> Option<Balancer> {
        Balancer::ALL.into_iter().find(|balancer| balancer.name().eq_ignore_ascii_case(name))
    }
}

/// A worker that could take the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub worker: usize,
    /// Sequences under way there.
    pub pending: usize,
    /// Pieces of the prompt's beginning that it has probably cached.
    pub cached: usize,
}

/// What chance and order give to a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// Counts choices; where nothing else decides, it is everybody's turn.
    pub turn: usize,
    /// Uniform.
    pub dice: u64,
}

/// So many more sequences than the least loaded has, and half as many again, may one have before its cache is not worth the
/// wait: the two terms for small loads and large ones.
const SLACK: usize = 4;

/// One of `loads`, which are in the order of their workers, `total` of them in all; `None` where there is none.
pub fn choose(balancer: Balancer, loads: &[Load], total: usize, draw: Draw) -> Option<usize> {
    // How long until it is a worker's turn.
    let turn = |load: &Load| (load.worker + total - draw.turn % total.max(1)) % total.max(1);
    let chosen = match balancer {
        Balancer::RoundRobin => loads.iter().min_by_key(|load| turn(load)),
        Balancer::LeastLoaded => loads.iter().min_by_key(|load| (load.pending, turn(load))),
        Balancer::PowerOfTwo => two_of(loads, draw.dice).into_iter().flatten().min_by_key(|load| load.pending),
        Balancer::PrefixAware => {
            let least = loads.iter().map(|load| load.pending).min().unwrap_or(0);
            let fit = loads.iter().filter(|load| load.pending <= least + least / 2 + SLACK);
            fit.min_by_key(|load| (std::cmp::Reverse(load.cached), load.pending, turn(load)))
        }
    };
    chosen.map(|load| load.worker)
}

/// Two different ones, each pair as likely as any other; the first alone where there is one.
fn two_of(loads: &[Load], dice: u64) -> [Option<&Load>; 2] {
    let count = loads.len() as u64;
    if count < 2 {
        return [loads.first(), None];
    }
    let first = (dice & u64::from(u32::MAX)) % count;
    let other = (dice >> 32) % (count - 1);
    let second = other + u64::from(other >= first);
    [loads.get(first as usize), loads.get(second as usize)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loads(pending: &[usize], cached: &[usize]) -> Vec<Load> {
        pending
            .iter()
            .zip(cached)
            .enumerate()
            .map(|(worker, (&pending, &cached))| Load { worker, pending, cached })
            .collect()
    }

    fn draw(turn: usize) -> Draw {
        Draw { turn, dice: 0 }
    }

    #[test]
    fn a_cached_beginning_is_worth_a_wait_but_not_any_wait() {
        let choice =
            |pending: [usize; 3]| choose(Balancer::PrefixAware, &loads(&pending, &[9, 0, 3]), 3, draw(0)).unwrap();
        assert_eq!(choice([4, 0, 0]), 0);
        assert_eq!(choice([5, 0, 0]), 2, "the next best cache");
        assert_eq!(choice([34, 20, 30]), 0, "a larger load has more slack");
        assert_eq!(choice([35, 20, 35]), 1);
        let nothing_cached = choose(Balancer::PrefixAware, &loads(&[2, 1, 1], &[0; 3]), 3, draw(2));
        assert_eq!(nothing_cached, Some(2), "the least loaded whose turn it is");
    }

    #[test]
    fn nobody_is_chosen_where_nobody_is() {
        for balancer in Balancer::ALL {
            assert_eq!(choose(balancer, &[], 3, draw(7)), None);
            assert_eq!(choose(balancer, &[], 0, draw(7)), None);
        }
    }

    proptest! {
        #[test]
        fn everybody_chooses_somebody_who_could(
            pending in proptest::collection::vec(0usize..100, 1..9),
            seed in any::<[u64; 2]>(),
            absent in any::<u8>(),
        ) {
            let all = loads(&pending, &pending.iter().map(|n| n % 5).collect::<Vec<_>>());
            let there: Vec<Load> = all.iter().filter(|load| absent >> load.worker & 1 == 0).copied().collect();
            let draw = Draw { turn: seed[0] as usize, dice: seed[1] };
            for balancer in Balancer::ALL {
                let chosen = choose(balancer, &there, all.len(), draw);
                prop_assert_eq!(chosen.is_some(), !there.is_empty());
                let Some(chosen) = chosen else { continue };
                let load = there.iter().find(|load| load.worker == chosen).expect("one of those");
                let least = there.iter().map(|load| load.pending).min().expect("not empty");
                match balancer {
                    Balancer::RoundRobin => {}
                    Balancer::LeastLoaded => prop_assert_eq!(load.pending, least),
                    // Never the most loaded of several different ones.
                    Balancer::PowerOfTwo => {
                        let worse = there.iter().filter(|other| other.pending >= load.pending).count();
                        prop_assert!(there.len() == 1 || worse >= 2);
                    }
                    Balancer::PrefixAware => {
                        prop_assert!(load.pending <= least + least / 2 + SLACK);
                        let better = there.iter().find(|other| other.cached > load.cached);
                        prop_assert!(better.is_none_or(|other| other.pending > least));
                    }
                }
            }
        }

        /// Those whose place is empty are passed over, and nobody else notices.
        #[test]
        fn turns_go_round(count in 1usize..9, rounds in 1usize..5, start in 0usize..1_000) {
            let all = loads(&vec![0; count], &vec![0; count]);
            for balancer in [Balancer::RoundRobin, Balancer::LeastLoaded, Balancer::PrefixAware] {
                let mut taken = vec![0; count];
                for turn in start..start + rounds * count {
                    taken[choose(balancer, &all, count, draw(turn)).expect("somebody")] += 1;
                }
                prop_assert_eq!(taken, vec![rounds; count]);
            }
        }

        /// With enough throws each pair is drawn.
        #[test]
        fn any_two_may_meet(count in 2usize..6) {
            let all = loads(&(0..count).collect::<Vec<_>>(), &vec![0; count]);
            let mut chosen = vec![false; count];
            for first in 0..count as u64 {
                for other in 0..count as u64 - 1 {
                    let draw = Draw { turn: 0, dice: other << 32 | first };
                    chosen[choose(Balancer::PowerOfTwo, &all, count, draw).expect("somebody")] = true;
                }
            }
            // All but the one that has most under way.
            prop_assert_eq!(chosen.iter().filter(|was| **was).count(), count - 1);
        }
    }
}
