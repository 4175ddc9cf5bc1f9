//! A real `forebay` process on a free loopback port, stopped when dropped.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::Value;

/// How long a server may take to come up on a machine that does other things too. A bound, not a measurement.
const START_LIMIT: Duration = Duration::from_secs(60);

pub struct Server {
    child: Child,
    pub url: String,
    /// Lines of its log, as they came.
    logged: Arc<Mutex<Vec<Value>>>,
}

/// Clients of this process want to know who computes TLS, also where they speak none.
pub fn ready_clients() {
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}

impl Server {
    /// The embedded model.
    pub fn start(args: &[&str]) -> Server {
        Server::start_in(args, &[])
    }

    /// With variables in its environment.
    pub fn start_in(args: &[&str], variables: &[(&str, &str)]) -> Server {
        ready_clients();
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["serve", "--port", "0", "--log-format", "json"])
            .args(args)
            // Each its own, gone with it, unless the test names one.
            .env("FOREBAY__STORE__URL", "memory")
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("piped");
        let (found, listening) = mpsc::channel();
        let logged: Arc<Mutex<Vec<Value>>> = Arc::default();
        let lines = logged.clone();
        // Keeps reading to the end, so that the server never blocks on a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
                let fields = &line["fields"];
                let url = (fields["event"] == "listening").then(|| fields["url"].as_str().expect("a url").to_owned());
                lines.lock().expect("no panic").push(line);
                url.into_iter().for_each(|url| drop(found.send(url)));
            }
        });
        let url = listening.recv_timeout(START_LIMIT).expect("the server says where it listens");
        Server { child, url, logged }
    }

    /// One of the golden checkpoints in `tests/goldens`.
    pub fn golden(name: &str, args: &[&str]) -> Server {
        let folder = golden_folder(name);
        Server::start(&[&["--model", folder.to_str().expect("utf-8 path")], args].concat())
    }

    /// What it has logged so far.
    pub fn logged(&self) -> Vec<Value> {
        self.logged.lock().expect("no panic").clone()
    }

    /// Waits for so many lines of such an event; returns their fields.
    pub async fn until_logged(&self, event: &str, count: usize) -> Vec<Value> {
        for _ in 0..3_000 {
            let lines = self.logged().into_iter().map(|line| line["fields"].clone());
            let found: Vec<Value> = lines.filter(|fields| fields["event"] == event).collect();
            if found.len() >= count {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{event} was not logged {count} times: {:#?}", self.logged());
    }

    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kibibytes of memory that the process uses, pages of files included.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a Linux process");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Asks the process to drain, as an init system would.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// As `kill -NAME` does.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// At once, in the middle of everything.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child to kill");
        self.wait();
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().expect("a child to wait for")
    }

    /// The value of one series of `/metrics`, labels included in `series`.
    pub async fn metric(&self, series: &str) -> f64 {
        let text = reqwest::get(self.at("/metrics")).await.expect("metrics").text().await.expect("text");
        let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with([' ', '{'])));
        let line = line.unwrap_or_else(|| panic!("no series {series} in\n{text}"));
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    }

    /// Polls a gauge until it has the value; for states that follow an event without an answer to wait for.
    pub async fn until_metric(&self, series: &str, wanted: f64) {
        for _ in 0..3_000 {
            if self.metric(series).await == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{series} never became {wanted}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn golden_folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(name)
}

/// Posts JSON; the answer's status and body.
pub async fn post(url: String, body: Value) -> (u16, Value) {
    let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.expect("a JSON body"))
}

/// Posts JSON with `stream: true`; the parsed frames before `[DONE]`.
pub async fn stream(url: String, mut body: Value) -> Vec<Value> {
    body["stream"] = true.into();
    let answer = reqwest::Client::new().post(url).json(&body).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap_or_default());
    frames(&answer.text().await.expect("a body"))
}

/// The JSON of each `data:` line; the last line must be `[DONE]`.
pub fn frames(body: &str) -> Vec<Value> {
    let mut data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{body}");
    data.into_iter().map(|json| serde_json::from_str(json).expect("each frame is JSON")).collect()
}
