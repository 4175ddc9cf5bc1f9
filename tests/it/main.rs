//! One integration binary, a module per face.
//!
//! `architecture`: the house rules. `goldens`, `oracle`, `paged`: the decoder against reference logits and against itself. `loading`: files that lie.
//! `gguf`: the same for GGUF files (`gguf_file` writes them, `gguf_lies` and `gguf_models` make them lie). `quantise`: smaller ones.
//! `device`: what is asked of a GPU, asked of its stand-in on the CPU. `engine`: the loop in this process, over real models (`rig`). `http`, `faults`: the real binary over loopback
//! (`server`). `capi`: a C program over the library. `forebay`: what an operator changes while requests run. `gpu`: a real one. `hub`: downloads from a stub that speaks the hub's protocol. `badinputs`: what nobody should send. `batches`: the Batch API, and kills at any moment. `encoder`: models that only embed. `dashboard`: its stream, and its page in Chromium. `cuda_kernels`: the CUDA sources, on a CPU. `keys`: API keys, beside a running server. `tls`: other servers over TLS. `params`: what each parameter does. `structured`: grammars (`schemas` makes some). `memory`: what is in it beside the weights. `overlap`: what is done while a step runs. `workers`: several loops, and routers over real processes that die, hang and fail. `replay`: what a live loop decided, decided again by the simulator. `bench`: the load generator, `simulate`, `calibrate`, recommendations and trials, over the real binary. `prometheus`: the books of /metrics, and Prometheus itself with every query that is shipped. `ending`, `reload`, `telling`, `spans`, `notify`, `doctor`: what an operator relies on: drains, new configurations, the access log, OTLP, systemd, `forebay doctor`. `model_server_protocol`: what routers count on. `kv_events`: what they are told of the prefix cache. `scaleout`: replicas behind HAProxy and vllm-router (`tests/scaleout`), and the files of `deploy/`. `openai`: clients of `tests/clients` against the real binary.

mod architecture;
mod badinputs;
mod batches;
mod bench;
mod capi;
mod checkpoint;
mod cuda_kernels;
mod dashboard;
mod determinism;
mod device;
mod doctor;
mod embeddings;
mod encoder;
mod ending;
mod engine;
mod faults;
mod forebay;
mod gguf;
mod gguf_file;
mod gguf_lies;
mod gguf_models;
mod goldens;
#[cfg(feature = "cuda")]
mod gpu;
mod http;
#[cfg(feature = "hub")]
mod hub;
mod keys;
#[cfg(feature = "kv-events")]
mod kv_events;
mod loading;
mod lora;
mod memory;
mod model_server_protocol;
#[cfg(unix)]
mod notify;
mod openai;
mod oracle;
mod overlap;
mod paged;
mod params;
mod parrot;
mod prefix;
mod prometheus;
mod quantise;
mod reload;
mod replay;
mod rig;
mod scaleout;
mod schemas;
mod server;
mod spans;
mod speculative;
mod structured;
mod telling;
mod tls;
mod tools;
mod workers;
