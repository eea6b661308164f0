//! How does a sample become a finished frame? The envelope in front of a payload, and the builders of payloads.
//!
//! Never: knows what is measured, where a frame goes, or a clock.

mod builders;
mod envelope;
mod model;
mod shortfall;

pub use builders::Builders;
pub use envelope::{ENVELOPE_BYTES, Envelope, Stamp};
pub use model::model;
pub use shortfall::Shortfall;

pub use crate::stream::{FrameTemplate, List, Slot};
