//! The batch of events as vLLM writes it: `[time, [event, …], rank]` in MessagePack, events as maps with their `type`. Pure.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum Event {
    BlockStored(Stored),
    BlockRemoved { block_hashes: Vec<u64>, medium: &'static str },
    AllBlocksCleared,
}

/// Blocks in a row, each the parent of the next. Every key is written: readers refuse an event that lacks one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stored {
    pub block_hashes: Vec<u64>,
    /// Of the first.
    pub parent_block_hash: Option<u64>,
    /// Of all of them.
    pub token_ids: Vec<u32>,
    pub block_size: usize,
    pub lora_id: Option<u64>,
    pub medium: &'static str,
    pub lora_name: Option<String>,
}

/// All loops of a process are one rank: which of them takes a request is not the router's to say.
const RANK: u32 = 0;

pub fn encode(unix_seconds: f64, events: &[Event]) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    rmp_serde::to_vec_named(&(unix_seconds, events, RANK))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte, so that it is this format and not whatever our own reader reads back.
    #[test]
    fn a_batch_is_an_array_of_time_maps_and_rank() {
        let bytes = encode(1.5, &[Event::AllBlocksCleared]).expect("encoded");
        let mut expected = vec![0x93, 0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0x91, 0x81, 0xa4];
        expected.extend(b"type\xb0AllBlocksCleared\x00");
        assert_eq!(bytes, expected);
        let removed = Event::BlockRemoved { block_hashes: vec![7], medium: "GPU" };
        let bytes = encode(0.0, &[removed]).expect("encoded");
        assert_eq!(bytes[10..], b"\x91\x83\xa4type\xacBlockRemoved\xacblock_hashes\x91\x07\xa6medium\xa3GPU\x00"[..]);
        let stored = Stored {
            block_hashes: vec![1],
            parent_block_hash: None,
            token_ids: vec![3, 300],
            block_size: 2,
            lora_id: None,
            medium: "GPU",
            lora_name: None,
        };
        let bytes = encode(0.0, &[Event::BlockStored(stored)]).expect("encoded");
        let expected = b"\x91\x88\xa4type\xabBlockStored\xacblock_hashes\x91\x01\xb1parent_block_hash\xc0\
            \xa9token_ids\x92\x03\xcd\x01\x2c\xaablock_size\x02\xa7lora_id\xc0\xa6medium\xa3GPU\xa9lora_name\xc0\x00";
        assert_eq!(bytes[10..], expected[..]);
    }
}
