//! Queries of a recording. A query selects fields by path, and returns their values as typed
//! columns.
//!
//! [`Recording::query`] is the only entry point. `Recording::query` returns values in batches of
//! columns. There is one table for each list of a source, and each batch has the times of its
//! samples. Losses, markers and problems are returned between the batches.
//!
//! This crate reads through [`replay`](flatcap_format::replay) and
//! [`segment`](flatcap_format::segment). This crate never ranks, draws or prints values.

mod batch;
mod block_scan;
mod collector;
mod column;
mod column_meaning;
mod column_names;
mod compared;
mod computed;
mod counter_columns;
mod counter_fields;
mod drawn_value;
mod element_ends;
mod elements;
mod error;
mod fields;
mod filter;
mod fixed_content;
mod formula_fold;
mod formula_history;
mod frame_scan;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod held_value;
mod join;
mod kernel_reader;
mod label_rules;
pub mod language;
mod layout;
mod leading_source;
mod losses;
mod merge;
pub mod metric;
mod name_remarks;
mod namesakes;
mod open_block;
mod open_element;
mod overview;
mod overview_cache;
mod overview_feed;
mod overview_rows;
mod path;
mod path_text;
mod payload_reader;
mod pixel;
mod plain_rows;
mod plan;
mod quantile;
mod rate;
mod read_progress;
mod recording;
mod request;
mod resolve;
mod results;
mod row_options;
mod row_visitor;
mod row_window;
mod rows;
mod sample_rates;
mod samples;
mod scalar_cells;
mod scan_step;
mod segment_overview;
mod segment_scan;
mod selected_columns;
mod series_cells;
mod shared_paths;
mod step_rows;
mod steps;
mod strided_rows;
mod struct_rows;
mod summary;
mod table_fold;
mod table_rows;
mod task_feed;
mod template;
mod template_cache;
mod template_pool;
mod text_column;
mod thinned_numbers;
mod whole_samples;

pub use batch::{BatchTimes, ColumnBatch, RowSource};
pub use column::{ColumnValues, ValidRows, ValueColumn};
pub use drawn_value::{DrawnValue, Formula, FormulaField};
pub use element_ends::{ElementEnds, EndedElement, SampleEnds, end_fields, unnamed_end_list};
pub use elements::{ELEMENTS_MAX, ElementIdentity, ElementName, ElementNames, NO_ELEMENT};
pub use error::{ConditionError, PathError, QueryError};
pub use fields::{FieldInfo, SourceFields};
pub use formula_history::{ChangeTime, FieldReading, FormulaHistory};
pub use held_value::HeldValue;
pub use join::RowStamp;
pub use kernel_reader::{KernelItem, KernelReader, KernelSource};
pub use language::{CommonUnit, RowCondition};
pub use layout::RowColumn;
pub use losses::SourceLosses;
pub use name_remarks::NameRemark;
pub use overview::{Overview, OverviewRequest};
pub use overview_cache::OverviewCache;
pub use overview_feed::{FeedEvent, FeedPart, OverviewFeed};
pub use overview_rows::OverviewSeries;
pub use path::FieldPath;
pub use path_text::{exact_path, instance_name, quoted_value, source_path};
pub use payload_reader::{LocatedField, PayloadElement, PayloadReader, SparseSamples, locate_field};
pub use pixel::{OverviewRow, PixelValues};
pub use plain_rows::{PlainItem, PlainRows, SampleRows};
pub use plan::{ColumnInfo, TableInfo};
pub use quantile::quantile_rank;
pub use rate::{ColumnGrowth, CounterRates};
pub use read_progress::ReadProgress;
pub use recording::{RecordedSource, Recording};
pub use request::Query;
pub use results::{QueryItem, QueryResults, RunInfo};
pub use row_options::RowOptions;
pub use rows::{RowItem, RowReader};
pub use samples::SampleReader;
pub use series_cells::held_ns;
pub use steps::{Aggregate, AggregateError, Steps};
pub use summary::QuerySummary;
pub use text_column::TextColumn;

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod condition_tests;
#[cfg(test)]
mod counter_samples;
#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod identity_tests;
#[cfg(test)]
mod many_sources_tests;
#[cfg(test)]
mod overview_tests;
#[cfg(test)]
mod overview_walk;
#[cfg(test)]
mod rate_tests;
#[cfg(test)]
mod sample_rates_tests;
#[cfg(test)]
mod tasks_tests;
#[cfg(test)]
mod tests;
