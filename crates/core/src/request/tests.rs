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

fn shaped(shaping: RawShaping) -> RawRequest {
    RawRequest { shaping, ..raw(3) }
}

#[test]
fn shaping_out_of_range_names_its_parameter() {
    for x in [-2.1, 2.1, f64::NAN] {
        assert_eq!(refused(shaped(RawShaping { presence_penalty: Some(x), ..Default::default() })), "presence_penalty");
        assert_eq!(
            refused(shaped(RawShaping { frequency_penalty: Some(x), ..Default::default() })),
            "frequency_penalty"
        );
    }
    for x in [0.0, -1.0, 10.1, f64::INFINITY] {
        assert_eq!(
            refused(shaped(RawShaping { repetition_penalty: Some(x), ..Default::default() })),
            "repetition_penalty"
        );
        let named =
            RawShaping { repetition_penalty: Some(x), repetition_param: "repeat_penalty", ..Default::default() };
        assert_eq!(refused(shaped(named)), "repeat_penalty");
    }
    for logit_bias in
        [vec![(-1, 1.0)], vec![(320, 1.0)], vec![(5, 100.5)], vec![(5, f64::NAN)], vec![(5, 1.0), (5, 2.0)]]
    {
        assert_eq!(refused(shaped(RawShaping { logit_bias, ..Default::default() })), "logit_bias");
    }
    for min_tokens in [-1, 101] {
        assert_eq!(refused(shaped(RawShaping { min_tokens: Some(min_tokens), ..Default::default() })), "min_tokens");
    }
    let more = RawShaping { min_tokens: Some(6), ..Default::default() };
    assert_eq!(refused(RawRequest { max_tokens: Some(5), ..shaped(more) }), "min_tokens");
}

#[test]
fn what_a_request_does_not_say_the_model_says() {
    let defaults =
        Defaults { temperature: Some(0.6), top_k: Some(20), repetition_penalty: Some(1.1), ..Defaults::default() };
    let limits = Limits { defaults, ..limits() };
    let drawn = |raw: RawRequest| {
        let built = raw.check(&limits, 1).unwrap().into_requests(vec![5], &[], &limits, || SeqId(1)).unwrap();
        let request = &built.requests[0];
        (request.sampling().temperature, request.sampling().top_k, request.shaping().repetition)
    };
    assert_eq!(drawn(raw(1)), (0.6, 20, 1.1));
    assert_eq!(drawn(RawRequest { temperature: Some(0.0), top_k: Some(-1), ..raw(1) }), (0.0, 0, 1.1));
}

#[test]
fn a_prompt_is_cut_from_its_beginning_and_only_on_request() {
    let cut = |truncate| RawRequest { truncate_prompt_tokens: Some(truncate), ..raw(300) };
    assert!(matches!(build(&raw(300)), Err(RequestError::ContextLength { .. })));
    for (truncate, kept) in [(1, 1), (40, 40), (99, 99), (-1, 99)] {
        assert_eq!(build(&cut(truncate)).unwrap().requests[0].prompt().len(), kept);
    }
    for truncate in [0, -2, 100, i64::MAX] {
        assert_eq!(refused(cut(truncate)), "truncate_prompt_tokens");
    }
    let empty = RawRequest { truncate_prompt_tokens: Some(5), ..raw(0) };
    assert_eq!(build(&empty).err(), Some(RequestError::EmptyPrompt));
}

#[test]
fn strict_requests_are_not_clamped() {
    let raw = RawRequest { max_tokens: Some(98), ..raw(3) };
    assert_eq!(build(&raw).unwrap().clamped, Some("max_tokens"));
    let named = RawRequest { max_tokens_param: "max_completion_tokens", ..raw.clone() };
    assert_eq!(build(&named).unwrap().clamped, Some("max_completion_tokens"));
    assert_eq!(refused(RawRequest { strict: true, ..named }), "max_completion_tokens");
    assert_eq!(refused(RawRequest { strict: true, ..raw }), "max_tokens");
}

#[test]
fn clients_cannot_set_what_the_template_hears_from_us() {
    let with = |name: &str| TemplateOptions { variables: vec![(name.into(), "1".into())], ..Default::default() };
    for name in ["messages", "bos_token", "add_generation_prompt", "chat_template"] {
        let refused = refused(RawRequest { template: with(name), ..raw(3) });
        assert_eq!(refused, format!("chat_template_kwargs.{name}"));
    }
    assert!(build(&RawRequest { template: with("enable_thinking"), ..raw(3) }).is_ok());
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
        (built.requests[0].max_tokens(), built.clamped.is_some())
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
