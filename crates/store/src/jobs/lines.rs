//! What a line of a batch must be, and an upload cut into lines as its bytes come.

use std::collections::HashMap;

use serde_json::{Map, Value};
use thiserror::Error;

/// The routes that a line may ask.
pub const ROUTES: &[&str] = &["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"];
/// As OpenAI has it.
const MAX_LINES: usize = 50_000;
const MAX_ID_BYTES: usize = 512;

/// What is wrong with a file, and in which line, counted from 1; 0 is all of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{message}", if *line == 0 { String::new() } else { format!("line {line}: ") })]
pub struct LineFault {
    pub line: usize,
    pub code: &'static str,
    pub param: Option<&'static str>,
    pub message: String,
}

/// A line that may be asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub custom_id: String,
    pub url: String,
    /// JSON.
    pub body: String,
}

/// `{"custom_id", "method", "url", "body"}`, and nothing else.
pub fn parse(number: usize, text: &str) -> Result<Line, LineFault> {
    let fault = |code, param, message: String| Err(LineFault { line: number, code, param, message });
    let invalid =
        |param: &'static str, message: String| fault("invalid_value", Some(param), format!("'{param}' {message}"));
    let mut object = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return fault("invalid_json_line", None, "it must be a JSON object".into()),
        Err(error) => return fault("invalid_json_line", None, format!("it is not valid JSON: {error}")),
    };
    let custom_id = match object.remove("custom_id") {
        Some(Value::String(id)) if (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control) => id,
        None => return fault("missing_required_parameter", Some("custom_id"), "'custom_id' is required".into()),
        Some(_) => {
            let message = format!("must be a string of 1 to {MAX_ID_BYTES} bytes without control characters");
            return invalid("custom_id", message);
        }
    };
    match object.remove("method") {
        Some(Value::String(method)) if method == "POST" => {}
        None => return fault("missing_required_parameter", Some("method"), "'method' is required".into()),
        Some(_) => return fault("invalid_method", Some("method"), "'method' must be POST".into()),
    }
    let url = match object.remove("url") {
        Some(Value::String(url)) if ROUTES.contains(&url.as_str()) => url,
        None => return fault("missing_required_parameter", Some("url"), "'url' is required".into()),
        Some(_) => return fault("invalid_url", Some("url"), format!("'url' must be one of {}", ROUTES.join(", "))),
    };
    let body = match object.remove("body") {
        Some(Value::Object(body)) => body,
        None => return fault("missing_required_parameter", Some("body"), "'body' is required".into()),
        Some(_) => return invalid("body", "must be an object".into()),
    };
    if let Some(name) = object.keys().next() {
        let shown: String = name.chars().take(60).collect();
        return fault("unknown_parameter", None, format!("'{shown}' is no field of a line"));
    }
    if let Some((param, message)) = out_of_place(&body) {
        return invalid(param, message.into());
    }
    Ok(Line { custom_id, url, body: Value::Object(body).to_string() })
}

/// Fields that contradict what a batch is.
fn out_of_place(body: &Map<String, Value>) -> Option<(&'static str, &'static str)> {
    if body.get("stream").is_some_and(|stream| *stream != Value::Bool(false) && !stream.is_null()) {
        return Some(("stream", "must not be set: nobody reads the stream of a batch"));
    }
    if body.contains_key("priority") {
        return Some(("priority", "must not be set: the lines of a batch are of the lowest class"));
    }
    if body.get("service_tier").is_some_and(|tier| tier == "priority") {
        return Some(("service_tier", "must not be priority: the lines of a batch are of the lowest class"));
    }
    None
}

/// An upload as it comes: whole lines go out, checked; what is left waits for the rest of its line.
#[derive(Debug)]
pub struct LineReader {
    max_line_bytes: usize,
    rest: Vec<u8>,
    lines: usize,
    /// The first line without anything in it; only such may follow.
    blank: Option<usize>,
    ids: HashMap<String, usize>,
}

