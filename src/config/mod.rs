//! Configuration: a TOML file, its drop-ins and environment variables, all optional, become a
//! validated [`Config`].
//!
//! This module never starts anything, checks whether this host has a source, changes a file, or
//! keeps an unchecked value. All problems of all files are reported at once, each with its
//! location, its value and the valid values.

mod compress;
mod default;
mod default_config;
mod diagnostics;
mod env;
mod error;
mod expected_value;
mod file;
mod input_texts;
mod instance;
mod instance_name;
mod layers;
mod memory;
mod merge;
mod parse;
mod print;
mod renamed;
mod root_table;
mod selection;
mod settings;
mod source;
mod source_table;
mod syntax;
mod table_compress;
mod table_reader;
mod units;
mod validate;

pub use compress::{COMPRESS_SOURCES_MAX, CompressConfig, SourceCompressionConfig};
pub use default::COMPRESS_BLOCK_SIZE_RANGE;
pub use env::{VARIABLE_PREFIX, VARIABLES_MAX};
pub use error::{ConfigError, ConfigErrors, ConfigLocation, ERRORS_MAX, Problem};
pub use expected_value::ExpectedValue;
pub use file::{DROP_INS_MAX, FILE_BYTES_MAX, SkippedFiles};
pub use instance_name::{INSTANCE_NAME_BYTES_MAX, INSTANCES_MAX};
pub use layers::{DROP_IN_DIRECTORY, FILE_NAME, Layers, LoadedConfig};
pub use memory::{
    BUILDER_BYTES, INTERVAL_BYTES, LARGE_SLABS, MemoryBudget, MemoryTerm, QUEUE_SLABS_MAX, QUEUE_SLABS_MIN,
    RUN_SOURCES_MAX, TOTAL_BYTES, WRITE_BATCH_BYTES,
};
pub use settings::{
    BufferingConfig, ChecksumSetting, Config, ControlConfig, GroupConfig, GroupConfigs, MinFree, OnFull,
    RecorderConfig, SOCKET_PATH_BYTES_MAX, StorageConfig, SyncSetting,
};
pub use source::{CpuShare, GROUP_FAST_PERIOD_MAX, SourceConfig};
pub use units::{UnitError, format_duration, format_size, parse_duration, parse_size};

/// The text of `config/flatcap.toml`: every key with its default, limits and purpose. Parsing it
/// gives [`Config::default`].
pub const REFERENCE: &str = include_str!("../../config/flatcap.toml");
