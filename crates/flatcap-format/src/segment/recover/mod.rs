//! Recovery: makes a sealed segment of the data that a crash left (docs/FORMAT.md, "Recovery").
//!
//! The order of writes, so that a recovery may be interrupted after any of them:
//!
//! - In place: copy the torn tail to `.cut` and sync it, cut it off, append, sync, rename.
//! - Rewritten: write `.recovering` and sync it, rename the old file to `.damaged`, rename the new
//!   one to the sealed name, sync the directory. A supplement has no old file.

pub(super) mod directory_recovery;
pub(super) mod full_scan;
pub(super) mod leftovers;
pub(super) mod preview;
pub(super) mod recovered;
pub(super) mod segment_recovery;
pub(super) mod supplement;
