//! How is a recording read again? Over any number of segments: merged in the order of time, filtered, paced.
//!
//! Never: writes a file, decodes a payload, holds more than the frames of one reorder window.

mod filter;
mod item;
mod merge;
mod pace;
mod time;

pub use filter::Filter;
pub use item::{Item, Notice, Sample};
pub use merge::MergedReader;
pub(crate) use merge::first_sample;
pub use pace::{Pace, Speed};
pub use time::{TimeError, TimeSpec};
