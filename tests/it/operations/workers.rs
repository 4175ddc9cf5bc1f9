//! Several workers: loops in one process, and other servers behind a router. All are real processes on loopback; who fails is
//! killed, stopped, or made to fail by its failpoints.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::support::server::{Server, frames, post, stream};

/// So long as nothing on this machine ever takes, unless a test says otherwise.
const PATIENT: [(&str, &str); 3] = [
    ("FOREBAY__HEALTH__CHECK_INTERVAL", "50ms"),
    ("FOREBAY__HEALTH__CHECK_TIMEOUT", "20s"),
    ("FOREBAY__HEALTH__RECOVERY_TIMEOUT", "1h"),
];

/// A router over `upstreams` that takes them in turn; ready when all of them are.
async fn router(upstreams: &[&Server], variables: &[(&str, &str)]) -> Server {
    let urls: Vec<&str> = upstreams.iter().map(|upstream| upstream.url.as_str()).collect();
    let args = ["--upstreams", &urls.join(","), "--balancer", "round_robin"];
    let router = Server::start_in(&args, &[&PATIENT, variables].concat());
    for index in 0..upstreams.len() {
        router.until_metric(&status(index, "idle"), 1.0).await;
    }
    router
}

fn status(upstream: usize, status: &str) -> String {
    format!(r#"forebay_worker_status{{status="{status}",worker="upstream-{upstream}"}}"#)
}

fn breaker(upstream: usize) -> String {
    format!(r#"forebay_breaker_state{{worker="upstream-{upstream}"}}"#)
}

fn became(upstream: usize, phase: &str) -> String {
    format!(r#"forebay_breaker_transitions_total{{to="{phase}",worker="upstream-{upstream}"}}"#)
}

fn verdicts(upstream: usize, verdict: &str) -> String {
    format!(r#"forebay_worker_requests_total{{verdict="{verdict}",worker="upstream-{upstream}"}}"#)
}

const CLOSED: f64 = 0.0;
const OPEN: f64 = 2.0;

/// Request `n` of a load, and different from the others.
fn ask(n: usize) -> Value {
    json!({"prompt": format!("Once upon a time {n} foxes"), "max_tokens": 12, "temperature": 0, "ignore_eos": true})
}

fn text(answer: &Value) -> String {
    answer["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}")).to_owned()
}

/// Sends requests `0..count`, six at a time, half of them as streams. Each must be answered in full: what it says is
/// returned by its number.
async fn load(server: &Server, count: usize) -> BTreeMap<usize, String> {
    let one = |n: usize| {
        let url = server.at("/v1/completions");
        async move {
            if n.is_multiple_of(2) {
                let (status, answer) = post(url, ask(n)).await;
                assert_eq!(status, 200, "request {n}: {answer}");
                return (n, text(&answer));
            }
            let frames = stream(url, ask(n)).await;
            let last = frames.iter().filter(|frame| !frame["choices"][0]["finish_reason"].is_null()).count();
            assert_eq!(last, 1, "request {n} has one end: {frames:?}");
            (n, frames.iter().map(text).collect())
        }
    };
    let heard: Vec<_> = futures_util::stream::iter((0..count).map(one)).buffer_unordered(6).collect().await;
    let by_number: BTreeMap<_, _> = heard.into_iter().collect();
    assert_eq!(by_number.len(), count);
    by_number
}

/// What each request of a load is answered by somebody without trouble.
async fn expected(count: usize) -> BTreeMap<usize, String> {
    load(&Server::start(&[]), count).await
}

/// Sequences that came to their end there: no request was computed twice.
async fn completed(server: &Server) -> f64 {
    server.metric(r#"forebay_sequences_finished_total{finished_reason="length"}"#).await
}

/// An upstream whose forward passes do what a failpoint says.
fn failing(action: &str) -> Server {
    Server::start_in(&[], &[("FAILPOINTS", &format!("engine::forward={action}"))])
}

#[tokio::test]
async fn a_router_answers_as_its_upstream_does() {
    let upstream = Server::start(&["--served-model-name", "tale"]);
    let router = router(&[&upstream], &[]).await;
    for model in [json!(null), json!("default"), json!("tale")] {
        let mut body = ask(1);
        body["model"] = model;
        let (direct, relayed) =
            (post(upstream.at("/v1/completions"), body.clone()).await, post(router.at("/v1/completions"), body).await);
        assert_eq!((direct.0, text(&direct.1)), (relayed.0, text(&relayed.1)));
    }
    let chat = json!({"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 8,
        "stream_options": {"include_usage": true}});
    let said = |frames: Vec<Value>| -> Vec<Value> {
        frames.into_iter().map(|frame| json!([frame["choices"], frame["usage"]["completion_tokens"]])).collect()
    };
    let direct = said(stream(upstream.at("/v1/chat/completions"), chat.clone()).await);
    assert_eq!(said(stream(router.at("/v1/chat/completions"), chat).await), direct);
    // What is wrong is the upstream's to say, and says nothing against it.
    let (status, answer) = post(router.at("/v1/completions"), json!({"prompt": "x", "temperature": 9})).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("temperature")));
    let (status, answer) = post(router.at("/v1/completions"), json!({"prompt": "x", "model": "gpt-17"})).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("model_not_found")));
    let broken = reqwest::Client::new().post(router.at("/v1/completions")).header("content-type", "application/json");
    assert_eq!(broken.body("{").send().await.expect("an answer").status(), 400);
    let models: Value = reqwest::get(router.at("/v1/models")).await.expect("models").json().await.expect("JSON");
    assert_eq!(models["data"][0]["id"], "tale");
    let (_, tokens) = post(router.at("/tokenize"), json!({"prompt": "The fox"})).await;
    assert!(tokens["count"].as_u64().is_some_and(|count| count > 0), "{tokens}");
    let answer =
        reqwest::Client::new().post(router.at("/v1/completions")).json(&ask(1)).send().await.expect("an answer");
    assert_eq!(answer.headers()["x-forebay-worker"], "upstream-0");
    assert_eq!((router.metric(&verdicts(0, "failure")).await, router.metric(&breaker(0)).await), (0.0, CLOSED));
    let state: Value = reqwest::get(router.at("/admin/state")).await.expect("state").json().await.expect("JSON");
    assert_eq!(state["workers"][0]["status"], "idle");
    assert_eq!(reqwest::get(router.at("/v1/nothing")).await.expect("an answer").status(), 404);
}

