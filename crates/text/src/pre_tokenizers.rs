//! How byte-level BPE vocabularies cut a text before they merge, by the names in `tokenizer.ggml.pre`. Pure.
//!
//! The names and what they share are llama.cpp's (`src/llama-vocab.cpp`); the expressions are those of the models' own
//! tokenizers wherever they are known, for that is what the models were trained with. Several expressions cut one after
//! another, each the pieces of the one before; what an expression does not match stays a piece of its own.

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreTokenizer {
    names: &'static [&'static str],
    pub cuts: &'static [&'static str],
    /// A piece that is a token is one, whatever its merges say.
    pub ignore_merges: bool,
    /// BOS goes before a text unless the file says otherwise.
    pub add_bos: bool,
    pub spelling: Spelling,
}

/// How a piece is written in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Each byte as a letter, GPT-2's way.
    ByteLevel,
    /// As it is, spaces as `▁`, bytes without a token as `<0xXX>`: SentencePiece's way.
    Metaspace,
}

macro_rules! i {
    ($before:literal, $after:literal) => {
        concat!($before, "(?i:'s|'t|'re|'ve|'m|'ll|'d)", $after)
    };
}

pub(super) const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = i!("", r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const QWEN2: &str = i!("", r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const QWEN35: &str =
    i!("", r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const JAIS2: &str = i!(
    "",
    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
);
const SEED_CODER: &str = i!("", r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+");
const BAILING: &str =
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = i!(
    "",
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
);
const MINICPM5: &str = i!("", r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// [`TEKKEN`]'s words with what may follow them, digits by up to three.
const GPT4O: &str = concat!(
    i!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", "?|"),
    i!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*", "?|"),
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const YOUTU: &str = concat!(
    i!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", "?|"),
    i!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*", "?|"),
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const KIMI: &str = concat!(
    r"[\p{Han}]+|",
    i!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+", "?|"),
    i!(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*", "?|"),
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
pub(super) const ONE_DIGIT: &str = r"\p{N}";
const THREE_DIGITS: &str = r"\p{N}{1,3}";
/// Groups of three counted from the right: 1234567 is 1, 234, 567.
const DIGITS_FROM_RIGHT: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))";
const KANA_AND_HAN: &str = "[一-龥぀-ゟ゠-ヿ]+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
/// The letters of scripts with upper and lower case, as DeepSeek LLM lists them.
const CASED_WORDS: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const CJK: &str = "[\u{4E00}-\u{9FA5}\u{0800}-\u{4E00}\u{AC00}-\u{D7FF}]+";
const BLOOM: &str = " ?[^(\\s|.,!?…。，、।۔،)]+";
const LINES: &str = r"[^\n]+|[\n]+";

/// Nothing but how it cuts.
const fn plain(names: &'static [&'static str], cuts: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { names, cuts, ignore_merges: false, add_bos: false, spelling: Spelling::ByteLevel }
}

/// Whole pieces before merges.
const fn whole(names: &'static [&'static str], cuts: &'static [&'static str]) -> PreTokenizer {
    PreTokenizer { ignore_merges: true, ..plain(names, cuts) }
}

const fn with_bos(pre: PreTokenizer) -> PreTokenizer {
    PreTokenizer { add_bos: true, ..pre }
}

const TABLE: &[PreTokenizer] = &[
    plain(&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
    plain(
        &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        &[GPT2],
    ),
    with_bos(whole(
        &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"],
        &[LLAMA3],
    )),
    plain(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    whole(&["glm4", "glm5"], &[LLAMA3]),
    plain(
        &["qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2"],
        &[QWEN2],
    ),
    plain(&["qwen35"], &[QWEN35]),
    plain(&["ufakzeka"], &[UFAKZEKA]),
    plain(&["laguna"], &[LINES, QWEN2]),
    plain(&["jais-2"], &[JAIS2]),
    plain(&["seed-coder"], &[SEED_CODER]),
    plain(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    plain(&["exaone-moe"], &[EXAONE_MOE]),
    whole(&["minicpm5"], &[THREE_DIGITS, MINICPM5]),
    with_bos(whole(&["tekken"], &[TEKKEN])),
    plain(&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], &[GPT4O]),
    whole(&["granite-embed-multi-97m"], &[GPT4O]),
    plain(&["tiny_aya", "cohere2moe"], &[DIGITS_FROM_RIGHT, GPT4O]),
    whole(&["youtu"], &["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+", YOUTU]),
    plain(&["kimi-k2"], &[KIMI]),
    plain(
        &["starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[ONE_DIGIT, GPT2],
    ),
    plain(&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    plain(&["deepseek-llm"], &[r"[\r\n]", CASED_WORDS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, r"\p{N}+"]),
    plain(&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, ONE_DIGIT]),
    plain(&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], &[THREE_DIGITS, KANA_AND_HAN, DEEPSEEK3]),
    plain(&["spark2_5"], &[THREE_DIGITS, KANA_AND_HAN, SPARK, ONE_DIGIT]),
    plain(
        &["afmoe"],
        &[
            DIGITS_FROM_RIGHT,
            "[\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{F900}-\u{FAFF}\u{3040}-\u{309F}\u{30A0}-\u{30FF}\u{FF65}-\u{FF9F}\u{2F00}-\u{2FDF}\u{0E40}-\u{0E7F}\u{0E80}-\u{0EFF}\u{1780}-\u{17FF}\u{1000}-\u{109F}\u{AA60}-\u{AA7F}\u{A9E0}-\u{A9FF}\u{AC00}-\u{D7AF}\u{1100}-\u{11FF}]+",
            DEEPSEEK3,
        ],
    ),
    plain(&["poro-chat", "bloom", "gpt3-finnish"], &[BLOOM]),
    plain(&["viking"], &[BLOOM, ONE_DIGIT]),
    with_bos(plain(
        &["chameleon"],
        &[
            "<sentinel:[0-9]+>",
            "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            ONE_DIGIT,
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2,
        ],
    )),
    plain(&["superbpe"], &[r"\p{N}+", "(?=([0-9]{3})+(?![0-9]))"]),
    PreTokenizer {
        spelling: Spelling::Metaspace,
        ..plain(&["gemma4", "granite-embed-multi-311m", "sarvam-moe"], &[LINES])
    },
];

/// What a file's name stands for; `None` if llama.cpp knows it no more than we do.
pub fn find(name: &str) -> Option<&'static PreTokenizer> {
    TABLE.iter().find(|pre| pre.names.contains(&name))
}

/// The first name of what cuts like this.
pub fn named(cuts: &[&str], ignore_merges: bool) -> Option<&'static str> {
    let alike = |pre: &&PreTokenizer| {
        pre.spelling == Spelling::ByteLevel && pre.cuts == cuts && pre.ignore_merges == ignore_merges
    };
    TABLE.iter().find(alike).map(|pre| pre.names[0])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};
    use tokenizers::tokenizer::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer as _};

    use super::*;

    fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().flat_map(|pre| pre.names).copied()
    }

    /// The pieces of a text before any is merged.
    fn cut(name: &str, text: &str) -> Vec<String> {
        let split =
            |cut: &&str| json!({"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated", "invert": false});
        let cuts: Vec<Value> = find(name).unwrap().cuts.iter().map(split).collect();
        let sequence = json!({"type": "Sequence", "pretokenizers": cuts});
        let sequence: tokenizers::PreTokenizerWrapper = serde_json::from_value(sequence).unwrap();
        let mut pieces = PreTokenizedString::from(text);
        sequence.pre_tokenize(&mut pieces).unwrap();
        let pieces = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        pieces.into_iter().map(|(piece, ..)| piece.to_owned()).collect()
    }

    #[track_caller]
    fn check(name: &str, text: &str, pieces: &str) {
        assert_eq!(cut(name, text).join("|"), pieces, "{name}");
    }

    #[test]
    fn every_name_cuts_without_losing_a_character() {
        let text =
            "I'LL say: 1234567 wörter, 中文かな 한국어 x²  \r\n\n\tif (a<=b) {\u{a0}ΑΒΓ}… <sentinel:7>IMGIMGABZ ก็ 😀 ";
        let mut seen = BTreeSet::new();
        for name in names() {
            assert_eq!(cut(name, text).concat(), text, "{name}");
            assert!(cut(name, text).len() > 1, "{name}");
            assert!(seen.insert(name), "{name} stands twice");
        }
        assert!(seen.len() > 80 && find("mystery").is_none());
    }

    #[test]
    fn digits_are_cut_as_each_family_does() {
        for (name, pieces) in [
            ("gpt-2", "a| 1234567"),
            ("llama-bpe", "a| |123|456|7"),
            ("qwen2", "a| |1|2|3|4|5|6|7"),
            ("starcoder", "a| |1|2|3|4|5|6|7"),
            ("falcon", "a| |123|456|7"),
            ("default", "a| |123|456|7"),
            ("deepseek-llm", "a| |1234567"),
            ("deepseek-coder", "a| |1|2|3|4|5|6|7"),
            ("deepseek-v3", "a| |123|456|7"),
            ("tekken", "a| |1|2|3|4|5|6|7"),
            ("gpt-4o", "a| |123|456|7"),
            ("tiny_aya", "a| |1|234|567"),
            ("afmoe", "a| |1|234|567"),
            ("superbpe", "a |1|234|567"),
            ("viking", "a| |1|2|3|4|5|6|7"),
            ("bloom", "a| 1234567"),
            ("kimi-k2", "a| |123|456|7"),
        ] {
            check(name, "a 1234567", pieces);
        }
    }

    #[test]
    fn contractions_and_case() {
        check("gpt-2", "I'll I'LL", "I|'ll| I|'|LL");
        check("llama-bpe", "I'll I'LL", "I|'ll| I|'LL");
        check("ufakzeka", "I'll", "I|'ll");
        check("ufakzeka", "Ankara'da", "Ankara|'da");
        check("qwen2", "Ankara'da", "Ankara|'d|a");
        check("tekken", "camelCase HTTPServer", "camel|Case| HTTPServer");
        check("gpt-4o", "Ann's ÜberÄpfel", "Ann's| Über|Äpfel");
        check("bailingmoe", "it'S", "it|'S");
    }

    #[test]
    fn spaces_lines_and_punctuation() {
        check("gpt-2", "a  b\n\nc", "a| | b|\n|\n|c");
        check("llama-bpe", "a  b\n\nc!\n", "a| | b|\n\n|c|!\n");
        check("seed-coder", "x!\n", "x|!|\n");
        check("falcon", "a<=b", "a|<=|b");
        check("deepseek-llm", "a b\r\n c ", "a| b|\r|\n| c| ");
        check("deepseek-v3", "x.foo 中かa", "x|.foo| |中か|a");
        check("bloom", "one, two", "one|,| two");
        check("gemma4", "a b\n\nc", "a b|\n\n|c");
        check("jais-2", "a     b", "a|    | b");
        check("chameleon", "a\tb  c", "a|\t|b|  |c");
        check("youtu", "中文abc한국", "中文|abc|한국");
        check("kimi-k2", "中文abc", "中文|abc");
        check("exaone-moe", "a b c", "a b c");
        check("laguna", "a\n\nb", "a|\n\n|b");
        check("qwen35", "e\u{301}a", "e\u{301}a");
        check("qwen2", "e\u{301}a", "e|\u{301}a");
        check("minicpm5", "1234", "123|4");
        check("spark2_5", "a!\n12", "a|!|\n|1|2");
    }
}
