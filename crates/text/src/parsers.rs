//! Which parsers read a model's answers. Pure.

use super::{ReasoningFamily, ToolFamily};

/// What the operator chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ParserChoice<F> {
    /// What the chat template tells.
    #[default]
    Auto,
    Off,
    Named(F),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParserChoices {
    pub tools: ParserChoice<ToolFamily>,
    pub reasoning: ParserChoice<ReasoningFamily>,
}

impl<F> ParserChoice<F> {
    /// `of_template` reads the template, where there is one.
    pub fn resolve(self, template: Option<&str>, of_template: impl Fn(&str) -> Option<F>) -> Option<F> {
        match self {
            ParserChoice::Auto => template.and_then(of_template),
            ParserChoice::Off => None,
            ParserChoice::Named(family) => Some(family),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_goes_before_the_template() {
        let template = Some("{{ tools }}<tool_call>");
        let resolve = |choice: ParserChoice<ToolFamily>| choice.resolve(template, ToolFamily::of_template);
        assert_eq!(resolve(ParserChoice::Auto), Some(ToolFamily::Hermes));
        assert_eq!(resolve(ParserChoice::Off), None);
        assert_eq!(resolve(ParserChoice::Named(ToolFamily::Json)), Some(ToolFamily::Json));
        assert_eq!(ParserChoice::Auto.resolve(None, ToolFamily::of_template), None);
    }
}
