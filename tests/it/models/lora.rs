//! LoRA adapters: they equal merged weights, share batches without a trace, and lie to nobody.

use std::path::Path;

use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};
use forebay_model::{Asked, DeviceChoice, KvDtype, LoadOptions, Model, Rows, Source, load};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::models::goldens;
use crate::support::checkpoint::{Checkpoint, Entry};
use crate::support::server::{Server, post};

const RANK: usize = 4;
const ALPHA: f64 = 6.0;

/// A golden's linear layers that an adapter may change: name, outputs, inputs.
fn targets(checkpoint: &Checkpoint) -> Vec<(String, usize, usize)> {
    let changeable = |name: &str| name.contains("_proj.weight") && !name.contains("experts");
    let matrices = checkpoint.tensors.iter().filter(|entry| changeable(&entry.name));
    matrices.map(|e| (e.name.trim_end_matches(".weight").to_string(), e.shape[0], e.shape[1])).collect()
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 * 0.4 - 0.2
    };
    (0..count).map(|_| next()).collect()
}

fn entry(name: String, shape: Vec<usize>, numbers: &[f32]) -> Entry {
    Entry { name, dtype: "F32", shape, bytes: numbers.iter().flat_map(|x| x.to_le_bytes()).collect() }
}

fn config() -> Value {
    json!({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": ["q_proj"],
        "modules_to_save": null, "use_dora": false, "fan_in_fan_out": false})
}

/// An adapter of every linear layer, and the checkpoint that it makes of `base` when it is merged.
fn adapter(base: &Checkpoint, seed: u64) -> (Vec<Entry>, Checkpoint) {
    let mut merged = Checkpoint { config: base.config.clone(), tensors: base.tensors.clone() };
    let mut entries = Vec::new();
    for (index, (name, outputs, inputs)) in targets(base).into_iter().enumerate() {
        let (a, b) =
            (numbers(RANK * inputs, seed + index as u64), numbers(outputs * RANK, seed + 1_000 + index as u64));
        let weight = merged.tensor(&format!("{name}.weight"));
        let old: Vec<f32> = weight.bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
        let new: Vec<f32> = (0..outputs * inputs)
            .map(|at| {
                let (row, column) = (at / inputs, at % inputs);
                let delta: f64 =
                    (0..RANK).map(|r| f64::from(b[row * RANK + r]) * f64::from(a[r * inputs + column])).sum();
                (f64::from(old[at]) + ALPHA / RANK as f64 * delta) as f32
            })
            .collect();
        weight.bytes = new.iter().flat_map(|x| x.to_le_bytes()).collect();
        entries.push(entry(format!("base_model.model.{name}.lora_A.weight"), vec![RANK, inputs], &a));
        entries.push(entry(format!("base_model.model.{name}.lora_B.weight"), vec![outputs, RANK], &b));
    }
    (entries, merged)
}

fn write(config: &Value, entries: &[Entry]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
    std::fs::write(folder.path().join("adapter_model.safetensors"), crate::support::checkpoint::packed(entries))
        .unwrap();
    folder
}

fn open(folder: &Path, adapters: &[&Path], device: DeviceChoice) -> Result<Model, String> {
    let adapters = adapters.iter().map(|path| path.to_path_buf()).collect();
    let options = LoadOptions { device, adapters, kv_dtype: Some(KvDtype::F32), ..LoadOptions::default() };
    let mut model = load(&Source::Folder(folder.to_path_buf()), &options).map_err(|error| error.to_string())?.model;
    model.allocate_kv(64, 4).unwrap();
    Ok(model)
}

/// Prompts of 20, 9 and 13 tokens, each with its adapter, all in one step; their logits.
fn together(model: &mut Model, prompts: &[(usize, Option<u32>)]) -> Vec<Vec<f32>> {
    let mut batch = StepBatch::default();
    let mut adapters = Vec::new();
    for (index, &(length, adapter)) in prompts.iter().enumerate() {
        let (start, table) = (batch.tokens.len(), batch.tables.len());
        let first = 8 * (index + 1);
        batch.tokens.extend((0..length as u32).map(|i| (i * 37 + length as u32 * 11) % 320));
        batch.positions.extend(0..length as u32);
        batch.slots.extend((0..length as u32).map(|i| 4 * first as u32 + i));
        batch.tables.extend((first..first + 8).map(|block| BlockId(block as u32)));
        let (rows, table) = (start..batch.tokens.len(), table..batch.tables.len());
        batch.chunks.push(BatchChunk { seq: SeqId(index as u64), rows, table, sample: true, proposed: 0 });
        adapters.push(adapter);
    }
    let logits = model.compute(&batch, Asked { rows: Rows::All, states: &[], adapters: &adapters }).unwrap().logits;
    batch.chunks.iter().map(|chunk| chunk.rows.clone().flat_map(|row| logits.row(row).to_vec()).collect()).collect()
}

