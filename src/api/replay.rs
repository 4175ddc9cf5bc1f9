//! Streams that can be read again: a client that lost its connection goes on where it was.
//!
//! ```text
//! POST …, stream, X-Conversation-Id: id ─▶ a task drives the frames into a ring ─▶ this client reads from 0
//!                                                        GET /v1/stream/id?from=N ─▶ another reads from N
//! ```
//! Such a request runs to its end even if nobody reads it, unless it is replaced by the next of its conversation or deleted.
//! Ids are the client's: who knows one can read its stream, so they should be hard to guess.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::response::sse::Event;
use futures_util::stream::{BoxStream, unfold};
use futures_util::{Stream, StreamExt};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::request::RequestError;
use crate::units::Micros;

/// Of the payloads that one stream keeps; beyond it the oldest are gone.
const MAX_BYTES: usize = 4 << 20;
/// Streams that are kept; beyond it the oldest is gone.
const MAX_STREAMS: usize = 256;
/// How long a stream can be read after its end.
const KEPT: Micros = Micros(300 * 1_000_000);
const LONGEST_ID: usize = 128;

/// All streams that can be read again.
#[derive(Default)]
pub struct Replays {
    /// Guards the map only; no await happens under it.
    streams: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    ring: Arc<Ring>,
    task: AbortHandle,
    began: Micros,
}

/// What a stream has said so far.
#[derive(Default)]
struct Ring {
    /// Guards what is kept; no await happens under it.
    kept: Mutex<Kept>,
    more: Notify,
}

#[derive(Default)]
struct Kept {
    payloads: VecDeque<String>,
    bytes: usize,
    /// The number of the first that is kept.
    first: u64,
    ended: Option<Micros>,
}

/// The conversation that a request belongs to, where its client wants to be able to read it again.
pub fn conversation(headers: &HeaderMap) -> Result<Option<String>, RequestError> {
    const NAME: &str = "x-conversation-id";
    let Some(value) = headers.get(NAME) else { return Ok(None) };
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match value.to_str() {
        Ok(id) if (1..=LONGEST_ID).contains(&id.len()) && id.as_bytes().iter().all(harmless) => Ok(Some(id.to_owned())),
        _ => Err(RequestError::invalid(NAME, format!("must be 1 to {LONGEST_ID} letters, digits, '_' or '-'"))),
    }
}

impl Replays {
    /// Drives `payloads` into a ring of its own; returns a reader of it from the beginning. A stream of the same id is ended.
    pub fn begin(
        &self,
        id: String,
        clock: &Clock,
        payloads: impl Stream<Item = String> + Send + 'static,
    ) -> BoxStream<'static, Event> {
        let ring = Arc::new(Ring::default());
        let (writer, now) = (ring.clone(), clock.clone());
        // Ended by the map's entry: replaced, deleted, or dropped with the server.
        let task = tokio::spawn(async move {
            let mut payloads = std::pin::pin!(payloads);
            while let Some(payload) = payloads.next().await {
                writer.push(payload);
            }
            writer.end(now.now());
        });
        let mut streams = lock(&self.streams);
        let began = clock.now();
        streams.retain(|_, entry| !entry.ring.is_over(began));
        if streams.len() >= MAX_STREAMS {
            let oldest = streams.iter().min_by_key(|(_, entry)| entry.began).map(|(id, _)| id.clone());
            oldest.and_then(|id| streams.remove(&id)).inspect(Entry::end);
        }
        let entry = Entry { ring: ring.clone(), task: task.abort_handle(), began };
        streams.insert(id, entry).inspect(Entry::end);
        ring.read(0)
    }

    /// What the stream `id` says from payload `from` on.
    pub fn read(&self, id: &str, from: u64, now: Micros) -> Result<BoxStream<'static, Event>, RequestError> {
        let ring = {
            let mut streams = lock(&self.streams);
            streams.retain(|_, entry| !entry.ring.is_over(now));
            streams.get(id).map(|entry| entry.ring.clone()).ok_or_else(|| unknown(id))?
        };
        let first = lock(&ring.kept).first;
        if from < first {
            return Err(RequestError::invalid("from", format!("is {from}, but the oldest that is kept is {first}")));
        }
        Ok(ring.read(from))
    }

    /// Ends the stream `id` and forgets it.
    pub fn delete(&self, id: &str) -> Result<(), RequestError> {
        let entry = lock(&self.streams).remove(id).ok_or_else(|| unknown(id))?;
        entry.end();
        Ok(())
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        lock(&self.streams).values().for_each(Entry::end);
    }
}

