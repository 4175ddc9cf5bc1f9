//! Reads what the shipped model tells: does it end, does it use the names, is it new?

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::Result;
use serde_json::{Value, json};

use crate::chat::Role;
use crate::corpus::Stream;
use crate::rng::Rng;
use crate::sample::{Drawing, Storyteller};
use crate::story::{Plot, Split};
use crate::tokenizer::Codec;
use crate::train::{SEED, UNSEEN_SEED, row_shape};
use crate::words as w;

/// What the training corpus told: story texts (hashed) and combinations of character, place and wish.
pub struct Told {
    texts: HashSet<u64>,
    triples: HashSet<Triple>,
    pub stories: usize,
}

/// Character, place and wish as read from a story's own words.
type Triple = (String, String, String);

impl Told {
    /// Generates the corpus of a run of `steps` steps once more.
    pub fn again(codec: &Codec, steps: usize, tokens_per_step: usize) -> Self {
        let stream = Stream { seed: SEED, split: Split::Train };
        let mut told = Told { texts: HashSet::new(), triples: HashSet::new(), stories: 0 };
        for step in 0..steps {
            let (rows, length) = row_shape(step, steps, tokens_per_step);
            for row in 0..rows {
                for (document, _) in stream.documents(codec, step, row, length + 1) {
                    for story in document.stories() {
                        told.stories += 1;
                        told.texts.insert(hash(story));
                        told.triples.extend(triple(story));
                    }
                }
            }
        }
        told
    }
}

/// Asks for `count` stories about combinations that training never showed and reports on each.
pub fn judge(teller: &Storyteller, told: &Told, count: usize, temperature: f64) -> Result<Value> {
    let mut stories = Vec::new();
    for n in 0..count {
        let mut rng = Rng::keyed(&[UNSEEN_SEED, 0x7D6E, n as u64]);
        let plot = Plot::random(&mut rng, Split::HeldOut);
        let (name, kind) = (&plot.hero.name, plot.hero.kind);
        let ask = match n % 5 {
            0 => plot.say("Tell me a story about {a:kind} named {n} who lives {home} and wants to {want}.", &mut rng),
            1 => plot.say("Write a short story about {n} the {kind}, who lives {home} and wants to {want}.", &mut rng),
            2 => plot.say("Tell me a story about {a:kind} named {n} who wants to {want}.", &mut rng),
            3 => plot.say("Please tell me a story about {a:nature} {kind} named {n}.", &mut rng),
            _ => plot.say("Tell me a story about {n} and {m}.", &mut rng).replace(" and the ", " and a "),
        };
        let drawing = Drawing { temperature, max_tokens: 300, seed: n as u64 };
        let answer = teller.answer(&vec![(Role::User, ask.clone())], drawing)?;
        let read = triple(&answer.text);
        // `None` where the request did not say.
        let (asks_kind, asks_place, asks_wish) = (n % 5 != 4, n % 5 < 2, n % 5 < 3);
        let has = |asked: bool, words: &str| asked.then(|| answer.text.contains(words));
        stories.push(json!({
            "prompt": ask,
            "story": answer.text,
            "tokens": answer.tokens,
            "ended": answer.ended,
            "has_name": answer.text.contains(name.as_str()),
            "has_kind": has(asks_kind, kind),
            "has_place": has(asks_place, plot.place.2),
            "has_wish": has(asks_wish, plot.wish.thing_or_deed()),
            "new_text": !told.texts.contains(&hash(&answer.text)),
            "new_combination": read.as_ref().is_some_and(|read| !told.triples.contains(read)),
            "combination": read.map(|(kind, place, wish)| format!("{kind}, {place}, {wish}")),
        }));
    }
    let yes = |key: &str| stories.iter().filter(|story| story[key] == true).count();
    let asked = |key: &str| stories.iter().filter(|story| !story[key].is_null()).count();
    let new = stories.iter().filter(|story| story["new_text"] == true && story["new_combination"] == true).count();
    Ok(json!({
        "stories": count,
        "temperature": temperature,
        "ended_before_300_tokens": yes("ended"),
        "name_present": yes("has_name"),
        "kind_present": yes("has_kind"),
        "kind_asked": asked("has_kind"),
        "place_present": yes("has_place"),
        "place_asked": asked("has_place"),
        "wish_present": yes("has_wish"),
        "wish_asked": asked("has_wish"),
        "new_text": yes("new_text"),
        "new_text_and_combination": new,
        "corpus_stories": told.stories,
        "corpus_combinations": told.triples.len(),
        "samples": stories,
    }))
}

/// Reads character, place and wish from the words of a story, the same way for the corpus and for the model.
fn triple(story: &str) -> Option<Triple> {
    let opening: String = story.split_inclusive(". ").take(2).collect();
    let kinds = w::ANIMALS.all().iter().chain(w::PEOPLE.all()).chain(w::WONDERS.all());
    let kind = longest(kinds.map(|kind| kind.trim_start_matches(['+', '-'])), &opening)?;
    let places = w::PLACES.all().iter().filter_map(|place| Some(place.split_once(':')?.1));
    let place = longest(places.filter(|place| *place != kind), &opening)?;
    let marks =
        ["wanted to learn how to ", "wanted to ", "wished to ", "longed to ", " could ", "dreamed of ", "heard of "];
    let (at, mark) = marks
        .iter()
        .filter_map(|mark| Some((story.find(mark)? + mark.len(), mark)))
        .min_by_key(|(at, mark)| at - mark.len())?;
    let end = story[at..].find(['.', ',']).map_or(story.len(), |i| at + i);
    let wish = if mark.ends_with("of ") { format!("find {}", &story[at..end]) } else { story[at..end].to_string() };
    Some((kind.to_string(), place.to_string(), wish.trim_start_matches("learn how to ").to_string()))
}

/// The longest of `words` that stands in `text` as whole words.
fn longest<'a>(words: impl Iterator<Item = &'a str>, text: &str) -> Option<&'a str> {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    words
        .filter(|word| {
            text.match_indices(word).any(|(at, _)| {
                !letter(text[..at].chars().next_back()) && !letter(text[at + word.len()..].chars().next())
            })
        })
        .max_by_key(|word| word.len())
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plot_is_read_back_from_its_story() {
        let mut read = 0;
        for n in 0..500 {
            let mut rng = Rng::keyed(&[1, n]);
            let plot = Plot::random(&mut rng, Split::Train);
            let (kind, place, wish) = plot.triple();
            let story = plot.tell(&mut rng, false);
            read += usize::from(triple(&story) == Some((kind.into(), place.into(), wish.into())));
        }
        // Not all: a thing that names a kind or a place can mislead the reader, and "dreamed of" may hide a sight.
        assert!(read > 420, "{read} of 500");
    }
}
