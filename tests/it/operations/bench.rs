//! The commands beside `serve`, and what `/admin` makes of recorded requests, over the real binary. What is asserted is what was
//! counted, never how long it took.

use std::process::Command;

use forebay::client::load::{Pace, Plan, Words, run};
use forebay::client::{Ask, Client, ClientError, Prompt};
use forebay_sim::measure::{End, Slo};
use forebay_sim::scenario::Scenario;
use serde_json::{Value, json};

use crate::support::server::{Server, post};

fn forebay(args: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code(), text(done.stdout), text(done.stderr))
}

fn success(args: &[&str]) -> String {
    let (code, out, err) = forebay(args);
    assert_eq!(code, Some(0), "{args:?}: {err}");
    out
}

/// Short requests of two kinds.
fn small(dir: &tempfile::TempDir) -> String {
    let path = dir.path().join("small.yaml");
    let text = "name: small\narrivals: {process: poisson, rate: [{at_s: 0, rps: 40}, {at_s: 1, rps: 40}]}\nrequests:\n\
        - {name: chat, share: 3, prompt_tokens: {min: 4, max: 30}, output_tokens: {min: 1, max: 8}}\n\
        - {name: urgent, share: 1, priority: high, prompt_tokens: 5, output_tokens: 3}\n";
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").into()
}

#[tokio::test]
async fn a_load_is_counted_token_by_token() {
    let server = Server::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let (file, page) = (small(&dir), dir.path().join("page.html"));
    let page = page.to_str().unwrap();
    let common = ["bench", "--url", &server.url, "--scenario", &file, "--num-prompts", "20", "--seed", "4"];
    let scenario = Scenario::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let expected: Vec<_> = scenario.arrivals(4).into_iter().take(20).collect();
    let output: u64 = expected.iter().map(|arrival| u64::from(arrival.output_tokens)).sum();
    let input: u64 = expected.iter().map(|arrival| u64::from(arrival.prompt_tokens)).sum();
    for pace in [&["--process", "constant", "--scale", "2"][..], &["--concurrency", "3"]] {
        let arguments = [&common[..], pace, &["--json", "--goodput", "ttft:600000", "--html", page]].concat();
        let body: Value = serde_json::from_str(&success(&arguments)).expect("JSON");
        assert_eq!(
            (&body["completed"], &body["failed"], &body["refused"]),
            (&json!(20), &json!(0), &json!(0)),
            "{body:#}"
        );
        assert_eq!((&body["total_output_tokens"], &body["total_input_tokens"]), (&json!(output), &json!(input)));
        assert_eq!(body["request_goodput"], body["request_throughput"]);
        assert!(body["classes"]["urgent"]["completed"].as_u64() > Some(0));
        assert!(body["p99_ttft_ms"].as_f64() >= body["median_ttft_ms"].as_f64());
    }
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
    let text = success(&[&common[..], &["--text", "--request-rate", "200"]].concat());
    assert!(text.contains("Successful requests:                     20 "), "{text}");
}

#[tokio::test]
async fn refusals_and_failures_are_told_apart() {
    let server = Server::start(&["--queue-capacity", "1", "--max-num-seqs", "1"]);
    let client = Client::new(&server.url).unwrap().with_model("default");
    let scenario = Scenario::parse(
        "name: crowd\narrivals: {process: burst, burst: 30, rate: [{at_s: 0, rps: 1000}, {at_s: 1, rps: 1000}]}\n\
         requests: [{name: chat, share: 1, prompt_tokens: 20, output_tokens: 40}]",
    )
    .unwrap();
    let plan = Plan { pace: Pace::Open, words: Words::Tokens, ignore_eos: true, seed: 1 };
    let arrivals = &scenario.arrivals(1)[..30];
    let (measured, error) = run(&client, &["chat".into()], arrivals, plan, &mut || ()).await;
    let summary = measured.summary(&Slo::default());
    assert!(error.is_none() && summary.completed > 0 && summary.refused > 0, "{error:?} {summary:?}");
    assert_eq!(summary.completed + summary.refused, 30);
    assert!(measured.records.iter().all(|record| record.end != End::Completed || record.output_tokens == 40));

    let unknown = client.clone().with_model("nobody");
    let refused = unknown.stream(&Ask { prompt: Prompt::Text("x".into()), ..Ask::default() }).await;
    assert!(matches!(refused, Err(ClientError::Refused { status: 404, .. })), "{refused:?}");
    let (code, _, err) = forebay(&["bench", "--url", &server.url, "--model", "nobody"]);
    assert!(code == Some(2) && err.contains("nobody"), "{err}");
}

