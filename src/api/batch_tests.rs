//! `/v1/files` and `/v1/batches` without a runner: what is taken, what is refused, and how it is listed.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};

use crate::api::openapi::tests::{check_answer, check_operation};
use crate::api::testing::{Answer, Scene, get_request, json_post};
use forebay_store::{Config, Location, Store};

const LINE: &str =
    r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "max_tokens": 3}}"#;

/// A form of `(name, file name, value)`.
fn form(fields: &[(&str, Option<&str>, &[u8])]) -> Request<Body> {
    let mut body = Vec::new();
    for (name, file, value) in fields {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        body.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes());
        body.extend_from_slice(value);
        body.extend(b"\r\n");
    }
    body.extend(b"--b--\r\n");
    raw(body)
}

fn raw(body: impl Into<Body>) -> Request<Body> {
    let builder = Request::post("/v1/files").header("content-type", "multipart/form-data; boundary=b");
    builder.body(body.into()).unwrap()
}

fn upload(content: &str) -> Request<Body> {
    form(&[("purpose", None, b"batch"), ("file", Some("in.jsonl"), content.as_bytes())])
}

fn request(method: Method, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
}

async fn uploaded(scene: &mut Scene, content: &str) -> Value {
    let answer = scene.send(upload(content)).await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    answer.json()
}

fn check(answer: &Answer, status: u16, code: &str, param: Option<&str>, says: &str) {
    let error = answer.error();
    assert_eq!(
        (answer.status.as_u16(), &error["code"], &error["param"]),
        (status, &json!(code), &json!(param)),
        "{error}"
    );
    assert!(error["message"].as_str().unwrap().contains(says), "{error}");
}

#[tokio::test]
async fn a_file_comes_back_as_it_was_sent() {
    let mut scene = Scene::new();
    let content = format!("{LINE}\r\n{}", LINE.replace("\"a\"", "\"ü\""));
    let file = uploaded(&mut scene, &content).await;
    check_answer("/v1/files", "application/json", &file);
    let id = file["id"].as_str().unwrap();
    let expected = json!({
        "id": id, "object": "file", "bytes": content.len(), "created_at": 1_700_000_000, "expires_at": null,
        "filename": "in.jsonl", "purpose": "batch", "status": "processed", "status_details": null,
    });
    assert_eq!(file, expected);
    assert_eq!(scene.send(get_request(&format!("/v1/files/{id}"))).await.json(), file);
    let text = |answer: Answer| String::from_utf8(answer.body.to_vec()).unwrap();
    let written = format!(
        "{{\"id\":\"{id}\",\"object\":\"file\",\"bytes\":{},\"created_at\":1700000000,\"expires_at\":null,\
         \"filename\":\"in.jsonl\",\"purpose\":\"batch\",\"status\":\"processed\",\"status_details\":null}}",
        content.len()
    );
    assert_eq!(text(scene.send(get_request(&format!("/v1/files/{id}"))).await), written);
    let list = scene.send(get_request("/v1/files")).await;
    check_operation("get", "/v1/files", "application/json", &list.json());
    assert_eq!(
        text(list),
        format!(
            "{{\"object\":\"list\",\"data\":[{written}],\"first_id\":\"{id}\",\"last_id\":\"{id}\",\"has_more\":false}}"
        )
    );
    let read = scene.send(get_request(&format!("/files/{id}/content"))).await;
    assert_eq!(
        (read.body.as_ref(), &read.headers["x-content-type-options"]),
        (content.as_bytes(), &"nosniff".parse().unwrap())
    );
    let gone = scene.send(request(Method::DELETE, &format!("/v1/files/{id}"))).await.json();
    assert_eq!(gone, json!({"id": id, "object": "file", "deleted": true}));
    for path in [format!("/v1/files/{id}"), format!("/v1/files/{id}/content")] {
        check(&scene.send(get_request(&path)).await, 404, "not_found", None, id);
    }
    check(&scene.send(request(Method::DELETE, &format!("/v1/files/{id}"))).await, 404, "not_found", None, id);
}

