//! Tensors by name to matrices and vectors on their device: what decoders and encoders have in common.

use std::path::Path;

use super::source::Weights;
use crate::files::numbers::Numbers;
use crate::pass::backend::Backend;
use crate::pass::weights::Linear;
use crate::types::device::DeviceError;
use crate::types::error::LoadError;
use forebay_kernels::packed::Quantised;

/// Loads the tensors that a spec asks for and hands them to the device.
pub(crate) struct Loader<'a, B: Backend, S> {
    pub backend: &'a B,
    pub spec: &'a S,
    pub weights: &'a Weights,
    /// Blamed where no weight file is: `config.json`.
    pub config: &'a Path,
    /// What matrices in F32, F16 and BF16 become.
    pub quantise: Option<Quantised>,
}

impl<B: Backend, S> Loader<'_, B, S> {
    pub(super) fn linear(
        &self,
        module: &str,
        outputs: usize,
        inputs: usize,
        bias: bool,
    ) -> Result<Linear<B>, LoadError> {
        let weight = self.matrix(&format!("{module}.weight"), outputs, inputs)?;
        let bias = bias.then(|| self.vector(&format!("{module}.bias"), outputs)).transpose()?;
        Ok(Linear { weight, bias })
    }

    fn matrix(&self, name: &str, outputs: usize, inputs: usize) -> Result<B::Matrix, LoadError> {
        let numbers = self.weights.tensor(name, &[outputs, inputs], self.config)?;
        Ok(self.backend.matrix(self.quantised(numbers, inputs, self.quantise)?, outputs, inputs)?)
    }

    /// Eight bits at least, for these decide between tokens.
    pub(super) fn table(&self, name: &str, [vocab, hidden]: [usize; 2]) -> Result<B::Matrix, LoadError> {
        let numbers = self.weights.tensor(name, &[vocab, hidden], self.config)?;
        let quantise = self.quantise.map(|_| Quantised::Q8_0);
        Ok(self.backend.matrix(self.quantised(numbers, hidden, quantise)?, vocab, hidden)?)
    }

    /// In blocks of `to`, where a type is given.
    pub(super) fn quantised(
        &self,
        numbers: Numbers,
        inputs: usize,
        to: Option<Quantised>,
    ) -> Result<Numbers, LoadError> {
        match to {
            Some(to) => Ok(numbers.quantised(to, inputs).map_err(DeviceError::from)?),
            None => Ok(numbers),
        }
    }

    pub(super) fn vector(&self, name: &str, width: usize) -> Result<B::Vector, LoadError> {
        let numbers = self.weights.tensor(name, &[width], self.config)?;
        Ok(self.backend.vector(numbers)?)
    }
}
