//! The accept loop over loopback sockets. Timeouts are short and nothing measures them.

use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::routing::{get, post};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;

const SHORT: Duration = Duration::from_millis(50);

struct Served {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

async fn served(router: Router, config: ServeConfig) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let done = tokio::spawn(serve(listener, router, config, async { drop(stopped.await) }));
    Served { address, stop, done }
}

/// Sends and reads until the server closes.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    rest(&mut stream).await
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset after the answer is a close too.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn ok() -> Router {
    Router::new().route("/", get(|| async { "fine" }))
}

#[tokio::test]
async fn a_head_that_does_not_arrive_closes_the_connection() {
    let config = ServeConfig { header_timeout: SHORT, ..ServeConfig::default() };
    let served = served(ok(), config).await;
    for sent in [&b"GET / HT"[..], b"", b"GET / HTTP/1.1\r\nhost: a\r\nx: "] {
        let answer = exchange(served.address, sent).await;
        assert!(!answer.contains("fine"), "{answer}");
    }
    // After an answer the next head has the same time.
    let answer = exchange(served.address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("fine"), "{answer}");
}

#[tokio::test]
async fn large_heads_are_refused() {
    let served = served(ok(), ServeConfig::default()).await;
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(64 << 10));
    let answer = exchange(served.address, head.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many: String = (0..2_000).map(|i| format!("x{i}: y\r\n")).collect();
    let answer = exchange(served.address, format!("GET / HTTP/1.1\r\nhost: a\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn smuggled_requests_are_never_answered() {
    let served =
        served(ok().route("/", post(|body: Bytes| async move { body.len().to_string() })), ServeConfig::default());
    let served = served.await;
    let second = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    for framing in [
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: +5\r\n",
        "content-length: 0x5\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "content-length : 4\r\n",
    ] {
        let sent = format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n0\r\n\r\n{second}");
        let answer = exchange(served.address, sent.as_bytes()).await;
        assert!(!answer.contains("fine") && !answer.contains("HTTP/1.1 200"), "{framing} {answer}");
    }
}

/// Tells when it is dropped.
struct Tell(mpsc::Sender<&'static str>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.try_send("dropped");
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let (events, mut heard) = mpsc::channel(1);
    let endless = move || {
        let tell = Tell(events.clone());
        async move {
            let chunk = Bytes::from(vec![0u8; 1 << 16]);
            Body::from_stream(futures_util::stream::repeat(chunk).map(move |chunk| {
                let _held = &tell;
                Ok::<_, io::Error>(chunk)
            }))
        }
    };
    let config = ServeConfig { write_timeout: SHORT, ..ServeConfig::default() };
    let served = served(Router::new().route("/", get(endless)), config).await;
    let mut client = TcpStream::connect(served.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'H');
    assert_eq!(heard.recv().await, Some("dropped"));
}

/// A handler that tells when it begins and when it is dropped.
fn waiting() -> (Router, mpsc::Receiver<&'static str>) {
    let (events, heard) = mpsc::channel(8);
    let handler = move || {
        let tell = Tell(events.clone());
        async move {
            tell.0.send("began").await.unwrap();
            std::future::pending::<()>().await;
            drop(tell);
            StatusCode::OK
        }
    };
    (Router::new().route("/", get(handler)), heard)
}

#[tokio::test]
async fn a_client_that_closes_even_half_way_has_gone() {
    let (router, mut heard) = waiting();
    let served = served(router, ServeConfig::default()).await;
    for half in [true, false] {
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        assert_eq!(heard.recv().await, Some("began"));
        if half {
            client.shutdown().await.unwrap();
        } else {
            drop(client);
        }
        assert_eq!(heard.recv().await, Some("dropped"));
    }
}

#[tokio::test]
async fn shutdown_lets_requests_finish_and_refuses_new_connections() {
    let (begun, mut began) = mpsc::channel(1);
    let (release, released) = tokio::sync::watch::channel(false);
    let handler = move || {
        let (begun, mut released) = (begun.clone(), released.clone());
        async move {
            begun.send(()).await.unwrap();
            released.wait_for(|&go| go).await.unwrap();
            "finished"
        }
    };
    let served = served(Router::new().route("/", get(handler)), ServeConfig::default()).await;
    let mut idle = TcpStream::connect(served.address).await.unwrap();
    let mut client = TcpStream::connect(served.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    began.recv().await.unwrap();
    served.stop.send(()).unwrap();
    assert_eq!(rest(&mut idle).await, "", "an idle connection is closed at once");
    assert!(TcpStream::connect(served.address).await.is_err());
    release.send(true).unwrap();
    assert!(rest(&mut client).await.ends_with("finished"));
    served.done.await.unwrap();
}

#[tokio::test]
async fn what_outlives_the_drain_is_dropped() {
    let (router, mut heard) = waiting();
    let served = served(router, ServeConfig { drain_timeout: SHORT, ..ServeConfig::default() }).await;
    let mut client = TcpStream::connect(served.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert_eq!(heard.recv().await, Some("began"));
    served.stop.send(()).unwrap();
    served.done.await.unwrap();
    assert_eq!(heard.recv().await, Some("dropped"));
    assert_eq!(rest(&mut client).await, "");
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_seat() {
    let served = served(ok(), ServeConfig { max_connections: 1, ..ServeConfig::default() }).await;
    let mut first = TcpStream::connect(served.address).await.unwrap();
    first.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut seen = [0u8; 12];
    first.read_exact(&mut seen).await.unwrap();
    let mut second = TcpStream::connect(served.address).await.unwrap();
    second.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut nothing = [0u8; 1];
    assert!(timeout(SHORT, second.read(&mut nothing)).await.is_err(), "answered without a seat");
    drop(first);
    assert!(rest(&mut second).await.ends_with("fine"));
}
