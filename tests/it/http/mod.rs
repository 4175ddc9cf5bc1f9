//! What clients send over loopback to the real binary, and what they get.

mod badinputs; // what nobody should send
mod batches; // the Batch API, and kills at any moment
mod completions; // completions, chat and models: shapes, limits, goldens by token ids
mod embeddings; // beside the model's own hidden states
mod faults; // clients that leave, queues that fill, files that lie
mod params; // what each parameter does
pub mod structured; // grammars
mod tools; // calls and thoughts
