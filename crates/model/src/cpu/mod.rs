//! The CPU over our own kernels: what the pass computes on where no other device is chosen.
//!
//! Knows the trait that it implements and the kernels, and neither architectures nor files.

pub(crate) mod backend;
mod buffers;
mod matrix;
