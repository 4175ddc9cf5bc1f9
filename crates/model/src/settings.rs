//! The settings of loading a model.

use forebay_core::settings::Setting;
use forebay_kernels::attention::KvDtype;
use forebay_kernels::packed::Quantised;

use crate::types::options::{DeviceChoice, Dtype, LoadFormat, LoadOptions};

type Row = Setting<LoadOptions>;

/// In the order of config.yaml, section by section.
pub fn settings() -> Vec<Row> {
    weights().into_iter().chain(computing()).chain(sequences()).collect()
}

fn weights() -> [Row; 2] {
    [
        Setting::one_of(
            "model.load_format",
            |o: &mut LoadOptions| &mut o.format,
            [("auto", LoadFormat::Auto), ("dummy", LoadFormat::Dummy)],
        )
        .flag("load-format")
        .help("dummy fills the folder's config.json with seeded random weights"),
        Setting::one_of(
            "model.quantize",
            |o: &mut LoadOptions| &mut o.quantise,
            [("none", None), ("q8_0", Some(Quantised::Q8_0)), ("q4_k", Some(Quantised::Q4K))],
        )
        .flag("quantize")
        .help("what matrices in F32, F16 and BF16 become as they are loaded"),
    ]
}

fn computing() -> [Row; 4] {
    let dtypes = Dtype::ALL.map(|dtype| (dtype.name(), Some(dtype)));
    [
        Setting::own(
            "model.device",
            |o: &mut LoadOptions| &mut o.device,
            "auto, cpu, cuda:N or metal",
            DeviceChoice::spelled,
            DeviceChoice::from_text,
        )
        .flag("device")
        .help("auto, cpu, cuda:N or metal (the last two need their cargo features)"),
        Setting::one_of("model.dtype", |o: &mut LoadOptions| &mut o.dtype, [("auto", None)].into_iter().chain(dtypes))
            .flag("dtype")
            .help("what a device computes in; auto is the checkpoint's type, bf16 if quantised"),
        Setting::new("model.cuda_graphs", |o: &mut LoadOptions| &mut o.cuda_graphs)
            .help("record decode steps and play them back, on CUDA; never run by us"),
        Setting::new("model.seed", |o: &mut LoadOptions| &mut o.seed).whole(0..=u64::MAX >> 1).help("of dummy weights"),
    ]
}

fn sequences() -> [Row; 2] {
    let dtypes = KvDtype::ALL.map(|dtype| (dtype.name(), Some(dtype)));
    [
        Setting::new("engine.max_model_len", |o: &mut LoadOptions| &mut o.context)
            .whole(2..=1 << 24)
            .flag("max-model-len")
            .help("prompt and completion together; auto is the model's context"),
        Setting::one_of(
            "kv_cache.dtype",
            |o: &mut LoadOptions| &mut o.kv_dtype,
            [("auto", None)].into_iter().chain(dtypes),
        )
        .flag("kv-dtype")
        .help(
            "how keys and values are kept; auto is f16 on the CPU, elsewhere what is computed in; q8_0 is for the CPU",
        ),
    ]
}
