//! Responses over a scripted engine: items in, items out, whole and as events.

use serde_json::{Value, json};

use crate::api::openapi::tests::check_answer;
use crate::api::testing::*;
use forebay_core::request::{Event, FinishReason, RequestError};

const ROUTE: &str = "/v1/responses";
const SAID: &str =
    "<think>\nhm\n</think>\n\nLook:<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";

fn tool() -> Value {
    json!({"type": "function", "name": "f", "description": "d", "strict": false,
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}})
}

async fn answered(body: Value, text: &str, reason: FinishReason) -> Answer {
    let mut scene = Scene::with(QWEN, 4_096);
    let events = scene.says(text, reason);
    scene.play(ROUTE, &body, &[events]).await
}

/// The name and data of each event.
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

/// Without what differs from request to request.
fn nameless(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(object) => {
                for name in ["id", "item_id", "call_id", "created_at", "completed_at"] {
                    object.remove(name);
                }
                object.values_mut().for_each(walk);
            }
            Value::Array(list) => list.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[tokio::test]
async fn a_text_is_a_message() {
    let body =
        json!({"input": "hi", "instructions": "be brief", "metadata": {"a": "b"}, "temperature": 0.5, "store": false});
    let answer = answered(body, "Hello", FinishReason::Stop).await;
    assert!(!answer.headers.contains_key("x-ignored-params"), "{:?}", answer.headers);
    let answer = answer.json();
    check_answer(ROUTE, "application/json", &answer);
    assert!(answer["id"].as_str().unwrap().starts_with("resp_"));
    for (name, expected) in [
        ("object", json!("response")),
        ("status", json!("completed")),
        ("instructions", json!("be brief")),
        ("metadata", json!({"a": "b"})),
        ("temperature", json!(0.5)),
        ("store", json!(false)),
        ("error", Value::Null),
    ] {
        assert_eq!(answer[name], expected, "{name}");
    }
    let part = json!({"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []});
    let message = json!([{"type": "message", "status": "completed", "role": "assistant", "content": [part]}]);
    assert_eq!(nameless(answer["output"].clone()), message);
    let usage = &answer["usage"];
    assert_eq!(
        usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap(),
        usage["total_tokens"].as_u64().unwrap()
    );
}

#[tokio::test]
async fn thoughts_words_and_calls_are_items_and_streams_end_with_the_whole() {
    let body = json!({"input": "hi", "tools": [tool()]});
    let whole = answered(body.clone(), SAID, FinishReason::Stop).await.json();
    check_answer(ROUTE, "application/json", &whole);
    let kinds: Vec<&Value> = whole["output"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(whole["output"][0]["content"], json!([{"type": "reasoning_text", "text": "hm\n"}]));
    assert_eq!(whole["output"][2]["arguments"], "{\"a\": 1}");
    assert_eq!(whole["tools"], json!([tool()]));

    let mut streamed = body;
    streamed["stream"] = json!(true);
    let events = events(&answered(streamed, SAID, FinishReason::Stop).await);
    for (number, (name, data)) in events.iter().enumerate() {
        check_answer(ROUTE, "text/event-stream", data);
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(number)));
    }
    let mut names: Vec<&str> = events.iter().map(|(name, _)| name.trim_start_matches("response.")).collect();
    names.dedup();
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(names, expected);
    let (_, last) = events.last().unwrap();
    assert_eq!(nameless(last["response"].clone()), nameless(whole));
    // Deltas, joined, are what is done.
    let joined = |name: &str| -> String {
        let deltas = events.iter().filter(|(event, _)| event == name);
        deltas.map(|(_, data)| data["delta"].as_str().unwrap()).collect()
    };
    assert_eq!(joined("response.output_text.delta"), "Look:");
    assert_eq!(joined("response.function_call_arguments.delta"), "{\"a\": 1}");
}

#[tokio::test]
async fn what_was_cut_is_incomplete() {
    let answer = answered(json!({"input": "hi", "max_output_tokens": 5}), "Hello", FinishReason::Length).await.json();
    assert_eq!(
        (&answer["status"], &answer["incomplete_details"]),
        (&json!("incomplete"), &json!({"reason": "max_output_tokens"}))
    );
    assert_eq!((&answer["output"][0]["status"], &answer["max_output_tokens"]), (&json!("incomplete"), &json!(5)));
    let answer = answered(json!({"input": "hi", "stream": true}), "Hello", FinishReason::Length).await;
    assert_eq!(events(&answer).last().unwrap().0, "response.incomplete");
}

#[tokio::test]
async fn a_failure_is_told_in_the_stream_and_is_an_error_otherwise() {
    let mut scene = Scene::with(QWEN, 4_096);
    let mut script = scene.says("Hel", FinishReason::Stop);
    *script.last_mut().unwrap() = Event::Failed(RequestError::StepFailed);
    let streamed = scene.play(ROUTE, &json!({"input": "hi", "stream": true}), &[script.clone()]).await;
    let events = events(&streamed);
    let (name, data) = events.last().unwrap();
    assert_eq!((name.as_str(), &data["response"]["status"]), ("response.failed", &json!("failed")));
    assert_eq!(data["response"]["error"]["code"], "step_failed");
    let whole = scene.play(ROUTE, &json!({"input": "hi"}), &[script]).await;
    assert_eq!((whole.status.as_u16(), &whole.error()["code"]), (500, &json!("step_failed")));
}

#[tokio::test]
async fn items_are_the_messages_of_a_chat() {
    let items = json!([
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "Look:", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{\"a\": 1}"},
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "2"}]},
    ]);
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let chat = json!([
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "reasoning_content": "hm", "content": "Look:", "tool_calls": [call("c1", "{}"), call("c2", "{\"a\": 1}")]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
    ]);
    let function = json!({"type": "function", "function": {
        "name": "f", "description": "d", "parameters": tool()["parameters"], "strict": false,
    }});
    let ours = prompt_of(QWEN, ROUTE, json!({"input": items, "tools": [tool()]})).await;
    let chats = prompt_of(QWEN, "/v1/chat/completions", json!({"messages": chat, "tools": [function]})).await;
    assert_eq!(ours, chats);
    assert!(ours.contains("hm") && ours.contains("<tool_call>"), "{ours}");
    let counted = json!({"input": items, "tools": [tool()]});
    let mut scene = Scene::with(QWEN, 4_096);
    let answer = scene.send(json_post("/v1/responses/input_tokens", &counted)).await.json();
    check_answer("/v1/responses/input_tokens", "application/json", &answer);
    let rendered =
        scene.send(json_post("/v1/chat/completions/render", &json!({"messages": chat, "tools": [function]}))).await;
    let rendered = rendered.json();
    check_answer("/v1/chat/completions/render", "application/json", &rendered);
    assert_eq!((&rendered["prompt"], &rendered["count"]), (&json!(ours), &answer["input_tokens"]));
    let chat =
        scene.send(json_post("/v1/chat/completions/input_tokens", &json!({"messages": chat, "tools": [function]})));
    assert_eq!(chat.await.json(), answer);
}

