//! Keys and values as llama.cpp's converter writes them: the spec, and the tokenizer.

use crate::arch::gguf::decoder::WINDOW;
use crate::files::gguf::writer::Entries;
use crate::load::folder::Files;
use crate::types::error::LoadError;
use crate::types::spec::decoder::DecoderSpec;
use crate::types::spec::rope::RopeScaling;
use forebay_core::units::TokenId;
use forebay_kernels::packed::Quantised;
use forebay_text::{GgufVocab, unused_token};

/// What the model is, under the names that its `architecture` has in llama.cpp.
pub(super) fn metadata(out: &mut Entries, architecture: &'static str, id: &str, spec: &DecoderSpec, kind: Quantised) {
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

/// What texts are cut by. The tokens that the tokenizer lacks, up to the `width` of the logits, are written as unused.
pub(super) fn tokenizer(
    out: &mut Entries,
    vocab: Option<&GgufVocab>,
    files: &Files,
    width: usize,
) -> Result<(), LoadError> {
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
