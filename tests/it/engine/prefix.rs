//! The prefix cache, through the real engine and over HTTP: what it saves, and that nobody can tell by the answer.

use forebay_core::request::Event;
use serde_json::{Value, json};

use crate::support::rig::{self, Completion, Setup};
use crate::support::server::{Server, post};

fn story(cut: usize) -> Vec<u64> {
    (0..cut as u64).map(|i| 3 + (i * 37) % 250).collect()
}

async fn ask(server: &Server, body: Value) -> (Value, u64) {
    let (status, answer) = post(server.at("/v1/completions"), body).await;
    assert_eq!(status, 200, "{answer}");
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number");
    (answer["choices"].clone(), cached)
}

fn body(prompt: &[u64], more: Value) -> Value {
    let mut body = json!({
        "prompt": prompt, "max_tokens": 20, "temperature": 0.8, "seed": 5, "logprobs": 3, "ignore_eos": true,
    });
    body.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
    body
}

#[tokio::test]
async fn a_hit_changes_nothing_but_the_work() {
    let prompt = story(150);
    let server = Server::start(&[]);
    let (expected, cached) = ask(&server, body(&prompt, json!({"cache_prompt": false}))).await;
    assert_eq!(cached, 0);
    assert_eq!(ask(&server, body(&prompt, json!({}))).await, (expected.clone(), 0));
    // Full blocks of 32, and the rest by a copy of the block that goes on differently: all but the last token.
    assert_eq!(ask(&server, body(&prompt, json!({}))).await, (expected.clone(), 149));
    assert_eq!(ask(&server, body(&prompt, json!({"cache_prompt": false}))).await, (expected.clone(), 0));
    assert_eq!(ask(&server, body(&prompt, json!({"cache_salt": "a"}))).await, (expected.clone(), 0));
    assert_eq!(ask(&server, body(&prompt, json!({"cache_salt": "a"}))).await, (expected.clone(), 149));
    assert_eq!(ask(&server, body(&prompt, json!({"cache_salt": "b"}))).await, (expected, 0));
    // Another end: what comes before it is shared.
    let other: Vec<u64> = prompt[..100].iter().copied().chain([9, 9, 9, 9]).collect();
    let (expected, _) = ask(&server, body(&other, json!({"cache_prompt": false}))).await;
    assert_eq!(ask(&server, body(&other, json!({}))).await, (expected, 100));
    // Each prompt token of the six that were allowed to look was computed or cached.
    let total = server.metric("vllm:prefix_cache_queries_total").await;
    let hits = server.metric("vllm:prefix_cache_hits_total").await;
    assert_eq!((total, hits), (150.0 * 5.0 + 104.0, 149.0 * 2.0 + 100.0));
}

#[tokio::test]
async fn a_short_prompt_is_found_again() {
    let server = Server::start(&[]);
    let (expected, cached) = ask(&server, body(&story(17), json!({}))).await;
    assert_eq!(cached, 0);
    assert_eq!(ask(&server, body(&story(17), json!({}))).await, (expected, 16));
}

#[tokio::test]
async fn choices_are_the_same_with_and_without() {
    let prompt = story(45);
    let server = Server::start(&[]);
    let several = |more: Value| {
        let mut body = body(&prompt, more);
        body["n"] = 5.into();
        body
    };
    let (expected, _) = ask(&server, several(json!({"cache_prompt": false}))).await;
    assert_eq!(expected.as_array().map(Vec::len), Some(5));
    // Once beside each other, once after all of them.
    assert_eq!(ask(&server, several(json!({}))).await.0, expected);
    let (choices, cached) = ask(&server, several(json!({}))).await;
    assert_eq!((choices, cached), (expected, 44));
}

#[tokio::test]
async fn a_conversation_goes_on_where_it_ended() {
    let server = Server::start(&[]);
    let first = body(&story(70), json!({"temperature": 0, "return_token_ids": true, "max_tokens": 60}));
    let (choices, _) = ask(&server, first).await;
    let said: Vec<u64> = serde_json::from_value(choices[0]["token_ids"].clone()).expect("token ids");
    let longer: Vec<u64> = story(70).into_iter().chain(said).chain([40, 41, 42]).collect();
    let (_, cached) = ask(&server, body(&longer, json!({}))).await;
    // What it generated is in the cache, too: 129 of its 130 tokens were computed.
    assert_eq!((longer.len(), cached), (133, 129));
}

#[tokio::test]
async fn bad_salts_are_refused() {
    let server = Server::start(&[]);
    for salt in [
        json!(""),
        json!("x".repeat(129)),
        json!("a/b"),
        json!(".."),
        json!("é"),
        json!("a\nb"),
        json!(5),
        json!(["a"]),
    ] {
        let (status, answer) = post(server.at("/v1/completions"), body(&story(5), json!({"cache_salt": salt}))).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("cache_salt")), "{answer}");
    }
    let (status, answer) = post(server.at("/v1/completions"), body(&story(5), json!({"cache_prompt": 1}))).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("cache_prompt")), "{answer}");
}

