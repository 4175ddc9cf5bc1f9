//! Prometheus itself reads our metrics, and every query that we ship is put to it. Debian's package `prometheus` has the server
//! and `promtool`; `.ci/run` installs it.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::server::{Server, post, stream};

const RULES: &str = "deploy/prometheus/forebay.rules.yml";
/// Names whose spelling is others' to answer for.
const BORROWED: &[&str] = &["vllm:", "llamacpp:", "request_latency_ms"];

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// Whether the tools are there. CI must have them.
fn tools() -> bool {
    let there = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if there("prometheus") && there("promtool") {
        return true;
    }
    assert!(std::env::var_os("CI").is_none(), "CI installs Debian's package prometheus");
    println!("skipped: no prometheus and promtool; Debian's package prometheus has both");
    false
}

/// Promtool's exit code and what it said.
fn promtool(arguments: &[&str], input: &str) -> (i32, String) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().expect("no signal"), String::from_utf8_lossy(&said).into_owned())
}

/// The real server on a free port of the loopback, scraping `url`; its data lies in a folder that goes with it.
struct Prometheus {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(of: &Server) -> Prometheus {
        let folder = tempfile::tempdir().expect("a folder");
        let target = of.url.strip_prefix("http://").expect("http");
        let config = json!({
            "global": {"scrape_interval": "100ms", "scrape_timeout": "100ms", "evaluation_interval": "100ms"},
            "rule_files": [path(RULES)],
            // A scrape may wait for a processor on a machine that does other things.
            "scrape_configs": [{"job_name": "forebay", "scrape_interval": "500ms", "scrape_timeout": "500ms", "static_configs": [{"targets": [target]}]}],
        });
        let file = folder.path().join("prometheus.yml");
        // JSON is YAML.
        std::fs::write(&file, config.to_string()).expect("written");
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={free}"))
            .arg("--log.level=error")
            .spawn()
            .expect("prometheus starts");
        Prometheus { child, url: format!("http://{free}"), _folder: folder }
    }

    async fn query(&self, expression: &str) -> Option<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        self.get(&format!("query?query={encoded}")).await
    }

    /// What its API says; `None` until it listens.
    async fn get(&self, path: &str) -> Option<Value> {
        reqwest::get(format!("{}/api/v1/{path}", self.url)).await.ok()?.json().await.ok()
    }

    /// Asks until `holds`; for what follows from a scrape, which nobody is told of.
    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        for _ in 0..3_000 {
            last = self.get(path).await;
            if let Some(answer) = last.as_ref().filter(|answer| holds(answer)) {
                return answer.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{path} never became so: {last:?}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The dashboard's queries with its variables filled in, and their panels.
fn dashboard() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path("deploy/grafana/forebay.json")).expect("a dashboard");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let variables: Vec<&str> =
        document["templating"]["list"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["model", "instance"]);
    let mut queries = Vec::new();
    for panel in document["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${DS_PROMETHEUS}", "{title}");
            let expression = target["expr"].as_str().expect("a query").replace("$__rate_interval", "1m");
            let filled = variables.iter().fold(expression, |text, name| text.replace(&format!("${name}"), ".*"));
            assert!(!filled.contains('$'), "{title}: {filled}");
            queries.push((title.to_owned(), filled));
        }
    }
    assert!(queries.len() > 40, "{} queries", queries.len());
    queries
}

