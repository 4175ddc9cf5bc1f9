//! What grammars of requests may cost a server, and the settings that say so.

use std::time::Duration;

use forebay_core::settings::Setting;
use forebay_core::units::Micros;

/// What grammars may cost the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrammarConfig {
    /// Of one grammar, as the client wrote it.
    pub max_bytes: usize,
    /// Of one grammar. It may wait for others five times as long.
    pub compile_timeout: Duration,
    /// Compiled grammars that are kept.
    pub cache_entries: usize,
}

impl Default for GrammarConfig {
    fn default() -> GrammarConfig {
        GrammarConfig { max_bytes: 256 << 10, compile_timeout: Duration::from_secs(2), cache_entries: 128 }
    }
}

/// In the order of config.yaml.
pub fn settings() -> Vec<Setting<GrammarConfig>> {
    vec![
        Setting::new("structured_output.max_bytes", |c: &mut GrammarConfig| &mut c.max_bytes)
            .whole(1..=16 << 20)
            .help("longest schema or grammar of a request"),
        Setting::new("structured_output.compile_timeout", |c: &mut GrammarConfig| &mut c.compile_timeout)
            .duration(Micros::MILLISECOND..=Micros(10 * Micros::MINUTE.0))
            .help("a grammar that takes longer to compile is refused"),
        Setting::new("structured_output.cache_entries", |c: &mut GrammarConfig| &mut c.cache_entries)
            .whole(0..=100_000)
            .help("compiled grammars that are kept for requests to come"),
    ]
}
