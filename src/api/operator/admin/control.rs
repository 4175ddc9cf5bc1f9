//! What changes the engine: strategy, policy, limits, thermal level, pause, resume, drain. Each change is logged and written down
//! with who, what, from and to.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Extension, Path, Request, State as Extract};
use axum::http::StatusCode;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::audit;
use super::control_answers::{
    Control, ControlChanged, ControlName, ControlSetting, ControlSettings, Draining, EngineState, Parameter,
    Parameters, Reset, Thermal, ThermalNow,
};
use super::guard::Actor;
use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use forebay_core::request::RequestError;
use forebay_engine::stats::EngineStats;
use forebay_turn::control::{self, Change, Changed, Group};

type Answer<T> = Result<Json<T>, ApiError>;

/// The parameters, and which name is in force.
#[utoipa::path(get, path = "/admin/{group}", operation_id = "read", tag = "admin", responses((status = 200, description = "As it is now", body = Control)))]
pub async fn get(Extract(state): Extract<Front>, group: Group) -> Answer<Control> {
    Ok(Json(shown(&state.workers.stats().await?, group)))
}

/// One of the names: whether it is in force, and the parameters.
#[utoipa::path(get, path = "/admin/{group}/{name}", operation_id = "look", tag = "admin", params(("name" = String, Path)), responses((status = 200, description = "As it is now", body = ControlName)))]
pub async fn one(Extract(state): Extract<Front>, Path(name): Path<String>, group: Group) -> Answer<ControlName> {
    let stats = state.workers.stats().await?;
    let names = group.names();
    let Some(found) = names.iter().copied().find(|known| *known == name) else {
        return Err(control::unknown(group.what(), &name, names).into());
    };
    let active = stats.tuning.selected(group) == Some(found);
    Ok(Json(ControlName { name: found, active, parameters: parameters(&stats, group) }))
}

/// Puts one of the names in force, from the next step on.
#[utoipa::path(post, path = "/admin/{group}/{name}", operation_id = "select", tag = "admin", params(("name" = String, Path)), responses((status = 200, description = "As it is now", body = Control)))]
pub async fn select(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(name): Path<String>,
    group: Group,
) -> Answer<Control> {
    change(&state, actor, Change { group, name: Some(name), values: Vec::new() }).await
}

/// Changes the name, parameters, or both, from the next step on. Parameters may stand beside the name.
#[utoipa::path(method(put, patch), path = "/admin/{group}", operation_id = "change", tag = "admin", request_body = ControlChange, responses((status = 200, description = "As it is now", body = Control)))]
pub async fn put(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    request: Request,
    group: Group,
) -> Answer<Control> {
    let asked = parse(group, read_object(request, state.body).await?)?;
    change(&state, actor, asked).await
}

async fn change(state: &Front, actor: String, change: Change) -> Answer<Control> {
    let group = change.group;
    let changed = state.workers.change(change).await?;
    for Changed { what, from, to } in &changed {
        tracing::info!(event = "control_changed", who = actor, what, from, to, "{what}: {from} → {to}");
    }
    let audited = audit::record(state, &actor, &changed).await;
    let mut body = shown(&state.workers.stats().await?, group);
    body.audited = (!audited).then_some(false);
    body.changed = Some(changed.into_iter().map(ControlChanged::from).collect());
    Ok(Json(body))
}

fn parse(group: Group, mut object: Map<String, Value>) -> Result<Change, RequestError> {
    let mut name = None;
    if !group.names().is_empty() {
        for key in ["name", group.what()] {
            match object.remove(key) {
                None => {}
                Some(Value::String(text)) => name = Some(text),
                Some(_) => return Err(RequestError::invalid(key, "must be a string")),
            }
        }
    }
    let mut values = Vec::new();
    match object.remove("parameters") {
        None => {}
        Some(Value::Object(inner)) => object.extend(inner),
        Some(_) => return Err(RequestError::invalid("parameters", "must be an object")),
    }
    for (key, value) in object {
        let value = match value {
            Value::Bool(set) => control::Value::Bool(set),
            // JSON has no NaN; what overflows is infinite, and outside every range.
            Value::Number(number) => control::Value::Number(number.as_f64().unwrap_or(f64::NAN)),
            Value::String(name) => control::Value::Name(name),
            _ => return Err(RequestError::invalid(key, "must be a number, a boolean or a name")),
        };
        values.push((key, value));
    }
    if name.is_none() && values.is_empty() {
        return Err(RequestError::invalid("body", "changes nothing"));
    }
    Ok(Change { group, name, values })
}

fn shown(stats: &EngineStats, group: Group) -> Control {
    let name = stats.tuning.selected(group);
    let (parameters, available) = (parameters(stats, group), name.map(|_| group.names()));
    Control { parameters, settings: settings(stats, group), name, available, audited: None, changed: None }
}

/// What a form needs to know of each parameter: its kind, its ends or names, and its help.
fn settings(stats: &EngineStats, group: Group) -> ControlSettings {
    let one = |knob: &control::Knob| {
        let kind = knob.kind_since(&stats.start);
        let (min, max) = kind.bounds().map(|(min, max)| (number(min), number(max))).unzip();
        let choices = kind.names().map(<[_]>::to_vec);
        (knob.wire_name(), ControlSetting { kind: kind.name(), help: knob.help, min, max, choices })
    };
    group.parameters().map(one).collect()
}

fn number(number: f64) -> Parameter {
    control::Value::Number(number).into()
}

pub fn parameters(stats: &EngineStats, group: Group) -> Parameters {
    stats.tuning.values(group).into_iter().map(|(name, given)| (name, given.into())).collect()
}

