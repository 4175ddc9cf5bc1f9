//! Weights in the block formats of GGUF, and their exact values as `f32`.
//!
//! A block is a run of consecutive numbers of one row that share scales: 32 numbers in `blocks32`, 256 in
//! `blocks256`; `halves` are blocks of one. The layouts and the order of operations are those of ggml's
//! `dequantize_row_*`, so the values are the same to the bit; the tests compare with candle's port of it.
//!
//! Nothing here can fail on hostile bytes: every bit pattern is a number, if sometimes NaN.

mod blocks256;
mod blocks32;
pub(crate) mod halves;
mod pack;
mod packing;
mod unpack;

pub use pack::{Quantised, repack};
pub use packing::Packing;
pub use unpack::unpack;

#[cfg(test)]
mod tests;
