//! The document against the router and the parsers: every route, every field, and nothing else; and answers as it says.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::DOCUMENT;
use crate::api::operator::{admin, measures};
use crate::api::pipeline::params::asked;
use crate::api::routes::{batch_routes, openai_routes, plain_routes};
use crate::api::testing::{QWEN, Scene, answer, get_request, json_post, status};
use forebay_core::request::{Event, FinishReason};

/// Names that are taken only to be refused with advice.
const REFUSED: &[&str] = &[
    "functions",
    "function_call",
    "messages[].function_call",
    "messages[].audio",
    "previous_response_id",
    "conversation",
    "prompt",
    "container",
    "mcp_servers",
    "context_management",
    "structured_outputs.structural_tag",
    "structured_outputs.disable_additional_properties",
];

fn refused(path: &str, name: &str) -> bool {
    // Of completions it is what they go on from.
    let needed = name == "prompt" && !path.starts_with("/v1/responses");
    REFUSED.contains(&name) && !needed
}

fn paths() -> BTreeSet<String> {
    let plain = plain_routes().into_iter().chain(measures::routes()).map(|(path, _)| path.to_owned());
    let openai = openai_routes().into_iter().map(|(path, _)| format!("/v1{path}"));
    let batches = batch_routes().into_iter().map(|(path, _)| format!("/v1{path}"));
    let admin = admin::routes().into_iter().map(|(path, _)| format!("/admin{path}"));
    plain.chain(openai).chain(batches).chain(admin).map(|path| path.replace("{*", "{")).collect()
}

#[test]
fn every_route_is_in_the_document_and_no_other() {
    let told: BTreeSet<String> = DOCUMENT["paths"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(told, paths());
}

#[tokio::test]
async fn every_method_is_in_the_document_and_no_other() {
    // Nobody hears commands, so that those which would be carried out end at once.
    let Scene { state, commands, .. } = Scene::new();
    drop(commands);
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        let concrete: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        let mut aliases = vec![concrete.join("/")];
        aliases.extend(aliases[0].strip_prefix("/v1").map(str::to_owned));
        for alias in aliases {
            for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                let request = Request::builder().method(&method).uri(&alias).body(Body::empty()).unwrap();
                // Not the body: a stream may have no end.
                let known = status(&state, request).await != StatusCode::METHOD_NOT_ALLOWED;
                let told = item.get(method.as_str().to_lowercase()).is_some();
                assert_eq!(known, told, "{method} {alias}");
            }
        }
    }
}

fn schema(reference: &Value) -> &'static Value {
    let name = reference["$ref"].as_str().and_then(|path| path.rsplit('/').next()).expect("a reference");
    DOCUMENT["components"]["schemas"].get(name).unwrap_or_else(|| panic!("no schema {name}"))
}

/// A schema and, where it is one, what its reference or its only real alternative stands for.
fn resolved(schema_value: &'static Value) -> Vec<&'static Value> {
    if schema_value.get("$ref").is_some() {
        return resolved(schema(schema_value));
    }
    let several = ["oneOf", "anyOf", "allOf"].into_iter().find_map(|name| schema_value[name].as_array());
    match several {
        Some(list) => list.iter().flat_map(resolved).chain([schema_value]).collect(),
        None => vec![schema_value],
    }
}

/// The names of an object's fields, and of all objects inside it, as parsers spell them.
fn fields(of: &'static Value, scope: &str, into: &mut BTreeSet<String>) {
    for one in resolved(of) {
        if let Some(items) = one.get("items") {
            fields(items, &format!("{}[].", scope.trim_end_matches('.')), into);
        }
        for (name, inner) in one["properties"].as_object().into_iter().flatten() {
            if into.insert(format!("{scope}{name}")) {
                fields(inner, &format!("{scope}{name}."), into);
            }
        }
    }
}

/// The part of a name before its last.
fn scope_of(name: &str) -> &str {
    name.rfind('.').map_or("", |at| &name[..=at])
}

fn request_fields(path: &str) -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    let body = &DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
    fields(body, "", &mut told);
    assert!(!told.is_empty(), "{path}");
    told
}

