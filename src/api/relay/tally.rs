//! What an upstream's answer took, for whoever pays: what its `usage` says. A stream that says nothing of it took as many tokens
//! as it had events, and a prompt of a token for every four bytes that were sent.

use std::sync::Arc;

use axum::body::Bytes;
use serde_json::Value;

use super::ask::Ask;
use super::event::Meaning;
use forebay_core::request::Payer;

/// Of prompts that nobody counted.
const BYTES_PER_TOKEN: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    prompt: usize,
    cached: usize,
    completion: usize,
}

/// Charges a whole answer.
pub fn whole(ask: &Ask, body: &Bytes) {
    let Some(payer) = &ask.payer else { return };
    let answer = serde_json::from_slice::<Value>(body).unwrap_or_default();
    payer.model(answer["model"].as_str().or(ask.model()).unwrap_or_default());
    charge(&**payer, usage_in(&answer).unwrap_or_default());
}

fn charge(payer: &dyn Payer, usage: Usage) {
    payer.prompt(usage.prompt);
    payer.cached(usage.cached);
    payer.completion(usage.completion);
}

/// Hears a stream and charges it at its end, wherever that comes.
#[derive(Debug)]
pub struct Tally {
    payer: Option<Arc<dyn Payer>>,
    model: Option<String>,
    /// What the prompt would be, if nobody says.
    guessed: usize,
    told: Option<Usage>,
    tokens: usize,
}

impl Tally {
    pub fn new(ask: &Ask) -> Tally {
        let guessed = (ask.body().len() / BYTES_PER_TOKEN).max(1);
        Tally { payer: ask.payer.clone(), model: ask.model().map(str::to_owned), guessed, told: None, tokens: 0 }
    }

    pub fn hear(&mut self, event: &[u8], meaning: &Meaning) {
        if self.payer.is_none() {
            return;
        }
        self.tokens += usize::from(*meaning == Meaning::Token);
        // A look before the price of parsing.
        if !contains(event, b"\"usage\"") {
            return;
        }
        let text = String::from_utf8_lossy(event);
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let Ok(object) = serde_json::from_str::<Value>(&data.collect::<String>()) else { return };
        if let Some(usage) = usage_in(&object) {
            let so_far = self.told.unwrap_or_default();
            // Messages tell of the prompt first and of the rest last.
            self.told = Some(Usage {
                prompt: so_far.prompt.max(usage.prompt),
                cached: so_far.cached.max(usage.cached),
                completion: so_far.completion.max(usage.completion),
            });
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let Some(payer) = &self.payer else { return };
        let guessed = Usage { prompt: self.guessed, cached: 0, completion: self.tokens };
        let usage = match self.told {
            // Cut off before its last word.
            Some(told) => {
                Usage { completion: told.completion.max(if told.completion == 0 { self.tokens } else { 0 }), ..told }
            }
            None if self.tokens == 0 => return,
            None => guessed,
        };
        payer.model(self.model.as_deref().unwrap_or_default());
        charge(&**payer, usage);
    }
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// OpenAI's, that of its responses, and Anthropic's.
fn usage_in(object: &Value) -> Option<Usage> {
    let places = [&object["usage"], &object["response"]["usage"], &object["message"]["usage"]];
    let usage = places.into_iter().find(|usage| usage.is_object())?;
    let count = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_u64()).unwrap_or(0) as usize;
    let details = [&usage["prompt_tokens_details"]["cached_tokens"], &usage["input_tokens_details"]["cached_tokens"]];
    let cached = details.into_iter().chain([&usage["cache_read_input_tokens"]]).find_map(Value::as_u64).unwrap_or(0);
    let beside = usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
    Some(Usage {
        // Anthropic counts what was cached beside the rest.
        prompt: count(["prompt_tokens", "input_tokens"]) + beside as usize,
        cached: cached as usize,
        completion: count(["completion_tokens", "output_tokens"]),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::paths;
    use super::*;

    /// Hears what is charged.
    #[derive(Debug, Default)]
    struct Purse(std::sync::Mutex<Vec<String>>);

    impl Payer for Purse {
        fn model(&self, name: &str) {
            self.0.lock().unwrap().push(name.to_owned());
        }

        fn prompt(&self, tokens: usize) {
            self.0.lock().unwrap().push(format!("prompt {tokens}"));
        }

        fn cached(&self, tokens: usize) {
            self.0.lock().unwrap().push(format!("cached {tokens}"));
        }

        fn completion(&self, tokens: usize) {
            self.0.lock().unwrap().push(format!("completion {tokens}"));
        }
    }

    fn charged(events: &[&str]) -> Vec<String> {
        let purse = Arc::new(Purse::default());
        let Value::Object(object) = json!({"model": "m", "prompt": "x".repeat(40)}) else { panic!("an object") };
        let body = Bytes::from("y".repeat(80));
        let target = paths::target(&"/v1/completions".parse().unwrap()).unwrap();
        let mut ask = Ask::new(target, &axum::http::HeaderMap::new(), body, object).unwrap();
        ask.payer = Some(purse.clone());
        let mut tally = Tally::new(&ask);
        for event in events {
            let meaning = super::super::event::meaning(event.as_bytes());
            tally.hear(event.as_bytes(), &meaning);
        }
        drop(tally);
        purse.0.lock().unwrap().clone()
    }

    #[test]
    fn a_stream_is_charged_what_it_says_or_what_was_heard() {
        let token = r#"data: {"choices":[{"text":"a"}]}"#;
        let last = r#"data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9}}"#;
        assert_eq!(charged(&[token, token, last]), ["m", "prompt 7", "cached 0", "completion 9"]);
        assert_eq!(charged(&[token, token]), ["m", "prompt 20", "cached 0", "completion 2"]);
        assert_eq!(charged(&[]), Vec::<String>::new(), "nothing came of it");
        let begun = r#"data: {"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":0}}}"#;
        let ended = r#"data: {"type":"message_delta","usage":{"output_tokens":3}}"#;
        assert_eq!(charged(&[begun, ended]), ["m", "prompt 5", "cached 0", "completion 3"]);
    }

    #[test]
    fn usage_is_found_wherever_an_api_puts_it() {
        let usage = |prompt, cached, completion| Some(Usage { prompt, cached, completion });
        for (answer, expected) in [
            (
                json!({"usage": {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}}),
                usage(5, 2, 3),
            ),
            (json!({"usage": {"prompt_tokens": 5, "total_tokens": 5}}), usage(5, 0, 0)),
            (
                json!({"response": {"usage": {"input_tokens": 5, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 1}}}}),
                usage(5, 1, 3),
            ),
            (
                json!({"message": {"usage": {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 4}}}),
                usage(9, 4, 1),
            ),
            (json!({"usage": null}), None),
            (json!([]), None),
        ] {
            assert_eq!(usage_in(&answer), expected, "{answer}");
        }
    }
}
