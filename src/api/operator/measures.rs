//! `GET /metrics/json`: the server at this moment; `GET /metrics/json/history`: how it came to that. For dashboards that have no
//! Prometheus, and for ours. `measured.rs` has the answers.

use axum::Json;
use axum::extract::State as Extract;
use axum::http::Uri;
use axum::routing::{MethodRouter, get};

use super::measured::{History, HistoryEntry, Measured, MeasuredStretch, MeasuredWorker, Measures};
use crate::api::Front;
use crate::api::error::{ApiError, ErrorAnswer};
use crate::api::pipeline::lists::Query;
use forebay_clock::from_rfc3339;
use forebay_core::request::RequestError;
use forebay_engine::metrics::Metrics;
use forebay_store::Snapshot;

/// Rates of the present are those of so long.
const LATELY_MS: i64 = 5_000;
/// Samples of the store in one answer.
const MOST_KEPT: usize = 2_000;

pub fn routes() -> Vec<(&'static str, MethodRouter<Front>)> {
    vec![("/metrics/json", get(now)), ("/metrics/json/history", get(history))]
}

/// The server at this moment.
#[utoipa::path(get, path = "/metrics/json", operation_id = "measures", tag = "admin", responses((status = 200, description = "Now; rates are those of the last five seconds", body = Measures)))]
pub async fn now(Extract(front): Extract<Front>) -> Json<Measures> {
    Json(document(&front))
}

/// What the server was like: each sample of the last minute, and older ones ten and more at a time.
#[utoipa::path(get, path = "/metrics/json/history", operation_id = "measures_history", tag = "admin", params(("since" = Option<String>, Query, description = "Only what ended after this: an RFC 3339 moment, or milliseconds since 1970")), responses((status = 200, description = "Oldest first", body = History), (status = 400, description = "A bad moment", body = ErrorAnswer)))]
pub async fn history(Extract(front): Extract<Front>, uri: Uri) -> Result<Json<History>, ApiError> {
    let mut query = Query::of(&uri)?;
    let since = query.take("since").map_or(Ok(i64::MIN), |text| moment(&text))?;
    query.finish()?;
    // What is in memory begins with the process; before that, there is what the store kept.
    let begins = front.metrics.history(i64::MIN).first().map_or(i64::MAX, |first| first.at_ms);
    let kept = match since < begins {
        true => front.store.snapshots(&front.instance, since, begins, MOST_KEPT).await.map_err(RequestError::from)?,
        false => Vec::new(),
    };
    let metrics = front.metrics.clone();
    // Thousands of objects, perhaps: not on a thread that answers others.
    let told = tokio::task::spawn_blocking(move || past(&metrics, since, &kept)).await;
    Ok(Json(told.map_err(|_| RequestError::Internal)?))
}

/// One sample of what came after `since_ms`, for the store: when it ends, and how the history tells of it.
pub fn snapshot(front: &Front, since_ms: i64) -> Option<(i64, String)> {
    let metrics = &front.metrics;
    let point = metrics.stretch(since_ms)?;
    let before = metrics.sample_before(point.at_ms - i64::from(point.span_ms));
    let stretch = MeasuredStretch::of(&point, before.as_ref(), metrics.block_size());
    Some((point.at_ms, serde_json::to_string(&stretch).ok()?))
}

fn moment(text: &str) -> Result<i64, RequestError> {
    let moment = text.parse().ok().or_else(|| from_rfc3339(text));
    let wrong = "must be an RFC 3339 moment, such as 2026-11-21T12:00:00Z, or milliseconds since 1970";
    moment.ok_or_else(|| RequestError::invalid("since", wrong))
}

/// What `/metrics/json` answers.
pub fn document(front: &Front) -> Measures {
    let at_ms = front.clock.unix_millis();
    let point = front.metrics.look(at_ms);
    let before = front.metrics.sample_before(at_ms - LATELY_MS).filter(|before| before.at_ms < at_ms);
    let selection = front.metrics.selection();
    Measures {
        measured: Measured::of(&point, before.as_ref(), front.metrics.block_size()),
        strategy: selection.map(|[strategy, _]| strategy),
        policy: selection.map(|[_, policy]| policy),
        workers: front.workers.views().into_iter().map(MeasuredWorker::of).collect(),
    }
}

