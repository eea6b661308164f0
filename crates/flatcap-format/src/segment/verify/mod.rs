//! Verification: is every frame intact, or is there a checksum mismatch? Is every sample accounted
//! for?

pub(super) mod batch_source;
pub(super) mod completeness;
pub(super) mod digest_check;
pub(super) mod removed;
pub(super) mod scan_pool;
pub(super) mod verification;
