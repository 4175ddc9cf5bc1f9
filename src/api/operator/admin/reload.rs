//! `POST /admin/reload`: the configuration's file and the environment, read again.

use axum::Json;
use axum::extract::{Extension, State as Extract};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::guard::Actor;
use super::reloading::{Refused, Reloaded};
use crate::api::Front;
use crate::api::error;
use crate::api::openapi::shapes::admin::ReloadAnswer;
use forebay_core::request::RequestError;

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
