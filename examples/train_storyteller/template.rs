//! Sentence templates: `[one|another]` chooses (nested, an arm may be empty), `{slot}` inserts.
//!
//! `{Slot}` with a capital inserts the slot's text capitalised; `{a:slot}` puts "a" or "an" before it.

use crate::rng::Rng;

/// Expands `template`; `slot` gives the text for a slot's lower-case name.
///
/// Panics on a malformed template or an unknown slot: templates are constants of this program.
pub fn expand(template: &str, rng: &mut Rng, slot: &dyn Fn(&str) -> Option<String>) -> String {
    let mut chosen = String::with_capacity(template.len());
    choose(template, rng, &mut chosen);
    let mut out = String::with_capacity(chosen.len() * 2);
    let mut rest = chosen.as_str();
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let close = open + rest[open..].find('}').unwrap_or_else(|| panic!("unclosed slot in {template:?}"));
        out.push_str(&fill(&rest[open + 1..close], slot, template));
        rest = &rest[close + 1..];
    }
    out.push_str(rest);
    capitalise(out.trim())
}

/// The text with its first letter in upper case.
pub fn capitalise(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// The text with "a" or "an" before it.
pub fn with_article(text: &str) -> String {
    // Sound, not spelling: a unicorn, a useful rope, a one-eyed cat, an hour.
    let lower = text.to_lowercase();
    let like_you = ["uni", "use", "uku", "one", "ewe", "eu"].iter().any(|p| lower.starts_with(p));
    let silent_h = ["hour", "honest", "heir"].iter().any(|p| lower.starts_with(p));
    let vowel = lower.starts_with(['a', 'e', 'i', 'o', 'u']);
    let article = if (vowel && !like_you) || silent_h { "an" } else { "a" };
    format!("{article} {text}")
}

fn fill(key: &str, slot: &dyn Fn(&str) -> Option<String>, template: &str) -> String {
    let (article, name) = match key.split_once(':') {
        Some(("a" | "A", name)) => (true, name),
        _ => (false, key),
    };
    let value = slot(&name.to_lowercase()).unwrap_or_else(|| panic!("no slot {name:?} for {template:?}"));
    let value = if article { with_article(&value) } else { value };
    if key.starts_with(|c: char| c.is_uppercase()) { capitalise(&value) } else { value }
}

fn choose(template: &str, rng: &mut Rng, out: &mut String) {
    let mut rest = template;
    while let Some(open) = rest.find('[') {
        out.push_str(&rest[..open]);
        let (arms, after) = arms(&rest[open + 1..]);
        choose(rng.pick(&arms), rng, out);
        rest = after;
    }
    out.push_str(rest);
}

/// Splits `a|b[c|d]] tail` into its top-level arms and the text after the closing bracket.
fn arms(text: &str) -> (Vec<&str>, &str) {
    let (mut depth, mut start, mut found) = (0usize, 0usize, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => {
                found.push(&text[start..i]);
                return (found, &text[i + 1..]);
            }
            ']' => depth -= 1,
            '|' if depth == 0 => {
                found.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    panic!("unclosed choice in {text:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(template: &str, expected: &str) {
        let slot = |key: &str| (key == "kind").then(|| "otter".to_string());
        assert_eq!(expand(template, &mut Rng::new(1), &slot), expected);
    }

    #[test]
    fn slots_choices_and_articles() {
        check("the {kind} swam", "The otter swam");
        check("{A:kind} and {a:kind}", "An otter and an otter");
        check("[x[y|y]|xy]{Kind}", "XyOtter");
    }
}
