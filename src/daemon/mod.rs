//! The composition root. It creates the threads, queues, pools and clocks of a run, and passes them
//! to the other modules.
//!
//! It never samples, writes segments or prints.
//!
//! A run ends when the owners of its parts drop them. The stop event and the samplers' wake-up
//! events end the samplers, which queue their last slabs and drop their senders. When the queues
//! disconnect, the recorder drains them, seals the segment and ends. The threads are joined in that
//! order, each with a deadline.

mod compression;
mod control;
mod cpu_budget;
mod error;
mod lane_store;
mod last_good;
mod memory_budget;
mod memory_limit;
mod notify;
mod push;
mod push_target;
mod reconfigure;
mod recovery;
mod reload;
mod rescue;
mod ring;
mod ring_age;
mod rule_programs;
mod rules;
mod run;
mod run_memory;
mod run_sources;
mod service;
mod settings;
mod snapshots;
mod sources;
mod status;
mod status_line;
mod watchdog;

pub use error::{DaemonError, state_directory_only};
pub use last_good::LastGood;
pub use memory_budget::{LARGE_SLABS, MemoryBudget, MemoryTerm, memory_rule};
pub use recovery::{crashed_runs, recover_all};
pub use reload::ConfigReader;
pub use ring::existing_ring;
pub use service::{Callbacks, RunProgress, RunStart, RunSummary, record};
pub use settings::{data_dir, run_dir, source_compression};
pub use sources::{OpenedSource, OpenedSources, SkippedSource, SourceError, open_sources};
