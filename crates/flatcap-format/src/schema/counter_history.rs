//! Keeps the last counter values of each element of a list, to compare them with the next sample.

use std::collections::HashMap;

use super::counter::{CountedValue, Growth};

/// Number of additional elements that the history may hold before it removes ended elements. The
/// history removes ended elements when the number of its elements exceeds this number plus twice
/// the number of elements that remained after the last removal.
const ENDED_MAX: usize = 1 << 10;
/// Maximum number of elements whose values are kept. The number of elements in a query has the same
/// limit.
const ELEMENTS_MAX: usize = 1 << 17;

/// Computes the growth of the counters of one list's elements between samples.
///
/// An element has ended if a complete sample does not contain it. A later element with the same
/// identity is a new element. If two elements of one sample have the same identity, they cannot be
/// distinguished. So the growth of both elements is unknown in this sample and in the next one.
#[derive(Debug, Default)]
pub struct CounterHistory {
    /// The number of the current sample, counted from 1.
    sample: u64,
    leaves_out: bool,
    /// The number of the last complete sample before the current one, or 0.
    complete_before: u64,
    /// The index of each element in `elements`, by the identity of the element.
    places: HashMap<u64, usize>,
    elements: Vec<ElementCounters>,
    /// The number of elements at which ended elements are removed next.
    sweep_at: usize,
}

/// The result of comparing an element of a sample with earlier samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementPresence {
    /// The element was in an earlier sample and has not ended, or no earlier sample was complete.
    Known,
    /// The element had ended, or was not in an earlier sample.
    New,
    /// The sample has several elements with this identity.
    Ambiguous,
}

#[derive(Debug)]
struct ElementCounters {
    key: u64,
    /// The number of the last sample that contains the element.
    seen: u64,
    row: ElementPresence,
    /// The time and the value that were last added to each column.
    last: Vec<Option<(u64, CountedValue)>>,
}

impl CounterHistory {
    /// Begins a sample. If `leaves_out` is set, the sample may lack elements that exist.
    pub fn begin_sample(&mut self, leaves_out: bool) {
        if self.sample > 0 && !self.leaves_out {
            self.complete_before = self.sample;
        }
        if self.elements.len() > self.sweep_at {
            self.sweep();
        }
        self.sample += 1;
        self.leaves_out = leaves_out;
    }

