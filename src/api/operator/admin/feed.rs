//! The newest frame of the dashboard's stream, shared by all who watch.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::block_map::BlockMap;
use forebay_core::units::Micros;

/// The newest frame. The lock is held while one is made, so that it is made once; whoever waits for it wants that frame.
pub type Feed = Arc<Mutex<Frame>>;

#[derive(Debug, Default)]
pub struct Frame {
    /// Empty before the first.
    pub text: Arc<str>,
    pub made: Micros,
    /// The last map of blocks, of each loop; `None` before the first.
    pub blocks: Option<Vec<BlockMap>>,
}
