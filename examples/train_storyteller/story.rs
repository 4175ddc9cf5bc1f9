//! One story: a cast, a home, a wish, an obstacle, an ending; told from templates.
//!
//! ```text
//! opening -> (daily life) -> wish -> journey -> obstacle -> help -> success -> ending -> (moral)
//! ```

use crate::obstacles::{self, Obstacle};
use crate::phrases as say;
use crate::rng::Rng;
use crate::template::{capitalise, expand, with_article};
use crate::words::{self as w, Table};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gender {
    Her,
    His,
}

/// Somebody in a story; `name` is empty for a character without one.
#[derive(Clone, Debug)]
pub struct Character {
    pub name: String,
    pub kind: &'static str,
    pub nature: &'static str,
    pub gender: Gender,
}

/// What somebody wants: the words for it in the sentences that need it.
#[derive(Clone, Debug)]
pub struct Wish {
    pub family: Family,
    /// "fly", "find a golden key"
    pub want: String,
    /// "flew high above the rooftops"
    pub did: String,
    /// "flying", "a golden key", "the sea"
    pub thing: String,
    /// What a sight was like; empty for the other families.
    pub view: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Skill,
    Find,
    See,
    Make,
    Bond,
}

/// Everything chosen before the telling.
#[derive(Clone, Debug)]
pub struct Plot {
    pub hero: Character,
    pub helper: Character,
    /// "in", "a quiet", "valley"
    pub place: (&'static str, &'static str, &'static str),
    pub wish: Wish,
    pub obstacle: &'static Obstacle,
    pub feeling: &'static str,
    pub food: &'static str,
}

/// Which stories a stream may contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split {
    /// What the model learns from: never a held-out combination.
    Train,
    /// Only combinations of character, place and wish that training never shows.
    HeldOut,
}

impl Plot {
    pub fn random(rng: &mut Rng, split: Split) -> Self {
        loop {
            let plot = Self::draw(rng);
            if (split == Split::HeldOut) == plot.is_held_out() {
                return plot;
            }
        }
    }

    fn draw(rng: &mut Rng) -> Self {
        let hero = Character::random(rng, true);
        let named = rng.chance(0.75);
        let helper = loop {
            let other = Character::random(rng, named);
            if other.name != hero.name && other.kind != hero.kind {
                break other;
            }
        };
        let (preposition, noun) = w::PLACES.pick(rng).split_once(':').expect("a place has a preposition");
        let wish = Wish::random(rng);
        let obstacles = match wish.family {
            Family::Skill => obstacles::LEARNING,
            Family::Make => obstacles::MAKING,
            Family::Bond if rng.chance(0.5) => obstacles::LEARNING,
            _ => obstacles::TRAVEL,
        };
        Plot {
            hero,
            helper,
            place: (preposition, w::PLACE_WORDS.pick(rng), noun),
            wish,
            obstacle: &obstacles[rng.below(obstacles.len())],
            feeling: w::FEELINGS.pick(rng),
            food: w::FOODS.pick(rng),
        }
    }

    /// The combination that decides whether two stories are about the same thing.
    pub fn triple(&self) -> (&'static str, &'static str, &str) {
        (self.hero.kind, self.place.2, &self.wish.want)
    }

    /// One combination in ten is kept from training, by a hash of its words.
    pub fn is_held_out(&self) -> bool {
        let (kind, place, want) = self.triple();
        let hash = kind
            .bytes()
            .chain(place.bytes())
            .chain(want.bytes())
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (hash >> 32).is_multiple_of(10)
    }

    /// Where the hero lives: "in a quiet valley".
    pub fn home(&self) -> String {
        format!("{} {}", self.place.0, self.home_noun())
    }

    /// "a quiet valley"
    pub fn home_noun(&self) -> String {
        with_article(&format!("{} {}", self.place.1, self.place.2))
    }

