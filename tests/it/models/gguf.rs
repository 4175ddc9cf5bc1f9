//! GGUF files against the reference answers, against the checkpoints they were made from, and against themselves.

use std::path::Path;

use candle_core::quantized::GgmlDType;
use forebay_core::request::Pooling;
use forebay_kernels::bf16;
use forebay_model::{
    ChatFiles, DeviceChoice, KvDtype, LoadFormat, LoadOptions, LoadedModel, Rows, Source, TokenizerSource, load,
};
use serde_json::json;
use tempfile::TempDir;

use crate::models::goldens::{self, Golden, TOLERANCE};
use crate::support::checkpoint::Checkpoint;
use crate::support::gguf_file::{GgufFile, Value, text};
use crate::support::paged::{Cache, Sequence, forward};
use crate::support::server::{Server, post};

const QUANTISED: [GgmlDType; 12] = [
    GgmlDType::F16,
    GgmlDType::BF16,
    GgmlDType::Q4_0,
    GgmlDType::Q4_1,
    GgmlDType::Q5_0,
    GgmlDType::Q5_1,
    GgmlDType::Q8_0,
    GgmlDType::Q2K,
    GgmlDType::Q3K,
    GgmlDType::Q4K,
    GgmlDType::Q5K,
    GgmlDType::Q6K,
];

pub const VOCAB: usize = 320;

fn open(path: &Path, device: DeviceChoice) -> LoadedModel {
    let options = LoadOptions { device, kv_dtype: Some(KvDtype::F32), ..LoadOptions::default() };
    let mut loaded = load(&Source::at(path.to_path_buf()), &options).unwrap_or_else(|error| panic!("{error}"));
    loaded.model.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
    loaded
}

fn open_file(file: &GgufFile, device: DeviceChoice) -> LoadedModel {
    let folder = tempfile::tempdir().unwrap();
    // On Unix the map outlives the folder.
    open(&file.write(folder.path()), device)
}

#[test]
fn goldens_as_f32_files() {
    for architecture in goldens::ARCHITECTURES {
        let golden = goldens::golden(architecture);
        let file = GgufFile::convert(&goldens::folder(architecture), GgmlDType::F32);
        for device in [DeviceChoice::Cpu, DeviceChoice::Reference] {
            for (chunk, strangers) in [(48, 0), (7, 3)] {
                let (logits, greedy) = goldens::run(&mut open_file(&file, device), &golden, chunk, strangers);
                let worst = logits.iter().zip(&golden.logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert_eq!(logits.len(), golden.logits.len());
                assert!(worst <= TOLERANCE, "{architecture} on {device:?}: max |Δlogit| = {worst:e}");
                assert_eq!(greedy, golden.greedy, "{architecture} on {device:?}");
            }
        }
    }
}

#[test]
fn an_f32_file_is_its_checkpoint_bit_for_bit() {
    for architecture in [
        "llama",
        "mistral-window",
        "qwen2",
        "qwen3",
        "olmo2",
        "gemma3",
        "phi3",
        "granite",
        "smollm3",
        "mixtral",
        "qwen3-moe",
    ] {
        let golden = goldens::golden(architecture);
        let folder = goldens::folder(architecture);
        let file = GgufFile::convert(&folder, GgmlDType::F32);
        let (ours, _) = goldens::run(&mut open_file(&file, DeviceChoice::Cpu), &golden, 48, 0);
        let (expected, _) = goldens::run(&mut open(&folder, DeviceChoice::Cpu), &golden, 48, 0);
        assert!(ours == expected, "{architecture}");
    }
}

/// A Llama whose widths are whole blocks of 256.
pub fn wide() -> TempDir {
    let checkpoint = Checkpoint::from_config(
        json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
            "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
            "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "eos_token_id": 2, "tie_word_embeddings": true,
        }),
        21,
    );
    checkpoint.write()
}

pub fn prompt() -> Golden {
    let prompt: Vec<u32> = (0..200).map(|i| (i * i * 7 + i * 13) % 320).collect();
    Golden { logits: Vec::new(), greedy: vec![0; 8], prompt }
}

