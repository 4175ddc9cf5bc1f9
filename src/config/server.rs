//! `server` and `keys`: who may come in, and how.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use forebay_core::request::Priority;
use forebay_store::keys::{self, SecretSource};

use super::values::Reader;
use super::{ConfigError, proxies};

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub host: IpAddr,
    pub port: u16,
    /// A body must arrive within.
    pub read_timeout: Duration,
    /// A client may take nothing for so long.
    pub write_timeout: Duration,
    /// A request's head must arrive within.
    pub header_timeout: Duration,
    pub max_body_bytes: usize,
    pub max_connections: usize,
    pub admin: AdminAccess,
    /// The operator's own listener; without it the main one leads to everything.
    pub admin_listen: Option<SocketAddr>,
    /// A socket of the file system that leads where the main listener does.
    pub unix_socket: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
    /// Pages of other origins that may ask.
    pub origins: Option<Vec<String>>,
    /// Told to end, the server takes requests for so long, not ready.
    pub drain_delay: Duration,
    /// A stream that has no seat yet is not begun for so long.
    pub stream_hold: Duration,
    /// Whose headers about tenant, objective and speed count.
    pub trusted_proxies: Vec<IpNet>,
    /// Objectives of gateways and what they stand for.
    pub objectives: Vec<(String, Priority)>,
}

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Who may use `/admin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminAccess {
    Loopback,
    Any,
    Off,
}

pub fn server(read: &Reader) -> Result<ServerConfig, ConfigError> {
    let host: IpAddr = read.parsed("server.host", "an IP address, such as 127.0.0.1, 0.0.0.0 or ::1")?;
    let closed = read.boolean("server.insecure")? || read.boolean("keys.required")?;
    let admin_listen = match read.text("server.admin_listen") {
        "" => None,
        _ => Some(read.parsed::<SocketAddr>("server.admin_listen", "an address and a port, such as 127.0.0.1:9090")?),
    };
    let hosts = [Some(host), admin_listen.map(|address| address.ip())];
    if let Some(host) = hosts.into_iter().flatten().find(|host| !host.is_loopback() && !closed) {
        return Err(ConfigError::OpenToOthers { host });
    }
    let tls = match (read.text("server.tls_cert"), read.text("server.tls_key")) {
        ("", "") => None,
        ("", _) | (_, "") => {
            let message = "server.tls_key and server.tls_cert need each other".to_owned();
            return Err(read.contradiction("server", "tls_cert", message));
        }
        (cert, key) => Some(TlsFiles { cert: cert.into(), key: key.into() }),
    };
    let origins = match read.list("server.cors_origins") {
        names if names.is_empty() => None,
        names if names == ["*"] || names.iter().all(|name| is_origin(name)) => Some(names),
        _ => {
            let allowed = "* alone, or a list of origins such as https://example.org".to_owned();
            return Err(read.refuse("server.cors_origins", allowed));
        }
    };
    Ok(ServerConfig {
        host,
        port: read.integer("server.port")? as u16,
        read_timeout: read.duration("server.read_timeout")?,
        write_timeout: read.duration("server.write_timeout")?,
        header_timeout: read.duration("server.header_timeout")?,
        max_body_bytes: read.integer("server.max_body_bytes")? as usize,
        max_connections: read.integer("server.max_connections")? as usize,
        drain_delay: read.duration("server.drain_delay")?,
        stream_hold: read.duration("server.stream_hold")?,
        admin: read.one_of(
            "server.admin",
            &[("loopback", AdminAccess::Loopback), ("any", AdminAccess::Any), ("off", AdminAccess::Off)],
        )?,
        admin_listen,
        unix_socket: Some(read.text("server.unix_socket")).filter(|path| !path.is_empty()).map(PathBuf::from),
        tls,
        origins,
        trusted_proxies: proxies::trusted(read)?,
        objectives: proxies::objectives(read)?,
    })
}

/// A scheme and an authority, as browsers write them: no path, not even a slash.
fn is_origin(name: &str) -> bool {
    let Some((scheme, authority)) = name.split_once("://") else { return false };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let letters = |c: char| c.is_ascii_lowercase() || matches!(c, '-' | '+');
    !scheme.is_empty() && scheme.chars().all(letters) && !authority.is_empty() && authority.chars().all(plain)
}

pub fn keys(read: &Reader) -> Result<keys::Config, ConfigError> {
    let required = read.boolean("keys.required")?;
    if required && read.text("store.url") == "memory" {
        let message = "keys are made by `forebay keys create` in a store that is kept; set store.url".to_owned();
        return Err(read.contradiction("keys", "required", message));
    }
    let secret = match (read.text("keys.secret"), read.text("keys.secret_file")) {
        ("", "") => SecretSource::BesideStore,
        ("", path) => SecretSource::File(path.into()),
        (text, "") => SecretSource::Text(text.into()),
        _ => {
            let message = "keys.secret_file says the same; set one of them".to_owned();
            return Err(read.contradiction("keys", "secret", message));
        }
    };
    Ok(keys::Config {
        required,
        secret,
        cache_ttl: read.duration("keys.cache_ttl")?,
        spool: read.integer("keys.spool")? as usize,
    })
}
