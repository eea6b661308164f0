//! Functions of the samples in a window, as Prometheus computes them.

/// A function of the samples in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum WindowFunction {
    /// The newest value, unless the series has ended since then. This is the value of a selector
    /// without a window.
    Current,
    /// The time of the newest value, in seconds.
    CurrentTime,
    /// The newest value.
    Last,
    /// Growth per second.
    Rate,
    /// Growth.
    Increase,
    /// Difference between the last and the first value. The value is not a counter and may
    /// decrease.
    Delta,
    /// Growth per second between the two newest samples.
    InstantRate,
    /// Difference between the values of the two newest samples.
    InstantDelta,
    /// The number of resets of a counter.
    Resets,
    /// The number of changes of the value.
    Changes,
    Average,
    Min,
    Max,
    Sum,
    Count,
    /// The value 1 if the window contains a sample.
    Present,
    /// Standard deviation of all values.
    Deviation,
    /// The square of the standard deviation.
    Variance,
    /// A quantile of the values. The parameter is the level of the quantile, for example 0.99.
    Quantile(f64),
    /// The slope per second of the regression line through the values.
    Derivative,
    /// The value of the regression line at the given number of seconds after the end of the window.
    Predicted(f64),
}

/// The functions by name, except functions with a parameter.
const NAMED: [(&str, WindowFunction); 17] = [
    ("last_over_time", WindowFunction::Last),
    ("rate", WindowFunction::Rate),
    ("increase", WindowFunction::Increase),
    ("delta", WindowFunction::Delta),
    ("irate", WindowFunction::InstantRate),
    ("idelta", WindowFunction::InstantDelta),
    ("resets", WindowFunction::Resets),
    ("changes", WindowFunction::Changes),
    ("avg_over_time", WindowFunction::Average),
    ("min_over_time", WindowFunction::Min),
    ("max_over_time", WindowFunction::Max),
    ("sum_over_time", WindowFunction::Sum),
    ("count_over_time", WindowFunction::Count),
    ("present_over_time", WindowFunction::Present),
    ("stddev_over_time", WindowFunction::Deviation),
    ("stdvar_over_time", WindowFunction::Variance),
    ("deriv", WindowFunction::Derivative),
];

/// The functions with a parameter.
pub(crate) const QUANTILE_OVER_TIME: &str = "quantile_over_time";
pub(crate) const PREDICT_LINEAR: &str = "predict_linear";

/// Maximum time between an end of the window and the nearest sample, as a multiple of the usual
/// interval between samples. Within this distance, the samples are assumed to continue to that end.
const CONTINUED: f64 = 1.1;

impl WindowFunction {
    /// Returns the function with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMED.iter().find(|(own, _)| *own == name).map(|(_, function)| *function)
    }

    /// Returns the names of all functions.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name).chain([QUANTILE_OVER_TIME, PREDICT_LINEAR])
    }

    /// Returns whether the result loses the metric's name, because it is no longer a value of the
    /// metric.
    pub(crate) fn drops_name(self) -> bool {
        !matches!(self, Self::Current | Self::Last)
    }

    /// Returns whether the function has no value for a series that has ended.
    pub(crate) fn is_current(self) -> bool {
        matches!(self, Self::Current | Self::CurrentTime)
    }

    /// Returns the result for the samples in a window. `samples` contains times in milliseconds
    /// with their values, sorted by time. `window_ms` is the first and the last millisecond of the
    /// window.
    #[allow(clippy::cast_precision_loss, reason = "counts of samples in a window, which fits memory")]
    pub(crate) fn of(self, samples: &[(i64, f64)], window_ms: (i64, i64)) -> Option<f64> {
        let values = samples.iter().map(|(_, value)| *value);
        let count = samples.len() as f64;
        let (last_ms, last) = *samples.last()?;
        match self {
            Self::Current | Self::Last => Some(last),
            Self::CurrentTime => Some(last_ms as f64 / 1000.0),
            Self::Derivative => line(samples, samples.first()?.0).map(|(slope, _)| slope),
            Self::Predicted(after_s) => {
                line(samples, window_ms.1).map(|(slope, at_end)| slope * after_s + at_end)
            }
            Self::Rate => Some(extrapolated_growth(samples, window_ms, true)? / seconds(window_ms)),
            Self::Increase => extrapolated_growth(samples, window_ms, true),
            Self::Delta => extrapolated_growth(samples, window_ms, false),
            Self::InstantRate => {
                let [(before_ms, before), (now_ms, now)] = *samples.last_chunk()?;
                // A counter that was reset has grown from 0 to the new value.
                let growth = if now < before { now } else { now - before };
                Some(growth / seconds((before_ms, now_ms)))
            }
            Self::InstantDelta => {
                let [(_, before), (_, now)] = *samples.last_chunk()?;
                Some(now - before)
            }
            Self::Resets => Some(pairs(samples).filter(|(before, now)| now < before).count() as f64),
            Self::Changes => {
                Some(pairs(samples).filter(|(before, now)| differ(*before, *now)).count() as f64)
            }
            Self::Average => Some(exact_sum(values) / count),
            Self::Min => values.reduce(f64::min),
            Self::Max => values.reduce(f64::max),
            Self::Sum => Some(exact_sum(values)),
            Self::Count => Some(count),
            Self::Present => Some(1.0),
            Self::Deviation => variance(values).map(f64::sqrt),
            Self::Variance => variance(values),
            Self::Quantile(quantile) => Some(quantile_of(values.collect(), quantile)),
        }
    }
}

