//! Frames of samples: the envelope before a payload, the builders of payloads, and templates, which
//! are copied and patched instead of built.
//!
//! Never: knows what is measured, where a frame goes, or a clock.

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
