//! What must hold for any bytes at all: the entries of `fuzz/`, and of the tests that run its corpus.
//!
//! Each takes bytes of a stranger and panics where this room breaks a promise. None is in a release: the module is there
//! for tests and under the feature `fuzzing`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{Advance, FrameKind, SegmentName, SegmentReader, Verification};
use crate::os::storage::ReadAt;

#[derive(Debug)]
struct Memory(Vec<u8>);

impl ReadAt for Memory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.0.get(from..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

/// Opens `data` as a segment, walks it and verifies it: frames and holes tile the file, and the verifier sees the same.
///
/// # Panics
/// A promise of the reader or the verifier is broken.
pub fn segment(data: &[u8]) {
    let file: Arc<dyn ReadAt> = Arc::new(Memory(data.to_vec()));
    let path = Path::new("fuzz.bin");
    let Ok(mut reader) = SegmentReader::over(path, Arc::clone(&file)) else { return };
    let (mut end, mut holes, mut samples) = (0, 0, 0);
    while let Ok(Some(advance)) = reader.advance() {
        match advance {
            Advance::Frame(at) => {
                assert_eq!(at.offset, end, "frames and holes follow one another");
                assert_eq!(reader.bytes(at).len(), at.bytes, "a frame's bytes are there until the next one");
                let mut copied = Vec::new();
                reader.copy_frame(at, &mut copied);
                let as_it_stood = copied == reader.bytes(at);
                assert!(at.is_repaired || as_it_stood, "an intact frame is copied as it stands");
                if at.kind == FrameKind::Telemetry {
                    assert!(reader.telemetry(at).is_some(), "a sample can be read");
                    samples += 1;
                }
                holes += usize::from(at.is_repaired);
                end += at.bytes as u64;
            }
            Advance::Damage(damage) => {
                assert_eq!(damage.offset, end, "frames and holes follow one another");
                assert!(damage.length > 0, "a hole has bytes");
                holes += 1;
                end += damage.length;
            }
        }
    }
    if let Some(tail) = reader.tail() {
        assert_eq!(tail.offset, end, "a tail follows the last frame");
        end += tail.length;
    }
    assert_eq!(end, data.len() as u64, "frames, holes and tail reach the end");
    let is_sealed = reader.is_sealed();

    let Ok(mut reader) = SegmentReader::over(path, file) else { unreachable!("opened before") };
    let mut verification = Verification::default();
    let walked = verification.segment(&mut reader, false, &mut |_| {});
    assert!(walked.is_ok(), "memory can be read");
    let verdict = verification.finish();
    assert_eq!(verdict.frames, samples, "both walks see the same samples");
    assert!(verdict.flaws.len() >= holes, "each hole is a flaw");
    assert!(is_sealed || !verdict.is_intact(), "what is not sealed is not intact");
}

/// Reads `data` as a file's name: what is taken for ours prints as it reads.
///
/// # Panics
/// It does not.
pub fn name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(name) = SegmentName::parse(text) {
        assert_eq!(name.to_string(), text, "a name that is ours prints as it reads");
        assert_eq!(SegmentName::parse(&name.sealed().to_string()), Some(name.sealed()));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    /// Of each file, so that all of them stay below some seconds in a debug build.
    const MUTATIONS: u64 = 60;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap()
        }

        /// One to four changes: bits, cuts, removals, repetitions, zeros.
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
            println!("passed over: no {}", folder.display());
            return;
        };
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for (seed, file) in (1..).zip(&files) {
            let original = std::fs::read(file).unwrap();
            entry(&original);
            let mut random = Random(seed);
            for round in 0..MUTATIONS {
                let mut bytes = original.clone();
                random.mutate(&mut bytes);
                let held = catch_unwind(|| entry(&bytes));
                assert!(held.is_ok(), "{}, seed {seed}, round {round}", file.display());
            }
        }
    }

    // Goal: reader and verifier keep their promises on the golden segments and near them. Method: every file and some
    // mutations of it, the same in every run.
    #[test]
    fn segments_hold_near_the_corpus() {
        run("tests/corpus", segment);
    }

    // Goal: names near ours are ours only in full. Method: as above.
    #[test]
    fn names_hold_near_their_corpus() {
        run("fuzz/corpus/name", name);
    }
}
