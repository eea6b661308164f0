//! Tracks for which sequence numbers of a source the segment has a sample or a gap.

use std::ops::Range;

/// The sequence numbers for which the segment has a sample or a gap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SequenceNumbers {
    ranges: Vec<Range<u64>>, // in any order; may overlap
}

impl SequenceNumbers {
    /// Adds consecutive numbers.
    pub(crate) fn add(&mut self, first: u64, count: u64) {
        let end = first.saturating_add(count);
        match self.ranges.last_mut() {
            // Samples come in order, so most numbers only extend the last range.
            Some(last) if last.end == first => last.end = end,
            _ => self.ranges.push(first..end),
        }
    }

    /// Returns the sequence numbers in a range that were not added, in ascending order.
    pub(crate) fn missing(mut self, within: Range<u64>) -> Vec<Range<u64>> {
        self.ranges.sort_unstable_by_key(|range| range.start);
        let mut missing = Vec::new();
        let mut next = within.start;
        for range in self.ranges {
            let (start, end) = (range.start.min(within.end), range.end.min(within.end));
            if start > next {
                missing.push(next..start);
            }
            next = next.max(end);
        }
        if next < within.end {
            missing.push(next..within.end);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that exactly the numbers that are in neither rows nor gaps are missing, in whichever
    // order rows and gaps are added.
    #[test]
    fn the_rest_is_missing() {
        let mut numbers = SequenceNumbers::default();
        for (first, count) in [(10, 1), (11, 1), (14, 2), (12, 1), (20, 100), (15, 2)] {
            numbers.add(first, count);
        }
        let missing = |numbers: &SequenceNumbers, within| -> Vec<(u64, u64)> {
            let ranges = numbers.clone().missing(within).into_iter();
            ranges.map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(missing(&numbers, 10..25), [(13, 14), (17, 20)]);
        assert_eq!(missing(&numbers, 8..9), [(8, 9)]);
        assert_eq!(missing(&numbers, 0..11), [(0, 10)]);
        assert_eq!(missing(&numbers, 118..122), [(120, 122)]);
        assert_eq!(missing(&SequenceNumbers::default(), 3..5), [(3, 5)]);
        assert_eq!(missing(&SequenceNumbers::default(), 5..5), []);
    }
}
