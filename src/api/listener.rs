//! Where connections come from: an address or a socket of the file system, with or without TLS.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api::access::Door;
use crate::api::peer::Peer;

/// A listener and what it leads to.
pub struct Listener {
    socket: Socket,
    tls: Option<TlsAcceptor>,
    pub door: Door,
}

enum Socket {
    Address(TcpListener),
    #[cfg(unix)]
    File {
        listener: UnixListener,
        _left: Left,
    },
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Listener {
        Listener { socket: Socket::Address(listener), tls: None, door: Door::Whole }
    }
}

impl Listener {
    /// With it, only TLS is spoken.
    pub fn secured(self, tls: Option<TlsAcceptor>) -> Listener {
        Listener { tls, ..self }
    }

    pub fn leading_to(self, door: Door) -> Listener {
        Listener { door, ..self }
    }

    /// A socket of the file system, which goes with the listener.
    #[cfg(unix)]
    pub fn file(listener: UnixListener, path: PathBuf) -> Listener {
        Listener { socket: Socket::File { listener, _left: Left(path) }, tls: None, door: Door::Whole }
    }

    /// Cancel safe.
    pub async fn accept(&self) -> io::Result<(Arrival, Peer)> {
        match &self.socket {
            Socket::Address(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Tokens are small writes that must not wait for each other; without it they only come later.
                let _ = stream.set_nodelay(true);
                Ok((Arrival { stream: Stream::Plain(stream), tls: self.tls.clone() }, Peer::Address(peer)))
            }
            #[cfg(unix)]
            Socket::File { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok((Arrival { stream: Stream::Local(stream), tls: None }, Peer::Socket))
            }
        }
    }
}

/// A file that nobody listens on any more, once this is dropped.
#[cfg(unix)]
struct Left(PathBuf);

#[cfg(unix)]
impl Drop for Left {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A connection that has said nothing yet.
pub struct Arrival {
    stream: Stream,
    tls: Option<TlsAcceptor>,
}

impl Arrival {
    /// Agrees on keys, where that is asked for. A client that takes its time has to be given up by the caller.
    pub async fn open(self) -> io::Result<Stream> {
        match (self.stream, self.tls) {
            (Stream::Plain(stream), Some(tls)) => Ok(Stream::Secure(Box::new(tls.accept(stream).await?))),
            (stream, _) => Ok(stream),
        }
    }
}

pub enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Local(UnixStream),
}

/// The same call on whichever it is.
macro_rules! on_each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Plain($inner) => $call,
            Stream::Secure($inner) => $call,
            #[cfg(unix)]
            Stream::Local($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on_each!(self.get_mut(), inner => Pin::new(inner).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on_each!(self.get_mut(), inner => Pin::new(inner).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_each!(self.get_mut(), inner => Pin::new(inner).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        on_each!(self, inner => inner.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self.get_mut(), inner => Pin::new(inner).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self.get_mut(), inner => Pin::new(inner).poll_shutdown(context))
    }
}
