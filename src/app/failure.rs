//! Why a command or the server failed: by what the user gave, or by what happened while it ran.

/// Why the server did not start, or ended badly.
#[derive(Debug)]
pub enum Failure {
    /// What the user gave does not work: exit code 2.
    Input(Box<dyn std::error::Error + Send + Sync>),
    Runtime(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Runtime(error)
    }
}

/// A value of a command's argument that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("--{flag}: {message}")]
struct BadArgument {
    flag: &'static str,
    message: String,
}

/// The failure of a command whose argument `--flag` makes no sense.
pub fn bad(flag: &'static str, message: impl Into<String>) -> Failure {
    input(BadArgument { flag, message: message.into() })
}

/// The failure of a command that was given something that does not work.
pub fn input(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Failure::Input(Box::new(error))
}
