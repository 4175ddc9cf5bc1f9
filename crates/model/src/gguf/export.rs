//! A checkpoint as a GGUF file: keys, names and the order of rows as llama.cpp's converter writes them, for each
//! architecture that both know.
//!
//! What was written is read again: a model of which the file says something else is refused.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::entries::Entries;
use super::quantize::{Written, atomically, pad, string};
use super::spec::WINDOW;
use super::tensors::INTERLEAVED;
use super::{Gguf, read_spec};
use crate::arch;
use crate::error::{LoadError, TensorRule};
use crate::load::Files;
use crate::spec::{DecoderSpec, Rope, RopeScaling, Spec};
use crate::weights::names::{self, InGguf};
use crate::weights::{Checkpoint, Numbers, Packed, Weights};
use forebay_core::units::TokenId;
use forebay_kernels::packed::{Packing, Quantised, repack};
use forebay_text::{GgufVocab, Specials, to_gguf, unused_token};

const ALIGNMENT: usize = 32;

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

/// A tensor of the file, and what it is made of.
struct Out {
    name: String,
    /// As we have it: rows first.
    shape: Vec<usize>,
    /// One, or a matrix for each expert.
    parts: Vec<Packed>,
    form: Form,
    /// Heads whose halves are interleaved.
    heads: Option<usize>,
}

/// What a tensor's numbers become.
#[derive(Clone, Copy)]
enum Form {
    /// As they are.
    Kept(Packing),
    /// F32, with this added.
    Plain(f32),
    Packed(Quantised),
}

impl Form {
    fn packing(self) -> Packing {
        match self {
            Form::Kept(packing) => packing,
            Form::Plain(_) => Packing::F32,
            Form::Packed(to) => to.packing(),
        }
    }
}

impl Out {
    fn bytes(&self) -> usize {
        let width = self.shape[self.shape.len() - 1];
        let rows = self.shape.iter().product::<usize>() / width;
        rows * self.form.packing().row_bytes(width).unwrap_or(0)
    }
}

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

/// Every tensor of the checkpoint, by the name that the file has for it; experts together.
fn tensors(
    spec: &DecoderSpec,
    architecture: &str,
    weights: &Weights,
    config: &Path,
    kind: Quantised,
) -> Result<Vec<Out>, LoadError> {
    let mut all: Vec<Out> = Vec::new();
    for (ours, shape) in names::of_decoder(spec) {
        let part = match weights.tensor(&ours, &shape, config)? {
            Numbers::Packed(packed) => packed,
            Numbers::Plain(numbers) => Packed::plain(&numbers),
        };
        let InGguf { name, expert } = names::in_gguf(&ours, spec.norms);
        if let Some(stack) = expert.and_then(|_| all.iter_mut().find(|out| out.name == name)) {
            stack.parts.push(part);
            stack.shape[0] += 1;
            continue;
        }
        let is = |module: &str| name.contains(&format!(".{module}."));
        let heads = match INTERLEAVED.contains(&architecture) {
            true if is("attn_q") => Some(spec.heads),
            true if is("attn_k") => Some(spec.kv_heads),
            _ => None,
        };
        let form = form(&name, &shape, part.packing(), spec.norm_offset, kind);
        let shape = expert.map(|_| 1).into_iter().chain(shape).collect();
        all.push(Out { name, shape, parts: vec![part], form, heads });
    }
    Ok(all)
}

/// Norms, biases and routers are written in full, the embedding and the output in eight bits.
fn form(name: &str, shape: &[usize], from: Packing, norm_offset: f32, kind: Quantised) -> Form {
    if names::is_norm(name) {
        return Form::Plain(norm_offset);
    }
    if shape.len() < 2 || name.contains("ffn_gate_inp") {
        return Form::Plain(0.0);
    }
    let table = ["token_embd.weight", "output.weight"].contains(&name);
    let wanted = if table { Quantised::Q8_0 } else { kind };
    let width = shape[shape.len() - 1];
    let fits = |to: &Quantised| to.packing().row_bytes(width).is_some();
    [wanted, Quantised::Q8_0].into_iter().find(fits).map_or(Form::Kept(from), Form::Packed)
}

