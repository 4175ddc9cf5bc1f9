//! What the process is told from outside.

use tokio::signal;

/// Resolves at the next SIGINT or SIGTERM. Each call hears the signals that come after it.
#[cfg(unix)]
pub async fn stop() -> std::io::Result<()> {
    use signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
pub async fn stop() -> std::io::Result<()> {
    signal::ctrl_c().await
}
