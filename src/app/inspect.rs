//! `forebay model inspect`: a model's files in a small table, and whether this machine can serve it.

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

use super::failure::{Failure, input};
use super::kv_plan::{self, KvModel};
use super::memory;
use super::source;
use crate::config::{Config, InspectFormat};
use forebay_model::{DEFAULT_KV_DTYPE, Format, Inspection};

/// Prints to standard output. Whether the model fits is asked for a server of this configuration.
pub fn inspect(path: PathBuf, format: InspectFormat, config: &Config) -> Result<(), Failure> {
    let inspection =
        forebay_model::inspect(&source::resolve(&path.to_string_lossy()).map_err(input)?).map_err(input)?;
    let fit = memory::available_bytes().map(|available| Fit::new(&inspection, available, config));
    let text = match format {
        InspectFormat::Table => table(&inspection, fit.as_ref()),
        InspectFormat::Json => format!("{:#}\n", object(&inspection, fit.as_ref())),
    };
    io::stdout().write_all(text.as_bytes()).context("standard output")?;
    Ok(())
}

/// The model of a configuration in a line, and whether it fits what is free; `None` where nobody can say, or only a part of its
/// context does.
pub fn verdict(
    source: &forebay_model::Source,
    config: &Config,
) -> Result<(String, Option<bool>), forebay_model::LoadError> {
    let inspection = forebay_model::inspect(source)?;
    let fit = memory::available_bytes().map(|available| Fit::new(&inspection, available, config));
    let fits = match fit.as_ref().map(|fit| fit.verdict) {
        Some(Verdict::Yes) => Some(true),
        Some(Verdict::No | Verdict::NoWeights) => Some(false),
        Some(Verdict::ShorterContext) | None => None,
    };
    let said = fit.map_or_else(|| "unknown whether it fits".to_owned(), |fit| fit.to_string());
    Ok((format!("{} ({}): {said}", inspection.id, inspection.architecture), fits))
}

/// A model beside the memory that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    available: usize,
    weights: u64,
    /// Tokens of the KV caches that a server would take once the weights are there.
    kv_tokens: usize,
    verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Yes,
    /// The KV cache holds less than the whole context.
    ShorterContext,
    No,
    /// There is nothing to fit: a vocabulary, or metadata alone.
    NoWeights,
}

impl Fit {
    fn new(inspection: &Inspection, available: usize, config: &Config) -> Fit {
        let spec = &inspection.spec;
        let weights = inspection.weight_bytes();
        let left = (available as u64).saturating_sub(weights) as usize;
        let model = KvModel {
            spec,
            context: spec.max_position_embeddings(),
            bytes_per_token: spec.kv_bytes_per_token(config.model.options.kv_dtype.unwrap_or(DEFAULT_KV_DTYPE)),
        };
        let budget = config.kv_cache.memory_bytes.unwrap_or_else(|| memory::auto_share(left));
        let plan = kv_plan::plan(config, &model, budget).ok().filter(|plan| plan.bytes() <= left);
        let verdict = match plan {
            _ if weights == 0 => Verdict::NoWeights,
            None => Verdict::No,
            Some(plan) if plan.max_model_len() < plan.wanted => Verdict::ShorterContext,
            Some(_) => Verdict::Yes,
        };
        Fit { available, weights, kv_tokens: plan.map_or(0, |plan| plan.tokens()), verdict }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let (weights, available) = (Bytes(self.weights), Bytes(self.available as u64));
        match self.verdict {
            Verdict::NoWeights => write!(f, "there is nothing to serve: the file holds no weights"),
            Verdict::No => {
                write!(f, "no: beside weights of {weights} the KV cache has no room in {available} of free memory")
            }
            Verdict::ShorterContext => {
                write!(f, "partly: weights of {weights} in {available} leave room for {} tokens", self.kv_tokens)
            }
            Verdict::Yes => {
                write!(f, "yes: weights of {weights} in {available}, and a KV cache of {} tokens", self.kv_tokens)
            }
        }
    }
}

fn table(inspection: &Inspection, fit: Option<&Fit>) -> String {
    let spec = &inspection.spec;
    let (heads, kv_heads, head_dim) = spec.heads();
    let types = inspection.types.iter().map(|share| format!("{} ({} tensors)", share.name, share.tensors));
    let rows = [
        ("model", inspection.id.clone()),
        ("architecture", inspection.architecture.clone()),
        ("format", format!("{}, {}", format_name(inspection.format), Bytes(inspection.file_bytes()))),
        ("parameters", Count(spec.parameters()).to_string()),
        ("quantisation", types.collect::<Vec<_>>().join(", ")),
        ("layers", format!("{} of width {}", spec.layers(), spec.hidden())),
        ("heads", format!("{heads} over {kv_heads}, {head_dim} wide")),
        ("vocabulary", spec.vocab().to_string()),
        ("context", format!("{} tokens", spec.max_position_embeddings())),
        ("KV per token", Bytes(spec.kv_bytes_per_token(DEFAULT_KV_DTYPE) as u64).to_string()),
        ("will it fit", fit.map_or("unknown: this system does not say what is free".into(), Fit::to_string)),
    ];
    rows.map(|(name, value)| format!("{name:<13} {value}\n")).concat()
}

