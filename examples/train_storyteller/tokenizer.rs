//! The byte-level BPE tokenizer, its chat control tokens, and the small JSON files beside the weights.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde_json::json;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{AddedToken, Tokenizer};

use crate::corpus::{Document, Mix, Stream};
use crate::model::Shape;

pub const BOS: &str = "<|bos|>";
pub const END: &str = "<|end|>";
const CONTROL: [&str; 6] = [BOS, END, "<|system|>", "<|user|>", "<|assistant|>", "<|pad|>"];

/// Roles without newlines: a role's token is enough, and a short prompt stays short.
pub const CHAT_TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}\
{% if message['role'] == 'assistant' %}<|assistant|>\
{% elif message['role'] == 'system' or message['role'] == 'developer' %}<|system|>\
{% else %}<|user|>{% endif %}\
{{ message['content'] if message['content'] else '' }}<|end|>\
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";

/// The ids of the control tokens.
#[derive(Clone, Copy, Debug)]
pub struct ChatTokens {
    pub bos: u32,
    pub end: u32,
    pub system: u32,
    pub user: u32,
    pub assistant: u32,
}

/// Text to ids and back, with the control tokens at hand.
pub struct Codec {
    pub chat: ChatTokens,
    tokenizer: Tokenizer,
}

impl Codec {
    pub fn load(file: &Path) -> Result<Self> {
        let tokenizer = Tokenizer::from_file(file).map_err(|e| anyhow!("{}: {e}", file.display()))?;
        let id = |token: &str| tokenizer.token_to_id(token).with_context(|| format!("the tokenizer lacks {token}"));
        let chat = ChatTokens {
            bos: id(BOS)?,
            end: id(END)?,
            system: id("<|system|>")?,
            user: id("<|user|>")?,
            assistant: id("<|assistant|>")?,
        };
        Ok(Codec { chat, tokenizer })
    }

    /// Ids of plain text, without marks.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode_fast(text, false).expect("byte-level BPE encodes every string").get_ids().to_vec()
    }

    pub fn decode(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, true).expect("byte-level BPE decodes every id")
    }
}

/// Trains the tokenizer on `documents` documents of `stream` and writes `tokenizer.json`.
pub fn train(stream: Stream, documents: usize, vocab: usize, file: &Path) -> Result<()> {
    let mut trainer: TrainerWrapper = BpeTrainerBuilder::new()
        .vocab_size(vocab)
        .min_frequency(2)
        .show_progress(false)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(CONTROL.iter().map(|token| AddedToken::from(*token, true)).collect::<Vec<_>>())
        .build()
        .into();
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let texts = (0..documents).map(|n| {
        let mut rng = stream.row(usize::MAX, n);
        Document::random(&mut rng, stream.split, Mix::Broad, false).text()
    });
    tokenizer.train(&mut trainer, texts).map_err(|e| anyhow!("training the tokenizer: {e}"))?;
    let bos = tokenizer.token_to_id(BOS).context("the beginning mark is missing")?;
    let marks = TemplateProcessing::builder()
        .try_single(format!("{BOS} $A"))
        .map_err(|e| anyhow!("post-processor: {e}"))?
        .try_pair(format!("{BOS} $A $B:1"))
        .map_err(|e| anyhow!("post-processor: {e}"))?
        .special_tokens(vec![(BOS.to_string(), bos)])
        .build()
        .map_err(|e| anyhow!("post-processor: {e}"))?;
    tokenizer.with_post_processor(Some(marks));
    tokenizer.save(file, true).map_err(|e| anyhow!("{}: {e}", file.display()))
}

/// Writes `config.json`, `generation_config.json` and `tokenizer_config.json`.
pub fn write_configs(folder: &Path, shape: &Shape, chat: &ChatTokens) -> Result<()> {
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": null,
        "attention_bias": false,
        "mlp_bias": false,
        "tie_word_embeddings": true,
        "bos_token_id": chat.bos,
        "eos_token_id": chat.end,
        "torch_dtype": "bfloat16",
    });
    let generation = json!({
        "bos_token_id": chat.bos,
        "eos_token_id": chat.end,
        "do_sample": true,
        "temperature": 0.7,
        "max_new_tokens": 300,
    });
    let added: serde_json::Map<String, serde_json::Value> = CONTROL
        .iter()
        .enumerate()
        .map(|(id, token)| {
            let entry = json!({"content": token, "lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": true});
            (id.to_string(), entry)
        })
        .collect();
    let tokenizer = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": "<|pad|>",
        "model_max_length": shape.context,
        "clean_up_tokenization_spaces": false,
        "added_tokens_decoder": added,
        "chat_template": CHAT_TEMPLATE,
    });
    for (name, value) in
        [("config.json", config), ("generation_config.json", generation), ("tokenizer_config.json", tokenizer)]
    {
        let file = folder.join(name);
        let text = serde_json::to_string_pretty(&value)? + "\n";
        std::fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_survives_a_round_trip() -> Result<()> {
        let codec = Codec::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/storyteller/tokenizer.json"))?;
        for text in [
            "Once upon a time",
            "  two  spaces \n\n\tand a tab ",
            "größer 数字 🦊👩‍🚀 \u{0}\u{7f}\u{10ffff}",
            "don't 12,345.6",
            "",
        ] {
            assert_eq!(codec.decode(&codec.encode(text)), text);
        }
        Ok(())
    }
}
