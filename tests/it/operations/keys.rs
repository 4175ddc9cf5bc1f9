//! API keys over the real binary: made while a server runs, asked for, limited, revoked, and what they used.

use std::path::Path;
use std::process::Command;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::support::server::Server;

/// Runs a command on the store of `folder`; its standard output.
fn forebay(folder: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(args)
        .env("FOREBAY__STORE__URL", store(folder))
        .output()
        .expect("the binary starts");
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).expect("UTF-8")),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn store(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("keys.db").display())
}

fn serve(folder: &Path, args: &[&str]) -> Server {
    Server::start_in(&[&["--require-keys"], args].concat(), &[("FOREBAY__STORE__URL", &store(folder))])
}

fn create(folder: &Path, args: &[&str]) -> (String, String) {
    let made = forebay(folder, &[&["keys", "create", "--json"], args].concat()).expect("a key");
    let made: Value = serde_json::from_str(&made).expect("JSON");
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    (text("id"), text("key"))
}

async fn status(server: &Server, path: &str, key: Option<&str>) -> StatusCode {
    let mut request = Client::new().get(server.at(path));
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    request.send().await.expect("an answer").status()
}

/// Until the server has looked at its keys again, which it does every second.
async fn becomes(server: &Server, path: &str, key: &str, expected: u16) {
    for _ in 0..6_000 {
        if status(server, path, Some(key)).await == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{path} never answered {expected}");
}

#[tokio::test]
async fn keys_live_beside_a_running_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let (admin_id, admin) = create(folder.path(), &["--name", "ops", "--role", "admin"]);
    let mut server = serve(folder.path(), &[]);
    assert_eq!(status(&server, "/health/ready", None).await, 200);
    assert_eq!(status(&server, "/v1/models", None).await, 401);
    assert_eq!(status(&server, "/v1/models", Some(&admin)).await, 403);
    assert_eq!(status(&server, "/admin/state", Some(&admin)).await, 200);
    // Made while the server has the store open.
    let (id, key) = create(folder.path(), &["--name", "app"]);
    becomes(&server, "/v1/models", &key, 200).await;
    assert_eq!(status(&server, "/admin/state", Some(&key)).await, 403);
    let body = json!({"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0});
    let mut used = (0, 0);
    for stream in [false, true] {
        let mut body = body.clone();
        body["stream"] = json!(stream);
        let request = Client::new().post(server.at("/v1/completions")).header("x-api-key", &key).json(&body);
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        let text = answer.text().await.expect("whole");
        if !stream {
            let usage: Value = serde_json::from_str::<Value>(&text).expect("JSON")["usage"].clone();
            used =
                (usage["prompt_tokens"].as_i64().expect("a number"), usage["completion_tokens"].as_i64().expect("one"));
        }
    }
    let again = forebay(folder.path(), &["keys", "rotate", &id, "--json"]).expect("another text");
    let again: Value = serde_json::from_str(&again).expect("JSON");
    becomes(&server, "/v1/models", again["key"].as_str().expect("text"), 200).await;
    assert_eq!(status(&server, "/v1/models", Some(&key)).await, 401);
    forebay(folder.path(), &["keys", "revoke", &admin_id]).expect("it is revoked");
    becomes(&server, "/admin/state", &admin, 401).await;
    assert!(forebay(folder.path(), &["keys", "revoke", &admin_id]).expect_err("again").contains(&admin_id));

    // What was used is there once the server has drained.
    server.terminate();
    server.wait();
    let report = forebay(folder.path(), &["usage", "report", "--by", "key,route,model", "--json"]).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let rows = report["usage"].as_array().expect("rows");
    assert_eq!(rows.len(), 1, "{report}");
    let row = &rows[0];
    assert_eq!((&row["key"], &row["name"], &row["route"]), (&json!(id), &json!("app"), &json!("completions")));
    assert_eq!((&row["requests"], &row["prompt_tokens"]), (&json!(2), &json!(2 * used.0)));
    assert_eq!(row["completion_tokens"], json!(2 * used.1));
    let listed = forebay(folder.path(), &["keys", "list"]).expect("a list");
    let line = |id: &str| listed.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{listed}"));
    assert!(line(&id).contains("active") && line(&admin_id).contains("revoked"), "{listed}");
    assert!(!listed.contains(&key) && !listed.contains("sk-fb-"), "{listed}");
}

#[tokio::test]
async fn a_store_can_be_checked_and_migrated() {
    let folder = tempfile::tempdir().expect("a folder");
    let none = forebay(folder.path(), &["db", "check"]).expect_err("there is none");
    assert!(none.contains("db migrate"), "{none}");
    let migrated = forebay(folder.path(), &["db", "migrate"]).expect("migrated");
    assert!(migrated.contains("0002_keys applied"), "{migrated}");
    let checked = forebay(folder.path(), &["db", "check"]).expect("as it should be");
    assert!(checked.contains("0001_store applied"), "{checked}");
    let memory = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["keys", "list", "--store", "memory"])
        .output()
        .expect("the binary starts");
    assert_eq!(memory.status.code(), Some(2));
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_listens_on_a_socket_and_has_a_door_for_its_operator() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("forebay.sock");
    let path = socket.to_str().expect("UTF-8");
    let mut server = Server::start(&["--unix-socket", path, "--admin-listen", "127.0.0.1:0"]);
    let probe = |url: &str| {
        let status = Command::new(env!("CARGO_BIN_EXE_forebay")).args(["health", "--url", url]).status();
        status.expect("the binary starts").success()
    };
    assert!(probe(&format!("unix:{path}")));
    assert_eq!(status(&server, "/admin/state", None).await, 404, "it is at the other address");
    assert_eq!(status(&server, "/v1/models", None).await, 200);
    server.terminate();
    server.wait();
    assert!(!socket.exists());
    assert!(!probe(&format!("unix:{path}")));
}
