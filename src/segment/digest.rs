//! Proof that exactly these frames stand in this order (docs/FORMAT.md, "Index and digest").

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// The digest of an interval in the making: XXH3-64 of the digest before and the headers of the interval's frames.
#[derive(Clone)]
pub(super) struct Digest(XxHash3_64);

impl Digest {
    /// Behind an interval with this digest; 0 for the first.
    pub(super) fn behind(previous: u64) -> Self {
        let mut hasher = XxHash3_64::with_seed(0);
        hasher.write(&previous.to_le_bytes());
        Self(hasher)
    }

    /// Adds the headers (length and stored checksum) of frames, one behind the other.
    pub(super) fn add(&mut self, heads: &[u8]) {
        self.0.write(heads);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.finish()
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Digest").field(&self.value()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    proptest! {
        // Goal: the digest is the XXH3-64 of what the format says, however it comes in pieces. Method: an independent
        // XXH3 over the whole.
        #[test]
        fn digests_are_plain_xxh3(previous: u64, heads in proptest::collection::vec(any::<u8>(), 0..5000), cut: usize) {
            let cut = cut % (heads.len() + 1);
            let mut digest = Digest::behind(previous);
            digest.add(&heads[..cut]);
            digest.add(&heads[cut..]);
            prop_assert_eq!(digest.value(), xxh3_64(&[&previous.to_le_bytes()[..], &heads].concat()));
        }
    }
}
