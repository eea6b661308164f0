//! Of which stretches of rows are no lanes made? Text, hashes and padding stay as they are, row by row, where a sample says that the codec
//! behind makes less of them than of lanes.

use std::collections::HashSet;
use std::ops::Range;

use super::codec::{Codec, Compressor};
use super::directory::{SPAN_BYTES_MIN, SPANS_MAX, Span, value_at};
use super::lane::Coding;
use super::noise::is_float;
use super::wanted::{Kind, Place};
use crate::schema::envelope::ENVELOPE_BYTES;

/// Words of a span at least.
const WORDS_MIN: usize = SPAN_BYTES_MIN as usize / WORD;
/// Most words in a row that do not change, or would be small as lanes, within a span.
const GAP_MAX: usize = 2;
/// Words of a stretch that are looked at: more are passed over evenly.
const SAMPLE_WORDS_MAX: usize = 64;
/// Bytes of rows that are looked at.
const SAMPLE_BYTES: usize = 48 << 10;
/// How many rows these are at least and at most, as columns.
const SAMPLE_ROWS: (usize, usize) = (32, 256);
/// And one behind the other; these bytes of them, as much as there are columns.
const SAMPLE_ROWS_TRIED: (usize, usize) = (4, 256);
const SAMPLE_BYTES_TRIED: usize = SAMPLE_BYTES / 2;
const WORD: usize = 8;
/// The golden ratio as a fraction of 2^32: its multiples lie evenly in it, however many there are.
const GOLDEN: u32 = 0x9E37_79B9;

/// Rows of one length of which something changes.
pub(super) struct Rows<'j, R> {
    pub(super) count: usize,
    pub(super) row: R,
    /// Of each word all bits that change, in the first rows at least.
    pub(super) joined: &'j [u64],
}

/// By how many first rows of a length spans are found.
pub(super) fn rows_looked_at(row_bytes: usize) -> usize {
    let (fewest, most) = SAMPLE_ROWS;
    (SAMPLE_BYTES / row_bytes.max(1)).clamp(fewest, most)
}

/// Tries the codec behind. Keeps its memory.
#[derive(Debug, Default)]
pub(super) struct Trial {
    compressor: Option<Compressor>,
    bytes: Vec<u8>,
    packed: Vec<u8>,
}

/// What a word may be to a span.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Member,
    Gap,
    Border,
}

/// Some rows of a stretch, by columns of some of its words, evenly.
struct Sample {
    first: usize, // word of the stretch
    step: usize,
    rows: usize,
    values: Vec<u64>, // of the columns, one behind the other, `rows` each
    columns: Vec<Column>,
}

/// A word of a sample.
struct Column {
    start: usize, // of its values
    width: usize, // bytes of each; the last word of a row may have fewer than others
    coding: Coding,
    own_bytes: usize, // as one lane
    bytes: usize,     // as one lane or two; none if it is a number, or follows another one
}

impl Trial {
    /// Finds spans, in order. `is_known` says whether a field is known in the word at a place.
    pub(super) fn find<'r, R: Fn(usize) -> &'r [u8]>(
        &mut self,
        rows: &Rows<'_, R>,
        codec: Codec,
        is_known: impl Fn(u32) -> bool,
    ) -> Vec<Span> {
        let mark = |(word, joined): (usize, &u64)| match u32::try_from(WORD * word) {
            Ok(at) if *joined != 0 && (at as usize) < ENVELOPE_BYTES => Mark::Border,
            // One that stands still in the first rows may change in others.
            Ok(at) if is_known(at) => Mark::Border,
            _ if *joined == 0 => Mark::Gap,
            _ => Mark::Member,
        };
        let mut found: Vec<Range<usize>> = Vec::new();
        for stretch in stretches(rows.joined.iter().enumerate().map(mark)) {
            let sample = Sample::new(rows, &stretch);
            let marks = (0..stretch.len()).map(|word| sample.mark(word));
            for inner in stretches(marks) {
                let words = stretch.start + inner.start..stretch.start + inner.end;
                if self.pays(rows, codec, &words, &sample) {
                    found.push(words);
                }
            }
        }
        found.sort_by_key(|words| std::cmp::Reverse(words.len()));
        found.truncate(SPANS_MAX);
        found.sort_by_key(|words| words.start);
        let row_bytes = (rows.row)(0).len();
        let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let span = |words: Range<usize>| {
            let (from, to) = (WORD * words.start, (WORD * words.end).min(row_bytes));
            Span { at: number(from), bytes: number(to - from) }
        };
        found.into_iter().map(span).filter(|span| span.bytes >= SPAN_BYTES_MIN).collect()
    }

