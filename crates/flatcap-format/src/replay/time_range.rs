//! Parses points in time of a recording from strings that users write, and forms the range between
//! two such points.

use std::path::PathBuf;

use jiff::tz::TimeZone;

use super::filter::{HostIdentity, ReplayFilter};
use super::span::{first_sample, recording_end};
use super::time::{TimeError, TimeSpec};
use crate::segment::{Elapsed, SegmentError};

/// A point in time on the wall clock or on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimePoint {
    /// Wall time, in nanoseconds since 1970, UTC.
    Wall(i64),
    /// Time after the first sample on the monotonic clock, in nanoseconds.
    Elapsed(u64),
}

/// A range of times. The range includes its start and excludes its end. If the start or the end is
/// missing, the range has no limit on that side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The start of the range.
    pub since: Option<TimePoint>,
    /// The end of the range.
    pub until: Option<TimePoint>,
}

/// The error for a string that does not name a time of a recording.
#[derive(Debug, thiserror::Error)]
pub enum TimePointError {
    /// The string is not a point in time.
    #[error(transparent)]
    Text(#[from] TimeError),
    /// The time cannot be represented as nanoseconds in 64 bits.
    #[error("\"{0}\" is before 1678 or after 2261")]
    OutOfRange(String),
    /// The time depends on the end of the recording, and the recording cannot be read.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

impl TimePoint {
    /// Parses a string in the notation of [`TimeSpec`]. Reads the recording only if the time
    /// depends on the end of the recording. `now_ns` is the current wall time, and `zone` is the
    /// time zone of times that do not state a time zone.
    ///
    /// # Errors
    /// Returns `Text` if the string is not a point in time (the error lists every valid form), and
    /// `Segment` for a path that is missing or unreadable.
    pub fn parse(
        text: &str,
        paths: &[PathBuf],
        host: Option<&HostIdentity>,
        (now_ns, zone): (i64, &TimeZone),
    ) -> Result<Self, TimePointError> {
        let time = TimeSpec::parse(text, now_ns, zone)?;
        if let TimeSpec::FromStart(ns) = time {
            return Ok(Self::Elapsed(ns));
        }
        let end_ns = if time.depends_on_end() { recording_end(paths, host, now_ns)? } else { None };
        let wall_ns = time.wall_ns(end_ns.unwrap_or(now_ns), zone);
        wall_ns.map(Self::Wall).ok_or_else(|| TimePointError::OutOfRange(text.to_owned()))
    }

    /// Returns the wall time, in nanoseconds. Returns `None` for a time relative to the first
    /// sample if there are no samples.
    ///
    /// # Errors
    /// Fails if a segment cannot be read.
    pub fn wall_ns(
        self,
        paths: &[PathBuf],
        host: Option<&HostIdentity>,
    ) -> Result<Option<i64>, SegmentError> {
        match self {
            Self::Wall(wall_ns) => Ok(Some(wall_ns)),
            Self::Elapsed(ns) => {
                let filter = ReplayFilter { host: host.cloned(), ..ReplayFilter::default() };
                let first = first_sample(paths, filter)?;
                Ok(first.map(|first| first.wall_ns.saturating_add_unsigned(ns)))
            }
        }
    }
}

impl TimeRange {
    /// Returns the range of length `length_ns` whose middle is this point.
    pub fn around(middle: TimePoint, length_ns: u64) -> Self {
        let (before_ns, after_ns) = (length_ns / 2, length_ns - length_ns / 2);
        let (since, until) = match middle {
            TimePoint::Wall(at) => (
                TimePoint::Wall(at.saturating_sub_unsigned(before_ns)),
                TimePoint::Wall(at.saturating_add_unsigned(after_ns)),
            ),
            TimePoint::Elapsed(at) => (
                TimePoint::Elapsed(at.saturating_sub(before_ns)),
                TimePoint::Elapsed(at.saturating_add(after_ns)),
            ),
        };
        Self { since: Some(since), until: Some(until) }
    }

    /// Returns whether the range contains no time. Two points on different clocks are not compared.
    pub fn is_empty(&self) -> bool {
        match (self.since, self.until) {
            (Some(TimePoint::Wall(since)), Some(TimePoint::Wall(until))) => since >= until,
            (Some(TimePoint::Elapsed(since)), Some(TimePoint::Elapsed(until))) => since >= until,
            _ => false,
        }
    }

    /// Returns whether the range contains all times.
    pub fn is_all(&self) -> bool {
        self.since.is_none() && self.until.is_none()
    }

    /// Returns `filter`, limited to the range, for the recordings at these paths.
    ///
    /// # Errors
    /// Fails if a segment cannot be read.
    pub fn limit(&self, filter: ReplayFilter, paths: &[PathBuf]) -> Result<ReplayFilter, SegmentError> {
        let mut filter = filter;
        let after_ns = self.since.and_then(elapsed_ns);
        let before_ns = self.until.and_then(elapsed_ns);
        if after_ns.is_some() || before_ns.is_some() {
            let ns = after_ns.unwrap_or(0)..before_ns.unwrap_or(u64::MAX);
            filter.elapsed = first_sample(paths, filter.clone())?.map(|start| Elapsed { start, ns });
        }
        (filter.since_ns, filter.until_ns) = (self.since.and_then(wall_ns), self.until.and_then(wall_ns));
        Ok(filter)
    }
}

fn wall_ns(point: TimePoint) -> Option<i64> {
    if let TimePoint::Wall(ns) = point { Some(ns) } else { None }
}

fn elapsed_ns(point: TimePoint) -> Option<u64> {
    if let TimePoint::Elapsed(ns) = point { Some(ns) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a range around a point uses the clock of the point, and ends at the limits of the
    // representable times.
    #[test]
    fn a_window_lies_around_its_middle() {
        use TimePoint::{Elapsed, Wall};
        let range = |since, until| TimeRange { since: Some(since), until: Some(until) };
        assert_eq!(TimeRange::around(Wall(1_000), 301), range(Wall(850), Wall(1_151)));
        assert_eq!(TimeRange::around(Elapsed(100), 301), range(Elapsed(0), Elapsed(251)));
        let long = |at| TimeRange::around(Wall(at), u64::MAX);
        assert_eq!((long(-9).since, long(9).until), (Some(Wall(i64::MIN)), Some(Wall(i64::MAX))));
        assert!(!long(0).is_empty() && !TimeRange::default().is_empty());
        assert!(range(Wall(2), Wall(2)).is_empty() && range(Elapsed(3), Elapsed(2)).is_empty());
        assert!(!range(Wall(2), Elapsed(1)).is_empty(), "different clocks");
        assert!(TimeRange::default().is_all() && !long(0).is_all());
    }

    // Proves that a filter gets the points in wall time, and that points relative to the first
    // sample select nothing if a recording has no samples.
    #[test]
    fn a_filter_is_limited() {
        let range = TimeRange { since: Some(TimePoint::Wall(5)), until: Some(TimePoint::Elapsed(7)) };
        let folder = tempfile::tempdir().unwrap();
        let filter = range.limit(ReplayFilter::default(), &[folder.path().to_owned()]).unwrap();
        assert_eq!((filter.since_ns, filter.until_ns), (Some(5), None));
        assert!(filter.elapsed.is_none());
    }
}
