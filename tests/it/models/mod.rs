//! Checkpoints and their forward pass, against references and against themselves.

mod cuda_kernels; // the CUDA sources, on a CPU
mod determinism; // raw bits of logits, whatever the batch
mod device; // what is asked of a GPU, asked of its stand-in on the CPU
mod encoder; // models that only embed
pub mod gguf; // the goldens as GGUF files
mod gguf_lies; // GGUF files that lie about themselves
mod gguf_models; // GGUF files that are whole and hold no model
mod goldens; // each architecture against reference logits
#[cfg(feature = "cuda")]
mod gpu; // a real GPU, or the emulated one (`make gpu-check`)
#[cfg(feature = "hub")]
mod hub; // downloads, from a stub that speaks the hub's protocol
mod loading; // model folders that lie
mod lora; // adapters
mod oracle; // the decoder beside a Llama that others wrote
mod quantise; // smaller weights
