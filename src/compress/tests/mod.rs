//! Tests of compression as a whole: crashes, and the worker beside a recorder.

mod crashes;
mod fixtures;
mod worker;
