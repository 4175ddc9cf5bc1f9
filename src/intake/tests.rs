//! The gate, the order of seats, and what must hold whatever happens.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::request::{Limits, Origin, Prompt, RawRequest};

struct Scene {
    intake: Intake,
    now: Micros,
    next: u64,
    seats: usize,
}

/// What a test varies of a request.
#[derive(Clone, Copy)]
struct Ask {
    priority: Priority,
    tenant: &'static str,
    prompt: usize,
    max_tokens: i64,
    timeout_ms: Option<i64>,
}

const ASK: Ask = Ask { priority: Priority::Normal, tenant: "", prompt: 4, max_tokens: 8, timeout_ms: None };

fn ms(ms: u64) -> Micros {
    Micros::from_millis(ms)
}

impl Scene {
    fn new(change: impl FnOnce(&mut Config)) -> Scene {
        let mut config = Config::default();
        change(&mut config);
        config.check().unwrap();
        // Not at zero, so that nothing depends on it.
        Scene { intake: Intake::new(config), now: ms(1_000_000), next: 1, seats: 64 }
    }

    fn request(&mut self, ask: Ask) -> Request {
        let raw = RawRequest {
            prompt: Prompt::Tokens(vec![5; ask.prompt]),
            max_tokens: Some(ask.max_tokens),
            priority: ask.priority,
            timeout_ms: ask.timeout_ms,
            origin: Origin { id: "".into(), tenant: ask.tenant.into(), received: self.now },
            ..RawRequest::default()
        };
        let limits = Limits::new(100_000, 320, 16);
        let id = SeqId(self.next);
        self.next += 1;
        let checked = raw.check(&limits, 0).unwrap();
        checked.into_requests(vec![5; ask.prompt], &[], &limits, || id).unwrap().requests.remove(0)
    }

    fn push(&mut self, ask: Ask) -> SeqId {
        let request = self.request(ask);
        let seq = request.id();
        self.intake.push_group(vec![request], self.now).unwrap();
        seq
    }

    fn situation(&self, free_seats: usize) -> Situation {
        Situation { now: self.now, free_seats, seats: self.seats, idle: false, p99_ttft: None }
    }

    /// What flows now, and why.
    fn flows(&mut self, free_seats: usize) -> (Vec<SeqId>, Option<FlushCause>) {
        let batch = self.intake.release(&self.situation(free_seats));
        let cause = batch.as_ref().map(|batch| batch.cause);
        (batch.into_iter().flat_map(|batch| batch.released).map(|released| released.request.id()).collect(), cause)
    }

    fn after(&mut self, millis: u64) -> &mut Scene {
        self.now = self.now + ms(millis);
        self
    }
}

#[test]
fn a_group_flows_by_its_timer_or_its_size() {
    let mut scene = Scene::new(|config| {
        config.flush.strategy = StrategyKind::Fixed;
        config.flush.max_wait = ms(30);
        config.flush.max_batch_size = 4;
    });
    let first = scene.push(ASK);
    let second = scene.after(10).push(ASK);
    assert_eq!(scene.after(19).flows(64), (vec![], None));
    assert_eq!(scene.after(1).flows(64), (vec![first, second], Some(FlushCause::Timer)));
    let four: Vec<SeqId> = (0..4).map(|_| scene.push(ASK)).collect();
    let fifth = scene.push(ASK);
    assert_eq!(scene.flows(64), (four, Some(FlushCause::Size)));
    assert_eq!(scene.flows(64), (vec![fifth], Some(FlushCause::Leftover)), "flushed with the others");
}

#[test]
fn an_idle_engine_takes_what_is_there_unless_told_to_wait() {
    for idle_release in [true, false] {
        let mut scene = Scene::new(|config| config.flush.idle_release = idle_release);
        let seq = scene.push(ASK);
        let idle = Situation { idle: true, ..scene.situation(64) };
        let batch = scene.intake.release(&idle);
        assert_eq!(batch.is_some(), idle_release);
        if !idle_release {
            assert_eq!(scene.intake.wake_at(&idle), Some(scene.now + ms(50)), "normal requests wait at most 50 ms");
            assert_eq!(scene.after(50).flows(64), (vec![seq], Some(FlushCause::MaxWait(Priority::Normal))));
        }
    }
}

