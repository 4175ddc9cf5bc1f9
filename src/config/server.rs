//! `server`: who may come in, and how. And what uploads may take.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use forebay_core::request::Priority;
use forebay_core::settings::{Setting, list};
use forebay_core::units::Micros;
use forebay_store::keys;

use super::checks::Reader;
use super::error::ConfigError;
use super::proxies;

#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub host: IpAddr,
    pub port: u16,
    /// Others may reach it although nobody is asked for an API key.
    pub insecure: bool,
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
    /// PEM files; with both only TLS is spoken.
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    /// Names by which clients may call it, beside addresses and localhost.
    pub hosts: Vec<String>,
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

/// Larger uploads are refused.
#[derive(Clone, Copy, Debug)]
pub struct UploadsConfig {
    pub max_file_bytes: usize,
}

impl Default for UploadsConfig {
    fn default() -> UploadsConfig {
        UploadsConfig { max_file_bytes: 200 << 20 }
    }
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            host: Ipv4Addr::LOCALHOST.into(),
            port: 8080,
            insecure: false,
            read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
            max_body_bytes: 8 << 20,
            max_connections: 1_024,
            admin: AdminAccess::Loopback,
            admin_listen: None,
            unix_socket: None,
            tls_cert: None,
            tls_key: None,
            hosts: Vec::new(),
            origins: None,
            drain_delay: Duration::ZERO,
            stream_hold: Duration::from_secs(15),
            trusted_proxies: proxies::loopback(),
            objectives: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// `None` speaks HTTP in the clear.
    pub fn tls(&self) -> Option<TlsFiles> {
        self.tls_cert.clone().zip(self.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key })
    }
}

type Row = Setting<ServerConfig>;

/// In the order of config.yaml.
pub fn settings() -> Vec<Row> {
    let rows = address().into_iter().chain(timeouts()).chain(doors());
    rows.chain(waits()).chain(gateways()).chain(bounds()).collect()
}

fn address() -> [Row; 3] {
    [
        Setting::own(
            "server.host",
            |c: &mut ServerConfig| &mut c.host,
            "an IP address, such as 127.0.0.1, 0.0.0.0 or ::1",
            IpAddr::to_string,
            |text| text.parse().ok(),
        )
        .flag("host")
        .help("address to bind; anything but loopback needs keys.required or server.insecure"),
        Setting::new("server.port", |c: &mut ServerConfig| &mut c.port).flag("port").help("0 takes a free port"),
        Setting::new("server.insecure", |c: &mut ServerConfig| &mut c.insecure)
            .flag("insecure")
            .help("allow a host that is not loopback although nobody is asked for an API key"),
    ]
}

fn timeouts() -> [Row; 3] {
    let rows = [
        Setting::new("server.read_timeout", |c: &mut ServerConfig| &mut c.read_timeout)
            .help("a request's body must arrive within"),
        Setting::new("server.write_timeout", |c: &mut ServerConfig| &mut c.write_timeout)
            .help("a client may take nothing for so long (a stall, never the length of a stream)"),
        Setting::new("server.header_timeout", |c: &mut ServerConfig| &mut c.header_timeout)
            .help("a request's head must arrive within"),
    ];
    rows.map(|row| row.duration(Micros::from_millis(10)..=Micros::HOUR))
}

fn doors() -> [Row; 7] {
    [
        Setting::one_of(
            "server.admin",
            |c: &mut ServerConfig| &mut c.admin,
            [("loopback", AdminAccess::Loopback), ("any", AdminAccess::Any), ("off", AdminAccess::Off)],
        )
        .flag("admin")
        .help("who may use /admin: connections from this machine, everyone, nobody"),
        Setting::own(
            "server.admin_listen",
            |c: &mut ServerConfig| &mut c.admin_listen,
            "an address and a port, such as 127.0.0.1:9090",
            |address| address.map(|address| address.to_string()).unwrap_or_default(),
            |text| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) },
        )
        .flag("admin-listen")
        .help("another address for /admin and /metrics/json, such as 127.0.0.1:9090, which the main one then does not answer"),
        Setting::new("server.unix_socket", |c: &mut ServerConfig| &mut c.unix_socket)
            .flag("unix-socket")
            .help("a socket of the file system to listen on, too; its mode is 0660"),
        Setting::new("server.tls_cert", |c: &mut ServerConfig| &mut c.tls_cert)
            .flag("tls-cert")
            .help("a PEM file with the certificate and its chain; with it, only TLS is spoken"),
        Setting::new("server.tls_key", |c: &mut ServerConfig| &mut c.tls_key)
            .flag("tls-key")
            .help("a PEM file with the certificate's private key"),
        Setting::own(
            "server.hosts",
            |c: &mut ServerConfig| &mut c.hosts,
            "* alone, or a list of names such as llm.example.org, or .example.org for all below it",
            |names| names.join(","),
            hosts,
        )
        .flag("hosts")
        .help("names by which clients may call it where no key is asked for, and for /admin, beside addresses and localhost"),
        Setting::own(
            "server.cors_origins",
            |c: &mut ServerConfig| &mut c.origins,
            "* alone, or a list of origins such as https://example.org",
            |origins| origins.as_ref().map(|names| names.join(",")).unwrap_or_default(),
            origins,
        )
        .help("other origins whose pages may ask, such as https://example.org, or * for all; empty is none"),
    ]
}

