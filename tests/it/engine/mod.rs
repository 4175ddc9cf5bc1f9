//! The engine loop over real models, in this process (`support::rig`).

mod overlap; // what is done while a step runs
mod prefix; // the prefix cache
mod replay; // what a live loop decided, decided again by the simulator
mod run; // the loop: faults, pause, drain, ends
mod speculative; // guessed tokens
