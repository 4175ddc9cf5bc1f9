//! A body with somebody who stays until it has been sent, or given up: who counts the request, tells of it, or holds its place.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};

/// Dropped with the body.
pub trait Companion: Send + Unpin + 'static {
    /// The client has everything.
    fn sent(&mut self) {}
}

/// `response`, its body accompanied.
pub fn accompanied(response: Response, companion: impl Companion) -> Response {
    response.map(|inner| Body::new(Accompanied { inner, companion }))
}

struct Accompanied<C: Companion> {
    inner: Body,
    companion: C,
}

impl<C: Companion> http_body::Body for Accompanied<C> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.companion.sent();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<C: Companion> Drop for Accompanied<C> {
    fn drop(&mut self) {
        // A body of known length is not polled to its end.
        if http_body::Body::is_end_stream(&self.inner) {
            self.companion.sent();
        }
    }
}
