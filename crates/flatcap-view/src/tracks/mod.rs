//! Reads which thread ran on each CPU, for drawing. The result is exact, or folded into pixels.
//!
//! [`SchedReader`] reads scheduler payloads in time order and passes the derived intervals on, in
//! wall time. [`PixelTracks`] folds the intervals into pixels, so that memory depends on the width
//! of the drawing; [`SliceTracks`] keeps each slice of a short time range.
//!
//! This module never shows unknown time as idle.

mod pixel_grid;
mod pixel_tracks;
mod sched_reader;
mod slice_tracks;
mod stretches;
#[cfg(test)]
mod tests;
mod wall_interval;

pub(super) use pixel_grid::PixelGrid;
pub(super) use pixel_tracks::{PixelTracks, TrackCell, WaitCell};
pub(super) use sched_reader::{SchedReader, SchedSource};
#[cfg(test)]
pub(super) use slice_tracks::Waited;
pub(super) use slice_tracks::{SliceTracks, TrackSlice};
pub(super) use stretches::{Stretch, StretchKind};
