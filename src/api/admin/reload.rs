//! `POST /admin/reload`: the configuration's file and the environment, read again.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State as Extract};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::guard::Actor;
use crate::api::Front;
use crate::api::error;
use crate::api::openapi::shapes::admin::ReloadAnswer;
use forebay_core::request::RequestError;
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

    async fn begin(&self, who: String) -> Result<Reloaded, Refused> {
        match &self.0 {
            Some(reloading) => reloading(who).await,
            None => Err(Refused::new("this server was not started from a configuration".into())),
        }
    }
}

/// Reads the configuration's file and the environment again, as SIGHUP does. All of what can change while the server runs is in
/// force from the next step on, also where `/admin` had changed it; keys that need a restart are named. An invalid
/// configuration changes nothing.
#[utoipa::path(post, path = "/admin/reload", operation_id = "reload", tag = "admin", responses((status = 200, description = "What changed", body = ReloadAnswer)))]
pub async fn reload(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Response {
    match state.reload.begin(actor).await {
        Ok(reloaded) => Json(object(reloaded)).into_response(),
        Err(Refused { message, place }) => {
            let refused = RequestError::Configuration { message };
            let mut body = error::object(&refused);
            if let Some((line, column)) = place {
                body["error"]["line"] = json!(line);
                body["error"]["column"] = json!(column);
            }
            error::respond(&refused, body)
        }
    }
}

fn object(Reloaded { changed, restart }: Reloaded) -> Value {
    let changed = changed.into_iter().map(|c| json!({"what": c.what, "from": c.from, "to": c.to}));
    let restart = restart.into_iter().map(|w| json!({"key": w.key, "from": w.from, "to": w.to, "why": w.why}));
    json!({"changed": changed.collect::<Value>(), "restart_needed": restart.collect::<Value>()})
}
