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

use crate::api::{error, sse};
use forebay_clock::Clock;
use forebay_core::request::RequestError;
use forebay_core::units::Micros;

/// Of the payloads that one stream keeps; beyond it the oldest are gone.
const MAX_BYTES: usize = 4 << 20;
/// Streams that are kept; beyond it the oldest that has ended is gone, or the oldest of whoever begins another.
const MAX_STREAMS: usize = 256;
/// How soon there may be room where all are under way, and others' own.
const FULL_RETRY_S: u32 = 5;
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
    /// Drives `payloads` into a ring of its own; returns a reader of it from the beginning. `held` is kept as long as that
    /// takes. A stream of the same id is ended. Nobody else's stream is ended before it has come to its end: where there are too
    /// many, this one is refused.
    pub fn begin(
        &self,
        id: String,
        clock: &Clock,
        payloads: impl Stream<Item = String> + Send + 'static,
        held: impl Send + 'static,
    ) -> Result<BoxStream<'static, Event>, RequestError> {
        let mut streams = lock(&self.streams);
        let began = clock.now();
        streams.retain(|_, entry| !entry.ring.is_over(began));
        if streams.len() >= MAX_STREAMS && !streams.contains_key(&id) {
            let may_go = |(other, entry): &(&String, &Entry)| entry.ring.has_ended() || owner(other) == owner(&id);
            let first_to_go = |(_, entry): &(&String, &Entry)| (!entry.ring.has_ended(), entry.began);
            let oldest = streams.iter().filter(may_go).min_by_key(first_to_go).map(|(id, _)| id.clone());
            let full = RequestError::QueueFull { capacity: MAX_STREAMS, retry_after_s: FULL_RETRY_S };
            let gone = streams.remove(&oldest.ok_or(full)?);
            gone.inspect(|entry| entry.end("too many streams are kept", began));
        }
        let ring = Arc::new(Ring::default());
        let (writer, now) = (ring.clone(), clock.clone());
        // Ended by the map's entry: replaced, deleted, or dropped with the server.
        let task = tokio::spawn(async move {
            let mut payloads = std::pin::pin!(payloads);
            while let Some(payload) = payloads.next().await {
                writer.push(payload);
            }
            writer.end(now.now());
            drop(held);
        });
        let entry = Entry { ring: ring.clone(), task: task.abort_handle(), began };
        let before = streams.insert(id, entry);
        before.inspect(|entry| entry.end("another request of its conversation has begun", began));
        Ok(ring.read(0))
    }

    /// What the stream `id` says from payload `from` on.
    pub fn read(&self, id: &str, from: u64, now: Micros) -> Result<BoxStream<'static, Event>, RequestError> {
        let ring = {
            let mut streams = lock(&self.streams);
            streams.retain(|_, entry| !entry.ring.is_over(now));
            streams.get(id).map(|entry| entry.ring.clone()).ok_or_else(|| unknown(id))?
        };
        let (first, end, ended) = {
            let kept = lock(&ring.kept);
            (kept.first, kept.first + kept.payloads.len() as u64, kept.ended.is_some())
        };
        if from < first {
            return Err(RequestError::invalid("from", format!("is {from}, but the oldest that is kept is {first}")));
        }
        // Who has read everything asks for what comes next, and hears that nothing does.
        if ended && from > end {
            return Err(RequestError::invalid("from", format!("is {from}, but the stream ended with {end} payloads")));
        }
        Ok(ring.read(from))
    }

    /// Ends the stream `id` and forgets it.
    pub fn delete(&self, id: &str, now: Micros) -> Result<(), RequestError> {
        let entry = lock(&self.streams).remove(id).ok_or_else(|| unknown(id))?;
        entry.end("it was deleted", now);
        Ok(())
    }
}

impl Drop for Replays {
    fn drop(&mut self) {
        lock(&self.streams).values().for_each(|entry| entry.end("the server is ending", Micros::ZERO));
    }
}

