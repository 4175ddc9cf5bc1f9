//! Which tokens a sequence may draw: its grammar, its place in it, and the masks of the step under way.

use std::sync::mpsc::Sender;

use forebay_core::constraint::{ConstraintError, ConstraintState, Mask, Progress, Stop};
use forebay_core::request::Guided;
use forebay_core::step::{Guidance, SequenceFault};
use forebay_core::units::TokenId;

/// Tokens that a grammar forces are fed at most so many at a time: each costs a row of logits.
const MOST_FORCED: usize = 32;

/// One sequence's grammar and its place in it. All that may take long is a [`Task`].
pub struct Guide {
    guided: Guided,
    watcher: Sender<Stop>,
    /// Tokens before the answer, from the tag that opens the block of thinking to the one that closes it.
    thought: Vec<TokenId>,
    /// Made at the first mask, for copying what was compiled is work too.
    matcher: Option<Box<dyn ConstraintState>>,
    /// Of the row that a token is drawn from and of the guesses after it, as far as they are allowed.
    masks: Vec<Mask>,
    /// What `masks` are for: the tokens of the completion before them, and the guesses.
    drawn: Option<usize>,
    guesses: Vec<TokenId>,
    fault: Option<ConstraintError>,
    taken: Option<Taken>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// The masks behind the first `drawn` tokens of the completion, and behind the guesses that may follow them.
    Masks { drawn: usize, guesses: Vec<TokenId> },
    /// The tokens that the step drew, the first of them at `place` of the completion, and what is to be said after them.
    Take { place: usize, tokens: Vec<TokenId> },
}

struct Taken {
    place: usize,
    tokens: Vec<TokenId>,
    guidance: Result<Guidance, ConstraintError>,
}

/// Where a completion stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The first token decides whether there is thinking before the answer.
    Beginning,
    Thought,
    Answer,
}

impl Guide {
    pub fn new(guided: &Guided, watcher: Sender<Stop>) -> Guide {
        Guide {
            guided: guided.clone(),
            watcher,
            thought: Vec::new(),
            matcher: None,
            masks: Vec::new(),
            drawn: None,
            guesses: Vec::new(),
            fault: None,
            taken: None,
        }
    }

    /// Whether `task` was its last of this kind. Masks are not asked for again for other guesses: those of the first rows hold.
    pub fn knows(&self, task: &Task) -> bool {
        match task {
            Task::Masks { drawn, .. } => self.drawn == Some(*drawn),
            Task::Take { place, tokens } => {
                self.taken.as_ref().is_some_and(|taken| taken.place == *place && taken.tokens == *tokens)
            }
        }
    }

    /// Its last task came to nothing.
    pub fn failed(&self) -> bool {
        self.fault.is_some() || self.taken.as_ref().is_some_and(|taken| taken.guidance.is_err())
    }

    /// Of the completion, as far as they are known here.
    pub fn tokens(&self) -> usize {
        self.thought.len() + self.matcher.as_ref().map_or(0, |matcher| matcher.accepted().len())
    }

    pub fn run(&mut self, task: Task) {
        match task {
            Task::Masks { drawn, guesses } => {
                self.masks.clear();
                self.taken = None;
                self.fault = self.compute(drawn, &guesses).err();
                (self.drawn, self.guesses) = (Some(drawn), guesses);
            }
            Task::Take { place, tokens } => {
                let guidance = self.take(place, &tokens);
                self.taken = Some(Taken { place, tokens, guidance });
            }
        }
    }

