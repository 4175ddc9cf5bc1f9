//! Calls and thoughts from a model that makes them, over the real binary.

use reqwest::Client;
use serde_json::{Value, json};

use crate::support::parrot::{SAYS, caller, parrot};
use crate::support::server::Server;

fn tools() -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}});
    json!([tool("get_weather"), tool("get_time")])
}

async fn asked(server: &Server, extra: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Weather?"}], "temperature": 0, "tools": tools()});
    body.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
    let url = server.at("/v1/chat/completions");
    let answer = Client::new().post(url).json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.json().await.expect("JSON")
}

#[tokio::test]
async fn a_model_thinks_speaks_and_calls() {
    let folder = caller();
    let server = Server::parrot(&folder, &[]);
    let answer = asked(&server, json!({})).await;
    let choice = &answer["choices"][0];
    let message = &choice["message"];
    assert_eq!(message["reasoning_content"], "Oslo? Yes.");
    assert_eq!((&message["content"], &choice["finish_reason"]), (&json!("Look:"), &json!("tool_calls")));
    let calls = message["tool_calls"].as_array().expect("calls");
    let functions: Vec<&Value> = calls.iter().map(|call| &call["function"]).collect();
    let weather = json!({"name": "get_weather", "arguments": "{\"place\": \"Oslo\", \"days\": [1, {}]}"});
    assert_eq!(functions, [&weather, &json!({"name": "get_time", "arguments": "{}"})]);
    // All of its tokens and the end; thinking is the first seven.
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], SAYS.len() + 1);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 7);

    let one = asked(&server, json!({"parallel_tool_calls": false})).await;
    assert_eq!(one["choices"][0]["message"]["tool_calls"].as_array().map(Vec::len), Some(1));
    assert_eq!(one["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(one["usage"]["completion_tokens"], 18, "up to the call's last brace");

    // Nobody asked for calls: they are words, but for the marks, which are no text.
    let none = asked(&server, json!({"tool_choice": "none"})).await;
    let message = &none["choices"][0]["message"];
    assert_eq!(none["choices"][0]["finish_reason"], "stop");
    assert!(message["content"].as_str().expect("words").starts_with("Look:\n{\"name\": \"get_weather\""), "{message}");
    assert!(message.get("tool_calls").is_none());

    // A stop string is looked for in words alone: there is a brace in the arguments before.
    let stopped = asked(&server, json!({"stop": [":", "}"]})).await;
    let choice = &stopped["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!("Look"), &json!("stop")));
    assert_eq!(choice["message"]["reasoning_content"], "Oslo? Yes.");

    // Cut off in its arguments.
    let cut = asked(&server, json!({"max_tokens": 16})).await;
    let choice = &cut["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"place\": \"Oslo\", \"days\"");
}

#[tokio::test]
async fn a_thought_ends_when_its_tokens_are_spent() {
    let folder = caller();
    let server = Server::parrot(&folder, &[]);
    for (budget, reasoning, tokens) in
        [(0, Value::Null, 2), (2, json!("Oslo"), 4), (3, json!("Oslo?"), 5), (100, json!("Oslo? Yes."), 7)]
    {
        let answer = asked(&server, json!({"max_thinking_tokens": budget, "seed": 1, "temperature": 1})).await;
        let message = &answer["choices"][0]["message"];
        assert_eq!(message["reasoning_content"], reasoning, "{budget}");
        assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], tokens, "{budget}");
        assert_eq!((&message["content"], message["tool_calls"].as_array().map(Vec::len)), (&json!("Look:"), Some(2)));
    }
}

#[tokio::test]
async fn the_operator_chooses_the_parsers() {
    let folder = caller();
    let server = Server::parrot(&folder, &["--tool-parser", "llama3", "--reasoning-parser", "none"]);
    let answer = asked(&server, json!({})).await;
    let message = &answer["choices"][0]["message"];
    assert!(message.get("reasoning_content").is_none() && message.get("tool_calls").is_none());
    assert!(message["content"].as_str().expect("words").starts_with("\nOslo? Yes.\n\nLook:\n{"), "{message}");
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
}

/// Whatever the model would rather say.
#[tokio::test]
async fn demanded_calls_come_and_satisfy_their_schemas() {
    let server = Server::start(&["--tool-parser", "json"]);
    let parameters = json!({
        "type": "object", "required": ["place", "days"], "additionalProperties": false,
        "properties": {"place": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    });
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let named = json!({"type": "function", "function": {"name": "get_time"}});
    for (choice, parallel, temperature) in [
        (json!("required"), false, 1.0),
        (json!("required"), true, 0.7),
        (named.clone(), true, 0.0),
        (named, true, 1.5),
    ] {
        let answer = asked(
            &server,
            json!({"tools": [tool("get_weather"), tool("get_time")], "tool_choice": choice, "parallel_tool_calls": parallel,
                "temperature": temperature, "seed": 7, "max_tokens": 400}),
        )
        .await;
        let message = &answer["choices"][0]["message"];
        let calls = message["tool_calls"].as_array().unwrap_or_else(|| panic!("{answer}"));
        let cut = answer["choices"][0]["finish_reason"] == "length";
        assert!(cut && parallel || answer["choices"][0]["finish_reason"] == "tool_calls", "{answer}");
        // A call that was cut before its arguments is the text that it is.
        assert!((cut || message["content"].is_null()) && (parallel || calls.len() == 1), "{answer}");
        for call in &calls[..calls.len() - usize::from(cut && calls.len() > 1)] {
            assert!(choice == "required" || call["function"]["name"] == "get_time", "{answer}");
            let arguments = call["function"]["arguments"].as_str().expect("a string");
            let arguments: Value = serde_json::from_str(arguments).expect("JSON");
            assert!(arguments["place"] == "Oslo" || arguments["place"] == "Rome", "{arguments}");
            assert!((1..=9).contains(&arguments["days"].as_i64().expect("an integer")), "{arguments}");
        }
    }
}

/// What has to be said begins after the thinking.
#[tokio::test]
async fn a_held_answer_may_be_thought_about() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think> #}";
    let folder = parrot(&["<think>", "Hm", ".", "</think>", "no", "yes"], &["<think>", "</think>"], template);
    let server = Server::parrot(&folder, &[]);
    for (choices, budget, thought) in
        [(json!(["yes"]), json!(null), "Hm."), (json!(["yes", "no"]), json!(1), "Hm"), (json!(["no"]), json!(0), "")]
    {
        let extra = json!({"tools": [], "guided_choice": choices, "max_thinking_tokens": budget});
        let answer = asked(&server, extra).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["message"]["reasoning_content"].as_str().unwrap_or_default(), thought, "{answer}");
        assert_eq!(choice["finish_reason"], "stop", "{answer}");
        let said = choice["message"]["content"].as_str().expect("content");
        assert!(choices.as_array().expect("a list").iter().any(|text| text == said), "{answer}");
    }
}
