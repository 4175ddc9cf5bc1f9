//! Services that only note what becomes of them, under virtual time.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::*;

const GRACE: Duration = Duration::from_secs(5);
const HURRIED: Duration = Duration::from_secs(1);

/// What happened, in order; lines of the log among it.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    fn read(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A task that works until `stop` ends, and then for `last` more.
    fn task(
        &self,
        name: &'static str,
        stop: impl Future<Output = ()> + Send + 'static,
        last: Duration,
    ) -> JoinHandle<()> {
        let dropped = Dropped { diary: self.clone(), name };
        tokio::spawn(async move {
            stop.await;
            dropped.diary.note(format!("{name} told"));
            sleep(last).await;
            dropped.diary.note(format!("{name} ended"));
            std::mem::forget(dropped);
        })
    }

    /// Takes `last` from when it is told by a dropped sender.
    fn until_dropped(&self, name: &'static str, grace: Grace, last: Duration) -> Service {
        let diary = self.clone();
        Service::new(
            name,
            grace,
            starting(move || {
                diary.note(format!("{name} starts"));
                let (stop, stopped) = oneshot::channel::<()>();
                let task = diary.task(name, async { drop(stopped.await) }, last);
                Running::until_dropped(stop, vec![task])
            }),
        )
    }

    fn until_called(&self, name: &'static str) -> Service {
        let diary = self.clone();
        Service::new(
            name,
            Grace::Own,
            starting(move || {
                diary.note(format!("{name} starts"));
                Running::until_called(move || diary.note(format!("{name} called")))
            }),
        )
    }

    fn until_closed(&self, name: &'static str, grace: Grace, closing: Duration) -> Service {
        let diary = self.clone();
        Service::new(
            name,
            grace,
            starting(move || {
                diary.note(format!("{name} starts"));
                let close = async move {
                    diary.note(format!("{name} closes"));
                    sleep(closing).await;
                    diary.note(format!("{name} closed"));
                };
                Running::until_closed(close, Vec::new())
            }),
        )
    }

    fn until_aborted(&self, name: &'static str) -> Service {
        let diary = self.clone();
        Service::new(
            name,
            Grace::Own,
            starting(move || {
                diary.note(format!("{name} starts"));
                Running::until_aborted(diary.task(name, std::future::pending(), Duration::ZERO))
            }),
        )
    }

    fn failing(&self, name: &'static str) -> Service {
        let diary = self.clone();
        let start = async move {
            diary.note(format!("{name} fails"));
            Err(Failure::Runtime(anyhow::anyhow!("{name} cannot be started")))
        };
        Service::new(name, Grace::Own, start.boxed())
    }
}

/// Notes that a task was dropped before it had ended.
struct Dropped {
    diary: Diary,
    name: &'static str,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.diary.note(format!("{} aborted", self.name));
    }
}

impl std::io::Write for Diary {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.note(String::from_utf8_lossy(line).trim());
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Until it is dropped, what this thread logs is noted in `diary`.
fn logged_to(diary: &Diary) -> tracing::subscriber::DefaultGuard {
    let diary = diary.clone();
    let lines = tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false);
    tracing::subscriber::set_default(lines.with_writer(move || diary.clone()).finish())
}

/// Neither the order of the start nor its reverse.
const ORDER: Order = Order {
    before_drain: &[Step::Tell("c"), Step::Tell("a"), Step::End("d")],
    after_drain: &[Step::End("b"), Step::End("absent"), Step::End("c"), Step::End("e"), Step::End("a")],
    without_drain: HURRIED,
};

#[tokio::test(start_paused = true)]
async fn services_start_in_the_order_of_their_list_and_end_in_that_of_the_data() {
    let diary = Diary::default();
    let second = Duration::from_secs(1);
    let list = [
        diary.until_closed("a", Grace::Fixed(GRACE), second),
        diary.until_aborted("b"),
        diary.until_dropped("c", Grace::AsDrained, second),
        Service::new("absent", Grace::Own, starting_if_any(|| None)),
        diary.until_called("d"),
        diary.until_dropped("e", Grace::Own, 100 * GRACE),
    ];
    let mut services = Services::start(list, &ORDER).await.expect("all start");
    assert_eq!(diary.read(), ["a starts", "b starts", "c starts", "d starts", "e starts"]);
    services.walk(ORDER.before_drain, GRACE).await;
    assert_eq!(
        diary.read(),
        ["d called"],
        "c was told, too, and nobody has waited for it; a closes only when it is ended"
    );
    sleep(second / 2).await;
    assert_eq!(diary.read(), ["c told"]);
    let began = Instant::now();
    services.walk(ORDER.after_drain, GRACE).await;
    assert_eq!(diary.read(), ["b aborted", "c ended", "e told", "e ended", "a closes", "a closed"]);
    assert_eq!(began.elapsed(), second / 2 + 100 * GRACE + second, "nobody is waited for longer than it takes");
    assert!(services.0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_end_within_its_grace_is_aborted_and_named_in_the_log() {
    let diary = Diary::default();
    let _log = logged_to(&diary);
    let list = || {
        [
            diary.until_dropped("a", Grace::AsDrained, 10 * GRACE),
            diary.until_closed("b", Grace::Fixed(GRACE), 10 * GRACE),
            diary.until_dropped("c", Grace::AsDrained, Duration::ZERO),
        ]
    };
    for as_drained in [GRACE, HURRIED] {
        let mut services = Services::start(list(), &ORDER).await.expect("all start");
        assert_eq!(diary.read(), ["a starts", "b starts", "c starts"]);
        let began = Instant::now();
        services.walk(&[Step::End("a"), Step::End("b"), Step::End("c")], as_drained).await;
        let line = |name: &str| {
            format!("ERROR {name} did not end in time and was aborted event=\"service_not_ended\" service=\"{name}\"")
        };
        let expected = ["a told", "a aborted", &line("a"), "b closes", &line("b"), "c told", "c ended"];
        assert_eq!(diary.read(), expected);
        assert_eq!(began.elapsed(), as_drained + GRACE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_fails_to_start_ends_those_before_it_in_their_order() {
    let diary = Diary::default();
    let list = [
        diary.until_closed("a", Grace::Fixed(GRACE), Duration::ZERO),
        diary.until_aborted("b"),
        diary.until_dropped("c", Grace::AsDrained, 10 * GRACE),
        diary.failing("d"),
        diary.until_called("e"),
    ];
    let began = Instant::now();
    let Err(Failure::Runtime(why)) = Services::start(list, &ORDER).await else { panic!("d fails") };
    assert_eq!(why.to_string(), "d cannot be started");
    let expected =
        ["a starts", "b starts", "c starts", "d fails", "b aborted", "c told", "c aborted", "a closes", "a closed"];
    assert_eq!(diary.read(), expected, "e is never started");
    assert_eq!(began.elapsed(), HURRIED, "nothing was drained");
}
