//! Documents and training rows. Every document is generated from numbers, so nothing is stored and nothing repeats.

use crate::chat::{self, Role, Turns};
use crate::rng::Rng;
use crate::skills;
use crate::story::{Plot, Split};
use crate::tokenizer::{ChatTokens, Codec};

/// One document of the corpus.
pub enum Document {
    /// Text without roles, as a plain completion sees it.
    Raw(String),
    Chat(Turns),
}

/// In which proportions documents are mixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Every phrasing of every request; most of the run.
    Broad,
    /// Requests that say who, where and what, and more repeating: the end of the run, when the stories themselves are
    /// learned and what remains is to do as asked. A broad mix rewards that in two or three tokens of a document.
    Pointed,
    /// Three in five documents are small skills, the others as before: the last steps.
    Skilled,
}

impl Mix {
    /// The mix of a training step.
    pub fn at(step: usize) -> Self {
        match step {
            _ if step < BROAD_STEPS => Mix::Broad,
            _ if step < POINTED_STEPS => Mix::Pointed,
            _ => Mix::Skilled,
        }
    }
}

/// Steps before the mix becomes pointed.
pub const BROAD_STEPS: usize = 2600;
/// Steps before most of the documents are small skills.
pub const POINTED_STEPS: usize = 3600;

/// Which documents a row holds: the seed and the split name the stream, `step` and `row` the place in it.
#[derive(Clone, Copy)]
pub struct Stream {
    pub seed: u64,
    pub split: Split,
}

impl Stream {
    /// The random numbers of one row. A row needs nothing from another, so training resumes at any step.
    pub fn row(&self, step: usize, row: usize) -> Rng {
        Rng::keyed(&[self.seed, self.split as u64, step as u64, row as u64])
    }

    /// `tokens` token ids: documents one after another, the last one cut.
    pub fn pack(&self, codec: &Codec, step: usize, row: usize, tokens: usize) -> Vec<u32> {
        let mut ids: Vec<u32> = self.documents(codec, step, row, tokens).into_iter().flat_map(|(_, ids)| ids).collect();
        ids.truncate(tokens);
        ids
    }

    /// The documents of a row of `tokens` tokens, with their ids.
    pub fn documents(&self, codec: &Codec, step: usize, row: usize, tokens: usize) -> Vec<(Document, Vec<u32>)> {
        let (mut rng, mix) = (self.row(step, row), Mix::at(step));
        let (mut documents, mut length) = (Vec::new(), 0);
        while length < tokens {
            let long = tokens > 300 && rng.chance(0.3);
            let document = Document::random(&mut rng, self.split, mix, long);
            let ids = document.encode(codec, &mut rng);
            length += ids.len();
            documents.push((document, ids));
        }
        documents
    }
}

impl Document {
    /// A document in the proportions of the corpus; `long` asks for several turns or a long story.
    pub fn random(rng: &mut Rng, split: Split, mix: Mix, long: bool) -> Self {
        if long {
            return Document::Chat(conversation(rng, split));
        }
        match mix {
            Mix::Broad => Self::broad(rng, split),
            Mix::Pointed => Self::pointed(rng, split),
            Mix::Skilled => match rng.below(100) {
                0..20 => Document::Chat(skills::repeating(rng, split)),
                20..60 => Document::Chat(skills::random(rng, split)),
                _ => Self::pointed(rng, split),
            },
        }
    }

    fn broad(rng: &mut Rng, split: Split) -> Self {
        match rng.below(100) {
            0..22 => Document::Raw(Plot::random(rng, split).tell(rng, false)),
            22..62 => {
                let plot = Plot::random(rng, split);
                Document::Chat(with_system(rng, 0.2, |rng| chat::story_chat(rng, &plot, false)))
            }
            62..77 => {
                let plot = Plot::random(rng, split);
                Document::Chat(with_system(rng, 0.15, |rng| chat::question_chat(rng, &plot)))
            }
            77..84 => Document::Chat(chat::facts_chat(rng, split)),
            _ => Document::Chat(with_system(rng, 0.15, |rng| skills::random(rng, split))),
        }
    }

    fn pointed(rng: &mut Rng, split: Split) -> Self {
        let share = rng.below(100);
        let plot = Plot::random(rng, split);
        match share {
            0..8 => Document::Raw(plot.tell(rng, false)),
            8..56 => Document::Chat(with_system(rng, 0.15, |rng| chat::pointed_chat(rng, &plot))),
            56..62 => Document::Chat(with_system(rng, 0.2, |rng| chat::story_chat(rng, &plot, false))),
            62..72 => Document::Chat(with_system(rng, 0.15, |rng| chat::question_chat(rng, &plot))),
            72..81 => Document::Chat(chat::facts_chat(rng, split)),
            81..86 => Document::Chat(skills::repeating(rng, split)),
            _ => Document::Chat(with_system(rng, 0.15, |rng| skills::random(rng, split))),
        }
    }

    /// Token ids from the beginning mark to the last end mark.
    pub fn encode(&self, codec: &Codec, rng: &mut Rng) -> Vec<u32> {
        let ChatTokens { bos, end, system, user, assistant } = codec.chat;
        // Now and then without the mark: a client may send plain text without special tokens.
        let mut ids = if rng.chance(0.92) { vec![bos] } else { vec![] };
        match self {
            Document::Raw(text) => {
                ids.extend(codec.encode(text));
                ids.push(end);
            }
            Document::Chat(turns) => {
                for (role, text) in turns {
                    ids.push(match role {
                        Role::System => system,
                        Role::User => user,
                        Role::Assistant => assistant,
                    });
                    ids.extend(codec.encode(text));
                    ids.push(end);
                }
            }
        }
        ids
    }

    /// The words without control tokens, for the tokenizer's training and for counting.
    pub fn text(&self) -> String {
        match self {
            Document::Raw(text) => text.clone(),
            Document::Chat(turns) => turns.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The stories this document tells; shorter answers are no stories.
    pub fn stories(&self) -> Vec<&str> {
        let texts: Vec<&str> = match self {
            Document::Raw(text) => vec![text],
            Document::Chat(turns) => turns.iter().map(|(_, text)| text.as_str()).collect(),
        };
        texts.into_iter().filter(|text| text.len() > 250).collect()
    }
}

fn with_system(rng: &mut Rng, chance: f64, body: impl FnOnce(&mut Rng) -> Turns) -> Turns {
    let mut turns = if rng.chance(chance) { vec![(Role::System, skills::system(rng))] } else { vec![] };
    turns.extend(body(rng));
    turns
}

/// Several turns: stories, questions about the latest, skills in between.
fn conversation(rng: &mut Rng, split: Split) -> Turns {
    with_system(rng, 0.3, |rng| {
        let mut turns = Turns::new();
        for _ in 0..rng.between(2, 4) {
            let plot = Plot::random(rng, split);
            turns.extend(match rng.below(10) {
                0..4 => chat::question_chat(rng, &plot),
                4..6 => chat::story_chat(rng, &plot, true),
                6..8 => chat::story_chat(rng, &plot, false),
                _ => skills::random(rng, split),
            });
        }
        turns
    })
}
