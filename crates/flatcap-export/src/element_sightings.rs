//! Which elements of lists are gone.

use std::collections::BTreeMap;

/// An element that was in no sample for so long is gone: samples may leave elements out, but
/// complete ones come each second.
const GONE_AFTER_NS: u64 = 2_200_000_000;

/// A list of a host: host and table.
type ListKey = (u64, usize);

/// When each element of lists was in a sample last.
#[derive(Debug, Default)]
pub(crate) struct ElementSightings {
    lists: BTreeMap<ListKey, SeenList>,
}

#[derive(Debug, Default)]
struct SeenList {
    /// Samples so far, with the element or without.
    samples: u64,
    elements: BTreeMap<u32, Sighting>,
}

/// A sample that has an element: its number among those of the list, and its monotonic time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) sample: u64,
    pub(crate) mono_ns: u64,
}

impl Sighting {
    /// Returns whether an element that was seen last here is gone at a later sample.
    fn is_gone(self, later: Self) -> bool {
        // A source may be slower.
        later.sample > self.sample + 1 && later.mono_ns.saturating_sub(self.mono_ns) > GONE_AFTER_NS
    }
}

impl ElementSightings {
    /// Counts samples of a list. Returns the number of the first one.
    pub(crate) fn add_samples(&mut self, list: ListKey, count: usize) -> u64 {
        let seen = self.lists.entry(list).or_default();
        let first = seen.samples;
        seen.samples += count as u64;
        first
    }

    /// Notes that a sample has an element of a list. If it was gone meanwhile, returns when it was
    /// seen last.
    pub(crate) fn see(&mut self, list: ListKey, element: u32, at: Sighting) -> Option<u64> {
        let before = self.lists.entry(list).or_default().elements.insert(element, at);
        before.filter(|before| before.is_gone(at)).map(|before| before.mono_ns)
    }

    /// Removes and returns the elements of a list that are gone at this sample, with the time at
    /// which they were seen last.
    pub(crate) fn take_gone(&mut self, list: ListKey, at: Sighting) -> Vec<(u32, u64)> {
        let Some(seen) = self.lists.get_mut(&list) else { return Vec::new() };
        let mut gone = Vec::new();
        seen.elements.retain(|element, sighting| {
            let is_gone = sighting.is_gone(at);
            gone.extend(is_gone.then_some((*element, sighting.mono_ns)));
            !is_gone
        });
        gone
    }

    /// Forgets all: another run begins.
    pub(crate) fn clear(&mut self) {
        self.lists.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: ListKey = (1, 2);

    fn at(sample: u64, ms: u64) -> Sighting {
        Sighting { sample, mono_ns: ms * 1_000_000 }
    }

    // Proves that an element is gone once, after it was in no sample for long, and that it is known
    // to have been gone when it is there again.
    #[test]
    fn elements_that_no_sample_has_are_gone() {
        let mut sightings = ElementSightings::default();
        assert_eq!((sightings.add_samples(LIST, 30), sightings.add_samples(LIST, 70)), (0, 30));
        for sample in 0..10 {
            assert_eq!(sightings.see(LIST, 7, at(sample, sample * 100)), None);
        }
        assert_eq!(sightings.see(LIST, 8, at(5, 500)), None);
        assert!(sightings.take_gone(LIST, at(26, 2600)).is_empty());
        assert_eq!(sightings.take_gone(LIST, at(28, 2800)), [(8, 500_000_000)]);
        assert_eq!(sightings.see(LIST, 7, at(40, 4000)), Some(900_000_000));
        assert_eq!(sightings.see(LIST, 8, at(41, 4100)), None);
        assert!(sightings.take_gone((1, 3), at(99, u64::MAX / 1_000_000)).is_empty());
    }

    // Proves that nothing is gone from one sample to the next, however slow the source is.
    #[test]
    fn slow_sources_lose_nothing() {
        let mut sightings = ElementSightings::default();
        for sample in 0..3 {
            assert_eq!(sightings.see(LIST, 7, at(sample, sample * 60_000)), None);
        }
        assert!(sightings.take_gone(LIST, at(3, 180_000)).is_empty());
        assert_eq!(sightings.take_gone(LIST, at(4, 240_000)), [(7, 120_000_000_000)]);
    }
}
