//! Series, their observations, and the trait that receives observations.

use super::measure::Measure;

/// Maximum number of series that are observed at the same time. Further series are only counted.
// A series takes about 300 bytes, or up to 1 KiB if its blocks differ.
const SERIES_MAX: usize = 1 << 16;

/// Maximum length of an observation. A longer observation is not continued.
const HELD_MAX_NS: u64 = 20_000_000_000;

/// The description of a series.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeriesInfo {
    pub(super) table: usize,
    pub(super) column: usize,
    pub(super) element: Option<u32>,
    pub(super) measure: Measure,
    /// The string value whose share is observed.
    pub(super) state: Option<Box<str>>,
    /// The monotonic time before which the series was 0; `None` if this is not known.
    pub(super) born_ns: Option<u64>,
    /// Whether the element of the series is new.
    pub(super) is_newcomer: bool,
}

/// The value of a series between two monotonic times, in the unit of its class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Observation {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) value: f64,
}

/// Receives the observations of all series.
pub(super) trait Observer {
    /// Whether the observer accepts a single observation for all samples in which the value stays
    /// the same.
    const JOINS: bool;
    /// Called when a series begins. The index `series` may have belonged to another series that has
    /// ended.
    fn begin(&mut self, series: usize, info: &SeriesInfo);
    /// Receives observations of a series. They are in time order and do not overlap.
    fn observe(&mut self, series: usize, info: &SeriesInfo, observations: &[Observation]);
    /// Called when a series ends.
    fn end(&mut self, series: usize, info: &SeriesInfo);
}

/// Assigns indexes to series and passes their observations to the observer.
pub(super) struct SeriesStore<'s, O> {
    pub(super) series: &'s mut Vec<SeriesInfo>,
    pub(super) free: &'s mut Vec<usize>,
    pub(super) left_out: &'s mut u64,
    pub(super) observer: &'s mut O,
    pub(super) observations: &'s mut Vec<Observation>, // reused
}

impl Observation {
    /// Returns whether an observation that begins at `from_ns` with this value may be joined to the
    /// current observation.
    #[inline]
    pub(super) fn continues(&self, from_ns: u64, value: f64) -> bool {
        self.to_ns == from_ns && self.value.to_bits() == value.to_bits() && self.may_grow(from_ns)
    }

    /// Returns whether the observation is short enough to be continued at `from_ns`.
    #[inline]
    pub(super) fn may_grow(&self, from_ns: u64) -> bool {
        from_ns.saturating_sub(self.from_ns) < HELD_MAX_NS
    }
}

impl<O: Observer> SeriesStore<'_, O> {
    /// Begins a series. A series above the limit gets an index whose observations are ignored.
    pub(super) fn begin(&mut self, info: SeriesInfo) -> usize {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.series.len() >= SERIES_MAX => {
                *self.left_out += 1;
                return usize::MAX;
            }
            None => {
                self.series.push(info.clone());
                self.series.len() - 1
            }
        };
        self.observer.begin(number, &info);
        if let Some(own) = self.series.get_mut(number) {
            *own = info;
        }
        number
    }

    pub(super) fn observe(&mut self, series: usize, observations: &[Observation]) {
        if let Some(info) = self.series.get(series) {
            self.observer.observe(series, info, observations);
        }
    }

    pub(super) fn end(&mut self, series: usize) {
        if let Some(info) = self.series.get(series) {
            self.observer.end(series, info);
            self.free.push(series);
        }
    }
}
