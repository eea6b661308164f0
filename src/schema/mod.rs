//! Schemas of payloads: bindings generated from schemas/, and decoding by the binary schema in a
//! file.
//!
//! The module reads and writes no files, knows no sources, and trusts neither a payload nor a
//! schema from a file.

/// Metrics of the recorder itself (schemas/agent.fbs).
pub mod agent {
    pub use super::generated::agent::flatcap::agent::*;
}

/// The telemetry frame (schemas/frame.fbs).
pub mod frame {
    pub use super::generated::frame::flatcap::frame::*;
}

pub mod envelope;

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
        pub use crate::schema::generated::iex::flatcap::market::iex::*;
    }

    /// Messages and order books of LOBSTER (schemas/market/lobster.fbs).
    pub mod lobster {
        pub use crate::schema::generated::lobster::flatcap::market::lobster::*;
    }
}

/// The frames of a segment (schemas/segment.fbs).
pub mod segment {
    pub use super::generated::segment::flatcap::segment::*;
}

/// Synthetic values (schemas/synthetic.fbs).
pub mod synthetic {
    pub use super::generated::synthetic::flatcap::synthetic::*;
}

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

pub use accessed_bytes::AccessedBytes;
pub use compile::{
    ENUM_VALUES_MAX, FIELDS_MAX, NAME_BYTES_MAX, OBJECTS_MAX, PATHS_MAX, SCHEMA_BYTES_MAX, STRUCT_BYTES_MAX,
};
pub use compiled::{CompiledSchema, DEPTH_MAX, Field, LeafField, MetricKind};
pub use error::{DecodeError, DecodeFault, SchemaError};
pub use flatten::{COLUMNS_MAX, FlatColumn, FlatColumns, FlatRow};
pub use json::{JsonWriter, append_json_value};
pub use numeric_fields::{NUMERIC_FIELDS_MAX, NumericField, NumericKind};
pub use projection::Projection;
pub use rate::Rates;
pub use tables::SchemaTables;
pub use value::FieldValue;
pub use visitor::{PathStep, Visitor};
pub use walk::{TEXT_BYTES_MAX, VALUES_MAX};

mod accessed_bytes;
mod bytes;
mod compile;
mod compiled;
mod error;
mod flatten;
mod generated;
mod json;
mod numeric_fields;
mod projection;
mod projection_compiler;
mod rate;
mod select;
mod tables;
mod value;
mod visitor;
mod walk;

#[cfg(test)]
mod fixtures;
