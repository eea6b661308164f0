//! Streams that the tests write, read and damage. They are the same in every run.

use std::ops::Range;

use flatcap_stream::{Checksum, ChecksumKind, Framer};

/// Xorshift generator, which returns the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number below `bound`, which is at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 32) as u8).collect()
    }
}

/// A stream and the range of each of its frames.
#[derive(Clone)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: Vec<Range<usize>>,
    pub(crate) payloads: Vec<Vec<u8>>,
}

impl Stream {
    pub(crate) fn new<F: Framer>(framer: &F, payloads: Vec<Vec<u8>>) -> Self {
        let mut stream = Self { bytes: Vec::new(), frames: Vec::new(), payloads };
        for payload in &stream.payloads {
            let start = stream.bytes.len();
            framer.frame_and_write(&mut stream.bytes, payload).unwrap();
            stream.frames.push(start..stream.bytes.len());
        }
        stream
    }

    /// Creates a stream of random payloads with these lengths.
    pub(crate) fn of_lengths(kind: ChecksumKind, lengths: &[usize], seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self::new(&kind, lengths.iter().map(|&length| random.bytes(length)).collect())
    }

    /// Returns the bytes with one bit flipped.
    pub(crate) fn flipped(&self, bit: usize) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    }
}

/// Returns a callback that appends the payloads of a reader.
pub(crate) fn push_to(payloads: &mut Vec<Vec<u8>>) -> impl FnMut(&[u8]) -> flatcap_stream::Result<()> + '_ {
    |payload| {
        payloads.push(payload.to_vec());
        Ok(())
    }
}

/// A custom checksum of a width that the crate does not have. It is FNV-1a, folded to 24 bits.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Fold24;

impl Checksum for Fold24 {
    const SIZE: usize = 3;

    fn calculate(&self, payload: &[u8]) -> u64 {
        let hash = payload.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
        (hash ^ hash >> 24 ^ hash >> 48) & 0xFF_FFFF
    }
}
