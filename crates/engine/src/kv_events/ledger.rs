//! Which content is in any loop's cache: changes by node in, events by content out. Pure.
//!
//! A node is one loop's and gone with its parent; what routers are told goes by content, so that two loops with the same block
//! are one, and a block that is found again under a new parent is the old one.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use forebay_core::kv::{Change, Node};

use super::wire::{Event, Stored};

pub struct Ledger {
    loops: Vec<Tree>,
    /// How many nodes have each content.
    held: HashMap<u64, u32>,
    /// A collision costs a router a wrong guess, never an answer; with secret keys nobody can make one.
    hasher: RandomState,
    block_size: usize,
    /// Names of the adapters, in the order of their numbers.
    adapters: Vec<String>,
}

/// One loop's nodes that can be found.
#[derive(Default)]
struct Tree {
    nodes: HashMap<u64, Known>,
    /// Right below each of them.
    below: HashMap<u64, Vec<u64>>,
}

#[derive(Clone, Copy)]
struct Known {
    hash: u64,
    adapter: Option<usize>,
    parent: Option<u64>,
}

impl Tree {
    fn insert(&mut self, node: u64, known: Known) {
        self.nodes.insert(node, known);
        if let Some(parent) = known.parent {
            self.below.entry(parent).or_default().push(node);
        }
    }

    /// Takes out a node and all that is found through it: its number will not come again, so neither will they be found.
    fn remove(&mut self, node: u64) -> Vec<Known> {
        let parent = self.nodes.get(&node).and_then(|known| known.parent);
        if let Some(siblings) = parent.and_then(|parent| self.below.get_mut(&parent)) {
            siblings.retain(|sibling| *sibling != node);
        }
        let (mut gone, mut next) = (Vec::new(), vec![node]);
        while let Some(node) = next.pop() {
            gone.extend(self.nodes.remove(&node));
            next.extend(self.below.remove(&node).into_iter().flatten());
        }
        gone
    }
}

impl Ledger {
    pub fn new(loops: usize, block_size: usize, adapters: Vec<String>) -> Ledger {
        Ledger {
            loops: (0..loops).map(|_| Tree::default()).collect(),
            held: HashMap::new(),
            hasher: RandomState::new(),
            block_size,
            adapters,
        }
    }

    /// What routers are to hear of it.
    pub fn apply(&mut self, loop_index: usize, changes: Vec<Change>) -> Vec<Event> {
        let mut events = Vec::new();
        for change in changes {
            match change {
                Change::Cleared => self.clear(loop_index, &mut events),
                Change::Stored { node, parent, tokens } => {
                    let Some((above, adapter)) = self.place(loop_index, &parent) else { continue };
                    let hash = self.hash(above, adapter, &tokens);
                    let parent = match parent {
                        Node::Block(parent) => Some(parent),
                        Node::Root(_) => None,
                    };
                    self.loops[loop_index].insert(node, Known { hash, adapter, parent });
                    let count = self.held.entry(hash).or_default();
                    *count += 1;
                    if *count == 1 {
                        self.store(Block { hash, parent: above, adapter, tokens: &tokens }, &mut events);
                    }
                }
                Change::Removed { node } => {
                    let gone = self.loops[loop_index].remove(node);
                    gone.into_iter().for_each(|known| self.let_go(known.hash, &mut events));
                }
            }
        }
        events
    }

    /// The content of a block's parent and whose it is; `None` where nobody is told of it, or where the parent has gone, so that
    /// no request will find the block.
    fn place(&self, loop_index: usize, parent: &Node) -> Option<(Option<u64>, Option<usize>)> {
        match parent {
            Node::Block(node) => self.loops[loop_index].nodes.get(node).map(|known| (Some(known.hash), known.adapter)),
            Node::Root(salt) if salt.is_empty() => Some((None, None)),
            // An adapter's, without a client's salt.
            Node::Root(salt) => Some((None, Some(salt.strip_suffix('/')?.parse().ok()?))),
        }
    }

    fn hash(&self, parent: Option<u64>, adapter: Option<usize>, tokens: &[u32]) -> u64 {
        // Positive as a signed number, too: not every reader has unsigned ones.
        self.hasher.hash_one((parent, adapter, tokens)) >> 1
    }

