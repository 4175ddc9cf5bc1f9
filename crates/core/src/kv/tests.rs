//! Blocks against a recount.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::units::BlockId;

#[test]
fn the_accounting_example_of_paged_against_static() {
    let lengths = [32usize, 128, 64, 256];
    let mut pool = BlockPool::new(64, 16);
    let tables: Vec<BlockTable> = lengths
        .iter()
        .map(|&tokens| {
            let mut table = BlockTable::default();
            table.grow(tokens, &mut pool).expect("room");
            table
        })
        .collect();
    assert_eq!(pool.used(), 30);
    let longest = pool.blocks_for(*lengths.iter().max().expect("some"));
    assert_eq!(longest * lengths.len(), 64, "what static reservation would take");
    pool.check(&tables);
    tables.into_iter().for_each(|table| table.release(&mut pool));
    assert_eq!(pool.used(), 0);
}

#[test]
fn growth_is_all_or_nothing() {
    let mut pool = BlockPool::new(3, 4);
    let mut table = BlockTable::default();
    assert_eq!(table.grow(5, &mut pool), Ok(()));
    assert_eq!(table.grow(8, &mut pool), Ok(()), "still two blocks");
    assert_eq!(table.grow(13, &mut pool), Err(OutOfBlocks));
    assert_eq!((table.len(), pool.free()), (2, 1));
    table.release(&mut pool);
}

#[test]
fn slots_follow_the_table() {
    let mut pool = BlockPool::new(4, 4);
    let (mut a, mut b) = (BlockTable::default(), BlockTable::default());
    a.grow(4, &mut pool).expect("room");
    b.grow(4, &mut pool).expect("room");
    a.grow(8, &mut pool).expect("room");
    assert_eq!(a.ids().collect::<Vec<_>>(), [BlockId(0), BlockId(2)]);
    assert_eq!([0, 3, 4, 7].map(|p| a.slot(p, 4)), [0, 3, 8, 11]);
    a.release(&mut pool);
    b.release(&mut pool);
}

/// A free block's content: below which node it hangs, whose it is and where it stands; and its own node.
#[derive(Debug)]
struct Kept {
    content: (u32, u32, usize),
    node: u32,
}

/// A sequence that computes all its tokens at once, as far as blocks are concerned.
struct Sequence {
    salt: u8,
    tokens: Vec<u32>,
    table: BlockTable,
    cached: usize,
}

fn root(salt: u8) -> Node {
    Node::Root(salt.to_string().into())
}

impl Sequence {
    /// `None` where blocks run out. The source of a copy is given back at once: nothing is written here.
    fn begin(salt: u8, tokens: Vec<u32>, pool: &mut BlockPool) -> Option<Sequence> {
        let reused = pool.reuse(root(salt), &tokens);
        let cached = reused.tokens(pool.block_size());
        let (published, mut node) = (reused.blocks.len(), reused.node);
        let mut table = BlockTable::adopt(reused.blocks);
        if let Some((source, _)) = reused.partial {
            pool.give_back(source);
        }
        if table.grow(tokens.len(), pool).is_err() {
            table.release(pool);
            return None;
        }
        let size = pool.block_size();
        for (index, full) in tokens.chunks_exact(size).enumerate().skip(published) {
            node = pool.publish(&node, full, &table.blocks()[index]);
        }
        Some(Sequence { salt, tokens, table, cached })
    }

    /// Its partly filled block becomes one to copy from.
    fn leave(self, pool: &mut BlockPool) {
        let full = self.tokens.len() / pool.block_size();
        let found = pool.reuse(root(self.salt), &[&self.tokens[..full * pool.block_size()], &[u32::MAX]].concat());
        let Reused { blocks, partial, node } = found;
        let rest = &self.tokens[full * pool.block_size()..];
        if blocks.len() == full && !rest.is_empty() {
            pool.publish_rest(&node, rest, &self.table.blocks()[full]);
        }
        partial.into_iter().map(|(block, _)| block).chain(blocks).for_each(|block| pool.give_back(block));
        self.table.release(pool);
    }
}

fn cached(salt: u8, tokens: &[u32], pool: &mut BlockPool) -> usize {
    let sequence = Sequence::begin(salt, tokens.to_vec(), pool).expect("room");
    let cached = sequence.cached;
    sequence.leave(pool);
    cached
}

#[test]
fn what_was_computed_is_found_again_but_for_the_last_token() {
    let mut pool = BlockPool::new(16, 4);
    let tokens: Vec<u32> = (0..10).collect();
    assert_eq!(cached(0, &tokens, &mut pool), 0);
    assert_eq!(pool.used(), 0);
    assert_eq!(cached(0, &tokens, &mut pool), 9, "two full blocks, and one token of the third by a copy");
    assert_eq!(cached(0, &tokens[..8], &mut pool), 7, "one, and three tokens of the next by a copy");
    assert_eq!(cached(0, &[0, 1, 2, 3, 4, 5, 99, 98, 97], &mut pool), 6, "where a block differs, its beginning");
    assert_eq!(cached(0, &[1, 1, 2, 3, 4, 5], &mut pool), 0);
    assert_eq!(cached(0, &[0, 1], &mut pool), 1);
    assert_eq!(cached(0, &[0], &mut pool), 0);
}

