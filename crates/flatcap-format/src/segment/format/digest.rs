//! The digest of a sequence of frames. It proves that exactly these frames follow each other in
//! exactly this order (docs/FORMAT.md, "Index and digest").

use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// The running digest of an interval. The digest is the XXH3-64 hash of the previous interval's
/// digest and the headers of this interval's frames.
#[derive(Clone)]
pub(in crate::segment) struct Digest(XxHash3_64);

impl Digest {
    /// Starts the digest of an interval, given the digest of the previous interval. `previous` is 0
    /// for the first interval.
    pub(in crate::segment) fn after(previous: u64) -> Self {
        let mut hasher = XxHash3_64::with_seed(0);
        hasher.write(&previous.to_le_bytes());
        Self(hasher)
    }

    /// Adds the concatenated headers of frames. A header consists of the length and the stored
    /// checksum.
    pub(in crate::segment) fn add(&mut self, headers: &[u8]) {
        self.0.write(headers);
    }

    pub(in crate::segment) fn value(&self) -> u64 {
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
        // Proves that the digest is the XXH3-64 hash that the format defines, regardless of how the
        // input is split. Method: comparison with an independent implementation.
        #[test]
        fn digests_are_plain_xxh3(previous: u64, heads in proptest::collection::vec(any::<u8>(), 0..5000), cut: usize) {
            let cut = cut % (heads.len() + 1);
            let mut digest = Digest::after(previous);
            digest.add(&heads[..cut]);
            digest.add(&heads[cut..]);
            prop_assert_eq!(digest.value(), xxh3_64(&[&previous.to_le_bytes()[..], &heads].concat()));
        }
    }
}
