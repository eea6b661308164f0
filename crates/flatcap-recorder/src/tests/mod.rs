//! Tests of the whole recorder: crashes, failing and full disks, recoveries, clocks; the rig that
//! records scripted samples, and the checker of what a crash left.

mod accounting;
mod clocks;
mod crashes;
mod faults;
mod full_disk;
mod holes;
mod image_checker;
mod recoveries;
mod retained;
pub(super) mod rig;
mod rings;
mod shared_disk;
mod supplements;
