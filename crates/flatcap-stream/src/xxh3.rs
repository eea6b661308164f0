//! XXH3-64 with seed 0 and the default secret, computed with the widest vector instructions of the
//! processor. The function can copy the input in the same pass.
//!
//! The crate `twox-hash` handles most lengths up to 240 bytes, and all lengths on processors
//! without AVX2. The other lengths are implemented here for three reasons:
//!
//! - Lengths of 17 to 128 bytes, typical of telemetry, are hashed inline.
//! - AVX-512 reduces the time for hashing medium payloads by a quarter.
//! - During framing, the hash uses the same registers as the copy of the payload. So copying and
//!   hashing takes almost no more time than copying alone.
//!
//! The algorithm follows the XXH3 specification (`doc/xxhash_spec.md` of xxHash 0.8).

use super::short_bytes::copy;

/// Maximum length of an input that is not hashed in stripes, in bytes.
const SHORT_BYTES_MAX: usize = 240;

const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME_MX1: u64 = 0x1656_6791_9E37_79F9;

#[rustfmt::skip]
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// Returns the XXH3-64 hash of `bytes`.
#[inline]
pub(super) fn hash(bytes: &[u8]) -> u64 {
    match bytes.len() {
        17..=128 => hash_pairs(bytes),
        _ => hash_other(bytes),
    }
}

/// Copies `from` to `to` and returns the XXH3-64 hash of the bytes.
///
/// # Panics
/// Panics if the lengths of `from` and `to` differ.
#[inline]
pub(super) fn copy_and_hash(from: &[u8], to: &mut [u8]) -> u64 {
    if from.len() <= SHORT_BYTES_MAX {
        copy(to, from);
        return hash(from);
    }
    copy_and_hash_long(from, to)
}

/// Hashes 17 to 128 bytes as up to four pairs of 16 bytes, from both ends towards the middle.
#[inline]
fn hash_pairs(bytes: &[u8]) -> u64 {
    let mut sum = (bytes.len() as u64).wrapping_mul(PRIME64_1);
    sum = sum.wrapping_add(pair::<16>(bytes));
    if bytes.len() > 32 {
        sum = sum.wrapping_add(pair::<32>(bytes));
        if bytes.len() > 64 {
            sum = sum.wrapping_add(pair::<48>(bytes));
            if bytes.len() > 96 {
                sum = sum.wrapping_add(pair::<64>(bytes));
            }
        }
    }
    avalanche(sum)
}

/// Mixes the 16 bytes that end N bytes after the start with the 16 bytes that begin N bytes before
/// the end.
#[inline]
fn pair<const N: usize>(bytes: &[u8]) -> u64 {
    let (Some(front), Some(back)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return 0 };
    let (Some(front), Some(back)) = (front.last_chunk::<16>(), back.first_chunk::<16>()) else { return 0 };
    mix(front, 2 * N - 32).wrapping_add(mix(back, 2 * N - 16))
}

/// Mixes 16 bytes of the input and of the secret into one number.
#[inline]
fn mix(bytes: &[u8; 16], secret_at: usize) -> u64 {
    let secret = SECRET.get(secret_at..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; 16]);
    // Loads word by word, because a 16-byte load would stall if single values of these bytes were
    // just written.
    let word = |bytes: &[u8; 16], index: usize| {
        bytes.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_le_bytes(*word))
    };
    fold(word(bytes, 0) ^ word(secret, 0), word(bytes, 1) ^ word(secret, 1))
}

/// Multiplies two numbers and combines the two halves of the product into one number.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the low half, to be folded with the high half")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn avalanche(sum: u64) -> u64 {
    let mixed = (sum ^ (sum >> 37)).wrapping_mul(PRIME_MX1);
    mixed ^ (mixed >> 32)
}

/// Hashes inputs of all other lengths. This function is not inlined, so that the callers' loops
/// over short payloads remain small.
#[inline(never)]
fn hash_other(bytes: &[u8]) -> u64 {
    let long = if bytes.len() > SHORT_BYTES_MAX { long::hash(bytes, long::Nowhere) } else { None };
    long.unwrap_or_else(|| twox_hash::XxHash3_64::oneshot(bytes))
}

#[inline(never)]
fn copy_and_hash_long(from: &[u8], to: &mut [u8]) -> u64 {
    assert_eq!(from.len(), to.len(), "source and destination of a copy must have the same length");
    long::hash(from, long::Copied(to)).unwrap_or_else(|| {
        copy(to, from);
        twox_hash::XxHash3_64::oneshot(from)
    })
}

