//! Finds raw ranges. A raw range is the same range of bytes in each row. It is stored row by row
//! and not as columns.
//!
//! Text, hashes and padding are stored row by row if the codec compresses the rows to fewer bytes
//! than the columns. A sample of the first rows decides this.

use std::collections::HashSet;
use std::ops::Range;

use crate::block::codec::Codec;
use crate::block::codec_trial::CodecTrial;
use crate::block::encoding::bits::CHUNK;
use crate::block::encoding::column_encoding::ColumnEncoding;
use crate::block::encoding::encoding_choice;
use crate::block::encoding::numeric_trial::{self, is_float, is_text};
use crate::block::layout::directory::{RAW_RANGE_BYTES_MIN, RAW_RANGES_MAX, RawRange, value_at};
use crate::block::selection::{FieldRef, ValueType};
use crate::schema::envelope::ENVELOPE_BYTES;

/// Minimum number of words of a raw range.
const WORDS_MIN: usize = RAW_RANGE_BYTES_MIN as usize / WORD;
/// Maximum length of a gap in a raw range, in words. A gap consists of words that do not change, or
/// that take little space as columns.
const GAP_MAX: usize = 2;
/// Maximum number of sampled words of a range. In longer ranges, the sample consists of evenly
/// spaced words.
const SAMPLE_WORDS_MAX: usize = 64;
/// Number of bytes of the sampled rows. For payloads of 1 KiB and more, all trials together take 3
/// to 6 % of the time of encoding.
const SAMPLE_BYTES: usize = 48 << 10;
/// Minimum and maximum number of sampled rows. The sample is read as columns.
const SAMPLE_ROWS: (usize, usize) = (32, 256);
/// Minimum and maximum number of rows of a trial that compresses row by row. The next constant is
/// the number of bytes of such a trial, which is half of the sample.
const TRIAL_ROWS: (usize, usize) = (4, 256);
const TRIAL_BYTES: usize = SAMPLE_BYTES / 2;
/// Number of pieces of a row that a trial compresses if the row is too long to be compressed whole.
const WINDOWS_MAX: usize = 4;
const WORD: usize = 8;
/// The golden ratio as a fraction of 2^32. Modulo 2^32, the multiples of this number are spread
/// evenly, however many multiples are used.
const GOLDEN: u32 = 0x9E37_79B9;

/// Rows that all have the same length and some changing bytes.
pub(in crate::block) struct RowSet<'j, R> {
    pub(in crate::block) count: usize,
    pub(in crate::block) row: R,
    /// For each word, the bits that change between rows. Bits that change only after the sampled
    /// rows may be missing.
    pub(in crate::block) changed_bits: &'j [u64],
}

/// Returns how many of the first rows are searched for raw ranges.
pub(in crate::block) fn sampled_rows(row_bytes: usize) -> usize {
    let (fewest, most) = SAMPLE_ROWS;
    (SAMPLE_BYTES / row_bytes.max(1)).clamp(fewest, most)
}

/// Finds raw ranges by trying the block's codec on rows and on columns. A finder reuses the memory
/// of earlier matrices.
#[derive(Debug, Default)]
pub(in crate::block) struct RawRangeFinder {
    pub(in crate::block) trial: CodecTrial,
    bytes: Vec<u8>,
}

/// The role of a word in a raw range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordRole {
    Member,
    Gap,
    Border,
}

/// The part of each row that a trial compresses. Short rows are always compressed whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TrialScope {
    Small,
    /// Evenly spread pieces of each row.
    Pieces,
    /// The beginning of each row.
    Beginning,
}

impl TrialScope {
    /// Returns the number of bytes of rows that a trial compresses.
    fn bytes(self) -> usize {
        if self == Self::Small { TRIAL_BYTES / 4 } else { TRIAL_BYTES }
    }
}

/// The words of some rows of a range, arranged as columns. The columns are evenly spaced words of
/// the range.
struct ColumnSample {
    first_word: usize, // first word of the range
    step: usize,
    rows: usize,
    values: Vec<u64>, // values or dictionary indices, `rows` for each column
    columns: Vec<SampledColumn>,
}

/// A sampled word.
struct SampledColumn {
    start: usize, // index of its values
    width: usize, // bytes of each value; the last word of a row may have fewer
    encoding: ColumnEncoding,
    encoded_bytes: usize, // encoded size as one column
    role: WordRole,
}

