//! Resynchronization: finds the next intact frame after damage.

pub(super) mod frame_probe;
pub(super) mod frame_search;
pub(super) mod plausibility;
