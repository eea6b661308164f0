//! Reduces the configuration to fit the control group's memory limit, so that the kernel does not
//! kill the recorder repeatedly. Has no side effects.

use flatcap_os::control_group::MemoryLimit;

use super::memory_budget::MemoryBudget;
use crate::config::{COMPRESS_BLOCK_SIZE_RANGE, Config, format_size};

/// Memory in addition to the buffers of `memory_max` and to compression. With the default
/// configuration, 75 MB are resident. 8 MB of them are outside the buffers, for program, stacks and
/// the allocator's reserves. The rest of this memory is for the page cache, without which every
/// read waits for the disk.
const OTHER_BYTES: u64 = 16 << 20;
/// Number of blocks of size `block_size` whose memory is needed to compress a segment.
const BLOCKS_OF_COMPRESSION: u64 = 6;
/// Sizes are rounded to multiples of this number of bytes.
const GRAIN_BYTES: u64 = 64 << 10;

/// Returns the configuration reduced to fit the limit, and one line that describes the changes.
/// Returns `None` if the configuration fits unchanged.
///
/// The buffers are reduced first, until each queue has its minimum length. Then the block size is
/// reduced. If even that does not fit, the line says so.
pub(super) fn fit(config: &Config, limit: &MemoryLimit) -> Option<(Config, String)> {
    let needed = needed_bytes(config);
    if needed <= limit.bytes {
        return None;
    }
    let mut fitted = config.clone();
    fitted.recorder.memory_max = 0;
    let least = MemoryBudget::of(&fitted).sum_bytes().next_multiple_of(GRAIN_BYTES);
    let for_buffers = limit.bytes.saturating_sub(other_bytes(config) + compression_bytes(config));
    fitted.recorder.memory_max = round_down(for_buffers).min(config.recorder.memory_max).max(least);
    if needed_bytes(&fitted) > limit.bytes {
        let for_blocks = limit.bytes.saturating_sub(other_bytes(config) + fitted.recorder.memory_max);
        let block_bytes =
            round_down(for_blocks / BLOCKS_OF_COMPRESSION).max(*COMPRESS_BLOCK_SIZE_RANGE.start());
        fitted.compress.block_size =
            usize::try_from(block_bytes).unwrap_or(usize::MAX).min(config.compress.block_size);
    }
    let still_too_much = needed_bytes(&fitted) > limit.bytes;
    let message = format!(
        "{} limits memory to {}, but the configuration needs up to {} MiB: continuing with [recorder] memory_max = {} and [compress] block_size = {}{}; \
         raise the limit (MemoryMax=) or lower the settings",
        limit.file.display(),
        format_size(limit.bytes),
        needed.div_ceil(1 << 20),
        format_size(fitted.recorder.memory_max),
        format_size(fitted.compress.block_size as u64),
        if still_too_much { ", which is still too much: the kernel may kill this process" } else { "" }
    );
    Some((fitted, message))
}

fn needed_bytes(config: &Config) -> u64 {
    let buffers = MemoryBudget::of(config).sum_bytes();
    other_bytes(config).saturating_add(buffers).saturating_add(compression_bytes(config))
}

/// Returns the memory that cannot be reduced. It includes lanes, because the recorder allocates
/// them. It also includes a ring in memory, because files on tmpfs are charged to the process that
/// writes them.
fn other_bytes(config: &Config) -> u64 {
    let has_ring = config.blackbox.is_on() && !config.blackbox.window_on_disk;
    let ring = if has_ring { config.blackbox.memory_max } else { 0 };
    let lanes = if config.push.enabled { config.push.memory_max } else { 0 };
    OTHER_BYTES.saturating_add(ring).saturating_add(lanes)
}

fn compression_bytes(config: &Config) -> u64 {
    if config.compress.enabled {
        (config.compress.block_size as u64).saturating_mul(BLOCKS_OF_COMPRESSION)
    } else {
        0
    }
}

fn round_down(bytes: u64) -> u64 {
    bytes / GRAIN_BYTES * GRAIN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fitted(config: &Config, bytes: u64) -> Option<(Config, String)> {
        fit(config, &MemoryLimit { bytes, file: "/sys/fs/cgroup/a/memory.max".into() })
    }

    // Proves that a configuration that fits is unchanged. Any other configuration is reduced to a
    // valid configuration that fits, first in its buffers and then in its blocks. Also proves that
    // the message reports if no reduction suffices.
    #[test]
    fn memory_fits_the_limit() {
        let config = Config::default();
        assert!(fitted(&config, 128 * MIB).is_none());
        for mib in [60, 64, 80, 96, 100] {
            let (fitted, message) = fitted(&config, mib * MIB).unwrap();
            assert!(needed_bytes(&fitted) <= mib * MIB, "{mib}: {message}");
            assert!(MemoryBudget::of(&fitted).sum_bytes() <= fitted.recorder.memory_max, "{mib}: {message}");
            assert!(
                COMPRESS_BLOCK_SIZE_RANGE.contains(&(fitted.compress.block_size as u64)),
                "{mib}: {message}"
            );
            assert_eq!(
                fitted.compress.block_size == config.compress.block_size,
                mib >= 96,
                "{mib}: {message}"
            );
            assert!(
                message.contains("/sys/fs/cgroup/a/memory.max") && !message.contains("may kill"),
                "{message}"
            );
        }
        let (fitted, said) = fitted(&config, 32 * MIB).unwrap();
        assert!(
            MemoryBudget::of(&fitted).sum_bytes() <= fitted.recorder.memory_max && said.contains("may kill"),
            "{said}"
        );
    }

    // Proves that a ring in memory counts towards the limit, and that a ring on disk does not
    // count.
    #[test]
    fn a_ring_counts_where_it_is() {
        let mut config = Config::default();
        let without = needed_bytes(&config);
        config.blackbox.window = std::time::Duration::from_secs(60);
        assert!(needed_bytes(&config) >= without + config.blackbox.memory_max);
        config.blackbox.window_on_disk = true;
        assert!(needed_bytes(&config) < without + config.blackbox.memory_max);
    }

    // Proves that nothing overflows, and that the memory of compression counts only if it is
    // enabled.
    #[test]
    fn compression_counts_where_it_is() {
        let mut config = Config::default();
        config.recorder.memory_max = 64 << 30;
        assert_eq!(
            fitted(&config, 0).unwrap().0.compress.block_size as u64,
            *COMPRESS_BLOCK_SIZE_RANGE.start()
        );
        let mut config = Config::default();
        let without = needed_bytes(&config) - compression_bytes(&config);
        assert!(fitted(&config, without).is_some());
        config.compress.enabled = false;
        assert!(fitted(&config, without).is_none());
    }
}
