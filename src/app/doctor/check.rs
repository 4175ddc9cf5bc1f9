//! A check of the doctor and how it came out.

/// How a check came out, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Fine,
    /// It will run, and not as well as it could.
    Warning,
    /// `forebay serve` would not start, or would not answer.
    Broken,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Fine => "ok",
            Verdict::Warning => "warning",
            Verdict::Broken => "broken",
        }
    }
}

/// What the doctor looked at, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub found: String,
    /// What to do; empty where there is nothing to do.
    pub advice: String,
}

impl Check {
    pub fn fine(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Fine, found: found.into(), advice: String::new() }
    }

    pub fn warning(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Warning, found: found.into(), advice: advice.into() }
    }

    pub fn broken(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Broken, found: found.into(), advice: advice.into() }
    }
}
