//! Calls of tools, found in a model's text while it arrives. Pure.
//!
//! ```text
//! glyphs ─▶ ToolParser (parser.rs: marks, lists, what is held) ─▶ text, calls, fragments of arguments
//!             ├─ object.rs  {"name": …, "arguments": {…}}, byte by byte
//!             └─ a Syntax per family: hermes.rs, llama3.rs, mistral.rs, phi.rs, granite.rs, deepseek.rs, json.rs
//! ```
//! **When a call begins.** A call has begun when its name is complete, is that of a tool of the request, and its arguments
//! have opened. From then on it is the client's: its arguments are handed out as they come, in the model's own words, and
//! belong to it until their braces balance, however broken they are inside; when the text ends early they stay cut off.
//! Until then nothing is handed out, and what turns out to be no call (bad JSON, an unknown name, an early end) is the text
//! that it is. Nothing is lost and nothing comes twice.

mod deepseek;
mod granite;
mod hermes;
mod json;
mod llama3;
mod mistral;
mod object;
mod parser;
mod phi;
mod prompt;

pub use parser::ToolParser;
pub use prompt::in_plain_words;

#[cfg(test)]
mod tests;

/// How a family of models writes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFamily {
    Hermes,
    Llama3,
    Mistral,
    Phi,
    Granite,
    DeepSeek,
    Json,
}

/// What a parser finds, in the text's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// A call begins.
    Call {
        name: String,
    },
    /// More of the arguments of the call that began last: all of them joined are JSON, as far as the model can write it.
    Arguments(String),
}

/// A family's grammar: data, for the one parser.
struct Syntax {
    /// What stands before calls.
    marks: &'static [&'static str],
    /// What may stand after a call and says nothing.
    closes: &'static [&'static str],
    /// Further spellings that may be special tokens and that the parser must see.
    inner: &'static [&'static str],
    /// A call may be the very beginning of the answer, without a mark. Calls must have arguments then:
    /// any JSON with a name would be one.
    bare: bool,
    /// Stands between calls that are in no list.
    separator: Option<char>,
    /// For calls that are no JSON objects: the name in what stands between the mark and the arguments' first brace.
    name_of: Option<fn(&str) -> Option<&str>>,
}

/// Parts of marks that other models put around calls: Kimi, MiniMax, Seed-OSS, LFM2, Nemotron, Command R, gpt-oss,
/// DeepSeek V3.2.
const FOREIGN: &[&str] = &[
    "tool_call>",
    "tool_calls>",
    "tool_call_begin",
    "tool_call_start",
    "TOOLCALL>",
    "START_ACTION",
    "<|channel|>",
    "DSML",
];

impl ToolFamily {
    pub const ALL: [ToolFamily; 7] = [
        ToolFamily::Hermes,
        ToolFamily::Llama3,
        ToolFamily::Mistral,
        ToolFamily::Phi,
        ToolFamily::Granite,
        ToolFamily::DeepSeek,
        ToolFamily::Json,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            ToolFamily::Hermes => "hermes",
            ToolFamily::Llama3 => "llama3",
            ToolFamily::Mistral => "mistral",
            ToolFamily::Phi => "phi",
            ToolFamily::Granite => "granite",
            ToolFamily::DeepSeek => "deepseek",
            ToolFamily::Json => "json",
        }
    }

    /// How the model behind a chat template writes calls, as far as the template tells. Templates that know tools and no
    /// mark for calls are taken for plain JSON; those with marks that nobody here reads are none of ours.
    pub fn of_template(source: &str) -> Option<ToolFamily> {
        let has = |mark: &str| source.contains(mark);
        let marked = [
            (ToolFamily::DeepSeek, has("<｜tool▁calls▁begin｜>") || has("<｜tool▁call▁begin｜>")),
            (ToolFamily::Mistral, has("[TOOL_CALLS]")),
            (ToolFamily::Granite, has("<|start_of_role|>")),
            (ToolFamily::Phi, has("<|tool|>") || has("functools")),
            (ToolFamily::Hermes, has("<tool_call>")),
            (ToolFamily::Llama3, has("<|python_tag|>") || has("<|start_header_id|>")),
        ];
        // Qwen3-Coder and GLM write XML between Hermes' tags.
        if !has("tools") || has("<function=") || has("<arg_key>") {
            return None;
        }
        let found = marked.into_iter().find_map(|(family, found)| found.then_some(family));
        found.or_else(|| (!FOREIGN.iter().any(|mark| has(mark))).then_some(ToolFamily::Json))
    }

    /// The spellings that the parser must see even where they are special tokens.
    pub fn marks(self) -> impl Iterator<Item = &'static str> {
        let Syntax { marks, closes, inner, .. } = self.syntax();
        marks.iter().chain(*closes).chain(*inner).copied()
    }

    fn syntax(self) -> &'static Syntax {
        match self {
            ToolFamily::Hermes => &hermes::SYNTAX,
            ToolFamily::Llama3 => &llama3::SYNTAX,
            ToolFamily::Mistral => &mistral::SYNTAX,
            ToolFamily::Phi => &phi::SYNTAX,
            ToolFamily::Granite => &granite::SYNTAX,
            ToolFamily::DeepSeek => &deepseek::SYNTAX,
            ToolFamily::Json => &json::SYNTAX,
        }
    }
}
