//! Queries of a recording. A query selects fields by path, and returns their values as typed
//! columns.
//!
//! [`Recording::query`] is the only entry point. `Recording::query` returns values in batches of
//! columns. There is one table for each list of a source, and each batch has the times of its
//! samples. Losses, markers and problems are returned between the batches.
//!
//! This crate reads through [`replay`](flatcap_format::replay) and
//! [`segment`](flatcap_format::segment). This crate never ranks, draws or prints values.

mod columns;
mod computed;
mod element_ends;
mod error;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod kernel_reader;
pub mod language;
mod losses;
pub mod metric;
mod name_remarks;
mod names;
mod overview;
mod plan;
mod quantile;
mod rates;
mod read_progress;
mod recording;
mod request;
mod results;
mod rows;
mod scan;
mod summary;

pub use columns::batch::{BatchTimes, ColumnBatch, RowSource};
pub use columns::column::{ColumnValues, ValidRows, ValueColumn};
pub use columns::text_column::TextColumn;
pub use element_ends::{ElementEnds, EndedElement, SampleEnds, end_fields, unnamed_end_list};
pub use error::{ConditionError, PathError, QueryError};
pub use fields::{FieldInfo, SourceFields};
pub use kernel_reader::{KernelItem, KernelReader, KernelSource};
pub use language::{CommonUnit, RowCondition};
pub use losses::SourceLosses;
pub use name_remarks::NameRemark;
pub use names::elements::{ELEMENTS_MAX, ElementIdentity, ElementName, ElementNames, NO_ELEMENT};
pub use names::located_field::{LocatedField, SparseSamples, locate_field};
pub use names::path::FieldPath;
pub use names::path_text::{exact_path, instance_name, quoted_value, source_path};
pub use overview::cache::OverviewCache;
pub use overview::drawn_value::{DrawnValue, Formula, FormulaField};
pub use overview::feed::{FeedEvent, FeedPart, OverviewFeed};
pub use overview::formula_history::{ChangeTime, FieldReading, FormulaHistory};
pub use overview::pixel::{OverviewRow, PixelValues};
pub use overview::range_overview::{Overview, OverviewRequest};
pub use overview::series_cells::held_ns;
pub use overview::series_rows::OverviewSeries;
pub use plan::{ColumnInfo, TableInfo};
pub use quantile::quantile_rank;
pub use rates::rate::{ColumnGrowth, CounterRates};
pub use read_progress::ReadProgress;
pub use recording::{RecordedSource, Recording};
pub use request::Query;
pub use results::{QueryItem, QueryResults, RunInfo};
pub use rows::held_value::HeldValue;
pub use rows::join::RowStamp;
pub use rows::layout::RowColumn;
pub use rows::options::RowOptions;
pub use rows::plain_rows::{PlainItem, PlainRows, SampleRows};
pub use rows::reader::{RowItem, RowReader};
pub use rows::samples::SampleReader;
pub use rows::steps::{Aggregate, AggregateError, Steps};
pub use scan::payload_reader::{PayloadElement, PayloadReader};
pub use summary::QuerySummary;

#[cfg(test)]
mod tests;
