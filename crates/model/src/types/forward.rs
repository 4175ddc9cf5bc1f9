//! What a forward pass is asked for, and what it returns.

use forebay_core::request::SamplingParams;
#[cfg(feature = "cuda")]
use forebay_core::sampling;
use forebay_core::sampling::Sampler;
use forebay_core::units::TokenId;
use forebay_kernels::floats::Floats;

/// Whose logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows<'a> {
    /// These rows of the flat token axis, ascending.
    Picked(&'a [usize]),
    /// The last row of each chunk with `sample`, in chunk order.
    Sampled,
    /// Every row of the flat token axis.
    All,
}

/// What a forward pass is to return, and through which adapters it goes.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub rows: Rows<'a>,
    /// Rows whose hidden states are wanted, ascending.
    pub states: &'a [usize],
    /// By their place in [`LoadOptions::adapters`](crate::LoadOptions): one entry for each chunk, or none at all.
    pub adapters: &'a [Option<u32>],
}

/// `[rows, vocab]`. NaN and infinities are passed on as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Logits {
    pub rows: usize,
    pub vocab: usize,
    pub data: Floats,
}

/// What a forward pass returns.
#[derive(Clone, Debug, PartialEq)]
pub struct Computed {
    pub logits: Logits,
    /// `[rows, width]`, of the rows that were asked for, after the last norm.
    pub states: Floats,
}

impl Logits {
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.vocab..][..self.vocab]
    }
}

/// A token to be drawn where the logits are, for which nothing but the row itself is needed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    params: SamplingParams,
    position: u32,
}

impl Draw {
    /// The token at `position` of its sequence. `None` where devices have no such filter.
    pub fn new(params: SamplingParams, position: u32) -> Option<Draw> {
        (params.typical_p >= 1.0).then_some(Draw { params, position })
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// The number that decides, in `[0, 1)`.
    #[cfg(feature = "cuda")]
    pub(crate) fn uniform(&self) -> f64 {
        sampling::uniform(self.params.seed, self.position)
    }

    /// From a row of logits; `None` where it is not finite.
    pub(crate) fn draw(&self, logits: &[f32], sampler: &mut Sampler) -> Option<TokenId> {
        sampler.sample(logits, &self.params, self.position, None).ok().map(|sampled| sampled.token)
    }
}
