//! What do the bytes of a payload mean? Bindings generated from schemas/, and decoding by the schema that a
//! file carries.
//!
//! Never: reads or writes files, knows what a source measures, trusts a payload or a schema from a file.

/// The agent about itself (schemas/agent.fbs).
pub mod agent {
    pub use super::generated::agent::flatcap::agent::*;
}

/// The telemetry frame (schemas/frame.fbs).
pub mod frame {
    pub use super::generated::frame::flatcap::frame::*;
}

/// The frames that make a segment (schemas/segment.fbs).
pub mod segment {
    pub use super::generated::segment::flatcap::segment::*;
}

/// Made-up values (schemas/synthetic.fbs).
pub mod synthetic {
    pub use super::generated::synthetic::flatcap::synthetic::*;
}

mod generated;
