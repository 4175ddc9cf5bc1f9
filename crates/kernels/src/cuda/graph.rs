//! Launches that are recorded once and played back with one call (CUDA graphs).

use candle_core::Result;
use candle_core::cuda_backend::cudarc::driver::{CudaGraph, sys};
use candle_core::cuda_backend::{CudaDevice, WrapErr};

/// Launches in their order, with the arrays that they had.
pub struct Recording(CudaGraph);

// SAFETY: a graph is not synchronised by the driver, and is never shared here: its owner plays it, one step at a time, from
// whichever thread it has moved to; the calls bind the context to that thread first.
unsafe impl Send for Recording {}

impl Recording {
    /// Runs `work`, of which nothing is computed: its launches and allocations go to the recording. Whatever it allocates it
    /// must free. Nobody else may use the stream meanwhile.
    pub fn record(device: &CudaDevice, work: impl FnOnce() -> Result<()>) -> Result<Recording> {
        let stream = device.cuda_stream();
        // Of this thread alone: others may allocate.
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).w()?;
        let worked = work();
        // What is dropped in a recording that has failed leaves its error with the context, whose next call would be refused
        // for it: that of leaving the recording, which has to be whether or not all went well.
        let _ = stream.context().check_err();
        let ended = stream.end_capture(sys::CUgraphInstantiate_flags(0)).w();
        let _ = stream.context().check_err();
        worked?;
        match ended? {
            Some(graph) => Ok(Recording(graph)),
            None => candle_core::bail!("nothing was recorded"),
        }
    }

    /// Computes what was recorded, on what its arrays hold now.
    pub fn play(&self) -> Result<()> {
        self.0.launch().w()
    }
}