#[test]
fn another_salt_finds_nothing() {
    let mut pool = BlockPool::new(16, 4);
    let tokens: Vec<u32> = (0..10).collect();
    assert_eq!(cached(1, &tokens, &mut pool), 0);
    assert_eq!(cached(2, &tokens, &mut pool), 0);
    assert_eq!(cached(1, &tokens, &mut pool), 9);
}

#[test]
fn a_block_that_was_never_full_is_copied_from() {
    let mut pool = BlockPool::new(16, 8);
    assert_eq!(cached(0, &[1, 2, 3], &mut pool), 0);
    assert_eq!(cached(0, &[1, 2, 3], &mut pool), 2);
    assert_eq!(pool.findable(), 1, "the second has nothing to add");
    assert_eq!(cached(0, &[1, 2, 3, 4, 5], &mut pool), 3);
    assert_eq!(cached(0, &[1, 2, 3, 4, 6], &mut pool), 4);
    assert_eq!(cached(1, &[1, 2, 3, 4, 6], &mut pool), 0);
    pool.check([]);
}

#[test]
fn the_longest_unused_goes_first_and_ends_before_beginnings() {
    let mut pool = BlockPool::new(6, 4);
    let (a, b): (Vec<u32>, Vec<u32>) = ((0..9).collect(), (100..109).collect());
    cached(0, &a, &mut pool);
    cached(0, &b, &mut pool);
    cached(0, &a, &mut pool);
    assert_eq!(pool.findable(), 6, "two full blocks and the rest of each");
    // b's are the longest unused, its end first.
    let other = Sequence::begin(0, vec![7; 8], &mut pool).expect("room");
    let found = pool.reuse(root(0), &b);
    assert_eq!((found.blocks.len(), found.partial.is_none()), (1, true), "its first block is still there");
    assert_eq!(pool.reuse(root(0), &a).blocks.len(), 2);
    other.table.release(&mut pool);
}

#[test]
fn changes_of_full_blocks_are_told_once_and_all_of_them_anew() {
    let mut pool = BlockPool::new(3, 2);
    let mut unheard = BlockPool::new(3, 2);
    cached(0, &[1, 2, 3], &mut unheard);
    assert_eq!((unheard.changes(), unheard.contents()), (vec![], vec![]), "nobody asked");
    pool.record();
    cached(0, &[1, 2, 3, 4, 5], &mut pool);
    let stored = |node, parent, tokens: [u32; 2]| Change::Stored { node, parent, tokens: tokens.into() };
    let both = [stored(1, root(0), [1, 2]), stored(2, Node::Block(1), [3, 4])];
    assert_eq!(pool.changes(), [&[Change::Cleared][..], &both].concat(), "not the rest");
    assert_eq!(pool.changes(), []);
    // The rest goes first, and was never told of; then the end before the beginning.
    cached(1, &[7, 7, 8, 8], &mut pool);
    let new = [stored(4, root(1), [7, 7]), stored(5, Node::Block(4), [8, 8])];
    let heard = pool.changes();
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(
        heard.contains(&Change::Removed { node: 2 }) && new.iter().all(|change| heard.contains(change)),
        "{heard:?}"
    );
    let everything = [&[Change::Cleared, both[0].clone()][..], &new].concat();
    assert_eq!(pool.contents(), everything);
    assert_eq!(pool.changes(), [], "it is settled");
}

#[test]
fn a_mirror_follows_from_one_pool_to_the_next() {
    let mut mirror = Mirror::default();
    assert_eq!(mirror.cached_tokens(root(0), &[1, 2, 3]), 0, "it has heard of no pool");
    let (mut pool, mut next) = (BlockPool::new(4, 2), BlockPool::new(4, 4));
    cached(0, &[1, 2, 3, 4, 5], &mut pool);
    mirror.follow(pool.edits());
    assert_eq!(mirror.cached_tokens(root(0), &[1, 2, 3, 4, 5]), 4);
    assert_eq!(pool.edits(), [], "they are taken once");
    cached(0, &[7, 7, 7, 7], &mut next);
    mirror.follow(next.edits());
    assert_eq!(mirror.cached_tokens(root(0), &[1, 2, 3, 4, 5]), 0);
    assert_eq!(mirror.cached_tokens(root(0), &[7, 7, 7, 7, 7]), 4);
}

#[test]
fn held_blocks_are_never_given_to_others() {
    let mut pool = BlockPool::new(3, 4);
    let a: Vec<u32> = (0..9).collect();
    let first = Sequence::begin(0, a.clone(), &mut pool).expect("room");
    assert!(Sequence::begin(0, vec![9; 4], &mut pool).is_none());
    // The same beginning needs one block more than there is.
    assert!(Sequence::begin(0, a.clone(), &mut pool).is_none());
    pool.check([&first.table]);
    first.table.release(&mut pool);
    assert_eq!(cached(0, &a, &mut pool), 8);
    assert_eq!(pool.findable(), 3, "and the rest of the second time");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "dropped with blocks inside")]
