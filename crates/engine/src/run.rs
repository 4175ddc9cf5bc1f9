//! The loop: take commands, plan, send the core away to compute; while it is away deliver what it brought before, and keep
//! taking commands.

use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::command::EngineCommand;
use super::loop_state::LoopState;
use forebay_core::scheduler::StepPlan;
use forebay_turn::core::Core;
use forebay_turn::executor::Executor;

/// Commands taken at the top of a turn. Steps may be so short that the `select!` below never sees a command first; this
/// many are taken all the same, and not so many that a flood of them keeps a step from starting.
const COMMANDS_PER_TURN: usize = 64;

/// Runs until `Shutdown` comes or every sender of `commands` is gone, finishing the step under way. Whatever is still
/// live then is ended with [`forebay_core::request::RequestError::ShuttingDown`].
pub async fn run<E: Executor>(
    mut core: Core<E>,
    mut state: LoopState,
    mut commands: mpsc::Receiver<EngineCommand>,
) -> Core<E> {
    while !state.is_ending() {
        fail::fail_point!("engine::turn");
        take_waiting(&mut state, &mut commands);
        state.settle(&mut core);
        let Some(plan) = state.plan(&mut core) else {
            state.rest(&core);
            if !state.is_ending() {
                command_or_timer(&mut state, &mut commands).await;
            }
            continue;
        };
        core = step(core, plan, &mut state, &mut commands).await;
    }
    state.end();
    core.abort_all();
    core
}

/// One call of the core. By value: while it is away nothing here can touch it.
async fn step<E: Executor>(
    core: Core<E>,
    plan: StepPlan,
    state: &mut LoopState,
    commands: &mut mpsc::Receiver<EngineCommand>,
) -> Core<E> {
    let now = state.before_step(&plan);
    let mut away = spawn_blocking(move || core.execute(plan, now));
    state.during_step();
    let (mut core, report) = loop {
        select! { biased;
            done = &mut away => break done.expect("execute catches its own panics"),
            Some(command) = commands.recv() => state.on_command(command),
        }
    };
    state.after_step(&mut core, report, now);
    core
}

fn take_waiting(state: &mut LoopState, commands: &mut mpsc::Receiver<EngineCommand>) {
    for _ in 0..COMMANDS_PER_TURN {
        match commands.try_recv() {
            Ok(command) => state.on_command(command),
            Err(mpsc::error::TryRecvError::Empty) => return,
            Err(mpsc::error::TryRecvError::Disconnected) => return state.end_soon(),
        }
    }
}

/// Nothing to compute: until the next command, or until a timer of the queue or a deadline is due.
async fn command_or_timer(state: &mut LoopState, commands: &mut mpsc::Receiver<EngineCommand>) {
    let until_due = state.until_due();
    let timer = async {
        match until_due {
            // A timer that is due already must not spin the loop where time stands still.
            Some(due) => sleep(Duration::from_micros(due.0).max(Duration::from_millis(1))).await,
            None => std::future::pending().await,
        }
    };
    select! { biased;
        command = commands.recv() => match command {
            Some(command) => state.on_command(command),
            None => state.end_soon(),
        },
        () = timer => {}
    }
}
