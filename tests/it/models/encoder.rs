//! Encoders: the golden BERT on both backends and in company, its family, and what a server makes of a model that only
//! embeds.

use std::fs;
use std::path::Path;

use forebay::generate::normalised;
use forebay_core::request::Pooling;
use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};
use forebay_model::{Asked, DeviceChoice, ForwardError, LoadOptions, Model, Rows, Source};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::models::goldens::TOLERANCE;
use crate::support::checkpoint::{Checkpoint, Entry};
use crate::support::server::{Server, golden_folder, post};

const GOLDEN: &str = "bert-embedding";
const BLOCK_SIZE: usize = 8;
const WIDTH: usize = 64;

fn open(folder: &Path, device: DeviceChoice) -> Model {
    let options = LoadOptions { device, ..LoadOptions::default() };
    let mut model =
        forebay_model::load(&Source::Folder(folder.to_path_buf()), &options).expect("the model loads").model;
    model.allocate_kv(128, BLOCK_SIZE).expect("memory for keys and values");
    model
}

fn golden(device: DeviceChoice) -> Model {
    open(&golden_folder(GOLDEN), device)
}

/// The golden prompts, padding left out, and their vectors.
fn reference() -> Vec<(Vec<u32>, Vec<f32>)> {
    let bytes = fs::read(golden_folder(GOLDEN).join("golden.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let data = |name: &str| file.tensor(name).unwrap().data().to_vec();
    let integers = |name: &str| -> Vec<i64> {
        data(name).as_chunks::<8>().0.iter().map(|eight| i64::from_le_bytes(*eight)).collect()
    };
    let vectors: Vec<f32> =
        data("mean_pooled_normalized").as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect();
    let (ids, mask) = (integers("input_ids"), integers("attention_mask"));
    let rows = ids.chunks(24).zip(mask.chunks(24)).map(|(ids, mask)| {
        ids.iter().zip(mask).filter(|(_, seen)| **seen == 1).map(|(&id, _)| id as u32).collect::<Vec<u32>>()
    });
    rows.zip(vectors.chunks(WIDTH).map(<[f32]>::to_vec)).collect()
}

fn prompt(length: usize, salt: usize) -> Vec<u32> {
    (0..length).map(|i| ((i + salt) * 37 % 320) as u32).collect()
}

/// One step with these prompts, blocks of each scattered; all of their rows' states are wanted.
fn batch(prompts: &[&[u32]]) -> StepBatch {
    let mut batch = StepBatch::default();
    let mut blocks = (0..128u32).map(|block| BlockId(block * 37 % 128));
    for (seq, tokens) in prompts.iter().enumerate() {
        let table: Vec<BlockId> = blocks.by_ref().take(tokens.len().div_ceil(BLOCK_SIZE)).collect();
        let rows = batch.tokens.len()..batch.tokens.len() + tokens.len();
        batch.tokens.extend_from_slice(tokens);
        batch.positions.extend(0..tokens.len() as u32);
        let slot = |at: usize| table[at / BLOCK_SIZE].0 * BLOCK_SIZE as u32 + (at % BLOCK_SIZE) as u32;
        batch.slots.extend((0..tokens.len()).map(slot));
        let start = batch.tables.len();
        batch.tables.extend(table);
        let table = start..batch.tables.len();
        batch.chunks.push(BatchChunk { seq: SeqId(seq as u64), rows, table, sample: true, proposed: 0 });
    }
    batch
}

fn compute(model: &mut Model, batch: &StepBatch) -> Result<Vec<f32>, ForwardError> {
    let rows: Vec<usize> = (0..batch.tokens.len()).collect();
    let asked = Asked { rows: Rows::Picked(&[]), states: &rows, adapters: &[] };
    model.compute(batch, asked).map(|computed| computed.states.to_vec())
}

/// The hidden states of each prompt, all computed in one step.
fn states(model: &mut Model, prompts: &[&[u32]]) -> Vec<Vec<f32>> {
    let batch = batch(prompts);
    let all = compute(model, &batch).expect("a step");
    batch.chunks.iter().map(|chunk| all[chunk.rows.start * WIDTH..chunk.rows.end * WIDTH].to_vec()).collect()
}

fn pooled(states: &[f32], pooling: Pooling) -> Vec<f32> {
    let rows = states.len() / WIDTH;
    match pooling {
        Pooling::Cls => states[..WIDTH].to_vec(),
        Pooling::Last => states[(rows - 1) * WIDTH..].to_vec(),
        Pooling::Mean => {
            let sum = |at: usize| states.iter().skip(at).step_by(WIDTH).map(|&x| f64::from(x)).sum::<f64>();
            (0..WIDTH).map(|at| (sum(at) / rows as f64) as f32).collect()
        }
    }
}

#[test]
fn the_golden_vectors_on_both_backends() {
    let reference = reference();
    let prompts: Vec<&[u32]> = reference.iter().map(|(tokens, _)| &tokens[..]).collect();
    assert_eq!(prompts.iter().map(|tokens| tokens.len()).collect::<Vec<_>>(), [24, 15]);
    for device in [DeviceChoice::Cpu, DeviceChoice::Reference] {
        let states = states(&mut golden(device), &prompts);
        for (states, (_, expected)) in states.iter().zip(&reference) {
            let vector = normalised(&pooled(states, Pooling::Mean), WIDTH);
            let worst = vector.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= TOLERANCE, "on {device:?}: max |Δ| = {worst:e}");
        }
    }
}

#[test]
fn a_prompt_has_the_same_bits_in_any_company() {
    let mut model = golden(DeviceChoice::Cpu);
    let prompts: Vec<Vec<u32>> =
        [1, 2, 7, 31, 32, 33, 64, 100, 128].into_iter().map(|length| prompt(length, length)).collect();
    let alone: Vec<Vec<f32>> = prompts.iter().map(|tokens| states(&mut model, &[tokens]).remove(0)).collect();
    let bits = |states: &[f32]| states.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
    let mut together = |order: &[usize]| {
        let several: Vec<&[u32]> = order.iter().map(|&index| &prompts[index][..]).collect();
        for (states, &index) in states(&mut model, &several).iter().zip(order) {
            assert!(bits(states) == bits(&alone[index]), "prompt {index} in {order:?}");
        }
    };
    together(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    together(&[8, 3, 3, 0, 6, 1, 1, 7]);
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| together(&[4, 8, 2, 5]));
    }
}

