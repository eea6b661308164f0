//! Detects the checksum of a stream from its start.

use std::path::Path;

use flatcap_stream::{
    ChecksumKind, DeframeStatus, HEADER_BYTES_MAX, KindDeframer, LENGTH_BYTES, SliceDeframer,
};

use crate::ImportError;
use crate::window::InputWindow;

/// Length of the examined start of a stream, in bytes. At least the whole first frame is examined.
const PROBE_BYTES: usize = 1 << 20;
/// Required proof, in bits, for a match that does not reach the end of the stream. A match by
/// chance then has a probability of 1 in 2^32.
const PROOF_BITS: usize = 32;
/// Proof, in bits, that a frame without a checksum gives if its length leads to another frame. The
/// search after damage uses the same value (docs/ARCHITECTURE.md, "The stream library").
const LENGTH_BITS: usize = 8;

/// The match of one checksum kind with the start of a stream.
#[derive(Debug, Clone, Copy)]
struct ChecksumMatch {
    kind: ChecksumKind,
    bits: usize,   // proven by frames that are not all zeros
    is_weak: bool, // relies on frames of zeros, or on lengths alone that do not lead to the end
}

/// Detects the checksum of the stream at the start of a window.
///
/// # Errors
/// `Kind` if no checksum matches or several checksums match; `Read` if the input cannot be read.
pub(super) fn detect_checksum(
    window: &mut InputWindow,
    path: &Path,
    payload_bytes_max: usize,
) -> Result<ChecksumKind, ImportError> {
    window.fill(PROBE_BYTES)?;
    let length =
        window.unconsumed().first_chunk::<LENGTH_BYTES>().map_or(0, |length| u32::from_le_bytes(*length));
    let first = (length as usize).min(payload_bytes_max) + HEADER_BYTES_MAX;
    let has_more = window.fill(PROBE_BYTES.max(first) + 1)?;
    let matches = matching_kinds(window.unconsumed(), !has_more, payload_bytes_max);
    let what = match matches.as_slice() {
        [kind] => return Ok(*kind),
        [] => {
            "not a stream of frames: its start matches no checksum; if only the start is damaged, give the \
             checksum with --checksum"
                .to_owned()
        }
        several => {
            let names: Vec<_> = several.iter().map(|kind| kind.name()).collect();
            format!("its start matches several checksums: {}; choose one with --checksum", names.join(", "))
        }
    };
    Err(ImportError::Kind { path: path.to_owned(), what })
}

/// Returns the kinds that match the start of a stream. `is_whole` says whether `bytes` is the whole
/// stream.
///
/// A kind matches if its frames lead exactly to the end of the stream, or if enough intact frames
/// are at the start. With CRC-32 or XXH3, one intact frame is enough. With CRC-16, two are
/// required. Without a checksum, four intact frames are required, and no bytes may contradict the
/// match. A match is weak if it relies on frames of zeros. A match is also weak if it relies only
/// on lengths, and the lengths do not lead to the end of the stream. A proven match has priority
/// over a weak one. Zeros at the end of payloads can be read as empty frames, and small numbers in
/// payloads as lengths.
pub(super) fn matching_kinds(bytes: &[u8], is_whole: bool, payload_bytes_max: usize) -> Vec<ChecksumKind> {
    let fit = |kind: &ChecksumKind| match_kind(*kind, bytes, is_whole, payload_bytes_max);
    let mut matches: Vec<ChecksumMatch> = ChecksumKind::ALL.iter().filter_map(fit).collect();
    let is_proven =
        |fit: &ChecksumMatch| fit.kind != ChecksumKind::None && fit.bits >= PROOF_BITS && !fit.is_weak;
    if matches.iter().any(is_proven) {
        matches.retain(|fit| !fit.is_weak);
    }
    matches.iter().map(|fit| fit.kind).collect()
}

fn match_kind(
    kind: ChecksumKind,
    bytes: &[u8],
    is_whole: bool,
    payload_bytes_max: usize,
) -> Option<ChecksumMatch> {
    let deframer = KindDeframer::new(kind).with_max_frame_len(payload_bytes_max);
    let bits_a_frame = if kind == ChecksumKind::None { LENGTH_BITS } else { 8 * kind.size() };
    let mut fit = ChecksumMatch { kind, bits: 0, is_weak: false };
    let mut rest = bytes;
    while !rest.is_empty() {
        match deframer.deframe(rest) {
            Ok(DeframeStatus::Frame(frame)) => {
                if frame.bytes().iter().all(|byte| *byte == 0) {
                    fit.is_weak = true;
                } else {
                    fit.bits += bits_a_frame;
                }
                rest = rest.get(frame.bytes().len()..).unwrap_or_default();
            }
            // The stream is truncated at this offset, or the bytes that were read end at this
            // offset.
            Ok(DeframeStatus::Incomplete { .. }) => {
                fit.is_weak |= kind == ChecksumKind::None;
                return (fit.bits >= PROOF_BITS).then_some(fit);
            }
            Err(_) if kind == ChecksumKind::None => return None,
            Err(_) => return (fit.bits >= PROOF_BITS).then_some(fit),
        }
    }
    (is_whole || fit.bits >= PROOF_BITS).then_some(fit)
}

