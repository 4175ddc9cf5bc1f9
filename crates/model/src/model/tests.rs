//! The cache under a microscope: permuted blocks, poisoned slots, copies; and what `forward` refuses.

use forebay_kernels::floats::Floats;
use std::path::Path;

use super::*;
use crate::load::load;
use crate::load::source::Source;
use crate::types::batch::BatchError;
use crate::types::options::{DeviceChoice, LoadOptions};
use forebay_core::step::BatchChunk;
use forebay_core::units::{BlockId, SeqId};

const BLOCKS: usize = 16;
const BLOCK_SIZE: usize = 4;
const BACKENDS: [DeviceChoice; 2] = [DeviceChoice::Cpu, DeviceChoice::Reference];

fn golden_model(architecture: &str, device: DeviceChoice) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens").join(architecture);
    let options = LoadOptions { device, ..LoadOptions::default() };
    let mut model = load(&Source::Folder(folder), &options).unwrap().model;
    model.allocate_kv(BLOCKS, BLOCK_SIZE).unwrap();
    model
}

/// Fills the whole cache with NaN.
fn poison(model: &mut Model) {
    match &mut model.on {
        Placed::Cpu(parts) => {
            for layer in &mut parts.kv.as_mut().unwrap().layers {
                layer.poison();
            }
        }
        Placed::Candle(parts) => {
            for layer in &mut parts.kv.as_mut().unwrap().layers {
                layer.keys = layer.keys.ones_like().unwrap().affine(f64::NAN, 0.0).unwrap();
                layer.values = layer.keys.force_contiguous().unwrap();
            }
        }
    }
}

/// One sequence's chunk: positions `start..start + tokens.len()` through `table`.
fn chunk(tokens: &[u32], start: u32, table: &[u32]) -> StepBatch {
    let positions: Vec<u32> = (start..start + tokens.len() as u32).collect();
    let size = BLOCK_SIZE as u32;
    let slot = |&position: &u32| table[(position / size) as usize] * size + position % size;
    StepBatch {
        tokens: tokens.to_vec(),
        slots: positions.iter().map(slot).collect(),
        positions,
        tables: table.iter().map(|&block| BlockId(block)).collect(),
        chunks: vec![BatchChunk {
            seq: SeqId(1),
            rows: 0..tokens.len(),
            table: 0..table.len(),
            sample: true,
            proposed: 0,
        }],
        copies: vec![],
    }
}

/// Two batches as one.
fn join(mut first: StepBatch, second: StepBatch) -> StepBatch {
    let (rows, tables) = (first.tokens.len(), first.tables.len());
    first.tokens.extend(second.tokens);
    first.positions.extend(second.positions);
    first.slots.extend(second.slots);
    first.tables.extend(second.tables);
    first.chunks.extend(second.chunks.into_iter().map(|chunk| BatchChunk {
        rows: chunk.rows.start + rows..chunk.rows.end + rows,
        table: chunk.table.start + tables..chunk.table.end + tables,
        ..chunk
    }));
    first.copies.extend(second.copies);
    first
}

fn prompt(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| (i * 37 + seed * 101) % 320).collect()
}

#[test]
fn permuted_blocks_and_poisoned_slots_change_nothing() {
    let straight: Vec<u32> = (0..8).collect();
    for architecture in ["llama", "mistral-window", "qwen3"] {
        for device in BACKENDS {
            let run = |tables: [&[u32]; 2], poisoned: bool| {
                let mut model = golden_model(architecture, device);
                if poisoned {
                    poison(&mut model);
                }
                let mut out = Vec::new();
                let (a, b) = (prompt(1, 21), prompt(2, 9));
                out.push(model.forward(&chunk(&a[..20], 0, tables[0]), Rows::All).unwrap());
                let mixed = join(chunk(&a[20..], 20, tables[0]), chunk(&b, 0, tables[1]));
                out.push(model.forward(&mixed, Rows::All).unwrap());
                out
            };
            let expected = run([&straight, &[8, 9, 10]], false);
            assert!(expected.iter().flat_map(|logits| logits.data.iter()).all(|logit| logit.is_finite()));
            for shift in [3, 5, 9, 11] {
                // Odd steps walk through all 16 blocks.
                let shuffled: Vec<u32> = (0..16).map(|i| (i * shift + 7) % 16).collect();
                let got = run([&shuffled[..8], &shuffled[8..11]], true);
                assert!(got == expected, "{architecture} on {device:?}, shift {shift}");
            }
        }
    }
}

