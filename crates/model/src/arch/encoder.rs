//! `config.json` to [`EncoderSpec`], beside [`super::decoder`].

use super::limits::{MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, MAX_POSITIONS, MAX_VOCAB, MAX_WIDTH};
use crate::files::json::Fields;
use crate::files::names::Renamed;
use crate::types::error::LoadError;
use crate::types::spec::decoder::Activation;
use crate::types::spec::encoder::EncoderSpec;

type Read = fn(&Fields) -> Result<EncoderSpec, LoadError>;

/// Beginning of its class names in `architectures`, name in `model_type`, reader, and where its tensors have other names
/// than a BERT's.
type Family = (&'static str, &'static str, Read, Renamed);

const FAMILIES: [Family; 4] = [
    ("Bert", "bert", bert, &[]),
    ("Roberta", "roberta", roberta, &[]),
    ("XLMRoberta", "xlm-roberta", roberta, &[]),
    ("DistilBert", "distilbert", distilbert, DISTILBERT),
];
/// Ends of class names: the encoder alone, or with the head of its training, which is left where it is.
const CLASSES: [&str; 3] = ["Model", "ForMaskedLM", "ForPreTraining"];

/// Longer names first: each is replaced wherever it stands.
const DISTILBERT: Renamed = &[
    ("encoder.layer.", "transformer.layer."),
    ("attention.self.query", "attention.q_lin"),
    ("attention.self.key", "attention.k_lin"),
    ("attention.self.value", "attention.v_lin"),
    ("attention.output.dense", "attention.out_lin"),
    ("attention.output.LayerNorm", "sa_layer_norm"),
    ("intermediate.dense", "ffn.lin1"),
    ("output.dense", "ffn.lin2"),
    ("output.LayerNorm", "output_layer_norm"),
];

/// Reads a model's `config.json`; `None` where `class` or else `kind` is no encoder of this family.
pub(super) fn read_spec(
    config: &Fields,
    class: Option<&str>,
    kind: Option<&str>,
) -> Result<Option<(EncoderSpec, Renamed)>, LoadError> {
    let found = FAMILIES.into_iter().find(|(family, model_type, ..)| match class {
        Some(class) => class.strip_prefix(family).is_some_and(|end| CLASSES.contains(&end)),
        None => kind == Some(model_type),
    });
    found.map(|(_, _, read, renamed)| Ok((read(config)?, renamed))).transpose()
}

/// Class names of encoders alone.
pub(super) fn supported() -> String {
    FAMILIES.map(|(family, ..)| format!("{family}Model")).join(", ")
}

fn bert(config: &Fields) -> Result<EncoderSpec, LoadError> {
    if config.flag("is_decoder")? == Some(true) {
        return Err(config.broken("is_decoder", "must be false"));
    }
    let kind = "position_embedding_type";
    if config.text(kind)?.is_some_and(|kind| kind != "absolute") {
        return Err(config.broken(kind, "must be absolute"));
    }
    let keys = Keys {
        hidden: "hidden_size",
        intermediate: "intermediate_size",
        heads: "num_attention_heads",
        layers: "num_hidden_layers",
        activation: "hidden_act",
    };
    let mut spec = base(config, &keys)?;
    spec.segments = config.integer("type_vocab_size", 1..=MAX_VOCAB)?.unwrap_or(2);
    Ok(spec)
}

/// The table of positions begins with those of padding.
fn roberta(config: &Fields) -> Result<EncoderSpec, LoadError> {
    let mut spec = bert(config)?;
    spec.position_offset = config.integer("pad_token_id", 0..=MAX_POSITIONS)?.unwrap_or(1) + 1;
    let rows = spec.max_position_embeddings as usize;
    match rows.checked_sub(spec.position_offset).filter(|left| *left > 0) {
        Some(left) => spec.max_position_embeddings = left as u32,
        None => return Err(config.broken("max_position_embeddings", "must leave room behind pad_token_id")),
    }
    Ok(spec)
}

