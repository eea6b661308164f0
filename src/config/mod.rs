//! Converts a TOML file, its drop-ins and environment variables into a validated [`Config`]. All of
//! these inputs are optional.
//!
//! Each key is defined in one place only, in `settings` or `source_table`. The definition has its
//! name, meaning, accepted values, default, effect and settings field. Everything else is derived
//! from these properties.
//!
//! This module never starts anything, never checks whether this host has a source, never changes a
//! file, and never keeps an unchecked value. All problems in all files are reported together. Each
//! problem has its location, its value and the valid values.

mod argument;
mod compress;
mod diagnostics;
mod difference;
mod env;
mod error;
mod expected_value;
mod file;
mod input_texts;
mod instance_name;
mod key;
mod keyword_setting;
mod layers;
mod limits;
mod merge;
mod name_hint;
mod parse;
mod print;
mod reference;
mod rule_check;
mod selection;
mod setting;
mod settings;
mod source;
mod source_table;
mod syntax;
mod tables;
mod trigger;
mod unknown;
mod validate;
mod value_error;

pub use argument::count_argument;
pub use compress::{COMPRESS_SOURCES_MAX, SourceCompressionConfig};
pub use env::{VARIABLE_PREFIX, VARIABLES_MAX};
pub use error::{ConfigError, ConfigErrors, ConfigLocation, ERRORS_MAX};
pub use expected_value::{ExpectedValue, SOCKET_PATH_BYTES_MAX};
pub use file::{DROP_INS_MAX, FILE_BYTES_MAX, SkippedFiles};
pub use flatcap_text::quantity::{CpuShare, UnitError, format_duration, format_size};
pub use instance_name::{INSTANCE_NAME_BYTES_MAX, INSTANCES_MAX};
pub use layers::{DROP_IN_DIRECTORY, FILE_NAME, Layers, LoadedConfig};
pub use reference::{ReferenceKey, ReferencePart, reference};
pub use rule_check::missing_source;
pub use settings::{
    BlackboxConfig, BufferingConfig, COMPRESS_BLOCK_SIZE_RANGE, CompressConfig, Config, ControlConfig,
    GroupConfig, GroupConfigs, PushConfig, RecorderConfig, StorageConfig,
};
pub use source::{GROUP_FAST_PERIOD_MAX, SourceConfig};
pub use trigger::{TRIGGERS_MAX, TriggerConfig};
pub use validate::MemoryRule;
pub use value_error::ValueError;
