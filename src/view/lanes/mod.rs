//! Who ran on each CPU, for drawing: exactly, or folded into pixels.
//!
//! [`SchedReader`] reads payloads of the scheduler in the order of time and passes on what follows
//! from them, on the wall clock. [`PixelLanes`] folds it, so that memory depends on the width of
//! what is drawn; [`SliceLanes`] keeps each slice of a short time.
//!
//! Never: shows time of which nothing is known as idle.

mod pixel_grid;
mod pixel_lanes;
mod sched_reader;
mod slice_lanes;
mod stretches;
#[cfg(test)]
mod tests;
mod wall_interval;

pub(super) use pixel_grid::PixelGrid;
pub(super) use pixel_lanes::{LaneCell, PixelLanes, WaitCell};
pub(super) use sched_reader::{SchedReader, SchedSource};
#[cfg(test)]
pub(super) use slice_lanes::Waited;
pub(super) use slice_lanes::{LaneSlice, SliceLanes};
pub(super) use stretches::{Stretch, StretchKind};
