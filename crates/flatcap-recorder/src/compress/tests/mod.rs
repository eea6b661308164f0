//! Tests of compression as a whole, with crashes, with the worker during a recording, and with all
//! concurrent writers of segments.

mod changed;
mod crashes;
mod fixtures;
mod interleavings;
mod turns;
mod worker;
