//! Validation of settings that depend on each other across tables.

use super::default::SYNTHETIC_EXTRA_BYTES;
use super::diagnostics::ParsedValue;
use super::error::Problem;
use super::settings::Config;
use super::source_table::ParsedSourceKeys;
use super::table_reader::TableReader;
use crate::sampling::SyntheticLayout;

const MIB: u64 = 1 << 20;
/// Size of one value of the wide shape, in bytes.
const FIELD_BYTES: u64 = 8;

/// The parsed keys that checks across tables need.
#[derive(Debug)]
pub(super) struct ParsedKeys {
    pub(super) memory_max: ParsedValue<u64>,
    pub(super) slab_size: ParsedValue<u64>,
    pub(super) frame_max: ParsedValue<u64>,
    /// In the order of [`Config::sources`].
    pub(super) sources: Vec<ParsedSourceKeys>,
}

/// Reports conflicts between tables. A value that was rejected before causes no second error.
pub(super) fn across_tables(root: &mut TableReader<'_, '_>, config: &Config, written: &ParsedKeys) {
    // A rejected value was replaced by its default, from which nothing follows.
    let are_enabled_sound = written.sources.iter().all(|source| source.enabled.is_valid);
    let has_source = config.enabled_sources().next().is_some();
    if are_enabled_sound && !has_source {
        // Most sources are on by default, so one was turned off: report the last one.
        let last = written.sources.iter().map(|source| &source.enabled).max_by_key(|given| given.offset());
        if let Some(last) = last {
            root.reject(last, Problem::NoSource);
        }
    }
    // The values alone fit the smallest frame_max, so only a configured payload can exceed it.
    let payload = written.sources.iter().find_map(|source| source.payload.as_ref());
    if let Some(payload) = payload.filter(|_| written.frame_max.is_valid)
        && let Err(problem) = synthetic_frame(config)
    {
        root.reject(payload, problem);
    }
    let are_sources_sound = are_enabled_sound && written.sources.iter().all(|source| source.is_period_valid);
    let are_sizes_sound =
        [&written.memory_max, &written.slab_size, &written.frame_max].iter().all(|given| given.is_valid);
    if are_sources_sound
        && are_sizes_sound
        && has_source
        && let Err(problem) = memory(config)
    {
        root.reject(&written.memory_max, problem);
    }
}

/// Checks that the shortest queue and everything else fit into `recorder.memory_max`.
///
/// # Errors
/// [`Problem::MemoryTooSmall`] with the sum and the smallest sufficient limit.
pub(super) fn memory(config: &Config) -> Result<(), Problem> {
    let memory = config.memory();
    let memory_max = config.recorder.memory_max;
    let sum = memory.sum_bytes();
    if sum <= memory_max {
        return Ok(());
    }
    // The queue takes what is left, so the sum exceeds the limit only with the shortest queue.
    Err(Problem::MemoryTooSmall { memory_max, memory: Box::new(memory), least: sum.next_multiple_of(MIB) })
}

/// Checks that a frame of the synthetic source, if it is enabled, fits into `storage.frame_max`.
///
/// # Errors
/// [`Problem::FrameTooLarge`] with its size and the limit.
pub(super) fn synthetic_frame(config: &Config) -> Result<(), Problem> {
    let synthetic = config.enabled_sources().find_map(|source| source.synthetic);
    let Some(SyntheticLayout::Wide { fields, payload_bytes }) = synthetic.map(|synthetic| synthetic.shape)
    else {
        return Ok(());
    };
    // Both are numbers of 32 bits, so neither product nor sum exceeds 64.
    let frame = u64::from(fields) * FIELD_BYTES + u64::from(payload_bytes) + SYNTHETIC_EXTRA_BYTES;
    let frame_max = u64::from(config.storage.frame_max);
    if frame <= frame_max { Ok(()) } else { Err(Problem::FrameTooLarge { frame, frame_max }) }
}
