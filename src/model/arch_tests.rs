//! Configs as they are published: both spellings, defaults, and what each architecture changes.

use crate::kernels::attention::KvDtype;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

/// A small Llama with `changes` laid over it; a `null` removes a key.
fn spec(changes: Value) -> Result<DecoderSpec, LoadError> {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 112,
        "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3, "vocab_size": 320,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    read_spec(&Fields::parse(Path::new("config.json"), config.to_string().as_bytes())?)
}

fn windows(changes: Value) -> Vec<Option<usize>> {
    spec(changes).unwrap().layers.iter().map(|layer| layer.window).collect()
}

#[test]
fn a_plain_llama() {
    let plain = spec(json!({})).unwrap();
    assert_eq!((plain.head_dim, plain.kv_heads, plain.tied), (16, 2, false));
    assert_eq!(plain.attention_scale, 0.25);
    assert_eq!(plain.norm_eps, 1e-5);
    assert_eq!(plain.rope, Rope { theta: 10_000.0, scaling: RopeScaling::None });
    assert_eq!(plain.bias, Bias::default());
    assert_eq!(plain.kv_bytes_per_token(KvDtype::F32), 2 * 3 * 32 * 4);
    assert_eq!(spec(json!({"num_key_value_heads": null})).unwrap().kv_heads, 4);
    assert_eq!(spec(json!({"head_dim": 32})).unwrap().q_width(), 128);
    assert_eq!(spec(json!({"architectures": null})).unwrap(), plain, "model_type alone");
    let biased = spec(json!({"attention_bias": true, "mlp_bias": true})).unwrap().bias;
    assert_eq!(biased, Bias { qkv: true, attention_output: true, mlp: true });
}

#[test]
fn both_spellings_of_rope_mean_the_same() {
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64});
    let mut newer = llama3.clone();
    newer["rope_theta"] = json!(500_000.0);
    let older = spec(json!({"rope_theta": 500_000, "rope_scaling": llama3})).unwrap().rope;
    assert_eq!(older, spec(json!({"rope_parameters": newer})).unwrap().rope);
    let scaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 64.0 };
    assert_eq!(older, Rope { theta: 500_000.0, scaling });

    let linear = Rope { theta: 10_000.0, scaling: RopeScaling::Linear { factor: 4.0 } };
    for kind in ["type", "rope_type"] {
        assert_eq!(spec(json!({"rope_scaling": {kind: "linear", "factor": 4}})).unwrap().rope, linear);
        assert_eq!(spec(json!({"rope_parameters": {kind: "linear", "factor": 4}})).unwrap().rope, linear);
    }
    assert_eq!(spec(json!({"rope_scaling": null, "rope_theta": 7.0})).unwrap().rope.theta, 7.0);
}

#[test]
fn windows_go_to_the_layers_that_have_them() {
    let mistral = json!({"architectures": ["MistralForCausalLM"], "sliding_window": 16});
    assert_eq!(windows(mistral), [Some(16); 3]);
    assert_eq!(windows(json!({"architectures": ["MistralForCausalLM"], "sliding_window": null})), [None; 3]);
    let qwen = |changes: Value| {
        let mut config = json!({"architectures": ["Qwen2ForCausalLM"], "sliding_window": 8, "max_window_layers": 1});
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        windows(config)
    };
    assert_eq!(qwen(json!({})), [None; 3], "use_sliding_window is off by default");
    assert_eq!(qwen(json!({"use_sliding_window": true})), [None, Some(8), Some(8)]);
    let types = json!(["sliding_attention", "full_attention", "full_attention"]);
    assert_eq!(qwen(json!({"use_sliding_window": true, "layer_types": types})), [Some(8), None, None]);
}

