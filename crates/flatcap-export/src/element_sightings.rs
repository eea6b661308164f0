//! Which elements of lists are gone.

use std::collections::BTreeMap;

/// An element that no sample had for so long is gone: samples may leave elements out, but complete
/// ones come each second.
const GONE_AFTER_NS: u64 = 2_200_000_000;

/// When each element of the lists of a host was in a sample last.
#[derive(Debug, Default)]
pub(crate) struct ElementSightings {
    /// By list, in monotonic nanoseconds of the run.
    lists: BTreeMap<(u64, usize), BTreeMap<u32, Sighting>>,
}

#[derive(Debug, Clone, Copy)]
struct Sighting {
    last_ns: u64,
    /// Since the time before; 0 after the first one.
    gap_ns: u64,
}

impl ElementSightings {
    /// Notes that a sample has an element of a list: host and table.
    pub(crate) fn see(&mut self, list: (u64, usize), element: u32, mono_ns: u64) {
        let seen = self.lists.entry(list).or_default();
        let sighting = seen.entry(element).or_insert(Sighting { last_ns: mono_ns, gap_ns: 0 });
        if mono_ns > sighting.last_ns {
            *sighting = Sighting { last_ns: mono_ns, gap_ns: mono_ns - sighting.last_ns };
        }
    }

    /// Removes and returns the elements of a list that are gone at this time, with the time at
    /// which the next sample would have had them.
    pub(crate) fn take_gone(&mut self, list: (u64, usize), now_ns: u64) -> Vec<(u32, u64)> {
        let Some(seen) = self.lists.get_mut(&list) else { return Vec::new() };
        let mut gone = Vec::new();
        seen.retain(|element, sighting| {
            let kept_ns = GONE_AFTER_NS.max(sighting.gap_ns.saturating_mul(2));
            let is_gone = now_ns.saturating_sub(sighting.last_ns) > kept_ns;
            if is_gone {
                gone.push((*element, sighting.last_ns.saturating_add(sighting.gap_ns.max(1))));
            }
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

    const MS: u64 = 1_000_000;

    // Proves that an element is gone once, after it was in no sample for long, and by its own gaps
    // if these are longer.
    #[test]
    fn elements_that_no_sample_has_are_gone() {
        let list = (1, 2);
        let mut sightings = ElementSightings::default();
        for at in 0..10 {
            sightings.see(list, 7, at * 100 * MS);
            sightings.see(list, 8, at * 5000 * MS);
        }
        assert!(sightings.take_gone(list, 3000 * MS).is_empty());
        assert_eq!(sightings.take_gone(list, 3101 * MS), [(7, 1000 * MS)]);
        assert!(sightings.take_gone(list, 55_000 * MS).is_empty());
        assert_eq!(sightings.take_gone(list, 55_001 * MS), [(8, 50_000 * MS)]);
        assert!(sightings.take_gone((1, 3), u64::MAX).is_empty());
    }
}
