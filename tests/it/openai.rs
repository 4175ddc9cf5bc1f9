//! The official `openai` Python package against the real binary.

use std::process::Command;

use crate::server::Server;

/// `make test` makes a virtual environment with the package and names its interpreter.
#[test]
fn the_official_python_package_works_unmodified() {
    let Ok(python) = std::env::var("FOREBAY_TEST_PYTHON") else {
        println!("skipped: FOREBAY_TEST_PYTHON is not set; run it with `make test`");
        return;
    };
    let server = Server::start(&[]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openai_client.py");
    let output = Command::new(python).arg(script).arg(&server.url).output().expect("python runs");
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
