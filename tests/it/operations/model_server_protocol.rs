//! What routers count on (Gateway API Inference Extension's model server protocol, llm-d Router): names, types and one series per
//! gauge, values that follow the load, probes that answer while every core computes, a drain in its order, and tokens that are those
//! of the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Client;
use serde_json::{Value, json};

use crate::support::server::{Server, frames, post};

const RUNNING: &str = "vllm:num_requests_running";
const WAITING: &str = "vllm:num_requests_waiting";
const USAGE: &str = "vllm:kv_cache_usage_perc";

/// A scrape: each name's type, and its series as they are written.
struct Scrape {
    types: BTreeMap<String, String>,
    series: Vec<(String, f64)>,
}

impl Scrape {
    async fn of(server: &Server) -> Scrape {
        // No key, on the port that serves.
        let answer = reqwest::get(server.at("/metrics")).await.expect("metrics");
        assert_eq!(answer.status(), 200);
        let kind = answer.headers()["content-type"].to_str().expect("text").to_owned();
        assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
        let text = answer.text().await.expect("text");
        let typed =
            |line: &str| line.strip_prefix("# TYPE ")?.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ').expect("a series and its value");
            (series.to_owned(), value.parse().expect("a number"))
        };
        Scrape {
            types: text.lines().filter_map(typed).collect(),
            series: text.lines().filter(|line| !line.starts_with('#')).map(value).collect(),
        }
    }

    /// The series of a gauge, of which there must be one: a router that finds two takes either.
    fn gauge(&self, name: &str) -> (&str, f64) {
        assert_eq!(self.types.get(name).map(String::as_str), Some("gauge"), "{name}");
        let own = |series: &&(String, f64)| {
            series.0.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        };
        let found: Vec<_> = self.series.iter().filter(own).collect();
        assert_eq!(found.len(), 1, "{name} has {found:?}");
        (&found[0].0, found[0].1)
    }

    fn value(&self, name: &str) -> f64 {
        self.gauge(name).1
    }
}

/// Sequences that take long: a few hundred tokens each.
fn long(n: usize) -> Value {
    json!({"prompt": format!("Once upon a time {n} foxes"), "max_tokens": 300, "ignore_eos": true, "stream": true})
}

async fn begin(server: &Server, n: usize) -> reqwest::Response {
    let answer = Client::new().post(server.at("/v1/completions")).json(&long(n)).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer
}

#[tokio::test]
async fn each_gauge_is_one_series_of_its_type_and_follows_the_load() {
    // Streams say 200 before they have a seat.
    let hold = [("FOREBAY__SERVER__STREAM_HOLD", "0s")];
    let server = Server::start_in(&["--max-num-seqs", "2", "--max-model-len", "512", "--threads", "1"], &hold);
    let idle = Scrape::of(&server).await;
    assert_eq!([RUNNING, WAITING, USAGE].map(|name| idle.value(name)), [0.0; 3]);
    let (config, one) = idle.gauge("vllm:cache_config_info");
    assert_eq!(one, 1.0);
    let label = |name: &str| -> f64 {
        let rest = config.split_once(&format!("{name}=\"")).unwrap_or_else(|| panic!("no {name} in {config}")).1;
        rest.split('"').next().expect("a value").parse().expect("a number")
    };
    assert_eq!(label("block_size"), 32.0);
    // Two sequences of 512 tokens.
    assert_eq!(label("num_gpu_blocks"), 32.0);
    let mut answers = Vec::new();
    for n in 0..6 {
        answers.push(begin(&server, n).await);
    }
    server.until_metric(RUNNING, 2.0).await;
    let loaded = Scrape::of(&server).await;
    // All classes together, in one series.
    assert_eq!(loaded.value(WAITING), 4.0, "four of six wait for a seat");
    let usage = loaded.value(USAGE);
    assert!(usage > 0.0 && usage <= 1.0, "a part of one, no percentage: {usage}");
    drop(answers);
    server.until_metric(RUNNING, 0.0).await;
    server.until_metric(WAITING, 0.0).await;
    server.until_metric(USAGE, 0.0).await;
}

