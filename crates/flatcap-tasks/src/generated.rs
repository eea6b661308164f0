//! The code that flatc generates, unchanged (scripts/generate.sh).
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

// Formatted files would differ from what flatc writes, and `scripts/generate.sh --check` would
// report them.
#[path = "../generated/kmsg_generated.rs"]
#[rustfmt::skip]
pub mod kmsg;
#[path = "../generated/profile_generated.rs"]
#[rustfmt::skip]
pub mod profile;
#[path = "../generated/sched_generated.rs"]
#[rustfmt::skip]
pub mod sched;
#[path = "../generated/tasks_generated.rs"]
#[rustfmt::skip]
pub mod tasks;

/// Each file repeats the namespace as modules; here they are one module again.
pub mod kernel {
    pub use super::kmsg::flatcap::kernel::*;
    pub use super::profile::flatcap::kernel::*;
    pub use super::sched::flatcap::kernel::*;
    pub use super::tasks::flatcap::kernel::*;
}
