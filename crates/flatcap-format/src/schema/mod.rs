//! Schemas of payloads. The module contains bindings that are generated from schemas/, and decodes
//! payloads with the binary schema in a file.
//!
//! This module never reads or writes files and has no knowledge of particular sources. It trusts
//! neither a payload nor a schema from a file.

/// Bindings of the telemetry frame (schemas/frame.fbs).
pub mod frame {
    pub use super::generated::frame::flatcap::frame::*;
}

pub mod envelope;

/// Bindings of the frames of a segment (schemas/segment.fbs).
pub mod segment {
    pub use super::generated::segment::flatcap::segment::*;
}

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

pub use compile::NAME_BYTES_MAX;
pub use compiled::Sparse;
pub use compiled::{CompiledSchema, DEPTH_MAX, Field, LeafField, MetricKind, Usage};
pub use counter::{CountedValue, Growth, has_rate};
pub use counter_history::{CounterHistory, ElementPresence};
pub use error::{DecodeError, DecodeFault, SchemaError};
pub use escaped_text::text_of;
pub use flatten::{COLUMNS_MAX, FlatColumn, FlatColumns, FlatRow};
pub use gap_causes::GapCauseNames;
pub use json::{JsonWriter, append_json_value};
pub use nearest_name::nearest_name;
pub use new_schema::{NewContent, NewField, NewTable, binary_schema, slot_of};
pub use numeric_fields::{NumericField, NumericKind};
pub use payload_verifier::PayloadVerifier;
pub use plain_name::{PLAIN_NAME_RULE, is_plain_field_name, is_plain_source_name};
pub use plain_tables::PlainTables;
pub use printed_text::{
    latency, percent, shell_word, shortened, shortened_element, significant, significant_size, wrapped,
};
pub use scalar_reader::ScalarReader;
pub use struct_lists::{StructField, StructList};
#[cfg(any(test, feature = "testing"))]
pub(crate) use table_slots::{SlotContent, TableSlot};
pub use tables::SchemaTables;
pub use value::{ColumnType, FieldValue};
pub use visible_json::{
    is_terminal_unsafe, to_visible_json, to_visible_json_lines, visible_json, visible_text,
};
pub use visitor::{PathStep, Visitor};
pub use walk::{TEXT_BYTES_MAX, VALUES_MAX};

mod bytes;
mod compile;
mod compiled;
mod counter;
mod counter_history;
mod error;
mod escaped_text;
mod flatten;
mod gap_causes;
mod generated;
mod json;
mod nearest_name;
mod new_schema;
mod numeric_fields;
mod payload_verifier;
mod plain_name;
mod plain_tables;
mod printed_text;
mod scalar_reader;
mod select;
mod struct_lists;
#[cfg(any(test, feature = "testing"))]
mod table_slots;
mod tables;
mod value;
mod visible_json;
mod visitor;
mod walk;

#[cfg(test)]
mod fixtures;
