//! Labels of HTTP requests: what was asked, and how it ended.

/// Which face of the server a request met; the label set is bounded by this enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Completions,
    Chat,
    Embeddings,
    Rerank,
    Responses,
    Messages,
    Models,
    Tokenize,
    Files,
    Batches,
    Admin,
    Health,
    Metrics,
    Other,
}

impl Route {
    pub const ALL: [Route; 14] = [
        Route::Completions,
        Route::Chat,
        Route::Embeddings,
        Route::Rerank,
        Route::Responses,
        Route::Messages,
        Route::Models,
        Route::Tokenize,
        Route::Files,
        Route::Batches,
        Route::Admin,
        Route::Health,
        Route::Metrics,
        Route::Other,
    ];

    /// Whether it is what clients come for; probes and the operator's questions are not.
    pub fn asks_the_model(self) -> bool {
        matches!(
            self,
            Route::Completions | Route::Chat | Route::Embeddings | Route::Rerank | Route::Responses | Route::Messages
        )
    }

    pub fn label(self) -> &'static str {
        match self {
            Route::Completions => "completions",
            Route::Chat => "chat",
            Route::Embeddings => "embeddings",
            Route::Rerank => "rerank",
            Route::Responses => "responses",
            Route::Messages => "messages",
            Route::Models => "models",
            Route::Tokenize => "tokenize",
            Route::Files => "files",
            Route::Batches => "batches",
            Route::Admin => "admin",
            Route::Health => "health",
            Route::Metrics => "metrics",
            Route::Other => "other",
        }
    }
}

/// How an HTTP request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    ClientError,
    ServerError,
    /// The client went away before it had everything.
    Cancelled,
}

impl Outcome {
    pub const ALL: [Outcome; 4] = [Outcome::Ok, Outcome::ClientError, Outcome::ServerError, Outcome::Cancelled];

    pub fn label(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::ClientError => "client_error",
            Outcome::ServerError => "server_error",
            Outcome::Cancelled => "cancelled",
        }
    }
}
