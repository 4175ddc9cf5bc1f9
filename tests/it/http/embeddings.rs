//! Embeddings over the real binary against the model's own hidden states, and in company.

use forebay::generate::{normalised, similarity};
use forebay_core::request::{Event, FinishReason, Goal, Limits, Parameters, Pooling};
use forebay_core::step::{BatchChunk, StepBatch};
use forebay_core::units::{BlockId, SeqId};
use forebay_model::{Asked, LoadOptions, Model, Rows, Source};
use reqwest::Client;
use serde_json::{Value, json};

use crate::support::rig::{self, Rig, Setup};
use crate::support::server::{Server, post};

const BLOCK_SIZE: usize = 16;

fn model() -> Model {
    let mut model = forebay_model::load(&Source::Builtin, &LoadOptions::default()).expect("the model loads").model;
    model.allocate_kv(64, BLOCK_SIZE).expect("memory for the cache");
    model
}

fn prompt(length: usize, salt: usize) -> Vec<u32> {
    (0..length).map(|i| 3 + ((i + salt) * 37 % 250) as u32).collect()
}

/// The hidden states of a prompt that is alone, computed in one piece.
fn states(model: &mut Model, tokens: &[u32]) -> Vec<Vec<f32>> {
    let rows: Vec<usize> = (0..tokens.len()).collect();
    let table: Vec<BlockId> = (0..tokens.len().div_ceil(BLOCK_SIZE) as u32).map(BlockId).collect();
    let batch = StepBatch {
        tokens: tokens.to_vec(),
        positions: (0..tokens.len() as u32).collect(),
        slots: (0..tokens.len() as u32).collect(),
        chunks: vec![BatchChunk {
            seq: SeqId(1),
            rows: 0..tokens.len(),
            table: 0..table.len(),
            sample: false,
            proposed: 0,
        }],
        tables: table,
        copies: Vec::new(),
    };
    let computed = model.compute(&batch, Asked { rows: Rows::Sampled, states: &rows, adapters: &[] }).expect("a step");
    assert_eq!(computed.logits.rows, 0, "nobody asked for logits");
    computed.states.chunks_exact(model.width()).map(<[f32]>::to_vec).collect()
}

fn expected(pooling: &str, states: &[Vec<f32>]) -> Vec<f32> {
    let pooled: Vec<f32> = match pooling {
        "last" => states[states.len() - 1].clone(),
        "cls" => states[0].clone(),
        _ => (0..states[0].len())
            .map(|at| (states.iter().map(|state| f64::from(state[at])).sum::<f64>() / states.len() as f64) as f32)
            .collect(),
    };
    normalised(&pooled, pooled.len())
}

/// The vectors of an answer, and the tokens that were found in the cache.
async fn embedded(server: &Server, input: Value) -> (Vec<Vec<f32>>, u64) {
    let (status, answer) = post(server.at("/v1/embeddings"), json!({"input": input})).await;
    assert_eq!(status, 200, "{answer}");
    let vector = |object: &Value| {
        let numbers = object["embedding"].as_array().expect("numbers").iter();
        numbers.map(|x| x.as_f64().expect("a number") as f32).collect()
    };
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count");
    (answer["data"].as_array().expect("a list").iter().map(vector).collect(), cached)
}

#[tokio::test]
async fn vectors_are_the_models_own_however_they_are_computed() {
    let mut model = model();
    let prompts: Vec<Vec<u32>> =
        [1, 5, 40, 150, 150].into_iter().enumerate().map(|(salt, length)| prompt(length, salt)).collect();
    let states: Vec<Vec<Vec<f32>>> = prompts.iter().map(|tokens| states(&mut model, tokens)).collect();
    for pooling in ["last", "mean", "cls"] {
        let expected: Vec<Vec<f32>> = states.iter().map(|states| expected(pooling, states)).collect();
        // Long prompts are cut into several chunks.
        let server = Server::start(&["--pooling", pooling, "--max-num-batched-tokens", "48"]);
        let stream = tokio::spawn({
            let url = server.at("/v1/completions");
            async move {
                let body = json!({"prompt": "Once upon a time", "max_tokens": 100, "ignore_eos": true});
                Client::new().post(url).json(&body).send().await.expect("an answer").status().as_u16()
            }
        });
        assert_eq!(embedded(&server, json!(prompts)).await, (expected.clone(), 0), "{pooling} together");
        assert_eq!(stream.await.expect("a completion beside it"), 200);
        // Again and alone: what is cached is not computed again where only the last state counts.
        let mut found = 0;
        for (tokens, expected) in prompts.iter().zip(&expected) {
            let (vectors, cached) = embedded(&server, json!(tokens)).await;
            assert_eq!(vectors, std::slice::from_ref(expected), "{pooling} alone");
            found += cached;
        }
        assert_eq!(found > 0, pooling == "last", "{pooling}");
    }
}

