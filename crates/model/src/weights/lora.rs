//! LoRA adapters in PEFT's layout onto their device: a folder with `adapter_config.json` and `adapter_model.safetensors`.

use std::path::Path;

use crate::files::json::{self, Fields};
use crate::files::map::Bytes;
use crate::files::numbers::Numbers;
use crate::files::safetensors::Checkpoint;
use crate::pass::backend::Backend;
use crate::pass::lora::{Adapter, Delta, PLACES, Place};
use crate::types::error::{LoadError, TensorRule};
use crate::types::spec::decoder::DecoderSpec;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const MAX_CONFIG: u64 = 16 << 20;
/// What PEFT puts before a model's own names.
const PREFIX: &str = "base_model.model.";
const ALPHA: std::ops::RangeInclusive<f64> = 1e-9..=1e9;

/// A module as checkpoints name it, and the rows of its matrix that belong to each place.
struct Module {
    name: &'static str,
    inputs: usize,
    places: Vec<(Place, usize)>,
}

/// Reads the folder `path`: `adapter_config.json` and `adapter_model.safetensors`. Every tensor in it is applied, or it is an
/// error.
pub(crate) fn load<B: Backend>(backend: &B, spec: &DecoderSpec, path: &Path) -> Result<Adapter<B>, LoadError> {
    let config = path.join(CONFIG);
    let config = Fields::parse(&config, &json::read_file(&config, MAX_CONFIG)?)?;
    let scale = Scale::read(&config)?;
    let file = path.join(WEIGHTS);
    let weights = Checkpoint::single(file.clone(), Bytes::map(&file)?)?;
    let loader = Loader { backend, weights: &weights, scale, file: &file };
    let mut applied = 0;
    let mut layers = Vec::with_capacity(spec.layers.len());
    for (index, layer) in spec.layers.iter().enumerate() {
        let mut deltas: [Option<Delta<B>>; PLACES] = Default::default();
        for module in modules(spec, layer.routed) {
            applied += loader.module(&format!("{PREFIX}model.layers.{index}.{}", module.name), &module, &mut deltas)?;
        }
        layers.push(deltas);
    }
    if applied == 0 || applied < weights.names().count() {
        let known = |name: &str| {
            let rest = name.strip_prefix(PREFIX)?.strip_prefix("model.layers.")?;
            let (index, rest) = rest.split_once('.')?;
            let layer = spec.layers.get(index.parse::<usize>().ok()?)?;
            let module = rest.strip_suffix(".lora_A.weight").or_else(|| rest.strip_suffix(".lora_B.weight"))?;
            modules(spec, layer.routed).iter().any(|known| known.name == module).then_some(())
        };
        let mut unknown: Vec<&str> = weights.names().filter(|name| known(name).is_none()).collect();
        unknown.sort_unstable();
        let tensor = unknown.first().copied().unwrap_or(WEIGHTS);
        return Err(loader.fault(tensor, TensorRule::NotAdapted));
    }
    Ok(Adapter { layers })
}

fn modules(spec: &DecoderSpec, routed: bool) -> Vec<Module> {
    let (q, kv, hidden, width) = (spec.q_width(), spec.kv_width(), spec.hidden, spec.intermediate);
    let one = |name, inputs, place, outputs| Module { name, inputs, places: vec![(place, outputs)] };
    let mut modules = vec![one("self_attn.o_proj", q, Place::O, hidden)];
    let qkv = vec![(Place::Q, q), (Place::K, kv), (Place::V, kv)];
    let gate_up = vec![(Place::Gate, width), (Place::Up, width)];
    if spec.fused {
        modules.push(Module { name: "self_attn.qkv_proj", inputs: hidden, places: qkv });
    } else {
        let names = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];
        modules.extend(names.into_iter().zip(qkv).map(|(name, (place, outputs))| one(name, hidden, place, outputs)));
    }
    if routed {
        return modules;
    }
    modules.push(one("mlp.down_proj", width, Place::Down, hidden));
    if spec.fused {
        modules.push(Module { name: "mlp.gate_up_proj", inputs: hidden, places: gate_up });
    } else {
        let names = ["mlp.gate_proj", "mlp.up_proj"];
        modules
            .extend(names.into_iter().zip(gate_up).map(|(name, (place, outputs))| one(name, hidden, place, outputs)));
    }
    modules
}

