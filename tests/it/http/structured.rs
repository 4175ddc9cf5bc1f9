//! Structured output: what comes is what was asked for, and nothing else about a request changes.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_core::constraint::{ConstraintState, Progress};
use forebay_core::request::{Event, FinishReason, Guided, Limits, Parameters, Request, RequestError};
use forebay_core::scheduler::Speculative;
use forebay_core::step::{Outcome, Sampled, StepBatch, StepOutput};
use forebay_core::units::{SeqId, TokenId};
use forebay_model::{LoadOptions, Source, TokenizerSource};
use forebay_text::Tokenizer;
use forebay_text::grammar::{Grammar, GrammarSpec, Limits as GrammarLimits, Matcher, Vocabulary};
use forebay_turn::executor::{ExecuteError, Executor};
use serde_json::{Value, json};

use crate::support::rig::{self, Rig, Setup};
use crate::support::schemas;
use crate::support::server::{Server, frames, post};

/// Behind twenty digits there are too many ways to go on.
fn bomb() -> String {
    let names = (0..300).map(|n| format!("r{n}")).collect::<Vec<_>>().join(" | ");
    let rules = (0..300).map(|n| format!("r{n}: (\"a\" | \"b\"){{1,9}} \"{n}\"\n")).collect::<String>();
    format!("start: /[0-9]{{20}}/ many\nmany: ({names})+\n{rules}")
}

/// The embedded model's tokens, as the server sees them.
pub struct Words {
    tokenizer: Arc<Tokenizer>,
    vocabulary: Vocabulary,
    width: u32,
    eos: Vec<TokenId>,
}

impl Words {
    pub fn load() -> Words {
        let loaded = forebay_model::load(&Source::Builtin, &LoadOptions::default()).expect("the model loads");
        let TokenizerSource::Json(json) = &loaded.tokenizer else { panic!("tokenizer.json") };
        let tokenizer = Arc::new(Tokenizer::from_json(json).expect("a tokenizer"));
        let width = loaded.model.vocab_size();
        let vocabulary = Vocabulary::new(&tokenizer, width, &loaded.eos, GrammarLimits::default()).expect("bytes");
        Words { tokenizer, vocabulary, width: width as u32, eos: loaded.eos }
    }

