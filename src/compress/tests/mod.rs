//! Tests of compression as a whole: crashes, the worker beside a recorder, and all that works on
//! segments at once.

mod changed;
mod crashes;
mod fixtures;
mod interleavings;
mod turns;
mod worker;