#[test]
fn each_priority_has_its_longest_wait() {
    for (priority, wait) in [(Priority::High, 20), (Priority::Normal, 50), (Priority::Low, 100)] {
        let mut scene = Scene::new(|config| config.flush.max_wait = ms(10_000));
        let seq = scene.push(Ask { priority, ..ASK });
        assert_eq!(scene.after(wait - 1).flows(64), (vec![], None));
        assert_eq!(scene.after(1).flows(64), (vec![seq], Some(FlushCause::MaxWait(priority))));
    }
}

#[test]
fn a_critical_request_releases_the_gathered_batch_at_once() {
    let mut scene = Scene::new(|_| ());
    let low = scene.push(Ask { priority: Priority::Low, ..ASK });
    assert_eq!(scene.flows(64), (vec![], None));
    let critical = scene.push(Ask { priority: Priority::Critical, ..ASK });
    assert_eq!(scene.flows(64), (vec![critical, low], Some(FlushCause::Critical)));
}

#[test]
fn without_priorities_all_are_alike() {
    let mut scene = Scene::new(|config| config.flush.priorities = false);
    let low = scene.push(Ask { priority: Priority::Low, ..ASK });
    let critical = scene.push(Ask { priority: Priority::Critical, ..ASK });
    assert_eq!(scene.flows(64), (vec![], None));
    assert_eq!(scene.after(50).flows(64).0, [low, critical]);
}

#[test]
fn a_small_group_waits_for_its_timer() {
    let mut scene = Scene::new(|config| {
        config.flush.strategy = StrategyKind::Immediate;
        config.flush.min_batch_size = 3;
    });
    scene.push(ASK);
    scene.push(ASK);
    assert_eq!(scene.flows(64), (vec![], None));
    assert_eq!(scene.intake.wake_at(&scene.situation(64)), Some(scene.now + ms(50)));
    scene.push(ASK);
    assert_eq!(scene.flows(64).1, Some(FlushCause::Size));
}

#[test]
fn aging_lets_an_old_low_request_go_before_a_new_critical_one() {
    let mut scene = Scene::new(|_| ());
    let low = scene.push(Ask { priority: Priority::Low, ..ASK });
    let critical = scene.after(2_999).push(Ask { priority: Priority::Critical, ..ASK });
    assert_eq!(scene.flows(1).0, [critical]);
    let critical = scene.after(1).push(Ask { priority: Priority::Critical, ..ASK });
    assert_eq!(scene.flows(1).0, [low]);
    assert_eq!(scene.flows(1).0, [critical]);
}

#[test]
fn a_batch_is_filled_from_the_bucket_of_its_head() {
    let mut scene = Scene::new(|config| config.flush.max_batch_size = 3);
    let ask = |prompt| Ask { prompt, ..ASK };
    let [long, _short, long2, _short2, long3] = [600, 10, 700, 20, 800].map(|prompt| scene.push(ask(prompt)));
    // Flushed by the critical one, which is the head; it is short, and so are those after it.
    let critical = scene.push(Ask { priority: Priority::Critical, ..ASK });
    let batch = scene.flows(64).0;
    assert_eq!(batch[0], critical);
    assert_eq!(batch[1..], [_short, _short2]);
    assert_eq!(scene.flows(64).0, [long, long2, long3]);
}

#[test]
fn nothing_overdue_is_passed_over_for_its_length() {
    let mut scene = Scene::new(|config| config.flush.max_batch_size = 2);
    let ask = |prompt| Ask { prompt, ..ASK };
    let [first, long, short] = [10, 600, 20].map(|prompt| scene.push(ask(prompt)));
    assert_eq!(scene.after(50).flows(64).0, [first, long], "all have waited as long as they may");
    assert_eq!(scene.flows(64).0, [short]);
}