#[test]
fn what_the_others_change() {
    let of = |class: &str| spec(json!({"architectures": [class]})).unwrap();
    let llama = of("LlamaForCausalLM");
    assert_eq!(of("MistralForCausalLM"), llama);
    let bias = Bias { qkv: true, ..Bias::default() };
    assert_eq!(of("Qwen2ForCausalLM"), DecoderSpec { bias, ..llama.clone() });
    let qwen3 = of("Qwen3ForCausalLM");
    assert_eq!((qwen3.qk_norm, qwen3.head_dim), (QkNorm::PerHead, 128), "its default head is 128 wide");
    let olmo2 = of("Olmo2ForCausalLM");
    assert_eq!((olmo2.qk_norm, olmo2.norms), (QkNorm::Full, NormPlacement::Post));
}

#[test]
fn numbers_that_make_no_model_are_named() {
    let check = |changes: Value, expected: &str| match spec(changes.clone()) {
        Ok(_) => panic!("{changes} was accepted"),
        Err(error) => assert!(error.to_string().starts_with(&format!("config.json: {expected}")), "{changes}: {error}"),
    };
    for key in ["hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size", "max_position_embeddings"] {
        for value in [json!(0), json!(-1), json!(1.5), json!("64"), json!(1u64 << 62), json!([64])] {
            check(json!({key: value}), &format!("`{key}` must be an integer from 1 to"));
        }
        check(json!({key: null}), &format!("`{key}` is missing"));
    }
    check(json!({"num_attention_heads": 0}), "`num_attention_heads` must be an integer from 1 to 4096, found 0");
    check(json!({"num_attention_heads": 6}), "`num_attention_heads` must divide hidden_size, 64");
    check(json!({"num_key_value_heads": 3}), "`num_key_value_heads` must divide num_attention_heads, 4, found 3");
    check(json!({"num_key_value_heads": 0}), "`num_key_value_heads` must be an integer from 1 to");
    check(json!({"head_dim": 15}), "`head_dim` must be even");
    check(json!({"hidden_size": 60}), "`head_dim` must be even");
    check(json!({"rms_norm_eps": -1}), "`rms_norm_eps` must be a number from 0");
    check(json!({"hidden_act": "relu"}), "`hidden_act` must be silu, found \"relu\"");
    check(json!({"tie_word_embeddings": "yes"}), "`tie_word_embeddings` must be true or false");
    check(json!({"quantization_config": {"bits": 4}}), "`quantization_config` must be absent");
    check(json!({"partial_rotary_factor": 0.5, "rope_scaling": {}}), "`partial_rotary_factor` must be 1");
    check(json!({"partial_rotary_factor": 0.5}), "`partial_rotary_factor` must be 1");
    check(json!({"rope_theta": 0}), "`rope_theta` must be a number from 1");
    check(json!({"rope_scaling": "linear"}), "`rope_scaling` must be an object");
    check(json!({"rope_scaling": {"rope_type": "yarn"}}), "`rope_scaling.rope_type` must be default, linear or llama3");
    check(json!({"rope_scaling": {"type": "linear"}}), "`rope_scaling.factor` is missing");
    check(json!({"rope_scaling": {"type": "linear", "factor": 0}}), "`rope_scaling.factor` must be a number from 1");
    let swapped = json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4});
    check(json!({"rope_parameters": swapped}), "`rope_parameters.high_freq_factor` must exceed low_freq_factor, 4");
    let nested = json!({"full_attention": {"rope_theta": 1e6}});
    check(json!({"rope_parameters": nested}), "`rope_parameters.full_attention` must not be an object");
    let mistral = json!({"architectures": ["MistralForCausalLM"], "sliding_window": 0});
    check(mistral, "`sliding_window` must be an integer from 1 to");
    let qwen = json!({"architectures": ["Qwen3ForCausalLM"], "use_sliding_window": true, "sliding_window": 4,
        "layer_types": ["full_attention"]});
    check(qwen, "`layer_types` must have one entry for each of the 3 layers");
    check(
        json!({"architectures": ["GPT2LMHeadModel"]}),
        "architecture GPT2LMHeadModel is not supported; supported: Llama",
    );
    check(json!({"architectures": null, "model_type": null}), "architecture (not given) is not supported");
    check(json!({"architectures": "LlamaForCausalLM"}), "`architectures` must be a list of strings");
}