    /// Whether rows of these words take less than lanes of them.
    fn pays<'r, R: Fn(usize) -> &'r [u8]>(
        &mut self,
        rows: &Rows<'_, R>,
        codec: Codec,
        words: &Range<usize>,
        sample: &Sample,
    ) -> bool {
        let columns = sample.of(words);
        let raw_bytes = columns.iter().map(|column| (column.width * sample.rows) as u64).sum::<u64>();
        let lanes_bytes = columns.iter().map(|column| column.own_bytes as u64).sum::<u64>();
        if 16 * lanes_bytes >= 15 * raw_bytes {
            return true;
        }
        if codec == Codec::None {
            // Lanes are the only way to be small, and must be worth their time.
            return 3 * raw_bytes < 5 * lanes_bytes;
        }
        let length = words.len().min(SAMPLE_BYTES_TRIED / WORD / SAMPLE_ROWS_TRIED.0);
        let (fewest, most) = SAMPLE_ROWS_TRIED;
        let count = (SAMPLE_BYTES_TRIED / (WORD * length).max(1)).clamp(fewest, most).min(rows.count);
        self.bytes.clear();
        for number in 0..count {
            let row = (rows.row)(number).get(WORD * words.start..).unwrap_or_default();
            self.bytes.extend_from_slice(row.get(..WORD * length).unwrap_or(row));
        }
        // Each for as many bytes as the other has.
        let tried_bytes = self.bytes.len() as u64;
        let by_rows = self.pack(codec) as u64 * raw_bytes;
        self.bytes.clear();
        for column in columns {
            column.coding.encode(sample.values(column), &mut self.bytes);
        }
        by_rows < self.pack(codec) as u64 * tried_bytes
    }

    /// Bytes that the codec makes of what was gathered; in place of a slow one a fast one of its kind, which may be wrong where they are close.
    fn pack(&mut self, codec: Codec) -> usize {
        let codec = match codec {
            Codec::Zstd(_) | Codec::Brotli(_) => Codec::Zstd(1),
            fast => fast,
        };
        let own = self.compressor.take().filter(|compressor| compressor.codec() == codec);
        let compressor = self.compressor.insert(own.unwrap_or_else(|| Compressor::new(codec)));
        self.packed.clear();
        let packed = compressor.compress(&self.bytes, &mut self.packed);
        packed.map_or(self.bytes.len(), |_codec| self.packed.len())
    }
}

