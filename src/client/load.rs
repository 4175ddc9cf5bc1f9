//! A scenario's requests against a live server: open loop (each at its own time) or closed (a number of clients, each asking
//! again as soon as it is answered).

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Ask, Client, ClientError, Prompt};
use forebay_clock::Clock;
use forebay_core::units::Micros;
use forebay_sim::Arrival;
use forebay_sim::measure::{End, Measured, Record};

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

/// Of the arrival's length. It begins like no other, so that prefix caches do not help, unless the arrival says like which.
fn prompt(at: usize, arrival: &Arrival, plan: Plan) -> Prompt {
    const WORDS: [&str; 16] = [
        "the", "a", "river", "stone", "small", "water", "gate", "and", "of", "house", "light", "old", "tree", "went",
        "under", "hill",
    ];
    let draws: Vec<u32> = match &arrival.shared {
        None => draws(plan.seed, at as u64).take(arrival.prompt_tokens as usize).collect(),
        Some(shared) => {
            let part = |name: &u32| draws(plan.seed, u64::from(*name)).take(shared.tokens as usize);
            let rest = draws(plan.seed, u64::MAX - 1 - at as u64);
            shared.names.iter().flat_map(part).chain(rest).take(arrival.prompt_tokens as usize).collect()
        }
    };
    match plan.words {
        // Not the lowest ones, which are often special.
        Words::Tokens => Prompt::Tokens(draws.into_iter().map(|draw| 16 + draw % 224).collect()),
        Words::Text => {
            let words: Vec<&str> = draws.into_iter().map(|draw| WORDS[draw as usize % WORDS.len()]).collect();
            Prompt::Text(words.join(" "))
        }
    }
}

/// The high bits of a linear congruential generator (Knuth's MMIX); another sequence for each `stream`.
fn draws(seed: u64, stream: u64) -> impl Iterator<Item = u32> {
    let mut state = seed ^ stream.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    })
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
            predicted: None,
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
    use forebay_sim::arrival::Shared;

    fn arrival(shared: Option<Shared>) -> Arrival {
        let (at, priority) = (Micros::ZERO, Priority::Normal);
        Arrival { at, class: 0, priority, prompt_tokens: 40, output_tokens: 1, shared }
    }

    #[test]
    fn prompts_that_share_a_beginning_begin_alike() {
        let plan = Plan { pace: Pace::Open, words: Words::Tokens, ignore_eos: true, seed: 1 };
        let tokens = |at, names: [u32; 2]| {
            let shared = Shared { names: names.into(), tokens: 15 };
            match prompt(at, &arrival(Some(shared)), plan) {
                Prompt::Tokens(tokens) => tokens,
                Prompt::Text(text) => panic!("{text}"),
            }
        };
        let (one, two, three) = (tokens(0, [7, 8]), tokens(1, [7, 8]), tokens(2, [7, 9]));
        assert_eq!((one.len(), &one[..30]), (40, &two[..30]));
        assert_ne!(one[30..], two[30..], "what nothing is said of is the request's own");
        assert_eq!(one[..15], three[..15]);
        assert_ne!(one[15..30], three[15..30]);
    }

    #[test]
    fn prompts_have_their_length_and_differ_from_the_beginning() {
        let arrival = arrival(None);
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
