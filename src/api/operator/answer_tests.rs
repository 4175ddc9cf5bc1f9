//! Each of the operator's answers as its clients read it, byte for byte: `answers.txt` holds a request and its answer, line by
//! line. The engine loop is scripted, so that what it says is the same each time.

use axum::body::Body;
use axum::http::{Method, Request};
use futures_util::FutureExt;
use serde_json::Value;

use crate::api::openapi::tests::check_operation;
use crate::api::operator::admin::block_map::BlockMap;
use crate::api::operator::admin::canary::{Canary, Outcome};
use crate::api::operator::admin::live_frame::{LiveFrame, Timeline};
use crate::api::operator::admin::state::AdminState;
use crate::api::operator::measures;
use crate::api::testing::{Scene, answer, get_request};
use crate::api::{Refused, Reload, Reloaded, Waits};
use forebay_core::intake;
use forebay_core::report::{BlockUse, Decision, SequenceView, Snapshot, Stage, Wait};
use forebay_core::request::{FinishReason, Origin, Priority};
use forebay_core::scheduler::policy::PolicyConfig;
use forebay_core::scheduler::thermal::Level;
use forebay_core::scheduler::{self, Preemption, Speculative, StepCost};
use forebay_core::units::{Micros, SeqId};
use forebay_engine::command::EngineCommand;
use forebay_engine::stats::{EngineStats, Recent, WindowStats};
use forebay_engine::trace::{Course, Entry, Trace};
use forebay_sim::canary::{Tally, Trial};
use forebay_turn::control::{Changed, Tuning};
use forebay_turn::history::Record;
use forebay_turn::stats::{Batch, LiveSequence, QueueStats, ThermalStats};