impl LineReader {
    /// A line's request could not be longer than `max_line_bytes` if it came alone.
    pub fn new(max_line_bytes: usize) -> LineReader {
        LineReader { max_line_bytes, rest: Vec::new(), lines: 0, blank: None, ids: HashMap::new() }
    }

    /// The whole lines that `bytes` completed, as they are.
    pub fn push(&mut self, bytes: &[u8]) -> Result<String, LineFault> {
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.rest.extend_from_slice(bytes);
            self.check_length(self.lines + 1, self.rest.len())?;
            return Ok(String::new());
        };
        let mut whole = std::mem::take(&mut self.rest);
        whole.extend_from_slice(&bytes[..=end]);
        self.rest = bytes[end + 1..].to_vec();
        self.take(whole)
    }

    /// The last line, where no line feed ended it.
    pub fn finish(&mut self) -> Result<String, LineFault> {
        let rest = std::mem::take(&mut self.rest);
        let last = if rest.is_empty() { String::new() } else { self.take(rest)? };
        if self.ids.is_empty() {
            return Err(LineFault {
                line: 0,
                code: "empty_file",
                param: None,
                message: "the file has no lines".into(),
            });
        }
        Ok(last)
    }

    fn take(&mut self, bytes: Vec<u8>) -> Result<String, LineFault> {
        let lines = self.lines;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n');
            let message = "it is not UTF-8".to_owned();
            LineFault { line: lines + before.count() + 1, code: "invalid_json_line", param: None, message }
        })?;
        text.split_inclusive('\n').try_for_each(|line| self.check(line.trim_end_matches(['\n', '\r'])))?;
        Ok(text)
    }

    fn check(&mut self, text: &str) -> Result<(), LineFault> {
        self.lines += 1;
        let line = self.lines;
        if line > MAX_LINES {
            let message = format!("a file has at most {MAX_LINES} lines");
            return Err(LineFault { line, code: "too_many_lines", param: None, message });
        }
        self.check_length(line, text.len())?;
        if text.trim().is_empty() {
            self.blank.get_or_insert(line);
            return Ok(());
        }
        if let Some(line) = self.blank {
            return Err(LineFault { line, code: "invalid_json_line", param: None, message: "it is empty".into() });
        }
        let custom_id = parse(line, text)?.custom_id;
        if let Some(first) = self.ids.insert(custom_id.clone(), line) {
            let message = format!("the custom_id '{custom_id}' is that of line {first}");
            return Err(LineFault { line, code: "duplicate_custom_id", param: Some("custom_id"), message });
        }
        Ok(())
    }

    fn check_length(&self, line: usize, bytes: usize) -> Result<(), LineFault> {
        if bytes <= self.max_line_bytes {
            return Ok(());
        }
        let message = format!("it is longer than {} bytes, which no request may be", self.max_line_bytes);
        Err(LineFault { line, code: "line_too_long", param: None, message })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}"#;

    fn read(bytes: &[u8], at_once: usize) -> Result<String, LineFault> {
        let mut reader = LineReader::new(300);
        let mut out = String::new();
        for chunk in bytes.chunks(at_once) {
            out.push_str(&reader.push(chunk)?);
        }
        out.push_str(&reader.finish()?);
        Ok(out)
    }

    #[test]
    fn a_line_is_what_openai_says() {
        let line = parse(1, GOOD).unwrap();
        assert_eq!(
            (line.custom_id.as_str(), line.url.as_str(), line.body.as_str()),
            ("a", "/v1/completions", "{\"prompt\":\"x\"}")
        );
        let with = |from: &str, to: &str| parse(7, &GOOD.replace(from, to)).unwrap_err();
        for (from, to, code, param) in [
            (GOOD, "[]", "invalid_json_line", None),
            (GOOD, "{", "invalid_json_line", None),
            (GOOD, &"[".repeat(500), "invalid_json_line", None),
            ("\"custom_id\": \"a\", ", "", "missing_required_parameter", Some("custom_id")),
            ("\"a\"", "\"\"", "invalid_value", Some("custom_id")),
            ("\"a\"", "7", "invalid_value", Some("custom_id")),
            ("\"a\"", "\"\\u0000\"", "invalid_value", Some("custom_id")),
            ("\"a\"", &format!("\"{}\"", "x".repeat(513)), "invalid_value", Some("custom_id")),
            ("POST", "GET", "invalid_method", Some("method")),
            ("/v1/completions", "/v1/models", "invalid_url", Some("url")),
            ("/v1/completions", "/v1/../admin/drain", "invalid_url", Some("url")),
            ("/v1/completions", "http://169.254.169.254/", "invalid_url", Some("url")),
            ("{\"prompt\": \"x\"}", "[]", "invalid_value", Some("body")),
            ("\"prompt\": \"x\"", "\"stream\": true", "invalid_value", Some("stream")),
            ("\"prompt\": \"x\"", "\"priority\": \"critical\"", "invalid_value", Some("priority")),
            ("\"prompt\": \"x\"", "\"service_tier\": \"priority\"", "invalid_value", Some("service_tier")),
            ("\"method\"", "\"extra\": 1, \"method\"", "unknown_parameter", None),
        ] {
            let fault = with(from, to);
            assert_eq!((fault.line, fault.code, fault.param), (7, code, param), "{to}");
        }
    }

    #[test]
    fn faults_name_their_line() {
        let second = GOOD.replace("\"a\"", "\"b\"");
        for (text, line, code) in [
            (format!("{GOOD}\n{GOOD}\n"), 2, "duplicate_custom_id"),
            (format!("{GOOD}\n{{\n{second}\n"), 2, "invalid_json_line"),
            (format!("{GOOD}\n\n{second}\n"), 2, "invalid_json_line"),
            (format!("{GOOD}\n{}", " ".repeat(301)), 2, "line_too_long"),
            (format!("{}\n{GOOD}", "x".repeat(301)), 1, "line_too_long"),
            (String::new(), 0, "empty_file"),
            ("\n\n".into(), 0, "empty_file"),
        ] {
            for at_once in [1, 7, 10_000] {
                let fault = read(text.as_bytes(), at_once).unwrap_err();
                assert_eq!((fault.line, fault.code), (line, code), "{text} by {at_once}");
            }
        }
        let bytes = [GOOD.as_bytes(), b"\n\xff\xfe\n"].concat();
        assert_eq!(read(&bytes, 9).unwrap_err(), read(&bytes, 10_000).unwrap_err());
        assert_eq!(read(&bytes, 9).unwrap_err().to_string(), "line 2: it is not UTF-8");
    }

    #[test]
    fn a_file_has_no_more_lines_than_openai_allows() {
        let mut reader = LineReader::new(300);
        for line in 1..=MAX_LINES {
            reader.push(format!("{}\n", GOOD.replace("\"a\"", &format!("\"{line}\""))).as_bytes()).unwrap();
        }
        assert_eq!(reader.push(format!("{GOOD}\n").as_bytes()).unwrap_err().code, "too_many_lines");
    }

    proptest! {
        /// However it is cut on its way, a file is what was sent.
        #[test]
        fn an_upload_comes_out_as_it_came_in(
            ids in prop::collection::hash_set("[a-zü]{1,9}", 1..20),
            end in prop::sample::select(vec!["", "\n", "\r\n", "\n\n \n"]),
            between in prop::sample::select(vec!["\n", "\r\n"]),
            at_once in 1usize..400,
        ) {
            let lines: Vec<String> = ids.iter().map(|id| GOOD.replace("\"a\"", &format!("\"{id}\""))).collect();
            let text = lines.join(between) + end;
            prop_assert_eq!(read(text.as_bytes(), at_once), Ok(text));
        }
    }
}
