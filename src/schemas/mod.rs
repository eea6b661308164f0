//! Schemas of the payloads that this program writes: bindings generated from schemas/.

mod generated;

/// Metrics of the recorder itself (schemas/agent.fbs).
pub mod agent {
    pub use super::generated::agent::flatcap::agent::*;
}

/// Metrics of a Linux host (schemas/host/).
pub mod host {
    // flatc repeats the namespace as modules in each file; here the files are one module again.
    pub use super::generated::buddy::flatcap::host::*;
    pub use super::generated::cgroup::flatcap::host::*;
    pub use super::generated::command::flatcap::host::*;
    pub use super::generated::conntrack::flatcap::host::*;
    pub use super::generated::cpu::flatcap::host::*;
    pub use super::generated::cpufreq::flatcap::host::*;
    pub use super::generated::disk::flatcap::host::*;
    pub use super::generated::ethtool::flatcap::host::*;
    pub use super::generated::file::flatcap::host::*;
    pub use super::generated::filesystem::flatcap::host::*;
    pub use super::generated::gpu::flatcap::host::*;
    pub use super::generated::hugepages::flatcap::host::*;
    pub use super::generated::hwmon::flatcap::host::*;
    pub use super::generated::interrupts::flatcap::host::*;
    pub use super::generated::load::flatcap::host::*;
    pub use super::generated::memory::flatcap::host::*;
    pub use super::generated::netstat::flatcap::host::*;
    pub use super::generated::network::flatcap::host::*;
    pub use super::generated::numa::flatcap::host::*;
    pub use super::generated::perf::flatcap::host::*;
    pub use super::generated::power::flatcap::host::*;
    pub use super::generated::pressure::flatcap::host::*;
    pub use super::generated::process::flatcap::host::*;
    pub use super::generated::schedstat::flatcap::host::*;
    pub use super::generated::slab::flatcap::host::*;
    pub use super::generated::snmp::flatcap::host::*;
    pub use super::generated::sockets::flatcap::host::*;
    pub use super::generated::softirqs::flatcap::host::*;
    pub use super::generated::softnet::flatcap::host::*;
    pub use super::generated::thermal::flatcap::host::*;
    pub use super::generated::vmstat::flatcap::host::*;
}

/// Market data recordings and feeds (schemas/market/).
pub mod market {
    /// IEX DEEP and TOPS (schemas/market/iex.fbs).
    pub mod iex {
        pub use super::super::generated::iex::flatcap::market::iex::*;
    }

    /// Messages and order books of LOBSTER (schemas/market/lobster.fbs).
    pub mod lobster {
        pub use super::super::generated::lobster::flatcap::market::lobster::*;
    }
}

/// Synthetic values (schemas/synthetic.fbs).
pub mod synthetic {
    pub use super::generated::synthetic::flatcap::synthetic::*;
}
