//! In what the spec of a written file differs from that of its checkpoint.

use crate::types::spec::decoder::DecoderSpec;
use crate::types::spec::rope::{Rope, RopeScaling};

/// The parts that differ. Factors may differ by what writing them in `f32` rounds.
pub(super) fn differences(a: &DecoderSpec, b: &DecoderSpec) -> Vec<&'static str> {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1e-30);
    let same_rope = |(a, b): (&Rope, &Rope)| {
        let scaling = match (&a.scaling, &b.scaling) {
            (
                RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, truncate, attention },
                RopeScaling::Yarn {
                    factor: f,
                    original_context: o,
                    beta_fast: fast,
                    beta_slow: slow,
                    truncate: t,
                    attention: at,
                },
            ) => {
                let pairs = [(factor, f), (original_context, o), (beta_fast, fast), (beta_slow, slow), (attention, at)];
                truncate == t && pairs.into_iter().all(|(a, b)| near(*a, *b))
            }
            (RopeScaling::Linear { factor }, RopeScaling::Linear { factor: other }) => near(*factor, *other),
            (
                RopeScaling::LongRope { short, long, original_context, attention },
                RopeScaling::LongRope { short: s, long: l, original_context: o, attention: at },
            ) => (short, long, original_context) == (s, l, o) && near(*attention, *at),
            (a, b) => a == b,
        };
        a.dims == b.dims && near(a.theta, b.theta) && scaling
    };
    let ropes = a.ropes.len() == b.ropes.len() && a.ropes.iter().zip(&b.ropes).all(same_rope);
    let scales = [
        (a.scales.embedding, b.scales.embedding),
        (a.scales.residual, b.scales.residual),
        (a.scales.logits, b.scales.logits),
        (a.attention_scale, b.attention_scale),
    ];
    let scales = scales.into_iter().all(|(a, b)| near(f64::from(a), f64::from(b)));
    // What differs so far is compared with more care than by equality.
    let rest = DecoderSpec {
        ropes: a.ropes.clone(),
        scales: a.scales,
        attention_scale: a.attention_scale,
        layers: a.layers.clone(),
        experts: a.experts,
        ..b.clone()
    };
    let parts = [
        (ropes, "rotary positions"),
        (scales, "factors"),
        (a.layers == b.layers, "layers"),
        (a.experts == b.experts, "experts"),
        (*a == rest, "sizes, norms, biases or activation"),
    ];
    parts.into_iter().filter(|(same, _)| !same).map(|(_, name)| name).collect()
}