impl Entry {
    /// Dropping the frames aborts what they come from. Readers of a stream that was under way hear why there is no more.
    fn end(&self, why: &'static str, now: Micros) {
        self.task.abort();
        self.ring.cut(why, now);
    }
}

impl Kept {
    /// What its task says after the end, while it is being stopped, comes too late.
    fn push(&mut self, payload: String) {
        if self.ended.is_some() {
            return;
        }
        self.bytes += payload.len();
        self.payloads.push_back(payload);
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.payloads.pop_front() else { break };
            self.bytes -= oldest.len();
            self.first += 1;
        }
    }
}

impl Ring {
    fn push(&self, payload: String) {
        lock(&self.kept).push(payload);
        self.more.notify_waiters();
    }

    fn end(&self, now: Micros) {
        lock(&self.kept).ended.get_or_insert(now);
        self.more.notify_waiters();
    }

    /// Ends a stream in its middle.
    fn cut(&self, why: &'static str, now: Micros) {
        let mut kept = lock(&self.kept);
        // Nothing where it had ended by itself.
        last_words(why).into_iter().for_each(|payload| kept.push(payload));
        kept.ended.get_or_insert(now);
        drop(kept);
        self.more.notify_waiters();
    }

    fn has_ended(&self) -> bool {
        lock(&self.kept).ended.is_some()
    }

    fn is_over(&self, now: Micros) -> bool {
        lock(&self.kept).ended.is_some_and(|ended| now.since(ended) > KEPT)
    }

    /// The payloads from number `from` on. A reader so slow that its next payload is gone hears so and ends there; one that
    /// has everything of a stream that has ended hears `[DONE]`.
    fn read(self: Arc<Ring>, from: u64) -> BoxStream<'static, Event> {
        let heard = unfold(Reader { ring: self, at: from, begins_at: from, last: None }, |mut reader| async move {
            let event = reader.next().await?;
            Some((event, reader))
        });
        heard.boxed()
    }
}

/// Where a client is in a stream.
struct Reader {
    ring: Arc<Ring>,
    at: u64,
    begins_at: u64,
    /// What is said instead of payloads that are gone, and then nothing.
    last: Option<VecDeque<String>>,
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(last) = &mut self.last {
                return last.pop_front().map(|payload| Event::default().data(payload));
            }
            let ring = self.ring.clone();
            let mut more = std::pin::pin!(ring.more.notified());
            // From here on no push is missed.
            more.as_mut().enable();
            match self.look() {
                Some(event) => return Some(event),
                None if self.last.is_none() => more.await,
                None => {}
            }
        }
    }

    /// The next payload. `None` while there is none, or when `last` has what is left to say.
    fn look(&mut self) -> Option<Event> {
        let kept = lock(&self.ring.kept);
        let Some(index) = self.at.checked_sub(kept.first) else {
            self.last = Some(last_words("this reader was too slow: its next payload is gone").into());
            return None;
        };
        if let Some(payload) = kept.payloads.get(index as usize) {
            let event = Event::default().id(self.at.to_string()).data(payload);
            self.at += 1;
            return Some(event);
        }
        if kept.ended.is_some() {
            // Who came for the rest of a stream that has none.
            let nothing_read = self.at == self.begins_at;
            self.last = Some(nothing_read.then(|| sse::DONE.to_owned()).into_iter().collect());
        }
        None
    }
}

/// No stream ends without a word.
fn last_words(why: &'static str) -> [String; 2] {
    [sse::data(&error::object(&RequestError::StreamEnded { why })), sse::DONE.to_owned()]
}

