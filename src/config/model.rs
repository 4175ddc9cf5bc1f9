//! `model`: what is served, and under which names.

use std::path::PathBuf;

use forebay_core::request::Pooling;
use forebay_core::settings::{Setting, list};
use forebay_model::LoadOptions;
use forebay_text::ParserChoices;

use super::checks::Reader;
use super::error::ConfigError;

#[derive(Clone, Debug, Default)]
pub struct ModelConfig {
    /// As the user wrote it: empty, a path, a hub id, or [`ModelConfig::SIMULATED`]; `app` resolves it.
    pub reference: String,
    pub options: LoadOptions,
    /// The first is shown; empty means the model's own.
    pub served_names: Vec<String>,
    /// Names of the adapters in `options`, in their order.
    pub adapters: Vec<String>,
    /// Who reads the answers of chats.
    pub parsers: ParserChoices,
    /// `None` is what the model says.
    pub pooling: Option<Pooling>,
}

impl ModelConfig {
    /// No model, but what one would cost.
    pub const SIMULATED: &str = "sim";

    pub fn is_simulated(&self) -> bool {
        self.reference == ModelConfig::SIMULATED
    }
}

const ADAPTERS: &str = "a list of name=folder, each with a name of its own";

pub fn settings() -> Vec<Setting<ModelConfig>> {
    let names = [
        Setting::new("model.path", |c: &mut ModelConfig| &mut c.reference)
            .flag("model")
            .help("a Hugging Face folder, a .gguf file, a hub id org/name[@revision][:file], or sim; empty is the embedded model"),
        Setting::new("model.served_names", |c: &mut ModelConfig| &mut c.served_names)
            .flag("served-model-name")
            .help("names clients may use, the first one shown; empty is the folder's name"),
    ];
    let loading = forebay_model::settings();
    let loading = loading.into_iter().map(|row| row.within(|c: &ModelConfig| &c.options, |c| &mut c.options));
    let lora = Setting::with("model.lora", ADAPTERS, adapters, set_adapters)
        .flag("lora")
        .help("LoRA adapters as name=folder, chosen by that name as the request's model");
    let reading = forebay_text::settings();
    let reading = reading.into_iter().map(|row| row.within(|c: &ModelConfig| &c.parsers, |c| &mut c.parsers));
    let named = Pooling::ALL.map(|pooling| (pooling.name(), Some(pooling)));
    let pooling = Setting::one_of(
        "model.pooling",
        |c: &mut ModelConfig| &mut c.pooling,
        [("auto", None)].into_iter().chain(named),
    )
    .flag("pooling")
    .help("which hidden states make an embedding; auto is what the model's files tell, else last (mean for encoders)");
    names.into_iter().chain(loading).chain([lora]).chain(reading).chain([pooling]).collect()
}

fn adapters(config: &ModelConfig) -> String {
    let pairs = config.adapters.iter().zip(&config.options.adapters);
    let pairs: Vec<String> = pairs.map(|(name, path)| format!("{name}={}", path.display())).collect();
    pairs.join(",")
}

/// `name=folder`, each name once.
fn set_adapters(config: &mut ModelConfig, text: &str) -> Option<()> {
    let mut names: Vec<String> = Vec::new();
    let mut folders = Vec::new();
    for entry in list(text) {
        let (name, path) = entry.split_once('=')?;
        let (name, path) = (name.trim(), path.trim());
        if name.is_empty() || path.is_empty() || names.iter().any(|known| known == name) {
            return None;
        }
        names.push(name.to_owned());
        folders.push(PathBuf::from(path));
    }
    (config.adapters, config.options.adapters) = (names, folders);
    Some(())
}

pub fn check(config: &ModelConfig, read: &Reader) -> Result<(), ConfigError> {
    match config.adapters.iter().any(|name| config.served_names.contains(name)) {
        true => Err(read.refuse("model.lora", ADAPTERS.to_owned())),
        false => Ok(()),
    }
}