/// What `B(A x)` is multiplied by, for a rank.
#[derive(Clone, Copy)]
struct Scale {
    alpha: f64,
    /// Divided by the rank's square root instead of the rank (rsLoRA).
    root: bool,
}

impl Scale {
    /// Refuses what would mean something else than `scale · B(A x)`.
    fn read(config: &Fields) -> Result<Scale, LoadError> {
        if config.text("peft_type")?.is_some_and(|kind| kind != "LORA") {
            return Err(config.broken("peft_type", "must be LORA"));
        }
        for (key, what) in [
            ("use_dora", "DoRA is not supported"),
            ("fan_in_fan_out", "transposed weights are not supported"),
            ("lora_bias", "biases of adapters are not supported"),
        ] {
            if config.flag(key)?.unwrap_or(false) {
                return Err(config.broken(key, &format!("must be false: {what}")));
            }
        }
        if config.text("bias")?.is_some_and(|bias| bias != "none") {
            return Err(config.broken("bias", "must be none: adapters with biases are not supported"));
        }
        for key in ["modules_to_save", "alpha_pattern", "trainable_token_indices"] {
            let empty = |value: &serde_json::Value| {
                value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
            };
            if config.get(key).is_some_and(|value| !empty(value)) {
                return Err(config.broken(key, "must be absent or empty: not supported"));
            }
        }
        let alpha = config.required_number("lora_alpha", ALPHA)?;
        Ok(Scale { alpha, root: config.flag("use_rslora")?.unwrap_or(false) })
    }

    fn of(self, rank: usize) -> f32 {
        let rank = rank as f64;
        (self.alpha / if self.root { rank.sqrt() } else { rank }) as f32
    }
}

struct Loader<'a, B: Backend> {
    backend: &'a B,
    weights: &'a Checkpoint,
    scale: Scale,
    file: &'a Path,
}

impl<B: Backend> Loader<'_, B> {
    /// Takes the module's two matrices where they are; returns how many tensors that were.
    fn module(&self, name: &str, module: &Module, deltas: &mut [Option<Delta<B>>; PLACES]) -> Result<usize, LoadError> {
        let (down, up) = (format!("{name}.lora_A.weight"), format!("{name}.lora_B.weight"));
        let (Some(shape), true) = (self.weights.shape(&down), self.weights.shape(&up).is_some()) else {
            let half = [&down, &up].into_iter().find(|name| self.weights.shape(name).is_some());
            let other = if half == Some(&down) { &up } else { &down };
            return half.map_or(Ok(0), |_| Err(self.fault(other, TensorRule::Missing)));
        };
        let (rank, outputs) = (shape[0].max(1), module.places.iter().map(|(_, outputs)| outputs).sum());
        let plain = |name: &str, shape: &[usize]| {
            self.weights.tensor(name, shape)?.plain().map_err(|rule| self.fault(name, rule))
        };
        let a = plain(&down, &[rank, module.inputs])?;
        let scale = self.scale.of(rank);
        let b = Numbers::Plain(plain(&up, &[outputs, rank])?.into_iter().map(|x| x * scale).collect());
        let mut start = 0;
        for &(place, outputs) in &module.places {
            let rows = start..start + outputs;
            start = rows.end;
            deltas[place as usize] = Some(Delta {
                down: self.backend.matrix(Numbers::Plain(a.clone()), rank, module.inputs)?,
                up: self.backend.matrix(b.rows(rows, rank), outputs, rank)?,
            });
        }
        Ok(2)
    }

    fn fault(&self, tensor: &str, rule: TensorRule) -> LoadError {
        LoadError::Tensor { path: self.file.to_path_buf(), tensor: tensor.to_string(), rule }
    }
}