#[test]
fn every_token_sees_the_whole_prompt() {
    let mut model = golden(DeviceChoice::Cpu);
    let (one, mut other) = (prompt(40, 1), prompt(40, 1));
    other[39] ^= 1;
    let first = |tokens: &[u32], model: &mut Model| states(model, &[tokens])[0][..WIDTH].to_vec();
    assert_ne!(first(&one, &mut model), first(&other, &mut model), "the first sees the last");
}

#[test]
fn what_an_encoder_cannot_compute_is_an_error_that_changes_nothing() {
    let mut model = golden(DeviceChoice::Cpu);
    let tokens = prompt(20, 5);
    let good = batch(&[&tokens]);
    let expected = compute(&mut model, &good).expect("a step");
    let mut cut = good.clone();
    cut.positions.iter_mut().for_each(|position| *position += 4);
    cut.slots = good.slots[4..].iter().copied().chain([4, 5, 6, 7].map(|at| good.tables[2].0 * 8 + at)).collect();
    let error = compute(&mut model, &cut).expect_err("half a prompt").to_string();
    assert!(error.contains("prompts whole"), "{error}");
    let error = compute(&mut model, &batch(&[&prompt(129, 0)])).expect_err("too long").to_string();
    assert!(error.contains("129") && error.contains("128"), "{error}");
    let asked = Asked { rows: Rows::Sampled, states: &[], adapters: &[] };
    let error = model.compute(&good, asked).expect_err("no logits").to_string();
    assert!(error.contains("no logits"), "{error}");
    assert_eq!(compute(&mut model, &good).expect("a step"), expected);
}

/// The golden checkpoint, changed.
fn changed(change: impl FnOnce(&mut Checkpoint)) -> TempDir {
    let mut checkpoint = Checkpoint::read(&golden_folder(GOLDEN));
    change(&mut checkpoint);
    checkpoint.write()
}

