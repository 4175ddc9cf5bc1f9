//! The families of models that write calls alike, and how a chat template tells which one its model is of.

use super::syntax::Syntax;
use super::{deepseek, granite, hermes, json, llama3, mistral, phi};

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

    pub(super) fn syntax(self) -> &'static Syntax {
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
