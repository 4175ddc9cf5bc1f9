//! What embeddings are like, and how vectors are finished and compared.

use forebay_core::request::Pooling;

/// What embeddings of this model are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embeddings {
    pub pooling: Pooling,
    /// Numbers of a vector.
    pub width: usize,
    /// Vectors are made as long as one.
    pub normalised: bool,
}

impl Default for Embeddings {
    fn default() -> Embeddings {
        Embeddings { pooling: Pooling::default(), width: 0, normalised: true }
    }
}

impl Embeddings {
    /// The first `dimensions` numbers of a vector, as the model's makers want them.
    pub fn finished(&self, vector: &[f32], dimensions: usize) -> Vec<f32> {
        if self.normalised { normalised(vector, dimensions) } else { vector[..dimensions.min(vector.len())].to_vec() }
    }
}

/// A prompt's vector, as the model has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Embedded {
    pub vector: Vec<f32>,
    pub prompt_tokens: usize,
    /// Of those, the ones that were in the KV cache.
    pub cached_tokens: usize,
}

/// The first `dimensions` numbers of a vector, of length 1. One without direction stays as it is.
pub fn normalised(vector: &[f32], dimensions: usize) -> Vec<f32> {
    let kept = &vector[..dimensions.min(vector.len())];
    let square: f64 = kept.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    if square == 0.0 {
        return kept.to_vec();
    }
    let length = square.sqrt();
    kept.iter().map(|&x| (f64::from(x) / length) as f32).collect()
}

/// How alike two vectors of length 1 are, -1 to 1.
pub fn similarity(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>().clamp(-1.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one_also_when_cut() {
        assert_eq!(normalised(&[3.0, 4.0], 2), [0.6, 0.8]);
        assert_eq!(normalised(&[3.0, 4.0], 1), [1.0]);
        assert_eq!(normalised(&[0.0, 0.0], 2), [0.0, 0.0]);
        // Squares beyond the range of f32.
        let large = 2f32.powi(100);
        assert_eq!(normalised(&[3.0 * large, 4.0 * large], 2), [0.6, 0.8]);
    }

    #[test]
    fn vectors_stay_as_they_are_where_the_makers_want_that() {
        let embeddings = |normalised| Embeddings { normalised, ..Embeddings::default() };
        assert_eq!(embeddings(true).finished(&[3.0, 4.0, 0.0], 2), [0.6, 0.8]);
        assert_eq!(embeddings(false).finished(&[3.0, 4.0, 0.0], 2), [3.0, 4.0]);
    }

    #[test]
    fn likeness_lies_between_its_bounds() {
        assert_eq!(similarity(&[0.6, 0.8], &[0.6, 0.8]), 1.0);
        assert_eq!(similarity(&[1.0, 0.0], &[-1.0, 0.0]), -1.0);
        assert_eq!(similarity(&[1.0, 0.0], &[0.0, 1.0]), 0.0);
    }
}