impl RawRangeFinder {
    /// Returns raw ranges in ascending order. `is_known` returns whether the word at an offset
    /// contains a known field.
    pub(in crate::block) fn find<'r, R: Fn(usize) -> &'r [u8]>(
        &mut self,
        rows: &RowSet<'_, R>,
        codec: Codec,
        is_known: impl Fn(u32) -> bool,
    ) -> Vec<RawRange> {
        self.trial.set_codec(codec);
        let mark = |(word, changed_bits): (usize, &u64)| match u32::try_from(WORD * word) {
            // The envelope stays in columns, because seeks need the bounds of wall times and a raw
            // range has no bounds.
            Ok(at) if *changed_bits != 0 && (at as usize) < ENVELOPE_BYTES => WordRole::Border,
            // A known field always becomes a column, even if the field is constant in the first
            // rows, because it may change in later rows.
            Ok(at) if is_known(at) => WordRole::Border,
            _ if *changed_bits == 0 => WordRole::Gap,
            _ => WordRole::Member,
        };
        let mut found: Vec<Range<usize>> = Vec::new();
        for range in member_ranges(rows.changed_bits.iter().enumerate().map(mark)) {
            let sample = ColumnSample::new(rows, &range);
            let marks = (0..range.len()).map(|word| sample.role(word));
            for inner in member_ranges(marks) {
                let words = range.start + inner.start..range.start + inner.end;
                if self.rows_are_smaller(rows, &words, &sample) {
                    found.push(words);
                }
            }
        }
        // The format limits the number of raw ranges. The longest raw ranges are kept.
        found.sort_by_key(|words| std::cmp::Reverse(words.len()));
        found.truncate(RAW_RANGES_MAX);
        found.sort_by_key(|words| words.start);
        let row_bytes = (rows.row)(0).len();
        let number = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let raw_range = |words: Range<usize>| {
            let (from, to) = (WORD * words.start, (WORD * words.end).min(row_bytes));
            RawRange { at: number(from), bytes: number(to - from) }
        };
        // The last word of a row may be incomplete. A range of four words is then too short for a
        // raw range.
        found.into_iter().map(raw_range).filter(|raw_range| raw_range.bytes >= RAW_RANGE_BYTES_MIN).collect()
    }

    /// Returns whether these words take less space as rows than as columns.
    ///
    /// Columns that save less than a sixteenth of the bytes are not used.
    fn rows_are_smaller<'r, R: Fn(usize) -> &'r [u8]>(
        &mut self,
        rows: &RowSet<'_, R>,
        words: &Range<usize>,
        sample: &ColumnSample,
    ) -> bool {
        let columns = sample.columns_of(words);
        let raw_bytes = columns.iter().map(|column| (column.width * sample.rows) as u64).sum::<u64>();
        let lanes_bytes = columns.iter().map(|column| column.encoded_bytes as u64).sum::<u64>();
        if 16 * lanes_bytes >= 15 * raw_bytes {
            return true;
        }
        if self.trial.codec() == Codec::None {
            // Without a codec, only columns make data smaller. The columns must save two fifths of
            // the bytes to justify the time that they take.
            return 3 * raw_bytes < 5 * lanes_bytes;
        }
        let is_less = |(by_rows, by_lanes): (u64, u64)| by_rows < by_lanes;
        let is_clearly_less = |(by_rows, by_lanes): (u64, u64)| 3 * by_rows < 2 * by_lanes;
        // If a few rows take less than two thirds of the space of the columns, no further trial is
        // made. A margin of a fifth was wrong too often. With that margin, alternating counters and
        // enumerations took 51,056 instead of 27,080 bytes. The pieces of a long row give the codec
        // less preceding data to match, and the beginning of a row may differ from the rest of the
        // row. So neither of these two trials decides alone.
        is_clearly_less(self.compare(rows, words, sample, TrialScope::Small))
            || is_less(self.compare(rows, words, sample, TrialScope::Pieces))
                && (WORD * words.len() <= TrialScope::Beginning.bytes() / TRIAL_ROWS.0
                    || is_less(self.compare(rows, words, sample, TrialScope::Beginning)))
    }

