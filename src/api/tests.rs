//! Routes over a scripted engine: shapes, streams, limits, errors on every route, clients that leave.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::routing::get;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::api::routes::layered;
use crate::api::testing::*;
use forebay_core::request::{Event, FinishReason, RequestError};
use forebay_engine::command::EngineCommand;
use forebay_text::fixtures::{END, VOCAB};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({"model": "default", "messages": [{"role": "user", "content": "hi"}]})
}

fn with(mut body: Value, extra: Value) -> Value {
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body
}

/// Takes the values that differ from run to run out of a body.
fn settled(mut body: Value, prefix: &str) -> Value {
    let id = body["id"].take();
    assert!(id.as_str().unwrap().starts_with(prefix), "{id}");
    assert!(body["created"].take().as_u64().unwrap() > 1_700_000_000);
    // The clock of these tests stands still.
    let timings = body.as_object_mut().unwrap().remove("timings").unwrap();
    assert_eq!((&timings["prompt_n"], &timings["prompt_ms"]), (&body["usage"]["prompt_tokens"], &json!(0.0)));
    assert_eq!(timings["predicted_n"], body["usage"]["completion_tokens"]);
    body
}

#[tokio::test]
async fn a_completion_has_openais_shape() {
    let mut scene = Scene::new();
    let script = scene.says("hello fish", FinishReason::Length);
    let answer =
        scene.play(COMPLETIONS, &json!({"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 9}), &[script]).await;
    assert_eq!(answer.status, 200);
    for header in ["x-request-id", "openai-processing-ms"] {
        assert!(answer.headers.contains_key(header), "{header}");
    }
    assert!(!answer.headers.contains_key("x-ignored-params"));
    let expected = json!({
        "id": null, "object": "text_completion", "created": null, "model": "org/storyteller",
        "system_fingerprint": "fp_test",
        "choices": [{"index": 0, "text": "hello fish", "logprobs": null, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}},
    });
    assert_eq!(settled(answer.json(), "cmpl-"), expected);
}

#[tokio::test]
async fn a_chat_completion_has_openais_shape() {
    let mut scene = Scene::new();
    let script = [scene.says("hello", FinishReason::Stop), scene.says(" fish", FinishReason::Length)];
    let answer = scene.play(CHAT, &with(hello(), json!({"n": 2})), &script).await;
    let choice = |index, text, reason| {
        json!({"index": index, "message": {"role": "assistant", "content": text, "refusal": null}, "logprobs": null,
               "finish_reason": reason})
    };
    // "user:hi;" byte by byte.
    let expected = json!({
        "id": null, "object": "chat.completion", "created": null, "model": "org/storyteller",
        "system_fingerprint": "fp_test",
        "choices": [choice(0, "hello", "stop"), choice(1, " fish", "length")],
        "usage": {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}},
    });
    assert_eq!(settled(answer.json(), "chatcmpl-"), expected);
}

#[tokio::test]
async fn a_chat_stream_has_a_role_deltas_a_reason_and_usage_on_request() {
    for usage in [true, false] {
        let mut scene = Scene::new();
        let script = scene.says("hello fish", FinishReason::Stop);
        let options = if usage { json!({"include_usage": true}) } else { Value::Null };
        let body = with(hello(), json!({"stream": true, "stream_options": options}));
        let answer = scene.play(CHAT, &body, &[script]).await;
        assert_eq!(answer.headers["content-type"], "text/event-stream");
        assert_eq!(answer.headers["x-accel-buffering"], "no");
        assert!(!answer.headers.contains_key("openai-processing-ms"));
        let mut frames = answer.frames();
        if usage {
            let last = frames.pop().unwrap();
            assert_eq!(last["choices"], json!([]));
            assert_eq!(
                last["usage"],
                json!({"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}})
            );
        }
        let choice =
            |delta, reason: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]);
        let choices: Vec<Value> = frames.iter().map(|frame| frame["choices"].clone()).collect();
        let expected = [
            choice(json!({"role": "assistant", "content": ""}), Value::Null),
            choice(json!({"content": "hello"}), Value::Null),
            choice(json!({"content": " fish"}), Value::Null),
            choice(json!({}), json!("stop")),
        ];
        assert_eq!(choices, expected);
        for frame in &frames {
            assert_eq!(frame["object"], "chat.completion.chunk");
            assert_eq!((&frame["id"], &frame["created"]), (&frames[0]["id"], &frames[0]["created"]));
            assert_eq!(frame.get("usage"), usage.then_some(&Value::Null));
        }
    }
}

#[tokio::test]
async fn a_completion_streams_what_it_answers_whole() {
    let body = json!({"prompt": ["hello", [5, 6]], "n": 2, "max_tokens": 9, "return_token_ids": true});
    let texts = ["hello", " fish", "hell", "he"];
    let mut scene = Scene::new();
    let script: Vec<_> = texts.iter().map(|text| scene.says(text, FinishReason::Length)).collect();
    let whole = scene.play(COMPLETIONS, &body, &script).await.json();
    let frames = scene.play(COMPLETIONS, &with(body, json!({"stream": true})), &script).await.frames();
    for (index, text) in texts.iter().enumerate() {
        let choice = &whole["choices"][index];
        assert_eq!((&choice["index"], &choice["text"]), (&json!(index), &json!(text)));
        assert_eq!(choice["prompt_token_ids"].as_array().unwrap().len(), 2, "BOS and hello, or the two ids");
        let mine: Vec<&Value> =
            frames.iter().map(|frame| &frame["choices"][0]).filter(|choice| choice["index"] == index).collect();
        let streamed: String = mine.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
        assert_eq!(streamed, *text);
        let ids: Vec<Value> = mine.iter().flat_map(|choice| choice["token_ids"].as_array().unwrap().clone()).collect();
        assert_eq!(json!(ids), choice["token_ids"]);
        assert_eq!(mine[0]["prompt_token_ids"], choice["prompt_token_ids"]);
        assert_eq!(mine.last().unwrap()["finish_reason"], "length");
    }
    assert_eq!(
        whole["usage"],
        json!({"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8, "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}})
    );
}

#[tokio::test]
async fn logprobs_have_both_shapes() {
    let (h, e) =
        (token_with(40, -0.5, vec![(40, -0.5), (41, -1.5)]), token_with(41, -2.0, vec![(40, -0.5), (42, -1.0)]));
    let script = vec![h, e, Event::Finished(FinishReason::Length)];
    let mut scene = Scene::new();
    let body = json!({"prompt": "hello", "logprobs": 2});
    let logprobs =
        &scene.play(COMPLETIONS, &body, std::slice::from_ref(&script)).await.json()["choices"][0]["logprobs"];
    assert_eq!(logprobs["token_logprobs"], json!([-0.5, -2.0]));
    assert_eq!(logprobs["text_offset"], json!([0, 1]));
    assert_eq!(logprobs["tokens"].as_array().unwrap().len(), 2);
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
    assert_eq!(logprobs["top_logprobs"][1].as_object().unwrap().len(), 3, "the drawn one beside the best two");

    let body = with(hello(), json!({"logprobs": true, "top_logprobs": 2}));
    let content =
        &scene.play(CHAT, &body, std::slice::from_ref(&script)).await.json()["choices"][0]["logprobs"]["content"];
    let first = &content[0];
    assert_eq!(first["logprob"], -0.5);
    assert_eq!(first["token"], first["top_logprobs"][0]["token"]);
    assert_eq!(first["bytes"], json!(first["token"].as_str().unwrap().as_bytes()));
    assert_eq!(content[1]["top_logprobs"].as_array().unwrap().len(), 2);

    let frames = scene.play(CHAT, &with(body, json!({"stream": true})), &[script]).await.frames();
    let streamed: Vec<Value> = frames
        .iter()
        .flat_map(|frame| frame["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default())
        .collect();
    assert_eq!(json!(streamed), *content);
}

#[tokio::test]
async fn an_end_token_is_in_the_ids_and_not_in_the_text() {
    let mut scene = Scene::new();
    let script = vec![token(40), token(END), Event::Finished(FinishReason::Stop)];
    let body = json!({"prompt": "hello", "return_token_ids": true});
    let answer = scene.play(COMPLETIONS, &body, &[script]).await.json();
    assert_eq!(answer["choices"][0]["token_ids"], json!([40, END]));
    assert_eq!(answer["choices"][0]["text"].as_str().unwrap().len(), 1);
}

#[tokio::test]
async fn an_error_before_the_first_byte_is_a_status_and_later_a_frame() {
    let failed = |error| vec![token(40), Event::Failed(error)];
    let mut scene = Scene::new();
    let body = json!({"prompt": "hello"});
    let answer = scene.play(COMPLETIONS, &body, &[failed(RequestError::NonFiniteLogits)]).await;
    assert_eq!((answer.status.as_u16(), &answer.error()["code"]), (500, &json!("non_finite_logits")));

    let body = json!({"prompt": "hello", "n": 2, "stream": true});
    let script = [failed(RequestError::ShuttingDown), vec![token(40)]];
    let answer = scene.play(COMPLETIONS, &body, &script).await;
    assert_eq!(answer.status, 200);
    let frames = answer.frames();
    let error = &frames.last().unwrap()["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!("shutting_down"), &json!("overloaded_error")));
    assert_eq!(frames.iter().filter(|frame| frame.get("error").is_some()).count(), 1);
    assert_eq!(scene.metric("forebay_errors_total{code=\"shutting_down\",route=\"completions\"}").await, 1.0);
    let of = "forebay_requests_total{outcome=\"server_error\",route=\"completions\"}";
    assert_eq!(scene.metric(of).await, 2.0, "one refused, one broken off");
}

#[tokio::test]
async fn a_full_queue_is_429_with_retry_after_streaming_or_not() {
    for stream in [true, false] {
        let mut scene = Scene::new();
        let full = RequestError::QueueFull { capacity: 4, retry_after_s: 3 };
        let request = json_post(COMPLETIONS, &json!({"prompt": "hello", "stream": stream}));
        let (answer, ()) = tokio::join!(answer(&scene.state, request), async {
            let Some(EngineCommand::Submit { reply, .. }) = scene.commands.recv().await else {
                panic!("no submission")
            };
            reply.send(Err(full)).unwrap();
        });
        assert_eq!(answer.status, 429);
        assert_eq!(answer.headers["retry-after"], "3");
        assert_eq!(answer.error()["code"], "queue_full");
    }
}

#[tokio::test]
async fn a_client_that_leaves_aborts_whether_streaming_or_waiting() {
    for stream in [true, false] {
        let mut scene = Scene::new();
        let request = json_post(COMPLETIONS, &json!({"prompt": "hello", "stream": stream}));
        let client = tokio::spawn(router(scene.state.clone()).oneshot(request));
        let group = submitted(scene.commands.recv().await.unwrap());
        group[0].events.try_send(token(40)).unwrap();
        if stream {
            let mut body = client.await.unwrap().unwrap().into_body();
            assert!(body.frame().await.is_some());
            drop(body);
        } else {
            client.abort();
            assert!(client.await.unwrap_err().is_cancelled());
        }
        match scene.commands.recv().await {
            Some(EngineCommand::Abort { seq }) => assert_eq!(seq, group[0].request.id()),
            other => panic!("{other:?}"),
        }
        assert_eq!(scene.metric("forebay_requests_total{outcome=\"cancelled\",route=\"completions\"}").await, 1.0);
    }
}

#[tokio::test]
async fn max_tokens_defaults_and_clamps() {
    let mut scene = Scene::new();
    for (path, body, expected, named) in [
        (COMPLETIONS, json!({"prompt": [5, 6]}), 16, None),
        (COMPLETIONS, json!({"prompt": vec![5; 60]}), 4, None),
        (COMPLETIONS, json!({"prompt": [5], "max_tokens": 1_000}), CONTEXT - 1, Some("max_tokens")),
        (CHAT, hello(), CONTEXT - 8, None),
        (CHAT, with(hello(), json!({"max_completion_tokens": 7, "max_tokens": 7})), 7, None),
    ] {
        let state = scene.state.clone();
        let client = tokio::spawn(async move { answer(&state, json_post(path, &body)).await });
        let group = submitted(scene.commands.recv().await.unwrap());
        assert_eq!(group[0].request.max_tokens(), expected);
        group[0].events.try_send(Event::Finished(FinishReason::Length)).unwrap();
        let headers = client.await.unwrap().headers;
        assert_eq!(headers.get("x-ignored-params").map(|value| value.to_str().unwrap()), named);
    }
}

#[tokio::test]
async fn sampling_parameters_reach_the_engine() {
    let mut scene = Scene::new();
    let state = scene.state.clone();
    let body = json!({"prompt": [5], "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "seed": -3,
        "stop_token_ids": [9], "ignore_eos": true, "logprobs": 3, "user": "me", "max_tokens": 5, "speed": "fast"});
    let client = tokio::spawn(async move { answer(&state, json_post(COMPLETIONS, &body)).await });
    let group = submitted(scene.commands.recv().await.unwrap());
    let request = &group[0].request;
    let sampling = request.sampling();
    assert_eq!((sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p), (0.5, 0.9, 7, 0.1));
    assert_eq!((sampling.seed as i64, request.logprobs(), request.prompt()), (-3, Some(3), &[5][..]));
    assert!(request.is_stop(9) && !request.is_stop(END));
    group[0].events.try_send(Event::Finished(FinishReason::Length)).unwrap();
    assert_eq!(client.await.unwrap().headers["x-ignored-params"], "speed");
}

#[tokio::test]
async fn bad_requests_are_400_with_code_and_param_and_the_engine_hears_nothing() {
    let mut scene = Scene::new();
    let prompt = json!({"prompt": "hello"});
    for (path, body, code, param) in [
        (COMPLETIONS, json!({"prompt": vec![5; 64]}), "context_length_exceeded", Value::Null),
        (COMPLETIONS, json!({"prompt": "x".repeat(90_000)}), "context_length_exceeded", Value::Null),
        (COMPLETIONS, json!({"prompt": ""}), "empty_prompt", json!("prompt")),
        (COMPLETIONS, json!({}), "invalid_value", json!("prompt")),
        (COMPLETIONS, json!({"prompt": [VOCAB]}), "invalid_value", json!("prompt")),
        (COMPLETIONS, json!({"prompt": vec!["a"; 33], "n": 4}), "invalid_value", json!("n")),
        (COMPLETIONS, with(prompt.clone(), json!({"n": 0})), "invalid_value", json!("n")),
        (COMPLETIONS, with(prompt.clone(), json!({"n": 9})), "invalid_value", json!("n")),
        (COMPLETIONS, with(prompt.clone(), json!({"n": i64::MIN})), "invalid_value", json!("n")),
        (COMPLETIONS, with(prompt.clone(), json!({"temperature": 9})), "invalid_value", json!("temperature")),
        (COMPLETIONS, with(prompt.clone(), json!({"max_tokens": 0})), "invalid_value", json!("max_tokens")),
        (COMPLETIONS, with(prompt.clone(), json!({"max_tokens": u64::MAX})), "invalid_value", json!("max_tokens")),
        (COMPLETIONS, with(prompt.clone(), json!({"logprobs": 6})), "invalid_value", json!("logprobs")),
        (COMPLETIONS, with(prompt.clone(), json!({"best_of": 9})), "invalid_value", json!("best_of")),
        (COMPLETIONS, with(prompt.clone(), json!({"best_of": 2, "n": 3})), "invalid_value", json!("best_of")),
        (COMPLETIONS, with(prompt.clone(), json!({"best_of": 2, "stream": true})), "invalid_value", json!("best_of")),
        (COMPLETIONS, with(prompt.clone(), json!({"suffix": "end"})), "unsupported_parameter", json!("suffix")),
        (CHAT, with(hello(), json!({"echo": true})), "unsupported_parameter", json!("echo")),
        (COMPLETIONS, with(prompt.clone(), json!({"stop": ["a", "b", "c", "d", "e"]})), "invalid_value", json!("stop")),
        (COMPLETIONS, with(prompt, json!({"stream_options": {}})), "invalid_value", json!("stream_options")),
        (CHAT, json!({}), "invalid_value", json!("messages")),
        (
            CHAT,
            with(hello(), json!({"max_tokens": 1, "max_completion_tokens": 2})),
            "invalid_value",
            json!("max_tokens"),
        ),
        (CHAT, with(hello(), json!({"max_completion_tokens": -1})), "invalid_value", json!("max_completion_tokens")),
        (CHAT, with(hello(), json!({"logprobs": true, "top_logprobs": 21})), "invalid_value", json!("top_logprobs")),
        (CHAT, with(hello(), json!({"top_logprobs": 2})), "invalid_value", json!("top_logprobs")),
        (CHAT, with(hello(), json!({"tools": [{"type": "function"}]})), "invalid_value", json!("tools[0].function")),
        (CHAT, with(hello(), json!({"functions": [{"name": "f"}]})), "unsupported_parameter", json!("functions")),
        // The template of this scene knows no tools.
        (
            CHAT,
            with(hello(), json!({"tools": [{"type": "function", "function": {"name": "f"}}]})),
            "unsupported_parameter",
            json!("tools"),
        ),
        (COMPLETIONS, with(json!({"prompt": "a"}), json!({"tools": [1]})), "unsupported_parameter", json!("tools")),
    ] {
        let (status, error) = scene.refused(path, body.clone()).await;
        let mut body = body.to_string();
        body.truncate(200);
        assert_eq!((status, &error["code"], &error["param"]), (400, &json!(code), &param), "{body} {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn a_prompt_beyond_the_context_names_both_counts() {
    let (_, error) = Scene::new().refused(COMPLETIONS, json!({"prompt": vec![5; 70]})).await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("64 tokens") && message.contains("70"), "{message}");
}

#[tokio::test]
async fn bodies_that_are_no_json_object_are_invalid_json() {
    let deep = "[".repeat(90_000);
    let bad = [
        "\"x\"",
        "[]",
        "42",
        "null",
        "",
        "{",
        "{}{}",
        "{\"a\":1,}",
        "\u{FEFF}{}",
        "{\"a\":NaN}",
        "{\"a\":1e999}",
        "{\"a\":\"\\ud800\"}",
        &deep,
    ];
    for body in bad {
        let answer = Scene::new().send(raw(COMPLETIONS, body.to_owned())).await;
        assert_eq!((answer.status.as_u16(), &answer.error()["code"]), (400, &json!("invalid_json")), "{body:.20}");
    }
    let answer = Scene::new().send(raw(CHAT, &b"{\"a\":\"\xff\"}"[..])).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn every_route_answers_errors_with_the_object() {
    let mut scene = Scene::new();
    let build = |method: &str, path: &str, header: (&str, &str)| {
        Request::builder().method(method).uri(path).header(header.0, header.1).body(Body::from("{}")).unwrap()
    };
    let json_type = ("content-type", "application/json");
    for (request, status, code) in [
        (build("GET", "/v1/nothing", json_type), 404, "not_found"),
        (build("GET", "/", json_type), 404, "not_found"),
        (build("GET", "/v1/models/other", json_type), 404, "model_not_found"),
        (build("GET", "/v1/models/%ff", json_type), 404, "model_not_found"),
        (build("GET", COMPLETIONS, json_type), 405, "method_not_allowed"),
        (build("DELETE", "/v1/models", json_type), 405, "method_not_allowed"),
        (build("POST", "/health", json_type), 405, "method_not_allowed"),
        (build("POST", COMPLETIONS, ("content-type", "text/plain")), 415, "unsupported_media_type"),
        (build("POST", COMPLETIONS, ("accept", "*/*")), 415, "unsupported_media_type"),
        (raw(CHAT, vec![b' '; 100_001]), 413, "body_too_large"),
        (json_post(CHAT, &json!({"model": "gpt-17", "messages": []})), 404, "model_not_found"),
    ] {
        let line = format!("{} {}", request.method(), request.uri());
        let answer = scene.send(request).await;
        assert_eq!((answer.status.as_u16(), &answer.error()["code"]), (status, &json!(code)), "{line}");
    }
    let mut squeezed = json_post(COMPLETIONS, &json!({"prompt": "hello"}));
    squeezed.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    assert_eq!(scene.send(squeezed).await.status, 415);
}

#[tokio::test]
async fn a_panic_in_a_handler_is_a_500_with_the_object_and_is_counted() {
    async fn broken() {
        panic!("on purpose");
    }
    let scene = Scene::new();
    let router = layered(Router::new().route("/broken", get(broken)), scene.state.front.clone());
    let answer = read(router.oneshot(get_request("/broken")).await.unwrap()).await;
    assert_eq!((answer.status.as_u16(), &answer.error()["code"]), (500, &json!("internal_error")));
    assert!(!answer.error()["message"].as_str().unwrap().contains("on purpose"));
    assert_eq!(scene.metric("forebay_panics_total").await, 1.0);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_a_408_that_is_not_retried() {
    let mut scene = Scene::new();
    scene.state.front.body.read_timeout = Duration::from_millis(20);
    let never = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let answer = scene.send(raw(COMPLETIONS, Body::from_stream(never))).await;
    assert_eq!((answer.status.as_u16(), &answer.error()["type"]), (408, &json!("timeout_error")));
    assert_eq!(answer.headers["x-should-retry"], "false");
    assert_eq!(answer.headers["connection"], "close");
}

#[tokio::test]
async fn models_are_listed_and_found_with_a_slash_in_the_id() {
    let mut scene = Scene::new();
    for path in ["/v1/models", "/models"] {
        let list = scene.send(get_request(path)).await.json();
        assert_eq!(list["object"], "list");
        let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["org/storyteller", "tiny"]);
    }
    for (path, id) in [
        ("/v1/models/org/storyteller", "org/storyteller"),
        ("/v1/models/org%2Fstoryteller", "org/storyteller"),
        ("/models/default", "default"),
    ] {
        let model = scene.send(get_request(path)).await.json();
        let expected = json!({
            "id": id, "object": "model", "created": 1_700_000_000, "owned_by": "forebay", "root": "org/storyteller",
            "parent": null, "max_model_len": CONTEXT,
        });
        assert_eq!(model, expected);
    }
}

#[tokio::test]
async fn probes_follow_the_heartbeat_and_never_ask_the_loop() {
    let mut scene = Scene::new();
    let ready = ["/health", "/health/ready", "/ready", "/ping"];
    for path in ready {
        assert_eq!(scene.send(get_request(path)).await.status, 200, "{path}");
    }
    scene.heartbeat.begin(forebay_core::units::Micros::ZERO);
    scene.state.clock.advance(forebay_core::units::Micros::from_millis(60_001));
    for path in ready {
        let answer = scene.send(get_request(path)).await;
        assert_eq!((answer.status.as_u16(), &answer.error()["code"]), (503, &json!("engine_stalled")), "{path}");
    }
    assert_eq!(scene.send(get_request("/health/live")).await.status, 200);
}

#[tokio::test]
async fn request_ids_are_echoed_or_made() {
    let mut scene = Scene::new();
    let mut request = get_request("/health/live");
    request.headers_mut().insert("x-request-id", "trace-7".parse().unwrap());
    assert_eq!(scene.send(request).await.headers["x-request-id"], "trace-7");
    let mut request = get_request("/nowhere");
    request.headers_mut().insert("x-request-id", "a b".parse().unwrap());
    let made = scene.send(request).await.headers["x-request-id"].clone();
    assert!(made.to_str().unwrap().starts_with("req-"));
}

#[tokio::test]
async fn metrics_are_served_as_text() {
    let mut scene = Scene::new();
    let answer = scene.send(get_request("/metrics")).await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    let text = std::str::from_utf8(&answer.body).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("vllm:kv_cache_usage_perc")).count(), 1);
    assert_eq!(scene.metric("forebay_requests_total{outcome=\"ok\",route=\"metrics\"}").await, 1.0);
}
