//! For whom the admin routes answer.

/// For whom the admin routes answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Connections from this machine.
    #[default]
    Loopback,
    /// Everyone who reaches the port.
    Any,
    Off,
}
