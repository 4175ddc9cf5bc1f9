//! The loop: hear commands, plan, send the core away to compute; while it is away deliver what it brought before, plan ahead,
//! and keep hearing.

use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::command::EngineCommand;
use super::home::Home;
use forebay_core::scheduler::StepPlan;
use forebay_turn::core::Core;
use forebay_turn::executor::Executor;

/// Commands heard at the top of a turn. Steps may be so short that the `select!` below never sees a command first; this
/// many are heard all the same, and not so many that a flood of them keeps a step from starting.
const COMMANDS_PER_TURN: usize = 64;

/// Runs until `Shutdown` comes or every sender of `commands` is gone, finishing the step under way. Whatever is still
/// live then is ended with [`forebay_core::request::RequestError::ShuttingDown`].
pub async fn run<E: Executor>(
    mut core: Core<E>,
    mut home: Home,
    mut commands: mpsc::Receiver<EngineCommand>,
) -> Core<E> {
    while !home.is_ending() {
        fail::fail_point!("engine::turn");
        hear_waiting(&mut home, &mut commands);
        home.settle(&mut core);
        let Some(plan) = home.plan(&mut core) else {
            home.rest(&core);
            if !home.is_ending() {
                hear_or_wake(&mut home, &mut commands).await;
            }
            continue;
        };
        core = step(core, plan, &mut home, &mut commands).await;
    }
    home.end();
    core.abort_all();
    core
}

/// One call of the core. By value: while it is away nothing here can touch it.
async fn step<E: Executor>(
    core: Core<E>,
    plan: StepPlan,
    home: &mut Home,
    commands: &mut mpsc::Receiver<EngineCommand>,
) -> Core<E> {
    let now = home.leaves(&core, &plan);
    let mut away = spawn_blocking(move || core.execute(plan, now));
    home.meanwhile();
    let (mut core, report) = loop {
        select! { biased;
            done = &mut away => break done.expect("execute catches its own panics"),
            Some(command) = commands.recv() => home.hear(command),
        }
    };
    core.observe(home.returned(now, report));
    core
}

fn hear_waiting(home: &mut Home, commands: &mut mpsc::Receiver<EngineCommand>) {
    for _ in 0..COMMANDS_PER_TURN {
        match commands.try_recv() {
            Ok(command) => home.hear(command),
            Err(mpsc::error::TryRecvError::Empty) => return,
            Err(mpsc::error::TryRecvError::Disconnected) => return home.end_soon(),
        }
    }
}

/// Nothing to compute: until the next command, or until a timer of the queue or a deadline is due.
async fn hear_or_wake(home: &mut Home, commands: &mut mpsc::Receiver<EngineCommand>) {
    let until_due = home.until_due();
    let timer = async {
        match until_due {
            // A timer that is due already must not spin the loop where time stands still.
            Some(due) => sleep(Duration::from_micros(due.0).max(Duration::from_millis(1))).await,
            None => std::future::pending().await,
        }
    };
    select! { biased;
        command = commands.recv() => match command {
            Some(command) => home.hear(command),
            None => home.end_soon(),
        },
        () = timer => {}
    }
}
