//! Requests of like size. Pure.

/// Upper ends of the buckets, included; the last bucket is open.
const UPPER: [usize; 5] = [128, 512, 1024, 2048, 4096];

/// How much work a request may become, roughly: prompt tokens plus `max_tokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u8);

impl Bucket {
    pub const COUNT: usize = UPPER.len() + 1;

    pub fn of(estimated_tokens: usize) -> Bucket {
        Bucket(UPPER.iter().filter(|&&upper| estimated_tokens > upper).count() as u8)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders() {
        let indices =
            [0, 128, 129, 512, 513, 1024, 1025, 2048, 2049, 4096, 4097, usize::MAX].map(|n| Bucket::of(n).index());
        assert_eq!(indices, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]);
        assert_eq!(Bucket::COUNT, 6);
    }
}
