//! Every field at and beyond its bounds.

use super::*;

fn limits() -> Limits {
    Limits::new(100, 320, 16)
}

/// A prompt of so many tokens, and what is asked beside it.
type Asked = (usize, Parameters);

fn asked(prompt: usize) -> Asked {
    (prompt, Parameters::default())
}

fn build((prompt, parameters): &Asked) -> Result<Built, RequestError> {
    let checked = parameters.check(&limits(), 77)?;
    let tokens = vec![5; *prompt];
    let mut next = 0;
    checked.into_requests(tokens, &[2], &limits(), || {
        next += 1;
        SeqId(next)
    })
}

/// The parameter that a request is refused for.
fn refused(asked: Asked) -> String {
    match build(&asked) {
        Err(RequestError::InvalidValue { param, .. }) => param,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn shaped(shaping: RawShaping) -> Asked {
    (3, Parameters { shaping, ..Parameters::default() })
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
    assert_eq!(refused((3, Parameters { max_tokens: Some(5), ..shaped(more).1 })), "min_tokens");
}

#[test]
fn what_a_request_does_not_say_the_model_says() {
    let defaults =
        Defaults { temperature: Some(0.6), top_k: Some(20), repetition_penalty: Some(1.1), ..Defaults::default() };
    let limits = Limits { defaults, ..limits() };
    let drawn = |(_, parameters): Asked| {
        let built = parameters.check(&limits, 1).unwrap().into_requests(vec![5], &[], &limits, || SeqId(1)).unwrap();
        let request = &built.requests[0];
        (request.sampling().temperature, request.sampling().top_k, request.shaping().repetition)
    };
    assert_eq!(drawn(asked(1)), (0.6, 20, 1.1));
    assert_eq!(
        drawn((1, Parameters { temperature: Some(0.0), top_k: Some(-1), ..Parameters::default() })),
        (0.0, 0, 1.1)
    );
}

#[test]
fn a_prompt_is_cut_from_its_beginning_and_only_on_request() {
    let cut = |truncate| (300, Parameters { truncate_prompt_tokens: Some(truncate), ..Parameters::default() });
    assert!(matches!(build(&asked(300)), Err(RequestError::ContextLength { .. })));
    for (truncate, kept) in [(1, 1), (40, 40), (99, 99), (-1, 99)] {
        assert_eq!(build(&cut(truncate)).unwrap().requests[0].prompt().len(), kept);
    }
    for truncate in [0, -2, 100, i64::MAX] {
        assert_eq!(refused(cut(truncate)), "truncate_prompt_tokens");
    }
    let empty = (0, Parameters { truncate_prompt_tokens: Some(5), ..Parameters::default() });
    assert_eq!(build(&empty).err(), Some(RequestError::EmptyPrompt));
}

#[test]
fn strict_requests_are_not_clamped() {
    let plain = Parameters { max_tokens: Some(98), ..Parameters::default() };
    assert_eq!(build(&(3, plain.clone())).unwrap().clamped, Some("max_tokens"));
    let named = Parameters { max_tokens_param: "max_completion_tokens", ..plain.clone() };
    assert_eq!(build(&(3, named.clone())).unwrap().clamped, Some("max_completion_tokens"));
    assert_eq!(refused((3, Parameters { strict: true, ..named })), "max_completion_tokens");
    assert_eq!(refused((3, Parameters { strict: true, ..plain })), "max_tokens");
}

#[test]
fn numbers_out_of_range_name_their_parameter() {
    for n in [0, -1, 9, i64::MAX, i64::MIN] {
        assert_eq!(refused((3, Parameters { n: Some(n), ..Parameters::default() })), "n");
    }
    for max_tokens in [0, -1, i64::MIN] {
        assert_eq!(refused((3, Parameters { max_tokens: Some(max_tokens), ..Parameters::default() })), "max_tokens");
    }
    let named =
        (3, Parameters { max_tokens: Some(0), max_tokens_param: "max_completion_tokens", ..Parameters::default() });
    assert_eq!(refused(named), "max_completion_tokens");
    for x in [-0.1, 2.1, f64::NAN, f64::INFINITY] {
        assert_eq!(refused((3, Parameters { temperature: Some(x), ..Parameters::default() })), "temperature");
    }
    for x in [-0.1, 1.1, f64::NAN] {
        assert_eq!(refused((3, Parameters { top_p: Some(x), ..Parameters::default() })), "top_p");
        assert_eq!(refused((3, Parameters { min_p: Some(x), ..Parameters::default() })), "min_p");
    }
    assert_eq!(refused((3, Parameters { top_k: Some(-2), ..Parameters::default() })), "top_k");
    for logprobs in [-1, 21] {
        assert_eq!(refused((3, Parameters { logprobs: Some(logprobs), ..Parameters::default() })), "logprobs");
    }
    for token in [-1, 320, i64::MAX] {
        assert_eq!(refused((3, Parameters { stop_token_ids: vec![token], ..Parameters::default() })), "stop_token_ids");
        assert!(check_tokens("prompt", &[token], 1, &limits()).is_err());
    }
    assert_eq!(refused((3, Parameters { stop_token_ids: vec![1; 129], ..Parameters::default() })), "stop_token_ids");
}

#[test]
fn prompts_are_bounded_by_the_context() {
    assert_eq!(build(&asked(0)).unwrap_err(), RequestError::EmptyPrompt);
    assert_eq!(build(&asked(99)).unwrap().requests[0].max_tokens(), 1);
    assert_eq!(build(&asked(100)).unwrap_err(), RequestError::ContextLength { prompt: 100, limit: 100 });
}

#[test]
fn max_tokens_is_clamped_to_the_rest_of_the_context_and_says_so() {
    let build = |max_tokens, default_max_tokens| {
        let built = build(&(90, Parameters { max_tokens, default_max_tokens, ..Parameters::default() })).unwrap();
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
    let built = build(&(4, Parameters { n: Some(3), seed: Some(-5), ..Parameters::default() })).unwrap();
    let seeds: Vec<u64> = built.requests.iter().map(|r| r.sampling().seed).collect();
    assert_eq!(seeds[0], -5i64 as u64);
    assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2]);
    assert_eq!(built.requests.iter().map(|r| r.id().0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(build(&asked(4)).unwrap().requests[0].sampling().seed, 77, "entropy where no seed was given");
}

#[test]
fn eos_stops_unless_ignored_and_the_clients_tokens_always_do() {
    let stops = |ignore_eos| {
        let asked = (4, Parameters { ignore_eos, stop_token_ids: vec![9], ..Parameters::default() });
        let request = build(&asked).unwrap().requests.remove(0);
        [2, 9, 3].map(|token| request.is_stop(token))
    };
    assert_eq!(stops(false), [true, true, false]);
    assert_eq!(stops(true), [false, true, false]);
}