fn metadata(out: &mut Entries, architecture: &'static str, id: &str, spec: &DecoderSpec, kind: Quantised) {
    out.text("general.architecture", architecture);
    out.text("general.name", id);
    // llama.cpp's numbers for files that are mostly of this type.
    out.count("general.file_type", if kind == Quantised::Q8_0 { 7 } else { 15 });
    out.count("general.quantization_version", 2);
    out.prefix = Some(architecture);
    out.count("context_length", spec.max_position_embeddings as usize);
    out.count("embedding_length", spec.hidden);
    out.count("block_count", spec.layers.len());
    out.count("feed_forward_length", spec.intermediate);
    out.count("attention.head_count", spec.heads);
    out.count("attention.head_count_kv", spec.kv_heads);
    out.count("attention.key_length", spec.head_dim);
    out.count("attention.value_length", spec.head_dim);
    out.number("attention.layer_norm_rms_epsilon", spec.norm_eps);
    out.count("vocab_size", spec.vocab);
    if let Some(experts) = spec.experts {
        out.count("expert_count", experts.count);
        out.count("expert_used_count", experts.per_token);
        out.count("expert_feed_forward_length", experts.intermediate);
    }
    rope(out, spec);
    let window = spec.layers.iter().find_map(|layer| layer.window);
    match architecture {
        "gemma2" | "gemma3" => {
            if let Some(cap) = spec.attention_cap {
                out.number("attn_logit_softcapping", cap);
            }
            if let Some(cap) = spec.logit_cap {
                out.number("final_logit_softcapping", cap);
            }
            if let Some(window) = window {
                out.count("attention.sliding_window", window);
                if let Some(nth) = full_layers(spec, if architecture == "gemma2" { 2 } else { 6 }) {
                    out.count("attention.sliding_window_pattern", nth);
                }
            }
        }
        "granite" => {
            out.number("attention.scale", spec.attention_scale);
            out.number("embedding_scale", spec.scales.embedding);
            out.number("residual_scale", spec.scales.residual);
            out.number("logit_scale", 1.0 / spec.scales.logits);
        }
        _ => {}
    }
    out.prefix = None;
    if let Some(window) = window.filter(|_| architecture == "llama") {
        out.count(WINDOW, window);
    }
}

/// Every how many layers one sees everything, where that is not what is `usual`. A pattern that no number says is left to the
/// check.
fn full_layers(spec: &DecoderSpec, usual: usize) -> Option<usize> {
    let layers = || spec.layers.iter().enumerate();
    let fits = |nth: &usize| layers().all(|(index, layer)| layer.window.is_none() == (index + 1).is_multiple_of(*nth));
    std::iter::once(usual).chain(2..=spec.layers.len() + 1).find(fits).filter(|nth| *nth != usual)
}

fn rope(out: &mut Entries, spec: &DecoderSpec) {
    let rope = &spec.ropes[0];
    out.count("rope.dimension_count", rope.dims);
    out.number("rope.freq_base", rope.theta as f32);
    if let Some(local) = spec.ropes.get(1) {
        out.number("rope.freq_base_swa", local.theta as f32);
    }
    match &rope.scaling {
        RopeScaling::Linear { factor } => {
            out.text("rope.scaling.type", "linear");
            out.number("rope.scaling.factor", *factor as f32);
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention, .. } => {
            out.text("rope.scaling.type", "yarn");
            out.number("rope.scaling.factor", *factor as f32);
            out.count("rope.scaling.original_context_length", *original_context as usize);
            out.number("rope.scaling.yarn_beta_fast", *beta_fast as f32);
            out.number("rope.scaling.yarn_beta_slow", *beta_slow as f32);
            // What a file says is on top of what the scaling does by itself.
            out.number("rope.scaling.attn_factor", (attention / (0.1 * factor.ln() + 1.0)) as f32);
        }
        RopeScaling::LongRope { original_context, attention, .. } => {
            out.count("rope.scaling.original_context_length", *original_context as usize);
            out.number("rope.scaling.attn_factor", *attention as f32);
        }
        // The first has no key, which the check finds; the others are tensors.
        RopeScaling::Dynamic { .. } | RopeScaling::Llama3 { .. } | RopeScaling::Divisors(_) | RopeScaling::None => {}
    }
}

