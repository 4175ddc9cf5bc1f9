//! The cases of `tests/badinputs` over the real binary. After each: the answer is as expected and has OpenAI's shape, nothing
//! panicked, a greedy request gets the tokens it always gets, and a stream that runs meanwhile is byte-identical to the one
//! that ran alone. After all of a file: nobody runs or waits, no block is held, files are closed, and memory has grown by no
//! more than ten times what was sent and a mebibyte for each request.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Client, Response};
use serde_json::{Map, Value, json};

use crate::support::server::Server;

/// Of an answer: an error is small, and none is larger than what it answers by much.
const LARGEST_ERROR: usize = 2_000;

/// Routes that can answer with a stream.
const STREAMS: [&str; 4] = ["completions", "chat", "responses", "messages"];

struct Case {
    line: Value,
}

impl Case {
    fn read(file: &str) -> Vec<Case> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/badinputs").join(file);
        let text = std::fs::read_to_string(&path).expect("a file of cases");
        let case = |line: &str| Case { line: serde_json::from_str(line).expect("a line is JSON") };
        text.lines().map(case).collect()
    }

    fn routes(&self) -> Vec<&str> {
        let named = self.line["routes"].as_array();
        named.map_or(vec!["completions", "chat"], |list| list.iter().filter_map(Value::as_str).collect())
    }

    /// Whether to stream; routes that cannot are asked once.
    fn manners(&self, route: &str) -> Vec<Option<bool>> {
        let object =
            |text: &Value| text.as_str().is_some_and(|text| text.starts_with("{\"") || text.starts_with("7b22"));
        let given = self.line.get("raw").map(|raw| match raw["$cat"][0].is_string() {
            true => raw["$cat"][0].clone(),
            false => raw.clone(),
        });
        match given.as_ref().or(self.line.get("raw_hex")) {
            // Into an object, a stream can be asked for.
            Some(text) if object(text) && STREAMS.contains(&route) => return vec![None, Some(true)],
            Some(_) => return vec![None],
            None => {}
        }
        match &self.line["stream"] {
            _ if !STREAMS.contains(&route) => vec![None],
            Value::Bool(stream) => vec![Some(*stream)],
            _ => vec![Some(false), Some(true)],
        }
    }

    fn body(&self, route: &str, stream: Option<bool>) -> Vec<u8> {
        let given = match (self.line["raw_hex"].as_str(), self.line.get("raw")) {
            (Some(hex), _) => {
                let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
                Some((0..hex.len()).step_by(2).map(digits).collect::<Vec<u8>>())
            }
            (None, Some(raw)) => Some(expanded(raw).as_str().expect("text").as_bytes().to_vec()),
            (None, None) => None,
        };
        if let Some(mut bytes) = given {
            if stream == Some(true) {
                bytes.splice(1..1, *b"\"stream\":true,");
            }
            return bytes;
        }
        let mut body = match route {
            "completions" => json!({"prompt": "The fox", "max_tokens": 3}),
            "chat" => json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}),
            "tokenize" => json!({"prompt": "The fox"}),
            "embeddings" => json!({"input": "The fox"}),
            "rerank" => json!({"query": "The fox", "documents": ["An owl"]}),
            "responses" => json!({"input": "hi", "max_output_tokens": 3}),
            "messages" => json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}),
            "render" | "count" => json!({"messages": [{"role": "user", "content": "hi"}]}),
            _ => json!({"tokens": [5, 6]}),
        };
        let fields = body.as_object_mut().expect("an object");
        if let Some(stream) = stream {
            fields.insert("stream".into(), stream.into());
        }
        let dropped = self.line["drop"].as_array().into_iter().flatten().filter_map(Value::as_str);
        dropped.for_each(|name| drop(fields.remove(name)));
        for (name, value) in self.line["set"].as_object().into_iter().flatten() {
            fields.insert(name.clone(), expanded(value));
        }
        body.to_string().into_bytes()
    }

    async fn send(&self, server: &Server, path: &str, route: &str, stream: Option<bool>) -> Response {
        let mut request = Client::new().post(server.at(path)).body(self.body(route, stream));
        match self.line.get("type") {
            None => request = request.header("content-type", "application/json"),
            Some(Value::String(kind)) => request = request.header("content-type", kind),
            Some(_) => {}
        }
        if let Some(encoding) = self.line["encoding"].as_str() {
            request = request.header("content-encoding", encoding);
        }
        for (name, value) in self.line["headers"].as_object().into_iter().flatten() {
            request = request.header(name, expanded(value).as_str().expect("text"));
        }
        request.send().await.expect("an answer")
    }

    async fn check(&self, server: &Server, path: &str, route: &str, stream: Option<bool>) {
        let what = format!("{} {} ({path}, stream {stream:?})", self.line["row"], self.line["what"]);
        let expect = self.line["expect"].as_array().expect("a list");
        let answer = self.send(server, path, route, stream).await;
        let status = answer.status().as_u16();
        let id = answer.headers()["x-request-id"].to_str().expect("ascii");
        let sent = self.line["headers"]["x-request-id"].as_str();
        // The client's own or one of ours; never something else that was sent.
        let harmless = |id: &str| {
            (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        assert!(
            !id.is_empty() && harmless(id) && (sent.is_none_or(|sent| !harmless(sent) || sent == id)),
            "{what}: {id}"
        );
        let text = answer.text().await.expect("a body");
        assert_eq!(json!(status), expect[0], "{what}: {text:.300}");
        if status == 200 {
            // A response has a field of this name, which is null.
            assert!(!text.replace("\"error\":null", "").contains("\"error\""), "{what}: {text:.300}");
            let last = match route {
                "responses" => {
                    text.contains("event: response.completed") || text.contains("event: response.incomplete")
                }
                "messages" => text.contains("event: message_stop"),
                _ => text.ends_with("data: [DONE]\n\n"),
            };
            assert!(stream != Some(true) || last, "{what}: {text}");
            return;
        }
        assert!(text.len() < LARGEST_ERROR, "{what}: an error of {} bytes", text.len());
        let body: Value = serde_json::from_str(&text).expect("JSON");
        let error = body["error"].as_object().expect("an error object");
        if ["messages", "count"].contains(&route) {
            assert_eq!((&body["type"], &error["type"]), (&json!("error"), &expect[1]), "{what}: {text}");
            assert_eq!(error.keys().collect::<Vec<_>>(), ["type", "message"], "{what}");
            let place = expect[2].as_str().map(|param| format!("'{param}'")).unwrap_or_default();
            assert!(error["message"].as_str().is_some_and(|message| message.starts_with(&place)), "{what}: {text}");
            return;
        }
        assert_eq!(error.keys().collect::<Vec<_>>(), ["message", "type", "param", "code"], "{what}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}");
        assert_eq!((&error["code"], &error["param"]), (&expect[1], &expect[2]), "{what}: {text}");
        let kind = match status {
            404 => "not_found_error",
            408 => "timeout_error",
            _ => "invalid_request_error",
        };
        assert_eq!(error["type"], kind, "{what}: {text}");
    }
}

/// Every name of a route. A door of its own that is weaker is how servers fall.
fn paths(route: &str) -> [&'static str; 2] {
    match route {
        "chat" => ["/v1/chat/completions", "/chat/completions"],
        "completions" => ["/v1/completions", "/completions"],
        "tokenize" => ["/tokenize", "/v1/tokenize"],
        "embeddings" => ["/v1/embeddings", "/embeddings"],
        "rerank" => ["/v1/rerank", "/rerank"],
        "responses" => ["/v1/responses", "/responses"],
        "messages" => ["/v1/messages", "/messages"],
        "render" => ["/v1/chat/completions/render", "/chat/completions/render"],
        "count" => ["/v1/messages/count_tokens", "/messages/count_tokens"],
        _ => ["/detokenize", "/v1/detokenize"],
    }
}

/// The directives of a case carried out, see `tests/badinputs/README.md`.
fn expanded(value: &Value) -> Value {
    let Value::Object(object) = value else {
        return match value {
            Value::Array(list) => list.iter().map(expanded).collect(),
            other => other.clone(),
        };
    };
    let count = |of: &Value| of.as_u64().expect("a count") as usize;
    match object.iter().next().map(|(name, argument)| (name.as_str(), argument)) {
        Some(("$times", of)) => of[0].as_str().expect("text").repeat(count(&of[1])).into(),
        Some(("$list", of)) => vec![of[0].clone(); count(&of[1])].into(),
        Some(("$pairs", of)) => (0..count(of)).map(|id| (id.to_string(), json!(1))).collect::<Map<_, _>>().into(),
        Some(("$texts", of)) => (0..count(of)).map(|n| json!(n.to_string())).collect(),
        Some(("$keys", of)) => {
            (0..count(of)).map(|n| (format!("k{n}"), json!({"type": "null"}))).collect::<Map<_, _>>().into()
        }
        Some(("$cat", of)) => {
            let parts = of.as_array().expect("a list").iter().map(expanded);
            parts.map(|part| part.as_str().expect("text").to_owned()).collect::<String>().into()
        }
        _ => object.iter().map(|(name, value)| (name.clone(), expanded(value))).collect::<Map<_, _>>().into(),
    }
}

/// The bytes of a stream, without what differs from request to request and from clock to clock.
async fn bystander(url: String) -> String {
    let body =
        json!({"prompt": "Once upon a time", "max_tokens": 120, "temperature": 0, "stream": true, "logprobs": 1});
    let answer = Client::new().post(url).json(&body).send().await.expect("an answer");
    let text = answer.text().await.expect("a body");
    let frame = |line: &str| {
        let Ok(mut frame) = serde_json::from_str::<Value>(line.trim_start_matches("data: ")) else {
            return line.to_owned();
        };
        for name in ["id", "created", "timings"] {
            frame.as_object_mut().expect("an object").remove(name);
        }
        frame.to_string()
    };
    text.lines().map(frame).collect::<Vec<_>>().join("\n")
}

async fn canary(server: &Server) -> Value {
    let body = json!({"prompt": "The little owl", "max_tokens": 4, "temperature": 0, "return_token_ids": true});
    let answer = Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("an answer");
    answer.json::<Value>().await.expect("JSON")["choices"][0]["token_ids"].clone()
}

/// Files that the server has open.
fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("a Linux process").count()
}

