//! `logging`: what the server says of itself on its standard output.

use forebay_core::settings::Setting;

#[derive(Clone, Debug)]
pub struct LoggingConfig {
    pub level: String,
    pub format: LogFormat,
    /// Whether each request is told of.
    pub access: bool,
}

impl Default for LoggingConfig {
    fn default() -> LoggingConfig {
        LoggingConfig { level: "info".into(), format: LogFormat::Auto, access: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Pretty,
    Json,
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const LEVEL: &str = "one of off, error, warn, info, debug, trace, or directives such as info,forebay=debug";

pub fn settings() -> Vec<Setting<LoggingConfig>> {
    vec![
        Setting::own("logging.level", |c: &mut LoggingConfig| &mut c.level, LEVEL, String::clone, level)
            .flag("log-level")
            .live()
            .help("a level, or tracing directives; RUST_LOG goes before it"),
        Setting::one_of(
            "logging.format",
            |c: &mut LoggingConfig| &mut c.format,
            [("auto", LogFormat::Auto), ("pretty", LogFormat::Pretty), ("json", LogFormat::Json)],
        )
        .flag("log-format")
        .help("auto: pretty on a terminal, JSON otherwise"),
        Setting::new("logging.access", |c: &mut LoggingConfig| &mut c.access)
            .live()
            .help("a line for each request: route, status, duration, tokens; no text, no keys"),
    ]
}

/// A level, or directives such as `info,forebay=debug`. A bare word that is no level would silence the whole log.
fn level(text: &str) -> Option<String> {
    let level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word.trim()));
    let directive = |part: &str| part.rsplit_once('=').map_or(level(part), |(_, after)| level(after));
    text.split(',').all(directive).then(|| text.to_owned())
}