    /// Adds an element of the sample. Call this function before [`growth`](Self::growth) for the
    /// same element. Returns the element's index, which is valid until the next sample.
    pub fn add_element(&mut self, key: u64) -> usize {
        let next = self.elements.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            let last = Vec::new();
            let row = if self.complete_before > 0 { ElementPresence::New } else { ElementPresence::Known };
            self.elements.push(ElementCounters { key, seen: self.sample, row, last });
        } else if let Some(own) = self.elements.get_mut(place) {
            if own.seen == self.sample {
                own.row = ElementPresence::Ambiguous;
                own.last.clear();
            } else {
                own.row = ElementPresence::Known;
                if own.seen < self.complete_before {
                    own.row = ElementPresence::New;
                    own.last.clear();
                }
                own.seen = self.sample;
            }
        }
        place
    }

    /// Classifies an element of the sample. Call this function after all elements of the sample
    /// were added. If no element has this index, the result is ambiguous.
    pub fn row(&self, place: usize) -> ElementPresence {
        self.elements.get(place).map_or(ElementPresence::Ambiguous, |own| own.row)
    }

    /// Returns whether a complete sample lacks the element, although an earlier sample contains it.
    /// This includes the current sample if it is complete. An element that was never added is
    /// treated as ended.
    pub fn has_ended(&self, key: u64) -> bool {
        let complete = if self.leaves_out { self.complete_before } else { self.sample };
        let own = self.places.get(&key).and_then(|place| self.elements.get(*place));
        own.is_none_or(|own| own.seen < complete)
    }

    /// Adds the current value of an element's column, and returns the growth since the last value.
    /// Of several values with the same time, only the first is kept. The growth of the later values
    /// is included in the next growth.
    pub fn growth(
        &mut self,
        place: usize,
        column: usize,
        now: (u64, CountedValue),
        wraps_at: Option<CountedValue>,
    ) -> Growth {
        let own = self.elements.get_mut(place).filter(|own| own.row != ElementPresence::Ambiguous);
        let Some(own) = own else { return Growth::UNKNOWN };
        if own.last.len() <= column {
            own.last.resize(column + 1, None);
        }
        let Some(last) = own.last.get_mut(column) else { return Growth::UNKNOWN };
        if last.is_some_and(|before| before.0 == now.0) {
            return Growth::UNKNOWN;
        }
        let before = last.replace(now);
        before.map_or(Growth::UNKNOWN, |before| Growth::between(before, now, wraps_at))
    }

    /// Removes elements that have ended. If too many elements remain, keeps only the elements of
    /// the current sample, to limit the memory.
    fn sweep(&mut self) {
        let complete_before = self.complete_before;
        self.elements.retain(|own| own.seen >= complete_before);
        if self.elements.len() > ELEMENTS_MAX {
            let sample = self.sample;
            self.elements.retain(|own| own.seen == sample);
        }
        self.sweep_at = self.elements.len() * 2 + ENDED_MAX;
        self.places = self.elements.iter().enumerate().map(|(place, own)| (own.key, place)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a sample whose elements have one counter each. Returns the growths of the elements.
    fn add(
        history: &mut CounterHistory,
        leaves_out: bool,
        at_ns: u64,
        elements: &[(u64, u64)],
    ) -> Vec<Growth> {
        history.begin_sample(leaves_out);
        let places: Vec<usize> = elements.iter().map(|(key, _)| history.add_element(*key)).collect();
        let values = elements.iter().map(|(_, value)| CountedValue::Unsigned(*value));
        places
            .iter()
            .zip(values)
            .map(|(place, value)| history.growth(*place, 0, (at_ns, value), None))
            .collect()
    }

    fn grown(amount: f64, elapsed_ns: u64) -> Growth {
        Growth { amount, elapsed_ns }
    }

    // Proves that an element has ended if a complete sample lacks it. Proves that the element
    // continues if only a sample that leaves out elements lacks it.
    #[test]
    fn an_element_ends_with_a_complete_sample_without_it() {
        let mut history = CounterHistory::default();
        add(&mut history, false, 1, &[(1, 10), (2, 20)]);
        assert_eq!(add(&mut history, false, 2, &[(1, 11)]), [grown(1.0, 1)]);
        assert_eq!(add(&mut history, false, 3, &[(1, 12), (2, 90)]), [grown(1.0, 1), Growth::UNKNOWN]);
        add(&mut history, true, 4, &[]);
        assert_eq!(add(&mut history, true, 5, &[(2, 94)]), [grown(4.0, 2)]);
        assert_eq!(add(&mut history, false, 6, &[(1, 15), (2, 95)]), [grown(3.0, 3), grown(1.0, 1)]);
        add(&mut history, false, 7, &[(1, 15)]);
        add(&mut history, true, 8, &[]);
        assert_eq!(add(&mut history, true, 9, &[(1, 16), (2, 99)]), [grown(1.0, 2), Growth::UNKNOWN]);
    }

    // Proves that two elements with the same identity have no growth, and that if one of them
    // remains, it has no growth in the next sample.
    #[test]
    fn two_elements_of_one_identity_have_no_growth() {
        let mut history = CounterHistory::default();
        add(&mut history, false, 1, &[(1, 10)]);
        assert_eq!(add(&mut history, false, 2, &[(1, 11), (1, 500)]), [Growth::UNKNOWN; 2]);
        assert_eq!(add(&mut history, false, 3, &[(1, 12)]), [Growth::UNKNOWN]);
        assert_eq!(add(&mut history, false, 4, &[(1, 15)]), [grown(3.0, 1)]);
    }

    // Proves that the growth between samples with the same time is part of the next growth. An
    // import may have several rows with the same time.
    #[test]
    fn no_growth_is_lost_between_samples_of_one_time() {
        let mut history = CounterHistory::default();
        let times_and_values = [(1, 0), (2, 10), (2, 20), (2, 25), (3, 30), (4, 40)];
        let growths =
            times_and_values.map(|(at_ns, value)| add(&mut history, false, at_ns, &[(1, value)])[0]);
        let unknown = Growth::UNKNOWN;
        assert_eq!(growths, [unknown, grown(10.0, 1), unknown, unknown, grown(20.0, 1), grown(10.0, 1)]);
    }

    // Proves that memory is bounded for any number of short-lived elements, and that elements that
    // remain keep their values.
    #[test]
    fn ended_elements_are_removed() {
        for leaves_out in [false, true] {
            let mut history = CounterHistory::default();
            let mut most = 0;
            for at in 1..200_000_u64 {
                let growths = add(&mut history, leaves_out, at, &[(1, at), (at + 1, 0)]);
                assert!(at == 1 || growths[0] == grown(1.0, 1), "{at} {growths:?}");
                most = most.max(history.elements.len());
            }
            assert!(most <= 2 * ELEMENTS_MAX + ENDED_MAX + 4 && history.places.len() <= most, "{most}");
        }
    }
}
