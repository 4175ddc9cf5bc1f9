//! LoRA adapters (Hu et al., 2021): a linear layer's output grows by `scale · B(A x)` for the rows of those
//! sequences that asked for the adapter. Base weights stay as they are, so different adapters share a step.

use super::backend::Backend;

/// The linear layers that an adapter may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
}

pub(crate) const PLACES: usize = 7;

/// One adapter on its device.
pub(crate) struct Adapter<B: Backend> {
    pub layers: Vec<[Option<Delta<B>>; PLACES]>,
}

/// What is added to a linear layer.
pub(crate) struct Delta<B: Backend> {
    /// `[rank, inputs]`
    pub down: B::Matrix,
    /// `[outputs, rank]`, with the scale in it.
    pub up: B::Matrix,
}

impl<B: Backend> Adapter<B> {
    pub(crate) fn at(&self, layer: usize, place: Place) -> Option<&Delta<B>> {
        self.layers[layer][place as usize].as_ref()
    }
}