fn past(metrics: &Metrics, since_ms: i64, kept: &[Snapshot]) -> History {
    let config = metrics.config();
    let block_size = metrics.block_size();
    let all = metrics.history(i64::MIN);
    let from = all.partition_point(|point| point.at_ms <= since_ms);
    let one = |index: usize| {
        let before = index.checked_sub(1).map(|before| &all[before]);
        HistoryEntry::Measured(Box::new(MeasuredStretch::of(&all[index], before, block_size)))
    };
    // One that cannot be read was written by another version; the rest is told without it.
    let kept = kept.iter().filter_map(|kept| serde_json::from_str(&kept.body).ok().map(HistoryEntry::Kept));
    History {
        object: "list",
        interval_ms: config.interval.as_millis(),
        retention_s: config.retention.as_secs_f64(),
        data: kept.chain((from..all.len()).map(one)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::testing::{Scene, get_request};
    use forebay_core::request::FinishReason;
    use forebay_core::units::Micros;

    #[tokio::test]
    async fn the_present_is_told_with_the_rates_of_the_last_seconds() {
        let mut scene = Scene::new();
        let (metrics, clock) = (scene.state.metrics.clone(), scene.state.clock.clone());
        metrics.sample(clock.unix_millis());
        clock.advance(Micros::from_millis(4_000));
        metrics.admitted(3, 40);
        metrics.prompt_computed(30, 0);
        metrics.prompt_cached(10);
        metrics.released([Micros(1), Micros(1), Micros(1)].into_iter(), "full");
        metrics.queue([0, 1, 0, 0, 0], 0.0);
        metrics.running([0, 0, 2, 0, 0]);
        metrics.selected("fixed", "fair");
        (0..8).for_each(|_| metrics.first_token(Micros::from_millis(25), None, clock.now()));
        let lasted = [50; 19].into_iter().chain([950]);
        lasted.for_each(|ms| metrics.finished(FinishReason::Stop, Micros::from_millis(ms), clock.now()));
        let told = scene.send(get_request("/metrics/json")).await.json();
        assert_eq!(told["timestamp"], "2023-11-14T22:13:24.000Z");
        assert_eq!((&told["queue_depth"], &told["requests_queued"]), (&json!(1.0), &json!(3)));
        assert_eq!(told["ttft"], json!({"p50": 25.0, "p90": 25.0, "p99": 25.0, "p99_9": 25.0}));
        assert_eq!(told["inter_token"]["p50"], Value::Null);
        assert_eq!(told["latency"], json!({"p50": 50.0, "p90": 50.0, "p99": 950.0, "p99_9": 950.0}));
        assert_eq!((&told["latency_p50_ms"], &told["latency_p99_ms"]), (&json!(50.0), &json!(950.0)));
        assert_eq!((&told["throughput_rps"], &told["avg_batch_size"]), (&json!(5.0), &json!(3.0)));
        assert_eq!(told["tokens_per_second"], json!({"prompt": 10.0, "generation": 2.0}));
        assert_eq!(told["requests"]["normal"], json!({"queued": 0.0, "running": 2.0, "kept": 0, "broken": 0}));
        assert_eq!((&told["strategy"], &told["policy"]), (&json!("fixed"), &json!("fair")));
        let worker = &told["workers"][0];
        assert_eq!((&worker["id"], &worker["status"]), (&json!("engine-0"), &json!("idle")));
        assert_eq!((&worker["kind"], &worker["breaker"]), (&json!("engine"), &json!("closed")));
    }

    #[tokio::test]
    async fn the_past_is_told_since_a_moment() {
        let mut scene = Scene::new();
        let (metrics, clock) = (scene.state.metrics.clone(), scene.state.clock.clone());
        for _ in 0..30 {
            metrics.sample(clock.unix_millis());
            metrics.admitted(1, 10);
            metrics.finished(FinishReason::Stop, Micros(5), clock.now());
            clock.advance(Micros::from_millis(100));
        }
        let all = scene.send(get_request("/metrics/json/history")).await.json();
        assert_eq!((&all["interval_ms"], &all["retention_s"]), (&json!(100), &json!(3_600.0)));
        assert_eq!(all["data"].as_array().unwrap().len(), 30);
        let last = all["data"][29].clone();
        assert_eq!((&last["throughput_rps"], &last["interval_ms"]), (&json!(10.0), &json!(100)));
        for since in ["2023-11-14T22:13:22.800Z", "1700000002800", "2023-11-15T00:13:22.800%2B02:00"] {
            let part = scene.send(get_request(&format!("/metrics/json/history?since={since}"))).await.json();
            assert_eq!(part["data"], json!([last]), "{since}");
        }
        // Of an earlier life of this server.
        let kept = Snapshot { at_ms: 1_699_999_000_000, body: r#"{"timestamp":"before"}"#.into() };
        scene.state.store.keep_snapshot("test:1", &kept, 0).await.unwrap();
        let all = scene.send(get_request("/metrics/json/history")).await.json();
        assert_eq!((all["data"].as_array().unwrap().len(), &all["data"][0]["timestamp"]), (31, &json!("before")));
        let (at_ms, body) = snapshot(&scene.state.front, 1_700_000_001_900).unwrap();
        let whole: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((at_ms, &whole["interval_ms"]), (1_700_000_002_900, &json!(1_000)));
        assert_eq!((&whole["throughput_rps"], &whole["requests_queued"]), (&json!(10.0), &json!(29)));
        let (status, error) = {
            let answer = scene.send(get_request("/metrics/json/history?since=yesterday")).await;
            (answer.status, answer.error())
        };
        assert_eq!((status.as_u16(), &error["param"]), (400, &json!("since")));
        let answer = scene.send(get_request("/metrics/json/history?until=1")).await;
        assert_eq!((answer.status.as_u16(), &answer.error()["param"]), (400, &json!("until")));
    }
}
