//! Writes recordings of flatcap in formats that need large libraries. The formats are Parquet,
//! Arrow, MCAP, Perfetto, `OpenMetrics`, and stacks with the names of their functions.
//!
//! The program `flatcap-convert` runs an export, so that building the recorder does not compile
//! these libraries. `flatcap-ship` uses the tables of gaps, marks and sources from this crate.
//!
//! This crate never changes a recording. It gives a file its name only when the file is complete,
//! and replaces files only on request.

mod arrow;
mod asked_fields;
pub mod command;
mod error;
mod flame;
mod flame_graph;
mod host_columns;
mod kernel_samples;
mod mcap;
mod openmetrics;
mod parquet;
mod parquet_file;
mod parquet_properties;
mod perfetto;
mod perfetto_clock;
mod perfetto_kernel;
mod perfetto_log;
mod perfetto_packets;
mod perfetto_sched;
mod perfetto_stacks;
mod perfetto_tracks;
mod pprof;
mod record_table;
mod request;
mod row_groups;
mod single_output;
mod source_file;
mod stack_lines;
mod watch;

pub use crate::parquet_properties::{GROUP_ROWS, ParquetOptions};
pub use crate::row_groups::RowGroups;
pub use error::ColumnarError;
pub use record_table::{Cell, CellType, RecordTable};
