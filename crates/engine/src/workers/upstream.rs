//! Another OpenAI-compatible server. Carries bytes there and back; what they mean is not its business, but for the list of
//! models that a check reads.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;
use thiserror::Error;
use tokio::time::timeout;

use super::local::lock;
use crate::https;

/// Models of one server that are remembered.
const MODELS: usize = 256;
/// Of the answer to a check.
const CHECK_BYTES: usize = 1 << 20;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamConfig {
    pub connect_timeout: Duration,
    /// Until the head of the answer: without streaming that is the whole completion.
    pub response_timeout: Duration,
    /// Between two parts of an answer.
    pub idle_timeout: Duration,
    pub check_timeout: Duration,
}

impl Default for UpstreamConfig {
    fn default() -> UpstreamConfig {
        UpstreamConfig {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(60),
            check_timeout: Duration::from_secs(2),
        }
    }
}

/// What an upstream did wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error("nothing came for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("its answer broke off: {0}")]
    Cut(String),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("it answered with status {0}")]
    Status(u16),
    #[error("{0} would be another path there")]
    Path(String),
}

pub struct Upstream {
    /// Without a path, and without a slash at its end.
    url: String,
    /// The same without credentials.
    shown: String,
    client: Client,
    config: UpstreamConfig,
    /// The names that it serves; empty while it did not say. Guards only this; no await happens under it.
    models: Mutex<Vec<String>>,
}

/// An answer whose body is on its way.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: reqwest::Response,
    idle: Duration,
}

impl Upstream {
    /// `url` as [`base`] makes it. Proxies of the environment are for the world outside, and not asked.
    pub fn new(url: String, config: UpstreamConfig) -> Result<Upstream, String> {
        let shown = Url::parse(&url).map_err(|error| error.to_string())?;
        let client = https::client(&url)
            .connect_timeout(config.connect_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| error.to_string())?;
        let shown = format!("{}://{}", shown.scheme(), shown.host_str().unwrap_or_default())
            + &shown.port().map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Upstream { url, shown, client, config, models: Mutex::default() })
    }

    /// For people: without credentials.
    pub fn shown_url(&self) -> &str {
        &self.shown
    }

    pub fn models(&self) -> Vec<String> {
        lock(&self.models).clone()
    }

    /// Whether it may have this model: it says so, or did not say.
    pub fn may_serve(&self, model: &str) -> bool {
        let models = lock(&self.models);
        models.is_empty() || models.iter().any(|known| known == model)
    }

    /// Its first model.
    pub fn first_model(&self) -> Option<String> {
        lock(&self.models).first().cloned()
    }

    /// Sends a request; returns when the head of the answer is there.
    pub async fn post(
        &self,
        path: &str,
        query: Option<&str>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Answer, Fault> {
        let request = self.client.post(self.address(path, query)?).headers(headers).body(body);
        let limit = self.config.response_timeout;
        let sent = timeout(limit, request.send()).await.map_err(|_| Fault::Silent(limit))?;
        let body = sent.map_err(|error| not_reached(&error))?;
        Ok(Answer { status: body.status(), headers: body.headers().clone(), body, idle: self.config.idle_timeout })
    }

    /// The URL of a path there, byte for byte: what the URL's grammar would turn into another path is nobody's.
    fn address(&self, path: &str, query: Option<&str>) -> Result<Url, Fault> {
        let misled = || Fault::Path(path.chars().take(200).collect());
        let base = Url::parse(&self.url).map_err(|_| misled())?;
        let mut url = Url::parse(&format!("{}{path}", self.url)).map_err(|_| misled())?;
        let intended = format!("{}{path}", base.path().trim_end_matches('/'));
        if !path.starts_with('/') || url.path() != intended || url.origin() != base.origin() || url.query().is_some() {
            return Err(misled());
        }
        url.set_query(query);
        Ok(url)
    }

    /// Whether it is well, and which models it has. `/health` where there is one, else only the list of models.
    pub async fn check(&self) -> Result<(), Fault> {
        let health = self.get("/health").await?.status;
        let unknown = matches!(health.as_u16(), 404 | 405 | 501);
        if !health.is_success() && !unknown {
            return Err(Fault::Status(health.as_u16()));
        }
        let list = self.get("/v1/models").await?;
        if list.status.is_success() {
            let names = names(&list.whole(CHECK_BYTES).await?);
            *lock(&self.models) = names;
        } else if unknown {
            return Err(Fault::Status(list.status.as_u16()));
        }
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Answer, Fault> {
        let limit = self.config.check_timeout;
        let sent = timeout(limit, self.client.get(format!("{}{path}", self.url)).send()).await;
        let body = sent.map_err(|_| Fault::Silent(limit))?.map_err(|error| not_reached(&error))?;
        Ok(Answer { status: body.status(), headers: body.headers().clone(), body, idle: limit })
    }
}

impl Answer {
    /// The next bytes of the body; `None` at its end. Cancel safe.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let chunk = timeout(self.idle, self.body.chunk()).await.map_err(|_| Fault::Silent(self.idle))?;
        chunk.map_err(|error| Fault::Cut(root(&error)))
    }

    /// The whole body, if it is no larger than `limit`.
    pub async fn whole(mut self, limit: usize) -> Result<Bytes, Fault> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > limit {
                return Err(Fault::TooLarge(limit));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole.into())
    }
}

