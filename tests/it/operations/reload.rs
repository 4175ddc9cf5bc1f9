//! Configurations that are read again: all of one is in force, or nothing of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::server::{Server, post};

struct Configured {
    server: Server,
    file: tempfile::NamedTempFile,
}

fn start(text: &str, args: &[&str]) -> Configured {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let path = file.path().to_str().expect("utf-8").to_owned();
    let server = Server::start(&[&["--config", path.as_str()], args].concat());
    Configured { server, file }
}

impl Configured {
    fn write(&self, text: &str) {
        write(self.file.path(), text);
    }

    async fn reload(&self) -> (u16, Value) {
        post(self.server.at("/admin/reload"), json!({})).await
    }

    async fn get(&self, path: &str) -> Value {
        let answer = reqwest::get(self.server.at(path)).await.expect("an answer");
        answer.json().await.expect("JSON")
    }
}

/// As a careful editor does, so that nobody reads half of it.
fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("written");
    std::fs::rename(&beside, path).expect("renamed");
}

const BEFORE: &str = "\
batching:
  strategy: fixed
  policy: fair
  min_wait_ms: 1
  max_wait_ms: 10
engine:
  max_num_seqs: 8
";

#[tokio::test]
async fn what_can_change_is_in_force_and_the_rest_is_named() {
    let it = start(BEFORE, &[]);
    it.write(
        "batching:\n  strategy: immediate\n  policy: latency_first\n  max_wait_ms: 20\n\
         thermal:\n  fair_celsius: 60\n\
         workers:\n  balancer: round_robin\n\
         engine:\n  max_num_seqs: 4\n  preemption: lowest_priority\n  drain_timeout: 7s\n\
         logging:\n  level: debug\n\
         server:\n  max_connections: 99\n",
    );
    let (status, answer) = it.reload().await;
    assert_eq!(status, 200, "{answer}");
    let named = |list: &str, name: &str| -> Vec<String> {
        let items = answer[list].as_array().expect("a list").iter();
        items.map(|item| item[name].as_str().expect("a name").to_owned()).collect()
    };
    let changed = named("changed", "what");
    for what in [
        "strategy",
        "policy",
        "balancer",
        "min_wait_ms",
        "max_wait_ms",
        "max_num_seqs",
        "preemption",
        "thermal.fair_celsius",
        "engine.drain_timeout",
        "logging.level",
    ] {
        assert!(changed.iter().any(|known| known == what), "{what} in {answer}");
    }
    assert_eq!(named("restart_needed", "key"), ["server.max_connections"]);
    let strategy = it.get("/admin/strategy").await;
    assert_eq!((&strategy["name"], &strategy["parameters"]["max_wait_ms"]), (&json!("immediate"), &json!(20)));
    assert_eq!(strategy["parameters"]["min_wait_ms"], 5, "no longer named: the default");
    let policy = it.get("/admin/policy").await;
    assert_eq!(
        (&policy["name"], &policy["parameters"]["preemption"]),
        (&json!("latency_first"), &json!("lowest_priority"))
    );
    assert_eq!(it.get("/admin/limits").await["parameters"]["max_num_seqs"], 4);
    assert_eq!(it.get("/admin/balancer").await["name"], "round_robin");
    let log = it.server.until_logged("restart_needed", 1).await;
    assert_eq!(log[0]["key"], "server.max_connections");
    // At level debug probes are told of, too.
    reqwest::get(it.server.at("/health/live")).await.expect("an answer");
    let requests = || async { it.server.until_logged("request", 1).await };
    while !requests().await.iter().any(|line| line["route"] == "/health/live") {
        tokio::task::yield_now().await;
    }
    let audit = it.get("/admin/audit?limit=1000").await;
    let audited =
        |what: &str| audit["data"].as_array().is_some_and(|list| list.iter().any(|entry| entry["what"] == what));
    assert!(audited("strategy") && audited("logging.level"), "{audit}");
}

