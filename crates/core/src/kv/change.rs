//! What a cache came to hold and lost, as facts: [`Change`]s for whoever routes requests, [`Edit`]s for a
//! [`Mirror`](super::Mirror).

use std::sync::Arc;

use crate::units::{BlockId, TokenId};

use super::node::Node;

/// A change of full blocks; what a partly filled one holds is nothing that others should count on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that was told before holds any more.
    Cleared,
    /// A full block can be found. `node` is never given twice in one pool; `parent` was told before, or is a root, or has been
    /// removed since.
    Stored { node: u64, parent: Node, tokens: Arc<[TokenId]> },
    /// It can no longer.
    Removed { node: u64 },
}

/// A change of the prefix tree as it was made, partly filled blocks included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A new tree, of blocks of so many tokens.
    Cleared { block_size: usize },
    /// A block can be found by its tokens.
    Published { parent: Node, tokens: Arc<[TokenId]>, block: BlockId },
    /// It no longer can.
    Evicted { block: BlockId },
}
