//! GGUF files for tests: honest by default, written part by part, so that every part can be made to lie.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use candle_core::quantized::{GgmlDType, QStorage, QTensor};
use candle_core::{Device, Tensor};
use safetensors::SafeTensors;
use serde_json::Value as Json;

/// A metadata value, by its type in the file.
#[derive(Clone)]
pub enum Value {
    U8(u8),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Floats(Vec<f32>),
    Integers(Vec<i32>),
    /// Type and bytes, whatever they are.
    Raw(u32, Vec<u8>),
}

/// A tensor as the file lists it.
#[derive(Clone)]
pub struct Entry {
    pub name: String,
    /// Innermost first, as in the file.
    pub sizes: Vec<u64>,
    pub kind: u32,
    pub bytes: Vec<u8>,
    /// Where it claims to begin; `None` is where it does.
    pub offset: Option<u64>,
}

/// A file before it is written.
#[derive(Clone)]
pub struct GgufFile {
    pub magic: [u8; 4],
    pub version: u32,
    /// What the header claims instead of the truth.
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<Entry>,
    pub alignment: usize,
}

pub fn text(value: &str) -> Value {
    Value::Text(value.to_string())
}

/// A length, then the bytes.
pub fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

/// Type, count, elements.
pub fn array(element: u32, count: u64, bytes: &[u8]) -> Value {
    Value::Raw(9, [&element.to_le_bytes()[..], &count.to_le_bytes(), bytes].concat())
}

impl Value {
    fn encode(&self) -> (u32, Vec<u8>) {
        let list = |element: u32, count: usize, bytes: Vec<u8>| {
            (9, [&element.to_le_bytes()[..], &(count as u64).to_le_bytes(), &bytes].concat())
        };
        match self {
            Value::U8(n) => (0, n.to_le_bytes().to_vec()),
            Value::U32(n) => (4, n.to_le_bytes().to_vec()),
            Value::I32(n) => (5, n.to_le_bytes().to_vec()),
            Value::F32(x) => (6, x.to_le_bytes().to_vec()),
            Value::Bool(flag) => (7, vec![u8::from(*flag)]),
            Value::Text(text) => (8, string(text.as_bytes())),
            Value::U64(n) => (10, n.to_le_bytes().to_vec()),
            Value::Texts(texts) => list(8, texts.len(), texts.iter().flat_map(|t| string(t.as_bytes())).collect()),
            Value::Floats(floats) => list(6, floats.len(), floats.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Value::Integers(numbers) => list(5, numbers.len(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect()),
            Value::Raw(kind, bytes) => (*kind, bytes.clone()),
        }
    }
}

impl GgufFile {
    /// No keys, no tensors: a valid file of nothing.
    pub fn empty() -> GgufFile {
        GgufFile {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            key_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
        }
    }

    /// A Hugging Face folder as llama.cpp would convert it, matrices packed as `packing`.
    pub fn convert(folder: &Path, packing: GgmlDType) -> GgufFile {
        let config: Json = serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap();
        let bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
        let checkpoint = SafeTensors::deserialize(&bytes).unwrap();
        let mut file = GgufFile { keys: keys(&config), ..GgufFile::empty() };
        let interleaves = ["llama", "granite", "smollm3"].contains(&file.architecture());
        let gemma = file.architecture().starts_with("gemma");
        let size = |key: &str| config[key].as_u64().unwrap() as usize;
        // The crate hands them out in the order of a hash map, which is another in every run.
        let mut tensors = checkpoint.tensors();
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, tensor) in tensors {
            let mut numbers: Vec<f32> = match tensor.dtype() {
                safetensors::Dtype::BF16 => {
                    tensor.data().as_chunks().0.iter().map(|&two| half::bf16::from_le_bytes(two).to_f32()).collect()
                }
                _ => tensor.data().as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect(),
            };
            for (module, heads) in [("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")] {
                if interleaves && name.contains(module) {
                    numbers = interleaved(&numbers, size(heads), tensor.shape()[0]);
                }
            }
            if gemma && name.ends_with("norm.weight") {
                numbers.iter_mut().for_each(|weight| *weight += 1.0);
            }
            let router = name.ends_with(".gate.weight");
            let packing = if tensor.shape().len() == 2 && !router { packing } else { GgmlDType::F32 };
            let name = converted_name(&name, gemma || file.architecture() == "olmo2");
            file.tensors.push(Entry::packed(&name, &numbers, tensor.shape(), packing));
        }
        file.stack_experts();
        if config["rope_parameters"]["rope_type"] == "llama3" {
            let divisors = rope_divisors(&config["rope_parameters"], size("head_dim"));
            file.tensors.push(Entry::packed("rope_freqs.weight", &divisors, &[divisors.len()], GgmlDType::F32));
        }
        file
    }

    /// Puts the matrices `blk.0.ffn_up_exps.7.weight` behind each other, by their numbers.
    fn stack_experts(&mut self) {
        let (experts, mut others): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.tensors).into_iter().partition(|entry| entry.name.contains("_exps."));
        let mut stacks: std::collections::BTreeMap<String, Vec<(usize, Entry)>> = std::collections::BTreeMap::new();
        for entry in experts {
            let (stem, number) = entry.name.trim_end_matches(".weight").rsplit_once('.').expect("a number");
            stacks.entry(format!("{stem}.weight")).or_default().push((number.parse().expect("a number"), entry));
        }
        for (name, mut stack) in stacks {
            stack.sort_by_key(|(number, _)| *number);
            let mut whole = Entry { name, ..stack[0].1.clone() };
            whole.sizes.push(stack.len() as u64);
            whole.bytes = stack.into_iter().flat_map(|(_, entry)| entry.bytes).collect();
            others.push(whole);
        }
        self.tensors = others;
    }

