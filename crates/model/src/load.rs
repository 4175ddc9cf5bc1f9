//! From a source (the built-in model, a Hugging Face folder or a GGUF file) to a [`LoadedModel`].

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::backend::{Backend, DeviceError, DeviceMemory};
use super::candle::{Candle, device};
use super::cpu::Cpu;
use super::error::LoadError;
use super::gguf::{self, Gguf, GgufWeights};
use super::json::{self, Fields};
use super::options::{DEFAULT_KV_DTYPE, Dtype, LoadFormat, LoadOptions};
use super::sentence::Sentence;
use super::spec::Spec;
use super::weights::decoder::Loader;
use super::weights::{Checkpoint, Weights};
use super::{DecoderParts, Model, Net, Parts, Placed, arch, lora};
use forebay_core::request::{Defaults, Pooling};
use forebay_core::units::TokenId;
use forebay_kernels::attention::KvDtype;
use forebay_kernels::isa::Isa;
use forebay_kernels::packed::Quantised;
use forebay_text::GgufVocab;

const GGUF: &str = "gguf";
const MAX_CONFIG: u64 = 16 << 20;
const MAX_TOKENIZER: u64 = 512 << 20;
/// A checkpoint's size is bounded by its file; what `config.json` alone asks for is not. A tebibyte of weights.
const MAX_DUMMY_PARAMETERS: u64 = 1 << 38;

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
    pub(super) fn resolved(&self) -> Result<Source, LoadError> {
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

/// What `tokenizer_config.json` and `chat_template.jinja` say about chats; `None` where they say nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatFiles {
    pub template: Option<String>,
    pub bos_token: Option<String>,
    pub eos_token: Option<String>,
}

/// Loads a model without a cache; [`Model::allocate_kv`] makes that. Everything is checked before it is used.
pub fn load(source: &Source, options: &LoadOptions) -> Result<LoadedModel, LoadError> {
    match source.resolved()? {
        Source::Builtin => load_files(Files::builtin()?, builtin_checkpoint, options),
        Source::Folder(folder) => load_files(Files::folder(&folder)?, || Checkpoint::open(&folder), options),
        Source::Gguf(path) => load_gguf(&path, options),
    }
}

