//! The dashboard: its stream, its files, and the page in a real browser (`tests/clients/dashboard.cjs`).
//!
//! `FOREBAY_TEST_NODE_MODULES` names where playwright-core is; without it, and without a `chromium` on the path, the browser's
//! tests are skipped. Pictures are left beside the binary, in `dashboard`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Stream, StreamExt};
use serde_json::{Value, json};

use crate::support::server::{Server, post};

/// The frames of `/admin/live`.
async fn frames(server: &Server) -> impl Stream<Item = Value> + Unpin + use<> {
    let answer = reqwest::get(server.at("/admin/live")).await.expect("a stream");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let bytes = Box::pin(answer.bytes_stream().map(|chunk| chunk.expect("the stream ends in order").to_vec()));
    let frames = futures_util::stream::unfold((bytes, Vec::new()), |(mut bytes, mut held)| async move {
        loop {
            if let Some(end) = held.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = held.drain(..end + 2).collect();
                let event = String::from_utf8(event).expect("text");
                if let Some(payload) = event.trim_end().strip_prefix("data: ") {
                    return Some((serde_json::from_str(payload).expect("JSON"), (bytes, held)));
                }
                continue;
            }
            held.extend(bytes.next().await?);
        }
    });
    Box::pin(frames)
}

fn digits(map: &Value, wanted: char) -> usize {
    map["cells"].as_str().expect("cells").chars().filter(|cell| *cell == wanted).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_tells_of_requests_and_blocks_while_they_are_there_and_after() {
    let server = Server::start(&[]);
    let mut frames = frames(&server).await;
    let first = frames.next().await.expect("a frame");
    assert_eq!(first["requests"], json!([]));
    assert_eq!(first["engine"]["workers"][0]["id"], "engine-0");
    assert_eq!(first["metrics"]["strategy"], first["engine"]["strategy"]);
    let map = &first["blocks"][0];
    let all = map["blocks"].as_u64().expect("a number");
    assert!(all > 0 && digits(map, '0') as u64 * map["per_cell"].as_u64().unwrap() >= all, "nobody holds any: {map}");

    let url = server.at("/v1/completions");
    let enough = Arc::new(AtomicBool::new(false));
    let busy = (0..4).map(|_| tokio::spawn(keep_asking(url.clone(), enough.clone()))).collect::<Vec<_>>();
    let live = loop {
        seen(&mut frames, |frame| frame["requests"][0]["state"] == "decode").await;
        // What is there now stays as it is, unless it ended just before.
        post(server.at("/admin/pause"), json!({})).await;
        let frame = seen(&mut frames, |frame| frame["engine"]["paused"] == true).await;
        if frame["requests"][0]["state"] == "decode" {
            break frame;
        }
        post(server.at("/admin/resume"), json!({})).await;
    };
    enough.store(true, Ordering::Relaxed);
    assert!(
        live["blocks"][0]["used"].as_u64() > Some(0) || live["blocks"][0]["shared"].as_u64() > Some(0),
        "{}",
        live["blocks"]
    );
    let request = &live["requests"][0];
    let kinds: Vec<&str> =
        request["phases"].as_array().unwrap().iter().map(|phase| phase[0].as_str().unwrap()).collect();
    assert_eq!(kinds.last(), Some(&"decode"), "{request}");
    assert_eq!(request["ended"], Value::Null);
    let id = request["id"].as_str().expect("an id").to_owned();
    let cancel = reqwest::Client::new().delete(server.at(&format!("/admin/requests/{id}")));
    assert_eq!(cancel.send().await.expect("an answer").status(), 200);
    post(server.at("/admin/resume"), json!({})).await;
    for one in busy {
        one.await.expect("it asked until it was enough");
    }
    let ended = seen(&mut frames, |frame| {
        let map = &frame["blocks"][0];
        frame["requests"][0]["state"] == "ended" && map["used"] == 0 && map["shared"] == 0
    });
    let ended = ended.await;
    let request = ended["requests"].as_array().unwrap().iter().find(|one| one["id"] == id).expect("it is told of");
    assert_eq!(request["ended"], "failed");
    assert!(request["generated_tokens"].as_u64() > Some(0), "{request}");
    let phases = request["phases"].as_array().unwrap();
    assert_eq!(phases[0][1], 0);
    assert!(phases.windows(2).all(|two| two[0][2] == two[1][1]), "without gaps: {request}");
    assert_eq!(phases.last().unwrap()[2], request["lasted_us"]);
    assert!(ended["blocks"][0]["cached"].as_u64() > Some(0), "what they computed can be found");
}

/// The first frame that is as wanted.
async fn seen(frames: &mut (impl Stream<Item = Value> + Unpin), wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let frame = frames.next().await.expect("a frame");
        if wanted(&frame) {
            return frame;
        }
    }
}

/// One request after the other. Those that are ended from outside are answered, too.
async fn keep_asking(url: String, enough: Arc<AtomicBool>) {
    let client = reqwest::Client::new();
    let body = json!({"prompt": "Once upon a time there was a fox who", "max_tokens": 4_000, "ignore_eos": true});
    while !enough.load(Ordering::Relaxed) {
        client.post(&url).json(&body).send().await.expect("an answer").bytes().await.expect("a body");
    }
}

