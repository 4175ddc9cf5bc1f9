//! Answers and errors as OpenAI writes them into files and batches.

use serde_json::{Value, json};
use uuid::Uuid;

use super::Answered;
use super::lines::LineFault;
use crate::{Batch, FinishedItem, Item, Outcome};

/// Why a line has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    Expired,
    Cancelled,
}

/// A line that its route answered, as the output file has it; as the error file if it was refused.
pub fn answered(batch: &str, item: &Item, answered: &Answered) -> FinishedItem {
    // Our own routes answer in JSON; what is none is shown as it is.
    let body = serde_json::from_str(&answered.body).unwrap_or_else(|_| json!(answered.body));
    let response = json!({"status_code": answered.status, "request_id": answered.request_id, "body": body});
    let outcome = if (200..300).contains(&answered.status) { Outcome::Completed } else { Outcome::Failed };
    finished(batch, item, outcome, response, Value::Null)
}

pub fn unanswered(batch: &str, item: &Item, why: Unanswered) -> FinishedItem {
    let (code, message) = match why {
        Unanswered::Expired => {
            ("batch_expired", "This request could not be executed before the completion window expired.")
        }
        Unanswered::Cancelled => ("batch_cancelled", "This request was not executed because the batch was cancelled."),
    };
    finished(batch, item, Outcome::Failed, Value::Null, json!({"code": code, "message": message}))
}

fn finished(batch: &str, item: &Item, outcome: Outcome, response: Value, error: Value) -> FinishedItem {
    let id = format!("batch_req_{}", Uuid::new_v4().simple());
    let answer = json!({"id": id, "custom_id": item.custom_id, "response": response, "error": error});
    FinishedItem { batch: batch.into(), line: item.line, outcome, answer: answer.to_string() }
}

/// The `errors` of a batch whose file is no good.
pub fn faults(faults: &[LineFault]) -> String {
    let fault = |fault: &LineFault| {
        let line = (fault.line > 0).then_some(fault.line);
        json!({"code": fault.code, "message": fault.message, "param": fault.param, "line": line})
    };
    json!({"object": "list", "data": faults.iter().map(fault).collect::<Vec<_>>()}).to_string()
}

/// The line asks another route than its batch.
pub fn mismatched(number: usize, batch: &Batch) -> LineFault {
    let message = format!("'url' must be the batch's endpoint, {}", batch.endpoint);
    LineFault { line: number, code: "mismatched_url", param: Some("url"), message }
}
