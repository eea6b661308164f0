//! Frames of samples. The module contains the envelope, which precedes a payload, the builders of
//! payloads, and templates. If a source has a template, its payload is a patched copy of the
//! template and is not built again.
//!
//! This module does not depend on the meaning of the values or on the destination of a frame, and
//! never reads a clock.

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
