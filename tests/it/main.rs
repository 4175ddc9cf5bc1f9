//! One integration binary, a folder per face. A folder's `mod.rs` says what each of its files asks.
//!
//! `architecture`: the house rules.
//! `http`: what clients send over loopback to the real binary, and what they get.
//! `engine`: the engine loop over real models, in this process.
//! `models`: checkpoints and their forward pass, against references and against themselves.
//! `operations`: what an operator relies on and changes while a server runs.
//! `clients`: other people's programs as clients: packages of PyPI and npm, Chromium, C (`make clients`).
//! `deploy`: what stands around a server: balancers, Prometheus, the files of `deploy/` (`make deploy-tests`).
//! `support`: what the tests share: servers, engine loops, model folders and files. It holds no tests.

mod architecture;
mod clients;
mod deploy;
mod engine;
mod http;
mod models;
mod operations;
mod support;