#[tokio::test]
async fn errors_speak_of_items() {
    let message = |content: Value| json!([{"role": "user", "content": "a"}, {"role": "user", "content": content}]);
    let unsupported = "unsupported_parameter";
    for (body, code, param) in [
        (json!({}), "invalid_value", "input"),
        (json!({"input": ""}), "invalid_value", "input"),
        (json!({"input": []}), "invalid_value", "input"),
        (json!({"input": 5}), "invalid_value", "input"),
        (json!({"input": [5]}), "invalid_value", "input[0]"),
        (json!({"input": [{"role": "robot", "content": "a"}]}), "invalid_value", "input[0].role"),
        (json!({"input": message(json!(5)), "instructions": "x"}), "invalid_value", "input[1].content"),
        (json!({"input": message(json!([{"type": "input_image"}]))}), unsupported, "input[1].content[0].type"),
        (json!({"input": [{"type": "item_reference", "id": "a"}]}), unsupported, "input[0].type"),
        (
            json!({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}),
            "invalid_value",
            "input[0].call_id",
        ),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "x", "output": "a"}]}),
            "invalid_value",
            "input[0].call_id",
        ),
        (json!({"input": "a", "previous_response_id": "resp_1"}), unsupported, "previous_response_id"),
        (json!({"input": "a", "conversation": "c"}), unsupported, "conversation"),
        (json!({"input": "a", "background": true}), unsupported, "background"),
        (json!({"input": "a", "max_output_tokens": 0}), "invalid_value", "max_output_tokens"),
        (json!({"input": "a", "tools": [{"type": "web_search"}]}), unsupported, "tools[0].type"),
        (json!({"input": "a", "tools": [{"type": "function"}]}), "invalid_value", "tools[0].name"),
        (
            json!({"input": "a", "tools": [tool()], "tool_choice": {"type": "function"}}),
            "invalid_value",
            "tool_choice.name",
        ),
        (json!({"input": "a", "text": {"format": {"type": "yaml"}}}), "invalid_value", "text.format.type"),
        (json!({"input": "a", "text": {"format": {"type": "json_schema"}}}), "invalid_value", "text.format.schema"),
        (json!({"input": "a", "reasoning": {"effort": "much"}}), "invalid_value", "reasoning.effort"),
        (json!({"input": "a", "metadata": {"a": 5}}), "invalid_value", "metadata.a"),
        (json!({"input": "a", "include": "x"}), "invalid_value", "include"),
        (json!({"input": "a", "truncation": "never"}), "invalid_value", "truncation"),
        (json!({"input": "a", "top_logprobs": 99}), "invalid_value", "top_logprobs"),
        (json!({"input": "a", "temperature": 9}), "invalid_value", "temperature"),
    ] {
        let mut scene = Scene::with(QWEN, 4_096);
        let (status, error) = scene.refused(ROUTE, body.clone()).await;
        assert_eq!((status, &error["code"], &error["param"]), (400, &json!(code), &json!(param)), "{body}: {error}");
    }
}

#[tokio::test]
async fn what_has_no_effect_is_named_and_strictly_refused() {
    let named = |body: Value| async move {
        let answer = answered(body, "a", FinishReason::Stop).await;
        answer.headers.get("x-ignored-params").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    for (more, names) in [
        (json!({"store": true}), "store"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"include": ["reasoning.encrypted_content"]}), "include.reasoning.encrypted_content"),
        (json!({"reasoning": {"summary": "auto"}}), "reasoning.summary"),
        (json!({"text": {"verbosity": "low"}}), "text.verbosity"),
        (json!({"n": 2}), "n"),
        (json!({"messages": []}), "messages"),
        (json!({"max_tool_calls": 3}), "max_tool_calls"),
        (json!({"text": {"format": {"type": "text", "odd": 1}}}), "text.format.odd"),
        (json!({"include": ["message.output_text.logprobs"], "store": false, "truncation": "disabled"}), ""),
    ] {
        let mut body = json!({"input": "a"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(named(body.clone()).await, names, "{body}");
        if !names.is_empty() {
            let mut scene = Scene::with(QWEN, 4_096);
            let (status, error) = scene.refused("/v1/responses?strict=1", body).await;
            assert_eq!((status, error["param"].as_str()), (400, Some(names)));
        }
    }
}
