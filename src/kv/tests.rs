//! Blocks against a recount.

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

#[test]
fn a_shared_block_is_copied_before_it_is_written() {
    let mut pool = BlockPool::new(4, 4);
    let mut a = BlockTable::default();
    a.grow(8, &mut pool).expect("room");
    let mut b = a.fork(&mut pool);
    pool.check([&a, &b]);
    assert_eq!(pool.used(), 2);
    assert_eq!(b.make_writable(5, &mut pool), Ok(Some((BlockId(1), BlockId(2)))));
    assert_eq!(b.make_writable(6, &mut pool), Ok(None), "its own by now");
    assert_eq!(a.make_writable(5, &mut pool), Ok(None), "nobody else's by now");
    pool.check([&a, &b]);
    a.release(&mut pool);
    assert_eq!(pool.used(), 2, "the shared block lives on");
    b.release(&mut pool);
    assert_eq!(pool.used(), 0);
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
        blocks in 1usize..40, block_size in 1usize..9, orders in prop::collection::vec((0u8..4, 0usize..6, 0usize..60), 0..200),
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
                2 if !tables[which].is_empty() => {
                    let position = tokens % (tables[which].len() * block_size);
                    let _ = tables[which].make_writable(position, &mut pool);
                }
                2 => {}
                _ if tokens % 2 == 0 => tables.swap_remove(which).release(&mut pool),
                _ => {
                    let fork = tables[which].fork(&mut pool);
                    tables.push(fork);
                }
            }
            pool.check(&tables);
        }
        tables.into_iter().for_each(|table| table.release(&mut pool));
        prop_assert_eq!(pool.used(), 0);
    }
}
