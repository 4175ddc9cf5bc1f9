//! Completions, chat and models over HTTP: shapes, limits, goldens by token ids, many clients at once.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::support::server::{Server, frames, golden_folder, post, stream};

fn golden_numbers(name: &str, tensor: &str) -> Vec<i64> {
    let bytes = std::fs::read(golden_folder(name).join("golden.safetensors")).expect("a golden");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let data = file.tensor(tensor).expect(tensor).data();
    data.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().expect("8 bytes"))).collect()
}

/// The bodies that OpenAI sends (its reference and what its service answers), and ours: the same status and shape, the same
/// words but where `ours` says which of them differ.
#[tokio::test]
async fn errors_look_like_openais() {
    let server = Server::start(&[]);
    for line in include_str!("../../goldens/errors/openai.jsonl").lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        let method = case["method"].as_str().expect("a method").parse().expect("a method");
        let mut request = reqwest::Client::new().request(method, server.at(case["path"].as_str().expect("a path")));
        if let Some(body) = case.get("body") {
            let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
            request = request.header("content-type", "application/json").body(text);
        }
        let answer = request.send().await.expect("an answer");
        assert_eq!(json!(answer.status().as_u16()), case["openai"]["status"], "{line}");
        let body: Value = answer.json().await.expect("JSON");
        let (error, theirs) = (&body["error"], &case["openai"]["error"]);
        let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!((keys(&body), keys(error)), (vec!["error".to_owned()], keys(theirs)), "{line}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{line}");
        for name in ["type", "param", "code"] {
            let expected = case["ours"].get(name).unwrap_or(&theirs[name]);
            assert_eq!(&error[name], expected, "{name}: {body}\n{line}");
            assert!(case["ours"].get(name).is_none_or(|ours| *ours != theirs[name]), "no difference: {name} {line}");
        }
    }
}

#[tokio::test]
async fn goldens_continue_greedily_over_http() {
    for name in ["llama", "llama3-rope", "mistral-window", "qwen2", "qwen3"] {
        let server = Server::golden(name, &[]);
        let (prompt, greedy) = (golden_numbers(name, "prompt"), golden_numbers(name, "greedy"));
        let body = json!({
            "prompt": prompt, "max_tokens": greedy.len(), "temperature": 0, "ignore_eos": true, "return_token_ids": true,
        });
        let (status, answer) = post(server.at("/v1/completions"), body.clone()).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["choices"][0]["token_ids"], json!(greedy), "{name}");
        assert_eq!(answer["usage"]["prompt_tokens"], json!(prompt.len()));
        let streamed: Vec<Value> = stream(server.at("/v1/completions"), body)
            .await
            .iter()
            .flat_map(|frame| frame["choices"][0]["token_ids"].as_array().cloned().unwrap_or_default())
            .collect();
        assert_eq!(json!(streamed), json!(greedy), "{name}, streamed");
    }
}

#[tokio::test]
async fn many_clients_get_what_each_would_get_alone() {
    let server = Server::start(&[]);
    let ask = |seed: u64| {
        json!({ "prompt": format!("Once upon a time there was a fox who liked {seed}"), "max_tokens": 24, "seed": seed,
                "temperature": 0.8 })
    };
    let mut alone = HashMap::new();
    for seed in 0..12 {
        alone.insert(seed, post(server.at("/v1/completions"), ask(seed)).await.1["choices"].clone());
    }
    let clients: Vec<_> =
        (0..12).map(|seed| (seed, tokio::spawn(post(server.at("/v1/completions"), ask(seed))))).collect();
    for (seed, client) in clients {
        assert_eq!(client.await.expect("no panic").1["choices"], alone[&seed], "seed {seed}");
    }
}

