//! Model folders, honest ones and ones that lie: each lie is an error that names file, tensor or key, and rule.

use std::fs;
use std::path::Path;

use forebay_core::request::Pooling;
use forebay_model::{
    ChatFiles, DeviceChoice, LoadFormat, LoadOptions, LoadedModel, Rows, Source, TokenizerSource, load,
};
use half::f16;
use serde_json::json;

use crate::models::goldens;
use crate::support::checkpoint::{Checkpoint, with_header, write_index};
use crate::support::paged::{Cache, Sequence, forward};

fn open(folder: &Path) -> Result<LoadedModel, String> {
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    load(&Source::Folder(folder.to_path_buf()), &options).map_err(|error| error.to_string())
}

/// The folder must be refused with a message that holds all of `expected`.
fn check_refused(folder: &Path, expected: &[&str]) {
    match open(folder) {
        Ok(_) => panic!("accepted; expected {expected:?}"),
        Err(message) => {
            assert!(expected.iter().all(|part| message.contains(part)), "expected {expected:?} in: {message}");
        }
    }
}

/// An honest checkpoint, changed before it is written.
fn check_changed(change: impl FnOnce(&mut Checkpoint), expected: &[&str]) {
    let mut checkpoint = Checkpoint::llama(1);
    change(&mut checkpoint);
    check_refused(checkpoint.write().path(), expected);
}

/// An honest folder with `file` replaced.
fn check_file(file: &str, contents: &[u8], expected: &[&str]) {
    let folder = Checkpoint::llama(1).write();
    fs::write(folder.path().join(file), contents).unwrap();
    check_refused(folder.path(), &[&[file], expected].concat());
}

fn logits(mut loaded: LoadedModel) -> Vec<f32> {
    loaded.model.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
    let tokens: Vec<u32> = (0..20).map(|i| i * 7 % 160).collect();
    let mut sequence = Sequence::new(1);
    forward(&mut loaded.model, &mut Cache::shuffled(3), &mut [(&mut sequence, &tokens)], Rows::All).0.data.to_vec()
}

#[test]
fn one_file_or_many_are_the_same_model() {
    let checkpoint = Checkpoint::llama(1);
    let (single, sharded) = (checkpoint.write(), checkpoint.write_sharded());
    let expected = logits(open(single.path()).unwrap());
    assert!(expected.iter().all(|logit| logit.is_finite()));
    assert_eq!(logits(open(sharded.path()).unwrap()), expected);
    assert_ne!(logits(open(Checkpoint::llama(2).write().path()).unwrap()), expected);
}

/// As checkpoints of embedding models are saved: without the head, and the names of what it stood on.
#[test]
fn bare_names_are_the_same_model() {
    let config = |checkpoint: Checkpoint| {
        let mut config = checkpoint.config;
        config["tie_word_embeddings"] = json!(true);
        config
    };
    let tied = || Checkpoint::from_config(config(Checkpoint::llama(1)), 1);
    let expected = logits(open(tied().write().path()).unwrap());
    let mut bare = tied();
    for entry in &mut bare.tensors {
        entry.name = entry.name.strip_prefix("model.").expect("no head").to_owned();
    }
    assert_eq!(logits(open(bare.write().path()).unwrap()), expected);
}

