//! How a tokenizer's decoder turns tokens into text, where that can be said token by token. Pure.

use serde_json::Value;

/// What a tokenizer.json's `decoder` amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Every token stands for fixed bytes and text is their concatenation. Covers byte-level BPE (GPT-2, Llama 3, Qwen)
    /// and SentencePiece BPE with byte fallback (Llama 2, Mistral, Gemma).
    Bytes(ByteRules),
    /// A token's text depends on its neighbours (words joined by spaces, WordPiece, CTC): only the tokenizer knows.
    InContext,
}

/// From a token's string to its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteRules {
    /// The string is written in GPT-2's alphabet, one character per byte.
    byte_level: bool,
    /// Literal replacements, in order: `▁` to a space.
    replace: Vec<(String, String)>,
    /// `<0x0A>` is a byte.
    byte_fallback: bool,
    /// At most this many of this character are dropped from the start of a text.
    pub strip_start: Option<(char, usize)>,
}

impl Spelling {
    /// Reads the `decoder` object of a tokenizer.json.
    pub fn of(decoder: &Value) -> Spelling {
        let sequence = decoder["type"] == "Sequence";
        let parts = if sequence { decoder["decoders"].as_array().cloned() } else { Some(vec![decoder.clone()]) };
        parts.as_deref().and_then(byte_rules).map_or(Spelling::InContext, Spelling::Bytes)
    }
}

fn byte_rules(parts: &[Value]) -> Option<ByteRules> {
    let mut rules = ByteRules::default();
    if let [only] = parts
        && only["type"] == "ByteLevel"
    {
        return Some(ByteRules { byte_level: true, ..rules });
    }
    let mut fused = false;
    for part in parts {
        match part["type"].as_str()? {
            // After fallback a replacement would also see the bytes' text.
            "Replace" if !rules.byte_fallback && !fused => {
                let (from, to) = (part["pattern"]["String"].as_str()?, part["content"].as_str()?);
                if from.is_empty() {
                    return None;
                }
                rules.replace.push((from.to_owned(), to.to_owned()));
            }
            "ByteFallback" if !fused => rules.byte_fallback = true,
            "Fuse" => fused = true,
            // Before fusing it would strip every token.
            "Strip" if fused && part["stop"] == 0 && rules.strip_start.is_none() => {
                let mut content = part["content"].as_str()?.chars();
                rules.strip_start = Some((content.next()?, part["start"].as_u64()? as usize));
            }
            _ => return None,
        }
    }
    // A decoder that only fuses, or none of these, is still a concatenation.
    (!parts.is_empty()).then_some(rules)
}

impl ByteRules {
    pub fn bytes(&self, token: &str) -> Vec<u8> {
        if self.byte_level {
            // As the tokenizers crate does it: a token with a character outside the alphabet is taken literally.
            return token.chars().map(byte_level_byte).collect::<Option<_>>().unwrap_or_else(|| token.into());
        }
        let text = self.replace.iter().fold(token.to_owned(), |text, (from, to)| text.replace(from, to));
        match fallback_byte(&text).filter(|_| self.byte_fallback) {
            Some(byte) => vec![byte],
            None => text.into_bytes(),
        }
    }
}

/// `<0x0A>` is the byte 10.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that a character of GPT-2's alphabet stands for: printable Latin-1 characters are themselves, and the other 68
/// bytes, in ascending order, are U+0100 to U+0143 (openai/gpt-2, `encoder.py`, `bytes_to_unicode`).
fn byte_level_byte(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    #[test]
    fn the_byte_alphabet_is_the_crates() {
        let mut bytes: Vec<u8> = ByteLevel::alphabet().into_iter().filter_map(byte_level_byte).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        let rules = ByteRules { byte_level: true, ..ByteRules::default() };
        assert_eq!(rules.bytes("ĠCafÃ©Ċ"), " Café\n".as_bytes());
        assert_eq!(rules.bytes("日本"), "日本".as_bytes());
    }

    #[test]
    fn sentencepiece_with_byte_fallback_is_bytes() {
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]});
        let Spelling::Bytes(rules) = Spelling::of(&decoder) else { panic!("not bytes") };
        assert_eq!(rules.strip_start, Some((' ', 1)));
        assert_eq!(rules.bytes("▁a▁"), b" a ");
        assert_eq!(rules.bytes("<0xF0>"), [0xF0]);
        assert_eq!(rules.bytes("<0xF0>x"), b"<0xF0>x");
    }

    #[test]
    fn what_depends_on_neighbours_is_left_to_the_tokenizer() {
        for decoder in [
            json!(null),
            json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            json!({"type": "Sequence", "decoders": []}),
            json!({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]}),
            json!({"type": "Sequence", "decoders": [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]}),
            json!({"type": "Replace", "pattern": {"Regex": "x+"}, "content": ""}),
        ] {
            assert_eq!(Spelling::of(&decoder), Spelling::InContext, "{decoder}");
        }
    }
}
