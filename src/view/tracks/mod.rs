//! Who ran on each CPU, for drawing: exactly, or folded into pixels.
//!
//! [`SchedReader`] reads payloads of the scheduler in the order of time and passes on what follows
//! from them, on the wall clock. [`PixelTracks`] folds it, so that memory depends on the width of
//! what is drawn; [`SliceTracks`] keeps each slice of a short time.
//!
//! Never: shows time of which nothing is known as idle.

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
