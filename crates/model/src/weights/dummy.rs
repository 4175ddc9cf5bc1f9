//! Seeded random weights (`--load-format dummy`): a model of any shape without a checkpoint.

use crate::files::names;
use crate::types::error::TensorRule;

/// Half the width of the uniform distribution; its standard deviation, 0.02, is that of a fresh model.
const SPREAD: f32 = 0.034_64;

/// Depends on name, shape and seed alone, not on the order in which tensors are asked for. Norms are near one.
pub(super) fn tensor(name: &str, shape: &[usize], seed: u64) -> Result<Vec<f32>, TensorRule> {
    let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
    let bytes = count.and_then(|count| count.checked_mul(size_of::<f32>()));
    let mut out = Vec::new();
    let (Some(count), Some(bytes)) = (count, bytes) else {
        return Err(TensorRule::Allocation { bytes: usize::MAX });
    };
    out.try_reserve_exact(count).map_err(|_| TensorRule::Allocation { bytes })?;
    let centre = if names::is_norm(name) { 1.0 } else { 0.0 };
    let mut state = name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3) // FNV-1a
    });
    out.extend((0..count).map(|_| centre + SPREAD * (2.0 * uniform(&mut state) - 1.0)));
    Ok(out)
}

/// SplitMix64 (Steele, Lea and Flood, 2014), its upper 24 bits as a number in `0..1`.
fn uniform(state: &mut u64) -> f32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_on_seed_and_name_only_and_looks_fresh() {
        let name = "model.layers.0.mlp.up_proj.weight";
        let weights = tensor(name, &[100, 100], 7).unwrap();
        assert_eq!(weights, tensor(name, &[100, 100], 7).unwrap());
        assert_ne!(weights, tensor(name, &[100, 100], 8).unwrap());
        assert_ne!(weights, tensor("model.layers.1.mlp.up_proj.weight", &[100, 100], 7).unwrap());
        let mean = weights.iter().sum::<f32>() / 1e4;
        let deviation = (weights.iter().map(|w| (w - mean).powi(2)).sum::<f32>() / 1e4).sqrt();
        assert!(mean.abs() < 1e-3 && (deviation - 0.02).abs() < 1e-3, "mean {mean}, deviation {deviation}");
        assert!(tensor("model.norm.weight", &[10], 7).unwrap().iter().all(|w| (w - 1.0).abs() < 0.04));
    }

    #[test]
    fn sizes_that_fit_no_memory_are_errors() {
        assert!(matches!(tensor("w", &[usize::MAX, 2], 0), Err(TensorRule::Allocation { .. })));
        assert!(matches!(tensor("w", &[1 << 30, 1 << 30], 0), Err(TensorRule::Allocation { .. })));
    }
}
