//! What does the operator want? A TOML file, the drop-ins beside it and the environment, or none of them, become a checked
//! [`Config`].
//!
//! Never: starts anything, asks whether this host has a source, changes a file, keeps an unchecked value.
//! Every problem of all files is reported at once, each with its place, its value and what would be right.

mod check;
mod default;
mod document;
mod error;
mod event;
mod file;
mod instance;
mod layers;
mod memory;
mod merge;
mod pattern;
mod print;
mod readout;
mod seal;
mod selection;
mod settings;
mod source;
mod syntax;
mod table;
mod texts;
mod units;
mod variable;
mod walk;
mod wanted;
mod way;
mod word;

pub use default::SEAL_BLOCK_SIZE_RANGE;
pub use error::{ConfigError, ConfigErrors, ERRORS_MAX, Place, Problem};
pub use event::{PROCESSES_MAX, Perf, PerfEvent};
pub use file::{DROP_INS_MAX, FILE_BYTES_MAX, PassedOver};
pub use layers::{DROP_IN_FOLDER, FILE_NAME, Layered, Layers};
pub use memory::{
    BUILDER_BYTES, INTERVAL_BYTES, LARGE_SLABS, Memory, QUEUE_SLABS_MAX, QUEUE_SLABS_MIN, RUN_SOURCES_MAX,
    TOTAL_BYTES, Term, WRITE_BATCH_BYTES,
};
pub use pattern::{PATTERN_BYTES_MAX, PATTERNS_MAX, Pattern};
pub use readout::{
    Command, EXPRESSION_BYTES_MAX, Expression, Format, INSTANCE_NAME_BYTES_MAX, INSTANCES_MAX, Origin,
    Provenance, Readout, Rights, WORD_BYTES_MAX, WORDS_MAX,
};
pub use seal::{SEAL_SOURCES_MAX, Seal, SealSource};
pub use settings::{
    Agent, Checksum, Config, Control, Group, Groups, Handover, KeepFree, OnFull, SOCKET_PATH_BYTES_MAX,
    Storage, Sync, Timing,
};
pub use source::{
    Cgroup, CpuShare, GROUP_FAST_PERIOD_MAX, GroupName, Process, ProcessRank, Shape, Source, SourceName,
    Synthetic,
};
pub use units::{UnitError, format_duration, format_size, parse_duration, parse_size};
pub use variable::{VARIABLE_PREFIX, VARIABLES_MAX};
pub use wanted::Wanted;

/// `config/flatcap.toml`: every key with its default, its limits and what it is for, as an operator gets it. Reading it gives
/// [`Config::default`].
pub const REFERENCE: &str = include_str!("../../config/flatcap.toml");
