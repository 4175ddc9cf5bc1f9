//! Where the server listens: its address, the operator's, a socket of the file system; and the certificate for the first two.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig as TlsConfig};

use crate::api::{Door, Listener};
use crate::config::{ServerConfig, TlsFiles};

use super::failure::{Failure, input};

#[derive(Debug, thiserror::Error)]
enum Wrong {
    #[error("cannot listen on {at}: {error}")]
    Bind { at: String, error: std::io::Error },
    #[error("{}: {error} (server.tls_cert, server.tls_key)", path.display())]
    Pem { path: PathBuf, error: pem::Error },
    #[error("{} and {} make no certificate and its key: {error}", files.cert.display(), files.key.display())]
    Tls { files: TlsFiles, error: rustls::Error },
}

/// Bound, and not served yet.
pub struct Listeners {
    main: TcpListener,
    admin: Option<TcpListener>,
    #[cfg(unix)]
    file: Option<(std::os::unix::net::UnixListener, PathBuf)>,
    tls: Option<TlsAcceptor>,
}

pub fn bind(config: &ServerConfig) -> Result<Listeners, Failure> {
    let tls = config.tls().as_ref().map(acceptor).transpose().map_err(input)?;
    Ok(Listeners {
        main: address(SocketAddr::new(config.host, config.port))?,
        admin: config.admin_listen.map(address).transpose()?,
        #[cfg(unix)]
        file: config.unix_socket.as_deref().map(socket).transpose()?,
        tls,
    })
}

fn address(address: SocketAddr) -> Result<TcpListener, Failure> {
    let failed = |error| input(Wrong::Bind { at: address.to_string(), error });
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).context("the listener")?;
    Ok(listener)
}

/// For its owner and group. A socket on which nobody answers was left by a process that was killed.
#[cfg(unix)]
fn socket(path: &Path) -> Result<(std::os::unix::net::UnixListener, PathBuf), Failure> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    let failed = |error| input(Wrong::Bind { at: path.display().to_string(), error });
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
    listener.set_nonblocking(true).context("the listener")?;
    Ok((listener, path.to_owned()))
}

fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, Wrong> {
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |error| Wrong::Pem { path, error }
    };
    let chain = CertificateDer::pem_file_iter(&files.cert).map_err(pem(&files.cert))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(pem(&files.cert))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(pem(&files.key))?;
    let wrong = |error| Wrong::Tls { files: files.clone(), error };
    let versions = TlsConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let versions = versions.with_safe_default_protocol_versions().map_err(wrong)?;
    let mut config = versions.with_no_client_auth().with_single_cert(chain, key).map_err(wrong)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// An entrance and how it is called in the log.
pub struct Named {
    pub entrance: Listener,
    pub url: String,
}

impl Listeners {
    /// Within a runtime. The main one first.
    pub fn open(self) -> anyhow::Result<Vec<Named>> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let alone = self.admin.is_none();
        let mut all = Vec::new();
        let mut tcp = |listener: TcpListener, door| -> anyhow::Result<()> {
            let url = format!("{scheme}://{}", listener.local_addr().context("the listener")?);
            let listener = tokio::net::TcpListener::from_std(listener).context("the listener")?;
            let entrance = Listener::from(listener).secured(self.tls.clone()).leading_to(door);
            all.push(Named { entrance, url });
            Ok(())
        };
        let main = if alone { Door::Whole } else { Door::Main };
        tcp(self.main, main)?;
        if let Some(admin) = self.admin {
            tcp(admin, Door::Admin)?;
        }
        #[cfg(unix)]
        if let Some((listener, path)) = self.file {
            let url = format!("unix:{}", path.display());
            let listener = tokio::net::UnixListener::from_std(listener).context("the listener")?;
            all.push(Named { entrance: Listener::file(listener, path).leading_to(main), url });
        }
        Ok(all)
    }
}
