//! What does the recorder know about itself? Counters and latency histograms, each with one writer.
//!
//! Never: locks, allocates in steady state, imports another room.

mod counter;
mod exchange;
mod latency;
#[cfg(all(test, flatcap_model))]
mod models;
mod slots;

pub use counter::{
    ControlMetrics, Counter, DaemonMetrics, DirectoryMetrics, GroupMetrics, Limit, Metrics, RecorderMetrics,
    STORAGE_STALL_NS, SealerMetrics, SourceMetrics,
};
pub use exchange::{Consumer, Producer, exchange};
pub use latency::{
    BOUNDS_NS, Distribution, GroupLatencies, Interval, LatencySummary, PublishedLatency, SourceLatencies,
    Total,
};
pub use slots::Slots;