/// A page that is left open does not hold up the end of the server, nor is its stream cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_ends_with_the_server() {
    let mut server = Server::start(&[]);
    let mut frames = frames(&server).await;
    frames.next().await.expect("a frame");
    server.terminate();
    while frames.next().await.is_some() {}
    assert!(server.wait().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_goes_on_while_the_engine_is_paused() {
    let server = Server::start(&[]);
    post(server.at("/admin/pause"), json!({})).await;
    let mut frames = frames(&server).await;
    for _ in 0..2 {
        let frame = frames.next().await.expect("a frame");
        assert_eq!(frame["engine"]["paused"], true);
        assert!(frame["blocks"][0]["free"].as_u64() > Some(0), "{}", frame["blocks"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_are_there_and_are_not_sent_twice() {
    let server = Server::start(&[]);
    let page = reqwest::get(server.at("/dashboard")).await.expect("a page");
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    assert!(!page.headers()["content-security-policy"].to_str().unwrap().contains("unsafe"));
    let text = page.text().await.expect("text");
    for part in text.split('"').filter(|part| part.starts_with("dashboard/")) {
        let first = reqwest::get(server.at(&format!("/{part}"))).await.expect("an answer");
        assert_eq!(first.status(), 200, "{part}");
        let tag = first.headers()["etag"].clone();
        let again = reqwest::Client::new().get(server.at(&format!("/{part}"))).header("if-none-match", tag);
        assert_eq!(again.send().await.expect("an answer").status(), 304, "{part}");
    }
    let below = reqwest::get(server.at("/dashboard/")).await.expect("a page");
    assert_eq!(
        (below.status().as_u16(), &below.headers()["content-type"]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    let text = below.text().await.expect("text");
    let names = |name: &&str| [".js", ".css", ".svg"].iter().any(|end| name.ends_with(end));
    let parts: Vec<&str> = text.split('"').filter(names).collect();
    assert!(parts.contains(&"app.js") && parts.contains(&"style.css"), "{parts:?}");
    for part in parts {
        let answer = reqwest::get(server.at(&format!("/dashboard/{part}"))).await.expect("an answer");
        assert_eq!(answer.status(), 200, "{part}");
    }
    assert_eq!(reqwest::get(server.at("/dashboard/nothing.js")).await.expect("an answer").status(), 404);
}

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// `make dashboard` puts them there. Where npm has installed the packages of the tests they are compared byte for byte.
#[test]
fn what_is_vendored_is_what_is_pinned() {
    let package: Value = serde_json::from_str(&read("dashboard/package.json")).expect("JSON");
    let lock: Value = serde_json::from_str(&read("dashboard/package-lock.json")).expect("JSON");
    let pinned = package["dependencies"]["uplot"].as_str().expect("a version");
    assert!(pinned.chars().all(|c| c.is_ascii_digit() || c == '.'), "one version, no range: {pinned}");
    let locked = &lock["packages"]["node_modules/uplot"];
    assert_eq!(locked["version"], pinned);
    assert!(locked["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")));
    assert!(!lock.to_string().contains("resolved"), "the lock names no registry");
    assert!(read("dashboard/vendor/uPlot.esm.js").contains(&format!("(v{pinned})")));
    assert!(read("dashboard/vendor/uPlot.LICENSE").contains("MIT License"));
    let Some(installed) = modules().map(|modules| modules.with_file_name("dashboard").join("node_modules/uplot"))
    else {
        return;
    };
    for (ours, theirs) in
        [("uPlot.esm.js", "dist/uPlot.esm.js"), ("uPlot.min.css", "dist/uPlot.min.css"), ("uPlot.LICENSE", "LICENSE")]
    {
        let theirs = std::fs::read_to_string(installed.join(theirs)).expect("make venv installs it");
        assert!(read(&format!("dashboard/vendor/{ours}")) == theirs, "{ours} differs: make dashboard");
    }
}

/// Where the packages of the browser's tests are.
fn modules() -> Option<PathBuf> {
    let Ok(modules) = std::env::var("FOREBAY_TEST_NODE_MODULES") else {
        println!("skipped: FOREBAY_TEST_NODE_MODULES is not set; run it with `make test`");
        return None;
    };
    Some(modules.into())
}

/// Where Debian has it. In CI it must be there.
fn chromium() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("chromium")).find(|path| path.exists());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "there is no chromium");
        println!("skipped: there is no chromium");
    }
    found
}

fn browse(scenario: &str) {
    browse_at(scenario, &[]);
}

/// At a server that is started with `args`.
fn browse_at(scenario: &str, args: &[&str]) {
    let (Some(modules), Some(chromium)) = (modules(), chromium()) else { return };
    let server = Server::start(args);
    let done = Command::new("node")
        .arg(root("tests/clients/dashboard.cjs"))
        .args([scenario, &server.url])
        .env("NODE_PATH", modules)
        .env("CHROMIUM", chromium)
        .env("SHOTS", Path::new(env!("CARGO_BIN_EXE_forebay")).with_file_name("dashboard"))
        .output()
        .expect("node runs");
    let (said, complained) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{scenario}: {said}{complained}");
}

#[test]
fn the_page_opens_without_an_error() {
    browse("loads");
}

#[test]
fn numbers_move_under_load() {
    browse("moves");
}

#[test]
fn a_switch_in_the_page_is_seen_on_admin() {
    browse("switches");
}

#[test]
fn who_was_overtaken_is_told_by_whom_and_why() {
    browse("overtakes");
}

#[test]
fn several_workers_have_a_balancer_and_parameters_may_be_names() {
    browse_at("balances", &["--workers", "2"]);
}

#[test]
fn recommendations_are_shown_and_applied() {
    browse("advises");
}

#[test]
fn the_chat_answers() {
    browse("chats");
}

#[test]
fn everything_is_done_with_the_keyboard() {
    browse("keyboard");
}

#[test]
fn nothing_sticks_out_of_a_narrow_screen() {
    browse("narrow");
}

#[test]
fn the_page_comes_back_with_the_server() {
    browse("reconnects");
}

#[test]
fn a_key_is_asked_for_where_one_is_wanted() {
    browse("keys");
}
