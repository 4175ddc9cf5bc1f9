//! Templates as published models write them, and as an attacker would.

use super::*;

const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + \
                      '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn message(role: &str, content: &str) -> ChatMessage {
    ChatMessage::new(role, content)
}

fn render(source: &str, messages: &[ChatMessage]) -> Result<String, TemplateError> {
    ChatTemplate::new(source, Some("<s>".into()), None)?.render(messages, true, 0)
}

fn check(source: &str, expected: &str) {
    let messages = [message("user", "hi <b> & 'you'")];
    assert_eq!(render(source, &messages).as_deref(), Ok(expected), "{source}");
}

#[test]
fn chatml() {
    let messages = [message("system", "Be kind."), message("user", "Hi")];
    let expected = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n";
    assert_eq!(render(CHATML, &messages).unwrap(), format!("{expected}<|im_start|>assistant\n"));
    let template = ChatTemplate::new(CHATML, None, None).unwrap();
    assert_eq!(template.render(&messages, false, 0).unwrap(), expected);
}

#[test]
fn blocks_are_trimmed_as_transformers_does() {
    check("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc");
}

#[test]
fn tokens_and_absent_things() {
    check("{{ bos_token }}|{{ eos_token }}|{{ tools is none }}|{{ messages[0].name is defined }}", "<s>||True|False");
    let named = [ChatMessage { name: Some("Ann".into()), ..message("user", "") }];
    assert_eq!(render("{{ messages[0].name }}", &named).unwrap(), "Ann");
}

#[test]
fn python_methods_and_loop_controls() {
    check("{{ messages[0]['content'].strip().split(' ')[0].upper() }}", "HI");
    check(
        "{% for m in messages %}{% for k, v in m.items() %}{{ k }},{% endfor %}{% break %}{% endfor %}",
        "role,content,",
    );
    check("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1");
    check("{{ messages[0].content.startswith('hi') }} {{ 'b' in messages[0].content }}", "True True");
}

#[test]
fn tojson_is_pythons() {
    check("{{ messages[0] | tojson }}", r#"{"role": "user", "content": "hi <b> & 'you'"}"#);
    check(r#"{{ ['\\u003c', 'a"\\', '\n', 'é'] | tojson(ensure_ascii=False) }}"#, r#"["\\u003c", "a\"\\", "\n", "é"]"#);
    check("{{ [1, true, none] | tojson(indent=none) }}", "[1, true, null]");
    check("{{ {'a': 1} | tojson(indent=2) }}", "{\n  \"a\": 1\n}");
}

#[test]
fn generation_tags_do_nothing() {
    let tagged = "a {%- generation %}b{% endgeneration -%} c{% generation %}\nd{% endgeneration %}\n{{ 'generation' }}";
    check(tagged, "abcdgeneration");
}

#[test]
fn the_date_is_an_argument() {
    check("{{ strftime_now('%d %b %Y') }} {{ strftime_now is defined }}", "01 Jan 1970 True");
}

#[test]
fn a_raise_speaks_in_its_own_words() {
    let raised = |message: &str| Err(TemplateError::Raised { message: message.into() });
    let messages = [message("user", "x")];
    assert_eq!(render("{{ raise_exception('no ' + messages[0].role) }}", &messages), raised("no user"));
    let inside =
        "{% macro f() %}{{ raise_exception('deep') }}{% endmacro %}{% for m in messages %}{{ f() }}{% endfor %}";
    assert_eq!(render(inside, &messages), raised("deep"));
    let long = [message("user", &"é".repeat(9_000))];
    assert_eq!(render("{{ raise_exception(messages[0].content) }}", &long), raised(&"é".repeat(500)));
}

#[test]
fn broken_templates_say_where() {
    assert!(matches!(ChatTemplate::new("a\n{% if %}", None, None), Err(TemplateError::Syntax { line: 2, .. })));
    assert!(matches!(render("a\n\n{{ messages.x.y }}", &[]), Err(TemplateError::Failed { line: 3, .. })));
    assert!(ChatTemplate::new(&"{% if true %}".repeat(10_000), None, None).is_err());
    assert!(ChatTemplate::new(&"(".repeat(100_000).replace('(', "{{("), None, None).is_err());
}

#[test]
fn work_is_limited() {
    let loops = "{% for a in range(1000) %}{% for b in range(1000) %}{% set x = 1 %}{% endfor %}{% endfor %}";
    assert_eq!(render(loops, &[]), Err(TemplateError::TooMuchWork { steps: FUEL }));
}

#[test]
fn output_is_limited() {
    assert_eq!(render("{{ 'a' * 5000000 }}", &[]), Err(TemplateError::TooLong { bytes: MAX_OUTPUT_BYTES }));
    assert_eq!(
        render("{% for a in range(5000) %}{{ 'a' * 1000 }}{% endfor %}", &[]),
        Err(TemplateError::TooLong { bytes: MAX_OUTPUT_BYTES })
    );
    assert_eq!(render("{{ 'a' * 4000000 }}", &[]).map(|text| text.len()), Ok(4_000_000));
}

#[test]
fn recursion_is_limited() {
    let endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}";
    assert!(matches!(render(endless, &[]), Err(TemplateError::Failed { .. })));
}

#[test]
fn values_nested_deeply_do_not_overflow_the_stack() {
    // As deep as the fuel reaches: dropped when it ends, and serialised just before.
    let deeper = format!("{{% set ns.x = {}ns.x{} %}}", "[".repeat(60), "]".repeat(60));
    let nested = |rounds: usize, then: &str| {
        format!("{{% set ns = namespace(x=0) %}}{{% for i in range({rounds}) %}}{deeper}{{% endfor %}}{then}")
    };
    assert_eq!(render(&nested(100_000, ""), &[]), Err(TemplateError::TooMuchWork { steps: FUEL }));
    let written = render(&nested(2_500, "{{ ns.x | tojson }}"), &[]).unwrap();
    assert_eq!(written.len(), 2 * 60 * 2_500 + 1);
}

/// What reached files and code in other servers' templates (CVE-2024-34359 and its like).
#[test]
fn templates_reach_nothing_outside() {
    for template in [
        "{% include '/etc/passwd' %}",
        "{% import '/etc/passwd' as p %}{{ p }}",
        "{% from '/etc/passwd' import root %}{{ root }}",
        "{% extends '/etc/passwd' %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ messages | attr('__class__') }}",
        "{{ lipsum.__globals__ }}",
    ] {
        let loaded = ChatTemplate::new(template, None, None);
        let rendered = loaded.is_ok().then(|| render(template, &[]));
        let nothing = match &rendered {
            None | Some(Err(TemplateError::Failed { .. })) => true,
            Some(Ok(text)) => text.is_empty(),
            Some(Err(_)) => false,
        };
        assert!(nothing, "{template}: {rendered:?}");
    }
}

#[test]
fn small_templates_that_write_much_are_stopped() {
    let doubling = "{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(20) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}";
    let replacing = "{% set ns = namespace(x='aaaaaaaaaa') %}{% for i in range(6) %}{% set ns.x = ns.x | replace('a', 'aaaaaaaaaa') %}{% endfor %}{{ ns.x }}";
    for template in [doubling, replacing] {
        let rendered = render(template, &[]);
        assert!(rendered.is_err(), "{:?}", rendered.map(|text| text.len()));
    }
}
