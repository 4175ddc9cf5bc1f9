//! Conversations around stories: requests in many phrasings, and questions about the story just told.

use crate::rng::Rng;
use crate::story::{Family, Plot, Split};
use crate::template::{capitalise, with_article};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    System,
    User,
    Assistant,
}

/// Who says what, in order.
pub type Turns = Vec<(Role, String)>;

/// A request for a story and the story; `long` tells the long form.
pub fn story_chat(rng: &mut Rng, plot: &Plot, long: bool) -> Turns {
    let mut ask = request(rng, plot);
    if long {
        ask = rng
            .pick(&["Tell me a long story. ", "Please make it a long story. ", "I would like a long story. "])
            .to_string()
            + &ask;
    }
    vec![(Role::User, ask), (Role::Assistant, plot.tell(rng, long))]
}

/// A request that says who the story is about, and where it happens or what is wished, or both; and the story.
pub fn pointed_chat(rng: &mut Rng, plot: &Plot) -> Turns {
    let ask = rng.pick(&[
        "{tell} a story about {a:kind} named {n} who wants to {want}.",
        "{tell} a story about {a:kind} named {n} who lives {home}.",
        "{tell} a story about {a:kind} named {n} who lives {home} and wants to {want}.",
        "{tell} a story about {n} the {kind}, who lives {home} and wants to {want}.",
        "{tell} a story about {n} the {kind}, who wants to {want}.",
        "{tell} a story about {a:nature} {kind} named {n}.",
        "{tell} a story about {a:kind} named {n}.",
        "{tell} a story about {a:kind} who lives {home} and wants to {want}.",
        "{tell} a story about {a:kind} who wants to {want}.",
        "{tell} a story about {n}, {a:kind} {home}.",
        "{Home} lives {a:kind} named {n}. {tell} a story about {him}.",
        "{N} the {kind} wants to {want}. {tell} a story about {him}.",
    ]);
    vec![(Role::User, worded(rng, plot, ask)), (Role::Assistant, plot.tell(rng, false))]
}

/// A story and one to three questions about it.
pub fn question_chat(rng: &mut Rng, plot: &Plot) -> Turns {
    let mut pairs = questions(rng, plot);
    let asked = rng.between(1, 3);
    let chosen: Vec<usize> = rng.sample(&(0..pairs.len()).collect::<Vec<_>>(), asked);
    let mut chosen: Vec<(String, String)> = chosen.into_iter().map(|i| std::mem::take(&mut pairs[i])).collect();
    let mut turns = Vec::new();
    if rng.chance(0.6) {
        turns = story_chat(rng, plot, false);
    } else {
        let (question, answer) = chosen.remove(0);
        let story = plot.tell(rng, false);
        let text = match rng.below(4) {
            0 => format!("{story} {question}"),
            1 => format!("Here is a story. {story} {question}"),
            2 => format!("{story}\n\n{question}"),
            _ => format!("Read this story and answer the question.\n\n{story}\n\n{question}"),
        };
        turns.push((Role::User, text));
        turns.push((Role::Assistant, answer));
    }
    for (question, answer) in chosen {
        turns.push((Role::User, question));
        turns.push((Role::Assistant, answer));
    }
    turns
}

/// Facts, then a question; shorter than a story, so that finding an answer is practised often.
pub fn facts_chat(rng: &mut Rng, split: Split) -> Turns {
    let count = rng.between(2, 3);
    let plots: Vec<Plot> = (0..count).map(|_| Plot::random(rng, split)).collect();
    let mut facts: Vec<String> = Vec::new();
    for plot in &plots {
        let fact = rng.pick(&[
            "{N} is {a:nature} {kind}. {He} lives {home}.",
            "{N} the {kind} lives {home}.",
            "{N} the {kind} likes {food}.",
            "{N} the {kind} lives {home} and likes {food}.",
            "{N} is {a:kind} who wants to {want}.",
        ]);
        facts.push(plot.say(fact, rng));
    }
    let asked = rng.below(count);
    let plot = &plots[asked];
    let (fact, n) = (&facts[asked], &plot.hero.name);
    let mut can = vec![(format!("What is {n}?"), format!("{n} is {}.", with_article(plot.hero.kind)))];
    if fact.contains(" lives ") {
        can.push((format!("Where does {n} live?"), format!("{n} lives {}.", plot.home())));
        can.push((format!("Who lives {}?", plot.home()), format!("{n} lives {}.", plot.home())));
    }
    if fact.contains(" likes ") {
        can.push((format!("What does {n} like?"), format!("{n} likes {}.", plot.food)));
        can.push((format!("Who likes {}?", plot.food), format!("{n} likes {}.", plot.food)));
    }
    if fact.contains(" wants ") {
        can.push((format!("What does {n} want?"), format!("{n} wants to {}.", plot.wish.want)));
    }
    let (question, answer) = can.swap_remove(rng.below(can.len()));
    vec![(Role::User, format!("{} {question}", facts.join(" "))), (Role::Assistant, answer)]
}

