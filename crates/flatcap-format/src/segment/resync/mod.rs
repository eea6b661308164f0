//! Resynchronizes after damage, that is, finds the next intact frame.

pub(super) mod frame_probe;
pub(super) mod frame_search;
pub(super) mod plausibility;
