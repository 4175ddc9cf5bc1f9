//! Planning ahead changes nothing but when plans are made: two schedulers with one history, of which one looks ahead, make
//! the same plans on the same blocks.

use proptest::prelude::*;

use super::change_tests::*;
use super::tests::*;
use super::*;

/// One that looks ahead and one that does not.
struct Twins([Rig; 2]);

impl Twins {
    fn new(config: Config, num_blocks: usize, block_size: usize) -> Twins {
        let mut twins = Twins([(); 2].map(|()| Rig::new(config, num_blocks, block_size)));
        twins.0[0].looks_ahead = true;
        twins
    }

    fn both(&mut self, mut act: impl FnMut(&mut Rig)) {
        self.0.iter_mut().for_each(&mut act);
    }

    fn submit(&mut self, seq: u64, job: &Job) {
        self.both(|rig| rig.scheduler.submit(request(seq, job)));
    }

    fn abort(&mut self, seq: u64) {
        self.both(|rig| {
            if rig.scheduler.abort(SeqId(seq), &mut rig.pool) {
                rig.ended.insert(seq);
            }
        });
    }

    /// One step of each; the pools are recounted in it.
    fn step(&mut self) -> Option<String> {
        let [ahead, anew] = &mut self.0;
        let (ahead, anew) = (ahead.step(), anew.step());
        assert_eq!(ahead, anew);
        anew.map(|(plan, _)| describe(&plan))
    }

    /// Of the plans that were made ahead so many were confirmed, and so many were not.
    fn fates(&self) -> [usize; 2] {
        self.0[0].fates
    }

    fn finish(&mut self) {
        while self.step().is_some() {}
        self.both(|rig| assert_eq!(rig.pool.used(), 0));
    }
}

/// Jobs like "8+4 6+2", blocks of 4: confirmed and discarded plans until all have ended.
fn fates(jobs: &str, config: Config, num_blocks: usize) -> [usize; 2] {
    let mut twins = Twins::new(config, num_blocks, 4);
    jobs_of(jobs).iter().enumerate().for_each(|(seq, job)| twins.submit(seq as u64, job));
    twins.finish();
    twins.fates()
}

#[test]
fn what_comes_as_expected_is_confirmed() {
    // Nine steps, all but the first planned ahead, the last token's end included; nothing is left to plan after that.
    assert_eq!(fates("3+9 4+9 9+9", ROOMY, 32), [8, 0]);
    // Ends that a limit makes certain are expected, whenever they come.
    assert_eq!(fates("3+2 4+5 9+9", ROOMY, 32), [8, 0]);
    // A prompt of 40 tokens beside a decode: 16 a step, three steps, then decodes.
    assert_eq!(fates("3+20 40+5", ROOMY, 32), [19, 0]);
}

#[test]
fn growth_that_fits_is_planned_ahead_and_growth_that_does_not_is_not() {
    // Both grow into a third block at once, and three are free: [7+6 6+6] in 4 blocks preempts, in 8 it does not.
    assert_eq!(fates("7+6 6+6", ROOMY, 8), [5, 0]);
    let [confirmed, discarded] = fates("7+6 6+6", ROOMY, 4);
    assert!(discarded == 0 && confirmed < 8, "{confirmed} of 8 steps, the preemption and the way back not among them");
}

#[test]
fn whatever_comes_between_discards() {
    type Between = fn(&mut Twins);
    let cases: [(&str, Between); 5] = [
        ("an abort", |twins| twins.abort(0)),
        ("a newcomer", |twins| twins.submit(9, &job(3, 3, 0))),
        ("another policy", |twins| {
            let policy = PolicyConfig { kind: PolicyKind::LatencyFirst, ..FAIR };
            twins.both(|rig| rig.apply(Change::Configure(Config { policy, ..ROOMY })));
        }),
        ("heat", |twins| twins.both(|rig| rig.apply(Change::Heat(Level::Serious)))),
        ("another cost", |twins| twins.both(|rig| rig.scheduler.observe(&StepLoad::STEP, Micros(77)))),
    ];
    for (name, between) in cases {
        let mut twins = Twins::new(ROOMY, 32, 4);
        (0..3).for_each(|seq| twins.submit(seq, &job(5, 9, 0)));
        (0..4).for_each(|_| _ = twins.step());
        assert_eq!(twins.fates(), [3, 0], "{name}");
        between(&mut twins);
        twins.step();
        assert_eq!(twins.fates(), [3, 1], "{name}");
        twins.finish();
    }
}

#[test]
fn an_end_that_nobody_could_know_discards() {
    let mut twins = Twins::new(ROOMY, 32, 4);
    (0..2).for_each(|seq| twins.submit(seq, &job(5, 9, 0)));
    (0..3).for_each(|_| _ = twins.step());
    assert_eq!(twins.fates(), [2, 0]);
    twins.both(|rig| {
        // 1 is a stop token that the model never draws.
        let plan = rig.plan().expect("live");
        rig.ahead = Some(rig.scheduler.outlook(&rig.pool).after(&plan).plan_ahead().expect("decodes"))
            .filter(|_| rig.looks_ahead);
        let mut output = rig.model.run(&rig.scheduler.batch(&plan, &rig.pool));
        output.outcomes[0].1 = Outcome::Token(crate::step::Sampled { token: 1, logprobs: None });
        let events = rig.scheduler.commit(plan, &output, &mut rig.pool);
        assert!(events.contains(&(SeqId(0), Event::Finished(FinishReason::Stop))), "{events:?}");
    });
    assert_eq!(twins.step().as_deref(), Some("b+1"));
    assert_eq!(twins.fates(), [3, 1]);
    twins.finish();
}

#[test]
fn a_queue_whose_head_finds_no_seat_does_not_keep_plans_from_being_made() {
    let mut twins = Twins::new(Config { max_num_seqs: 1, ..ROOMY }, 32, 4);
    (0..2).for_each(|seq| twins.submit(seq, &job(3, 5, 0)));
    twins.finish();
    // Four each; between the two the second is looked up in the cache, which is not done ahead.
    assert_eq!(twins.fates(), [8, 0]);
}

proptest! {
    #[test]
    fn looking_ahead_changes_no_plan(
        jobs in prop::collection::vec(any_job(), 1..16), first in any_config(), changes in prop::collection::vec((1usize..20, any_change()), 0..8),
        spare in 0usize..12, block_size in prop_oneof![Just(1usize), Just(4), Just(16)],
    ) {
        let mut twins = Twins::new(first, 50usize.div_ceil(block_size) + spare, block_size);
        let mut due = 0;
        let mut changes = changes.into_iter().map(|(after, change)| { due += after; (due, change) }).peekable();
        for turn in 0..400 {
            while let Some((_, change)) = changes.next_if(|(due, _)| *due <= turn) {
                twins.both(|rig| rig.apply(change));
            }
            for (seq, job) in jobs.iter().enumerate() {
                if job.arrival == turn {
                    twins.submit(seq as u64, job);
                }
                if job.abort == Some(turn) {
                    twins.abort(seq as u64);
                }
            }
            twins.step();
        }
        twins.both(|rig| rig.apply(Change::Heat(Level::Nominal)));
        twins.finish();
        let [ahead, anew] = twins.0;
        prop_assert_eq!(ahead.outputs, anew.outputs);
    }
}
