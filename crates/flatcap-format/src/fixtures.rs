//! Bindings of schemas that tests use. flatc generates these bindings (scripts/generate.sh).
#![allow(
    unsafe_code,
    missing_docs,
    unreachable_pub,
    unnameable_types,
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
#[path = "../../../generated/host/cpu_generated.rs"]
#[rustfmt::skip]
mod cpu;
#[path = "../../../generated/host/disk_generated.rs"]
#[rustfmt::skip]
mod disk;
#[path = "../../../generated/host/file_generated.rs"]
#[rustfmt::skip]
mod file;
#[path = "../../../generated/host/process_generated.rs"]
#[rustfmt::skip]
mod process;
#[path = "../../../tests/data/schema/generated/shapes_generated.rs"]
#[rustfmt::skip]
mod shapes;
#[path = "../../../generated/synthetic_generated.rs"]
#[rustfmt::skip]
mod synthetic_generated;
#[path = "../../../tests/data/schema/generated/tree_generated.rs"]
#[rustfmt::skip]
mod tree;

pub mod host {
    pub use super::cpu::flatcap::host::*;
    pub use super::disk::flatcap::host::*;
    pub use super::file::flatcap::host::*;
    pub use super::process::flatcap::host::*;
}

pub mod test {
    pub use super::shapes::flatcap::test::{Point, Shapes};
    pub use super::tree::flatcap::test::{Branch, BranchArgs};
}

pub mod synthetic {
    pub use super::synthetic_generated::flatcap::synthetic::*;
}