/// A request that names some of the plot's parts.
pub fn request(rng: &mut Rng, plot: &Plot) -> String {
    let mut asks = vec![
        "{tell} a story about {a:kind} named {n}.",
        "{tell} a story about {a:kind} named {n} who wants to {want}.",
        "{tell} a story about {a:nature} {kind} named {n}.",
        "{tell} a story about {n} the {kind}.",
        "{tell} a story about {n}.",
        "{tell} a story about {a:kind}.",
        "{tell} a story about {a:kind} who wants to {want}.",
        "{tell} a story that happens {home}.",
        "{tell} a story set {home}.",
        "{tell} a story about {a:kind} named {n} who lives {home}.",
        "{tell} a story about {a:kind} who lives {home} and wants to {want}.",
        "{tell} a story about someone who wants to {want}.",
        "{tell} a story.",
        "I would like a story about {n}, {a:kind}[, please|].",
        "A story about {a:kind} called {n}, please.",
        "Do you know a story about {a:kind} named {n}?",
        "Make up a tale about {n} the {kind}. {He} wants to {want}.",
        "Tell me about {a:kind} named {n}.",
        "My name is {n}. Tell me a story about me.",
        "Once upon a time there was {a:kind} named {n}. What happened next?",
        "{n}, {a:kind}, {in} {a:place}: tell me a story.",
        "Please write about {n}, who wants to {want}.",
        "I cannot sleep. {tell} a story about {a:kind} named {n}.",
        "story about {n} the {kind}",
        "[Another|A new|One more] story, please. This time about {a:kind} named {n}.",
    ];
    if !plot.helper.name.is_empty() {
        asks.extend([
            "{tell} a story about {n} the {kind} and {m} the {mkind}.",
            "{tell} a story in which {a:kind} named {n} meets {a:mkind} named {m}.",
            "{tell} a story about {n} and {m}.",
        ]);
    }
    if plot.wish.family == Family::Find {
        asks.push("{tell} a story about {a:kind} and {thing}.");
        asks.push("{tell} a story about {n} and {thing}.");
    }
    // The listed forms with a name and a kind are what people type most.
    let ask = if rng.chance(0.25) { asks[rng.below(4)] } else { asks[rng.below(asks.len())] };
    worded(rng, plot, ask)
}

/// A request in one of many wordings; `{tell}` in `ask` becomes "tell me", "write" and the like.
fn worded(rng: &mut Rng, plot: &Plot, ask: &str) -> String {
    let tell = "[[Please tell|Tell|Can you tell|Could you tell|Would you tell] me|Write|Write me|Please write|Make up|Tell us|Give me]";
    let short = rng.pick(&["", "", "", "short ", "little ", "funny ", "bedtime ", "very short ", "nice "]);
    let ask = ask.replace("{tell} a story", &format!("{tell} a {short}story"));
    let mut text = plot.say(&ask.replace("{tell}", tell), rng);
    if text.starts_with("Can") || text.starts_with("Could") || text.starts_with("Would") {
        text = text.trim_end_matches('.').to_string() + "?";
    }
    match rng.below(8) {
        0 => text.trim_end_matches('.').to_string(),
        1 => {
            let mut chars = text.chars();
            chars.next().map(|c| c.to_lowercase().chain(chars).collect()).unwrap_or_default()
        }
        _ => text,
    }
}

fn questions(rng: &mut Rng, plot: &Plot) -> Vec<(String, String)> {
    let (hero, wish) = (&plot.hero, &plot.wish);
    let n = &hero.name;
    let mut pairs = vec![
        (
            rng.pick(&["What did {n} want?", "What was the wish of {n}?", "What did {n} want to do?"]),
            "{N} wanted to {want}.",
        ),
        (rng.pick(&["Where did {n} live?", "Where was the home of {n}?"]), "{N} lived {home}."),
        (rng.pick(&["Who wanted to {want}?", "Who is the story about?", "Who is the hero of the story?"]), "{WHO}"),
        (rng.pick(&["What was {n}?", "What kind of character was {n}?", "What is {n}?"]), "{N} was {a:nature} {kind}."),
        (rng.pick(&["What was the problem?", "What stopped {n}?", "What made it hard for {n}?"]), "{WHAT}"),
        (rng.pick(&["Who helped {n}?", "Who was the helper?", "Who came to help?"]), "{HELP}"),
        (rng.pick(&["Did {n} get what {he} wanted?", "Did the wish come true?"]), "Yes. {N} {did}."),
        (
            rng.pick(&["How did it end?", "What happened in the end?", "How does the story end?"]),
            "In the end, {n} {did}.",
        ),
    ];
    if wish.family == Family::Find {
        pairs.push((rng.pick(&["What did {n} find?", "What was found in the story?"]), "{N} found {thing}."));
    }
    if wish.family == Family::See {
        pairs.push(("What did {n} see?", "{N} saw {thing}."));
    }
    let helper = &plot.helper;
    let helped = if helper.name.is_empty() {
        format!("{} helped {n}.", capitalise(&helper.introduction()))
    } else {
        format!("{} the {} helped {n}.", helper.name, helper.kind)
    };
    pairs
        .into_iter()
        .map(|(question, answer)| {
            let answer = match answer {
                "{WHAT}" => format!("The problem was {}.", plot.obstacle.what),
                "{HELP}" => helped.clone(),
                "{WHO}" if question.contains("hero") || question.contains("about") => {
                    format!("The story is about {n} the {}.", hero.kind)
                }
                "{WHO}" => "{N} wanted to {want}.".to_string(),
                other => other.to_string(),
            };
            (plot.say(question, rng), plot.say(&answer, rng))
        })
        .collect()
}