fn waits() -> [Row; 2] {
    [
        Setting::new("server.drain_delay", |c: &mut ServerConfig| &mut c.drain_delay)
            .duration(Micros::ZERO..=Micros::HOUR)
            .flag("drain-delay")
            .live()
            .help("after SIGTERM requests are still taken for so long while /health/ready says 503, and queued ones are refused then: as long as routers need to notice"),
        Setting::new("server.stream_hold", |c: &mut ServerConfig| &mut c.stream_hold)
            .duration(Micros::ZERO..=Micros::HOUR)
            .help("a queued stream gets its status only after so long, so that a refusal until then has an HTTP status of its own; after that come pings"),
    ]
}

fn gateways() -> [Row; 2] {
    [
        Setting::own(
            "server.trusted_proxies",
            |c: &mut ServerConfig| &mut c.trusted_proxies,
            proxies::NETWORKS,
            |networks| proxies::shown_networks(networks),
            proxies::networks,
        )
        .flag("trusted-proxies")
        .help("networks whose headers about tenant, objective and speed count (x-llm-d-*, x-gateway-*)"),
        Setting::own(
            "server.objectives",
            |c: &mut ServerConfig| &mut c.objectives,
            proxies::OBJECTIVES,
            |objectives| proxies::shown_objectives(objectives),
            proxies::objectives,
        )
        .help("priorities of a gateway's objectives, as name=priority; names of priorities stand for themselves"),
    ]
}

fn bounds() -> [Row; 2] {
    [
        Setting::new("server.max_body_bytes", |c: &mut ServerConfig| &mut c.max_body_bytes)
            .whole(1_024..=1 << 30)
            .help("larger bodies are refused"),
        Setting::new("server.max_connections", |c: &mut ServerConfig| &mut c.max_connections)
            .whole(1..=65_535)
            .help("more wait to be accepted; before that requests up to normal get 429, so that urgent ones are heard"),
    ]
}

pub fn uploads_settings() -> Vec<Setting<UploadsConfig>> {
    vec![
        Setting::new("batches.max_file_bytes", |c: &mut UploadsConfig| &mut c.max_file_bytes)
            .whole(1_024..=1 << 30)
            .help("larger uploads are refused"),
    ]
}

/// Without ports: a name is a server's whatever port it is at.
fn hosts(text: &str) -> Option<Vec<String>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let names = list(text);
    let named = |name: &String| !name.trim_matches('.').is_empty() && name.chars().all(plain) && !name.ends_with('.');
    (names == ["*"] || names.iter().all(named)).then_some(names)
}

fn origins(text: &str) -> Option<Option<Vec<String>>> {
    match list(text) {
        names if names.is_empty() => Some(None),
        names if names == ["*"] || names.iter().all(|name| is_origin(name)) => Some(Some(names)),
        _ => None,
    }
}

/// A scheme and an authority, as browsers write them: no path, not even a slash.
fn is_origin(name: &str) -> bool {
    let Some((scheme, authority)) = name.split_once("://") else { return false };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | ':' | '[' | ']');
    let letters = |c: char| c.is_ascii_lowercase() || matches!(c, '-' | '+');
    !scheme.is_empty() && scheme.chars().all(letters) && !authority.is_empty() && authority.chars().all(plain)
}

/// Nobody else may come in without a key, unless that is meant; keys need a store that is kept, and one secret.
pub fn check(config: &ServerConfig, keys: &keys::Config, read: &Reader) -> Result<(), ConfigError> {
    let closed = config.insecure || keys.required;
    let hosts = [Some(config.host), config.admin_listen.map(|address| address.ip())];
    if let Some(host) = hosts.into_iter().flatten().find(|host| !host.is_loopback() && !closed) {
        return Err(ConfigError::OpenToOthers { host });
    }
    if config.tls_cert.is_some() != config.tls_key.is_some() {
        let message = "server.tls_key and server.tls_cert need each other".to_owned();
        return Err(read.contradiction("server", "tls_cert", message));
    }
    if keys.required && read.text("store.url") == "memory" {
        let message = "keys are made by `forebay keys create` in a store that is kept; set store.url".to_owned();
        return Err(read.contradiction("keys", "required", message));
    }
    if !read.text("keys.secret").is_empty() && !read.text("keys.secret_file").is_empty() {
        let message = "keys.secret_file says the same; set one of them".to_owned();
        return Err(read.contradiction("keys", "secret", message));
    }
    Ok(())
}
