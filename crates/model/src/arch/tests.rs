//! Configs as they are published: both spellings, defaults, and what each architecture changes.

use forebay_kernels::attention::KvDtype;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::types::spec::decoder::{Activation, Bias, DecoderSpec, Experts, LayerSpec, NormPlacement, QkNorm, Scales};
use crate::types::spec::rope::{Rope, RopeScaling};

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
    match read_spec(&Fields::parse(Path::new("config.json"), config.to_string().as_bytes())?)?.0 {
        Spec::Decoder(spec) => Ok(spec),
        Spec::Encoder(spec) => panic!("no decoder: {spec:?}"),
    }
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
    assert_eq!(plain.ropes, [Rope { theta: 10_000.0, dims: 16, scaling: RopeScaling::None }]);
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
    let older = spec(json!({"rope_theta": 500_000, "rope_scaling": llama3})).unwrap().ropes;
    assert_eq!(older, spec(json!({"rope_parameters": newer})).unwrap().ropes);
    let scaling =
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 64.0 };
    assert_eq!(older, [Rope { theta: 500_000.0, dims: 16, scaling }]);

    let linear = [Rope { theta: 10_000.0, dims: 16, scaling: RopeScaling::Linear { factor: 4.0 } }];
    for kind in ["type", "rope_type"] {
        assert_eq!(spec(json!({"rope_scaling": {kind: "linear", "factor": 4}})).unwrap().ropes, linear);
        assert_eq!(spec(json!({"rope_parameters": {kind: "linear", "factor": 4}})).unwrap().ropes, linear);
    }
    assert_eq!(spec(json!({"rope_scaling": null, "rope_theta": 7.0})).unwrap().ropes[0].theta, 7.0);
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

