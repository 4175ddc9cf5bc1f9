//! How a model is loaded: onto which device, and as what.

use std::path::PathBuf;

use forebay_kernels::attention::KvDtype;
use forebay_kernels::packed::Quantised;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    pub device: DeviceChoice,
    pub format: LoadFormat,
    /// Of [`LoadFormat::Dummy`].
    pub seed: u64,
    /// What matrices in F32, F16 and BF16 become as they are loaded.
    pub quantise: Option<Quantised>,
    /// Folders of LoRA adapters, in PEFT's layout.
    pub adapters: Vec<PathBuf>,
    /// The longest sequence that will be served; `None` is as long as the model allows. Some ropes depend on it.
    pub context: Option<u32>,
    /// How keys and values are cached; `None` is what suits the device: `F16` on the CPU, what it computes in elsewhere.
    pub kv_dtype: Option<KvDtype>,
    /// What a device computes in; `None` is the checkpoint's own type, and `F32` for [`DeviceChoice::Reference`]. Our own
    /// kernels take nothing but `F32`.
    pub dtype: Option<Dtype>,
    /// Decode steps are recorded and played back, on CUDA.
    pub cuda_graphs: bool,
}

/// What activations, and weights that are not quantised, are kept in on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
}

impl Dtype {
    pub const ALL: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

    /// As `model.dtype` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
        }
    }

    /// Bytes of one number.
    pub const fn bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
        }
    }

    /// The same for a cache.
    pub const fn cached(self) -> KvDtype {
        match self {
            Dtype::F32 => KvDtype::F32,
            Dtype::F16 => KvDtype::F16,
            Dtype::Bf16 => KvDtype::Bf16,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// CUDA, then Metal, where compiled in and present; else the CPU.
    #[default]
    Auto,
    Cpu,
    Cuda(usize),
    Metal,
    /// The path of CUDA and Metal on the CPU: slow, and not bit-identical under batching. For comparison.
    Reference,
}

impl DeviceChoice {
    /// As `model.device` spells it; [`DeviceChoice::Reference`] is not for users.
    pub fn from_text(text: &str) -> Option<DeviceChoice> {
        match text {
            "auto" => Some(DeviceChoice::Auto),
            "cpu" => Some(DeviceChoice::Cpu),
            "metal" => Some(DeviceChoice::Metal),
            "cuda" => Some(DeviceChoice::Cuda(0)),
            other => other.strip_prefix("cuda:")?.parse().ok().map(DeviceChoice::Cuda),
        }
    }

    pub fn spelled(&self) -> String {
        match self {
            DeviceChoice::Auto => "auto".into(),
            DeviceChoice::Cpu => "cpu".into(),
            DeviceChoice::Metal => "metal".into(),
            DeviceChoice::Cuda(ordinal) => format!("cuda:{ordinal}"),
            DeviceChoice::Reference => "reference".into(),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadFormat {
    /// Safetensors or GGUF.
    #[default]
    Auto,
    /// Seeded random weights in the shapes that `config.json` (or the metadata of a GGUF file) asks for.
    Dummy,
}

/// What `kv_cache.dtype: auto` means on the CPU: half the memory and traffic of `f32`, and a rounding far below that of
/// any quantised weight.
pub const DEFAULT_KV_DTYPE: KvDtype = KvDtype::F16;
