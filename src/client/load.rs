//! A scenario's requests against a live server: open loop (each at its own time) or closed (a number of clients, each asking
//! again as soon as it is answered).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Ask, Client, ClientError, Prompt};
use forebay_clock::Clock;
use forebay_core::units::Micros;
use forebay_sim::measure::{End, Measured, Record};
use forebay_sim::scenario::Arrival;

/// Who sets the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The scenario's times, whatever the server does.
    Open,
    /// So many clients that wait for their answers.
    Closed(usize),
}

/// What prompts are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Token ids, so that lengths are exact; every server that takes lists of them has those below 256.
    Tokens,
    /// English words, of about a token each, for servers that take only text.
    Text,
}

/// How to send a scenario's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub pace: Pace,
    pub words: Words,
    pub ignore_eos: bool,
    /// Of the prompts' words: a server that has seen a run with the same one may have its prompts in its cache.
    pub seed: u64,
}

/// What a request met.
struct Sample {
    at: usize,
    sent: Micros,
    /// When its chunks came.
    chunks: Vec<Micros>,
    /// As the server counted them.
    tokens: Option<(u32, u32)>,
    ended: Micros,
    error: Option<ClientError>,
}

/// Sends every request and waits for all answers. `progress` hears of each that has ended. The first error that is no
/// refusal is told, too.
pub async fn run(
    client: &Client,
    classes: &[String],
    arrivals: &[Arrival],
    plan: Plan,
    progress: &mut (dyn FnMut() + Send),
) -> (Measured, Option<ClientError>) {
    let clock = Clock::system();
    let arrivals: Arc<[Arrival]> = arrivals.into();
    let mut tasks = JoinSet::new();
    match plan.pace {
        Pace::Open => {
            for at in 0..arrivals.len() {
                let (client, arrivals, clock) = (client.clone(), arrivals.clone(), clock.clone());
                tasks.spawn(async move {
                    sleep(Duration::from_micros(arrivals[at].at.since(clock.now()).0)).await;
                    vec![ask(&client, at, &arrivals[at], plan, &clock).await]
                });
            }
        }
        Pace::Closed(clients) => {
            let next = Arc::new(AtomicUsize::new(0));
            for _ in 0..clients {
                let (client, arrivals, clock) = (client.clone(), arrivals.clone(), clock.clone());
                let next = next.clone();
                tasks.spawn(async move {
                    let mut samples = Vec::new();
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(arrival) = arrivals.get(at) else { break samples };
                        samples.push(ask(&client, at, arrival, plan, &clock).await);
                    }
                });
            }
        }
    }
    let mut samples = Vec::with_capacity(arrivals.len());
    while let Some(done) = tasks.join_next().await {
        let done = done.expect("a request's task neither panics nor is aborted");
        done.iter().for_each(|_| progress());
        samples.extend(done);
    }
    measured(classes, &arrivals, samples)
}

async fn ask(client: &Client, at: usize, arrival: &Arrival, plan: Plan, clock: &Clock) -> Sample {
    let ask = Ask {
        prompt: prompt(at, arrival, plan),
        max_tokens: arrival.output_tokens,
        ignore_eos: plan.ignore_eos,
        priority: arrival.priority,
        ..Ask::default()
    };
    let sent = clock.now();
    let mut sample = Sample { at, sent, chunks: Vec::new(), tokens: None, ended: sent, error: None };
    if let Err(error) = follow(client, &ask, &mut sample, clock).await {
        sample.error = Some(error);
    }
    sample.ended = clock.now();
    sample
}

async fn follow(client: &Client, ask: &Ask, sample: &mut Sample, clock: &Clock) -> Result<(), ClientError> {
    let mut stream = client.stream(ask).await?;
    while stream.next().await?.is_some() {
        sample.chunks.push(clock.now());
    }
    sample.tokens = stream.usage().map(|usage| (usage.prompt_tokens, usage.completion_tokens));
    Ok(())
}

/// Of the arrival's length, and beginning like no other: prefix caches must not help.
fn prompt(at: usize, arrival: &Arrival, plan: Plan) -> Prompt {
    const WORDS: [&str; 16] = [
        "the", "a", "river", "stone", "small", "water", "gate", "and", "of", "house", "light", "old", "tree", "went",
        "under", "hill",
    ];
    let mut state = plan.seed ^ (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut draw = || {
        // The high bits of a linear congruential generator (Knuth's MMIX).
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let count = arrival.prompt_tokens as usize;
    match plan.words {
        // Not the lowest ones, which are often special.
        Words::Tokens => Prompt::Tokens((0..count).map(|_| 16 + draw() % 224).collect()),
        Words::Text => {
            let words: Vec<&str> = (0..count).map(|_| WORDS[draw() as usize % WORDS.len()]).collect();
            Prompt::Text(words.join(" "))
        }
    }
}

fn measured(classes: &[String], arrivals: &[Arrival], mut samples: Vec<Sample>) -> (Measured, Option<ClientError>) {
    let mut measured = Measured::new(classes.to_vec());
    samples.sort_by_key(|sample| sample.at);
    let began = samples.iter().map(|sample| sample.sent).min().unwrap_or_default();
    let mut first_error = None;
    for (at, sample) in samples.into_iter().enumerate() {
        let arrival = &arrivals[sample.at];
        measured.records.push(Record {
            class: arrival.class,
            priority: arrival.priority,
            sent: sample.sent.since(began),
            prompt_tokens: sample.tokens.map_or(arrival.prompt_tokens, |(prompt, _)| prompt),
            output_tokens: 0,
            first_token: None,
            last: sample.sent.since(began),
            end: End::Open,
        });
        sample.chunks.iter().for_each(|chunk| measured.token(at, chunk.since(began)));
        let end = match &sample.error {
            None => End::Completed,
            Some(error) if error.is_refusal() => End::Refused,
            Some(_) => End::Failed,
        };
        measured.end(at, end, sample.ended.since(began));
        if let Some((_, completion)) = sample.tokens {
            measured.records[at].output_tokens = completion;
        }
        measured.duration = measured.duration.max(sample.ended.since(began));
        first_error = first_error.or(sample.error.filter(|error| !error.is_refusal()));
    }
    (measured, first_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::request::Priority;

    #[test]
    fn prompts_have_their_length_and_differ_from_the_beginning() {
        let arrival =
            Arrival { at: Micros::ZERO, class: 0, priority: Priority::Normal, prompt_tokens: 40, output_tokens: 1 };
        let plan = Plan { pace: Pace::Open, words: Words::Tokens, ignore_eos: true, seed: 1 };
        let tokens = |at, plan| match prompt(at, &arrival, plan) {
            Prompt::Tokens(tokens) => tokens,
            Prompt::Text(text) => panic!("{text}"),
        };
        assert!(tokens(0, plan).len() == 40 && tokens(0, plan) == tokens(0, plan));
        assert!((1..50).all(|at| tokens(at, plan)[..4] != tokens(0, plan)[..4]));
        assert_ne!(tokens(0, plan), tokens(0, Plan { seed: 2, ..plan }));
        let Prompt::Text(text) = prompt(0, &arrival, Plan { words: Words::Text, ..plan }) else { panic!("no text") };
        assert_eq!(text.split(' ').count(), 40);
    }
}
