//! How many bytes would a column take in each of our own codings? Counted, and nothing written: most of the time that packing lanes takes.

use super::bits::{CHUNK, Chunk, packed_bytes};
use super::lane::{Range, varint_bytes, zigzag};

/// Bytes as plain numbers, as differences, as differences of differences, and sparse.
pub(super) fn of_codings(values: &[u64]) -> [usize; 4] {
    let mut cost = Cost::new(values);
    let (chunks, rest) = values.as_chunks();
    cost.add_chunks(chunks);
    cost.add(rest);
    cost.bytes
}

/// What values took so far, and what comes in front of the next one.
struct Cost {
    bytes: [usize; 4],
    value: u64,
    difference: u64,
}

impl Cost {
    fn new(values: &[u64]) -> Self {
        Self { bytes: [0; 4], value: values.first().copied().unwrap_or_default(), difference: 0 }
    }

    /// Adds whole chunks, where the processor has them by eight values at a time: a quarter of the time (docs/BENCHMARKS.md).
    fn add_chunks(&mut self, chunks: &[Chunk]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512cd") {
            // SAFETY: the processor has the features, as the line above found.
            #[allow(unsafe_code, reason = "calling a function that needs features of the processor")]
            return unsafe { self.add_chunks_by_vectors(chunks) };
        }
        for chunk in chunks {
            self.add(chunk);
        }
    }

    /// Adds a chunk or the begin of one.
    fn add(&mut self, chunk: &[u64]) {
        if chunk.is_empty() {
            return;
        }
        let mut ranges = [Range::new(), Range::new(), Range::new()];
        let mut sparse = CHUNK / 8;
        for value in chunk {
            let difference = value.wrapping_sub(self.value);
            let second = difference.wrapping_sub(self.difference);
            (self.value, self.difference) = (*value, difference);
            for (range, number) in ranges.iter_mut().zip([*value, difference, second]) {
                range.add(number);
            }
            sparse += if difference == 0 { 0 } else { varint_bytes(zigzag(difference)) };
        }
        self.add_counted(chunk.len(), &ranges, sparse);
    }

    fn add_counted(&mut self, count: usize, ranges: &[Range; 3], sparse: usize) {
        for (sum, range) in self.bytes.iter_mut().zip(ranges) {
            *sum += 1 + varint_bytes(zigzag(range.lowest())) + packed_bytes(count, range.width());
        }
        if let Some(sum) = self.bytes.last_mut() {
            *sum += sparse;
        }
    }

    /// As [`add`](Self::add), in steps that become vectors: first all differences, then what they have in common.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512cd")]
    fn add_chunks_by_vectors(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            let differences = differences(chunk, self.value);
            let seconds = self::differences(&differences, self.difference);
            if let (Some(value), Some(difference)) = (chunk.last(), differences.last()) {
                (self.value, self.difference) = (*value, *difference);
            }
            // A seventh of the bits, rounded up: the factor is exact for 0 to 64 of them.
            let bytes_of =
                |difference: &u64| ((super::bits::width_of(zigzag(*difference)) + 6) as usize * 37) >> 8;
            let sparse = differences.iter().map(bytes_of).sum::<usize>();
            let ranges = [range(chunk), range(&differences), range(&seconds)];
            self.add_counted(CHUNK, &ranges, CHUNK / 8 + sparse);
        }
    }
}

/// Each number less the one in front of it.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512cd")]
fn differences(numbers: &Chunk, last: u64) -> Chunk {
    let mut differences = *numbers;
    if let Some((first, rest)) = differences.split_first_mut() {
        *first = first.wrapping_sub(last);
        rest.iter_mut().zip(numbers).for_each(|(number, last)| *number = number.wrapping_sub(*last));
    }
    differences
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512cd")]
fn range(numbers: &Chunk) -> Range {
    let mut range = Range::new();
    for number in numbers {
        range.add(*number);
    }
    range
}

#[cfg(test)]
mod tests {
    use super::super::lane::Coding;
    use super::*;

    // Goal: what is counted is what is written, whether by vectors or value by value. Method: columns of every length up to some chunks, of numbers of every
    // width, of few changes and of regular ones; each coding writes them.
    #[test]
    fn what_is_counted_is_what_is_written() {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            state ^ state >> 31
        };
        for (rows, width) in (0..=3 * CHUNK + 1).zip((0..=64).cycle()) {
            let noise: Vec<u64> =
                (0..rows).map(|_| next().checked_shr(64 - width).unwrap_or_default()).collect();
            let seldom: Vec<u64> =
                noise.iter().map(|value| if value % 7 == 0 { *value } else { u64::MAX }).collect();
            let regular: Vec<u64> = (0..rows as u64).map(|row| (row * row) << (width / 4)).collect();
            for mut column in [noise, seldom, regular] {
                // The first value is counted as no change: as it is where it is 0.
                column.insert(0, 0);
                let counted = of_codings(&column);
                let mut plainly = Cost::new(&column);
                column.chunks(CHUNK).for_each(|chunk| plainly.add(chunk));
                assert_eq!(counted, plainly.bytes, "{column:?}");
                let written = |coding: Coding| {
                    let mut bytes = Vec::new();
                    coding.encode(&column, &mut bytes);
                    bytes.len()
                };
                let written = [Coding::Plain, Coding::Delta, Coding::DeltaOfDelta].map(written);
                assert_eq!(counted[..3], written, "{column:?}");
                let mut sparse = Vec::new();
                Coding::Sparse.encode(&column, &mut sparse);
                // Beside a column's first value, and less the rows that its last chunk has not.
                assert_eq!(counted[3] + 8, sparse.len(), "{column:?}");
            }
        }
    }
}
