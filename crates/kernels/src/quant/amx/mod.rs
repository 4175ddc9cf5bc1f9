//! The kernels for AMX, whose tile unit multiplies up to 16 rows of bytes at once.
//!
//! ```text
//! blocks of 32:   blocks32_rows (rows as tiles) → blocks32 → blocks32_tiles (the instructions)
//! blocks of 256:  superblock_rows (rows as pairs of tiles) → superblock → superblock_planes (weights), superblock_products
//! ```
//! [`cut`] says how rows are cut into tiles. A few rows are multiplied by [`super::avx512`], which is as fast for them.

pub(super) mod blocks32;
pub(super) mod blocks32_rows;
mod blocks32_tiles;
mod cut;
pub(super) mod superblock;
mod superblock_planes;
mod superblock_products;
pub(super) mod superblock_rows;
