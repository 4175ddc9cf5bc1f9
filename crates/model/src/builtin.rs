//! The storyteller, inside the program: a small Llama, so that the server answers at once and offline.

pub(super) const ID: &str = "storyteller";
pub(super) const CONFIG: &[u8] = include_bytes!("../../../models/storyteller/config.json");
pub(super) const GENERATION_CONFIG: &[u8] = include_bytes!("../../../models/storyteller/generation_config.json");
pub(super) const TOKENIZER: &[u8] = include_bytes!("../../../models/storyteller/tokenizer.json");
pub(super) const TOKENIZER_CONFIG: &[u8] = include_bytes!("../../../models/storyteller/tokenizer_config.json");
pub(super) const WEIGHTS: &[u8] = include_bytes!("../../../models/storyteller/model.safetensors");