/// Names of series in an expression: what is neither a function, nor a keyword, nor a label.
fn selected(expression: &str) -> BTreeSet<String> {
    // `sum by (x) (...)` calls, although its brackets come later.
    const WORDS: &[&str] = &["and", "or", "unless", "bool", "offset", "sum", "count", "avg", "max", "min"];
    const GROUPINGS: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];
    // Labels stand in braces and behind groupings, ranges in brackets.
    let mut bare = String::new();
    let mut depth = 0;
    for c in expression.chars() {
        depth += i32::from(matches!(c, '{' | '[')) - i32::from(matches!(c, '}' | ']'));
        bare.push(if depth > 0 || matches!(c, '}' | ']') { ' ' } else { c });
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut names = BTreeSet::new();
    let mut at = 0;
    while let Some(start) = bare[at..].find(is_name).map(|found| found + at) {
        let end = bare[start..].find(|c: char| !is_name(c)).map_or(bare.len(), |found| found + start);
        let (word, called) = (&bare[start..end], bare[end..].trim_start().starts_with('('));
        at = end;
        if GROUPINGS.contains(&word) {
            at += bare[end..].find(')').expect("labels in brackets");
        } else if !called && !WORDS.contains(&word) && !word.starts_with(|c: char| c.is_ascii_digit()) {
            names.insert(word.to_owned());
        }
    }
    names
}

/// One of each thing that is counted only when it happens.
async fn live_a_little(server: &Server) {
    let prompt = "It was a bright day, and the little dog went to the park to play with all of its friends.";
    for _ in 0..3 {
        let (status, _) = post(server.at("/v1/completions"), json!({"prompt": prompt, "max_tokens": 5})).await;
        assert_eq!(status, 200);
    }
    stream(server.at("/v1/completions"), json!({"prompt": "Once", "max_tokens": 4, "ignore_eos": true})).await;
    let (status, _) = post(server.at("/v1/completions"), json!({"prompt": "Once", "temperature": 9})).await;
    assert_eq!(status, 400);
}

/// The sum of all series of a name.
fn sum(text: &str, name: &str) -> f64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name).filter(|rest| rest.starts_with([' ', '{']))?;
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let values: Vec<f64> = text.lines().filter_map(value).collect();
    assert!(!values.is_empty(), "no {name} in\n{text}");
    values.iter().sum()
}

fn check_the_books(text: &str) {
    let of = |name: &str| sum(text, &format!("forebay_{name}"));
    let ended = of("sequences_finished_total") + of("sequences_cancelled_total") + of("sequences_failed_total");
    assert_eq!(of("sequences_admitted_total"), ended + of("sequences_live"), "{text}");
    let done = of("prompt_tokens_by_source_total") + of("prompt_tokens_abandoned_total");
    assert_eq!(of("prompt_tokens_total"), done + of("prompt_tokens_pending"), "{text}");
    assert_eq!(sum(text, "vllm:prompt_tokens_total"), of("prompt_tokens_by_source_total"));
}

async fn text(server: &Server) -> String {
    reqwest::get(server.at("/metrics")).await.expect("metrics").text().await.expect("text")
}

/// Every prompt token of those that completed was computed or found; of those that left, the rest is given up.
#[tokio::test]
async fn the_books_add_up_whatever_becomes_of_requests() {
    let small = [
        ("FOREBAY__ENGINE__MAX_NUM_BATCHED_TOKENS", "32"),
        ("FOREBAY__KV_CACHE__BLOCK_SIZE", "4"),
        ("FOREBAY__ENGINE__SPECULATIVE", "prompt_lookup"),
    ];
    let server = Server::start_in(&[], &small);
    let words = |n: usize| format!("{n} {}", "the dog and the cat went out to play ".repeat(1 + n % 7));
    let ask = |n: usize| {
        let url = server.at("/v1/completions");
        async move {
            let body = json!({"prompt": words(n / 2), "max_tokens": 3 + n % 9, "n": 1 + n % 2, "ignore_eos": true});
            post(url, body).await.0
        }
    };
    let statuses = futures_util::future::join_all((0..24).map(ask)).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    // All completed, so nothing was given up: the two ways of counting prompt tokens agree to the token.
    server.until_metric("forebay_sequences_live", 0.0).await;
    let all = text(&server).await;
    check_the_books(&all);
    assert_eq!(sum(&all, "forebay_prompt_tokens_total"), sum(&all, "forebay_prompt_tokens_by_source_total"));
    assert_eq!(sum(&all, "forebay_prompt_tokens_abandoned_total"), 0.0);
    assert!(sum(&all, "vllm:prompt_tokens_cached_total") > 0.0, "prompts came twice");
    // Clients that leave in the middle of a prompt, or before.
    for n in 0..8 {
        let body = json!({"prompt": words(100 + n).repeat(3), "max_tokens": 100, "ignore_eos": true, "stream": true});
        let request = reqwest::Client::new().post(server.at("/v1/completions")).json(&body).send();
        let answer = request.await.expect("an answer");
        assert_eq!(answer.status(), 200);
        drop(answer);
    }
    server.until_metric("request_latency_ms_count", 32.0).await;
    server.until_metric("forebay_sequences_live", 0.0).await;
    let all = text(&server).await;
    check_the_books(&all);
    assert_eq!(sum(&all, "forebay_sequences_cancelled_total"), 8.0);
    assert_eq!(sum(&all, "forebay_prompt_tokens_pending"), 0.0);
    assert_eq!(sum(&all, "requests_total"), 32.0);
}

