//! What changes the engine: strategy, policy, limits, thermal level, pause, resume, drain. Each change is logged with who,
//! what, from and to.

use axum::extract::{Extension, Path, Request, State as Extract};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Json, response::Response};
use serde_json::{Map, Value, json};

use super::guard::Actor;
use crate::api::Front;
use crate::api::error::ApiError;
use crate::api::extract::read_object;
use crate::engine::control::{self, Change, Changed, Group};
use crate::engine::stats::EngineStats;
use crate::request::RequestError;

type Answer = Result<Json<Value>, ApiError>;

pub async fn get(Extract(state): Extract<Front>, group: Group) -> Answer {
    Ok(Json(shown(&state.workers.stats().await?, group)))
}

/// One of the names: whether it is in force, and the parameters.
pub async fn one(Extract(state): Extract<Front>, Path(name): Path<String>, group: Group) -> Answer {
    let stats = state.workers.stats().await?;
    let names = group.names();
    let Some(found) = names.iter().copied().find(|known| *known == name) else {
        return Err(control::unknown(group.what(), &name, names).into());
    };
    let active = stats.tuning.selected(group) == Some(found);
    Ok(Json(json!({"name": found, "active": active, "parameters": parameters(&stats, group)})))
}

pub async fn select(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(name): Path<String>,
    group: Group,
) -> Answer {
    change(&state, actor, Change { group, name: Some(name), values: Vec::new() }).await
}

/// `{"name": ..., "parameters": {...}}`, or the parameters beside the name.
pub async fn put(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    request: Request,
    group: Group,
) -> Answer {
    let asked = parse(group, read_object(request, state.body).await?)?;
    change(&state, actor, asked).await
}

async fn change(state: &Front, actor: String, change: Change) -> Answer {
    let group = change.group;
    let changed = state.workers.change(change).await?;
    for Changed { what, from, to } in &changed {
        tracing::info!(event = "control_changed", who = actor, what, from, to, "{what}: {from} → {to}");
    }
    let mut body = shown(&state.workers.stats().await?, group);
    let list = changed.into_iter().map(|c| json!({"what": c.what, "from": c.from, "to": c.to}));
    body["changed"] = list.collect();
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
            _ => return Err(RequestError::invalid(key, "must be a number or a boolean")),
        };
        values.push((key, value));
    }
    if name.is_none() && values.is_empty() {
        return Err(RequestError::invalid("body", "changes nothing"));
    }
    Ok(Change { group, name, values })
}

fn shown(stats: &EngineStats, group: Group) -> Value {
    let mut body = json!({"parameters": parameters(stats, group)});
    if let Some(name) = stats.tuning.selected(group) {
        body["name"] = json!(name);
        body["available"] = json!(group.names());
    }
    body
}

pub fn parameters(stats: &EngineStats, group: Group) -> Value {
    let value = |value| match value {
        control::Value::Bool(set) => json!(set),
        control::Value::Number(number) if number.fract() == 0.0 => json!(number as i64),
        control::Value::Number(number) => json!(number),
    };
    let values = stats.tuning.values(group).into_iter();
    values.map(|(name, given)| (name.to_owned(), value(given))).collect::<Map<_, _>>().into()
}

pub async fn thermal(Extract(state): Extract<Front>) -> Answer {
    Ok(Json(thermal_object(&state.workers.stats().await?)))
}

pub async fn thermal_level(Extract(state): Extract<Front>, Path(name): Path<String>) -> Answer {
    control::thermal_level(&name)?;
    let mut body = thermal_object(&state.workers.stats().await?);
    body["active"] = json!(body["level"] == name.as_str() || (name == "auto" && body["forced"] == false));
    Ok(Json(body))
}

pub async fn force_thermal(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(name): Path<String>,
) -> Answer {
    force(&state, actor, &name).await
}

pub async fn put_thermal(
    Extract(state): Extract<Front>,
    Extension(Actor(actor)): Extension<Actor>,
    request: Request,
) -> Answer {
    let mut object = read_object(request, state.body).await?;
    let level = match (object.remove("level"), object.keys().next()) {
        (Some(Value::String(level)), None) => level,
        (_, Some(other)) => return Err(RequestError::invalid(other, "is no parameter here; valid is level").into()),
        _ => return Err(RequestError::invalid("level", "must be a level's name, or auto").into()),
    };
    force(&state, actor, &level).await
}

async fn force(state: &Front, actor: String, name: &str) -> Answer {
    let before = state.workers.force_thermal(control::thermal_level(name)?).await?;
    tracing::info!(event = "control_changed", who = actor, what = "thermal", from = before.name(), to = name);
    Ok(Json(thermal_object(&state.workers.stats().await?)))
}

fn thermal_object(stats: &EngineStats) -> Value {
    let thermal = &stats.thermal;
    json!({
        "level": thermal.level,
        "forced": thermal.forced,
        "celsius": thermal.celsius,
        "available": control::thermal_names(),
    })
}

pub async fn pause(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Answer {
    state.workers.pause().await?;
    tracing::info!(event = "control_changed", who = actor, what = "engine", to = "paused", "the engine is paused");
    running_state(&state).await
}

pub async fn resume(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Answer {
    state.workers.resume().await?;
    tracing::info!(event = "control_changed", who = actor, what = "engine", to = "running", "the engine goes on");
    running_state(&state).await
}

async fn running_state(state: &Front) -> Answer {
    let snapshot = state.workers.stats().await?.snapshot;
    Ok(Json(json!({"paused": snapshot.paused, "draining": snapshot.draining})))
}

/// As a SIGTERM: not ready at once, queued requests are refused, running ones finish, then the process ends.
pub async fn drain(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Response {
    tracing::info!(event = "control_changed", who = actor, what = "engine", to = "draining", "told to drain");
    state.drain.notify_one();
    (StatusCode::ACCEPTED, Json(json!({"draining": true}))).into_response()
}

pub async fn reset_stats(Extract(state): Extract<Front>, Extension(Actor(actor)): Extension<Actor>) -> Answer {
    state.workers.reset_stats().await?;
    tracing::info!(event = "stats_reset", who = actor, "a new window of statistics begins");
    Ok(Json(json!({"reset": true})))
}
