//! What the process is told from outside.

use std::io;

/// A signal that ends the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Interrupt,
}

impl Signal {
    /// As shells count a process that a signal ended: 128 and its number.
    pub const fn exit_code(self) -> u8 {
        match self {
            Signal::Terminate => 128 + 15,
            Signal::Interrupt => 128 + 2,
        }
    }
}

/// From its making on, no signal ends the process by itself.
#[cfg(unix)]
pub struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub fn new() -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next SIGINT or SIGTERM. Cancel safe.
    pub async fn stop(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Interrupt,
        }
    }
}

/// The order to read the configuration again: SIGHUP.
#[cfg(unix)]
pub struct Hangups(tokio::signal::unix::Signal);

#[cfg(unix)]
impl Hangups {
    pub fn new() -> io::Result<Hangups> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Hangups(signal(SignalKind::hangup())?))
    }

    /// Several that came while nobody waited are one.
    pub async fn next(&mut self) {
        self.0.recv().await;
    }
}

#[cfg(not(unix))]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub fn new() -> io::Result<Signals> {
        Ok(Signals)
    }

    pub async fn stop(&mut self) -> Signal {
        let _ = tokio::signal::ctrl_c().await;
        Signal::Interrupt
    }
}

#[cfg(not(unix))]
pub struct Hangups;

#[cfg(not(unix))]
impl Hangups {
    pub fn new() -> io::Result<Hangups> {
        Ok(Hangups)
    }

    pub async fn next(&mut self) {
        std::future::pending().await
    }
}
