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

pub mod envelope;

/// What a Linux host tells of itself (schemas/host/).
pub mod host {
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

/// Recordings and feeds of markets (schemas/market/).
pub mod market {
    /// IEX DEEP and TOPS (schemas/market/iex.fbs).
    pub mod iex {
        pub use crate::schema::generated::iex::flatcap::market::iex::*;
    }

    /// Messages and order books of LOBSTER (schemas/market/lobster.fbs).
    pub mod lobster {
        pub use crate::schema::generated::lobster::flatcap::market::lobster::*;
    }
}

/// The frames that make a segment (schemas/segment.fbs).
pub mod segment {
    pub use super::generated::segment::flatcap::segment::*;
}

/// Made-up values (schemas/synthetic.fbs).
pub mod synthetic {
    pub use super::generated::synthetic::flatcap::synthetic::*;
}

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

pub use compile::{
    DEPTH_MAX, ENUM_VALUES_MAX, FIELDS_MAX, NAME_BYTES_MAX, OBJECTS_MAX, PATHS_MAX, SCHEMA_BYTES_MAX,
    STRUCT_BYTES_MAX,
};
pub use error::{DecodeError, Fault, SchemaError};
pub use flat::{COLUMNS_MAX, Column, Columns, Row};
pub use json::{JsonWriter, append_json_value};
pub use plan::{Field, Leaf, Meaning, Plan};
pub use projection::Projection;
pub use rate::Rates;
pub use reach::Reach;
pub use spot::{Number, SPOTS_MAX, Spot};
pub use tables::Tables;
pub use value::{Place, Value, Visitor};
pub use walk::{TEXT_BYTES_MAX, VALUES_MAX};

mod bytes;
mod compile;
mod error;
mod flat;
mod generated;
mod json;
mod plan;
mod project;
mod projection;
mod rate;
mod reach;
mod select;
mod spot;
mod tables;
mod value;
mod walk;

#[cfg(test)]
mod fixtures;
