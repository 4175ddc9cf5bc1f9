//! Prompts in each form that OpenAI has: a text, token ids, or a list of either.

use serde_json::Value;

use super::params::{integers, wrong};
use crate::generate::Prompt;
use forebay_core::request::RequestError;

/// A string, token ids, or a list of either, of which there may be `most`. The number is checked before anything is copied.
pub fn prompts(param: &str, value: Option<Value>, most: usize) -> Result<Vec<Prompt>, RequestError> {
    const EXPECTED: &str = "a string, a list of token ids, or a list of either";
    let prompts = match value {
        None => return Err(RequestError::invalid(param, "is required")),
        Some(Value::String(text)) => vec![Prompt::Text(text)],
        Some(Value::Array(ids)) if ids.iter().all(Value::is_number) => vec![Prompt::Tokens(integers(param, &ids)?)],
        Some(Value::Array(list)) if list.len() > most => {
            let message = format!("has {} prompts, at most {most} are allowed", list.len());
            return Err(RequestError::invalid(param, message));
        }
        Some(Value::Array(list)) => {
            let one = |value| match value {
                Value::String(text) => Ok(Prompt::Text(text)),
                Value::Array(ids) => Ok(Prompt::Tokens(integers(param, &ids)?)),
                other => Err(wrong(param, EXPECTED, &other)),
            };
            list.into_iter().map(one).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(param, EXPECTED, &other)),
    };
    let empty = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => text.is_empty(),
        Prompt::Tokens(ids) => ids.is_empty(),
        Prompt::Chat(_) | Prompt::Infill { .. } => false,
    };
    if prompts.iter().any(empty) { Err(RequestError::EmptyPrompt) } else { Ok(prompts) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prompts_in_every_form() {
        let text = |text: &str| Prompt::Text(text.into());
        for (given, expected) in [
            (json!("a"), vec![text("a")]),
            (json!([1, 2]), vec![Prompt::Tokens(vec![1, 2])]),
            (json!(["a", "b"]), vec![text("a"), text("b")]),
            (json!([[1], [2, 3]]), vec![Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])]),
            (json!([[1], "b"]), vec![Prompt::Tokens(vec![1]), text("b")]),
            (json!(vec!["a"; 64]), vec![text("a"); 64]),
        ] {
            assert_eq!(prompts("prompt", Some(given.clone()), 64), Ok(expected), "{given}");
        }
    }

    #[test]
    fn bad_prompts_are_refused() {
        for empty in [json!(""), json!([]), json!([[]]), json!(["a", ""])] {
            assert_eq!(prompts("prompt", Some(empty.clone()), 64), Err(RequestError::EmptyPrompt), "{empty}");
        }
        for bad in [json!(vec!["a"; 65]), json!(vec![[1]; 100]), json!(5), json!({}), json!([1.5]), json!([1, "a"])] {
            let refused = prompts("prompt", Some(bad.clone()), 64);
            assert!(matches!(refused, Err(RequestError::InvalidValue { ref param, .. }) if param == "prompt"), "{bad}");
        }
        assert!(prompts("prompt", None, 64).is_err());
    }
}
