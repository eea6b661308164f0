//! Bytes that are the same, at the same offsets, in all payloads with the same structure.

use std::ops::Range;

const WORD_BYTES: usize = 8;
/// Minimum length, in bytes, of a range that is compared by one call of a comparison function.
// For shorter ranges, the call would take longer than the comparison of a few words.
const LONG_BYTES: usize = 32;

/// The fixed bytes of a payload, and their offsets.
#[derive(Debug)]
pub(super) struct FixedContent {
    payload_bytes: usize,
    /// The ranges of all fixed bytes. The ranges are in order, and no two of them are adjacent.
    ranges: Vec<Range<usize>>,
    /// The fixed bytes of short ranges.
    words: Vec<FixedWord>,
    /// The fixed bytes of long ranges.
    long: Vec<(Range<usize>, Box<[u8]>)>,
}

/// Eight bytes of a payload, of which some are fixed.
#[derive(Debug)]
struct FixedWord {
    at: usize,
    mask: u64,
    value: u64,
}

impl FixedContent {
    /// Returns the content of these ranges of a payload. The ranges may be in any order.
    pub(super) fn of(payload: &[u8], ranges: Vec<Range<usize>>) -> Self {
        let ranges = joined(ranges);
        let is_long = |range: &&Range<usize>| range.len() >= LONG_BYTES;
        let content = |range: &Range<usize>| Box::from(payload.get(range.clone()).unwrap_or_default());
        let long = ranges.iter().filter(is_long).map(|range| (range.clone(), content(range))).collect();
        let mut words: Vec<FixedWord> = Vec::new();
        for at in ranges.iter().filter(|range| !is_long(range)).flat_map(Range::clone) {
            if words.last().is_none_or(|last| at >= last.at + WORD_BYTES) {
                // A word must not reach beyond the end of the payload.
                let at = at.min(payload.len().saturating_sub(WORD_BYTES));
                words.push(FixedWord { at, mask: 0, value: 0 });
            }
            if let Some(word) = words.last_mut() {
                word.mask |= 0xff << (8 * (at - word.at));
            }
        }
        for word in &mut words {
            word.value = word_at(payload, word.at) & word.mask;
        }
        Self { payload_bytes: payload.len(), ranges, words, long }
    }

    /// Returns whether a payload has the same length as the original payload, and the same bytes at
    /// the fixed offsets.
    #[inline]
    pub(super) fn are_in(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes
            && self.words.iter().all(|word| word_at(payload, word.at) & word.mask == word.value)
            && self.long.iter().all(|(range, content)| payload.get(range.clone()) == Some(content))
    }

    /// Returns the ranges of the fixed bytes. The ranges are in order, and no two of them are
    /// adjacent.
    pub(super) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }
}

/// Returns the eight bytes of a payload that begin at offset `at`. Bytes beyond the end of the
/// payload are 0.
#[inline]
fn word_at(payload: &[u8], at: usize) -> u64 {
    if let Some(word) = payload.get(at..).and_then(<[u8]>::first_chunk) {
        return u64::from_le_bytes(*word);
    }
    let mut word = [0; WORD_BYTES];
    let rest = payload.get(at..).unwrap_or_default();
    word.iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    u64::from_le_bytes(word)
}

/// Sorts the ranges in ascending order. Joins ranges that touch or overlap.
fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Proves that unsorted, overlapping ranges are joined to sorted ranges that contain each byte
    // only one time.
    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a list of ranges")]
    fn ranges_are_joined() {
        assert_eq!(joined(vec![8..12, 0..4, 2..6, 12..13, 20..21]), [0..6, 8..13, 20..21]);
        assert!(joined(Vec::new()).is_empty());
    }

    proptest! {
        // Proves that, for payloads of any length, a change of one byte is detected if, and only
        // if, the byte is fixed.
        #[test]
        fn changes_of_fixed_bytes_are_noticed(
            payload in prop::collection::vec(any::<u8>(), 1..120),
            ranges in prop::collection::vec((0..120_usize, 1..60_usize), 0..8),
            (at, change) in (0..120_usize, 1..=255_u8),
        ) {
            let ranges: Vec<Range<usize>> = ranges
                .into_iter()
                .map(|(start, length)| start.min(payload.len())..(start + length).min(payload.len()))
                .filter(|range| !range.is_empty())
                .collect();
            let fixed = FixedContent::of(&payload, ranges.clone());
            prop_assert!(fixed.are_in(&payload));
            let mut other = payload.clone();
            let at = at % payload.len();
            other[at] ^= change;
            prop_assert_eq!(fixed.are_in(&other), !ranges.iter().any(|range| range.contains(&at)));
            other.push(0);
            prop_assert!(!fixed.are_in(&other));
        }
    }
}