fn distilbert(config: &Fields) -> Result<EncoderSpec, LoadError> {
    let keys = Keys {
        hidden: "dim",
        intermediate: "hidden_dim",
        heads: "n_heads",
        layers: "n_layers",
        activation: "activation",
    };
    base(config, &keys)
}

/// What the families call differently.
struct Keys {
    hidden: &'static str,
    intermediate: &'static str,
    heads: &'static str,
    layers: &'static str,
    activation: &'static str,
}

fn base(config: &Fields, keys: &Keys) -> Result<EncoderSpec, LoadError> {
    let hidden = config.required_integer(keys.hidden, 1..=MAX_WIDTH)?;
    let heads = config.required_integer(keys.heads, 1..=MAX_HEADS)?;
    if !hidden.is_multiple_of(heads) || hidden / heads > MAX_HEAD_DIM {
        let rule = format!("must divide {}, {hidden}, into at most {MAX_HEAD_DIM} each", keys.hidden);
        return Err(config.broken(keys.heads, &rule));
    }
    let activation = match config.text(keys.activation)? {
        None | Some("gelu" | "gelu_python") => Activation::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh") => Activation::GeluTanh,
        Some(_) => return Err(config.broken(keys.activation, "must be gelu or gelu_new")),
    };
    Ok(EncoderSpec {
        vocab: config.required_integer("vocab_size", 1..=MAX_VOCAB)?,
        hidden,
        intermediate: config.required_integer(keys.intermediate, 1..=MAX_WIDTH)?,
        heads,
        layers: config.required_integer(keys.layers, 1..=MAX_LAYERS)?,
        norm_eps: config.number("layer_norm_eps", 0.0..=1.0)?.unwrap_or(1e-12) as f32,
        activation,
        position_offset: 0,
        segments: 0,
        max_position_embeddings: config.required_integer("max_position_embeddings", 1..=MAX_POSITIONS)? as u32,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn read(class: &str, change: impl FnOnce(&mut Value)) -> Result<Option<EncoderSpec>, String> {
        let mut config = json!({
            "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
            "vocab_size": 320, "max_position_embeddings": 130, "type_vocab_size": 2, "layer_norm_eps": 1e-5,
            "dim": 64, "hidden_dim": 128, "n_heads": 4, "n_layers": 2,
        });
        change(&mut config);
        let fields = Fields::parse(Path::new("config.json"), config.to_string().as_bytes()).unwrap();
        let read = read_spec(&fields, Some(class), None);
        read.map(|found| found.map(|(spec, _)| spec)).map_err(|error| error.to_string())
    }

    #[test]
    fn families_differ_in_positions_and_segments() {
        let shape = |class: &str| {
            let spec = read(class, |_| {}).unwrap().unwrap();
            (spec.max_position_embeddings, spec.position_offset, spec.segments)
        };
        assert_eq!(shape("BertModel"), (130, 0, 2));
        assert_eq!(shape("BertForMaskedLM"), (130, 0, 2));
        assert_eq!(shape("XLMRobertaModel"), (128, 2, 2));
        assert_eq!(shape("RobertaForMaskedLM"), (128, 2, 2));
        assert_eq!(shape("DistilBertModel"), (130, 0, 0));
        for other in ["LlamaForCausalLM", "BertForSequenceClassification", "BertLMHeadModel", "Model"] {
            assert_eq!(read(other, |_| {}), Ok(None), "{other}");
        }
    }

    #[test]
    fn what_is_not_computed_is_refused_by_its_key() {
        let check = |class: &str, key: &str, value: Value| {
            let error = read(class, |config| config[key] = value.clone()).unwrap_err();
            assert!(error.contains(&format!("`{key}`")), "{error}");
        };
        check("BertModel", "is_decoder", json!(true));
        check("BertModel", "position_embedding_type", json!("relative_key"));
        check("BertModel", "hidden_act", json!("relu"));
        check("BertModel", "num_attention_heads", json!(5));
        check("BertModel", "hidden_size", json!(0));
        check("BertModel", "max_position_embeddings", json!(null));
        check("RobertaModel", "max_position_embeddings", json!(2));
        check("DistilBertModel", "dim", json!(null));
    }
}
