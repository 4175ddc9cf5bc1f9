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
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::requests::object as live_object;
use super::state;
use crate::api::operator::measures;
use crate::api::{Front, sse};
use forebay_core::report::{BlockUse, Decision};
use forebay_core::request::RequestError;
use forebay_core::units::Micros;
use forebay_engine::phases::phases;
use forebay_engine::stats::Recent;

/// Between two frames.
const EVERY: Micros = Micros::from_millis(400);
/// Of live requests and of ended ones that a frame tells of.
const MOST_REQUESTS: usize = 24;
/// A larger pool's map is drawn with several blocks in a cell.
const MOST_CELLS: usize = 4_096;
/// What comes later, since a step takes long or a loop hangs, does not hold up the frame.
const PATIENCE: Duration = Duration::from_millis(150);

/// The dashboard's stream. One JSON object in each event: `metrics` as `/metrics/json` has them, `engine` as `/admin/state`,
/// `blocks` of each loop, `requests` with their timelines.
#[utoipa::path(get, path = "/admin/live", operation_id = "live_stream", tag = "admin", responses((status = 200, description = "Frames, until the server ends", body = String, content_type = "text/event-stream")))]
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
        let asked = (soon(front.workers.blocks()), soon(state::body(front)), soon(front.workers.recent(MOST_REQUESTS)));
        let (maps, engine, recent) = tokio::join!(asked.0, asked.1, asked.2);
        if let Some(maps) = maps {
            newest.blocks = maps.iter().map(|map| map_object(map)).collect();
        }
        let body = json!({
            "at": front.clock.unix_millis(),
            "metrics": measures::document(front),
            "engine": engine.unwrap_or_else(|| json!({"workers": state::workers(front)})),
            "blocks": newest.blocks,
            "requests": recent.unwrap_or_default().iter().map(object).collect::<Value>(),
        });
        newest.text = body.to_string().into();
        newest.made = now;
    }
    newest.text.clone()
}

async fn soon<T>(answer: impl Future<Output = Result<T, RequestError>>) -> Option<T> {
    timeout(PATIENCE, answer).await.ok()?.ok()
}

/// A digit for each cell (its blocks' most frequent use, the busiest of equals), in the order of [`BlockUse::ALL`].
fn map_object(uses: &[BlockUse]) -> Value {
    let per_cell = uses.len().div_ceil(MOST_CELLS).max(1);
    let count = |of: &[BlockUse], wanted: BlockUse| of.iter().filter(|one| **one == wanted).count();
    let cell = |of: &[BlockUse]| {
        let digits = ('0'..).zip(BlockUse::ALL);
        digits.max_by_key(|(_, wanted)| count(of, *wanted)).map_or('0', |(digit, _)| digit)
    };
    let mut object = json!({
        "blocks": uses.len(),
        "per_cell": per_cell,
        "cells": uses.chunks(per_cell).map(cell).collect::<String>(),
    });
    for wanted in BlockUse::ALL {
        object[wanted.name()] = json!(count(uses, wanted));
    }
    object
}

/// What `/admin/requests` tells of live ones, and for ended ones the same as far as it is known; times in microseconds.
fn object(recent: &Recent) -> Value {
    let trace = &recent.trace;
    let mut object = match &recent.live {
        Some(live) => live_object(live),
        None => json!({
            "id": &*trace.origin.id,
            "sequence": trace.seq.to_string(),
            "state": "ended",
            "priority": trace.priority.name(),
            "tenant": &*trace.origin.tenant,
            "prompt_tokens": trace.prompt_tokens,
            "generated_tokens": trace.course.tokens,
        }),
    };
    let ended = trace.entries.last().and_then(|entry| match entry.decision {
        Decision::Ended { how } => Some(how),
        _ => None,
    });
    let of = |entry: &forebay_engine::trace::Entry| match entry.decision {
        Decision::Admitted { cached_tokens, .. } => Some(cached_tokens),
        _ => None,
    };
    let spans = phases(trace, recent.now);
    object["ended"] = json!(ended);
    object["received_ago_us"] = json!(recent.now.since(trace.origin.received).0);
    object["lasted_us"] = json!(spans.last().map(|span| span.until.0));
    object["cached_tokens"] = json!(trace.entries.iter().find_map(of));
    object["preemptions"] =
        json!(trace.entries.iter().filter(|entry| matches!(entry.decision, Decision::Preempted { .. })).count());
    object["phases"] =
        spans.into_iter().map(|span| json!([span.doing.name(), span.from.0, span.until.0, span.cause])).collect();
    object
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_large_map_is_folded_and_a_small_one_is_not() {
        use BlockUse::{Cached, Free, Shared, Used};
        let small = map_object(&[Free, Used, Cached, Shared]);
        assert_eq!(small["cells"], "0213");
        assert_eq!((&small["per_cell"], &small["used"]), (&json!(1), &json!(1)));
        let mut uses = vec![Free; MOST_CELLS * 2 + 1];
        uses[..3].copy_from_slice(&[Used, Used, Shared]);
        let large = map_object(&uses);
        assert_eq!(large["per_cell"], 3);
        let cells = large["cells"].as_str().unwrap();
        assert_eq!(cells.len(), uses.len().div_ceil(3));
        assert!(cells.starts_with("20") && cells.ends_with('0'), "{cells}");
        assert_eq!((&large["blocks"], &large["used"], &large["shared"]), (&json!(uses.len()), &json!(2), &json!(1)));
        assert_eq!(map_object(&[])["cells"], "");
    }
}
