//! Engine loops, each on a thread of its own with its own cache and its share of the compute threads, and how one is begun
//! again.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use forebay_clock::Clock;
use forebay_core::scheduler::thermal::Thresholds;
use forebay_engine::cache_feed::{CacheFeed, Told};
use forebay_engine::command::EngineCommand;
use forebay_engine::export::Export;
use forebay_engine::heartbeat::Heartbeat;
use forebay_engine::loop_state::{LoopParts, LoopState};
use forebay_engine::metrics::Metrics;
use forebay_engine::permit::Gate;
use forebay_engine::workers::{Local, Run, Start};
use forebay_engine::{EngineHandle, run};
use forebay_model::Cores;
use forebay_turn::control::Tuning;
use forebay_turn::core::{self, Core};
use forebay_turn::executor::Executor;

use super::failure::Failure;

/// Commands that may wait for a loop; beyond it their senders wait, which is how a flood is slowed down.
const COMMAND_CAPACITY: usize = 1024;

/// What all loops share.
#[derive(Clone)]
pub struct Shared {
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub gate: Gate,
    /// Where ended traces go, if anywhere.
    pub export: Option<Export>,
    /// Where loops tell what their caches hold, if anybody wants to know.
    pub cache_feed: Option<mpsc::Sender<Told>>,
}

/// All that loops have in common.
#[derive(Clone)]
pub struct Blueprint {
    core: core::Config,
    tuning: Tuning,
    thermal: Thresholds,
    overlap: bool,
    shared: Shared,
}

impl Blueprint {
    pub fn new(config: &Config, core: core::Config, shared: &Shared) -> Blueprint {
        Blueprint {
            core,
            tuning: Tuning { intake: config.intake, scheduler: core.scheduler },
            thermal: config.thermal.thresholds,
            overlap: config.engine.overlap,
            shared: shared.clone(),
        }
    }

    /// `count` loops, called `kind` and a number, with `threads` compute threads among them. `executor` makes one for each
    /// loop, and one more whenever a loop that died is begun again.
    pub fn start<E: Executor>(
        self,
        kind: &str,
        count: usize,
        threads: usize,
        executor: impl Fn() -> Result<E, String> + Send + Sync + 'static,
    ) -> Result<Vec<(String, Local)>, Failure> {
        let executor = Arc::new(executor);
        let local = |index: usize| {
            let name = format!("{kind}-{index}");
            // A single loop has the threads of the process.
            let cores = (count > 1).then(|| Cores::new(share(threads, count, index)));
            let heartbeat = Arc::new(Heartbeat::default());
            let (blueprint, beat, executor, thread) = (self.clone(), heartbeat.clone(), executor.clone(), name.clone());
            let start: Start = Arc::new(move || blueprint.run(&thread, index, cores, beat.clone(), executor()?));
            let local = Local::start(heartbeat, start).map_err(|error| Failure::Input(error.into()))?;
            Ok((name, local))
        };
        (0..count).map(local).collect()
    }

    fn run<E: Executor>(
        &self,
        name: &str,
        index: usize,
        cores: Option<Cores>,
        heartbeat: Arc<Heartbeat>,
        executor: E,
    ) -> Result<Run, String> {
        let feed = self.shared.cache_feed.clone().map(|sender| CacheFeed::new(index, sender));
        let core = Core::new(self.core, executor);
        let core = if feed.is_some() { core.telling() } else { core };
        let gate = self.shared.gate.of_another_loop();
        let state = LoopState::new(LoopParts {
            tuning: self.tuning.clone(),
            thermal: self.thermal,
            gate: gate.clone(),
            clock: self.shared.clock.clone(),
            metrics: self.shared.metrics.of_another_loop(),
            heartbeat: heartbeat.clone(),
        })
        .overlapping(self.overlap)
        .exporting(self.shared.export.clone())
        .feeding(feed);
        let (sender, commands) = mpsc::channel(COMMAND_CAPACITY);
        // Ready from here on: what comes before the thread's first turn waits in the channel.
        heartbeat.rest();
        let (thread, ended) = spawn(name, cores, core, state, commands)?;
        Ok(Run { handle: EngineHandle::new(sender, gate), thread, ended })
    }
}

/// Of `threads` that `count` loops share, those of the loop `index`: all of them where they suffice, and never none.
fn share(threads: usize, count: usize, index: usize) -> usize {
    (threads / count + usize::from(index < threads % count)).max(1)
}

/// A loop has a runtime of its own: one thread for it and one, at most, for the step.
fn spawn<E: Executor>(
    name: &str,
    cores: Option<Cores>,
    core: Core<E>,
    state: LoopState,
    commands: mpsc::Receiver<EngineCommand>,
) -> Result<(JoinHandle<()>, oneshot::Receiver<()>), String> {
    let runtime = runtime::Builder::new_current_thread()
        .max_blocking_threads(1)
        .on_thread_start(move || cores.into_iter().for_each(Cores::enter))
        .enable_time()
        .build()
        .map_err(|error| format!("the runtime of an engine: {error}"))?;
    let (alive, ended) = oneshot::channel();
    let body = move || {
        // Dropped last, also where the loop panics: whoever waits for its end may count on all else being gone.
        let _alive: oneshot::Sender<()> = alive;
        let core = runtime.block_on(run::run(core, state, commands));
        drop(core);
    };
    let thread = thread::Builder::new().name(name.into()).spawn(body);
    Ok((thread.map_err(|error| format!("the thread of an engine: {error}"))?, ended))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn threads_are_dealt_evenly_and_nobody_goes_without() {
        let shares = |threads, count| (0..count).map(|index| share(threads, count, index)).collect::<Vec<_>>();
        assert_eq!(shares(8, 3), [3, 3, 2]);
        assert_eq!(shares(2, 2), [1, 1]);
        assert_eq!(shares(2, 4), [1, 1, 1, 1]);
    }
}
