//! Fields of a request's JSON object, each taken once: what is left at the end is either known and without effect, known
//! and refused, or unknown and named in `x-ignored-params`. `null` is the same as absent everywhere.

use serde_json::{Map, Value};

use forebay_core::request::RequestError;

/// What has not been understood yet.
#[derive(Debug)]
pub struct Fields {
    left: Map<String, Value>,
    /// Fields of inner objects, and others, that nothing was done for.
    inner: Vec<String>,
    /// How many of those are not named.
    more: usize,
    /// Before the names of its fields, for error messages.
    scope: String,
}

/// There may be one in each of thousands of messages.
const MOST_NAMED: usize = 64;

impl Fields {
    pub fn new(object: Map<String, Value>) -> Fields {
        Fields::inside("", object)
    }

    /// Of an object inside the body. `scope` is what stands before its names, as in `tools[].`.
    pub fn inside(scope: impl Into<String>, mut object: Map<String, Value>) -> Fields {
        object.retain(|_, value| !value.is_null());
        Fields { left: object, inner: Vec::new(), more: 0, scope: scope.into() }
    }

    pub fn take(&mut self, name: &str) -> Option<Value> {
        #[cfg(test)]
        asked::note(&self.scope, name);
        self.left.shift_remove(name)
    }

    /// The whole name of a field.
    fn named(&self, name: &str) -> String {
        format!("{}{name}", self.scope)
    }

    pub fn integer(&mut self, name: &str) -> Result<Option<i64>, RequestError> {
        self.read(name, "an integer", Value::as_i64)
    }

    fn read<T>(
        &mut self,
        name: &str,
        expected: &str,
        as_type: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, RequestError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        as_type(&value).map(Some).ok_or_else(|| wrong(&self.named(name), expected, &value))
    }

    /// Integers are numbers too.
    pub fn number(&mut self, name: &str) -> Result<Option<f64>, RequestError> {
        self.read(name, "a number", Value::as_f64)
    }

    /// Absent is false.
    pub fn flag(&mut self, name: &str) -> Result<bool, RequestError> {
        Ok(self.optional_flag(name)?.unwrap_or(false))
    }

    pub fn optional_flag(&mut self, name: &str) -> Result<Option<bool>, RequestError> {
        self.read(name, "a boolean", Value::as_bool)
    }

    /// Whether it was given and not taken yet.
    pub fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    pub fn string(&mut self, name: &str) -> Result<Option<String>, RequestError> {
        self.take(name).map(|value| string(&self.named(name), value)).transpose()
    }

