//! Ships sealed segments of flatcap to an object store, as Parquet files that other engines query.
//!
//! | to | read |
//! |---|---|
//! | name an object | `names` |
//! | make the objects of a segment | `conversion` |
//! | put a segment so that it counts once | `shipper` |
//! | know what is not shipped | `backlog` |
//! | know what the operator wants | `ship_config` |
//! | merge the objects of an hour | `compaction` |
//! | talk to a store | `lake` |
//! | announce what was shipped | `messenger` |
//! | know what is not announced | `outbox` |
//! | talk to a bus | `nats` |
//!
//! This program never changes a segment, and removes an object only if a manifest accounts for it.
//! The program keeps no state on the host except the names of unsent messages. docs/LAKE.md
//! describes objects and guarantees.

mod backlog;
mod bounded_answers;
mod budget;
mod bus;
mod cli;
mod compaction;
mod config_files;
mod conversion;
mod environment;
mod error;
mod fleet;
mod hour_check;
mod hour_merge;
mod hour_plan;
mod identity;
mod lake;
mod lake_error;
mod manifest;
mod messenger;
mod metrics_file;
mod names;
#[cfg(feature = "nats")]
mod nats;
mod nats_settings;
mod object_rows;
mod object_writer;
mod outbox;
mod outbox_file;
mod row_counts;
mod sequence;
mod service;
mod shared_outbox;
mod ship_config;
mod shipper;
mod status;
mod stop;
mod store;
mod tables;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod failing_store;
#[cfg(test)]
mod forgery_tests;
#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod recordings;

pub use cli::main;
