//! Recovery: makes a sealed segment of the data that a crash left, also if its last write is torn.

pub(super) mod directory_recovery;
pub(super) mod full_scan;
pub(super) mod leftovers;
pub(super) mod preview;
pub(super) mod recovered;
pub(super) mod segment_recovery;
pub(super) mod supplement;
