//! Frames of samples. The module contains the envelope that comes before a payload, the builders of
//! payloads, and templates. A payload is copied from a template and patched instead of built.
//!
//! This module never knows what is measured or where a frame goes, and never reads a clock.

mod builders;
mod envelope;
#[cfg(any(test, feature = "testing"))]
mod fixed_bytes;
mod incomplete;
mod sample_template;
mod template;
mod template_path;
#[cfg(any(test, feature = "testing"))]
mod template_view;

pub use builders::Builders;
pub use envelope::{ENVELOPE_BYTES, Envelope, Stamp};
pub use incomplete::Incomplete;
pub use sample_template::frame_template;
pub use template::{FrameTemplate, Scalar, TemplateError, TemplateField, TemplateList, TemplatePatch};
#[cfg(any(test, feature = "testing"))]
pub use template_view::TemplateView;
