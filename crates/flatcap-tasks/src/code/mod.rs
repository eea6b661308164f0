//! Derives the CPU time of code from payloads of the source `profile`.

mod batch;
mod known_build_ids;
mod stack_totals;

#[cfg(test)]
mod tests;

pub use batch::{CodeObjectView, CodePlace, ProfileBatch, StackSampleView};
pub use known_build_ids::KnownBuildIds;
pub use stack_totals::{CodeFrame, CodeObjectInfo, FrameTotal, STACK_DEPTH_MAX, StackTotal, StackTotals};