/// Bodies that lead the parser of a route past all of its fields.
fn bodies() -> Vec<(&'static str, Vec<Value>)> {
    let message = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    let format = json!({"type": "json_schema", "json_schema": {"schema": {}}});
    let object = json!({"type": "json_object"});
    let outputs = json!({"regex": "a"});
    let options = json!({"stream": true, "stream_options": {}});
    let with = |base: Value, more: &Value| {
        let mut body = base.as_object().unwrap().clone();
        body.extend(more.as_object().unwrap().clone());
        Value::Object(body)
    };
    let shared = [
        json!({}),
        json!({"response_format": format}),
        json!({"response_format": object}),
        json!({"structured_outputs": outputs}),
        options,
    ];
    let each = |base: &Value| shared.iter().map(|more| with(base.clone(), more)).collect::<Vec<_>>();
    let items = json!([
        {"role": "user", "content": "a"}, {"type": "reasoning", "content": "b"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "d"},
    ]);
    let format = json!({"type": "json_schema", "name": "a", "schema": {}});
    let tool = json!({"type": "function", "name": "f"});
    let response = [
        json!({"input": items, "text": {"format": format}, "reasoning": {}}),
        json!({"input": "a", "stream": true, "stream_options": {}, "tools": [tool]}),
    ];
    let blocks = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "b"}, {"type": "redacted_thinking"}, {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
    ]);
    let schema = json!({"type": "json_schema", "schema": {}});
    let client_tool = json!({"name": "f", "input_schema": {}});
    let counted = [
        json!({"messages": blocks, "thinking": {"type": "adaptive"}, "output_config": {"format": schema}}),
        json!({"messages": message, "tools": [client_tool], "tool_choice": {"type": "auto"}}),
    ];
    vec![
        ("/v1/completions", each(&json!({"prompt": "a", "max_tokens": 1}))),
        ("/v1/completions/render", each(&json!({"prompt": "a", "max_tokens": 1}))),
        ("/v1/chat/completions", each(&json!({"messages": message, "max_tokens": 1}))),
        ("/v1/chat/completions/render", each(&json!({"messages": message}))),
        ("/v1/chat/completions/input_tokens", each(&json!({"messages": message}))),
        ("/v1/responses", response.to_vec()),
        ("/v1/responses/input_tokens", response.to_vec()),
        (
            "/v1/messages",
            counted.iter().map(|body| with(body.clone(), &json!({"max_tokens": 5, "metadata": {}}))).collect(),
        ),
        ("/v1/messages/count_tokens", counted.to_vec()),
        ("/v1/embeddings", vec![json!({"input": "a"})]),
        ("/v1/rerank", vec![json!({"query": "a", "documents": ["b", {"text": "c"}]})]),
        (
            "/v1/batches",
            vec![json!({
                "input_file_id": "file-x", "endpoint": "/v1/completions", "completion_window": "24h", "metadata": {},
                "output_expires_after": {"anchor": "created_at", "seconds": 3_600},
            })],
        ),
        ("/v1/tokenize", vec![json!({"prompt": "a"}), json!({"messages": message})]),
        ("/v1/detokenize", vec![json!({"tokens": [5]})]),
    ]
}

/// In each object that the parsers open themselves: all that they take is told, and all that is told they take.
#[tokio::test]
async fn every_field_is_in_the_document_and_no_other() {
    for (path, bodies) in bodies() {
        let Scene { state, commands, .. } = Scene::with(QWEN, 4_096);
        drop(commands);
        asked::taken();
        for body in bodies {
            asked::pause(false);
            let status = answer(&state, json_post(path, &body)).await.status.as_u16();
            // The file of the batch is not there.
            let expected = if path == "/v1/batches" { status == 400 } else { matches!(status, 200 | 503) };
            assert!(expected, "{path} {body}: {status}");
        }
        let taken: BTreeSet<String> = asked::taken().into_iter().filter(|name| !refused(path, name)).collect();
        let scopes: BTreeSet<&str> = taken.iter().map(|name| scope_of(name)).collect();
        let told: BTreeSet<String> =
            request_fields(path).into_iter().filter(|name| scopes.contains(scope_of(name))).collect();
        assert_eq!(taken, told, "{path}");
    }
}

#[test]
fn every_post_of_the_api_is_among_those_whose_fields_are_compared() {
    let compared: BTreeSet<&str> = bodies().into_iter().map(|(path, _)| path).collect();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        let takes_json = item["post"]["requestBody"]["content"].get("application/json").is_some();
        assert!(!takes_json || path.starts_with("/admin") || compared.contains(path.as_str()), "{path}");
    }
}

/// The document holds schemas by name, so that two types of the same name would be one.
#[test]
fn types_have_names_of_their_own() {
    let mut names = BTreeSet::new();
    for text in sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api")) {
        let mut described = false;
        for line in text.lines() {
            let declared =
                ["pub struct ", "pub enum ", "struct ", "enum "].iter().find_map(|kind| line.strip_prefix(kind));
            match declared {
                Some(rest) if described => {
                    let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                    assert!(names.insert(name.to_owned()), "{name} twice");
                    described = false;
                }
                Some(_) => {}
                None => described |= line.starts_with("#[derive(") && line.contains("ToSchema"),
            }
        }
    }
    assert!(names.len() > 50);
}

/// The text of every source file in a folder and below.
fn sources(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: std::path::PathBuf| match path.is_dir() {
        true => sources(&path),
        false => vec![std::fs::read_to_string(path).unwrap()],
    };
    entries.flat_map(text).collect()
}

