//! Do settings of different tables fit each other?

use super::default::SYNTHETIC_EXTRA_BYTES;
use super::document::Written;
use super::error::Problem;
use super::settings::Config;
use super::source::{Shape, SourceName};
use super::table::Table;

const MIB: u64 = 1 << 20;
/// Bytes of one value of the wide shape.
const FIELD_BYTES: u64 = 8;

/// Notes what is wrong between tables. A value that was refused is no ground for another error.
pub(super) fn across_tables(root: &mut Table<'_, '_>, config: &Config, written: &Written) {
    let are_enabled_sound = written.sources.iter().all(|source| source.enabled.is_sound);
    let has_source = config.enabled_sources().next().is_some();
    if are_enabled_sound && !has_source {
        // Most sources are on by default, so one of them was turned off: blame the last.
        let last = written.sources.iter().map(|source| &source.enabled).max_by_key(|given| given.offset());
        if let Some(last) = last {
            root.reject(last, Problem::NoSource);
        }
    }
    // Values alone fit the smallest limit, so a frame is too large only through a payload in the file.
    let payload = written.sources.iter().find_map(|source| source.payload.as_ref());
    if let Some(payload) = payload.filter(|_| written.frame_max.is_sound)
        && let Err(problem) = synthetic_frame(config)
    {
        root.reject(payload, problem);
    }
    let are_sources_sound = are_enabled_sound && written.sources.iter().all(|source| source.is_period_sound);
    let are_sizes_sound =
        [&written.memory_max, &written.slab_size, &written.frame_max].iter().all(|given| given.is_sound);
    if are_sources_sound
        && are_sizes_sound
        && has_source
        && let Err(problem) = memory(config)
    {
        root.reject(&written.memory_max, problem);
    }
}

/// Whether the shortest queue and all else fits into the memory limit.
///
/// # Errors
/// [`Problem::MemoryTooSmall`] with the sum and the least limit that does.
pub(super) fn memory(config: &Config) -> Result<(), Problem> {
    let memory = config.memory();
    let memory_max = config.agent.memory_max;
    let sum = memory.sum_bytes();
    if sum <= memory_max {
        return Ok(());
    }
    // Larger than the limit only when the queue is at its shortest.
    Err(Problem::MemoryTooSmall { memory_max, memory: Box::new(memory), least: sum.next_multiple_of(MIB) })
}

/// Whether a frame of the synthetic source, where that is on, is one that the recorder takes.
///
/// # Errors
/// [`Problem::FrameTooLarge`] with its size and the limit.
pub(super) fn synthetic_frame(config: &Config) -> Result<(), Problem> {
    let source = config.enabled_sources().find(|source| source.name == SourceName::Synthetic);
    let Some(Shape::Wide { fields, payload_bytes }) =
        source.and_then(|source| source.synthetic).map(|it| it.shape)
    else {
        return Ok(());
    };
    let frame = u64::from(fields) * FIELD_BYTES + u64::from(payload_bytes) + SYNTHETIC_EXTRA_BYTES;
    let frame_max = u64::from(config.storage.frame_max);
    if frame <= frame_max { Ok(()) } else { Err(Problem::FrameTooLarge { frame, frame_max }) }
}
