//! Tests of the whole recorder. The tests cover crashes, failing and full disks, recoveries and
//! clocks. The rig records scripted samples, and the checker checks the files that remain after a
//! crash.

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
