//! Converts recordings of flatcap to Arrow record batches.
//!
//! | to | use |
//! |---|---|
//! | read the samples of one source, lists as lists of structs | [`SourceReader`] |
//! | read rows of selected fields, joined on time | [`FieldsReader`] |
//! | read the samples of all sources, as rows of files | [`RowBatches`] |
//! | lay out the samples of all sources, for files | [`SampleReader`], [`FileLayout`] |
//!
//! Fields have the metadata `unit`, `meaning` (how successive values relate) and `description`. The
//! metadata comes from the schemas in the recording. Absent values are null.
//!
//! This crate never holds more than one batch, never prints, and does not know any file format.

mod batch_item;
mod column_builder;
mod columns;
mod error;
mod field_columns;
mod fields_reader;
mod large_values;
mod layout;
mod row_batches;
mod sample_reader;
mod source_batches;
mod source_reader;
mod step_filter;

pub use batch_item::BatchItem;
pub use columns::IntegerTypes;
pub use error::BatchError;
pub use fields_reader::FieldsReader;
pub use large_values::LargeValues;
pub use layout::{Descriptions, FileLayout, LayoutOptions, ZONE, time_type};
pub use row_batches::{RowBatchItem, RowBatches};
pub use sample_reader::{RecordedItem, SampleBatch, SampleReader};
pub use source_batches::SourceBatches;
pub use source_reader::SourceReader;
pub use step_filter::StepFilter;
