//! The last readings of counters, to compute their change per second over a given time.

use std::collections::VecDeque;

use super::formula::{Formula, Number};

/// Readings kept per change time.
// This bounds both the error in the length of the interval and the memory at any sample rate.
const READINGS: u64 = 16;

/// The numbers of a formula in one sample, by field.
type Numbers = Box<[Option<Number>]>;

/// The last readings of the fields of a formula.
#[derive(Debug, Default)]
pub(super) struct History {
    readings: VecDeque<(u64, Numbers)>,
}

/// The time over which changes are computed, in nanoseconds.
#[allow(clippy::struct_field_names, reason = "the unit belongs to each name")]
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangeTime {
    /// The preferred age of the base reading, if there is a reading that old.
    pub(super) wanted_ns: u64,
    /// Minimum age of the base reading: without one there is no value.
    pub(super) least_ns: u64,
    /// Maximum age of the base reading.
    // An older reading says nothing about the present.
    pub(super) most_ns: u64,
}

impl History {
    /// Returns the value of a formula, with the change of its counters over an interval that ends
    /// now.
    pub(super) fn value(
        &mut self,
        formula: &Formula,
        mono_ns: u64,
        numbers: Numbers,
        time: ChangeTime,
    ) -> Option<f64> {
        // Gauges need no earlier readings.
        if !formula.has_counters() {
            let numbers: Vec<Option<f64>> = numbers.iter().map(|number| number.map(Number::float)).collect();
            return formula.value(&numbers);
        }
        while self.readings.front().is_some_and(|(at, _)| mono_ns.saturating_sub(*at) > time.most_ns) {
            self.readings.pop_front();
        }
        // The newest reading that is old enough is the base.
        while self.readings.get(1).is_some_and(|(at, _)| mono_ns.saturating_sub(*at) >= time.wanted_ns) {
            self.readings.pop_front();
        }
        let value = self.readings.front().and_then(|(at, before)| {
            let elapsed_ns =
                mono_ns.checked_sub(*at).filter(|elapsed| *elapsed > 0 && *elapsed >= time.least_ns)?;
            #[allow(clippy::cast_precision_loss, reason = "a length of time")]
            let seconds = elapsed_ns as f64 / 1e9;
            let pairs = formula.fields.iter().zip(numbers.iter().zip(before.iter()));
            let rates: Vec<Option<f64>> = pairs
                .map(|(field, (now, before))| {
                    if !field.is_counter {
                        return now.map(Number::float);
                    }
                    Some((*now)?.since((*before)?)? / seconds)
                })
                .collect();
            formula.value(&rates)
        });
        // Closer readings would not make the interval more exact, and a fast source would fill the
        // memory.
        let spacing_ns = time.wanted_ns / READINGS;
        if self.readings.back().is_none_or(|(at, _)| mono_ns.saturating_sub(*at) >= spacing_ns) {
            self.readings.push_back((mono_ns, numbers));
        }
        value
    }

    pub(super) fn clear(&mut self) {
        self.readings.clear();
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::MetricKind;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    // Proves that a change is computed over the wanted time, over a shorter time at the start, and
    // not across a gap; and that a counter that is reset has no change.
    #[test]
    fn changes_are_computed_over_the_wanted_time() {
        let formula = Formula::of_field("a", None, MetricKind::Counter);
        let time = ChangeTime { wanted_ns: 2 * SECOND, least_ns: SECOND, most_ns: 5 * SECOND };
        let mut history = History::default();
        let mut at = |second: u64, count: u64| {
            history.value(&formula, second * SECOND, Box::new([Some(Number::Integer(count))]), time)
        };
        assert_eq!(at(1, 10), None);
        assert_eq!(at(2, 20), Some(10.0));
        assert_eq!(at(3, 50), Some(20.0), "since second 1");
        assert_eq!(at(4, 50), Some(15.0), "since second 2");
        assert_eq!(at(5, 0), None, "it began anew");
        assert_eq!(at(20, 100), None, "nothing is known of the time before");
    }
}
