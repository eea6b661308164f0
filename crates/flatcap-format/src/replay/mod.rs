//! Reads recordings. A recording consists of any number of segments. Merges the frames of the
//! segments in the order of time, filters them, and computes when each frame is due.
//!
//! This module never writes a file, never decodes a payload, and never holds more than the frames
//! of one reorder window.

mod filter;
mod held_frame;
mod hosts;
mod item;
mod merge;
mod replay_clock;
mod span;
mod time;
mod time_range;

pub use filter::WantedTimes;
pub use filter::{HostIdentity, ReplayFilter};
pub use hosts::{HostError, RecordedHost, RecordedHosts};
pub use item::{Notice, ReplayItem, ReplaySample};
pub use item::{ReplayPart, WholeSegment};
pub use merge::MergedReader;

pub use replay_clock::{ReplayClock, Speed};
pub use span::run_ends;
pub use span::{first_sample, recording_span};
pub use time::{TimeError, TimeSpec};
pub use time_range::{TimePoint, TimePointError, TimeRange};