    /// Compresses a part of the rows, and columns of the same words. Each compressed length is
    /// multiplied by the input length of the other trial, so that the two results can be compared.
    fn compare<'r, R: Fn(usize) -> &'r [u8]>(
        &mut self,
        rows: &RowSet<'_, R>,
        words: &Range<usize>,
        sample: &ColumnSample,
        part: TrialScope,
    ) -> (u64, u64) {
        let (bytes, (fewest, most)) = (part.bytes(), TRIAL_ROWS);
        let length = words.len().min(bytes / WORD / fewest);
        let count = (bytes / (WORD * length).max(1)).clamp(fewest, most).min(rows.count);
        self.bytes.clear();
        for row in (0..count).map(&rows.row) {
            for window in windows(words, length, part) {
                let rest = row.get(WORD * window.start..).unwrap_or_default();
                self.bytes.extend_from_slice(rest.get(..WORD * window.len()).unwrap_or(rest));
            }
        }
        let tried_bytes = self.bytes.len() as u64;
        let by_rows = self.compressed_bytes();
        self.bytes.clear();
        let columns = sample.columns_of(words);
        // A small trial uses as many columns as possible, and fewer rows of each column.
        let (count, step) = if part == TrialScope::Small {
            let count = sample.rows.min(CHUNK);
            (count, (WORD * columns.len() * count).div_ceil(bytes))
        } else {
            (sample.rows, 1)
        };
        let mut raw_bytes = 0;
        for column in evenly(columns.len(), step).filter_map(|number| columns.get(number)) {
            let values = sample.values(column).get(..count).unwrap_or_default();
            column.encoding.encode(values, first_of(values), &mut self.bytes);
            raw_bytes += (column.width * count) as u64;
        }
        (by_rows * raw_bytes, self.compressed_bytes() * tried_bytes)
    }

    /// Returns the compressed size of the collected bytes.
    fn compressed_bytes(&mut self) -> u64 {
        self.trial.compressed_bytes(&self.bytes) as u64
    }
}

