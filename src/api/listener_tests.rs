//! TLS with a certificate that the test makes, sockets of the file system, and what requests hear of where they came in.

use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::api::access::Door;
use crate::api::peer::Peer;
use crate::api::{Listener, ServeConfig, serve};

/// Says where a request came in.
fn router() -> Router {
    let told = |Extension(peer): Extension<Peer>, Extension(door): Extension<Door>| async move {
        let kind = match peer {
            Peer::Address(_) => "address",
            Peer::Socket => "socket",
        };
        format!("{kind} {door:?}")
    };
    Router::new().route("/", get(told))
}

const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    stream.write_all(ASK).await.unwrap();
    let mut answer = String::new();
    // A close without a word is a close too.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

fn certificate() -> (CertificateDer<'static>, TlsAcceptor) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = builder.with_single_cert(vec![certificate.clone()], key.into()).unwrap();
    (certificate, TlsAcceptor::from(Arc::new(config)))
}

fn client(trusted: &CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

#[tokio::test]
async fn with_a_certificate_only_tls_is_spoken() {
    let (certificate, acceptor) = certificate();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = Listener::from(listener).secured(Some(acceptor)).leading_to(Door::Admin);
    let server = tokio::spawn(serve(listener, router(), ServeConfig::default(), async { drop(stopped.await) }));
    let connect = || async { TcpStream::connect(address).await.unwrap() };
    let name = ServerName::try_from("localhost").unwrap();
    let stream = client(&certificate).connect(name.clone(), connect().await).await.unwrap();
    let answer = exchange(stream).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("address Admin"), "{answer}");
    assert!(!exchange(connect().await).await.contains("200"), "it does not speak in clear");
    let (other, _) = self::certificate();
    assert!(client(&other).connect(name, connect().await).await.is_err(), "somebody else's certificate");
    drop(stop);
    server.await.unwrap();
}

#[tokio::test]
async fn who_says_nothing_where_tls_is_expected_is_given_up() {
    let (_, acceptor) = certificate();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = ServeConfig { header_timeout: std::time::Duration::from_millis(50), ..ServeConfig::default() };
    let listener = Listener::from(listener).secured(Some(acceptor));
    let server = tokio::spawn(serve(listener, router(), config, std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut rest = Vec::new();
    // Ends with the connection, or never.
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.is_empty());
    server.abort();
}

#[cfg(unix)]
#[tokio::test]
async fn a_socket_of_the_file_system_is_this_machine_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forebay.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = Listener::file(listener, path.clone());
    let server = tokio::spawn(serve(listener, router(), ServeConfig::default(), async { drop(stopped.await) }));
    let answer = exchange(tokio::net::UnixStream::connect(&path).await.unwrap()).await;
    assert!(answer.ends_with("socket Whole"), "{answer}");
    drop(stop);
    server.await.unwrap();
    assert!(!path.exists());
}
