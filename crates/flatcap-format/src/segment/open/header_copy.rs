//! Creates and finds the second copy of a segment's header. This copy is an attachment. A recorder
//! writes it before the first Index frame at which the segment is long enough. If a file without a
//! footer has this copy, one flipped bit in its header causes no loss of samples (docs/FORMAT.md,
//! section 2).

use std::io;
use std::path::Path;

use flatcap_stream::resync::HashBudget;
use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, LENGTH_BYTES, SliceDeframer};

use super::file_window::FileWindow;
use crate::block::BlockFeatures;
use crate::segment::format::control_frames::Attachment;
use crate::segment::format::frame_kind::{IDENTIFIER_AT, PAYLOAD_BYTES_MIN};
use crate::segment::format::header::SegmentHeader;
use crate::segment::format::payload_codec::HEADER_BYTES_MAX;
use crate::segment::format::segment_name::SegmentName;

/// Name that is reserved for this attachment.
pub(in crate::segment) const NAME: &str = "flatcap.header";
/// Identifier of an attachment frame.
const IDENTIFIER: &[u8; 4] = b"FCAT";
/// A file gets a copy only if its length plus [`FREE_BYTES`] is at least this multiple of the
/// length of the header's frame. A shorter file gets no copy, so that small segments stay small.
const SHARE: u64 = 4;
/// This number of bytes is added to the file's length, so that even the smallest segment can have a
/// copy of a short header.
const FREE_BYTES: u64 = 64 << 10;
/// Offset in bytes up to which the reader searches for a copy of the header. The limit is far
/// beyond the end of any first interval (4 MiB and one write), so that a copy is found even if a
/// full disk delayed it.
pub(in crate::segment) const SEARCH_BYTES_MAX: u64 = 256 << 20;

/// A copy of a header.
pub(in crate::segment) struct HeaderCopy {
    pub(in crate::segment) header: SegmentHeader,
    /// The bytes of the header's frame.
    pub(in crate::segment) frame: Vec<u8>,
}

/// Returns whether a file of `file_bytes` is long enough for a copy of its header's frame. The copy
/// may take at most a quarter of the sum of 64 KiB and the length of the raw file so far.
pub(in crate::segment) fn is_due(file_bytes: u64, frame_bytes: usize) -> bool {
    file_bytes.saturating_add(FREE_BYTES) >= SHARE * frame_bytes as u64
}

/// Returns the attachment that holds a copy of a header's frame.
pub(in crate::segment) fn attachment(header: &SegmentHeader, frame: Vec<u8>) -> Attachment {
    Attachment {
        name: NAME.to_owned(),
        media_type: "application/octet-stream".to_owned(),
        mono_ns: header.clocks.mono_ns,
        wall_ns: header.clocks.wall_ns,
        content: frame,
    }
}

/// Searches a raw segment for the copy of its header. If the file has the name of a segment, the
/// copy must have the run id and the segment number in this name.
pub(in crate::segment) fn find(path: &Path, window: &mut FileWindow) -> io::Result<Option<HeaderCopy>> {
    let name = path.file_name().and_then(|name| SegmentName::parse(name.to_str()?));
    let is_ours = |header: &SegmentHeader| {
        name.is_none_or(|name| (name.run_id, name.number) == (header.run_id, header.segment))
    };
    let file_bytes = window.file_bytes()?;
    let end = file_bytes.min(SEARCH_BYTES_MAX);
    let (mut at, mut budget) = (0, HashBudget::default());
    while budget.spent < HashBudget::limit(end)
        && let Some(identifier) = window.find(IDENTIFIER, at, end)?
    {
        for &kind in ChecksumKind::ALL {
            let offset = identifier.checked_sub((kind.frame_bytes(0) + IDENTIFIER_AT) as u64);
            let Some(offset) = offset else { continue };
            let (copy, hashed) = read_copy(window, offset, kind)?;
            budget.spend(hashed);
            if let Some(copy) = copy.filter(|copy| is_ours(&copy.header)) {
                return Ok(Some(copy));
            }
        }
        at = identifier + 1;
    }
    Ok(None)
}

