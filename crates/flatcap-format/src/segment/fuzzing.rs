//! Checks properties that must hold for any input. The fuzz targets in `fuzz/`, and the tests that
//! run their corpus, call the functions of this module.
//!
//! Each of these functions accepts untrusted bytes, and panics if the code under test violates a
//! property. This module is compiled only for tests and with the feature `fuzzing`. Releases do not
//! contain it.

use std::path::Path;
use std::sync::Arc;

use super::recover::segment_recovery::recover;
use super::verify::batch_source::BatchSource;
use super::{
    Advance, CompressedSegment, FrameKind, Leftovers, SealState, SegmentName, SegmentReader, Verification,
};
use crate::storage::{ReadAt, Storage};
use crate::testing::memory::MemoryStorage;

/// Opens `data` as a segment, reads the segment, and verifies it. Frames and damaged ranges must
/// cover the file without overlap, and the verifier must give the same result whether it reads
/// batches or single frames.
///
/// # Panics
/// Panics if the reader or the verifier violates a property.
pub fn segment(data: &[u8]) {
    let file: Arc<dyn ReadAt> = Arc::new(data.to_vec());
    let path = Path::new("fuzz.bin");
    let Ok(mut reader) = SegmentReader::over(path, Arc::clone(&file)) else { return };
    let (mut end, mut damaged, mut samples) = (0, 0, 0);
    while let Ok(Some(advance)) = reader.advance() {
        match advance {
            Advance::Frame(at) => {
                assert_eq!(at.offset, end, "frames and damaged ranges are contiguous");
                assert_eq!(
                    reader.bytes(at).len(),
                    at.bytes,
                    "a frame's bytes are available until the next frame"
                );
                let mut copied = Vec::new();
                reader.copy_frame(at, &mut copied);
                let is_unchanged = copied == reader.bytes(at);
                assert!(at.is_repaired || is_unchanged, "an intact frame is copied unchanged");
                if at.kind == FrameKind::Telemetry {
                    assert!(reader.sample(at).is_some(), "a sample can be read");
                    samples += 1;
                }
                damaged += usize::from(at.is_repaired);
                end += at.bytes as u64;
            }
            Advance::Damage(damage) => {
                assert_eq!(damage.offset, end, "frames and damaged ranges are contiguous");
                assert!(damage.length > 0, "a damaged range is not empty");
                damaged += 1;
                end += damage.length;
            }
        }
    }
    if let Some(tail) = reader.tail() {
        assert_eq!(tail.offset, end, "a tail follows the last frame");
        // If the blocks contain no frames of this segment, their raw bytes are the tail, which may
        // be longer than the file.
        let most = reader.compressed().map_or(0, CompressedSegment::raw_bytes).max(data.len() as u64);
        assert!(tail.length > 0 && tail.length <= most, "a tail is not empty");
        // A tail after the last block is measured in bytes of the file, because its raw length is
        // not known.
        let is_after_blocks = reader.compressed().is_some_and(|compressed| compressed.raw_bytes() == end);
        end += if is_after_blocks { 0 } else { tail.length };
    }
    let length = reader.compressed().map_or(data.len() as u64, CompressedSegment::raw_bytes);
    assert_eq!(end, length, "frames, damaged ranges and tail reach the end");
    let is_sealed = reader.is_sealed();

    let Ok(mut reader) = SegmentReader::over(path, Arc::clone(&file)) else { unreachable!("opened before") };
    let mut verification = Verification::default();
    let result = verification.verify(&mut reader, false, &mut |_| {});
    assert!(result.is_ok(), "memory can be read");
    let verdict = verification.finish();
    let Ok(mut reader) = SegmentReader::over(path, file) else { unreachable!("opened before") };
    let mut verification = Verification::default();
    let result = verification.verify_with(&mut reader, BatchSource::new(None, 0), false, &mut |_| {});
    assert!(result.is_ok(), "memory can be read");
    assert_eq!(verdict, verification.finish(), "batches do not change the verdict");
    assert_eq!(verdict.frames, samples, "reader and verifier see the same samples");
    assert!(verdict.flaws.len() >= damaged, "each damaged range is a flaw");
    assert!(is_sealed || !verdict.is_intact(), "an unsealed segment is not intact");
}

