//! Other servers over TLS: a router before an upstream, and the load generator.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::server::{Server, post};

/// A server that speaks TLS with a certificate of its own, and where that certificate lies.
fn behind_tls() -> (Server, TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let server = Server::start(&["--model", "sim", "--tls-cert", &cert, "--tls-key", &key]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    (server, folder, cert)
}

fn body() -> Value {
    json!({"model": "default", "prompt": "Once", "max_tokens": 3, "ignore_eos": true})
}

#[tokio::test]
async fn a_router_asks_an_upstream_whose_certificate_is_trusted() {
    let (upstream, _folder, cert) = behind_tls();
    let router = |variables: &[(&str, &str)]| Server::start_in(&["--upstreams", &upstream.url], variables);
    let trusting = router(&[("SSL_CERT_FILE", cert.as_str())]);
    trusting.until_metric(r#"forebay_worker_status{status="idle",worker="upstream-0"}"#, 1.0).await;
    let (status, answer) = post(trusting.at("/v1/completions"), body()).await;
    assert_eq!((status, &answer["usage"]["completion_tokens"]), (200, &json!(3)), "{answer}");
    let wary = router(&[]);
    let (status, answer) = post(wary.at("/v1/completions"), body()).await;
    assert_eq!(status, 503, "nobody vouches for the certificate: {answer}");
}

#[test]
fn the_load_generator_asks_over_tls() {
    let (server, _folder, cert) = behind_tls();
    let bench = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["bench", "--url", &server.url, "--concurrency", "2", "--num-prompts", "4", "--json"]);
        command.envs(variables.iter().copied()).output().expect("it runs")
    };
    let done = bench(&[("SSL_CERT_FILE", cert.as_str())]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((&report["completed"], &report["failed"]), (&json!(4), &json!(0)), "{report}");
    assert!(!bench(&[]).status.success(), "nobody vouches for the certificate");
}
