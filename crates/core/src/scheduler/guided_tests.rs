//! What a grammar says after a step: tokens that must come, and that nothing may come.

use super::tests::{ROOMY, job, request};
use super::*;
use crate::kv::BlockPool;
use crate::request::{Event, FinishReason, RequestError};
use crate::step::{Guidance, Outcome, Sampled, SequenceFault, StepOutput};
use crate::units::{Micros, SeqId, TokenId};

struct Scene {
    scheduler: Scheduler,
    pool: BlockPool,
}

impl Scene {
    fn new(config: Config, output: usize) -> Scene {
        let mut scheduler = Scheduler::new(config);
        scheduler.submit(request(0, &job(3, output, 0)));
        Scene { scheduler, pool: BlockPool::new(4, 16) }
    }

    /// Plans a step; the tokens that it computes and how many of them are guesses.
    fn plan(&mut self) -> (StepPlan, Vec<TokenId>, usize) {
        let plan = self.scheduler.plan(&mut self.pool, Micros::ZERO).expect("live");
        let batch = self.scheduler.batch(&plan, &self.pool);
        (plan, batch.tokens, batch.chunks[0].proposed)
    }

    fn commit(&mut self, plan: StepPlan, outcomes: Vec<Outcome>, guidance: Guidance) -> Option<Event> {
        let outcomes = outcomes.into_iter().map(|outcome| (SeqId(0), outcome)).collect();
        let output = StepOutput { outcomes, guidance: vec![(SeqId(0), guidance)] };
        self.scheduler.commit(plan, &output, &mut self.pool).pop().map(|(_, event)| event)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.scheduler.abort(SeqId(0), &mut self.pool);
    }
}

fn tokens(tokens: &[TokenId]) -> Vec<Outcome> {
    tokens.iter().map(|&token| Outcome::Token(Sampled { token, logprobs: None })).collect()
}

fn forced(forced: &[TokenId]) -> Guidance {
    Guidance { forced: forced.to_vec(), ..Guidance::default() }
}

fn complete() -> Guidance {
    Guidance { complete: true, ..Guidance::default() }
}

#[test]
fn forced_tokens_ride_along_with_the_next_decode_and_only_with_that() {
    let mut scene = Scene::new(ROOMY, 20);
    let (plan, ..) = scene.plan();
    scene.commit(plan, tokens(&[7]), forced(&[8, 9, 10]));
    let (plan, computed, guesses) = scene.plan();
    assert_eq!((computed, guesses), (vec![7, 8, 9, 10], 3));
    scene.commit(plan, tokens(&[8, 9, 10, 11]), Guidance::default());
    let (plan, computed, guesses) = scene.plan();
    assert_eq!((computed, guesses), (vec![11], 0));
    scene.commit(plan, tokens(&[12]), forced(&[13, 14]));
    // What was drawn counts, not what was guessed.
    let (plan, computed, guesses) = scene.plan();
    assert_eq!((computed, guesses), (vec![12, 13, 14], 2));
    scene.commit(plan, tokens(&[13, 20]), Guidance::default());
    assert_eq!(scene.plan().1, [20]);
}

#[test]
fn forced_tokens_stay_within_the_step_and_within_max_tokens() {
    let mut scene = Scene::new(Config { max_num_batched_tokens: 4, ..ROOMY }, 20);
    let (plan, ..) = scene.plan();
    scene.commit(plan, tokens(&[7]), forced(&[8, 9, 10, 11, 12]));
    assert_eq!(scene.plan().1, [7, 8, 9, 10]);
    let mut scene = Scene::new(ROOMY, 3);
    let (plan, ..) = scene.plan();
    scene.commit(plan, tokens(&[7]), forced(&[8, 9, 10]));
    let (plan, computed, guesses) = scene.plan();
    assert_eq!((computed, guesses), (vec![7, 8], 1), "the last one is drawn");
    let end = scene.commit(plan, tokens(&[8, 9]), forced(&[10]));
    assert_eq!((end, scene.pool.used()), (Some(Event::Finished(FinishReason::Length)), 0));
}

#[test]
fn complete_is_stop_also_where_max_tokens_end() {
    for output in [20, 1] {
        let mut scene = Scene::new(ROOMY, output);
        let (plan, ..) = scene.plan();
        let end = scene.commit(plan, tokens(&[7]), complete());
        assert_eq!((end, scene.pool.used()), (Some(Event::Finished(FinishReason::Stop)), 0));
    }
    let mut scene = Scene::new(ROOMY, 20);
    let (plan, ..) = scene.plan();
    assert_eq!(
        scene.commit(plan, vec![Outcome::Complete], Guidance::default()),
        Some(Event::Finished(FinishReason::Stop))
    );
}

#[test]
fn a_grammar_that_fails_fails_its_sequence() {
    let mut scene = Scene::new(ROOMY, 20);
    let (plan, ..) = scene.plan();
    let fault = Outcome::Failed(SequenceFault::Grammar("too many items".into()));
    let end = scene.commit(plan, vec![fault], Guidance::default());
    assert_eq!(end, Some(Event::Failed(RequestError::Grammar { message: "too many items".into() })));
    assert_eq!(scene.pool.used(), 0);
}

#[test]
fn who_is_late_computes_its_last_token_again_and_says_nothing() {
    let mut scene = Scene::new(ROOMY, 20);
    let (plan, computed, _) = scene.plan();
    assert_eq!(computed.len(), 3);
    let admitted = scene.commit(plan, vec![Outcome::Late], Guidance::default());
    assert!(matches!(admitted, Some(Event::Admitted { .. })), "nothing else");
    let (plan, computed, guesses) = scene.plan();
    assert_eq!((computed.len(), guesses), (1, 0), "the prompt but its last token is in place");
    scene.commit(plan, tokens(&[7]), forced(&[8, 9]));
    for _ in 0..3 {
        let (plan, computed, guesses) = scene.plan();
        assert_eq!((computed, guesses), (vec![7, 8, 9], 2), "what is forced stays so");
        assert_eq!(scene.commit(plan, vec![Outcome::Late], Guidance::default()), None);
    }
    let (plan, ..) = scene.plan();
    scene.commit(plan, tokens(&[8, 9, 10]), Guidance::default());
    assert_eq!(scene.plan().1, [10]);
}
