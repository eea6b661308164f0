//! Shows a recording. Chooses the charts and tables of a recording, and reads their values up to an
//! advancing time.
//!
//! The [`Catalog`] derives the charts and tables of a recording from the fields, units, kinds and
//! lists in its schemas. [`ChartFeed`] and [`TableFeed`] read the values of charts and tables up to
//! an advancing time, live or in a replay. The catalog and the feeds do not depend on how the
//! values are drawn. [`terminal`] draws the charts and tables on a terminal, and [`web`] serves a
//! page that draws them.
//!
//! This crate never changes a recording, and never shows a gap as data.

mod catalog;
mod chart_feed;
#[cfg(test)]
mod chart_tests;
mod element_shape;
mod error;
mod known;
mod sample_search;
mod step_columns;
mod table_feed;
#[cfg(test)]
mod table_tests;
pub mod terminal;
#[cfg(test)]
mod test_recording;
#[cfg(test)]
mod test_schedule;
mod tracks;
pub mod web;

pub use catalog::{Catalog, Chart, ColumnValue, ElementTable, TableColumn};
pub use chart_feed::{ChartFeed, ChartSeries};
pub use element_shape::ElementShape;
pub use error::ViewError;
pub use step_columns::{StepColumn, StepColumns};
pub use table_feed::{ElementValues, TableFeed};
