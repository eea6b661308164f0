//! Verifies segments. Checks whether every frame is intact, and whether the files account for every
//! sample.

pub(super) mod batch_source;
pub(super) mod completeness;
pub(super) mod digest_check;
pub(super) mod removed;
pub(super) mod scan_pool;
pub(super) mod verification;
