//! Small skills that make demonstrations honest: counting, lists, repeating, JSON, plain questions, greetings.

use crate::chat::{Role, Turns};
use crate::facts;
use crate::rng::Rng;
use crate::story::{self, Gender, Plot, Split};
use crate::template::{capitalise, expand, with_article};
use crate::words as w;

/// One exchange of a random skill.
pub fn random(rng: &mut Rng, split: Split) -> Turns {
    let (user, assistant) = match rng.below(20) {
        0..3 => count(rng),
        3..6 => list(rng),
        6..9 => repeat(rng, split),
        9..11 => greeting(rng),
        11..13 => definition(rng),
        13..15 => members(rng),
        15 => json(rng, split),
        16 => arithmetic(rng),
        17 => opposite(rng),
        18 => unknown(rng),
        _ => spelling(rng),
    };
    vec![(Role::User, user), (Role::Assistant, assistant)]
}

/// Something to be said again.
pub fn repeating(rng: &mut Rng, split: Split) -> Turns {
    let (user, assistant) = repeat(rng, split);
    vec![(Role::User, user), (Role::Assistant, assistant)]
}

/// A system message, with nothing in it that the model could not do.
pub fn system(rng: &mut Rng) -> String {
    rng.pick(&[
        "You are a helpful assistant.",
        "You are a storyteller.",
        "You tell short stories for children.",
        "You are Storyteller, a tiny model built into Forebay.",
        "You are a friendly assistant. Answer in short sentences.",
        "Be brief.",
        "You are a kind storyteller who answers questions about stories.",
        "Answer the user's questions.",
    ])
    .to_string()
}

fn say(template: &str, rng: &mut Rng) -> String {
    expand(template, rng, &|_| None)
}

fn count(rng: &mut Rng) -> (String, String) {
    let from = if rng.chance(0.6) { 1 } else { rng.between(2, 40) };
    let to = from + rng.between(2, 19);
    let join = |numbers: Vec<usize>| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if rng.chance(0.15) {
        let numbers: Vec<usize> = (from..=to).rev().collect();
        let ask = say("[Count down from|Count backwards from|Please count down from]", rng);
        return (format!("{ask} {to} to {from}."), join(numbers));
    }
    let numbers = join((from..=to).collect());
    if from == 1 && rng.chance(0.5) {
        let ask = say("[Count to|Please count to|Can you count to|Count up to]", rng);
        let stop = if ask.starts_with("Can") { "?" } else { "." };
        return (format!("{ask} {to}{stop}"), numbers);
    }
    (say("[Count from|Please count from|Count the numbers from]", rng) + &format!(" {from} to {to}."), numbers)
}

fn list(rng: &mut Rng) -> (String, String) {
    let items: Vec<String> = match rng.below(7) {
        0 => facts::DAYS.all().iter().map(|day| day.to_string()).collect(),
        1 => facts::MONTHS.all().iter().map(|month| month.to_string()).collect(),
        2 => ('A'..='Z').map(String::from).collect(),
        3 => (1..=20).map(|n| (2 * n).to_string()).collect(),
        4 => (1..=20).map(|n| (5 * n).to_string()).collect(),
        5 => (1..=20).map(|n| (10 * n).to_string()).collect(),
        _ => facts::ORDINALS.all().iter().map(|word| word.to_string()).collect(),
    };
    if items[0] == "Monday" && rng.chance(0.3) {
        return (
            say("[What are the days of the week?|Name the days of the week.|List the days of the week.]", rng),
            items.join(", "),
        );
    }
    if items[0] == "January" && rng.chance(0.3) {
        return (
            say("[What are the months of the year?|Name the months.|List the twelve months.]", rng),
            items.join(", "),
        );
    }
    if items[0] == "A" && rng.chance(0.2) {
        return (say("[Say the alphabet.|What is the alphabet?|Recite the alphabet.]", rng), items.join(", "));
    }
    let start = rng.below(items.len() - 4);
    let shown = start + rng.between(2, 4).min(items.len() - 2 - start);
    let end = (shown + rng.between(3, 8)).min(items.len());
    let ask = say("[Continue the list:|Continue:|What comes next?|Go on:|Please continue this list:]", rng);
    (format!("{ask} {}", items[start..shown].join(", ")), items[shown..end].join(", "))
}

fn repeat(rng: &mut Rng, split: Split) -> (String, String) {
    let plot = Plot::random(rng, split);
    let phrase = match rng.below(6) {
        0 => plot.home(),
        1 => plot.say("{N} the {kind} likes {food}.", rng),
        2 => w::OBJECT_WORDS.pick(rng).to_string() + " " + w::OBJECTS.pick(rng),
        3 => (0..rng.between(2, 6)).map(|_| random_word(rng)).collect::<Vec<_>>().join(" "),
        4 => rng
            .pick(&[
                "this is a test",
                "hello world",
                "good morning",
                "I love stories",
                "one two three",
                "the quick brown fox jumps over the lazy dog",
            ])
            .to_string(),
        _ => plot.say("{Time}, {n} wanted to {want}.", rng),
    };
    if rng.chance(0.25) {
        let word = random_word(rng);
        let times = rng.between(2, 6);
        let spoken = ["two", "three", "four", "five", "six"][times - 2];
        return (format!("Say {word} {spoken} times."), vec![word; times].join(" "));
    }
    let ask = say("[Repeat after me:|Say:|Please say:|Repeat this:|Say this:|Echo:]", rng);
    (format!("{ask} {phrase}"), phrase)
}

