//! Random numbers that are the same for the same seed on every machine (`SplitMix64`).

use std::ops::RangeInclusive;

/// A generator of random numbers.
#[derive(Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Creates the generator of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number of this range, which is far below 2^64 wide.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let width = range.end() - range.start() + 1;
        range.start() + self.bits() % width
    }

    /// Returns one of the items, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.within(0..=items.len() as u64 - 1) as usize]
    }

    /// Brings the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.within(0..=last as u64) as usize);
        }
    }
}
