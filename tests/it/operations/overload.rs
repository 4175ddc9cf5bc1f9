//! Who is served when more is asked for than can be computed, at default settings but for the length of a step, which the simulated
//! model has longer than others. What is compared are counts and orders: how long things take is the simulator's matter
//! (`crates/sim/src/overload_tests.rs`).

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::server::{Server, post};

/// One loop of the simulated model: 10 ms a step and half a millisecond a token.
fn server(args: &[&str], variables: &[(&str, &str)]) -> Server {
    let like_others = ("FOREBAY__WORKERS__MAX_BATCH_TOKENS", "512");
    Server::start_in(&[&["--model", "sim", "--workers", "1"], args].concat(), &[&[like_others], variables].concat())
}

/// A prompt of so many tokens that begins like no other's.
fn ask(class: &str, number: usize, prompt: usize, max_tokens: usize) -> Value {
    let tokens: Vec<usize> = (0..prompt).map(|at| 3 + (number * 37 + at * 11 + at * at * number) % 250).collect();
    json!({"prompt": tokens, "max_tokens": max_tokens, "ignore_eos": true, "priority": class})
}

/// Requests of which the first token has come.
async fn begun(server: &Server) -> f64 {
    server.metric("forebay_time_to_first_token_seconds_count").await
}

async fn until_queued(server: &Server, sequences: f64) {
    while server.metric("forebay_sequences_admitted_total").await < sequences {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// All of them have a seat at once, so that the order is that of the prompts in a step; and after 3 s low requests once counted
/// as critical ones.
#[tokio::test]
async fn a_critical_request_goes_before_the_prompts_of_sixty_low_ones_that_came_earlier() {
    let server = server(&[], &[]);
    let mut lows = JoinSet::new();
    for number in 0..60 {
        lows.spawn(post(server.at("/v1/completions"), ask("low", number, 400, 64)));
    }
    until_queued(&server, 60.0).await;
    // Once at the beginning, and once when the others have waited for more than 3 s: 15 prompts of 0.2 s.
    for (number, after) in [(100, 0.0), (101, 18.0)] {
        while begun(&server).await < after {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = begun(&server).await;
        let (status, answer) = post(server.at("/v1/completions"), ask("critical", number, 100, 1)).await;
        assert_eq!(status, 200, "{answer}");
        let overtook = begun(&server).await - before - 1.0;
        let waited = 60.0 - before;
        assert!(waited > 30.0, "there was somebody to go before: {before} have begun");
        // Two steps are two prompts; the others are for a machine that does other things, too.
        assert!(overtook <= 10.0, "{overtook} of {waited} lows began before the critical request that came after them");
    }
}

/// Five times as many requests as can be computed, in four classes, for a while.
#[tokio::test]
async fn at_five_times_capacity_critical_requests_are_served_whole_and_low_ones_wait() {
    const SECONDS: usize = 8;
    const PER_SECOND: usize = 60;
    let server = server(&[], &[]);
    let mut asked = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND as u64));
    let mut counts = [0_usize; 4];
    let classes = ["critical", "high", "normal", "low"];
    for number in 0..SECONDS * PER_SECOND {
        clock.tick().await;
        // 3 % critical, 7 % high, 30 % normal, 60 % low.
        let class = match number * 37 % 100 {
            0..3 => 0,
            3..10 => 1,
            10..40 => 2,
            _ => 3,
        };
        counts[class] += 1;
        let (url, body) = (server.at("/v1/completions"), ask(classes[class], number, 128, 24));
        asked.spawn(async move { (class, post(url, body).await.0) });
    }
    // The last urgent ones end; then nobody waits for the others.
    let mut served = [0_usize; 4];
    while served[0] < counts[0] || served[1] < counts[1] {
        let (class, status) = asked.join_next().await.expect("an urgent request ends").expect("no panic");
        assert_eq!(status, 200, "{}: the queue has room for all", classes[class]);
        served[class] += 1;
    }
    assert!(counts[0] >= 10 && counts[1] >= 20, "{counts:?}");
    let share = |class: usize| served[class] as f64 / counts[class] as f64;
    assert!(share(3) < 0.5, "low requests gave way: {served:?} of {counts:?}");
    assert!(served[3] > 0, "but not for ever: {served:?} of {counts:?}");
    // What was done is told by class; whoever still waits is in neither count.
    let promises =
        |class: &str, outcome: &str| format!("forebay_promises_total{{outcome=\"{outcome}\",priority=\"{class}\"}}");
    let mut ended = 0.0;
    for outcome in ["kept", "broken"] {
        ended += server.metric(&promises("critical", outcome)).await;
    }
    assert_eq!(ended, counts[0] as f64);
}

#[tokio::test]
async fn a_queue_full_of_others_refuses_no_urgent_request() {
    refuses_only_others(&server(&["--queue-capacity", "16", "--max-num-seqs", "2"], &[])).await;
}

/// Who finds no connection is not heard. Of 21, 3 are kept.
#[tokio::test]
async fn requests_that_wait_leave_connections_for_urgent_ones() {
    let connections = [("FOREBAY__SERVER__MAX_CONNECTIONS", "21")];
    refuses_only_others(&server(&["--max-num-seqs", "2"], &connections)).await;
}

/// Of 40 requests of class low 16 wait and 2 run.
async fn refuses_only_others(server: &Server) {
    // With 600 tokens each, what is seated stays so for as long as this takes.
    let mut lows = JoinSet::new();
    for number in 0..40 {
        lows.spawn(post(server.at("/v1/completions"), ask("low", number, 20, 600)));
        if number == 1 {
            // Else a seat that is taken late makes room in the queue after all.
            server.until_metric("vllm:num_requests_running", 2.0).await;
        }
    }
    for _ in 0..40 - 16 - 2 {
        let (status, answer) = lows.join_next().await.expect("a refusal").expect("no panic");
        assert_eq!((status, &answer["error"]["code"]), (429, &json!("queue_full")), "{answer}");
    }
    let (status, answer) = post(server.at("/v1/completions"), ask("normal", 50, 20, 1)).await;
    assert_eq!((status, &answer["error"]["code"]), (429, &json!("queue_full")), "{answer}");
    for class in ["high", "critical"] {
        let (status, answer) = post(server.at("/v1/completions"), ask(class, 51, 20, 1)).await;
        assert_eq!(status, 200, "{class}: {answer}");
    }
}

/// Milliseconds until the first token, as told to the client.
async fn predicted(url: String, body: Value) -> u64 {
    let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.headers()["x-predicted-ttft-ms"].to_str().expect("text").parse().expect("a number")
}

/// The simulated model takes as long as it says, so that a prediction can be held against arithmetic: nothing that was measured by the
/// clock is in it.
#[tokio::test]
async fn a_prediction_is_the_work_ahead() {
    let server = server(&[], &[]);
    let url = || server.at("/v1/completions");
    for number in 0..24 {
        assert_eq!(post(url(), ask("normal", number, 20 + number * 10, 4)).await.0, 200);
    }
    server.until_metric("vllm:num_requests_running", 0.0).await;
    // An idle server: 10 + 100 ms, and what a fit of two dozen steps may be off.
    let alone = predicted(url(), ask("normal", 100, 200, 1)).await;
    assert!((95..=140).contains(&alone), "{alone} ms");
    server.until_metric("vllm:num_requests_running", 0.0).await;
    post(server.at("/admin/pause"), json!({})).await;
    let mut ahead = JoinSet::new();
    for number in 0..8 {
        ahead.spawn(post(url(), ask("normal", 200 + number, 400, 1)));
    }
    server.until_metric("vllm:num_requests_waiting", 8.0).await;
    // Behind 8 prompts of 400 tokens: 1.6 s, and the steps that these are cut into.
    let behind = tokio::spawn(predicted(url(), ask("normal", 300, 200, 1)));
    let urgent = tokio::spawn(predicted(url(), ask("critical", 301, 200, 1)));
    server.until_metric("vllm:num_requests_waiting", 10.0).await;
    post(server.at("/admin/resume"), json!({})).await;
    let (behind, urgent) = (behind.await.expect("no panic"), urgent.await.expect("no panic"));
    assert!((1_600..=2_400).contains(&behind), "{behind} ms behind the others, {alone} ms alone");
    // Its own 200 tokens in a step of 512, which nobody who decodes keeps short.
    assert!((alone..=330).contains(&urgent), "a critical request is behind nobody: {urgent} ms, {alone} ms alone");
    while let Some(one) = ahead.join_next().await {
        assert_eq!(one.expect("no panic").0, 200);
    }
}
