//! Who makes what, and in which order does it end? The composition root: the only place that creates threads, queues,
//! pools and clocks, and hands them to everyone else.
//!
//! Never: samples, writes, prints.
//!
//! Ending is ownership: the stop event, and a ring of their bells, ends the samplers, they hand over their last slabs and drop
//! their senders, the recorder sees the queues disconnected, drains, seals and ends; joined in that order, each with a deadline.

mod changes;
mod control;
mod error;
mod last_good;
mod manager;
mod memory;
mod memory_limit;
mod plan;
mod processor;
mod recovery;
mod reload;
mod replan;
mod run;
mod sealing;
mod service;
mod sources;
mod status;
mod status_line;
mod watchdog;

pub use error::{DaemonError, state_directory_only};
pub use last_good::LastGood;
pub use plan::{data_dir, run_dir};
pub use recovery::{memories, recover_all};
pub use service::{Progress, Reread, RunSummary, Surroundings, record};
pub use sources::{OpenedSource, OpenedSources, SkippedSource, SourceError, open_sources};
