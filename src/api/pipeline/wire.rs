//! What the answers of all endpoints share: their identity and their headers.

use axum::http::{HeaderValue, Response};
use axum::response::IntoResponse;
use serde::Serialize;

use super::head::Head;
use super::running::Running;
use crate::api::State;
use crate::generate::Effective;
use forebay_clock::unix_seconds;
use forebay_core::units::Micros;

/// The fields that all chunks of a stream repeat.
#[derive(Clone, Debug)]
pub struct Identity {
    pub id: String,
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub system_fingerprint: String,
}

impl Identity {
    pub fn new(state: &State, head: &Head, object: &'static str) -> Identity {
        Identity {
            id: head.id.clone(),
            object,
            created: unix_seconds(),
            model: state.generator.name(head.adapter).to_owned(),
            system_fingerprint: state.info.system_fingerprint.clone(),
        }
    }
}

/// The headers of a completion's answer: what was ignored, and when the first token was expected.
pub fn headers<B>(response: &mut Response<B>, about: About) {
    name_ignored(response, about.ignored);
    let headers = response.headers_mut();
    if let Some(predicted) = about.predicted_ttft {
        headers.insert("x-predicted-ttft-ms", HeaderValue::from(predicted.as_millis()));
    }
    if let Some(value) = about.effective.and_then(|effective| HeaderValue::try_from(effective).ok()) {
        headers.insert("x-effective-sampling", value);
    }
}

/// What the headers of an answer say, gathered before its body is made.
pub struct About {
    ignored: Vec<String>,
    predicted_ttft: Option<Micros>,
    effective: Option<String>,
}

impl About {
    pub fn new(running: &Running, mut ignored: Vec<String>) -> About {
        if let Some(clamped) = running.started.iter().find_map(|started| started.clamped) {
            ignored.insert(0, clamped.into());
        }
        let several = running.started.len() > 1;
        let effective = |effective: &Effective| effective_sampling(effective, several);
        About {
            ignored,
            // Of the last of its prompts.
            predicted_ttft: running.started.iter().rev().find_map(|started| started.predicted_ttft),
            effective: running.started.first().and_then(|started| started.effective.as_ref()).map(effective),
        }
    }
}

/// How tokens are drawn, defaults of the model's makers included; sent back as parameters, it gives the same answer. Several
/// prompts have a seed each, which no parameter could say.
fn effective_sampling(effective: &Effective, several: bool) -> String {
    let Effective { sampling, shaping, max_tokens } = effective;
    let seed = (!several).then(|| format!("seed={}", sampling.seed as i64));
    let mut list = vec![
        format!("temperature={}", sampling.temperature),
        format!("top_p={}", sampling.top_p),
        format!("top_k={}", sampling.top_k),
        format!("min_p={}", sampling.min_p),
        format!("typical_p={}", sampling.typical_p),
        format!("repetition_penalty={}", shaping.repetition),
        format!("presence_penalty={}", shaping.presence),
        format!("frequency_penalty={}", shaping.frequency),
    ];
    list.extend(seed);
    list.push(format!("max_tokens={max_tokens}"));
    list.join(", ")
}

/// An answer that is whole at once.
pub fn answer(body: impl Serialize, ignored: Vec<String>) -> Response<axum::body::Body> {
    let mut response = axum::Json(body).into_response();
    name_ignored(&mut response, ignored);
    response
}

/// Names in `x-ignored-params` what was not acted on. Names come from the client, so they are bounded and made harmless; what
/// is too much to name is counted: `a,b,14 more`.
pub fn name_ignored<B>(response: &mut Response<B>, names: Vec<String>) {
    const MOST: usize = 16;
    const LONGEST: usize = 64;
    let harmless = |c: char| if c.is_ascii_alphanumeric() || "_-. []".contains(c) { c } else { '_' };
    let shown = |name: &String| name.chars().take(LONGEST).map(harmless).collect::<String>();
    let mut list: Vec<String> = names.iter().take(MOST).map(shown).collect();
    if names.len() > MOST {
        list.push(format!("{} more", names.len() - MOST));
    }
    if let (false, Ok(value)) = (list.is_empty(), HeaderValue::try_from(list.join(","))) {
        response.headers_mut().insert("x-ignored-params", value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_names_are_bounded_and_harmless() {
        let named = |names: Vec<String>| {
            let mut response = Response::new(());
            name_ignored(&mut response, names);
            response.headers().get("x-ignored-params").map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(named(vec![]), None);
        assert_eq!(named(vec!["a".into(), "b\r\nc,é".into()]).unwrap(), "a,b__c__");
        let many = named(vec!["x".repeat(1000); 100]).unwrap();
        assert_eq!(many, format!("{}84 more", format!("{},", "x".repeat(64)).repeat(16)));
    }
}
