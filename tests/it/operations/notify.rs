//! What systemd hears, over a socket of the test's own, and what its unit says.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use crate::support::server::Server;

struct Manager {
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
}

impl Manager {
    fn start(args: &[&str], more: &[(&str, &str)]) -> (Manager, Server) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        // A bound, not a measurement: nothing hangs for ever.
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let variables = [&[("NOTIFY_SOCKET", path.to_str().expect("utf-8"))], more].concat();
        let server = Server::start_in(args, &variables);
        (Manager { socket, _folder: folder }, server)
    }

    fn next(&self) -> Vec<String> {
        let mut datagram = [0; 4_096];
        let length = self.socket.recv(&mut datagram).expect("a message");
        String::from_utf8_lossy(&datagram[..length]).lines().map(str::to_owned).collect()
    }

    /// The next message that says this; others before it are passed over.
    fn until(&self, wanted: &str) -> Vec<String> {
        loop {
            let message = self.next();
            if message.iter().any(|line| line == wanted) {
                return message;
            }
        }
    }
}

#[test]
fn ready_reloading_and_stopping_are_told_in_order() {
    let (manager, mut server) = Manager::start(&[], &[]);
    assert_eq!(manager.next()[0], "READY=1");
    server.signal("HUP");
    let reloading = manager.next();
    assert_eq!(reloading[0], "RELOADING=1");
    let since: u64 = reloading[1].strip_prefix("MONOTONIC_USEC=").expect("when").parse().expect("a number");
    assert!(since > 0);
    assert_eq!(manager.next()[0], "READY=1", "whatever came of it");
    server.terminate();
    let stopping = manager.next();
    assert_eq!(stopping[0], "STOPPING=1");
    assert!(stopping.iter().any(|line| line.starts_with("EXTEND_TIMEOUT_USEC=")), "{stopping:?}");
    assert!(server.wait().success());
}

#[test]
fn a_watchdog_hears_that_the_server_lives() {
    let (manager, _server) = Manager::start(&[], &[("WATCHDOG_USEC", "200000")]);
    for _ in 0..3 {
        manager.until("WATCHDOG=1");
    }
}

/// One that hangs in a step is not alive, and is for systemd to end.
#[test]
fn a_hung_engine_stops_the_watchdog() {
    let hang = [
        ("WATCHDOG_USEC", "100000"),
        ("FOREBAY__ENGINE__STALL_TIMEOUT", "100ms"),
        ("FOREBAY__WORKERS__COUNT", "1"),
        ("FOREBAY__WORKERS__BASE_LATENCY_MS", "600000"),
    ];
    let (manager, server) = Manager::start(&["--model", "sim"], &hang);
    manager.until("WATCHDOG=1");
    let body = serde_json::json!({"prompt": "Once", "max_tokens": 1}).to_string();
    let url = server.at("/v1/completions");
    let asking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let request = reqwest::Client::new().post(url).header("content-type", "application/json").body(body);
        runtime.block_on(async { drop(request.send().await) });
    });
    // Silence: no message within many of its periods.
    manager.socket.set_read_timeout(Some(Duration::from_secs(2))).expect("set");
    let mut datagram = [0; 4_096];
    while manager.socket.recv(&mut datagram).is_ok() {}
    drop(server);
    asking.join().expect("no panic");
}

#[test]
fn the_unit_is_of_the_kind_that_we_speak() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/systemd/forebay.service");
    let unit = std::fs::read_to_string(path).expect("a unit");
    for line in [
        "Type=notify-reload",
        "WatchdogSec=",
        "NotifyAccess=main",
        "SuccessExitStatus=143",
        "ExecStart=/usr/bin/forebay serve",
    ] {
        assert!(unit.lines().any(|found| found.starts_with(line)), "{line}");
    }
}
