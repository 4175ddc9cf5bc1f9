//! The kernels for AVX2, with or without AVX-VNNI.
//!
//! [`blocks32`] multiplies weights in blocks of 32, [`superblock`] those in blocks of 256. [`load`] reads scales and codes
//! out of a panel for both; [`vnni`] is the one instruction that AVX-VNNI adds.

pub(super) mod blocks32;
mod load;
pub(super) mod superblock;
mod vnni;