/// Fits a line through the values by least squares. Returns its slope per second and its value at a
/// given time. Returns `None` for fewer than two values.
#[allow(clippy::cast_precision_loss, reason = "the number of values in memory")]
fn line(samples: &[(i64, f64)], at_ms: i64) -> Option<(f64, f64)> {
    let [(_, first), .., _] = *samples else { return None };
    // If all values are equal, the line is exact.
    #[allow(clippy::float_cmp, reason = "values that are recorded")]
    if samples.iter().all(|(_, value)| *value == first) {
        return Some(if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) });
    }
    let count = samples.len() as f64;
    // Times relative to `at_ms` are small numbers, so their squares keep their precision.
    let points = samples.iter().map(|(ms, value)| (seconds((at_ms, *ms)), *value));
    let sum = |of: fn((f64, f64)) -> f64| exact_sum(points.clone().map(of));
    let (times, values) = (sum(|(x, _)| x), sum(|(_, y)| y));
    let (products, squares) = (sum(|(x, y)| x * y), sum(|(x, _)| x * x));
    let slope = (products - times * values / count) / (squares - times * times / count);
    Some((slope, values / count - slope * times / count))
}

/// Returns the variance of all values, or `None` if there are no values.
#[allow(clippy::cast_precision_loss, reason = "the number of values in memory")]
pub(crate) fn variance(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = values.clone().count();
    if count == 0 {
        return None;
    }
    let mean = exact_sum(values.clone()) / count as f64;
    Some(exact_sum(values.map(|value| (value - mean) * (value - mean))) / count as f64)
}

/// Returns a quantile of values, interpolated between the two nearest values.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank among the values, which are in memory"
)]
pub(crate) fn quantile_of(mut values: Vec<f64>, quantile: f64) -> f64 {
    if values.is_empty() || quantile.is_nan() {
        return f64::NAN;
    }
    if quantile < 0.0 {
        return f64::NEG_INFINITY;
    }
    if quantile > 1.0 {
        return f64::INFINITY;
    }
    // As in Prometheus, NaN is less than any number.
    values.sort_by(|one, other| other.is_nan().cmp(&one.is_nan()).then(one.total_cmp(other)));
    let rank = quantile * (values.len() - 1) as f64;
    let value = |rank: f64| values.get(rank as usize).or(values.last()).copied().unwrap_or(f64::NAN);
    let weight = rank - rank.floor();
    value(rank.floor()) * (1.0 - weight) + value(rank.floor() + 1.0) * weight
}

/// Returns the sum. Compensates for the rounding error of each addition (Neumaier). So the sum of
/// many values does not depend on how they are divided into parts.
pub(crate) fn exact_sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for value in values {
        let next = sum + value;
        // The rounding error of an infinite sum would be NaN.
        if next.is_finite() {
            lost += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        }
        sum = next;
    }
    sum + lost
}

