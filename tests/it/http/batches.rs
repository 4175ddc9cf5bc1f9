//! The Batch API over the real binary: a whole batch, requests that come meanwhile, and kills at any moment.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_store::{Config, FileObject, Location, Origin, Outcome, Store};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use reqwest::Client;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

use crate::support::server::{Server, post};

const KILLS: usize = 20;

/// As a client writes it, without a crate for forms.
async fn upload(server: &Server, content: &str) -> (u16, Value) {
    let head = "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
                --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n";
    let request = Client::new().post(server.at("/v1/files")).header("content-type", "multipart/form-data; boundary=b");
    let answer = request.body(format!("{head}{content}\r\n--b--\r\n")).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

async fn get(server: &Server, path: &str) -> Value {
    let answer = reqwest::get(server.at(path)).await.expect("an answer");
    assert_eq!(answer.status(), 200, "{path}");
    answer.json().await.expect("JSON")
}

async fn text(server: &Server, file: &Value) -> String {
    let Some(id) = file.as_str() else { return String::new() };
    let answer = reqwest::get(server.at(&format!("/v1/files/{id}/content"))).await.expect("an answer");
    answer.text().await.expect("a body")
}

async fn content(server: &Server, file: &Value) -> Vec<Value> {
    let text = text(server, file).await;
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

async fn create(server: &Server, lines: &[Value], endpoint: &str) -> String {
    let content: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (status, file) = upload(server, &content).await;
    assert_eq!(status, 200, "{file}");
    let asked = json!({"input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h"});
    let (status, batch) = post(server.at("/v1/batches"), asked).await;
    // Usually the first; the runner looks once a second without being told, too.
    let begun = ["validating", "in_progress"].iter().any(|state| batch["status"] == *state);
    assert!(status == 200 && begun, "{status}: {batch}");
    batch["id"].as_str().expect("an id").to_owned()
}

/// Polls until the condition holds; for states that follow without an answer to wait for.
async fn until(server: &Server, id: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..12_000 {
        let batch = get(server, &format!("/v1/batches/{id}")).await;
        if holds(&batch) {
            return batch;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never {what}");
}

async fn ends(server: &Server, id: &str) -> Value {
    let over =
        |batch: &Value| ["completed", "failed", "expired", "cancelled"].iter().any(|end| batch["status"] == *end);
    until(server, id, "over", over).await
}

fn line(id: usize, body: Value) -> Value {
    json!({"custom_id": format!("line-{id}"), "method": "POST", "url": "/v1/completions", "body": body})
}

fn story(id: usize, tokens: usize) -> Value {
    line(
        id,
        json!({"prompt": format!("Number {id} was"), "max_tokens": tokens, "temperature": 0.7, "seed": id, "ignore_eos": true}),
    )
}

/// What does not differ from request to request; how much of a prompt was cached does.
fn said(body: &Value) -> (&Value, &Value, &Value) {
    let usage = &body["usage"];
    (&body["choices"], &usage["prompt_tokens"], &usage["completion_tokens"])
}

#[tokio::test]
async fn a_batch_answers_as_the_route_does() {
    let server = Server::start(&[]);
    let mut lines: Vec<Value> = (0..8).map(|id| story(id, 12)).collect();
    lines[3]["body"]["temperature"] = json!(9);
    lines[5]["body"]["model"] = json!("gpt-17");
    let id = create(&server, &lines, "/v1/completions").await;
    let batch = ends(&server, &id).await;
    assert_eq!((&batch["status"], &batch["errors"]), (&json!("completed"), &Value::Null), "{batch}");
    assert_eq!(batch["request_counts"], json!({"total": 8, "completed": 6, "failed": 2}));
    let output = content(&server, &batch["output_file_id"]).await;
    for answer in &output {
        let id: usize =
            answer["custom_id"].as_str().and_then(|id| id.strip_prefix("line-")?.parse().ok()).expect("an id");
        let (_, alone) = post(server.at("/v1/completions"), lines[id]["body"].clone()).await;
        let response = &answer["response"];
        assert_eq!((&response["status_code"], said(&response["body"])), (&json!(200), said(&alone)));
        assert!(response["request_id"].as_str().is_some_and(|id| id.starts_with("req-")), "{answer}");
    }
    let errors = content(&server, &batch["error_file_id"]).await;
    let faults: Vec<_> = errors
        .iter()
        .map(|line| {
            (
                line["custom_id"].clone(),
                line["response"]["status_code"].clone(),
                line["response"]["body"]["error"]["code"].clone(),
            )
        })
        .collect();
    assert_eq!(
        faults,
        [
            (json!("line-3"), json!(400), json!("invalid_value")),
            (json!("line-5"), json!(404), json!("model_not_found"))
        ]
    );
    assert_eq!(get(&server, "/v1/batches").await["data"][0], batch);

    let chat = json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "A fox."}], "max_tokens": 5}});
    let id = create(&server, &[chat], "/v1/chat/completions").await;
    let batch = ends(&server, &id).await;
    let output = content(&server, &batch["output_file_id"]).await;
    assert_eq!(output[0]["response"]["body"]["object"], "chat.completion", "{batch}");
    assert_eq!(server.metric("forebay_panics_total").await, 0.0);
}

