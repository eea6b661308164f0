//! Where intact frames go on after damage.

pub(super) mod frame_probe;
pub(super) mod frame_search;
pub(super) mod plausibility;