#[cfg(test)]
mod tests {
    use flatcap_stream::Framer;

    use super::*;

    const LIMIT: usize = 32 << 20;

    fn stream(kind: ChecksumKind, payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for payload in payloads {
            kind.frame_and_write(&mut bytes, payload).unwrap();
        }
        bytes
    }

    // Proves that the checksum is detected whatever the payloads are. Method: payloads with text,
    // numbers, trailing zeros and lengths.
    #[test]
    fn a_checksum_is_detected_by_its_frames() {
        let small: Vec<u8> = (1..9_u32).flat_map(u32::to_le_bytes).collect();
        let zeros = [vec![7; 40], vec![0; 1024]].concat();
        let lengths: Vec<u8> = (0..50_u32).flat_map(|_| 8_u32.to_le_bytes()).collect();
        for payload in [b"abc".to_vec(), small, zeros, lengths, vec![9; 70_000]] {
            for count in [1, 2, 5, 300] {
                for kind in ChecksumKind::ALL {
                    let bytes = stream(*kind, &vec![payload.clone(); count]);
                    let length = bytes.len();
                    let start = &bytes[..length.min(PROBE_BYTES)];
                    let found = matching_kinds(start, start.len() == length, LIMIT);
                    assert_eq!(found, [*kind], "{count} of {} bytes, {kind}", payload.len());
                }
            }
        }
    }

    // Proves that all matches are returned if several kinds match, and that there is no match for
    // text, noise, a damaged first frame, or too little proof.
    #[test]
    fn several_matches_and_none_are_returned() {
        use ChecksumKind::{Crc16, Crc32, None, Xxh3};
        assert_eq!(matching_kinds(&[0; 4], true, LIMIT), [None]);
        assert_eq!(matching_kinds(&[0; 6], true, LIMIT), [Crc16]);
        assert_eq!(matching_kinds(&[0; 8], true, LIMIT), [Crc32, None]);
        assert_eq!(matching_kinds(&[0; 24], true, LIMIT), [Crc32, Crc16, None]);
        assert_eq!(matching_kinds(&stream(Xxh3, &[Vec::new()]), true, LIMIT), [Xxh3]);
        assert!(matching_kinds(b"time,price,size\n1,2,3\n", true, LIMIT).is_empty());
        let noise: Vec<u8> = (0..4000_u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
        assert!(matching_kinds(&noise, true, LIMIT).is_empty());
        let mut damaged = stream(Crc32, &vec![b"abcdefgh".to_vec(); 3]);
        damaged[9] ^= 1;
        assert!(matching_kinds(&damaged, true, LIMIT).is_empty());
        let two = stream(None, &vec![b"abcdefgh".to_vec(); 2]);
        assert!(
            matching_kinds(&two[..two.len() - 1], true, LIMIT).is_empty(),
            "two lengths prove too little"
        );
    }

    // Proves that truncated and damaged streams are detected as far as their start proves the
    // checksum.
    #[test]
    fn a_truncated_stream_is_detected() {
        for kind in ChecksumKind::ALL {
            let bytes = stream(*kind, &vec![b"0123456789".to_vec(); 6]);
            assert_eq!(matching_kinds(&bytes[..bytes.len() - 3], true, LIMIT), [*kind]);
            let mut damaged = bytes.clone();
            let last = bytes.len() - 1;
            damaged[last] ^= 1;
            assert_eq!(matching_kinds(&damaged, true, LIMIT), [*kind]);
        }
    }

    // Proves that both kinds are reported for bytes that are a valid stream of two kinds.
    #[test]
    fn a_stream_of_two_kinds_matches_both() {
        let second = b"the second one".to_vec();
        let over = u32::try_from(ChecksumKind::Crc32.frame_bytes(second.len())).unwrap();
        let first = [&b"the first one"[..], &over.to_le_bytes()].concat();
        let bytes = stream(ChecksumKind::Crc32, &[first, second]);
        assert_eq!(matching_kinds(&bytes, true, LIMIT), [ChecksumKind::Crc32, ChecksumKind::None]);
    }
}
