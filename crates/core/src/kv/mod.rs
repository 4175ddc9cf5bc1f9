//! The paged KV cache's bookkeeping: which physical block belongs to whom. Pure: knows numbers of blocks, never memory;
//! `model::kv_memory` holds the bytes. (Paging: Kwon et al., "Efficient Memory Management for Large Language Model Serving
//! with PagedAttention", SOSP 2023.)
//!
//! ```text
//! tokens ─▶ prefix (what full blocks hold, by content) ─▶ blocks to reuse
//! position p ─▶ logical block p / block_size ─▶ BlockTable ─▶ physical block ─▶ slot = block * block_size + p % block_size
//! ```

mod block_table;
mod change;
mod check;
mod mirror;
mod node;
mod pool;
mod prefix;
mod uses;

pub use block_table::BlockTable;
pub use change::{Change, Edit};
pub use mirror::Mirror;
pub use node::Node;
pub use pool::{Block, BlockPool, OutOfBlocks, Reused};

#[cfg(test)]
mod tests;
