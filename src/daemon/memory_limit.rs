//! What is configured, made to fit the control group's memory limit: a recorder that is killed for its memory again and again records nothing. Pure.

use crate::config::{Config, SEAL_BLOCK_SIZE_RANGE, format_size};
use crate::os::control_group::MemoryLimit;

/// Memory beside the buffers that `memory_max` counts and those of compression. With the default configuration 75 MB are resident, 8 MB of them beside the
/// buffers: program, stacks, the allocator's reserves. The rest is for pages of files, without which every read waits for the disk.
const OTHER_BYTES: u64 = 16 << 20;
/// Compression of a segment takes this many times `block_size`.
const BLOCKS_OF_COMPRESSION: u64 = 6;
/// Sizes are whole multiples of this.
const GRAIN_BYTES: u64 = 64 << 10;

/// Returns the configuration with as much memory as fits the limit, and one line on what was changed; none if it fits as it is.
///
/// Buffers give way first, as far as each queue keeps its shortest length; then blocks become smaller. If even that does not fit, the line says so.
pub(super) fn fit(config: &Config, limit: &MemoryLimit) -> Option<(Config, String)> {
    let needed = needed_bytes(config);
    if needed <= limit.bytes {
        return None;
    }
    let mut fitted = config.clone();
    fitted.agent.memory_max = 0;
    let least = fitted.memory().sum_bytes().next_multiple_of(GRAIN_BYTES);
    let for_buffers = limit.bytes.saturating_sub(OTHER_BYTES + compression_bytes(config));
    fitted.agent.memory_max = whole(for_buffers).min(config.agent.memory_max).max(least);
    if needed_bytes(&fitted) > limit.bytes {
        let for_blocks = limit.bytes.saturating_sub(OTHER_BYTES + fitted.agent.memory_max);
        let block_bytes = whole(for_blocks / BLOCKS_OF_COMPRESSION).max(*SEAL_BLOCK_SIZE_RANGE.start());
        fitted.seal.block_size =
            usize::try_from(block_bytes).unwrap_or(usize::MAX).min(config.seal.block_size);
    }
    let still_too_much = needed_bytes(&fitted) > limit.bytes;
    let said = format!(
        "{} limits memory to {}, and what is configured takes up to {} MiB: going on with [agent] memory_max = {} and [seal] block_size = {}{}; \
         raise the limit (MemoryMax=), or configure less",
        limit.file.display(),
        format_size(limit.bytes),
        needed.div_ceil(1 << 20),
        format_size(fitted.agent.memory_max),
        format_size(fitted.seal.block_size as u64),
        if still_too_much { ", which is still too much: the kernel may kill this process" } else { "" }
    );
    Some((fitted, said))
}

fn needed_bytes(config: &Config) -> u64 {
    OTHER_BYTES.saturating_add(config.memory().sum_bytes()).saturating_add(compression_bytes(config))
}

fn compression_bytes(config: &Config) -> u64 {
    if config.seal.enabled {
        (config.seal.block_size as u64).saturating_mul(BLOCKS_OF_COMPRESSION)
    } else {
        0
    }
}

fn whole(bytes: u64) -> u64 {
    bytes / GRAIN_BYTES * GRAIN_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn fitted(config: &Config, bytes: u64) -> Option<(Config, String)> {
        fit(config, &MemoryLimit { bytes, file: "/sys/fs/cgroup/a/memory.max".into() })
    }

    // Goal: what fits stays as it is; what does not is made to fit, buffers before blocks, and is a configuration that the rules allow; what cannot is said. Method:
    // the default configuration under limits from none to far too low.
    #[test]
    fn memory_fits_the_limit() {
        let config = Config::default();
        assert!(fitted(&config, 128 * MIB).is_none());
        for mib in [60, 64, 80, 96, 100] {
            let (fitted, said) = fitted(&config, mib * MIB).unwrap();
            assert!(needed_bytes(&fitted) <= mib * MIB, "{mib}: {said}");
            assert!(fitted.memory().sum_bytes() <= fitted.agent.memory_max, "{mib}: {said}");
            assert!(SEAL_BLOCK_SIZE_RANGE.contains(&(fitted.seal.block_size as u64)), "{mib}: {said}");
            assert_eq!(fitted.seal.block_size == config.seal.block_size, mib >= 96, "{mib}: {said}");
            assert!(said.contains("/sys/fs/cgroup/a/memory.max") && !said.contains("may kill"), "{said}");
        }
        let (fitted, said) = fitted(&config, 32 * MIB).unwrap();
        assert!(
            fitted.memory().sum_bytes() <= fitted.agent.memory_max && said.contains("may kill"),
            "{said}"
        );
    }

    // Goal: nothing overflows, and what compression would take does not count where there is none. Method: the largest sizes, and a limit between the two.
    #[test]
    fn compression_counts_where_it_is() {
        let mut config = Config::default();
        config.agent.memory_max = 64 << 30;
        assert_eq!(fitted(&config, 0).unwrap().0.seal.block_size as u64, *SEAL_BLOCK_SIZE_RANGE.start());
        let mut config = Config::default();
        let without = needed_bytes(&config) - compression_bytes(&config);
        assert!(fitted(&config, without).is_some());
        config.seal.enabled = false;
        assert!(fitted(&config, without).is_none());
    }
}
