//! The way to a collector: OTLP over HTTP, protobuf, through the HTTP client that we have. Endpoint, headers, timeouts, names and
//! sampling may come from OpenTelemetry's variables.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use opentelemetry::{Key, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use thiserror::Error;
use tokio::runtime::Handle;

use crate::https;

/// Why spans cannot be sent anywhere.
#[derive(Debug, Error)]
pub enum TelemetryError {
    #[error("spans cannot be sent to {endpoint}: it must begin with http:// or https://")]
    Scheme { endpoint: String },
    #[error("spans cannot be sent: {0}")]
    Exporter(String),
}

const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Of a collector's answer, which says at most what it did not like.
const MOST_ANSWER: usize = 64 << 10;
/// The exporter has a deadline of its own (`OTEL_EXPORTER_OTLP_TIMEOUT`); a socket may not outlive it by much.
const TIMEOUT: Duration = Duration::from_secs(30);

/// `None` where no endpoint was configured, or a variable says that nobody wants spans.
pub fn exporter(configured: Option<&str>, runtime: &Handle) -> Result<Option<SpanExporter>, TelemetryError> {
    let off = variable("OTEL_SDK_DISABLED").is_some_and(|said| said.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|said| said == "none");
    let Some(endpoint) =
        configured.map(str::to_owned).or_else(|| variable(TRACES_ENDPOINT)).or_else(|| variable(ENDPOINT))
    else {
        return Ok(None);
    };
    if off {
        return Ok(None);
    }
    if !https::is_asked(&endpoint) {
        return Err(TelemetryError::Scheme { endpoint });
    }
    let wrong = |error: &dyn std::error::Error| TelemetryError::Exporter(error.to_string());
    let client = https::client(&endpoint).timeout(TIMEOUT).build().map_err(|error| wrong(&error))?;
    let builder = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let builder = builder.with_http_client(Client { client, runtime: runtime.clone() });
    // The variables' own endpoints are read by the exporter.
    let builder = match configured {
        Some(endpoint) => builder.with_endpoint(with_path(endpoint)),
        None => builder,
    };
    let exporter = builder.build().map_err(|error| wrong(&error))?;
    tracing::info!(event = "tracing", endpoint, "spans go to {endpoint}");
    Ok(Some(exporter))
}

/// A URL without a path means the usual one.
fn with_path(endpoint: &str) -> String {
    let bare = endpoint.trim_end_matches('/');
    let has_path = bare.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path { endpoint.to_owned() } else { format!("{bare}/v1/traces") }
}

/// Who says so.
pub fn resource() -> Resource {
    let named = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|said| said.contains("service.name="));
    let builder = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let builder =
        if named { builder } else { builder.with_attribute(KeyValue::new(Key::new("service.name"), "forebay")) };
    builder.build()
}

/// What part of new traces is sampled: as `OTEL_TRACES_SAMPLER` says, else as configured.
pub fn sample(configured: f64) -> f64 {
    sampled(variable("OTEL_TRACES_SAMPLER").as_deref(), variable("OTEL_TRACES_SAMPLER_ARG").as_deref(), configured)
}

fn sampled(sampler: Option<&str>, argument: Option<&str>, configured: f64) -> f64 {
    let Some(sampler) = sampler else { return configured };
    match sampler.strip_prefix("parentbased_").unwrap_or(sampler) {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            argument.and_then(|part| part.parse().ok()).filter(|part| (0.0..=1.0).contains(part)).unwrap_or(1.0)
        }
        other => {
            tracing::warn!(event = "unknown_sampler", sampler = other, "tracing.sample is used in its place");
            configured
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The exporter works on a thread of its own, without a runtime; requests are sent on ours.
#[derive(Debug)]
struct Client {
    client: reqwest::Client,
    runtime: Handle,
}

impl HttpClient for Client {
    fn send_bytes<'a, 'async_trait>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'async_trait>>
    where
        'a: 'async_trait,
        Self: 'async_trait,
    {
        let sending = self.runtime.spawn(send(self.client.clone(), request));
        Box::pin(async move { sending.await? })
    }
}

async fn send(client: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (parts, body) = request.into_parts();
    let asked = client.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
    let mut answer = asked.send().await?;
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        headers.clone_from(answer.headers());
    }
    let mut whole = Vec::new();
    while let Some(part) = answer.chunk().await? {
        let room = MOST_ANSWER.saturating_sub(whole.len());
        whole.extend_from_slice(&part[..part.len().min(room)]);
    }
    Ok(response.body(whole.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_path_means_the_usual_one() {
        assert_eq!(with_path("http://collector:4318"), "http://collector:4318/v1/traces");
        assert_eq!(with_path("http://collector:4318/"), "http://collector:4318/v1/traces");
        assert_eq!(with_path("https://collector"), "https://collector/v1/traces");
        assert_eq!(with_path("http://collector:4318/own/way"), "http://collector:4318/own/way");
    }

    #[test]
    fn samplers_as_opentelemetry_names_them() {
        for (sampler, argument, expected) in [
            (None, None, 0.3),
            (Some("always_on"), None, 1.0),
            (Some("parentbased_always_off"), None, 0.0),
            (Some("parentbased_traceidratio"), Some("0.5"), 0.5),
            (Some("traceidratio"), Some("2"), 1.0),
            (Some("jaeger_remote"), None, 0.3),
        ] {
            assert_eq!(sampled(sampler, argument, 0.3), expected, "{sampler:?}");
        }
    }

    #[tokio::test]
    async fn without_an_endpoint_there_is_no_exporter_and_nonsense_is_refused() {
        assert!(exporter(None, &Handle::current()).unwrap().is_none());
        let refused = exporter(Some("grpc://collector:4317"), &Handle::current());
        assert!(matches!(refused, Err(TelemetryError::Scheme { .. })));
        assert!(exporter(Some("http://collector:4318"), &Handle::current()).unwrap().is_some());
    }
}