/// Probes have a second (KServe), scrapes come every 50 ms (llm-d): neither waits for a step. How fast they are is for
/// `benches/scrape.py`; here it is that they answer at all, in the middle of one and the same load.
#[tokio::test]
async fn probes_and_scrapes_answer_while_every_core_computes() {
    let server = Server::start(&[]);
    let mut load = Vec::new();
    for n in 0..16 {
        load.push(begin(&server, n).await);
    }
    let client = Client::builder().timeout(Duration::from_secs(60)).build().expect("a client");
    for _ in 0..20 {
        for path in ["/health", "/health/live", "/health/ready", "/ready", "/ping", "/metrics"] {
            let answer = client.get(server.at(path)).send().await.expect("an answer");
            assert_eq!(answer.status(), 200, "{path}");
        }
    }
    assert!(Scrape::of(&server).await.value(RUNNING) > 0.0, "the load was still there");
}

#[tokio::test]
async fn a_drain_takes_traffic_away_first_and_lets_streams_end() {
    let mut server = Server::start(&["--threads", "1"]);
    let mut stream = begin(&server, 1).await.bytes_stream();
    let first = stream.next().await.expect("a chunk").expect("bytes");
    server.terminate();
    // Readiness fails while the port still answers: that is how a balancer hears of it.
    let client = Client::new();
    for _ in 0..3_000 {
        let answer =
            client.get(server.at("/health/ready")).send().await.expect("the port answers until streams have ended");
        if answer.status() == 503 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(client.get(server.at("/health")).send().await.expect("an answer").status(), 503);
    assert_eq!(client.get(server.at("/health/live")).send().await.expect("an answer").status(), 200, "it lives");
    assert_eq!(client.get(server.at("/metrics")).send().await.expect("an answer").status(), 200);
    let late = client.post(server.at("/v1/completions")).json(&json!({"prompt": "x"})).send().await.expect("an answer");
    assert_eq!(late.status(), 503, "a balancer sends it elsewhere");
    assert_eq!(late.json::<Value>().await.expect("JSON")["error"]["code"], "shutting_down");
    let mut text = first.to_vec();
    while let Some(chunk) = stream.next().await {
        text.extend(chunk.expect("the stream is not cut"));
    }
    let events = frames(&String::from_utf8(text).expect("text"));
    assert_eq!(events.last().expect("events")["choices"][0]["finish_reason"], "length", "all of it came");
    assert!(server.wait().success());
}

#[tokio::test]
async fn rendered_tokens_are_those_that_the_engine_reads() {
    let server = Server::start(&[]);
    let read = |answer: &Value| -> Vec<u64> {
        answer.as_array().expect("tokens").iter().map(|token| token.as_u64().expect("a token")).collect()
    };
    let chat = json!({"messages": [{"role": "system", "content": "You tell stories."},
        {"role": "user", "content": "Of a föx 🦊."}], "max_tokens": 6, "temperature": 0, "return_token_ids": true});
    let (status, rendered) = post(server.at("/v1/chat/completions/render"), chat.clone()).await;
    assert_eq!(status, 200, "{rendered}");
    let (_, said) = post(server.at("/v1/chat/completions"), chat).await;
    let tokens = read(&rendered["token_ids"]);
    assert_eq!(said["usage"]["prompt_tokens"], tokens.len());
    // Asked for by their tokens, they are the same prompt: the same answer, found in the cache.
    let by_tokens = json!({"prompt": tokens, "max_tokens": 6, "temperature": 0, "return_token_ids": true});
    let (_, again) = post(server.at("/v1/completions"), by_tokens).await;
    assert_eq!(again["choices"][0]["token_ids"], said["choices"][0]["token_ids"]);
    assert_eq!(read(&again["choices"][0]["prompt_token_ids"]), tokens);
    let prompts =
        json!({"prompt": ["Once upon a time", [5, 6, 7]], "max_tokens": 4, "temperature": 0, "return_token_ids": true});
    let (status, rendered) = post(server.at("/v1/completions/render"), prompts.clone()).await;
    assert_eq!(status, 200, "{rendered}");
    let (_, said) = post(server.at("/v1/completions"), prompts).await;
    for (index, one) in rendered.as_array().expect("a list").iter().enumerate() {
        assert_eq!(one["token_ids"], said["choices"][index]["prompt_token_ids"], "prompt {index}");
    }
    assert_eq!(rendered[1]["token_ids"], json!([5, 6, 7]));
    let (status, answer) = post(server.at("/v1/completions/render"), json!({"prompt": "x", "temperature": 9})).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("temperature")), "checked as a completion is");
}

