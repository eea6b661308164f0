//! The recorder's own metrics: counters and latency histograms, each with one writer.
//!
//! Never: locks, allocates in steady state, imports another module of the program.

mod append_only_vec;
mod counter;
mod exchange;
mod latency;
#[cfg(all(test, flatcap_model))]
mod models;
mod push_metrics;
mod run_metrics;

pub use append_only_vec::AppendOnlyVec;
pub use counter::Counter;
pub use exchange::{Consumer, EXCHANGE_SETS, Producer, exchange};
pub use latency::{
    BUCKET_BOUNDS_NS, Distribution, GroupLatencies, IntervalHistogram, PublishedLatency, SourceLatencies,
};
pub use push_metrics::PushMetrics;
pub use run_metrics::{
    CompressionMetrics, ControlMetrics, DaemonMetrics, DirectoryMetrics, GroupMetrics, LimitingBudget,
    Metrics, RecorderMetrics, RingMetrics, RuleMetrics, SnapshotMetrics, SourceMetrics,
};
