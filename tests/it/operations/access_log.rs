//! The access log: a line for each request, with everything but what is private.

use serde_json::{Value, json};

use crate::support::server::{Server, post, ready_clients};

const SECRET: &str = "zanzibar";

async fn ask(server: &Server, id: &str, path: &str, body: &Value) -> u16 {
    let request = reqwest::Client::new().post(server.at(path)).header("x-request-id", id);
    let request = request.header("authorization", format!("Bearer sk-{SECRET}")).json(body);
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.headers()["x-request-id"], id);
    let status = answer.status().as_u16();
    answer.bytes().await.expect("a body");
    status
}

fn of<'a>(lines: &'a [Value], id: &str) -> &'a Value {
    lines.iter().find(|line| line["request_id"] == id).unwrap_or_else(|| panic!("no {id} in {lines:#?}"))
}

#[tokio::test]
async fn each_request_is_a_line_with_route_status_tokens_and_nothing_private() {
    let server = Server::start(&[]);
    let prompt = json!({"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": true, "user": SECRET});
    assert_eq!(ask(&server, "plain", "/v1/completions", &prompt).await, 200);
    let mut streamed = prompt.clone();
    streamed["stream"] = json!(true);
    assert_eq!(ask(&server, "streamed", "/completions", &streamed).await, 200);
    assert_eq!(ask(&server, "wrong", "/v1/completions", &json!({"prompt": SECRET, "max_tokens": SECRET})).await, 400);
    assert_eq!(ask(&server, "nowhere", &format!("/v1/{SECRET}?key={SECRET}"), &json!({})).await, 404);
    let lines = server.until_logged("request", 4).await;
    let line = of(&lines, "plain");
    assert_eq!(
        (&line["method"], &line["route"], &line["status"]),
        (&json!("POST"), &json!("/v1/completions"), &json!(200))
    );
    assert_eq!((&line["prompt_tokens"], &line["completion_tokens"]), (&json!(3), &json!(4)));
    assert_eq!((&line["finish_reason"], &line["outcome"]), (&json!("length"), &json!("ok")));
    assert!(line["id"].as_str().is_some_and(|id| id.starts_with("cmpl-")), "{line}");
    assert!(line["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{line}");
    assert_eq!(
        (&of(&lines, "streamed")["route"], &of(&lines, "streamed")["completion_tokens"]),
        (&json!("/completions"), &json!(4))
    );
    let line = of(&lines, "wrong");
    assert_eq!(
        (&line["status"], &line["outcome"], &line["completion_tokens"]),
        (&json!(400), &json!("client_error"), &Value::Null)
    );
    assert_eq!(of(&lines, "nowhere")["route"], "other");
    assert!(server.logged().iter().all(|line| !line.to_string().contains(SECRET)), "{:#?}", server.logged());
}

#[tokio::test]
async fn a_client_that_leaves_is_told_of_as_such() {
    let server = Server::start(&[]);
    let body = json!({"prompt": "Once", "max_tokens": 1000, "n": 8, "ignore_eos": true, "stream": true});
    let client = tokio::spawn(reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send());
    server.until_metric("vllm:num_requests_running", 8.0).await;
    client.abort();
    drop(client.await);
    let lines = server.until_logged("request", 1).await;
    assert_eq!((&lines[0]["outcome"], &lines[0]["status"]), (&json!("cancelled"), &json!(200)));
}

#[tokio::test]
async fn it_can_be_switched_off() {
    let server = Server::start_in(&[], &[("FOREBAY__LOGGING__ACCESS", "false")]);
    assert_eq!(post(server.at("/v1/completions"), json!({"prompt": "Once", "max_tokens": 1})).await.0, 200);
    // Whatever was logged before this line is there with it.
    assert_eq!(post(server.at("/admin/reload"), json!({})).await.0, 200);
    server.until_logged("reloaded", 1).await;
    assert!(server.logged().iter().all(|line| line["fields"]["event"] != "request"));
}

/// A pipe takes 64 KiB, and these lines are several times that.
#[tokio::test]
async fn a_log_that_nobody_reads_holds_nobody_up() {
    ready_clients();
    // Taken and let go, for a server whose log cannot be asked where it listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--model", "sim", "--log-format", "json", "--port", &port.to_string()])
        .env("FOREBAY__STORE__URL", "memory")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let client = reqwest::Client::builder().timeout(std::time::Duration::from_secs(60)).build().unwrap();
    let url = format!("http://127.0.0.1:{port}/v1/models");
    while client.get(&url).send().await.is_err() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for at in 0..1_000 {
        let answer = client.get(&url).send().await;
        assert_eq!(answer.map(|answer| answer.status().as_u16()).ok(), Some(200), "request {at}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
