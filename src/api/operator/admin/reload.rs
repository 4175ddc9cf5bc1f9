//! `POST /admin/reload`: the configuration's file and the environment, read again.

use axum::Json;
use axum::extract::{Extension, State as Extract};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::control_answers::ControlChanged;
use super::guard::Actor;
use super::reloading::{Refused, Reloaded, Waits};
use crate::api::Front;
use crate::api::error::{self, ErrorObject};
use forebay_core::request::RequestError;

/// Reads the configuration's file and the environment again, as SIGHUP does. All of what can change while the server runs is in
/// force from the next step on, also where `/admin` had changed it; keys that need a restart are named. An invalid
/// configuration changes nothing.
#[utoipa::path(post, path = "/admin/reload", operation_id = "reload", tag = "admin", responses((status = 200, description = "What changed", body = ReloadAnswer), (status = 400, description = "The configuration is invalid", body = InvalidConfiguration)))]
pub async fn reload(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Response {
    match state.reload.begin(actor).await {
        Ok(reloaded) => Json(ReloadAnswer::of(reloaded)).into_response(),
        Err(Refused { message, place }) => {
            let refused = RequestError::Configuration { message };
            error::respond(&refused, InvalidConfiguration::of(&refused, place))
        }
    }
}

#[derive(Serialize, ToSchema)]
pub struct ReloadAnswer {
    changed: Vec<ControlChanged>,
    restart_needed: Vec<RestartNeeded>,
}

/// A key whose new value is not in force before a restart.
#[derive(Serialize, ToSchema)]
pub struct RestartNeeded {
    key: String,
    from: String,
    to: String,
    why: String,
}

impl ReloadAnswer {
    fn of(Reloaded { changed, restart }: Reloaded) -> ReloadAnswer {
        let waits = |Waits { key, from, to, why }: Waits| RestartNeeded { key, from, to, why };
        ReloadAnswer {
            changed: changed.into_iter().map(ControlChanged::from).collect(),
            restart_needed: restart.into_iter().map(waits).collect(),
        }
    }
}

/// An error that says where the mistake is.
#[derive(Serialize, ToSchema)]
pub struct InvalidConfiguration {
    error: ErrorInFile,
}

#[derive(Serialize, ToSchema)]
pub struct ErrorInFile {
    #[serde(flatten)]
    error: ErrorObject,
    /// In the file, where the mistake has a place.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
}

impl InvalidConfiguration {
    fn of(refused: &RequestError, place: Option<(usize, usize)>) -> InvalidConfiguration {
        let (line, column) = place.unzip();
        InvalidConfiguration { error: ErrorInFile { error: error::object(refused).error, line, column } }
    }
}
