//! The kernels for AVX-512 with VNNI.
//!
//! ```text
//! blocks of 32:   blocks32 (a few rows or many) → blocks32_micro_kernel
//! blocks of 256:  superblock (up to eight rows) → superblock_many (more rows, which superblock_rows lays out)
//! ```
//! [`load`] reads scales and codes out of a panel for all of them, and [`superblock_header`] the header of a block of 256.

pub(super) mod blocks32;
mod blocks32_micro_kernel;
pub(super) mod load;
pub(super) mod superblock;
pub(super) mod superblock_header;
pub(super) mod superblock_many;
pub(super) mod superblock_rows;
