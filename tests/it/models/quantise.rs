//! Weights quantised as they are loaded, and files written with them: the same numbers, close to the ones they were.

use std::path::Path;
use std::process::{Command, Output};

use candle_core::quantized::GgmlDType;
use forebay_model::{
    DeviceChoice, KvDtype, LoadOptions, LoadedModel, Quantised, Source, TokenizerSource, load, quantize,
};
use forebay_text::Tokenizer;
use serde_json::json;

use crate::models::gguf;
use crate::models::goldens::{self, Golden};
use crate::support::checkpoint::Checkpoint;
use crate::support::gguf_file::GgufFile;
use crate::support::paged::Cache;

const KINDS: [(&str, Quantised); 2] = [("q8_0", Quantised::Q8_0), ("q4_k", Quantised::Q4K)];

fn open(path: &Path, quantise: Option<Quantised>) -> LoadedModel {
    let device = DeviceChoice::Cpu;
    let options = LoadOptions { device, quantise, kv_dtype: Some(KvDtype::F32), ..LoadOptions::default() };
    let mut loaded = load(&Source::at(path.to_path_buf()), &options).unwrap_or_else(|error| panic!("{error}"));
    loaded.model.allocate_kv(Cache::BLOCKS, Cache::BLOCK_SIZE).unwrap();
    loaded
}

fn forebay(args: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(args).args(paths).output().unwrap()
}

#[test]
fn a_quantised_checkpoint_is_the_quantised_file_bit_for_bit() {
    let (folder, golden) = (gguf::wide(), gguf::prompt());
    let plain = GgufFile::convert(folder.path(), GgmlDType::BF16);
    let work = tempfile::tempdir().unwrap();
    let from = plain.write(work.path());
    let (exact, _) = goldens::run(&mut open(folder.path(), None), &golden, 50, 0);
    for ((name, kind), packing) in KINDS.into_iter().zip([GgmlDType::Q8_0, GgmlDType::Q4K]) {
        let to = work.path().join(format!("{name}.gguf"));
        let written = quantize(&from, &to, kind).unwrap();
        assert!(written.bytes_after * 3 < written.bytes_before * 2, "{written:?}");
        let (ours, _) = goldens::run(&mut open(folder.path(), Some(kind)), &golden, 50, 0);
        let (of_file, _) = goldens::run(&mut open(&to, None), &golden, 50, 0);
        assert!(ours.iter().zip(&of_file).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}");
        let (kl, top1) = gguf::compare(&ours, &exact, gguf::VOCAB);
        // Random weights lose much; a file that candle has packed loses as much.
        let beside = tempfile::tempdir().unwrap();
        let theirs = GgufFile::convert(folder.path(), packing).write(beside.path());
        let (theirs, _) = goldens::run(&mut open(&theirs, None), &golden, 50, 0);
        let (theirs, _) = gguf::compare(&theirs, &exact, gguf::VOCAB);
        println!("{name} against BF16: KL {kl:.2e}, top-1 {top1:.3}; packed by candle {theirs:.2e}");
        assert!(kl > 0.0 && kl <= 1.1 * theirs, "{name}: KL {kl:e} against {theirs:e}");
    }
}

/// Widths of 64, 48 and 112 are no blocks of 256, and 48 and 112 none of 32: those fall back to eight bits, or stay.
#[test]
fn every_architecture_can_be_quantised() {
    for architecture in goldens::ARCHITECTURES {
        let golden = goldens::golden(architecture);
        let prompt = Golden { greedy: vec![0; 1], logits: Vec::new(), prompt: golden.prompt };
        for (name, kind) in KINDS {
            let mut loaded = open(&goldens::folder(architecture), Some(kind));
            let (logits, _) = goldens::run(&mut loaded, &prompt, 48, 0);
            let (kl, _) = gguf::compare(&logits, &golden.logits, logits.len() / prompt.prompt.len());
            assert!(kl > 0.0 && kl < 0.05, "{architecture}, {name}: KL {kl:e}");
        }
    }
}

