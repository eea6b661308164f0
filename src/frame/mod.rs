//! Frames of samples: the envelope before a payload, and the builders of payloads.
//!
//! Never: knows what is measured, where a frame goes, or a clock.

mod builders;
mod envelope;
mod incomplete;
mod template;

pub use builders::Builders;
pub use envelope::{ENVELOPE_BYTES, Envelope, Stamp};
pub use incomplete::Incomplete;
pub use template::frame_template;

pub use crate::stream::{FrameTemplate, TemplateField, TemplateList};
