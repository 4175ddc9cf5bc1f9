//! What `--model` means: nothing is the embedded model, a path that exists is that, anything like `org/name` is a hub id.

use std::path::{Path, PathBuf};

use thiserror::Error;

use forebay_model::Source;

use super::hub_id::HubId;

/// `--model` names nothing that can be loaded.
#[derive(Debug, Error)]
pub enum SourceError {
    #[error("--model {0}: there is no such file or folder, and it is no hub id (org/name[@revision][:file])")]
    Nothing(String),
    #[error("--model {0}: a model is a folder with config.json and safetensors, or a .gguf file; this is neither")]
    File(PathBuf),
    #[cfg(not(feature = "hub"))]
    #[error("--model {0}: there is no such folder, and this build has no hub (cargo feature `hub`)")]
    NoHub(String),
    #[cfg(feature = "hub")]
    #[error(transparent)]
    Hub(#[from] super::hub::HubError),
}

/// Downloads if it must.
pub fn resolve(reference: &str) -> Result<Source, SourceError> {
    match local(reference)? {
        Some(source) => Ok(source),
        None => from_hub(&HubId::parse(reference).ok_or_else(|| SourceError::Nothing(reference.into()))?),
    }
}

/// The same, as far as it can be told without the hub: `None` is one of its ids.
pub fn local(reference: &str) -> Result<Option<Source>, SourceError> {
    if reference.is_empty() {
        return Ok(Some(Source::Builtin));
    }
    let path = Path::new(reference);
    let source = Source::at(path.into());
    match source {
        // A file that is missing is better explained by who reads it than taken for a hub id.
        Source::Gguf(_) if path.exists() || !reference.contains(':') => return Ok(Some(source)),
        _ if path.is_dir() => return Ok(Some(source)),
        _ if path.exists() => return Err(SourceError::File(path.into())),
        _ => {}
    }
    match HubId::parse(reference) {
        Some(_) => Ok(None),
        None => Err(SourceError::Nothing(reference.into())),
    }
}

#[cfg(feature = "hub")]
fn from_hub(id: &HubId) -> Result<Source, SourceError> {
    Ok(Source::at(super::hub::Hub::from_env()?.fetch(id)?))
}

#[cfg(not(feature = "hub"))]
fn from_hub(id: &HubId) -> Result<Source, SourceError> {
    Err(SourceError::NoHub(id.repo.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_the_embedded_model_and_a_missing_path_is_an_error() {
        assert!(matches!(resolve(""), Ok(Source::Builtin)));
        assert!(matches!(resolve("./no/such/folder"), Err(SourceError::Nothing(_))));
        assert!(matches!(resolve("no/such.gguf"), Ok(Source::Gguf(_))), "its reader says what is missing");
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(matches!(resolve(file.path().to_str().expect("utf-8")), Err(SourceError::File(_))));
    }
}