    /// A string or a list of strings; absent is empty.
    pub fn strings(&mut self, name: &str) -> Result<Vec<String>, RequestError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::String(one)) => Ok(vec![one]),
            Some(Value::Array(many)) => many.into_iter().map(|value| string(&self.named(name), value)).collect(),
            Some(other) => Err(wrong(&self.named(name), "a string or a list of strings", &other)),
        }
    }

    /// A list of integers; absent is empty.
    pub fn integers(&mut self, name: &str) -> Result<Vec<i64>, RequestError> {
        match self.take(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(many)) => integers(&self.named(name), &many),
            Some(other) => Err(wrong(&self.named(name), "a list of integers", &other)),
        }
    }

    pub fn object(&mut self, name: &str) -> Result<Option<Fields>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields::inside(format!("{}.", self.named(name)), object))),
            Some(other) => Err(wrong(&self.named(name), "an object", &other)),
        }
    }

    /// What is left, in the order in which it came.
    pub fn into_rest(self) -> Map<String, Value> {
        self.left
    }

    /// Takes the names that an inner object has left over, under `prefix`.
    pub fn absorb(&mut self, prefix: &str, inner: Fields) {
        for name in inner.left.keys().chain(&inner.inner) {
            self.ignore(format!("{prefix}.{name}"));
        }
        self.more += inner.more;
    }

    /// Names the fields of an inner object, read elsewhere, that are not among the `known`.
    pub fn absorb_unknown(&mut self, prefix: &str, object: &Value, known: &[&str]) {
        let given = object.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        for (name, _) in given.filter(|(name, _)| !known.contains(&name.as_str())) {
            self.ignore(format!("{prefix}.{name}"));
        }
    }

    /// Of the names that nothing was done for.
    pub fn ignore(&mut self, name: impl Into<String>) {
        let name = name.into();
        if self.inner.contains(&name) {
            return;
        }
        match self.inner.len() < MOST_NAMED {
            true => self.inner.push(name),
            false => self.more += 1,
        }
    }

    /// Of a body that was made of another one, whose fields have been accounted for.
    pub fn translated(object: Map<String, Value>) -> Fields {
        #[cfg(test)]
        asked::pause(true);
        Fields::new(object)
    }

    /// Refuses what would be answered wrongly; returns the names of what is ignored. With `strict` those are refused too.
    pub fn finish(self, strict: bool) -> Result<Vec<String>, RequestError> {
        let mut unknown = Vec::new();
        for (name, value) in self.left {
            check_type(&name, &value)?;
            match effect(&name, &value) {
                Effect::None => {}
                Effect::Refused => {
                    let message = format!("{} has no meaning here yet", shown(&value));
                    return Err(RequestError::Unsupported { param: name, message });
                }
                Effect::Named => unknown.push(name),
            }
        }
        unknown.extend(self.inner);
        if self.more > 0 {
            unknown.push(format!("{} more", self.more));
        }
        match unknown.first() {
            Some(name) if strict => {
                let message = "it has no effect here, and strict was asked for".into();
                Err(RequestError::Unsupported { param: name.chars().take(64).collect(), message })
            }
            _ => Ok(unknown),
        }
    }
}

pub fn wrong(name: &str, expected: &str, got: &Value) -> RequestError {
    RequestError::invalid(name, format!("must be {expected}, got {}", shown(got)))
}

pub fn integers(name: &str, values: &[Value]) -> Result<Vec<i64>, RequestError> {
    values.iter().map(|value| value.as_i64().ok_or_else(|| wrong(name, "a list of integers", value))).collect()
}

fn string(name: &str, value: Value) -> Result<String, RequestError> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(name, "a string", &other)),
    }
}

/// Small values as they are, large ones by their kind.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::String(text) if text.len() > LONGEST => "a string".into(),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        small => small.to_string(),
    }
}

/// Known parameters that nothing is done for are checked all the same.
fn check_type(name: &str, value: &Value) -> Result<(), RequestError> {
    let texts = |map: &Map<String, Value>| map.values().all(Value::is_string);
    let (good, expected) = match name {
        "safety_identifier" | "prompt_cache_key" | "prompt_cache_retention" | "guided_decoding_backend" => {
            (value.is_string(), "a string")
        }
        "store" => (value.is_boolean(), "a boolean"),
        "metadata" => (value.as_object().is_some_and(texts), "an object of strings"),
        _ => return Ok(()),
    };
    if good { Ok(()) } else { Err(wrong(name, expected, value)) }
}

/// What a parameter means that nobody took.
enum Effect {
    /// It asks for what happens anyway.
    None,
    /// It is ignored, and the answer says so: unknown, or a matter of taste.
    Named,
    /// An answer without it would not be what was asked for.
    Refused,
}

