//! What `--model` means: nothing is the embedded model, a path that exists is that, anything like `org/name` is a hub id.

use std::path::{Path, PathBuf};

use thiserror::Error;

use forebay_model::Source;

/// A model on the hub: `org/name[@revision][:file]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubId {
    pub repo: String,
    /// A branch, tag or commit; `main` if none was given.
    pub revision: String,
    /// One file of the repository instead of a checkpoint's usual ones.
    pub file: Option<String>,
}

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

impl HubId {
    /// `None` for what cannot be a hub id: these strings become paths and URLs.
    pub fn parse(text: &str) -> Option<HubId> {
        let (text, file) = match text.split_once(':') {
            Some((text, file)) => (text, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (owner, name) = repo.split_once('/')?;
        let sound = [owner, name].into_iter().chain(revision.split('/')).chain(file).all(is_name);
        sound.then(|| HubId { repo: repo.into(), revision: revision.into(), file: file.map(str::to_owned) })
    }
}

/// Letters, digits, `.`, `_`, `-`, and not only dots: a plain name, never a way through folders.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 255 && name.chars().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_ids_have_an_owner_and_a_name() {
        let parse = |text: &str| HubId::parse(text).map(|id| (id.repo, id.revision, id.file));
        assert_eq!(parse("org/name"), Some(("org/name".into(), "main".into(), None)));
        assert_eq!(parse("org/name@v1.0"), Some(("org/name".into(), "v1.0".into(), None)));
        assert_eq!(parse("org/name@refs/pr/3"), Some(("org/name".into(), "refs/pr/3".into(), None)));
        assert_eq!(parse("o/n@r:f.gguf"), Some(("o/n".into(), "r".into(), Some("f.gguf".into()))));
    }

    #[test]
    fn what_could_leave_the_cache_is_no_hub_id() {
        for text in
            ["name", "../name", "org/..", "a/b/c", "/org/name", "org/", "org/n@", "org/n@../x", "org/n:../f", "o/n:"]
        {
            assert_eq!(HubId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_is_the_embedded_model_and_a_missing_path_is_an_error() {
        assert!(matches!(resolve(""), Ok(Source::Builtin)));
        assert!(matches!(resolve("./no/such/folder"), Err(SourceError::Nothing(_))));
        assert!(matches!(resolve("no/such.gguf"), Ok(Source::Gguf(_))), "its reader says what is missing");
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(matches!(resolve(file.path().to_str().expect("utf-8")), Err(SourceError::File(_))));
    }
}