/// Hashing of inputs above 240 bytes, with eight 64-bit accumulators over stripes of 64 bytes.
#[cfg(target_arch = "x86_64")]
mod long {
    use super::{PRIME64_1, SECRET, avalanche, fold};

    #[allow(clippy::wildcard_imports, reason = "eighteen intrinsics, each named where it is used")]
    use std::arch::x86_64::*;

    /// Number of bytes that are accumulated in one step.
    const STRIPE_BYTES: usize = 64;
    /// Number of bytes after which the accumulators are scrambled, because the secret is used up.
    const BLOCK_BYTES: usize = 16 * STRIPE_BYTES;
    /// Number of blocks by which the prefetch of a long input is ahead of the hashing. A long input
    /// may be in main memory. Reading main memory is far slower than accumulating.
    const BLOCKS_AHEAD: usize = 2;
    /// Minimum number of blocks of an input that is prefetched.
    const LONG_BLOCKS: usize = 16;
    /// Number of bytes by which the offset in the secret advances per stripe.
    const SECRET_STEP_BYTES: usize = 8;
    /// Offset of the part of the secret that is used for scrambling.
    const SCRAMBLE_AT: usize = SECRET.len() - STRIPE_BYTES;
    /// Offset of the part of the secret that is used for the last stripe.
    const LAST_AT: usize = SCRAMBLE_AT - 7;
    /// Offset of the part of the secret that is used for merging.
    const MERGE_AT: usize = 11;

    const PRIME32_1: u64 = 0x9E37_79B1;
    const PRIME32_2: u64 = 0x85EB_CA77;
    const PRIME32_3: u64 = 0xC2B2_AE3D;
    const PRIME64_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
    const PRIME64_3: u64 = 0x1656_67B1_9E37_79F9;
    const PRIME64_4: u64 = 0x85EB_CA77_C2B2_AE63;
    const PRIME64_5: u64 = 0x27D4_EB2F_1656_67C5;

    const START: [u64; 8] =
        [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];

    type Stripe = [u8; STRIPE_BYTES];

    /// Destination of the stripes that are hashed.
    pub(super) trait CopyTarget {
        /// Returns the destination of the stripe that begins at `offset` of the input.
        fn stripe(&mut self, offset: usize) -> Option<&mut Stripe>;
    }

    /// A destination that discards the stripes.
    pub(super) struct Nowhere;

