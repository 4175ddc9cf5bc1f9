//! `/admin/balancer`: how a worker is chosen for a request, and another choice while requests run. Each change is logged and
//! written down with who, what, from and to.

use axum::Json;
use axum::extract::{Extension, Path, Request, State as Extract};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::audit;
use super::control_answers::ControlChanged;
use super::guard::Actor;
use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use forebay_core::request::RequestError;
use forebay_core::workers::balance::Balancer;
use forebay_turn::control::{Changed, unknown};

type Answer<T> = Result<Json<T>, ApiError>;

/// The balancer in force, and those that there are.
#[utoipa::path(get, path = "/admin/balancer", operation_id = "balancer", tag = "admin", responses((status = 200, description = "As it is now", body = BalancerChoice)))]
pub async fn get(Extract(state): Extract<Front>) -> Json<BalancerChoice> {
    Json(BalancerChoice::of(&state))
}

/// One of the balancers, and whether it is in force.
#[utoipa::path(get, path = "/admin/balancer/{name}", operation_id = "look_balancer", tag = "admin", params(("name" = String, Path)), responses((status = 200, description = "As it is now", body = BalancerName)))]
pub async fn one(Extract(state): Extract<Front>, Path(name): Path<String>) -> Answer<BalancerName> {
    let balancer = named(&name)?;
    Ok(Json(BalancerName { name: balancer.name(), active: state.workers.balancer() == balancer }))
}

/// Puts a balancer in force, from the next request on. What is under way stays where it is.
#[utoipa::path(post, path = "/admin/balancer/{name}", operation_id = "select_balancer", tag = "admin", params(("name" = String, Path)), responses((status = 200, description = "As it is now", body = BalancerChoice)))]
pub async fn select(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(name): Path<String>,
) -> Answer<BalancerChoice> {
    Ok(Json(change(&state, &actor, named(&name)?).await))
}

/// Puts a balancer in force, from the next request on. What is under way stays where it is.
#[utoipa::path(put, path = "/admin/balancer", operation_id = "change_balancer", tag = "admin", request_body = BalancerChange, responses((status = 200, description = "As it is now", body = BalancerChoice)))]
pub async fn put(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    request: Request,
) -> Answer<BalancerChoice> {
    let mut object = read_object(request, state.body).await?;
    let name = match (object.remove("name"), object.keys().next()) {
        (Some(Value::String(name)), None) => name,
        (_, Some(other)) => return Err(RequestError::invalid(other, "is no parameter here; valid is name").into()),
        _ => return Err(RequestError::invalid("name", "must be a balancer's name").into()),
    };
    Ok(Json(change(&state, &actor, named(&name)?).await))
}

async fn change(state: &Front, actor: &str, balancer: Balancer) -> BalancerChoice {
    let changed: Vec<Changed> = state.workers.balance(balancer).into_iter().collect();
    for Changed { what, from, to } in &changed {
        tracing::info!(event = "control_changed", who = actor, what, from, to, "{what}: {from} → {to}");
    }
    let audited = audit::record(state, actor, &changed).await;
    BalancerChoice {
        audited: (!audited).then_some(false),
        changed: Some(changed.into_iter().map(ControlChanged::from).collect()),
        ..BalancerChoice::of(state)
    }
}

fn named(name: &str) -> Result<Balancer, RequestError> {
    let names = || Balancer::ALL.map(Balancer::name).to_vec();
    Balancer::from_name(name).ok_or_else(|| unknown("balancer", name, names()))
}

/// How a worker is chosen for a request; `docs/workers.md` says what each name stands for.
#[derive(Serialize, ToSchema)]
pub struct BalancerChoice {
    name: &'static str,
    available: [&'static str; Balancer::ALL.len()],
    /// Only where it is false: the change is in force, and the store did not take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    audited: Option<bool>,
    /// After a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Vec<ControlChanged>>,
}

impl BalancerChoice {
    fn of(state: &Front) -> BalancerChoice {
        let name = state.workers.balancer().name();
        BalancerChoice { name, available: Balancer::ALL.map(Balancer::name), audited: None, changed: None }
    }
}

/// One of the balancers.
#[derive(Serialize, ToSchema)]
pub struct BalancerName {
    name: &'static str,
    active: bool,
}

#[expect(dead_code, reason = "it describes what `put` takes apart, and is never made")]
#[derive(ToSchema)]
pub struct BalancerChange {
    /// A balancer's name.
    name: String,
}
