//! Where spans go, and the settings that say so.

use forebay_core::settings::Setting;

/// What the operator says; the rest is in OpenTelemetry's own variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `None` is what `OTEL_EXPORTER_OTLP_ENDPOINT` says, and nowhere without it.
    pub endpoint: Option<String>,
    /// Part of the requests that bring no decision of their own.
    pub sample: f64,
}

impl Default for Config {
    fn default() -> Config {
        Config { endpoint: None, sample: 1.0 }
    }
}

/// In the order of config.yaml.
pub fn settings() -> Vec<Setting<Config>> {
    vec![
        Setting::own(
            "tracing.otlp_endpoint",
            |c: &mut Config| &mut c.endpoint,
            "a URL that begins with http:// or https://",
            |endpoint| endpoint.clone().unwrap_or_default(),
            read,
        )
        .flag("otlp-endpoint")
        .help("spans go there by OTLP over HTTP, such as http://localhost:4318 or https://host; empty is OTEL_EXPORTER_OTLP_ENDPOINT, or nowhere"),
        Setting::new("tracing.sample", |c: &mut Config| &mut c.sample)
            .real(0.0..=1.0)
            .help("part of the requests without a traceparent that is traced; a traceparent decides for its own"),
    ]
}

fn read(text: &str) -> Option<Option<String>> {
    match text {
        "" => Some(None),
        url if url.starts_with("http://") || url.starts_with("https://") => Some(Some(url.to_owned())),
        _ => None,
    }
}