    pub fn grammar(&self, spec: &GrammarSpec) -> Grammar {
        self.vocabulary.compile(spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        let bytes =
            tokens.iter().filter(|&&id| self.tokenizer.is_text(id)).flat_map(|&id| self.tokenizer.token_bytes(id));
        String::from_utf8(bytes.copied().collect()).expect("UTF-8")
    }

    fn request(&self, prompt: &[TokenId], spec: &GrammarSpec, change: impl FnOnce(&mut Parameters)) -> Request {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let mut raw = Parameters {
            max_tokens: Some(200),
            temperature: Some(1.0),
            seed: Some(7),
            logprobs: Some(2),
            ..Parameters::default()
        };
        change(&mut raw);
        let limits = Limits::new(1_024, self.width, 64);
        let checked = raw
            .check(&limits, 0)
            .expect("in range")
            .with_grammar(Some(Guided { grammar: Arc::new(self.grammar(spec)), thinking: None }));
        let id = || SeqId(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        checked.into_requests(prompt.to_vec(), &self.eos, &limits, id).expect("fits").requests.remove(0)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Answer {
    tokens: Vec<Sampled>,
    end: Result<FinishReason, RequestError>,
}

impl Answer {
    fn ids(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|sampled| sampled.token).collect()
    }
}

/// All at once, so that the same steps are planned whatever the machine does meanwhile.
async fn answers<E: Executor>(rig: &Rig<E>, requests: Vec<Request>) -> Vec<Answer> {
    rig.handle.pause().await.expect("a loop");
    let mut running = Vec::new();
    for request in requests {
        running.push(rig::submit(&rig.handle, vec![request]).await.expect("accepted").remove(0));
    }
    rig.handle.resume().await.expect("a loop");
    let mut answers = Vec::new();
    for mut events in running {
        let mut tokens = Vec::new();
        let end = loop {
            match events.recv().await.expect("an end") {
                Event::Token(sampled) => tokens.push(sampled),
                Event::Finished(reason) => break Ok(reason),
                Event::Failed(error) => break Err(error),
                Event::Admitted { .. } => {}
                Event::Embedded(_) => panic!("nobody asked for it"),
            }
        };
        answers.push(Answer { tokens, end });
    }
    answers
}

fn specs() -> Vec<GrammarSpec> {
    let mut specs: Vec<GrammarSpec> =
        [3, 8, 11, 17].iter().map(|&seed| GrammarSpec::json(schemas::schema(seed).to_string())).collect();
    specs.push(GrammarSpec::Regex("Once upon a time there was (a|one) [a-z]{3,12}[.] .{20}".into()));
    specs.push(GrammarSpec::Choice(vec!["The fox said: hello, hello, hello, hello".into(), "The hare".into()]));
    specs.push(GrammarSpec::Gbnf("root ::= \"[\" item (\", \" item)* \"]\"\nitem ::= root | [a-f]+".into()));
    specs
}

fn requests(words: &Words, change: impl Fn(&mut Parameters)) -> Vec<Request> {
    let prompt = |n: usize| (0..(3 + n * 5) as u32).map(|i| 5 + (i * 7 + n as u32) % 250).collect::<Vec<TokenId>>();
    specs().iter().enumerate().map(|(n, spec)| words.request(&prompt(n), spec, &change)).collect()
}

/// Alone, together, cut, jumping or not, with guesses, in a pool that preempts: the same tokens and logprobs.
#[tokio::test]
async fn answers_do_not_depend_on_the_batch_or_on_jumps() {
    let words = Words::load();
    let alone = rig::storyteller(Setup { max_num_seqs: 1, ..Setup::default() });
    let expected = answers(&alone, requests(&words, |_| {})).await;
    let steps_alone = alone.join().await.snapshot().steps_total;
    for (answer, spec) in expected.iter().zip(specs()) {
        let mut matcher = Matcher::new(&words.grammar(&spec));
        let states: Vec<Progress> = answer.ids().iter().map(|&id| matcher.advance(id).expect("allowed")).collect();
        assert!(answer.end == Ok(FinishReason::Length) || matcher.progress() == Progress::Complete, "{states:?}");
        assert!(answer.tokens.iter().all(|token| token.logprobs.as_ref().is_some_and(|l| l.top.len() == 2)));
    }
    assert!(expected.iter().filter(|answer| answer.end == Ok(FinishReason::Stop)).count() > 2, "{expected:?}");
    let setup = Setup::default();
    for (what, setup) in [
        ("together", setup),
        ("cut", Setup { max_num_batched_tokens: 7, ..setup }),
        ("one token per step", Setup { max_num_batched_tokens: 1, ..setup }),
        ("preempted", Setup { num_blocks: 30, ..setup }),
        ("with guesses", Setup { speculative: Speculative::PromptLookup, ..setup }),
        ("with guesses, preempted", Setup { speculative: Speculative::PromptLookup, num_blocks: 30, ..setup }),
        ("many steps per call", Setup { multi_step_count: 4, ..setup }),
    ] {
        let rig = rig::storyteller(setup);
        assert_eq!(answers(&rig, requests(&words, |_| {})).await, expected, "{what}");
        let after = rig.join().await.snapshot();
        assert_eq!((after.blocks_used, after.preemptions_total > 0), (0, setup.num_blocks == 30), "{what}");
    }
    // A step that cannot hold a guess jumps over nothing.
    let prompt = [5];
    let spec = &GrammarSpec::Choice(vec!["The fox said: hello, hello, hello, hello".into()]);
    let steps = async |max_num_batched_tokens| {
        let rig = rig::storyteller(Setup { max_num_batched_tokens, ..setup });
        let answer = answers(&rig, vec![words.request(&prompt, spec, |_| {})]).await.remove(0);
        (answer.tokens.len() as u64, rig.join().await.snapshot().steps_total)
    };
    let ((tokens, slow), (same, fast)) = (steps(1).await, steps(64).await);
    assert_eq!(tokens, same);
    // One more for each that its masks were late for.
    assert!(slow >= tokens, "a step for each token");
    assert!(fast * 2 < slow, "{fast} of {slow} steps");
    assert!(steps_alone > 0);
}

/// Fails after the work is done, so that matchers have moved when the step is run again.
struct Stumbling<E> {
    inner: E,
    runs: usize,
}

impl<E: Executor> Executor for Stumbling<E> {
    fn admit(&mut self, request: &Request) {
        self.inner.admit(request);
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        self.runs += 1;
        let output = self.inner.run(batch)?;
        match self.runs % 3 {
            0 if batch.chunks.len() > 1 => Err(ExecuteError::Failed("stumbled".into())),
            1 if batch.chunks.len() > 1 => panic!("stumbled"),
            _ => Ok(output),
        }
    }

    fn forget(&mut self, seq: SeqId) {
        self.inner.forget(seq);
    }
}

#[tokio::test]
async fn steps_that_are_run_again_change_nothing() {
    let words = Words::load();
    let plain = rig::storyteller(Setup::default());
    let stumbling = rig::storyteller_with(Setup::default(), |inner| Stumbling { inner, runs: 0 });
    let shaped = |raw: &mut Parameters| raw.shaping.frequency_penalty = Some(0.4);
    let expected = answers(&plain, requests(&words, shaped)).await;
    assert_eq!(answers(&stumbling, requests(&words, shaped)).await, expected);
}

/// With and without an end token that may be drawn, and whatever else the request says about its length.
#[tokio::test]
async fn complete_is_stop() {
    let words = Words::load();
    let rig = rig::storyteller(Setup::default());
    let choice = GrammarSpec::Choice(vec!["red".into(), "red fox".into(), "hare".into()]);
    let open = GrammarSpec::Regex("(ab)+".into());
    let object = GrammarSpec::json(
        r#"{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"],"additionalProperties":false}"#,
    );
    for spec in [&choice, &object] {
        for ignore_eos in [false, true] {
            for min_tokens in [None, Some(0), Some(60)] {
                let change = |raw: &mut Parameters| {
                    raw.ignore_eos = ignore_eos;
                    raw.shaping.min_tokens = min_tokens;
                };
                let answer = answers(&rig, vec![words.request(&[5, 6], spec, change)]).await.remove(0);
                assert_eq!(answer.end, Ok(FinishReason::Stop), "{spec:?} {ignore_eos} {min_tokens:?}");
                let text = words.text(&answer.ids());
                match spec {
                    GrammarSpec::Choice(texts) => assert!(texts.contains(&text), "{text}"),
                    _ => assert!(
                        serde_json::from_str::<Value>(&text).is_ok_and(|value| value["a"].is_boolean()),
                        "{text}"
                    ),
                }
                if ignore_eos {
                    assert!(!answer.ids().iter().any(|id| words.eos.contains(id)), "an end is no text");
                    // Of what may go on or end, it goes on.
                    assert_ne!(text, "red");
                }
            }
        }
    }
    // Complete with the very last token that it may have.
    let whole = answers(&rig, vec![words.request(&[5, 6], &object, |_| {})]).await.remove(0);
    let exact = |raw: &mut Parameters| raw.max_tokens = Some(whole.tokens.len() as i64);
    assert_eq!(answers(&rig, vec![words.request(&[5, 6], &object, exact)]).await[0], whole);
    let short = |raw: &mut Parameters| raw.max_tokens = Some(whole.tokens.len() as i64 - 1);
    assert_eq!(answers(&rig, vec![words.request(&[5, 6], &object, short)]).await[0].end, Ok(FinishReason::Length));
    // What may always go on ends where the model ends it, or at its limit.
    let endless = |raw: &mut Parameters| {
        raw.ignore_eos = true;
        raw.max_tokens = Some(40);
    };
    let answer = answers(&rig, vec![words.request(&[5, 6], &open, endless)]).await.remove(0);
    assert_eq!((answer.end, answer.tokens.len()), (Ok(FinishReason::Length), 40));
}

#[tokio::test]
async fn a_grammar_that_meets_a_limit_ends_its_own_sequence() {
    let words = Words::load();
    let rig = rig::storyteller(Setup::default());
    let bystanders = || requests(&words, |_| {});
    let expected = answers(&rig, bystanders()).await;
    let bomb = GrammarSpec::lark(bomb());
    let endless = |raw: &mut Parameters| {
        raw.ignore_eos = true;
        raw.max_tokens = Some(900);
    };
    let mut all = vec![words.request(&[5], &bomb, endless)];
    all.extend(bystanders());
    let mut answers = answers(&rig, all).await;
    let failed = answers.remove(0);
    assert!(matches!(failed.end, Err(RequestError::Grammar { .. })), "{:?} after {}", failed.end, failed.tokens.len());
    assert_eq!(answers, expected);
}

/// Forty-five bytes whose readings multiply with the text, beside others: they draw what they would without it, and it
/// ends long before its tokens are used up. That the others' steps do not wait for it is for `engine/masks.rs` to test.
#[tokio::test]
async fn a_grammar_whose_readings_multiply_ends_and_changes_nobody() {
    let words = Words::load();
    let rig = rig::storyteller(Setup::default());
    let bystanders = || requests(&words, |_| {});
    let expected = answers(&rig, bystanders()).await;
    let hostile = GrammarSpec::Gbnf("root ::= a\na ::= [a-z ] | a a | a a a\n".into());
    let endless = |raw: &mut Parameters| {
        raw.ignore_eos = true;
        raw.logprobs = None;
    };
    let mut all = vec![words.request(&[5], &hostile, endless)];
    all.extend(bystanders());
    let mut answers = answers(&rig, all).await;
    let failed = answers.remove(0);
    assert!(matches!(failed.end, Err(RequestError::Grammar { .. })), "{:?} after {}", failed.end, failed.tokens.len());
    assert!(failed.tokens.len() < 100, "{}", failed.tokens.len());
    assert_eq!(answers, expected);
}

/// Makes the sequences of every other step late, by turns: as if their masks were not there in time.
struct Tardy<E> {
    inner: E,
    runs: usize,
}

impl<E: Executor> Executor for Tardy<E> {
    fn admit(&mut self, request: &Request) {
        self.inner.admit(request);
    }

    fn run(&mut self, batch: &StepBatch) -> Result<StepOutput, ExecuteError> {
        self.runs += 1;
        let mut output = self.inner.run(batch)?;
        let late = |seq: SeqId| (seq.0 as usize + self.runs).is_multiple_of(3);
        let mut outcomes: Vec<(SeqId, Outcome)> = Vec::new();
        for (seq, outcome) in output.outcomes {
            match late(seq) {
                true if outcomes.last().is_some_and(|(last, _)| *last == seq) => {}
                true => outcomes.push((seq, Outcome::Late)),
                false => outcomes.push((seq, outcome)),
            }
        }
        output.outcomes = outcomes;
        output.guidance.retain(|(seq, _)| !late(*seq));
        Ok(output)
    }

    fn forget(&mut self, seq: SeqId) {
        self.inner.forget(seq);
    }
}

#[tokio::test]
async fn who_sits_steps_out_draws_the_same() {
    let words = Words::load();
    let plain = rig::storyteller(Setup::default());
    let shaped = |raw: &mut Parameters| raw.shaping.frequency_penalty = Some(0.4);
    let expected = answers(&plain, requests(&words, shaped)).await;
    for setup in [
        Setup::default(),
        Setup { num_blocks: 30, ..Setup::default() },
        Setup { speculative: Speculative::PromptLookup, ..Setup::default() },
        Setup { multi_step_count: 4, max_num_batched_tokens: 7, ..Setup::default() },
    ] {
        let tardy = rig::storyteller_with(setup, |inner| Tardy { inner, runs: 0 });
        assert_eq!(answers(&tardy, requests(&words, shaped)).await, expected);
        assert_eq!(tardy.join().await.snapshot().blocks_used, 0);
    }
}

/// Every name, both endpoints, streamed and whole, with stop strings, logprobs and several choices.
#[tokio::test]
async fn over_http() {
    let server = Server::start(&[]);
    let object = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false});
    let valid: HashMap<&str, fn(&str) -> bool> = HashMap::from([
        (
            "json",
            (|text| serde_json::from_str::<Value>(text).is_ok_and(|v| v == json!({"a": 1}) || v == json!({"a": 2})))
                as fn(&str) -> bool,
        ),
        ("word", |text| text == "fox" || text == "hare"),
        ("any", |text| serde_json::from_str::<Value>(text).is_ok_and(|v| v.is_object())),
    ]);
    for (field, value, kind) in [
        ("response_format", json!({"type": "json_schema", "json_schema": {"name": "a", "schema": object}}), "json"),
        ("response_format", json!({"type": "json_object", "schema": object}), "json"),
        ("response_format", json!({"type": "json_object"}), "any"),
        ("structured_outputs", json!({"json": object, "disable_any_whitespace": true}), "json"),
        ("structured_outputs", json!({"choice": ["fox", "hare"]}), "word"),
        ("guided_json", object.clone(), "json"),
        ("guided_regex", json!("fox|hare"), "word"),
        ("guided_choice", json!(["fox", "hare"]), "word"),
        ("guided_grammar", json!("start: \"fox\" | \"hare\""), "word"),
        ("grammar", json!("root ::= \"fox\" | \"hare\""), "word"),
        ("json_schema", object, "json"),
    ] {
        for (route, begin) in [
            ("/v1/completions", json!({"prompt": "The"})),
            ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "The"}]})),
        ] {
            let mut body = begin;
            body["max_tokens"] = 600.into();
            body["temperature"] = 1.into();
            body["seed"] = 3.into();
            body[field] = value.clone();
            let text = |choice: &Value| {
                choice["text"].as_str().or(choice["message"]["content"].as_str()).expect("text").to_owned()
            };
            let (status, whole) = post(server.at(route), body.clone()).await;
            assert_eq!(status, 200, "{field}: {whole}");
            let choice = &whole["choices"][0];
            // Any object may go on for long.
            assert!(kind == "any" || choice["finish_reason"] == "stop", "{field}: {whole}");
            assert!(choice["finish_reason"] == "length" || valid[kind](&text(choice)), "{field}: {whole}");
            let streamed = crate::support::server::stream(server.at(route), body.clone()).await;
            let piece = |frame: &Value| {
                let choice = &frame["choices"][0];
                choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default().to_owned()
            };
            assert_eq!(streamed.iter().map(piece).collect::<String>(), text(choice), "{field}");
        }
    }
    let (_, three) = post(server.at("/v1/completions"), json!({
        "prompt": "The", "n": 3, "seed": 1, "temperature": 1.5, "guided_regex": "[a-z]{9}-[0-9]{3}", "max_tokens": 60, "logprobs": 1,
    })).await;
    let texts: Vec<&str> = (0..3).map(|n| three["choices"][n]["text"].as_str().expect("text")).collect();
    assert!(texts.iter().all(|text| text.len() == 13) && texts[0] != texts[1], "{three}");
    // Logprobs are the model's own: what it would have said may be what it was not allowed to say.
    let top = &three["choices"][0]["logprobs"];
    assert_eq!(top["tokens"].as_array().map(Vec::len), top["token_logprobs"].as_array().map(Vec::len));
    let (_, stopped) = post(
        server.at("/v1/completions"),
        json!({
            "prompt": "The", "guided_choice": ["one two three"], "stop": "two", "max_tokens": 60,
        }),
    )
    .await;
    assert_eq!(
        (&stopped["choices"][0]["text"], &stopped["choices"][0]["finish_reason"]),
        (&json!("one "), &json!("stop"))
    );
    // A grammar that meets a limit: an error of the request's own, whole and inside a stream.
    let body = json!({
        "prompt": "The", "guided_grammar": bomb(), "max_tokens": 900, "ignore_eos": true,
    });
    let (status, refused) = post(server.at("/v1/completions"), body.clone()).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("grammar_failed")), "{refused}");
    let mut streaming = body;
    streaming["stream"] = true.into();
    let answer =
        reqwest::Client::new().post(server.at("/v1/completions")).json(&streaming).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let last = frames(&answer.text().await.expect("text")).pop().expect("a frame");
    assert_eq!(last["error"]["code"], "grammar_failed", "{last}");
}

