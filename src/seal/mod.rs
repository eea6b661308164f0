//! How does a closed segment become small? It is rewritten as compressed blocks, compared, and put in its own place (docs/ARCHITECTURE.md,
//! "Sealing").
//!
//! Never: holds up a recording or waits for one; takes a byte away before the packed segment is on the medium and was compared
//! with it.

mod backlog;
mod choice;
mod compare;
mod compressor;
mod cuts;
mod outcome;
mod packing;
mod throttle;
mod ways;
mod worker;

#[cfg(test)]
mod crashes;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod trials;

pub use choice::{clear, sealed};
pub use outcome::{Left, Outcome, SealError};
pub use packing::{Job, Placing, Slice, pack};
pub use throttle::Budget;
pub use ways::NamedWays;
pub use worker::{Link, Plan, Worker, link};
