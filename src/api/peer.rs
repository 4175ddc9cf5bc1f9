//! The other end of a connection.

use std::net::SocketAddr;

/// The other end of a request's connection; put into the extensions of every request by the accept loop.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    Address(SocketAddr),
    /// A socket of the file system: somebody on this machine.
    Socket,
}

impl Peer {
    pub fn is_local(self) -> bool {
        match self {
            Peer::Address(address) => address.ip().to_canonical().is_loopback(),
            Peer::Socket => true,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Socket => f.write_str("a local socket"),
        }
    }
}
