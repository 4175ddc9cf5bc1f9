//! Requests of like length, so that the prefills of one step are alike: a long prompt beside short ones would make them
//! wait for its chunks.

/// Upper bounds, in tokens of prompt and longest completion together.
const BOUNDS: [usize; 5] = [128, 512, 1024, 2048, 4096];

/// A class of length, shortest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(u8);

impl Bucket {
    pub fn of(tokens: usize) -> Bucket {
        Bucket(BOUNDS.iter().take_while(|bound| tokens > **bound).count() as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_the_bucket_below() {
        let of = |tokens| Bucket::of(tokens).0;
        for (index, bound) in BOUNDS.into_iter().enumerate() {
            assert_eq!((of(bound), of(bound + 1)), (index as u8, index as u8 + 1));
        }
        assert_eq!((of(0), of(usize::MAX)), (0, 5));
    }
}
