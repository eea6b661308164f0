//! Transforms of a field, which compute one number from its values over time.

use std::fmt::{self, Display};

/// A transform as written after a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    /// `:rate`, `:rate(W)`: change per second since the previous sample, or over a window.
    Rate(Option<u64>),
    /// `:delta`, `:delta(W)`: change since the previous sample, or over a window.
    Delta(Option<u64>),
    /// `:avg(W)`: mean of the samples of a window.
    Average(u64),
    /// `:max(W)`: the largest value in a window.
    Largest(u64),
    /// `:min(W)`: the smallest value in a window.
    Smallest(u64),
    /// `:sum(W)`: the sum of the values in a window.
    Sum(u64),
    /// `:count(W)`: the number of samples with a value in a window.
    Count(u64),
    /// `:last(W)`: the last value, if it is within the window.
    Last(u64),
    /// `:quantile(Q, W)`: the smallest value that this share of the samples does not exceed.
    Quantile(f64, u64),
    /// `changed(FIELD)`: 1 if the value differs from the previous sample, else 0.
    Changed,
}

/// All transforms, for error messages.
pub(super) const TRANSFORM_NAMES: &str =
    ":rate, :delta, :avg(1s), :max(1s), :min(1s), :sum(1s), :count(1s), :last(1s) or :quantile(0.99, 1s)";

impl Transform {
    /// Returns the transform with this name. `share` is the argument of `quantile`, `window_ns` the
    /// window of the others, in nanoseconds. Returns `None` for an unknown name or arguments that
    /// do not match.
    pub(super) fn of(name: &str, share: Option<f64>, window_ns: Option<u64>) -> Option<Self> {
        Some(match (name, share, window_ns) {
            ("rate", None, window) => Self::Rate(window),
            ("delta", None, window) => Self::Delta(window),
            ("avg", None, Some(window)) => Self::Average(window),
            ("max", None, Some(window)) => Self::Largest(window),
            ("min", None, Some(window)) => Self::Smallest(window),
            ("sum", None, Some(window)) => Self::Sum(window),
            ("count", None, Some(window)) => Self::Count(window),
            ("last", None, Some(window)) => Self::Last(window),
            ("quantile", Some(share), Some(window)) => Self::Quantile(share, window),
            _ => return None,
        })
    }

    /// Returns the length of its window in nanoseconds, or `None` without a window.
    pub fn window_ns(self) -> Option<u64> {
        match self {
            Self::Rate(window) | Self::Delta(window) => window,
            Self::Average(window)
            | Self::Largest(window)
            | Self::Smallest(window)
            | Self::Sum(window)
            | Self::Count(window)
            | Self::Last(window)
            | Self::Quantile(_, window) => Some(window),
            Self::Changed => None,
        }
    }

    /// Returns whether it keeps all samples of its window.
    pub fn holds_samples(self) -> bool {
        self.window_ns().is_some() && !matches!(self, Self::Last(_))
    }
}

impl Display for Transform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Rate(_) => "rate",
            Self::Delta(_) => "delta",
            Self::Average(_) => "avg",
            Self::Largest(_) => "max",
            Self::Smallest(_) => "min",
            Self::Sum(_) => "sum",
            Self::Count(_) => "count",
            Self::Last(_) => "last",
            Self::Quantile(..) => "quantile",
            Self::Changed => "changed",
        })
    }
}