fn worst(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn an_adapter_equals_its_merged_weights_and_leaves_others_alone() {
    for architecture in ["llama", "qwen2", "gemma3", "phi3", "qwen3-moe"] {
        let golden = goldens::folder(architecture);
        let base = Checkpoint::read(&golden);
        let made = [adapter(&base, 1), adapter(&base, 50)];
        let folders = [write(&config(), &made[0].0), write(&config(), &made[1].0)];
        for device in [DeviceChoice::Cpu, DeviceChoice::Reference] {
            let mut model = open(&golden, &[folders[0].path(), folders[1].path()], device).unwrap();
            let mixed = together(&mut model, &[(20, Some(0)), (9, None), (13, Some(1)), (9, Some(0))]);
            let plain = together(&mut open(&golden, &[], device).unwrap(), &[(9, None)]);
            assert!(worst(&mixed[1], &plain[0]) <= 1e-5, "{architecture} on {device:?}: who asked for none");
            for (adapter, at, length) in [(0, 0, 20), (1, 2, 13), (0, 3, 9)] {
                let merged = made[adapter].1.write();
                let expected = together(&mut open(merged.path(), &[], device).unwrap(), &[(length, None)]);
                let off = worst(&mixed[at], &expected[0]);
                assert!(off <= 1e-4, "{architecture} on {device:?}, adapter {adapter}: {off:e}");
                let unlike = together(&mut model, &[(length, None)]);
                assert!(worst(&mixed[at], &unlike[0]) > 0.1, "{architecture}: it changes nothing");
            }
        }
    }
}

#[test]
fn who_shares_the_batch_leaves_no_trace() {
    let golden = goldens::folder("llama");
    let base = Checkpoint::read(&golden);
    let folders = [write(&config(), &adapter(&base, 1).0), write(&config(), &adapter(&base, 50).0)];
    let mut model = open(&golden, &[folders[0].path(), folders[1].path()], DeviceChoice::Cpu).unwrap();
    let all = [(20, Some(0)), (9, None), (13, Some(1)), (9, Some(0))];
    let mixed = together(&mut model, &all);
    for (one, mixed) in all.iter().zip(&mixed) {
        let alone = together(&mut model, &[*one]);
        assert!(alone[0].iter().zip(mixed).all(|(a, b)| a.to_bits() == b.to_bits()), "{one:?}");
    }
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let golden = goldens::folder("llama");
    let entries = adapter(&Checkpoint::read(&golden), 1).0;
    let check = |config: Value, entries: &[Entry], expected: &str| {
        let folder = write(&config, entries);
        let error = open(&golden, &[folder.path()], DeviceChoice::Cpu).err().expect(expected);
        assert!(error.contains(expected), "{error}");
    };
    let with = |key: &str, value: Value| {
        let mut config = config();
        config[key] = value;
        config
    };
    check(with("peft_type", json!("IA3")), &entries, "adapter_config.json: `peft_type` must be LORA, found \"IA3\"");
    check(with("use_dora", json!(true)), &entries, "`use_dora` must be false: DoRA");
    check(with("bias", json!("all")), &entries, "`bias` must be none");
    check(with("modules_to_save", json!(["lm_head"])), &entries, "`modules_to_save` must be absent or empty");
    check(with("lora_alpha", json!(null)), &entries, "`lora_alpha` is missing");
    let without_b: Vec<Entry> =
        entries.iter().filter(|e| !e.name.contains("0.self_attn.q_proj.lora_B")).cloned().collect();
    check(config(), &without_b, "layers.0.self_attn.q_proj.lora_B.weight: is missing");
    let mut wider = entries.clone();
    wider[0].shape = vec![RANK * 2, wider[0].shape[1] / 2];
    check(config(), &wider, "lora_A.weight: must have shape [8, ");
    let mut odd = entries.clone();
    odd.push(entry("base_model.model.lm_head.lora_A.weight".to_string(), vec![1, 1], &[0.5]));
    check(config(), &odd, "tensor base_model.model.lm_head.lora_A.weight: is of no module that an adapter can change");
    check(config(), &[], "tensor adapter_model.safetensors: is of no module");
    let nowhere = tempfile::tempdir().unwrap();
    let error = open(&golden, &[nowhere.path()], DeviceChoice::Cpu).err().unwrap();
    assert!(error.contains("adapter_config.json"), "{error}");
}

async fn complete(server: &Server, model: &str) -> Value {
    let prompt: Vec<u32> = (0..40).map(|i| (i * 37 + 5) % 320).collect();
    let body = json!({"model": model, "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": true,
        "return_token_ids": true});
    let (status, answer) = post(server.at("/v1/completions"), body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["model"], model);
    answer
}

/// Adapters with running and with waiting sequences, as llm-d Router reads them.
async fn in_use(server: &Server) -> [String; 2] {
    let text = reqwest::get(server.at("/metrics")).await.unwrap().text().await.unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("vllm:lora_requests_info{")).collect();
    assert_eq!(lines.len(), 1, "one series: {lines:?}");
    let label = |name: &str| {
        let (_, rest) = lines[0].split_once(&format!("{name}=\"")).unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    assert_eq!(label("max_lora"), "1");
    let since: f64 = lines[0].rsplit(' ').next().unwrap().parse().unwrap();
    assert!(since > 1.7e9, "the time, so that the newest of several counts");
    ["running_lora_adapters", "waiting_lora_adapters"].map(label)
}

#[tokio::test]
async fn requests_choose_adapters_by_name_and_share_no_cache_across_them() {
    let golden = goldens::folder("llama");
    let (entries, merged) = adapter(&Checkpoint::read(&golden), 1);
    let folder = write(&config(), &entries);
    let lora = format!("pirate={}", folder.path().display());
    let server = Server::golden("llama", &["--lora", &lora, "--kv-dtype", "f32"]);
    let (base, pirate) = (complete(&server, "llama").await, complete(&server, "pirate").await);
    assert_ne!(base["choices"][0]["token_ids"], pirate["choices"][0]["token_ids"]);
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(&pirate), 0, "the base's keys and values are not the adapter's");
    let again = complete(&server, "pirate").await;
    assert!(cached(&again) > 0 && again["choices"][0]["token_ids"] == pirate["choices"][0]["token_ids"], "{again}");

    assert_eq!(in_use(&server).await, ["", ""], "nobody is there");
    assert_eq!(post(server.at("/admin/pause"), json!({})).await.0, 200);
    let url = server.at("/v1/completions");
    let waits = tokio::spawn(post(url, json!({"model": "pirate", "prompt": [5, 6], "max_tokens": 1})));
    server.until_metric("vllm:num_requests_waiting", 1.0).await;
    assert_eq!(in_use(&server).await, ["", "pirate"], "running, waiting");
    assert_eq!(post(server.at("/admin/resume"), json!({})).await.0, 200);
    assert_eq!(waits.await.unwrap().0, 200);
    assert_eq!(in_use(&server).await, ["", ""], "gone again");

    let merged = merged.write();
    std::fs::copy(golden.join("tokenizer.json"), merged.path().join("tokenizer.json")).unwrap();
    let path = merged.path().to_str().unwrap();
    let alone = Server::start(&["--model", path, "--served-model-name", "merged", "--kv-dtype", "f32"]);
    assert_eq!(complete(&alone, "merged").await["choices"][0]["token_ids"], pirate["choices"][0]["token_ids"]);

    let models: Value = reqwest::get(server.at("/v1/models")).await.unwrap().json().await.unwrap();
    let names: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["llama", "pirate"]);
    assert_eq!((&models["data"][0]["parent"], &models["data"][1]["parent"]), (&Value::Null, &json!("llama")));
    let (status, answer) = post(server.at("/v1/completions"), json!({"model": "parrot", "prompt": "t1"})).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("model_not_found")));
}