#[tokio::test]
async fn a_killed_upstream_costs_no_whole_answer() {
    let expected = expected(24).await;
    let (healthy, mut victim) = (Server::start(&[]), Server::start(&[]));
    let router = router(&[&healthy, &victim], &[]).await;
    // Whole answers only: a stream that has begun is not begun again.
    let whole = |n: usize| {
        let url = router.at("/v1/completions");
        async move { (n, post(url, ask(n)).await) }
    };
    let mut answers = futures_util::stream::iter((0..24).map(whole)).buffer_unordered(6);
    let mut heard = 0;
    while let Some((n, (status, answer))) = answers.next().await {
        assert_eq!((status, text(&answer)), (200, expected[&n].clone()), "request {n}");
        heard += 1;
        if heard == 6 {
            victim.kill();
        }
    }
    assert_eq!(heard, 24);
    router.until_metric(&breaker(1), OPEN).await;
    router.until_metric(&status(1, "unhealthy"), 1.0).await;
    assert_eq!(router.metric(&became(1, "open")).await, 1.0);
    assert_eq!((router.metric(&became(0, "open")).await, router.metric(&breaker(0)).await), (0.0, CLOSED));
    assert_eq!(load(&router, 24).await, expected, "streams too, of whoever is left");
}

#[tokio::test]
async fn an_upstream_that_answers_500_loses_nothing_and_is_tried_by_one_probe_at_a_time() {
    let expected = expected(24).await;
    let (broken, healthy) = (failing("return"), Server::start(&[]));
    let patient = router(&[&broken, &healthy], &[]).await;
    assert_eq!(load(&patient, 24).await, expected);
    // Requests that were under way when it opened may have failed after the fifth.
    let failures = patient.metric(&verdicts(0, "failure")).await;
    assert!((5.0..11.0).contains(&failures), "{failures}");
    assert_eq!((patient.metric(&breaker(0)).await, patient.metric(&became(0, "open")).await), (OPEN, 1.0));
    assert_eq!(patient.metric(r#"forebay_worker_retries_total{worker="upstream-0"}"#).await, failures);
    assert_eq!((completed(&broken).await, completed(&healthy).await), (0.0, 24.0), "nothing is computed twice");

    // It is tried again and again, and never closes: each failed probe opens it for as long again.
    let hasty = router(&[&broken, &healthy], &[("FOREBAY__HEALTH__RECOVERY_TIMEOUT", "10ms")]).await;
    while hasty.metric(&became(0, "half_open")).await < 3.0 {
        assert_eq!(load(&hasty, 24).await, expected);
    }
    assert_eq!(hasty.metric(&became(0, "closed")).await, 0.0);
    let (opened, probed) = (hasty.metric(&became(0, "open")).await, hasty.metric(&became(0, "half_open")).await);
    assert_eq!(opened, probed + 1.0);
}

#[tokio::test]
async fn an_upstream_that_hangs_is_passed_over_and_comes_back() {
    let expected = expected(16).await;
    let (hung, healthy) = (Server::start(&[]), Server::start(&[]));
    let impatient = [
        ("FOREBAY__WORKERS__RESPONSE_TIMEOUT", "15s"),
        ("FOREBAY__WORKERS__IDLE_TIMEOUT", "15s"),
        ("FOREBAY__HEALTH__CHECK_TIMEOUT", "3s"),
        ("FOREBAY__HEALTH__FAILURE_THRESHOLD", "3"),
        ("FOREBAY__HEALTH__RECOVERY_TIMEOUT", "10ms"),
    ];
    let router = router(&[&hung, &healthy], &impatient).await;
    hung.signal("STOP");
    let heard = load(&router, 16).await;
    hung.signal("CONT");
    assert_eq!(heard, expected);
    assert!(router.metric(&became(0, "open")).await >= 1.0);
    router.until_metric(&status(0, "unhealthy"), 0.0).await;
    while router.metric(&became(0, "closed")).await < 1.0 {
        assert_eq!(load(&router, 16).await, expected);
    }
    let before = completed(&hung).await;
    assert_eq!(load(&router, 16).await, expected);
    assert!(completed(&hung).await > before, "it works again");
}

#[tokio::test]
async fn an_upstream_that_is_too_slow_is_given_up() {
    let (slow, quick) = (
        Server::start_in(&["--model", "sim", "--workers", "1"], &[("FOREBAY__WORKERS__BASE_LATENCY_MS", "3600000")]),
        Server::start(&["--model", "sim", "--workers", "2"]),
    );
    let router = router(&[&slow, &quick], &[("FOREBAY__WORKERS__RESPONSE_TIMEOUT", "5s")]).await;
    // Whole answers, whose head comes with their end.
    let answers = (0..10).map(|n| tokio::spawn(post(router.at("/v1/completions"), ask(n)))).collect::<Vec<_>>();
    for answer in answers {
        assert_eq!(answer.await.expect("joined").0, 200);
    }
    assert_eq!(router.metric(&verdicts(0, "failure")).await, 5.0);
    assert_eq!(router.metric(&breaker(0)).await, OPEN);
    assert_eq!(router.metric(&verdicts(1, "success")).await, 10.0);
    // Given up means ended: nobody computes what nobody waits for. The step under way is the last.
    assert_eq!(completed(&slow).await, 0.0);
}

#[tokio::test]
async fn a_flapping_upstream_loses_no_whole_answer() {
    let expected = expected(40).await;
    let (flapping, healthy) = (failing("20%return"), Server::start(&[]));
    let router = router(
        &[&flapping, &healthy],
        &[("FOREBAY__HEALTH__FAILURE_THRESHOLD", "1"), ("FOREBAY__HEALTH__RECOVERY_TIMEOUT", "10ms")],
    )
    .await;
    let closed = became(0, "closed");
    for _ in 0..20 {
        for n in (0..40).step_by(2) {
            let (status, answer) = post(router.at("/v1/completions"), ask(n)).await;
            assert_eq!((status, text(&answer)), (200, expected[&n].clone()), "request {n}");
        }
        if router.metric(&closed).await >= 2.0 {
            break;
        }
    }
    let [opened, probed, closed] = [
        router.metric(&became(0, "open")).await,
        router.metric(&became(0, "half_open")).await,
        router.metric(&closed).await,
    ];
    assert!(closed >= 2.0 && probed >= closed && opened >= closed, "{opened} {probed} {closed}");
    assert_eq!(router.metric(&breaker(1)).await, CLOSED);
}

/// A stream of a server that may die, read by hand.
async fn begin(server: &Server) -> reqwest::Response {
    let mut body = ask(0);
    body["stream"] = true.into();
    body["max_tokens"] = 200.into();
    let answer = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer
}

#[tokio::test]
async fn before_its_first_token_a_stream_is_begun_elsewhere_and_after_it_never() {
    let stuck = |base: &str| {
        Server::start_in(&["--model", "sim", "--workers", "1"], &[("FOREBAY__WORKERS__BASE_LATENCY_MS", base)])
    };
    // Its first step never ends.
    let (mut silent, quick) = (stuck("3600000"), stuck("1"));
    let routed = router(&[&silent, &quick], &[]).await;
    let answer = begin(&routed).await;
    silent.until_metric("forebay_sequences_live", 1.0).await;
    silent.kill();
    let said = frames(&answer.text().await.expect("a body"));
    let tokens: usize = said.iter().map(|frame| text(frame).matches("and").count()).sum();
    assert_eq!(tokens, 200, "whole, and once");
    assert_eq!(completed(&quick).await, 1.0);
    assert_eq!(routed.metric(r#"forebay_worker_retries_total{worker="upstream-0"}"#).await, 1.0);

    let (mut dying, other) = (stuck("50"), stuck("1"));
    let routed = router(&[&dying, &other], &[]).await;
    let mut answer = begin(&routed).await;
    let mut heard = String::new();
    while !heard.contains("and") {
        heard += std::str::from_utf8(&answer.chunk().await.expect("a body").expect("more of it")).expect("UTF-8");
    }
    dying.kill();
    while let Some(chunk) = answer.chunk().await.expect("a clean end") {
        heard += std::str::from_utf8(&chunk).expect("UTF-8");
    }
    let said = frames(&heard);
    assert_eq!(said.last().expect("frames")["error"]["code"], "worker_unavailable");
    assert_eq!(said.iter().filter(|frame| !frame["error"].is_null()).count(), 1);
    assert_eq!(other.metric("forebay_sequences_admitted_total").await, 0.0, "not begun again");
    assert_eq!(routed.metric(&verdicts(0, "failure")).await, 1.0);
}

#[tokio::test]
async fn clients_that_leave_and_clients_that_err_do_not_count() {
    let upstream = Server::start_in(&["--model", "sim"], &[("FOREBAY__WORKERS__BASE_LATENCY_MS", "50")]);
    let router = router(&[&upstream], &[("FOREBAY__HEALTH__FAILURE_THRESHOLD", "1")]).await;
    for _ in 0..3 {
        let mut answer = begin(&router).await;
        answer.chunk().await.expect("a body");
        drop(answer);
        let (status, _) = post(router.at("/v1/completions"), json!({"prompt": "x", "n": 0})).await;
        assert_eq!(status, 400);
    }
    router.until_metric(&status(0, "idle"), 1.0).await;
    upstream.until_metric("forebay_sequences_live", 0.0).await;
    assert_eq!(router.metric(&verdicts(0, "uncounted")).await, 6.0);
    assert_eq!((router.metric(&verdicts(0, "failure")).await, router.metric(&breaker(0)).await), (0.0, CLOSED));
}

#[tokio::test]
async fn where_nobody_is_left_errors_say_why_and_when_to_come_back() {
    let mut broken = failing("return");
    let router = router(&[&broken], &[]).await;
    let ask = async |n| {
        let sent = reqwest::Client::new().post(router.at("/v1/completions")).json(&ask(n)).send().await;
        let answer = sent.expect("an answer");
        let retry: Option<u32> = answer.headers().get("retry-after").map(|s| s.to_str().unwrap().parse().unwrap());
        let (status, body) = (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"));
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned(), retry)
    };
    for n in 0..5 {
        let (answered, code, _) = ask(n).await;
        assert_eq!((answered, code.as_str()), (500, "step_failed"), "the upstream's own words");
    }
    let (answered, code, retry) = ask(5).await;
    assert_eq!(
        (answered, code.as_str(), retry),
        (503, "circuit_open", Some(60)),
        "an hour is more than a client waits"
    );
    assert_eq!(router.metric(r#"forebay_errors_total{code="circuit_open",route="completions"}"#).await, 1.0);
    assert_eq!(reqwest::get(router.at("/health/ready")).await.expect("a probe").status(), 503);
    assert_eq!(reqwest::get(router.at("/health/live")).await.expect("a probe").status(), 200);
    broken.kill();
    let alone = Server::start_in(&["--upstreams", &broken.url], &PATIENT);
    alone.until_metric(&status(0, "unhealthy"), 1.0).await;
    let (answered, answer) = post(alone.at("/v1/completions"), json!({"prompt": "x"})).await;
    let code = answer["error"]["code"].as_str().expect("a code");
    assert!(answered == 503 && ["worker_unavailable", "circuit_open"].contains(&code), "{answer}");
}

#[tokio::test]
async fn a_router_drains_what_it_relays() {
    let upstream = Server::start_in(&["--model", "sim"], &[("FOREBAY__WORKERS__BASE_LATENCY_MS", "5")]);
    let mut router = router(&[&upstream], &[]).await;
    let mut answer = begin(&router).await;
    let mut heard = answer.chunk().await.expect("a body").expect("a beginning").to_vec();
    router.terminate();
    while let Some(chunk) = answer.chunk().await.expect("a clean end") {
        heard.extend_from_slice(&chunk);
    }
    let said = frames(std::str::from_utf8(&heard).expect("UTF-8"));
    assert_eq!(said.iter().map(|frame| text(frame).matches("and").count()).sum::<usize>(), 200);
    assert!(router.wait().success());
}

#[tokio::test]
async fn answers_do_not_depend_on_the_replica() {
    let (one, two) = (Server::start(&[]), Server::start(&["--workers", "2", "--balancer", "round_robin"]));
    let ask = |seed: usize| json!({"prompt": format!("The owl and {seed} mice"), "max_tokens": 16, "seed": seed, "temperature": 0.8, "logprobs": 2});
    let mut tokens = 0;
    for seed in 0..4 {
        let (_, alone) = post(one.at("/v1/completions"), ask(seed)).await;
        // Each of the two.
        for _ in 0..2 {
            let (status, answer) = post(two.at("/v1/completions"), ask(seed)).await;
            assert_eq!((status, &answer["choices"]), (200, &alone["choices"]), "seed {seed}");
            tokens += answer["usage"]["completion_tokens"].as_u64().expect("a count");
        }
    }
    for worker in ["engine-0", "engine-1"] {
        let done = format!(r#"forebay_worker_requests_total{{verdict="success",worker="{worker}"}}"#);
        assert_eq!(two.metric(&done).await, 4.0, "{worker}");
    }
    let workers: Value = reqwest::get(two.at("/admin/workers")).await.expect("workers").json().await.expect("JSON");
    for worker in workers["data"].as_array().expect("a list") {
        assert_eq!(
            (&worker["kind"], &worker["status"], &worker["pending"]),
            (&json!("engine"), &json!("idle"), &json!(0))
        );
        assert!(worker["utilisation"].as_f64().is_some_and(|share| share > 0.0), "{worker}");
    }
    let state: Value = reqwest::get(two.at("/admin/state")).await.expect("state").json().await.expect("JSON");
    assert_eq!(state["total_tokens_generated"], tokens, "of both");
}

#[tokio::test]
async fn a_loop_that_dies_is_begun_again_and_the_other_goes_on() {
    let failpoint = ("FAILPOINTS", "engine::turn=120*off->1*panic->off");
    let mut server = Server::start_in(&["--workers", "2", "--balancer", "round_robin"], &[failpoint]);
    assert_eq!(post(server.at("/admin/strategy/immediate"), json!({})).await.0, 200);
    let long = |n: usize| {
        let mut body = ask(n);
        body["max_tokens"] = 300.into();
        body["stream"] = true.into();
        let sent = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send();
        async move { frames(&sent.await.expect("an answer").text().await.expect("a body")) }
    };
    let streams = futures_util::future::join_all((0..8).map(long)).await;
    let (mut finished, mut failed) = (0, 0);
    for frames in &streams {
        let last = frames.last().expect("frames");
        match last["error"]["code"].as_str() {
            None => finished += usize::from(last["choices"][0]["finish_reason"] == "length"),
            Some(code) => {
                assert_eq!(code, "worker_unavailable");
                assert!(frames.len() > 1, "what has not begun is begun elsewhere");
                failed += 1;
            }
        }
    }
    assert_eq!(finished + failed, 8);
    assert!((4..8).contains(&finished), "{finished} finished, {failed} failed");
    let restarts = async |worker: usize| {
        server.metric(&format!(r#"forebay_worker_restarts_total{{worker="engine-{worker}"}}"#)).await
    };
    while restarts(0).await + restarts(1).await < 1.0 {
        tokio::task::yield_now().await;
    }
    for worker in 0..2 {
        server.until_metric(&format!(r#"forebay_worker_status{{status="idle",worker="engine-{worker}"}}"#), 1.0).await;
    }
    assert_eq!(restarts(0).await + restarts(1).await, 1.0);
    // Nothing of the dead one is left, and the new one knows what it was told.
    assert_eq!(server.metric("forebay_sequences_live").await, 0.0);
    assert_eq!(server.metric("vllm:num_requests_running").await, 0.0);
    let state: Value = reqwest::get(server.at("/admin/state")).await.expect("state").json().await.expect("JSON");
    assert_eq!(state["strategy"], "immediate");
    let expected = expected(8).await;
    assert_eq!(load(&server, 8).await, expected, "both answer");
    server.terminate();
    assert!(server.wait().success(), "old and new loops are joined");
}

#[tokio::test]
async fn the_simulated_model_is_four_workers_that_take_their_time() {
    let server = Server::start(&["--model", "sim"]);
    let models: Value = reqwest::get(server.at("/v1/models")).await.expect("models").json().await.expect("JSON");
    assert_eq!(models["data"][0]["id"], "sim");
    let answers = (0..8).map(|n| tokio::spawn(post(server.at("/v1/completions"), ask(n)))).collect::<Vec<_>>();
    for answer in answers {
        let (status, answer) = answer.await.expect("joined");
        assert_eq!((status, text(&answer).matches("and").count()), (200, 12));
        assert_eq!(answer["usage"]["completion_tokens"], 12);
    }
    // 12 steps of 10 ms, by the loops' own clocks; noise is a tenth of that.
    let steps = server.metric("forebay_engine_step_seconds_count").await;
    assert!(server.metric("forebay_engine_step_seconds_sum").await >= steps * 0.005);
    for worker in 0..4 {
        let done = format!(r#"forebay_worker_requests_total{{verdict="success",worker="sim-{worker}"}}"#);
        assert!(server.metric(&done).await >= 1.0, "sim-{worker}");
    }
    for (param, value) in [("logprobs", json!(1)), ("guided_regex", json!("a"))] {
        let mut body = ask(0);
        body[param] = value;
        let (status, answer) = post(server.at("/v1/completions"), body).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("unsupported_parameter")), "{answer}");
    }
}

#[tokio::test]
async fn loops_and_upstreams_work_side_by_side() {
    let upstream = Server::start(&[]);
    let urls = upstream.url.clone();
    let server = Server::start_in(&["--upstreams", &urls, "--workers", "1", "--balancer", "round_robin"], &PATIENT);
    server.until_metric(&status(0, "idle"), 1.0).await;
    assert_eq!(load(&server, 12).await, expected(12).await);
    let (own, theirs) = (completed(&server).await, completed(&upstream).await);
    assert!(own >= 1.0 && theirs >= 1.0 && own + theirs == 12.0, "{own} and {theirs}");
}

/// Requests that each worker of a server has answered.
async fn answered(server: &Server) -> Vec<i64> {
    let list: Value = reqwest::get(server.at("/admin/workers")).await.expect("workers").json().await.expect("JSON");
    let workers = list["data"].as_array().expect("a list").iter();
    workers.map(|worker| worker["requests"]["success"].as_i64().expect("a number")).collect()
}

#[tokio::test]
async fn another_balancer_is_in_force_from_the_next_request_on() {
    let quick = [("FOREBAY__WORKERS__BASE_LATENCY_MS", "1")];
    let server = Server::start_in(&["--model", "sim", "--workers", "2"], &quick);
    let alike = async |count: usize| {
        for _ in 0..count {
            let body = json!({"prompt": vec![17; 64], "max_tokens": 1});
            assert_eq!(post(server.at("/v1/completions"), body).await.0, 200);
        }
    };
    let read = async |path: &str| -> (u16, Value) {
        let answer = reqwest::get(server.at(path)).await.expect("an answer");
        (answer.status().as_u16(), answer.json().await.expect("JSON"))
    };
    assert_eq!(read("/admin/balancer").await.1["name"], "prefix_aware");
    alike(6).await;
    let mut taken = answered(&server).await;
    taken.sort_unstable();
    assert_eq!(taken, [0, 6], "who has seen the prompt takes it again");
    let (status, told) = post(server.at("/admin/balancer/Round_Robin"), json!({})).await;
    let change = json!([{"what": "balancer", "from": "prefix_aware", "to": "round_robin"}]);
    assert_eq!((status, &told["name"], &told["changed"]), (200, &json!("round_robin"), &change));
    assert_eq!(read("/admin/state").await.1["balancer"], "round_robin");
    assert_eq!(read("/admin/balancer/round_robin").await.1["active"], true);
    let before = answered(&server).await;
    alike(6).await;
    let after = answered(&server).await;
    assert_eq!([after[0] - before[0], after[1] - before[1]], [3, 3], "in turn");
    let again = post(server.at("/admin/balancer/round_robin"), json!({})).await.1;
    assert_eq!(again["changed"], json!([]), "it was in force");
    let put = reqwest::Client::new().put(server.at("/admin/balancer"));
    let put = put.json(&json!({"name": "least_loaded"})).send().await.expect("an answer");
    assert_eq!(put.status(), 200);
    for (status, error) in
        [post(server.at("/admin/balancer/best"), json!({})).await, read("/admin/balancer/best").await]
    {
        let message = error["error"]["message"].as_str().expect("a message");
        assert_eq!(status, 404, "{message}");
        for name in ["round_robin", "least_loaded", "power_of_two", "prefix_aware"] {
            assert!(message.contains(name), "{message}");
        }
    }
    let audit = read("/admin/audit").await.1;
    let changes: Vec<&Value> = audit["data"].as_array().expect("a list").iter().map(|entry| &entry["to"]).collect();
    assert_eq!(changes, ["least_loaded", "round_robin"], "{audit}");
    let page = reqwest::Client::new().post(server.at("/admin/balancer/round_robin"));
    let page = page.header("origin", "http://evil.example").send().await.expect("an answer");
    assert_eq!(page.status(), 403);
    assert_eq!(read("/admin/balancer").await.1["name"], "least_loaded");
}
