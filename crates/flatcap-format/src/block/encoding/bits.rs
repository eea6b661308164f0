//! Bit packing. A chunk stores each integer in as many bits as its largest integer needs.

/// Number of integers in a chunk. With 64 integers of `width` bits each, a chunk is exactly `width`
/// words long.
pub(in crate::block) const CHUNK: usize = 64;

/// One chunk of integers.
pub(in crate::block) type Chunk = [u64; CHUNK];

/// Returns the number of bits that the largest integer of a set needs. `joined` is the bitwise OR
/// of the integers.
#[inline]
pub(in crate::block) fn width_of(joined: u64) -> u32 {
    u64::BITS - joined.leading_zeros()
}

/// The lowest and the highest number in a set of signed numbers. They determine the base and the
/// width of a chunk.
pub(in crate::block) struct SignedRange {
    lowest: i64,
    highest: i64,
}

impl SignedRange {
    pub(in crate::block) fn new() -> Self {
        Self { lowest: i64::MAX, highest: i64::MIN }
    }

    #[inline]
    pub(in crate::block) fn add(&mut self, number: u64) {
        // The comparison is signed because differences lie around 0. In an unsigned comparison, -1
        // would be far above 1.
        self.lowest = self.lowest.min(number.cast_signed());
        self.highest = self.highest.max(number.cast_signed());
    }

    pub(in crate::block) fn lowest(&self) -> u64 {
        self.lowest.cast_unsigned()
    }

    pub(in crate::block) fn width(&self) -> u32 {
        // The difference may be too large for an i64, but not for a u64. So its bits are correct
        // after wrapping.
        width_of(self.highest.wrapping_sub(self.lowest).cast_unsigned())
    }
}

// If the width is a constant, the word index and the shift of each position are constants in an
// unrolled loop.
/// Calls a function with the bit width as a compile-time constant.
macro_rules! by_width {
    (@one $function:ident, $known:literal, ($($argument:expr),*)) => { $function::<$known>($($argument),*) };
    (@all $width:expr, $function:ident, $arguments:tt, $($known:literal)*) => {
        match $width {
            $($known => by_width!(@one $function, $known, $arguments),)*
            _ => {}
        }
    };
    ($width:expr, $function:ident($($argument:expr),*)) => {
        by_width!(@all $width, $function, ($($argument),*),
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
            33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64)
    };
}

/// Returns the packed length of `count` integers in bytes. `count` is at most the length of a
/// chunk. Each integer has `width` bits, at most 64. The length is always a multiple of eight
/// bytes.
#[inline]
pub(in crate::block) fn packed_bytes(count: usize, width: u32) -> usize {
    8 * (count * width as usize).div_ceil(64)
}

/// Appends the first `count` integers of a chunk as little-endian words. Each integer has `width`
/// bits and begins with its lowest bit. The other integers of the chunk must be 0.
pub(in crate::block) fn pack(chunk: &Chunk, count: usize, width: u32, out: &mut Vec<u8>) {
    let words = packed_bytes(count, width) / 8;
    by_width!(width, pack_known(chunk, words, out));
}

/// Reads a chunk from the words of `bytes`. Missing words count as 0.
pub(in crate::block) fn unpack(bytes: &[u8], width: u32, chunk: &mut Chunk) {
    by_width!(width, unpack_known(bytes, chunk));
}

fn pack_known<const WIDTH: usize>(chunk: &Chunk, count: usize, out: &mut Vec<u8>) {
    let mut words = [0_u64; CHUNK];
    if WIDTH == 0 {
        return;
    }
    // The length of the loop is fixed. The integers after the first `count` are 0, and `take`
    // removes their words.
    for (at, value) in chunk.iter().enumerate() {
        let (word, shift) = (at * WIDTH / 64, at * WIDTH % 64);
        if let Some(low) = words.get_mut(word) {
            *low |= value << shift;
        }
        if shift + WIDTH > 64
            && let Some(high) = words.get_mut(word + 1)
        {
            // `shift` is above 0 here, because a width is at most 64. So this is never a shift by
            // 64 bits.
            *high |= value >> (64 - shift);
        }
    }
    for word in words.iter().take(count) {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn unpack_known<const WIDTH: usize>(bytes: &[u8], chunk: &mut Chunk) {
    if WIDTH == 0 {
        *chunk = [0; CHUNK];
        return;
    }
    let mut words = [0_u64; CHUNK + 1];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    // The code above returns if the width is 0, because a width of 0 would be a shift by 64 bits
    // here.
    let mask = u64::MAX >> (64 - WIDTH);
    for (at, value) in chunk.iter_mut().enumerate() {
        let (word, shift) = (at * WIDTH / 64, at * WIDTH % 64);
        let low = words.get(word).copied().unwrap_or_default() >> shift;
        let high = if shift + WIDTH > 64 {
            words.get(word + 1).copied().unwrap_or_default() << (64 - shift)
        } else {
            0
        };
        *value = (low | high) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that chunks of every bit width round-trip and take exactly the expected number of
    // bytes.
    #[test]
    fn chunks_come_back() {
        let mut state = 1_u64;
        for width in 0..=64 {
            let mut chunk = [0; CHUNK];
            for value in &mut chunk {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                *value = if width == 0 { 0 } else { (state ^ state >> 31) >> (64 - width) };
            }
            chunk[63] = if width == 0 { 0 } else { u64::MAX >> (64 - width) };
            assert_eq!(width_of(chunk.iter().fold(0, |joined, value| joined | value)), width);
            let mut bytes = vec![7];
            pack(&chunk, CHUNK, width, &mut bytes);
            assert_eq!(bytes.len(), 1 + 8 * width as usize);
            let mut back = [5; CHUNK];
            unpack(&bytes[1..], width, &mut back);
            assert_eq!(back, chunk);
            chunk[3..].fill(0);
            let mut bytes = Vec::new();
            pack(&chunk, 3, width, &mut bytes);
            assert_eq!(bytes.len(), packed_bytes(3, width));
            unpack(&bytes, width, &mut back);
            assert_eq!(back, chunk);
        }
    }
}
