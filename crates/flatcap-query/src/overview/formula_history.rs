//! The last readings of a formula's fields. From these readings, the change per second of counters
//! over a given time is computed.

use std::collections::VecDeque;

use flatcap_format::schema::{CountedValue, FieldValue, Growth};

use super::drawn_value::Formula;

/// Maximum number of stored readings within the time over which a change is computed.
// This bounds both the error in the length of the interval and the memory at any sample rate.
const READINGS: u64 = 16;

/// The value of a field in one sample.
#[derive(Debug, Clone, Copy)]
pub struct FieldReading {
    number: f64,
    /// The count. `None` if the value of the field is not a count.
    counted: Option<CountedValue>,
}

/// The last readings of the fields of a formula.
#[derive(Debug, Default)]
pub struct FormulaHistory {
    /// The monotonic time of each reading, and the count of each field at this time.
    readings: VecDeque<(u64, Box<[Option<CountedValue>]>)>,
    /// The values of the formula's fields in the current sample, as floats. The vector is kept to
    /// reuse its memory.
    numbers: Vec<Option<f64>>,
}

/// The limits on the time over which a change is computed, in nanoseconds.
#[allow(clippy::struct_field_names, reason = "the unit belongs to each name")]
#[derive(Debug, Clone, Copy)]
pub struct ChangeTime {
    /// The preferred age of the reading with which a value is compared. The newest reading of at
    /// least this age is used, if there is one.
    pub wanted_ns: u64,
    /// Minimum age of the reading with which a value is compared. If no reading has the minimum
    /// age, there is no value.
    pub least_ns: u64,
    /// Maximum age of the reading with which a value is compared.
    // A change since an older reading would not describe the present.
    pub most_ns: u64,
}

impl FieldReading {
    /// Returns the reading of a value, or `None` if the value is a string, absent or not finite.
    pub fn of(value: FieldValue<'_>) -> Option<Self> {
        // A chart cannot be scaled to an infinite value.
        let number = value.number().filter(|number| number.is_finite())?;
        Some(Self { number, counted: CountedValue::of(value) })
    }
}

impl FormulaHistory {
    /// Returns the value of a formula at the current sample. Counters contribute their change per
    /// second over an interval that ends at this sample. There is no value if the change of a
    /// counter is unknown, for example after a reset.
    pub fn value(
        &mut self,
        formula: &Formula,
        mono_ns: u64,
        now: &[Option<FieldReading>],
        time: ChangeTime,
    ) -> Option<f64> {
        self.numbers.clear();
        // Gauges need no earlier readings.
        if !formula.has_counters() {
            self.numbers.extend(now.iter().map(|reading| Some((*reading)?.number)));
            return formula.value(&self.numbers);
        }
        while self.readings.front().is_some_and(|(at, _)| mono_ns.saturating_sub(*at) > time.most_ns) {
            self.readings.pop_front();
        }
        // The base is the newest reading that is old enough.
        while self.readings.get(1).is_some_and(|(at, _)| mono_ns.saturating_sub(*at) >= time.wanted_ns.max(1))
        {
            self.readings.pop_front();
        }
        let base = self.readings.front().filter(|(at, _)| mono_ns.saturating_sub(*at) >= time.least_ns);
        let value = base.and_then(|(at, before)| {
            for (field, (now, before)) in formula.fields.iter().zip(now.iter().zip(before)) {
                self.numbers.push(match now {
                    None => None,
                    Some(now) if !field.is_counter => Some(now.number),
                    // A share that is computed without this counter would be the share of another
                    // total.
                    Some(now) => Some(change((*at, (*before)?), (mono_ns, now.counted?))?),
                });
            }
            formula.value(&self.numbers)
        });
        // Closer readings would not make the interval more exact, and a fast source would fill the
        // memory. If several samples have the same time, the first one is kept.
        let spacing_ns = (time.wanted_ns / READINGS).max(1);
        if self.readings.back().is_none_or(|(at, _)| mono_ns.saturating_sub(*at) >= spacing_ns) {
            let counts = now.iter().map(|reading| (*reading)?.counted);
            self.readings.push_back((mono_ns, counts.collect()));
        }
        value
    }

    /// Returns the monotonic time of the last reading.
    pub(super) fn last_ns(&self) -> u64 {
        self.readings.back().map_or(0, |(at, _)| *at)
    }

    /// Removes all readings, because the counters begin again.
    pub fn clear(&mut self) {
        self.readings.clear();
    }
}

/// Returns the change per second, or `None` if the change is unknown. The change is below 0 if the
/// counter was corrected.
#[allow(clippy::cast_precision_loss, reason = "a length of time")]
fn change(before: (u64, CountedValue), now: (u64, CountedValue)) -> Option<f64> {
    let growth = Growth::between(before, now, None);
    growth.is_known().then(|| growth.amount / (growth.elapsed_ns as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::MetricKind;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    // Proves that a change is computed over the wanted time, over a shorter time at the start, and
    // not across a gap. Also proves that a counter that is reset has no change.
    #[test]
    fn changes_are_computed_over_the_wanted_time() {
        let formula = Formula::of_field("a", None, MetricKind::Counter);
        let time = ChangeTime { wanted_ns: 2 * SECOND, least_ns: SECOND, most_ns: 5 * SECOND };
        let mut history = FormulaHistory::default();
        let mut at = |second: u64, count: u64| {
            let now = FieldReading::of(FieldValue::Unsigned(count));
            history.value(&formula, second * SECOND, &[now], time)
        };
        assert_eq!(at(1, 10), None);
        assert_eq!(at(2, 20), Some(10.0));
        assert_eq!(at(3, 50), Some(20.0), "since second 1");
        assert_eq!(at(4, 50), Some(15.0), "since second 2");
        assert_eq!(at(5, 0), None, "it began again");
        assert_eq!(at(20, 100), None, "nothing is known of the time before");
    }
}