#[test]
fn under_a_flood_another_tenant_gets_the_next_seat_that_frees() {
    let mut scene = Scene::new(|config| config.flush.strategy = StrategyKind::Immediate);
    scene.seats = 8;
    let flood: Vec<SeqId> = (0..500).map(|_| scene.push(Ask { tenant: "flood", ..ASK })).collect();
    let running = scene.flows(8).0;
    assert_eq!(running, flood[..8], "alone, it may have all seats");
    let other = scene.after(10).push(Ask { tenant: "other", ..ASK });
    assert_eq!(scene.flows(0), (vec![], None));
    scene.intake.ended(running[0]);
    assert_eq!(scene.flows(1).0, [other]);
    let wait = scene.intake.queued(scene.now).find(|queued| queued.request.id() == flood[8]).unwrap().wait;
    assert_eq!(wait, Wait::FairShare);
}

#[test]
fn seats_are_capped_while_others_wait() {
    let mut scene = Scene::new(|config| config.flush.strategy = StrategyKind::Immediate);
    scene.seats = 8;
    for _ in 0..20 {
        scene.push(Ask { tenant: "a", prompt: 1, ..ASK });
        scene.push(Ask { tenant: "b", prompt: 400, ..ASK });
    }
    // By counters alone, `a` would have all seats for a long time.
    let seated = scene.flows(8).0;
    assert_eq!(seated.iter().filter(|seq| seq.0 % 2 == 1).count(), 4, "half of them");
}

/// Random tenants of one class: whoever is given a seat beyond its cap took it from nobody who was below theirs, and
/// nobody below their cap waits while a tenant with a larger counter is seated.
#[test]
fn no_tenant_exceeds_its_share_while_others_wait() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut scene = Scene::new(|config| {
            config.flush.strategy = StrategyKind::Immediate;
            config.fairness.max_seat_share = [0.25, 0.5, 0.9][seed as usize % 3];
        });
        scene.seats = 8;
        let cap = (8.0 * scene.intake.config().fairness.max_seat_share).ceil() as usize;
        let tenants = ["a", "b", "c"];
        let mut owners = BTreeMap::new();
        let mut seated: Vec<(SeqId, &str)> = Vec::new();
        for _ in 0..150 {
            for _ in 0..rng.random_range(0..6) {
                // `a` floods.
                let tenant = tenants[[0, 0, 0, 0, 1, 2][rng.random_range(0..6)]];
                owners.insert(scene.push(Ask { tenant, prompt: rng.random_range(1..300), ..ASK }), tenant);
            }
            if !seated.is_empty() && rng.random_bool(0.7) {
                let (seq, _) = seated.swap_remove(rng.random_range(0..seated.len()));
                scene.intake.generated(seq, rng.random_range(1..50));
                scene.intake.ended(seq);
            }
            // One seat at a time, so that each decision can be judged.
            while seated.len() < 8 {
                let Some(&seq) = scene.flows(1).0.first() else { break };
                let tenant = owners[&seq];
                let holds = |name: &str| seated.iter().filter(|(_, owner)| *owner == name).count();
                let others = scene.intake.queued(scene.now).map(|queued| queued.request.origin().tenant.clone());
                let below = others.filter(|name| &**name != tenant && holds(name) < cap).count();
                assert!(holds(tenant) < cap || below == 0, "seed {seed}: {tenant} has {} of 8", holds(tenant));
                seated.push((seq, tenant));
            }
        }
    }
}

#[test]
fn a_class_goes_before_fairness() {
    let mut scene = Scene::new(|config| config.flush.strategy = StrategyKind::Immediate);
    scene.seats = 4;
    let urgent: Vec<SeqId> = (0..6).map(|_| scene.push(Ask { tenant: "a", priority: Priority::High, ..ASK })).collect();
    let other = scene.push(Ask { tenant: "b", ..ASK });
    assert_eq!(scene.flows(4).0, urgent[..4], "the cap is among equals");
    let waits: Vec<Wait> = scene.intake.queued(scene.now).map(|queued| queued.wait).collect();
    assert_eq!(waits, [Wait::Seats, Wait::Seats, Wait::LowerPriority]);
    assert_eq!(scene.flows(3).0, [urgent[4], urgent[5], other]);
}

