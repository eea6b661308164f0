//! Aggregations of the values of several series at one step.

use crate::window_function::{exact_sum, quantile_of, variance};

/// An aggregation of the values of several series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Aggregation {
    Sum,
    Average,
    Min,
    Max,
    Count,
    /// The value 1 for each group that has a value.
    Group,
    Deviation,
    Variance,
    Quantile(f64),
    /// The given number of series with the largest values.
    Largest(usize),
    /// The given number of series with the smallest values.
    Smallest(usize),
}

impl Aggregation {
    /// Returns the aggregation with this name. Some aggregations have a parameter.
    pub(crate) fn named(name: &str, parameter: Option<f64>) -> Option<Self> {
        // For topk and bottomk, the parameter is a number of series. A fraction is truncated, and a
        // negative number becomes 0.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "documented")]
        let count = parameter.unwrap_or_default() as usize;
        Some(match name {
            "sum" => Self::Sum,
            "avg" => Self::Average,
            "min" => Self::Min,
            "max" => Self::Max,
            "count" => Self::Count,
            "group" => Self::Group,
            "stddev" => Self::Deviation,
            "stdvar" => Self::Variance,
            "quantile" => Self::Quantile(parameter?),
            "topk" => Self::Largest(count),
            "bottomk" => Self::Smallest(count),
            _ => return None,
        })
    }

    /// Returns the aggregate of the values of a group. Returns `None` if there are no values, and
    /// for aggregations that select series.
    #[allow(clippy::cast_precision_loss, reason = "the number of series")]
    pub(crate) fn of(self, values: &[f64]) -> Option<f64> {
        let all = values.iter().copied();
        if values.is_empty() {
            return None;
        }
        match self {
            Self::Sum => Some(exact_sum(all)),
            Self::Average => Some(exact_sum(all) / values.len() as f64),
            // `f64::min` and `f64::max` ignore NaN, as Prometheus does.
            Self::Min => all.reduce(f64::min),
            Self::Max => all.reduce(f64::max),
            Self::Count => Some(values.len() as f64),
            Self::Group => Some(1.0),
            Self::Deviation => variance(all).map(f64::sqrt),
            Self::Variance => variance(all),
            Self::Quantile(quantile) => Some(quantile_of(values.to_vec(), quantile)),
            Self::Largest(_) | Self::Smallest(_) => None,
        }
    }
}
