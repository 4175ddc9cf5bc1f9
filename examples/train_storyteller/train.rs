//! The training loop and its checkpoint: one file with weights, moments and the curve, replaced atomically.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor};
use indicatif::{ProgressBar, ProgressStyle};

use crate::corpus::{BROAD_STEPS, Stream};
use crate::model::Llama;
use crate::optim::{AdamW, Moments, Schedule};
use crate::story::Split;
use crate::tokenizer::Codec;

pub const SEED: u64 = 20_26;
/// Grammar seeds that training never uses.
pub const UNSEEN_SEED: u64 = 7_000_003;

pub struct Plan {
    pub work: PathBuf,
    /// Where the weights alone go, at every save.
    pub out: PathBuf,
    pub schedule: Schedule,
    pub tokens_per_step: usize,
    /// Shares of a step, each on its own thread; they must divide the rows.
    pub threads: usize,
    pub save_every: Duration,
    pub evaluate_every: usize,
    /// Stop after this many steps of this run, for measuring.
    pub at_most: Option<usize>,
}

/// One point of the curve.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub step: usize,
    pub tokens: f64,
    pub seconds: f64,
    /// Mean over the steps since the last point.
    pub train: f64,
    /// On grammar seeds that training never uses.
    pub unseen_seeds: f64,
    /// On combinations of character, place and wish that training never shows.
    pub unseen_combinations: f64,
}

/// Everything that a resumed run needs.
pub struct State {
    pub model: Llama,
    pub optimiser: AdamW,
    pub step: usize,
    pub tokens: f64,
    pub seconds: f64,
    pub curve: Vec<Point>,
}

pub fn checkpoint_file(work: &Path) -> PathBuf {
    work.join("checkpoint.safetensors")
}

pub fn run(mut state: State, codec: &Codec, plan: &Plan) -> Result<State> {
    let stream = Stream { seed: SEED, split: Split::Train };
    let bar = ProgressBar::new(plan.schedule.steps as u64).with_position(state.step as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} left {eta} {msg}")?);
    let (mut saved, mut lap) = (Instant::now(), Instant::now());
    let (mut losses, first) = (Vec::new(), state.step);
    while state.step < plan.schedule.steps && plan.at_most.is_none_or(|most| state.step - first < most) {
        let (rows, length) = row_shape(state.step, plan.schedule.steps, plan.tokens_per_step);
        let (ids, targets) = batch(&stream, codec, state.step, rows, length)?;
        let (loss, grads) = gradients(&state.model, &ids, &targets, plan.threads.min(rows))?;
        let rate = plan.schedule.rate(state.step);
        let norm = state.optimiser.step(&state.model.weights, &grads, rate)?;
        losses.push(loss);
        state.step += 1;
        state.tokens += (rows * length) as f64;
        state.seconds += std::mem::replace(&mut lap, Instant::now()).elapsed().as_secs_f64();
        bar.set_position(state.step as u64);
        bar.set_message(format!("loss {:.3} norm {norm:.2} rate {rate:.5}", losses[losses.len() - 1]));
        if state.step.is_multiple_of(plan.evaluate_every) || state.step == plan.schedule.steps {
            let point = Point {
                step: state.step,
                tokens: state.tokens,
                seconds: state.seconds,
                train: losses.iter().sum::<f64>() / losses.len() as f64,
                unseen_seeds: evaluate(&state.model, codec, Split::Train)?,
                unseen_combinations: evaluate(&state.model, codec, Split::HeldOut)?,
            };
            losses.clear();
            state.curve.push(point);
            // Also to the log of a run without a terminal, where the bar is silent.
            println!(
                "step {} of {}: train {:.4}, unseen seeds {:.4}, unseen combinations {:.4}, {:.0} s, {:.0} tokens/s",
                point.step,
                plan.schedule.steps,
                point.train,
                point.unseen_seeds,
                point.unseen_combinations,
                point.seconds,
                point.tokens / point.seconds
            );
        }
        if saved.elapsed() > plan.save_every {
            state.save(&plan.work)?;
            state.export(&plan.out)?;
            saved = Instant::now();
        }
    }
    if plan.at_most.is_none() {
        state.save(&plan.work)?;
        state.export(&plan.out)?;
    }
    bar.finish();
    Ok(state)
}