    fn architecture(&self) -> &str {
        match self.key("general.architecture") {
            Some(Value::Text(name)) => name,
            _ => "",
        }
    }

    pub fn key(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Replaces the key, or adds it.
    pub fn set(&mut self, key: &str, value: Value) -> &mut GgufFile {
        self.unset(key);
        self.keys.push((key.to_string(), value));
        self
    }

    pub fn unset(&mut self, key: &str) -> &mut GgufFile {
        self.keys.retain(|(name, _)| name != key);
        self
    }

    pub fn tensor(&mut self, name: &str) -> &mut Entry {
        self.tensors.iter_mut().find(|entry| entry.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            let (kind, bytes) = value.encode();
            out.extend(string(key.as_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend(bytes);
        }
        let mut data: Vec<u8> = Vec::new();
        for entry in &self.tensors {
            data.resize(data.len().next_multiple_of(self.alignment), 0);
            out.extend(string(entry.name.as_bytes()));
            out.extend((entry.sizes.len() as u32).to_le_bytes());
            entry.sizes.iter().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(entry.kind.to_le_bytes());
            out.extend(entry.offset.unwrap_or(data.len() as u64).to_le_bytes());
            data.extend(&entry.bytes);
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(data);
        out
    }

    /// Writes `model.gguf` into `folder`.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("model.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

impl Entry {
    /// `shape` is outermost first.
    pub fn packed(name: &str, numbers: &[f32], shape: &[usize], packing: GgmlDType) -> Entry {
        let tensor = Tensor::from_slice(numbers, shape, &Device::Cpu).unwrap();
        let packed = QTensor::quantize(&tensor, packing).unwrap();
        Entry {
            name: name.to_string(),
            sizes: shape.iter().rev().map(|&size| size as u64).collect(),
            kind: kind(packing),
            bytes: packed.data().unwrap().into_owned(),
            offset: None,
        }
    }

    /// The same numbers as F32, unpacked by candle; other types than `packing` are left alone.
    pub fn unpack(&mut self, packing: GgmlDType) {
        if self.kind != kind(packing) {
            return;
        }
        let shape: Vec<usize> = self.sizes.iter().rev().map(|&size| size as usize).collect();
        let storage = QStorage::from_data(Cow::Borrowed(&self.bytes), &Device::Cpu, packing).unwrap();
        let packed = QTensor::new(storage, shape.clone()).unwrap();
        let numbers: Vec<f32> = packed.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        *self = Entry::packed(&self.name, &numbers, &shape, GgmlDType::F32);
    }
}

/// ggml's number of a type.
fn kind(packing: GgmlDType) -> u32 {
    match packing {
        GgmlDType::F32 => 0,
        GgmlDType::F16 => 1,
        GgmlDType::Q4_0 => 2,
        GgmlDType::Q4_1 => 3,
        GgmlDType::Q5_0 => 6,
        GgmlDType::Q5_1 => 7,
        GgmlDType::Q8_0 => 8,
        GgmlDType::Q8_1 => 9,
        GgmlDType::Q2K => 10,
        GgmlDType::Q3K => 11,
        GgmlDType::Q4K => 12,
        GgmlDType::Q5K => 13,
        GgmlDType::Q6K => 14,
        GgmlDType::Q8K => 15,
        GgmlDType::BF16 => 30,
    }
}

fn keys(config: &Json) -> Vec<(String, Value)> {
    let kind = config["model_type"].as_str().unwrap();
    let architecture = match kind {
        "mistral" | "mixtral" => "llama",
        "qwen3_moe" => "qwen3moe",
        "gemma3_text" => "gemma3",
        other => other,
    };
    let mut keys = vec![("general.architecture".to_string(), text(architecture))];
    let mut add = |name: &str, value: Value| keys.push((format!("{architecture}.{name}"), value));
    for (name, key) in [
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("block_count", "num_hidden_layers"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("rope.dimension_count", "head_dim"),
        ("vocab_size", "vocab_size"),
        ("expert_count", "num_local_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ] {
        if let Some(number) = config[key].as_u64() {
            add(name, Value::U32(number as u32));
        }
    }
    for (name, key) in [
        ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("attention.scale", "attention_multiplier"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("logit_scale", "logits_scaling"),
    ] {
        if let Some(number) = config[key].as_f64() {
            add(name, Value::F32(number as f32));
        }
    }
    let rope = &config["rope_parameters"];
    let global = if rope["full_attention"].is_object() { &rope["full_attention"] } else { rope };
    add("rope.freq_base", Value::F32(global["rope_theta"].as_f64().unwrap_or(10_000.0) as f32));
    if let Some(pattern) = config["sliding_window_pattern"].as_u64() {
        add("attention.sliding_window_pattern", Value::U32(pattern as u32));
    }
    if let Some(window) = config["sliding_window"].as_u64() {
        match kind {
            "mistral" => keys.push(("forebay.attention.sliding_window".to_string(), Value::U32(window as u32))),
            _ => add("attention.sliding_window", Value::U32(window as u32)),
        }
    }
    keys
}

/// A trap: which norm is called what depends on where an architecture has norms.
fn converted_name(name: &str, norms_outputs: bool) -> String {
    let after_attention = if norms_outputs { "post_attention_norm" } else { "ffn_norm" };
    let renamed = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("block_sparse_moe", "mlp"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("self_attn.qkv_proj", "attn_qkv"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", after_attention),
        ("pre_feedforward_layernorm", "ffn_norm"),
        ("post_feedforward_layernorm", "post_ffw_norm"),
        ("input_layernorm", "attn_norm"),
        ("mlp.gate_up_proj", "ffn_up"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("mlp.gate.", "ffn_gate_inp."),
        (".w1.", ".gate_proj."),
        (".w2.", ".down_proj."),
        (".w3.", ".up_proj."),
    ];
    let name = renamed.iter().fold(name.to_string(), |name, (from, to)| name.replace(from, to));
    // blk.0.mlp.experts.7.up_proj.weight
    let Some((layer, rest)) = name.split_once(".mlp.experts.") else { return name };
    let (expert, rest) = rest.split_once('.').unwrap();
    let (projection, part) = rest.split_once('.').unwrap();
    format!("{layer}.ffn_{}_exps.{expert}.{part}", projection.trim_end_matches("_proj"))
}

/// `permute` of llama.cpp's converter: of each head, the rows of its two halves in turn.
fn interleaved(numbers: &[f32], heads: usize, rows: usize) -> Vec<f32> {
    let (head_dim, width) = (rows / heads, numbers.len() / rows);
    let source = |row: usize| {
        let (head, within) = (row / head_dim, row % head_dim);
        head * head_dim + within % 2 * (head_dim / 2) + within / 2
    };
    (0..rows).flat_map(|row| numbers[source(row) * width..][..width].to_vec()).collect()
}

/// What llama.cpp's converter makes of Llama 3's scaling.
fn rope_divisors(rope: &Json, head_dim: usize) -> Vec<f32> {
    let number = |key: &str| rope[key].as_f64().unwrap();
    let (factor, low, high) = (number("factor"), number("low_freq_factor"), number("high_freq_factor"));
    let original = number("original_max_position_embeddings");
    let divisor = |pair: usize| {
        let frequency = number("rope_theta").powf(-((2 * pair) as f64) / head_dim as f64);
        let wavelength = 2.0 * std::f64::consts::PI / frequency;
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    (0..head_dim / 2).map(|pair| divisor(pair) as f32).collect()
}