    /// Tells the story; `long` adds daily life, a second try and a longer ending.
    pub fn tell(&self, rng: &mut Rng, long: bool) -> String {
        let family = match self.wish.family {
            Family::Skill => &say::SKILL,
            Family::Find => &say::FIND,
            Family::See => &say::SEE,
            Family::Make => &say::MAKE,
            Family::Bond => &say::BOND,
        };
        let mut parts = vec![rng.pick(say::OPENINGS)];
        if long || rng.chance(0.4) {
            parts.push(rng.pick(say::DAILY));
        }
        parts.push(rng.pick(family.wish));
        if long || rng.chance(0.35) {
            parts.push(rng.pick(family.motive));
        }
        parts.push(rng.pick(family.start));
        parts.push(self.obstacle.trouble);
        if long || rng.chance(0.3) {
            parts.push(rng.pick(say::LOW));
        }
        parts.push(rng.pick(say::MEETINGS));
        parts.push(self.obstacle.help);
        parts.push(rng.pick(family.success));
        if long || rng.chance(0.3) {
            parts.push(rng.pick(say::THANKS));
        }
        parts.push(rng.pick(say::ENDINGS));
        if rng.chance(0.35) {
            parts.push(rng.pick(say::MORALS));
        }
        let sentences: Vec<String> = parts.iter().map(|part| self.say(part, rng)).collect();
        sentences.join(" ")
    }

    /// Expands one template with this plot's words.
    pub fn say(&self, template: &str, rng: &mut Rng) -> String {
        // Chosen before the borrow: slots that vary draw from their own stream.
        let time = w::TIMES.pick(rng).to_string();
        expand(template, rng, &|slot| {
            Some(self.slot(slot).unwrap_or_else(|| match slot {
                "time" => time.clone(),
                other => panic!("unknown slot {other:?}"),
            }))
        })
    }

    fn slot(&self, name: &str) -> Option<String> {
        let (hero, helper) = (&self.hero, &self.helper);
        Some(match name {
            "n" => hero.name.clone(),
            "kind" => hero.kind.to_string(),
            "nature" => hero.nature.to_string(),
            "he" | "him" | "his" | "himself" => hero.pronoun(name).to_string(),
            "home" => self.home(),
            "homenoun" => self.home_noun(),
            "place" => self.place.2.to_string(),
            "in" => self.place.0.to_string(),
            "m" => helper.short(),
            "whom" => helper.introduction(),
            "mkind" => helper.kind.to_string(),
            "mhe" | "mhim" | "mhis" => helper.pronoun(&name[1..]).to_string(),
            "want" => self.wish.want.clone(),
            "did" => self.wish.did.clone(),
            "thing" => self.wish.thing.clone(),
            "view" => self.wish.view.to_string(),
            "feeling" => self.feeling.to_string(),
            "food" => self.food.to_string(),
            _ => return None,
        })
    }
}

impl Character {
    fn random(rng: &mut Rng, named: bool) -> Self {
        let group: &Table = match rng.below(10) {
            0..6 => &w::ANIMALS,
            6..9 => &w::PEOPLE,
            _ => &w::WONDERS,
        };
        let marked = group.pick(rng);
        let gender = match marked.as_bytes()[0] {
            b'+' => Gender::Her,
            b'-' => Gender::His,
            _ => rng.pick(&[Gender::Her, Gender::His]),
        };
        Character {
            name: if named { name(rng, gender) } else { String::new() },
            kind: marked.trim_start_matches(['+', '-']),
            nature: w::TRAITS.pick(rng),
            gender,
        }
    }

    fn pronoun(&self, he: &str) -> &'static str {
        match (he, self.gender) {
            ("he", Gender::Her) => "she",
            ("he", Gender::His) => "he",
            ("him", Gender::Her) => "her",
            ("him", Gender::His) => "him",
            ("his", Gender::Her) => "her",
            ("his", Gender::His) => "his",
            ("himself", Gender::Her) => "herself",
            ("himself", Gender::His) => "himself",
            _ => panic!("no pronoun {he:?}"),
        }
    }

    /// "Pip", or "the fox" for a character without a name.
    pub fn short(&self) -> String {
        if self.name.is_empty() { format!("the {}", self.kind) } else { self.name.clone() }
    }

    /// "a shy fox named Pip", or "a shy fox".
    pub fn introduction(&self) -> String {
        let who = with_article(&format!("{} {}", self.nature, self.kind));
        if self.name.is_empty() { who } else { format!("{who} named {}", self.name) }
    }
}