impl Sample {
    fn new<'r, R: Fn(usize) -> &'r [u8]>(rows: &Rows<'_, R>, stretch: &Range<usize>) -> Self {
        let count = rows_looked_at(WORD * stretch.len()).min(rows.count);
        let step = stretch.len().div_ceil(SAMPLE_WORDS_MAX).max(1);
        let (first, row_bytes) = (stretch.start, (rows.row)(0).len());
        let mut sample = Self { first, step, rows: count, values: Vec::new(), columns: Vec::new() };
        let mut known = HashSet::new();
        let mut half = Vec::new();
        for (number, word) in (1..).zip(stretch.clone().step_by(step)) {
            // One of those that it stands for, each time at another place: a period of the rows must not meet the step.
            let inside = (u64::from(GOLDEN.wrapping_mul(number)) * step as u64) >> 32;
            let word = (word + usize::try_from(inside).unwrap_or_default()).min(stretch.end - 1);
            let at = u32::try_from(WORD * word).unwrap_or(u32::MAX);
            let place = Place { at, bytes: 8, kind: Kind::Unsigned };
            let start = sample.values.len();
            sample.values.extend((0..count).map(|number| value_at((rows.row)(number), place)));
            let column = sample.values.get(start..).unwrap_or_default();
            let (coding, own_bytes) = Coding::choose(column);
            let mut halves = 0;
            let mut are_floats = true;
            for shift in [0, 32] {
                half.clear();
                half.extend(column.iter().map(|value| value >> shift & 0xFFFF_FFFF));
                halves += Coding::choose(&half).1;
                are_floats &= is_float(&half, 4);
            }
            // Numbers that no schema names are for the numeric codec, which makes less of them than is seen here.
            let is_number =
                (are_floats || is_float(column, 8)) && !column.iter().all(|value| is_text(*value));
            // A lane may follow another one and take nothing.
            let differences =
                column.iter().map(|value| value.wrapping_sub(column.first().copied().unwrap_or_default()));
            let is_follower = !known.insert(differences.fold(0_u64, |hash, value| {
                (hash.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            }));
            let bytes = if is_number || is_follower { 0 } else { own_bytes.min(halves) };
            let width = row_bytes.saturating_sub(WORD * word).min(WORD);
            sample.columns.push(Column { start, width, coding, own_bytes, bytes });
        }
        sample
    }

    /// What the word with a number in the stretch is: one that takes half of its bytes as a lane belongs to a span.
    fn mark(&self, word: usize) -> Mark {
        match self.columns.get(word / self.step) {
            Some(column) if 2 * column.bytes >= column.width * self.rows => Mark::Member,
            _ => Mark::Gap,
        }
    }

    /// The columns of these words.
    fn of(&self, words: &Range<usize>) -> &[Column] {
        let skipped = (words.start - self.first).div_ceil(self.step);
        let count = words.len().div_ceil(self.step).min(self.columns.len().saturating_sub(skipped));
        self.columns.get(skipped..skipped + count).unwrap_or_default()
    }

    fn values(&self, column: &Column) -> &[u64] {
        self.values.get(column.start..column.start + self.rows).unwrap_or_default()
    }
}

/// Runs of members with small gaps, of enough words.
fn stretches(marks: impl Iterator<Item = Mark>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut run = 0..0;
    let mut members = 0;
    for (word, mark) in marks.chain([Mark::Border]).enumerate() {
        if mark == Mark::Border || word - run.end >= GAP_MAX + usize::from(mark == Mark::Member) {
            if members >= WORDS_MIN {
                found.push(run.clone());
            }
            (run, members) = (word..word, 0);
        }
        if mark == Mark::Member {
            run = if members == 0 { word } else { run.start }..word + 1;
            members += 1;
        }
    }
    found
}

/// Whether all bytes of a word are letters, spaces or zeros.
fn is_text(word: u64) -> bool {
    word.to_le_bytes().iter().all(|byte| *byte == 0 || (0x09..0x7F).contains(byte))
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers, and noise")]
#[allow(clippy::single_range_in_vec_init, reason = "a stretch is a range")]
mod tests {
    use super::*;
    use Mark::{Border, Gap, Member};

    /// Spans of rows whose bytes behind the envelope are told by their number.
    fn found(codec: Codec, row_of: impl Fn(u64) -> Vec<u8>) -> Vec<(u32, u32)> {
        let mut rows: Vec<Vec<u8>> = (0..300).map(|_| vec![0; ENVELOPE_BYTES]).collect();
        (0..).zip(&mut rows).for_each(|(number, row)| row.extend(row_of(number)));
        let place = |word: usize| Place { at: 8 * word as u32, bytes: 8, kind: Kind::Unsigned };
        let words = 0..rows[0].len().div_ceil(8);
        let joined: Vec<u64> = words
            .map(|word| {
                rows.iter().fold(0, |bits, row| {
                    bits | (value_at(row, place(word)) ^ value_at(&rows[0], place(word)))
                })
            })
            .collect();
        let all = Rows { count: rows.len(), row: |number: usize| rows[number].as_slice(), joined: &joined };
        let spans = Trial::default().find(&all, codec, |at| at == 64);
        spans.into_iter().map(|span| (span.at, span.bytes)).collect()
    }

    fn noise(number: u64) -> u64 {
        let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    #[test]
    fn stretches_have_small_gaps_and_enough_words() {
        // Goal: runs end where a gap is long or a border stands, and short ones are none. Method: marks and what becomes of them.
        let all = [Member; 4];
        assert_eq!(stretches(all.into_iter()), [0..4]);
        assert!(stretches(all[1..].iter().copied()).is_empty());
        assert_eq!(stretches([Gap, Member, Gap, Gap, Member, Member, Member, Gap].into_iter()), [1..7]);
        assert!(stretches([Member, Gap, Gap, Gap, Member, Member, Member].into_iter()).is_empty());
        assert_eq!(stretches([all, [Border, Gap, Gap, Gap], all].concat().into_iter()), [0..4, 8..12]);
    }

    #[test]
    fn text_and_hashes_stay_and_numbers_do_not() {
        // Goal: what a codec sees better as it is becomes a span, up to the end of a row that is no whole word; counters, floats and known fields
        // around do not. Method: rows of each.
        let word = |number: u64| {
            ["accepted ", "10.0.0.1 ", "refused ", "flushed in ", "of worker "]
                [(noise(number) >> 32) as usize % 5]
        };
        let text = |number: u64| {
            let mut row = number.to_le_bytes().to_vec();
            row.extend((0..8).flat_map(|at| word(8 * number + at).bytes()));
            row.resize(75, b'.');
            row
        };
        for codec in [Codec::Snappy, Codec::Zstd(1)] {
            let spans = found(codec, text);
            assert!(matches!(spans[..], [(72..80, 40..)]), "{codec}: {spans:?}");
        }
        let hash = |number: u64| (0..5).flat_map(|at| noise(5 * number + at).to_le_bytes()).collect();
        assert_eq!(found(Codec::None, hash), [(72, 32)]);
        assert_eq!(found(Codec::Zstd(1), hash), [(72, 32)]);
        let counters = |number: u64| (0..9).flat_map(|at| (number * at).to_le_bytes()).collect();
        assert_eq!(found(Codec::Zstd(1), counters), []);
        let floats = |number: u64| {
            (0..9).flat_map(|at| (f64::from(noise(9 * number + at) as u32) * 1e-9).to_le_bytes()).collect()
        };
        assert_eq!(found(Codec::Zstd(1), floats), []);
    }
}
