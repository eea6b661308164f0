//! Evaluates `PromQL` over recordings.
//!
//! [`Engine::evaluate`] parses an expression and reads the fields that its selectors name. It
//! computes the value of the expression at each step of a [`TimeGrid`]. Prometheus 2.42 gives the
//! same answers for the same samples. For example, windows include both ends, and rates are
//! extrapolated to the ends of their window.
//!
//! The supported parts of `PromQL` are selectors with matchers and `offset`, arithmetic,
//! comparisons, `and`, `or`, `unless`, vector matching, aggregations, subqueries, `@`, and
//! functions of windows, numbers, dates and labels. Native histograms are not supported.
//!
//! This crate never opens a socket, and never reads a clock.

mod aggregate;
mod aggregation;
mod batch_labels;
mod binary;
mod buckets;
mod calendar;
mod engine;
mod error;
mod evaluation;
mod function;
mod label_rule;
mod labels;
mod loss_series;
mod operator;
mod plan;
mod planner;
mod selection;
mod series;
mod series_list;
mod series_scan;
mod time_grid;
mod vector_match;
mod window;
mod window_function;

pub use engine::{Engine, EvaluationOptions, QueryAnswer, SeriesAnswer};
pub use error::PromqlError;
pub use labels::Labels;
pub use series::{LabelledSeries, QueryValue};
pub use time_grid::{STEPS_MAX, TimeGrid};
