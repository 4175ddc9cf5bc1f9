//! Which backend a model computes on and in what type, and its weights there.

use std::path::{Path, PathBuf};

use super::room::Room;
use crate::candle::backend::Candle;
use crate::candle::device;
use crate::cpu::backend::Cpu;
use crate::model::{Model, Placed};
use crate::pass::backend::Backend;
use crate::pass::net::{DecoderParts, Net, Parts};
use crate::types::error::LoadError;
use crate::types::options::{DEFAULT_KV_DTYPE, Dtype, LoadOptions};
use crate::types::spec::Spec;
use crate::weights::loader::Loader;
use crate::weights::lora;
use crate::weights::source::Weights;
use forebay_kernels::attention::KvDtype;
use forebay_kernels::isa::Isa;

/// Puts a model of `spec` on the device that the options choose. `config` is blamed where no weight file is.
pub(super) fn place(spec: Spec, weights: &Weights, config: &Path, options: &LoadOptions) -> Result<Model, LoadError> {
    let device = device::open(options.device)?;
    let dtype = compute_dtype(weights, device.as_ref(), options)?;
    let kv_dtype = options.kv_dtype.unwrap_or(match &device {
        Some(_) => dtype.cached(),
        // An encoder's keys and values are gone after their step: nothing is saved by rounding them.
        None if spec.only_embeds() => KvDtype::F32,
        None => DEFAULT_KV_DTYPE,
    });
    let (heads, kv_heads, head_dim) = spec.heads();
    if device.is_some() && kv_dtype == KvDtype::Q8_0 {
        return Err(LoadError::KvDtypeDevice { dtype: kv_dtype.name() });
    }
    if !kv_dtype.fits(head_dim) {
        return Err(LoadError::KvDtypeHeads { dtype: kv_dtype.name(), head_dim });
    }
    let (on, unpacked) = match device {
        None => {
            // Kernels take the best there is when the variable is wrong; its author should hear of it.
            Isa::check()?;
            let backend = Cpu::default();
            let unpacked = weights.unpacked(|packing| backend.keeps_quantised(packing));
            (Placed::Cpu(parts(backend, &spec, weights, config, options)?), unpacked)
        }
        Some(device) => {
            device::check_heads(&device, head_dim)?;
            let backend = Candle::new(device, dtype, heads / kv_heads).recording(options.cuda_graphs)?;
            let keeps = |packing| backend.keeps_quantised(packing);
            let unpacked = weights.unpacked(keeps);
            let needed = weights.bytes(&spec, dtype, options.quantise, keeps);
            let room = Room { memory: backend.memory()?, needed, dtype };
            room.check(&spec)?;
            let parts =
                parts(backend, &spec, weights, config, options).map_err(|error| room.explained(error, &spec))?;
            (Placed::Candle(parts), unpacked)
        }
    };
    Ok(Model { spec, on, kv_dtype, unpacked })
}

/// What `model.dtype` comes to.
fn compute_dtype(
    weights: &Weights,
    device: Option<&candle_core::Device>,
    options: &LoadOptions,
) -> Result<Dtype, LoadError> {
    let own = match device {
        None => match options.dtype {
            None | Some(Dtype::F32) => return Ok(Dtype::F32),
            Some(dtype) => return Err(LoadError::DtypeDevice { dtype: dtype.name() }),
        },
        Some(device) if device.is_cpu() => Dtype::F32,
        Some(_) => weights.dtype(),
    };
    Ok(options.dtype.unwrap_or(own))
}

fn parts<B: Backend>(
    backend: B,
    spec: &Spec,
    weights: &Weights,
    config: &Path,
    options: &LoadOptions,
) -> Result<Parts<B>, LoadError> {
    let quantise = options.quantise;
    let net = match spec {
        Spec::Decoder(spec) => {
            let context = options.context.unwrap_or(u32::MAX).min(spec.max_position_embeddings);
            let weights = Loader { backend: &backend, spec, weights, config, quantise }.load()?;
            let adapter = |path: &PathBuf| lora::load(&backend, spec, path);
            let adapters = options.adapters.iter().map(adapter).collect::<Result<_, _>>()?;
            Net::decoder(DecoderParts::new(spec.clone(), weights, adapters, context))
        }
        Spec::Encoder(spec) => {
            if let Some(path) = options.adapters.first() {
                return Err(LoadError::NoAdapters { path: path.clone() });
            }
            let weights = Loader { backend: &backend, spec, weights, config, quantise }.load()?;
            Net::encoder(spec.clone(), weights)
        }
    };
    Ok(Parts::new(backend, net))
}
