//! From a source (the built-in model, a Hugging Face folder or a GGUF file) to a [`LoadedModel`].
//!
//! Stands above everything that a model is made of, and nothing below knows it. Here it is decided which files of a folder
//! are read and on which backend the weights go; what lies in a file is known to `files`, what it means to `arch`.
//!
//! ```text
//! source ─┬─▶ folder (chat, generation, sentence) or builtin ─┬─▶ arch ─▶ Spec ─┬─▶ place (room) ─▶ Model
//!         └─▶ a GGUF file ────────────────────────────────────┘   Weights ──────┘
//! ```

pub(crate) mod builtin;
pub(crate) mod chat;
pub(crate) mod folder;
mod generation;
mod place;
mod room;
mod sentence;
pub(crate) mod source;

use std::path::Path;

use crate::arch;
use crate::files::gguf::file::Gguf;
use crate::files::gguf::tensors::GgufWeights;
use crate::files::gguf::vocab::read_vocab;
use crate::files::safetensors::Checkpoint;
use crate::model::Model;
use crate::types::error::LoadError;
use crate::types::options::{LoadFormat, LoadOptions};
use crate::types::spec::Spec;
use crate::weights::source::Weights;
use chat::ChatFiles;
use folder::Files;
use forebay_core::request::{Defaults, Pooling};
use forebay_core::units::TokenId;
use forebay_text::GgufVocab;
use generation::drawing;
use place::place;
use source::Source;

/// A checkpoint's size is bounded by its file; what `config.json` alone asks for is not. A tebibyte of weights.
const MAX_DUMMY_PARAMETERS: u64 = 1 << 38;

/// A model and the files that other rooms read.
pub struct LoadedModel {
    /// The folder's name, the file's without its ending, or `storyteller`.
    pub id: String,
    pub model: Model,
    pub tokenizer: TokenizerSource,
    pub chat: ChatFiles,
    /// Tokens that end a completion: those of `config.json` and `generation_config.json`, or of a GGUF file, ascending.
    pub eos: Vec<TokenId>,
    pub max_position_embeddings: u32,
    /// How its makers want tokens drawn; nothing for a GGUF file.
    pub defaults: Defaults,
    /// How its makers want hidden states pooled, where they say it.
    pub pooling: Option<Pooling>,
    /// Whether they want vectors made as long as one.
    pub normalised: bool,
}

/// What a tokenizer is made from.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizerSource {
    /// The bytes of a `tokenizer.json`.
    Json(Vec<u8>),
    Gguf(GgufVocab),
}

/// Loads a model without a cache; [`Model::allocate_kv`] makes that. Everything is checked before it is used.
pub fn load(source: &Source, options: &LoadOptions) -> Result<LoadedModel, LoadError> {
    match source.resolved()? {
        Source::Builtin => load_files(builtin::files()?, builtin::checkpoint, options),
        Source::Folder(folder) => load_files(Files::folder(&folder)?, || Checkpoint::open(&folder), options),
        Source::Gguf(path) => load_gguf(&path, options),
    }
}

fn load_gguf(path: &Path, options: &LoadOptions) -> Result<LoadedModel, LoadError> {
    let file = Gguf::open(path)?;
    let spec = arch::gguf::decoder::read_spec(&file)?;
    let vocabulary = read_vocab(&file, spec.vocab)?;
    let pooling = read_pooling(&file)?;
    let weights = match options.format {
        LoadFormat::Dummy => dummy(spec.parameters(), path, options.seed)?,
        LoadFormat::Auto => Weights::Gguf(GgufWeights::new(file, &spec)?),
    };
    Ok(LoadedModel {
        id: file_id(path),
        max_position_embeddings: spec.max_position_embeddings,
        model: place(Spec::Decoder(spec), &weights, path, options)?,
        chat: ChatFiles {
            template: vocabulary.tokens.chat_template.clone(),
            bos_token: vocabulary.bos_text,
            eos_token: vocabulary.eos_text,
        },
        tokenizer: TokenizerSource::Gguf(vocabulary.tokens),
        eos: vocabulary.ends,
        defaults: Defaults::default(),
        pooling,
        normalised: true,
    })
}

/// How hidden states are pooled, where the file says it: llama.cpp's numbers.
fn read_pooling(file: &Gguf) -> Result<Option<Pooling>, LoadError> {
    let key = format!("{}.pooling_type", file.architecture()?);
    Ok(match file.keys().integer(&key, 0..=4)? {
        Some(1) => Some(Pooling::Mean),
        Some(2) => Some(Pooling::Cls),
        Some(3) => Some(Pooling::Last),
        // None, or a rank, for which it needs another head.
        _ => None,
    })
}

fn load_files(
    files: Files,
    checkpoint: impl FnOnce() -> Result<Checkpoint, LoadError>,
    options: &LoadOptions,
) -> Result<LoadedModel, LoadError> {
    let (spec, renamed) = arch::read_spec(&files.config)?;
    let eos = files.ends(spec.vocab())?;
    let defaults = files.generation_config.as_ref().map_or(Ok(Defaults::default()), drawing)?;
    let chat = files.chat()?;
    let sentence = files.sentence;
    let longest = sentence.max_tokens.unwrap_or(u32::MAX);
    // What sentence-transformers makes of an encoder that comes without a word about it.
    let pooling = sentence.pooling.or(spec.only_embeds().then_some(Pooling::Mean));
    let weights = match options.format {
        LoadFormat::Dummy => dummy(spec.parameters(), files.config.path(), options.seed)?,
        LoadFormat::Auto => Weights::Checkpoint(checkpoint()?, renamed),
    };
    Ok(LoadedModel {
        id: files.id,
        max_position_embeddings: spec.max_position_embeddings().min(longest),
        model: place(spec, &weights, files.config.path(), options)?,
        tokenizer: TokenizerSource::Json(sentence.tokenizer(files.tokenizer)),
        chat,
        eos,
        defaults,
        pooling,
        normalised: sentence.normalised,
    })
}

/// A file's name without its ending.
pub(crate) fn file_id(path: &Path) -> String {
    path.file_stem().map_or_else(|| "model".to_string(), |stem| stem.to_string_lossy().into_owned())
}

fn dummy(parameters: u64, config: &Path, seed: u64) -> Result<Weights, LoadError> {
    let limit = MAX_DUMMY_PARAMETERS;
    if parameters > limit {
        return Err(LoadError::DummySize { path: config.to_path_buf(), parameters, limit });
    }
    Ok(Weights::Dummy { seed })
}