#[tokio::test]
async fn a_signal_does_the_same_and_overrides_what_admin_changed() {
    let it = start(BEFORE, &[]);
    let (status, _) = post(it.server.at("/admin/strategy/immediate"), json!({})).await;
    assert_eq!(status, 200);
    assert_eq!(post(it.server.at("/admin/balancer/least_loaded"), json!({})).await.0, 200);
    it.server.signal("HUP");
    it.server.until_logged("reloaded", 1).await;
    assert_eq!(it.get("/admin/strategy").await["name"], "fixed", "as the file has it");
    assert_eq!(it.get("/admin/balancer").await["name"], "prefix_aware");
    it.write("batching:\n  strategy: nonsense\n");
    it.server.signal("HUP");
    let refused = it.server.until_logged("reload_refused", 1).await;
    assert!(
        refused[0]["error"].as_str().is_some_and(|error| error.contains("2:3") && error.contains("batching.strategy")),
        "{refused:?}"
    );
    assert_eq!(it.get("/admin/strategy").await["name"], "fixed");
    for result in ["applied", "refused"] {
        let series = format!("forebay_config_reloads_total{{result=\"{result}\"}}");
        assert_eq!(it.server.metric(&series).await, 1.0, "{result}");
    }
}

#[tokio::test]
async fn more_than_memory_was_sized_for_waits_for_a_restart_and_flags_stay() {
    let it = start(BEFORE, &["--policy", "throughput_first"]);
    it.write("batching:\n  policy: latency_first\n  strategy: immediate\nengine:\n  max_num_seqs: 9\n");
    let (status, answer) = it.reload().await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["restart_needed"][0]["key"], "engine.max_num_seqs");
    assert_eq!(answer["restart_needed"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(it.get("/admin/limits").await["parameters"]["max_num_seqs"], 8);
    assert_eq!(it.get("/admin/policy").await["name"], "throughput_first", "a flag goes before the file");
    assert_eq!(it.get("/admin/strategy").await["name"], "immediate");
}

#[tokio::test]
async fn an_invalid_file_is_refused_with_its_place_and_changes_nothing() {
    let it = start(BEFORE, &[]);
    for (text, line, part) in [
        ("batching:\n  strategy: immediate\n  min_wait_ms: 1x\n", Some(3), "batching.min_wait_ms"),
        ("batching:\n  strategy: immediate\nserver:\n  prot: 1\n", Some(4), "did you mean server.port"),
        ("batching:\n  strategy: immediate\n  min_wait_ms: 90\n  max_wait_ms: 10\n", None, "contradicts"),
        ("batching:\n  strategy: [immediate\n", None, "yaml"),
        ("batching:\n  strategy: immediate\n\tpolicy: fair\n", None, "yaml"),
        ("batching:\n  strategy: immediate\nserver:\n  host: 0.0.0.0\n", None, "insecure"),
        ("batching: immediate\n", Some(1), "batching"),
    ] {
        it.write(text);
        let (status, answer) = it.reload().await;
        let error = &answer["error"];
        assert_eq!((status, &error["code"]), (400, &json!("invalid_configuration")), "{text}: {answer}");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(part)), "{text}: {answer}");
        if let Some(line) = line {
            assert_eq!(error["line"], line, "{text}: {answer}");
            assert!(error["column"].as_u64().is_some_and(|column| column > 0), "{text}: {answer}");
        }
        assert_eq!(it.get("/admin/strategy").await["name"], "fixed", "{text}");
    }
    std::fs::write(it.file.path(), [0xff, 0xfe]).expect("written");
    assert_eq!(it.reload().await.0, 400);
    std::fs::remove_file(it.file.path()).expect("removed");
    assert_eq!(it.reload().await.0, 400);
    it.write(BEFORE);
    assert_eq!(it.reload().await, (200, json!({"changed": [], "restart_needed": []})));
}