#[test]
fn references_lead_somewhere_and_operations_have_names_of_their_own() {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(object) => object.iter().for_each(|(name, inner)| match inner.as_str() {
                Some(text) if name == "$ref" => found.push(text.to_owned()),
                _ => walk(inner, found),
            }),
            Value::Array(list) => list.iter().for_each(|inner| walk(inner, found)),
            _ => {}
        }
    }
    let mut references = Vec::new();
    walk(&DOCUMENT, &mut references);
    for reference in references {
        let pointer = reference.trim_start_matches('#');
        assert!(DOCUMENT.pointer(pointer).is_some(), "{reference}");
    }
    let mut ids = BTreeSet::new();
    for (path, item) in DOCUMENT["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no name"));
            assert!(ids.insert(id.to_owned()), "{id} twice");
        }
    }
    assert_eq!(DOCUMENT["openapi"], "3.1.0");
}

/// What a value has that its schema does not tell of, or lacks that the schema requires.
fn misfits(value: &Value, of: &'static Value, at: &str, found: &mut Vec<String>) {
    let all = resolved(of);
    match value {
        Value::Array(list) => {
            let Some(items) = all.iter().find_map(|one| one.get("items")) else { return };
            list.iter().for_each(|inner| misfits(inner, items, &format!("{at}[]"), found));
        }
        Value::Object(object) => {
            let told: Vec<_> = all.iter().filter_map(|one| one["properties"].as_object()).collect();
            if told.is_empty() {
                return;
            }
            for (name, inner) in object {
                match told.iter().find_map(|properties| properties.get(name)) {
                    Some(schema) => misfits(inner, schema, &format!("{at}.{name}"), found),
                    None if all.iter().any(|one| one.get("additionalProperties").is_some()) => {}
                    None => found.push(format!("{at}.{name} is not told of")),
                }
            }
            // Of alternatives, one must be whole.
            let lacking = |one: &&Value| {
                let required = one["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                required.filter(|name| !object.contains_key(*name)).map(str::to_owned).collect::<Vec<_>>()
            };
            let fullest = all.iter().filter(|one| one.get("properties").is_some()).map(lacking).min_by_key(Vec::len);
            found.extend(fullest.into_iter().flatten().map(|name| format!("{at} lacks {name}")));
        }
        _ => {}
    }
}

pub fn check_answer(path: &str, kind: &str, value: &Value) {
    check_operation("post", path, kind, value);
}

/// Whether an answer has the fields that the document tells of, and no other.
pub fn check_operation(method: &str, path: &str, kind: &str, value: &Value) {
    let mut found = Vec::new();
    let (place, content) = (path.replace('/', "~1"), kind.replace('/', "~1"));
    let pointer = format!("/paths/{place}/{method}/responses/200/content/{content}/schema");
    let of = DOCUMENT.pointer(&pointer).unwrap_or_else(|| panic!("{method} {path} has no answer of {kind}"));
    misfits(value, of, "", &mut found);
    assert!(found.is_empty(), "{path}: {found:#?}\n{value}");
}

#[tokio::test]
async fn answers_are_as_the_document_says() {
    let mut scene = Scene::new();
    let said = scene.says("a b", FinishReason::Stop);
    let chat = json!({"messages": [{"role": "user", "content": "a"}], "return_token_ids": true});
    let text = json!({"prompt": "a", "return_token_ids": true});
    let tokenize = json!({"prompt": "a", "return_token_strs": true});
    let vector = vec![Event::Embedded(vec![0.0, 3.0, 4.0, 0.0]), Event::Finished(FinishReason::Stop)];
    let rank = json!({"query": "a", "documents": ["b", {"text": "c"}], "return_documents": true});
    for (path, body, script) in [
        ("/v1/embeddings", json!({"input": ["a", "b"]}), vec![vector.clone(), vector.clone()]),
        ("/v1/rerank", rank, vec![vector.clone(), vector.clone(), vector]),
        ("/v1/chat/completions", chat, vec![said.clone()]),
        ("/v1/completions", text, vec![said]),
        ("/v1/tokenize", tokenize, vec![]),
        ("/v1/detokenize", json!({"tokens": [5]}), vec![]),
    ] {
        let whole = scene.play(path, &body, &script).await;
        assert_eq!(whole.status, 200, "{path}");
        check_answer(path, "application/json", &whole.json());
        if !path.ends_with("completions") {
            continue;
        }
        let mut streamed = body;
        streamed["stream"] = json!(true);
        streamed["stream_options"] = json!({"include_usage": true});
        for frame in scene.play(path, &streamed, &script).await.frames() {
            check_answer(path, "text/event-stream", &frame);
        }
    }
}

#[tokio::test]
async fn the_document_and_the_page_are_served_and_need_nothing_else() {
    let mut scene = Scene::new();
    let document = scene.send(get_request("/openapi.json")).await;
    assert_eq!((document.status, document.json()), (StatusCode::OK, DOCUMENT.clone()));
    let page = scene.send(get_request("/docs")).await;
    let text = String::from_utf8(page.body.to_vec()).unwrap();
    assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(text.contains("openapi.json") && !text.contains("://"), "it reaches out");
}