/// What Llama 3's scaling divides each pair's frequency by.
fn llama3_divisors(rope: &Rope) -> Option<Vec<f32>> {
    matches!(rope.scaling, RopeScaling::Llama3 { .. }).then(|| crate::rope::divisors(rope))
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

fn tokenizer(out: &mut Entries, vocab: Option<&GgufVocab>, files: &Files, width: usize) -> Result<(), LoadError> {
    let Some(vocab) = vocab else {
        out.text("tokenizer.ggml.model", "no_vocab");
        return Ok(());
    };
    if vocab.tokens.len() > width {
        let rule = format!("has {} tokens, the model {width}: a file has no room for the others", vocab.tokens.len());
        return Err(files.config.broken("vocab_size", &rule));
    }
    let rest = vocab.tokens.len()..width;
    let texts = vocab.tokens.iter().cloned().chain(rest.clone().map(|id| unused_token(id as u64).into_bytes()));
    out.text("tokenizer.ggml.model", &vocab.model);
    if let Some(pre) = &vocab.pre {
        out.text("tokenizer.ggml.pre", pre);
    }
    out.texts("tokenizer.ggml.tokens", &texts.collect::<Vec<_>>());
    const UNUSED: i32 = 5;
    let kinds = vocab.token_types.iter().copied().chain(rest.clone().map(|_| UNUSED));
    out.integers("tokenizer.ggml.token_type", &kinds.collect::<Vec<_>>());
    if vocab.model == "llama" {
        let scores = vocab.scores.iter().copied().chain(rest.map(|_| 0.0));
        out.numbers("tokenizer.ggml.scores", &scores.collect::<Vec<_>>());
    }
    if !vocab.merges.is_empty() {
        let merges: Vec<Vec<u8>> = vocab.merges.iter().map(|merge| merge.clone().into_bytes()).collect();
        out.texts("tokenizer.ggml.merges", &merges);
    }
    let others: Vec<TokenId> = files.ends(width)?.into_iter().filter(|&end| Some(end) != vocab.eos).take(2).collect();
    let ids = [("bos", vocab.bos), ("eos", vocab.eos), ("unknown", vocab.unknown)];
    let ends = ["eot", "eom"].into_iter().zip(others.iter().map(|&end| Some(end)));
    for (name, id) in ids.into_iter().chain(ends) {
        if let Some(id) = id {
            out.count(&format!("tokenizer.ggml.{name}_token_id"), id as usize);
        }
    }
    let flags = [
        ("add_bos_token", vocab.add_bos),
        ("add_eos_token", vocab.add_eos),
        ("add_space_prefix", vocab.add_space_prefix),
    ];
    for (name, flag) in flags {
        if let Some(flag) = flag {
            out.flag(&format!("tokenizer.ggml.{name}"), flag);
        }
    }
    if let Some(template) = &vocab.chat_template {
        out.text("tokenizer.chat_template", template);
    }
    Ok(())
}

fn write(to: &Path, entries: &Entries, extra: &[(&str, Vec<f32>)], tensors: &[Out]) -> io::Result<()> {
    let mut head = b"GGUF".to_vec();
    head.extend(3u32.to_le_bytes());
    head.extend(((extra.len() + tensors.len()) as u64).to_le_bytes());
    head.extend(entries.written());
    let mut offset = 0;
    let mut place = |name: &str, shape: &[usize], packing: Packing, bytes: usize| {
        string(&mut head, name);
        head.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|&size| head.extend((size as u64).to_le_bytes()));
        head.extend(super::types::id(packing).to_le_bytes());
        head.extend((offset as u64).to_le_bytes());
        offset += bytes.next_multiple_of(ALIGNMENT);
    };
    extra.iter().for_each(|(name, numbers)| place(name, &[numbers.len()], Packing::F32, numbers.len() * 4));
    tensors.iter().for_each(|out| place(&out.name, &out.shape, out.form.packing(), out.bytes()));
    let mut out = BufWriter::new(File::create(to)?);
    out.write_all(&head)?;
    pad(&mut out, head.len(), ALIGNMENT)?;
    for (_, numbers) in extra {
        out.write_all(&little_endian(numbers))?;
        pad(&mut out, numbers.len() * 4, ALIGNMENT)?;
    }
    for tensor in tensors {
        for part in &tensor.parts {
            out.write_all(&formed(tensor, part).map_err(io::Error::other)?)?;
            part.release(0..part.bytes().len());
        }
        pad(&mut out, tensor.bytes(), ALIGNMENT)?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// A part's bytes as the file has them.
fn formed(tensor: &Out, part: &Packed) -> Result<Vec<u8>, TensorRule> {
    let width = tensor.shape[tensor.shape.len() - 1];
    let mut bytes = match tensor.form {
        Form::Kept(_) => part.bytes().to_vec(),
        Form::Plain(offset) => {
            let numbers = Numbers::Packed(part.clone()).plain()?;
            little_endian(&numbers.into_iter().map(|x| x + offset).collect::<Vec<f32>>())
        }
        Form::Packed(to) => {
            let row = |packing: Packing| packing.row_bytes(width).unwrap_or(1);
            let mut out = vec![0; part.bytes().len() / row(part.packing()) * row(to.packing())];
            repack(part.packing(), part.bytes(), width, to, &mut out);
            out
        }
    };
    if let Some(heads) = tensor.heads {
        // Of a bias, a row is a number.
        let rows = if tensor.shape.len() == 1 { width } else { tensor.shape[tensor.shape.len() - 2] };
        bytes = interleaved(&bytes, heads, rows / heads);
    }
    Ok(bytes)
}

/// Of each head the rows of both halves in turn: first, middle, second, the one after the middle.
fn interleaved(bytes: &[u8], heads: usize, head_dim: usize) -> Vec<u8> {
    let row = bytes.len() / (heads * head_dim);
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact(row * head_dim) {
        let (first, second) = head.split_at(head_dim / 2 * row);
        for (a, b) in first.chunks_exact(row).zip(second.chunks_exact(row)) {
            out.extend_from_slice(a);
            out.extend_from_slice(b);
        }
    }
    out
}

fn little_endian(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Whether the file says what the checkpoint does.
fn check(written: &Path, spec: &DecoderSpec) -> io::Result<()> {
    let again = Gguf::open(written).and_then(|file| read_spec(&file)).map_err(io::Error::other)?;
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

fn differences(a: &DecoderSpec, b: &DecoderSpec) -> Vec<&'static str> {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1e-30);
    let same_rope = |(a, b): (&Rope, &Rope)| {
        let scaling = match (&a.scaling, &b.scaling) {
            (
                RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate, attention },
                RopeScaling::Yarn {
                    factor: f,
                    original_context: o,
                    beta_fast: fast,
                    beta_slow: slow,
                    truncate: t,
                    attention: at,
                },
            ) => {
                let pairs = [(factor, f), (original_context, o), (beta_fast, fast), (beta_slow, slow), (attention, at)];
                truncate == t && pairs.into_iter().all(|(a, b)| near(*a, *b))
            }
            (RopeScaling::Linear { factor }, RopeScaling::Linear { factor: other }) => near(*factor, *other),
            (
                RopeScaling::LongRope { short, long, original_context, attention },
                RopeScaling::LongRope { short: s, long: l, original_context: o, attention: at },
            ) => (short, long, original_context) == (s, l, o) && near(*attention, *at),
            (a, b) => a == b,
        };
        a.dims == b.dims && near(a.theta, b.theta) && scaling
    };
    let ropes = a.ropes.len() == b.ropes.len() && a.ropes.iter().zip(&b.ropes).all(same_rope);
    let scales = [
        (a.scales.embedding, b.scales.embedding),
        (a.scales.residual, b.scales.residual),
        (a.scales.logits, b.scales.logits),
        (a.attention_scale, b.attention_scale),
    ];
    let scales = scales.into_iter().all(|(a, b)| near(f64::from(a), f64::from(b)));
    // What differs so far is compared with more care than by equality.
    let rest = DecoderSpec {
        ropes: a.ropes.clone(),
        scales: a.scales,
        attention_scale: a.attention_scale,
        layers: a.layers.clone(),
        experts: a.experts,
        ..b.clone()
    };
    let parts = [
        (ropes, "rotary positions"),
        (scales, "factors"),
        (a.layers == b.layers, "layers"),
        (a.experts == b.experts, "experts"),
        (*a == rest, "sizes, norms, biases or activation"),
    ];
    parts.into_iter().filter(|(same, _)| !same).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_interleaved_head_by_head() {
        let rows = |order: [u8; 8]| order.iter().flat_map(|&row| [row, row + 100]).collect::<Vec<u8>>();
        assert_eq!(interleaved(&rows([0, 1, 2, 3, 4, 5, 6, 7]), 2, 4), rows([0, 2, 1, 3, 4, 6, 5, 7]));
    }
}