fn random_word(rng: &mut Rng) -> &'static str {
    let tables = [&w::OBJECTS, &w::FOODS, &w::ANIMALS, &w::TRAITS, &w::OBJECT_WORDS, &w::HER_NAMES, &w::HIS_NAMES];
    rng.pick(&tables).pick(rng)
}

fn greeting(rng: &mut Rng) -> (String, String) {
    let (asks, answers) = rng.pick(facts::SMALL_TALK);
    if rng.chance(0.2) {
        let gender = rng.pick(&[Gender::Her, Gender::His]);
        let name = story::name(rng, gender);
        let ask = say("[Hello, my name is|Hi, I am|My name is|Hello! I am]", rng);
        return (
            format!("{ask} {name}."),
            format!(
                "Hello, {name}! {}",
                say("[Would you like a story?|What shall I tell you about?|It is nice to meet you.]", rng)
            ),
        );
    }
    (rng.pick(asks).to_string(), say(rng.pick(answers), rng))
}

fn definition(rng: &mut Rng) -> (String, String) {
    let (thing, what) = facts::DEFINITIONS.pick(rng).split_once('=').expect("a definition has two sides");
    let thing = with_article(thing);
    let ask = format!("{} {thing}?", rng.pick(&["What is", "What is", "Do you know what", "Tell me, what is"]));
    let ask = if ask.starts_with("Do") { ask.trim_end_matches('?').to_string() + " is?" } else { ask };
    (ask, format!("{} is {what}.", capitalise(&thing)))
}

fn members(rng: &mut Rng) -> (String, String) {
    let category_row = rng.pick(facts::CATEGORIES);
    let (category, items) = category_row.split_once(": ").expect("a category has members");
    let items: Vec<&str> = items.split(", ").collect();
    let singular = category.split('/').nth(1).expect("a category has a singular");
    // Not for mass nouns: "a water" is no English.
    let countable = facts::CATEGORIES[..11].contains(&category_row) && singular != "color";
    if countable && rng.chance(0.3) {
        let (one, other) = (rng.pick(&items), facts::CATEGORIES[rng.below(11)]);
        let stranger =
            rng.pick(&other.split_once(": ").expect("a category has members").1.split(", ").collect::<Vec<_>>());
        if rng.chance(0.5) || items.contains(&stranger) || singular == "animal" || other.starts_with("colors") {
            let (one, singular) = (with_article(one), with_article(singular));
            return (format!("Is {one} {singular}?"), format!("Yes, {one} is {singular}."));
        }
        let (one, singular) = (with_article(stranger), with_article(singular));
        return (format!("Is {one} {singular}?"), format!("No, {one} is not {singular}."));
    }
    let n = rng.between(2, 5);
    let word = ["two", "three", "four", "five"][n - 2];
    let plural = category.split('/').next().expect("a category has a plural");
    let ask = say("[Name|List|Tell me|Can you name|Give me]", rng);
    let stop = if ask.starts_with("Can") { "?" } else { "." };
    (format!("{ask} {word} {plural}{stop}"), capitalise(&(rng.sample(&items, n).join(", ") + ".")))
}

fn json(rng: &mut Rng, split: Split) -> (String, String) {
    let plot = Plot::random(rng, split);
    let (hero, age) = (&plot.hero, rng.between(2, 99));
    match rng.below(3) {
        0 => (
            format!("Describe {} the {} as JSON.", hero.name, hero.kind),
            format!("{{\"name\": \"{}\", \"kind\": \"{}\", \"age\": {age}}}", hero.name, hero.kind),
        ),
        1 => (
            "Invent a character and answer in JSON.".to_string(),
            format!("{{\"name\": \"{}\", \"kind\": \"{}\", \"age\": {age}}}", hero.name, hero.kind),
        ),
        _ => (
            plot.say("{N} the {kind} lives {home}. Answer in JSON.", rng),
            format!("{{\"name\": \"{}\", \"kind\": \"{}\", \"home\": \"{}\"}}", hero.name, hero.kind, plot.place.2),
        ),
    }
}

fn arithmetic(rng: &mut Rng) -> (String, String) {
    let (a, b) = (rng.between(1, 10), rng.between(1, 10));
    if rng.chance(0.5) {
        (format!("What is {a} plus {b}?"), format!("{a} plus {b} is {}.", a + b))
    } else {
        let (a, b) = (a.max(b), a.min(b));
        (format!("What is {a} minus {b}?"), format!("{a} minus {b} is {}.", a - b))
    }
}

fn opposite(rng: &mut Rng) -> (String, String) {
    let (one, other) = facts::OPPOSITES.pick(rng).split_once('/').expect("an opposite has two sides");
    let (one, other) = if rng.chance(0.5) { (one, other) } else { (other, one) };
    (format!("What is the opposite of {one}?"), format!("The opposite of {one} is {other}."))
}

fn unknown(rng: &mut Rng) -> (String, String) {
    (
        rng.pick(facts::TOO_HARD).to_string(),
        say(
            "[I am only a small storyteller, and I do not know that.|I do not know that. I am a tiny model that tells stories.|That is too hard for me. I only know little stories.] [Would you like a story?|Shall I tell you a story instead?|Ask me for a story!]",
            rng,
        ),
    )
}

fn spelling(rng: &mut Rng) -> (String, String) {
    let word = random_word(rng);
    let letters: Vec<String> = word.to_uppercase().chars().filter(|c| c.is_alphabetic()).map(String::from).collect();
    (format!("Spell {word}."), letters.join("-"))
}
