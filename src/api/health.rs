//! Probes. They read what the pool knows of its workers and never ask a loop, so they answer while a step runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::error::{ApiError, ErrorAnswer};
use forebay_core::request::RequestError;
use forebay_engine::workers::{Pool, Unready};

/// What readiness depends on.
pub struct Health {
    workers: Pool,
    loaded: AtomicBool,
    draining: AtomicBool,
}

/// Why no traffic should come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    Loading,
    Draining,
    Unready(Unready),
}

impl Health {
    /// Not ready until [`Health::loaded`], and while no worker could take a request.
    pub fn new(workers: Pool) -> Health {
        Health { workers, loaded: AtomicBool::new(false), draining: AtomicBool::new(false) }
    }

    /// The model is loaded and the workers are watched.
    pub fn loaded(&self) {
        self.loaded.store(true, Ordering::Relaxed);
    }

    /// The server will go away: probes send traffic elsewhere, requests under way go on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub fn ready(&self) -> Result<(), NotReady> {
        if self.is_draining() {
            return Err(NotReady::Draining);
        }
        if !self.loaded.load(Ordering::Relaxed) {
            return Err(NotReady::Loading);
        }
        self.workers.ready().map_err(NotReady::Unready)
    }
}

/// Envoy takes a server that says so out of its rotation at once, without waiting for its next health check.
const LEAVING: &str = "x-envoy-immediate-health-check-fail";

/// While the server drains, every answer sends the next request elsewhere.
pub async fn layer(State(health): State<Arc<Health>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if health.is_draining() {
        response.headers_mut().insert(LEAVING, HeaderValue::from_static("true"));
        // A connection that is kept alive would bring its next request here.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What a probe hears where all is well.
#[derive(Serialize, ToSchema)]
pub struct HealthAnswer {
    /// `ok`.
    status: &'static str,
}

impl HealthAnswer {
    const OK: HealthAnswer = HealthAnswer { status: "ok" };
}

/// The process answers.
#[utoipa::path(get, path = "/health/live", operation_id = "live", tag = "probes", responses((status = 200, description = "`{\"status\": \"ok\"}`", body = HealthAnswer)))]
pub async fn live() -> Json<HealthAnswer> {
    Json(HealthAnswer::OK)
}

/// Requests will be served.
#[utoipa::path(get, path = "/health/ready", operation_id = "ready_now", tag = "probes", responses((status = 200, description = "`{\"status\": \"ok\"}`", body = HealthAnswer), (status = 503, description = "Not yet, or no longer", body = ErrorAnswer)))]
pub async fn ready(State(health): State<Arc<Health>>) -> Response {
    match health.ready() {
        Ok(()) => Json(HealthAnswer::OK).into_response(),
        Err(why) => why.into_response(),
    }
}

impl IntoResponse for NotReady {
    fn into_response(self) -> Response {
        let error = match self {
            NotReady::Loading => RequestError::ModelLoading,
            NotReady::Draining => RequestError::ShuttingDown,
            NotReady::Unready(Unready::Stalled(age)) => {
                RequestError::EngineStalled { seconds: age.as_secs_f64() as u64 }
            }
            NotReady::Unready(Unready::Stopped) => RequestError::EngineStopped,
        };
        ApiError(error).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_clock::Clock;
    use forebay_core::units::Micros;
    use forebay_engine::EngineHandle;
    use forebay_engine::heartbeat::Heartbeat;
    use forebay_engine::metrics::Metrics;
    use forebay_engine::permit::Gate;

    #[test]
    fn readiness_follows_loading_the_heartbeat_and_draining() {
        let (clock, heartbeat) = (Clock::manual(), Arc::new(Heartbeat::default()));
        let (sender, _commands) = tokio::sync::mpsc::channel(1);
        let engine = EngineHandle::new(sender, Gate::default());
        let health = Health::new(Pool::single(engine, heartbeat.clone(), clock.clone(), Metrics::new()));
        assert_eq!(health.ready(), Err(NotReady::Loading));
        health.loaded();
        assert_eq!(health.ready(), Err(NotReady::Unready(Unready::Stopped)));
        heartbeat.rest();
        assert_eq!(health.ready(), Ok(()));
        clock.advance(Micros::from_millis(600_000));
        assert_eq!(health.ready(), Ok(()), "an idle engine need not beat");
        heartbeat.begin(clock.now());
        clock.advance(Micros::from_millis(60_000));
        assert_eq!(health.ready(), Ok(()), "a long step");
        clock.advance(Micros(1));
        assert_eq!(health.ready(), Err(NotReady::Unready(Unready::Stalled(Micros(60_000_001)))));
        heartbeat.rest();
        assert_eq!(health.ready(), Ok(()), "it came back");
        health.drain();
        assert_eq!(health.ready(), Err(NotReady::Draining));
    }
}
