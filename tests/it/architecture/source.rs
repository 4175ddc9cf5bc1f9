//! A source file as the architecture test reads it: without comments, strings and test items, its paths spelled out.

/// One file of a package.
pub struct Source {
    /// A folder of `crates/`, or `forebay`.
    pub package: String,
    /// Relative to the package's `src/`, with forward slashes.
    pub path: String,
    pub text: String,
}

impl Source {
    /// The folder or file at the top of the package that it belongs to.
    pub fn room(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    /// Files that exist for tests only.
    pub fn is_test(&self) -> bool {
        let name = self.path.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
        name == "tests" || name.ends_with("_tests") || name == "testing" || name == "fixtures"
    }

    /// The text without comments and what strings contain; line breaks stay.
    pub fn bare(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        let mut rest = self.text.as_str();
        while let Some(first) = rest.chars().next() {
            let skipped = skipped(rest);
            if skipped == 0 {
                let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
                out.push_str(&rest[..word]);
                rest = &rest[word..];
            } else {
                out.push(' ');
                out.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
                rest = &rest[skipped..];
            }
        }
        out
    }

    /// [`Source::bare`] without the items under `#[cfg(test)]`.
    pub fn code(&self) -> String {
        const MARK: &str = "#[cfg(test)]";
        let bare = self.bare();
        let mut parts = bare.split(MARK);
        let before = parts.next().unwrap_or_default().to_owned();
        parts.fold(before, |code, item| code + &item[item_end(item)..])
    }

    /// Every path of the code with its groups spelled out: `use std::{fs, io::Read}` is `std::fs` and `std::io::Read`.
    pub fn paths(&self) -> Vec<String> {
        let code = self.code();
        let mut found = Vec::new();
        let mut rest = code.as_str();
        while let Some(start) = rest.find(is_word) {
            rest = &rest[start..];
            rest = &rest[path("", rest, &mut found)..];
        }
        found
    }
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Bytes of the comment, string or character that starts here, 0 if none does.
fn skipped(text: &str) -> usize {
    let to_end = |length: Option<usize>| length.unwrap_or(text.len());
    if text.starts_with("//") {
        return to_end(text.find('\n'));
    }
    if text.starts_with("/*") {
        return to_end(text.find("*/").map(|at| at + 2));
    }
    let raw = text.trim_start_matches('b');
    if let Some(hashes) = raw.strip_prefix('r').filter(|_| text.len() - raw.len() < 2) {
        let quote = hashes.trim_start_matches('#');
        let count = hashes.len() - quote.len();
        if quote.starts_with('"') {
            let end = format!("\"{}", "#".repeat(count));
            let opened = text.len() - quote.len() + 1;
            return to_end(text[opened..].find(&end).map(|at| opened + at + end.len()));
        }
    }
    match text.chars().next() {
        Some('"') => quoted(text, '"'),
        // 'a' and '\n' are characters, 'a without a second quote is a lifetime.
        Some('\'') if text[1..].starts_with('\\') || text[1..].chars().nth(1) == Some('\'') => quoted(text, '\''),
        _ => 0,
    }
}

/// Length of a literal in quotes, escapes considered.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Where the item ends that starts here: at its `;` or `,`, or with its closing brace.
fn item_end(item: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in item.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    return at + 1;
                }
            }
            ';' | ',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

/// Reads the path at the start of `text` below `prefix`; returns how many bytes it took.
fn path(prefix: &str, text: &str, found: &mut Vec<String>) -> usize {
    let segment = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let name = &text[..segment];
    let whole = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    let Some(after) = text[segment..].strip_prefix("::") else {
        found.push(whole);
        return segment;
    };
    let at = segment + 2;
    if after.starts_with(is_word) {
        return at + path(&whole, after, found);
    }
    if !after.starts_with('{') {
        found.push(whole);
        return at;
    }
    let end = at + item_end(after);
    let mut inside = at + 1;
    while let Some(start) = text[inside..end].find(is_word) {
        inside += start;
        inside += path(&whole, &text[inside..], found);
    }
    end
}

#[test]
fn comments_strings_and_test_items_are_no_code() {
    let source = |text: &str| Source { package: "core".into(), path: "kv/pool.rs".into(), text: text.into() };
    let words = |text: &str| source(text).code().split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    for (text, code) in [
        ("a // b\nc /* d */ e", "a c e"),
        (r#"f("x\"y // z") g"#, "f( ) g"),
        ("f(r#\"a\"b\"#, b\"c\", '\"', 'd') e", "f( , b , , ) e"),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
        ("a\n#[cfg(test)]\nmod tests { fn f() { g(); } }\nb", "a b"),
        ("a\n#[cfg(test)]\nmod tests;\nb", "a b"),
        ("a\n#[cfg(test)]\n#[path = \"x\"]\npub fn f(a: u8, b: u8) -> [u8; 2] { [a, b] }\nb", "a b"),
    ] {
        assert_eq!(words(text), code.split_whitespace().collect::<Vec<_>>().join(" "), "{text}");
    }
}

#[test]
fn groups_are_spelled_out() {
    let source = Source {
        package: "core".into(),
        path: "kv/pool.rs".into(),
        text: "use a::{\n    b::{c, d as e},\n    f,\n};\nfn g() { h::i::<u8>(j.k) }".into(),
    };
    let paths = source.paths();
    for expected in ["a::b::c", "a::b::d", "a::f", "h::i"] {
        assert!(paths.iter().any(|path| path == expected), "{expected} in {paths:?}");
    }
}