/// With every seat held by a batch, a request is answered before the batch's lines are.
#[tokio::test]
async fn a_request_does_not_wait_for_a_batch() {
    let server = Server::start(&["--max-num-seqs", "4"]);
    let lines: Vec<Value> = (0..16).map(|id| story(id, 800)).collect();
    let id = create(&server, &lines, "/v1/completions").await;
    let busy = |state: &Value| state["requests_running"] == 4;
    for _ in 0..12_000 {
        if busy(&get(&server, "/admin/state").await) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for n in 0..4 {
        let (status, answer) =
            post(server.at("/v1/completions"), json!({"prompt": "The owl", "max_tokens": 4, "seed": n})).await;
        assert_eq!(status, 200, "{answer}");
    }
    let batch = get(&server, &format!("/v1/batches/{id}")).await;
    assert_eq!(
        (&batch["status"], &batch["request_counts"]["completed"]),
        (&json!("in_progress"), &json!(0)),
        "{batch}"
    );
    let (status, cancelled) = post(server.at(&format!("/v1/batches/{id}/cancel")), json!({})).await;
    let begun = ["cancelling", "cancelled"].iter().any(|state| cancelled["status"] == *state);
    assert!(status == 200 && begun, "{status}: {cancelled}");
    let batch = ends(&server, &id).await;
    assert_eq!((&batch["status"], &batch["request_counts"]["total"]), (&json!("cancelled"), &json!(16)));
    assert_eq!(content(&server, &batch["error_file_id"]).await[0]["error"]["code"], "batch_cancelled");
    // What was being computed has ended with it.
    for gauge in ["forebay_num_requests_running", "forebay_num_requests_waiting"] {
        server.until_metric(gauge, 0.0).await;
    }
}

/// A server whose store is at `url`.
fn serve(url: &str) -> Server {
    Server::start_in(&["--max-num-seqs", "8"], &[("FOREBAY__STORE__URL", url), ("FOREBAY__BATCHES__CONCURRENCY", "4")])
}

/// What the store holds while no server runs: each answered line with its answer.
async fn journal(url: &str, id: &str) -> BTreeMap<String, String> {
    let store = Store::new(Config { location: Location::parse(url).expect("a location"), max_mib: None });
    let batch = store.batch(id).await.expect("a store").expect("a batch that was acknowledged");
    // The output file to be, as far as it is written.
    let output = FileObject {
        id: String::new(),
        created_ms: 0,
        expires_ms: None,
        purpose: "batch_output".into(),
        filename: String::new(),
        bytes: 0,
        owner: None,
        origin: Origin::Written { batch: batch.id, outcome: Outcome::Completed },
    };
    let (mut text, mut at) = (String::new(), -1);
    while let Some(part) = store.part(&output, at).await.expect("a part") {
        text.push_str(&part.content);
        at = part.at;
    }
    store.close().await;
    by_id(&text)
}

/// The lines of an output file.
fn by_id(text: &str) -> BTreeMap<String, String> {
    let mut answers = BTreeMap::new();
    for answer in text.lines() {
        let line: Value = serde_json::from_str(answer).expect("JSON");
        let custom_id = line["custom_id"].as_str().expect("an id").to_owned();
        assert!(answers.insert(custom_id, answer.to_owned()).is_none(), "a line was answered twice");
    }
    answers
}

/// Kills the server again and again while it writes answers; each is kept, and none is given twice.
async fn survives_kills(url: &str, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    // So many, so long and so few at once that the lines outlast the kills however late a poll sees them.
    let lines: Vec<Value> = (0..KILLS * 24).map(|id| story(id, 16)).collect();
    let total = lines.len();
    let mut server = serve(url);
    let id = create(&server, &lines, "/v1/completions").await;
    let mut kept: BTreeMap<String, String> = BTreeMap::new();
    let mut offsets = Vec::new();
    for kill in 0..KILLS {
        // A random number of lines further, and then in the midst of whatever the server does.
        let wanted = (kept.len() + rng.random_range(1..8)).min(total - 2 * (KILLS - kill));
        let batch = until(&server, &id, "further", |batch| {
            batch["request_counts"]["completed"].as_u64() >= Some(wanted as u64)
        })
        .await;
        let seen = batch["request_counts"]["completed"].as_u64().expect("a count") as usize;
        for _ in 0..rng.random_range(0..2_000) {
            std::hint::spin_loop();
        }
        // SIGKILL, and the end of the process.
        drop(server);
        let now = journal(url, &id).await;
        assert!(now.len() >= seen, "kill {kill}: {} lines are left of the {seen} that were acknowledged", now.len());
        for (custom_id, answer) in &kept {
            assert_eq!(now.get(custom_id), Some(answer), "kill {kill}: an answer changed");
        }
        offsets.push(now.len());
        kept = now;
        server = serve(url);
    }
    // Work was being written at each kill: there was more of it than at the kill before, and more to come.
    assert!(offsets.is_sorted_by(|a, b| a < b) && offsets[KILLS - 1] < total, "seed {seed}: {offsets:?} of {total}");
    let batch = ends(&server, &id).await;
    assert_eq!(batch["request_counts"], json!({"total": total, "completed": total, "failed": 0}), "{batch}");
    let output = by_id(&text(&server, &batch["output_file_id"]).await);
    assert_eq!(output.len(), total, "each line once");
    for (custom_id, answer) in kept {
        assert_eq!(output.get(&custom_id), Some(&answer), "an answer changed after the last kill");
    }
    // And a line is answered as it is alone, however often the server died.
    let (_, alone) = post(server.at("/v1/completions"), lines[7]["body"].clone()).await;
    let batched: Value = serde_json::from_str(&output["line-7"]).expect("JSON");
    assert_eq!(said(&batched["response"]["body"]), said(&alone));
}

#[tokio::test]
async fn no_kill_loses_or_repeats_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("forebay.db").display());
    survives_kills(&url, 7).await;
}

