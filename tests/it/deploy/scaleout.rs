//! Replicas of the real binary behind real balancers: `tests/scaleout` starts them, loads them, kills, drains and replaces them.
//! HAProxy with the configuration that is shipped, and vllm-router, which reads our KV events.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Python with the packages of the scripts, and beside it vllm-router. `.ci/run` and `make test` install both.
fn python() -> Option<PathBuf> {
    let python = std::env::var_os("FOREBAY_TEST_PYTHON").map(PathBuf::from);
    if python.is_none() {
        println!("skipped: FOREBAY_TEST_PYTHON is not set; run it with `make test`");
    }
    python
}

fn run(script: &str, argument: &Path) {
    let Some(python) = python() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scaleout").join(script);
    let output = Command::new(python).arg(path).arg(env!("CARGO_BIN_EXE_forebay")).arg(argument).output();
    let output = output.expect("Python runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}\n{}\n{}", said(&output.stdout), said(&output.stderr));
}

fn run_router(script: &str) {
    let Some(python) = python() else { return };
    // Who names a Python has made it for these tests: a skip would hide what is broken.
    let router = python.with_file_name("vllm-router");
    assert!(router.exists(), "vllm-router is not beside FOREBAY_TEST_PYTHON; `make venv` installs it");
    run(script, &router);
}

/// HAProxy is a package of the system: where it is missing the test is skipped, unless CI says that it has installed it.
#[test]
fn no_request_is_lost_behind_haproxy() {
    if Command::new("haproxy").arg("-v").output().is_err() {
        assert!(std::env::var_os("FOREBAY_TEST_HAPROXY").is_none(), "there is no haproxy; .ci/run installs it");
        println!("skipped: there is no haproxy");
        return;
    }
    run("haproxy.py", &Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/haproxy/haproxy.cfg"));
}

#[test]
fn no_request_is_lost_behind_vllm_router_and_prefixes_find_their_cache() {
    run_router("router.py");
}

#[cfg(feature = "kv-events")]
#[test]
fn vllm_router_credits_what_our_kv_events_told() {
    run_router("kv_aware.py");
}

/// Manifests, chart and configurations of `deploy/`: parsed, checked against Kubernetes' schemas, against each other and against
/// this binary. No cluster has seen them.
#[test]
#[cfg(feature = "kv-events")]
fn what_is_shipped_for_deployment_fits_together() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(python) = python() else { return };
    let script = root.join("tests/deploy/check.py");
    let output = Command::new(python).arg(script).arg(env!("CARGO_BIN_EXE_forebay")).arg(root.join("deploy")).output();
    let output = output.expect("Python runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", said(&output.stdout), said(&output.stderr));
    println!("{}", said(&output.stdout));
}
