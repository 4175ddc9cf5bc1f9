//! The worst gap between two tokens of running streams while a long prompt arrives, without and with `max_stall_ms`.
//!
//! `cargo bench --bench stall` runs both in turns on the embedded model and prints the ratio; the figures of one run only
//! compare with each other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_clock::Clock;
use forebay_core::intake;
use forebay_core::request::{Event, Limits, Parameters, Request};
use forebay_core::scheduler::policy::PolicyConfig;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_core::scheduler::{self, Preemption};
use forebay_core::units::{Micros, SeqId};
use forebay_engine::forward::Forward;
use forebay_engine::heartbeat::Heartbeat;
use forebay_engine::loop_state::{LoopParts, LoopState};
use forebay_engine::metrics::Metrics;
use forebay_engine::permit::Gate;
use forebay_engine::{EngineHandle, run};
use forebay_model::{LoadOptions, Source};
use forebay_turn::control::Tuning;
use forebay_turn::core::{Config, Core};
use tokio::sync::mpsc;

const STREAMS: u64 = 4;
const PROMPT: usize = 960;
const STALL: Micros = Micros::from_millis(10);
const ROUNDS: usize = 5;

fn engine(max_stall: Option<Micros>) -> EngineHandle {
    let (num_blocks, block_size) = (1_024, 16);
    let mut model = forebay_model::load(&Source::Builtin, &LoadOptions::default()).expect("the embedded model").model;
    model.allocate_kv(num_blocks, block_size).expect("memory");
    let scheduler = scheduler::Config {
        max_num_seqs: 16,
        max_num_batched_tokens: 1_024,
        prefix_caching: true,
        speculative: scheduler::Speculative::Off,
        whole_prompts: false,
        max_model_len: 1_024,
        preemption: Preemption::MostRecent,
        policy: PolicyConfig::default(),
        max_stall,
        slo: forebay_core::slo::Slo::default(),
    };
    let core = Core::new(Config { scheduler, num_blocks, block_size, multi_step_count: 1 }, Forward::new(model));
    let intake = intake::Config::default();
    let gate = Gate::new(intake.capacity);
    let state = LoopState::new(LoopParts {
        tuning: Tuning { intake, scheduler },
        thermal: Thresholds::default(),
        gate: gate.clone(),
        clock: Clock::system(),
        metrics: Metrics::new(),
        heartbeat: Arc::new(Heartbeat::default()),
    });
    let (sender, commands) = mpsc::channel(256);
    tokio::spawn(run::run(core, state, commands));
    EngineHandle::new(sender, gate)
}

fn request(seq: u64, prompt: usize, max_tokens: i64) -> Request {
    let ids: Vec<i64> = (0..prompt as i64).map(|i| 5 + (i * 7 + seq as i64) % 300).collect();
    let raw =
        Parameters { max_tokens: Some(max_tokens), temperature: Some(0.0), ignore_eos: true, ..Parameters::default() };
    let limits = Limits::new(1_024, 320, 64);
    let tokens = ids.iter().map(|&id| id as u32).collect();
    let checked = raw.check(&limits, 0).expect("in range");
    checked.into_requests(tokens, &[], &limits, || SeqId(seq)).expect("fits").requests.remove(0)
}

async fn submit(engine: &EngineHandle, request: Request) -> mpsc::Receiver<Event> {
    let permit = engine.permit(request.priority(), 1, request.prompt().len(), 0.5).expect("room");
    engine.submit(vec![request], permit).await.expect("accepted").1.remove(0)
}

/// The longest time that a stream waited for its next token, the first ones not counted.
async fn worst_gap(mut events: mpsc::Receiver<Event>) -> Duration {
    const WARM_UP: usize = 150;
    let (mut last, mut worst, mut heard) = (Instant::now(), Duration::ZERO, 0);
    while let Some(event) = events.recv().await {
        let Event::Token(_) = event else { continue };
        heard += 1;
        if heard > WARM_UP {
            worst = worst.max(last.elapsed());
        }
        last = Instant::now();
    }
    worst
}

/// Four streams, and in the middle of them two long prompts: one from which the cost is learnt, one that counts.
async fn round(max_stall: Option<Micros>) -> Duration {
    let engine = engine(max_stall);
    let mut streams = Vec::new();
    for seq in 0..STREAMS {
        streams.push(tokio::spawn(worst_gap(submit(&engine, request(seq, 20, 900)).await)));
    }
    for seq in STREAMS..STREAMS + 3 {
        let mut done = submit(&engine, request(seq, PROMPT, 1)).await;
        while done.recv().await.is_some() {}
    }
    let mut worst = Duration::ZERO;
    for stream in streams {
        worst = worst.max(stream.await.expect("joined"));
    }
    worst
}

#[tokio::main]
async fn main() {
    println!("worst inter-token gap of {STREAMS} streams while prompts of {PROMPT} tokens arrive, embedded model");
    println!("| round | max_stall_ms 0 | max_stall_ms {} | ratio |", STALL.as_millis());
    println!("|---|---|---|---|");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for n in 1..=ROUNDS {
        let (off, on) = (round(None).await, round(Some(STALL)).await);
        println!("| {n} | {off:.1?} | {on:.1?} | {:.1} |", off.as_secs_f64() / on.as_secs_f64());
        without.push(off);
        with.push(on);
    }
    without.sort();
    with.sort();
    let (off, on) = (without[ROUNDS / 2], with[ROUNDS / 2]);
    println!("| median | {off:.1?} | {on:.1?} | {:.1} |", off.as_secs_f64() / on.as_secs_f64());
}