#[test]
fn copies_are_made_before_anything_is_written() {
    for device in BACKENDS {
        let mut model = golden_model("llama", device);
        let (a, b) = (prompt(1, 12), prompt(2, 4));
        // `shared` has six tokens in blocks 0 and 1; then it goes on in block 1 while its fork, in a copy of block 1 as
        // block 5, goes another way in the same step.
        model.forward(&chunk(&a[..6], 0, &[0, 1]), Rows::Sampled).unwrap();
        let mut step = join(chunk(&a[6..8], 6, &[0, 1]), chunk(&b[..2], 6, &[0, 5]));
        step.copies.push((BlockId(1), BlockId(5)));
        let together = model.forward(&step, Rows::All).unwrap();

        let mut alone = golden_model("llama", device);
        let mut expected = Vec::new();
        for tail in [&a[6..8], &b[..2]] {
            alone.forward(&chunk(&a[..6], 0, &[2, 3]), Rows::Sampled).unwrap();
            expected.extend_from_slice(&alone.forward(&chunk(tail, 6, &[2, 3]), Rows::All).unwrap().data);
        }
        let worst = together.data.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        match device {
            DeviceChoice::Cpu => assert!(*together.data == *expected),
            _ => assert!(worst < 1e-5, "{worst:e}"),
        }
    }
}

#[test]
fn logits_are_computed_for_the_rows_asked_for() {
    for device in BACKENDS {
        let mut model = golden_model("qwen2", device);
        let mut step = join(chunk(&prompt(1, 5), 0, &[0, 1]), chunk(&prompt(2, 3), 0, &[2]));
        let all = model.forward(&step, Rows::All).unwrap();
        assert_eq!((all.rows, all.vocab, all.data.len()), (8, 320, 8 * 320));
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5);
        let sampled = model.forward(&step, Rows::Sampled).unwrap();
        assert_eq!(sampled.rows, 2);
        assert!(close(sampled.row(0), all.row(4)) && close(sampled.row(1), all.row(7)));
        step.chunks[0].sample = false;
        let second = model.forward(&step, Rows::Sampled).unwrap();
        assert!(second.rows == 1 && close(second.row(0), all.row(7)));
        step.chunks[1].sample = false;
        assert_eq!(
            model.forward(&step, Rows::Sampled).unwrap(),
            Logits { rows: 0, vocab: 320, data: Floats::default() }
        );
    }
}

#[test]
fn what_cannot_run_is_an_error_that_changes_nothing() {
    for device in BACKENDS {
        let mut model = golden_model("llama", device);
        let good = chunk(&prompt(1, 5), 0, &[0, 1]);
        let expected = model.forward(&good, Rows::Sampled).unwrap();
        let mut bad = chunk(&prompt(3, 5), 0, &[0, 1]);
        bad.tokens[4] = 320;
        bad.copies.push((BlockId(7), BlockId(0)));
        let error = model.forward(&bad, Rows::Sampled).unwrap_err();
        assert!(matches!(error, ForwardError::Batch(BatchError::Token { row: 4, token: 320, vocab: 320 })), "{error}");
        let next = chunk(&[1], 5, &[0, 1]);
        let after_error = model.forward(&next, Rows::Sampled).unwrap();
        assert_eq!(model.forward(&good, Rows::Sampled).unwrap(), expected);
        assert_eq!(model.forward(&next, Rows::Sampled).unwrap(), after_error);

        for (num_blocks, block_size) in [(0, 4), (4, 0), (usize::MAX, 2), (1 << 40, 32)] {
            assert!(model.allocate_kv(num_blocks, block_size).is_err(), "{num_blocks} blocks of {block_size}");
            assert!(matches!(model.forward(&good, Rows::Sampled), Err(ForwardError::NoCache)));
        }
    }
}

#[test]
fn a_model_may_move_to_another_thread() {
    fn is_send<T: Send + 'static>() {}
    is_send::<Model>();
}
