//! `tracing`: where spans go.

use super::ConfigError;
use super::values::Reader;

/// Where spans go; what is not here is in OpenTelemetry's own variables.
#[derive(Clone, Debug)]
pub struct TracingConfig {
    /// `None` is what `OTEL_EXPORTER_OTLP_ENDPOINT` says, and nowhere without it.
    pub endpoint: Option<String>,
    /// Of requests that bring no decision of their own.
    pub sample: f64,
}

pub fn config(read: &Reader) -> Result<TracingConfig, ConfigError> {
    const KEY: &str = "tracing.otlp_endpoint";
    let endpoint = Some(read.text(KEY)).filter(|url| !url.is_empty());
    if endpoint.is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
        return Err(read.refuse(KEY, "a URL that begins with http:// or https://".into()));
    }
    Ok(TracingConfig { endpoint: endpoint.map(str::to_owned), sample: read.number("tracing.sample")? })
}
