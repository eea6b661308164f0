//! Questions to a recording: selects fields by path, and returns their values as typed columns.
//!
//! [`Recording::query`] is the one way in. Values come in batches of columns, one table per list of
//! a source, with the times of their samples; losses, marks and problems come between the batches.
//!
//! The module reads through [`replay`](crate::replay) and [`segment`](crate::segment), and ranks,
//! draws and prints nothing.

mod batch;
mod collector;
mod column;
mod elements;
mod error;
mod path;
mod plan;
mod rate;
mod recording;
mod resolve;
mod results;

pub use batch::{BatchTimes, ColumnBatch, RowSource};
pub use column::{ColumnValues, TextColumn, ValidRows, ValueColumn};
pub use elements::{ElementIdentity, ElementNames, NO_ELEMENT};
pub use error::{PathError, QueryError};
pub use path::{ElementPick, FieldPath, IdentityTest, TestOperator};
pub use plan::{ColumnInfo, TableInfo};
pub use rate::CounterRates;
pub use recording::{RecordedSource, Recording};
pub use results::{Query, QueryItem, QueryResults, QuerySummary, RunInfo};

#[cfg(test)]
mod tests;
