//! SIGTERM under load: who is still taken, who finishes, who hears an error, and with which exit code the process ends.

use reqwest::Response;
use serde_json::{Value, json};

use crate::support::server::{Server, frames, post};

/// Steps of a known length, so that what runs goes on until somebody ends it.
fn slow(seats: &str, variables: &[(&str, &str)]) -> Server {
    let steady = [("FOREBAY__WORKERS__COUNT", "1"), ("FOREBAY__WORKERS__BASE_LATENCY_MS", "50")];
    Server::start_in(&["--model", "sim", "--max-num-seqs", seats], &[&steady, variables].concat())
}

/// Would take most of a minute.
fn endless() -> Value {
    json!({"prompt": "Once upon a time", "max_tokens": 1000, "ignore_eos": true})
}

fn short() -> Value {
    json!({"prompt": "Once", "max_tokens": 2, "ignore_eos": true})
}

async fn get(server: &Server, path: &str) -> Response {
    reqwest::get(server.at(path)).await.expect("an answer")
}

/// Until probes send traffic elsewhere.
async fn not_ready(server: &Server) -> Response {
    loop {
        let answer = get(server, "/health/ready").await;
        if answer.status() == 503 {
            return answer;
        }
        tokio::task::yield_now().await;
    }
}

/// Two seats, so that somebody is served beside what runs.
#[tokio::test]
async fn during_the_delay_it_is_not_ready_and_serves_and_a_second_signal_ends_it_at_once() {
    let mut server = slow("2", &[("FOREBAY__SERVER__DRAIN_DELAY", "10m")]);
    let running = tokio::spawn(post(server.at("/v1/completions"), endless()));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    assert!(!get(&server, "/health/live").await.headers().contains_key("x-envoy-immediate-health-check-fail"));
    server.terminate();
    let refused = not_ready(&server).await;
    assert_eq!(refused.headers()["x-envoy-immediate-health-check-fail"], "true");
    assert_eq!(refused.headers()["connection"], "close");
    assert_eq!(refused.json::<Value>().await.expect("JSON")["error"]["code"], "shutting_down");
    let alive = get(&server, "/health/live").await;
    assert_eq!(
        (alive.status().as_u16(), &alive.headers()["x-envoy-immediate-health-check-fail"]),
        (200, &"true".parse().unwrap())
    );
    // New requests are still taken: routers may not have noticed yet.
    let (status, answer) = post(server.at("/v1/completions"), short()).await;
    assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(2)), "{answer}");
    server.terminate();
    let (status, answer) = running.await.expect("no panic");
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("shutting_down")), "{answer}");
    assert_eq!(server.wait().code(), Some(143), "128 + SIGTERM");
}

#[tokio::test]
async fn an_interrupt_is_the_second_signal_too_and_has_its_own_code() {
    let mut server = slow("1", &[]);
    let running = tokio::spawn(post(server.at("/v1/completions"), endless()));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    server.terminate();
    not_ready(&server).await;
    server.signal("INT");
    assert_eq!(running.await.expect("no panic").0, 503);
    assert_eq!(server.wait().code(), Some(130), "128 + SIGINT");
}

#[tokio::test]
async fn running_requests_finish_and_queued_ones_are_refused() {
    let mut server = slow("1", &[]);
    // Some seconds: until the others wait, and then to the end.
    let long = json!({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true});
    let running = tokio::spawn(post(server.at("/v1/completions"), long.clone()));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    let queued: Vec<_> = (0..3).map(|_| tokio::spawn(post(server.at("/v1/completions"), long.clone()))).collect();
    server.until_metric("vllm:num_requests_waiting", 3.0).await;
    server.terminate();
    for refused in queued {
        let (status, answer) = refused.await.expect("no panic");
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("shutting_down")), "{answer}");
    }
    let (status, answer) = running.await.expect("no panic");
    assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(100)), "{answer}");
    assert_eq!(server.wait().code(), Some(0));
}

/// So that a balancer may ask the next replica.
#[tokio::test]
async fn a_stream_that_waits_for_its_seat_is_refused_by_a_status() {
    let mut server = slow("1", &[]);
    let long = json!({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true});
    let running = tokio::spawn(post(server.at("/v1/completions"), long));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    let said = json!([{"role": "user", "content": "Hello"}]);
    let streams = [
        ("/v1/completions", json!({"prompt": "Once", "stream": true})),
        ("/v1/chat/completions", json!({"messages": said, "stream": true})),
        ("/v1/responses", json!({"input": "Hello", "stream": true})),
        ("/v1/messages", json!({"messages": said, "max_tokens": 4, "model": "default", "stream": true})),
    ];
    let queued: Vec<_> = streams.map(|(path, body)| (path, tokio::spawn(post(server.at(path), body)))).into();
    server.until_metric("vllm:num_requests_waiting", 4.0).await;
    server.terminate();
    for (path, refused) in queued {
        let (status, answer) = refused.await.expect("no panic");
        assert_eq!(status, 503, "{path}: {answer}");
        assert_eq!(answer["error"]["code"].as_str().unwrap_or("shutting_down"), "shutting_down", "{path}: {answer}");
    }
    assert_eq!(running.await.expect("no panic").0, 200);
    assert_eq!(server.wait().code(), Some(0));
}

#[tokio::test]
async fn a_stream_that_is_not_held_has_its_status_at_once_and_hears_of_the_end_by_an_event() {
    let mut server = slow("1", &[("FOREBAY__SERVER__STREAM_HOLD", "0s")]);
    let long = json!({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true});
    let running = tokio::spawn(post(server.at("/v1/completions"), long));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    let body = json!({"prompt": "Once", "stream": true});
    let queued = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("a stream");
    assert_eq!(queued.status(), 200);
    server.until_metric("vllm:num_requests_waiting", 1.0).await;
    server.terminate();
    let frames = frames(&queued.text().await.expect("the stream is closed in order"));
    assert_eq!(frames.last().expect("frames")["error"]["code"], "shutting_down");
    assert_eq!(running.await.expect("no panic").0, 200);
    assert_eq!(server.wait().code(), Some(0));
}

#[tokio::test]
async fn at_the_deadline_streams_end_with_an_error_and_the_process_ends() {
    let mut server = slow("1", &[("FOREBAY__ENGINE__DRAIN_TIMEOUT", "200ms")]);
    let mut body = endless();
    body["stream"] = json!(true);
    let stream = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("a stream");
    server.until_metric("vllm:num_requests_running", 1.0).await;
    server.terminate();
    let frames = frames(&stream.text().await.expect("the stream is closed in order"));
    assert_eq!(frames.last().expect("frames")["error"]["code"], "shutting_down", "and [DONE] behind it");
    assert_eq!(server.wait().code(), Some(0));
}

/// Kubernetes sends its signal when the hook that ordered the drain has returned.
#[tokio::test]
async fn the_signal_after_an_order_is_not_the_second() {
    let mut server = Server::golden("llama", &["--max-num-seqs", "1"]);
    let long = json!({"prompt": vec![5; 8], "max_tokens": 240, "temperature": 0, "ignore_eos": true});
    let running = tokio::spawn(post(server.at("/v1/completions"), long));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    let ordered = reqwest::Client::new().post(server.at("/admin/drain")).send().await.expect("an answer");
    assert_eq!(ordered.status(), 202);
    server.until_logged("draining", 1).await;
    server.terminate();
    let (status, answer) = running.await.expect("no panic");
    assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(240)), "{answer}");
    assert_eq!(server.wait().code(), Some(0));
}
