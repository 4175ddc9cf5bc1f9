//! Telling stories with trained weights: prompt, sampling, stop at the end mark.

use std::path::Path;

use anyhow::Result;
use candle_core::{Device, Tensor};

use crate::chat::{Role, Turns};
use crate::model::{Cache, Llama, STORYTELLER};
use crate::rng::Rng;
use crate::tokenizer::Codec;

/// The model as it ships, read back from its folder.
pub struct Storyteller {
    pub codec: Codec,
    pub model: Llama,
}

#[derive(Debug)]
pub struct Completion {
    pub text: String,
    pub tokens: usize,
    /// Whether the end mark came before the limit.
    pub ended: bool,
}

/// How to draw: `temperature` 0 takes the likeliest token.
#[derive(Clone, Copy)]
pub struct Drawing {
    pub temperature: f64,
    pub max_tokens: usize,
    pub seed: u64,
}

impl Storyteller {
    pub fn load(folder: &Path) -> Result<Self> {
        Ok(Storyteller {
            codec: Codec::load(&folder.join("tokenizer.json"))?,
            model: Llama::load(STORYTELLER, &folder.join("model.safetensors"))?,
        })
    }

    /// Answers a conversation, through the same tokens as the chat template.
    pub fn answer(&self, turns: &Turns, drawing: Drawing) -> Result<Completion> {
        let chat = self.codec.chat;
        let mut ids = vec![chat.bos];
        for (role, text) in turns {
            ids.push(match role {
                Role::System => chat.system,
                Role::User => chat.user,
                Role::Assistant => chat.assistant,
            });
            ids.extend(self.codec.encode(text));
            ids.push(chat.end);
        }
        ids.push(chat.assistant);
        self.complete(&ids, drawing)
    }

    /// Continues plain text.
    pub fn go_on(&self, text: &str, drawing: Drawing) -> Result<Completion> {
        let mut ids = vec![self.codec.chat.bos];
        ids.extend(self.codec.encode(text));
        self.complete(&ids, drawing)
    }

    fn complete(&self, prompt: &[u32], drawing: Drawing) -> Result<Completion> {
        let (mut rng, mut cache) = (Rng::keyed(&[drawing.seed, 0x5A3B]), Cache::default());
        let (mut fresh, mut told) = (prompt.to_vec(), Vec::new());
        let mut ended = false;
        while told.len() < drawing.max_tokens && cache.len() + fresh.len() <= self.model.shape.context {
            let ids = Tensor::from_vec(fresh.clone(), (1, fresh.len()), &Device::Cpu)?;
            let logits = self.model.forward(&ids, Some(&mut cache))?;
            let last: Vec<f32> = logits.get(fresh.len() - 1)?.to_vec1()?;
            let token = draw(&last, drawing.temperature, &mut rng);
            if token == self.codec.chat.end {
                ended = true;
                break;
            }
            told.push(token);
            fresh = vec![token];
        }
        Ok(Completion { text: self.codec.decode(&told), tokens: told.len(), ended })
    }
}

fn draw(logits: &[f32], temperature: f64, rng: &mut Rng) -> u32 {
    let (best, largest) = logits
        .iter()
        .enumerate()
        .fold((0, f32::MIN), |best, (i, &logit)| if logit > best.1 { (i, logit) } else { best });
    if temperature <= 0.0 {
        return best as u32;
    }
    let weights: Vec<f64> = logits.iter().map(|&logit| (f64::from(logit - largest) / temperature).exp()).collect();
    let mut left = rng.unit() * weights.iter().sum::<f64>();
    for (token, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return token as u32;
        }
    }
    best as u32
}
