//! What routers are told of the prefix cache, heard by a subscriber of its own. One in Python is in
//! `clients/kv_events.rs`.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use crate::support::server::{Server, post};

const BLOCK: usize = 16;

/// Ports are free ones, blocks small.
pub fn start(args: &[&str]) -> Server {
    let ours = ["--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://127.0.0.1:0", "--block-size", "16"];
    Server::start(&[&ours, args].concat())
}

/// As it logged it before it listened.
pub fn endpoint(server: &Server, name: &str) -> String {
    let lines = server.logged();
    let told = lines.iter().map(|line| &line["fields"]).find(|fields| fields["event"] == "kv_events");
    told.and_then(|fields| fields[name].as_str()).expect("an endpoint").to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
enum Event {
    BlockStored {
        block_hashes: Vec<u64>,
        parent_block_hash: Option<u64>,
        token_ids: Vec<u64>,
        block_size: usize,
        lora_id: Option<u64>,
        medium: Option<String>,
        lora_name: Option<String>,
    },
    BlockRemoved {
        block_hashes: Vec<u64>,
        medium: Option<String>,
    },
    AllBlocksCleared,
}

/// A router's idea of one replica: content by hash.
#[derive(Default)]
struct Index {
    next: u64,
    blocks: HashMap<u64, (Option<u64>, Vec<u64>)>,
    loras: Vec<(Option<u64>, Option<String>)>,
    cleared: usize,
    removed: usize,
}

impl Index {
    /// One message: its number must be the next.
    fn hear(&mut self, sequence: &[u8], payload: &[u8]) {
        let sequence = u64::from_be_bytes(sequence.try_into().expect("eight bytes"));
        assert_eq!(sequence, self.next, "no gap");
        self.next += 1;
        let (time, events, rank): (f64, Vec<Event>, u32) = rmp_serde::from_slice(payload).expect("the batch of a step");
        assert!(time > 1.7e9, "{time} is a time in seconds");
        assert_eq!(rank, 0);
        assert!(!events.is_empty());
        for event in events {
            self.apply(event);
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::AllBlocksCleared => {
                self.blocks.clear();
                self.cleared += 1;
            }
            Event::BlockRemoved { block_hashes, medium } => {
                assert_eq!(medium.as_deref(), Some("GPU"));
                for hash in block_hashes {
                    assert!(self.blocks.remove(&hash).is_some(), "only what was stored is removed");
                    self.removed += 1;
                }
            }
            Event::BlockStored {
                block_hashes,
                mut parent_block_hash,
                token_ids,
                block_size,
                lora_id,
                medium,
                lora_name,
            } => {
                assert_eq!((block_size, token_ids.len()), (BLOCK, BLOCK * block_hashes.len()), "full blocks only");
                assert_eq!(medium.as_deref(), Some("GPU"));
                self.loras.push((lora_id, lora_name));
                for (hash, tokens) in block_hashes.into_iter().zip(token_ids.chunks(BLOCK)) {
                    let known = parent_block_hash.is_none_or(|parent| self.blocks.contains_key(&parent));
                    assert!(known, "a parent comes before its children");
                    let before = self.blocks.insert(hash, (parent_block_hash, tokens.to_vec()));
                    assert!(before.is_none(), "what is there is not stored again");
                    parent_block_hash = Some(hash);
                }
            }
        }
    }

    /// Leading full blocks of `tokens` that it believes to be cached.
    fn cached(&self, tokens: &[u64]) -> usize {
        let mut parent = None;
        let chain = tokens.chunks_exact(BLOCK).map_while(|full| {
            let found = self.blocks.iter().find(|(_, (above, held))| *above == parent && held == full);
            parent = Some(*found?.0);
            found
        });
        chain.count()
    }
}

/// All that the replay socket still has from `first` on, and its end.
async fn replay(server: &Server, first: u64, index: &mut Index) {
    let mut socket = DealerSocket::new();
    socket.connect(endpoint(server, "replay").as_str()).await.expect("connected");
    let mut request = ZmqMessage::from(Vec::new());
    request.push_back(first.to_be_bytes().to_vec().into());
    socket.send(request).await.expect("asked");
    loop {
        let frames = socket.recv().await.expect("an answer").into_vec();
        let [empty, sequence, payload] = &frames[..] else { panic!("{} frames", frames.len()) };
        assert!(empty.is_empty());
        if sequence[..] == [0xff; 8] {
            assert!(payload.is_empty());
            return;
        }
        index.hear(sequence, payload);
    }
}

fn chat(n: usize, long: usize) -> Value {
    let story = format!("{n}. {}", "There was a fox by the river who was afraid of the bridge. ".repeat(long));
    json!({"messages": [{"role": "user", "content": story}], "max_tokens": 3, "temperature": 0, "ignore_eos": true})
}

/// The tokens that a router would ask for.
async fn rendered(server: &Server, body: &Value) -> Vec<u64> {
    let (status, answer) = post(server.at("/v1/chat/completions/render"), body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    answer["token_ids"].as_array().expect("tokens").iter().map(|token| token.as_u64().expect("a token")).collect()
}

/// The prompt's tokens that were found in the cache.
async fn complete(server: &Server, body: &Value) -> usize {
    let (status, answer) = post(server.at("/v1/chat/completions"), body.clone()).await;
    assert_eq!(status, 200, "{answer}");
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a number") as usize
}

#[tokio::test]
async fn a_subscriber_hears_each_block_that_is_stored_and_removed() {
    // Room for a few prompts: others are evicted.
    let server = start(&["--kv-memory", "0.0035", "--max-model-len", "512", "--max-num-seqs", "2"]);
    let mut subscriber = SubSocket::new();
    subscriber.connect(&endpoint(&server, "endpoint")).await.expect("connected");
    subscriber.subscribe("").await.expect("subscribed");
    let mut index = Index::default();
    for n in 0..24 {
        complete(&server, &chat(n, 6 + n % 5)).await;
        replay(&server, index.next, &mut index).await;
    }
    assert!(index.removed > 0, "the pool was too large for this test");
    assert_eq!(index.cleared, 1, "once, at the beginning");
    let mut found = 0;
    for n in (0..24).rev() {
        let body = chat(n, 6 + n % 5);
        let tokens = rendered(&server, &body).await;
        // The last token of a prompt is computed in any case.
        let believed = index.cached(&tokens[..tokens.len() - 1]);
        assert_eq!(complete(&server, &body).await / BLOCK, believed, "prompt {n}: what it believes is what is there");
        found += believed;
        replay(&server, index.next, &mut index).await;
    }
    assert!(found > 0, "something was cached");
    // What came over the other socket meanwhile is the same, as far as it was heard from the beginning of the subscription.
    let mut heard = 0;
    let mut expected = None;
    while expected != Some(index.next) {
        let frames = subscriber.recv().await.expect("a message").into_vec();
        let [topic, sequence, _] = &frames[..] else { panic!("{} frames", frames.len()) };
        assert!(topic.is_empty());
        let sequence = u64::from_be_bytes(sequence[..].try_into().expect("eight bytes"));
        assert!(expected.is_none_or(|expected| expected == sequence), "{sequence} after {expected:?}");
        expected = Some(sequence + 1);
        heard += 1;
    }
    assert!(heard > 10, "it listened while requests ran: {heard}");
}

#[tokio::test]
async fn what_a_salt_keeps_apart_is_told_to_nobody() {
    let server = start(&[]);
    let mut salted = chat(1, 6);
    salted["cache_salt"] = json!("mine");
    complete(&server, &salted).await;
    assert!(complete(&server, &salted).await > BLOCK, "it is cached");
    let mut index = Index::default();
    replay(&server, 0, &mut index).await;
    assert_eq!((index.blocks.len(), index.cleared), (0, 1));
    complete(&server, &chat(1, 6)).await;
    replay(&server, index.next, &mut index).await;
    assert!(!index.blocks.is_empty());
    assert!(index.loras.iter().all(|lora| *lora == (None, None)), "the model itself is no adapter");
}

#[tokio::test]
async fn loops_of_one_process_speak_with_one_voice() {
    let server = start(&["--workers", "2", "--balancer", "round_robin"]);
    let mut index = Index::default();
    for _ in 0..4 {
        complete(&server, &chat(7, 8)).await;
        // Who hears a block twice would panic.
        replay(&server, index.next, &mut index).await;
    }
    let tokens = rendered(&server, &chat(7, 8)).await;
    assert_eq!(index.cached(&tokens), tokens.len() / BLOCK);
}

/// Where changes come faster than they are told, everything is told anew: late, and without a gap.
#[tokio::test]
async fn a_full_queue_ends_in_a_fresh_start() {
    let variables =
        [("FOREBAY__KV_EVENTS__QUEUE_SIZE", "1"), ("FAILPOINTS", "kv_events::hear=3*off->1*sleep(3000)->off")];
    let args = ["--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://127.0.0.1:0", "--block-size", "16"];
    let server = Server::start_in(&args, &variables);
    let mut index = Index::default();
    let bodies: Vec<Value> = (0..12).map(|n| chat(n, 8)).collect();
    let asked = bodies.iter().map(|body| complete(&server, body));
    futures_util::future::join_all(asked).await;
    let mut tokens = Vec::new();
    for body in &bodies {
        tokens.push(rendered(&server, body).await);
    }
    // An idle loop offers what it owes by itself.
    for _ in 0..1_000 {
        replay(&server, index.next, &mut index).await;
        if tokens.iter().all(|tokens| index.cached(tokens) == tokens.len() / BLOCK) {
            assert!(index.cleared > 1, "nothing was dropped, so nothing was shown");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("it never knew everything again");
}
