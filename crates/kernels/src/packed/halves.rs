//! Numbers of two bytes. Both formats fit `f32` exactly.

/// Without branches, so that a run of them vectorises: the exponent is shifted into place and its bias corrected by one
/// exact product, which makes subnormal numbers right as well.
#[inline(always)]
pub(crate) fn f16(bytes: [u8; 2]) -> f32 {
    const TWO_TO_112: f32 = f32::from_bits((112 + 127) << 23);
    const INFINITE: u32 = 0x7c00 << 13;
    let bits = u32::from(u16::from_le_bytes(bytes));
    let magnitude = (bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * TWO_TO_112).to_bits();
    let value = if magnitude >= INFINITE { magnitude | 0x7f80_0000 } else { finite };
    f32::from_bits(value | (bits & 0x8000) << 16)
}

#[inline(always)]
pub(crate) fn bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_are_those_of_the_half_crate() {
        for bits in 0..=u16::MAX {
            let same = |ours: f32, theirs: f32| ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan();
            assert!(same(f16(bits.to_le_bytes()), half::f16::from_bits(bits).to_f32()), "f16 {bits:04x}");
            assert!(same(bf16(bits.to_le_bytes()), half::bf16::from_bits(bits).to_f32()), "bf16 {bits:04x}");
        }
    }
}
