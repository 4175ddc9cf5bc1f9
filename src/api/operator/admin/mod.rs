//! `/admin`: what the operator sees and changes while requests run.
//!
//! ```text
//! guard.rs     who may ask, and who asked (for the log)
//! audience.rs  for whom these routes answer
//! advice.rs    what a step costs, recommendations, strategies on trial (canary.rs); advice_answers.rs  what they answer
//! control.rs   strategy, policy, limits, thermal level, pause, resume, drain; control_answers.rs  what they answer
//! balancer.rs  how a worker is chosen for a request
//! state.rs     engines and workers in numbers
//! audit.rs     who changed what, from and to what
//! reload.rs    the configuration, read again (reloading.rs: by whom)
//! requests.rs  live requests: list, look, end, trace
//! live.rs      all of that for the dashboard, as a stream of live_frame.rs with block_map.rs (feed.rs: its newest frame)
//! ```
//! Everything goes through the engine's command channel and takes effect between two steps. Queries answer while a step
//! runs, from what stayed home.

pub mod advice;
mod advice_answers;
pub mod audience;
pub mod audit;
pub mod balancer;
pub mod block_map;
pub mod canary;
pub mod control;
mod control_answers;
pub mod feed;
mod guard;
pub mod live;
pub mod live_frame;
pub mod reload;
pub mod reloading;
pub mod requests;
pub mod state;

use axum::Router;
use axum::extract::{Extension, Path, Request, State as Extract};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};

use crate::api::Front;
use forebay_turn::control::Group;

use guard::Actor;

/// The routes below `/admin`.
pub fn routes() -> Vec<(String, MethodRouter<Front>)> {
    let routes = [
        ("/state", get(state::get)),
        ("/workers", get(state::list)),
        ("/audit", get(audit::list)),
        ("/limits", tuned(Group::Limits)),
        ("/balancer", get(balancer::get).put(balancer::put)),
        ("/balancer/{name}", get(balancer::one).post(balancer::select)),
        ("/thermal", get(control::thermal).put(control::put_thermal)),
        ("/thermal/{level}", get(control::thermal_level).post(control::force_thermal)),
        ("/cost", get(advice::cost)),
        ("/strategy/recommend", get(advice::advise)),
        ("/strategy/canary", get(advice::canary)),
        ("/pause", post(control::pause)),
        ("/resume", post(control::resume)),
        ("/drain", post(control::drain)),
        ("/live", get(live::stream)),
        ("/reload", post(reload::reload)),
        ("/stats/reset", post(control::reset_stats)),
        ("/requests", get(requests::list)),
        ("/requests/{id}", get(requests::one).delete(requests::cancel)),
        ("/requests/{id}/trace", get(requests::trace)),
    ];
    let named = [Group::Strategy, Group::Policy].into_iter().flat_map(|group| {
        let path = format!("/{}", group.what());
        [(format!("{path}/{{name}}"), one_of(group)), (path, tuned(group))]
    });
    routes.into_iter().map(|(path, methods)| (path.to_owned(), methods)).chain(named).collect()
}

/// Those routes, for whom the guard lets through.
pub fn router(state: &Front) -> Router<Front> {
    let router = routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(&path, methods));
    guarded(router, state)
}

/// Other routes that are the operator's alone.
pub fn guarded(router: Router<Front>, state: &Front) -> Router<Front> {
    router.layer(from_fn_with_state(state.clone(), guard::layer))
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
