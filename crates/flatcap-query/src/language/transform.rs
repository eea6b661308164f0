//! Transforms of a field, which compute one number from its values over time.

use std::fmt::{self, Display};

/// A transform that is written after a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    /// Change per second since the previous sample, or over a window (`:rate`, `:rate(W)`).
    Rate(Option<u64>),
    /// Change since the previous sample, or over a window (`:delta`, `:delta(W)`).
    Delta(Option<u64>),
    /// Mean of the samples in a window (`:avg(W)`).
    Average(u64),
    /// Largest value in a window (`:max(W)`).
    Largest(u64),
    /// Smallest value in a window (`:min(W)`).
    Smallest(u64),
    /// Sum of the values in a window (`:sum(W)`).
    Sum(u64),
    /// Number of samples in a window that have a value (`:count(W)`).
    Count(u64),
    /// Last value, if its sample is within the window (`:last(W)`).
    Last(u64),
    /// Quantile of the values, which is the smallest value such that at least this share of all
    /// values is less than or equal to it (`:quantile(Q, W)`).
    Quantile(f64, u64),
    /// The value 1 if the field differs from the previous sample, and otherwise 0
    /// (`changed(FIELD)`).
    Changed,
}

/// All transforms, for error messages.
pub(super) const TRANSFORM_NAMES: &str =
    ":rate, :delta, :avg(1s), :max(1s), :min(1s), :sum(1s), :count(1s), :last(1s) or :quantile(0.99, 1s)";

impl Transform {
    /// Returns the transform with this name. `share` is the first argument of `quantile`, and
    /// `window_ns` is the length of the window, in nanoseconds. Returns `None` for an unknown name,
    /// or for arguments that the transform does not have.
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

    /// Returns the length of the transform's window in nanoseconds, or `None` if the transform has
    /// no window.
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

    /// Returns whether the transform needs all samples in its window at the same time.
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
