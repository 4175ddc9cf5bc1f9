//! Parameters of completions and chat over the real binary: what each does to an answer, and that a prompt's logprobs do not
//! depend on how it was cut.

use reqwest::Client;
use serde_json::{Value, json};

use crate::support::server::{Server, post, stream};

fn with(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().expect("object").extend(extra.as_object().expect("object").clone());
    body
}

async fn completion(server: &Server, body: Value) -> Value {
    let (status, answer) = post(server.at("/v1/completions"), body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}

async fn choice(server: &Server, body: Value) -> Value {
    completion(server, body).await["choices"][0].clone()
}

fn story(extra: Value) -> Value {
    with(json!({"prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}), extra)
}

fn ids(choice: &Value) -> Vec<u64> {
    choice["token_ids"].as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id")).collect()
}

#[tokio::test]
async fn a_prompts_logprobs_are_the_same_bits_however_it_is_cut() {
    let prompt: Vec<u64> = (0..150).map(|i| 3 + (i * 37) % 250).collect();
    let body =
        json!({"prompt": prompt, "max_tokens": 3, "temperature": 0, "logprobs": 5, "echo": true, "ignore_eos": true});
    let mut seen = Vec::new();
    for budget in ["512", "64", "17", "3"] {
        let server = Server::golden("llama", &["--max-num-batched-tokens", budget]);
        let alone = choice(&server, body.clone()).await["logprobs"].clone();
        // Others in the same steps change nothing.
        let others = (0..4).map(|seed| {
            let other = json!({"prompt": &prompt[seed..], "max_tokens": 20, "seed": seed, "ignore_eos": true});
            tokio::spawn(post(server.at("/v1/completions"), other))
        });
        let others: Vec<_> = others.collect();
        assert_eq!(choice(&server, body.clone()).await["logprobs"], alone, "budget {budget}");
        for other in others {
            assert_eq!(other.await.expect("no panic").0, 200);
        }
        seen.push(alone);
    }
    assert!(seen.iter().all(|logprobs| logprobs == &seen[0]));
    let tokens = seen[0]["token_logprobs"].as_array().expect("logprobs");
    assert_eq!(tokens.len(), 153);
    assert!(tokens[0].is_null() && tokens[1..].iter().all(Value::is_number));
}

#[tokio::test]
async fn preemption_does_not_change_a_prompts_logprobs() {
    // Room for one and a half of them.
    let small = Server::golden(
        "llama",
        &["--kv-memory", "0.00032", "--block-size", "16", "--max-model-len", "128", "--kv-dtype", "f32"],
    );
    let prompts: Vec<Vec<u64>> = (0..6).map(|n| (0..60).map(|i| 3 + (i * 37 + n * 11) % 250).collect()).collect();
    let ask = |prompt: &Vec<u64>| json!({"prompt": prompt, "max_tokens": 60, "temperature": 0, "logprobs": 2, "echo": true, "ignore_eos": true});
    let mut alone = Vec::new();
    for prompt in &prompts {
        alone.push(choice(&small, ask(prompt)).await);
    }
    let together: Vec<_> =
        prompts.iter().map(|prompt| tokio::spawn(post(small.at("/v1/completions"), ask(prompt)))).collect();
    for (answer, alone) in together.into_iter().zip(&alone) {
        assert_eq!(&answer.await.expect("no panic").1["choices"][0], alone);
    }
    assert!(small.metric("forebay_preemptions_total").await > 0.0, "they had to share");
}

#[tokio::test]
async fn echo_shows_the_prompt_streamed_or_not() {
    let server = Server::start(&[]);
    let plain = choice(&server, story(json!({}))).await["text"].as_str().expect("text").to_owned();
    for extra in [json!({"echo": true}), json!({"echo": true, "logprobs": 2}), json!({"echo": true, "n": 2})] {
        let whole = choice(&server, story(extra.clone())).await;
        assert_eq!(whole["text"], json!(format!("Once upon a time{plain}")), "{extra}");
        let frames = stream(server.at("/v1/completions"), story(extra.clone())).await;
        let mine = || frames.iter().flat_map(|f| f["choices"].as_array().expect("choices")).filter(|c| c["index"] == 0);
        let text: String = mine().filter_map(|choice| choice["text"].as_str()).collect();
        assert_eq!(json!(text), whole["text"], "{extra}, streamed");
        for key in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let pieces: Vec<Value> =
                mine().flat_map(|c| c["logprobs"][key].as_array().cloned().unwrap_or_default()).collect();
            if whole["logprobs"].is_object() {
                assert_eq!(json!(pieces), whole["logprobs"][key], "{key}");
            }
        }
        if let Some(offsets) = whole["logprobs"]["text_offset"].as_array() {
            let chars: Vec<char> = whole["text"].as_str().expect("text").chars().collect();
            let tokens = whole["logprobs"]["tokens"].as_array().expect("tokens");
            for (offset, token) in offsets.iter().zip(tokens).skip(1) {
                let rest: String = chars[offset.as_u64().expect("offset") as usize..].iter().collect();
                let token = token.as_str().expect("token");
                assert!(rest.starts_with(token) || token.starts_with("bytes:") || token.starts_with('<'), "{token:?}");
            }
        }
    }
    // Nothing but the prompt.
    let none = completion(&server, story(json!({"echo": true, "max_tokens": 0, "logprobs": 1}))).await;
    assert_eq!(none["choices"][0]["text"], "Once upon a time");
    assert_eq!(none["choices"][0]["finish_reason"], "length");
    assert_eq!(none["usage"]["completion_tokens"], 0);
}

#[tokio::test]
async fn prompt_logprobs_have_vllms_shape() {
    let server = Server::start(&[]);
    let answer = choice(&server, story(json!({"prompt_logprobs": 3, "max_tokens": 0, "return_token_ids": true}))).await;
    let prompt = answer["prompt_token_ids"].as_array().expect("ids");
    let logprobs = answer["prompt_logprobs"].as_array().expect("a list");
    assert_eq!(logprobs.len(), prompt.len());
    assert!(logprobs[0].is_null());
    for (token, entry) in prompt.iter().zip(logprobs).skip(1) {
        let entry = entry.as_object().expect("an object");
        assert!((3..=4).contains(&entry.len()) && entry.contains_key(&token.to_string()), "{entry:?}");
        let mut ranks: Vec<u64> = entry.values().map(|one| one["rank"].as_u64().expect("a rank")).collect();
        ranks.sort_unstable();
        assert!(ranks[..3] == [1, 2, 3] && ranks.get(3).is_none_or(|rank| *rank > 3), "{ranks:?}");
    }
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "prompt_logprobs": 0});
    let (_, chat) = post(server.at("/v1/chat/completions"), chat).await;
    assert_eq!(
        chat["prompt_logprobs"].as_array().expect("a list").len(),
        chat["usage"]["prompt_tokens"].as_u64().expect("n") as usize
    );
}

#[tokio::test]
async fn penalties_and_biases_change_what_is_drawn() {
    let server = Server::start(&[]);
    let greedy = choice(&server, story(json!({"return_token_ids": true, "ignore_eos": true}))).await;
    let first = ids(&greedy)[0];
    let drawn =
        |extra: Value| choice(&server, story(with(extra, json!({"return_token_ids": true, "ignore_eos": true}))));

    let banned = drawn(json!({"logit_bias": {first.to_string(): -100}})).await;
    assert!(!ids(&banned).contains(&first), "a token of bias -100 never comes");
    let forced = drawn(json!({"logit_bias": {"300": 100}})).await;
    assert!(ids(&forced).iter().all(|&id| id == 300), "a token of bias 100 always comes");
    let varied = drawn(json!({"logit_bias": {"300": 100, "301": 99}, "frequency_penalty": 2})).await;
    assert!(ids(&varied).contains(&300) && ids(&varied).contains(&301), "what has come often gives way");
    let neutral =
        drawn(json!({"presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {}, "typical_p": 1})).await;
    assert_eq!(ids(&neutral), ids(&greedy));
    let distinct = |choice: &Value| ids(choice).into_iter().collect::<std::collections::BTreeSet<_>>().len();
    let repeated = drawn(json!({"repetition_penalty": 5.0})).await;
    assert!(distinct(&repeated) > distinct(&greedy) || distinct(&greedy) == ids(&greedy).len());
    let same = drawn(json!({"repeat_penalty": 5.0})).await;
    assert_eq!(ids(&same), ids(&repeated), "llama-server's name");
    // Logprobs stay the model's own.
    let plain = drawn(json!({"logprobs": 0, "max_tokens": 1})).await;
    let biased = drawn(json!({"logprobs": 0, "max_tokens": 1, "logit_bias": {first.to_string(): 50}})).await;
    assert_eq!(plain["logprobs"], biased["logprobs"]);
}

#[tokio::test]
async fn penalised_requests_do_not_depend_on_the_batch() {
    let server = Server::golden("llama", &["--max-num-batched-tokens", "32"]);
    let ask = |seed: u64| {
        let prompt: Vec<u64> = (0..20 + seed).map(|i| 3 + (i * 31 + seed * 7) % 250).collect();
        json!({"prompt": prompt, "max_tokens": 24, "seed": seed, "presence_penalty": 0.7, "frequency_penalty": 0.4,
               "repetition_penalty": 1.3, "typical_p": 0.9, "logprobs": 2, "min_tokens": 5})
    };
    let mut alone = Vec::new();
    for seed in 0..8 {
        alone.push(choice(&server, ask(seed)).await);
    }
    let together: Vec<_> = (0..8).map(|seed| tokio::spawn(post(server.at("/v1/completions"), ask(seed)))).collect();
    for (answer, alone) in together.into_iter().zip(alone) {
        assert_eq!(answer.await.expect("no panic").1["choices"][0], alone);
    }
}

#[tokio::test]
async fn ends_and_stops() {
    let server = Server::start(&[]);
    let free = choice(&server, story(json!({"return_token_ids": true}))).await;
    let text = free["text"].as_str().expect("text");
    let stop = &text[5..9];
    let before = text.find(stop).expect("there");
    let cut = choice(&server, story(json!({"stop": stop}))).await;
    assert_eq!(cut["text"], json!(&text[..before]));
    let kept = choice(&server, story(json!({"stop": stop, "include_stop_str_in_output": true}))).await;
    assert_eq!((&kept["text"], &kept["finish_reason"]), (&json!(&text[..before + 4]), &json!("stop")));
    // A stop string counts only once enough tokens have come.
    let late = choice(&server, story(json!({"stop": stop, "min_tokens": 20}))).await;
    assert!(late["text"].as_str().expect("text").starts_with(&text[..before + 4]));
    // A stop token is banned until then.
    let token = ids(&free)[3];
    let ended = choice(&server, story(json!({"stop_token_ids": [token], "return_token_ids": true}))).await;
    assert_eq!(ids(&ended).len(), 4);
    let later =
        choice(&server, story(json!({"stop_token_ids": [token], "min_tokens": 10, "return_token_ids": true}))).await;
    assert!(ids(&later).len() >= 10 && !ids(&later)[..10].contains(&token));
    // Special tokens are text only on request: 1 ends a story.
    let forced = json!({"logit_bias": {"1": 100}, "ignore_eos": true, "max_tokens": 2});
    assert_eq!(choice(&server, story(forced.clone())).await["text"], "");
    let spelled = choice(&server, story(with(forced, json!({"skip_special_tokens": false})))).await;
    assert!(!spelled["text"].as_str().expect("text").is_empty());
}

#[tokio::test]
async fn the_best_of_many_is_the_most_likely() {
    let server = Server::start(&[]);
    let ask = |extra: Value| {
        with(json!({"prompt": ["The fox", "The owl"], "max_tokens": 8, "seed": 5, "logprobs": 0}), extra)
    };
    let all = completion(&server, ask(json!({"n": 6}))).await;
    let best = completion(&server, ask(json!({"n": 2, "best_of": 6}))).await;
    let mean = |choice: &Value| {
        let logprobs = choice["logprobs"]["token_logprobs"].as_array().expect("logprobs");
        logprobs.iter().map(|x| x.as_f64().expect("a number")).sum::<f64>() / logprobs.len() as f64
    };
    let choices = |answer: &Value| answer["choices"].as_array().expect("choices").clone();
    assert_eq!(choices(&best).len(), 4);
    for prompt in 0..2 {
        let mut group = choices(&all)[prompt * 6..][..6].to_vec();
        group.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        for (rank, expected) in group.iter().take(2).enumerate() {
            let shown = &choices(&best)[prompt * 2 + rank];
            assert_eq!((&shown["text"], &shown["index"]), (&expected["text"], &json!(prompt * 2 + rank)));
        }
    }
    // The second time more of the prompts was cached; what was computed is counted all the same.
    let counted =
        |answer: &Value| [answer["usage"]["prompt_tokens"].clone(), answer["usage"]["completion_tokens"].clone()];
    assert_eq!(counted(&best), counted(&all));
}

#[tokio::test]
async fn headers_say_what_was_ignored_and_how_tokens_are_drawn() {
    let server = Server::start(&[]);
    let send = |path: &'static str, body: Value| Client::new().post(server.at(path)).json(&body).send();
    let body = json!({"prompt": "The fox", "max_tokens": 4, "mirostat": 2, "speed": "fast"});
    let answer = send("/v1/completions", body.clone()).await.expect("an answer");
    assert_eq!(answer.headers()["x-ignored-params"], "mirostat,speed");
    let effective = answer.headers()["x-effective-sampling"].to_str().expect("text").to_owned();
    assert!(effective.starts_with("temperature=0.7, top_p=1, top_k=0,"), "the model's makers say 0.7: {effective}");
    // Sent back, it gives the same answer.
    let answer: Value = answer.json().await.expect("JSON");
    let seed = effective.split(", ").find_map(|pair| pair.strip_prefix("seed=")).expect("a seed");
    let again = json!({"prompt": "The fox", "max_tokens": 4, "temperature": 0.7, "seed": seed.parse::<i64>().expect("a number")});
    assert_eq!(choice(&server, again).await["text"], answer["choices"][0]["text"]);

    let (status, error) = post(server.at("/v1/completions?strict=1"), body.clone()).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("mirostat")));
    let strict = Client::new().post(server.at("/v1/completions")).header("x-strict", "true").json(&body).send().await;
    assert_eq!(strict.expect("an answer").status(), 400);
    let long = json!({"prompt": "The fox", "max_tokens": 5_000});
    let (status, error) = post(server.at("/v1/completions?strict=1"), long).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("max_tokens")));
    assert_eq!(post(server.at("/v1/completions?strict=1"), story(json!({}))).await.0, 200);
}

