//! Which tokens the sequences of a step may draw: masks, computed while the model computes the logits.

use std::collections::HashMap;
use std::thread::{self, Builder};

use crate::grammar::{Mask, MatchError, Matcher, State};
use crate::request::Guided;
use crate::step::{BatchChunk, Guidance, SequenceFault, StepBatch};
use crate::units::{SeqId, TokenId};

/// Tokens that a grammar forces are fed at most so many at a time: each costs a row of logits.
const MOST_FORCED: usize = 32;
/// Masks take microseconds to a millisecond each: one thread for so many sequences, but not many threads beside those of
/// the forward pass.
const SEQUENCES_PER_THREAD: usize = 8;
const MOST_THREADS: usize = 4;
/// The parser descends into expressions; what it descends is bounded when they are compiled.
const STACK_BYTES: usize = 16 << 20;

/// One sequence's grammar, its place in it, and the masks for the rows of the step under way.
pub struct Guide {
    guided: Guided,
    /// Tokens before the answer, from the tag that opens the block of thinking to the one that closes it.
    thought: Vec<TokenId>,
    /// Made at the first mask, for copying what was compiled is work too.
    matcher: Option<Matcher>,
    /// Of the row that a token is drawn from and of the guesses after it, as far as they are allowed.
    masks: Vec<Mask>,
    fault: Option<MatchError>,
    choices: usize,
    drawn: usize,
}

/// Where a completion stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The first token decides whether there is thinking before the answer.
    Beginning,
    Thought,
    Answer,
}

/// A guide and what its sequence is to compute.
struct Job<'a> {
    guide: &'a mut Guide,
    /// Tokens of the completion before the step.
    drawn: usize,
    guesses: &'a [TokenId],
}

/// Computes the masks of `batch` on other threads while `work` runs here.
///
/// Whatever becomes of `work`, every guide keeps its place: the next step says how many tokens have been drawn.
pub fn beside<'a, T>(
    batch: &'a StepBatch,
    guides: impl Iterator<Item = (SeqId, &'a mut Guide, usize)>,
    work: impl FnOnce() -> T,
) -> T {
    let mut jobs = jobs(batch, guides);
    if jobs.is_empty() {
        return work();
    }
    let share = jobs.len().div_ceil(MOST_THREADS).max(SEQUENCES_PER_THREAD);
    thread::scope(|scope| {
        for share in jobs.chunks_mut(share) {
            let run = move || share.iter_mut().for_each(Job::run);
            // Without a thread, no masks: the draws that miss them fail.
            let _ = Builder::new().name("masks".into()).stack_size(STACK_BYTES).spawn_scoped(scope, run);
        }
        work()
    })
}

/// Those who draw in this step. `guides` brings the length of their prompts.
fn jobs<'a>(batch: &'a StepBatch, guides: impl Iterator<Item = (SeqId, &'a mut Guide, usize)>) -> Vec<Job<'a>> {
    let mut guides = guides.peekable();
    if guides.peek().is_none() {
        return Vec::new();
    }
    let chunks: HashMap<SeqId, &BatchChunk> =
        batch.chunks.iter().filter(|chunk| chunk.sample).map(|chunk| (chunk.seq, chunk)).collect();
    let job = |(seq, guide, prompt): (SeqId, &'a mut Guide, usize)| {
        let chunk = chunks.get(&seq)?;
        let row = chunk.rows.end - 1 - chunk.proposed;
        let drawn = (batch.positions[row] as usize + 1).saturating_sub(prompt);
        guide.begin();
        Some(Job { guide, drawn, guesses: &batch.tokens[row + 1..chunk.rows.end] })
    };
    guides.filter_map(job).collect()
}

impl Job<'_> {
    fn run(&mut self) {
        self.guide.fault = self.guide.compute(self.drawn, self.guesses).err();
    }
}

impl Guide {
    pub fn new(guided: &Guided) -> Guide {
        Guide {
            guided: guided.clone(),
            thought: Vec::new(),
            matcher: None,
            masks: Vec::new(),
            fault: None,
            choices: 0,
            drawn: 0,
        }
    }

    /// Nothing of the step before counts any more.
    fn begin(&mut self) {
        self.masks.clear();
        self.fault = None;
        (self.choices, self.drawn) = (0, 0);
    }

    fn compute(&mut self, drawn: usize, guesses: &[TokenId]) -> Result<(), MatchError> {
        self.rewind(drawn)?;
        let mask = self.next_mask()?;
        self.masks.push(mask);
        for &guess in guesses {
            // What is not allowed is not drawn, so the rows after it are not asked for.
            if !self.masks.last().is_some_and(|mask| mask.allows(guess)) {
                break;
            }
            self.accept(guess)?;
            let mask = self.next_mask()?;
            self.masks.push(mask);
        }
        Ok(())
    }

    fn matcher(&mut self) -> &mut Matcher {
        self.matcher.get_or_insert_with(|| Matcher::new(&self.guided.grammar))
    }

    fn place(&self) -> Place {
        let Some(tags) = self.guided.thinking else { return Place::Answer };
        let answers = self.matcher.as_ref().is_some_and(|matcher| !matcher.accepted().is_empty());
        match self.thought.last() {
            Some(last) if *last == tags.close => Place::Answer,
            Some(_) => Place::Thought,
            None if tags.begins_open => Place::Thought,
            None if answers => Place::Answer,
            None => Place::Beginning,
        }
    }

    /// Forgets all but the first `tokens` tokens of the completion.
    fn rewind(&mut self, tokens: usize) -> Result<(), MatchError> {
        let answered = tokens.saturating_sub(self.thought.len());
        self.thought.truncate(tokens);
        self.matcher().rewind(answered)
    }

