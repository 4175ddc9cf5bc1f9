//! Which blocks hold which tokens: blocks of earlier sequences, found again by content.
//!
//! A tree: a node is a block's tokens after its parent's, a root is a salt. A node is found by its parent and its
//! tokens themselves, not by a digest of them, so nobody can make two prompts collide; salts keep tenants apart. Nodes have
//! numbers that are never given twice: when a parent is evicted, what hangs below it is found no more and falls out of use
//! in its turn. Full blocks are shared; the partly filled one with which a prompt or a sequence ended is only copied from. (Prefix sharing by content: Kwon et al., SOSP 2023; a tree of prefixes: Zheng et al., "SGLang", 2024.)

use std::collections::HashMap;
use std::sync::Arc;

use crate::units::{BlockId, TokenId};

use super::change::{Change, Edit};
use super::node::Node;

/// How many siblings are looked at for a common beginning; with more, only the newest are.
const MOST_SIBLINGS: usize = 32;

/// What is known of blocks that hold a sequence's tokens.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    found: HashMap<Key, Found>,
    /// Of each block that is in `found`.
    keys: HashMap<BlockId, Key>,
    /// Blocks right below a node, oldest first.
    children: HashMap<Node, Vec<BlockId>>,
    nodes: u64,
    /// What happened to full blocks, of so many tokens, since it was last asked; `None` where nobody asks.
    told: Option<(usize, Vec<Change>)>,
    /// What was done since it was last taken, for a mirror; `None` in a mirror itself.
    edits: Option<Vec<Edit>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    parent: Node,
    tokens: Arc<[TokenId]>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    block: BlockId,
    node: u64,
}

impl Prefixes {
    /// An empty tree that keeps its edits.
    pub fn mirrored(block_size: usize) -> Prefixes {
        Prefixes { edits: Some(vec![Edit::Cleared { block_size }]), ..Prefixes::default() }
    }

    /// What was done since this was last called.
    pub fn edits(&mut self) -> Vec<Edit> {
        self.edits.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// How many of the beginning of `tokens`, all but the last of them at most, blocks of `block_size` hold below `root`.
    pub fn cached_tokens(&self, root: Node, tokens: &[TokenId], block_size: usize) -> usize {
        let reusable = &tokens[..tokens.len().saturating_sub(1)];
        let (mut node, mut rest) = (root, reusable);
        while let Some((full, after)) = rest.split_at_checked(block_size) {
            let Some((_, next)) = self.find(&node, full) else { break };
            (node, rest) = (next, after);
        }
        let partial = self.longest(&node, rest).map_or(0, |(_, shared)| shared);
        reusable.len() - rest.len() + partial
    }

    /// The block that holds `tokens` below `parent`, and its own place.
    pub fn find(&self, parent: &Node, tokens: &[TokenId]) -> Option<(BlockId, Node)> {
        // A look-up by reference would need a key type of its own; blocks are few and short.
        let key = Key { parent: parent.clone(), tokens: tokens.into() };
        self.found.get(&key).map(|found| (found.block, Node::Block(found.node)))
    }

    /// The block below `parent` that shares the longest beginning with `tokens`, and how long that is.
    pub fn longest(&self, parent: &Node, tokens: &[TokenId]) -> Option<(BlockId, usize)> {
        let newest = self.children.get(parent)?.iter().rev().take(MOST_SIBLINGS);
        let shared = |block: &BlockId| {
            let theirs = self.keys[block].tokens.iter();
            theirs.zip(tokens).take_while(|(a, b)| a == b).count()
        };
        // Of equals the newest: `max_by_key` keeps the last.
        let longest = newest.rev().map(|block| (*block, shared(block))).max_by_key(|(_, shared)| *shared);
        longest.filter(|(_, shared)| *shared > 0)
    }

    /// `block` now holds `tokens` below `parent`. Where another does already, that one stays. The place below which the
    /// sequence goes on.
    pub fn publish(&mut self, parent: &Node, tokens: impl Into<Arc<[TokenId]>>, block: BlockId) -> Node {
        let key = Key { parent: parent.clone(), tokens: tokens.into() };
        if let Some(found) = self.found.get(&key) {
            return Node::Block(found.node);
        }
        // A block that was found by its beginning is found by all that it holds.
        self.evict(block);
        self.nodes += 1;
        self.found.insert(key.clone(), Found { block, node: self.nodes });
        self.children.entry(key.parent.clone()).or_default().push(block);
        let node = self.nodes;
        let stored = || Change::Stored { node, parent: key.parent.clone(), tokens: key.tokens.clone() };
        self.tell(key.tokens.len(), stored);
        if let Some(edits) = &mut self.edits {
            edits.push(Edit::Published { parent: key.parent.clone(), tokens: key.tokens.clone(), block });
        }
        self.keys.insert(block, key);
        Node::Block(self.nodes)
    }

    pub fn holds(&self, block: BlockId) -> bool {
        self.keys.contains_key(&block)
    }

    /// `block` is about to hold something else.
    pub fn evict(&mut self, block: BlockId) {
        let Some(key) = self.keys.remove(&block) else { return };
        self.edits.iter_mut().for_each(|edits| edits.push(Edit::Evicted { block }));
        if let Some(found) = self.found.remove(&key) {
            self.tell(key.tokens.len(), || Change::Removed { node: found.node });
        }
        if let Some(siblings) = self.children.get_mut(&key.parent) {
            siblings.retain(|sibling| *sibling != block);
            if siblings.is_empty() {
                self.children.remove(&key.parent);
            }
        }
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Keeps what happens to blocks of `block_size` tokens from now on.
    pub fn record(&mut self, block_size: usize) {
        self.told = Some((block_size, vec![Change::Cleared]));
    }

    /// What happened since this was last asked.
    pub fn changes(&mut self) -> Vec<Change> {
        self.told.as_mut().map(|(_, changes)| std::mem::take(changes)).unwrap_or_default()
    }

    /// All that is there, as if told for the first time: parents before what hangs below them. What happened before need not be
    /// asked for any more.
    pub fn contents(&mut self) -> Vec<Change> {
        let Some((full, changes)) = &mut self.told else { return Vec::new() };
        changes.clear();
        let stored = |(key, found): (&Key, &Found)| {
            (key.tokens.len() == *full).then(|| (found.node, key.parent.clone(), key.tokens.clone()))
        };
        let mut blocks: Vec<_> = self.found.iter().filter_map(stored).collect();
        // Numbers grow, and a parent is older than its children.
        blocks.sort_unstable_by_key(|(node, ..)| *node);
        let stored = blocks.into_iter().map(|(node, parent, tokens)| Change::Stored { node, parent, tokens });
        std::iter::once(Change::Cleared).chain(stored).collect()
    }

    fn tell(&mut self, tokens: usize, change: impl FnOnce() -> Change) {
        if let Some((full, changes)) = &mut self.told
            && tokens == *full
        {
            changes.push(change());
        }
    }
}
