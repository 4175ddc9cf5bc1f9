//! Probes. They read the engine's heartbeat and never ask the loop, so they answer while a step runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::error::{ErrorCode, object_of};
use super::openapi::shapes::errors::ErrorAnswer;
use crate::clock::Clock;
use crate::engine::heartbeat::{Heartbeat, Pulse};
use crate::units::Micros;

/// What readiness depends on.
#[derive(Debug)]
pub struct Health {
    heartbeat: Arc<Heartbeat>,
    clock: Clock,
    stall_after: Micros,
    loaded: AtomicBool,
    draining: AtomicBool,
}

/// Why no traffic should come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    Loading,
    Draining,
    /// A step has been running for longer than any step should.
    Stalled(Micros),
    Stopped,
}

impl Health {
    /// Not ready until [`Health::loaded`]. A step that runs longer than `stall_after` counts as hung.
    pub fn new(heartbeat: Arc<Heartbeat>, clock: Clock, stall_after: Micros) -> Health {
        Health { heartbeat, clock, stall_after, loaded: AtomicBool::new(false), draining: AtomicBool::new(false) }
    }

    /// The model is loaded and the engine runs.
    pub fn loaded(&self) {
        self.loaded.store(true, Ordering::Relaxed);
    }

    /// The server will go away: probes send traffic elsewhere, requests under way go on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn ready(&self) -> Result<(), NotReady> {
        if self.draining.load(Ordering::Relaxed) {
            return Err(NotReady::Draining);
        }
        if !self.loaded.load(Ordering::Relaxed) {
            return Err(NotReady::Loading);
        }
        match self.heartbeat.pulse(self.clock.now()) {
            Pulse::Resting => Ok(()),
            Pulse::Computing(age) if age <= self.stall_after => Ok(()),
            Pulse::Computing(age) => Err(NotReady::Stalled(age)),
            Pulse::Ended => Err(NotReady::Stopped),
        }
    }
}

/// The process answers.
#[utoipa::path(get, path = "/health/live", operation_id = "live", tag = "probes", responses((status = 200, description = "`{\"status\": \"ok\"}`", body = serde_json::Value)))]
pub async fn live() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

/// Requests will be served.
#[utoipa::path(get, path = "/health/ready", operation_id = "ready_now", tag = "probes", responses((status = 200, description = "`{\"status\": \"ok\"}`", body = serde_json::Value), (status = 503, description = "Not yet, or no longer", body = ErrorAnswer)))]
pub async fn ready(State(health): State<Arc<Health>>) -> Response {
    match health.ready() {
        Ok(()) => Json(json!({"status": "ok"})).into_response(),
        Err(why) => why.into_response(),
    }
}

impl IntoResponse for NotReady {
    fn into_response(self) -> Response {
        let (code, message) = match self {
            NotReady::Loading => ("model_loading", "the model is being loaded".to_owned()),
            NotReady::Draining => ("shutting_down", "the server is shutting down".to_owned()),
            NotReady::Stalled(age) => {
                ("engine_stalled", format!("a step has been running for {:.0} s", age.as_secs_f64()))
            }
            NotReady::Stopped => ("worker_unavailable", "the engine is not running".to_owned()),
        };
        let body = Json(object_of(&message, "overloaded_error", None, code));
        let mut response = (StatusCode::SERVICE_UNAVAILABLE, body).into_response();
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        response.extensions_mut().insert(ErrorCode(code));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_follows_loading_the_heartbeat_and_draining() {
        let (clock, heartbeat) = (Clock::manual(), Arc::new(Heartbeat::default()));
        let health = Health::new(heartbeat.clone(), clock.clone(), Micros::from_millis(1_000));
        assert_eq!(health.ready(), Err(NotReady::Loading));
        health.loaded();
        assert_eq!(health.ready(), Err(NotReady::Stopped));
        heartbeat.rest();
        assert_eq!(health.ready(), Ok(()));
        clock.advance(Micros::from_millis(60_000));
        assert_eq!(health.ready(), Ok(()), "an idle engine need not beat");
        heartbeat.begin(clock.now());
        clock.advance(Micros::from_millis(1_000));
        assert_eq!(health.ready(), Ok(()), "a long step");
        clock.advance(Micros(1));
        assert_eq!(health.ready(), Err(NotReady::Stalled(Micros(1_000_001))));
        heartbeat.rest();
        assert_eq!(health.ready(), Ok(()), "it came back");
        health.drain();
        assert_eq!(health.ready(), Err(NotReady::Draining));
    }
}