#[test]
fn a_simulation_repeats_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let page = page.to_str().unwrap();
    let run = |seed: &str| {
        success(&[
            "simulate",
            "--scenario",
            "steady_state,long_tail",
            "--strategy",
            "all",
            "--policy",
            "all",
            "--load",
            "scaled",
            "--seed",
            seed,
            "--json",
            "--html",
            page,
        ])
    };
    let (one, html) = (run("3"), std::fs::read_to_string(page).unwrap());
    assert!(one == run("3") && html == std::fs::read_to_string(page).unwrap() && one != run("4"));
    let body: Value = serde_json::from_str(&one).unwrap();
    let rows = body["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 5 * 4);
    assert!(rows.iter().all(|row| row["completed"].as_u64() > Some(100) && row["failed"] == 0));
    assert_eq!(html.matches("<h2>").count(), 2);
    for (arguments, expected) in [
        (&["--strategy", "lazy"][..], "valid are all, fixed"),
        (&["--scenario", "nowhere"], "steady_state"),
        (&["--utilisation", "0"], "above 0"),
        (&["--goodput", "itl:5"], "ttft:MS"),
        (&["--scenario", "azure_conversations", "--trace-lengths", "2"], "at most 1"),
        (&["--workers", "0"], "from 1 to"),
        (&["--workers", "2", "--outage", "2:1-3"], "2:1-3 is not"),
        (&["--workers", "2", "--outage", "1:3-1"], "1:3-1 is not"),
        (&["--workers", "2", "--peers"], "single engines"),
        (&["--workers", "2", "--balancer", "heaviest"], "valid are all, round_robin"),
        (&["--preemption", "oldest"], "valid are all, most_recent"),
    ] {
        let (code, _, err) = forebay(&[&["simulate"], arguments].concat());
        assert!(code == Some(2) && err.contains(expected), "{arguments:?}: {err}");
    }
}