/// Little memory, many that begin alike: hits, evictions and preemptions in any order.
#[tokio::test]
async fn under_pressure_every_answer_is_that_of_an_empty_cache() {
    let prompts: Vec<Vec<u32>> = (0..24u32)
        .map(|n| {
            let family = n % 4;
            let shared = (0..60).map(|i| 3 + (i * 37 + family * 11) % 250);
            shared.chain((0..n).map(|i| 5 + i * 3)).collect()
        })
        .collect();
    let lone = rig::storyteller(Setup { prefix_caching: false, ..Setup::default() });
    let mut expected: Vec<Completion> = Vec::new();
    for prompt in &prompts {
        expected.push(lone.complete(prompt, 40).await);
    }
    let small = rig::storyteller(Setup { num_blocks: 40, max_num_seqs: 8, ..Setup::default() });
    let mut cached = 0;
    for _ in 0..2 {
        let mut running = Vec::new();
        for prompt in &prompts {
            running.push(small.submit(prompt, 40).await);
        }
        for (mut events, expected) in running.into_iter().zip(&expected) {
            match events.recv().await.expect("the first event") {
                Event::Admitted { cached_tokens } => cached += cached_tokens,
                other => panic!("{other:?}"),
            }
            assert_eq!(rig::collect(events).await, *expected);
        }
    }
    assert!(cached > 500, "{cached} tokens were cached");
    let core = small.join().await;
    assert!(core.snapshot().preemptions_total > 0 && core.snapshot().blocks_used == 0, "{:?}", core.snapshot());
}

/// Prompt tokens that were computed so far, not copied.
async fn computed(server: &Server) -> f64 {
    server.metric("forebay_prompt_tokens_by_source_total{source=\"local_compute\"}").await
}

#[tokio::test]
async fn choices_of_one_prompt_compute_it_once() {
    let server = Server::start(&[]);
    let (choices, _) = ask(&server, body(&story(190), json!({"n": 8, "max_tokens": 40}))).await;
    assert_eq!(choices.as_array().map(Vec::len), Some(8));
    let computed = computed(&server).await;
    assert!((190.0..=200.0).contains(&computed), "{computed} prompt tokens were computed");
}

#[tokio::test]
async fn a_prompt_that_several_send_together_is_computed_once() {
    let server = Server::start(&[]);
    // On an idle engine, and beside streams that a step with a prompt keeps waiting.
    for (streams, prompt) in [(0, story(190)), (4, story(191)[1..].to_vec())] {
        let beside: Vec<_> = (0..streams)
            .map(|n| {
                let body = json!({"prompt": [5 + n], "max_tokens": 900, "ignore_eos": true});
                tokio::spawn(post(server.at("/v1/completions"), body))
            })
            .collect();
        server.until_metric("vllm:num_requests_running", f64::from(streams)).await;
        let before = computed(&server).await;
        let together = (0..4).map(|_| post(server.at("/v1/completions"), body(&prompt, json!({}))));
        let answers = futures_util::future::join_all(together).await;
        assert!(answers.iter().all(|(status, answer)| *status == 200 && answer["choices"] == answers[0].1["choices"]));
        let computed = computed(&server).await - before;
        assert!((190.0..=196.0).contains(&computed), "{computed} prompt tokens were computed beside {streams}");
        for stream in beside {
            stream.abort();
        }
        server.until_metric("vllm:num_requests_running", 0.0).await;
    }
}

/// The simulated model takes 10 ms for a step and half a millisecond for a token of it: 3,000 tokens take 1.5 s.
#[tokio::test]
async fn a_deadline_counts_only_what_must_be_computed() {
    let server = Server::start(&["--model", "sim", "--workers", "1"]);
    let plain = |prompt: &[u64], more: Value| {
        let mut body = json!({"prompt": prompt, "max_tokens": 2, "ignore_eos": true});
        body.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
        body
    };
    for n in 1..8 {
        ask(&server, plain(&story(n * 20), json!({"max_tokens": 4, "cache_prompt": false}))).await;
    }
    let long = |first: u64| [&[first][..], &story(2_999)].concat();
    ask(&server, plain(&long(7), json!({}))).await;
    let hurried = json!({"timeout_ms": 1_000});
    let (status, answer) = post(server.at("/v1/completions"), plain(&long(8), hurried.clone())).await;
    assert_eq!(status, 408, "{answer}");
    assert!(answer["error"]["message"].as_str().expect("text").contains("cannot be met"), "{answer}");
    assert_eq!(ask(&server, plain(&long(7), hurried)).await.1, 2_999, "it is in the cache, and served in time");
    // Not where the client declines the cache.
    let declined = plain(&long(7), json!({"timeout_ms": 1_000, "cache_prompt": false}));
    assert_eq!(post(server.at("/v1/completions"), declined).await.0, 408);
}