    /// A destination that copies all stripes to a slice.
    pub(super) struct Copied<'a>(pub(super) &'a mut [u8]);

    impl CopyTarget for Nowhere {
        #[inline]
        fn stripe(&mut self, _offset: usize) -> Option<&mut Stripe> {
            None
        }
    }

    impl CopyTarget for Copied<'_> {
        #[inline]
        fn stripe(&mut self, offset: usize) -> Option<&mut Stripe> {
            self.0.get_mut(offset..)?.first_chunk_mut()
        }
    }

    /// Returns the hash of more than 240 bytes, or `None` if the processor has neither AVX-512 nor
    /// AVX2.
    #[inline]
    pub(super) fn hash(bytes: &[u8], target: impl CopyTarget) -> Option<u64> {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the line above detected the feature.
            #[allow(unsafe_code, reason = "calling a function that needs a feature of the processor")]
            return Some(merge(&unsafe { avx512::sums(bytes, target) }, bytes.len()));
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the line above detected the feature.
            #[allow(unsafe_code, reason = "calling a function that needs a feature of the processor")]
            return Some(merge(&unsafe { avx2::sums(bytes, target) }, bytes.len()));
        }
        None
    }

    /// The steps of the hash for both vector widths: one vector of 64 bytes or two vectors of 32
    /// bytes. The vectors are fields and not elements of an array, because the functions of
    /// iterators are compiled without the feature of the processor. If the compiler does not inline
    /// all of these functions, hashing takes ten times as long.
    macro_rules! by_vectors {
        ($name:ident, $feature:literal, $vector:ty, [$($part:ident at $at:literal),+], {
            $load:ident, $store:ident, $xor:ident, $add:ident, $multiply:ident, $right:ident, $left:ident, $swap:ident,
            $fill:ident
        }) => {
            mod $name {
                use super::*;

                #[derive(Clone, Copy)]
                struct Accumulators {
                    $($part: $vector),+
                }

                // Checks that all vectors lie within a stripe.
                const _: () = {
                    $(assert!($at + size_of::<$vector>() <= STRIPE_BYTES);)+
                };

                #[target_feature(enable = $feature)]
                #[allow(unsafe_code, reason = "the intrinsics take pointers; word by word is half as fast")]
                pub(super) fn sums(bytes: &[u8], mut target: impl CopyTarget) -> [u64; 8] {
                    let mut sums = Accumulators {
                        // SAFETY: reads words of the array; the load needs no alignment.
                        $($part: unsafe { $load(START.as_ptr().byte_add($at).cast()) }),+
                    };
                    let mut offset = 0;
                    // The last stripe ends at the end of the input and may overlap; it is never
                    // empty.
                    let Some((_, front)) = bytes.split_last() else { return START };
                    let (blocks, rest) = front.as_chunks::<BLOCK_BYTES>();
                    for (number, block) in blocks.iter().enumerate() {
                        if blocks.len() >= LONG_BLOCKS
                            && let Some(ahead) = blocks.get(number + BLOCKS_AHEAD)
                        {
                            fetch(ahead);
                        }
                        for (index, stripe) in block.as_chunks::<STRIPE_BYTES>().0.iter().enumerate() {
                            let data = take(stripe, target.stripe(offset));
                            accumulate(&mut sums, &data, secret_at(SECRET_STEP_BYTES * index));
                            offset += STRIPE_BYTES;
                        }
                        scramble(&mut sums);
                    }
                    for (index, stripe) in rest.as_chunks::<STRIPE_BYTES>().0.iter().enumerate() {
                        let data = take(stripe, target.stripe(offset));
                        accumulate(&mut sums, &data, secret_at(SECRET_STEP_BYTES * index));
                        offset += STRIPE_BYTES;
                    }
                    if let Some(last) = bytes.last_chunk::<STRIPE_BYTES>() {
                        let data = take(last, target.stripe(bytes.len() - STRIPE_BYTES));
                        accumulate(&mut sums, &data, secret_at(LAST_AT));
                    }
                    let mut out = START;
                    // SAFETY: writes words of the array; the store needs no alignment.
                    $(unsafe { $store(out.as_mut_ptr().byte_add($at).cast(), sums.$part) };)+
                    out
                }

                #[inline]
                #[target_feature(enable = $feature)]
                fn take(stripe: &Stripe, target: Option<&mut Stripe>) -> Accumulators {
                    let data = load_all(stripe);
                    if let Some(target) = target {
                        store_all(target, &data);
                    }
                    data
                }

                #[inline]
                #[target_feature(enable = $feature)]
                fn accumulate(sums: &mut Accumulators, data: &Accumulators, secret: &Stripe) {
                    let secret = load_all(secret);
                    $(
                        let keyed = $xor(data.$part, secret.$part);
                        let product = $multiply(keyed, $right::<32>(keyed));
                        sums.$part = $add(product, $add(sums.$part, $swap::<0b01_00_11_10>(data.$part)));
                    )+
                }

                #[inline]
                #[target_feature(enable = $feature)]
                fn scramble(sums: &mut Accumulators) {
                    let prime = $fill(PRIME32_1.cast_signed());
                    let secret = load_all(secret_at(SCRAMBLE_AT));
                    $(
                        let sum = sums.$part;
                        let keyed = $xor($xor(sum, $right::<47>(sum)), secret.$part);
                        let high = $multiply($right::<32>(keyed), prime);
                        sums.$part = $add($multiply(keyed, prime), $left::<32>(high));
                    )+
                }

                #[inline]
                #[target_feature(enable = $feature)]
                #[allow(unsafe_code, reason = "the intrinsic takes a pointer; word by word is half as fast")]
                fn load_all(stripe: &Stripe) -> Accumulators {
                    Accumulators {
                        // SAFETY: reads bytes of the stripe; the load needs no alignment.
                        $($part: unsafe { $load(stripe.as_ptr().add($at).cast()) }),+
                    }
                }

                #[inline]
                #[target_feature(enable = $feature)]
                #[allow(unsafe_code, reason = "the intrinsic takes a pointer; word by word is half as fast")]
                fn store_all(stripe: &mut Stripe, sums: &Accumulators) {
                    // SAFETY: writes bytes of the stripe; the store needs no alignment.
                    $(unsafe { $store(stripe.as_mut_ptr().add($at).cast(), sums.$part) };)+
                }
            }
        };
    }

    by_vectors!(avx512, "avx512f", __m512i, [whole at 0], {
        _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512, _mm512_add_epi64, _mm512_mul_epu32,
        _mm512_srli_epi64, _mm512_slli_epi64, _mm512_shuffle_epi32, _mm512_set1_epi64
    });
    by_vectors!(avx2, "avx2", __m256i, [low at 0, high at 32], {
        _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256, _mm256_add_epi64, _mm256_mul_epu32,
        _mm256_srli_epi64, _mm256_slli_epi64, _mm256_shuffle_epi32, _mm256_set1_epi64x
    });

    /// Prefetches a later block.
    #[inline]
    #[allow(unsafe_code, reason = "the intrinsic takes a pointer")]
    fn fetch(block: &[u8; BLOCK_BYTES]) {
        for stripe in block.as_chunks::<STRIPE_BYTES>().0 {
            // SAFETY: a prefetch is only a hint, and the address is within the array.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(stripe.as_ptr().cast()) };
        }
    }

    /// Returns 64 bytes of the secret. Each offset is a constant, or 8 times the index of a stripe
    /// in its block of 16 stripes. So all offsets are in bounds.
    #[inline]
    fn secret_at(offset: usize) -> &'static Stripe {
        SECRET.get(offset..).and_then(<[u8]>::first_chunk).unwrap_or(&[0; STRIPE_BYTES])
    }

    /// Merges the eight accumulators into one number.
    #[inline]
    fn merge(sums: &[u64; 8], length: usize) -> u64 {
        let secret = SECRET.get(MERGE_AT..).and_then(<[u8]>::first_chunk).map_or([0; 8], bytes_as_words);
        let pairs = sums.as_chunks::<2>().0.iter().zip(secret.as_chunks::<2>().0);
        let start = (length as u64).wrapping_mul(PRIME64_1);
        avalanche(
            pairs.fold(start, |merged, ([a, b], [key_a, key_b])| {
                merged.wrapping_add(fold(a ^ key_a, b ^ key_b))
            }),
        )
    }

    #[inline]
    fn bytes_as_words(bytes: &Stripe) -> [u64; 8] {
        let mut words = [0; 8];
        words
            .iter_mut()
            .zip(bytes.as_chunks().0)
            .for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
        words
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        // Proves that both vector widths give the hash of twox-hash and an exact copy. Method:
        // every length up to two blocks, and some greater lengths.
        #[test]
        fn every_width_agrees() {
            let bytes: Vec<u8> = (0..9000_u32).map(|index| (index * 7 % 251) as u8).collect();
            for length in (241..2300).chain([4095, 4096, 4097, 9000]) {
                let bytes = &bytes[..length];
                let expected = twox_hash::XxHash3_64::oneshot(bytes);
                let mut copy = vec![0; length];
                if is_x86_feature_detected!("avx512f") {
                    // SAFETY: the processor has the feature.
                    #[allow(unsafe_code, reason = "as above")]
                    let hash = merge(&unsafe { avx512::sums(bytes, Copied(&mut copy)) }, length);
                    assert_eq!((hash, &copy[..]), (expected, bytes), "{length} bytes");
                }
                copy.fill(0);
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has the feature.
                    #[allow(unsafe_code, reason = "as above")]
                    let hash = merge(&unsafe { avx2::sums(bytes, Copied(&mut copy)) }, length);
                    assert_eq!((hash, &copy[..]), (expected, bytes), "{length} bytes");
                }
            }
        }
    }
}

/// On other processors, `twox-hash` hashes the long inputs.
#[cfg(not(target_arch = "x86_64"))]
mod long {
    pub(super) struct Nowhere;
    #[allow(dead_code, reason = "nothing is copied here")]
    pub(super) struct Copied<'a>(pub(super) &'a mut [u8]);

    pub(super) fn hash<T>(_bytes: &[u8], _target: T) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that copying gives an exact copy and the same hash at every length up to 600 bytes.
    #[test]
    fn copying_changes_nothing() {
        let bytes: Vec<u8> = (0..600_u32).map(|index| (index * 31 % 253) as u8).collect();
        for length in 0..=bytes.len() {
            let bytes = &bytes[..length];
            let mut to = vec![0; length];
            let expected = twox_hash::XxHash3_64::oneshot(bytes);
            assert_eq!((hash(bytes), copy_and_hash(bytes, &mut to)), (expected, expected), "{length} bytes");
            assert_eq!(to, bytes);
        }
    }
}
