//! What each block is used for, for who looks at the pool from outside.

use crate::report::BlockUse;

use super::BlockPool;

impl BlockPool {
    /// Of every block, in the order of their ids. Looks once at each.
    pub fn uses(&self) -> Vec<BlockUse> {
        let of = |(id, references): (usize, &u32)| match references {
            0 if self.is_kept(id) => BlockUse::Cached,
            0 => BlockUse::Free,
            1 => BlockUse::Used,
            _ => BlockUse::Shared,
        };
        self.references().iter().enumerate().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Node;
    use crate::units::TokenId;

    fn root() -> Node {
        Node::Root("".into())
    }

    fn told(pool: &BlockPool) -> String {
        pool.uses().into_iter().map(|one| one.name().chars().next().unwrap_or_default()).collect()
    }

    #[test]
    fn a_block_is_free_then_used_then_shared_then_cached_then_used_again() {
        let mut pool = BlockPool::new(3, 2);
        let tokens: Vec<TokenId> = vec![5, 6, 7];
        assert_eq!(told(&pool), "fff");
        let block = pool.take().unwrap();
        assert_eq!(told(&pool), "uff");
        pool.publish(&root(), &tokens[..2], &block);
        let reused = pool.reuse(root(), &tokens);
        assert_eq!(told(&pool), "sff");
        reused.blocks.into_iter().for_each(|block| pool.give_back(block));
        assert_eq!(told(&pool), "uff");
        pool.give_back(block);
        assert_eq!(told(&pool), "cff", "nobody holds it, and it can be found");
        let all: Vec<_> = (0..3).map(|_| pool.take().unwrap()).collect();
        assert_eq!(told(&pool), "uuu", "what it held is gone");
        all.into_iter().for_each(|block| pool.give_back(block));
        assert_eq!(told(&pool), "fff");
    }
}
