//! The runner over a scripted route: the test says what each line hears.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::testing::stores;
use crate::{Batch, BatchStatus, Location, NewBatch, NewFile, Store};
use forebay_clock::Clock;
use forebay_core::units::Micros;

/// A store, a clock that stands still, and a runner at work.
struct Scene {
    store: Store,
    clock: Clock,
    wake: Arc<Notify>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Scene {
    fn start(store: Store, concurrency: usize, answerer: Answerer) -> Scene {
        let (clock, wake) = (Clock::manual(), Arc::new(Notify::new()));
        let (stop, stopped) = oneshot::channel();
        let config = Config { concurrency };
        let parts = RunnerParts { store: store.clone(), answerer, clock: clock.clone(), config, wake: wake.clone() };
        let task = tokio::spawn(Runner::new(parts).run(async {
            let _ = stopped.await;
        }));
        Scene { store, clock, wake, stop: Some(stop), task }
    }

    /// A batch over a file of these lines.
    async fn create(&self, name: &str, lines: &[String]) -> String {
        let file = format!("file-{name}");
        let now = self.clock.unix_millis();
        let new = NewFile { id: file.clone(), created_ms: now, filename: "in.jsonl".into(), owner: None };
        self.store.begin_file(&new).await.unwrap();
        let content = lines.join("\n");
        self.store.add_part(&file, 0, &content).await.unwrap();
        self.store.finish_file(&file, "batch", content.len() as i64, None).await.unwrap();
        let id = format!("batch_{name}");
        let batch = NewBatch {
            id: id.clone(),
            created_ms: now,
            endpoint: "/v1/completions".into(),
            owner: None,
            input_file_id: file,
            completion_window: "1h".into(),
            expires_ms: now + 3_600_000,
            output_expires_s: None,
            metadata: None,
        };
        self.store.create_batch(&batch).await.unwrap();
        self.wake.notify_one();
        id
    }

    async fn until(&self, id: &str, what: &str, holds: impl Fn(&Batch) -> bool) -> Batch {
        for _ in 0..6_000 {
            let batch = self.store.batch(id).await.unwrap().unwrap();
            if holds(&batch) {
                return batch;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{id} never was {what}: {:?}", self.store.batch(id).await);
    }

    async fn ends(&self, id: &str, status: BatchStatus) -> Batch {
        self.until(id, status.name(), |batch| batch.status == status).await
    }

    /// The lines of a file, as JSON.
    async fn lines(&self, file: Option<&String>) -> Vec<Value> {
        let Some(id) = file else { return Vec::new() };
        let file = self.store.file(id, self.clock.unix_millis()).await.unwrap().unwrap();
        let (mut all, mut at) = (String::new(), -1);
        while let Some(part) = self.store.part(&file, at).await.unwrap() {
            all.push_str(&part.content);
            at = part.at;
        }
        all.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    async fn stop(mut self) -> Store {
        drop(self.stop.take());
        self.task.await.unwrap();
        self.store
    }
}

fn line(id: usize) -> String {
    line_to("/v1/completions", id)
}

fn line_to(url: &str, id: usize) -> String {
    json!({"custom_id": format!("c{id}"), "method": "POST", "url": url, "body": {"prompt": id}}).to_string()
}

fn lines(count: usize) -> Vec<String> {
    (0..count).map(line).collect()
}

fn ok(ask: &Ask) -> Answered {
    let asked: Value = serde_json::from_str(&ask.body).unwrap();
    let body = json!({"echo": asked["prompt"], "url": ask.url}).to_string();
    Answered { status: 200, request_id: "req-1".into(), retry_after_s: None, body }
}

fn status(status: u16) -> Answered {
    let body = json!({"error": {"code": status}}).to_string();
    Answered { status, request_id: "req-2".into(), retry_after_s: None, body }
}

fn number(ask: &Ask) -> u64 {
    serde_json::from_str::<Value>(&ask.body).unwrap()["prompt"].as_u64().unwrap()
}

/// A route that answers at once.
fn scripted(answer: impl Fn(&Ask) -> Answered + Send + Sync + 'static) -> Answerer {
    Arc::new(move |ask| std::future::ready(answer(&ask)).boxed())
}

fn ids(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["custom_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_line_is_answered_in_its_place() {
    for (store, _folder) in stores().await {
        let answer = scripted(|ask| if number(ask) % 3 == 1 { status(400) } else { ok(ask) });
        let scene = Scene::start(store, 4, answer);
        // More than are read ahead.
        let id = scene.create("a", &lines(150)).await;
        let batch = scene.ends(&id, BatchStatus::Completed).await;
        assert_eq!((batch.total, batch.completed, batch.failed), (150, 100, 50));
        let output = scene.lines(batch.output_file_id.as_ref()).await;
        let expected: Vec<String> = (0..150).filter(|n| n % 3 != 1).map(|n| format!("c{n}")).collect();
        assert_eq!(ids(&output), expected);
        let first = &output[0];
        assert_eq!(first.as_object().unwrap().keys().collect::<Vec<_>>(), ["id", "custom_id", "response", "error"]);
        let response =
            json!({"status_code": 200, "request_id": "req-1", "body": {"echo": 0, "url": "/v1/completions"}});
        assert_eq!((&first["response"], &first["error"]), (&response, &Value::Null));
        let errors = scene.lines(batch.error_file_id.as_ref()).await;
        assert_eq!((errors.len(), &errors[0]["response"]["status_code"]), (50, &json!(400)));
        assert!(batch.in_progress_ms <= batch.finalizing_ms && batch.finalizing_ms <= batch.completed_ms);
    }
}

#[tokio::test]
async fn a_file_that_asks_other_routes_fails_with_its_lines() {
    let scene = Scene::start(Store::new(crate::Config::memory()), 4, scripted(ok));
    let lines = [line(0), line_to("/v1/chat/completions", 1), line(2), line_to("/v1/chat/completions", 3)];
    let id = scene.create("a", &lines).await;
    let batch = scene.ends(&id, BatchStatus::Failed).await;
    let errors: Value = serde_json::from_str(&batch.errors.unwrap()).unwrap();
    let faults: Vec<_> = errors["data"].as_array().unwrap().iter().map(|e| (&e["code"], &e["line"])).collect();
    assert_eq!(faults, [(&json!("mismatched_url"), &json!(2)), (&json!("mismatched_url"), &json!(4))]);
    assert_eq!((batch.total, batch.output_file_id), (0, None));

    scene.store.delete_file("file-a").await.unwrap();
    let gone = NewBatch { id: "batch_b".into(), input_file_id: "file-a".into(), ..again(&scene) };
    scene.store.create_batch(&gone).await.unwrap();
    scene.wake.notify_one();
    let batch = scene.ends("batch_b", BatchStatus::Failed).await;
    assert!(batch.errors.unwrap().contains("invalid_input_file"));
}

fn again(scene: &Scene) -> NewBatch {
    NewBatch {
        id: String::new(),
        created_ms: scene.clock.unix_millis(),
        endpoint: "/v1/completions".into(),
        owner: None,
        input_file_id: String::new(),
        completion_window: "1h".into(),
        expires_ms: scene.clock.unix_millis() + 3_600_000,
        output_expires_s: None,
        metadata: None,
    }
}

/// Answers the first lines, and never the others.
fn stuck_after(count: u64) -> Answerer {
    Arc::new(move |ask| match number(&ask) < count {
        true => std::future::ready(ok(&ask)).boxed(),
        false => std::future::pending().boxed(),
    })
}

#[tokio::test]
async fn a_cancelled_batch_keeps_what_it_has() {
    for (store, _folder) in stores().await {
        let scene = Scene::start(store, 3, stuck_after(2));
        let id = scene.create("a", &lines(9)).await;
        scene.until(&id, "answered in part", |batch| batch.completed == 2).await;
        assert!(scene.store.cancel_batch(&id, scene.clock.unix_millis()).await.unwrap());
        scene.wake.notify_one();
        let batch = scene.ends(&id, BatchStatus::Cancelled).await;
        assert_eq!((batch.total, batch.completed, batch.failed), (9, 2, 7));
        assert_eq!(ids(&scene.lines(batch.output_file_id.as_ref()).await), ["c0", "c1"]);
        let errors = scene.lines(batch.error_file_id.as_ref()).await;
        assert!(errors.iter().all(|line| line["error"]["code"] == "batch_cancelled" && line["response"].is_null()));
        assert_eq!(errors.len(), 7);
    }
}

#[tokio::test]
async fn a_batch_expires_with_its_window() {
    // Three lines are stuck, and one may be asked beside them.
    let scene = Scene::start(Store::new(crate::Config::memory()), 4, stuck_after(2));
    let id = scene.create("a", &lines(5)).await;
    scene.until(&id, "answered in part", |batch| batch.completed == 2).await;
    scene.clock.advance(Micros::from_millis(3_599_999));
    scene.wake.notify_one();
    let other = scene.create("b", &lines(1)).await;
    scene.ends(&other, BatchStatus::Completed).await;
    assert_eq!(scene.store.batch(&id).await.unwrap().unwrap().status, BatchStatus::InProgress, "a moment is left");
    scene.clock.advance(Micros::from_millis(1));
    scene.wake.notify_one();
    let batch = scene.ends(&id, BatchStatus::Expired).await;
    assert_eq!((batch.completed, batch.failed), (2, 3));
    let errors = scene.lines(batch.error_file_id.as_ref()).await;
    assert_eq!(ids(&errors), ["c2", "c3", "c4"]);
    assert!(errors.iter().all(|line| line["error"]["code"] == "batch_expired"));
}

#[tokio::test]
async fn a_full_queue_is_no_answer() {
    let refusals = AtomicUsize::new(0);
    let answer = scripted(move |ask| match refusals.fetch_add(1, Ordering::SeqCst) {
        0 => status(429),
        1 => status(503),
        2 => status(504),
        _ => ok(ask),
    });
    let scene = Scene::start(Store::new(crate::Config::memory()), 1, answer);
    let id = scene.create("a", &lines(2)).await;
    let batch = scene.ends(&id, BatchStatus::Completed).await;
    assert_eq!((batch.completed, batch.failed), (2, 0));
}

#[tokio::test]
async fn batches_take_turns_and_no_more_lines_are_asked_than_may() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let order = Arc::new(Mutex::new(Vec::new()));
    let answer: Answerer = {
        let (now, most, order) = (now.clone(), most.clone(), order.clone());
        Arc::new(move |ask| {
            let (now, most, order) = (now.clone(), most.clone(), order.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                order.lock().unwrap().push(ask.batch.clone());
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                ok(&ask)
            }
            .boxed()
        })
    };
    let scene = Scene::start(Store::new(crate::Config::memory()), 3, answer);
    // Both are there before the runner looks.
    let (a, b) = (scene.create("a", &lines(40)).await, scene.create("b", &lines(40)).await);
    scene.ends(&a, BatchStatus::Completed).await;
    scene.ends(&b, BatchStatus::Completed).await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    let order = order.lock().unwrap();
    let last_begins = |batch: &str| order.iter().rposition(|of| of == batch).unwrap();
    assert!(last_begins(&a).min(last_begins(&b)) > 60, "neither waits for the other's end: {order:?}");
}

#[tokio::test]
async fn whoever_runs_next_asks_only_what_has_no_answer() {
    for (store, _folder) in stores().await {
        let scene = Scene::start(store, 3, stuck_after(4));
        let id = scene.create("a", &lines(10)).await;
        scene.until(&id, "answered in part", |batch| batch.completed == 4).await;
        let store = scene.stop().await;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answer = {
            let asked = asked.clone();
            scripted(move |ask| {
                asked.lock().unwrap().push(number(ask));
                ok(ask)
            })
        };
        let scene = Scene::start(store, 3, answer);
        let batch = scene.ends(&id, BatchStatus::Completed).await;
        assert_eq!((batch.total, batch.completed), (10, 10));
        assert_eq!(ids(&scene.lines(batch.output_file_id.as_ref()).await).len(), 10);
        let mut asked = asked.lock().unwrap().clone();
        asked.sort();
        assert_eq!(asked, [4, 5, 6, 7, 8, 9]);
    }
}

#[tokio::test]
async fn answers_wait_for_room_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let config = crate::Config { location: Location::File(folder.path().join("x.db")), max_mib: Some(1) };
    let large = "x".repeat(40 << 10);
    let answer = scripted(move |ask| Answered { body: json!({"text": large}).to_string(), ..ok(ask) });
    let scene = Scene::start(Store::new(config), 4, answer);
    // Of the future, or the runner would take it for an upload that was given up.
    let ballast = NewFile { id: "file-ballast".into(), created_ms: i64::MAX, filename: String::new(), owner: None };
    scene.store.begin_file(&ballast).await.unwrap();
    scene.store.add_part("file-ballast", 0, &"y".repeat(500 << 10)).await.unwrap();
    scene.store.finish_file("file-ballast", "batch", 500 << 10, None).await.unwrap();
    let id = scene.create("a", &lines(16)).await;
    let stuck = scene.until(&id, "out of room", |batch| batch.completed >= 4).await;
    assert!(stuck.completed < 16, "{stuck:?}");
    scene.store.delete_file("file-ballast").await.unwrap();
    let batch = scene.ends(&id, BatchStatus::Completed).await;
    assert_eq!((batch.completed, batch.failed), (16, 0));
    assert_eq!(scene.lines(batch.output_file_id.as_ref()).await.len(), 16);
}
