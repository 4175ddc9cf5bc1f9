//! Calls and texts, however the text is cut.

use super::*;

fn text(text: &str) -> Piece {
    Piece::Text(text.to_owned())
}

fn call(name: &str, arguments: &str) -> Piece {
    Piece::Call(Call { name: name.to_owned(), arguments: arguments.to_owned() })
}

/// All pieces, texts next to each other joined.
fn parse(chunks: &[&str]) -> Vec<Piece> {
    let mut parser = HermesParser::default();
    let mut pieces: Vec<Piece> = chunks.iter().flat_map(|chunk| parser.push(chunk)).collect();
    pieces.extend(parser.finish());
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (joined.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(more)) => before.push_str(&more),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

fn cases() -> Vec<(&'static str, Vec<Piece>)> {
    let one = r#"<tool_call>{"name":"f","arguments":{"a":"é😀"}}</tool_call>"#;
    vec![
        ("no <tool> here ü <tool_cal", vec![text("no <tool> here ü <tool_cal")]),
        (one, vec![call("f", r#"{"a":"é😀"}"#)]),
        (
            "Hi<tool_call>\n{\"name\":\"f\",\"parameters\":{}}\n</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>!",
            vec![text("Hi"), call("f", "{}"), text("\n"), call("g", "{}"), text("!")],
        ),
        (
            r#"<tool_call>{"name":"f","arguments":{"a":"</tool_call>"}}</tool_call>x"#,
            vec![call("f", r#"{"a":"</tool_call>"}"#), text("x")],
        ),
        ("<tool_call>{oops}</tool_call> ä", vec![text("<tool_call>{oops}</tool_call> ä")]),
        (r#"<tool_call>{"name":"f"}</tool_call>"#, vec![text(r#"<tool_call>{"name":"f"}</tool_call>"#)]),
        (
            r#"<tool_call>{"name": </tool_call><tool_call>{"name":"g","arguments":{}}</tool_call>"#,
            vec![text(r#"<tool_call>{"name": </tool_call>"#), call("g", "{}")],
        ),
        (r#"<tool_call>{"name":"f","#, vec![text(r#"<tool_call>{"name":"f","#)]),
    ]
}

#[test]
fn the_pieces_are_these_however_the_text_is_cut() {
    for (whole, expected) in cases() {
        assert_eq!(parse(&[whole]), expected, "{whole:?}");
        let ends: Vec<usize> = (0..=whole.len()).filter(|&at| whole.is_char_boundary(at)).collect();
        for &a in &ends {
            for &b in ends.iter().filter(|&&b| b >= a) {
                let chunks = [&whole[..a], &whole[a..b], &whole[b..]];
                assert_eq!(parse(&chunks), expected, "{chunks:?}");
            }
        }
        let single: Vec<&str> = ends.windows(2).map(|w| &whole[w[0]..w[1]]).collect();
        assert_eq!(parse(&single), expected, "{whole:?} by characters");
    }
}
