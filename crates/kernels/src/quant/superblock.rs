//! Weights in blocks of 256 (K-quants): the formula, and the sizes that all their kernels share.
//!
//! Groups have small integers for scales, so that a block's products are added as integers, scales and all, and floating
//! point begins once per block.
//!
//! ```text
//! Affine (Q4_K, Q5_K), 8 groups of 32:   y += x_scale · (d · Σ scale·dot(w, x) − dmin · Σ min·sum(x))
//! Halves (Q6_K), 16 groups of 16:        y += x_scale · (d · Σ scale·dot(w − 32, x))
//! ```
//! Both sums are exact (below 2²⁷), so it does not matter in which order or in how many parts a path adds them; blocks are
//! added in ascending order. It is also how ggml does it, but for the order of blocks. The definition in plain Rust is
//! [`super::scalar::superblock_panel`].

use super::format::GROUP;
#[cfg(target_arch = "x86_64")]
use super::format::Header;

/// Groups of 32 inputs in a block.
pub(super) const GROUPS: usize = 8;
/// Inputs of a block.
pub(super) const BLOCK: usize = GROUPS * GROUP;
/// What is taken off the codes of `Halves`.
pub(super) const OFFSET: i32 = 32;

/// Bytes of a block's header, which its codes follow: [`super::format::Format::header_bytes`], known when kernels are compiled.
#[cfg(target_arch = "x86_64")]
pub(super) const fn header_bytes(affine: bool) -> usize {
    let header = if affine { Header::SuperAffine } else { Header::SuperHalves };
    header.bytes().next_multiple_of(64)
}

/// Packs two sums of 16 bits into one number, the first one low, as the instructions that multiply pairs take them.
pub(super) fn pair(first: i32, second: i32) -> i32 {
    first & 0xffff | second << 16
}