    fn compute(&mut self, drawn: usize, guesses: &[TokenId]) -> Result<(), ConstraintError> {
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

    fn matcher(&mut self) -> &mut dyn ConstraintState {
        self.matcher.get_or_insert_with(|| self.guided.grammar.start(self.watcher.clone())).as_mut()
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
    fn rewind(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        let answered = tokens.saturating_sub(self.thought.len());
        self.thought.truncate(tokens);
        self.matcher().rewind(answered)
    }

    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        match (self.place(), self.guided.thinking) {
            (Place::Thought, _) => self.thought.push(token),
            (Place::Beginning, Some(tags)) if token == tags.open => self.thought.push(token),
            (Place::Beginning | Place::Answer, _) => return self.matcher().advance(token).map(drop),
        }
        Ok(())
    }

    fn next_mask(&mut self) -> Result<Mask, ConstraintError> {
        match (self.place(), self.guided.thinking) {
            // A thought that ends the answer would leave it without what was asked for.
            (Place::Thought, _) => Ok(self.guided.grammar.anything_but_the_end()),
            (Place::Beginning, Some(tags)) => Ok(self.matcher().allowed()?.and(tags.open)),
            (Place::Beginning | Place::Answer, _) => self.matcher().allowed(),
        }
    }

    /// The token at `place` of the completion, as far as it is known here.
    fn token_at(&self, place: usize) -> Option<TokenId> {
        let answer = self.matcher.as_ref().map_or(&[][..], |matcher| matcher.accepted());
        self.thought.iter().chain(answer).nth(place).copied()
    }

    /// The mask for the `row`-th draw of the step; `None` behind guesses other than those that it was asked for.
    pub fn mask(&self, row: usize, guesses: &[TokenId]) -> Result<Option<&Mask>, SequenceFault> {
        if self.guesses.get(..row) != guesses.get(..row) {
            return Ok(None);
        }
        self.masks.get(row).map(Some).ok_or_else(|| match &self.fault {
            Some(fault) => SequenceFault::Grammar(fault.0.clone()),
            None => SequenceFault::Grammar("its next tokens are not known".into()),
        })
    }

    /// What to say after the tokens that the step drew.
    pub fn guidance(&self) -> Result<Guidance, SequenceFault> {
        let taken = self.taken.as_ref().map_or(Ok(Guidance::default()), |taken| taken.guidance.clone());
        taken.map_err(|error| SequenceFault::Grammar(error.0))
    }

    fn take(&mut self, place: usize, tokens: &[TokenId]) -> Result<Guidance, ConstraintError> {
        for (place, token) in (place..).zip(tokens) {
            // Else a guess that was right.
            if self.token_at(place) != Some(*token) {
                self.rewind(place)?;
                self.accept(*token)?;
            }
        }
        // Guesses that were wrong.
        self.rewind(place + tokens.len())?;
        let drawn = tokens.len();
        let choices = self.masks.iter().take(drawn).filter(|mask| mask.is_choice()).count();
        let answers = self.place() == Place::Answer;
        let Some(matcher) = self.matcher.as_mut().filter(|_| answers) else {
            return Ok(Guidance { drawn, choices, ..Guidance::default() });
        };
        let complete = matcher.progress() == Progress::Complete;
        let forced = if complete { Vec::new() } else { matcher.forced(MOST_FORCED) };
        Ok(Guidance { complete, forced, drawn, choices })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use forebay_core::request::ThinkingTags;
    use forebay_text::fixtures::{self, ASSISTANT, END, USER};
    use forebay_text::grammar::{GrammarSpec, Limits, Vocabulary};

    fn guide(begins_open: bool) -> Guide {
        let tokenizer = Arc::new(fixtures::byte_level());
        let vocabulary = Vocabulary::new(&tokenizer, fixtures::VOCAB as usize, &[END], Limits::default()).unwrap();
        let grammar = vocabulary.compile(&GrammarSpec::Regex("[a-c]{2}".into())).unwrap();
        let thinking = Some(ThinkingTags { open: USER, close: ASSISTANT, begins_open });
        let (watcher, stops) = std::sync::mpsc::channel();
        // Whoever does not listen interrupts.
        std::mem::forget(stops);
        Guide::new(&Guided { grammar: Arc::new(grammar), thinking }, watcher)
    }

    /// What may come after `drawn`: of the tags, the end, a letter of the answer, another letter.
    fn allowed(guide: &mut Guide, drawn: &[TokenId]) -> [bool; 5] {
        guide.run(Task::Masks { drawn: drawn.len(), guesses: Vec::new() });
        let mask = guide.mask(0, &[]).unwrap().unwrap();
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
                    guide.run(Task::Take { place: at, tokens: vec![*token] });
                    assert!(at < drawn.len() - 1 || !guide.guidance().unwrap().complete);
                }
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
        let guesses = [x, ASSISTANT, a, x];
        guide.run(Task::Masks { drawn: 0, guesses: guesses.to_vec() });
        let masks: Vec<bool> = (0..4).map(|row| guide.mask(row, &guesses).unwrap().unwrap().allows(x)).collect();
        assert_eq!(masks, [true, true, false, false]);
        assert!(guide.mask(4, &guesses).is_err(), "the last guess is not allowed: nothing is known of what follows it");
        let others = [x, a];
        assert!(guide.mask(1, &others).is_ok_and(|mask| mask.is_some()), "behind the guess that is the same");
        assert!(guide.mask(2, &others).is_ok_and(|mask| mask.is_none()), "behind another");
    }
}
