//! A checkpoint as a GGUF file: keys, names and the order of rows as llama.cpp's converter writes them, for each
//! architecture that both know.
//!
//! What was written is read again: a model of which the file says something else is refused.

use std::io;
use std::path::Path;

use super::compare::differences;
use super::metadata::{metadata, tokenizer};
use super::output::{Written, atomically};
use super::tensors::{Form, Out, tensors, write};
use crate::arch::{self, gguf};
use crate::files::gguf::file::Gguf;
use crate::files::gguf::writer::Entries;
use crate::files::safetensors::Checkpoint;
use crate::load::folder::Files;
use crate::types::error::LoadError;
use crate::types::spec::Spec;
use crate::types::spec::decoder::DecoderSpec;
use crate::types::spec::rope::{Rope, RopeScaling};
use crate::weights::source::Weights;
use forebay_kernels::packed::Quantised;
use forebay_text::{GgufVocab, Specials, to_gguf};

/// Class name, `model_type`, and what llama.cpp calls it.
const ARCHITECTURES: [(&str, &str, &str); 12] = [
    ("LlamaForCausalLM", "llama", "llama"),
    ("MistralForCausalLM", "mistral", "llama"),
    ("MixtralForCausalLM", "mixtral", "llama"),
    ("Qwen2ForCausalLM", "qwen2", "qwen2"),
    ("Qwen3ForCausalLM", "qwen3", "qwen3"),
    ("Qwen3MoeForCausalLM", "qwen3_moe", "qwen3moe"),
    ("Olmo2ForCausalLM", "olmo2", "olmo2"),
    ("Gemma2ForCausalLM", "gemma2", "gemma2"),
    ("Gemma3ForCausalLM", "gemma3_text", "gemma3"),
    ("Phi3ForCausalLM", "phi3", "phi3"),
    ("GraniteForCausalLM", "granite", "granite"),
    ("SmolLM3ForCausalLM", "smollm3", "smollm3"),
];

/// Writes the model in `folder` to `to`, which must not exist.
pub(super) fn export(folder: &Path, to: &Path, kind: Quantised) -> Result<Written, LoadError> {
    let files = Files::folder(folder)?;
    let config = files.config.path().to_path_buf();
    let (spec, renamed) = arch::read_spec(&files.config)?;
    let Spec::Decoder(spec) = spec else {
        return Err(files
            .config
            .broken("architectures", "must be a model that generates: there is no file for others"));
    };
    let name = arch::name(&files.config)?.unwrap_or_default();
    let known = ARCHITECTURES.iter().find(|(class, model_type, _)| [*class, *model_type].contains(&name));
    let Some(&(.., architecture)) = known else {
        return Err(files.config.broken("architectures", "has no name in GGUF files"));
    };
    let weights = Weights::Checkpoint(Checkpoint::open(folder)?, renamed);
    let divisors = llama3_divisors(&spec.ropes[0]);
    let tensors = tensors(&spec, architecture, &weights, &config, kind)?;
    let vocab = vocabulary(&files, &spec)?;
    let mut entries = Entries::default();
    metadata(&mut entries, architecture, &files.id, &spec, kind);
    tokenizer(&mut entries, vocab.as_ref(), &files, spec.vocab)?;
    let extra = extra_tensors(&spec.ropes[0], divisors);
    atomically(to, |partial| {
        write(partial, &entries, &extra, &tensors)?;
        check(partial, &spec)
    })?;
    let quantised = tensors.iter().filter(|tensor| matches!(tensor.form, Form::Packed(_))).count();
    let before = |tensor: &Out| tensor.parts.iter().map(|part| part.bytes().len() as u64).sum::<u64>();
    Ok(Written {
        tensors: tensors.len() + extra.len(),
        quantised,
        bytes_before: tensors.iter().map(before).sum(),
        bytes_after: tensors.iter().map(|tensor| tensor.bytes() as u64).sum(),
        tokenizer: vocab.is_some(),
    })
}

/// What Llama 3's scaling divides each pair's frequency by.
fn llama3_divisors(rope: &Rope) -> Option<Vec<f32>> {
    matches!(rope.scaling, RopeScaling::Llama3 { .. }).then(|| rope.divisors())
}

/// Tensors that hold no weights.
fn extra_tensors(rope: &Rope, divisors: Option<Vec<f32>>) -> Vec<(&'static str, Vec<f32>)> {
    let mut extra: Vec<_> = divisors.map(|divisors| ("rope_freqs.weight", divisors)).into_iter().collect();
    if let RopeScaling::LongRope { short, long, .. } = &rope.scaling {
        extra.push(("rope_factors_long.weight", long.clone()));
        extra.push(("rope_factors_short.weight", short.clone()));
    }
    extra
}

/// `None` where a file has no form for such a tokenizer.
fn vocabulary(files: &Files, spec: &DecoderSpec) -> Result<Option<GgufVocab>, LoadError> {
    let chat = files.chat()?;
    let ends = files.ends(spec.vocab)?;
    let id = |text: &Option<String>| text.as_deref().and_then(|text| files.token_id(text));
    let specials = Specials { bos: id(&chat.bos_token), eos: id(&chat.eos_token).or(ends.first().copied()) };
    to_gguf(files.tokenizer_json(), specials, chat.template.as_deref())
        .map_err(|error| files.config.broken("tokenizer.json", &format!("cannot be written: {error}")))
}

/// Whether the file says what the checkpoint does.
fn check(written: &Path, spec: &DecoderSpec) -> io::Result<()> {
    let again = Gguf::open(written).and_then(|file| gguf::decoder::read_spec(&file)).map_err(io::Error::other)?;
    let mut expected = DecoderSpec { norm_offset: 0.0, ..spec.clone() };
    if let Some(divisors) = llama3_divisors(&spec.ropes[0]) {
        expected.ropes[0].scaling = RopeScaling::Divisors(divisors);
    }
    let differs = differences(&expected, &again);
    if differs.is_empty() {
        return Ok(());
    }
    let message = format!("a GGUF file cannot say what this model's {} are", differs.join(", "));
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}
