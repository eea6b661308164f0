//! Which checksum a stream has, told by its start.

use std::path::Path;

use super::window::Window;
use crate::import::ImportError;
use crate::stream::{ChecksumKind, HEADER_BYTES_MAX, KindDeframer, LENGTH_BYTES, SliceDeframer, Step};

/// So much of the start is looked at, and the first frame as a whole.
const PROBE_BYTES: usize = 1 << 20;
/// How unlikely a fit must be by chance where it does not reach the end of the stream: once in 2^32.
const PROOF_BITS: usize = 32;
/// What the length of a frame that leads to another one proves without a checksum, in bits: as in a search behind damage
/// (docs/ARCHITECTURE.md, "Salvage").
const LENGTH_BITS: usize = 8;

/// How the frames of one checksum kind lead through the start of a stream.
#[derive(Debug, Clone, Copy)]
struct Fit {
    kind: ChecksumKind,
    bits: usize,   // proven by frames that are more than zeros
    is_weak: bool, // frames of nothing but zeros were needed, or lengths alone that do not lead to the end
}

/// The checksum of the stream that begins in a window, read as far as that takes.
///
/// # Errors
/// `Kind` where several checksums fit, or none; `Read`.
pub(super) fn told(
    window: &mut Window,
    path: &Path,
    payload_bytes_max: usize,
) -> Result<ChecksumKind, ImportError> {
    window.fill(PROBE_BYTES)?;
    let length = window.rest().first_chunk::<LENGTH_BYTES>().map_or(0, |length| u32::from_le_bytes(*length));
    let first = (length as usize).min(payload_bytes_max) + HEADER_BYTES_MAX;
    let goes_on = window.fill(PROBE_BYTES.max(first) + 1)?;
    let fits = fitting(window.rest(), !goes_on, payload_bytes_max);
    let what = match fits.as_slice() {
        [kind] => return Ok(*kind),
        [] => {
            "no stream of frames by its start, whichever checksum is tried; if it is one whose start is damaged, name its \
             checksum with --checksum"
                .to_owned()
        }
        several => {
            let names: Vec<_> = several.iter().map(|kind| kind.name()).collect();
            format!("its start fits several checksums: {}; name the one with --checksum", names.join(", "))
        }
    };
    Err(ImportError::Kind { path: path.to_owned(), what })
}

/// The kinds that fit the start of a stream; `is_whole`, that there is no more of it.
///
/// A kind fits if its frames lead exactly to the end, or if intact ones from the start on prove it: one with CRC-32 or XXH3, two with
/// CRC-16. Without a checksum four must, and nothing may contradict. What fits by frames of nothing but zeros, or by lengths alone that
/// do not lead to the end, gives way to what is proven: payloads end in zeros, which read as empty frames, and hold small numbers,
/// which read as lengths.
pub(super) fn fitting(bytes: &[u8], is_whole: bool, payload_bytes_max: usize) -> Vec<ChecksumKind> {
    let fit = |kind: &ChecksumKind| fit(*kind, bytes, is_whole, payload_bytes_max);
    let mut fits: Vec<Fit> = ChecksumKind::ALL.iter().filter_map(fit).collect();
    let is_proven = |fit: &Fit| fit.kind != ChecksumKind::None && fit.bits >= PROOF_BITS && !fit.is_weak;
    if fits.iter().any(is_proven) {
        fits.retain(|fit| !fit.is_weak);
    }
    fits.iter().map(|fit| fit.kind).collect()
}

