//! Of which stretches of rows are no lanes made? Text, hashes and padding stay as they are, row by row, where a sample says that the codec
//! behind makes less of them than of lanes.

use std::collections::HashSet;
use std::ops::Range;

use super::bits::CHUNK;
use super::codec::{Codec, Compressor};
use super::directory::{SPAN_BYTES_MIN, SPANS_MAX, Span, value_at};
use super::lane::Coding;
use super::noise::{self, is_float, is_text};
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
/// Of longer rows so many pieces are tried.
const WINDOWS: usize = 4;
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

/// What of rows and lanes is tried: of rows that are short all of these are whole ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Few,
    /// Of a row pieces that lie evenly in it.
    Pieces,
    /// Of a row its begin.
    Front,
}

impl Part {
    /// How many bytes of rows that are.
    fn bytes(self) -> usize {
        if self == Self::Few { SAMPLE_BYTES_TRIED / 4 } else { SAMPLE_BYTES_TRIED }
    }
}

/// Some rows of a stretch, by columns of some of its words, evenly.
struct Sample {
    first: usize, // word of the stretch
    step: usize,
    rows: usize,
    values: Vec<u64>, // of the columns, or their numbers among a few: one behind the other, `rows` each
    columns: Vec<Column>,
}

/// A word of a sample.
struct Column {
    start: usize, // of its values
    width: usize, // bytes of each; the last word of a row may have fewer than others
    coding: Coding,
    own_bytes: usize, // as one lane
    mark: Mark,
}