fn numbers(entry: &Entry) -> Vec<f32> {
    entry.bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

fn renamed(checkpoint: &mut Checkpoint, names: &[(&str, &str)]) {
    for entry in &mut checkpoint.tensors {
        entry.name = names.iter().fold(entry.name.clone(), |name, (from, to)| name.replace(from, to));
    }
}

/// The same network as others of the family would save it gives the same bits.
#[test]
fn the_family_differs_in_names_and_positions() {
    const POSITIONS: &str = "embeddings.position_embeddings.weight";
    let tokens = prompt(50, 3);
    let expected = states(&mut golden(DeviceChoice::Cpu), &[&tokens]);
    let check = |what: &str, change: &dyn Fn(&mut Checkpoint)| {
        let folder = changed(change);
        assert_eq!(states(&mut open(folder.path(), DeviceChoice::Cpu), &[&tokens]), expected, "{what}");
    };
    check("with a head", &|checkpoint| {
        checkpoint.config["architectures"] = json!(["BertForMaskedLM"]);
        checkpoint.tensors.iter_mut().for_each(|entry| entry.name = format!("bert.{}", entry.name));
    });
    check("the first names of norms", &|checkpoint| {
        renamed(checkpoint, &[("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")]);
    });
    let behind_padding = |class: &'static str| {
        move |checkpoint: &mut Checkpoint| {
            checkpoint.config["architectures"] = json!([class]);
            (checkpoint.config["pad_token_id"], checkpoint.config["max_position_embeddings"]) = (json!(1), json!(130));
            let entry = checkpoint.tensor(POSITIONS);
            entry.shape[0] += 2;
            // What lies there is never read as a position.
            let padding = [f32::NAN.to_le_bytes(); 2 * WIDTH].concat();
            entry.bytes.splice(0..0, padding);
        }
    };
    check("RoBERTa", &behind_padding("RobertaModel"));
    check("XLM-RoBERTa", &behind_padding("XLMRobertaModel"));
    check("DistilBERT", &|checkpoint| {
        let kinds = numbers(checkpoint.tensor("embeddings.token_type_embeddings.weight"));
        let positions = numbers(checkpoint.tensor(POSITIONS)).into_iter().enumerate();
        let both = positions.map(|(at, x)| x + kinds[at % WIDTH]).flat_map(f32::to_le_bytes).collect();
        checkpoint.tensor(POSITIONS).bytes = both;
        checkpoint.tensors.retain(|entry| !entry.name.contains("token_type"));
        renamed(
            checkpoint,
            &[
                ("encoder.layer.", "transformer.layer."),
                ("attention.self.query", "attention.q_lin"),
                ("attention.self.key", "attention.k_lin"),
                ("attention.self.value", "attention.v_lin"),
                ("attention.output.dense", "attention.out_lin"),
                ("attention.output.LayerNorm", "sa_layer_norm"),
                ("intermediate.dense", "ffn.lin1"),
                ("output.dense", "ffn.lin2"),
                ("output.LayerNorm", "output_layer_norm"),
            ],
        );
        checkpoint.config = json!({
            "architectures": ["DistilBertModel"], "model_type": "distilbert", "dim": 64, "hidden_dim": 128, "n_heads": 4,
            "n_layers": 2, "vocab_size": 320, "max_position_embeddings": 128, "activation": "gelu",
        });
    });
}

