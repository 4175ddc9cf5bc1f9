//! What is refused before anything is tokenised.

use forebay_core::request::{Limits, RequestError};
use forebay_text::TemplateOptions;

use super::*;

fn limits() -> Limits {
    Limits::new(100, 320, 16)
}

fn raw(prompt: usize) -> RawRequest {
    RawRequest { prompt: Prompt::Tokens(vec![5; prompt]), ..RawRequest::default() }
}

/// The parameter that a request is refused for.
fn refused(raw: RawRequest) -> String {
    match raw.check(&limits(), 77) {
        Err(RequestError::InvalidValue { param, .. }) => param,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn clients_cannot_set_what_the_template_hears_from_us() {
    let with = |name: &str| TemplateOptions { variables: vec![(name.into(), "1".into())], ..Default::default() };
    for name in ["messages", "bos_token", "add_generation_prompt", "chat_template"] {
        let refused = refused(RawRequest { template: with(name), ..raw(3) });
        assert_eq!(refused, format!("chat_template_kwargs.{name}"));
    }
    assert!(RawRequest { template: with("enable_thinking"), ..raw(3) }.check(&limits(), 0).is_ok());
}

#[test]
fn stop_strings_have_limits() {
    for stop in [vec![String::new()], vec!["x".repeat(257)], vec!["x".to_owned(); 5]] {
        assert_eq!(refused(RawRequest { stop, ..raw(3) }), "stop");
    }
}

#[test]
fn prompts_are_bounded_by_the_context() {
    assert_eq!(raw(0).check(&limits(), 0).unwrap_err(), RequestError::EmptyPrompt);
    assert!(raw(99).check(&limits(), 0).is_ok());
    assert_eq!(raw(100).check(&limits(), 0).unwrap_err(), RequestError::ContextLength { prompt: 100, limit: 100 });
    // 100 tokens of at most 16 bytes each: 1,601 bytes cannot fit, and nobody needs to tokenise them to know.
    let text = |bytes: usize| RawRequest { prompt: Prompt::Text("x".repeat(bytes)), ..RawRequest::default() };
    assert!(text(1_600).check(&limits(), 0).is_ok());
    assert_eq!(text(1_601).check(&limits(), 0).unwrap_err(), RequestError::ContextLength { prompt: 101, limit: 100 });
}