impl Entry {
    /// Dropping the frames aborts what they come from. Readers hear no more.
    fn end(&self) {
        self.task.abort();
        self.ring.end(Micros::ZERO);
    }
}

impl Ring {
    fn push(&self, payload: String) {
        let mut kept = lock(&self.kept);
        kept.bytes += payload.len();
        kept.payloads.push_back(payload);
        while kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.payloads.pop_front() else { break };
            kept.bytes -= oldest.len();
            kept.first += 1;
        }
        drop(kept);
        self.more.notify_waiters();
    }

    fn end(&self, now: Micros) {
        lock(&self.kept).ended.get_or_insert(now);
        self.more.notify_waiters();
    }

    fn is_over(&self, now: Micros) -> bool {
        lock(&self.kept).ended.is_some_and(|ended| now.since(ended) > KEPT)
    }

    /// A reader so slow that its next payload is gone ends there.
    fn read(self: Arc<Ring>, from: u64) -> BoxStream<'static, Event> {
        let next = |(ring, at): (Arc<Ring>, u64)| async move {
            loop {
                let mut more = std::pin::pin!(ring.more.notified());
                // From here on no push is missed.
                more.as_mut().enable();
                {
                    let kept = lock(&ring.kept);
                    let index = at.checked_sub(kept.first)? as usize;
                    if let Some(payload) = kept.payloads.get(index) {
                        let event = Event::default().id(at.to_string()).data(payload);
                        drop(kept);
                        let state = (ring.clone(), at + 1);
                        return Some((event, state));
                    }
                    if kept.ended.is_some() {
                        return None;
                    }
                }
                more.await;
            }
        };
        unfold((self, from), next).boxed()
    }
}

fn unknown(id: &str) -> RequestError {
    let name = id.chars().take(LONGEST_ID).collect();
    RequestError::UnknownName {
        what: "stream",
        name,
        valid: "the X-Conversation-Id of streams, until 5 minutes after their end".into(),
    }
}

/// Nothing panics under these locks; if it did, what they guard is whole at every step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn payloads(stream: BoxStream<'static, Event>) -> usize {
        stream.count().await
    }

    #[tokio::test]
    async fn a_stream_is_read_from_anywhere_and_by_many() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let said = futures_util::stream::iter(["a", "b", "c"].map(str::to_owned));
        let first = replays.begin("x".into(), &clock, said);
        assert_eq!(payloads(first).await, 3);
        for (from, left) in [(0, 3), (2, 1), (3, 0), (9, 0)] {
            assert_eq!(payloads(replays.read("x", from, clock.now()).unwrap()).await, left);
        }
        clock.advance(Micros(KEPT.0 + 1));
        assert!(replays.read("x", 0, clock.now()).is_err(), "forgotten");
    }

    #[tokio::test]
    async fn the_oldest_payloads_give_way() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let large = futures_util::stream::iter((0..5).map(|_| "x".repeat(MAX_BYTES / 3)));
        let live = replays.begin("x".into(), &clock, large);
        drop(live);
        while replays.read("x", 0, clock.now()).is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(payloads(replays.read("x", 3, clock.now()).unwrap()).await, 2);
        let refused = replays.read("x", 0, clock.now()).err();
        assert!(matches!(refused, Some(RequestError::InvalidValue { param, .. }) if param == "from"));
    }

    #[tokio::test]
    async fn the_next_of_a_conversation_ends_the_one_before() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let endless = replays.begin("x".into(), &clock, futures_util::stream::pending());
        let next = replays.begin("x".into(), &clock, futures_util::stream::iter(["a".to_owned()]));
        assert_eq!((payloads(endless).await, payloads(next).await), (0, 1));
        replays.delete("x").unwrap();
        assert!(replays.delete("x").is_err());
    }

    #[test]
    fn ids_are_harmless() {
        let of = |id: &str| {
            conversation(&HeaderMap::from_iter([("x-conversation-id".parse().unwrap(), id.parse().unwrap())]))
        };
        assert_eq!(of("a-B_9"), Ok(Some("a-B_9".to_owned())));
        for bad in ["", "a/b", "..", "a b", &"x".repeat(129)] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
