//! Frames of samples: the envelope before a payload, the builders of payloads, templates, which are
//! copied and patched instead of built, and tables of known fields, which are written in one piece.
//!
//! Never: knows what is measured, where a frame goes, or a clock.

mod builders;
mod envelope;
mod fixed_bytes;
mod incomplete;
mod sample_template;
mod table_writer;
mod template;
mod template_path;

pub use builders::Builders;
pub use envelope::{ENVELOPE_BYTES, Envelope, Stamp};
pub use incomplete::Incomplete;
pub use sample_template::frame_template;
pub use table_writer::{TableField, TableLayout, TableList, TablePosition, TableWriter};
pub use template::{
    FrameTemplate, Scalar, TemplateError, TemplateField, TemplateList, TemplatePatch, TemplateView,
};