#[test]
fn deadlines_and_the_queues_own_limit_end_requests_with_their_own_errors() {
    let mut scene = Scene::new(|config| config.queue_timeout = ms(500));
    let hurried = scene.push(Ask { timeout_ms: Some(200), ..ASK });
    let patient = scene.push(ASK);
    let expired = |scene: &mut Scene| -> Vec<(SeqId, RequestError)> {
        scene.intake.expire(scene.now).into_iter().map(|(request, error)| (request.id(), error)).collect()
    };
    assert_eq!(expired(scene.after(199)), []);
    scene.flows(0);
    assert_eq!(scene.intake.wake_at(&scene.situation(0)), Some(scene.now + ms(1)));
    assert_eq!(expired(scene.after(1)), [(hurried, RequestError::Timeout { after_ms: 200 })]);
    assert_eq!(scene.intake.wake_at(&scene.situation(0)), Some(scene.now + ms(300)));
    assert_eq!(expired(scene.after(300)), [(patient, RequestError::BatchTimeout { waited_ms: 500 })]);
    assert_eq!((scene.intake.len(), scene.intake.prompt_tokens(), scene.intake.depths()), (0, 0, [0; 4]));
    assert_eq!(scene.intake.wake_at(&scene.situation(0)), None);
}

#[test]
fn a_group_is_queued_whole_or_not_at_all() {
    let mut scene = Scene::new(|config| config.capacity = Capacity { requests: 3, tokens: 20 });
    let group = |scene: &mut Scene, n| (0..n).map(|_| scene.request(ASK)).collect::<Vec<_>>();
    let four = group(&mut scene, 4);
    assert!(scene.intake.push_group(four, scene.now).is_err());
    assert_eq!(scene.intake.len(), 0);
    let two = group(&mut scene, 2);
    scene.intake.push_group(two, scene.now).unwrap();
    let heavy = scene.request(Ask { prompt: 13, ..ASK });
    assert!(scene.intake.push_group(vec![heavy], scene.now).is_err(), "8 and 13 tokens");
    let light = group(&mut scene, 1);
    assert_eq!(scene.intake.push_group(light, scene.now), Ok(()));
}

/// With one tenant, a request of class `c` is overtaken only by those that came less than `c × aging` after it, or, for
/// a bucket's sake, less than its longest wait.
#[test]
fn nobody_starves() {
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut scene = Scene::new(|config| {
            config.aging = ms(100);
            config.flush.strategy = StrategyKind::ALL[seed as usize % 4];
        });
        let mut arrived = BTreeMap::new();
        for _ in 0..300 {
            scene.after(rng.random_range(0..15));
            if rng.random_bool(0.7) {
                let priority = Priority::ALL[rng.random_range(0..4)];
                let ask = Ask { priority, prompt: [4, 300, 900][rng.random_range(0..3)], ..ASK };
                arrived.insert(scene.push(ask), (scene.now, priority));
            }
            for seq in scene.flows(rng.random_range(0..2)).0 {
                let (came, _) = arrived.remove(&seq).unwrap();
                scene.intake.ended(seq);
                for (waiting, (since, priority)) in &arrived {
                    let bound = (ms(100).0 * priority.index() as u64).max(Config::default().max_wait(*priority).0);
                    assert!(came.since(*since).0 <= bound, "seed {seed}: {seq} overtook {waiting}");
                }
            }
        }
    }
}