#[tokio::test]
async fn chat_streams_what_it_answers_whole() {
    let server = Server::start(&[]);
    let body = json!({
        "messages": [{"role": "user", "content": "Tell me a story about a fox named Pip."}],
        "temperature": 0, "max_completion_tokens": 50, "stream_options": {"include_usage": true},
    });
    let mut whole_body = body.clone();
    whole_body.as_object_mut().expect("object").remove("stream_options");
    let (status, whole) = post(server.at("/v1/chat/completions"), whole_body).await;
    assert_eq!(status, 200, "{whole}");
    assert_eq!(whole["object"], "chat.completion");
    let frames = stream(server.at("/v1/chat/completions"), body).await;
    assert_eq!(frames[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(json!(text), whole["choices"][0]["message"]["content"]);
    let usage = frames.last().expect("frames");
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(usage["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    // The second time the prompt is in the cache, but for the token that must be computed.
    let prompt = whole["usage"]["prompt_tokens"].as_u64().expect("a number");
    assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
}

#[tokio::test]
async fn a_default_chat_ends_by_itself() {
    let server = Server::start(&[]);
    let body = json!({"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0});
    let (status, answer) = post(server.at("/v1/chat/completions"), body).await;
    assert_eq!(status, 200);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
    assert!(!answer["choices"][0]["message"]["content"].as_str().expect("text").is_empty());
}

#[tokio::test]
async fn limits_are_answered_before_any_work() {
    let server = Server::start(&[]);
    let url = || server.at("/v1/completions");
    let code = |answer: &Value| answer["error"]["code"].clone();

    let (status, answer) = post(url(), json!({"prompt": vec![5; 1024]})).await;
    assert_eq!((status, code(&answer)), (400, json!("context_length_exceeded")));
    let message = answer["error"]["message"].as_str().expect("message");
    assert!(message.contains("1024 tokens") && message.contains("prompt has 1024"), "{message}");

    let (status, answer) = post(url(), json!({"model": "nobody", "prompt": "hi"})).await;
    assert_eq!((status, code(&answer)), (404, json!("model_not_found")));

    let answer = reqwest::Client::new()
        .post(url())
        .header("content-type", "application/json")
        .body("{\"prompt\": ")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 400);
    assert!(answer.headers().contains_key("x-request-id"));
    assert_eq!(code(&answer.json().await.expect("JSON")), json!("invalid_json"));

    assert_eq!(server.metric("forebay_generation_tokens_total").await, 0.0, "nothing was computed");
}

#[tokio::test]
async fn a_clamped_max_tokens_finishes_with_length_and_is_named() {
    let server = Server::golden("llama", &[]);
    let body = json!({"prompt": vec![5; 250], "max_tokens": 100, "temperature": 0, "ignore_eos": true});
    let answer = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("an answer");
    let named = answer.headers()["x-ignored-params"].to_str().expect("text").to_owned();
    assert_eq!(named, "max_tokens");
    let answer: Value = answer.json().await.expect("JSON");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 6);
}

#[tokio::test]
async fn stop_strings_across_tokens_never_leak() {
    let server = Server::start(&[]);
    let ask = |extra: Value| {
        let mut body = json!({"prompt": "Once upon a time", "max_tokens": 80, "temperature": 0});
        body.as_object_mut().expect("object").extend(extra.as_object().expect("object").clone());
        body
    };
    let (_, free) = post(server.at("/v1/completions"), ask(json!({}))).await;
    let free = free["choices"][0]["text"].as_str().expect("text").to_owned();
    // Every place where a stop of nine bytes may begin, words' middles included.
    for at in (0..free.len().saturating_sub(12)).step_by(7) {
        let Some(stop) = free.get(at..at + 9) else { continue };
        let (_, cut) = post(server.at("/v1/completions"), ask(json!({"stop": stop}))).await;
        let expected = &free[..free.find(stop).expect("it is in there")];
        assert_eq!(cut["choices"][0]["text"], json!(expected), "stop {stop:?}");
        assert_eq!(cut["choices"][0]["finish_reason"], "stop");
        let text: String = stream(server.at("/v1/completions"), ask(json!({"stop": [stop]})))
            .await
            .iter()
            .filter_map(|frame| frame["choices"][0]["text"].as_str())
            .collect();
        assert_eq!(text, expected, "streamed, stop {stop:?}");
    }
}

#[tokio::test]
async fn models_and_health_answer() {
    let server = Server::start(&[]);
    let models: Value = reqwest::get(server.at("/v1/models")).await.expect("models").json().await.expect("JSON");
    assert_eq!(models["data"][0]["id"], "storyteller");
    assert_eq!(models["data"][0]["max_model_len"], 1024);
    for path in ["/health", "/health/live", "/health/ready"] {
        assert_eq!(reqwest::get(server.at(path)).await.expect(path).status(), 200, "{path}");
    }
    let missing = reqwest::get(server.at("/v1/nothing")).await.expect("an answer");
    assert_eq!(missing.status(), 404);
    assert_eq!(missing.json::<Value>().await.expect("JSON")["error"]["type"], "not_found_error");
}

#[tokio::test]
async fn a_list_of_prompts_and_n_number_their_choices() {
    let server = Server::start(&[]);
    let body = json!({"prompt": ["The fox", "The owl"], "n": 2, "max_tokens": 6, "seed": 4, "stream_options": null});
    let (status, answer) = post(server.at("/v1/completions"), body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let choices = answer["choices"].as_array().expect("choices");
    assert_eq!(choices.iter().map(|c| c["index"].as_u64().expect("index")).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let mut texts = vec![String::new(); 4];
    for frame in stream(server.at("/v1/completions"), body).await {
        for choice in frame["choices"].as_array().expect("choices") {
            texts[choice["index"].as_u64().expect("index") as usize] += choice["text"].as_str().unwrap_or_default();
        }
    }
    assert_eq!(json!(texts), json!(choices.iter().map(|c| c["text"].clone()).collect::<Vec<_>>()));
}

#[tokio::test]
async fn every_frame_of_a_stream_carries_the_same_identity() {
    let server = Server::start(&[]);
    let body = json!({"prompt": "The fox", "max_tokens": 8, "stream": true});
    let answer = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert_eq!(answer.headers()["x-accel-buffering"], "no");
    let frames = frames(&answer.text().await.expect("a body"));
    for frame in &frames {
        assert_eq!(frame["object"], "text_completion");
        for key in ["id", "created", "model"] {
            assert_eq!(frame[key], frames[0][key]);
        }
    }
}