/// A tokenizer whose tokens have no text of their own enforces nothing, and says so.
#[tokio::test]
async fn models_without_bytes_refuse() {
    let server = Server::golden("llama", &[]);
    let body = json!({"prompt": [5, 6], "max_tokens": 4, "guided_choice": ["t5"]});
    let (status, refused) = post(server.at("/v1/completions"), body).await;
    assert_eq!(
        (status, &refused["error"]["code"], &refused["error"]["param"]),
        (400, &json!("unsupported_parameter"), &json!("guided_choice"))
    );
}

#[tokio::test]
async fn limits_are_configurable() {
    let server = Server::start_in(
        &[],
        &[("FOREBAY__STRUCTURED_OUTPUT__MAX_BYTES", "100"), ("FOREBAY__STRUCTURED_OUTPUT__CACHE_ENTRIES", "0")],
    );
    let ask = async |word: String| {
        post(server.at("/v1/completions"), json!({"prompt": "The", "max_tokens": 80, "guided_choice": [word]})).await
    };
    assert_eq!(ask("x".repeat(100)).await.0, 200);
    let (status, refused) = ask("x".repeat(101)).await;
    assert_eq!((status, &refused["error"]["param"]), (400, &json!("guided_choice")));
    assert!(refused["error"]["message"].as_str().is_some_and(|message| message.contains("at most 100")), "{refused}");
}
