//! What an operator sees and changes while requests run, and what that never changes: answers. Over the real binary.

use std::time::Duration;

use reqwest::{Client, Method, Response};
use serde_json::{Value, json};

use crate::support::server::{Server, frames, post};

async fn send(server: &Server, method: Method, path: &str, body: Option<Value>) -> Response {
    let request = Client::new().request(method, server.at(path));
    let request = if let Some(body) = body { request.json(&body) } else { request };
    request.send().await.expect("an answer")
}

async fn admin(server: &Server, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    let answer = send(server, method, path, body).await;
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

async fn get(server: &Server, path: &str) -> Value {
    let (status, body) = admin(server, Method::GET, path, None).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

async fn put(server: &Server, path: &str, body: Value) -> (u16, Value) {
    admin(server, Method::PUT, path, Some(body)).await
}

async fn tell(server: &Server, path: &str) -> (u16, Value) {
    admin(server, Method::POST, path, None).await
}

fn prompt(n: u64, tokens: i64) -> Value {
    let ids: Vec<u64> = (0..5 + n * 7 % 40).map(|i| 3 + (n * 31 + i * 13) % 250).collect();
    json!({"prompt": ids, "max_tokens": tokens, "seed": n, "temperature": 0.8, "ignore_eos": true, "return_token_ids": true})
}

fn tokens(body: &Value) -> Value {
    body["choices"][0]["token_ids"].clone()
}

/// Until the first of `condition`'s polls holds.
async fn until(server: &Server, path: &str, what: &str, mut condition: impl FnMut(&Value) -> bool) -> Value {
    for _ in 0..3_000 {
        let body = get(server, path).await;
        if condition(&body) {
            return body;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}");
}

async fn queued(server: &Server, count: u64) -> Value {
    until(server, "/admin/state", "queued", |state| state["queue_depth"] == count).await
}

#[tokio::test]
async fn switching_everything_under_load_changes_no_answer() {
    let server = Server::start(&["--max-num-seqs", "6", "--max-num-batched-tokens", "24", "--kv-memory", "0.004"]);
    let mut solo = Vec::new();
    for n in 0..24 {
        solo.push(tokens(&post(server.at("/v1/completions"), prompt(n, 200)).await.1));
    }
    let clients: Vec<_> = (0..24)
        .map(|n| {
            let mut body = prompt(n, 200);
            body["priority"] = json!(["critical", "high", "normal", "low"][n as usize % 4]);
            body["user"] = json!(["a", "b", ""][n as usize % 3]);
            tokio::spawn(post(server.at("/v1/completions"), body))
        })
        .collect();
    let strategies = ["fixed", "immediate", "latency_aware", "queue_depth", "cost_aware"];
    let policies = ["latency_first", "throughput_first", "fair"];
    let mut turn = 0;
    while clients.iter().any(|client| !client.is_finished()) {
        assert_eq!(tell(&server, &format!("/admin/strategy/{}", strategies[turn % 4])).await.0, 200);
        assert_eq!(tell(&server, &format!("/admin/policy/{}", policies[turn % 3])).await.0, 200);
        let limits = json!({"max_num_seqs": 1 + turn % 6, "max_num_batched_tokens": 1 + turn * 5 % 24});
        assert_eq!(put(&server, "/admin/limits", limits).await.0, 200);
        assert_eq!(tell(&server, ["/admin/thermal/serious", "/admin/thermal/auto"][turn % 2]).await.0, 200);
        turn += 1;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (n, client) in clients.into_iter().enumerate() {
        let (status, body) = client.await.expect("joined");
        assert_eq!((status, tokens(&body)), (200, solo[n].clone()), "request {n}");
    }
    assert!(turn > 3, "they ran for a while: {turn}");
    // Their last events come a moment before the state that others read.
    let idle =
        |state: &Value| ["queue_depth", "requests_running", "blocks_used"].iter().all(|part| state[part] == json!(0));
    until(&server, "/admin/state", "nothing is left behind", idle).await;
}

#[tokio::test]
async fn a_pause_keeps_requests_and_a_deadline_ends_them_with_their_own_error() {
    let server = Server::start(&[]);
    assert_eq!(tell(&server, "/admin/pause").await.1, json!({"paused": true, "draining": false}));
    let mut hurried = prompt(1, 8);
    hurried["timeout_ms"] = json!(100);
    let whole = Client::new().post(server.at("/v1/completions")).json(&hurried).send();
    hurried["stream"] = json!(true);
    hurried["deadline_ms"] = json!(90_000); // the shorter counts
    let streamed = Client::new().post(server.at("/v1/completions")).json(&hurried).send();
    let patient = tokio::spawn(post(server.at("/v1/completions"), prompt(2, 8)));
    let (whole, streamed) = tokio::join!(whole, streamed);
    let whole = whole.expect("an answer");
    assert_eq!(whole.status(), 408);
    assert_eq!(whole.headers()["x-should-retry"], "false");
    let error = whole.json::<Value>().await.expect("JSON")["error"].clone();
    assert_eq!((&error["type"], &error["code"]), (&json!("timeout_error"), &json!("timeout")));
    let streamed = streamed.expect("an answer");
    assert_eq!(streamed.status(), 408, "it never had a seat, so it has a status of its own");
    assert_eq!(streamed.json::<Value>().await.expect("JSON")["error"]["code"], "timeout");
    assert_eq!(queued(&server, 1).await["queue"]["by_priority"]["normal"], 1);
    assert_eq!(tell(&server, "/admin/resume").await.0, 200);
    assert_eq!(patient.await.expect("joined").0, 200);
}

#[tokio::test]
async fn a_deadline_ends_a_running_request_too() {
    let server = Server::start(&[]);
    let body = json!({"prompt": "Once upon a time", "max_tokens": 900, "n": 8, "ignore_eos": true, "timeout_ms": 300});
    let (status, body) = post(server.at("/v1/completions"), body).await;
    assert_eq!((status, &body["error"]["code"]), (408, &json!("timeout")), "{body}");
    server.until_metric("vllm:num_requests_running", 0.0).await;
    server.until_metric("vllm:kv_cache_usage_perc", 0.0).await;
}

#[tokio::test]
async fn what_no_batch_takes_in_time_is_a_504() {
    let server = Server::start(&[]);
    assert_eq!(put(&server, "/admin/limits", json!({"queue_timeout_ms": 80})).await.0, 200);
    assert_eq!(tell(&server, "/admin/pause").await.0, 200);
    let (status, body) = post(server.at("/v1/completions"), prompt(1, 4)).await;
    assert_eq!((status, &body["error"]["code"]), (504, &json!("batch_timeout")));
}

#[tokio::test]
async fn a_deadline_that_cannot_be_met_is_refused_at_once_and_predictions_are_told() {
    let server = Server::start(&[]);
    // Enough steps that their cost is known.
    for n in 0..8 {
        assert_eq!(post(server.at("/v1/completions"), prompt(n, 20)).await.0, 200);
    }
    let answer = send(&server, Method::POST, "/v1/completions", Some(prompt(9, 4))).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("x-predicted-ttft-ms"));
    let mut judged = 0.0;
    for side in ["early", "late"] {
        judged += server.metric(&format!("forebay_ttft_prediction_error_seconds_count{{side=\"{side}\"}}")).await;
    }
    assert!(judged >= 1.0, "the prediction was compared with what happened");
    // A queue that does not move, in front of a prompt of half the context.
    let long: Vec<u64> = (0..500).map(|i| 3 + i % 250).collect();
    assert_eq!(put(&server, "/admin/limits", json!({"max_num_seqs": 1})).await.0, 200);
    let busy = json!({"prompt": long, "max_tokens": 500, "ignore_eos": true, "n": 8});
    let busy = tokio::spawn(post(server.at("/v1/completions"), busy));
    queued(&server, 7).await;
    let mut hopeless = json!({"prompt": long, "max_tokens": 4, "timeout_ms": 1});
    let (status, body) = post(server.at("/v1/completions"), hopeless.clone()).await;
    assert_eq!((status, &body["error"]["code"]), (408, &json!("timeout")));
    assert!(body["error"]["message"].as_str().expect("text").contains("cannot be met"), "{body}");
    hopeless["timeout_ms"] = json!(-1);
    let (status, body) = post(server.at("/v1/completions"), hopeless).await;
    assert_eq!((status, &body["error"]["param"]), (400, &json!("timeout_ms")));
    busy.abort();
}

#[tokio::test]
async fn urgent_requests_go_first_by_field_or_by_header() {
    let server = Server::start(&["--max-num-seqs", "1"]);
    tell(&server, "/admin/pause").await;
    let mut clients = Vec::new();
    for (n, priority) in [json!("low"), json!(0), json!("high"), json!(-10)].into_iter().enumerate() {
        let mut body = prompt(n as u64, 12);
        body["priority"] = priority;
        clients.push(tokio::spawn(post(server.at("/v1/completions"), body)));
        queued(&server, n as u64 + 1).await;
    }
    let by_header = Client::new().post(server.at("/v1/completions")).header("x-priority", "high").json(&prompt(9, 12));
    clients.push(tokio::spawn(async move {
        let answer = by_header.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    }));
    let state = queued(&server, 5).await;
    assert_eq!(state["queue"]["by_priority"], json!({"critical": 1, "high": 2, "normal": 1, "low": 1, "batch": 0}));
    let listed = get(&server, "/admin/requests").await;
    let mut priorities: Vec<&str> =
        listed["data"].as_array().expect("a list").iter().map(|r| r["priority"].as_str().expect("text")).collect();
    priorities.sort_unstable();
    assert_eq!(priorities, ["critical", "high", "high", "low", "normal"]);
    tell(&server, "/admin/resume").await;
    for client in clients {
        assert_eq!(client.await.expect("joined").0, 200);
    }
    let batches = get(&server, "/admin/state").await["last_batches"].clone();
    // Newest first; one seat, so one request each.
    let order: Vec<&str> =
        batches.as_array().expect("a list").iter().rev().map(|b| b["max_priority"].as_str().expect("text")).collect();
    assert_eq!(order, ["critical", "high", "high", "normal", "low"]);
    for (field, value) in [("priority", json!("urgent")), ("priority", json!(1.5)), ("deadline_ms", json!(0))] {
        let mut body = prompt(1, 4);
        body[field] = value;
        let (status, body) = post(server.at("/v1/completions"), body).await;
        assert_eq!((status, &body["error"]["param"]), (400, &json!(field)));
    }
    let bad = Client::new().post(server.at("/v1/completions")).header("x-priority", "asap").json(&prompt(1, 4));
    let bad: Value = bad.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(bad["error"]["param"], "x-priority");
}

fn keys(object: &Value) -> Vec<&String> {
    object.as_object().expect("an object").keys().collect()
}

/// The example of `forebay_trace` in docs/batching.md.
fn documented_trace() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/batching.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let mut examples = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let example = examples.find(|text| text.contains("\"sequence\"")).expect("an example");
    serde_json::from_str(example).expect("JSON")
}

#[tokio::test]
async fn an_operator_ends_a_request_and_reads_why_others_waited() {
    let server = Server::start(&["--max-num-seqs", "1"]);
    let long = json!({"prompt": "Once upon a time", "max_tokens": 900, "ignore_eos": true, "n": 2});
    let long = tokio::spawn(post(server.at("/v1/completions"), long));
    let live = until(&server, "/admin/requests", "one runs, one is queued", |live| {
        let states: Vec<&Value> = live["data"].as_array().expect("a list").iter().map(|r| &r["state"]).collect();
        states.len() == 2 && states.contains(&&json!("decode")) && states.contains(&&json!("queued"))
    });
    let live = live.await;
    let id = live["data"][0]["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("cmpl-"));
    let one = get(&server, &format!("/admin/requests/{id}")).await;
    assert_eq!(one["sequences"].as_array().expect("a list").len(), 2);
    let body = json!({"prompt": [5, 6, 7], "max_tokens": 3, "stream": true, "user": "someone", "ignore_eos": true});
    let traced = Client::new().post(server.at("/v1/completions")).header("x-forebay-trace", "1").json(&body);
    let traced = tokio::spawn(async move { traced.send().await.expect("an answer").text().await.expect("a body") });
    queued(&server, 2).await;
    let (status, ended) = admin(&server, Method::DELETE, &format!("/admin/requests/{id}"), None).await;
    assert_eq!((status, &ended["sequences_ended"]), (200, &json!(2)));
    let (status, body) = long.await.expect("joined");
    assert_eq!((status, &body["error"]["code"]), (500, &json!("aborted")), "the client hears of it");
    assert_eq!(admin(&server, Method::DELETE, &format!("/admin/requests/{id}"), None).await.0, 404);

    let frames = frames(&traced.await.expect("joined"));
    let last = frames.last().expect("a last chunk");
    assert_eq!(last["choices"], json!([]));
    let sequences = last["forebay_trace"].as_array().expect("a trace");
    assert_eq!(keys(&documented_trace()[0]), keys(&sequences[0]), "as docs/batching.md shows it");
    assert_eq!(sequences.len(), 1);
    let events: Vec<&str> =
        sequences[0]["events"].as_array().expect("events").iter().map(|e| e["what"].as_str().expect("text")).collect();
    assert_eq!(events, ["queued", "released", "admitted", "prefill", "first_token", "ended"]);
    let released = &sequences[0]["events"][1];
    let waited = |cause: &str| released[cause].as_u64().expect("microseconds");
    assert!(waited("waited_flush_timer_us") + waited("waited_seats_us") > 0, "{released}");
    assert_eq!(sequences[0]["events"][5]["how"], "length");
    let id = last["id"].as_str().expect("an id");
    let again = get(&server, &format!("/admin/requests/{id}/trace")).await;
    assert_eq!(again["sequences"], last["forebay_trace"], "it can be read afterwards");
    assert_eq!(admin(&server, Method::GET, "/admin/requests/cmpl-none/trace", None).await.0, 404);
    // Without the header no answer holds a trace; with it, whole ones do too.
    let plain = post(server.at("/v1/completions"), prompt(1, 2)).await.1;
    assert!(plain.get("forebay_trace").is_none());
    let whole = Client::new().post(server.at("/v1/chat/completions")).header("x-forebay-trace", "true");
    let whole = whole.json(&json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})).send().await;
    let whole: Value = whole.expect("an answer").json().await.expect("JSON");
    assert_eq!(whole["forebay_trace"].as_array().expect("a trace").len(), 1);
}

#[tokio::test]
async fn heat_refuses_newcomers_and_loses_nobody() {
    let server = Server::start(&[]);
    let alone = tokens(&post(server.at("/v1/completions"), prompt(3, 900)).await.1);
    // The gauge follows the last token by a turn of the loop.
    server.until_metric("vllm:num_requests_running", 0.0).await;
    let running = tokio::spawn(post(server.at("/v1/completions"), prompt(3, 900)));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    assert_eq!(tell(&server, "/admin/thermal/emergency").await.1["level"], "emergency");
    let refused = send(&server, Method::POST, "/v1/completions", Some(prompt(4, 4))).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(refused.json::<Value>().await.expect("JSON")["error"]["code"], "thermal_limit");
    // A step that was under way may end; after it, none begins.
    let mut steps = Value::Null;
    let still = until(&server, "/admin/state", "no more steps", |state| {
        state["steps_total"] == std::mem::replace(&mut steps, state["steps_total"].clone())
    });
    assert_eq!(still.await["requests_running"], 1, "it has not just come to its end");
    assert_eq!(reqwest::get(server.at("/health/ready")).await.expect("a probe").status(), 200, "paused, not stalled");
    assert_eq!(put(&server, "/admin/thermal", json!({"level": "critical"})).await.0, 200);
    assert_eq!(post(server.at("/v1/completions"), prompt(4, 4)).await.0, 503);
    let (status, body) = running.await.expect("joined");
    assert_eq!((status, tokens(&body)), (200, alone), "critical lets it finish");
    assert_eq!(tell(&server, "/admin/thermal/auto").await.1["forced"], false);
    assert_eq!(post(server.at("/v1/completions"), prompt(4, 4)).await.0, 200);
    assert_eq!(tell(&server, "/admin/thermal/tropical").await.0, 404);
    assert_eq!(put(&server, "/admin/thermal", json!({"level": 3})).await.0, 400);
}

#[tokio::test]
async fn the_sensor_is_read_and_its_loss_is_no_emergency() {
    let folder = tempfile::tempdir().expect("a folder");
    let zone = folder.path().join("thermal_zone0");
    std::fs::create_dir(&zone).expect("a zone");
    let say = |text: &str| std::fs::write(zone.join("temp"), text).expect("written");
    say("92000");
    let path = folder.path().to_str().expect("utf-8");
    let server = Server::start_in(&["--thermal-path", path], &[("FOREBAY__THERMAL__INTERVAL", "10ms")]);
    let level = |wanted: &'static str| until(&server, "/admin/thermal", wanted, move |body| body["level"] == wanted);
    assert_eq!(level("critical").await["celsius"], 92.0);
    assert_eq!(server.metric("forebay_thermal_level").await, 3.0);
    assert_eq!(post(server.at("/v1/completions"), prompt(4, 4)).await.0, 503);
    std::fs::remove_file(zone.join("temp")).expect("removed");
    until(&server, "/admin/thermal", "the loss is seen", |body| body["celsius"].is_null()).await;
    assert_eq!(get(&server, "/admin/thermal").await["level"], "critical", "held, and no emergency");
    // The operator need not wait for the hysteresis.
    assert_eq!(tell(&server, "/admin/thermal/nominal").await.0, 200);
    assert_eq!(post(server.at("/v1/completions"), prompt(4, 4)).await.0, 200);
}

#[tokio::test]
async fn limits_and_parameters_stay_inside_the_envelope() {
    let server = Server::start(&["--max-num-seqs", "8"]);
    let limits = get(&server, "/admin/limits").await;
    assert_eq!(limits["parameters"]["max_num_seqs"], 8);
    for (path, body, param) in [
        ("/admin/limits", json!({"max_num_seqs": 9}), "max_num_seqs"),
        ("/admin/limits", json!({"max_num_seqs": 0}), "max_num_seqs"),
        ("/admin/limits", json!({"max_num_seqs": "4"}), "max_num_seqs"),
        ("/admin/limits", json!({"max_stall_ms": -1}), "max_stall_ms"),
        ("/admin/limits", json!({"max_seqs": 1}), "max_seqs"),
        ("/admin/limits", json!({}), "body"),
        ("/admin/strategy", json!({"min_wait_ms": 500}), "max_wait_ms"),
        ("/admin/strategy", json!({"name": "fixed", "parameters": {"max_wait_ms": 1e300}}), "max_wait_ms"),
        ("/admin/strategy", json!({"name": 5}), "name"),
        ("/admin/policy", json!({"decode_burst_budget": 0.5}), "decode_burst_budget"),
        ("/admin/policy", json!({"preemption": "oldest"}), "preemption"),
        ("/admin/policy", json!({"preemption": 1}), "preemption"),
        ("/admin/policy", json!({"preemption": ["longest"]}), "preemption"),
    ] {
        let (status, answer) = put(&server, path, body.clone()).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{path} {body}");
    }
    assert_eq!(get(&server, "/admin/strategy").await["name"], "queue_depth", "refused whole");
    let nan = Client::new().put(server.at("/admin/strategy")).header("content-type", "application/json");
    let nan = nan.body(r#"{"max_wait_ms": NaN}"#).send().await.expect("an answer");
    assert_eq!(nan.status(), 400);
    for (path, listed) in [("/admin/strategy/greedy", "latency_aware"), ("/admin/policy/greedy", "throughput_first")] {
        for method in [Method::GET, Method::POST] {
            let (status, answer) = admin(&server, method, path, None).await;
            assert_eq!(status, 404);
            assert!(answer["error"]["message"].as_str().expect("text").contains(listed), "{answer}");
        }
    }
    let (status, changed) = put(&server, "/admin/strategy", json!({"name": "fixed", "max_wait_ms": 20})).await;
    assert_eq!(status, 200);
    assert_eq!(
        changed["changed"],
        json!([
            {"what": "strategy", "from": "queue_depth", "to": "fixed"},
            {"what": "max_wait_ms", "from": "100", "to": "20"},
        ])
    );
    let (status, changed) = put(&server, "/admin/policy", json!({"preemption": "longest"})).await;
    let change = json!([{"what": "preemption", "from": "most_recent", "to": "longest"}]);
    assert_eq!((status, &changed["changed"], &changed["name"]), (200, &change, &json!("fair")));
    let policy = get(&server, "/admin/policy").await;
    assert_eq!(policy["parameters"]["preemption"], "longest");
    assert_eq!(policy["settings"]["preemption"]["choices"], json!(["most_recent", "longest", "lowest_priority"]));
    let fixed = get(&server, "/admin/strategy/fixed").await;
    assert_eq!((&fixed["active"], &fixed["parameters"]["max_wait_ms"]), (&json!(true), &json!(20)));
    assert_eq!(get(&server, "/admin/strategy/immediate").await["active"], false);
    assert_eq!(put(&server, "/admin/limits", json!({"max_num_seqs": 2, "max_stall_ms": 10})).await.0, 200);
    let answers = (0..6).map(|n| tokio::spawn(post(server.at("/v1/completions"), prompt(n, 10))));
    for answer in answers.collect::<Vec<_>>() {
        assert_eq!(answer.await.expect("joined").0, 200);
    }
}

#[tokio::test]
async fn the_state_counts_batches_tokens_and_steps_and_starts_anew_when_told() {
    let server = Server::start(&[]);
    for n in 0..2 {
        assert_eq!(post(server.at("/v1/completions"), prompt(n, 10)).await.0, 200);
    }
    let state = get(&server, "/admin/state").await;
    assert_eq!((&state["strategy"], &state["policy"]), (&json!("queue_depth"), &json!("fair")));
    assert_eq!((&state["batches_formed"], &state["avg_batch_size"]), (&json!(2), &json!(1.0)));
    assert_eq!((&state["total_tokens_generated"], &state["window"]["tokens"]), (&json!(20), &json!(20)));
    assert!(state["current_tok_per_sec"].as_f64().expect("a rate") > 0.0);
    assert!(state["window"]["step_ms"]["p99"].as_f64().expect("a time") > 0.0);
    let batch = &state["last_batches"][0];
    assert_eq!((&batch["id"], &batch["size"], &batch["strategy"]), (&json!(2), &json!(1), &json!("queue_depth")));
    assert_eq!(
        (&batch["total_tokens"], &batch["max_priority"], &batch["cause"]),
        (&json!(12), &json!("normal"), &json!("idle"))
    );
    assert_eq!(tell(&server, "/admin/stats/reset").await.0, 200);
    let state = get(&server, "/admin/state").await;
    assert_eq!((&state["batches_formed"], &state["window"]["tokens"]), (&json!(0), &json!(0)));
    assert_eq!(state["total_tokens_generated"], 20, "since the process began");
    assert_eq!(server.metric(r#"forebay_batches_released_total{cause="idle"}"#).await, 2.0);
}

#[tokio::test]
async fn a_drain_by_order_ends_the_process_after_its_requests() {
    let mut server = Server::start(&[]);
    let running = tokio::spawn(post(server.at("/v1/completions"), prompt(3, 900)));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    assert_eq!(tell(&server, "/admin/drain").await, (202, json!({"draining": true})));
    assert_eq!(running.await.expect("joined").0, 200);
    assert!(server.wait().success());
}

#[tokio::test]
async fn the_admin_routes_can_be_switched_off_and_do_not_answer_web_pages() {
    let server = Server::start(&["--admin", "off"]);
    assert_eq!(admin(&server, Method::GET, "/admin/state", None).await.0, 403);
    assert_eq!(tell(&server, "/admin/pause").await.0, 403);
    let server = Server::start(&[]);
    let page = Client::new().post(server.at("/admin/pause")).header("origin", "http://evil.example");
    assert_eq!(page.send().await.expect("an answer").status(), 403);
    assert_eq!(get(&server, "/admin/state").await["paused"], false);
}

#[tokio::test]
async fn the_gap_between_steps_is_measured_while_there_is_work() {
    let server = Server::start(&[]);
    for n in 0..2 {
        assert_eq!(post(server.at("/v1/completions"), prompt(n, 20)).await.0, 200);
    }
    let steps = server.metric("forebay_engine_steps_total").await;
    let gaps = server.metric("forebay_engine_gap_seconds_count").await;
    // None before the first step, and none while the server waited for the second request.
    assert_eq!(gaps, steps - 2.0);
}
