//! Parses times, durations and steps that are Python arguments.

use std::path::PathBuf;

use flatcap_format::duration::parse_duration;
use flatcap_format::replay::{HostIdentity, TimePoint, TimePointError, TimeRange};
use flatcap_query::Steps;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString};

use crate::errors::{of_segment, usage};

const NS_PER_S: i64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;

/// The recording whose begin or end a relative time refers to.
#[derive(Clone, Copy)]
pub(crate) struct TimeContext<'r> {
    pub(crate) paths: &'r [PathBuf],
    pub(crate) host: Option<&'r HostIdentity>,
}

impl TimeContext<'_> {
    /// Converts a Python argument to a time. The argument is a string in the form of the command
    /// line, wall nanoseconds, or a datetime. A datetime without a zone is local time.
    pub(crate) fn point(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<TimePoint> {
        if let Ok(text) = value.cast::<PyString>() {
            let text = text.to_string();
            let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
            let parsed = TimePoint::parse(&text, self.paths, self.host, (now_ns(), &zone));
            return parsed.map_err(|error| match error {
                TimePointError::Segment(error) => of_segment(error),
                other => usage(format_args!("{name}: {other}")),
            });
        }
        if value.hasattr("astimezone")? {
            return datetime_ns(value).map(TimePoint::Wall);
        }
        match value.extract::<i64>() {
            Ok(wall_ns) if !value.is_instance_of::<PyBool>() => Ok(TimePoint::Wall(wall_ns)),
            _ => Err(PyTypeError::new_err(format!(
                "{name}: {} is no time; pass a text such as \"-5m\", nanoseconds since 1970, or a datetime",
                value.repr()?
            ))),
        }
    }

    /// Returns the time range between two arguments.
    pub(crate) fn range(
        &self,
        since: Option<&Bound<'_, PyAny>>,
        until: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<TimeRange> {
        let since = since.map(|value| self.point("since", value)).transpose()?;
        let until = until.map(|value| self.point("until", value)).transpose()?;
        let range = TimeRange { since, until };
        if range.is_empty() {
            return Err(usage("since must be before until"));
        }
        Ok(range)
    }

    /// Converts a Python argument to a wall time.
    pub(crate) fn wall_ns(&self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
        let wall_ns = self.point(name, value)?.wall_ns(self.paths, self.host).map_err(of_segment)?;
        wall_ns.ok_or_else(|| usage(format_args!("{name}: the recording has no samples")))
    }
}

/// Converts a Python argument to a duration in nanoseconds. The argument is a string such as
/// `300ms`, or a timedelta.
pub(crate) fn duration_ns(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let ns = if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_string();
        let length = parse_duration(text.trim());
        let length =
            length.map_err(|error| usage(format_args!("{name}: {text:?}: {error}; write 300ms or 5m")))?;
        u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
    } else if value.hasattr("total_seconds")? {
        u64::try_from(timedelta_ns(value)?).unwrap_or_default()
    } else {
        let value = value.repr()?;
        return Err(PyTypeError::new_err(format!(
            "{name}: {value} is no length of time; pass a text such as \"300ms\", or a timedelta"
        )));
    };
    if ns == 0 {
        return Err(usage(format_args!("{name} must be more than 0")));
    }
    Ok(ns)
}

/// Converts a Python argument to the steps of a query. The argument is a length with or without an
/// aggregate, such as `100ms` or `1s:max`.
pub(crate) fn steps(value: &Bound<'_, PyAny>) -> PyResult<Steps> {
    let Ok(text) = value.cast::<PyString>() else {
        return Ok(Steps { step_ns: duration_ns("every", value)?, aggregate: None });
    };
    let text = text.to_string();
    let (step, aggregate) = text.split_once(':').map_or((&*text, None), |(step, name)| (step, Some(name)));
    let aggregate =
        aggregate.map(|name| name.parse().map_err(|error| usage(format_args!("every: {name:?}: {error}"))));
    let step_ns = duration_ns("every", PyString::new(value.py(), step).as_any())?;
    Ok(Steps { step_ns, aggregate: aggregate.transpose()? })
}

/// Returns the current wall time, in nanoseconds since 1970.
fn now_ns() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

/// Converts a datetime to nanoseconds since 1970. The result is exact, because no floating point is
/// used.
fn datetime_ns(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let datetime = value.py().import("datetime")?;
    let utc = datetime.getattr("timezone")?.getattr("utc")?;
    let epoch = datetime.getattr("datetime")?.call_method1("fromtimestamp", (0, &utc))?;
    let distance = value.call_method1("astimezone", (utc,))?.sub(epoch)?;
    timedelta_ns(&distance)
}

fn timedelta_ns(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let part = |name: &str| -> PyResult<i64> { value.getattr(name)?.extract() };
    // Datetimes of pandas have nanoseconds.
    let nanoseconds = if value.hasattr("nanoseconds")? { part("nanoseconds")? } else { 0 };
    let seconds = part("days")?.saturating_mul(S_PER_DAY).saturating_add(part("seconds")?);
    let below = part("microseconds")?.saturating_mul(1_000).saturating_add(nanoseconds);
    Ok(seconds.saturating_mul(NS_PER_S).saturating_add(below))
}
