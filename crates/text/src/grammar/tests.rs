//! Grammars over small vocabularies: every language by its members, every mask by what follows it.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{Tokenizer, fixtures};
use forebay_core::constraint::{ConstraintState, Progress};
use forebay_core::units::TokenId;

fn vocabulary() -> (Arc<Tokenizer>, Vocabulary) {
    let tokenizer = Arc::new(fixtures::byte_level());
    let vocabulary = Vocabulary::new(&tokenizer, fixtures::VOCAB as usize, &[fixtures::END], Limits::default());
    (tokenizer, vocabulary.unwrap())
}

/// On a stack as large as the one that servers compile on.
fn compile(spec: &GrammarSpec) -> Result<Grammar, GrammarError> {
    let work = || vocabulary().1.compile(spec);
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        builder.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

/// Whether the grammar has `text`: each of its tokens is allowed in its place, and then it may end.
fn has(grammar: &Grammar, text: &str) -> bool {
    let (tokenizer, _) = vocabulary();
    let mut matcher = Matcher::new(grammar);
    // Byte by byte, for the text's own tokens may be cut in another way than the forced ones.
    for byte in text.bytes() {
        let token = (0..256).find(|&id| tokenizer.token_bytes(id) == [byte]).unwrap();
        if matcher.progress() == Progress::Complete || matcher.advance(token).is_err() {
            return false;
        }
    }
    matcher.progress() == Progress::Complete || matcher.allowed().unwrap().allows(fixtures::END)
}

/// Texts that the grammar has, and texts that it has not.
fn check(spec: &GrammarSpec, members: &[&str], others: &[&str]) {
    let grammar = compile(spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
    for text in members {
        assert!(has(&grammar, text), "{spec:?} lacks {text:?}");
    }
    for text in others {
        assert!(!has(&grammar, text), "{spec:?} has {text:?}");
    }
}

#[test]
fn json_by_schema() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":12},"b":{"enum":["x",null]}},
        "required":["a"],"additionalProperties":false}"#;
    check(
        &GrammarSpec::json(schema),
        &[r#"{"a":3}"#, r#"{"a": 12}"#, "{\n  \"a\": 7,\n  \"b\": null\n}", r#"{"a":5,"b":"x"}"#],
        &["{}", r#"{"a":2}"#, r#"{"a":13}"#, r#"{"a":3,"c":1}"#, r#"{"a":3"#, r#" {"a":3}"#, "{\"a\":\n\n\n3}", "3"],
    );
    let compact = GrammarSpec::Json { schema: schema.into(), whitespace: Whitespace::None };
    check(&compact, &[r#"{"a":3}"#], &[r#"{"a": 3}"#]);
    let pattern = GrammarSpec::Json { schema: schema.into(), whitespace: Whitespace::Pattern("_".into()) };
    check(&pattern, &[r#"{"a":3}"#, r#"{"a":_3}"#], &[r#"{"a": 3}"#]);
    check(&GrammarSpec::json_object(), &["{}", r#"{"é":[1,{"b":"c"}]}"#], &["[]", "1", "{"]);
    check(&GrammarSpec::json("true"), &["1", "[]", "\"x\""], &["", "{"]);
}

#[test]
fn expressions_match_as_a_whole() {
    check(&GrammarSpec::Regex("^a+(b|/)$".into()), &["ab", "aaa/"], &["a", "xab", "abx", ""]);
    check(&GrammarSpec::Regex(r"a\$".into()), &["a$"], &["a"]);
    check(
        &GrammarSpec::Choice(vec!["a.b".into(), "a/b|c".into(), "é".into()]),
        &["a.b", "a/b|c", "é"],
        &["axb", "a/b"],
    );
    check(&GrammarSpec::lark("start: \"a\" rest?\nrest: /[0-9]{2}/"), &["a", "a12"], &["a1", "12", "a123"]);
}

#[test]
fn llama_cpps_notation_means_the_same_texts() {
    let regular = "# a comment\nroot ::= item (\",\" item)*\n\nitem ::= [a-z]+ # letters\n  \n";
    check(&GrammarSpec::Gbnf(regular.into()), &["a", "ab,c"], &["", ",", "a,", "A"]);
    // The lexer's longest word would be `abz` or `ab`, and the rest would have no place.
    check(
        &GrammarSpec::Gbnf(r#"root ::= [a-z]* "z" | "ab" "c" | "a" "bd""#.into()),
        &["abz", "zz", "abc", "abd"],
        &["ab"],
    );
    let recursive = "root ::= \"(\" root \")\" | word\nword ::=\n  [a-z]* \"z\" |\n  [^a-z\\n] \"\\x41\" .{2,3}";
    check(
        &GrammarSpec::Gbnf(recursive.into()),
        &["((abz))", "z", "(1Aé\n)", "1A123"],
        &["(z", "ab", "(1A1)2", "\nA12", "1A1", "1A1234"],
    );
    let escapes = r#"root ::= "\t\n\"\\" [\]\-^] "\u00e9" ""? "x"{2} "y"{0,} "w"{1,2}"#;
    check(
        &GrammarSpec::Gbnf(escapes.into()),
        &["\t\n\"\\]éxxw", "\t\n\"\\^éxxyyww"],
        &["\t\n\"\\aéxxw", "\t\n\"\\]éxw"],
    );
    assert_eq!(GrammarSpec::guess(recursive.into()), GrammarSpec::Gbnf(recursive.into()));
    assert_eq!(GrammarSpec::guess("start: \"a\"".into()), GrammarSpec::lark("start: \"a\""));
}

#[test]
fn calls_of_tools() {
    let tool = |name: &str, parameters: &str| Tool { name: name.into(), parameters: parameters.into() };
    let tools = [
        tool(
            "add",
            r##"{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"additionalProperties":false,"$defs":{"n":{"type":"integer"}}}"##,
        ),
        tool("stop", r#"{"type":"object","properties":{},"additionalProperties":false}"#),
    ];
    let format = |separator: Option<&str>| TaggedCalls {
        open: "<tool_call>\n".into(),
        close: "\n</tool_call>".into(),
        separator: separator.map(str::to_owned),
        ..TaggedCalls::default()
    };
    let add = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 5}}\n</tool_call>";
    let stop = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
    let crossed = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {\"a\": 5}}\n</tool_call>";
    let both = format!("{add}\n{stop}");
    let one = GrammarSpec::Calls { tools: tools.to_vec(), format: format(None) };
    check(&one, &[add, stop], &[crossed, &both, "{}", "hello"]);
    let more = GrammarSpec::Calls { tools: tools.to_vec(), format: format(Some("\n")) };
    check(&more, &[add, stop, &both], &[crossed, "hello"]);
    let list =
        TaggedCalls { begin: "[".into(), separator: Some(", ".into()), end: "]".into(), ..TaggedCalls::default() };
    let (add, stop) = (r#"{"name": "add", "arguments": {"a": 5}}"#, r#"{"name": "stop", "arguments": {}}"#);
    let (one, two) = (format!("[{add}]"), format!("[{stop}, {add}]"));
    check(&GrammarSpec::Calls { tools: tools.to_vec(), format: list }, &[&one, &two], &[add, "[]"]);
    let before = TaggedCalls {
        open: "<".into(),
        naming: Naming::Before("=".into()),
        close: ">".into(),
        ..TaggedCalls::default()
    };
    let before = GrammarSpec::Calls { tools: tools.to_vec(), format: before };
    check(&before, &[r#"<add={"a": 5}>"#, "<stop={}>"], &[r#"<stop={"a": 5}>"#, "<add={}>", add]);
    assert!(compile(&GrammarSpec::Calls { tools: vec![], format: format(None) }).is_err());
    let rooted = tool("loop", r##"{"type":"object","properties":{"next":{"$ref":"#"}}}"##);
    assert!(compile(&GrammarSpec::Calls { tools: vec![rooted], format: format(None) }).is_err());
}

#[test]
fn what_cannot_be_enforced_is_refused_and_says_why() {
    let json = |schema: &str| GrammarSpec::json(schema);
    for (spec, why) in [
        (json(r#"{"type":"object","not":{}}"#), "not"),
        (json(r#"{"type":"array","uniqueItems":true}"#), "uniqueItems"),
        (json(r#"{"if":{},"then":{}}"#), "if"),
        (json(r#"{"type":"text"}"#), "text"),
        (json(r##"{"$ref":"#/nowhere"}"##), "nowhere"),
        (json(r#"{"$ref":"http://127.0.0.1:9/schema"}"#), "ref"),
        (json(r#"{"$ref":"file:///etc/passwd"}"#), "ref"),
        (json(r#"{"type":"string","pattern":"("}"#), ""),
        (json(r#"{"type":"string","pattern":"(?=a)a"}"#), ""),
        (json(r#"{"type":"string","format":"colour"}"#), "colour"),
        (json(r#"{"x-guidance":{"lenient":true},"not":{}}"#), "x-guidance"),
        (json("{"), "JSON"),
        (json("5"), "schema"),
        (GrammarSpec::Regex("(".into()), ""),
        (GrammarSpec::Regex(String::new()), "empty"),
        (GrammarSpec::Regex(r"(a)\1".into()), ""),
        (GrammarSpec::Choice(vec![]), "empty"),
        (GrammarSpec::Choice(vec!["a".into(), String::new()]), "empty"),
        (GrammarSpec::lark(" \n"), "empty"),
        (GrammarSpec::lark("start: nowhere"), "nowhere"),
        (GrammarSpec::lark("begin: \"a\""), "start"),
        (GrammarSpec::Gbnf("root ::= nowhere".into()), "nowhere"),
        (GrammarSpec::Gbnf("other ::= \"a\"".into()), "root"),
        (GrammarSpec::Gbnf("root ::= \"a".into()), "line 1"),
        (GrammarSpec::Gbnf("root ::= [z-a]".into()), "backwards"),
        (GrammarSpec::Gbnf("root ::= \"a\" )".into()), "end"),
        (GrammarSpec::Gbnf("root ::= \"a\"\nroot ::= \"b\"".into()), "twice"),
    ] {
        match compile(&spec) {
            Err(GrammarError::Invalid(message)) => {
                assert!(message.contains(why), "{spec:?}: {message}");
                assert!(message.chars().count() <= 301 && !message.contains('\n'), "{message}");
            }
            other => panic!("{spec:?}: {other:?}"),
        }
    }
}

#[test]
fn contradictions_are_no_endless_masks() {
    for spec in [
        GrammarSpec::json("false"),
        GrammarSpec::json(r#"{"type":"integer","minimum":5,"maximum":4}"#),
        GrammarSpec::json(r#"{"allOf":[{"type":"string"},{"type":"integer"}]}"#),
        GrammarSpec::json(r#"{"type":"string","minLength":5,"maxLength":4}"#),
        GrammarSpec::json(r#"{"type":"object","properties":{"a":false},"required":["a"]}"#),
        GrammarSpec::json(r#"{"enum":[]}"#),
    ] {
        let refused = compile(&spec);
        assert!(
            matches!(refused, Err(GrammarError::Unsatisfiable | GrammarError::Invalid(_))),
            "{spec:?}: {refused:?}"
        );
    }
}

#[test]
fn bombs_are_refused_or_harmless() {
    let keys = |n: usize| (0..n).map(|i| format!(r#""k{i}":{{"type":"string"}}"#)).collect::<Vec<_>>().join(",");
    let objects = |n: usize| -> String {
        (0..n)
            .map(|i| format!(r#"{{"type":"object","properties":{{"p{i}":{{"type":"string"}}}}}}"#))
            .collect::<Vec<_>>()
            .join(",")
    };
    let any = format!(r#"{{"anyOf":[{}]}}"#, objects(10));
    let patterns = (0..200).map(|i| format!(r#"{{"type":"string","pattern":"a{i}"}}"#)).collect::<Vec<_>>().join(",");
    let nested = |n: usize| format!("{}{{}}{}", r#"{"items":"#.repeat(n), "}".repeat(n));
    let chain = |n: usize| {
        (0..n).fold("root ::= r0 | root \"x\"\n".to_owned(), |s, i| s + &format!("r{i} ::= r{}\n", i + 1))
            + &format!("r{n} ::= \"a\"")
    };
    let refused = [
        GrammarSpec::json(format!(r#"{{"type":"object","properties":{{{}}}}}"#, keys(10_000))),
        GrammarSpec::json(format!(r#"{{"allOf":[{}]}}"#, vec![any; 20].join(","))),
        GrammarSpec::json(format!(r#"{{"allOf":[{patterns}]}}"#)),
        GrammarSpec::json(nested(1_000)),
        GrammarSpec::json(r#"{"type":"number","multipleOf":1e-300}"#),
        GrammarSpec::json(r#"{"type":"integer","multipleOf":1234567891}"#),
        GrammarSpec::json(format!(r#"{{"type":"string","pattern":"{}"}}"#, "a?".repeat(50_000))),
        GrammarSpec::json(r##"{"$ref":"#"}"##),
        GrammarSpec::json(r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##),
        GrammarSpec::json("x".repeat(1 << 20)),
        GrammarSpec::Regex("(".repeat(100_000)),
        GrammarSpec::Regex("a?".repeat(50_000)),
        GrammarSpec::Regex("(a|".repeat(50)),
        GrammarSpec::lark(format!("start: {}\"a\"{}", "(".repeat(10_000), ")".repeat(10_000))),
        GrammarSpec::lark("start: ".to_owned() + &"~".repeat(30_000)),
        GrammarSpec::Gbnf(format!("root ::= {}\"a\"{}", "(".repeat(10_000), ")".repeat(10_000))),
        GrammarSpec::Gbnf(format!("root ::= \"a\"{}", "*".repeat(30_000))),
        GrammarSpec::Gbnf(chain(20_000)),
        GrammarSpec::lark("start: a{1000000000}\na: \"x\""),
    ];
    for spec in refused {
        assert!(compile(&spec).is_err(), "{:.100}", format!("{spec:?}"));
    }
    let values = (0..20_000).map(|i| format!(r#""{i}""#)).collect::<Vec<_>>().join(",");
    let harmless = [
        GrammarSpec::json(format!(r#"{{"type":"object","properties":{{{}}}}}"#, keys(490))),
        GrammarSpec::json(format!(r#"{{"enum":[{values}]}}"#)),
        GrammarSpec::json(format!(r#"{{"anyOf":[{}]}}"#, objects(150))),
        GrammarSpec::json(nested(100)),
        GrammarSpec::json(r#"{"type":"array","minItems":1000000000}"#),
        GrammarSpec::json(r#"{"type":"string","minLength":1000000000}"#),
        GrammarSpec::json(r#"{"type":"string","maxLength":524288}"#),
        GrammarSpec::json(r#"{"type":"string","pattern":"^(a+)+$"}"#),
        GrammarSpec::json(r#"{"type":"string","pattern":"(x+x+)+y"}"#),
        GrammarSpec::json(r#"{"type":"string","pattern":"((a{1000}){1000}){1000}"}"#),
        GrammarSpec::json(r#"{"type":"string","pattern":"(.*a.{20}b){20}"}"#),
        GrammarSpec::json(r#"{"properties":{}}"#),
        GrammarSpec::Regex("(.*a.{30}){30}".into()),
        GrammarSpec::Choice((0..20_000).map(|i| i.to_string()).collect()),
        GrammarSpec::lark("start: start start | \"a\""),
        GrammarSpec::Gbnf("root ::= root root | \"a\"".into()),
        GrammarSpec::Gbnf(chain(1_000)),
    ];
    for spec in harmless {
        let grammar = compile(&spec).unwrap_or_else(|error| panic!("{:.100}: {error}", format!("{spec:?}")));
        // Some meet a limit on the way. Whatever happens, happens to this matcher alone.
        let mut matcher = Matcher::new(&grammar);
        for _ in 0..20 {
            let Ok(mask) = matcher.allowed() else { break };
            let Some(token) = mask.first_text() else { break };
            if matcher.advance(token).is_err() {
                break;
            }
        }
        let mut other = Matcher::new(&grammar);
        assert!(other.allowed().is_ok());
    }
}

/// A path through a grammar, by which of the allowed tokens is taken at each place.
fn walk(matcher: &mut Matcher, choices: &[usize]) -> Vec<(TokenId, Vec<TokenId>)> {
    let mut path = Vec::new();
    for choice in choices {
        let mask = matcher.allowed().unwrap();
        let allowed: Vec<TokenId> = (0..fixtures::VOCAB).filter(|&id| mask.allows(id)).collect();
        assert_eq!(allowed.len(), mask.len());
        let Some(&token) = allowed.get(choice % allowed.len().max(1)) else { break };
        path.push((token, allowed));
        if matcher.advance(token).unwrap() == Progress::Complete {
            break;
        }
    }
    path
}

fn grammars() -> impl Strategy<Value = GrammarSpec> {
    let object = r##"{"type":"object","properties":{"hello":{"$ref":"#/$defs/n"},"fish":{"type":"string","maxLength":4},"is":{"enum":["hell","hello",5]}},
        "required":["hello"],"$defs":{"n":{"anyOf":[{"type":"integer"},{"type":"array","items":{"$ref":"#/$defs/n"}}]}}}"##;
    prop_oneof![
        Just(GrammarSpec::json(object)),
        Just(GrammarSpec::Json { schema: object.into(), whitespace: Whitespace::None }),
        Just(GrammarSpec::Choice(vec!["hello fish".into(), "hello fishes".into(), "help".into(), "é".into()])),
        Just(GrammarSpec::Regex("hello( fish| is){1,3}[a-f]*".into())),
        Just(GrammarSpec::Gbnf("root ::= \"hello\" root \" fish\" | [a-z]+".into())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The mask is a function of the tokens, whatever was tried and taken back before, and asked or not.
    #[test]
    fn a_rewound_matcher_is_as_good_as_new(
        spec in grammars(), choices in prop::collection::vec(0..1_000_usize, 1..24), detour in prop::collection::vec(0..1_000_usize, 1..12),
    ) {
        let grammar = compile(&spec).unwrap();
        let path = walk(&mut Matcher::new(&grammar), &choices);
        let mut wandering = Matcher::new(&grammar);
        for (at, (token, allowed)) in path.iter().enumerate() {
            let _ = wandering.forced(64);
            walk(&mut wandering, &detour[..(at % detour.len()) + 1]);
            // What is not allowed is refused, and that can be taken back too.
            if let Some(wrong) = (0..fixtures::VOCAB).find(|id| !allowed.contains(id)).filter(|_| at % 3 == 0) {
                wandering.rewind(at).unwrap();
                prop_assert!(wandering.advance(wrong).is_err());
            }
            wandering.rewind(at).unwrap();
            let mask = wandering.allowed().unwrap();
            let again: Vec<TokenId> = (0..fixtures::VOCAB).filter(|&id| mask.allows(id)).collect();
            prop_assert_eq!(&again, allowed, "at {}", at);
            wandering.advance(*token).unwrap();
        }
    }

    /// What is forced are the only tokens that their places allow, and an end is never forced.
    #[test]
    fn forced_tokens_are_the_only_ones(spec in grammars(), choices in prop::collection::vec(0..1_000_usize, 0..24)) {
        let grammar = compile(&spec).unwrap();
        let mut matcher = Matcher::new(&grammar);
        let path = walk(&mut matcher, &choices);
        for (at, _) in path.iter().enumerate() {
            matcher.rewind(at).unwrap();
            for (index, token) in matcher.forced(64).into_iter().enumerate() {
                let mask = matcher.allowed().unwrap();
                prop_assert!(token != fixtures::END);
                prop_assert!(mask.allows(token) && !mask.is_choice(), "token {} after {}", index, at);
                matcher.advance(token).unwrap();
            }
        }
    }
}

#[test]
fn forced_text_is_cut_as_the_model_would() {
    let (tokenizer, vocabulary) = vocabulary();
    let grammar = vocabulary.compile(&GrammarSpec::Choice(vec!["hello fish".into()])).unwrap();
    let mut matcher = Matcher::new(&grammar);
    assert_eq!(matcher.forced(64), tokenizer.encode("hello fish", false).unwrap());
    assert_eq!(matcher.forced(1).len(), 1);
}

#[test]
fn complete_texts_allow_nothing_and_open_ones_an_end() {
    let grammar = compile(&GrammarSpec::Choice(vec!["h".into(), "hi".into()])).unwrap();
    let (tokenizer, _) = vocabulary();
    let token = |text: &str| tokenizer.encode(text, false).unwrap()[0];
    let mut matcher = Matcher::new(&grammar);
    assert!(!matcher.allowed().unwrap().allows(fixtures::END));
    assert_eq!(matcher.advance(token("h")), Ok(Progress::Open));
    let mask = matcher.allowed().unwrap();
    assert!(mask.allows(fixtures::END) && mask.allows(token("i")) && mask.len() == 2);
    assert_eq!(matcher.advance(token("i")), Ok(Progress::Complete));
    assert!(matcher.allowed().unwrap().is_empty());
    matcher.rewind(1).unwrap();
    assert_eq!(matcher.advance(fixtures::END), Ok(Progress::Complete));
}

#[test]
fn special_tokens_are_no_text() {
    let grammar = compile(&GrammarSpec::Regex("(?s:.)*".into())).unwrap();
    let mask = Matcher::new(&grammar).allowed().unwrap();
    for special in [fixtures::BOS, fixtures::USER, fixtures::ASSISTANT] {
        assert!(!mask.allows(special));
    }
    assert!(mask.allows(fixtures::END) && !mask.allows(fixtures::VOCAB));
    // Spelled in a grammar, they are characters.
    check(&GrammarSpec::Choice(vec!["<|user|>".into()]), &["<|user|>"], &[]);
}

#[test]
fn a_mask_leaves_what_it_allows_and_what_no_logit_may_be() {
    let grammar = compile(&GrammarSpec::Choice(vec!["h".into()])).unwrap();
    let mask = Matcher::new(&grammar).allowed().unwrap();
    let mut logits = vec![1.0; fixtures::VOCAB as usize + 3];
    logits[7] = f32::NAN;
    mask.apply(&mut logits);
    let left: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] == 1.0).collect();
    assert_eq!(left.len(), 1);
    assert!(logits[7].is_nan());
}

#[test]
fn vocabularies_of_all_kinds() {
    let limits = Limits::default();
    let word_level = Arc::new(fixtures::word_level());
    assert_eq!(Vocabulary::new(&word_level, 320, &[2], limits).err(), Some(GrammarError::NoBytes));
    // A space is put before all that is encoded; forced text does not have it.
    let pieces = Arc::new(fixtures::sentencepiece());
    let vocabulary = Vocabulary::new(&pieces, pieces.vocab_size(), &[], limits).unwrap();
    let grammar = vocabulary.compile(&GrammarSpec::Choice(vec!["fish is".into()])).unwrap();
    let mut matcher = Matcher::new(&grammar);
    let forced = matcher.forced(64);
    assert_eq!(forced.iter().flat_map(|&id| pieces.token_bytes(id)).copied().collect::<Vec<u8>>(), b"fish is");
    // Without an end token the text is over all the same.
    let complete = forced.iter().map(|&token| matcher.advance(token).unwrap()).last();
    assert_eq!(complete, Some(Progress::Complete));
    // Logits wider than the vocabulary, and narrower: what has no token is never allowed, what has no logit neither.
    let bytes = Arc::new(fixtures::byte_level());
    let wide = Vocabulary::new(&bytes, fixtures::VOCAB as usize + 64, &[fixtures::END], limits).unwrap();
    let any = GrammarSpec::Regex("(?s:.)+".into());
    let mask = Matcher::new(&wide.compile(&any).unwrap()).allowed().unwrap();
    assert!((fixtures::VOCAB..fixtures::VOCAB + 64).all(|id| !mask.allows(id)));
    let narrow = Vocabulary::new(&bytes, 200, &[fixtures::END], limits).unwrap();
    assert!(Matcher::new(&narrow.compile(&any).unwrap()).allowed().unwrap().len() <= 200);
}

#[test]
fn the_cache_forgets_what_was_not_used() {
    let (_, vocabulary) = vocabulary();
    let spec = |n: usize| GrammarSpec::Choice(vec![n.to_string()]);
    let mut cache = Cache::new(3, 1_000);
    for n in 0..3 {
        cache.put(spec(n), vocabulary.compile(&spec(n)).unwrap());
    }
    assert!(cache.get(&spec(0)).is_some());
    cache.put(spec(3), vocabulary.compile(&spec(3)).unwrap());
    assert!(cache.get(&spec(1)).is_none() && cache.get(&spec(0)).is_some() && cache.len() == 3);
    let long = GrammarSpec::Choice(vec!["x".repeat(999)]);
    cache.put(long.clone(), vocabulary.compile(&long).unwrap());
    assert_eq!((cache.len(), cache.get(&long).is_some()), (2, true), "by bytes too");
    let mut none = Cache::new(0, 1_000);
    none.put(spec(0), vocabulary.compile(&spec(0)).unwrap());
    assert!(none.is_empty());
}

/// Grammars whose readings multiply with the text, each small. What following them costs is bounded, by counts alone.
fn multiplying() -> Vec<GrammarSpec> {
    let chain: String = (0..20).map(|n| format!("s{n}: s{m} s{m} | \"\"\n", m = n + 1)).collect();
    let names = |count: usize, rule: fn(usize) -> String| (0..count).map(rule).collect::<Vec<_>>();
    let optional = names(400, |n| format!("r{n}?")).join(" ");
    let rules = names(400, |n| format!("r{n}: /[a-z ]/ | /[a-z]/ /[0-9]/\n")).concat();
    let wide = names(300, |n| format!("r{n}")).join(" | ");
    let tails = names(300, |n| format!("r{n}: (\"a\" | /[a-z ]/){{1,30}} \"{n}\"\n")).concat();
    let again = names(300, |n| format!("r{n}: /[a-z ]/ x? | x r{}\n", (n * 7 + 1) % 300)).concat();
    vec![
        GrammarSpec::Gbnf("root ::= a\na ::= [a-z ] | a a | a a a\n".into()),
        GrammarSpec::Gbnf("root ::= a\na ::= \"\" | [a-z ] | a a | a b a\nb ::= \"\" | a | b a\n".into()),
        GrammarSpec::Gbnf("root ::= e\ne ::= e \"+\" e | e e | \"(\" e \")\" | [a-z ]\n".into()),
        GrammarSpec::lark("start: a\na: /[a-z ]/ a | /[a-z]/ a a | \"\"\n"),
        GrammarSpec::lark("start: s\ns: t t t t t t t t\nt: \"\" | /[a-z ]/ | s\n"),
        GrammarSpec::lark(format!("start: s0 s0 s0\n{chain}s20: \"\" | /[a-z ]/ | s0\n")),
        GrammarSpec::lark(format!("start: {optional}\n{rules}")),
        GrammarSpec::lark(format!("start: many\nmany: ({wide})+\n{tails}")),
        GrammarSpec::lark(format!("start: x*\nx: {wide}\n{again}")),
    ]
}

#[test]
fn readings_that_multiply_end() {
    // Of single bytes, and with limits to match: with whole words as tokens, and the limits that servers have, half as many.
    const FAR: usize = 200;
    let limits = Limits { items_in_mask: 600, ..Limits::default() };
    let tokenizer = Arc::new(fixtures::byte_level());
    let vocabulary = Vocabulary::new(&tokenizer, fixtures::VOCAB as usize, &[fixtures::END], limits).unwrap();
    for spec in multiplying() {
        let grammar = match vocabulary.compile(&spec) {
            Ok(grammar) => grammar,
            Err(error) => {
                assert!(error.is_limit(), "{spec:?}: {error}");
                continue;
            }
        };
        let mut matcher = Matcher::new(&grammar);
        let a = (0..256).find(|&id| tokenizer.token_bytes(id) == b"a").unwrap();
        let step = |matcher: &mut Matcher| matcher.allowed().and_then(|_| matcher.advance(a)).is_ok();
        let steps = (0..FAR).take_while(|_| step(&mut matcher)).count();
        assert!(steps < FAR, "{spec:?} goes on for {steps} tokens");
    }
}

#[test]
fn what_is_interrupted_fails_until_it_is_rewound() {
    let grammar = compile(&GrammarSpec::Regex("[a-c]{2}".into())).unwrap();
    let (tokenizer, vocabulary) = vocabulary();
    let a = tokenizer.encode("a", false).unwrap()[0];
    let (watcher, stops) = std::sync::mpsc::channel();
    let mut matcher = Matcher::watched(&grammar, watcher.clone());
    let first = matcher.allowed().unwrap().len();
    matcher.advance(a).unwrap();
    stops.recv().unwrap().stop();
    assert!(matcher.allowed().is_err() && matcher.progress() == Progress::Open && matcher.forced(4).is_empty());
    matcher.rewind(1).unwrap();
    assert_eq!(matcher.accepted(), [a]);
    assert_eq!(matcher.allowed().unwrap().len(), first);
    assert!(stops.try_recv().is_ok(), "there is something to interrupt it with again");
    drop(stops);
    // Nobody listens: the same as interrupted, a compilation's first steps too.
    assert!(Matcher::watched(&grammar, watcher.clone()).allowed().is_err());
    let refused = vocabulary.compile_watched(&GrammarSpec::Regex("[a-c]{2}".into()), Some(watcher)).unwrap_err();
    assert!(refused.is_limit(), "{refused}");
}