#[tokio::test]
async fn a_model_has_its_names_its_context_and_its_parent() {
    let server = Server::start(&["--served-model-name", "tale,storyteller-2", "--max-model-len", "256"]);
    let models: Value = reqwest::get(server.at("/v1/models")).await.expect("models").json().await.expect("JSON");
    let told: Vec<_> = models["data"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|model| json!([model["id"], model["object"], model["root"], model["parent"], model["max_model_len"]]))
        .collect();
    assert_eq!(
        told,
        [json!(["tale", "model", "tale", null, 256]), json!(["storyteller-2", "model", "tale", null, 256]),]
    );
    for name in ["tale", "storyteller-2"] {
        let (status, answer) =
            post(server.at("/v1/completions"), json!({"model": name, "prompt": "x", "max_tokens": 1})).await;
        assert_eq!(
            (status, &answer["model"]),
            (200, &json!("tale")),
            "one name in answers, so that usage is counted once"
        );
    }
}

#[tokio::test]
async fn a_gateway_speaks_for_others_only_where_it_is_trusted() {
    let headers = [
        ("x-llm-d-inference-fairness-id", "acme"),
        ("x-llm-d-inference-objective", "chat"),
        ("x-llm-d-slo-ttft-ms", "600000"),
        ("x-llm-d-slo-tpot-ms", "1000.5"),
    ];
    let ask = |server: &Server, strict: bool| {
        let url = server.at(if strict { "/v1/completions?strict=1" } else { "/v1/completions" });
        let body = json!({"prompt": "Once upon a time", "max_tokens": 3, "user": "somebody", "priority": "low"});
        let request =
            headers.iter().fold(Client::new().post(url), |request, (name, value)| request.header(*name, *value));
        async move { request.json(&body).send().await.expect("an answer") }
    };
    let queued = |server: &Server| {
        let url = server.at("/admin/requests");
        async move {
            let all: Value = reqwest::get(url).await.expect("an answer").json().await.expect("JSON");
            all.to_string()
        }
    };
    let objectives = [("FOREBAY__SERVER__OBJECTIVES", "chat=high")];
    let trusting = Server::start_in(&[], &objectives);
    Client::new().post(trusting.at("/admin/pause")).send().await.expect("an answer");
    let (held, seen) = tokio::join!(ask(&trusting, false), async {
        trusting.until_metric(WAITING, 1.0).await;
        let seen = queued(&trusting).await;
        Client::new().post(trusting.at("/admin/resume")).send().await.expect("an answer");
        seen
    });
    assert!(seen.contains(r#""tenant":"acme""#) && seen.contains(r#""priority":"high""#), "{seen}");
    assert_eq!(held.status(), 200);
    assert!(!held.headers().contains_key("x-ignored-params"), "{:?}", held.headers());
    assert_eq!(ask(&trusting, true).await.status(), 200);
    let wary = Server::start_in(&["--trusted-proxies", "10.0.0.0/8"], &objectives);
    Client::new().post(wary.at("/admin/pause")).send().await.expect("an answer");
    let (held, seen) = tokio::join!(ask(&wary, false), async {
        wary.until_metric(WAITING, 1.0).await;
        let seen = queued(&wary).await;
        Client::new().post(wary.at("/admin/resume")).send().await.expect("an answer");
        seen
    });
    assert!(seen.contains(r#""tenant":"somebody""#) && seen.contains(r#""priority":"low""#), "{seen}");
    let ignored = held.headers()["x-ignored-params"].to_str().expect("text").to_owned();
    assert_eq!(ignored, headers.map(|(name, _)| name).join(","));
    let refused = ask(&wary, true).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(refused.json::<Value>().await.expect("JSON")["error"]["param"], headers[0].0);
}

#[tokio::test]
async fn a_gateways_words_are_checked() {
    let server = Server::start(&[]);
    let ask = |name: &'static str, value: &'static str| {
        let body = json!({"prompt": "Once upon a time", "max_tokens": 3});
        let request = Client::new().post(server.at("/v1/completions")).header(name, value).json(&body);
        async move { request.send().await.expect("an answer") }
    };
    let ignored = ask("x-llm-d-inference-objective", "unheard-of").await;
    assert_eq!(
        (ignored.status(), &ignored.headers()["x-ignored-params"]),
        (reqwest::StatusCode::OK, &"x-llm-d-inference-objective".parse().expect("a value"))
    );
    for bad in ["soon", "-1", "NaN"] {
        let refused = ask("x-llm-d-slo-ttft-ms", bad).await;
        assert_eq!(refused.status(), 400, "{bad}");
        assert_eq!(refused.json::<Value>().await.expect("JSON")["error"]["param"], "x-llm-d-slo-ttft-ms");
    }
    // Half a promise is none.
    assert_eq!(ask("x-llm-d-slo-tpot-ms", "1").await.headers()["x-ignored-params"], "x-llm-d-slo-tpot-ms");
}
