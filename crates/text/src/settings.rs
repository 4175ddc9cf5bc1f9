//! The settings of who reads a model's answers.

use forebay_core::settings::Setting;

use super::parsers::{ParserChoice, ParserChoices};
use super::reasoning::ReasoningFamily;
use super::tools::ToolFamily;

/// In the order of config.yaml.
pub fn settings() -> Vec<Setting<ParserChoices>> {
    let tools = ToolFamily::ALL.map(|family| (family.name(), family));
    let reasoning = ReasoningFamily::ALL.map(|family| (family.name(), family));
    vec![
        Setting::one_of("model.tool_parser", |c: &mut ParserChoices| &mut c.tools, choices(tools))
            .flag("tool-parser")
            .help("how the model writes calls of tools; auto is what its chat template tells"),
        Setting::one_of("model.reasoning_parser", |c: &mut ParserChoices| &mut c.reasoning, choices(reasoning))
            .flag("reasoning-parser")
            .help("which tags stand around the model's thinking; auto is what its chat template tells"),
    ]
}

fn choices<F, const N: usize>(families: [(&'static str, F); N]) -> Vec<(&'static str, ParserChoice<F>)> {
    let named = families.map(|(name, family)| (name, ParserChoice::Named(family)));
    [("auto", ParserChoice::Auto), ("none", ParserChoice::Off)].into_iter().chain(named).collect()
}
