//! Why a chat template gives no prompt.

use thiserror::Error as ThisError;

/// Messages are at most 500 characters.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum TemplateError {
    #[error("the chat template is not valid (line {line}): {message}")]
    Syntax { line: usize, message: String },
    /// The template refused the messages in its own words.
    #[error("{message}")]
    Raised { message: String },
    #[error("the chat template needs more than {steps} steps for these messages")]
    TooMuchWork { steps: u64 },
    #[error("the chat template writes more than {bytes} bytes for these messages")]
    TooLong { bytes: usize },
    #[error("the chat template fails in line {line}: {message}")]
    Failed { line: usize, message: String },
}
