//! Who reads the configuration again, and what that comes to.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use forebay_turn::control::Changed;

/// What a new configuration came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reloaded {
    pub changed: Vec<Changed>,
    pub restart: Vec<Waits>,
}

/// A key whose new value is not in force before a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub key: String,
    pub from: String,
    pub to: String,
    pub why: String,
}

/// Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    pub message: String,
    /// Line and column in the file, where the mistake has a place.
    pub place: Option<(usize, usize)>,
}

impl Refused {
    pub fn new(message: String) -> Refused {
        Refused { message, place: None }
    }
}

type Reloading = dyn Fn(String) -> BoxFuture<'static, Result<Reloaded, Refused>> + Send + Sync;

/// Who reads the configuration again, if anybody can. Cheap to clone.
#[derive(Clone, Default)]
pub struct Reload(Option<Arc<Reloading>>);

impl Reload {
    /// `reloading` is told on whose behalf.
    pub fn new(
        reloading: impl Fn(String) -> BoxFuture<'static, Result<Reloaded, Refused>> + Send + Sync + 'static,
    ) -> Reload {
        Reload(Some(Arc::new(reloading)))
    }

    /// Reads it on behalf of `who`.
    pub async fn begin(&self, who: String) -> Result<Reloaded, Refused> {
        match &self.0 {
            Some(reloading) => reloading(who).await,
            None => Err(Refused::new("this server was not started from a configuration".into())),
        }
    }
}