/// Reads the copy at `offset`, if the copy is intact under this checksum kind. Also returns the
/// number of bytes that were hashed.
fn read_copy(
    window: &mut FileWindow,
    offset: u64,
    kind: ChecksumKind,
) -> io::Result<(Option<HeaderCopy>, u64)> {
    let deframer = KindDeframer::new(kind).with_max_frame_len(HEADER_BYTES_MAX as usize);
    let head = window.at(offset, deframer.header_bytes())?;
    let Some(length) = head.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_le_bytes(*length)) else {
        return Ok((None, 0));
    };
    let bytes = deframer.header_bytes() + length as usize;
    let is_possible = length <= HEADER_BYTES_MAX && length as usize >= PAYLOAD_BYTES_MIN;
    if !is_possible || offset.saturating_add(bytes as u64) > window.file_bytes()? {
        return Ok((None, 0));
    }
    let copy = match deframer.deframe(window.at(offset, bytes)?) {
        Ok(DeframeStatus::Frame(frame)) => Attachment::decode(frame.payload())
            .filter(|attachment| attachment.name == NAME)
            .and_then(|attachment| {
                let header = parse_header(&attachment.content, deframer)?;
                Some(HeaderCopy { header, frame: attachment.content })
            }),
        _ => None,
    };
    Ok((copy, bytes as u64))
}

