//! `forebay doctor`: each thing that would keep a server from running is found, with what to do about it.

use std::net::TcpListener;
use std::process::Command;

use serde_json::Value;

use crate::support::server::Server;

fn doctor(args: &[&str], store: &str) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_forebay")).arg("doctor").args(args).env("FOREBAY__STORE__URL", store).output();
    let output = output.expect("the binary starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn asked(args: &[&str], store: &str) -> (Option<i32>, Value) {
    let (code, said) = doctor(&[&["--json"], args].concat(), store);
    (code, serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}")))
}

fn check<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let mut checks = answer["checks"].as_array().expect("checks").iter();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {answer:#}"))
}

/// Only this is broken, and there is advice.
fn broken(args: &[&str], store: &str, name: &str) -> String {
    let (code, answer) = asked(args, store);
    assert_eq!((code, &answer["status"]), (Some(1), &"broken".into()), "{answer:#}");
    for check in answer["checks"].as_array().expect("checks") {
        assert_eq!(check["status"] == "broken", check["name"] == name, "{answer:#}");
    }
    let found = check(&answer, name);
    assert!(found["advice"].as_str().is_some_and(|advice| !advice.is_empty()), "{found}");
    found["found"].as_str().expect("text").to_owned()
}

#[test]
fn where_nothing_is_broken_the_code_is_0_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("sqlite:{}", folder.path().join("forebay.db").display());
    let (code, answer) = asked(&["--port", "0"], &store);
    assert_eq!(code, Some(0), "{answer:#}");
    for name in ["config", "port", "store", "simd", "device", "threads", "memory", "files", "model"] {
        assert_ne!(check(&answer, name)["status"], "broken", "{answer:#}");
    }
    assert!(std::fs::read_dir(folder.path()).expect("a folder").next().is_none(), "it only looks");
    let (code, table) = doctor(&["--port", "0"], &store);
    assert_eq!(code, Some(0), "{table}");
    assert!(table.contains("simd") && table.contains("storyteller"), "{table}");
}

#[test]
fn a_port_that_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    assert!(broken(&["--port", &port], "memory", "port").contains(&port));
}

#[test]
fn a_store_that_cannot_be_used() {
    assert!(broken(&["--port", "0"], "sqlite:/nowhere/at/all.db", "store").contains("/nowhere/at"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("garbage.db");
    std::fs::write(&path, "no database, and long enough to be looked at ".repeat(200)).expect("written");
    broken(&["--port", "0"], &format!("sqlite:{}", path.display()), "store");
    // Nobody listens there.
    let url = "postgres://user:hidden@127.0.0.1:9/forebay";
    let found = broken(&["--port", "0"], url, "store");
    assert!(found.contains("127.0.0.1") && !found.contains("hidden"), "{found}");
}

#[test]
fn a_model_that_is_not_there_or_is_none() {
    assert!(broken(&["--port", "0", "--model", "./no/such.gguf"], "memory", "model").contains("no/such.gguf"));
    assert!(broken(&["--port", "0", "--model", "./no/such/folder"], "memory", "model").contains("no/such/folder"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("config.json"), "{ nonsense").expect("written");
    let path = folder.path().to_str().expect("utf-8");
    assert!(broken(&["--port", "0", "--model", path], "memory", "model").contains("config.json"));
}

#[test]
fn a_configuration_that_is_wrong_and_a_device_that_is_not_there() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").expect("a file");
    std::fs::write(file.path(), "server:\n  prot: 1\n").expect("written");
    let (code, answer) = asked(&["--config", file.path().to_str().expect("utf-8")], "memory");
    assert_eq!(code, Some(1), "{answer:#}");
    let config = check(&answer, "config");
    assert!(
        config["found"].as_str().is_some_and(|found| found.contains("server.prot") && found.contains(":2:3")),
        "{config}"
    );
    let (code, table) = doctor(&["--port", "0", "--device", "cuda:99"], "memory");
    assert_eq!(code, Some(1), "{table}");
    assert!(table.contains("broken   device") && table.contains("→"), "{table}");
}

/// It once said what free memory could hold, 4,674,082 tokens where the server took 65,536.
#[tokio::test]
async fn the_kv_cache_that_is_foretold_is_the_one_that_a_server_takes() {
    let all: [&[&str]; 4] = [
        &[],
        &["--workers", "2", "--max-num-seqs", "5", "--block-size", "48"],
        &["--max-model-len", "100", "--max-num-seqs", "7", "--kv-dtype", "f32"],
        &["--kv-memory", "0.002"],
    ];
    for args in all {
        let (code, answer) = asked(&[&["--port", "0"], args].concat(), "memory");
        assert_eq!(code, Some(0), "{answer:#}");
        let found = check(&answer, "model")["found"].as_str().expect("text").to_owned();
        let server = Server::start(args);
        let loaded = server.until_logged("model_loaded", 1).await;
        let tokens = loaded[0]["kv_tokens"].as_u64().expect("a number");
        assert!(found.ends_with(&format!("a KV cache of {tokens} tokens")), "{found}; {loaded:?}");
    }
}
