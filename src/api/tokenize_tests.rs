//! `/tokenize` and `/detokenize`: shapes, round trips, refusals.

use serde_json::{Value, json};

use crate::api::testing::*;
use forebay_text::fixtures;

async fn post(scene: &mut Scene, path: &str, body: Value) -> Value {
    let answer = scene.send(json_post(path, &body)).await;
    assert_eq!(answer.status, 200, "{}", answer.json());
    answer.json()
}

#[tokio::test]
async fn texts_and_chats_are_tokenised_as_a_completion_would() {
    let mut scene = Scene::new();
    let plain = scene.tokenizer.encode("hello", false).unwrap();
    for path in ["/tokenize", "/v1/tokenize"] {
        let bare = post(&mut scene, path, json!({"prompt": "hello", "add_special_tokens": false})).await;
        assert_eq!(bare, json!({"tokens": plain, "count": plain.len(), "max_model_len": CONTEXT}));
    }
    let special = scene.tokenizer.encode("hello", true).unwrap();
    let default = post(&mut scene, "/tokenize", json!({"prompt": "hello", "model": "tiny"})).await;
    assert_eq!(default["tokens"], json!(special));
    // As the scene's template renders it.
    let chat = json!({"messages": [{"role": "user", "content": "hi"}], "return_token_strs": true});
    let chat = post(&mut scene, "/tokenize", chat).await;
    assert_eq!(chat["tokens"], json!(scene.tokenizer.encode("user:hi;", false).unwrap()));
    let strings: String = chat["token_strs"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert_eq!(strings, "user:hi;");
    assert_eq!(post(&mut scene, "/tokenize", json!({"prompt": "", "add_special_tokens": false})).await["count"], 0);
}

#[tokio::test]
async fn detokenising_takes_tokenising_back() {
    let mut scene = Scene::new();
    for text in ["hello", " two  words\n", "é€😀", ""] {
        let tokens = post(&mut scene, "/tokenize", json!({"prompt": text, "add_special_tokens": false})).await;
        let back = post(&mut scene, "/detokenize", json!({"tokens": tokens["tokens"]})).await;
        assert_eq!(back, json!({"prompt": text}));
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_parameter() {
    let mut scene = Scene::new();
    let chat = json!([{"role": "user", "content": "hi"}]);
    for (path, body, param) in [
        ("/tokenize", json!({}), "prompt"),
        ("/tokenize", json!({"prompt": "a", "messages": chat}), "messages"),
        ("/tokenize", json!({"prompt": ["a"]}), "prompt"),
        ("/tokenize", json!({"messages": []}), "messages"),
        ("/tokenize", json!({"messages": chat, "add_special_tokens": true}), "add_special_tokens"),
        ("/tokenize", json!({"prompt": "a", "add_special_tokens": 1}), "add_special_tokens"),
        ("/detokenize", json!({}), "tokens"),
        ("/detokenize", json!({"tokens": "1"}), "tokens"),
        ("/detokenize", json!({"tokens": [1.5]}), "tokens"),
        ("/detokenize", json!({"tokens": [-1]}), "tokens"),
        ("/detokenize", json!({"tokens": [fixtures::VOCAB]}), "tokens"),
        ("/detokenize", json!({"tokens": vec![1; CONTEXT as usize + 1]}), "tokens"),
    ] {
        let (status, error) = scene.refused(path, body.clone()).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{path} {body}");
    }
    let (status, error) = scene.refused("/tokenize", json!({"prompt": "a", "model": "gpt-9"})).await;
    assert_eq!((status, error["code"].as_str()), (404, Some("model_not_found")));
    // More bytes than a full context could hold: refused before it is read.
    let long = "a".repeat(scene.tokenizer.max_token_bytes() * CONTEXT as usize + 1);
    let (status, error) = scene.refused("/tokenize", json!({"prompt": long})).await;
    assert_eq!((status, error["code"].as_str()), (400, Some("context_length_exceeded")));
}

/// As the chat itself would be read, tools and the template's options included.
#[tokio::test]
async fn chats_are_tokenised_with_their_tools() {
    let mut scene = Scene::with(QWEN, 4_096);
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let chat = json!({
        "messages": [{"role": "user", "content": "hi"}], "tools": [tool], "chat_template_kwargs": {"enable_thinking": true},
    });
    let tokens = post(&mut scene, "/tokenize", chat.clone()).await;
    let rendered = post(&mut scene, "/v1/chat/completions/render", chat.clone()).await;
    assert_eq!(tokens["tokens"], rendered["token_ids"]);
    let prompt = rendered["prompt"].as_str().unwrap();
    assert!(prompt.starts_with("<tools>") && prompt.ends_with("A:<think>\n"), "{prompt}");
    let mut silent = chat;
    silent["tool_choice"] = json!("none");
    silent["add_generation_prompt"] = json!(false);
    let (status, error) = scene.refused("/tokenize", json!({"prompt": "hi", "tools": silent["tools"]})).await;
    assert_eq!((status, error["param"].as_str()), (400, Some("tools")), "tools are for chats");
    let fewer = post(&mut scene, "/tokenize", silent).await;
    let text = post(&mut scene, "/detokenize", json!({"tokens": fewer["tokens"]})).await;
    assert_eq!(text["prompt"], "user:hi;");
}
