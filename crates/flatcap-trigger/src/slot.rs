//! The current values of a field. A field has one number, or one number for each element of its
//! list.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use flatcap_format::schema::envelope::leaves_out_elements;
use flatcap_format::schema::{CountedValue, FieldValue};
use flatcap_query::language::{Scale, ValueTest};
use flatcap_query::{FieldPath, NO_ELEMENT, PayloadElement, SparseSamples};

use crate::limits;
use crate::series::{RawNumber, Series, Stage};

/// Converts a value of a payload to a number.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    /// The result is the number itself.
    Number,
    /// The result of a test, which is 1 or 0.
    Test(ValueTest),
    /// A hash of the value, so that different strings give different numbers.
    Identity,
}

impl Reading {
    #[inline]
    fn read(&self, value: FieldValue<'_>) -> RawNumber {
        match (self, value) {
            (Self::Test(test), value) => {
                test.passes(value).map_or(RawNumber::Unknown, |passes| RawNumber::Unsigned(passes.into()))
            }
            (Self::Identity, FieldValue::Text(text)) => {
                let mut hasher = DefaultHasher::new();
                text.hash(&mut hasher);
                // The hash has as many bits as a float represents exactly.
                RawNumber::Unsigned(hasher.finish() >> 11)
            }
            (_, value) => RawNumber::of(value),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number, Self::Number) | (Self::Identity, Self::Identity) => true,
            (Self::Test(one), Self::Test(other)) => one.is_same(other),
            _ => false,
        }
    }
}

/// The field of a slot, and the conversion of the field's values.
#[derive(Debug, Clone)]
pub(crate) struct SlotPlan {
    pub(crate) source: usize,
    /// The index of the field among the fields of its source that the rules read.
    pub(crate) field: usize,
    pub(crate) reading: Reading,
    pub(crate) stages: Vec<Stage>,
    /// The scale that converts values to base units.
    pub(crate) scale: Scale,
    pub(crate) is_list: bool,
    /// The index of the field that contains the range of the counter. The range is the value at
    /// which the counter wraps to 0.
    pub(crate) range: Option<usize>,
    pub(crate) sparse: SlotSparse,
}

/// Specifies which samples may omit existing elements of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotSparse {
    /// Only truncated samples omit elements.
    Cut,
    /// Any sample may omit elements.
    Any,
    /// A sample may omit elements if it was truncated, or if its field with this index is not 0.
    Unless0(usize),
}

impl SlotSparse {
    /// Returns which samples may omit elements of a list. `field` returns the index of a field.
    pub(crate) fn of(sparse: &SparseSamples, field: impl FnOnce(&FieldPath) -> usize) -> Self {
        match sparse {
            SparseSamples::Cut => Self::Cut,
            SparseSamples::Any => Self::Any,
            SparseSamples::Unless0(path) => Self::Unless0(field(path)),
        }
    }
}

impl SlotPlan {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        // The list, the range and the sparse samples are determined by the field, so they need no
        // comparison.
        (self.source, self.field, &self.stages, self.scale)
            == (other.source, other.field, &other.stages, other.scale)
            && self.reading.is_same(&other.reading)
    }

    /// Returns the maximum number of samples in the windows of one element.
    fn samples_max(&self) -> u64 {
        self.stages.iter().map(|stage| stage.samples_max as u64).sum()
    }

    /// Returns the maximum number of tracked elements.
    fn elements_max(&self) -> usize {
        let fitting = limits::FIELD_SAMPLES_MAX / self.samples_max().max(1);
        usize::try_from(fitting).unwrap_or(usize::MAX).clamp(1, limits::FOLLOWED_ELEMENTS_MAX)
    }

    /// Returns the maximum memory size of the slot's windows, in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        /// Size in bytes of a sample in the window type whose samples are largest.
        const SAMPLE_BYTES: u64 = 32;
        let elements = if self.is_list { self.elements_max() as u64 } else { 1 };
        elements * (self.samples_max() * SAMPLE_BYTES + size_of::<TrackedElement>() as u64)
    }
}

/// The values of a field in the last sample of its source.
#[derive(Debug)]
pub(crate) struct FieldSlot {
    pub(crate) plan: SlotPlan,
    /// The value of a field outside of lists, in base units. NaN if the value is unknown.
    pub(crate) value: f64,
    /// The values of the elements in the last sample, in the order of the sample.
    pub(crate) rows: Vec<f64>,
    /// The numbers that identify the elements in `rows`.
    pub(crate) elements: Vec<u32>,
    /// For each row, the number that identifies the first element with the same identity.
    firsts: Vec<u32>,
    /// The ranges of the counters. The ranges are read before the counters.
    ranges: Vec<Option<CountedValue>>,
    series: Series,
    followed: Vec<TrackedElement>,
    places: HashMap<u32, usize>,
    cursor: usize,
    swept_ns: u64,
    /// The index of the current sample.
    sample: u64,
    /// The index of the last complete sample before the current sample, or 0 if there is none.
    complete_before: u64,
    /// Whether the current sample may omit elements. The next field states whether the sample
    /// declares itself complete.
    leaves_out: bool,
    is_whole: bool,
    /// Number of values of elements that were not tracked because there were too many elements.
    pub(crate) untracked: u64,
}

