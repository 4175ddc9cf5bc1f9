//! `/admin`: what the operator sees and changes while requests run.
//!
//! ```text
//! guard.rs     who may ask, and who asked (for the log)
//! advice.rs    what a step costs, recommendations, strategies on trial
//! control.rs   strategy, policy, limits, thermal level, pause, resume, drain
//! state.rs     the engine in numbers
//! requests.rs  live requests: list, look, end, trace
//! ```
//! Everything goes through the engine's command channel and takes effect between two steps. Queries answer while a step
//! runs, from what stayed home.

pub mod advice;
mod control;
mod guard;
mod requests;
mod state;

use axum::Router;
use axum::extract::{Extension, Path, Request, State as Extract};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};

use super::Front;
use crate::engine::control::Group;

use guard::Actor;
pub use guard::{Access, Peer};

/// The routes below `/admin`.
pub fn router(state: &Front) -> Router<Front> {
    let router = Router::new()
        .route("/state", get(state::get))
        .route("/workers", get(state::list))
        .route("/limits", tuned(Group::Limits))
        .route("/thermal", get(control::thermal).put(control::put_thermal))
        .route("/thermal/{level}", get(control::thermal_level).post(control::force_thermal))
        .route("/cost", get(advice::cost))
        .route("/strategy/recommend", get(advice::advise))
        .route("/strategy/canary", get(advice::canary))
        .route("/pause", post(control::pause))
        .route("/resume", post(control::resume))
        .route("/drain", post(control::drain))
        .route("/stats/reset", post(control::reset_stats))
        .route("/requests", get(requests::list))
        .route("/requests/{id}", get(requests::one).delete(requests::cancel))
        .route("/requests/{id}/trace", get(requests::trace));
    let named = [Group::Strategy, Group::Policy].into_iter().fold(router, |router, group| {
        let path = format!("/{}", group.what());
        router.route(&path, tuned(group)).route(&format!("{path}/{{name}}"), one_of(group))
    });
    named.layer(from_fn_with_state(state.clone(), guard::layer))
}

/// All of a group's parameters.
fn tuned(group: Group) -> MethodRouter<Front> {
    let put = move |state: Extract<Front>, actor: Extension<Actor>, request: Request| {
        control::put(state, actor, request, group)
    };
    get(move |state: Extract<Front>| control::get(state, group)).put(put).patch(put)
}

/// One of a group's names.
fn one_of(group: Group) -> MethodRouter<Front> {
    let one = get(move |state: Extract<Front>, name: Path<String>| control::one(state, name, group));
    if group == Group::Strategy {
        return one.post(advice::select);
    }
    one.post(move |state: Extract<Front>, actor: Extension<Actor>, name: Path<String>| {
        control::select(state, actor, name, group)
    })
}
