//! Guessed tokens: fewer steps, the same answers.

use forebay_core::request::Event;
use forebay_core::scheduler::Speculative;
use forebay_core::step::Sampled;
use forebay_core::units::TokenId;

use crate::support::rig::{self, Rig, Setup};
use crate::support::server::{Server, post};
use serde_json::{Value, json};

/// Text that goes round in circles, and some that does not.
fn prompts() -> Vec<Vec<TokenId>> {
    let round = |n: u32| (0..60).map(move |i| 5 + (i % (5 + n)) * 7 + n).collect();
    let straight = |n: u32| (0..40).map(move |i| 3 + (i * i * 3 + n * 17) % 250).collect();
    (0..4).map(round).chain((0..4).map(straight)).collect()
}

async fn all(rig: &Rig, prompts: &[Vec<TokenId>], max_tokens: i64) -> Vec<Vec<Sampled>> {
    // All at once, so that the same steps are planned whatever the machine does meanwhile.
    rig.handle.pause().await.expect("a loop");
    let mut running = Vec::new();
    for prompt in prompts {
        running.push(rig.submit(prompt, max_tokens).await);
    }
    rig.handle.resume().await.expect("a loop");
    let mut answers = Vec::new();
    for mut events in running {
        let mut tokens = Vec::new();
        loop {
            match events.recv().await.expect("an end") {
                Event::Token(sampled) => tokens.push(sampled),
                Event::Finished(_) => break,
                Event::Admitted { .. } => {}
                Event::Embedded(_) => panic!("nobody asked for it"),
                Event::Failed(error) => panic!("{error:?}"),
            }
        }
        answers.push(tokens);
    }
    answers
}

#[tokio::test]
async fn guesses_change_the_steps_and_nothing_else() {
    let prompts = prompts();
    for (num_blocks, max_num_seqs) in [(1_024, 8), (1_024, 1), (30, 8)] {
        let setup = Setup { num_blocks, max_num_seqs, ..Setup::default() };
        let plain = rig::storyteller(setup);
        let guessing = rig::storyteller(Setup { speculative: Speculative::PromptLookup, ..setup });
        let expected = all(&plain, &prompts, 70).await;
        assert!(expected.iter().all(|tokens| tokens.len() == 70), "no more than was asked for");
        assert_eq!(all(&guessing, &prompts, 70).await, expected, "{num_blocks} blocks, {max_num_seqs} seats");
        let (plain, guessing) = (plain.join().await.snapshot(), guessing.join().await.snapshot());
        assert!(guessing.steps_total < plain.steps_total, "{} of {} steps", guessing.steps_total, plain.steps_total);
        assert_eq!((guessing.blocks_used, guessing.preemptions_total > 0), (0, num_blocks == 30));
    }
}

fn with(body: &Value, more: Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().expect("object").extend(more.as_object().expect("object").clone());
    body
}

#[tokio::test]
async fn logprobs_and_draws_are_the_same_over_http() {
    let (plain, guessing) = (Server::start(&[]), Server::start(&["--speculative", "prompt_lookup"]));
    for (temperature, seed) in [(0.0, 1), (0.7, 2), (1.2, 3)] {
        let body = json!({
            "prompt": "The fox said: hello, hello, hello, hello, hello", "max_tokens": 60, "temperature": temperature,
            "seed": seed, "logprobs": 4, "frequency_penalty": 0.1 * f64::from(seed), "ignore_eos": true,
        });
        let (a, b) =
            (post(plain.at("/v1/completions"), body.clone()).await, post(guessing.at("/v1/completions"), body).await);
        assert_eq!((a.0, &a.1["choices"], &a.1["usage"]), (b.0, &b.1["choices"], &b.1["usage"]));
    }
    // An end inside a run of right guesses: by a token, and by a string.
    let circle = json!({"prompt": [5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 5, 6, 7], "temperature": 0, "max_tokens": 80});
    let (_, whole) = post(plain.at("/v1/completions"), with(&circle, json!({"return_token_ids": true}))).await;
    let tokens: Vec<u64> = serde_json::from_value(whole["choices"][0]["token_ids"].clone()).expect("token ids");
    let text = whole["choices"][0]["text"].as_str().expect("text");
    for at in (20..tokens.len()).step_by(7) {
        let until: String = text.chars().skip(at).take(4).collect();
        for end in [json!({"stop_token_ids": [tokens[at]]}), json!({"stop": [until]})] {
            let body = with(&circle, end);
            let (_, a) = post(plain.at("/v1/completions"), body.clone()).await;
            let (_, b) = post(guessing.at("/v1/completions"), body).await;
            assert_eq!((&a["choices"], &a["usage"]), (&b["choices"], &b["usage"]));
            assert_eq!(a["choices"][0]["finish_reason"], "stop");
        }
    }
    let proposed = guessing.metric("forebay_spec_proposed_total").await;
    let accepted = guessing.metric("vllm:spec_decode_num_accepted_tokens_total").await;
    assert!(proposed > 0.0 && accepted <= proposed, "{accepted} of {proposed}");
    assert_eq!(plain.metric("forebay_spec_proposed_total").await, 0.0);
}