/// Mean loss of the rows and the gradients of `parts` equal shares of them, each computed on its own thread.
///
/// Sharing the rows beats candle's threads inside each operation: those meet at a spinning barrier several hundred times
/// a step, which took a third of the time on two busy cores.
fn gradients(model: &Llama, ids: &Tensor, targets: &Tensor, parts: usize) -> Result<(f64, Vec<GradStore>)> {
    let rows = ids.dims()[0];
    anyhow::ensure!(rows.is_multiple_of(parts), "{rows} rows do not divide into {parts} equal shares");
    let share = |part: usize| -> Result<(f64, GradStore)> {
        let take = |t: &Tensor| t.narrow(0, part * rows / parts, rows / parts)?.contiguous();
        let loss = model.loss(&take(ids)?, &take(targets)?)?;
        Ok((f64::from(loss.to_scalar::<f32>()?), loss.backward()?))
    };
    let shares: Vec<Result<(f64, GradStore)>> = std::thread::scope(|scope| {
        let share = &share;
        let threads: Vec<_> = (0..parts).map(|part| scope.spawn(move || share(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a share does not panic")).collect()
    });
    let (losses, grads): (Vec<f64>, Vec<GradStore>) =
        shares.into_iter().collect::<Result<Vec<_>>>()?.into_iter().unzip();
    Ok((losses.iter().sum::<f64>() / parts as f64, grads))
}

/// Rows and their length at a step: short for most of the run, longer ones late, so that every position up to the
/// context has been trained.
pub fn row_shape(step: usize, steps: usize, tokens: usize) -> (usize, usize) {
    let done = step * 100 / steps.clamp(1, BROAD_STEPS);
    let length = match done {
        0..60 => 256,
        60..85 if step.is_multiple_of(4) => 512,
        85..100 if step.is_multiple_of(8) => 1024,
        85..100 if step.is_multiple_of(2) => 512,
        100.. if step.is_multiple_of(16) => 1024,
        100.. if step.is_multiple_of(4) => 512,
        _ => 256,
    };
    ((tokens / length).max(1), length)
}

fn batch(stream: &Stream, codec: &Codec, step: usize, rows: usize, length: usize) -> Result<(Tensor, Tensor)> {
    let (mut ids, mut targets) = (Vec::with_capacity(rows * length), Vec::with_capacity(rows * length));
    for row in 0..rows {
        let tokens = stream.pack(codec, step, row, length + 1);
        ids.extend_from_slice(&tokens[..length]);
        targets.extend_from_slice(&tokens[1..]);
    }
    let device = Device::Cpu;
    Ok((Tensor::from_vec(ids, (rows, length), &device)?, Tensor::from_vec(targets, (rows, length), &device)?))
}

/// Mean loss on 8192 tokens of grammar seeds that training never uses.
pub fn evaluate(model: &Llama, codec: &Codec, split: Split) -> Result<f64> {
    let stream = Stream { seed: UNSEEN_SEED, split };
    let mut total = 0.0;
    for step in 0..4 {
        let (ids, targets) = batch(&stream, codec, step, 8, 256)?;
        total += f64::from(model.loss(&ids, &targets)?.to_scalar::<f32>()?);
    }
    Ok(total / 4.0)
}

impl State {
    pub fn fresh(model: Llama) -> Self {
        let optimiser = AdamW::new(&model.weights);
        State { model, optimiser, step: 0, tokens: 0.0, seconds: 0.0, curve: Vec::new() }
    }

    /// Writes beside the old checkpoint and renames, so a killed run leaves a whole file.
    pub fn save(&self, work: &Path) -> Result<()> {
        let device = Device::Cpu;
        let mut tensors: HashMap<String, Tensor> = HashMap::new();
        for (name, var) in &self.model.weights {
            let Moments { mean, square } = &self.optimiser.moments[name];
            tensors.insert(name.clone(), var.as_tensor().clone());
            tensors.insert(format!("mean.{name}"), Tensor::from_vec(mean.clone(), var.dims(), &device)?);
            tensors.insert(format!("square.{name}"), Tensor::from_vec(square.clone(), var.dims(), &device)?);
        }
        let counts = vec![self.step as f64, self.optimiser.updates as f64, self.tokens, self.seconds];
        tensors.insert("counts".into(), Tensor::new(counts, &device)?);
        let rows: Vec<f64> = self
            .curve
            .iter()
            .flat_map(|p| [p.step as f64, p.tokens, p.seconds, p.train, p.unseen_seeds, p.unseen_combinations])
            .collect();
        if !rows.is_empty() {
            tensors.insert("curve".into(), Tensor::from_vec(rows, (self.curve.len(), 6), &device)?);
        }
        let (new, file) = (work.join("checkpoint.new"), checkpoint_file(work));
        candle_core::safetensors::save(&tensors, &new).with_context(|| format!("writing {}", new.display()))?;
        std::fs::rename(&new, &file).with_context(|| format!("replacing {}", file.display()))
    }

    pub fn load(shape: crate::model::Shape, work: &Path) -> Result<Self> {
        let file = checkpoint_file(work);
        let model = Llama::load(shape, &file)?;
        let tensors = candle_core::safetensors::load(&file, &Device::Cpu)?;
        let values = |name: String| -> Result<Vec<f32>> {
            Ok(tensors.get(&name).with_context(|| format!("the checkpoint lacks {name}"))?.flatten_all()?.to_vec1()?)
        };
        let mut state = State::fresh(model);
        for (name, moments) in &mut state.optimiser.moments {
            *moments = Moments { mean: values(format!("mean.{name}"))?, square: values(format!("square.{name}"))? };
        }
        let counts: Vec<f64> = tensors.get("counts").context("the checkpoint lacks its counts")?.to_vec1()?;
        (state.step, state.optimiser.updates) = (counts[0] as usize, counts[1] as usize);
        (state.tokens, state.seconds) = (counts[2], counts[3]);
        if let Some(curve) = tensors.get("curve") {
            state.curve = curve
                .to_vec2::<f64>()?
                .into_iter()
                .map(|p| Point {
                    step: p[0] as usize,
                    tokens: p[1],
                    seconds: p[2],
                    train: p[3],
                    unseen_seeds: p[4],
                    unseen_combinations: p[5],
                })
                .collect();
        }
        Ok(state)
    }

    /// Writes the weights alone, in bf16, under their Hugging Face names.
    pub fn export(&self, folder: &Path) -> Result<()> {
        let mut tensors = HashMap::new();
        for (name, var) in &self.model.weights {
            tensors.insert(name.clone(), var.as_tensor().to_dtype(DType::BF16)?);
        }
        let (new, file) = (folder.join("model.new"), folder.join("model.safetensors"));
        let metadata = Some(HashMap::from([("format".to_string(), "pt".to_string())]));
        let bytes = safetensors::serialize(tensors, metadata).context("serialising the weights")?;
        std::fs::write(&new, bytes).with_context(|| format!("writing {}", new.display()))?;
        std::fs::rename(&new, &file).with_context(|| format!("replacing {}", file.display()))
    }
}