impl Wish {
    fn random(rng: &mut Rng) -> Self {
        let plain = |family, want: String, did: String, thing: String| Wish { family, want, did, thing, view: "" };
        match rng.below(20) {
            0..6 => {
                let row: Vec<&'static str> = w::SKILLS.pick(rng).split('=').collect();
                plain(Family::Skill, row[0].into(), row[1].into(), row[2].into())
            }
            6..11 => {
                let thing = with_article(&format!("{} {}", w::OBJECT_WORDS.pick(rng), w::OBJECTS.pick(rng)));
                plain(Family::Find, format!("find {thing}"), format!("found {thing}"), thing)
            }
            11..14 => {
                let (thing, view) = w::SIGHTS.pick(rng).split_once('=').expect("a sight has a view");
                Wish { view, ..plain(Family::See, format!("see {thing}"), format!("saw {thing}"), thing.into()) }
            }
            14..17 => {
                let (verb, thing) = w::MAKINGS.pick(rng).split_once(':').expect("a making has a thing");
                let (now, past) = verb.split_once('/').expect("a making has a past");
                let thing = with_article(thing);
                plain(Family::Make, format!("{now} {thing}"), format!("{past} {thing}"), thing)
            }
            _ => {
                let (want, did) = w::BONDS.pick(rng).split_once('=').expect("a bond has a past");
                plain(Family::Bond, want.into(), did.into(), String::new())
            }
        }
    }
}

impl Wish {
    /// The words that must stand in a story about this wish: the object, or for a skill or a bond what is wanted.
    pub fn thing_or_deed(&self) -> &str {
        match self.family {
            Family::Find | Family::See | Family::Make => &self.thing,
            Family::Skill | Family::Bond => &self.want,
        }
    }
}

/// A listed name, or one in four times an invented one, so that the model learns to copy names it never saw.
pub fn name(rng: &mut Rng, gender: Gender) -> String {
    if rng.chance(0.78) {
        return match gender {
            Gender::Her => w::HER_NAMES.pick(rng),
            Gender::His => w::HIS_NAMES.pick(rng),
        }
        .to_string();
    }
    let starts = [
        "b", "br", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pr", "r", "s", "st", "t",
        "tr", "v", "w", "z", "",
    ];
    let vowels = ["a", "e", "i", "o", "u", "ee", "oo", "ai", "ia"];
    let middles = ["l", "m", "n", "r", "nd", "ll", "tt", "v", "b", "k", "pp", "rl", "s", "z", "d"];
    let ends: &[&str] = match gender {
        Gender::Her => &["a", "ia", "ie", "y", "elle", "ine", "a", "ette"],
        Gender::His => &["o", "us", "in", "en", "ik", "or", "an", "el"],
    };
    let mut made = rng.pick(&starts).to_string() + rng.pick(&vowels) + rng.pick(&middles);
    if rng.chance(0.3) {
        made = made + rng.pick(&vowels) + rng.pick(&middles);
    }
    capitalise(&(made + rng.pick(ends)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_never_shows_a_held_out_combination() {
        let held_out =
            |split| (0..2000).filter(|n| Plot::random(&mut Rng::keyed(&[3, *n]), split).is_held_out()).count();
        assert_eq!((held_out(Split::Train), held_out(Split::HeldOut)), (0, 2000));
    }

    #[test]
    fn a_story_keeps_its_pronouns_and_its_name() {
        for n in 0..2000 {
            let mut rng = Rng::keyed(&[4, n]);
            let mut plot = Plot::random(&mut rng, Split::Train);
            plot.helper.gender = plot.hero.gender;
            let story = plot.tell(&mut rng, n % 2 == 0);
            let strangers: &[&str] = match plot.hero.gender {
                Gender::Her => &["he", "him", "his", "himself"],
                Gender::His => &["she", "her", "herself"],
            };
            // Pronouns of somebody else in the same sentence are no slip.
            let others = ["when she was a child", "on her wedding day", "called him back", "made her smile"];
            let own = others.iter().fold(story.clone(), |own, phrase| own.replace(phrase, ""));
            let mut words = own.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase);
            assert!(!words.any(|word| strangers.contains(&word.as_str())), "{story}");
            assert!(story.contains(&plot.hero.name) && !story.contains(['{', '[', '|']), "{story}");
        }
    }
}