#[tokio::test]
async fn the_fields_of_a_form_come_in_any_order() {
    let mut scene = Scene::new();
    let fields: [(&str, Option<&str>, &[u8]); 4] = [
        ("file", Some("../../etc/passwd"), LINE.as_bytes()),
        ("expires_after[seconds]", None, b"3600"),
        ("purpose", None, b"batch"),
        ("expires_after[anchor]", None, b"created_at"),
    ];
    let file = scene.send(form(&fields)).await.json();
    assert_eq!((&file["filename"], &file["expires_at"]), (&json!("../../etc/passwd"), &json!(1_700_003_600)));
    scene.state.clock.advance(forebay_core::units::Micros::from_millis(3_600_000));
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    check(&scene.send(get_request(&path)).await, 404, "not_found", None, "no such file");
}

#[tokio::test]
async fn uploads_that_are_refused_say_why_and_leave_nothing() {
    let mut scene = Scene::new();
    let good = ("file", Some("in.jsonl"), LINE.as_bytes());
    let batch: (&str, Option<&str>, &[u8]) = ("purpose", None, b"batch");
    let long = "x".repeat(2_000);
    let cases: Vec<(Request<Body>, Option<&str>, &str)> = vec![
        (upload(""), Some("file"), "no lines"),
        (upload("nonsense"), Some("file"), "line 1: it is not valid JSON"),
        (upload(&format!("{LINE}\n{LINE}")), Some("file"), "line 2: the custom_id 'a' is that of line 1"),
        (upload(&format!("{LINE}\n[1]")), Some("file"), "line 2"),
        (upload(&LINE.replace("/v1/completions", "/admin/drain")), Some("file"), "line 1: 'url'"),
        (upload(&LINE.replace("POST", "DELETE")), Some("file"), "line 1: 'method'"),
        (form(&[batch, ("file", None, b"\xff\xfe\n")]), Some("file"), "line 1: it is not UTF-8"),
        (form(&[good]), Some("purpose"), "required"),
        (form(&[("purpose", None, b"fine-tune"), good]), Some("purpose"), "batch"),
        (form(&[("purpose", None, long.as_bytes()), good]), Some("purpose"), "1024"),
        (form(&[batch]), Some("file"), "required"),
        (form(&[batch, good, good]), Some("file"), "twice"),
        (form(&[batch, batch, good]), Some("purpose"), "twice"),
        (form(&[batch, ("expires_after[seconds]", None, b"60"), good]), Some("expires_after[anchor]"), "created_at"),
        (raw("--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n{"), Some("body"), "whole form"),
        (raw("nonsense"), Some("body"), "whole form"),
        (raw(""), Some("body"), "whole form"),
    ];
    for (request, param, says) in cases {
        check(&scene.send(request).await, 400, "invalid_value", param, says);
    }
    let other = form(&[batch, ("model", None, b"x"), good]);
    check(&scene.send(other).await, 400, "unsupported_parameter", Some("model"), "no field");
    let json = scene.send(json_post("/v1/files", &json!({"purpose": "batch"}))).await;
    check(&json, 415, "unsupported_media_type", None, "multipart/form-data");
    let lines: String = (0..20_000).map(|n| LINE.replace("\"a\"", &format!("\"{n}\"")) + "\n").collect();
    check(&scene.send(upload(&lines)).await, 413, "body_too_large", None, "1048576");
    let listed = scene.send(get_request("/v1/files")).await.json();
    assert_eq!(listed, json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false}));
}

#[tokio::test]
async fn ids_that_are_paths_are_the_ids_of_nothing() {
    let mut scene = Scene::new();
    for id in ["..%2F..%2Fetc%2Fpasswd", "%2e%2e", "file-%00", "file-..%5c..", "%ff", "file-1", "batch_1"] {
        for path in [format!("/v1/files/{id}"), format!("/v1/files/{id}/content"), format!("/v1/batches/{id}")] {
            check(&scene.send(get_request(&path)).await, 404, "not_found", None, "no such");
        }
        check(
            &scene.send(request(Method::DELETE, &format!("/v1/files/{id}"))).await,
            404,
            "not_found",
            None,
            "no such",
        );
        let cancel = request(Method::POST, &format!("/v1/batches/{id}/cancel"));
        check(&scene.send(cancel).await, 404, "not_found", None, "no such");
    }
}