/// Reads the header from the bytes of the header's frame.
fn parse_header(frame: &[u8], deframer: KindDeframer) -> Option<SegmentHeader> {
    let Ok(DeframeStatus::Frame(found)) = deframer.deframe(frame) else { return None };
    let (header, features) = SegmentHeader::decode_first(found.payload()).ok()?;
    let is_right = found.bytes().len() == frame.len()
        && features == BlockFeatures::NONE
        && header.checksum.frame_bytes(0) == deframer.header_bytes();
    is_right.then_some(header)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatcap_stream::Framer;
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
    use crate::segment::recover::segment_recovery::recover;
    use crate::segment::{
        Advance, Damage, FrameKind, Frames, Leftovers, LiveCompressor, SampleSpan, SealState, SegmentError,
        SegmentName, SegmentOptions, SegmentReader, SegmentWriter, SideFile,
    };
    use crate::storage::Storage;
    use crate::testing::simulated::SimulatedStorage;
    use crate::testing::{effort, example};

    const SAMPLES: usize = 24;

    /// Writes an unsealed segment, compressed or not. Returns the bytes of the segment and the
    /// length of the header's frame.
    fn unsealed(checksum: ChecksumKind, compress: bool) -> (Vec<u8>, usize) {
        let header = SegmentHeader { checksum, ..example() };
        let compressor = compress.then(|| LiveCompressor::with_defaults(&header));
        let options = SegmentOptions { preallocate: 0, compressor, copies_header: true };
        let storage = SimulatedStorage::new(0);
        let mut writer = SegmentWriter::create_with(&storage, name(), header.clone(), &[], options).unwrap();
        for number in 0..SAMPLES as u64 {
            let (mono_ns, wall_ns, seq) = (10 + number, 0, 9 + number / 2);
            let source = u16::from(number % 2 == 1);
            let mut payload = vec![0; ENVELOPE_BYTES + 64];
            let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 1 };
            Envelope::new(source).write(&mut payload, &stamp, &[7; 64]);
            let mut frame = Vec::new();
            checksum.frame_and_write(&mut frame, &payload).unwrap();
            let headers = [&frame[..checksum.frame_bytes(0)]];
            writer
                .append(Frames { pieces: &mut [io::IoSlice::new(&frame)], headers: &headers, count: 1 })
                .unwrap();
            let span = SampleSpan::of(seq, mono_ns, wall_ns);
            writer.count_samples(source, 1, span);
            if number % 8 == 7 {
                writer.append_index(0).unwrap();
            }
        }
        let header_bytes = checksum.frame_bytes(header.encode().len());
        (storage.content(&name().to_string()).unwrap(), header_bytes)
    }

    fn name() -> SegmentName {
        let header = example();
        SegmentName { number: header.segment, created_s: 0, run_id: header.run_id, state: SealState::Active }
    }

    /// Reads a file. Returns the number of samples, and the damaged ranges including the tail.
    fn read(bytes: &[u8]) -> Result<(usize, Vec<Damage>), SegmentError> {
        let storage = storage_with(bytes);
        let stored = name().to_string();
        let mut reader = SegmentReader::over(Path::new(&stored), storage.open(&stored).unwrap())?;
        let (mut samples, mut damage) = (0, Vec::new());
        while let Some(advance) = reader.advance()? {
            match advance {
                Advance::Frame(at) => samples += usize::from(at.kind == FrameKind::Telemetry),
                Advance::Damage(found) => damage.push(found),
            }
        }
        damage.extend(reader.tail());
        Ok((samples, damage))
    }

    fn storage_with(bytes: &[u8]) -> Arc<SimulatedStorage> {
        let storage = SimulatedStorage::new(0);
        let file = storage.create(&name().to_string()).unwrap();
        file.append(&[io::IoSlice::new(bytes)]).unwrap();
        Arc::new(storage)
    }

    // Proves that a flipped bit in the header of a raw file without a footer loses no sample, that
    // the damage is reported, and that a recovery keeps all samples. Without a checksum, only
    // invalid values are detected.
    #[test]
    fn a_flipped_bit_in_a_raw_header_costs_nothing() {
        for &checksum in ChecksumKind::ALL {
            let (bytes, header_bytes) = unsealed(checksum, false);
            let intact = read(&bytes).unwrap();
            assert_eq!((intact.0, intact.1.len()), (SAMPLES, 0));
            let step = if checksum == ChecksumKind::Xxh3 { effort::of(5, 1) } else { effort::of(15, 5) };
            for bit in (0..header_bytes * 8).step_by(step) {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let (samples, damage) =
                    read(&damaged).unwrap_or_else(|error| panic!("{checksum:?} {bit}: {error}"));
                let is_proven = checksum != ChecksumKind::None;
                // Without a checksum, a flipped bit may result in another valid value, which the
                // reader then uses.
                assert!(samples == SAMPLES || !is_proven, "{checksum:?} {bit}: {samples}");
                // A damaged length is repaired if the checksum proves the correct length.
                let is_repaired = bit < 32 && damage.is_empty();
                assert!(
                    !is_proven
                        || is_repaired
                        || (damage[0].offset, damage[0].length) == (0, header_bytes as u64),
                    "{checksum:?} {bit}: {damage:?}"
                );
                if bit % 95 == 40 && is_proven {
                    let storage = storage_with(&damaged);
                    let recovered = recover(&*storage, name(), &Leftovers::default(), false).unwrap();
                    assert_eq!((recovered.frames, recovered.lost), (SAMPLES as u64, 0), "{bit}");
                    assert_eq!(storage.content(&name().side_file(SideFile::Damaged)), Some(damaged));
                    let sealed = storage.content(&recovered.sealed.unwrap()).unwrap();
                    assert_eq!(read(&sealed).unwrap(), (SAMPLES, Vec::new()));
                }
            }
        }
    }

    // Proves that no sample is lost if a bit flips in the header of a file that is compressed while
    // it is recorded. This holds even if the first block, which contains the raw header, is also
    // damaged.
    #[test]
    fn a_flipped_bit_in_a_compressed_header_costs_nothing() {
        for checksum in [ChecksumKind::Xxh3, ChecksumKind::None] {
            let (bytes, _) = unsealed(checksum, true);
            let intact = read(&bytes).unwrap();
            assert_eq!((intact.0, intact.1.len()), (SAMPLES, 0));
            let first = bytes.windows(4).position(|four| four == b"FCBK").unwrap() - 16;
            for bit in (0..first * 8).step_by(effort::of(21, 7)) {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read(&damaged).unwrap(), (SAMPLES, Vec::new()), "{bit}");
                if bit % 49 == 0 {
                    let recovered =
                        recover(&*storage_with(&damaged), name(), &Leftovers::default(), false).unwrap();
                    let damage = recovered.damage.iter().map(|damage| (damage.offset, damage.length));
                    assert!(damage.eq([(0, first as u64)]), "{bit}: {recovered:?}");
                    assert_eq!((recovered.frames, recovered.lost), (SAMPLES as u64, 0), "{bit}");
                }
                damaged[first + 40] ^= 1;
                let (samples, damage) = read(&damaged).unwrap();
                assert!(samples == SAMPLES && damage[0].offset == 0, "{bit}: {damage:?}");
            }
        }
    }

    // Proves that a small file has no copy if the copy would be too large a part of the file, and
    // that a long file always has a copy.
    #[test]
    fn small_files_have_no_copy() {
        assert!(is_due(0, 16 << 10) && !is_due(0, (16 << 10) + 1));
        assert!(!is_due(256 << 10, 110 << 10) && is_due(400 << 10, 110 << 10));
    }

    proptest! {
        // Proves that damaged bytes never cause a panic or result in a wrong header. Method: random
        // bytes overwrite parts of a file whose header is missing.
        #[test]
        fn damaged_copies_are_not_believed(flips in proptest::collection::vec((any::<u32>(), any::<u8>()), 0..40)) {
            let (bytes, header_bytes) = unsealed(ChecksumKind::Crc32, false);
            let mut rest = bytes[header_bytes..].to_vec();
            for (at, value) in flips {
                let at = at as usize % rest.len();
                rest[at] = value;
            }
            let storage = storage_with(&rest);
            let file = storage.open(&name().to_string()).unwrap();
            let found = find(Path::new(&name().to_string()), &mut FileWindow::over(file)).unwrap();
            let own = SegmentHeader { checksum: ChecksumKind::Crc32, ..example() };
            prop_assert!(found.is_none_or(|copy| copy.header == own), "another header");
        }
    }
}