#[test]
fn the_program_writes_a_file_that_it_serves() {
    let work = tempfile::tempdir().unwrap();
    let from = GgufFile::convert(gguf::wide().path(), GgmlDType::F16).write(work.path());
    let to = work.path().join("small.gguf");
    let out = forebay(&["model", "quantize"], &[&from, &to]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.contains("small.gguf: 15 of 20 tensors quantised"), "{said}");
    let out = forebay(&["model", "inspect"], &[&to]);
    let table = String::from_utf8(out.stdout).unwrap();
    assert!(table.contains("Q4_K (") && table.contains("Q8_0 ("), "{table}");
    // What stays is what it was.
    let left: Vec<_> = std::fs::read_dir(work.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn what_cannot_be_written_is_told_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let from = GgufFile::convert(gguf::wide().path(), GgmlDType::F16).write(work.path());
    let check = |paths: &[&Path], expected: &str| {
        let out = forebay(&["model", "quantize"], paths);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(2) && said.contains(expected), "{:?}: {said}", out.status);
    };
    check(&[&from, &from], "already exists");
    check(&[&work.path().join("none.gguf"), &work.path().join("a.gguf")], "none.gguf");
    check(&[&from, &work.path().join("no/folder/a.gguf")], "a.gguf: No such file or directory");
    check(&[&work.path().join("model.gguf")], "required arguments were not provided");
    std::fs::write(work.path().join("not.gguf"), b"GGML").unwrap();
    check(&[&work.path().join("not.gguf"), &work.path().join("b.gguf")], "not.gguf: must begin with GGUF");
    let out = forebay(&["model", "quantize", "--type", "q3_k"], &[&from, &work.path().join("c.gguf")]);
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 2);
}

/// llama.cpp's names, keys and order of rows, and back: the numbers are those of the folder quantised as it is loaded.
#[test]
fn a_folder_becomes_a_file_for_every_architecture() {
    let work = tempfile::tempdir().unwrap();
    for architecture in goldens::ARCHITECTURES {
        let golden = goldens::golden(architecture);
        let prompt = Golden { greedy: vec![0; 1], logits: Vec::new(), prompt: golden.prompt };
        let to = work.path().join(format!("{architecture}.gguf"));
        let written = quantize(&goldens::folder(architecture), &to, Quantised::Q8_0).unwrap_or_else(|e| panic!("{e}"));
        assert!(written.quantised > 5 && !written.tokenizer, "{architecture}: {written:?}");
        let (of_file, _) = goldens::run(&mut open(&to, None), &prompt, 48, 0);
        let folder = goldens::folder(architecture);
        let (of_folder, _) = goldens::run(&mut open(&folder, Some(Quantised::Q8_0)), &prompt, 48, 0);
        if architecture == "llama3-rope" {
            // A file holds the scaled frequencies in half the precision.
            let worst = of_file.iter().zip(&of_folder).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 0.05, "{architecture}: {worst}");
        } else {
            assert!(of_file.iter().zip(&of_folder).all(|(a, b)| a.to_bits() == b.to_bits()), "{architecture}");
        }
    }
}

#[test]
fn a_folders_tokenizer_and_template_go_along() {
    let work = tempfile::tempdir().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/storyteller");
    let to = work.path().join("storyteller.gguf");
    let out = forebay(&["model", "quantize"], &[&folder, &to]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!String::from_utf8_lossy(&out.stdout).contains("no tokenizer"));
    let (file, plain) = (open(&to, None), open(&folder, None));
    let (TokenizerSource::Gguf(vocab), TokenizerSource::Json(json)) = (&file.tokenizer, &plain.tokenizer) else {
        panic!("each its own kind");
    };
    let (ours, theirs) = (Tokenizer::from_gguf(vocab).unwrap(), Tokenizer::from_json(json).unwrap());
    for text in ["Once upon a time, there was a fox named Pip.", "<|user|>Héllo\n\n 12 foxes?<|end|>"] {
        assert_eq!(ours.encode(text, true), theirs.encode(text, true), "{text}");
    }
    assert_eq!((&file.eos, &file.chat.template), (&plain.eos, &plain.chat.template));
}

#[test]
fn what_a_file_cannot_say_is_refused_and_leaves_nothing() {
    let work = tempfile::tempdir().unwrap();
    let to = work.path().join("out.gguf");
    let refused = |folder: &Path| {
        let error = quantize(folder, &to, Quantised::Q8_0).expect_err("it cannot be said").to_string();
        assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0, "{error}");
        error
    };
    let changed = |architecture: &str, key: &str, value: serde_json::Value| {
        let mut checkpoint = Checkpoint::read(&goldens::folder(architecture));
        checkpoint.config[key] = value;
        let folder = checkpoint.write();
        std::fs::copy(goldens::folder(architecture).join("tokenizer.json"), folder.path().join("tokenizer.json"))
            .unwrap();
        folder
    };
    let dynamic = json!({"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0});
    let error = refused(changed("llama", "rope_parameters", dynamic).path());
    assert!(error.contains("rotary positions"), "{error}");
    let error = refused(changed("smollm3", "no_rope_layers", json!([0, 1, 1, 1])).path());
    assert!(error.contains("layers"), "{error}");
    let error = refused(&goldens::folder("bert-embedding"));
    assert!(error.contains("generates"), "{error}");
    let error = refused(&work.path().join("nowhere"));
    assert!(error.contains("nowhere"), "{error}");
}