/// Whose a stream is: what [`crate::api::access::Owner::own`] put before the client's id.
fn owner(id: &str) -> Option<&str> {
    id.split_once(':').map(|(owner, _)| owner)
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
        let first = replays.begin("x".into(), &clock, said, ()).unwrap();
        assert_eq!(payloads(first).await, 3);
        // Behind its end there is one word: that it has ended.
        for (from, left) in [(0, 3), (2, 1), (3, 1)] {
            assert_eq!(payloads(replays.read("x", from, clock.now()).unwrap()).await, left);
        }
        let beyond = replays.read("x", 9, clock.now()).err();
        assert!(matches!(beyond, Some(RequestError::InvalidValue { param, .. }) if param == "from"));
        clock.advance(Micros(KEPT.0 + 1));
        assert!(replays.read("x", 0, clock.now()).is_err(), "forgotten");
    }

    #[tokio::test]
    async fn the_oldest_payloads_give_way() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let large = futures_util::stream::iter((0..5).map(|_| "x".repeat(MAX_BYTES / 3)));
        let live = replays.begin("x".into(), &clock, large, ()).unwrap();
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
        let endless = replays.begin("x".into(), &clock, futures_util::stream::pending(), ()).unwrap();
        let next = replays.begin("x".into(), &clock, futures_util::stream::iter(["a".to_owned()]), ()).unwrap();
        // An error and `[DONE]`: no stream ends without a word.
        assert_eq!((payloads(endless).await, payloads(next).await), (2, 1));
        replays.delete("x", clock.now()).unwrap();
        assert!(replays.delete("x", clock.now()).is_err());
    }

    #[tokio::test]
    async fn who_reads_a_stream_that_is_deleted_hears_so() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let said = futures_util::stream::iter(["a".to_owned()]).chain(futures_util::stream::pending());
        let mut reader = replays.begin("x".into(), &clock, said, ()).unwrap();
        let _ = reader.next().await.expect("its first payload");
        replays.delete("x", clock.now()).unwrap();
        assert_eq!(payloads(reader).await, 2);
    }

    #[tokio::test]
    async fn nothing_comes_after_the_last_word() {
        let ring = Arc::new(Ring::default());
        ring.push("a".into());
        ring.cut("it was deleted", Micros::ZERO);
        ring.push("b".into());
        ring.cut("the server is ending", Micros::ZERO);
        assert_eq!(payloads(ring.read(0)).await, 3, "a payload, an error and `[DONE]`");
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_hears_so() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let large = futures_util::stream::iter((0..9).map(|_| "x".repeat(MAX_BYTES / 3)));
        let slow = replays.begin("x".into(), &clock, large, ()).unwrap();
        while replays.read("x", 0, clock.now()).is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(payloads(slow).await, 2);
    }

    #[tokio::test]
    async fn streams_that_have_ended_give_way_first() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let live = replays.begin("live".into(), &clock, futures_util::stream::pending(), ()).unwrap();
        for n in 0..MAX_STREAMS + 5 {
            clock.advance(Micros(1));
            let ended =
                replays.begin(format!("ended-{n}"), &clock, futures_util::stream::iter(["a".to_owned()]), ()).unwrap();
            assert_eq!(payloads(ended).await, 1);
        }
        assert!(replays.read("live", 0, clock.now()).is_ok());
        assert!(replays.read("ended-0", 0, clock.now()).is_err());
        drop(live);
    }

    #[tokio::test]
    async fn nobody_ends_a_live_stream_of_somebody_else() {
        let (replays, clock) = (Replays::default(), Clock::manual());
        let endless = futures_util::stream::pending;
        let victim = replays.begin("key-a:talk".into(), &clock, endless(), ()).unwrap();
        for n in 0..MAX_STREAMS - 1 {
            clock.advance(Micros(1));
            drop(replays.begin(format!("key-b:{n}"), &clock, endless(), ()).unwrap());
        }
        clock.advance(Micros(1));
        // The attacker's oldest goes for its newest, and a third finds no room.
        drop(replays.begin("key-b:more".into(), &clock, endless(), ()).unwrap());
        assert!(replays.read("key-a:talk", 0, clock.now()).is_ok());
        assert!(replays.read("key-b:0", 0, clock.now()).is_err());
        let third = replays.begin("key-c:talk".into(), &clock, endless(), ());
        assert!(matches!(third.err(), Some(RequestError::QueueFull { .. })));
        drop(victim);
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
