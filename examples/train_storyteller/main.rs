//! Trains the storyteller, the tiny Llama that is built into Forebay, on a corpus that this program generates.
//!
//! ```text
//! cargo run --example train_storyteller -- train      # resumes from --work if it holds a checkpoint
//! cargo run --example train_storyteller -- export     # weights of the checkpoint into --out
//! cargo run --example train_storyteller -- sample "Tell me a story about a fox."
//! cargo run --example train_storyteller -- judge      # 50 stories: ends, names, novelty
//! cargo run --example train_storyteller -- card       # MODEL_CARD.md and its picture, after judge
//! cargo run --example train_storyteller -- corpus     # prints documents of the corpus and counts its words
//! ```
//!
//! The corpus (`story`, `chat`, `skills` over the tables of `words`, `phrases`, `facts`) is a function of a seed; a
//! training row is a function of (seed, step, row), so nothing repeats, nothing is stored, and a run resumes anywhere.

mod card;
mod chat;
mod corpus;
mod facts;
mod judge;
mod model;
mod obstacles;
mod optim;
mod phrases;
mod rng;
mod sample;
mod skills;
mod story;
mod template;
mod tokenizer;
mod train;
mod words;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::chat::Role;
use crate::corpus::{BROAD_STEPS, Document, Mix, Stream};
use crate::judge::Told;
use crate::model::{Llama, STORYTELLER};
use crate::optim::Schedule;
use crate::sample::{Drawing, Storyteller};
use crate::story::Split;
use crate::tokenizer::Codec;
use crate::train::{Plan, SEED, State};

/// Trains, samples and judges the storyteller.
#[derive(Parser)]
struct Arguments {
    /// Checkpoints and other things that are not shipped.
    #[arg(long, default_value = "target/storyteller")]
    work: PathBuf,
    /// What ships: weights, tokenizer, configuration, model card.
    #[arg(long, default_value = "models/storyteller")]
    out: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Trains, or goes on from the checkpoint in --work; exports to --out at every save.
    Train {
        /// The whole run; may be lowered when resuming, to land early.
        #[arg(long, default_value_t = 4050)]
        steps: usize,
        #[arg(long, default_value_t = 2048)]
        tokens_per_step: usize,
        /// Threads that share the rows of a step; run with RAYON_NUM_THREADS=1 then, so that candle adds none.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Peak learning rate.
        #[arg(long, default_value_t = 3e-3)]
        rate: f64,
        #[arg(long, default_value_t = 100)]
        warmup: usize,
        #[arg(long, default_value_t = 120)]
        save_seconds: u64,
        /// Stop after so many steps without saving: measures the speed.
        #[arg(long)]
        measure: Option<usize>,
    },
    /// Writes the weights of the checkpoint in --work to --out.
    Export,
    /// Answers a message, or continues a text, with the model in --out.
    Sample {
        prompt: String,
        /// Continue the text instead of answering it.
        #[arg(long)]
        raw: bool,
        #[arg(long, default_value_t = 1)]
        count: u64,
        #[arg(long, default_value_t = 0.7)]
        temperature: f64,
        #[arg(long, default_value_t = 300)]
        max_tokens: usize,
    },
    /// Tells stories about combinations that training never showed and reports on them; writes judge.json to --work.
    Judge {
        #[arg(long, default_value_t = 50)]
        count: usize,
        #[arg(long, default_value_t = 0.7)]
        temperature: f64,
        /// As in training: the corpus is generated again, as far as the checkpoint in --work got.
        #[arg(long, default_value_t = 2048)]
        tokens_per_step: usize,
    },
    /// Writes MODEL_CARD.md and loss.svg to --out, from the checkpoint and judge.json in --work.
    Card {
        #[arg(long, default_value_t = 2048)]
        tokens_per_step: usize,
    },
    /// Prints documents of the corpus and counts its words.
    Corpus {
        #[arg(long, default_value_t = 20)]
        show: usize,
        #[arg(long, default_value_t = 20_000)]
        count: usize,
    },
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Command::Train { steps, tokens_per_step, threads, rate, warmup, save_seconds, measure } => {
            let plan = Plan {
                work: arguments.work.clone(),
                out: arguments.out.clone(),
                schedule: Schedule { peak: rate, warmup, broad: steps.min(BROAD_STEPS), steps },
                tokens_per_step,
                threads,
                save_every: Duration::from_secs(save_seconds),
                evaluate_every: 50,
                at_most: measure,
            };
            train_model(&arguments, &plan)
        }
        Command::Export => State::load(STORYTELLER, &arguments.work)?.export(&arguments.out),
        Command::Sample { prompt, raw, count, temperature, max_tokens } => {
            let teller = Storyteller::load(&arguments.out)?;
            for seed in 0..count {
                let drawing = Drawing { temperature, max_tokens, seed };
                let told = if raw {
                    teller.go_on(&prompt, drawing)?
                } else {
                    teller.answer(&vec![(Role::User, prompt.clone())], drawing)?
                };
                println!("{}\n[{} tokens, {}]\n", told.text, told.tokens, if told.ended { "ended" } else { "cut" });
            }
            Ok(())
        }
        Command::Judge { count, temperature, tokens_per_step } => {
            let teller = Storyteller::load(&arguments.out)?;
            let steps = State::load(STORYTELLER, &arguments.work)?.step;
            let told = Told::again(&teller.codec, steps, tokens_per_step);
            let report = judge::judge(&teller, &told, count, temperature)?;
            write(&arguments.work.join("judge.json"), &serde_json::to_string_pretty(&report)?)?;
            let mut short = report.clone();
            short.as_object_mut().context("a report is an object")?.remove("samples");
            println!("{}", serde_json::to_string_pretty(&short)?);
            Ok(())
        }
        Command::Card { tokens_per_step } => write_card(&arguments, tokens_per_step),
        Command::Corpus { show, count } => {
            show_corpus(show, count);
            Ok(())
        }
    }
}