/// Returns the difference between the first and the last value. The difference is extrapolated to
/// an end of the window, unless the nearest sample is far from this end. Each decrease of a counter
/// is a reset to 0. A counter is not extrapolated beyond the time at which it was 0.
#[allow(clippy::cast_precision_loss, reason = "milliseconds, and the number of samples in memory")]
fn extrapolated_growth(samples: &[(i64, f64)], window_ms: (i64, i64), is_counter: bool) -> Option<f64> {
    let [(first_ms, first), .., (last_ms, last)] = *samples else { return None };
    let mut growth = last - first;
    if is_counter {
        growth += pairs(samples).filter(|(before, now)| now < before).map(|(before, _)| before).sum::<f64>();
    }
    let mut to_begin = seconds((window_ms.0, first_ms));
    let to_end = seconds((last_ms, window_ms.1));
    let covered = seconds((first_ms, last_ms));
    let usual = covered / (samples.len() - 1) as f64;
    if is_counter && growth > 0.0 && first >= 0.0 {
        to_begin = to_begin.min(covered * (first / growth));
    }
    // As in Prometheus, if samples are missing at an end of the window, the series is assumed to
    // continue for half of the usual sample interval.
    let extended = |missing: f64| if missing < usual * CONTINUED { missing } else { usual / 2.0 };
    Some(growth * ((covered + extended(to_begin) + extended(to_end)) / covered))
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds between times")]
fn seconds((from_ms, to_ms): (i64, i64)) -> f64 {
    to_ms.saturating_sub(from_ms) as f64 / 1000.0
}

fn pairs(samples: &[(i64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    samples.iter().zip(samples.iter().skip(1)).map(|((_, before), (_, now))| (*before, *now))
}

/// Returns whether two values differ. NaN is equal to NaN.
#[allow(clippy::float_cmp, reason = "whether a recorded value is the same as before")]
fn differ(before: f64, now: f64) -> bool {
    before != now && !(before.is_nan() && now.is_nan())
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use super::*;

    fn of(function: WindowFunction, samples: &[(i64, f64)]) -> Option<f64> {
        function.of(samples, (0, 10_000))
    }

    fn is_near(value: Option<f64>, expected: f64) -> bool {
        value.is_some_and(|value| (value - expected).abs() <= 1e-12 * expected.abs().max(1.0))
    }

    // Proves that rates are extrapolated to an end of the window if the samples continue to this
    // end, and otherwise by half of the usual sample interval. They are never extrapolated beyond
    // the time at which a counter was 0, and a decrease of a counter is a reset.
    #[test]
    fn growth_is_extrapolated() {
        // A sample every second from 0 to 10 s, growing by 2 per second, leaves nothing to
        // extrapolate.
        let whole: Vec<(i64, f64)> = (0..=10).map(|s| (s * 1000, 100.0 + 2.0 * s as f64)).collect();
        assert!(is_near(of(WindowFunction::Rate, &whole), 2.0));
        assert!(is_near(of(WindowFunction::Increase, &whole), 20.0));
        assert!(is_near(of(WindowFunction::Delta, &whole), 20.0));
        // With samples from 1 to 9 s, one second is missing at each end.
        assert!(is_near(of(WindowFunction::Increase, &whole[1..10]), 20.0));
        // With samples from 4 to 6 s, 4 s are missing at each end, so half a second is added at
        // each end.
        assert!(is_near(of(WindowFunction::Increase, &whole[4..7]), 4.0 * 1.5));
        // By extrapolation, this counter was 0 half a second before its first sample.
        let young = [(1000, 1.0), (2000, 3.0), (3000, 5.0)];
        assert!(is_near(of(WindowFunction::Increase, &young), 4.0 * (2.0 + 0.5 + 0.5) / 2.0));
        // After 7 and 9, the counter starts again with 1 and 3, so its growth is 2 + 1 + 2.
        let anew = [(2000, 7.0), (4000, 9.0), (6000, 1.0), (8000, 3.0)];
        assert!(is_near(of(WindowFunction::Increase, &anew), (3.0 - 7.0 + 9.0) * 10.0 / 6.0));
        assert!(is_near(of(WindowFunction::Resets, &anew), 1.0));
        assert!(is_near(of(WindowFunction::Changes, &anew), 3.0));
        assert!(is_near(of(WindowFunction::InstantRate, &anew[..3]), 0.5));
        assert!(is_near(of(WindowFunction::InstantDelta, &anew[..3]), -8.0));
        for function in [WindowFunction::Rate, WindowFunction::InstantRate, WindowFunction::InstantDelta] {
            assert_eq!(of(function, &anew[..1]), None, "one sample has no growth");
        }
    }

    // Proves that the statistics of a window are correct, and that a window without samples has no
    // value.
    #[test]
    fn statistics_of_a_window() {
        let samples = [(1, 4.0), (2, 2.0), (3, 9.0), (4, 5.0)];
        for (function, expected) in [
            (WindowFunction::Average, 5.0),
            (WindowFunction::Min, 2.0),
            (WindowFunction::Max, 9.0),
            (WindowFunction::Sum, 20.0),
            (WindowFunction::Count, 4.0),
            (WindowFunction::Last, 5.0),
            (WindowFunction::Present, 1.0),
            (WindowFunction::Variance, 6.5),
            (WindowFunction::Deviation, 6.5_f64.sqrt()),
            (WindowFunction::Quantile(0.5), 4.5),
            (WindowFunction::Quantile(1.0), 9.0),
        ] {
            assert!(is_near(of(function, &samples), expected), "{function:?}");
            assert_eq!(of(function, &[]), None, "{function:?}");
        }
        assert_eq!(of(WindowFunction::Quantile(0.5), &[(1, 4.0), (2, f64::NAN), (3, 2.0)]), Some(2.0));
        let none = [(1, f64::NAN), (2, f64::NAN)];
        assert!(of(WindowFunction::Derivative, &none).is_some_and(f64::is_nan));
        assert_eq!(of(WindowFunction::Quantile(-0.1), &samples), Some(f64::NEG_INFINITY));
        assert_eq!(of(WindowFunction::Quantile(1.1), &samples), Some(f64::INFINITY));
        let hard = std::iter::repeat_n(0.1, 10_000_000 / 1000).chain([1e16, -1e16]);
        assert!((exact_sum(hard) - 1000.0).abs() < 1e-9);
    }

    // Proves that each listed name is a function.
    #[test]
    fn names_are_functions() {
        let with_parameter = [QUANTILE_OVER_TIME, PREDICT_LINEAR];
        for name in WindowFunction::names().filter(|name| !with_parameter.contains(name)) {
            assert!(WindowFunction::named(name).is_some(), "{name}");
        }
        assert_eq!(WindowFunction::named("holt_winters"), None);
    }
}