fn a_leak_is_noticed() {
    let mut pool = BlockPool::new(1, 4);
    let mut table = BlockTable::default();
    table.grow(1, &mut pool).expect("room");
    drop(table);
}

proptest! {
    #[test]
    fn whatever_happens_every_block_is_accounted_for(
        blocks in 1usize..40, block_size in 1usize..9, orders in prop::collection::vec((0u8..3, 0usize..6, 0usize..60), 0..200),
    ) {
        let mut pool = BlockPool::new(blocks, block_size);
        let mut tables: Vec<BlockTable> = Vec::new();
        for (order, which, tokens) in orders {
            let which = which.min(tables.len().saturating_sub(1));
            match order {
                0 => tables.push(BlockTable::default()),
                _ if tables.is_empty() => {}
                1 => {
                    let _ = tables[which].grow(tokens, &mut pool);
                }
                _ => tables.swap_remove(which).release(&mut pool),
            }
            pool.check(&tables);
        }
        tables.into_iter().for_each(|table| table.release(&mut pool));
        prop_assert_eq!(pool.used(), 0);
    }

    /// Each family's sequences begin alike and end as no other; one runs at a time. What is still there is then a matter of
    /// who was freed when, which a list can tell.
    #[test]
    fn what_is_kept_is_what_was_used_last(
        blocks in 5usize..16, orders in prop::collection::vec((0u32..6, 0usize..4), 0..80),
    ) {
        let mut pool = BlockPool::new(blocks, 2);
        let (mut list, mut empty, mut nodes) = (Vec::<Kept>::new(), blocks, 0);
        for (turn, (family, full)) in orders.into_iter().enumerate() {
            let tokens: Vec<u32> = (0..2 * full as u32).map(|i| family * 10 + i).chain([1_000 + turn as u32]).collect();
            let (mut held, mut parent) = (Vec::new(), 0);
            for index in 0..full {
                let Some(at) = list.iter().position(|kept| kept.content == (parent, family, index)) else { break };
                held.push(list.remove(at));
                parent = held[index].node;
            }
            prop_assert_eq!(cached(0, &tokens, &mut pool), held.len() * 2);
            for index in held.len()..=full {
                match empty {
                    0 => _ = list.remove(0),
                    _ => empty -= 1,
                }
                nodes += 1;
                let family = if index == full { tokens[2 * full] } else { family };
                held.push(Kept { content: (parent, family, index), node: nodes });
                parent = nodes;
            }
            list.extend(held.into_iter().rev());
            prop_assert_eq!(pool.findable(), list.len());
        }
    }

    /// Few tokens and short blocks, so that beginnings are shared all the time; what a block holds is written down beside.
    #[test]
    fn what_is_found_is_what_was_written(
        blocks in 1usize..30, size in 1usize..4,
        orders in prop::collection::vec((any::<bool>(), 0u8..2, prop::collection::vec(0u32..3, 1..14)), 0..120),
    ) {
        let mut pool = BlockPool::new(blocks, size);
        let mut live: Vec<Sequence> = Vec::new();
        let mut mirror = Mirror::default();
        let mut written: HashMap<BlockId, (u8, Vec<u32>)> = HashMap::new();
        for (leave, salt, tokens) in orders {
            if leave && !live.is_empty() {
                live.swap_remove(tokens[0] as usize % live.len()).leave(&mut pool);
                continue;
            }
            mirror.follow(pool.edits());
            let found = pool.reuse(root(salt), &tokens);
            prop_assert!(found.tokens(size) < tokens.len());
            prop_assert_eq!(mirror.cached_tokens(root(salt), &tokens), found.tokens(size));
            for (index, block) in found.blocks.iter().enumerate() {
                prop_assert_eq!(&written[&block.id()], &(salt, tokens[..(index + 1) * size].to_vec()));
            }
            if let Some((source, shared)) = &found.partial {
                let (of, content) = &written[&source.id()];
                let upto = found.blocks.len() * size + shared;
                prop_assert!(*of == salt && content[..upto] == tokens[..upto]);
            }
            let kept: Vec<BlockId> = found.blocks.iter().map(Block::id).collect();
            found.partial.into_iter().map(|(block, _)| block).chain(found.blocks).for_each(|b| pool.give_back(b));
            if let Some(sequence) = Sequence::begin(salt, tokens, &mut pool) {
                for (index, id) in sequence.table.ids().enumerate() {
                    if kept.contains(&id) {
                        continue;
                    }
                    prop_assert!(live.iter().all(|other| other.table.ids().all(|held| held != id)), "held by two");
                    let upto = ((index + 1) * size).min(sequence.tokens.len());
                    written.insert(id, (sequence.salt, sequence.tokens[..upto].to_vec()));
                }
                live.push(sequence);
            }
            pool.check(live.iter().map(|sequence| &sequence.table));
        }
        live.into_iter().for_each(|sequence| sequence.table.release(&mut pool));
        prop_assert_eq!(pool.used(), 0);
        pool.check([]);
    }
}