/// Configs as they were published before `rope_parameters` and `layer_types`, beside the newer spelling.
#[test]
fn older_spellings_of_the_newer_architectures() {
    let of = |class: &str, changes: Value| {
        let mut config = json!({"architectures": [class], "num_hidden_layers": 4});
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        spec(config).unwrap()
    };
    let windows = |spec: &DecoderSpec| spec.layers.iter().map(|layer| layer.window.is_some()).collect::<Vec<_>>();

    let gemma2 = of(
        "Gemma2ForCausalLM",
        json!({"sliding_window": 16, "query_pre_attn_scalar": 64, "head_dim": 32,
        "hidden_act": "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0}),
    );
    assert_eq!(windows(&gemma2), [true, false, true, false]);
    assert_eq!((gemma2.attention_scale, gemma2.attention_cap, gemma2.logit_cap), (0.125, Some(50.0), None));
    assert_eq!((gemma2.activation, gemma2.tied, gemma2.norm_offset), (Activation::GeluTanh, true, 1.0));
    assert_eq!((gemma2.scales.embedding, gemma2.norms), (8.0, NormPlacement::Both));

    let gemma3 = |changes: Value| of("Gemma3ForCausalLM", changes);
    let older = gemma3(json!({"sliding_window": 16, "sliding_window_pattern": 2, "rope_theta": 5e5,
        "rope_local_base_freq": 2e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}));
    let newer = gemma3(json!({"sliding_window": 16, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}},
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}));
    assert_eq!(older, newer);
    assert_eq!(older.layers[1], LayerSpec { window: None, rope: Some(0), routed: false });
    assert_eq!(older.layers[2], LayerSpec { window: Some(16), rope: Some(1), routed: false });
    let usual = gemma3(json!({"sliding_window": 16}));
    assert_eq!((usual.ropes[0].theta, usual.ropes[1].theta), (1e6, 1e4));
    assert_eq!(windows(&usual), [true; 4], "every sixth sees all");

    let smollm3 = of("SmolLM3ForCausalLM", json!({}));
    let ropes: Vec<_> = smollm3.layers.iter().map(|layer| layer.rope).collect();
    assert_eq!(ropes, [Some(0), Some(0), Some(0), None]);
    let flags = of("SmolLM3ForCausalLM", json!({"no_rope_layers": [0, 1, 1, 0]}));
    assert_eq!((flags.layers[0].rope, flags.layers[1].rope), (None, Some(0)));

    let granite = of(
        "GraniteForCausalLM",
        json!({"embedding_multiplier": 12.0, "logits_scaling": 8.0,
        "residual_multiplier": 0.25, "attention_multiplier": 0.5}),
    );
    assert_eq!(granite.scales, Scales { embedding: 12.0, residual: 0.25, logits: 0.125 });
    assert_eq!(granite.attention_scale, 0.5);

    let moe = of(
        "Qwen3MoeForCausalLM",
        json!({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    );
    assert_eq!(moe.experts, Some(Experts { count: 8, per_token: 2, intermediate: 24, normalised: false }));
    assert_eq!(moe.layers.iter().map(|layer| layer.routed).collect::<Vec<_>>(), [false, true, false, false]);
}

#[test]
fn stretched_ropes_in_both_spellings() {
    let both = |scaling: Value| {
        let older = spec(json!({"rope_theta": 5e5, "rope_scaling": scaling})).unwrap();
        let mut parameters = scaling.clone();
        parameters["rope_theta"] = json!(5e5);
        assert_eq!(older, spec(json!({"rope_parameters": parameters})).unwrap(), "{scaling}");
        (older.ropes[0].scaling.clone(), older.max_position_embeddings)
    };
    for kind in ["type", "rope_type"] {
        let dynamic = RopeScaling::Dynamic { factor: 2.0, original_context: 256.0 };
        assert_eq!(both(json!({kind: "dynamic", "factor": 2.0})), (dynamic, 512));
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            original_context: 128.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention: 0.1 * 4f64.ln() + 1.0,
        };
        let given = json!({kind: "yarn", "factor": 4.0, "original_max_position_embeddings": 128});
        assert_eq!(both(given), (yarn, 512));
    }
    let factors: Vec<f32> = (1..=8).map(|i| i as f32).collect();
    let long = |attention| RopeScaling::LongRope {
        short: vec![1.0; 8],
        long: factors.clone(),
        original_context: 64,
        attention,
    };
    let scaling = json!({"type": "longrope", "short_factor": vec![1.0; 8], "long_factor": factors});
    let phi = |mut changes: Value| {
        changes["architectures"] = json!(["Phi3ForCausalLM"]);
        spec(changes).unwrap()
    };
    let phi3 = phi(json!({"original_max_position_embeddings": 64, "rope_scaling": scaling}));
    let attention = (1.0 + 4f64.ln() / 64f64.ln()).sqrt();
    assert_eq!((&phi3.ropes[0].scaling, phi3.max_position_embeddings), (&long(attention), 256));
    assert!(phi3.fused);
    let mut given = scaling.clone();
    given["attention_factor"] = json!(1.5);
    given["original_max_position_embeddings"] = json!(64);
    assert_eq!(phi(json!({"rope_parameters": given})).ropes[0].scaling, long(1.5));
    let partial = json!({"partial_rotary_factor": 0.75});
    assert_eq!(phi(partial).ropes[0].dims, 12);
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
    check(json!({"hidden_act": "relu"}), "`hidden_act` must be silu, gelu or gelu_pytorch_tanh, found \"relu\"");
    check(json!({"tie_word_embeddings": "yes"}), "`tie_word_embeddings` must be true or false");
    check(json!({"quantization_config": {"bits": 4}}), "`quantization_config` must be absent");
    check(json!({"partial_rotary_factor": 0.2}), "`partial_rotary_factor` must leave an even number of the 16");
    check(json!({"partial_rotary_factor": 0}), "`partial_rotary_factor` must leave an even number of the 16");
    check(json!({"rope_theta": 0}), "`rope_theta` must be a number from 1");
    check(json!({"rope_scaling": "linear"}), "`rope_scaling` must be an object");
    check(
        json!({"rope_scaling": {"rope_type": "ntk"}}),
        "`rope_scaling.rope_type` must be default, linear, dynamic, llama3, yarn or longrope, found \"ntk\"",
    );
    check(json!({"rope_scaling": {"type": "dynamic"}}), "`rope_scaling.factor` is missing");
    check(json!({"rope_scaling": {"type": "yarn", "factor": 0.5}}), "`rope_scaling.factor` must be a number from 1");
    check(json!({"rope_scaling": {"type": "longrope"}}), "`rope_scaling.short_factor` is missing");
    let short = json!({"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1]});
    check(
        json!({"rope_scaling": short}),
        "`rope_scaling.short_factor` must have one number for each of the 8 rotated pairs",
    );
    let nothing = json!({"type": "longrope", "short_factor": [0], "long_factor": [1]});
    check(json!({"rope_scaling": nothing}), "`rope_scaling.short_factor` must be a list of numbers from 1e-6");
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
    let of = |class: &str, changes: Value| {
        let mut config = json!({"architectures": [class]});
        config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        config
    };
    check(of("MixtralForCausalLM", json!({})), "`num_local_experts` is missing");
    let experts = json!({"num_local_experts": 4, "num_experts_per_tok": 5});
    check(of("MixtralForCausalLM", experts), "`num_experts_per_tok` must be at most the number of experts, 4, found 5");
    check(of("Gemma3ForCausalLM", json!({"head_dim": 16})), "`sliding_window` is missing");
    let one = json!({"head_dim": 16, "rope_parameters": {"full_attention": {}}});
    check(of("Gemma3ForCausalLM", one), "`rope_parameters.sliding_attention` is missing");
    let types = json!({"sliding_window": 4, "layer_types": ["chunked_attention", "full_attention", "full_attention"]});
    check(of("Gemma2ForCausalLM", types), "`layer_types` must hold full_attention or sliding_attention");
    check(of("SmolLM3ForCausalLM", json!({"no_rope_layers": [1]})), "`no_rope_layers` must have one entry for each");
    check(of("GraniteForCausalLM", json!({"logits_scaling": 0})), "`logits_scaling` must be a number from 1e-9");
    check(
        json!({"architectures": ["GPT2LMHeadModel"]}),
        "architecture GPT2LMHeadModel is not supported; supported: Llama",
    );
    check(json!({"architectures": null, "model_type": null}), "architecture (not given) is not supported");
    check(json!({"architectures": "LlamaForCausalLM"}), "`architectures` must be a list of strings");
}