#[test]
fn each_lie_of_a_checkpoint_has_its_own_error() {
    let check = |change: &dyn Fn(&mut Checkpoint), parts: &[&str]| {
        let folder = changed(change);
        let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
        let loaded = forebay_model::load(&Source::Folder(folder.path().to_path_buf()), &options);
        let error = loaded.err().expect("it lies").to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let query = "encoder.layer.1.attention.self.query.weight";
    check(
        &|c| c.config["architectures"] = json!(["BertForTokenClassification"]),
        &["BertForTokenClassification", "BertModel"],
    );
    check(&|c| c.tensors.retain(|entry| entry.name != query), &[query, "is missing"]);
    check(&|c| c.tensor(query).shape = vec![32, 128], &[query, "[64, 64]", "[32, 128]"]);
    check(&|c| c.tensor("embeddings.LayerNorm.bias").dtype = "I32", &["embeddings.LayerNorm.bias", "I32"]);
    check(&|c| c.config["hidden_act"] = json!("relu"), &["`hidden_act`"]);
}

#[test]
fn adapters_are_refused() {
    let options = LoadOptions { adapters: vec!["some/adapter".into()], ..LoadOptions::default() };
    let error =
        forebay_model::load(&Source::Folder(golden_folder(GOLDEN)), &options).err().expect("refused").to_string();
    assert!(error.contains("some/adapter") && error.contains("only embeds"), "{error}");
}

/// As `tokenizer.json` of the golden folder cuts them.
const FOX: (&str, &[u32]) = ("The Fox ran home.", &[2, 94, 95, 96, 97, 41, 3]);
const SINGING: (&str, &[u32]) = ("Héllo singing foxes!", &[2, 108, 62, 62, 65, 124, 87, 95, 55, 69, 43, 3]);

/// The vectors of an answer, and how many tokens its prompts had.
async fn embedded(server: &Server, body: Value) -> (Vec<Vec<f32>>, u64) {
    let (status, answer) = post(server.at("/v1/embeddings"), body).await;
    assert_eq!(status, 200, "{answer}");
    let vector = |object: &Value| {
        let numbers = object["embedding"].as_array().expect("numbers").iter();
        numbers.map(|x| x.as_f64().expect("a number") as f32).collect()
    };
    let tokens = answer["usage"]["prompt_tokens"].as_u64().expect("a count");
    (answer["data"].as_array().expect("a list").iter().map(vector).collect(), tokens)
}

#[tokio::test]
async fn texts_become_vectors_through_word_pieces() {
    let mut model = golden(DeviceChoice::Cpu);
    let server = Server::golden(GOLDEN, &["--max-num-batched-tokens", "8"]);
    let expected: Vec<Vec<f32>> = [FOX, SINGING]
        .iter()
        .map(|(_, tokens)| normalised(&pooled(&states(&mut model, &[tokens])[0], Pooling::Mean), WIDTH))
        .collect();
    assert_eq!(embedded(&server, json!({"input": [FOX.0, SINGING.0]})).await, (expected.clone(), 19));
    assert_eq!(embedded(&server, json!({"input": FOX.0})).await, (vec![expected[0].clone()], 7));
    assert_eq!(embedded(&server, json!({"input": SINGING.1})).await, (vec![expected[1].clone()], 12));
    // Cut, a text keeps what the tokenizer puts around it.
    let cut = [&SINGING.1[..4], &[3]].concat();
    let (vectors, tokens) = embedded(&server, json!({"input": SINGING.0, "truncate_prompt_tokens": 5})).await;
    assert_eq!((&vectors, tokens), (&embedded(&server, json!({"input": cut})).await.0, 5));
}

/// Many more tokens than a step usually takes, in one request and from many at once: no prompt is cut, all have the
/// vectors that they have alone.
#[tokio::test]
async fn many_prompts_at_once_keep_their_vectors() {
    let mut model = golden(DeviceChoice::Cpu);
    let prompts: Vec<Vec<u32>> = (0..40).map(|i| prompt(1 + i * 53 % 128, i)).collect();
    for (pooling, kind) in [("mean", Pooling::Mean), ("cls", Pooling::Cls), ("last", Pooling::Last)] {
        let vector =
            |tokens: &Vec<u32>, model: &mut Model| normalised(&pooled(&states(model, &[tokens])[0], kind), WIDTH);
        let expected: Vec<Vec<f32>> = prompts.iter().map(|tokens| vector(tokens, &mut model)).collect();
        let tight = ["--pooling", pooling, "--max-num-batched-tokens", "16", "--max-num-seqs", "5"];
        for args in [&tight[..], &["--pooling", pooling, "--max-num-batched-tokens", "4096"]] {
            let server = Server::golden(GOLDEN, args);
            let whole = json!({"input": prompts});
            let halves = [json!({"input": prompts[..20]}), json!({"input": prompts[20..]})];
            let [first, second] = halves.map(|body| embedded(&server, body));
            let ((all, _), (first, _), (second, _)) = tokio::join!(embedded(&server, whole), first, second);
            assert!(all == expected, "{pooling}, {args:?}");
            assert!([first, second].concat() == expected, "{pooling} beside others, {args:?}");
        }
    }
}

#[tokio::test]
async fn what_it_cannot_answer_is_said() {
    let server = Server::golden(GOLDEN, &[]);
    let chat = json!([{"role": "user", "content": "the fox"}]);
    for (route, body) in [
        ("/v1/completions", json!({"prompt": "the fox"})),
        ("/v1/completions", json!({"prompt": "the fox", "stream": true})),
        ("/v1/chat/completions", json!({"messages": chat})),
        ("/v1/responses", json!({"input": "the fox"})),
    ] {
        let (status, answer) = post(server.at(route), body).await;
        let error = &answer["error"];
        assert_eq!(
            (status, error["code"].as_str(), error["param"].as_str()),
            (400, Some("model_only_embeds"), Some("model")),
            "{route}: {answer}"
        );
    }
    let (status, answer) =
        post(server.at("/v1/messages"), json!({"model": GOLDEN, "max_tokens": 5, "messages": chat})).await;
    assert_eq!((status, answer["error"]["type"].as_str()), (400, Some("invalid_request_error")), "{answer}");
    let (vectors, tokens) = embedded(&server, json!({"input": prompt(128, 0)})).await;
    assert_eq!((vectors.len(), tokens), (1, 128), "a prompt may fill the context");
    let (status, answer) = post(server.at("/v1/embeddings"), json!({"input": prompt(129, 0)})).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")), "{answer}");
    let (status, answer) =
        post(server.at("/v1/rerank"), json!({"query": FOX.0, "documents": [SINGING.0, FOX.0]})).await;
    assert_eq!((status, &answer["results"][0]["index"]), (200, &json!(1)), "{answer}");
}

/// The golden folder with these files laid over it; an empty text takes one away.
fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let golden = golden_folder(GOLDEN);
    fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    let names = ["config.json", "model.safetensors", "tokenizer.json", "modules.json", "sentence_bert_config.json"];
    for name in names.into_iter().chain(["1_Pooling/config.json"]) {
        fs::copy(golden.join(name), folder.path().join(name)).unwrap();
    }
    for (name, text) in files {
        let path = folder.path().join(name);
        if text.is_empty() { fs::remove_file(path).unwrap() } else { fs::write(path, text).unwrap() }
    }
    folder
}

