//! How much memory the KV cache gets, decided and reported before anything is allocated.

use std::fs;

use forebay_model::DeviceMemory;

/// Part of the memory that is free at start which `kv_cache.memory: auto` may take at most.
const AUTO_SHARE: f64 = 0.4;

/// The same on a GPU, which nobody else is expected to use.
const DEVICE_SHARE: f64 = 0.85;

/// More is asked for than the device has free.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error(
    "kv_cache.memory: {} MiB are asked for; {} of the device's {} MiB are free beside the weights, and {} MiB would leave \
     room to compute in",
    asked >> 20, room.free >> 20, room.total >> 20, most >> 20
)]
pub struct DeviceFull {
    asked: usize,
    room: DeviceMemory,
    most: usize,
}

/// The KV cache's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvSize {
    pub num_blocks: usize,
    pub bytes: usize,
}

/// What the size depends on.
#[derive(Clone, Copy, Debug)]
pub struct KvNeeds {
    /// Of all layers, K and V.
    pub bytes_per_token: usize,
    /// Tokens per block.
    pub block_size: usize,
    pub max_num_seqs: usize,
    pub max_model_len: usize,
}

/// The memory asked for does not hold a single block.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("kv_cache.memory: {bytes} bytes hold no block; one block of {block_size} tokens takes {block_bytes} bytes")]
pub struct TooSmall {
    bytes: usize,
    block_size: usize,
    block_bytes: usize,
}

/// Blocks for a budget in bytes. Never more than every seat at full context could use: beyond that, memory is wasted.
pub fn kv_size(needs: &KvNeeds, budget_bytes: usize) -> Result<KvSize, TooSmall> {
    let block_bytes = needs.bytes_per_token * needs.block_size;
    let useful = needs.max_model_len.div_ceil(needs.block_size).saturating_mul(needs.max_num_seqs);
    let num_blocks = (budget_bytes / block_bytes.max(1)).min(useful);
    if num_blocks == 0 {
        return Err(TooSmall { bytes: budget_bytes, block_size: needs.block_size, block_bytes });
    }
    Ok(KvSize { num_blocks, bytes: num_blocks * block_bytes })
}

/// The budget of `kv_cache.memory: auto`: a share of what is available now, the container's limit respected.
pub fn auto_budget() -> usize {
    // A machine that does not say (not Linux) gets a budget that any can spare.
    auto_share(available_bytes().unwrap_or(2 << 30))
}

/// What `kv_cache.memory` comes to on a device that has `room` beside the weights. What is asked for must fit; auto is all
/// but what a step's activations and logits may take.
pub fn device_budget(asked: Option<usize>, room: DeviceMemory) -> Result<usize, DeviceFull> {
    let most = (room.free as f64 * DEVICE_SHARE) as usize;
    match asked {
        Some(asked) if asked > room.free => Err(DeviceFull { asked, room, most }),
        Some(asked) => Ok(asked),
        None => Ok(most),
    }
}

/// [`auto_budget`] where `available` bytes are free.
pub fn auto_share(available: usize) -> usize {
    (available as f64 * AUTO_SHARE) as usize
}

/// Free memory, the container's limit respected; `None` where the machine does not say.
pub fn available_bytes() -> Option<usize> {
    let host = meminfo(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")?;
    Some(container_room().map_or(host, |room| room.min(host)))
}

/// What cgroup v2 leaves, where there is a limit.
fn container_room() -> Option<usize> {
    let read = |file: &str| fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?.trim().parse::<usize>().ok();
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

/// What cgroup v2 allows in all, where there is a limit.
pub fn container_limit() -> Option<usize> {
    fs::read_to_string("/sys/fs/cgroup/memory.max").ok()?.trim().parse().ok()
}

/// A line of /proc/meminfo in bytes.
fn meminfo(text: &str, key: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: KvNeeds = KvNeeds { bytes_per_token: 100, block_size: 32, max_num_seqs: 4, max_model_len: 100 };

    #[test]
    fn the_budget_is_divided_into_blocks_and_capped_by_what_the_seats_can_use() {
        assert_eq!(kv_size(&NEEDS, 9_600), Ok(KvSize { num_blocks: 3, bytes: 9_600 }));
        assert_eq!(kv_size(&NEEDS, 9_599), Ok(KvSize { num_blocks: 2, bytes: 6_400 }));
        // 100 tokens need 4 blocks; 4 seats need 16.
        assert_eq!(kv_size(&NEEDS, usize::MAX).map(|size| size.num_blocks), Ok(16));
        assert!(kv_size(&NEEDS, 3_199).is_err());
    }

    #[test]
    fn a_device_is_filled_but_for_a_share_and_never_asked_for_what_it_lacks() {
        let room = DeviceMemory { free: 1_000 << 20, total: 2_000 << 20 };
        assert_eq!(device_budget(None, room), Ok(850 << 20));
        assert_eq!(device_budget(Some(1_000 << 20), room), Ok(1_000 << 20));
        let error = device_budget(Some(1_001 << 20), room).unwrap_err().to_string();
        assert!(
            ["1001 MiB", "1000 of the device's 2000 MiB", "850 MiB would"].iter().all(|part| error.contains(part)),
            "{error}"
        );
    }

    #[test]
    fn meminfo_is_read_in_kilobytes() {
        let text = "MemTotal:       100 kB\nMemAvailable:    64 kB\n";
        assert_eq!(meminfo(text, "MemAvailable:"), Some(65_536));
        assert_eq!(meminfo(text, "SwapFree:"), None);
    }
}
