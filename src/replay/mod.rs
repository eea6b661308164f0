//! How is a recording read again? Over any number of segments: merged in the order of time, filtered, paced.
//!
//! Never: writes a file, decodes a payload, holds more than the frames of one reorder window.

mod merge;
mod pace;
mod time;

pub(crate) use merge::first_wall_ns;
pub use merge::{Filter, Item, MergedReader, Notice, Sample};
pub use pace::{Pace, Speed};
pub use time::{TimeError, TimeSpec};
