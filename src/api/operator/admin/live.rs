//! `GET /admin/live`: everything the dashboard shows, a few times a second, for as long as somebody watches.
//!
//! Whoever watches shares the frames: one is made when the last is [`EVERY`] old and somebody asks, so the engine is asked
//! equally often for one watcher and for fifty, and never for none. A frame is made of what loops answer while they compute;
//! only the map of blocks comes between two steps, and where a step takes long the last one is shown again.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Extract;
use axum::response::Response;
use axum::response::sse::Event;
use tokio::time::{sleep, timeout};

use super::block_map::BlockMap;
use super::live_frame::{LiveFrame, Timeline};
use super::state::AdminState;
use crate::api::operator::measures;
use crate::api::{Front, sse};
use forebay_core::request::RequestError;
use forebay_core::units::Micros;

/// Between two frames.
const EVERY: Micros = Micros::from_millis(400);
/// Of live requests and of ended ones that a frame tells of.
const MOST_REQUESTS: usize = 24;
/// What comes later, since a step takes long or a loop hangs, does not hold up the frame.
const PATIENCE: Duration = Duration::from_millis(150);

/// The dashboard's stream. One JSON object in each event: `metrics` as `/metrics/json` has them, `engine` as `/admin/state`,
/// `blocks` of each loop, `requests` with their timelines.
#[utoipa::path(get, path = "/admin/live", operation_id = "live_stream", tag = "admin", responses((status = 200, description = "Frames, until the server ends", body = LiveFrame, content_type = "text/event-stream")))]
pub async fn stream(Extract(front): Extract<Front>) -> Response {
    let frames = futures_util::stream::unfold((front, false), |(front, waits)| async move {
        if waits {
            // Otherwise a page that is open would hold up the end of the server.
            tokio::select! {
                () = front.workers.ended() => return None,
                () = sleep(Duration::from_micros(EVERY.0)) => {}
            }
        }
        let event = Event::default().data(&*frame(&front).await);
        Some((event, (front, true)))
    });
    sse::response(frames)
}

/// The newest frame, made anew if it is old.
async fn frame(front: &Front) -> Arc<str> {
    let mut newest = front.live.lock().await;
    let now = front.clock.now();
    // The sleep of one watcher may end a little before the frame is due that another's made.
    let due = newest.made + Micros(EVERY.0 * 3 / 4);
    if newest.text.is_empty() || now >= due {
        let recent = soon(front.workers.recent(MOST_REQUESTS));
        let (maps, engine, recent) = tokio::join!(soon(front.workers.blocks()), soon(AdminState::of(front)), recent);
        if let Some(maps) = maps {
            newest.blocks = Some(maps.iter().map(|map| BlockMap::of(map)).collect());
        }
        let body = LiveFrame {
            at: front.clock.unix_millis(),
            metrics: measures::document(front),
            engine: engine.unwrap_or_else(|| AdminState::of_workers(front)),
            blocks: newest.blocks.clone(),
            requests: recent.unwrap_or_default().iter().map(Timeline::of).collect(),
        };
        newest.text = sse::data(&body).into();
        newest.made = now;
    }
    newest.text.clone()
}

async fn soon<T>(answer: impl Future<Output = Result<T, RequestError>>) -> Option<T> {
    timeout(PATIENCE, answer).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::testing::Scene;

    /// Nobody hears the engine's commands, so each question waits until patience ends.
    #[tokio::test]
    async fn who_watches_shares_the_frames_and_a_loop_that_hangs_does_not_hold_them_up() {
        let mut scene = Scene::new();
        let front = scene.state.front.clone();
        let first = frame(&front).await;
        let questions = std::iter::from_fn(|| scene.commands.try_recv().ok()).count();
        assert!(questions > 0);
        let told: Value = serde_json::from_str(&first).unwrap();
        assert_eq!((&told["requests"], &told["engine"]["workers"][0]["id"]), (&json!([]), &json!("engine-0")));
        assert!(Arc::ptr_eq(&first, &frame(&front).await), "it is not old yet");
        assert!(scene.commands.try_recv().is_err(), "the engine was not asked again");
        front.clock.advance(EVERY);
        assert!(!Arc::ptr_eq(&first, &frame(&front).await));
        assert_eq!(std::iter::from_fn(|| scene.commands.try_recv().ok()).count(), questions);
    }
}
