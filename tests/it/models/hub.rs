//! Downloads from a stub on loopback that speaks the hub's protocol as far as a client needs it.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;
use candle_core::quantized::GgmlDType;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::support::gguf_file::GgufFile;
use crate::support::server::{Server, golden_folder, post};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TOKEN: &str = "hf_secret";

/// What the stub does besides serving the golden Llama as `forebay/tiny`.
#[derive(Default)]
struct Hub {
    /// The next download of this file breaks off in the middle.
    cut: Mutex<Option<String>>,
    /// Asks for [`TOKEN`].
    gated: bool,
    /// Instead of the golden's file; an empty one is absent.
    replaced: Vec<(&'static str, Vec<u8>)>,
    /// `(file, first byte)` of every request for more than the first byte.
    downloads: Mutex<Vec<(String, usize)>>,
}

impl Hub {
    fn content(&self, file: &str) -> Option<Vec<u8>> {
        match self.replaced.iter().find(|(name, _)| *name == file) {
            Some((_, content)) => Some(content.clone()).filter(|content| !content.is_empty()),
            None => std::fs::read(golden_folder("llama").join(file)).ok(),
        }
    }
}

/// Serves until the test's runtime ends; its address.
async fn serve(hub: Arc<Hub>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let router = Router::new().route("/forebay/tiny/resolve/{revision}/{file}", get(resolve)).with_state(hub);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn resolve(
    State(hub): State<Arc<Hub>>,
    UrlPath((revision, file)): UrlPath<(String, String)>,
    headers: HeaderMap,
) -> Response<Body> {
    let status = |status: StatusCode| Response::builder().status(status).body(Body::empty()).expect("a response");
    let allowed = headers.get(header::AUTHORIZATION).is_some_and(|value| value == &format!("Bearer {TOKEN}"));
    if hub.gated && !allowed {
        return status(StatusCode::UNAUTHORIZED);
    }
    let Some(content) = hub.content(&file).filter(|_| revision == "main") else {
        return status(StatusCode::NOT_FOUND);
    };
    let range = headers[header::RANGE].to_str().expect("text").strip_prefix("bytes=").expect("bytes");
    let (first, last) = range.split_once('-').expect("a range");
    let first: usize = first.parse().expect("a number");
    let last = last.parse().unwrap_or(content.len() - 1);
    let part = content[first..=last].to_vec();
    let answer = Response::builder()
        .status(StatusCode::PARTIAL_CONTENT)
        .header("x-repo-commit", COMMIT)
        .header(header::ETAG, format!("\"etag-of-{file}\""))
        .header(header::CONTENT_RANGE, format!("bytes {first}-{last}/{}", content.len()))
        .header(header::CONTENT_LENGTH, part.len());
    if range == "0-0" {
        return answer.body(part.into()).expect("a response");
    }
    hub.downloads.lock().expect("no panic").push((file.clone(), first));
    let cut = hub.cut.lock().expect("no panic").take_if(|cut| *cut == file).is_some();
    let body = if cut { broken(part) } else { part.into() };
    answer.body(body).expect("a response")
}

/// Half of it, then the connection breaks.
fn broken(part: Vec<u8>) -> Body {
    let half = Bytes::from(part[..part.len() / 2].to_vec());
    let end = stream::once(async {
        // Pending once, so that what came before is sent.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut"))
    });
    Body::from_stream(stream::iter([Ok(half)]).chain(end))
}

struct Machine {
    cache: tempfile::TempDir,
    url: String,
}

impl Machine {
    fn new(url: &str) -> Machine {
        Machine { cache: tempfile::tempdir().expect("a folder"), url: url.into() }
    }

    fn cache(&self) -> &str {
        self.cache.path().to_str().expect("utf-8")
    }

    fn variables<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let always =
            [("HF_ENDPOINT", self.url.as_str()), ("HF_HUB_CACHE", self.cache()), ("FOREBAY__STORE__URL", "memory")];
        [&always, more].concat()
    }

    /// Serves the model; panics unless it answers.
    async fn serves(&self, model: &str, more: &[(&str, &str)]) {
        let (model, variables) = (model.to_owned(), self.variables(more));
        let variables: Vec<(String, String)> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let server = tokio::task::spawn_blocking(move || {
            let variables: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            Server::start_in(&["--model", &model], &variables)
        });
        let server = server.await.expect("the server starts");
        let (status, answer) =
            post(server.at("/v1/completions"), json!({"prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": true})).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// What the server says when it refuses to start, which it must with code 2.
    async fn refuses(&self, model: &str, more: &[(&str, &str)]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["serve", "--port", "0", "--model", model]).envs(self.variables(more));
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_downloaded_once_and_served_offline_afterwards() {
    let hub = Arc::new(Hub::default());
    let machine = Machine::new(&serve(hub.clone()).await);
    machine.serves("forebay/tiny", &[]).await;
    let snapshot = machine.cache.path().join("models--forebay--tiny/snapshots").join(COMMIT);
    assert!(snapshot.join("model.safetensors").exists(), "the hub's own layout");
    let downloads = hub.downloads.lock().expect("no panic").len();
    machine.serves("forebay/tiny", &[]).await;
    machine.serves("forebay/tiny", &[("HF_HUB_OFFLINE", "1"), ("HF_ENDPOINT", "http://127.0.0.1:1")]).await;
    assert_eq!(hub.downloads.lock().expect("no panic").len(), downloads, "nothing was downloaded again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_download_goes_on_from_the_byte_it_reached() {
    let hub = Arc::new(Hub { cut: Mutex::new(Some("model.safetensors".into())), ..Hub::default() });
    let machine = Machine::new(&serve(hub.clone()).await);
    machine.serves("forebay/tiny", &[]).await;
    let starts: Vec<usize> = {
        let downloads = hub.downloads.lock().expect("no panic");
        downloads.iter().filter(|(file, _)| file == "model.safetensors").map(|(_, first)| *first).collect()
    };
    let size = std::fs::metadata(golden_folder("llama").join("model.safetensors")).expect("a file").len() as usize;
    assert_eq!(starts, [0, size / 2]);
    let blob = machine.cache.path().join("models--forebay--tiny/blobs/etag-of-model.safetensors");
    same(&blob, &golden_folder("llama").join("model.safetensors"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_file_of_a_repository_is_downloaded_alone() {
    let file = GgufFile::convert(&golden_folder("llama"), GgmlDType::F32).bytes();
    let hub = Arc::new(Hub { replaced: vec![("tiny-f32.gguf", file)], ..Hub::default() });
    let machine = Machine::new(&serve(hub.clone()).await);
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["model", "inspect", "forebay/tiny:tiny-f32.gguf", "--json"]).envs(machine.variables(&[]));
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&shown["architecture"], &shown["format"]), (&json!("llama"), &json!("GGUF")));
    let files: Vec<String> = hub.downloads.lock().expect("no panic").iter().map(|(file, _)| file.clone()).collect();
    assert_eq!(files, ["tiny-f32.gguf"]);
    let said = machine.refuses("forebay/tiny:other.gguf", &[]).await;
    assert!(said.contains("other.gguf"), "{said}");
}

fn same(a: &Path, b: &Path) {
    assert!(std::fs::read(a).expect("a file") == std::fs::read(b).expect("a file"), "{} differs", a.display());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_named() {
    let machine = Machine::new(&serve(Arc::new(Hub::default())).await);
    let said = machine.refuses("forebay/nothing", &[]).await;
    assert!(said.contains("forebay/nothing@main") && said.contains("config.json"), "{said}");
    let said = machine.refuses("forebay/tiny@v9", &[]).await;
    assert!(said.contains("forebay/tiny@v9"), "{said}");
    let said = machine.refuses("forebay/tiny", &[("HF_HUB_OFFLINE", "1")]).await;
    assert!(said.contains("HF_HUB_OFFLINE") && said.contains(machine.cache()), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gated_repository_wants_a_token() {
    let machine = Machine::new(&serve(Arc::new(Hub { gated: true, ..Hub::default() })).await);
    let said = machine.refuses("forebay/tiny", &[("HF_TOKEN", "")]).await;
    assert!(said.contains("401") && said.contains("HF_TOKEN") && said.contains("licence"), "{said}");
    machine.serves("forebay/tiny", &[("HF_TOKEN", TOKEN)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_cannot_lead_out_of_the_cache_or_to_nothing() {
    for (shard, expected) in
        [("../../etc/passwd", "plain file name"), ("model-9.safetensors", "no model-9.safetensors")]
    {
        let index = json!({"weight_map": {"model.norm.weight": shard}}).to_string();
        let hub = Hub { replaced: vec![("model.safetensors.index.json", index.into())], ..Hub::default() };
        let machine = Machine::new(&serve(Arc::new(hub)).await);
        let said = machine.refuses("forebay/tiny", &[]).await;
        assert!(said.contains(expected), "{said}");
    }
}