#[tokio::test]
async fn dimensions_cut_and_bytes_are_the_same_numbers() {
    let server = Server::start(&[]);
    let ask = async |more: Value| {
        let mut body = json!({"input": "A fox named Pip"});
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let (status, answer) = post(server.at("/v1/embeddings"), body).await;
        assert_eq!(status, 200, "{answer}");
        answer["data"][0]["embedding"].clone()
    };
    let numbers = |value: &Value| -> Vec<f32> {
        value.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
    };
    let whole = numbers(&ask(json!({})).await);
    let short = numbers(&ask(json!({"dimensions": 16})).await);
    let again = normalised(&whole, 16);
    assert!(short.iter().zip(&again).all(|(a, b)| (a - b).abs() < 1e-6) && short.len() == 16);
    assert!((similarity(&short, &short) - 1.0).abs() < 1e-6);
    let text = ask(json!({"encoding_format": "base64"})).await;
    let text = text.as_str().expect("text");
    assert_eq!(text.len(), (whole.len() * 4).div_ceil(3) * 4);
    assert_eq!(text, base64(&whole));
}

/// Independent of the server's own.
fn base64(numbers: &[f32]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let group = |group: &[u8]| {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let letter = |index: usize| {
            let shown = index <= group.len();
            if shown { char::from(LETTERS[(bits >> (18 - 6 * index) & 63) as usize]) } else { '=' }
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

#[tokio::test]
async fn documents_are_ranked_by_their_embeddings() {
    let server = Server::start(&[]);
    let documents = ["The fox ran home.", "Once upon a time there was an owl.", "A fox named Pip ran home."];
    let query = "The fox ran home.";
    let (vectors, _) = embedded(&server, json!([query, documents[0], documents[1], documents[2]])).await;
    let mut scores: Vec<(usize, f64)> =
        (0..3).map(|index| (index, similarity(&vectors[0], &vectors[index + 1]))).collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let body = json!({
        "query": query, "documents": [documents[0], {"text": documents[1]}, documents[2]], "return_documents": true,
    });
    let (status, answer) = post(server.at("/v1/rerank"), body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    let results = answer["results"].as_array().expect("a list");
    let got: Vec<(usize, f64)> = results
        .iter()
        .map(|result| {
            (result["index"].as_u64().expect("an index") as usize, result["relevance_score"].as_f64().expect("a score"))
        })
        .collect();
    // Numbers are read from JSON to the last digit but one.
    let close = |(a, b): (&(usize, f64), &(usize, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-12;
    assert!(got.len() == scores.len() && got.iter().zip(&scores).all(close), "{got:?}, not {scores:?}");
    assert_eq!((got[0].0, results[0]["document"]["text"].as_str()), (0, Some(documents[0])), "the same text");
    let mut two = body;
    two["top_n"] = json!(2);
    let (_, answer) = post(server.at("/rerank"), two).await;
    assert_eq!(answer["results"].as_array().map(Vec::len), Some(2));
}

/// The vector of a prompt, unnormalised, over a loop in this process.
async fn pooled(rig: &Rig, tokens: &[u32], pooling: Pooling) -> Vec<f32> {
    let raw = Parameters { goal: Goal::Embedding(pooling), ..Parameters::default() };
    let limits = Limits::new(1_024, 320, 64);
    let checked = raw.check(&limits, 0).expect("in range");
    let built = checked.into_requests(tokens.to_vec(), &[], &limits, || SeqId(1 << 40)).expect("it fits");
    let mut events = rig::submit(&rig.handle, built.requests).await.expect("accepted").remove(0);
    let mut vector = Vec::new();
    loop {
        match events.recv().await.expect("an end before the channel closes") {
            Event::Admitted { .. } => {}
            Event::Embedded(said) => vector = said,
            Event::Finished(FinishReason::Stop) => return vector,
            other => panic!("{other:?}"),
        }
    }
}

/// Completions that grow take the blocks of a prompt that is on its way; it is computed again from its beginning.
#[tokio::test]
async fn a_prompt_that_loses_its_blocks_keeps_its_vector() {
    let tokens = prompt(150, 9);
    for pooling in Pooling::ALL {
        let expected = pooled(&rig::storyteller(Setup::default()), &tokens, pooling).await;
        assert_eq!(expected.len(), model().width());
        let tight = Setup { num_blocks: 16, max_num_batched_tokens: 4, prefix_caching: false, ..Setup::default() };
        let rig = rig::storyteller(tight);
        // Both begin at once, so that they grow beyond the blocks there are whatever else runs on this machine.
        rig.handle.pause().await.expect("loop");
        let first = rig.submit(&prompt(20, 1), 140).await;
        let second = rig.submit(&prompt(20, 2), 140).await;
        rig.handle.resume().await.expect("loop");
        assert_eq!(pooled(&rig, &tokens, pooling).await, expected, "{pooling:?}");
        for events in [first, second] {
            assert_eq!(rig::collect(events).await.tokens.len(), 140);
        }
        assert!(rig.join().await.snapshot().preemptions_total > 0, "nothing was taken from anyone");
    }
}
