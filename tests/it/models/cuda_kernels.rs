//! The CUDA kernels of crates/kernels/src/cuda without a GPU: compiled by g++ against the CUDA of `tests/cuda`, where a block's
//! threads are fibers, and compared with plain loops in f64.
//!
//! That finds wrong indices, missing barriers (threads run in an order drawn from a seed), reads outside of arrays (the
//! address sanitizer) and of memory that nothing wrote (it holds NaN). It says nothing of speed, of what nvcc makes of the
//! sources, nor of how a tensor core rounds its sums. Without g++ these tests are skipped, but not in CI.

mod attention;
mod device;
mod elements;
mod kind;
mod paged;
mod sampling;