#[tokio::test]
async fn lists_have_pages_and_refuse_what_they_do_not_know() {
    let mut scene = Scene::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        scene.state.clock.advance(forebay_core::units::Micros::from_millis(1));
        ids.push(uploaded(&mut scene, LINE).await["id"].clone());
    }
    let list = scene.send(get_request("/v1/files?limit=2&purpose=batch&order=asc")).await.json();
    assert_eq!((&list["first_id"], &list["last_id"], &list["has_more"]), (&ids[0], &ids[1], &json!(true)));
    let rest = format!("/v1/files?order=asc&after={}", list["last_id"].as_str().unwrap());
    let list = scene.send(get_request(&rest)).await.json();
    assert_eq!((&list["data"][0]["id"], &list["has_more"]), (&ids[2], &json!(false)));
    for (query, code, param) in [
        ("limit=0", "invalid_value", "limit"),
        ("limit=10001", "invalid_value", "limit"),
        ("limit=x", "invalid_value", "limit"),
        ("order=up", "invalid_value", "order"),
        ("after=file-1", "invalid_value", "after"),
        ("page=2", "unsupported_parameter", "page"),
    ] {
        let answer = scene.send(get_request(&format!("/v1/files?{query}"))).await;
        check(&answer, 400, code, Some(param), "");
    }
}

#[tokio::test]
async fn a_batch_begins_with_its_validation() {
    let mut scene = Scene::new();
    let file = uploaded(&mut scene, LINE).await["id"].clone();
    let asked = json!({
        "input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h", "metadata": {"job": "ü"},
        "output_expires_after": {"anchor": "created_at", "seconds": 7_200},
    });
    let batch = scene.send(json_post("/v1/batches", &asked)).await.json();
    let id = batch["id"].as_str().unwrap();
    check_answer("/v1/batches", "application/json", &batch);
    assert_eq!(
        (&batch["object"], &batch["status"], &batch["metadata"]),
        (&json!("batch"), &json!("validating"), &json!({"job": "ü"}))
    );
    assert_eq!((&batch["created_at"], &batch["expires_at"]), (&json!(1_700_000_000), &json!(1_700_086_400)));
    assert_eq!(batch["request_counts"], json!({"total": 0, "completed": 0, "failed": 0}));
    assert_eq!(scene.send(get_request(&format!("/v1/batches/{id}"))).await.json(), batch);
    assert_eq!(scene.send(get_request("/v1/batches")).await.json()["data"], json!([batch]));
    let written = scene.send(get_request(&format!("/v1/batches/{id}"))).await;
    let told = format!(
        "{{\"id\":\"{id}\",\"object\":\"batch\",\"endpoint\":\"/v1/completions\",\"errors\":null,\"input_file_id\":{file},\
         \"completion_window\":\"24h\",\"status\":\"validating\",\"output_file_id\":null,\"error_file_id\":null,\
         \"created_at\":1700000000,\"in_progress_at\":null,\"expires_at\":1700086400,\"finalizing_at\":null,\
         \"completed_at\":null,\"failed_at\":null,\"expired_at\":null,\"cancelling_at\":null,\"cancelled_at\":null,\
         \"request_counts\":{{\"total\":0,\"completed\":0,\"failed\":0}},\"metadata\":{{\"job\":\"ü\"}}}}"
    );
    assert_eq!(String::from_utf8(written.body.to_vec()).unwrap(), told);
    for _ in 0..2 {
        let cancelled = scene.send(request(Method::POST, &format!("/v1/batches/{id}/cancel"))).await.json();
        assert_eq!((&cancelled["status"], &cancelled["cancelling_at"]), (&json!("cancelling"), &json!(1_700_000_000)));
    }
    scene
        .state
        .store
        .close_batch(&scene.state.store.batch(id).await.unwrap().unwrap(), forebay_store::BatchStatus::Cancelled, 1)
        .await
        .unwrap();
    assert_eq!(
        scene.send(request(Method::POST, &format!("/v1/batches/{id}/cancel"))).await.json()["status"],
        "cancelled"
    );
}

#[tokio::test]
async fn a_failed_batch_says_what_is_wrong_with_its_file() {
    let mut scene = Scene::new();
    let file = uploaded(&mut scene, LINE).await["id"].clone();
    let asked = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"});
    let batch = scene.send(json_post("/v1/batches", &asked)).await.json();
    let id = batch["id"].as_str().unwrap();
    let errors = r#"{"object":"list","data":[{"code":"invalid_json_line","message":"ü","param":null,"line":3}]}"#;
    scene.state.store.fail_batch(id, errors, 1_700_000_001_000).await.unwrap();
    let failed = scene.send(get_request(&format!("/v1/batches/{id}"))).await;
    check_operation("get", "/v1/batches/{id}", "application/json", &failed.json());
    assert_eq!((&failed.json()["status"], &failed.json()["failed_at"]), (&json!("failed"), &json!(1_700_000_001)));
    let text = std::str::from_utf8(&failed.body).unwrap();
    assert!(text.contains(&format!("\"errors\":{errors},")), "{text}");
}

