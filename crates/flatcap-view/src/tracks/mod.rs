//! Reads which thread ran on each CPU, for drawing. The result has either the exact intervals, or
//! aggregates per pixel.
//!
//! [`SchedReader`] reads scheduler payloads in time order, and passes on the intervals in which
//! threads run or wait, in wall time. [`PixelTracks`] aggregates the intervals per pixel, so its
//! memory depends only on the width of the drawing. [`SliceTracks`] keeps each slice of a short
//! time range.
//!
//! If the activity of a CPU is unknown, this module never shows the CPU as idle.

mod pixel_tracks;
mod sched_reader;
mod slice_tracks;
mod stretches;
#[cfg(test)]
mod tests;
mod track_grid;
mod wall_interval;

pub(super) use pixel_tracks::{PixelTracks, TrackCell, WaitCell};
pub(super) use sched_reader::{SchedReader, SchedSource};
#[cfg(test)]
pub(super) use slice_tracks::Waited;
pub(super) use slice_tracks::{SliceTracks, TrackSlice};
pub(super) use stretches::{Stretch, StretchKind};
pub(super) use track_grid::TrackGrid;
