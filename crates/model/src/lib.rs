//! Checkpoints and their forward pass: one transformer, mostly a decoder, over packed ragged batches and a paged cache.
//!
//! Knows nothing of requests, scheduling or text: a [`StepBatch`] of plain vectors comes in, logits go out.
//!
//! ```text
//! inspect, quantize ─▶ load ─┬▶ model ─▶ cpu, candle ─┬▶ pass ─┬▶ files ─▶ types
//!                            ├▶ weights ──────────────┘        │
//!                            └▶ arch ──────────────────────────┘
//!
//! types     plain data: specs, options, batches, errors      pass     the forward pass over a backend, a trait
//! files     safetensors, GGUF, JSON, each checked in full    cpu      the backend over our own kernels
//! arch      config.json and GGUF keys to a spec              candle   CUDA, Metal, and the oracle of the former
//! weights   tensors from files onto a backend                model    a model on its device: what others call
//! load      which files, and which backend
//! ```
//! An arrow means "uses". A folder uses what its arrows reach and nothing else, and no files use each other in a circle.
//!
//! To read first: [`DecoderSpec`] (in what architectures differ), `pass::backend::Backend` (the ops that a model needs),
//! `pass::decoder::Decoder` (every architecture on one screen), [`Model`] (what an engine calls), [`LoadedModel`] (what
//! comes of a source: a model, and the files that others read).
//!
//! On the CPU a sequence's logits do not depend, to the last bit, on who shares its step, how its prompt was cut into
//! chunks, which blocks hold its past, or how many threads compute.
//!
//! A model of seeded random weights needs no checkpoint, only a description of its shape:
//!
//! ```
//! use forebay_core::step::{BatchChunk, StepBatch};
//! use forebay_core::units::{BlockId, SeqId};
//! use forebay_model::{LoadFormat, LoadOptions, Rows, Source, load};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("tokenizer.json"), "{}")?;
//! std::fs::write(
//!     folder.path().join("config.json"),
//!     r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 112, "vocab_size": 320,
//!         "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 256}"#,
//! )?;
//! let options = LoadOptions { format: LoadFormat::Dummy, seed: 7, ..LoadOptions::default() };
//! let mut model = load(&Source::Folder(folder.path().into()), &options)?.model;
//!
//! // Two blocks of four tokens; one prompt of three tokens, whose keys and values go to the second block.
//! model.allocate_kv(2, 4)?;
//! let batch = StepBatch {
//!     tokens: vec![11, 12, 13],
//!     positions: vec![0, 1, 2],
//!     slots: vec![4, 5, 6],
//!     tables: vec![BlockId(1)],
//!     chunks: vec![BatchChunk { seq: SeqId(1), rows: 0..3, table: 0..1, sample: true, proposed: 0 }],
//!     copies: vec![],
//! };
//! let logits = model.forward(&batch, Rows::Sampled)?;
//! assert_eq!((logits.rows, logits.vocab), (1, 320));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`StepBatch`]: forebay_core::step::StepBatch

mod arch;
mod candle;
mod cpu;
mod files;
mod inspect;
mod load;
mod model;
mod pass;
mod quantize;
mod settings;
mod types;
mod weights;

pub use candle::device::name as device_name;
pub use forebay_kernels::attention::KvDtype;
pub use forebay_kernels::cores::Cores;
pub use forebay_kernels::isa::Isa;
pub use forebay_kernels::memory::release_freed;
pub use forebay_kernels::packed::Quantised;
pub use inspect::{Format, Inspection, TypeShare, inspect};
pub use load::chat::ChatFiles;
pub use load::source::Source;
pub use load::{LoadedModel, TokenizerSource, load};
pub use model::Model;
pub use quantize::{Written, quantize};
pub use settings::settings;
pub use types::batch::BatchError;
pub use types::device::{DeviceError, DeviceMemory};
pub use types::error::{ForwardError, GgufRule, HeaderRule, LoadError, TensorRule};
pub use types::forward::{Asked, Computed, Draw, Logits, Rows};
pub use types::options::{DEFAULT_KV_DTYPE, DeviceChoice, Dtype, LoadFormat, LoadOptions};
pub use types::spec::Spec;
pub use types::spec::decoder::{Activation, Bias, DecoderSpec, Experts, LayerSpec, NormPlacement, QkNorm, Scales};
pub use types::spec::encoder::EncoderSpec;
pub use types::spec::rope::{Rope, RopeScaling};