#[tokio::test]
async fn batches_that_are_refused_say_why() {
    let mut scene = Scene::new();
    let file = uploaded(&mut scene, LINE).await["id"].clone();
    let good = json!({"input_file_id": file, "endpoint": "/v1/completions", "completion_window": "24h"});
    let pairs: serde_json::Map<String, Value> = (0..17).map(|n| (n.to_string(), json!("x"))).collect();
    for (param, value) in [
        ("input_file_id", json!(null)),
        ("input_file_id", json!(5)),
        ("input_file_id", json!("file-1")),
        ("input_file_id", json!("../../etc/passwd")),
        ("endpoint", json!(null)),
        ("endpoint", json!("/v1/models")),
        ("completion_window", json!(null)),
        ("completion_window", json!("soon")),
        ("metadata", json!([])),
        ("metadata", json!({"a": 1})),
        ("metadata", json!(pairs)),
        ("metadata", json!({"k".repeat(65): "v"})),
        ("metadata", json!({"k": "v".repeat(513)})),
        ("metadata", json!({"k": "\u{0}"})),
        ("output_expires_after", json!(5)),
        ("output_expires_after.anchor", json!({"seconds": 7_200})),
        ("output_expires_after.seconds", json!({"anchor": "created_at", "seconds": 1})),
    ] {
        let mut asked = good.clone();
        asked[param.split('.').next().unwrap()] = value;
        let (status, error) = scene.refused("/v1/batches", asked.clone()).await;
        assert_eq!((status, &error["code"], &error["param"]), (400, &json!("invalid_value"), &json!(param)), "{asked}");
    }
    let mut asked = good.clone();
    asked["priority"] = json!("critical");
    let (status, error) = scene.refused("/v1/batches", asked).await;
    assert_eq!((status, &error["code"], &error["param"]), (400, &json!("unsupported_parameter"), &json!("priority")));
    assert_eq!(scene.send(get_request("/v1/batches")).await.json()["data"], json!([]));
}

#[tokio::test]
async fn a_full_store_is_told_and_keeps_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new();
    scene.state.front.store =
        Store::new(Config { location: Location::File(folder.path().join("x.db")), max_mib: Some(1) });
    scene.state.front.max_file_bytes = 8 << 20;
    let kept = uploaded(&mut scene, LINE).await["id"].clone();
    let large = "x".repeat(40 << 10);
    let lines: String = (0..60)
        .map(|n| LINE.replace("\"a\"", &format!("\"{n}\"")).replace("\"x\"", &format!("\"{large}\"")) + "\n")
        .collect();
    let answer = scene.send(upload(&lines)).await;
    check(&answer, 507, "insufficient_storage", None, "no room");
    assert_eq!(answer.headers["x-should-retry"], "false");
    // What came of it is gone, so there is room again.
    let listed = scene.send(get_request("/v1/files")).await.json();
    assert_eq!((listed["data"].as_array().unwrap().len(), &listed["first_id"]), (1, &kept));
    uploaded(&mut scene, &LINE.replace("\"x\"", &format!("\"{large}\""))).await;
}

#[tokio::test]
async fn the_operators_changes_can_be_read_back() {
    let mut scene = Scene::new();
    let list = scene.send(get_request("/admin/audit")).await.json();
    assert_eq!(list["data"], json!([]));
    let entry =
        forebay_store::AuditEntry::new(1_700_000_000_500, "me at 127.0.0.1:5", "policy", "fair", "latency_first");
    scene.state.store.record(std::slice::from_ref(&entry)).await.unwrap();
    let list = scene.send(get_request("/admin/audit?limit=1")).await.json();
    let expected = json!({
        "id": entry.id, "at": 1_700_000_000.5, "who": "me at 127.0.0.1:5", "what": "policy", "from": "fair", "to": "latency_first",
    });
    assert_eq!(list["data"], json!([expected]));
}
