//! The storyteller, inside the program: a small Llama, so that the server answers at once and offline.
//!
//! Without the feature `builtin-model` both functions are an error that names it.

#[cfg(feature = "builtin-model")]
pub(crate) use embedded::{checkpoint, files};
#[cfg(not(feature = "builtin-model"))]
pub(crate) use missing::{checkpoint, files};

#[cfg(feature = "builtin-model")]
mod embedded {
    use std::path::{Path, PathBuf};

    use crate::files::json::Fields;
    use crate::files::map::Bytes;
    use crate::files::safetensors::Checkpoint;
    use crate::load::folder::Files;
    use crate::load::sentence::Sentence;
    use crate::types::error::LoadError;

    const ID: &str = "storyteller";
    const CONFIG: &[u8] = include_bytes!("../../../../models/storyteller/config.json");
    const GENERATION_CONFIG: &[u8] = include_bytes!("../../../../models/storyteller/generation_config.json");
    const TOKENIZER: &[u8] = include_bytes!("../../../../models/storyteller/tokenizer.json");
    const TOKENIZER_CONFIG: &[u8] = include_bytes!("../../../../models/storyteller/tokenizer_config.json");
    const WEIGHTS: &[u8] = include_bytes!("../../../../models/storyteller/model.safetensors");

    /// Its small files.
    pub(crate) fn files() -> Result<Files, LoadError> {
        let parse = |file, bytes| Fields::parse(&path(file), bytes);
        Ok(Files {
            id: ID.to_string(),
            config: parse("config.json", CONFIG)?,
            generation_config: Some(parse("generation_config.json", GENERATION_CONFIG)?),
            tokenizer: TOKENIZER.to_vec(),
            tokenizer_config: Some(parse("tokenizer_config.json", TOKENIZER_CONFIG)?),
            chat_template: None,
            sentence: Sentence::default(),
        })
    }

    /// Its weights.
    pub(crate) fn checkpoint() -> Result<Checkpoint, LoadError> {
        Checkpoint::single(path("model.safetensors"), Bytes::Static(WEIGHTS))
    }

    fn path(file: &str) -> PathBuf {
        Path::new("(built-in)").join(ID).join(file)
    }
}

#[cfg(not(feature = "builtin-model"))]
mod missing {
    use crate::files::safetensors::Checkpoint;
    use crate::load::folder::Files;
    use crate::types::error::LoadError;

    const ABSENT: LoadError = LoadError::Feature { what: "the built-in model", feature: "builtin-model" };

    pub(crate) fn files() -> Result<Files, LoadError> {
        Err(ABSENT)
    }

    pub(crate) fn checkpoint() -> Result<Checkpoint, LoadError> {
        Err(ABSENT)
    }
}