#[test]
fn how_states_are_pooled_is_told_beside_the_model() {
    let pooling = |said: Option<&str>| {
        let folder = Checkpoint::llama(1).write();
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        if let Some(text) = said {
            fs::write(folder.path().join("1_Pooling/config.json"), text).unwrap();
        }
        open(folder.path()).map(|loaded| loaded.pooling)
    };
    let last = r#"{"word_embedding_dimension": 64, "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true}"#;
    assert_eq!(pooling(None), Ok(None));
    assert_eq!(pooling(Some(last)), Ok(Some(Pooling::Last)));
    assert_eq!(pooling(Some(r#"{"pooling_mode_mean_tokens": true}"#)), Ok(Some(Pooling::Mean)));
    assert_eq!(pooling(Some(r#"{"pooling_mode_cls_token": true}"#)), Ok(Some(Pooling::Cls)));
    let wrong = pooling(Some(r#"{"pooling_mode_cls_token": 1}"#)).unwrap_err();
    assert!(wrong.contains("1_Pooling") && wrong.contains("pooling_mode_cls_token"), "{wrong}");
}

#[test]
fn f16_and_f32_files_hold_the_same_numbers() {
    // Multiples of 1/64 below 1 are exact in all three.
    let exact = |checkpoint: &mut Checkpoint, dtype: &'static str, bytes: fn(f32) -> Vec<u8>| {
        for entry in &mut checkpoint.tensors {
            let count: usize = entry.shape.iter().product();
            entry.bytes = (0..count).flat_map(|i| bytes(((i * 29) % 64) as f32 / 64.0 - 0.5)).collect();
            entry.dtype = dtype;
        }
        logits(open(checkpoint.write().path()).unwrap())
    };
    let mut checkpoint = Checkpoint::llama(1);
    let expected = exact(&mut checkpoint, "F32", |x| x.to_le_bytes().to_vec());
    assert_eq!(exact(&mut checkpoint, "F16", |x| f16::from_f32(x).to_le_bytes().to_vec()), expected);
    // The rows beside BF16 weights may have been rounded to sixteen bits.
    let bf16 = exact(&mut checkpoint, "BF16", |x| half::bf16::from_f32(x).to_le_bytes().to_vec());
    let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    assert!(bf16.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= largest * 1e-4));
}

#[test]
fn dummy_weights_follow_seed_and_config() {
    let folder = Checkpoint::llama(1).write();
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let dummy = |seed| {
        let options =
            LoadOptions { device: DeviceChoice::Cpu, format: LoadFormat::Dummy, seed, ..LoadOptions::default() };
        logits(load(&Source::Folder(folder.path().to_path_buf()), &options).unwrap())
    };
    assert_eq!(dummy(1), dummy(1));
    assert_ne!(dummy(1), dummy(2));
    let mut huge = Checkpoint::llama(1);
    huge.config["vocab_size"] = json!(1 << 24);
    huge.config["hidden_size"] = json!(1 << 20);
    huge.config["head_dim"] = json!(64);
    let huge_folder = huge.write();
    let options = LoadOptions { format: LoadFormat::Dummy, ..LoadOptions::default() };
    let error = load(&Source::Folder(huge_folder.path().to_path_buf()), &options).err().unwrap().to_string();
    assert!(error.contains("config.json: asks for 35"), "{error}");
}

#[test]
fn parameters_are_those_of_the_file() {
    for folder in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens")).unwrap() {
        let folder = folder.unwrap().path();
        if !folder.join("config.json").exists() {
            continue;
        }
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let count: usize = file.tensors().iter().map(|(_, tensor)| tensor.shape().iter().product::<usize>()).sum();
        assert_eq!(open(&folder).unwrap().model.spec().parameters(), count as u64, "{}", folder.display());
    }
}

#[test]
fn id_end_tokens_and_chat_files() {
    let folder = Checkpoint::llama(1).write();
    let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
    let loaded = open(folder.path()).unwrap();
    assert_eq!(loaded.id, folder.path().file_name().unwrap().to_string_lossy());
    assert_eq!(open(&folder.path().join(".")).unwrap().id, loaded.id);
    assert_eq!((loaded.eos, loaded.max_position_embeddings), (vec![2], 128));
    assert_eq!((loaded.chat, loaded.tokenizer), (ChatFiles::default(), TokenizerSource::Json(b"{}".to_vec())));

    write("generation_config.json", r#"{"eos_token_id": [7, 2, 5]}"#);
    write("tokenizer_config.json", r#"{"chat_template": "T", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}"#);
    let loaded = open(folder.path()).unwrap();
    assert_eq!(loaded.eos, [2, 5, 7]);
    let text = |text: &str| Some(text.to_string());
    let mut chat = ChatFiles { template: text("T"), bos_token: text("<s>"), eos_token: text("</s>") };
    assert_eq!(loaded.chat, chat);

    write("chat_template.jinja", "J");
    chat.template = text("J");
    assert_eq!(open(folder.path()).unwrap().chat, chat, "the file of its own goes first");

    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    let list = json!([{"name": "tools", "template": "X"}, {"name": "default", "template": "D"}]);
    write("tokenizer_config.json", &json!({"chat_template": list}).to_string());
    assert_eq!(open(folder.path()).unwrap().chat, ChatFiles { template: text("D"), ..ChatFiles::default() });
}

#[test]
fn small_files_that_lie() {
    let empty = tempfile::tempdir().unwrap();
    check_refused(empty.path(), &["config.json", "No such file"]);
    check_refused(&empty.path().join("nowhere"), &["nowhere", "config.json"]);
    fs::create_dir(empty.path().join("config.json")).unwrap();
    check_refused(empty.path(), &["config.json: must be a regular file"]);
    check_file("config.json", b"{\"hidden_size\": ", &["not valid JSON", "line 1"]);
    check_file("config.json", b"[1, 2]", &["not valid JSON: must be an object"]);
    check_file("config.json", b"\xff\xfe", &["not valid JSON"]);
    check_file("config.json", &b"[".repeat(100_000), &["not valid JSON"]);
    check_file("generation_config.json", b"{\"eos_token_id\": 160}", &["`eos_token_id`", "below vocab_size, 160"]);
    check_file("generation_config.json", b"{\"eos_token_id\": [1, -1]}", &["`eos_token_id`", "below vocab_size"]);
    check_file("tokenizer_config.json", b"{\"chat_template\": 7}", &["`chat_template` must be a string, found 7"]);
    check_file("tokenizer_config.json", b"{\"chat_template\": []}", &["`chat_template` must hold one named default"]);
    check_file(
        "tokenizer_config.json",
        b"{\"bos_token\": {\"content\": 1}}",
        &["`bos_token.content` must be a string"],
    );
    check_file("chat_template.jinja", b"ab\xff", &["`byte 2` must be UTF-8"]);
    let folder = Checkpoint::llama(1).write();
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    check_refused(folder.path(), &["tokenizer.json"]);
}

#[test]
fn tensors_that_do_not_fit_the_config() {
    let norm = "model.layers.1.input_layernorm.weight";
    check_changed(
        |c| c.tensors.retain(|entry| entry.name != norm),
        &["model.safetensors: tensor model.layers.1.input_layernorm.weight: is missing"],
    );
    check_changed(|c| c.config["num_hidden_layers"] = json!(4000), &["tensor model.layers.2.", "is missing"]);
    check_changed(
        |c| c.config["vocab_size"] = json!(161),
        &["model.embed_tokens.weight: must have shape [161, 64], has"],
    );
    check_changed(|c| c.config["attention_bias"] = json!(true), &["self_attn.q_proj.bias: is missing"]);
    check_changed(
        |c| {
            let entry = c.tensor("model.layers.0.self_attn.q_proj.weight");
            (entry.dtype, entry.shape) = ("F16", vec![64 * 64]);
        },
        &["model.layers.0.self_attn.q_proj.weight: must have shape [64, 64], has [4096]"],
    );
    check_changed(
        |c| {
            let entry = c.tensor("lm_head.weight");
            (entry.dtype, entry.bytes) = ("I16", vec![0; 160 * 64 * 2]);
        },
        &["lm_head.weight: must be F32, F16 or BF16, is I16"],
    );
}

#[test]
fn experts_and_fused_matrices_that_do_not_fit() {
    let check = |golden: &str, change: fn(&mut Checkpoint), expected: &str| {
        let mut checkpoint = Checkpoint::read(&goldens::folder(golden));
        change(&mut checkpoint);
        check_refused(checkpoint.write().path(), &[expected]);
    };
    let gone =
        |c: &mut Checkpoint| c.tensors.retain(|entry| !entry.name.ends_with("1.block_sparse_moe.experts.3.w2.weight"));
    check("mixtral", gone, "tensor model.layers.1.block_sparse_moe.experts.3.w2.weight: is missing");
    let more = |c: &mut Checkpoint| c.config["num_local_experts"] = json!(5);
    check("mixtral", more, "tensor model.layers.0.block_sparse_moe.gate.weight: must have shape [5, 64], has [4, 64]");
    let wider = |c: &mut Checkpoint| c.config["moe_intermediate_size"] = json!(50);
    check(
        "qwen3-moe",
        wider,
        "tensor model.layers.0.mlp.experts.0.gate_proj.weight: must have shape [50, 64], has [48, 64]",
    );
    let heads = |c: &mut Checkpoint| c.config["num_key_value_heads"] = json!(4);
    check("phi3", heads, "tensor model.layers.0.self_attn.qkv_proj.weight: must have shape [192, 64], has [128, 64]");
    let kind = |c: &mut Checkpoint| {
        let entry = c.tensor("model.layers.2.mlp.gate_up_proj.weight");
        (entry.dtype, entry.shape) = ("I32", entry.shape.clone());
    };
    check("phi3", kind, "tensor model.layers.2.mlp.gate_up_proj.weight: must be F32, F16 or BF16, is I32");
    let norm = |c: &mut Checkpoint| c.tensors.retain(|entry| !entry.name.contains("1.pre_feedforward"));
    check("gemma2", norm, "tensor model.layers.1.pre_feedforward_layernorm.weight: is missing");
}

#[test]
fn safetensors_headers_that_lie() {
    let check = |bytes: &[u8], expected: &str| check_file("model.safetensors", bytes, &[expected]);
    check(b"", "must be at least 8 bytes long, has 0");
    check(b"1234", "must be at least 8 bytes long, has 4");
    check(&[&1000u64.to_le_bytes()[..], b"{}"].concat(), "claims 1000 bytes, 2 follow");
    check(&[0xff; 64], "exceeds the limit of 100000000");
    check(&with_header("{\"a\": ", &[]), "header must be a JSON object of tensors");
    check(&with_header("[]", &[]), "header must be a JSON object of tensors");
    check(&with_header("{\"a\": {\"dtype\": \"F32\"}}", &[]), "missing field `shape`");
    check(&with_header("{}", &[0; 3]), "tensors must cover the data exactly: they end at byte 0 of 3");

    let entry = |name: &str, dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""{name}": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [{begin}, {end}]}}"#)
    };
    let check = |entries: &[String], expected: &str| {
        check(&with_header(&format!("{{{}}}", entries.join(",")), &[0; 16]), expected);
    };
    let a = || entry("a", "F32", "[2]", 0, 8);
    check(&[a()], "they end at byte 8 of 16");
    check(&[a(), entry("b", "F32", "[1]", 12, 16)], "tensor b: must begin where the one before it ends, at byte 8");
    check(&[a(), entry("b", "F32", "[3]", 4, 16)], "tensor b: must begin where the one before it ends, at byte 8");
    check(&[a(), entry("b", "F32", "[4]", 8, 24)], "tensor b: must lie within the data of 16 bytes; claims 8..24");
    check(&[a(), entry("b", "F32", "[4]", 8, 4)], "tensor b: must lie within the data of 16 bytes; claims 8..4");
    check(&[entry("a", "F32", "[3]", 0, 16)], "tensor a: shape [3] of F32 must take 12 bytes; claims 16");
    let huge = format!("[{0}, {0}]", 1u64 << 40);
    check(&[entry("a", "F32", &huge, 0, 16)], "must take a countable number of bytes; claims 16");
    check(&[entry("a", "F12", "[4]", 0, 16)], "tensor a: must be F32, F16 or BF16, is F12");
    check(&[entry("a", "F32", "[-4]", 0, 16)], "header must be a JSON object of tensors");
    let empty = || entry("a", "F32", "[0]", 16, 16);
    check(&[entry("b", "F32", "[4]", 0, 16), empty(), empty()], "tensor a: is listed twice");

    let folder = Checkpoint::llama(1).write();
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    check_refused(folder.path(), &["must hold model.safetensors or model.safetensors.index.json"]);
    fs::create_dir(folder.path().join("model.safetensors")).unwrap();
    check_refused(folder.path(), &["model.safetensors: must be a regular file"]);
}

#[test]
fn every_truncation_of_a_checkpoint_is_refused() {
    let folder = Checkpoint::llama(1).write();
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    for len in [1, 7, 8, 9, header - 1, header, header + 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..len]).unwrap();
        check_refused(folder.path(), &["model.safetensors"]);
    }
}

#[test]
fn indices_that_lie() {
    let check = |name: serde_json::Value, expected: &[&str]| {
        let folder = Checkpoint::llama(1).write_sharded();
        write_index(folder.path(), &json!({"weight_map": {"model.norm.weight": name}}));
        check_refused(folder.path(), &[&["model.safetensors.index.json"], expected].concat());
    };
    for name in ["../secret", "/etc/passwd", "sub/file", "..", ".", "", "a\\b", "C:x"] {
        check(json!(name), &["tensor model.norm.weight: the index must name a file of the same folder, names"]);
    }
    check(json!(7), &["`weight_map.model.norm.weight` must be a string, found 7"]);
    check(json!(null), &["the index must name a file of the same folder"]);
    let wrong_shard = "model-00001-of-00002.safetensors";
    check(json!(wrong_shard), &["the index places it in model-00001-of-00002.safetensors, which does not hold it"]);
    check(json!("model-00002-of-00002.safetensors"), &["tensor model.embed_tokens.weight: is missing"]);

    let folder = Checkpoint::llama(1).write_sharded();
    fs::remove_file(folder.path().join(wrong_shard)).unwrap();
    check_refused(folder.path(), &[wrong_shard]);
    write_index(folder.path(), &json!({"metadata": {}}));
    check_refused(folder.path(), &["`weight_map` is missing"]);
    write_index(folder.path(), &json!({"weight_map": []}));
    check_refused(folder.path(), &["`weight_map` must be an object"]);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_device_that_was_not_compiled_in_is_named() {
    let folder = Checkpoint::llama(1).write();
    let options = LoadOptions { device: DeviceChoice::Cuda(0), ..LoadOptions::default() };
    let error = load(&Source::Folder(folder.path().to_path_buf()), &options).err().unwrap().to_string();
    assert_eq!(error, "built without the feature `cuda`, which a CUDA device needs");
}

#[cfg(feature = "builtin-model")]
#[test]
fn the_built_in_model_loads_and_runs() {
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    let loaded = load(&Source::Builtin, &options).unwrap();
    assert_eq!(loaded.id, "storyteller");
    assert!(!loaded.eos.is_empty());
    assert!(logits(loaded).iter().all(|logit| logit.is_finite()));
}
