//! The recorder's own metrics: counters and latency histograms, each with one writer.
//!
//! This crate never takes a lock, never allocates in steady state, and never imports another module
//! of the program.

mod append_only_vec;
mod counter;
mod exchange;
mod latency;
mod metric;
mod metric_tables;
#[cfg(all(test, flatcap_model))]
mod models;
mod run_metrics;

pub use append_only_vec::AppendOnlyVec;
pub use counter::Counter;
pub use exchange::{Consumer, EXCHANGE_SETS, Producer, exchange};
pub use latency::{
    BUCKET_BOUNDS_NS, Distribution, GroupLatencies, IntervalHistogram, PublishedLatency, SourceLatencies,
};
pub use metric::{MetricReading, MetricTable, MetricUnit, RunMetric};
pub use metric_tables::{
    CompressionMetrics, ControlMetrics, DaemonMetrics, DirectoryMetrics, GroupMetrics, LogMetrics,
    ProcessMetrics, PushMetrics, RecorderMetrics, RingMetrics, RuleMetrics, SnapshotMetrics, SourceMetrics,
};
pub use run_metrics::{LimitingBudget, Metrics};