fn load_gguf(path: &Path, options: &LoadOptions) -> Result<LoadedModel, LoadError> {
    let file = Gguf::open(path)?;
    let spec = gguf::read_spec(&file)?;
    let vocabulary = gguf::read_vocab(&file, spec.vocab)?;
    let pooling = gguf::read_pooling(&file)?;
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

/// The keys that vLLM takes from `generation_config.json` too, in the ranges that requests have.
fn drawing(fields: &Fields) -> Result<Defaults, LoadError> {
    Ok(Defaults {
        temperature: fields.number("temperature", 0.0..=2.0)?,
        top_p: fields.number("top_p", 0.0..=1.0)?,
        // Some files write -1 for "off".
        top_k: fields.number("top_k", -1.0..=f64::from(u32::MAX))?.map(|k| k as i64),
        min_p: fields.number("min_p", 0.0..=1.0)?,
        typical_p: fields.number("typical_p", 0.0..=1.0)?,
        repetition_penalty: fields.number("repetition_penalty", 0.01..=10.0)?,
    })
}

/// The small files, read and (where JSON) parsed.
pub(super) struct Files {
    pub id: String,
    pub config: Fields,
    generation_config: Option<Fields>,
    tokenizer: Vec<u8>,
    tokenizer_config: Option<Fields>,
    chat_template: Option<String>,
    sentence: Sentence,
}

impl Files {
    #[cfg(feature = "builtin-model")]
    pub(super) fn builtin() -> Result<Files, LoadError> {
        use super::builtin;
        let parse = |file, bytes| Fields::parse(&builtin_path(file), bytes);
        Ok(Files {
            id: builtin::ID.to_string(),
            config: parse("config.json", builtin::CONFIG)?,
            generation_config: Some(parse("generation_config.json", builtin::GENERATION_CONFIG)?),
            tokenizer: builtin::TOKENIZER.to_vec(),
            tokenizer_config: Some(parse("tokenizer_config.json", builtin::TOKENIZER_CONFIG)?),
            chat_template: None,
            sentence: Sentence::default(),
        })
    }

    #[cfg(not(feature = "builtin-model"))]
    pub(super) fn builtin() -> Result<Files, LoadError> {
        Err(no_builtin())
    }

    pub(super) fn tokenizer_json(&self) -> &[u8] {
        &self.tokenizer
    }

    /// The id of the token with this text, where the tokenizer says it.
    pub(super) fn token_id(&self, text: &str) -> Option<TokenId> {
        let file: Value = serde_json::from_slice(&self.tokenizer).ok()?;
        let added = file.get("added_tokens")?.as_array()?.iter();
        let mut ids = added.filter(|token| token["content"] == text).map(|token| &token["id"]);
        let id = ids.next().or_else(|| file.get("model")?.get("vocab")?.get(text))?;
        id.as_u64().and_then(|id| TokenId::try_from(id).ok())
    }

    /// Tokens that end a completion, ascending.
    pub(super) fn ends(&self, vocab: usize) -> Result<Vec<TokenId>, LoadError> {
        let mut ends = BTreeSet::new();
        for fields in [Some(&self.config), self.generation_config.as_ref()].into_iter().flatten() {
            ends.extend(eos_tokens(fields, vocab)?);
        }
        Ok(ends.into_iter().collect())
    }

    pub(super) fn chat(&self) -> Result<ChatFiles, LoadError> {
        chat_files(self)
    }

    pub(super) fn folder(folder: &Path) -> Result<Files, LoadError> {
        let read = |name: &str, limit| json::read_file(&folder.join(name), limit);
        let parse = |name: &str| Fields::parse(&folder.join(name), &read(name, MAX_CONFIG)?);
        let present = |name: &str| folder.join(name).exists();
        let parse_present = |name: &str| present(name).then(|| parse(name)).transpose();
        let template = "chat_template.jinja";
        let chat_template = present(template).then(|| read(template, MAX_CONFIG)).transpose()?;
        Ok(Files {
            config: parse("config.json")?,
            id: folder_name(folder),
            generation_config: parse_present("generation_config.json")?,
            tokenizer: read("tokenizer.json", MAX_TOKENIZER)?,
            tokenizer_config: parse_present("tokenizer_config.json")?,
            chat_template: chat_template.map(|bytes| utf8(&folder.join(template), bytes)).transpose()?,
            sentence: Sentence::read(folder)?,
        })
    }
}

#[cfg(feature = "builtin-model")]
fn builtin_path(file: &str) -> PathBuf {
    Path::new("(built-in)").join(super::builtin::ID).join(file)
}

#[cfg(not(feature = "builtin-model"))]
fn no_builtin() -> LoadError {
    LoadError::Feature { what: "the built-in model", feature: "builtin-model" }
}

/// A file's name without its ending.
pub(super) fn file_id(path: &Path) -> String {
    path.file_stem().map_or_else(|| "model".to_string(), |stem| stem.to_string_lossy().into_owned())
}

/// The last component of the path; `.` and the like are resolved first.
fn folder_name(folder: &Path) -> String {
    let resolved = folder.file_name().is_none().then(|| folder.canonicalize().ok()).flatten();
    let name = resolved.as_deref().unwrap_or(folder).file_name();
    name.map_or_else(|| "model".to_string(), |name| name.to_string_lossy().into_owned())
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String, LoadError> {
    String::from_utf8(bytes).map_err(|error| LoadError::Key {
        path: path.to_path_buf(),
        key: format!("byte {}", error.utf8_error().valid_up_to()),
        rule: "must be UTF-8".to_string(),
    })
}

#[cfg(feature = "builtin-model")]
pub(super) fn builtin_checkpoint() -> Result<Checkpoint, LoadError> {
    let bytes = super::weights::Bytes::Static(super::builtin::WEIGHTS);
    Checkpoint::single(builtin_path("model.safetensors"), bytes)
}

#[cfg(not(feature = "builtin-model"))]
pub(super) fn builtin_checkpoint() -> Result<Checkpoint, LoadError> {
    Err(no_builtin())
}

fn dummy(parameters: u64, config: &Path, seed: u64) -> Result<Weights, LoadError> {
    let limit = MAX_DUMMY_PARAMETERS;
    if parameters > limit {
        return Err(LoadError::DummySize { path: config.to_path_buf(), parameters, limit });
    }
    Ok(Weights::Dummy { seed })
}

/// `eos_token_id`: a token, or a list of them.
fn eos_tokens(fields: &Fields, vocab: usize) -> Result<Vec<TokenId>, LoadError> {
    let list = match fields.get("eos_token_id") {
        None => &[][..],
        Some(Value::Array(list)) => list,
        Some(one) => std::slice::from_ref(one),
    };
    let token = |value: &Value| value.as_u64().filter(|&token| token < vocab as u64).map(|token| token as TokenId);
    let tokens = list.iter().map(token).collect::<Option<Vec<_>>>();
    tokens.ok_or_else(|| fields.broken("eos_token_id", &format!("must be token ids below vocab_size, {vocab}")))
}

/// `chat_template.jinja` goes before the template inside `tokenizer_config.json`.
fn chat_files(files: &Files) -> Result<ChatFiles, LoadError> {
    let Some(config) = &files.tokenizer_config else {
        return Ok(ChatFiles { template: files.chat_template.clone(), ..ChatFiles::default() });
    };
    let template = match &files.chat_template {
        Some(template) => Some(template.clone()),
        None => embedded_template(config)?,
    };
    let (bos_token, eos_token) = (special_token(config, "bos_token")?, special_token(config, "eos_token")?);
    Ok(ChatFiles { template, bos_token, eos_token })
}

/// A template, or a list of named ones, of which `default` is taken.
fn embedded_template(config: &Fields) -> Result<Option<String>, LoadError> {
    const KEY: &str = "chat_template";
    let Some(Value::Array(list)) = config.get(KEY) else {
        return Ok(config.text(KEY)?.map(str::to_string));
    };
    let named = |value: &&Value| value.get("name").and_then(Value::as_str) == Some("default");
    let template = list.iter().find(named).and_then(|value| value.get("template")).and_then(Value::as_str);
    template.map(|text| Some(text.to_string())).ok_or_else(|| config.broken(KEY, "must hold one named default"))
}

/// A string, or an object that describes the token and holds it under `content`.
fn special_token(config: &Fields, key: &str) -> Result<Option<String>, LoadError> {
    if !matches!(config.get(key), Some(Value::Object(_))) {
        return Ok(config.text(key)?.map(str::to_string));
    }
    match config.object(key)? {
        Some(token) => Ok(token.text("content")?.map(str::to_string)),
        None => Ok(None),
    }
}

fn place(spec: Spec, weights: &Weights, config: &Path, options: &LoadOptions) -> Result<Model, LoadError> {
    let device = device::open(options.device)?;
    let dtype = compute_dtype(weights, device.as_ref(), options)?;
    let kv_dtype = options.kv_dtype.unwrap_or(match &device {
        Some(_) => dtype.cached(),
        // An encoder's keys and values are gone after their step: nothing is saved by rounding them.
        None if spec.only_embeds() => KvDtype::F32,
        None => DEFAULT_KV_DTYPE,
    });
    let (heads, kv_heads, head_dim) = spec.heads();
    if device.is_some() && kv_dtype == KvDtype::Q8_0 {
        return Err(LoadError::KvDtypeDevice { dtype: kv_dtype.name() });
    }
    if !kv_dtype.fits(head_dim) {
        return Err(LoadError::KvDtypeHeads { dtype: kv_dtype.name(), head_dim });
    }
    let unpacked = if device.is_some() { weights.unpacked() } else { Vec::new() };
    let on = match device {
        None => {
            // Kernels take the best there is when the variable is wrong; its author should hear of it.
            Isa::check()?;
            Placed::Cpu(parts(Cpu::default(), &spec, weights, config, options)?)
        }
        Some(device) => {
            device::check_heads(&device, head_dim)?;
            let backend = Candle::new(device, dtype, heads / kv_heads).recording(options.cuda_graphs)?;
            let room = Room { memory: backend.memory()?, needed: weights.bytes(&spec, dtype, options.quantise), dtype };
            room.check(&spec)?;
            parts(backend, &spec, weights, config, options)
                .map(Placed::Candle)
                .map_err(|error| room.explained(error, &spec))?
        }
    };
    Ok(Model { spec, on, kv_dtype, unpacked })
}

/// A device's memory before a model is loaded, and what the model needs of it.
struct Room {
    memory: Option<DeviceMemory>,
    /// Bytes of the weights, about.
    needed: u64,
    dtype: Dtype,
}

impl Room {
    fn check(&self, spec: &Spec) -> Result<(), LoadError> {
        match self.memory {
            Some(memory) if self.needed > memory.free as u64 => Err(self.refusal(memory, spec)),
            _ => Ok(()),
        }
    }

    /// What ran out of memory on the way.
    fn explained(&self, error: LoadError, spec: &Spec) -> LoadError {
        match (error, self.memory) {
            (LoadError::Device(DeviceError::OutOfMemory(_)), Some(memory)) => self.refusal(memory, spec),
            (error, _) => error,
        }
    }

    fn refusal(&self, memory: DeviceMemory, spec: &Spec) -> LoadError {
        let fits = [Quantised::Q8_0, Quantised::Q4K].into_iter().map(|to| (to, quantised_bytes(spec, to)));
        let fits: Vec<String> = fits
            .filter(|(_, bytes)| *bytes < self.needed && *bytes <= memory.free as u64)
            .map(|(to, bytes)| {
                format!("model.quantize: {} takes about {} MiB", to.packing().name().to_ascii_lowercase(), bytes >> 20)
            })
            .collect();
        let advice = match fits.is_empty() {
            false => format!("what fits: {}, and so does a .gguf file of such weights", fits.join(", ")),
            true => "neither does model.quantize: q4_k; take a smaller model, or --device cpu".to_owned(),
        };
        LoadError::DeviceMemory { weights: self.needed, dtype: self.dtype.name(), memory, advice }
    }
}

/// Bytes of a model's weights in blocks of `to`.
pub(super) fn quantised_bytes(spec: &Spec, to: Quantised) -> u64 {
    let (numbers, bytes) = to.packing().block();
    spec.parameters() / numbers as u64 * bytes as u64
}

/// What `model.dtype` comes to.
fn compute_dtype(
    weights: &Weights,
    device: Option<&candle_core::Device>,
    options: &LoadOptions,
) -> Result<Dtype, LoadError> {
    let own = match device {
        None => match options.dtype {
            None | Some(Dtype::F32) => return Ok(Dtype::F32),
            Some(dtype) => return Err(LoadError::DtypeDevice { dtype: dtype.name() }),
        },
        Some(device) if device.is_cpu() => Dtype::F32,
        Some(_) => weights.dtype(),
    };
    Ok(options.dtype.unwrap_or(own))
}

fn parts<B: Backend>(
    backend: B,
    spec: &Spec,
    weights: &Weights,
    config: &Path,
    options: &LoadOptions,
) -> Result<Parts<B>, LoadError> {
    let quantise = options.quantise;
    let net = match spec {
        Spec::Decoder(spec) => {
            let context = options.context.unwrap_or(u32::MAX).min(spec.max_position_embeddings);
            let weights = Loader { backend: &backend, spec, weights, config, quantise }.load()?;
            let adapter = |path: &PathBuf| lora::load(&backend, spec, path);
            let adapters = options.adapters.iter().map(adapter).collect::<Result<_, _>>()?;
            Net::decoder(DecoderParts::new(spec.clone(), weights, adapters, context))
        }
        Spec::Encoder(spec) => {
            if let Some(path) = options.adapters.first() {
                return Err(LoadError::NoAdapters { path: path.clone() });
            }
            let weights = Loader { backend: &backend, spec, weights, config, quantise }.load()?;
            Net::encoder(spec.clone(), weights)
        }
    };
    Ok(Parts::new(backend, net))
}
