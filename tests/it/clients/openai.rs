//! Clients as their users write them (`tests/clients`) against the real binary. `make test` installs the packages and names
//! where they are.

use std::path::Path;
use std::process::Command;

use crate::support::parrot::caller;
use crate::support::server::Server;

/// Runs `interpreter tests/clients/SCRIPT URL`; what it prints is the message of a failure.
fn run(server: &Server, interpreter: &str, script: &str, variables: &[(&str, &str)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let mut command = Command::new(interpreter);
    let output = command.arg(path).arg(&server.url).envs(variables.iter().copied()).output().expect("it runs");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}\n{}\n{}", said(&output.stdout), said(&output.stderr));
}

fn python(script: &str, package: &str) {
    python_against(|| Server::start(&[]), script, package);
}

fn python_against(server: impl FnOnce() -> Server, script: &str, package: &str) {
    let Ok(python) = std::env::var("FOREBAY_TEST_PYTHON") else {
        println!("skipped: FOREBAY_TEST_PYTHON is not set; run it with `make test`");
        return;
    };
    let find = format!("import importlib.util as u; assert u.find_spec('{package}')");
    let there = Command::new(&python).args(["-c", &find]).output().expect("python runs").status.success();
    // Who names a Python has made it for these tests (`make venv`): a skip would hide what is broken.
    assert!(there, "{package} is not installed in FOREBAY_TEST_PYTHON; `make venv` installs it");
    run(&server(), &python, script, &[]);
}

#[test]
fn the_official_python_package_works_unmodified() {
    python("openai_sync.py", "openai");
}

#[test]
fn the_official_python_package_passes_tools() {
    let folder = caller();
    python_against(|| Server::parrot(&folder, &[]), "openai_tools.py", "openai");
}

#[test]
fn the_official_python_package_parses_structured_output() {
    python("openai_structured.py", "openai");
}

#[test]
fn the_official_python_package_embeds() {
    python("openai_embeddings.py", "openai");
}

#[test]
fn the_official_python_package_gets_responses() {
    python("openai_responses.py", "openai");
}

#[test]
fn the_official_python_package_gets_calls_in_responses() {
    let folder = caller();
    python_against(|| Server::parrot(&folder, &[]), "openai_responses_tools.py", "openai");
}

#[test]
fn the_anthropic_package_works_unmodified() {
    python("anthropic_messages.py", "anthropic");
}

#[test]
fn the_anthropic_package_gets_calls_and_thoughts() {
    let folder = caller();
    python_against(|| Server::parrot(&folder, &[]), "anthropic_tools.py", "anthropic");
}

#[test]
fn the_official_python_package_works_asynchronously() {
    python("openai_async.py", "openai");
}

#[test]
fn the_official_python_package_runs_batches() {
    python("openai_batches.py", "openai");
}

#[test]
fn langchain_works_unmodified() {
    python("langchain_chat.py", "langchain_openai");
}

#[test]
fn litellm_works_unmodified() {
    python("litellm_chat.py", "litellm");
}

/// Needs no package but Python's own.
#[test]
fn evaluation_harnesses_get_their_loglikelihoods() {
    python("lm_eval.py", "json");
}

#[test]
fn the_official_node_package_works_unmodified() {
    let Ok(modules) = std::env::var("FOREBAY_TEST_NODE_MODULES") else {
        println!("skipped: FOREBAY_TEST_NODE_MODULES is not set; run it with `make test`");
        return;
    };
    run(&Server::start(&[]), "node", "openai_node.cjs", &[("NODE_PATH", &modules)]);
}
