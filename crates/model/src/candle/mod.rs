//! Any device that candle knows: CUDA, Metal, and the CPU as the oracle of [`crate::cpu`].
//!
//! A step is one packed forward: every sequence's rows lie one after another, [`plan`] says once per step whose they are,
//! and each op runs over all of them. What candle has no op for is ours: [`paged`], [`fused`] and [`sample`] are custom
//! ops with two bodies, a plain definition that runs on the CPU and the launch of a kernel. So all but the launches is
//! tested without a GPU. Metal has no kernels of ours and takes [`generic`] instead.
//!
//! Knows the trait that it implements, candle and the kernels, and neither architectures nor files.
//!
//! ```text
//! on_device (device, number type, staging) ◄── everything below;  backend: the trait, over all of them
//! plan (packing) ── arrays of the step, sequences ──► paged (store, attention)  fused (norm, rope, gate)  sample (ids)
//! matrix (dense or quantised)          └── cpu_fwd: the definition    └── cuda_fwd: kernels/cuda
//! ```

pub(crate) mod backend;
pub(crate) mod device;
#[cfg(feature = "flash-attn")]
mod flash;
mod fused;
#[cfg(feature = "metal")]
mod generic;
#[cfg(all(test, feature = "cuda"))]
mod gpu_tests;
#[cfg(feature = "cuda")]
mod graphs;
mod kv;
mod matrix;
mod numbers;
mod on_device;
mod packing;
mod paged;
mod plan;
mod sample;
mod sequences;
mod staging;