/// A request and the path under which the document describes it; `None` where the document does not tell of this answer.
const ASKED: &[(&str, &str, &str, Option<&str>)] = &[
    ("GET", "/admin/state", "", Some("/admin/state")),
    ("GET", "/admin/workers", "", Some("/admin/workers")),
    ("GET", "/admin/balancer", "", Some("/admin/balancer")),
    ("GET", "/admin/balancer/power_of_two", "", Some("/admin/balancer/{name}")),
    ("POST", "/admin/balancer/least_loaded", "", Some("/admin/balancer/{name}")),
    ("PUT", "/admin/balancer", r#"{"name": "prefix_aware"}"#, Some("/admin/balancer")),
    ("POST", "/admin/balancer/best", "", None),
    ("PUT", "/admin/balancer", r#"{"balancer": "prefix_aware"}"#, None),
    ("GET", "/admin/strategy", "", Some("/admin/strategy")),
    ("GET", "/admin/policy/fair", "", Some("/admin/policy/{name}")),
    ("GET", "/admin/limits", "", Some("/admin/limits")),
    ("PUT", "/admin/limits", r#"{"max_num_seqs": 8}"#, Some("/admin/limits")),
    ("POST", "/admin/strategy/immediate", "", Some("/admin/strategy/{name}")),
    ("GET", "/admin/strategy/canary", "", Some("/admin/strategy/canary")),
    ("GET", "/admin/cost", "", Some("/admin/cost")),
    ("GET", "/admin/strategy/recommend", "", Some("/admin/strategy/recommend")),
    ("GET", "/admin/thermal", "", Some("/admin/thermal")),
    ("GET", "/admin/thermal/fair", "", Some("/admin/thermal/{level}")),
    ("POST", "/admin/thermal/auto", "", Some("/admin/thermal/{level}")),
    ("POST", "/admin/pause", "", Some("/admin/pause")),
    ("POST", "/admin/drain", "", None),
    ("POST", "/admin/stats/reset", "", Some("/admin/stats/reset")),
    ("GET", "/admin/requests", "", Some("/admin/requests")),
    ("GET", "/admin/requests/seq-7", "", Some("/admin/requests/{id}")),
    ("DELETE", "/admin/requests/chatcmpl-1", "", Some("/admin/requests/{id}")),
    ("GET", "/admin/requests/chatcmpl-1/trace", "", Some("/admin/requests/{id}/trace")),
    ("GET", "/admin/requests/nothing", "", None),
    ("POST", "/admin/reload", "", Some("/admin/reload")),
    ("GET", "/metrics/json", "", Some("/metrics/json")),
    ("GET", "/metrics/json/history", "", Some("/metrics/json/history")),
    ("GET", "/health/live", "", Some("/health/live")),
    ("GET", "/health/ready", "", Some("/health/ready")),
];

/// What this scene answers to what it is asked, as `answers.txt` has it.
async fn told(scene: &mut Scene, method: &str, path: &str, body: &str) -> (u16, String) {
    let kind = "application/json";
    let builder = Request::builder().method(method.parse::<Method>().unwrap()).uri(path).header("content-type", kind);
    let state = scene.state.clone();
    let answering = answer(&state, builder.body(Body::from(body.to_owned())).unwrap());
    tokio::pin!(answering);
    let answer = loop {
        tokio::select! {
            answer = &mut answering => break answer,
            Some(command) = scene.commands.recv() => reply(command),
        }
    };
    (answer.status.as_u16(), String::from_utf8(answer.body.to_vec()).unwrap())
}

#[tokio::test]
async fn every_answer_is_written_as_before() {
    let mut scene = scene();
    let (mut text, mut answers) = (String::new(), Vec::new());
    for (method, path, body, described) in ASKED {
        let (status, answer) = told(&mut scene, method, path, body).await;
        answers.push((method.to_lowercase(), described, serde_json::from_str::<Value>(&answer).unwrap()));
        text.push_str(&format!("{} {status}\n{answer}\n", [*method, path, body].join(" ").trim_end()));
    }
    scene.state.front.reload =
        Reload::new(|_| async { Err(Refused { message: "x: is wrong".into(), place: Some((3, 7)) }) }.boxed());
    *scene.state.front.canaries.lock().await = None;
    for (method, path) in [("POST", "/admin/reload"), ("GET", "/admin/strategy/canary")] {
        let (status, answer) = told(&mut scene, method, path, "").await;
        text.push_str(&format!("{method} {path} {status}\n{answer}\n"));
    }
    compare("answers.txt", &text);
    for (method, described, answer) in answers {
        described.iter().for_each(|path| check_operation(&method, path, "application/json", &answer));
    }
}

/// With `FOREBAY_BLESS=1` the file is written instead: only for a change of the answers that clients are told of.
fn compare(file: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api/operator").join(file);
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        return std::fs::write(path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "\n{text}");
}

/// Without what an engine alone can say.
#[tokio::test]
async fn an_audit_is_written_as_before() {
    let mut scene = Scene::new();
    let change = forebay_store::AuditEntry::new(1_700_000_000_500, "me", "policy", "fair", "latency_first");
    scene.state.store.record(std::slice::from_ref(&change)).await.unwrap();
    let answer = scene.send(get_request("/admin/audit")).await;
    let (text, id) = (std::str::from_utf8(&answer.body).unwrap(), &change.id);
    let entry =
        format!(r#"{{"id":"{id}","at":1700000000.5,"who":"me","what":"policy","from":"fair","to":"latency_first"}}"#);
    let list = format!(r#"{{"object":"list","data":[{entry}],"first_id":"{id}","last_id":"{id}","has_more":false}}"#);
    assert_eq!(text, list);
    check_operation("get", "/admin/audit", "application/json", &answer.json());
}

/// What a fit says differs in its last digits; its names and their order do not.
#[tokio::test]
async fn a_fitted_cost_has_its_names_in_order() {
    let mut scene = scene();
    let state = scene.state.clone();
    let answering = answer(&state, get_request("/admin/cost"));
    tokio::pin!(answering);
    let answer = loop {
        tokio::select! {
            answer = &mut answering => break answer.json(),
            Some(command) = scene.commands.recv() => match command {
                EngineCommand::History { reply, .. } => reply.send(Record { cost: learnt(), ..record() }).unwrap(),
                other => reply(other),
            },
        }
    };
    check_operation("get", "/admin/cost", "application/json", &answer);
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&answer), ["samples", "spread", "model"]);
    let model = [
        "step_us",
        "prefill_token_us",
        "decode_token_us",
        "prefill_us",
        "context_token_us",
        "base_noise",
        "step_noise",
        "gap_us",
    ];
    assert_eq!(names(&answer["model"]), model);
    assert_eq!(answer["model"]["gap_us"].to_string(), "150.0");
}

/// Made of its parts: a stream gives up loops that answer late, and on a busy machine this one may.
#[tokio::test]
async fn a_frame_of_the_dashboard_is_written_as_before() {
    let mut scene = scene();
    let front = scene.state.front.clone();
    let asking = AdminState::of(&front);
    tokio::pin!(asking);
    let engine = loop {
        tokio::select! {
            engine = &mut asking => break engine.unwrap(),
            Some(command) = scene.commands.recv() => reply(command),
        }
    };
    let frame = LiveFrame {
        at: front.clock.unix_millis(),
        metrics: measures::document(&front),
        engine,
        blocks: Some(vec![BlockMap::of(&blocks())]),
        requests: recent().iter().map(Timeline::of).collect(),
    };
    let text = serde_json::to_string(&frame).unwrap();
    compare("first_frame.txt", &format!("{text}\n"));
    check_operation("get", "/admin/live", "text/event-stream", &serde_json::from_str(&text).unwrap());
}

/// A server that has measured something, with a trial that is over.
fn scene() -> Scene {
    let mut scene = Scene::new();
    let (metrics, clock) = (scene.state.metrics.clone(), scene.state.clock.clone());
    metrics.sample(clock.unix_millis());
    clock.advance(Micros::from_millis(4_000));
    metrics.admitted(3, 40);
    metrics.prompt_computed(30, 0);
    metrics.prompt_cached(10);
    metrics.released([Micros(1), Micros(1), Micros(1)].into_iter(), "full");
    metrics.queue([0, 1, 0, 0, 0], 0.0);
    metrics.running([0, 0, 2, 0, 0]);
    metrics.selected("fixed", "fair");
    (0..8).for_each(|_| metrics.first_token(Micros::from_millis(25), None, clock.now()));
    (0..2).for_each(|_| metrics.finished(FinishReason::Stop, Micros::from_millis(50), clock.now()));
    metrics.sample(clock.unix_millis());
    let trial = Trial { in_force: Tally { requests: 4, kept: 3 }, on_trial: Tally { requests: 0, kept: 0 } };
    scene.state.front.canaries = std::sync::Arc::new(tokio::sync::Mutex::new(Some(Canary {
        strategy: "immediate".into(),
        instead_of: "fixed".into(),
        share: 0.25,
        seconds: 600.0,
        trial,
        outcome: Some(Outcome { kept: false, why: "no difference showed".into() }),
    })));
    scene.state.front.reload = Reload::new(|_| {
        let changed = vec![Changed { what: "max_num_seqs".into(), from: "4".into(), to: "8".into() }];
        let (key, from, to) = ("server.port".into(), "1".into(), "2".into());
        let restart = vec![Waits { key, from, to, why: "the socket is bound".into() }];
        async { Ok(Reloaded { changed, restart }) }.boxed()
    });
    scene
}

fn reply(command: EngineCommand) {
    match command {
        EngineCommand::Stats { reply } => drop(reply.send(stats())),
        EngineCommand::Requests { reply } => drop(reply.send(vec![live()])),
        EngineCommand::Trace { reply, .. } => drop(reply.send(vec![trace()])),
        EngineCommand::History { reply, .. } => drop(reply.send(record())),
        EngineCommand::Cancel { reply, .. } => drop(reply.send(2)),
        EngineCommand::Change { reply, .. } => {
            let changed = Changed { what: "max_num_seqs".into(), from: "4".into(), to: "8".into() };
            drop(reply.send(Ok(vec![changed])));
        }
        EngineCommand::Thermal { reply, .. } => drop(reply.send(Level::ALL[0])),
        EngineCommand::Pause | EngineCommand::Resume | EngineCommand::ResetStats => {}
        other => panic!("{other:?}"),
    }
}

fn tuning() -> Tuning {
    Tuning {
        intake: intake::Config::default(),
        scheduler: scheduler::Config {
            max_num_seqs: 64,
            max_num_batched_tokens: 512,
            prefix_caching: true,
            speculative: Speculative::Off,
            whole_prompts: false,
            max_model_len: 1_024,
            preemption: Preemption::MostRecent,
            policy: PolicyConfig::default(),
            max_stall: Some(Micros(250_500)),
            slo: forebay_core::slo::Slo::default(),
        },
    }
}

fn stats() -> EngineStats {
    let snapshot = Snapshot {
        queued: 3,
        waiting: 1,
        running: 2,
        blocks_total: 64,
        blocks_used: 20,
        blocks_cached: 5,
        preemptions_total: 4,
        steps_total: 900,
        paused: false,
        draining: false,
    };
    let batch = Batch {
        id: 17,
        at: Micros(4_000),
        size: 3,
        tokens: 120,
        max_priority: Priority::High,
        strategy: "fixed",
        cause: "full",
    };
    let queue = QueueStats {
        depths: [0, 1, 2, 0, 0],
        gathering: 2,
        prompt_tokens: 40,
        timeout: Micros(50_000),
        batches_formed: 18,
        requests_batched: 40,
        avg_batch_size: 2.5,
        last_batches: vec![batch.clone(), Batch { id: 18, at: Micros(6_500), max_priority: Priority::Batch, ..batch }],
        drained_per_s: 12.0,
    };
    let window = WindowStats {
        seconds: 8.0,
        tokens: 100,
        step_last: Some(Micros(1_500)),
        step_mean: Some(Micros(2_000)),
        step_p50: Some(Micros(1_999)),
        step_p99: None,
        ..WindowStats::default()
    };
    EngineStats {
        now: Micros(7_000),
        snapshot,
        tuning: tuning(),
        start: tuning(),
        thermal: ThermalStats { level: "fair", forced: false, celsius: Some(71.0) },
        queue,
        total_tokens_generated: 5_000,
        window,
        pending_out: 0,
    }
}

fn origin() -> Origin {
    Origin { id: "chatcmpl-1".into(), tenant: "acme".into(), received: Micros(1_000), ..Origin::default() }
}

fn live() -> LiveSequence {
    let view = SequenceView {
        seq: SeqId(7),
        origin: origin(),
        priority: Priority::Normal,
        stage: Stage::Waiting,
        deadline: Some(Micros(2_001_000)),
        prompt_tokens: 30,
        max_tokens: 16,
        computed_tokens: 32,
        to_compute: 1,
        generated_tokens: 3,
        blocks: 2,
    };
    LiveSequence { view, age: Micros(1_500_250), wait: Some(Wait::Blocks) }
}

fn trace() -> Trace {
    let entry = |at, decision| Entry { at: Micros(at), decision, until: Micros(at), times: 1 };
    Trace {
        seq: SeqId(7),
        origin: origin(),
        priority: Priority::Normal,
        prompt_tokens: 30,
        entries: vec![
            entry(1_000, Decision::Queued { depth: 2, predicted_ttft: Some(Micros(4_200)) }),
            Entry { until: Micros(3_000), times: 3, ..entry(2_000, Decision::Waits(Wait::Seats)) },
            entry(3_000, Decision::Admitted { cached_tokens: 16, miss: None }),
            entry(5_000, Decision::Prefill { from: 16, to: 30 }),
            entry(5_000, Decision::FirstToken),
            entry(6_000, Decision::Preempted { by: SeqId(9) }),
            entry(9_000, Decision::Ended { how: "stop" }),
        ],
        dropped: 0,
        course: Course { prefill_steps: 1, tokens: 3, decode_steps: 3, preemptions: 1, ..Course::default() },
    }
}

fn blocks() -> [BlockUse; 4] {
    [BlockUse::Free, BlockUse::Used, BlockUse::Cached, BlockUse::Shared]
}

/// One that is here, and one that has ended.
fn recent() -> Vec<Recent> {
    let (mut here, now) = (trace(), Micros(1_501_250));
    here.entries.truncate(3);
    vec![Recent { live: Some(live()), trace: here, now }, Recent { live: None, trace: trace(), now }]
}

fn record() -> Record {
    Record {
        now: Micros(7_000),
        since: Micros::ZERO,
        past: Vec::new(),
        tuning: tuning(),
        cost: StepCost::default(),
        gap: Micros(150),
        block_size: 32,
        num_blocks: 64,
    }
}

fn learnt() -> StepCost {
    use forebay_core::scheduler::StepLoad;
    let mut cost = StepCost::default();
    for n in 0..300_usize {
        let decodes = (0..n % 9).fold(StepLoad::STEP, |sum, _| sum + StepLoad::decode(100));
        let load = if n % 3 == 0 { decodes + StepLoad::prefill(0, 20 + n % 200) } else { decodes };
        cost.observe(&load, Micros(10_000 + 50 * n as u64));
    }
    cost
}
