//! What the tests share. It holds no tests.

pub mod checkpoint; // model folders, honest or lying
pub mod gguf_file; // GGUF files, honest or lying
pub mod paged; // a stand-in for scheduler and KV blocks
pub mod parrot; // models that say what they were made to say
pub mod rig; // an engine loop in this process
pub mod schemas; // schemas as users write them, from a seed
pub mod server; // a real `forebay` process