#[tokio::test]
async fn a_folder_of_sentence_transformers_says_how() {
    let mut model = golden(DeviceChoice::Cpu);
    let of_fox = states(&mut model, &[FOX.1]).remove(0);
    let asks = async |files: &[(&str, &str)], text: &str| {
        let folder = folder_with(files);
        let server = Server::start(&["--model", folder.path().to_str().expect("utf-8")]);
        embedded(&server, json!({"input": text})).await.0.remove(0)
    };
    let mean = pooled(&of_fox, Pooling::Mean);
    assert_eq!(asks(&[("modules.json", ""), ("1_Pooling/config.json", "")], FOX.0).await, normalised(&mean, WIDTH));
    let cls = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    let vector = asks(&[("1_Pooling/config.json", cls)], FOX.0).await;
    assert_eq!(vector, normalised(&pooled(&of_fox, Pooling::Cls), WIDTH));
    let raw = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;
    assert_eq!(asks(&[("modules.json", raw)], FOX.0).await, mean, "as long as it is");
    // A tokenizer that tells upper from lower case, and a folder that wants neither told.
    let tokenizer = fs::read_to_string(golden_folder(GOLDEN).join("tokenizer.json")).unwrap();
    let cased = tokenizer.replace("\"lowercase\": true", "\"lowercase\": false");
    assert_ne!(cased, tokenizer);
    let settings = r#"{"max_seq_length": 10, "do_lower_case": true}"#;
    let files = [("tokenizer.json", &cased[..]), ("sentence_bert_config.json", settings)];
    assert_eq!(asks(&files, FOX.0).await, normalised(&mean, WIDTH));
    assert_ne!(asks(&files[..1], FOX.0).await, normalised(&mean, WIDTH));
    let folder = folder_with(&files);
    let server = Server::start(&["--model", folder.path().to_str().expect("utf-8")]);
    let (status, answer) = post(server.at("/v1/embeddings"), json!({"input": SINGING.1})).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("context_length_exceeded")), "{answer}");
}

#[test]
fn quantised_weights_embed_much_the_same() {
    let (tokens, _) = reference().remove(0);
    let exact = pooled(&states(&mut golden(DeviceChoice::Cpu), &[&tokens])[0], Pooling::Mean);
    let options = LoadOptions { quantise: Some(forebay_model::Quantised::Q8_0), ..LoadOptions::default() };
    let mut model = forebay_model::load(&Source::Folder(golden_folder(GOLDEN)), &options).expect("it loads").model;
    model.allocate_kv(128, BLOCK_SIZE).expect("memory");
    let vector = pooled(&states(&mut model, &[&tokens])[0], Pooling::Mean);
    let likeness = forebay::generate::similarity(&normalised(&vector, WIDTH), &normalised(&exact, WIDTH));
    assert!(likeness > 0.999 && vector != exact, "{likeness}");
}
