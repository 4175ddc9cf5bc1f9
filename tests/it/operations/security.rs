//! Attacks that once worked, over the real binary; docs/security.md says what is promised.

use serde_json::{Value, json};

use crate::support::server::{Server, post};

/// The status of a request that is written as it stands: a client library would clean its path up.
async fn raw_post(server: &Server, path: &str) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = server.url.strip_prefix("http://").expect("no TLS").to_owned();
    let mut stream = tokio::net::TcpStream::connect(&address).await.expect("a server");
    let head = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    stream
        .write_all(format!("{head}content-length: 2\r\nconnection: close\r\n\r\n{{}}").as_bytes())
        .await
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

/// What a router makes of a path must be what its upstream makes of it: `/v1/../admin` led to the upstream's `/admin`.
#[tokio::test]
async fn a_router_hands_out_no_admin_of_its_upstreams() {
    let upstream = Server::start(&[]);
    let router = Server::start_in(&["--upstreams", &upstream.url], &[("FOREBAY__HEALTH__CHECK_INTERVAL", "50ms")]);
    router.until_metric(r#"forebay_worker_status{status="idle",worker="upstream-0"}"#, 1.0).await;
    for path in [
        "/v1/../admin/pause",
        "/v1/%2e%2e/admin/pause",
        "/v1/.%2e/admin/pause",
        "/v1/..%5cadmin/pause",
        "/v1/completions/../../admin/pause",
        "/completions/../admin/pause",
    ] {
        assert_eq!(raw_post(&router, path).await, 404, "{path}");
    }
    let state: Value = reqwest::get(upstream.at("/admin/state")).await.expect("a state").json().await.expect("JSON");
    assert_eq!(state["paused"], false, "{state}");
    assert_eq!(post(router.at("/v1/completions"), json!({"prompt": "x", "max_tokens": 2})).await.0, 200);
}

/// What a page gets whose name was made to resolve to this machine: nothing, on any route, whatever it calls itself.
#[tokio::test]
async fn a_page_of_another_name_reaches_nothing() {
    let server = Server::start(&["--hosts", "llm.example.org"]);
    let client = reqwest::Client::new();
    let ask = |path: &str, host: &str| {
        let request = client.get(server.at(path)).header("host", host).header("origin", format!("http://{host}"));
        async move { request.send().await.expect("an answer").status().as_u16() }
    };
    for path in [
        "/v1/models",
        "/models",
        "/admin/state",
        "/metrics",
        "/metrics/json",
        "/health",
        "/dashboard",
        "/docs",
        "/v1/files",
    ] {
        for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "forebay"]
        {
            assert_eq!(ask(path, host).await, 421, "{path} as {host}");
        }
        for host in ["127.0.0.1", "localhost:8080", "[::1]", "llm.example.org"] {
            assert_ne!(ask(path, host).await, 421, "{path} as {host}");
        }
    }
    let answer = client.post(server.at("/v1/completions")).header("host", "evil.example").json(&json!({"prompt": "x"}));
    let answer: Value = answer.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(answer["error"]["code"], "misdirected_request");
}