impl Trial {
    /// Finds spans, in order. `is_known` says whether a field is known in the word at a place.
    pub(super) fn find<'r, R: Fn(usize) -> &'r [u8]>(
        &mut self,
        rows: &Rows<'_, R>,
        codec: Codec,
        is_known: impl Fn(u32) -> bool,
    ) -> Vec<Span> {
        self.take(codec);
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
                if self.pays(rows, &words, &sample) {
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
        words: &Range<usize>,
        sample: &Sample,
    ) -> bool {
        let columns = sample.of(words);
        let raw_bytes = columns.iter().map(|column| (column.width * sample.rows) as u64).sum::<u64>();
        let lanes_bytes = columns.iter().map(|column| column.own_bytes as u64).sum::<u64>();
        if 16 * lanes_bytes >= 15 * raw_bytes {
            return true;
        }
        if self.codec() == Codec::None {
            // Lanes are the only way to be small, and must be worth their time.
            return 3 * raw_bytes < 5 * lanes_bytes;
        }
        let is_less = |(by_rows, by_lanes): (u64, u64)| by_rows < by_lanes;
        let is_clearly_less = |(by_rows, by_lanes): (u64, u64)| 3 * by_rows < 2 * by_lanes;
        // Where a few rows take less than two thirds of what lanes take, more of both need not be tried.
        // Pieces of a long row have less in front of them that is alike, and its begin may be unlike the rest: neither is trusted alone.
        is_clearly_less(self.try_both(rows, words, sample, Part::Few))
            || is_less(self.try_both(rows, words, sample, Part::Pieces))
                && (WORD * words.len() <= Part::Front.bytes() / SAMPLE_ROWS_TRIED.0
                    || is_less(self.try_both(rows, words, sample, Part::Front)))
    }

    /// What the codec makes of a part of the rows and of lanes of these words, each for as many bytes as the other has.
    fn try_both<'r, R: Fn(usize) -> &'r [u8]>(
        &mut self,
        rows: &Rows<'_, R>,
        words: &Range<usize>,
        sample: &Sample,
        part: Part,
    ) -> (u64, u64) {
        let (bytes, (fewest, most)) = (part.bytes(), SAMPLE_ROWS_TRIED);
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
        let by_rows = self.pack();
        self.bytes.clear();
        let columns = sample.of(words);
        // Of few bytes as many columns as there are or can be, and therefore fewer rows.
        let (count, step) = if part == Part::Few {
            let count = sample.rows.min(CHUNK);
            (count, (WORD * columns.len() * count).div_ceil(bytes))
        } else {
            (sample.rows, 1)
        };
        let mut raw_bytes = 0;
        for column in evenly(columns.len(), step).filter_map(|number| columns.get(number)) {
            let values = sample.values(column).get(..count).unwrap_or_default();
            column.coding.encode(values, &mut self.bytes);
            raw_bytes += (column.width * count) as u64;
        }
        (by_rows * raw_bytes, self.pack() * tried_bytes)
    }

    /// Takes the codec that comes behind; in place of a slow one a fast one of its kind, which may be wrong where they are close.
    fn take(&mut self, codec: Codec) {
        let codec = match codec {
            Codec::Zstd(_) | Codec::Brotli(_) => Codec::Zstd(1),
            fast => fast,
        };
        if self.codec() != codec {
            self.compressor = Some(Compressor::new(codec));
        }
    }

    fn codec(&self) -> Codec {
        self.compressor.as_ref().map_or(Codec::None, Compressor::codec)
    }

    /// Bytes that the codec makes of what was gathered.
    fn pack(&mut self) -> u64 {
        self.packed.clear();
        let packed = self.compressor.as_mut().map(|codec| codec.compress(&self.bytes, &mut self.packed));
        let bytes = if matches!(packed, Some(Ok(_))) { &self.packed } else { &self.bytes };
        bytes.len() as u64
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
        for word in evenly(stretch.len(), step).map(|word| stretch.start + word) {
            let at = u32::try_from(WORD * word).unwrap_or(u32::MAX);
            let place = Place { at, bytes: 8, kind: Kind::Unsigned };
            let start = sample.values.len();
            sample.values.extend((0..count).map(|number| value_at((rows.row)(number), place)));
            let column = sample.values.get_mut(start..).unwrap_or_default();
            // A lane may follow another one and take nothing.
            let first = column.first().copied().unwrap_or_default();
            let is_follower = !known.insert(column.iter().fold(0_u64, |hash, value| {
                (hash.rotate_left(5) ^ value.wrapping_sub(first)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
            }));
            let mut halves = 0;
            let mut are_floats = true;
            for shift in [0, 32] {
                half.clear();
                half.extend(column.iter().map(|value| value >> shift & 0xFFFF_FFFF));
                halves += Coding::choose(&half).1;
                are_floats &= is_float(&half, 4);
            }
            // Numbers that no schema names are for the numeric codec, which makes less of them than is seen here.
            let is_number = (are_floats || is_float(column, 8)) && !is_text(column);
            let (mut coding, mut own_bytes) = Coding::choose(column);
            if let Some(indices) = noise::of_few_values(column, own_bytes, rows.count) {
                column.copy_from_slice(&indices);
                (coding, own_bytes) = Coding::choose(column);
            }
            let width = row_bytes.saturating_sub(WORD * word).min(WORD);
            // One that takes half of its bytes as a lane, or as two, belongs to a span.
            let mark = match own_bytes.min(halves) {
                _ if is_number && rows.count >= noise::ROWS_MIN => Mark::Border,
                _ if is_number => Mark::Gap,
                bytes if !is_follower && 2 * bytes >= width * count => Mark::Member,
                _ => Mark::Gap,
            };
            sample.columns.push(Column { start, width, coding, own_bytes, mark });
        }
        sample
    }

    /// What the word with a number in the stretch is.
    fn mark(&self, word: usize) -> Mark {
        self.columns.get(word / self.step).map_or(Mark::Gap, |column| column.mark)
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

/// Parts of a range that have so many words together.
fn windows(words: &Range<usize>, length: usize, part: Part) -> impl Iterator<Item = Range<usize>> {
    let count = if length < words.len() && part != Part::Front { WINDOWS } else { 1 };
    let (start, apart, length) = (words.start, words.len() / count, length / count);
    (0..count).map(move |number| start + number * apart..start + number * apart + length)
}

/// One of each so many numbers below an end, each time at another place: a period of what they count must not meet the step.
fn evenly(end: usize, step: usize) -> impl Iterator<Item = usize> {
    (1_u32..).zip((0..end).step_by(step)).map(move |(number, from)| {
        let inside = (u64::from(GOLDEN.wrapping_mul(number)) * step as u64) >> 32;
        (from + usize::try_from(inside).unwrap_or_default()).min(end - 1)
    })
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
    fn what_is_looked_at_lies_evenly() {
        // Goal: a few of many are one of each so many, at no fixed distance, and all where all are wanted; pieces of a row cover it from its begin to
        // its last part and overlap nowhere. Method: steps and lengths.
        assert_eq!(evenly(5, 1).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let some: Vec<usize> = evenly(64, 4).collect();
        assert_eq!(some.len(), 16);
        assert!(some.iter().enumerate().all(|(number, at)| at / 4 == number));
        let insides: std::collections::BTreeSet<usize> = some.iter().map(|at| at % 4).collect();
        assert_eq!(insides.len(), 4, "each place of a period is met");
        assert_eq!(evenly(3, 7).collect::<Vec<_>>().len(), 1);
        let of = |words: Range<usize>, length, part| windows(&words, length, part).collect::<Vec<_>>();
        assert_eq!(of(10..20, 10, Part::Few), [10..20]);
        assert_eq!(of(100..1380, 192, Part::Front), [100..292]);
        let pieces = of(100..1380, 192, Part::Few);
        assert_eq!(pieces, [100..148, 420..468, 740..788, 1060..1108]);
    }

    #[test]
    fn the_begin_of_long_rows_does_not_decide() {
        // Goal: rows that begin with text and go on with what lanes make smaller become lanes, even where what stands in front would be smaller as it is.
        // Method: long rows of both, and of text alone.
        // Long words of other lengths than eight: after the first ones a place of a row has any letter.
        let words = ["connection ", "accepted from host ", "refused by peer ", "flushed, as nobody waits "];
        let text = |number: u64, bytes: usize| {
            let word = move |at: u64| words[(noise(512 * number + at) >> 32) as usize % 4].bytes();
            (0..).flat_map(word).take(bytes)
        };
        // None of them looks like a float.
        let bits = |number: u64, at: u64| 0xFFF << 52 | (noise(at) ^ noise(2000 * number + at) >> 26);
        let numbers = |number: u64| (0..1900).flat_map(move |at| bits(number, at).to_le_bytes());
        for codec in [Codec::Snappy, Codec::Zstd(1)] {
            let only = found(codec, |number| text(number, 4000).collect());
            assert!(only.iter().map(|(_, bytes)| bytes).sum::<u32>() > 3000, "{codec}: {only:?}");
            let both = found(codec, |number| text(number, 1280).chain(numbers(number)).collect());
            assert!(both.iter().all(|(at, bytes)| at + bytes <= 64 + 1280), "{codec}: {both:?}");
        }
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
            // The first letters are those of one word in five: few values, which a lane takes less for.
            assert_eq!(spans, [(80, 59)], "{codec}");
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