/// Random pushes, cancels, ends, releases, expiries and changes of strategy: nothing is lost, nothing comes twice, bounds
/// hold, and without an event nothing happens before `wake_at`.
#[test]
fn whatever_happens_nothing_is_lost() {
    for seed in 0..150 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut scene = Scene::new(|config| {
            config.capacity = Capacity { requests: 40, tokens: 4_000 };
            config.queue_timeout = ms(300);
        });
        scene.seats = 8;
        let (mut queued, mut seated) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..400 {
            match rng.random_range(0..10) {
                0..4 => {
                    let ask = Ask {
                        priority: Priority::ALL[rng.random_range(0..4)],
                        tenant: ["", "a", "b"][rng.random_range(0..3)],
                        prompt: rng.random_range(1..300),
                        max_tokens: 8,
                        timeout_ms: rng.random_bool(0.3).then_some(rng.random_range(1..200)),
                    };
                    let group: Vec<Request> = (0..rng.random_range(1..5)).map(|_| scene.request(ask)).collect();
                    let seqs: Vec<SeqId> = group.iter().map(Request::id).collect();
                    let before = scene.intake.len();
                    match scene.intake.push_group(group, scene.now) {
                        Ok(()) => queued.extend(seqs),
                        Err(_) => assert_eq!(scene.intake.len(), before),
                    }
                }
                4 => {
                    let seq = SeqId(rng.random_range(1..scene.next + 1));
                    assert_eq!(scene.intake.cancel(seq), queued.remove(&seq), "seed {seed}");
                }
                5 => {
                    if let Some(seq) = seated.pop_first() {
                        scene.intake.generated(seq, 3);
                        scene.intake.ended(seq);
                    }
                }
                6 => {
                    let mut config = scene.intake.config().clone();
                    config.flush.strategy = StrategyKind::ALL[rng.random_range(0..4)];
                    config.flush.idle_release = rng.random_bool(0.5);
                    config.flush.priorities = rng.random_bool(0.8);
                    scene.intake.configure(config);
                }
                _ => {
                    let situation = Situation { idle: seated.is_empty(), ..scene.situation(8 - seated.len()) };
                    sleep(&mut scene, situation, rng.random_range(0..60));
                }
            }
            for (request, _) in scene.intake.expire(scene.now) {
                assert!(queued.remove(&request.id()), "seed {seed}");
            }
            for seq in scene.flows(8 - seated.len()).0 {
                assert!(queued.remove(&seq) && seated.insert(seq), "seed {seed}");
            }
            let left: BTreeSet<SeqId> = scene.intake.queued(scene.now).map(|queued| queued.request.id()).collect();
            assert_eq!(left, queued, "seed {seed}");
            assert_eq!(scene.intake.depths().iter().sum::<usize>(), queued.len());
            assert!(scene.intake.len() <= 40 && seated.len() <= 8);
        }
        let rest: BTreeSet<SeqId> = scene.intake.drain().iter().map(Request::id).collect();
        assert_eq!(rest, queued);
        assert_eq!((scene.intake.len(), scene.intake.prompt_tokens()), (0, 0));
    }
}

/// Lets time pass up to `wake_at`, where something must be due, and to no point before it at which something was.
fn sleep(scene: &mut Scene, situation: Situation, millis: u64) {
    let Some(wake) = scene.intake.wake_at(&situation) else { return scene.now = scene.now + ms(millis) };
    let target = scene.now + ms(millis);
    if wake > target {
        // Nothing may be due on the way.
        let midway = Situation { now: target, ..situation };
        assert!(scene.intake.wake_at(&midway).is_some_and(|at| at > target));
        scene.now = target;
    } else {
        scene.now = wake.max(scene.now);
        let due = Situation { now: scene.now, ..situation };
        assert!(scene.intake.wake_at(&due).is_some_and(|at| at <= scene.now));
    }
}

#[test]
fn a_deep_queue_of_many_tenants_is_released_in_order() {
    let mut scene = Scene::new(|config| {
        config.flush.strategy = StrategyKind::Immediate;
        config.flush.max_batch_size = 64;
    });
    let names: Vec<&'static str> = (0..3_000).map(|n| &*Box::leak(format!("t{n}").into_boxed_str())).collect();
    let all: Vec<SeqId> = names.iter().map(|tenant| scene.push(Ask { tenant, ..ASK })).collect();
    assert_eq!(scene.flows(64).0, all[..64]);
    assert_eq!(scene.intake.stats().avg_batch_size(), 64.0);
    assert_eq!(scene.intake.stats().last[0].tokens, 256);
}

#[test]
fn contradictions_name_their_parameter() {
    let param = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config.check().unwrap_err().0
    };
    assert_eq!(param(|c| c.flush.min_batch_size = 33), "min_batch_size");
    assert_eq!(param(|c| c.flush.min_wait = ms(101)), "min_wait_ms");
    assert_eq!(param(|c| c.flush.queue_depth_low = 101), "queue_depth_low_threshold");
    assert_eq!(param(|c| c.fairness.max_seat_share = f64::NAN), "fair_share_max");
    assert_eq!(param(|c| c.aging = Micros::ZERO), "aging_ms");
}
