//! What a cache came to hold and lost, as facts: whoever routes requests wants to know. Full blocks only; what a partly
//! filled one holds is nobody's to count on.

use std::sync::Arc;

use crate::units::TokenId;

use super::node::Node;

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
