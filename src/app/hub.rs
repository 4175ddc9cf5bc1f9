//! Checkpoints from the Hugging Face hub, in its cache layout, so that what other programs downloaded is used too.
//!
//! `HF_TOKEN`, `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT` and `HF_HUB_OFFLINE` mean what they mean everywhere. A download that
//! broke off is resumed where it ended.

use std::collections::BTreeSet;
use std::env;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, Repo, RepoType};
use indicatif::ProgressBar;
use thiserror::Error;

use super::hub_id::{HubId, is_name};

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const NEEDED: &[&str] = &[CONFIG, "tokenizer.json"];
/// Absent from many repositories, and fine without.
const OPTIONAL: &[&str] = &[
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
];

/// A broken connection is tried again so often, from the byte reached.
const RETRIES: usize = 3;

#[derive(Debug, Error)]
pub enum HubError {
    #[error("{repo}@{revision} has no {file}")]
    Missing { repo: String, revision: String, file: String },
    #[error(
        "the hub refuses {repo}@{revision}/{file} ({status}): it may be private or gated; accept its licence on its page and set HF_TOKEN"
    )]
    Refused { repo: String, revision: String, file: String, status: u16 },
    #[error("HF_HUB_OFFLINE is set and {file} of {repo}@{revision} is not in the cache at {}", cache.display())]
    Offline { repo: String, revision: String, file: String, cache: PathBuf },
    #[error("{repo}: {file} names {shard:?}, which is not a plain file name")]
    Shard { repo: String, file: &'static str, shard: String },
    #[error("{}: {message}", path.display())]
    Index { path: PathBuf, message: String },
    #[error("downloading {file} of {repo}@{revision}: {error}")]
    Download { repo: String, revision: String, file: String, error: String },
}

/// The hub as the environment describes it.
pub struct Hub {
    cache: Cache,
    /// `None` when only the cache may be used.
    api: Option<Api>,
}

/// One repository at one revision.
struct Remote<'a> {
    id: &'a HubId,
    cache: &'a Cache,
    api: Option<ApiRepo>,
}

impl Hub {
    pub fn from_env() -> Result<Hub, HubError> {
        let cache = cache();
        let offline =
            env::var("HF_HUB_OFFLINE").is_ok_and(|v| matches!(v.to_lowercase().as_str(), "1" | "true" | "yes" | "on"));
        if offline {
            return Ok(Hub { cache, api: None });
        }
        let mut builder = ApiBuilder::from_cache(cache.clone()).with_retries(RETRIES);
        if let Ok(endpoint) = env::var("HF_ENDPOINT") {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').into());
        }
        if let Ok(token) = env::var("HF_TOKEN") {
            builder = builder.with_token(Some(token.trim().into()).filter(|token: &String| !token.is_empty()));
        }
        let api = builder.with_user_agent("forebay", env!("CARGO_PKG_VERSION")).build();
        let api = api.map_err(|error| HubError::Index { path: cache.path().clone(), message: error.to_string() })?;
        Ok(Hub { cache, api: Some(api) })
    }

    /// The folder that holds the checkpoint, everything in it that can be had.
    pub fn fetch(&self, id: &HubId) -> Result<PathBuf, HubError> {
        let remote = Remote { id, cache: &self.cache, api: self.api.as_ref().map(|api| api.repo(repo(id))) };
        if let Some(file) = &id.file {
            return remote.get(file);
        }
        let mut folder = PathBuf::new();
        for file in NEEDED {
            folder = parent(remote.get(file)?);
        }
        for file in OPTIONAL {
            remote.find(file)?;
        }
        remote.weights()?;
        Ok(folder)
    }
}

impl Remote<'_> {
    fn weights(&self) -> Result<(), HubError> {
        let Some(index) = self.find(INDEX)? else {
            return self.get(WEIGHTS).map(drop);
        };
        for shard in shards(&index)? {
            if !is_name(&shard) {
                return Err(HubError::Shard { repo: self.id.repo.clone(), file: INDEX, shard });
            }
            self.get(&shard)?;
        }
        Ok(())
    }

    fn get(&self, file: &str) -> Result<PathBuf, HubError> {
        let HubId { repo, revision, .. } = self.id;
        self.find(file)?.ok_or_else(|| match self.api {
            Some(_) => HubError::Missing { repo: repo.clone(), revision: revision.clone(), file: file.into() },
            None => HubError::Offline {
                repo: repo.clone(),
                revision: revision.clone(),
                file: file.into(),
                cache: self.cache.path().clone(),
            },
        })
    }

    /// From the cache, else from the hub; `None` if neither has it.
    fn find(&self, file: &str) -> Result<Option<PathBuf>, HubError> {
        if let Some(path) = self.cache.repo(repo(self.id)).get(file) {
            return Ok(Some(path));
        }
        let Some(api) = &self.api else { return Ok(None) };
        match api.download_with_progress(file, progress(file)) {
            Ok(path) => Ok(Some(path)),
            Err(error) => self.explain(file, error),
        }
    }

    fn explain(&self, file: &str, error: ApiError) -> Result<Option<PathBuf>, HubError> {
        let (repo, revision, file) = (self.id.repo.clone(), self.id.revision.clone(), file.to_owned());
        match status(&error) {
            Some(404) => Ok(None),
            Some(status @ (401 | 403)) => Err(HubError::Refused { repo, revision, file, status }),
            _ => Err(HubError::Download { repo, revision, file, error: error.to_string() }),
        }
    }
}

fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        ApiError::TooManyRetries(error) => status(error),
        _ => None,
    }
}

fn repo(id: &HubId) -> Repo {
    Repo::with_revision(id.repo.clone(), RepoType::Model, id.revision.clone())
}

/// `HF_HUB_CACHE`, else `HF_HOME/hub`, else the usual place.
fn cache() -> Cache {
    env::var_os("HF_HUB_CACHE").map_or_else(Cache::from_env, |path| Cache::new(path.into()))
}

/// The distinct file names of an index, sorted.
fn shards(index: &Path) -> Result<BTreeSet<String>, HubError> {
    let broken = |message: String| HubError::Index { path: index.into(), message };
    let text = std::fs::read_to_string(index).map_err(|error| broken(error.to_string()))?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
    let map = json["weight_map"].as_object().ok_or_else(|| broken("no weight_map".into()))?;
    let name = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    map.values()
        .map(name)
        .collect::<Option<_>>()
        .ok_or_else(|| broken("weight_map must map names to file names".into()))
}

fn parent(path: PathBuf) -> PathBuf {
    path.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// A bar on a terminal; a line per file otherwise.
fn progress(file: &str) -> Report {
    let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(0));
    Report { file: file.into(), bar, said: false }
}

struct Report {
    file: String,
    bar: Option<ProgressBar>,
    said: bool,
}

impl Progress for Report {
    fn init(&mut self, size: usize, filename: &str) {
        match &mut self.bar {
            Some(bar) => Progress::init(bar, size, filename),
            // Called again when a download is resumed.
            None if !std::mem::replace(&mut self.said, true) => {
                tracing::info!(event = "downloading", file = self.file, bytes = size, "downloading");
            }
            None => {}
        }
    }

    fn update(&mut self, size: usize) {
        if let Some(bar) = &mut self.bar {
            Progress::update(bar, size);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = &mut self.bar {
            Progress::finish(bar);
        }
    }
}