/// Parameters that other servers give a meaning and we do not.
fn effect(name: &str, value: &Value) -> Effect {
    let empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
    let is_number = |neutral: f64| value.as_f64() == Some(neutral);
    let is_text = |neutral: &[&str]| value.as_str().is_some_and(|text| neutral.contains(&text));
    let is_bool = |neutral: bool| value.as_bool() == Some(neutral);
    let neutral = match name {
        "store" => is_bool(false),
        "metadata" => empty,
        // Without tools there are no calls to order.
        "parallel_tool_calls" => value.is_boolean(),
        "tools" | "functions" => empty,
        "tool_choice" | "function_call" => is_text(&["none", "auto"]),
        // Which program enforces grammars.
        "guided_decoding_backend" => is_text(&["auto"]),
        "documents" | "bad_words" | "allowed_token_ids" | "chat_template_kwargs" | "logits_processors" => empty,
        "dry_multiplier" | "mirostat" | "xtc_probability" | "no_repeat_ngram_size" | "dynatemp_range" => is_number(0.0),
        "top_n_sigma" => is_number(-1.0),
        "length_penalty" | "best_of" => is_number(1.0),
        "echo" | "use_beam_search" | "continue_final_message" => is_bool(false),
        "spaces_between_special_tokens" | "add_generation_prompt" => is_bool(true),
        "suffix" => is_text(&[""]),
        "modalities" => value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text")),
        "verbosity" => is_text(&["medium"]),
        _ => false,
    };
    match name {
        _ if neutral => Effect::None,
        // The shape or the substance of the answer hangs on them.
        "tools"
        | "functions"
        | "tool_choice"
        | "function_call"
        | "bad_words"
        | "allowed_token_ids"
        | "chat_template_kwargs"
        | "logits_processors"
        | "use_beam_search"
        | "echo"
        | "continue_final_message"
        | "add_generation_prompt"
        | "suffix"
        | "max_thinking_tokens"
        | "best_of"
        | "modalities"
        | "audio"
        | "prediction"
        | "web_search_options"
        | "prompt_embeds"
        | "chat_template"
        | "documents"
        | "add_special_tokens" => Effect::Refused,
        _ => Effect::Named,
    }
}

/// Which names a test's requests were asked for: what the parsers know, for comparison with the document.
#[cfg(test)]
pub mod asked {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    thread_local! {
        static NAMES: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
        static PAUSED: Cell<bool> = const { Cell::new(false) };
    }

    pub fn note(scope: &str, name: &str) {
        if !PAUSED.get() {
            NAMES.with_borrow_mut(|names| names.insert(format!("{scope}{name}")));
        }
    }

    /// A request became another: whether what follows is noted, too.
    pub fn pause(pause: bool) {
        PAUSED.set(pause);
    }

