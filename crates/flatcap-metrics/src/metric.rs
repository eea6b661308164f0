//! A metric, with its name, meaning, kind and unit, and a function that reads its value. `metrics!`
//! declares them.

use super::latency::PublishedLatency;

/// The conversion of a reading to the unit at the end of the metric's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricUnit {
    /// The number is exposed as it is.
    Number,
    /// Nanoseconds, or nanoseconds per second, divided by 10^9.
    Nanoseconds,
    /// Wall clock time in nanoseconds since 1970, which is exposed in seconds.
    WallNanoseconds,
}

/// The kind of a metric, and a function that reads its value from a `T`.
#[derive(Debug, Clone, Copy)]
pub enum MetricReading<T> {
    /// A value that only increases.
    Counter(fn(&T) -> u64),
    /// A value that increases and decreases.
    Gauge(fn(&T) -> u64),
    /// A distribution of durations.
    Histogram(fn(&T) -> &PublishedLatency),
}

/// A metric of a `T`. A `T` is, for example, a source or the recorder thread.
#[derive(Debug, Clone, Copy)]
pub struct RunMetric<T> {
    /// The name in the exposition, with the unit and without `_total`.
    pub name: &'static str,
    pub(super) comment: &'static str,
    /// The unit of the reading.
    pub unit: MetricUnit,
    /// The kind, and a function that reads the value.
    pub reading: MetricReading<T>,
}

impl<T> RunMetric<T> {
    /// Returns the meaning, as the exposition states it.
    pub fn help(&self) -> &'static str {
        self.comment.trim_start()
    }
}

/// A type that has metrics.
pub trait MetricTable: Sized + 'static {
    /// All metrics that are exposed, in the order of the exposition.
    const METRICS: &'static [RunMetric<Self>];
}

/// Declares the counters of one writer as a struct, and the table of its metrics.
///
/// A row is a comment and a field with its kind and name. The comment is the meaning that the
/// exposition states. A row without a name is a counter that is not exposed. A row without a field
/// is a value that is computed from other values. `ns` after the kind means that the value is in
/// nanoseconds. Fields in braces are not metrics. `impl TYPE;` declares a table for a struct that
/// is defined elsewhere.
macro_rules! metrics {
    (impl $counters:ident; $($rows:tt)*) => {
        metrics!(@rows [$counters] [] [] $($rows)*);
    };
    ($(#[$about:meta])* $counters:ident { $($fields:tt)* } $($rows:tt)*) => {
        metrics!(@rows [$counters $(#[$about])*] [$($fields)*] [] $($rows)*);
    };
    (@rows [$counters:ident $($about:tt)*] [$($fields:tt)*] [$($table:tt)*]
     $(#[doc = $help:literal])+ $field:ident: $kind:ident $($unit:ident)? = $metric:literal;
     $($rows:tt)*) => {
        metrics!(
            @rows [$counters $($about)*]
            [$($fields)* $(#[doc = $help])+ pub $field: metrics!(@cell $kind),]
            [$($table)* metrics!(
                @metric $metric, concat!($($help),+), [$($unit)?],
                metrics!(@reading $kind, this, this.$field)
            ),]
            $($rows)*
        );
    };
    (@rows [$counters:ident $($about:tt)*] [$($fields:tt)*] [$($table:tt)*]
     $(#[doc = $help:literal])+ $field:ident: $kind:ident $($unit:ident)?;
     $($rows:tt)*) => {
        metrics!(
            @rows [$counters $($about)*]
            [$($fields)* $(#[doc = $help])+ pub $field: metrics!(@cell $kind),]
            [$($table)*]
            $($rows)*
        );
    };
    (@rows [$counters:ident $($about:tt)*] [$($fields:tt)*] [$($table:tt)*]
     $(#[doc = $help:literal])+
     $kind:ident $($unit:ident)? = $metric:literal, |$this:ident| $value:expr;
     $($rows:tt)*) => {
        metrics!(
            @rows [$counters $($about)*] [$($fields)*]
            [$($table)* metrics!(
                @metric $metric, concat!($($help),+), [$($unit)?],
                metrics!(@computed $kind, $this, $value)
            ),]
            $($rows)*
        );
    };
    (@rows [$counters:ident $($about:tt)+] [$($fields:tt)*] [$($table:tt)*]) => {
        $($about)+
        #[derive(Debug, Default)]
        pub struct $counters { $($fields)* }
        metrics!(@rows [$counters] [] [$($table)*]);
    };
    (@rows [$counters:ident] [] [$($table:tt)*]) => {
        impl MetricTable for $counters {
            const METRICS: &'static [RunMetric<Self>] = &[$($table)*];
        }
    };
    (@cell histogram) => { PublishedLatency };
    (@cell $kind:ident) => { Counter };
    (@metric $metric:literal, $comment:expr, [$($unit:ident)?], $reading:expr) => {
        RunMetric { name: $metric, comment: $comment, unit: metrics!(@unit $($unit)?), reading: $reading }
    };
    (@unit) => { MetricUnit::Number };
    (@unit ns) => { MetricUnit::Nanoseconds };
    (@unit wall_ns) => { MetricUnit::WallNanoseconds };
    (@reading histogram, $this:ident, $cell:expr) => { MetricReading::Histogram(|$this| &$cell) };
    (@reading $kind:ident, $this:ident, $cell:expr) => { metrics!(@computed $kind, $this, $cell.get()) };
    (@computed counter, $this:ident, $value:expr) => { MetricReading::Counter(|$this| $value) };
    (@computed gauge, $this:ident, $value:expr) => { MetricReading::Gauge(|$this| $value) };
}
pub(super) use metrics;
