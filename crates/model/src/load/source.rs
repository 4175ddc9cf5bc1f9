//! Which model: the built-in one, a folder or a file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::types::error::LoadError;

const GGUF: &str = "gguf";

/// Which model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The one inside the program; needs the feature `builtin-model`.
    Builtin,
    /// A folder in the Hugging Face layout, or one without `config.json` that holds a single `.gguf` file.
    Folder(PathBuf),
    /// A GGUF file.
    Gguf(PathBuf),
}

impl Source {
    /// A path by its ending: `.gguf` is a file, everything else a folder.
    pub fn at(path: PathBuf) -> Source {
        match path.extension() {
            Some(ending) if ending.eq_ignore_ascii_case(GGUF) => Source::Gguf(path),
            _ => Source::Folder(path),
        }
    }

    /// What a folder stands for.
    pub(crate) fn resolved(&self) -> Result<Source, LoadError> {
        match self {
            Source::Folder(folder) if !folder.join("config.json").exists() => {
                Ok(only_gguf(folder)?.map_or_else(|| self.clone(), Source::Gguf))
            }
            other => Ok(other.clone()),
        }
    }
}

/// The one `.gguf` file of a folder; `None` where there is none, or no folder.
fn only_gguf(folder: &Path) -> Result<Option<PathBuf>, LoadError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(None) };
    let is_gguf = |path: &PathBuf| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(GGUF));
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_gguf).collect();
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => Err(LoadError::SeveralGguf { path: folder.to_path_buf(), count }),
    }
}
