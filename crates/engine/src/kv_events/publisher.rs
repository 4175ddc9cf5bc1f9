//! The two sockets, and who writes to them.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use crate::cache_feed::Told;
use forebay_clock::Clock;

use super::ledger::Ledger;
use super::wire::{self, Event};

/// Who asks for a replay and does not read it is given up, so that others get theirs.
const REPLAY_PATIENCE: Duration = Duration::from_secs(10);
/// Ends a replay in place of a sequence number: -1.
const END: [u8; 8] = [0xff; 8];

/// What a publisher is made of.
pub struct Parts {
    /// Such as `tcp://*:5557`.
    pub endpoint: String,
    /// `None` offers no replay.
    pub replay_endpoint: Option<String>,
    /// The first frame of every message.
    pub topic: String,
    /// Newest batches that can be asked for again.
    pub buffer_steps: usize,
    pub loops: usize,
    /// Tokens per block.
    pub block_size: usize,
    /// Names of the adapters, in the order of their numbers.
    pub adapters: Vec<String>,
    pub clock: Clock,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot publish KV events on {endpoint}: {error}")]
pub struct BindError {
    endpoint: String,
    error: zeromq::ZmqError,
}

/// Batches and their numbers.
type Batches = Vec<(u64, Bytes)>;
/// From which number on, and to whom.
type Ask = (u64, oneshot::Sender<Batches>);

pub struct Publisher {
    socket: PubSocket,
    replay: Option<RouterSocket>,
    /// Where it listens: a port 0 has become one.
    pub endpoint: String,
    pub replay_endpoint: Option<String>,
    topic: Bytes,
    ledger: Ledger,
    /// The newest batches, the oldest first.
    sent: VecDeque<(u64, Bytes)>,
    buffer_steps: usize,
    next: u64,
    clock: Clock,
}

impl Publisher {
    /// On a runtime, which its sockets go on using.
    pub async fn bind(parts: Parts) -> Result<Publisher, BindError> {
        let mut socket = PubSocket::new();
        let endpoint = bind(&mut socket, &parts.endpoint).await?;
        let (mut replay, mut replay_endpoint) = (None, None);
        if let Some(wanted) = &parts.replay_endpoint {
            let mut socket = RouterSocket::new();
            replay_endpoint = Some(bind(&mut socket, wanted).await?);
            replay = Some(socket);
        }
        Ok(Publisher {
            socket,
            replay,
            endpoint,
            replay_endpoint,
            topic: parts.topic.into(),
            ledger: Ledger::new(parts.loops, parts.block_size, parts.adapters),
            sent: VecDeque::new(),
            buffer_steps: parts.buffer_steps,
            next: 0,
            clock: parts.clock,
        })
    }

    /// Publishes until every loop's end of the channel is gone, or until it is dropped.
    pub async fn run(mut self, mut changes: mpsc::Receiver<Told>) {
        let (asks, mut asked) = mpsc::channel(1);
        // Ends with this future, however that ends.
        let mut replaying = JoinSet::new();
        if let Some(socket) = self.replay.take() {
            replaying.spawn(replay(socket, asks));
        }
        loop {
            // Changes first: who asks for a replay after an answer finds in it what the answer left in the cache.
            select! { biased;
                told = changes.recv() => match told {
                    Some(Told { loop_index, changes }) => {
                        fail::fail_point!("kv_events::hear");
                        let events = self.ledger.apply(loop_index, changes);
                        self.publish(&events).await;
                    }
                    None => break,
                },
                Some((from, reply)) = asked.recv() => {
                    let newer = self.sent.iter().filter(|(sequence, _)| *sequence >= from);
                    // Who asked may have gone.
                    let _ = reply.send(newer.cloned().collect());
                }
            }
        }
        replaying.shutdown().await;
    }

    /// Never waits for a subscriber: the socket drops what a slow one does not take, and that one sees a gap and asks for a
    /// replay.
    async fn publish(&mut self, events: &[Event]) {
        if events.is_empty() {
            return;
        }
        let payload = match wire::encode(self.clock.unix_millis() as f64 / 1e3, events) {
            Ok(payload) => Bytes::from(payload),
            // Numbers, names and lists: nothing in them cannot be written.
            Err(error) => return tracing::error!(event = "kv_events_encoding", %error, "KV events cannot be written"),
        };
        let sequence = self.next;
        self.next += 1;
        if self.sent.len() == self.buffer_steps {
            self.sent.pop_front();
        }
        if self.buffer_steps > 0 {
            self.sent.push_back((sequence, payload.clone()));
        }
        let frames = [self.topic.clone(), Bytes::copy_from_slice(&sequence.to_be_bytes()), payload];
        if let Err(error) = self.socket.send(message(frames)).await {
            tracing::warn!(event = "kv_events_unsent", sequence, %error, "KV events could not be sent");
        }
    }
}

/// Answers who missed batches: `[client, "", first number]` is answered by one `[client, "", number, batch]` for each that is
/// kept, and an end.
async fn replay(mut socket: RouterSocket, asks: mpsc::Sender<Ask>) {
    while let Ok(request) = socket.recv().await {
        let mut frames: Vec<Bytes> = request.into_vec();
        let first = frames.pop().and_then(|frame| <[u8; 8]>::try_from(&frame[..]).ok());
        // The client's name, and the empty frame where its kind of socket has one.
        let (Some(first), 1..=2) = (first.map(u64::from_be_bytes), frames.len()) else {
            tracing::debug!(event = "kv_events_bad_replay", "a request for a replay that is none");
            continue;
        };
        let (reply, batches) = oneshot::channel();
        if asks.send((first, reply)).await.is_err() {
            return;
        }
        let Ok(batches) = batches.await else { return };
        let answer = async {
            let end = (END, Bytes::new());
            let numbered = batches.into_iter().map(|(sequence, payload)| (sequence.to_be_bytes(), payload));
            for (sequence, payload) in numbered.chain([end]) {
                let tail = [Bytes::copy_from_slice(&sequence), payload];
                socket.send(message(frames.iter().cloned().chain(tail))).await?;
            }
            Ok::<(), zeromq::ZmqError>(())
        };
        if !matches!(timeout(REPLAY_PATIENCE, answer).await, Ok(Ok(()))) {
            tracing::debug!(event = "kv_events_replay_unread", "whoever asked for a replay did not read it");
        }
    }
}

fn message(frames: impl IntoIterator<Item = Bytes>) -> ZmqMessage {
    let mut frames = frames.into_iter();
    let mut message = ZmqMessage::from(frames.next().unwrap_or_default());
    frames.for_each(|frame| message.push_back(frame));
    message
}

/// `*` is every interface, as elsewhere in ZMQ.
async fn bind(socket: &mut impl Socket, endpoint: &str) -> Result<String, BindError> {
    let bound = socket.bind(&endpoint.replace("//*:", "//0.0.0.0:")).await;
    bound.map(|bound| bound.to_string()).map_err(|error| BindError { endpoint: endpoint.to_owned(), error })
}
