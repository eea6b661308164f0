//! The unchanged code that flatc generates (scripts/generate.sh).
#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    elided_lifetimes_in_paths,
    unused_imports,
    clippy::all,
    clippy::pedantic,
    clippy::indexing_slicing,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::unwrap_used,
    reason = "generated code keeps the generator's own style; the generator has its own tests"
)]

// Formatted files would differ from the output of flatc, and `scripts/generate.sh --check` would
// report the difference.
#[path = "../../generated/frame_generated.rs"]
#[rustfmt::skip]
pub mod frame;
#[path = "../../generated/segment_generated.rs"]
#[rustfmt::skip]
pub mod segment;
