//! What multiplies BF16 numbers on this machine, and how large a piece of weights it takes.

#[cfg(target_arch = "x86_64")]
use crate::amx::permission;
use crate::isa::Isa;

/// Inputs of a tile.
pub(super) const GROUP: usize = 32;
/// Outputs of a tile, and rows of `x`.
pub(super) const TILE: usize = 16;
/// Numbers of a tile of weights or rows.
pub(super) const TILE_NUMBERS: usize = TILE * GROUP;

/// What multiplies weights, and hence how they lie: `[outputs / 16, inputs / 32]` groups of 1 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// AMX. A group is `[16 outputs, 32 inputs]`.
    Tiles,
    /// AVX-512 with BF16. A group is `[16 pairs of inputs, 16 outputs, 2]`.
    Pairs,
}

impl Unit {
    /// What this process uses.
    pub fn current() -> Option<Unit> {
        match Isa::current() {
            Isa::Amx if Unit::Tiles.is_here() => Some(Unit::Tiles),
            Isa::Amx | Isa::Avx512 if Unit::Pairs.is_here() => Some(Unit::Pairs),
            _ => None,
        }
    }

    /// Whether this machine has the unit.
    #[cfg(target_arch = "x86_64")]
    pub fn is_here(self) -> bool {
        match self {
            Unit::Tiles => Isa::Amx.is_here() && permission::has_bf16(),
            Unit::Pairs => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bf16")
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_here(self) -> bool {
        false
    }

    /// Where in a group input `k` of output `n` is, in numbers.
    pub fn place(self, n: usize, k: usize) -> usize {
        match self {
            Unit::Tiles => n * GROUP + k,
            Unit::Pairs => k / 2 * 2 * TILE + 2 * n + k % 2,
        }
    }
}
