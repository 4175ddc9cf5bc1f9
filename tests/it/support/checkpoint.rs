//! Model folders for tests: honest by default, and every part can be made to lie.

use std::path::Path;

use half::bf16;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A tensor of a safetensors file.
#[derive(Clone)]
pub struct Entry {
    pub name: String,
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// A small Llama in BF16, as a folder would hold it.
pub struct Checkpoint {
    pub config: Value,
    pub tensors: Vec<Entry>,
}

impl Checkpoint {
    /// Hidden 64, two layers, 4 heads over 2; the same for the same `seed`.
    pub fn llama(seed: u64) -> Checkpoint {
        Checkpoint::from_config(
            json!({
                "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
                "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
                "vocab_size": 160, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                "eos_token_id": 2, "tie_word_embeddings": false,
            }),
            seed,
        )
    }

    /// What a folder holds, in the order of names.
    pub fn read(folder: &Path) -> Checkpoint {
        let file = |name: &str| std::fs::read(folder.join(name)).unwrap();
        let weights = file("model.safetensors");
        let parsed = safetensors::SafeTensors::deserialize(&weights).unwrap();
        let mut views = parsed.tensors();
        views.sort_by(|a, b| a.0.cmp(&b.0));
        let entry = |(name, view): (String, safetensors::tensor::TensorView)| Entry {
            name,
            dtype: "F32",
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        Checkpoint {
            config: serde_json::from_slice(&file("config.json")).unwrap(),
            tensors: views.into_iter().map(entry).collect(),
        }
    }

    /// All tensors of a Llama with this config, random, in BF16.
    pub fn from_config(config: Value, seed: u64) -> Checkpoint {
        let size = |key: &str| config[key].as_u64().unwrap() as usize;
        let (hidden, inner, vocab) = (size("hidden_size"), size("intermediate_size"), size("vocab_size"));
        let kv = hidden / size("num_attention_heads") * size("num_key_value_heads");
        let mut shapes = vec![("model.embed_tokens.weight".to_string(), vec![vocab, hidden])];
        for layer in 0..size("num_hidden_layers") {
            let mut add = |name: &str, shape: &[usize]| {
                shapes.push((format!("model.layers.{layer}.{name}.weight"), shape.to_vec()));
            };
            add("input_layernorm", &[hidden]);
            add("self_attn.q_proj", &[hidden, hidden]);
            add("self_attn.k_proj", &[kv, hidden]);
            add("self_attn.v_proj", &[kv, hidden]);
            add("self_attn.o_proj", &[hidden, hidden]);
            add("post_attention_layernorm", &[hidden]);
            add("mlp.gate_proj", &[inner, hidden]);
            add("mlp.up_proj", &[inner, hidden]);
            add("mlp.down_proj", &[hidden, inner]);
        }
        shapes.push(("model.norm.weight".to_string(), vec![hidden]));
        if config["tie_word_embeddings"] != true {
            shapes.push(("lm_head.weight".to_string(), vec![vocab, hidden]));
        }
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let tensors = shapes.into_iter().map(|(name, shape)| {
            let centre = if name.ends_with("norm.weight") { 1.0 } else { 0.0 };
            let count: usize = shape.iter().product();
            let bytes = (0..count).flat_map(|_| bf16::from_f32(centre + 0.3 * next()).to_le_bytes()).collect();
            Entry { name, dtype: "BF16", shape, bytes }
        });
        Checkpoint { tensors: tensors.collect(), config }
    }

    pub fn tensor(&mut self, name: &str) -> &mut Entry {
        self.tensors.iter_mut().find(|entry| entry.name == name).unwrap()
    }

    pub fn write(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        self.write_small_files(folder.path());
        std::fs::write(folder.path().join("model.safetensors"), packed(&self.tensors)).unwrap();
        folder
    }

    /// The same in two files and an index.
    pub fn write_sharded(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        self.write_small_files(folder.path());
        let mut weight_map = serde_json::Map::new();
        for (shard, tensors) in self.tensors.chunks(self.tensors.len().div_ceil(2)).enumerate() {
            let file = format!("model-0000{}-of-00002.safetensors", shard + 1);
            std::fs::write(folder.path().join(&file), packed(tensors)).unwrap();
            weight_map.extend(tensors.iter().map(|entry| (entry.name.clone(), json!(file))));
        }
        write_index(folder.path(), &json!({"metadata": {}, "weight_map": weight_map}));
        folder
    }

    fn write_small_files(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
        std::fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    }
}

pub fn write_index(folder: &Path, index: &Value) {
    std::fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// A file with this header, whatever it says, before `data`.
pub fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

pub fn packed(tensors: &[Entry]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    header.insert("__metadata__".to_string(), json!({"format": "pt"}));
    for Entry { name, dtype, shape, bytes } in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
        data.extend(bytes);
    }
    with_header(&Value::Object(header).to_string(), &data)
}
