//! Frames of a stream: `data: {json}`, a comment while nothing comes, `data: [DONE]` last.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use serde::Serialize;

/// Often enough for proxies that close silent connections after a minute.
const PING: Duration = Duration::from_secs(15);

/// Makes a stream's response. Dropping its body drops `frames`.
pub fn response(frames: impl Stream<Item = Event> + Send + 'static) -> Response {
    pinging(frames, PING)
}

fn pinging(frames: impl Stream<Item = Event> + Send + 'static, every: Duration) -> Response {
    use futures_util::StreamExt;
    let frames = frames.map(Ok::<Event, Infallible>);
    let mut response = Sse::new(frames).keep_alive(KeepAlive::new().interval(every).text("ping")).into_response();
    // Or nginx would collect the whole stream first.
    let no = HeaderValue::from_static("no");
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), no);
    response
}

/// One object as a payload. JSON has no line breaks, so it is one `data:` line.
pub fn data(object: &impl Serialize) -> String {
    // Our answers are structs and objects with names that are text, which always can be written.
    serde_json::to_string(object).unwrap_or_default()
}

/// The openai package for Node compares with exactly this.
pub const DONE: &str = "[DONE]";

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_silent_stream_is_kept_alive_by_comments() {
        let mut body = pinging(futures_util::stream::pending(), Duration::from_millis(1)).into_body();
        for _ in 0..3 {
            let frame = body.frame().await.expect("a frame").expect("no error");
            assert_eq!(frame.into_data().expect("data"), ": ping\n\n");
        }
    }
}
