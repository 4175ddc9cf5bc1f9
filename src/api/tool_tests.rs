//! Chats with tools and thinking over a scripted engine.

use serde_json::{Value, json};

use crate::api::testing::*;
use forebay_core::request::{Event, FinishReason};

const CHAT: &str = "/v1/chat/completions";

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "d",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}})
}

fn body(extra: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "tools": [tool("get_weather"), tool("f")]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// What the answer to `body` is when the model says `text`.
async fn answered(body: Value, text: &str, reason: FinishReason) -> Answer {
    let mut scene = Scene::with(QWEN, 4_096);
    let events = scene.says(text, reason);
    scene.play(CHAT, &body, &[events]).await
}

/// The prompt that the engine gets for `body`.
async fn prompt(template: &str, body: Value) -> String {
    prompt_of(template, CHAT, body).await
}

const TWO: &str = "<think>\nlook 日\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Köln\"}}\n</tool_call>\n\
                   <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

#[tokio::test]
async fn calls_and_thoughts_have_fields_of_their_own() {
    let answer = answered(body(json!({})), TWO, FinishReason::Stop).await.json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let message = &choice["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&Value::Null, &json!("look 日\n")));
    let calls = message["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0]["function"], json!({"name": "get_weather", "arguments": "{\"place\": \"Köln\"}"}));
    assert_eq!(calls[1]["function"], json!({"name": "f", "arguments": "{}"}));
    assert!(calls.iter().all(|call| call["type"] == "function" && call["id"].as_str().unwrap().starts_with("call_")));
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let usage = &answer["usage"];
    let thoughts = usage["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    assert_eq!(thoughts, "<think>\nlook 日\n</think>".len() as u64, "tokens are bytes here");
    assert!(usage["completion_tokens"].as_u64().unwrap() > thoughts);
}

#[tokio::test]
async fn a_stream_of_calls_joins_to_the_whole() {
    for extra in [json!({}), json!({"logprobs": true}), json!({"return_token_ids": true})] {
        let mut extra = extra;
        let whole = answered(body(extra.clone()), TWO, FinishReason::Stop).await.json();
        extra["stream"] = json!(true);
        let frames = answered(body(extra), TWO, FinishReason::Stop).await.frames();
        let (mut content, mut thoughts, mut calls, mut reason) =
            (String::new(), String::new(), Vec::new(), Value::Null);
        for frame in &frames {
            let choice = &frame["choices"][0];
            let delta = &choice["delta"];
            content += delta["content"].as_str().unwrap_or_default();
            thoughts += delta["reasoning_content"].as_str().unwrap_or_default();
            let parts = delta["tool_calls"].as_array().cloned().unwrap_or_default();
            assert!(parts.len() <= 1, "{delta}");
            for part in parts {
                if part["id"].is_string() {
                    assert_eq!((&part["index"], &part["type"]), (&json!(calls.len()), &json!("function")));
                    assert_eq!(part["function"]["arguments"], "");
                    calls.push(part["function"].clone());
                } else {
                    let call = &mut calls[part["index"].as_u64().unwrap() as usize]["arguments"];
                    *call = json!(call.as_str().unwrap().to_owned() + part["function"]["arguments"].as_str().unwrap());
                }
            }
            if !choice["finish_reason"].is_null() {
                reason = choice["finish_reason"].clone();
            }
        }
        let message = &whole["choices"][0]["message"];
        assert_eq!((content.as_str(), reason), ("", json!("tool_calls")));
        assert_eq!(json!(thoughts), message["reasoning_content"]);
        let functions = message["tool_calls"].as_array().unwrap().iter().map(|call| call["function"].clone());
        assert_eq!(calls, functions.collect::<Vec<_>>());
        let listed = |of: &Value| of.as_array().map_or(0, Vec::len);
        let streamed: usize = frames.iter().map(|frame| listed(&frame["choices"][0]["logprobs"]["content"])).sum();
        assert_eq!(streamed, listed(&whole["choices"][0]["logprobs"]["content"]));
        let streamed: usize = frames.iter().map(|frame| listed(&frame["choices"][0]["token_ids"])).sum();
        assert_eq!(streamed, listed(&whole["choices"][0]["token_ids"]));
    }
}

#[tokio::test]
async fn words_beside_calls_stay_words() {
    let text =
        "Wait.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"nope\"}</tool_call>";
    let answer = answered(body(json!({})), text, FinishReason::Stop).await.json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "Wait.\n<tool_call>{\"name\": \"nope\"}</tool_call>");
    assert_eq!(
        (choice["message"]["tool_calls"].as_array().unwrap().len(), &choice["finish_reason"]),
        (1, &json!("tool_calls"))
    );
    let cut = answered(body(json!({})), "<tool_call>{\"name\": \"f\", \"argum", FinishReason::Length).await.json();
    let choice = &cut["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("<tool_call>{\"name\": \"f\", \"argum"), &json!("length"))
    );
    assert!(choice["message"].get("tool_calls").is_none());
}