/// An element whose values are tracked over time.
#[derive(Debug)]
struct TrackedElement {
    /// The number that identifies the first element with this identity.
    element: u32,
    seen_ns: u64,
    /// The index of the last sample that contains the element.
    sample: u64,
    /// Whether the last sample with the element contains several elements with the same identity.
    is_ambiguous: bool,
    series: Series,
}

impl FieldSlot {
    pub(crate) fn new(plan: SlotPlan) -> Self {
        Self {
            series: Series::new(&plan.stages),
            plan,
            value: f64::NAN,
            rows: Vec::new(),
            elements: Vec::new(),
            firsts: Vec::new(),
            ranges: Vec::new(),
            followed: Vec::new(),
            places: HashMap::new(),
            cursor: 0,
            swept_ns: 0,
            sample: 0,
            complete_before: 0,
            // So far no sample has proven that an element was missing.
            leaves_out: true,
            is_whole: false,
            untracked: 0,
        }
    }

    /// Discards all values.
    pub(crate) fn reset(&mut self) {
        self.begin();
        self.series = Series::new(&self.plan.stages);
        self.followed.clear();
        self.places.clear();
    }

    /// Starts a sample, whose values replace the values of the previous sample.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.value = f64::NAN;
        self.rows.clear();
        self.elements.clear();
        self.firsts.clear();
        self.ranges.clear();
        self.cursor = 0;
        if !self.leaves_out {
            self.complete_before = self.sample;
        }
        self.sample += 1;
        (self.leaves_out, self.is_whole) = (true, false);
    }

    /// Ends a sample. `flags` are the flags of the sample's header.
    #[inline]
    pub(crate) fn end(&mut self, flags: u16) {
        self.leaves_out = leaves_out_elements(flags)
            || match self.plan.sparse {
                SlotSparse::Cut => false,
                SlotSparse::Any => true,
                SlotSparse::Unless0(_) => !self.is_whole,
            };
    }

    /// Adds the range of a counter. The caller must add the range before the counter. In a list,
    /// ranges and counters are each in the order of the elements.
    pub(crate) fn take_range(&mut self, value: FieldValue<'_>) {
        self.ranges.push(CountedValue::of(value));
    }

    /// Sets the number of elements that the sample omits.
    pub(crate) fn take_left_out(&mut self, value: FieldValue<'_>) {
        self.is_whole = value == FieldValue::Unsigned(0);
    }

    /// Adds a value of the sample. The series of an element restarts in two cases. Either a
    /// complete sample since the last value of the element lacked the element, or no sample
    /// contained the element for `pause_ns`. If a sample contains several elements with the same
    /// identity, their values are unknown.
    #[inline]
    pub(crate) fn take(
        &mut self,
        mono_ns: u64,
        pause_ns: u64,
        element: Option<PayloadElement>,
        value: FieldValue<'_>,
    ) {
        let raw = self.plan.reading.read(value);
        let range = self.ranges.get(self.rows.len()).copied().flatten();
        // Values without transforms need no history. So elements without numbers, such as the ends
        // of processes, can also be compared.
        let number = if self.plan.stages.is_empty() {
            raw.float()
        } else if let Some(element) = element {
            self.firsts.push(element.first);
            self.follow(element.first, (mono_ns, pause_ns), raw, range)
        } else {
            self.series.push(&self.plan.stages, mono_ns, raw, range)
        };
        let number = self.plan.scale.apply(number);
        match element {
            Some(element) => {
                self.rows.push(number);
                self.elements.push(element.number);
            }
            None => self.value = number,
        }
    }

    /// Adds a value to the series of an element, and returns the value after the transforms.
    fn follow(
        &mut self,
        element: u32,
        (mono_ns, pause_ns): (u64, u64),
        raw: RawNumber,
        range: Option<CountedValue>,
    ) -> f64 {
        // In most lists, elements keep their order from sample to sample, so the next element is
        // tried first.
        let place = self.followed.get(self.cursor).filter(|own| own.element == element).map(|_| self.cursor);
        let place = place.or_else(|| self.places.get(&element).copied());
        let place = place.or_else(|| self.add(element, mono_ns, pause_ns));
        let stages = &self.plan.stages;
        let Some((place, own)) = place.and_then(|place| Some((place, self.followed.get_mut(place)?))) else {
            self.untracked += 1;
            return f64::NAN;
        };
        self.cursor = place + 1;
        // It is unknown to which of the elements with this identity the earlier values belong.
        if own.sample == self.sample {
            own.series = Series::new(stages);
            own.is_ambiguous = true;
            for (known, row) in self.firsts.iter().zip(&mut self.rows) {
                *row = if *known == element { f64::NAN } else { *row };
            }
            return f64::NAN;
        }
        let has_ended = own.sample < self.complete_before;
        if has_ended || own.is_ambiguous || mono_ns.saturating_sub(own.seen_ns) > pause_ns {
            own.series = Series::new(stages);
        }
        (own.seen_ns, own.sample, own.is_ambiguous) = (mono_ns, self.sample, false);
        own.series.push(stages, mono_ns, raw, range)
    }

    /// Starts to track an element. Returns the position of the element, or `None` if there are too
    /// many elements.
    fn add(&mut self, element: u32, mono_ns: u64, pause_ns: u64) -> Option<usize> {
        if element == NO_ELEMENT {
            return None;
        }
        let elements_max = self.plan.elements_max();
        // A sweep visits all elements, so a list that stays full is swept at most twice in the time
        // `pause_ns`.
        if self.followed.len() >= elements_max && mono_ns.saturating_sub(self.swept_ns) > pause_ns / 2 {
            self.swept_ns = mono_ns;
            self.followed.retain(|own| mono_ns.saturating_sub(own.seen_ns) <= pause_ns);
            self.places = self.followed.iter().enumerate().map(|(place, own)| (own.element, place)).collect();
        }
        if self.followed.len() >= elements_max {
            return None;
        }
        let series = Series::new(&self.plan.stages);
        // The number 0 means that no earlier sample contains the element.
        let sample = 0;
        self.followed.push(TrackedElement { element, seen_ns: mono_ns, sample, is_ambiguous: false, series });
        self.places.insert(element, self.followed.len() - 1);
        Some(self.followed.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use flatcap_query::language::Transform;

    use super::*;

    fn slot(samples_max: usize, is_sparse: bool) -> FieldSlot {
        let stage = Stage { transform: Transform::Delta(None), is_counter: true, samples_max };
        let reading = Reading::Number;
        FieldSlot::new(SlotPlan {
            source: 0,
            field: 0,
            reading,
            stages: vec![stage],
            scale: Scale::One,
            is_list: true,
            range: None,
            sparse: if is_sparse { SlotSparse::Any } else { SlotSparse::Cut },
        })
    }

    fn take(slot: &mut FieldSlot, mono_ns: u64, elements: &[(u32, u64)]) -> Vec<Option<f64>> {
        slot.begin();
        for (element, value) in elements {
            let element = PayloadElement { number: *element, first: *element };
            slot.take(mono_ns, 10, Some(element), FieldValue::Unsigned(*value));
        }
        slot.end(0);
        slot.rows.iter().map(|value| Some(*value).filter(|value| !value.is_nan())).collect()
    }

    // Proves that the values of an element are compared with earlier values of the same element, in
    // any order of elements. Also proves that the series of an element restarts after the element
    // was absent for a long time.
    #[test]
    fn elements_have_a_past_of_their_own() {
        let mut slot = slot(2, true);
        assert_eq!(take(&mut slot, 1, &[(7, 10), (8, 20)]), [None, None]);
        assert_eq!(take(&mut slot, 2, &[(8, 25), (7, 11)]), [Some(5.0), Some(1.0)]);
        assert_eq!(take(&mut slot, 3, &[(8, 26)]), [Some(1.0)]);
        assert_eq!(take(&mut slot, 4, &[(7, 14), (8, 26), (9, 1)]), [Some(3.0), Some(0.0), None]);
        assert_eq!(take(&mut slot, 15, &[(7, 20), (8, 27)]), [None, None]);
    }

    // Proves that an element that is missing from a sample has ended, unless samples may omit the
    // element. Also proves that the values of elements with the same identity are unknown in that
    // sample and in the next sample.
    #[test]
    fn changes_do_not_span_an_absence() {
        for (is_sparse, after) in [(true, Some(4.0)), (false, None)] {
            let mut slot = slot(2, is_sparse);
            assert_eq!(take(&mut slot, 1, &[(7, 10), (8, 20)]), [None, None]);
            assert_eq!(take(&mut slot, 2, &[(8, 25)]), [Some(5.0)]);
            assert_eq!(take(&mut slot, 3, &[(7, 14), (8, 26)]), [after, Some(1.0)]);
            assert_eq!(take(&mut slot, 4, &[(7, 15), (8, 26), (7, 90)]), [None, Some(0.0), None]);
            assert_eq!(take(&mut slot, 5, &[(7, 16), (8, 26)]), [None, Some(0.0)]);
            assert_eq!(take(&mut slot, 6, &[(7, 19), (8, 26)]), [Some(3.0), Some(0.0)]);
        }
    }

    // Proves that elements beyond the limit are unknown and counted, and that elements that have
    // ended no longer count toward the limit.
    #[test]
    fn followed_elements_are_bounded() {
        let fitting = 8;
        let mut slot = slot(usize::try_from(limits::FIELD_SAMPLES_MAX).unwrap() / fitting, true);
        let elements = |from: u32| (from..from + 10).map(|element| (element, 1)).collect::<Vec<_>>();
        for time in 1..4 {
            take(&mut slot, time, &elements(0));
        }
        assert_eq!((slot.followed.len(), slot.untracked), (8, 6));
        take(&mut slot, 20, &elements(100));
        assert_eq!(take(&mut slot, 21, &elements(100)).iter().flatten().count(), 8);
        assert_eq!((slot.followed.len(), slot.places.len()), (8, 8));
        assert!(take(&mut slot, 22, &[(NO_ELEMENT, 1)])[0].is_none());
    }
}
