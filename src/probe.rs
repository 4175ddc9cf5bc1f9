//! `forebay health`: is the server ready? For container health checks, so that an image needs no curl.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

/// How long each of connecting, writing and reading may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Success if a GET of `url` (`http://host:port/path`, or `unix:/path/of/a/socket` for its readiness) is answered with 200.
pub fn run(url: &str) -> ExitCode {
    match status(url) {
        Ok(200) => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("forebay: {url} answered {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("forebay: {url}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn status(url: &str) -> std::io::Result<u16> {
    let invalid = |message: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
    #[cfg(unix)]
    if let Some(path) = url.strip_prefix("unix:") {
        let stream = std::os::unix::net::UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        return ask(stream, "localhost", "/health/ready");
    }
    let rest = url.strip_prefix("http://").ok_or_else(|| invalid("only http:// and unix: can be probed"))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    let address = authority.to_socket_addrs()?.next().ok_or_else(|| invalid("the host has no address"))?;
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    ask(stream, authority, path)
}

fn ask(mut stream: impl Read + Write, authority: &str, path: &str) -> std::io::Result<u16> {
    let invalid = |message: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n")?;
    // "HTTP/1.1 200": the first twelve bytes tell.
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let code = std::str::from_utf8(&head[9..]).ok().and_then(|code| code.parse().ok());
    code.ok_or_else(|| invalid("the answer is not HTTP"))
}
