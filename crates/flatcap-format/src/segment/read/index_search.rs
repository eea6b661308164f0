//! Searches an index by time (docs/FORMAT.md, "Index and digest").
//!
//! If the recorder wrote a slab late, older samples follow newer samples in the file. Therefore the
//! times of successive intervals may overlap, and a sample before a given time may follow a sample
//! after this time.

use crate::segment::format::index::IndexEntry;

/// Returns the offset of the first interval that contains samples at or after `mono_ns`. If all
/// samples are older, returns the offset of the last interval.
pub(in crate::segment) fn offset_of_time(index: &[IndexEntry], mono_ns: u64) -> Option<u64> {
    let has_later = |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.last_mono_ns >= mono_ns);
    index.iter().find(has_later).or(index.last()).map(|entry| entry.offset)
}

/// Returns the offset after the last interval that contains samples earlier than `mono_ns`.
pub(in crate::segment) fn offset_after_time(index: &[IndexEntry], mono_ns: u64) -> u64 {
    let has_earlier = |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.first_mono_ns < mono_ns);
    index.iter().rev().find(has_earlier).map_or(0, IndexEntry::end)
}

/// Returns the offset of the first interval that must be read to find all samples at or after
/// `wall_ns`.
pub(in crate::segment) fn offset_of_wall_time(index: &[IndexEntry], wall_ns: i64) -> Option<u64> {
    let is_over = |entry: &IndexEntry| entry.bounds.is_none_or(|bounds| bounds.last_wall_ns < wall_ns);
    let at = index.iter().take_while(|entry| is_over(entry)).count();
    // A frame that is not a sample may be one interval before the samples to which it belongs.
    index.get(at.saturating_sub(1)).map(|entry| entry.offset)
}

/// Returns the offset after the last interval that contains samples earlier than `wall_ns`.
pub(in crate::segment) fn offset_after_wall_time(index: &[IndexEntry], wall_ns: i64) -> u64 {
    let has_earlier = |entry: &&IndexEntry| entry.bounds.is_some_and(|bounds| bounds.first_wall_ns < wall_ns);
    index.iter().rev().find(has_earlier).map_or(0, IndexEntry::end)
}
