//! Recovers the data that a crash has left, and writes it as a sealed segment (docs/FORMAT.md,
//! "Recovery").
//!
//! A recovery may be interrupted after any write without loss of data, because it performs its
//! steps in this order:
//!
//! - To complete a segment in place: copy the torn tail to the `.cut` file, sync this file, and cut
//!   the tail off the segment. Then append to the segment, sync it, and rename it.
//! - To rewrite a segment: write the new segment to the `.recovering` file and sync this file. Then
//!   rename the old file to `.damaged`, rename the new file to the sealed name, and sync the
//!   directory. To write a supplement: the same steps as for a rewritten segment, but without an
//!   old file.

pub(super) mod directory_recovery;
pub(super) mod full_scan;
pub(super) mod leftovers;
pub(super) mod preview;
pub(super) mod recovered;
pub(super) mod segment_recovery;
pub(super) mod supplement;
