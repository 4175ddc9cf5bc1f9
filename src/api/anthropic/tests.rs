//! Messages over a scripted engine: blocks in, blocks out, whole and as events.

use serde_json::{Value, json};

use crate::api::openapi::tests::check_answer;
use crate::api::testing::*;
use forebay_core::request::{Event, FinishReason, RequestError};

const ROUTE: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const SAID: &str =
    "<think>\nhm\n</think>\n\nLook:<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

fn tool() -> Value {
    json!({"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}})
}

fn body(more: Value) -> Value {
    let mut body = json!({"max_tokens": 512, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn answered(body: Value, text: &str, reason: FinishReason) -> Answer {
    let mut scene = Scene::with(QWEN, 4_096);
    let events = scene.says(text, reason);
    scene.play(ROUTE, &body, &[events]).await
}

fn events(answer: &Answer) -> Vec<(String, Value)> {
    let text = std::str::from_utf8(&answer.body).unwrap();
    let frames = text.split("\n\n").filter(|frame| !frame.is_empty());
    let event = |frame: &str| {
        let (name, data) = frame.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (name.strip_prefix("event: ").unwrap().to_owned(), data)
    };
    frames.map(event).collect()
}

#[tokio::test]
async fn thoughts_words_and_calls_are_blocks() {
    let answer = answered(body(json!({"tools": [tool()], "system": "x"})), SAID, FinishReason::Stop).await.json();
    check_answer(ROUTE, "application/json", &answer);
    assert!(answer["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(
        (&answer["type"], &answer["role"], &answer["stop_reason"]),
        (&json!("message"), &json!("assistant"), &json!("tool_use"))
    );
    let blocks = answer["content"].as_array().unwrap();
    assert_eq!(blocks[0], json!({"type": "thinking", "thinking": "hm\n", "signature": ""}));
    assert_eq!(blocks[1], json!({"type": "text", "text": "Look:"}));
    assert_eq!((&blocks[2]["name"], &blocks[2]["input"]), (&json!("f"), &json!({"a": 1})));
    assert_eq!(blocks.len(), 3);
}

#[tokio::test]
async fn a_stream_brings_the_same_blocks() {
    let answer = answered(body(json!({"tools": [tool()], "stream": true})), SAID, FinishReason::Stop).await;
    let events = events(&answer);
    for (name, data) in &events {
        check_answer(ROUTE, "text/event-stream", data);
        assert_eq!(&data["type"], name);
    }
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    let block = ["content_block_start", "content_block_delta", "content_block_stop"];
    let expected =
        [&["message_start", "ping"][..], &block, &block, &block, &["message_delta", "message_stop"]].concat();
    assert_eq!(names, expected);
    let joined = |kind: &str, field: &str| -> String {
        let deltas = events.iter().map(|(_, data)| &data["delta"]).filter(|delta| delta["type"] == kind);
        deltas.map(|delta| delta[field].as_str().unwrap()).collect()
    };
    assert_eq!(joined("thinking_delta", "thinking"), "hm\n");
    assert_eq!(joined("text_delta", "text"), "Look:");
    assert_eq!(joined("input_json_delta", "partial_json"), "{\"a\": 1}");
    let (_, last) = &events[events.len() - 2];
    assert_eq!(last["delta"], json!({"stop_reason": "tool_use", "stop_sequence": null}));
    assert!(last["usage"]["output_tokens"].as_u64().unwrap() > 0);
}

#[tokio::test]
async fn reasons_to_stop() {
    let reason = |more: Value, reason| async move {
        let answer = answered(body(more), "Hello", reason).await.json();
        (answer["stop_reason"].clone(), answer["stop_sequence"].clone(), answer["content"][0]["text"].clone())
    };
    let end = reason(json!({}), FinishReason::Stop).await;
    assert_eq!(end, (json!("end_turn"), Value::Null, json!("Hello")));
    let cut = reason(json!({}), FinishReason::Length).await;
    assert_eq!(cut, (json!("max_tokens"), Value::Null, json!("Hello")));
    let stopped = reason(json!({"stop_sequences": ["x", "ll"]}), FinishReason::Length).await;
    assert_eq!(stopped, (json!("stop_sequence"), json!("ll"), json!("He")));
}

#[tokio::test]
async fn errors_have_anthropics_shape() {
    let message =
        |content: Value| json!({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": content}]});
    for (given, named) in [
        (json!({"messages": []}), "'messages'"),
        (json!({"messages": [{"role": "system", "content": "a"}]}), "'messages[0].role'"),
        (message(json!(5)), "'messages[1].content'"),
        (message(json!([{"type": "image", "source": {}}])), "'messages[1].content[0].type'"),
        (message(json!([{"type": "tool_use", "id": "a", "name": "f", "input": {}}])), "'messages[1].content[0].type'"),
        (message(json!([{"type": "tool_result", "tool_use_id": "a"}])), "'messages[1].content[0].tool_use_id'"),
        (json!({"max_tokens": 0}), "'max_tokens'"),
        (json!({"max_tokens": null}), "'max_tokens'"),
        (json!({"stop_sequences": "a"}), "'stop_sequences'"),
        (json!({"stop_sequences": [""]}), "'stop_sequences'"),
        (json!({"tools": [{"name": "f"}]}), "'tools[0].input_schema'"),
        (json!({"tools": [{"name": "f", "input_schema": {"type": "string"}}]}), "'tools[0].input_schema.type'"),
        (json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}), "'tools[0].type'"),
        (json!({"tools": [tool()], "tool_choice": {"type": "tool"}}), "'tool_choice.name'"),
        (json!({"tools": [tool()], "tool_choice": {"type": "always"}}), "'tool_choice.type'"),
        (json!({"thinking": {"type": "enabled"}}), "'thinking.budget_tokens'"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": -1}}), "'thinking.budget_tokens'"),
        (json!({"output_config": {"format": {"type": "xml"}}}), "'output_config.format.type'"),
        (json!({"container": "c"}), "'container'"),
        (json!({"temperature": 9}), "'temperature'"),
    ] {
        let mut scene = Scene::with(QWEN, 4_096);
        let answer = scene.send(json_post(ROUTE, &body(given.clone()))).await;
        let error = answer.json();
        assert_eq!((answer.status.as_u16(), &error["type"]), (400, &json!("error")), "{given}: {error}");
        assert_eq!(error["error"]["type"], "invalid_request_error");
        assert!(error["error"]["message"].as_str().unwrap().starts_with(named), "{given}: {error}");
    }
    let mut scene = Scene::new();
    let answer = scene.send(json_post(ROUTE, &body(json!({"model": "claude-17"})))).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["type"]), (404, &json!("not_found_error")));
    for request in
        [get_request(ROUTE), get_request(COUNT), get_request("/messages"), get_request("/v1/messages/batches")]
    {
        let answer = scene.send(request).await;
        assert!(matches!(answer.status.as_u16(), 404 | 405) && answer.json()["type"] == "error", "{answer:?}");
    }
    let answer = scene.send(raw(ROUTE, "{")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["type"]), (400, &json!("invalid_request_error")));
}

#[tokio::test]
async fn a_failure_is_an_event_of_the_stream() {
    let mut scene = Scene::with(QWEN, 4_096);
    let mut script = scene.says("Hel", FinishReason::Stop);
    *script.last_mut().unwrap() = Event::Failed(RequestError::StepFailed);
    let streamed = scene.play(ROUTE, &body(json!({"stream": true})), &[script.clone()]).await;
    let events = events(&streamed);
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["error"]["type"]), ("error", &json!("api_error")));
    let whole = scene.play(ROUTE, &body(json!({})), &[script]).await;
    assert_eq!((whole.status.as_u16(), &whole.json()["error"]["type"]), (500, &json!("api_error")));
}

#[tokio::test]
async fn blocks_are_the_messages_of_a_chat() {
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "Look:"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "1"}]}, {"type": "text", "text": "and?"},
        ]},
    ]);
    let chat = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "reasoning_content": "hm", "content": "Look:",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "user", "content": "and?"},
    ]);
    let system = json!([{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]);
    let function = json!({"type": "function", "function": {"parameters": tool()["input_schema"], "name": "f", "description": "d"}});
    let ours = prompt_of(QWEN, ROUTE, body(json!({"messages": messages, "system": system, "tools": [tool()]}))).await;
    let chats = prompt_of(QWEN, "/v1/chat/completions", json!({"messages": chat, "tools": [function]})).await;
    assert_eq!(ours, chats);
    let mut scene = Scene::with(QWEN, 4_096);
    let counted = json!({"messages": messages, "system": system, "tools": [tool()]});
    let count = scene.send(json_post(COUNT, &counted)).await.json();
    check_answer(COUNT, "application/json", &count);
    let rendered =
        scene.send(json_post("/v1/chat/completions/render", &json!({"messages": chat, "tools": [function]}))).await;
    assert_eq!(count["input_tokens"], rendered.json()["count"]);
}

