//! `forebay doctor`: what this machine and this configuration would make of `forebay serve`, and what to do about it.
//!
//! Looks, and leaves everything as it is: no model is loaded or downloaded, no port stays bound, no store is made. The checks
//! are in [`checks`].

mod check;
mod checks;

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::config::{DoctorFormat, Loaded};

use check::{Check, Verdict};

/// Prints all checks; the exit code is 1 if anything is broken. `mistake` is what is wrong with the configuration: then the
/// defaults are looked at.
pub fn doctor(loaded: &Loaded, mistake: Option<String>, format: DoctorFormat) -> ExitCode {
    let checks = checks::all(loaded, mistake);
    let worst = worst(&checks);
    let text = match format {
        DoctorFormat::Table => table(&checks),
        DoctorFormat::Json => format!("{:#}\n", object(&checks)),
    };
    // A closed pipe changes nothing about the outcome.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if worst == Verdict::Broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn worst(checks: &[Check]) -> Verdict {
    checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Fine)
}

fn table(checks: &[Check]) -> String {
    let line = |check: &Check| {
        let advice = match check.advice.as_str() {
            "" => String::new(),
            advice => format!("{:20}→ {advice}\n", ""),
        };
        format!("{:<8} {:<10} {}\n{advice}", check.verdict.name(), check.name, check.found)
    };
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let summary = match (count(Verdict::Broken), count(Verdict::Warning)) {
        (0, 0) => "everything is in order".to_owned(),
        (0, warnings) => format!("it will run; {warnings} to look at"),
        (broken, _) => format!("{broken} broken: `forebay serve` would not work"),
    };
    checks.iter().map(line).collect::<String>() + &summary + "\n"
}

fn object(checks: &[Check]) -> Value {
    let check = |check: &Check| {
        json!({
            "name": check.name,
            "status": check.verdict.name(),
            "found": check.found,
            "advice": Some(&check.advice).filter(|advice| !advice.is_empty()),
        })
    };
    json!({"status": worst(checks).name(), "version": env!("CARGO_PKG_VERSION"), "checks": checks.iter().map(check).collect::<Value>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_check_decides_and_advice_stands_below_its_check() {
        let fine = Check::fine("config", "defaults");
        let warning = Check::warning("memory", "little", "buy some");
        let broken = Check::broken("port", "taken", "take another");
        assert_eq!(table(std::slice::from_ref(&fine)), "ok       config     defaults\neverything is in order\n");
        let all = [fine, warning, broken];
        assert_eq!((worst(&all[..2]), worst(&all)), (Verdict::Warning, Verdict::Broken));
        assert!(
            table(&all).contains("broken   port       taken\n                    → take another\n"),
            "{}",
            table(&all)
        );
        let object = object(&all);
        assert_eq!((&object["status"], &object["checks"][0]["advice"]), (&json!("broken"), &Value::Null));
        assert_eq!(object["checks"][1]["advice"], "buy some");
    }
}
