//! The tile unit of AMX, for all kernels that multiply with it: whether this process may use it, and its registers.
//!
//! This folder knows neither rows nor weights. What is loaded into the registers and multiplied there is written where
//! the products are: in [`crate::quant`] for bytes, in [`crate::bf16`] for BF16.

pub(crate) mod permission;
pub(crate) mod registers;