    fn accept(&mut self, token: TokenId) -> Result<(), MatchError> {
        match (self.place(), self.guided.thinking) {
            (Place::Thought, _) => self.thought.push(token),
            (Place::Beginning, Some(tags)) if token == tags.open => self.thought.push(token),
            (Place::Beginning | Place::Answer, _) => return self.matcher().accept(token).map(drop),
        }
        Ok(())
    }

    fn next_mask(&mut self) -> Result<Mask, MatchError> {
        match (self.place(), self.guided.thinking) {
            // A thought that ends the answer would leave it without what was asked for.
            (Place::Thought, _) => Ok(Mask::unfinished(&self.guided.grammar)),
            (Place::Beginning, Some(tags)) => Ok(self.matcher().mask()?.and(tags.open)),
            (Place::Beginning | Place::Answer, _) => self.matcher().mask(),
        }
    }

    /// The token at `place` of the completion, as far as it is known here.
    fn token_at(&self, place: usize) -> Option<TokenId> {
        let answer = self.matcher.as_ref().map_or(&[][..], Matcher::accepted);
        self.thought.iter().chain(answer).nth(place).copied()
    }

    /// The mask for the `row`-th draw of the step, counted from 0.
    pub fn mask(&self, row: usize) -> Result<&Mask, SequenceFault> {
        self.masks.get(row).ok_or_else(|| match &self.fault {
            Some(fault) => SequenceFault::Grammar(fault.0.clone()),
            None => SequenceFault::Grammar("its next tokens are not known".into()),
        })
    }

    /// Takes the token that was drawn at `place` of the completion, in the `row`-th draw of the step.
    pub fn take(&mut self, row: usize, place: usize, token: TokenId) -> Result<(), SequenceFault> {
        self.drawn += 1;
        self.choices += usize::from(self.masks.get(row).is_some_and(Mask::is_choice));
        if self.token_at(place) == Some(token) {
            // A guess that was right.
            return Ok(());
        }
        let accepted = self.rewind(place).and_then(|()| self.accept(token));
        accepted.map_err(|error| SequenceFault::Grammar(error.0))
    }

    /// After the step's last token.
    pub fn guidance(&mut self) -> Guidance {
        let (drawn, choices) = (self.drawn, self.choices);
        let answers = self.place() == Place::Answer;
        let Some(matcher) = self.matcher.as_mut().filter(|_| answers) else {
            return Guidance { drawn, choices, ..Guidance::default() };
        };
        let complete = matcher.state() == State::Complete;
        let forced = if complete { Vec::new() } else { matcher.forced(MOST_FORCED) };
        Guidance { complete, forced, drawn, choices }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::grammar::{GrammarSpec, Limits, Vocabulary};
    use crate::request::ThinkingTags;
    use crate::text::fixtures::{self, ASSISTANT, END, USER};

    fn guide(begins_open: bool) -> Guide {
        let tokenizer = Arc::new(fixtures::byte_level());
        let vocabulary = Vocabulary::new(&tokenizer, fixtures::VOCAB as usize, &[END], Limits::default()).unwrap();
        let grammar = vocabulary.compile(&GrammarSpec::Regex("[a-c]{2}".into())).unwrap();
        Guide::new(&Guided { grammar, thinking: Some(ThinkingTags { open: USER, close: ASSISTANT, begins_open }) })
    }

    /// What may come after `drawn`: of the tags, the end, a letter of the answer, another letter.
    fn allowed(guide: &mut Guide, drawn: &[TokenId]) -> [bool; 5] {
        guide.begin();
        guide.compute(drawn.len(), &[]).unwrap();
        let mask = guide.mask(0).unwrap();
        [USER, ASSISTANT, END, byte(b'a'), byte(b'x')].map(|token| mask.allows(token))
    }

    fn byte(byte: u8) -> TokenId {
        let tokenizer = fixtures::byte_level();
        (0..256).find(|&id| tokenizer.token_bytes(id) == [byte]).unwrap()
    }

    const BEGINNING: [bool; 5] = [true, false, false, true, false];
    const THOUGHT: [bool; 5] = [true, true, false, true, true];
    const ANSWER: [bool; 5] = [false, false, false, true, false];

    #[test]
    fn the_answer_is_held_after_the_thought() {
        let (a, x) = (byte(b'a'), byte(b'x'));
        for (begins_open, drawn, places) in [
            (false, vec![USER, x, ASSISTANT, a], vec![BEGINNING, THOUGHT, THOUGHT, ANSWER, ANSWER]),
            (true, vec![x, ASSISTANT, a], vec![THOUGHT, THOUGHT, ANSWER, ANSWER]),
            (false, vec![a], vec![BEGINNING, ANSWER]),
        ] {
            let mut guide = guide(begins_open);
            for at in 0..=drawn.len() {
                assert_eq!(allowed(&mut guide, &drawn[..at]), places[at], "{begins_open} {at}");
                if let Some(token) = drawn.get(at) {
                    guide.take(0, at, *token).unwrap();
                }
                assert!(at < drawn.len() - 1 || !guide.guidance().complete);
            }
            // A step that is run again, from any place.
            for at in (0..drawn.len()).rev() {
                assert_eq!(allowed(&mut guide, &drawn[..at]), places[at], "back to {at}");
            }
        }
    }

    #[test]
    fn guesses_may_cross_the_border() {
        let (a, x) = (byte(b'a'), byte(b'x'));
        let mut guide = guide(true);
        guide.begin();
        guide.compute(0, &[x, ASSISTANT, a, x]).unwrap();
        let masks: Vec<bool> = (0..4).map(|row| guide.mask(row).unwrap().allows(x)).collect();
        assert_eq!(masks, [true, true, false, false]);
        assert!(guide.mask(4).is_err(), "the last guess is not allowed, so nothing is known of what follows it");
    }
}