/// One series per gauge, since endpoint pickers read one; and labels from sets that do not grow.
#[tokio::test]
async fn routers_find_one_series_of_each_gauge_and_labels_are_bounded() {
    let server = Server::start_in(&[], &[("FOREBAY__WORKERS__COUNT", "2")]);
    live_a_little(&server).await;
    let before = text(&server).await;
    for name in ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info"]
        .map(|name| format!("vllm:{name}"))
    {
        let series: Vec<&str> = before
            .lines()
            .filter(|line| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with([' ', '{'])))
            .collect();
        assert_eq!(series.len(), 1, "{series:?}");
        assert!(before.contains(&format!("# TYPE {name} gauge")));
    }
    let info = before.lines().find(|line| line.starts_with("vllm:cache_config_info{")).unwrap();
    assert!(info.contains("block_size=\"32\"") && info.contains("num_gpu_blocks=\""), "{info}");
    for n in 0..20 {
        let body = json!({"prompt": "a", "max_tokens": 1, "user": format!("user-{n}"), "model": format!("model-{n}")});
        post(server.at("/v1/completions"), body).await;
        let _ = reqwest::get(server.at(&format!("/path-{n}"))).await;
    }
    let names = |text: &str| {
        text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name.to_owned()).collect::<BTreeSet<_>>()
    };
    let (before, after) = (names(&before), names(&text(&server).await));
    let new: Vec<_> = after.difference(&before).filter(|line| !line.starts_with('#')).collect();
    assert!(new.iter().all(|line| line.starts_with("forebay_errors_total{")) && new.len() <= 2, "{new:?}");
}