    /// Those since the last time, of this thread.
    pub fn taken() -> BTreeSet<String> {
        NAMES.take()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(value: Value) -> Fields {
        Fields::new(value.as_object().unwrap().clone())
    }

    #[test]
    fn values_of_the_wrong_type_name_their_field() {
        let bad = json!({"n": 1.5, "seed": "2", "stop": [1], "stream": 1, "temperature": "hot", "ids": [1, "a"]});
        let mut fields = fields(bad);
        let param = |error: RequestError| match error {
            RequestError::InvalidValue { param, .. } => param,
            other => panic!("{other}"),
        };
        assert_eq!(param(fields.integer("n").unwrap_err()), "n");
        assert_eq!(param(fields.integer("seed").unwrap_err()), "seed");
        assert_eq!(param(fields.strings("stop").unwrap_err()), "stop");
        assert_eq!(param(fields.flag("stream").unwrap_err()), "stream");
        assert_eq!(param(fields.number("temperature").unwrap_err()), "temperature");
        assert_eq!(param(fields.integers("ids").unwrap_err()), "ids");
    }

    #[test]
    fn null_is_absent() {
        let mut fields = fields(json!({"n": null, "stop": null, "tools": null, "logit_bias": null, "stream": null}));
        assert_eq!(fields.integer("n"), Ok(None));
        assert_eq!(fields.strings("stop"), Ok(vec![]));
        assert_eq!(fields.flag("stream"), Ok(false));
        assert_eq!(fields.finish(false), Ok(vec![]));
    }

    #[test]
    fn neutral_values_pass_and_meaningful_ones_are_refused() {
        for (name, neutral, meaningful) in [
            ("tools", json!([]), json!([{"type": "function"}])),
            ("tool_choice", json!("auto"), json!("required")),
            ("echo", json!(false), json!(true)),
            ("documents", json!([]), json!([{"text": "a"}])),
            ("best_of", json!(1), json!(2)),
            ("suffix", json!(""), json!("end")),
            ("allowed_token_ids", json!([]), json!([1])),
            ("modalities", json!(["text"]), json!(["audio"])),
        ] {
            assert_eq!(fields(json!({name: neutral})).finish(true), Ok(vec![]), "{name}");
            let refused = fields(json!({name: meaningful})).finish(false);
            assert!(
                matches!(&refused, Err(RequestError::Unsupported { param, .. }) if param == name),
                "{name}: {refused:?}"
            );
        }
    }

    #[test]
    fn what_has_no_effect_is_named_and_strictly_refused() {
        for (name, neutral, ignored) in [
            ("store", json!(false), json!(true)),
            ("metadata", json!({}), json!({"a": "b"})),
            ("mirostat", json!(0), json!(2)),
            ("dry_multiplier", json!(0.0), json!(0.8)),
            ("verbosity", json!("medium"), json!("high")),
            ("guided_decoding_backend", json!("auto"), json!("xgrammar")),
        ] {
            assert_eq!(fields(json!({name: neutral})).finish(true), Ok(vec![]), "{name}");
            assert_eq!(fields(json!({name: ignored.clone()})).finish(false), Ok(vec![name.to_owned()]));
            let refused = fields(json!({name: ignored})).finish(true);
            assert!(matches!(&refused, Err(RequestError::Unsupported { param, .. }) if param == name), "{refused:?}");
        }
    }

    #[test]
    fn unknown_fields_are_named() {
        let mut outer = fields(json!({"zeta": 1, "n": 1}));
        let mut inner = fields(json!({"include_usage": true, "eta": 2}));
        assert_eq!(inner.flag("include_usage"), Ok(true));
        outer.absorb("stream_options", inner);
        assert_eq!(outer.integer("n"), Ok(Some(1)));
        assert_eq!(outer.finish(false), Ok(vec!["zeta".to_owned(), "stream_options.eta".to_owned()]));
    }

    #[test]
    fn unknown_fields_are_named_however_deep_they_stand() {
        let mut outer = fields(json!({"a": {"b": {"zeta": 1}, "eta": 2}}));
        let mut a = outer.object("a").unwrap().unwrap();
        let b = a.object("b").unwrap().unwrap();
        a.absorb("b", b);
        outer.absorb("a", a);
        assert_eq!(outer.finish(false), Ok(vec!["a.eta".to_owned(), "a.b.zeta".to_owned()]));
    }

    #[test]
    fn what_is_too_much_to_name_is_counted() {
        let mut many = fields(json!({}));
        (0..100).for_each(|n| many.ignore(format!("f{n}")));
        let names = many.finish(false).unwrap();
        assert_eq!((names.len(), names.last().unwrap().as_str()), (65, "36 more"));
    }

    #[test]
    fn errors_name_the_whole_place() {
        let mut outer = fields(json!({"stream_options": {"include_usage": 1}}));
        let refused = outer.object("stream_options").unwrap().unwrap().flag("include_usage");
        assert!(
            matches!(&refused, Err(RequestError::InvalidValue { param, .. }) if param == "stream_options.include_usage")
        );
    }

    #[test]
    fn known_fields_without_effect_have_a_type() {
        for (name, bad) in [
            ("safety_identifier", json!(5)),
            ("prompt_cache_key", json!([1])),
            ("guided_decoding_backend", json!(5)),
            ("metadata", json!([])),
            ("metadata", json!({"a": 1})),
            ("store", json!("x")),
        ] {
            let refused = fields(json!({name: bad.clone()})).finish(false);
            assert!(
                matches!(&refused, Err(RequestError::InvalidValue { param, .. }) if param == name),
                "{name}: {bad}"
            );
        }
    }
}
