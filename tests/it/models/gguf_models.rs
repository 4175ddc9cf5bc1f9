//! GGUF files that are whole and well formed, and hold metadata or tensors that make no model; what the program says then.

use std::process::Command;

use candle_core::quantized::GgmlDType;
use forebay_model::{DeviceChoice, LoadOptions, Source, load};

use crate::models::gguf_lies::{HONEST, check, set, unset};
use crate::models::goldens;
use crate::support::gguf_file::{GgufFile, Value, array, string, text};

#[test]
fn metadata_that_makes_no_model() {
    fn number(f: &mut GgufFile, key: &str, value: u32) {
        set(f, &format!("llama.{key}"), Value::U32(value));
    }
    check(&[
        ("no architecture", |f| unset(f, "general.architecture"), "`general.architecture` is missing"),
        (
            "an unknown one",
            |f| set(f, "general.architecture", text("gpt2")),
            "architecture gpt2 is not supported; supported: llama, qwen2, qwen3, qwen3moe, olmo2, gemma2, gemma3, phi3, granite, smollm3",
        ),
        (
            "one of nonsense",
            |f| set(f, "general.architecture", Value::U32(1)),
            "`general.architecture` must be a string in UTF-8, found 1",
        ),
        (
            "no layers",
            |f| number(f, "block_count", 0),
            "`llama.block_count` must be an integer from 1 to 4096, found 0",
        ),
        ("a missing number", |f| unset(f, "llama.block_count"), "`llama.block_count` is missing"),
        (
            "too many layers",
            |f| number(f, "block_count", u32::MAX),
            "`llama.block_count` must be an integer from 1 to 4096",
        ),
        ("one layer too many", |f| number(f, "block_count", 4), "tensor blk.3.attn_norm.weight: is missing"),
        (
            "no heads",
            |f| number(f, "attention.head_count", 0),
            "`llama.attention.head_count` must be an integer from 1",
        ),
        (
            "no KV heads",
            |f| number(f, "attention.head_count_kv", 0),
            "`llama.attention.head_count_kv` must be an integer from 1",
        ),
        (
            "heads that do not share",
            |f| number(f, "attention.head_count_kv", 3),
            "`llama.attention.head_count_kv` must divide attention.head_count, 4",
        ),
        (
            "heads that do not divide",
            |f| {
                f.unset("llama.attention.key_length").unset("llama.attention.value_length");
                number(f, "attention.head_count", 6);
            },
            "`llama.attention.head_count` must divide embedding_length, 64",
        ),
        ("odd heads", |f| number(f, "attention.key_length", 15), "`llama.attention.key_length` must be even"),
        (
            "other values than keys",
            |f| number(f, "attention.value_length", 32),
            "`llama.attention.value_length` must be the width of a head, 16",
        ),
        (
            "half a rotation",
            |f| number(f, "rope.dimension_count", 8),
            "`llama.rope.dimension_count` must be the width of a head, 16",
        ),
        (
            "no rotation",
            |f| number(f, "rope.dimension_count", 0),
            "`llama.rope.dimension_count` must be an integer from 1",
        ),
        (
            "a negative width",
            |f| set(f, "llama.embedding_length", Value::I32(-64)),
            "`llama.embedding_length` must be an integer from 1 to 1048576, found -64",
        ),
        (
            "a fraction",
            |f| set(f, "llama.embedding_length", Value::F32(64.0)),
            "`llama.embedding_length` must be an integer",
        ),
        (
            "another width",
            |f| number(f, "embedding_length", 128),
            "tensor token_embd.weight: must have shape [320, 128], has [320, 64]",
        ),
        ("no context", |f| number(f, "context_length", 0), "`llama.context_length` must be an integer from 1"),
        ("no vocabulary", |f| number(f, "vocab_size", 0), "`llama.vocab_size` must be an integer from 1"),
        (
            "none at all",
            |f| unset(f, "llama.vocab_size"),
            "`llama.vocab_size` is missing, and so is tokenizer.ggml.tokens",
        ),
        (
            "another vocabulary",
            |f| number(f, "vocab_size", 319),
            "tensor token_embd.weight: must have shape [319, 64], has [320, 64]",
        ),
        (
            "epsilon NaN",
            |f| set(f, "llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)),
            "layer_norm_rms_epsilon` must be a number from 0e0 to 1e0, found NaN",
        ),
        ("base 0", |f| set(f, "llama.rope.freq_base", Value::F32(0.0)), "`llama.rope.freq_base` must be a number"),
        ("experts of nobody", |f| number(f, "expert_count", 8), "`llama.expert_used_count` is missing"),
        (
            "more than there are",
            |f| {
                number(f, "expert_count", 8);
                number(f, "expert_used_count", 9);
            },
            "`llama.expert_used_count` must be at most the number of experts, 8, found 9",
        ),
        (
            "experts without tensors",
            |f| {
                number(f, "expert_count", 8);
                number(f, "expert_used_count", 2);
            },
            "tensor blk.0.ffn_gate_inp.weight: is missing",
        ),
        (
            "YaRN by nothing",
            |f| set(f, "llama.rope.scaling.type", text("yarn")),
            "`llama.rope.scaling.factor` is missing",
        ),
        (
            "another scaling",
            |f| set(f, "llama.rope.scaling.type", text("ntk")),
            "`llama.rope.scaling.type` must be none, linear, yarn or longrope, found \"ntk\"",
        ),
        (
            "linear by nothing",
            |f| set(f, "llama.rope.scaling.type", text("linear")),
            "`llama.rope.scaling.factor` is missing",
        ),
        (
            "a window of 0",
            |f| set(f, "forebay.attention.sliding_window", Value::U32(0)),
            "`forebay.attention.sliding_window` must be an integer from 1",
        ),
    ]);
}

#[test]
fn tensors_that_do_not_fit_the_metadata() {
    check(&[
        (
            "a missing tensor",
            |f| f.tensors.retain(|entry| entry.name != "blk.1.ffn_up.weight"),
            "tensor blk.1.ffn_up.weight: is missing",
        ),
        (
            "a missing norm",
            |f| f.tensors.retain(|entry| entry.name != "output_norm.weight"),
            "tensor output_norm.weight: is missing",
        ),
        (
            "a transposed matrix",
            |f| f.tensor("blk.0.ffn_up.weight").sizes.reverse(),
            "blk.0.ffn_up.weight: must have shape [112, 64], has [64, 112]",
        ),
        (
            "a flat matrix",
            |f| f.tensor("blk.0.attn_q.weight").sizes = vec![64 * 64],
            "must have shape [64, 64], has [4096]",
        ),
        (
            "a type we do not compute with",
            |f| {
                let entry = f.tensor("blk.0.attn_q.weight");
                (entry.kind, entry.bytes) = (26, vec![0; 64 * 64 * 4]);
            },
            "blk.0.attn_q.weight: must be F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL or MXFP4, is I32",
        ),
        (
            "one bias of six",
            |f| {
                let mut entry = f.tensor("output_norm.weight").clone();
                entry.name = "blk.0.attn_q.bias".into();
                f.tensors.push(entry);
            },
            "tensor blk.0.attn_k.bias: is missing",
        ),
        ("too few divisors", |f| divisors(f, vec![1.0; 7]), "tensor rope_freqs.weight: must have shape [8], has [7]"),
        (
            "a divisor of 0",
            |f| divisors(f, vec![0.0; 8]),
            "tensor rope_freqs.weight: must hold positive numbers, holds 0",
        ),
        ("a divisor of NaN", |f| divisors(f, vec![f32::NAN; 8]), "must hold positive numbers, holds NaN"),
    ]);
}

#[test]
fn experts_that_do_not_fit_the_metadata() {
    let refused = |change: fn(&mut GgufFile), expected: &str| {
        let mut file = GgufFile::convert(&goldens::folder("mixtral"), GgmlDType::F32);
        change(&mut file);
        let folder = tempfile::tempdir().unwrap();
        let error = load(&Source::at(file.write(folder.path())), &LoadOptions::default()).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(
        |f| set(f, "llama.expert_count", Value::U32(3)),
        "tensor blk.0.ffn_gate_inp.weight: must have shape [3, 64], has [4, 64]",
    );
    refused(
        |f| f.tensor("blk.1.ffn_up_exps.weight").sizes = vec![64, 56, 8],
        "tensor blk.1.ffn_up_exps.weight: must have shape [4, 112, 64], has [8, 56, 64]",
    );
    refused(
        |f| f.tensors.retain(|entry| entry.name != "blk.2.ffn_down_exps.weight"),
        "tensor blk.2.ffn_down_exps.weight: is missing",
    );
}

fn divisors(file: &mut GgufFile, numbers: Vec<f32>) {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut entry = file.tensors[0].clone();
    (entry.name, entry.kind, entry.sizes) = ("rope_freqs.weight".into(), 0, vec![numbers.len() as u64]);
    entry.bytes = bytes;
    file.tensors.push(entry);
}

#[test]
fn tokenizers_that_contradict_themselves() {
    fn tokens(f: &mut GgufFile, count: usize) {
        set(f, "tokenizer.ggml.tokens", Value::Texts((0..count).map(|id| format!("t{id}")).collect()));
    }
    fn with_tokens(f: &mut GgufFile, key: &str, value: Value) {
        tokens(f, 320);
        set(f, key, value);
    }
    check(&[
        ("no tokens", |f| tokens(f, 0), "`tokenizer.ggml.tokens` must not be empty"),
        ("fewer than rows", |f| tokens(f, 319), "tensor token_embd.weight: must have shape [319, 64], has [320, 64]"),
        (
            "tokens of numbers",
            |f| set(f, "tokenizer.ggml.tokens", Value::Integers(vec![1; 320])),
            "`tokenizer.ggml.tokens` must be an array of strings, found an array of 320 I32",
        ),
        (
            "scores of bytes",
            |f| with_tokens(f, "tokenizer.ggml.scores", array(1, 320, &[0; 320])),
            "`tokenizer.ggml.scores` must be an array of F32, found an array of 320 I8",
        ),
        (
            "too few scores",
            |f| with_tokens(f, "tokenizer.ggml.scores", Value::Floats(vec![0.0; 319])),
            "`tokenizer.ggml.scores` must have one element for each of the 320 tokens",
        ),
        (
            "too few types",
            |f| with_tokens(f, "tokenizer.ggml.token_type", Value::Integers(vec![1; 3])),
            "`tokenizer.ggml.token_type` must have one element for each",
        ),
        (
            "an end beyond",
            |f| set(f, "tokenizer.ggml.eos_token_id", Value::U32(320)),
            "`tokenizer.ggml.eos_token_id` must be an integer from 0 to 319, found 320",
        ),
        (
            "no beginning",
            |f| set(f, "tokenizer.ggml.bos_token_id", Value::I32(-1)),
            "`tokenizer.ggml.bos_token_id` must be an integer from 0 to 319, found -1",
        ),
        (
            "a flag of text",
            |f| set(f, "tokenizer.ggml.add_bos_token", text("yes")),
            "`tokenizer.ggml.add_bos_token` must be true or false, found \"yes\"",
        ),
        (
            "merges of nonsense",
            |f| set(f, "tokenizer.ggml.merges", array(8, 1, &string(b"\xff"))),
            "`tokenizer.ggml.merges` must be UTF-8",
        ),
        (
            "a template of numbers",
            |f| set(f, "tokenizer.chat_template", Value::U8(1)),
            "`tokenizer.chat_template` must be a string in UTF-8",
        ),
        (
            "millions of merges",
            |f| set(f, "tokenizer.ggml.merges", array(8, 1 << 23, &vec![0; 8 << 23])),
            "`tokenizer.ggml.merges` must have at most 4194304 elements",
        ),
    ]);
}

#[test]
fn the_program_says_what_is_wrong_and_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = HONEST.clone();
    file.set("llama.block_count", Value::U32(0));
    let path = file.write(folder.path());
    for before in [&["model", "inspect"][..], &["serve", "--port", "0", "--model"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        let out = command.args(before).arg(&path).env("FOREBAY__STORE__URL", "memory").output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{before:?}: {said}");
        assert!(said.contains("model.gguf: `llama.block_count` must be an integer from 1 to 4096, found 0"), "{said}");
    }
}

#[test]
fn inspect_prints_what_the_file_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = GgufFile::convert(&goldens::folder("qwen3"), GgmlDType::F16);
    let path = file.write(folder.path());
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_forebay")).args(["model", "inspect"]).arg(&path).args(args).output();
        let out = out.unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let table = run(&[]);
    for part in [
        "architecture  qwen3",
        "quantisation  F16 (",
        "context       256 tokens",
        "KV per token  768 B",
        "will it fit   ",
    ] {
        assert!(table.contains(part), "{part} in\n{table}");
    }
    let object: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert_eq!(object["kv_bytes_per_token"], 2 * 3 * 64 * 2);
    let numbers: u64 = file.tensors.iter().map(|entry| entry.sizes.iter().product::<u64>()).sum();
    assert_eq!(object["parameters"], numbers);
}

/// Every type of ggml that we know and do not compute with.
#[test]
fn types_that_are_not_read_are_refused_by_name() {
    const TYPES: [(u32, &str, usize, usize); 18] = [
        (9, "Q8_1", 32, 36),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (36, "IQ4_NL_4_4", 0, 0),
    ];
    let file = GgufFile::convert(crate::models::gguf::wide().path(), GgmlDType::F16);
    let work = tempfile::tempdir().unwrap();
    for (kind, name, numbers, bytes) in TYPES {
        let mut file = file.clone();
        let entry = file.tensor("blk.0.attn_q.weight");
        let count: u64 = entry.sizes.iter().product();
        entry.kind = kind;
        entry.bytes = vec![0; (count as usize).checked_div(numbers).unwrap_or(0) * bytes];
        let path = file.write(work.path());
        let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
        let error = load(&Source::Gguf(path), &options).err().expect("refused").to_string();
        // A type that is gone has no size, so nothing but its number is known.
        let named = if numbers == 0 { format!("type {kind} does not exist") } else { format!("MXFP4, is {name}") };
        assert!(error.contains("blk.0.attn_q.weight") && error.contains(&named), "{name}: {error}");
    }
}