/// Of this process and of those before it.
async fn history(server: &Server) -> Vec<Value> {
    let answer = reqwest::get(server.at("/metrics/json/history")).await.expect("an answer");
    let answer: Value = answer.json().await.expect("JSON");
    answer["data"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn the_history_begins_with_what_the_store_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("forebay.db").display());
    let variables = [("FOREBAY__STORE__URL", store.as_str()), ("FOREBAY__METRICS__SNAPSHOT_INTERVAL", "100ms")];
    let mut server = Server::start_in(&[], &variables);
    live_a_little(&server).await;
    // A sample is written before the next one is taken, so three that know of the requests are enough.
    let knows = |point: &&Value| point["requests_queued"].as_u64().is_some_and(|count| count == 4);
    let mut told = Vec::new();
    for _ in 0..3_000 {
        told = history(&server).await;
        if told.iter().filter(knows).count() >= 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(told.iter().filter(knows).count() >= 3, "{told:?}");
    server.kill();
    let server = Server::start_in(&[], &variables);
    let told = history(&server).await;
    assert!(told.iter().any(|point| knows(&point)), "{told:?}");
    assert!(told.windows(2).all(|pair| pair[0]["timestamp"].as_str() <= pair[1]["timestamp"].as_str()), "{told:?}");
    let now: Value = reqwest::get(server.at("/metrics/json")).await.unwrap().json().await.unwrap();
    assert_eq!((&now["requests_queued"], &now["strategy"]), (&json!(0), &json!("queue_depth")));
    assert_eq!(now["kv"]["free"], now["kv"]["blocks"]);
    assert!(now["kv"]["blocks"].as_f64().is_some_and(|blocks| blocks > 0.0), "{now}");
}

#[tokio::test]
async fn prometheus_reads_us_and_answers_every_query_that_we_ship() {
    if !tools() {
        return;
    }
    let (code, said) = promtool(&["check", "rules", path(RULES).to_str().unwrap()], "");
    assert_eq!(code, 0, "{said}");
    let (code, said) = promtool(&["test", "rules", path("deploy/prometheus/forebay.test.yml").to_str().unwrap()], "");
    assert_eq!(code, 0, "{said}");

    let server = Server::start_in(&[], &[("FOREBAY__METRICS__COMPAT", "vllm,llama-server")]);
    live_a_little(&server).await;
    let exported = text(&server).await;
    let (code, said) = promtool(&["check", "metrics"], &exported);
    // 3 is for taste; anything else is for what cannot be read.
    assert!(code == 0 || code == 3, "{said}");
    let ours = |line: &&str| !BORROWED.iter().any(|name| line.starts_with(name));
    let complaints: Vec<&str> = said.lines().filter(|line| !line.is_empty()).filter(ours).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");

    let prometheus = Prometheus::start(&server);
    let scraped = |answer: &Value| answer["data"]["activeTargets"][0]["health"] == "up";
    let targets = prometheus.until("targets", scraped).await;
    assert_eq!(targets["data"]["activeTargets"][0]["lastError"], "");
    // Two scrapes make a rate.
    let twice = |answer: &Value| {
        let value = &answer["data"]["result"][0]["value"][1];
        value.as_str().and_then(|text| text.parse::<f64>().ok()).is_some_and(|count| count >= 2.0)
    };
    prometheus.until("query?query=count_over_time(up[1m])", twice).await;
    let known = prometheus.get("label/__name__/values").await.expect("names");
    let known: BTreeSet<&str> = known["data"].as_array().unwrap().iter().filter_map(Value::as_str).collect();

    let evaluated = |answer: &Value| {
        let rules = rules(answer);
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
    };
    let answer = prometheus.until("rules", evaluated).await;
    let alerts: Vec<(String, String)> = rules(&answer)
        .into_iter()
        .map(|rule| (rule["name"].as_str().unwrap().to_owned(), rule["query"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(alerts.len(), 14);
    for rule in rules(&answer) {
        let broken = rule["name"].as_str().unwrap().contains("NotConserved");
        assert!(!broken || rule["state"] == "inactive", "{rule}");
    }
    for (title, query) in dashboard().into_iter().chain(alerts) {
        let answer = prometheus.query(&query).await.expect("an answer");
        assert_eq!(answer["status"], "success", "{title}: {query}: {answer}");
        let names = selected(&query);
        assert!(!names.is_empty(), "{title}: {query}");
        for name in names {
            // Nothing restarted here, and no breaker changed, but these are there from the beginning.
            assert!(known.contains(name.as_str()), "{title}: nobody exports {name}: {query}");
        }
    }
}

fn rules(answer: &Value) -> Vec<&Value> {
    let groups = answer["data"]["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()).collect()
}

#[test]
fn names_of_series_are_found_in_expressions() {
    for (expression, names) in [
        ("sum by (le) (rate(a_bucket{x=\"{y}\"}[5m]))", vec!["a_bucket"]),
        ("abs(a - sum without (b) (c) - d:e) > 0.05", vec!["a", "c", "d:e"]),
        ("a / ignoring (b) group_left () sum(c) and d == 2", vec!["a", "c", "d"]),
        ("count by (model) (up) > 1e3", vec!["up"]),
        ("sum without(b) (c{d=\"e\"}) / on(f) group_left() g", vec!["c", "g"]),
    ] {
        assert_eq!(selected(expression), names.into_iter().map(str::to_owned).collect(), "{expression}");
    }
}