fn probabilities(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = logits.iter().map(|logit| f64::from(logit - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Mean Kullback-Leibler divergence of `ours` from `theirs` in nats, and the share of rows with the same best token.
pub fn compare(ours: &[f32], theirs: &[f32], vocab: usize) -> (f64, f64) {
    let rows = ours.len() / vocab;
    let (mut divergence, mut same) = (0.0, 0);
    for (ours, theirs) in ours.chunks(vocab).zip(theirs.chunks(vocab)) {
        let (p, q) = (probabilities(theirs), probabilities(ours));
        divergence += p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum::<f64>();
        same += usize::from(goldens::argmax(ours) == goldens::argmax(theirs));
    }
    (divergence / rows as f64, same as f64 / rows as f64)
}

/// Products of F16, Q2_K and Q3_K are those of the unpacked weights, so not a bit differs. Beside BF16 activations may have
/// sixteen bits, beside the other types they have eight and a scale, which moves logits a little; candle unpacks by its own code.
#[test]
fn every_type_agrees_with_its_own_numbers() {
    let (folder, golden) = (wide(), prompt());
    let run = |file: &GgufFile, device| goldens::run(&mut open_file(file, device), &golden, 50, 0).0;
    for packing in QUANTISED {
        let file = GgufFile::convert(folder.path(), packing);
        let mut unpacked = file.clone();
        unpacked.tensors.iter_mut().for_each(|entry| entry.unpack(packing));
        let expected = run(&unpacked, DeviceChoice::Cpu);
        let ours = run(&file, DeviceChoice::Cpu);
        if matches!(packing, GgmlDType::F16 | GgmlDType::Q2K | GgmlDType::Q3K) {
            assert!(ours.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "{packing:?}");
        } else if packing == GgmlDType::BF16 {
            let (kl, top1) = compare(&ours, &expected, VOCAB);
            let (most, least) = if bf16::row_bits() > 8 { (1e-7, 0.99) } else { (3e-4, 0.95) };
            assert!(kl < most && top1 >= least, "{packing:?}: KL {kl:e}, top-1 {top1}");
        } else {
            let (kl, top1) = compare(&ours, &expected, VOCAB);
            println!("{packing:?} against its own numbers: KL {kl:.2e}, top-1 {top1:.3}");
            // Random weights leave the best tokens close together; a trained model's figures are below.
            assert!(kl < 2e-3 && top1 >= 0.9, "{packing:?}: KL {kl:e}, top-1 {top1}");
        }
        let (kl, top1) = compare(&run(&file, DeviceChoice::Reference), &expected, VOCAB);
        assert!(kl < 1e-6 && top1 >= 0.99, "{packing:?} by candle: KL {kl:e}, top-1 {top1}");
    }
}

/// The built-in model, quantised, on stories of its own: how much each type loses. Prints the figures.
#[test]
fn what_each_type_loses_of_a_trained_model() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/storyteller");
    let mut original = open_file(&GgufFile::convert(&folder, GgmlDType::F32), DeviceChoice::Cpu);
    let vocab = original.model.vocab_size();
    let stories: Vec<Golden> = [[0, 40, 41], [0, 77, 12], [0, 120, 33], [0, 201, 90]]
        .into_iter()
        .map(|opening| {
            let opening = Golden { prompt: opening.to_vec(), logits: Vec::new(), greedy: vec![0; 240] };
            let (_, story) = goldens::run(&mut original, &opening, 3, 0);
            Golden { prompt: [&opening.prompt[..], &story].concat(), greedy: vec![0], ..opening }
        })
        .collect();
    let logits = |model: &mut LoadedModel| -> Vec<f32> {
        stories.iter().flat_map(|story| goldens::run(model, story, 50, 0).0).collect()
    };
    let expected = logits(&mut original);
    for packing in QUANTISED {
        let file = GgufFile::convert(&folder, packing);
        let ours = logits(&mut open_file(&file, DeviceChoice::Cpu));
        let (kl, top1) = compare(&ours, &expected, vocab);
        let mut unpacked = file.clone();
        unpacked.tensors.iter_mut().for_each(|entry| entry.unpack(packing));
        let (own_kl, own_top1) = compare(&ours, &logits(&mut open_file(&unpacked, DeviceChoice::Cpu)), vocab);
        println!(
            "{packing:?}: KL {kl:.2e}, top-1 {top1:.3}; against its own numbers in F32 {own_kl:.2e}, {own_top1:.4}"
        );
        let (most, least) = match packing {
            // Where rows are rounded to BF16, too.
            GgmlDType::BF16 if bf16::row_bits() <= 8 => (2e-5, 0.99),
            GgmlDType::F16 | GgmlDType::BF16 => (1e-6, 0.999),
            GgmlDType::Q8_0 => (2e-4, 0.98),
            GgmlDType::Q6K | GgmlDType::Q5K | GgmlDType::Q5_0 | GgmlDType::Q5_1 => (0.02, 0.9),
            GgmlDType::Q4K | GgmlDType::Q4_0 | GgmlDType::Q4_1 => (0.1, 0.8),
            _ => (1.0, 0.4),
        };
        assert!(kl <= most && top1 >= least, "{packing:?}: KL {kl:e}, top-1 {top1}");
        assert!(own_kl <= 5e-4 && own_top1 >= 0.98, "{packing:?}: KL {own_kl:e}, top-1 {own_top1} of its own numbers");
        assert!(packing != GgmlDType::Q8_0 || own_top1 >= 0.99, "Q8_0 agrees in {own_top1}");
    }
}

#[test]
fn quantised_batches_equal_solo_runs_bit_for_bit() {
    let folder = wide();
    let golden = Golden { prompt: prompt().prompt[..40].to_vec(), ..prompt() };
    for packing in QUANTISED {
        let mut loaded = open_file(&GgufFile::convert(folder.path(), packing), DeviceChoice::Cpu);
        let mut bits = |chunk, strangers| -> Vec<u32> {
            goldens::run(&mut loaded, &golden, chunk, strangers).0.iter().map(|logit| logit.to_bits()).collect()
        };
        let solo = bits(1, 0);
        for (chunk, strangers) in [(40, 0), (7, 3), (33, 2)] {
            assert!(bits(chunk, strangers) == solo, "{packing:?}, chunks of {chunk}, {strangers} strangers");
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert!(pool.install(|| bits(9, 1)) == solo, "{packing:?}, three threads");
    }
}

/// A tokenizer's keys, with ids below the vocabulary of the golden models.
pub fn with_vocabulary(file: &mut GgufFile) {
    let tokens = (0..VOCAB).map(|id| if id == 2 { "</s>".into() } else { format!("t{id}") }).collect();
    file.set("tokenizer.ggml.model", text("gpt2"))
        .set("tokenizer.ggml.pre", text("qwen2"))
        .set("tokenizer.ggml.tokens", Value::Texts(tokens))
        .set("tokenizer.ggml.token_type", Value::Integers(vec![1; VOCAB]))
        .set("tokenizer.ggml.scores", Value::Floats(vec![-0.5; VOCAB]))
        .set("tokenizer.ggml.merges", Value::Texts(vec!["t 1".into()]))
        .set("tokenizer.ggml.bos_token_id", Value::U32(1))
        .set("tokenizer.ggml.eos_token_id", Value::U32(2))
        .set("tokenizer.ggml.eot_token_id", Value::U32(7))
        .set("tokenizer.ggml.add_bos_token", Value::Bool(true))
        .set("tokenizer.chat_template", text("T"));
}

#[test]
fn how_states_are_pooled_is_handed_on() {
    let pooling = |number: Option<u32>| {
        let mut file = GgufFile::convert(&goldens::folder("qwen3"), GgmlDType::F32);
        if let Some(number) = number {
            file.set("qwen3.pooling_type", Value::U32(number));
        }
        open_file(&file, DeviceChoice::Cpu).pooling
    };
    for (number, expected) in [
        (None, None),
        (Some(0), None),
        (Some(1), Some(Pooling::Mean)),
        (Some(2), Some(Pooling::Cls)),
        (Some(3), Some(Pooling::Last)),
    ] {
        assert_eq!(pooling(number), expected, "{number:?}");
    }
}

#[test]
fn what_the_tokenizer_needs_is_handed_on() {
    let mut file = GgufFile::convert(&goldens::folder("llama"), GgmlDType::F32);
    with_vocabulary(&mut file);
    let loaded = open_file(&file, DeviceChoice::Cpu);
    assert_eq!((&*loaded.id, loaded.max_position_embeddings), ("model", 256));
    assert_eq!(loaded.eos, [2, 7]);
    let text = |text: &str| Some(text.to_string());
    assert_eq!(loaded.chat, ChatFiles { template: text("T"), bos_token: text("t1"), eos_token: text("</s>") });
    let TokenizerSource::Gguf(vocab) = loaded.tokenizer else { panic!("not from GGUF") };
    assert_eq!((&*vocab.model, vocab.pre.as_deref()), ("gpt2", Some("qwen2")));
    assert_eq!((vocab.tokens.len(), &*vocab.tokens[2], &*vocab.merges), (VOCAB, &b"</s>"[..], &["t 1".into()][..]));
    assert_eq!((vocab.token_types, vocab.scores), (vec![1; VOCAB], vec![-0.5; VOCAB]));
    assert_eq!((vocab.bos, vocab.eos, vocab.unknown), (Some(1), Some(2), None));
    assert_eq!((vocab.add_bos, vocab.add_eos, vocab.add_space_prefix), (Some(true), None, None));
}

#[test]
fn a_folder_with_one_file_is_that_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = GgufFile::convert(&goldens::folder("llama"), GgmlDType::F32);
    let path = file.write(folder.path());
    assert_eq!(open(folder.path(), DeviceChoice::Cpu).id, "model");
    std::fs::copy(&path, folder.path().join("other.GGUF")).unwrap();
    let source = Source::at(folder.path().to_path_buf());
    let error = load(&source, &LoadOptions::default()).err().unwrap().to_string();
    assert!(error.ends_with("holds 2 .gguf files and no config.json: name one of them"), "{error}");
    assert_eq!(open(&folder.path().join("other.GGUF"), DeviceChoice::Cpu).id, "other");
}

#[test]
fn dummy_weights_take_the_shapes_of_the_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let path = GgufFile::convert(&goldens::folder("qwen3"), GgmlDType::F32).write(folder.path());
    let options =
        LoadOptions { device: DeviceChoice::Cpu, format: LoadFormat::Dummy, seed: 3, ..LoadOptions::default() };
    let mut loaded = load(&Source::Gguf(path), &options).unwrap();
    loaded.model.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
    let mut sequence = Sequence::new(1);
    let tokens = [1, 2, 3];
    let out = forward(&mut loaded.model, &mut Cache::shuffled(1), &mut [(&mut sequence, &tokens)], Rows::All).0;
    assert!(out.data.iter().all(|logit| logit.is_finite()));
}

#[tokio::test]
async fn a_model_file_that_is_cut_short_while_it_is_served_hurts_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let checkpoint = wide();
    for packing in QUANTISED.into_iter().chain([GgmlDType::F32]) {
        let mut file = GgufFile::convert(checkpoint.path(), packing);
        with_vocabulary(&mut file);
        file.set("tokenizer.ggml.merges", Value::Texts(Vec::new())).unset("tokenizer.chat_template");
        let path = file.write(folder.path());
        let server = Server::start(&["--model", path.to_str().expect("utf-8")]);
        let ask = || {
            post(
                server.at("/v1/completions"),
                json!({"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0, "return_token_ids": true, "ignore_eos": true}),
            )
        };
        let (status, before) = ask().await;
        assert_eq!(status, 200, "{before}");
        std::fs::OpenOptions::new().write(true).open(&path).expect("the file").set_len(100).expect("cut");
        let (status, after) = ask().await;
        assert_eq!(
            (status, &after["choices"][0]["token_ids"]),
            (200, &before["choices"][0]["token_ids"]),
            "{packing:?}"
        );
    }
}
