//! Derives the CPU time of code from payloads of the source `profile`.

mod batch;
mod known_code;
mod stack_totals;

#[cfg(test)]
mod tests;

pub use batch::{CodeObjectView, CodePlace, FileVersion, ProfileBatch, StackSampleView};
pub use known_code::KnownCode;
pub use stack_totals::{
    CodeFrame, CodeObjectInfo, FrameTotal, STACK_DEPTH_MAX, SampledProcess, StackTotal, StackTotals,
};
