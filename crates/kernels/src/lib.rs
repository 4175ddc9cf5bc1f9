//! The arithmetic of Forebay: kernels for several instruction sets and for NVIDIA GPUs. Plain `f32` slices go in, plain
//! `f32` slices come out.
//!
//! This crate knows no models, layers, batches or requests, opens no files, and uses no other crate of Forebay. Weights
//! come as bytes in a [`packed::Packing`]; which matrix of which layer they are is the caller's business.
//!
//! One folder per op; at its top stands the definition in plain Rust, with a test against a naive double-precision one, and
//! below it a file or a folder per instruction set. Two promises hold for all of them, and everything built on top relies
//! on both:
//!
//! - **Batched equals solo, bit for bit.** The order in which one output's terms are added depends on the width of the
//!   row or on absolute positions, never on how many rows there are, how work is cut or how many threads share it.
//! - **Every instruction set gives the same bits.** Products either are rounded before they are added ([`dot`]) or are
//!   fused on every path ([`matmul`], [`quant`], [`attention`]), and all variants keep the same partial sums; wider
//!   registers only do more of them at once. [`isa`] says which set is used. The one exception is [`bf16`], whose units
//!   round and add in ways of their own.
//!
//! ```text
//! which instructions       isa → amx (the tile unit's permission and registers)
//! which threads            parallel → cores → pool
//! whose memory             memory (weights), floats (activations)
//! block formats            packed (to and from f32)
//!
//! products                 matmul (dense weights), bf16 (on units that multiply BF16), quant (block formats, in integers)
//! everything else          attention, norm, activation, rope → lanes (sixteen floats on every instruction set), dot
//!                          routing (which experts a token goes to)
//!
//! GPU                      cuda, over candle's arrays (cargo feature `cuda`; its caller has the plain definitions)
//! ```
//! Arrows point at what is used; else a line uses lines above it only. No two files use each other.
//!
//! To begin with, read these: [`isa::Isa`], the instruction sets and how one is chosen; [`quant::Panels`], weights as
//! kernels read them; [`quant::QuantisedRows`], activations beside them; [`attention::attention`], over a paged
//! [`attention::Cache`]; and the trait `Lanes` in `lanes/operations.rs`, in which all small ops are written.
//!
//! ```
//! use forebay_kernels::packed::{self, Packing, Quantised};
//! use forebay_kernels::quant::{self, Panels};
//!
//! // Weights of two outputs with 32 inputs each, packed to eight bits as a file has them.
//! let (inputs, weights) = (32, [[0.5f32; 32], [-0.25; 32]]);
//! let numbers: Vec<u8> = weights.as_flattened().iter().flat_map(|w| w.to_le_bytes()).collect();
//! let mut blocks = vec![0; 2 * Packing::Q8_0.row_bytes(inputs).expect("whole blocks")];
//! packed::repack(Packing::F32, &numbers, inputs, Quantised::Q8_0, &mut blocks);
//!
//! // Once, when a model is loaded: sixteen outputs side by side. In each step: the rows, rounded to match the weights.
//! let panels = Panels::repack(Packing::Q8_0, &blocks, inputs, |_| {})?;
//! let rows = quant::quantise_rows(&[1.0; 32], inputs, panels.rounding_group());
//!
//! let y = quant::matmul(&rows, &panels);
//! assert!((y[0] - 16.0).abs() < 0.01 && (y[1] + 8.0).abs() < 0.01);
//! # Ok::<(), forebay_kernels::memory::OutOfMemory>(())
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