    fn store(&self, block: Block, events: &mut Vec<Event>) {
        let lora_id = block.adapter.map(|adapter| adapter as u64 + 1);
        if let Some(Event::BlockStored(last)) = events.last_mut()
            && last.block_hashes.last().copied() == block.parent
            && last.lora_id == lora_id
        {
            last.block_hashes.push(block.hash);
            last.token_ids.extend(block.tokens);
            return;
        }
        events.push(Event::BlockStored(Stored {
            block_hashes: vec![block.hash],
            parent_block_hash: block.parent,
            token_ids: block.tokens.to_vec(),
            block_size: self.block_size,
            lora_id,
            medium: "GPU",
            lora_name: block.adapter.and_then(|adapter| self.adapters.get(adapter).cloned()),
        }));
    }

    /// One node less has this content.
    fn let_go(&mut self, hash: u64, events: &mut Vec<Event>) {
        let Some(count) = self.held.get_mut(&hash) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.held.remove(&hash);
        match events.last_mut() {
            Some(Event::BlockRemoved { block_hashes, .. }) => block_hashes.push(hash),
            _ => events.push(Event::BlockRemoved { block_hashes: vec![hash], medium: "GPU" }),
        }
    }

    fn clear(&mut self, loop_index: usize, events: &mut Vec<Event>) {
        let mut removed = Vec::new();
        for known in std::mem::take(&mut self.loops[loop_index]).nodes.into_values() {
            self.let_go(known.hash, &mut removed);
        }
        if self.held.is_empty() {
            events.push(Event::AllBlocksCleared);
        } else {
            events.append(&mut removed);
        }
    }
}