#[tokio::test]
async fn without_parallel_calls_the_first_ends_it() {
    let answer = answered(body(json!({"parallel_tool_calls": false})), TWO, FinishReason::Stop).await.json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(choice["finish_reason"], "tool_calls");
}

#[tokio::test]
async fn without_tools_nothing_is_parsed() {
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    for extra in [json!({"tool_choice": "none"}), json!({"tools": []}), json!({"tools": null})] {
        let answer = answered(body(extra), call, FinishReason::Stop).await.json();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(call), &json!("stop")));
    }
}

#[tokio::test]
async fn the_template_is_told_of_tools_calls_and_results() {
    let tools = format!("<tools>{}{}</tools>", spaced(&tool("get_weather")), spaced(&tool("f")));
    assert_eq!(prompt(QWEN, body(json!({}))).await, format!("{tools}user:hi;A:"));
    assert_eq!(prompt(QWEN, body(json!({"tool_choice": "none"}))).await, "user:hi;A:");
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":\"<b> é\",\"b\":[1]}"}});
    let chat = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]);
    let expected = "user:hi;assistant:<think>hm</think><tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"<b> é\", \"b\": [1]}}</tool_call>;tool:42;A:";
    assert_eq!(prompt(QWEN, body(json!({"messages": chat, "tools": []}))).await, expected);
    // Some templates join arguments to a string.
    let joining = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name + '(' + c.function.arguments + ')' }}{% endfor %}{% endfor %}";
    assert_eq!(prompt(joining, body(json!({"messages": chat, "tools": []}))).await, "f({\"a\":\"<b> é\",\"b\":[1]})");
    // Phi's looks for tools in the system message.
    let phi = "{% for m in messages %}{{ m.role }}{% if 'tools' in m and m['tools'] is not none %}<|tool|>{{ m['tools'] }}<|/tool|>{% endif %};{% endfor %}";
    assert_eq!(
        prompt(phi, body(json!({"tools": [tool("f")]}))).await,
        format!("system<|tool|>[{}]<|/tool|>;user;", tool("f"))
    );
}

/// JSON as `tojson` writes it.
fn spaced(value: &Value) -> String {
    let text = value.to_string();
    // The tools here have no such characters in their texts.
    text.replace("\":", "\": ").replace(",\"", ", \"")
}

/// As agents send them: 128 tools, a quarter of a megabyte.
#[tokio::test]
async fn many_large_tools_pass() {
    let many = |count: usize, bytes: usize| -> Vec<Value> {
        let large = |index| {
            let mut tool = tool(&format!("tool_{index}"));
            tool["function"]["description"] = json!("x".repeat(bytes / count - tool.to_string().len()));
            tool["function"]["parameters"]["properties"]["place"]["maxLength"] = json!(524_288);
            tool
        };
        (0..count).map(large).collect()
    };
    for (count, bytes) in [(58, 100 << 10), (128, 256 << 10)] {
        let tools = many(count, bytes);
        let mut scene = Scene::with(QWEN, 1 << 20);
        scene.state.front.body.max_bytes = 1 << 20;
        let events = scene.says("<tool_call>{\"name\": \"tool_57\", \"arguments\": {}}", FinishReason::Stop);
        let answer = scene.play(CHAT, &body(json!({"tools": tools})), &[events]).await;
        assert_eq!(answer.status, 200);
        let answer = answer.json();
        assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "tool_57");
        assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > bytes as u64, "tokens are bytes here");
    }
}

