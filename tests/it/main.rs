//! One integration binary, a module per face.
//!
//! `goldens`: the decoder against reference logits. `engine`: the loop in this process, over real models (`rig`).
//! `http`, `faults`: the real binary over loopback (`server`). `openai`: the same, driven by the official Python package.

mod engine;
mod goldens;
mod rig;
mod server;