impl ColumnSample {
    fn new<'r, R: Fn(usize) -> &'r [u8]>(rows: &RowSet<'_, R>, range: &Range<usize>) -> Self {
        // The number of rows is not rounded to whole chunks, although whole chunks are estimated
        // faster. With rounding, UUIDs took 105,716 instead of 79,392 bytes.
        let count = sampled_rows(WORD * range.len()).min(rows.count);
        let step = range.len().div_ceil(SAMPLE_WORDS_MAX).max(1);
        let (first, row_bytes) = (range.start, (rows.row)(0).len());
        let mut sample =
            Self { first_word: first, step, rows: count, values: Vec::new(), columns: Vec::new() };
        let mut known = HashSet::new();
        let mut half = Vec::new();
        for word in evenly(range.len(), step).map(|word| range.start + word) {
            let at = u32::try_from(WORD * word).unwrap_or(u32::MAX);
            let place = FieldRef { at, bytes: 8, kind: ValueType::Unsigned };
            let start = sample.values.len();
            sample.values.extend((0..count).map(|number| value_at((rows.row)(number), place)));
            let column = sample.values.get_mut(start..).unwrap_or_default();
            // A column that follows another column takes no bytes.
            let first = column.first().copied().unwrap_or_default();
            let is_follower = !known.insert(column.iter().fold(0_u64, |hash, value| {
                (hash.rotate_left(5) ^ value.wrapping_sub(first)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            }));
            let mut halves = 0;
            let mut are_floats = true;
            for shift in [0, 32] {
                half.clear();
                half.extend(column.iter().map(|value| value >> shift & 0xFFFF_FFFF));
                halves += ColumnEncoding::smallest(&half, first_of(&half)).1;
                are_floats &= is_float(&half, 4);
            }
            // Numbers that belong to no known field are left to the numeric codec, which compresses
            // them better than these estimates show.
            let is_number = (are_floats || is_float(column, 8)) && !is_text(column);
            let (mut encoding, mut encoded_bytes) = ColumnEncoding::smallest(column, first_of(column));
            // A word with few distinct values may become a dictionary, so the size of its
            // dictionary indices is used. For example, rows of eight names took 12.5 instead of
            // 58.0 KB with Snappy.
            if let Some(indices) = encoding_choice::few_value_indices(column, encoded_bytes, rows.count) {
                column.copy_from_slice(&indices);
                (encoding, encoded_bytes) = ColumnEncoding::smallest(column, first_of(column));
            }
            let width = row_bytes.saturating_sub(WORD * word).min(WORD);
            // A word belongs in a raw range if it takes at least half of its bytes, both as one
            // column and as two columns.
            let mark = match encoded_bytes.min(halves) {
                // With fewer rows, the numeric codec is not tried, so numbers do not have to end a
                // range.
                _ if is_number && rows.count >= numeric_trial::ROWS_MIN => WordRole::Border,
                _ if is_number => WordRole::Gap,
                bytes if !is_follower && 2 * bytes >= width * count => WordRole::Member,
                _ => WordRole::Gap,
            };
            sample.columns.push(SampledColumn { start, width, encoding, encoded_bytes, role: mark });
        }
        sample
    }

    /// Returns the role of the word with this number in the range.
    fn role(&self, word: usize) -> WordRole {
        self.columns.get(word / self.step).map_or(WordRole::Gap, |column| column.role)
    }

    /// Returns the sampled columns of these words.
    fn columns_of(&self, words: &Range<usize>) -> &[SampledColumn] {
        let skipped = (words.start - self.first_word).div_ceil(self.step);
        let count = words.len().div_ceil(self.step).min(self.columns.len().saturating_sub(skipped));
        self.columns.get(skipped..skipped + count).unwrap_or_default()
    }

    fn values(&self, column: &SampledColumn) -> &[u64] {
        self.values.get(column.start..column.start + self.rows).unwrap_or_default()
    }
}

/// Returns the first value of a column. The directory of the matrix contains this value.
fn first_of(column: &[u64]) -> u64 {
    column.first().copied().unwrap_or_default()
}

/// Returns windows that have `length` words in total. The windows are evenly spaced, or there is a
/// single window at the beginning.
fn windows(words: &Range<usize>, length: usize, part: TrialScope) -> impl Iterator<Item = Range<usize>> {
    let count = if length < words.len() && part != TrialScope::Beginning { WINDOWS_MAX } else { 1 };
    let (start, apart, length) = (words.start, words.len() / count, length / count);
    (0..count).map(move |number| start + number * apart..start + number * apart + length)
}

/// Returns one index from each interval of `step` indexes below `end`. The position in the interval
/// varies, because a fixed `step` could coincide with a period in the data.
fn evenly(end: usize, step: usize) -> impl Iterator<Item = usize> {
    (1_u32..).zip((0..end).step_by(step)).map(move |(number, from)| {
        let inside = (u64::from(GOLDEN.wrapping_mul(number)) * step as u64) >> 32;
        (from + usize::try_from(inside).unwrap_or_default()).min(end - 1)
    })
}

/// Returns the ranges that have enough members, no borders, and only gaps of at most [`GAP_MAX`]
/// words.
fn member_ranges(marks: impl Iterator<Item = WordRole>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut run = 0..0;
    let mut members = 0;
    for (word, mark) in marks.chain([WordRole::Border]).enumerate() {
        // The gap before this word has `word - run.end` words. If this word belongs to the gap too,
        // the gap is one word longer.
        if mark == WordRole::Border || word - run.end >= GAP_MAX + usize::from(mark == WordRole::Member) {
            if members >= WORDS_MIN {
                found.push(run.clone());
            }
            (run, members) = (word..word, 0);
        }
        if mark == WordRole::Member {
            run = if members == 0 { word } else { run.start }..word + 1;
            members += 1;
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers, and noise")]
#[allow(clippy::single_range_in_vec_init, reason = "a raw range is a range")]
mod tests {
    use super::*;
    use WordRole::{Border, Gap, Member};

    /// Returns the raw ranges of rows that consist of an envelope and the output of `row_of`.
    fn raw_ranges_of(codec: Codec, row_of: impl Fn(u64) -> Vec<u8>) -> Vec<(u32, u32)> {
        let mut rows: Vec<Vec<u8>> = (0..300).map(|_| vec![0; ENVELOPE_BYTES]).collect();
        (0..).zip(&mut rows).for_each(|(number, row)| row.extend(row_of(number)));
        let place = |word: usize| FieldRef { at: 8 * word as u32, bytes: 8, kind: ValueType::Unsigned };
        let words = 0..rows[0].len().div_ceil(8);
        let changed_bits: Vec<u64> = words
            .map(|word| {
                rows.iter().fold(0, |bits, row| {
                    bits | (value_at(row, place(word)) ^ value_at(&rows[0], place(word)))
                })
            })
            .collect();
        let all = RowSet {
            count: rows.len(),
            row: |number: usize| rows[number].as_slice(),
            changed_bits: &changed_bits,
        };
        let spans = RawRangeFinder::default().find(&all, codec, |at| at == 64);
        spans.into_iter().map(|raw_range| (raw_range.at, raw_range.bytes)).collect()
    }

    fn noise(number: u64) -> u64 {
        let mixed = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    #[test]
    fn ranges_have_small_gaps_and_enough_words() {
        // Proves that ranges end at long gaps and borders, and that ranges with too few members are
        // dropped.
        let all = [Member; 4];
        assert_eq!(member_ranges(all.into_iter()), [0..4]);
        assert!(member_ranges(all[1..].iter().copied()).is_empty());
        assert_eq!(member_ranges([Gap, Member, Gap, Gap, Member, Member, Member, Gap].into_iter()), [1..7]);
        assert!(member_ranges([Member, Gap, Gap, Gap, Member, Member, Member].into_iter()).is_empty());
        assert_eq!(member_ranges([all, [Border, Gap, Gap, Gap], all].concat().into_iter()), [0..4, 8..12]);
    }

    #[test]
    fn samples_are_spread_evenly() {
        // Proves that one number from each step is sampled, that the distances between these
        // numbers vary, and that windows cover a row evenly without overlap.
        assert_eq!(evenly(5, 1).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let some: Vec<usize> = evenly(64, 4).collect();
        assert_eq!(some.len(), 16);
        assert!(some.iter().enumerate().all(|(number, at)| at / 4 == number));
        let insides: std::collections::BTreeSet<usize> = some.iter().map(|at| at % 4).collect();
        assert_eq!(insides.len(), 4, "each position of a period is taken");
        assert_eq!(evenly(3, 7).collect::<Vec<_>>().len(), 1);
        let of = |words: Range<usize>, length, part| windows(&words, length, part).collect::<Vec<_>>();
        assert_eq!(of(10..20, 10, TrialScope::Small), [10..20]);
        assert_eq!(of(100..1380, 192, TrialScope::Beginning), [100..292]);
        let pieces = of(100..1380, 192, TrialScope::Small);
        assert_eq!(pieces, [100..148, 420..468, 740..788, 1060..1108]);
    }

    #[test]
    fn the_beginning_of_long_rows_does_not_decide() {
        // Proves that rows which begin with text and continue with numbers get columns for the
        // numbers, even if the beginning is smaller as raw bytes. The words do not have eight
        // letters, so any letter may occur at each offset of a row.
        let words = ["connection ", "accepted from host ", "refused by peer ", "flushed, as nobody waits "];
        let text = |number: u64, bytes: usize| {
            let word = move |at: u64| words[(noise(512 * number + at) >> 32) as usize % 4].bytes();
            (0..).flat_map(word).take(bytes)
        };
        // None of these bit patterns looks like a float.
        let bits = |number: u64, at: u64| 0xFFF << 52 | (noise(at) ^ noise(2000 * number + at) >> 26);
        let numbers = |number: u64| (0..1900).flat_map(move |at| bits(number, at).to_le_bytes());
        for codec in [Codec::Snappy, Codec::Zstd(1)] {
            let only = raw_ranges_of(codec, |number| text(number, 4000).collect());
            assert!(only.iter().map(|(_, bytes)| bytes).sum::<u32>() > 3000, "{codec}: {only:?}");
            let both = raw_ranges_of(codec, |number| text(number, 1280).chain(numbers(number)).collect());
            assert!(both.iter().all(|(at, bytes)| at + bytes <= 64 + 1280), "{codec}: {both:?}");
        }
    }

    #[test]
    fn text_and_hashes_stay_and_numbers_do_not() {
        // Proves that text and hashes become raw ranges up to the end of a row, for rows of any
        // length. Proves that counters, floats and known fields do not become raw ranges.
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
            let spans = raw_ranges_of(codec, text);
            // The first word has one of five values, so a column is smaller.
            assert_eq!(spans, [(80, 59)], "{codec}");
        }
        let hash = |number: u64| (0..5).flat_map(|at| noise(5 * number + at).to_le_bytes()).collect();
        assert_eq!(raw_ranges_of(Codec::None, hash), [(72, 32)]);
        assert_eq!(raw_ranges_of(Codec::Zstd(1), hash), [(72, 32)]);
        let counters = |number: u64| (0..9).flat_map(|at| (number * at).to_le_bytes()).collect();
        assert_eq!(raw_ranges_of(Codec::Zstd(1), counters), []);
        let floats = |number: u64| {
            (0..9).flat_map(|at| (f64::from(noise(9 * number + at) as u32) * 1e-9).to_le_bytes()).collect()
        };
        assert_eq!(raw_ranges_of(Codec::Zstd(1), floats), []);
    }
}
