//! The accept loop. Our own, since `axum::serve` installs no timer: a half-sent header would hold a connection for ever.
//!
//! HTTP/1.1 only. A client that closes its side, even half-way, has gone: hyper then drops its request.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower::ServiceExt;
use tower::util::MapRequest;

use crate::api::access::Door;
use crate::api::listener::{Arrival, Listener, Stream};
use crate::api::peer::Peer;

/// How patient the loop is.
#[derive(Clone, Copy, Debug)]
pub struct ServeConfig {
    /// For a request's head, and for the next one on a connection kept alive.
    pub header_timeout: Duration,
    /// How long a write may make no progress: a stall, never the length of a stream.
    pub write_timeout: Duration,
    pub max_header_bytes: usize,
    /// Further connections wait in the kernel's backlog.
    pub max_connections: usize,
    /// After the shutdown signal; connections that are left then are dropped.
    pub drain_timeout: Duration,
}

impl Default for ServeConfig {
    fn default() -> ServeConfig {
        ServeConfig {
            header_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            max_header_bytes: 32 << 10,
            max_connections: 1024,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

/// After `accept` failed for want of file descriptors: long enough not to spin, short enough not to be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` completes, then stops accepting, lets requests under way finish within the drain timeout, and
/// drops the rest. Dropping this future drops every connection at once.
pub async fn serve(
    listener: impl Into<Listener>,
    router: Router,
    config: ServeConfig,
    shutdown: impl Future<Output = ()>,
) {
    let listener = listener.into();
    let mut shutdown = pin!(shutdown);
    let seats = Arc::new(Semaphore::new(config.max_connections));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Reaps ended connections, so that the set stays small.
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &seats) => accepted,
        };
        if let Some((arrival, peer, seat)) = accepted {
            let (watcher, router, from) = (graceful.watcher(), router.clone(), Origin { peer, door: listener.door });
            connections.spawn(async move {
                // Errors are the client's: it left, was too slow or sent no HTTP, or no TLS.
                match timeout(config.header_timeout, arrival.open()).await {
                    Ok(Ok(stream)) => {
                        if let Err(error) = watcher.watch(connection(stream, from, &router, config)).await {
                            tracing::debug!(%error, "connection ended");
                        }
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
                    Err(_) => tracing::debug!("TLS took too long"),
                }
                drop(seat);
            });
        }
    }
    drop(listener);
    if timeout(config.drain_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!(event = "drain_timeout", connections = connections.len(), "connections dropped");
    }
    connections.shutdown().await;
}

/// The next connection and its seat. `None` when accepting failed. Cancel safe.
async fn accept(listener: &Listener, seats: &Arc<Semaphore>) -> Option<(Arrival, Peer, impl Send + 'static)> {
    // The semaphore is never closed.
    let seat = seats.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((arrival, peer)) => Some((arrival, peer, seat)),
        Err(error) if ended_before_accept(&error) => None,
        Err(error) => {
            tracing::warn!(event = "accept_failed", %error, "no connection could be accepted");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn ended_before_accept(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

type Connection<F> = http1::Connection<TokioIo<StallGuard<Stream>>, TowerToHyperService<MapRequest<Router, F>>>;

/// What requests are told of their connection.
#[derive(Clone, Copy)]
struct Origin {
    peer: Peer,
    door: Door,
}

fn connection(
    stream: Stream,
    from: Origin,
    router: &Router,
    config: ServeConfig,
) -> Connection<impl Fn(Request<Incoming>) -> Request<Body> + Clone + use<>> {
    let io = TokioIo::new(StallGuard::new(stream, config.write_timeout));
    let with_peer = move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(from.peer);
        request.extensions_mut().insert(from.door);
        request.map(Body::new)
    };
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_header_size(config.max_header_bytes)
        .serve_connection(io, TowerToHyperService::new(router.clone().map_request(with_peer)))
}

/// Fails a write or flush that makes no progress for a while: a client that does not read what it asked for.
struct StallGuard<S> {
    stream: S,
    patience: Duration,
    deadline: Pin<Box<Sleep>>,
    stalled: bool,
}

impl<S> StallGuard<S> {
    fn new(stream: S, patience: Duration) -> StallGuard<S> {
        StallGuard { stream, patience, deadline: Box::pin(sleep(patience)), stalled: false }
    }

    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stalled = false;
            return polled;
        }
        if !self.stalled {
            self.stalled = true;
            self.deadline.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(polled, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.watch(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        this.watch(polled, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(context);
        this.watch(polled, context)
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
