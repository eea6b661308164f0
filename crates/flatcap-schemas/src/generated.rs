//! The code that flatc generates, unchanged. scripts/generate.sh writes this file.
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
#[path = "../../../generated/agent_generated.rs"]
#[rustfmt::skip]
pub mod agent;
#[path = "../../../generated/host/buddy_generated.rs"]
#[rustfmt::skip]
pub mod buddy;
#[path = "../../../generated/host/cgroup_generated.rs"]
#[rustfmt::skip]
pub mod cgroup;
#[path = "../../../generated/host/command_generated.rs"]
#[rustfmt::skip]
pub mod command;
#[path = "../../../generated/host/conntrack_generated.rs"]
#[rustfmt::skip]
pub mod conntrack;
#[path = "../../../generated/host/cpu_generated.rs"]
#[rustfmt::skip]
pub mod cpu;
#[path = "../../../generated/host/cpufreq_generated.rs"]
#[rustfmt::skip]
pub mod cpufreq;
#[path = "../../../generated/host/disk_generated.rs"]
#[rustfmt::skip]
pub mod disk;
#[path = "../../../generated/host/ethtool_generated.rs"]
#[rustfmt::skip]
pub mod ethtool;
#[path = "../../../generated/host/file_generated.rs"]
#[rustfmt::skip]
pub mod file;
#[path = "../../../generated/host/filesystem_generated.rs"]
#[rustfmt::skip]
pub mod filesystem;
#[path = "../../../generated/host/gpu_generated.rs"]
#[rustfmt::skip]
pub mod gpu;
#[path = "../../../generated/host/hugepages_generated.rs"]
#[rustfmt::skip]
pub mod hugepages;
#[path = "../../../generated/host/hwmon_generated.rs"]
#[rustfmt::skip]
pub mod hwmon;
#[path = "../../../generated/host/interrupts_generated.rs"]
#[rustfmt::skip]
pub mod interrupts;
#[path = "../../../generated/host/load_generated.rs"]
#[rustfmt::skip]
pub mod load;
#[path = "../../../generated/host/network_generated.rs"]
#[rustfmt::skip]
pub mod network;
#[path = "../../../generated/host/perf_generated.rs"]
#[rustfmt::skip]
pub mod perf;
#[path = "../../../generated/host/power_generated.rs"]
#[rustfmt::skip]
pub mod power;
#[path = "../../../generated/host/pressure_generated.rs"]
#[rustfmt::skip]
pub mod pressure;
#[path = "../../../generated/host/process_generated.rs"]
#[rustfmt::skip]
pub mod process;
#[path = "../../../generated/host/schedstat_generated.rs"]
#[rustfmt::skip]
pub mod schedstat;
#[path = "../../../generated/host/slab_generated.rs"]
#[rustfmt::skip]
pub mod slab;
#[path = "../../../generated/host/softirqs_generated.rs"]
#[rustfmt::skip]
pub mod softirqs;
#[path = "../../../generated/host/softnet_generated.rs"]
#[rustfmt::skip]
pub mod softnet;
#[path = "../../../generated/host/thermal_generated.rs"]
#[rustfmt::skip]
pub mod thermal;
#[path = "../../../generated/market/iex_generated.rs"]
#[rustfmt::skip]
pub mod iex;
#[path = "../../../generated/market/lobster_generated.rs"]
#[rustfmt::skip]
pub mod lobster;
#[path = "../../../generated/synthetic_generated.rs"]
#[rustfmt::skip]
pub mod synthetic;

/// Metrics of a Linux host (schemas/host/).
pub mod host {
    pub use super::buddy::flatcap::host::*;
    pub use super::cgroup::flatcap::host::*;
    pub use super::command::flatcap::host::*;
    pub use super::conntrack::flatcap::host::*;
    pub use super::cpu::flatcap::host::*;
    pub use super::cpufreq::flatcap::host::*;
    pub use super::disk::flatcap::host::*;
    pub use super::ethtool::flatcap::host::*;
    pub use super::file::flatcap::host::*;
    pub use super::filesystem::flatcap::host::*;
    pub use super::gpu::flatcap::host::*;
    pub use super::hugepages::flatcap::host::*;
    pub use super::hwmon::flatcap::host::*;
    pub use super::interrupts::flatcap::host::*;
    pub use super::load::flatcap::host::*;
    pub use super::network::flatcap::host::*;
    pub use super::perf::flatcap::host::*;
    pub use super::power::flatcap::host::*;
    pub use super::pressure::flatcap::host::*;
    pub use super::process::flatcap::host::*;
    pub use super::schedstat::flatcap::host::*;
    pub use super::slab::flatcap::host::*;
    pub use super::softirqs::flatcap::host::*;
    pub use super::softnet::flatcap::host::*;
    pub use super::thermal::flatcap::host::*;
}
