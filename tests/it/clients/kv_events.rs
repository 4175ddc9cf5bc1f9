//! What routers are told of the prefix cache, heard in Python by `tests/clients/kv_events.py`, which knows libzmq and nothing of us.

use crate::operations::kv_events::{endpoint, start};

#[test]
fn a_python_client_reads_them() {
    let Ok(python) = std::env::var("FOREBAY_TEST_PYTHON") else {
        println!("skipped: FOREBAY_TEST_PYTHON is not set; run it with `make test`");
        return;
    };
    let server = start(&["--kv-events-topic", "kv@127.0.0.1@storyteller"]);
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/kv_events.py");
    let endpoint = |name: &str| endpoint(&server, name);
    let output = std::process::Command::new(python)
        .arg(script)
        .args([&server.url, &endpoint("endpoint"), &endpoint("replay"), "kv@127.0.0.1@storyteller"])
        .output()
        .expect("Python runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", said(&output.stdout), said(&output.stderr));
}