#[tokio::test]
async fn no_kill_loses_or_repeats_a_line_on_postgresql() {
    let Ok(server) = std::env::var("FOREBAY_TEST_POSTGRES") else {
        println!("skipped: FOREBAY_TEST_POSTGRES is not set; run `make test-postgres`");
        return;
    };
    sqlx::any::install_default_drivers();
    let name = format!("forebay_kill_{}", std::process::id());
    let options: sqlx::any::AnyConnectOptions = server.parse().expect("a URL");
    let mut connection = options.connect().await.expect("PostgreSQL answers");
    let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(create).execute(&mut connection).await.expect("a database");
    connection.close().await.expect("closed");
    let (server, _) = server.rsplit_once('/').expect("a database in the URL");
    survives_kills(&format!("{server}/{name}"), 8).await;
}

#[tokio::test]
async fn an_expired_batch_says_so_for_each_line() {
    let server = Server::start(&["--max-num-seqs", "1"]);
    let lines: Vec<Value> = (0..40).map(|id| story(id, 900)).collect();
    let content_of: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (_, file) = upload(&server, &content_of).await;
    let asked = json!({"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "1s"});
    let (_, batch) = post(server.at("/v1/batches"), asked).await;
    let batch = ends(&server, batch["id"].as_str().expect("an id")).await;
    assert_eq!((&batch["status"], &batch["request_counts"]["total"]), (&json!("expired"), &json!(40)), "{batch}");
    let errors = content(&server, &batch["error_file_id"]).await;
    assert_eq!(batch["request_counts"]["failed"], json!(errors.len()));
    assert!(!errors.is_empty() && errors.iter().all(|line| line["error"]["code"] == "batch_expired"));
}

#[tokio::test]
async fn who_changed_the_strategy_can_be_read_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("forebay.db").display());
    let server = serve(&url);
    let change = Client::new().post(server.at("/admin/policy/latency_first")).header("x-admin-actor", "kim");
    assert_eq!(change.send().await.expect("an answer").status(), 200);
    let (status, _) = post(server.at("/admin/strategy/immediate"), json!({})).await;
    assert_eq!(status, 200);
    drop(server);
    let server = serve(&url);
    let list = get(&server, "/admin/audit").await;
    let shown: Vec<_> =
        list["data"].as_array().expect("a list").iter().map(|e| (&e["what"], &e["from"], &e["to"])).collect();
    let expected = [
        (json!("strategy"), json!("queue_depth"), json!("immediate")),
        (json!("policy"), json!("fair"), json!("latency_first")),
    ];
    assert_eq!(shown, expected.each_ref().map(|(what, from, to)| (what, from, to)), "{list}");
    assert!(list["data"][1]["who"].as_str().is_some_and(|who| who.starts_with("kim at 127.0.0.1:")), "{list}");
}