/// Where a server's routes begin, from what people write: `http://host:8000`, `http://host:8000/`, `https://host/v1`.
pub fn base(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|_| "is no URL")?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://");
    }
    if url.host_str().is_none_or(str::is_empty) || url.query().is_some() || url.fragment().is_some() {
        return Err("must have a host, and neither query nor fragment");
    }
    let text = url.as_str().trim_end_matches('/');
    Ok(text.strip_suffix("/v1").unwrap_or(text).trim_end_matches('/').to_owned())
}

/// The ids of OpenAI's list of models.
fn names(body: &[u8]) -> Vec<String> {
    let list: Value = serde_json::from_slice(body).unwrap_or_default();
    let models = list["data"].as_array().into_iter().flatten();
    models.filter_map(|model| model["id"].as_str()).take(MODELS).map(str::to_owned).collect()
}

fn not_reached(error: &reqwest::Error) -> Fault {
    Fault::Unreachable(root(error))
}

/// What it comes down to, without the URL, which may hold credentials.
fn root(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_as_people_write_them() {
        for (text, expected) in [
            ("http://10.0.0.1:8000", Ok("http://10.0.0.1:8000")),
            ("http://host:8000/", Ok("http://host:8000")),
            ("http://host/v1/", Ok("http://host")),
            ("http://host/deep/v1", Ok("http://host/deep")),
            ("host:8000", Err("must begin with http:// or https://")),
            ("https://host:8443/v1", Ok("https://host:8443")),
            ("ftp://host", Err("must begin with http:// or https://")),
            ("http://host?x=1", Err("must have a host, and neither query nor fragment")),
            ("", Err("is no URL")),
        ] {
            assert_eq!(base(text).as_deref().map_err(|why| *why), expected, "{text}");
        }
    }

    #[test]
    fn models_are_read_and_nonsense_is_none() {
        assert_eq!(names(br#"{"data": [{"id": "a"}, {"id": 5}, {"id": "org/b"}]}"#), ["a", "org/b"]);
        for nonsense in [&b"{}"[..], b"[1]", b"\xff", br#"{"data": 7}"#] {
            assert!(names(nonsense).is_empty());
        }
    }

    #[test]
    fn a_path_is_sent_as_it_is_or_not_at_all() {
        for base in ["http://host:81", "http://user:secret@host/deep"] {
            let upstream = Upstream::new(base.into(), UpstreamConfig::default()).unwrap();
            let sent = |path, query| upstream.address(path, query).map(String::from).ok();
            assert_eq!(sent("/v1/completions", None), Some(format!("{base}/v1/completions")));
            assert_eq!(sent("/v1/completions", Some("a=b")), Some(format!("{base}/v1/completions?a=b")));
            for path in [
                "/v1/../admin/pause",
                "/v1/%2e%2e/admin/pause",
                "/v1/.%2e/admin/pause",
                "/v1/..\\admin/pause",
                "/v1/completions/../../admin/pause",
                "/v1/a?b",
                "/v1/a#b",
                "/v1/a b",
                "@elsewhere/v1",
                ":82/v1",
            ] {
                assert_eq!(sent(path, None), None, "{path}");
            }
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let config = UpstreamConfig {
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            check_timeout: Duration::from_secs(1),
        };
        let upstream = Upstream::new("http://user:secret@host:81".into(), config).unwrap();
        assert_eq!(upstream.shown_url(), "http://host:81");
    }
}
