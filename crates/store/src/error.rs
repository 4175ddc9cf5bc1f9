//! What can go wrong with the store, and how a client meets it.

use thiserror::Error;

use forebay_core::request::RequestError;

#[derive(Debug, Error)]
pub enum StoreError {
    /// Somebody else writes for longer than we wait.
    #[error("the store is busy: {0}")]
    Busy(String),
    /// Nothing of the transaction was kept.
    #[error("the store is full: {0}")]
    Full(String),
    #[error("the store cannot be reached: {0}")]
    Unavailable(String),
    /// Found at start.
    #[error("the store at {location} cannot be used: {message}")]
    Open { location: String, message: String },
    /// A bug of ours, or a database that others changed.
    #[error("the store failed: {0}")]
    Broken(String),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> StoreError {
        let said = error.to_string();
        match &error {
            sqlx::Error::Database(database) => of_code(database.code().as_deref().unwrap_or_default(), said),
            sqlx::Error::PoolTimedOut => StoreError::Busy(said),
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                StoreError::Unavailable(said)
            }
            _ => StoreError::Broken(said),
        }
    }
}

/// SQLite's extended result codes are numbers of at most four digits, PostgreSQL's states have five characters.
fn of_code(code: &str, said: String) -> StoreError {
    if code.len() < 5 {
        // The primary code is in the low byte.
        return match code.parse::<u32>().unwrap_or(0) & 0xff {
            5 | 6 => StoreError::Busy(said),
            13 => StoreError::Full(said),
            // Out of memory, input or output, cannot open, protocol.
            7 | 10 | 14 | 15 => StoreError::Unavailable(said),
            _ => StoreError::Broken(said),
        };
    }
    match &code[..2] {
        _ if code == "53100" => StoreError::Full(said),
        // Serialisation, deadlock, locks that were not free.
        "40" | "55" => StoreError::Busy(said),
        // Connections, resources, shutdown.
        "08" | "53" | "57" | "58" => StoreError::Unavailable(said),
        _ => StoreError::Broken(said),
    }
}

/// Details stay in the log: they name tables and paths.
impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> RequestError {
        tracing::warn!(event = "store_failed", %error, "the store failed");
        match error {
            StoreError::Busy(_) => RequestError::StoreBusy,
            StoreError::Full(_) => RequestError::StoreFull,
            StoreError::Unavailable(_) | StoreError::Open { .. } => RequestError::StoreUnavailable,
            StoreError::Broken(_) => RequestError::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_databases() {
        let kind = |code: &str| RequestError::from(of_code(code, String::new()));
        for busy in ["5", "517", "6", "40001", "55P03"] {
            assert_eq!(kind(busy), RequestError::StoreBusy, "{busy}");
        }
        for full in ["13", "53100"] {
            assert_eq!(kind(full), RequestError::StoreFull, "{full}");
        }
        for down in ["10", "778", "14", "08006", "57P01"] {
            assert_eq!(kind(down), RequestError::StoreUnavailable, "{down}");
        }
        for ours in ["", "1", "2067", "23505", "42P01"] {
            assert_eq!(kind(ours), RequestError::Internal, "{ours}");
        }
    }
}
