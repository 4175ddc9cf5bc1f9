//! Errors of a shared path in the words of the route that was asked.

use forebay_core::request::RequestError;

/// Names the field of an error anew; `name` answers `None` for names that the route has, too.
pub fn renamed(error: RequestError, name: impl Fn(&str) -> Option<String>) -> RequestError {
    let new = |param: String| name(&param).unwrap_or(param);
    match error {
        RequestError::InvalidValue { param, message } => RequestError::InvalidValue { param: new(param), message },
        RequestError::Unsupported { param, message } => RequestError::Unsupported { param: new(param), message },
        RequestError::GrammarTooComplex { param, message } => {
            RequestError::GrammarTooComplex { param: new(param), message }
        }
        RequestError::EmptyPrompt => match name("prompt") {
            Some(param) => RequestError::InvalidValue { param, message: "is empty, or an entry of it is".into() },
            None => RequestError::EmptyPrompt,
        },
        RequestError::Template { message } => match name("messages") {
            Some(param) => {
                RequestError::InvalidValue { param, message: format!("the chat template refused it: {message}") }
            }
            None => RequestError::Template { message },
        },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_names_a_field_is_renamed() {
        let rename = |error| renamed(error, |param| (param == "prompt").then(|| "input".to_owned()));
        assert_eq!(rename(RequestError::invalid("prompt", "x")), RequestError::invalid("input", "x"));
        assert_eq!(rename(RequestError::invalid("n", "x")), RequestError::invalid("n", "x"));
        assert!(
            matches!(rename(RequestError::EmptyPrompt), RequestError::InvalidValue { param, .. } if param == "input")
        );
        let complex = |param: &str| RequestError::GrammarTooComplex { param: param.into(), message: "x".into() };
        assert_eq!(rename(complex("prompt")), complex("input"));
        assert_eq!(rename(RequestError::Internal), RequestError::Internal);
    }
}
