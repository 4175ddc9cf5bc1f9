//! A response body with a guard that runs when it is sent or dropped: it counts the request, logs it, or holds its place.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Frame, SizeHint};

/// Dropped with the body.
pub trait BodyGuard: Send + Unpin + 'static {
    /// The client has everything.
    fn sent(&mut self) {}
}

/// `response`, its body with a guard.
pub fn with_guard(response: Response, guard: impl BodyGuard) -> Response {
    response.map(|inner| Body::new(GuardedBody { inner, guard }))
}

struct GuardedBody<C: BodyGuard> {
    inner: Body,
    guard: C,
}

impl<C: BodyGuard> http_body::Body for GuardedBody<C> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if matches!(polled, Poll::Ready(None)) {
            self.guard.sent();
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

impl<C: BodyGuard> Drop for GuardedBody<C> {
    fn drop(&mut self) {
        // A body of known length is not polled to its end.
        if http_body::Body::is_end_stream(&self.inner) {
            self.guard.sent();
        }
    }
}
