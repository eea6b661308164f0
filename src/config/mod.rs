//! What does the operator want? One TOML file, or none, becomes a checked [`Config`].
//!
//! Never: starts anything, asks whether this host has a source, changes a file, keeps an unchecked value.
//! Every problem of a file is reported at once, each with its place, its value and what would be right.

mod check;
mod default;
mod document;
mod error;
mod event;
mod instance;
mod memory;
mod pattern;
mod print;
mod readout;
mod selection;
mod settings;
mod source;
mod syntax;
mod table;
mod units;
mod walk;
mod word;

pub use document::FILE_BYTES_MAX;
pub use error::{ConfigError, ConfigErrors, ERRORS_MAX, Place, Problem, Wanted};
pub use event::{PROCESSES_MAX, Perf, PerfEvent};
pub use memory::{
    BUILDER_BYTES, INTERVAL_BYTES, LARGE_SLABS, Memory, QUEUE_SLABS_MAX, QUEUE_SLABS_MIN, TOTAL_BYTES, Term,
    WRITE_BATCH_BYTES,
};
pub use pattern::{PATTERN_BYTES_MAX, PATTERNS_MAX, Pattern};
pub use readout::{
    Command, EXPRESSION_BYTES_MAX, Expression, Format, INSTANCE_NAME_BYTES_MAX, INSTANCES_MAX, Origin,
    Provenance, Readout, Rights, WORD_BYTES_MAX, WORDS_MAX,
};
pub use settings::{
    Agent, Checksum, Config, Control, Group, Groups, Handover, KeepFree, OnFull, Storage, Sync, Timing,
};
pub use source::{
    Cgroup, CpuShare, GROUP_FAST_PERIOD_MAX, GroupName, Process, ProcessRank, Shape, Source, SourceName,
    Synthetic,
};
pub use units::{UnitError, format_duration, format_size, parse_duration, parse_size};