fn object(inspection: &Inspection, fit: Option<&Fit>) -> Value {
    let spec = &inspection.spec;
    let (heads, kv_heads, head_dim) = spec.heads();
    let types = inspection.types.iter();
    json!({
        "id": inspection.id,
        "architecture": inspection.architecture,
        "format": format_name(inspection.format),
        "file_bytes": inspection.file_bytes(),
        "parameters": spec.parameters(),
        "quantisation": types
            .map(|share| json!({"type": share.name, "tensors": share.tensors, "bytes": share.bytes}))
            .collect::<Vec<_>>(),
        "layers": spec.layers(),
        "hidden_size": spec.hidden(),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": spec.vocab(),
        "context": spec.max_position_embeddings(),
        "kv_bytes_per_token": spec.kv_bytes_per_token(DEFAULT_KV_DTYPE),
        "fit": fit.map(|fit| json!({
            "verdict": match fit.verdict {
                Verdict::Yes => "yes",
                Verdict::ShorterContext => "partly",
                Verdict::No => "no",
                Verdict::NoWeights => "no_weights",
            },
            "weight_bytes": fit.weights,
            "available_bytes": fit.available,
            "kv_tokens": fit.kv_tokens,
        })),
    })
}

fn format_name(format: Format) -> &'static str {
    match format {
        Format::Safetensors => "safetensors",
        Format::Gguf => "GGUF",
    }
}

/// In the largest binary unit that leaves a whole part.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            ..1024 => write!(f, "{} B", self.0),
            1024..0x10_0000 => write!(f, "{:.1} KiB", self.0 as f64 / 1024.0),
            0x10_0000..0x4000_0000 => write!(f, "{:.1} MiB", self.0 as f64 / f64::from(1 << 20)),
            _ => write!(f, "{:.2} GiB", self.0 as f64 / f64::from(1 << 30)),
        }
    }
}

/// Parameters as people say them: 494 M, 7.2 B.
struct Count(u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.0 {
            ..1_000_000 => write!(f, "{}", self.0),
            1_000_000..1_000_000_000 => write!(f, "{:.1} M", self.0 as f64 / 1e6),
            _ => write!(f, "{:.2} B", self.0 as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_model::TypeShare;

    fn storyteller() -> Inspection {
        forebay_model::inspect(&forebay_model::Source::at("models/storyteller".into())).unwrap()
    }

    #[test]
    fn the_table_says_what_the_files_say() {
        let mut inspection = storyteller();
        let fit = Fit::new(&inspection, 8 << 30, &Config::default());
        let shown = table(&inspection, Some(&fit));
        for part in ["storyteller", "LlamaForCausalLM", "safetensors", "BF16", "will it fit   yes: weights of"] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        inspection.format = Format::Gguf;
        inspection.types = vec![TypeShare { name: "Q8_0".into(), tensors: 7, bytes: 1 << 20 }];
        assert_eq!(inspection.weight_bytes(), 1 << 20, "mapped, not widened");
        let object = object(&inspection, None);
        assert_eq!((&object["format"], &object["fit"]), (&json!("GGUF"), &Value::Null));
        assert_eq!(object["quantisation"][0], json!({"type": "Q8_0", "tensors": 7, "bytes": 1 << 20}));
    }

    #[test]
    fn what_is_free_decides() {
        let inspection = storyteller();
        let context = inspection.spec.max_position_embeddings();
        let (weights, token) =
            (inspection.weight_bytes() as usize, inspection.spec.kv_bytes_per_token(DEFAULT_KV_DTYPE));
        let config = Config::default();
        let block = config.kv_cache.block_size * token;
        let fit = |available| Fit::new(&inspection, available, &config);
        assert_eq!(fit(weights).verdict, Verdict::No);
        assert_eq!(fit(weights + 3 * block).verdict, Verdict::ShorterContext, "a block, of 40 % of what is left");
        let bare = Inspection { types: Vec::new(), format: Format::Gguf, ..storyteller() };
        assert_eq!(Fit::new(&bare, 8 << 30, &config).verdict, Verdict::NoWeights);
        assert_eq!(fit(weights + 3 * context as usize * token).verdict, Verdict::Yes);
        let seats = config.scheduler.max_num_seqs * context as usize;
        assert_eq!(fit(8 << 30).kv_tokens, seats, "no more than all seats can use");
        let asked = |bytes, available| {
            let mut config = Config::default();
            config.kv_cache.memory_bytes = Some(bytes);
            Fit::new(&inspection, available, &config).verdict
        };
        let whole = seats * token;
        assert_eq!(asked(whole, weights + whole), Verdict::Yes);
        assert_eq!(asked(whole, weights + whole - 1), Verdict::No, "more than there is");
        assert_eq!(asked(2 * block, weights + whole), Verdict::ShorterContext);
        assert_eq!(asked(block - 1, weights + whole), Verdict::No, "not one block");
    }

    #[test]
    fn sizes_in_units_that_people_use() {
        assert_eq!(
            [0, 1023, 1536, 3 << 20, 5 << 30].map(|n| Bytes(n).to_string()),
            ["0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.00 GiB"]
        );
        assert_eq!([512, 494_000_000, 7_240_000_000].map(|n| Count(n).to_string()), ["512", "494.0 M", "7.24 B"]);
    }
}
