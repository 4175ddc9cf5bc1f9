//! The Llama of candle-transformers, written by others, against ours: the embedded model's shape, in BF16.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{self, LlamaConfig};
use forebay_kernels::bf16;
use forebay_model::{DeviceChoice, KvDtype, LoadOptions, Rows, Source, load};
use serde_json::json;

use crate::support::checkpoint::Checkpoint;
use crate::support::paged::{Cache, Sequence, forward};

#[test]
fn agrees_with_an_independent_llama() {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 704,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 512,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "eos_token_id": 2,
        "tie_word_embeddings": true,
    });
    let folder = Checkpoint::from_config(config.clone(), 9).write();
    let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
    // candle widens the BF16 weights to F32, as we do; some processors multiply them with rows rounded to BF16.
    let weights = VarBuilder::from_buffered_safetensors(bytes, DType::F32, &Device::Cpu).unwrap();
    let parsed: LlamaConfig = serde_json::from_value(config).unwrap();
    let parsed = parsed.into_config(false);
    let theirs = llama::Llama::load(weights, &parsed).unwrap();

    let tokens: Vec<u32> = (0..70).map(|i| (i * i * 3 + i) % 512).collect();
    for device in [DeviceChoice::Cpu, DeviceChoice::Reference] {
        let options = LoadOptions { device, kv_dtype: Some(KvDtype::F32), ..LoadOptions::default() };
        let mut ours = load(&Source::Folder(folder.path().to_path_buf()), &options).unwrap().model;
        ours.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
        let mut sequence = Sequence::new(1);
        let all = forward(&mut ours, &mut Cache::shuffled(5), &mut [(&mut sequence, &tokens)], Rows::All).0;
        for len in [1, 2, 17, 70] {
            let mut cache = llama::Cache::new(false, DType::F32, &parsed, &Device::Cpu).unwrap();
            let prompt = Tensor::new(&tokens[..len], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
            let expected = theirs.forward(&prompt, 0, &mut cache).unwrap();
            let expected: Vec<f32> = expected.flatten_all().unwrap().to_vec1().unwrap();
            let spread = expected.iter().fold(0.0f32, |max, logit| max.max(logit.abs()));
            let worst = expected.iter().zip(all.row(len - 1)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(spread > 1.0, "logits too small to compare: {spread}");
            let rounded = device == DeviceChoice::Cpu && bf16::row_bits() <= 8;
            assert!(worst <= if rounded { 0.1 } else { 1e-3 }, "{device:?}, after {len} tokens: {worst:e} of {spread}");
        }
    }
}
