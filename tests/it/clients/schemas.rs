//! Structured output, judged by Python's jsonschema.

use std::fmt::Write;
use std::process::Command;

use forebay_core::constraint::ConstraintState;
use forebay_core::units::TokenId;
use forebay_text::grammar::{GrammarSpec, Matcher};
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::{Value, json};

use crate::http::structured::Words;
use crate::support::schemas;
use crate::support::server::{Server, post};

/// How many tokens of an answer had an alternative, by the grammar of its schema.
fn choices(words: &Words, schema: &str, tokens: &[TokenId]) -> usize {
    let mut matcher = Matcher::new(&words.grammar(&GrammarSpec::json(schema)));
    let choice = |&token: &TokenId| {
        let mask = matcher.allowed().expect("a mask");
        assert!(mask.allows(token), "{schema}: {token}");
        let choice = mask.is_choice();
        matcher.advance(token).expect("allowed");
        choice
    };
    tokens.iter().map(choice).filter(|choice| *choice).count()
}

/// The issue's own measure: 200 schemas, temperature 1, every answer that was not cut is valid; in at least 50 more than 30
/// tokens were choices.
#[tokio::test]
async fn two_hundred_schemas_hold() {
    let server = Server::start(&[]);
    let ask = async |seed: u64| {
        let schema = schemas::schema(seed);
        let body = json!({
            "messages": [{"role": "user", "content": "Tell me about a fox."}], "max_tokens": 700, "temperature": 1, "seed": seed,
            "return_token_ids": true,
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": schema}},
        });
        let (status, answer) = post(server.at("/v1/chat/completions"), body).await;
        assert_eq!(status, 200, "{schema}: {answer}");
        (schema, answer["choices"][0].clone())
    };
    let answers: Vec<(Value, Value)> = stream::iter(0..200).map(ask).buffer_unordered(16).collect().await;
    let words = Words::load();
    let mut lines = String::new();
    let (mut many, mut cut, mut chosen) = (0, 0, 0);
    for (schema, choice) in &answers {
        let tokens: Vec<TokenId> = serde_json::from_value(choice["token_ids"].clone()).expect("ids");
        let choices = choices(&words, &schema.to_string(), &tokens);
        chosen += choices;
        many += usize::from(choices > 30);
        match choice["finish_reason"].as_str() {
            Some("stop") => {
                writeln!(lines, "{}", json!({"schema": schema, "text": choice["message"]["content"]})).expect("text")
            }
            Some("length") => cut += 1,
            other => panic!("{other:?}"),
        }
    }
    println!("{many} with more than 30 choices, {cut} cut by max_tokens");
    assert!(many >= 50, "only {many} of 200 left more than 30 choices");
    assert!(cut <= 50, "{cut} of 200 were cut");
    assert_eq!(server.metric("forebay_grammar_tokens_total{kind=\"choice\"}").await, chosen as f64);
    let Ok(python) = std::env::var("FOREBAY_TEST_PYTHON") else {
        println!("not validated: FOREBAY_TEST_PYTHON is not set; run it with `make test`");
        return;
    };
    let find = "import importlib.util as u; assert u.find_spec('jsonschema')";
    let there = Command::new(&python).args(["-c", find]).output().expect("python runs").status.success();
    assert!(there, "jsonschema is not installed in FOREBAY_TEST_PYTHON; `make venv` installs it");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), lines).expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/validate_schemas.py");
    let output = Command::new(python).arg(script).arg(file.path()).output().expect("it runs");
    let [printed, failed] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{printed}\n{failed}");
}
