//! Repeated and missing values of the fields of applications and imports.

use super::element_row::{ElementRow, Number, SeriesPlace};
use super::measure::Measure;
use super::observation::{Observation, Observer, SeriesInfo, SeriesStore};

/// The state name of a series that counts the samples with the same value as the previous sample.
pub(super) const UNCHANGED: &str = "unchanged";
/// The state name of a series that counts the samples without a value.
pub(super) const ABSENT: &str = "absent";
/// If a field has changed at each sample for this time, its first repeated or missing value is
/// unusual.
// The length is the shortest baseline of `spikes`.
const KNOWN_AFTER_NS: u64 = 8_000_000_000;

/// Counts repeated and missing values of a field. A sensor that hangs repeats its last value, and a
/// sensor that fails has no value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FreshCell {
    /// The bits of the last value.
    last: Option<u64>,
    /// Number of samples that have repeated the last value.
    repeated: u64,
    /// The time of the first value.
    first_ns: Option<u64>,
    pub(super) unchanged: Option<usize>,
    pub(super) absent: Option<usize>,
}

impl FreshCell {
    /// Observes the number of consecutive samples that repeat a value, and whether a value exists.
    pub(super) fn observe(
        &mut self,
        (place, column): (&SeriesPlace, usize),
        value: Option<Number>,
        row: &ElementRow,
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        if row.interval_ns().is_none() {
            return;
        }
        let first_ns = self.first_ns;
        // A series that begins late is known to have been 0 before if the field had new values
        // until then.
        let is_known =
            |from_ns: u64| first_ns.is_some_and(|first| first.saturating_add(KNOWN_AFTER_NS) <= from_ns);
        let begin = |store: &mut SeriesStore<'_, _>, measure, state: &str| {
            let born_ns = place.born_ns.or(is_known(row.from_ns).then_some(row.from_ns));
            let info = SeriesInfo { state: Some(state.into()), born_ns, ..place.info(column, measure) };
            // The series is new, but its element is not.
            store.begin(SeriesInfo { is_newcomer: false, ..info })
        };
        let observed = |value: f64| [Observation { from_ns: row.from_ns, to_ns: row.to_ns, value }];
        // Most fields always have a value, so a series begins only with the first missing value.
        if value.is_none() && first_ns.is_some() && self.absent.is_none() {
            self.absent = Some(begin(store, Measure::ABSENT, ABSENT));
        }
        if let Some(absent) = self.absent {
            store.observe(absent, &observed(f64::from(u8::from(value.is_none()))));
        }
        let Some(value) = value else { return };
        self.first_ns.get_or_insert(row.from_ns);
        let bits = value.bits();
        let is_repeated = self.last.replace(bits) == Some(bits);
        self.repeated = if is_repeated { self.repeated + 1 } else { 0 };
        if is_repeated && self.unchanged.is_none() {
            self.unchanged = Some(begin(store, Measure::UNCHANGED, UNCHANGED));
        }
        if let Some(unchanged) = self.unchanged {
            #[allow(clippy::cast_precision_loss, reason = "a count of samples")]
            store.observe(unchanged, &observed(self.repeated as f64));
        }
    }
}