/// Recovers `data` as a segment that a crash has left. The recovered segment must be sealed, intact
/// and complete. The recovery must save all bytes that are not in this segment to side files.
///
/// # Panics
/// Panics if the recovery violates a property.
pub fn complete(data: &[u8]) {
    let name = SegmentName { number: 3, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
    let storage = MemoryStorage::default();
    storage.put(&name.to_string(), data);
    let Ok(recovered) = recover(&storage, name, &Leftovers::default(), false) else { return };
    let names = storage.names();
    assert!(
        names.iter().all(|name| !name.ends_with(".active") && !name.ends_with(".recovering")),
        "{names:?}"
    );
    for name in &recovered.set_aside {
        assert!(names.contains(name), "{name} was set aside");
    }
    let Some(sealed) = recovered.sealed else { return };
    let Ok(file) = storage.open(&sealed) else { unreachable!("it is sealed under that name") };
    let reader = SegmentReader::over(Path::new(&sealed), file);
    let mut reader = reader.unwrap_or_else(|error| unreachable!("a sealed segment can be read: {error}"));
    assert!(reader.is_sealed());
    let mut verification = Verification::default();
    let result = verification.verify(&mut reader, false, &mut |_| {});
    assert!(result.is_ok(), "memory can be read");
    let verdict = verification.finish();
    assert!(verdict.is_intact(), "{:?}", verdict.flaws);
    assert_eq!(verdict.unexplained(), 0, "{:?}", verdict.unexplained_gaps);
    assert_eq!(verdict.frames, recovered.frames, "the recovery reports the right number of samples");
}

/// Parses `data` as the file name of a segment. If `data` is a valid name, formatting the parsed
/// name must produce `data` again.
///
/// # Panics
/// Panics if the parser violates a property.
pub fn name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(name) = SegmentName::parse(text) {
        assert_eq!(name.to_string(), text, "an accepted name prints as it was read");
        assert_eq!(SegmentName::parse(&name.sealed().to_string()), Some(name.sealed()));
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::panic::catch_unwind;

    use flatcap_stream::Framer;

    use super::super::{Frames, SegmentWriter, SourceInfo};
    use super::*;
    use crate::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
    use crate::testing::effort;
    use crate::testing::example;

    /// Number of mutations per file. With this number, all files together take a few seconds in a
    /// debug build.
    const MUTATIONS: u64 = 60;

    struct SegmentMutator(u64);

    impl SegmentMutator {
        fn next(&mut self) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap()
        }

        /// Makes one to four changes. A change flips a bit, or truncates, removes, repeats or
        /// zeroes bytes.
        fn mutate(&mut self, bytes: &mut Vec<u8>) {
            for _ in 0..=self.next() % 4 {
                let at = self.next() % bytes.len().max(1);
                let end = (at + 1 + self.next() % 300).min(bytes.len());
                if at >= end {
                    continue;
                }
                match self.next() % 5 {
                    0 => bytes[at] ^= 1 << (self.next() % 8),
                    1 => bytes.truncate(at),
                    2 => drop(bytes.drain(at..end)),
                    3 => bytes.extend_from_within(at..end),
                    _ => bytes[at..end].fill(0),
                }
            }
        }
    }

    fn run(folder: &str, entry: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let Ok(entries) = std::fs::read_dir(&folder) else {
            println!("skipped: no {}", folder.display());
            return;
        };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for (seed, file) in (1..).zip(&files) {
            let original = std::fs::read(file).unwrap();
            entry(&original);
            let mut random = SegmentMutator(seed);
            for round in 0..effort::of(MUTATIONS / 4, MUTATIONS) {
                let mut bytes = original.clone();
                random.mutate(&mut bytes);
                let result = catch_unwind(|| entry(&bytes));
                assert!(result.is_ok(), "{}, seed {seed}, round {round}", file.display());
            }
        }
    }

    // Proves that recovery and verification begin a later source at the number in the source's
    // descriptor. Samples at or above this number are kept, and samples below it are left out.
    #[test]
    fn described_sources_begin_where_they_say() {
        for (first, frames) in [(5, 3), (3, 1)] {
            let name =
                SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
            let storage = MemoryStorage::default();
            let mut writer = SegmentWriter::create(&storage, name, example(), &[], 0).unwrap();
            let late = example().sources.swap_remove(1);
            let late = SourceInfo { id: 2, name: "late".into(), next_seq: 5, ..late };
            writer.append_source(late).unwrap();
            for seq in first..first + 3 {
                let mut payload = vec![0; ENVELOPE_BYTES];
                let stamp =
                    Stamp { mono_ns: seq, wall_ns: 0, seq, incomplete: Incomplete::NONE, duration_ns: 1 };
                Envelope::new(2).write(&mut payload, &stamp, &[]);
                let mut frame = Vec::new();
                writer.checksum().frame_and_write(&mut frame, &payload).unwrap();
                let headers = [&frame[..writer.checksum().frame_bytes(0)]];
                let mut pieces = [IoSlice::new(&frame)];
                writer.append(Frames { pieces: &mut pieces, headers: &headers, count: 1 }).unwrap();
            }
            let file = writer.file();
            let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            complete(&bytes);
            let recovered = recover(&storage, name, &Leftovers::default(), false).unwrap();
            assert_eq!((recovered.frames, recovered.lost), (frames, 0));
        }
    }

    // Proves that the properties of reader and verifier hold for the golden segments and for
    // mutations of these segments.
    #[test]
    fn segments_hold_near_the_corpus() {
        run("../../tests/corpus", segment);
    }

    // Proves that recovered segments are intact and complete. Method: recover the golden segments
    // and mutations of these segments.
    #[test]
    fn recoveries_hold_near_the_corpus() {
        run("../../tests/corpus", complete);
    }

    // Proves that names that are similar to a valid name are accepted only if they are valid.
    #[test]
    fn names_hold_near_their_corpus() {
        run("../../fuzz/corpus/name", name);
    }
}