async fn check(file: &str) {
    // The embedded model's template knows no tools; calls as JSON can be asked of any.
    let arguments: &[&str] = if file == "tools.jsonl" { &["--tool-parser", "json"] } else { &[] };
    let server = Server::start(arguments);
    let expected = canary(&server).await;
    let url = server.at("/v1/completions");
    let alone = bystander(url.clone()).await;
    assert!(alone.ends_with("data: [DONE]\n"), "{alone}");
    let over = Arc::new(AtomicBool::new(false));
    let streams = tokio::spawn({
        let over = over.clone();
        async move {
            let mut streams = 0;
            while streams == 0 || !over.load(Ordering::Relaxed) {
                assert_eq!(bystander(url.clone()).await, alone, "stream {streams} was disturbed");
                streams += 1;
            }
        }
    });
    let (files, before) = (open_files(&server), server.resident_kib());
    let mut allowed = 0;
    for case in Case::read(file) {
        for route in case.routes() {
            for stream in case.manners(route) {
                for path in paths(route) {
                    allowed += 10 * case.body(route, stream).len() as u64 / 1_024 + 1_024;
                    case.check(&server, path, route, stream).await;
                }
                assert_eq!(canary(&server).await, expected, "after {}", case.line["what"]);
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    streams.await.expect("the bystander was not disturbed");
    assert_eq!(server.metric("forebay_panics_total").await, 0.0);
    for gauge in ["forebay_num_requests_running", "forebay_num_requests_waiting"] {
        server.until_metric(gauge, 0.0).await;
    }
    server.until_metric("vllm:kv_cache_usage_perc", 0.0).await;
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown <= allowed, "{grown} KiB more, {allowed} allowed");
    // The bystander's connection was open before, too.
    for _ in 0..3_000 {
        if open_files(&server) <= files {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{} files are open, {files} were", open_files(&server));
}

macro_rules! files {
    ($($name:ident)*) => {
        $(#[tokio::test]
        async fn $name() {
            check(concat!(stringify!($name), ".jsonl")).await;
        })*

        #[test]
        fn no_file_is_forgotten() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/badinputs");
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let name = entry.expect("an entry").file_name().into_string().expect("a name");
                let known = [$(concat!(stringify!($name), ".jsonl")),*].contains(&name.as_str());
                assert!(known || name == "README.md", "{name}");
            }
        }
    };
}

files!(embeddings responses messages ids salts schemas json choices prompts tokens integers floats logprobs content templates length stops tools types good);

/// J13: two clients may choose the same id at the same time. Neither hears of the other.
#[tokio::test]
async fn one_id_twice_in_flight() {
    let server = Server::start(&[]);
    let ask = async |prompt: &str| {
        let body = json!({"prompt": prompt, "max_tokens": 60, "temperature": 0, "stream": true, "ignore_eos": true});
        let request = Client::new().post(server.at("/v1/completions")).header("x-request-id", "twice").json(&body);
        request.send().await.expect("an answer").text().await.expect("a body")
    };
    let texts = |stream: &str| {
        let frames = stream.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        frames.filter_map(|frame| Some(frame["choices"][0]["text"].as_str()?.to_owned())).collect::<String>()
    };
    let alone = (texts(&ask("The fox").await), texts(&ask("A little owl").await));
    let (fox, owl) = tokio::join!(ask("The fox"), ask("A little owl"));
    assert_eq!((texts(&fox), texts(&owl)), alone);
    assert!(fox.ends_with("data: [DONE]\n\n") && owl.ends_with("data: [DONE]\n\n"));
}

/// G3: as many schemas as requests. Those that were compiled are forgotten again.
#[tokio::test]
async fn schemas_do_not_pile_up() {
    let server = Server::start(&[]);
    let ask = async |index: usize| {
        let schema = json!({"type": "object", "properties": {format!("key_{index}"): {"type": "integer"}}, "required": [format!("key_{index}")]});
        let body = json!({"prompt": "The fox", "max_tokens": 2, "guided_json": schema});
        let answer = Client::new().post(server.at("/v1/completions")).json(&body).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
    };
    for index in 0..200 {
        ask(index).await;
    }
    let before = server.resident_kib();
    for index in 200..900 {
        ask(index).await;
    }
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more after 700 schemas");
    assert_eq!(server.metric("forebay_panics_total").await, 0.0);
}
