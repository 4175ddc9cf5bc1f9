//! Memory beside weights and cache, of the real process: no second copy of the weights, whatever they are packed as.

use candle_core::quantized::GgmlDType;
use serde_json::json;

use crate::models::gguf::with_vocabulary;
use crate::support::checkpoint::Checkpoint;
use crate::support::gguf_file::{GgufFile, Value};
use crate::support::server::{Server, post};

/// What may be in memory beside them: the program, its buffers, the vocabulary, one slab on its way in.
const BESIDE: u64 = 200_000_000;
/// More than that, so that a second copy cannot hide in it.
const WEIGHTS: u64 = 250_000_000;
const CACHE: u64 = (1 << 30) / 64;

/// A Llama of this many bytes and some: one layer, again and again.
fn file(packing: GgmlDType) -> GgufFile {
    let checkpoint = Checkpoint::from_config(
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1_024,
            "intermediate_size": 3_072, "num_attention_heads": 8, "num_key_value_heads": 1, "num_hidden_layers": 1,
            "vocab_size": 320, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "eos_token_id": 2, "tie_word_embeddings": true,
        }),
        5,
    );
    let mut file = GgufFile::convert(checkpoint.write().path(), packing);
    let layer: Vec<_> = file.tensors.iter().filter(|entry| entry.name.starts_with("blk.0.")).cloned().collect();
    let bytes: usize = layer.iter().map(|entry| entry.bytes.len()).sum();
    let layers = WEIGHTS.div_ceil(bytes as u64);
    for index in 1..layers {
        file.tensors.extend(layer.iter().cloned().map(|mut entry| {
            entry.name = entry.name.replace("blk.0.", &format!("blk.{index}."));
            entry
        }));
    }
    with_vocabulary(&mut file);
    file.set("llama.block_count", Value::U32(layers as u32))
        .set("tokenizer.ggml.merges", Value::Texts(Vec::new()))
        .unset("tokenizer.chat_template");
    file
}

async fn check(packing: GgmlDType) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = file(packing);
    let weights: u64 = file.tensors.iter().map(|entry| entry.bytes.len() as u64).sum();
    let path = file.write(folder.path());
    drop(file);
    let cache = (CACHE as f64 / f64::from(1 << 30)).to_string();
    let server = Server::start(&["--model", path.to_str().expect("utf-8"), "--kv-memory", &cache]);
    let idle = 1024 * server.resident_kib();
    assert!(idle >= weights, "{packing:?}: {idle} bytes of memory cannot hold {weights} of weights");
    // A prefill and decodes, so that buffers have grown.
    let prompt: Vec<u32> = (0..100).map(|i| (i * i * 7 + i * 13) % 320).collect();
    let asked = json!({"prompt": prompt, "n": 3, "max_tokens": 3, "temperature": 0.5, "ignore_eos": true});
    let (status, answer) = post(server.at("/v1/completions"), asked).await;
    assert_eq!((status, answer["usage"]["completion_tokens"].as_u64()), (200, Some(9)), "{answer}");
    let busy = 1024 * server.resident_kib();
    for (when, used) in [("after loading", idle), ("after requests", busy)] {
        let beside = used.saturating_sub(weights + CACHE);
        println!("{packing:?} {when}: {} MB beside {} MB of weights", beside / 1_000_000, weights / 1_000_000);
        assert!(beside <= BESIDE, "{packing:?} {when}: {beside} bytes beside {weights} of weights");
    }
}

#[tokio::test]
async fn q4_k_weights_are_in_memory_once() {
    check(GgmlDType::Q4K).await;
}

#[tokio::test]
async fn q8_0_weights_are_in_memory_once() {
    check(GgmlDType::Q8_0).await;
}

#[tokio::test]
async fn bf16_weights_are_in_memory_once() {
    check(GgmlDType::BF16).await;
}