#[tokio::test]
async fn usage_and_timings_come_while_and_after_it_streams() {
    let server = Server::start(&[]);
    let options = json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let frames = stream(server.at("/v1/completions"), story(with(options, json!({"ignore_eos": true})))).await;
    let counts: Vec<u64> =
        frames.iter().map(|frame| frame["usage"]["completion_tokens"].as_u64().expect("a count")).collect();
    assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]), "{counts:?}");
    assert_eq!(counts.last(), Some(&24));
    let timings: Vec<&Value> = frames.iter().filter_map(|frame| frame.get("timings")).collect();
    assert_eq!(timings.len(), 1);
    assert_eq!(timings[0]["predicted_n"], 24);
    for key in ["prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_token_ms"] {
        assert!(timings[0][key].as_f64().expect(key) > 0.0, "{key}");
    }
}

#[tokio::test]
async fn prompts_may_be_cut_on_request() {
    let server = Server::golden("llama", &[]);
    let prompt: Vec<u64> = (0..300).map(|i| 3 + i % 250).collect();
    let ask = |prompt: &[u64], extra: Value| {
        with(json!({"prompt": prompt, "max_tokens": 4, "temperature": 0, "return_token_ids": true}), extra)
    };
    let (status, _) = post(server.at("/v1/completions"), ask(&prompt, json!({}))).await;
    assert_eq!(status, 400);
    let cut = choice(&server, ask(&prompt, json!({"truncate_prompt_tokens": 20}))).await;
    assert_eq!(cut["prompt_token_ids"], json!(&prompt[280..]));
    assert_eq!(cut["token_ids"], choice(&server, ask(&prompt[280..], json!({}))).await["token_ids"]);
    let most = choice(&server, ask(&prompt, json!({"truncate_prompt_tokens": -1}))).await;
    assert_eq!(most["prompt_token_ids"].as_array().expect("ids").len(), 255);
}