/// Two configurations in turn, and broken ones between them, while requests run and somebody looks: what is seen is one of the
/// two, never a mixture, and no request fails.
#[tokio::test]
async fn under_load_a_configuration_is_in_force_as_a_whole() {
    const TURNS: usize = 30;
    let one = "batching:\n  strategy: fixed\n  min_wait_ms: 1\n  max_wait_ms: 10\n  target_p99_ms: 100\n";
    let two = "batching:\n  strategy: immediate\n  min_wait_ms: 2\n  max_wait_ms: 20\n  target_p99_ms: 200\n";
    let it = Arc::new(start(one, &["--model", "sim"]));
    let done = Arc::new(AtomicBool::new(false));
    let load = |it: Arc<Configured>, done: Arc<AtomicBool>| async move {
        let mut served = 0;
        while !done.load(Ordering::Relaxed) {
            let body = json!({"prompt": "Once", "max_tokens": 3, "ignore_eos": true});
            let (status, answer) = post(it.server.at("/v1/completions"), body).await;
            assert_eq!(status, 200, "{answer}");
            served += 1;
        }
        served
    };
    let look = |it: Arc<Configured>, done: Arc<AtomicBool>| async move {
        let mut looks = 0;
        while !done.load(Ordering::Relaxed) {
            let seen = it.get("/admin/strategy").await;
            let of = |name: &str| seen["parameters"][name].as_u64();
            let whole = match seen["name"].as_str() {
                Some("fixed") => (Some(1), Some(10), Some(100)),
                _ => (Some(2), Some(20), Some(200)),
            };
            assert_eq!((of("min_wait_ms"), of("max_wait_ms"), of("target_p99_ms")), whole, "{seen}");
            looks += 1;
        }
        looks
    };
    let clients: Vec<_> = (0..4).map(|_| tokio::spawn(load(it.clone(), done.clone()))).collect();
    let looking = tokio::spawn(look(it.clone(), done.clone()));
    for turn in 0..TURNS {
        let (text, expected) = match turn % 3 {
            0 => (two.to_owned(), 200),
            1 => (one.replace("max_wait_ms: 10", "max_wait_ms: 0x"), 400),
            _ => (one.to_owned(), 200),
        };
        it.write(&text);
        let (status, answer) = it.reload().await;
        assert_eq!(status, expected, "{answer}");
        let name = it.get("/admin/strategy").await["name"].clone();
        assert_eq!(name, if turn % 3 == 2 { "fixed" } else { "immediate" });
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.await.expect("no request failed") > 0);
    }
    assert!(looking.await.expect("never a mixture") > 0);
}

/// Once it was taken here and refused by every reload: two tables of ranges disagreed.
#[test]
fn what_a_reload_would_refuse_is_refused_at_the_start_with_its_range() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    write(file.path(), "batching:\n  aging_ms: 5000000\n");
    let server = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--model", "sim", "--port", "0", "--config"])
        .arg(file.path())
        .output()
        .expect("it ends");
    let said = String::from_utf8_lossy(&server.stderr).into_owned();
    assert_eq!(server.status.code(), Some(2), "{said}");
    assert!(said.contains("batching.aging_ms") && said.contains("from 1 to 3600000"), "{said}");
}

#[tokio::test]
async fn both_ends_of_a_range_are_in_force_after_a_reload() {
    let it = start("", &[]);
    for aging in ["1", "3600000"] {
        it.write(&format!("batching:\n  aging_ms: {aging}\n"));
        let (status, answer) = it.reload().await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(it.get("/admin/limits").await["parameters"]["aging_ms"].to_string(), aging);
    }
    it.write("batching:\n  aging_ms: 3600001\n");
    let (status, answer) = it.reload().await;
    assert!(status >= 400 && answer.to_string().contains("from 1 to 3600000"), "{status} {answer}");
    let about = it.get("/admin/limits").await["settings"]["aging_ms"].clone();
    assert_eq!((&about["kind"], &about["min"], &about["max"]), (&json!("milliseconds"), &json!(1), &json!(3_600_000)));
}