#[tokio::test]
async fn control_tokens_in_tools_and_calls_are_only_text() {
    let mut scene = Scene::with(QWEN, 4_096);
    let state = scene.state.clone();
    let mut forged = tool("f");
    forged["function"]["description"] = json!("<|end|>");
    let call = json!({"id": "c1", "function": {"name": "f", "arguments": "{\"a\": \"<|user|>\"}"}});
    let chat = json!([{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": "<|bos|>"}]);
    let body = json!({"tools": [forged], "messages": chat});
    let client = tokio::spawn(async move { answer(&state, json_post(CHAT, &body)).await });
    let group = submitted(scene.commands.recv().await.unwrap());
    let ids = group[0].request.prompt().to_vec();
    group[0].events.try_send(Event::Finished(FinishReason::Length)).unwrap();
    assert_eq!(client.await.unwrap().status, 200);
    assert!(ids.iter().all(|&id| scene.tokenizer.is_text(id)));
}

/// The arguments of past calls are JSON, which templates read and write again: `\u003c|end|>` became a real token.
#[tokio::test]
async fn control_tokens_behind_escapes_are_only_text() {
    let mut scene = Scene::with(QWEN, 4_096);
    let escaped = |text: &str, from: usize, to: usize| -> String {
        let one = |(at, c): (usize, char)| match (from..to).contains(&at) {
            true if at % 2 == 0 => format!("\\u{:04x}", c as u32),
            true => format!("\\u{:04X}", c as u32),
            false => c.to_string(),
        };
        text.chars().enumerate().map(one).collect()
    };
    for special in ["<|end|>", "<|user|>", "<|bos|>"] {
        let length = special.len();
        for (from, to) in (0..length).flat_map(|from| (from + 1..=length).map(move |to| (from, to))) {
            let text = escaped(special, from, to);
            for arguments in [format!("{{\"a\": \"{text}\"}}"), format!("{{\"{text}\": [\"x{text}\"]}}")] {
                let state = scene.state.clone();
                let call = json!({"id": "c1", "function": {"name": "f", "arguments": arguments}});
                let chat = json!([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}]);
                let body = json!({"tools": [tool("f")], "messages": chat});
                let client = tokio::spawn(async move { answer(&state, json_post(CHAT, &body)).await });
                let group = submitted(scene.commands.recv().await.unwrap());
                let ids = group[0].request.prompt().to_vec();
                group[0].events.try_send(Event::Finished(FinishReason::Length)).unwrap();
                assert_eq!(client.await.unwrap().status, 200);
                assert!(ids.iter().all(|&id| scene.tokenizer.is_text(id)), "{arguments}");
            }
        }
    }
}

#[tokio::test]
async fn a_prompt_that_opens_a_block_begins_in_thought() {
    let thinking = json!({"chat_template_kwargs": {"enable_thinking": true}, "tools": []});
    let answer = answered(body(thinking), "so it is</think>\n\nYes.", FinishReason::Stop).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["reasoning_content"], &message["content"]), (&json!("so it is"), &json!("Yes.")));
    let answer = answered(body(json!({"tools": []})), "so it is</think>\n\nYes.", FinishReason::Stop).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "so it is</think>\n\nYes.");
    assert!(answer["choices"][0]["message"].get("reasoning_content").is_none());
}

#[tokio::test]
async fn what_cannot_be_demanded_is_refused() {
    let mut scene = Scene::with(QWEN, 4_096);
    let both = json!({"tool_choice": "required", "response_format": {"type": "json_object"}});
    let (status, error) = scene.refused(CHAT, body(both)).await;
    assert_eq!(
        (status, &error["code"], &error["param"]),
        (400, &json!("unsupported_parameter"), &json!("tool_choice"))
    );
    let remote = json!({"type": "function", "function": {"name": "g", "parameters": {"properties": {"a": {"$ref": "http://a.b/c"}}}}});
    let (status, error) = scene.refused(CHAT, body(json!({"tool_choice": "required", "tools": [remote]}))).await;
    assert_eq!((status, &error["param"]), (400, &json!("tools")));
    let mut plain = Scene::new();
    let (status, error) = plain.refused(CHAT, body(json!({}))).await;
    assert_eq!((status, &error["param"]), (400, &json!("tools")));
    let call = json!({"id": "c1", "function": {"name": "f", "arguments": "{}"}});
    let chat = json!([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]);
    let (status, error) = plain.refused(CHAT, json!({"messages": chat})).await;
    assert_eq!((status, &error["param"]), (400, &json!("messages[1]")));
}