#[tokio::test]
async fn a_chat_can_continue_its_last_message() {
    let server = Server::start(&[]);
    let chat = |extra: Value| {
        let messages = json!([{"role": "user", "content": "Tell me a story about a fox named Pip."},
                              {"role": "assistant", "content": "Once upon a time"}]);
        with(json!({"messages": messages, "max_tokens": 8, "temperature": 0, "return_token_ids": true}), extra)
    };
    let (status, on) = post(server.at("/v1/chat/completions"), chat(json!({"continue_final_message": true}))).await;
    assert_eq!(status, 200, "{on}");
    // The prompt ends with the message itself.
    let tokens = on["prompt_token_ids"].clone();
    let (_, text) = post(server.at("/detokenize"), json!({"tokens": tokens})).await;
    assert!(text["prompt"].as_str().expect("text").ends_with("Once upon a time"), "{text}");
    let both = json!({"continue_final_message": true, "add_generation_prompt": true});
    let (status, error) = post(server.at("/v1/chat/completions"), chat(both)).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("continue_final_message")));
    let forged = json!({"chat_template_kwargs": {"messages": []}});
    let (status, error) = post(server.at("/v1/chat/completions"), chat(forged)).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("chat_template_kwargs.messages")));
    let ignored = Client::new()
        .post(server.at("/v1/chat/completions"))
        .json(&chat(json!({"chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "high"})))
        .send()
        .await
        .expect("an answer");
    assert_eq!(ignored.headers()["x-ignored-params"], "chat_template_kwargs.enable_thinking,reasoning_effort");
}

#[tokio::test]
async fn a_stream_goes_on_where_its_client_left_it() {
    let server = Server::start(&[]);
    let body = story(json!({"stream": true, "max_tokens": 200, "ignore_eos": true}));
    let whole = choice(&server, story(json!({"max_tokens": 200, "ignore_eos": true}))).await["text"].clone();
    let begin = Client::new().post(server.at("/v1/completions")).header("x-conversation-id", "fox-1").json(&body);
    let mut answer = begin.send().await.expect("an answer");
    let mut read = String::new();
    while read.matches("\n\n").count() < 3 {
        read += std::str::from_utf8(&answer.chunk().await.expect("bytes").expect("more")).expect("text");
    }
    drop(answer); // and with it the connection
    let complete = read.rfind("\n\n").expect("a frame") + 2;
    let next = read[..complete].matches("\n\n").count();
    let rest = reqwest::get(server.at(&format!("/v1/stream/fox-1?from={next}"))).await.expect("an answer");
    assert_eq!(rest.headers()["content-type"], "text/event-stream");
    let all = read[..complete].to_owned() + &rest.text().await.expect("a body");
    let text: String = crate::support::server::frames(&all)
        .iter()
        .filter_map(|frame| frame["choices"][0]["text"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(json!(text), whole, "each frame once");

    let gone = reqwest::get(server.at("/v1/stream/nobody")).await.expect("an answer");
    assert_eq!(gone.status(), 404);
    let odd = reqwest::get(server.at("/v1/stream/fox-1?from=x")).await.expect("an answer");
    assert_eq!(odd.json::<Value>().await.expect("JSON")["error"]["param"], "from");
    // A deleted one is aborted.
    let endless = story(json!({"stream": true, "max_tokens": 900, "ignore_eos": true}));
    let begin = Client::new().post(server.at("/v1/completions")).header("x-conversation-id", "fox-2").json(&endless);
    let answer = begin.send().await.expect("an answer");
    let deleted = Client::new().delete(server.at("/v1/stream/fox-2")).send().await.expect("an answer");
    assert_eq!(deleted.status(), 204);
    drop(answer);
    server.until_metric("forebay_num_requests_running", 0.0).await;
}

#[tokio::test]
async fn a_stream_tells_how_far_its_prompt_is() {
    let server = Server::start(&["--max-num-batched-tokens", "16"]);
    let body = json!({"prompt": vec![5; 900], "max_tokens": 2, "ignore_eos": true, "return_progress": true});
    let frames = stream(server.at("/v1/completions"), body.clone()).await;
    let progress: Vec<&Value> = frames.iter().filter_map(|frame| frame.get("prompt_progress")).collect();
    let processed: Vec<u64> = progress.iter().map(|told| told["processed"].as_u64().expect("a count")).collect();
    assert!(processed.windows(2).all(|pair| pair[0] < pair[1]), "{processed:?}");
    assert_eq!((processed.last(), &progress[0]["total"]), (Some(&900), &json!(900)));
    let first_text = frames.iter().position(|frame| !frame["choices"].as_array().expect("choices").is_empty());
    let last_progress = frames.iter().rposition(|frame| frame.get("prompt_progress").is_some());
    assert!(last_progress < first_text, "before the first token");
    let (status, error) = post(server.at("/v1/completions"), body).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("return_progress")));
}
