//! Recovers the data that a crash has left, and writes it as a sealed segment (docs/FORMAT.md,
//! "Recovery").
//!
//! A recovery may be interrupted after any write, because it writes in this order:
//!
//! - In place: copy the torn tail to the `.cut` file, sync this file, cut off the tail. Then append
//!   to the segment, sync it, rename it.
//! - Rewritten: write the `.recovering` file and sync it. Then rename the old file to `.damaged`,
//!   rename the new file to the sealed name, sync the directory. A supplement has no old file.

pub(super) mod directory_recovery;
pub(super) mod full_scan;
pub(super) mod leftovers;
pub(super) mod preview;
pub(super) mod recovered;
pub(super) mod segment_recovery;
pub(super) mod supplement;
