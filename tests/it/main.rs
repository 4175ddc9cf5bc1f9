//! Integration tests, one module per face: `goldens` compares forward passes with the reference implementation, `oracle`
//! with an independent Llama, `loading` opens model folders that lie.

mod checkpoint;
mod goldens;
mod loading;
mod oracle;
mod paged;
