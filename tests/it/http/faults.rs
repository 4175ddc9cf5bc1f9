//! Clients that leave, queues that fill, processes that are told to stop, files that lie: over the real binary.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::server::{Server, post};

/// A request that would run for a long time on a golden.
fn long() -> Value {
    json!({"prompt": vec![5; 8], "max_tokens": 240, "temperature": 0, "ignore_eos": true})
}

/// One that would run longer still: eight choices of the embedded model.
fn longer() -> Value {
    json!({"prompt": "Once upon a time", "max_tokens": 1000, "n": 8, "ignore_eos": true})
}

#[tokio::test]
async fn a_client_that_leaves_is_aborted_streaming_or_not() {
    let server = Server::start(&[]);
    for streaming in [true, false] {
        let mut body = longer();
        body["stream"] = streaming.into();
        let request = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send();
        let client = tokio::spawn(request);
        server.until_metric("vllm:num_requests_running", 8.0).await;
        // Probes are answered while the engine computes.
        assert_eq!(reqwest::get(server.at("/health")).await.expect("a probe").status(), 200);
        // Dropping the answer, or the request while it waits for one, closes the connection.
        client.abort();
        drop(client.await);
        server.until_metric("vllm:num_requests_running", 0.0).await;
        server.until_metric("vllm:kv_cache_usage_perc", 0.0).await;
    }
    let (status, _) = post(server.at("/v1/completions"), json!({"prompt": "The fox", "max_tokens": 3})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_full_queue_is_a_429_with_retry_after() {
    let server = Server::start(&["--max-num-seqs", "1", "--queue-capacity", "1"]);
    let mut body = longer();
    body["n"] = 1.into();
    let running = tokio::spawn(post(server.at("/v1/completions"), body.clone()));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    let queued = tokio::spawn(post(server.at("/v1/completions"), body.clone()));
    server.until_metric("vllm:num_requests_waiting", 1.0).await;
    let refused = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("answer");
    assert_eq!(refused.status(), 429);
    let seconds: u32 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=60).contains(&seconds));
    assert_eq!(refused.json::<Value>().await.expect("JSON")["error"]["code"], "queue_full");
    running.abort();
    queued.abort();
}

#[tokio::test]
async fn a_term_signal_drains_and_exits_cleanly() {
    let mut server = Server::golden("llama", &["--max-num-seqs", "1"]);
    let running = tokio::spawn(post(server.at("/v1/completions"), long()));
    server.until_metric("vllm:num_requests_running", 1.0).await;
    server.terminate();
    let (status, answer) = running.await.expect("no panic");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], 240);
    assert!(server.wait().success());
}

#[tokio::test]
async fn a_second_signal_aborts() {
    let mut server = Server::start(&[]);
    let running = tokio::spawn(post(server.at("/v1/completions"), longer()));
    server.until_metric("vllm:num_requests_running", 8.0).await;
    server.terminate();
    while reqwest::get(server.at("/health/ready")).await.is_ok_and(|answer| answer.status() == 200) {
        tokio::task::yield_now().await;
    }
    server.terminate();
    let (status, answer) = running.await.expect("no panic");
    assert_eq!((status, answer["error"]["code"].clone()), (503, json!("shutting_down")));
    server.wait();
}

#[tokio::test]
async fn an_idle_server_uses_no_processor() {
    let server = Server::start(&[]);
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("a Linux process");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime")
    };
    let (status, _) = post(server.at("/v1/completions"), json!({"prompt": "The fox", "max_tokens": 3})).await;
    assert_eq!(status, 200);
    let before = ticks();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    // A loop that spins would burn 50 ticks of 10 ms.
    assert!(ticks() - before <= 5, "{} ticks", ticks() - before);
}

/// Runs the binary to its end; its exit code and what it said.
fn fails(args: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).env("FOREBAY__STORE__URL", "memory").output();
    let output = output.expect("the binary starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_model_that_lies_is_exit_code_2_and_names_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("utf-8");
    let (code, said) = fails(&["serve", "--port", "0", "--model", path]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("config.json"), "{said}");
    std::fs::write(folder.path().join("config.json"), "{ nonsense").expect("written");
    let (code, said) = fails(&["serve", "--port", "0", "--model", path]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("config.json"), "{said}");
}

#[test]
fn a_bad_configuration_is_exit_code_2_and_names_the_key() {
    let (code, said) = fails(&["serve", "--port", "70000"]);
    assert_eq!(code, Some(2), "{said}");
    let file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    std::fs::write(file.path(), "server:\n  prot: 1\n").expect("written");
    let (code, said) = fails(&["serve", "--config", file.path().to_str().expect("utf-8")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("server.prot") && said.contains(".yaml"), "{said}");
}