fn fit(kind: ChecksumKind, bytes: &[u8], is_whole: bool, payload_bytes_max: usize) -> Option<Fit> {
    let deframer = KindDeframer::new(kind).with_max_frame_len(payload_bytes_max);
    let bits_a_frame = if kind == ChecksumKind::None { LENGTH_BITS } else { 8 * kind.size() };
    let mut fit = Fit { kind, bits: 0, is_weak: false };
    let mut rest = bytes;
    while !rest.is_empty() {
        match deframer.deframe(rest) {
            Ok(Step::Frame(frame)) => {
                if frame.bytes().iter().all(|byte| *byte == 0) {
                    fit.is_weak = true;
                } else {
                    fit.bits += bits_a_frame;
                }
                rest = rest.get(frame.bytes().len()..).unwrap_or_default();
            }
            // Cut off here, or by the end of what was read.
            Ok(Step::Incomplete { .. }) => {
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
    use super::*;
    use crate::stream::Framer;

    const LIMIT: usize = 32 << 20;

    fn stream(kind: ChecksumKind, payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for payload in payloads {
            kind.frame_and_write(&mut bytes, payload).unwrap();
        }
        bytes
    }

    // Goal: a stream is told by its frames, whatever is in them. Method: one and many frames of every kind, with text, with numbers, with
    // zeros at their ends, with lengths in them.
    #[test]
    fn a_stream_is_told_by_its_frames() {
        let small: Vec<u8> = (1..9_u32).flat_map(u32::to_le_bytes).collect();
        let zeros = [vec![7; 40], vec![0; 1024]].concat();
        let lengths: Vec<u8> = (0..50_u32).flat_map(|_| 8_u32.to_le_bytes()).collect();
        for payload in [b"abc".to_vec(), small, zeros, lengths, vec![9; 70_000]] {
            for count in [1, 2, 5, 300] {
                for kind in ChecksumKind::ALL {
                    let bytes = stream(*kind, &vec![payload.clone(); count]);
                    let length = bytes.len();
                    let start = &bytes[..length.min(PROBE_BYTES)];
                    let found = fitting(start, start.len() == length, LIMIT);
                    assert_eq!(found, [*kind], "{count} of {} bytes, {kind}", payload.len());
                }
            }
        }
    }

    // Goal: what several kinds fit is told as that, and what none fits as none. Method: streams of empty frames; text; noise; a first
    // frame that is damaged; one frame and a bit; a stream without checksums that is cut within its second frame.
    #[test]
    fn several_and_none_are_told() {
        use ChecksumKind::{Crc16, Crc32, None, Xxh3};
        assert_eq!(fitting(&[0; 4], true, LIMIT), [None]);
        assert_eq!(fitting(&[0; 6], true, LIMIT), [Crc16]);
        assert_eq!(fitting(&[0; 8], true, LIMIT), [Crc32, None]);
        assert_eq!(fitting(&[0; 24], true, LIMIT), [Crc32, Crc16, None]);
        assert_eq!(fitting(&stream(Xxh3, &[Vec::new()]), true, LIMIT), [Xxh3]);
        assert!(fitting(b"time,price,size\n1,2,3\n", true, LIMIT).is_empty());
        let noise: Vec<u8> = (0..4000_u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_le_bytes()).collect();
        assert!(fitting(&noise, true, LIMIT).is_empty());
        let mut damaged = stream(Crc32, &vec![b"abcdefgh".to_vec(); 3]);
        damaged[9] ^= 1;
        assert!(fitting(&damaged, true, LIMIT).is_empty());
        let two = stream(None, &vec![b"abcdefgh".to_vec(); 2]);
        assert!(fitting(&two[..two.len() - 1], true, LIMIT).is_empty(), "two lengths prove too little");
    }

    // Goal: cut and damaged streams are told as far as their start proves them. Method: every kind, cut within its last frame, and damaged
    // behind its proof.
    #[test]
    fn a_cut_stream_is_told_by_what_is_whole() {
        for kind in ChecksumKind::ALL {
            let bytes = stream(*kind, &vec![b"0123456789".to_vec(); 6]);
            assert_eq!(fitting(&bytes[..bytes.len() - 3], true, LIMIT), [*kind]);
            let mut damaged = bytes.clone();
            let last = bytes.len() - 1;
            damaged[last] ^= 1;
            assert_eq!(fitting(&damaged, true, LIMIT), [*kind]);
        }
    }

    // Goal: bytes that are whole streams of two kinds are told as both. Method: two frames with CRC-32, the first of which ends in the
    // length that leads over the second one without checksums.
    #[test]
    fn a_stream_of_two_kinds_is_both() {
        let second = b"the second one".to_vec();
        let over = u32::try_from(ChecksumKind::Crc32.frame_bytes(second.len())).unwrap();
        let first = [&b"the first one"[..], &over.to_le_bytes()].concat();
        let bytes = stream(ChecksumKind::Crc32, &[first, second]);
        assert_eq!(fitting(&bytes, true, LIMIT), [ChecksumKind::Crc32, ChecksumKind::None]);
    }
}
