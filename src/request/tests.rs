//! Every field at and beyond its bounds.

use super::*;

fn limits() -> Limits {
    Limits::new(100, 320, 16)
}

fn raw(prompt: usize) -> RawRequest {
    RawRequest { prompt: Prompt::Tokens(vec![5; prompt]), ..RawRequest::default() }
}

fn build(raw: &RawRequest) -> Result<Built, RequestError> {
    let checked = raw.check(&limits(), 77)?;
    let Prompt::Tokens(tokens) = &raw.prompt else { panic!("tokens only here") };
    let tokens = check_tokens("prompt", tokens, usize::MAX, &limits())?;
    let mut next = 0;
    checked.into_requests(tokens, &[2], &limits(), || {
        next += 1;
        SeqId(next)
    })
}

/// The parameter that a request is refused for.
fn refused(raw: RawRequest) -> String {
    match build(&raw) {
        Err(RequestError::InvalidValue { param, .. }) => param,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn numbers_out_of_range_name_their_parameter() {
    for n in [0, -1, 9, i64::MAX, i64::MIN] {
        assert_eq!(refused(RawRequest { n: Some(n), ..raw(3) }), "n");
    }
    for max_tokens in [0, -1, i64::MIN] {
        assert_eq!(refused(RawRequest { max_tokens: Some(max_tokens), ..raw(3) }), "max_tokens");
    }
    let named = RawRequest { max_tokens: Some(0), max_tokens_param: "max_completion_tokens", ..raw(3) };
    assert_eq!(refused(named), "max_completion_tokens");
    for x in [-0.1, 2.1, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(RawRequest { temperature: Some(x), ..raw(3) }), "temperature");
    }
    for x in [-0.1, 1.1, f64::NAN] {
        assert_eq!(refused(RawRequest { top_p: Some(x), ..raw(3) }), "top_p");
        assert_eq!(refused(RawRequest { min_p: Some(x), ..raw(3) }), "min_p");
    }
    assert_eq!(refused(RawRequest { top_k: Some(-2), ..raw(3) }), "top_k");
    for logprobs in [-1, 21] {
        assert_eq!(refused(RawRequest { logprobs: Some(logprobs), ..raw(3) }), "logprobs");
    }
    for token in [-1, 320, i64::MAX] {
        assert_eq!(refused(RawRequest { stop_token_ids: vec![token], ..raw(3) }), "stop_token_ids");
        assert_eq!(refused(RawRequest { prompt: Prompt::Tokens(vec![token]), ..raw(3) }), "prompt");
    }
    assert_eq!(refused(RawRequest { stop_token_ids: vec![1; 129], ..raw(3) }), "stop_token_ids");
    for stop in [vec![String::new()], vec!["x".repeat(257)], vec!["x".to_owned(); 5]] {
        assert_eq!(refused(RawRequest { stop, ..raw(3) }), "stop");
    }
}

#[test]
fn prompts_are_bounded_by_the_context() {
    assert_eq!(build(&raw(0)).unwrap_err(), RequestError::EmptyPrompt);
    assert_eq!(build(&raw(99)).unwrap().requests[0].max_tokens(), 1);
    assert_eq!(build(&raw(100)).unwrap_err(), RequestError::ContextLength { prompt: 100, limit: 100 });
    // 100 tokens of at most 16 bytes each: 1,601 bytes cannot fit, and nobody needs to tokenise them to know.
    let text = |bytes: usize| RawRequest { prompt: Prompt::Text("x".repeat(bytes)), ..RawRequest::default() };
    assert!(text(1_600).check(&limits(), 0).is_ok());
    assert_eq!(text(1_601).check(&limits(), 0).unwrap_err(), RequestError::ContextLength { prompt: 101, limit: 100 });
}

#[test]
fn max_tokens_is_clamped_to_the_rest_of_the_context_and_says_so() {
    let build = |max_tokens, default_max_tokens| {
        let built = build(&RawRequest { max_tokens, default_max_tokens, ..raw(90) }).unwrap();
        (built.requests[0].max_tokens(), built.max_tokens_clamped)
    };
    assert_eq!(build(Some(10), Some(16)), (10, false));
    assert_eq!(build(Some(11), Some(16)), (10, true));
    assert_eq!(build(Some(i64::MAX), None), (10, true));
    assert_eq!(build(None, None), (10, false));
    // A default that the context shortens is nothing that the client asked for.
    assert_eq!(build(None, Some(16)), (10, false));
    assert_eq!(build(None, Some(4)), (4, false));
}

#[test]
fn choices_get_their_own_ids_and_seeds_and_the_first_keeps_the_seed() {
    let built = build(&RawRequest { n: Some(3), seed: Some(-5), ..raw(4) }).unwrap();
    let seeds: Vec<u64> = built.requests.iter().map(|r| r.sampling().seed).collect();
    assert_eq!(seeds[0], -5i64 as u64);
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2]);
    assert_eq!(built.requests.iter().map(|r| r.id().0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(build(&raw(4)).unwrap().requests[0].sampling().seed, 77, "entropy where no seed was given");
}

#[test]
fn eos_stops_unless_ignored_and_the_clients_tokens_always_do() {
    let stops = |ignore_eos| {
        let raw = RawRequest { ignore_eos, stop_token_ids: vec![9], ..raw(4) };
        let request = build(&raw).unwrap().requests.remove(0);
        [2, 9, 3].map(|token| request.is_stop(token))
    };
    assert_eq!(stops(false), [true, true, false]);
    assert_eq!(stops(true), [false, true, false]);
}