fn train_model(arguments: &Arguments, plan: &Plan) -> Result<()> {
    for folder in [&arguments.work, &arguments.out] {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let tokenizer_file = arguments.out.join("tokenizer.json");
    if !tokenizer_file.exists() {
        tokenizer::train(Stream { seed: SEED, split: Split::Train }, 60_000, STORYTELLER.vocab, &tokenizer_file)?;
    }
    let codec = Codec::load(&tokenizer_file)?;
    tokenizer::write_configs(&arguments.out, &STORYTELLER, &codec.chat)?;
    let state = if train::checkpoint_file(&arguments.work).exists() {
        State::load(STORYTELLER, &arguments.work)?
    } else {
        State::fresh(Llama::new(STORYTELLER, SEED)?)
    };
    println!("{} parameters, from step {}", state.model.parameters(), state.step);
    let state = train::run(state, &codec, plan)?;
    if plan.at_most.is_some() {
        println!("{:.0} tokens/s over {:.1} s", state.tokens / state.seconds, state.seconds);
        return Ok(());
    }
    Ok(())
}

fn write_card(arguments: &Arguments, tokens_per_step: usize) -> Result<()> {
    let state = State::load(STORYTELLER, &arguments.work)?;
    let report =
        std::fs::read(arguments.work.join("judge.json")).context("the card needs judge.json; run judge first")?;
    let report = serde_json::from_slice(&report)?;
    let teller = Storyteller::load(&arguments.out)?;
    let mut others = Vec::new();
    for prompt in card::OTHER_PROMPTS {
        let drawing = Drawing { temperature: 0.0, max_tokens: 100, seed: 0 };
        others.push((prompt.to_string(), teller.answer(&vec![(Role::User, prompt.to_string())], drawing)?.text));
    }
    let figures = card::Figures {
        parameters: state.model.parameters(),
        words: corpus_words(100_000).0.len(),
        tokens_per_step,
        bytes: std::fs::metadata(arguments.out.join("model.safetensors"))?.len(),
    };
    card::draw_curve(&state.curve, &arguments.out.join("loss.svg"))?;
    write(&arguments.out.join("MODEL_CARD.md"), &card::text(&figures, &state.curve, &report, &others)?)
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

fn show_corpus(show: usize, count: usize) {
    let stream = Stream { seed: SEED, split: Split::Train };
    for n in 0..show {
        match Document::random(&mut stream.row(usize::MAX, n), Split::Train, Mix::Broad, n % 50 == 49) {
            Document::Raw(text) => println!("plain: {text}\n"),
            Document::Chat(turns) => {
                turns.iter().for_each(|(role, text)| println!("{role:?}: {text}"));
                println!();
            }
        }
    }
    let (words, total) = corpus_words(count);
    println!("{count} documents, {total} words, {} different ones besides invented names", words.len());
}

/// The different words of `count` documents that stand in the tables, not made from syllables; and the number of words.
fn corpus_words(count: usize) -> (BTreeSet<String>, usize) {
    let words_of = |text: &str| -> Vec<String> {
        let letters = |c: char| !c.is_alphabetic();
        text.split(letters).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    };
    let tables: BTreeSet<String> = TABLES.iter().flat_map(|table| words_of(table)).collect();
    let stream = Stream { seed: SEED, split: Split::Train };
    let (mut seen, mut total) = (BTreeSet::new(), 0);
    for n in 0..count {
        let words =
            words_of(&Document::random(&mut stream.row(usize::MAX, n), Split::Train, Mix::Broad, n % 50 == 49).text());
        total += words.len();
        seen.extend(words.into_iter().filter(|word| tables.contains(word)));
    }
    (seen, total)
}

const TABLES: [&str; 6] = [
    include_str!("words.rs"),
    include_str!("phrases.rs"),
    include_str!("obstacles.rs"),
    include_str!("facts.rs"),
    include_str!("chat.rs"),
    include_str!("skills.rs"),
];