/// How hot it is.
#[utoipa::path(get, path = "/admin/thermal", operation_id = "thermal", tag = "admin", responses((status = 200, description = "As it is now", body = Thermal)))]
pub async fn thermal(Extract(state): Extract<Front>) -> Answer<Thermal> {
    Ok(Json(thermal_object(&state.workers.stats().await?)))
}

/// Whether a level is in force.
#[utoipa::path(get, path = "/admin/thermal/{level}", operation_id = "thermal_level", tag = "admin", params(("level" = String, Path)), responses((status = 200, description = "As it is now", body = Thermal)))]
pub async fn thermal_level(Extract(state): Extract<Front>, Path(name): Path<String>) -> Answer<Thermal> {
    control::thermal_level(&name)?;
    let mut body = thermal_object(&state.workers.stats().await?);
    body.active = Some(body.now.level == name || (name == "auto" && !body.now.forced));
    Ok(Json(body))
}

/// Holds a level; `auto` returns to the sensor.
#[utoipa::path(post, path = "/admin/thermal/{level}", operation_id = "force_thermal", tag = "admin", params(("level" = String, Path)), responses((status = 200, description = "As it is now", body = Thermal)))]
pub async fn force_thermal(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(name): Path<String>,
) -> Answer<Thermal> {
    force(&state, &actor, &name).await
}

/// Holds a level; `auto` returns to the sensor.
#[utoipa::path(put, path = "/admin/thermal", operation_id = "put_thermal", tag = "admin", request_body = ThermalChange, responses((status = 200, description = "As it is now", body = Thermal)))]
pub async fn put_thermal(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    request: Request,
) -> Answer<Thermal> {
    let mut object = read_object(request, state.body).await?;
    let level = match (object.remove("level"), object.keys().next()) {
        (Some(Value::String(level)), None) => level,
        (_, Some(other)) => return Err(RequestError::invalid(other, "is no parameter here; valid is level").into()),
        _ => return Err(RequestError::invalid("level", "must be a level's name, or auto").into()),
    };
    force(&state, &actor, &level).await
}

async fn force(state: &Front, actor: &str, name: &str) -> Answer<Thermal> {
    let before = state.workers.force_thermal(control::thermal_level(name)?).await?;
    tracing::info!(event = "control_changed", who = actor, what = "thermal", from = before.name(), to = name);
    let changed = Changed { what: "thermal".into(), from: before.name().into(), to: name.into() };
    audit::record(state, actor, &[changed]).await;
    Ok(Json(thermal_object(&state.workers.stats().await?)))
}

fn thermal_object(stats: &EngineStats) -> Thermal {
    Thermal { now: ThermalNow::of(&stats.thermal), available: control::thermal_names(), active: None }
}

/// No step starts until `/admin/resume`.
#[utoipa::path(post, path = "/admin/pause", operation_id = "pause", tag = "admin", responses((status = 200, description = "As it is now", body = EngineState)))]
pub async fn pause(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Answer<EngineState> {
    state.workers.pause().await?;
    note_engine(&state, &actor, "running", "paused").await;
    tracing::info!(event = "control_changed", who = actor, what = "engine", to = "paused", "the engine is paused");
    running_state(&state).await
}

/// Steps start again.
#[utoipa::path(post, path = "/admin/resume", operation_id = "resume", tag = "admin", responses((status = 200, description = "As it is now", body = EngineState)))]
pub async fn resume(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Answer<EngineState> {
    state.workers.resume().await?;
    note_engine(&state, &actor, "paused", "running").await;
    tracing::info!(event = "control_changed", who = actor, what = "engine", to = "running", "the engine goes on");
    running_state(&state).await
}

async fn note_engine(state: &Front, actor: &str, from: &str, to: &str) {
    let changed = Changed { what: "engine".into(), from: from.into(), to: to.into() };
    audit::record(state, actor, &[changed]).await;
}

async fn running_state(state: &Front) -> Answer<EngineState> {
    let snapshot = state.workers.stats().await?.snapshot;
    Ok(Json(EngineState { paused: snapshot.paused, draining: snapshot.draining }))
}

/// Ends the server in order. As a SIGTERM: not ready at once, queued requests are refused, running ones finish, then the process ends.
#[utoipa::path(post, path = "/admin/drain", operation_id = "drain", tag = "admin", responses((status = 202, description = "As it is now", body = Draining)))]
pub async fn drain(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
) -> (StatusCode, Json<Draining>) {
    tracing::info!(event = "control_changed", who = actor, what = "engine", to = "draining", "told to drain");
    state.drain.notify_one();
    (StatusCode::ACCEPTED, Json(Draining { draining: true }))
}

/// Begins a new window of statistics.
#[utoipa::path(post, path = "/admin/stats/reset", operation_id = "reset_stats", tag = "admin", responses((status = 200, description = "As it is now", body = Reset)))]
pub async fn reset_stats(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Answer<Reset> {
    state.workers.reset_stats().await?;
    tracing::info!(event = "stats_reset", who = actor, "a new window of statistics begins");
    Ok(Json(Reset { reset: true }))
}

/// A name, its parameters, or both. Parameters may stand beside the name, too.
#[expect(dead_code, reason = "it describes what `parse` takes apart, and is never made")]
#[derive(ToSchema)]
pub struct ControlChange {
    /// Not for limits.
    name: Option<String>,
    /// Numbers, booleans and names.
    parameters: Option<BTreeMap<String, Value>>,
}

#[expect(dead_code, reason = "it describes what `put_thermal` takes apart, and is never made")]
#[derive(ToSchema)]
pub struct ThermalChange {
    /// A level's name, or `auto`.
    level: String,
}