#[tokio::test]
async fn thinking_is_a_word_to_the_template_or_a_budget() {
    let asked = |thinking: Value| prompt_of(QWEN, ROUTE, body(json!({"thinking": thinking})));
    assert!(!asked(json!({"type": "disabled"})).await.ends_with("<think>\n"));
    assert!(asked(json!({"type": "adaptive"})).await.ends_with("A:"));
}

#[tokio::test]
async fn what_has_no_effect_is_named_and_strictly_refused() {
    for (more, names) in [
        (json!({"speed": "fast"}), "speed"),
        // The tags around its thinking are no tokens of this vocabulary, so nothing could end it.
        (json!({"thinking": {"type": "enabled", "budget_tokens": 9}}), "thinking.budget_tokens"),
        (json!({"n": 2}), "n"),
        (json!({"thinking": {"type": "adaptive", "display": "omitted"}}), "thinking.display"),
        (json!({"cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "u"}, "service_tier": "auto"}), ""),
    ] {
        let answer = answered(body(more.clone()), "a", FinishReason::Stop).await;
        let named = answer.headers.get("x-ignored-params").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(named.unwrap_or_default(), names, "{more}");
        if !names.is_empty() {
            let mut scene = Scene::with(QWEN, 4_096);
            let refused = scene.send(json_post("/v1/messages?strict=1", &body(more))).await;
            assert_eq!(refused.status, 400);
        }
    }
}
