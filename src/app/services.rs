//! The parts of a server that run until they are told to end: how one is started, told to stop, waited for and, where it is late,
//! aborted. Services start in the order of their list and end in an order of its own, which is data ([`Order`]).
//!
//! ```text
//! Service ── start ──▶ Running ── told to stop ──▶ waited for, as long as its Grace ──▶ ended
//!    └ fails: those that run are ended                └ late: aborted, and named in the log
//! ```
//! What the server's own services are, and in which order they end, is in `serve.rs`.

use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::failure::Failure;

/// How long the tasks of a service may take once they are aborted. Only one that computes without a pause takes any time.
const ABORTED: Duration = Duration::from_secs(1);

/// Starts a service; `None` where the configuration does not ask for it. Nothing happens before it is polled.
pub type Starting = BoxFuture<'static, Result<Option<Running>, Failure>>;

/// A part of the server, not started yet.
pub struct Service {
    pub name: &'static str,
    pub grace: Grace,
    start: Starting,
}

/// How long a service may take to end, from the moment when it is waited for. Each of its tasks has this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// Long where the server has drained, short where it was told to end at once: whoever walks says how long.
    AsDrained,
    /// The same however the server ends.
    Fixed(Duration),
    /// No limit: the service bounds its end by itself.
    Own,
}

/// A service that was started.
pub struct Running {
    stop: Stop,
    tasks: Vec<JoinHandle<()>>,
}

/// How a service is told to stop.
enum Stop {
    /// By a call that returns at once. Dropping a sender whose receiver the tasks hold is one.
    Call(Box<dyn FnOnce() + Send>),
    /// By a future that is run to its end, which belongs to the service's grace.
    Close(BoxFuture<'static, ()>),
    /// By aborting its tasks, which hold nothing that has to be finished.
    Abort,
    /// It was told before.
    Told,
}

/// What is done with one service while the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is told to stop, and nobody waits for it yet. Changes nothing for a service that is closed or aborted.
    Tell(&'static str),
    /// It is told to stop, unless it was, and has its grace to end. Later steps wait for that.
    End(&'static str),
}

/// The order in which services end. Services that were not started are left out.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// While requests are still running.
    pub before_drain: &'static [Step],
    /// When they have ended, or had to.
    pub after_drain: &'static [Step],
    /// The grace of those that [`Grace::AsDrained`] is for where another service did not start, so that nothing was drained.
    pub without_drain: Duration,
}

/// The services that run, in the order in which they were started.
#[derive(Default)]
pub struct Services(Vec<Live>);

struct Live {
    name: &'static str,
    grace: Grace,
    running: Running,
}

impl Service {
    pub fn new(name: &'static str, grace: Grace, start: Starting) -> Service {
        Service { name, grace, start }
    }
}

/// The start of a service that cannot fail.
pub fn starting(start: impl FnOnce() -> Running + Send + 'static) -> Starting {
    starting_if_any(move || Some(start()))
}

/// The start of a service that cannot fail, and that the configuration may not ask for.
pub fn starting_if_any(start: impl FnOnce() -> Option<Running> + Send + 'static) -> Starting {
    async move { Ok(start()) }.boxed()
}

impl Running {
    /// Told to stop by dropping `sender`, the other end of which its tasks hold.
    pub fn until_dropped(sender: impl Send + 'static, tasks: Vec<JoinHandle<()>>) -> Running {
        Running { stop: Stop::Call(Box::new(move || drop(sender))), tasks }
    }

    /// Told to stop by a call, and has no tasks.
    pub fn until_called(stop: impl FnOnce() + Send + 'static) -> Running {
        Running { stop: Stop::Call(Box::new(stop)), tasks: Vec::new() }
    }

    /// Ended by `close`; then its tasks end by themselves.
    pub fn until_closed(close: impl Future<Output = ()> + Send + 'static, tasks: Vec<JoinHandle<()>>) -> Running {
        Running { stop: Stop::Close(close.boxed()), tasks }
    }

    /// Ended by aborting its task.
    pub fn until_aborted(task: JoinHandle<()>) -> Running {
        Running { stop: Stop::Abort, tasks: vec![task] }
    }
}

impl Services {
    /// Starts services, one after the other. If one fails, those before it are ended in the same order as at the end of the
    /// server, and its failure is returned.
    pub async fn start(list: impl IntoIterator<Item = Service>, order: &Order) -> Result<Services, Failure> {
        let mut services = Services::default();
        for Service { name, grace, start } in list {
            match start.await {
                Ok(Some(running)) => services.0.push(Live { name, grace, running }),
                Ok(None) => {}
                Err(failure) => {
                    services.walk(order.before_drain, order.without_drain).await;
                    services.walk(order.after_drain, order.without_drain).await;
                    return Err(failure);
                }
            }
        }
        Ok(services)
    }

    /// Takes these steps, one after the other. `as_drained` is the time of [`Grace::AsDrained`].
    pub async fn walk(&mut self, steps: &[Step], as_drained: Duration) {
        for step in steps {
            match *step {
                Step::Tell(name) => {
                    if let Some(live) = self.0.iter_mut().find(|live| live.name == name) {
                        live.running.tell();
                    }
                }
                Step::End(name) => {
                    if let Some(place) = self.0.iter().position(|live| live.name == name) {
                        self.0.remove(place).end(as_drained).await;
                    }
                }
            }
        }
    }
}

impl Running {
    fn tell(&mut self) {
        match std::mem::replace(&mut self.stop, Stop::Told) {
            Stop::Call(stop) => stop(),
            other => self.stop = other,
        }
    }
}

impl Live {
    async fn end(mut self, as_drained: Duration) {
        let grace = match self.grace {
            Grace::AsDrained => Some(as_drained),
            Grace::Fixed(grace) => Some(grace),
            Grace::Own => None,
        };
        self.running.tell();
        let Running { stop, tasks } = self.running;
        let mut late = false;
        match stop {
            Stop::Close(close) => late |= within(grace, close).await.is_none(),
            Stop::Abort => tasks.iter().for_each(JoinHandle::abort),
            Stop::Call(_) | Stop::Told => {}
        }
        for mut task in tasks {
            if within(grace, &mut task).await.is_none() {
                late = true;
                task.abort();
                let _ = timeout(ABORTED, task).await;
            }
        }
        if late {
            let name = self.name;
            tracing::error!(event = "service_not_ended", service = name, "{name} did not end in time and was aborted");
        }
    }
}

/// The future's output; `None` if it takes longer than `grace`, where there is one.
async fn within<T>(grace: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match grace {
        Some(grace) => timeout(grace, future).await.ok(),
        None => Some(future.await),
    }
}

#[cfg(test)]
mod tests;