struct Block<'a> {
    hash: u64,
    parent: Option<u64>,
    adapter: Option<usize>,
    tokens: &'a [u32],
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use forebay_core::kv::{Block, BlockPool};

    fn root(salt: &str) -> Node {
        Node::Root(salt.into())
    }

    fn stored(node: u64, parent: Node, tokens: [u32; 2]) -> Change {
        Change::Stored { node, parent, tokens: Arc::from(tokens) }
    }

    /// Events in letters, hashes by the order in which they are first met.
    fn told(ledger: &mut Ledger, names: &mut Vec<u64>, loop_index: usize, changes: Vec<Change>) -> String {
        let mut name = |hash: u64| match names.iter().position(|known| *known == hash) {
            Some(at) => at,
            None => {
                names.push(hash);
                names.len() - 1
            }
        };
        let mut word = |event: &Event| match event {
            Event::AllBlocksCleared => "clear".to_owned(),
            Event::BlockRemoved { block_hashes, .. } => {
                format!("-{:?}", block_hashes.iter().map(|hash| name(*hash)).collect::<Vec<_>>())
            }
            Event::BlockStored(stored) => format!(
                "+{:?} under {:?} {:?} {:?}",
                stored.block_hashes.iter().map(|hash| name(*hash)).collect::<Vec<_>>(),
                stored.parent_block_hash.map(&mut name),
                stored.token_ids,
                stored.lora_name
            ),
        };
        ledger.apply(loop_index, changes).iter().map(&mut word).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn content_is_told_once_however_many_loops_hold_it() {
        let mut ledger = Ledger::new(2, 2, vec!["poet".into()]);
        let names = &mut Vec::new();
        assert_eq!(told(&mut ledger, names, 0, vec![Change::Cleared]), "clear");
        let chain = || vec![stored(1, root(""), [1, 2]), stored(2, Node::Block(1), [3, 4])];
        assert_eq!(told(&mut ledger, names, 0, chain()), "+[0, 1] under None [1, 2, 3, 4] None");
        assert_eq!(told(&mut ledger, names, 1, chain()), "", "another loop has the same");
        assert_eq!(told(&mut ledger, names, 0, vec![Change::Removed { node: 1 }]), "");
        let gone = told(&mut ledger, names, 1, vec![Change::Removed { node: 1 }]);
        assert_eq!(gone, "-[0, 1]", "what hung below is found no more, either");
        assert_eq!(told(&mut ledger, names, 1, vec![Change::Removed { node: 2 }]), "", "and is not removed twice");
        assert_eq!(told(&mut ledger, names, 0, vec![stored(3, root(""), [1, 2])]), "+[0] under None [1, 2] None");
        assert_eq!(told(&mut ledger, names, 1, vec![stored(3, root(""), [1, 2])]), "");
        assert_eq!(told(&mut ledger, names, 1, vec![Change::Cleared]), "", "the other loop has it all");
        let adapter = vec![stored(4, root("0/"), [1, 2])];
        assert_eq!(told(&mut ledger, names, 0, adapter), r#"+[2] under None [1, 2] Some("poet")"#);
        let salted = vec![stored(5, root("me"), [1, 2]), stored(6, root("0/me"), [1, 2]), Change::Removed { node: 5 }];
        assert_eq!(told(&mut ledger, names, 0, salted), "", "a salt is nobody else's business");
        let orphan = vec![stored(7, Node::Block(99), [5, 6])];
        assert_eq!(told(&mut ledger, names, 0, orphan), "");
        assert_eq!(told(&mut ledger, names, 0, vec![Change::Cleared]), "clear");
        assert!(ledger.held.is_empty());
    }

    /// What a router makes of events: content by hash, as chains from the root.
    #[derive(Default)]
    struct Index(HashMap<u64, (Option<u64>, Vec<u32>)>);

    impl Index {
        fn hear(&mut self, events: Vec<Event>) {
            for event in events {
                match event {
                    Event::AllBlocksCleared => self.0.clear(),
                    Event::BlockRemoved { block_hashes, .. } => block_hashes.iter().for_each(|hash| {
                        self.0.remove(hash).expect("only what was stored is removed");
                    }),
                    Event::BlockStored(stored) => {
                        let mut parent = stored.parent_block_hash;
                        for (hash, tokens) in stored.block_hashes.iter().zip(stored.token_ids.chunks(stored.block_size))
                        {
                            assert!(self.0.insert(*hash, (parent, tokens.to_vec())).is_none(), "stored twice");
                            parent = Some(*hash);
                        }
                    }
                }
            }
        }

        /// Leading full blocks of `tokens` that it believes in.
        fn match_blocks(&self, tokens: &[u32], size: usize) -> usize {
            let mut parent = None;
            let mut blocks = 0;
            for full in tokens.chunks_exact(size) {
                let found = self.0.iter().find(|(_, (above, held))| *above == parent && held == full);
                let Some((hash, _)) = found else { break };
                (parent, blocks) = (Some(*hash), blocks + 1);
            }
            blocks
        }
    }

    proptest! {
        /// A router that hears everything believes exactly what the pool would find, also where it missed some and heard all anew.
        #[test]
        fn a_router_that_listens_knows_what_the_pool_finds(
            turns in prop::collection::vec((prop::collection::vec(0u32..2, 1..9), any::<bool>()), 1..60),
        ) {
            const SIZE: usize = 2;
            let mut pool = BlockPool::new(6, SIZE);
            pool.record();
            let mut ledger = Ledger::new(1, SIZE, Vec::new());
            let mut index = Index::default();
            for (tokens, missed) in turns {
                let mut reused = pool.reuse(root(""), &tokens);
                reused.partial.take().into_iter().for_each(|(block, _)| pool.give_back(block));
                let mut blocks: Vec<Block> = reused.blocks;
                let (published, mut node) = (blocks.len(), reused.node);
                while blocks.len() < tokens.len().div_ceil(SIZE) {
                    blocks.push(pool.take().expect("room for one sequence"));
                }
                for (full, block) in tokens.chunks_exact(SIZE).zip(&blocks).skip(published) {
                    node = pool.publish(&node, full, block);
                }
                if let Some(block) = blocks.get(tokens.len() / SIZE) {
                    pool.publish_rest(&node, &tokens[tokens.len() / SIZE * SIZE..], block);
                }
                blocks.into_iter().rev().for_each(|block| pool.give_back(block));
                let changes = pool.changes();
                let changes = if missed { pool.contents() } else { changes };
                index.hear(ledger.apply(0, changes));
                // One token more, since the last one is never looked up.
                let asked: Vec<u32> = tokens.iter().copied().chain([9]).collect();
                let mut found = pool.reuse(root(""), &asked);
                found.partial.take().into_iter().for_each(|(block, _)| pool.give_back(block));
                prop_assert_eq!(index.match_blocks(&tokens, SIZE), found.blocks.len());
                found.blocks.into_iter().for_each(|block| pool.give_back(block));
            }
        }
    }
}
