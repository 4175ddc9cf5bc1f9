//! The arithmetic of the CPU path: plain `f32` slices in, plain `f32` slices out. Knows nothing of models or batches.
//!
//! One folder per op; its `mod.rs` is the definition in plain Rust, with a test against a naive double-precision one.
//! Two promises hold for all of them, and everything built on top relies on both:
//!
//! - **Batched equals solo, bit for bit.** The order in which one output's terms are added depends on the width of the
//!   row or on absolute positions, never on how many rows there are, how work is cut or how many threads share it.
//! - **Every instruction set gives the same bits.** Products either are rounded before they are added ([`dot`]) or are
//!   fused on every path ([`matmul`], [`quant`], [`attention`]), and all variants keep the same partial sums; wider
//!   registers only do more of them at once. [`isa`] says which set is used. The one exception is [`bf16`], whose units
//!   round and add in ways of their own.
//!
//! ```text
//! packed (block formats → f32)      memory (of weights), floats (activations)
//!   ↓                                  ↓
//! matmul, bf16 (dense weights)      quant (block formats, in integers)      parallel → cores → pool (who computes what)
//!
//! activation, rope → lanes (sixteen floats on every instruction set)
//! attention, norm   → lanes, dot (the fixed order of additions)
//! routing            (which experts a token goes to)
//!
//! cuda               (the GPU's, over candle's arrays: their definitions are in model/candle)
//! ```

pub mod activation;
#[cfg(target_arch = "x86_64")]
mod amx;
pub mod attention;
pub mod bf16;
pub mod cores;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dot;
pub mod floats;
pub mod isa;
mod lanes;
pub mod matmul;
pub mod memory;
pub mod norm;
pub mod packed;
pub mod parallel;
mod pool;
pub mod quant;
pub mod rope;
pub mod routing;
