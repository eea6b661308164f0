//! Tests of compression as a whole: crashes, the worker during a recording, and all concurrent
//! writers of segments.

mod changed;
mod crashes;
mod fixtures;
mod interleavings;
mod turns;
mod worker;
