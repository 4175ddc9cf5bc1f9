//! Which of several workers takes a request. Pure: the live pool (`forebay-engine`) and the simulator ask the same board.
//!
//! ```text
//! board.rs: breaker.rs who may, balance.rs who does
//!           prefix.rs what each has seen, busy.rs how much it had to do
//! ```

pub mod balance;
pub mod board;
pub mod breaker;
mod busy;
pub mod prefix;