/// What a person sees who compares, with classes, promises, other servers' schedulers and several workers.
#[test]
fn a_simulation_compares_peers_and_workers() {
    let scaled = ["simulate", "--scenario", "mooncake_conversations", "--load", "scaled", "--strategy", "queue_depth"];
    let with = |more: &[&str]| success(&[&scaled, more].concat());
    let text = with(&["--utilisation", "1.2", "--policy", "slo", "--peers", "--mixed", "--goodput", "promises"]);
    let goodput = |name: &str| {
        let line =
            text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_whitespace().last().unwrap().parse::<f64>().expect("a number")
    };
    let peers = ["vLLM  ", "vLLM priority", "SGLang LPM", "prefill first", "FastServe"].map(goodput);
    let own = goodput("queue_depth");
    assert!(peers.iter().all(|peer| *peer > 0.0 && own > 1.3 * peer), "{text}");

    let text = with(&["--workers", "3", "--balancer", "all", "--outage", "1:100-200", "--json"]);
    let body: Value = serde_json::from_str(&text).unwrap();
    let rows = body["results"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let sent: Vec<u64> = row["requests_by_worker"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
        let retried = row["retried"].as_u64().unwrap();
        assert_eq!((sent.len(), sent.iter().sum::<u64>()), (3, 1_000 + row["retried"].as_u64().unwrap()), "{row}");
        assert!(row["failed"].as_u64() > Some(0) && row["completed"].as_u64() > Some(900) && retried < 200, "{row}");
    }
    // Few blocks, and who gives his back.
    let scarce = ["simulate", "--scenario", "steady_state", "--load", "scaled", "--strategy", "queue_depth", "--json"];
    let text = success(
        &[&scarce[..], &["--utilisation", "1.1", "--kv-blocks", "200", "--preemption", "most_recent,longest"]].concat(),
    );
    let body: Value = serde_json::from_str(&text).unwrap();
    let preempted: Vec<u64> =
        body["results"].as_array().unwrap().iter().filter_map(|row| row["preemptions"].as_u64()).collect();
    assert!(preempted.len() == 2 && preempted[0] != preempted[1] && !preempted.contains(&0), "{preempted:?}");
}

#[tokio::test]
async fn an_engine_is_measured_advised_and_tried() {
    let server = Server::start(&["--strategy", "fixed"]);
    let dir = tempfile::tempdir().unwrap();
    let cost = dir.path().join("cost.yaml");
    let cost = cost.to_str().unwrap();
    success(&["calibrate", "--url", &server.url, "--duration", "0.1", "--output", cost]);
    assert!(std::fs::read_to_string(cost).unwrap().contains("prefill_token_us: "));
    let predicted = success(&["simulate", "--scenario", "steady_state", "--load", "scaled", "--cost", cost, "--json"]);
    assert!(serde_json::from_str::<Value>(&predicted).unwrap()["results"][0]["completed"].as_u64() > Some(0));

    // Calibration has asked for more than fifty answers already.
    let advice: Value =
        reqwest::get(server.at("/admin/strategy/recommend?window=10m")).await.unwrap().json().await.unwrap();
    assert_eq!(advice["predictions"].as_array().map(Vec::len), Some(20), "{advice:#}");
    let active: Vec<&Value> =
        advice["predictions"].as_array().unwrap().iter().filter(|row| row["active"] == true).collect();
    assert!(active.len() == 1 && active[0]["strategy"] == "fixed" && active[0]["policy"] == "fair");
    let error = |name: &str| advice["error"][name].as_f64().expect("a number").abs();
    let worst = error("ttft_p50").max(error("ttft_p99")).max(error("throughput"));
    assert_eq!(advice["verdict"] == "refused", worst > 0.2, "{advice:#}");
    assert_eq!(advice["recommended"].is_null(), advice["verdict"] != "change");

    let select = |query: &str| post(server.at(&format!("/admin/strategy/{query}")), json!({}));
    for (query, param) in [
        ("immediate?canary=soon", "canary"),
        ("immediate?share=0.2", "share"),
        ("immediate?canary=5s&share=2", "share"),
        ("immediate?cannery=5s", "cannery"),
        ("fixed?canary=5s", "canary"),
    ] {
        let (status, body) = select(query).await;
        assert_eq!((status, &body["error"]["param"]), (400, &json!(param)), "{query}: {body}");
    }
    assert_eq!(select("nobody?canary=5s").await.0, 404);
    let (status, body) = select("immediate?canary=2s&share=0.5").await;
    assert_eq!((status, &body["running"]), (200, &json!(true)), "{body}");
    assert_eq!(select("cost_aware?canary=2s").await.0, 400, "one at a time");
    let mut trial = body;
    for _ in 0..3_000 {
        trial = reqwest::get(server.at("/admin/strategy/canary")).await.unwrap().json().await.unwrap();
        if trial["running"] == false {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // Nobody asked for anything meanwhile.
    assert_eq!((&trial["running"], &trial["kept"]), (&json!(false), &json!(false)), "{trial}");
    assert!(trial["why"].as_str().unwrap().contains("no difference"));
    let state: Value = reqwest::get(server.at("/admin/strategy")).await.unwrap().json().await.unwrap();
    assert_eq!(state["name"], "fixed");
}

fn get(server: &Server, path: &str) -> impl Future<Output = Value> {
    let url = server.at(path);
    async move { reqwest::get(url).await.expect("an answer").json().await.expect("JSON") }
}

/// `count` short requests, as they come at `rps`.
async fn send(server: &Server, rps: f64, count: usize, seed: u64) {
    let client = Client::new(&server.url).unwrap().with_model("sim");
    let scenario = Scenario::parse(&format!(
        "name: short\narrivals: {{process: poisson, rate: [{{at_s: 0, rps: {rps}}}, {{at_s: 600, rps: {rps}}}]}}\n\
         requests: [{{name: chat, share: 1, prompt_tokens: {{min: 20, max: 120}}, output_tokens: {{min: 2, max: 8}}}}]",
    ))
    .unwrap();
    let plan = Plan { pace: Pace::Open, words: Words::Tokens, ignore_eos: true, seed };
    let (measured, error) = run(&client, &["chat".into()], &scenario.arrivals(seed)[..count], plan, &mut || ()).await;
    assert!(error.is_none(), "{error:?}");
    assert!(measured.records.iter().all(|record| record.end == End::Completed));
}

/// What the simulator says of a worker whose steps cost what it thinks they do. A machine that has no time to spare for minutes
/// makes any prediction wrong, and is told apart by asking again.
#[tokio::test]
async fn recommendations_predict_what_the_simulated_model_did() {
    let server = Server::start_in(
        &["--model", "sim", "--workers", "1", "--strategy", "fixed"],
        &[("FOREBAY__WORKERS__BASE_LATENCY_MS", "40")],
    );
    let mut last = Value::Null;
    for attempt in 0..6 {
        // What came before does not count any more.
        for name in ["immediate", "fixed"] {
            assert_eq!(post(server.at(&format!("/admin/strategy/{name}")), json!({})).await.0, 200);
        }
        send(&server, 6.0, 80, attempt).await;
        let advice = get(&server, "/admin/strategy/recommend?window=5m").await;
        assert_eq!(advice["requests"], 80, "{advice:#}");
        let error = |name: &str| advice["error"][name].as_f64().expect("a number").abs();
        let worst = error("ttft_p50").max(error("ttft_p99")).max(error("throughput"));
        assert_eq!(advice["verdict"] == "refused", worst > 0.2, "{advice:#}");
        if worst <= 0.2 {
            for row in advice["predictions"].as_array().expect("rows") {
                for name in ["median_ttft_ms", "p99_ttft_ms", "median_itl_ms", "output_throughput", "request_goodput"] {
                    assert!(row[name].as_f64() > Some(0.0), "{name}: {row}");
                }
            }
            return;
        }
        last = advice["error"].clone();
    }
    panic!("six predictions out of six were off by more than a fifth, the last by {last}");
}

#[tokio::test]
async fn a_trial_keeps_what_is_better_and_rolls_back_what_is_worse() {
    // `fixed` lets every group wait for longer than the objective, whatever the machine does.
    let slow = [
        ("FOREBAY__BATCHING__IDLE_RELEASE", "false"),
        ("FOREBAY__BATCHING__MAX_WAIT_MS", "1500"),
        ("FOREBAY__BATCHING__MAX_WAIT_NORMAL_MS", "1500"),
        ("FOREBAY__BATCHING__MAX_WAIT_LOW_MS", "1500"),
        ("FOREBAY__BATCHING__MAX_BATCH_SIZE", "4096"),
        ("FOREBAY__BATCHING__TARGET_P99_MS", "1200"),
    ];
    let server = Server::start_in(&["--model", "sim", "--workers", "2", "--strategy", "fixed"], &slow);
    for (name, kept, left) in [("immediate", true, "immediate"), ("fixed", false, "immediate")] {
        let (status, trial) = post(server.at(&format!("/admin/strategy/{name}?canary=10m&share=0.5")), json!({})).await;
        assert_eq!((status, &trial["running"]), (200, &json!(true)), "{trial}");
        // Load until the test has decided; ten minutes are far more than it needs.
        let mut trial = trial;
        for seed in 0.. {
            send(&server, 40.0, 200, seed).await;
            trial = get(&server, "/admin/strategy/canary").await;
            if trial["running"] == false {
                break;
            }
        }
        assert_eq!(trial["kept"], kept, "{trial}");
        let why = trial["why"].as_str().expect("a reason");
        assert!(why.starts_with(if kept { "better: " } else { "worse: " }), "{why}");
        assert_eq!(get(&server, "/admin/strategy").await["name"], left);
    }
    let audit = get(&server, "/admin/audit").await;
    assert_eq!(
        (&audit["data"][0]["what"], &audit["data"][0]["to"]),
        (&json!("strategy"), &json!("immediate")),
        "{audit}"
    );
}
