//! The places of the prefix tree.

use std::sync::Arc;

/// A place in the tree: what a sequence's next full block hangs below.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// Nothing yet, for all who share a salt.
    Root(Arc<str>),
    /// A block's.
    Block(u64),
}
