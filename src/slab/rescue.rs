//! What a killed run has left in its memory: finished frames, and how many readings had begun.
//!
//! Nothing in it is believed that does not prove itself: the header must fit the file, each frame its checksum.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::arena::{Geometry, HEADER_NUMBERS, MAGIC, checksum_of};
use crate::os::shared_memory::DeadMemory;
use crate::os::storage::ReadAt;
use crate::schema::envelope;
use crate::stream::{ChecksumKind, KindDeframer, SliceDeframer, Step};

/// How the files of runs are called, behind their ids.
const SUFFIX: &str = ".slabs";

/// The name of a run's file.
pub fn file_name(run_id: u64) -> String {
    format!("{run_id:016x}{SUFFIX}")
}

/// The memory of a dead run.
#[derive(Debug)]
pub struct Rescue {
    memory: DeadMemory,
    run_id: u64,
    checksum: ChecksumKind,
    frame_max: usize,
    geometry: Geometry,
}

/// A finished frame that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    mono_ns: u64,
    source: u16,
    seq: u64,
    frame: Vec<u8>,
}

impl Rescue {
    /// The memory of every dead run that recorded into the data directory with this device and inode. Files that are not
    /// what they should be are left alone.
    ///
    /// # Errors
    /// `run_dir` cannot be read.
    pub fn find(run_dir: &Path, directory: (u64, u64)) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for memory in DeadMemory::list(run_dir, SUFFIX)? {
            let path = memory.path().display().to_string();
            match Self::open(memory) {
                Ok(Some((rescue, owner))) if owner == directory => found.push(rescue),
                Ok(Some(_)) => {}
                Ok(None) => {
                    tracing::warn!(path, "not the memory of a run, or of another version; left alone");
                }
                Err(error) => tracing::warn!(path, %error, "cannot read the memory of a dead run"),
            }
        }
        Ok(found)
    }

    /// Reads the header; none if it does not fit the file. With the directory it belongs to.
    fn open(memory: DeadMemory) -> io::Result<Option<(Self, (u64, u64))>> {
        let mut header = [0; HEADER_NUMBERS * 8];
        let file = &memory.file;
        let file_bytes = file.length()?;
        if read_all(file, &mut header, 0)? < header.len() || header.first_chunk() != Some(&MAGIC) {
            return Ok(None);
        }
        let number = |at: usize| {
            let bytes = header.get(at * 8..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let size = |at: usize| usize::try_from(number(at)?).ok().filter(|size| *size as u64 <= file_bytes);
        let parsed = || {
            let geometry = Geometry {
                sources: size(6)?,
                slabs: size(7)?,
                slab_bytes: size(8)?,
                large_slabs: size(9)?,
                large_slab_bytes: size(10)?,
            };
            // Each of them is below the file's size, so that neither product nor sum leaves 128 bits.
            let product = |count: usize, bytes: usize| count as u128 * bytes as u128;
            let least = product(geometry.slabs, geometry.slab_bytes)
                + product(geometry.large_slabs, geometry.large_slab_bytes)
                + product(geometry.sources, 8);
            let fits = least <= u128::from(file_bytes) && geometry.bytes() as u64 == file_bytes;
            let frame_max = usize::try_from(number(5)?).ok()?;
            let rescue = (number(1)?, checksum_of(number(4)?)?, frame_max, geometry);
            fits.then_some((rescue, (number(2)?, number(3)?)))
        };
        Ok(parsed().map(|((run_id, checksum, frame_max, geometry), directory)| {
            (Self { memory, run_id, checksum, frame_max, geometry }, directory)
        }))
    }

    /// The run.
    pub fn run_id(&self) -> u64 {
        self.run_id
    }

    /// How many readings each source had begun, by its id.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begun(&self) -> io::Result<BTreeMap<u16, u64>> {
        let numbers = self.numbers(Geometry::begun_at(), self.geometry.sources)?;
        Ok((0..).zip(numbers).collect())
    }

    /// Every finished frame, in the order of time, each once.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn frames(&self) -> io::Result<Vec<Vec<u8>>> {
        let slabs = self.geometry.slabs + self.geometry.large_slabs;
        let lengths = self.numbers(self.geometry.lengths_at(), slabs)?;
        let mut found = Vec::new();
        let mut buffer = Vec::new();
        for (slab, length) in lengths.into_iter().enumerate() {
            let (at, bytes) = self.geometry.buffer(slab);
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes);
            buffer.resize(length, 0);
            read_all(&self.memory.file, &mut buffer, at as u64)?;
            self.walk(&buffer, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.into_iter().map(|found| found.frame).collect())
    }

    /// Removes the file: what is in it is safe.
    pub fn remove(self) {
        self.memory.remove();
    }

    fn walk(&self, mut bytes: &[u8], found: &mut Vec<Found>) {
        let deframer = KindDeframer::new(self.checksum).with_max_frame_len(self.frame_max);
        // A frame that is not right ends its slab: what follows it has no known place.
        while let Ok(Step::Frame(frame)) = deframer.deframe(bytes) {
            let Some((header, _)) = envelope::split(frame.payload()) else { return };
            found.push(Found {
                mono_ns: header.mono_ns(),
                source: header.source(),
                seq: header.seq(),
                frame: frame.bytes().to_vec(),
            });
            bytes = bytes.get(frame.bytes().len()..).unwrap_or_default();
        }
    }

    fn numbers(&self, at: usize, count: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        read_all(&self.memory.file, &mut bytes, at as u64)?;
        let (numbers, _) = bytes.as_chunks();
        Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }
}

/// Fills the buffer as far as the file goes.
fn read_all(file: &dyn ReadAt, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(free) = buffer.get_mut(filled..).filter(|free| !free.is_empty()) {
        match file.read_at(free, offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::os::event::Event;
    use crate::schema::frame::FrameHeader;
    use crate::slab::arena::{Arena, Owner};
    use crate::slab::{HandOver, HandOverSettings, LossLedger, Reading, SlabPool, slab_queue};

    const DIRECTORY: (u64, u64) = (7, 8);
    const SOURCES: u16 = 3;

    fn folder() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap()
    }

    fn payload(source: u16, seq: u64) -> Vec<u8> {
        let body = (0..seq % 40).map(|k| k.to_le_bytes()[0]);
        let mut payload = envelope::PREFIX.to_vec();
        let header = FrameHeader::new(seq * 10, 0, seq, source, 0, 0);
        payload[envelope::HEADER_AT..][..envelope::HEADER_BYTES].copy_from_slice(&header.0);
        payload.extend(body);
        let length = u32::try_from(payload.len() - envelope::ENVELOPE_BYTES).unwrap();
        payload[envelope::PAYLOAD_LENGTH_AT..][..4].copy_from_slice(&length.to_le_bytes());
        payload
    }

    /// Does steps as a run would, each a source and what becomes of the slabs, and leaves the memory as a kill would. What was
    /// finished and not given back, and what was begun.
    fn killed_run(run_dir: &Path, steps: &[(u16, bool)]) -> (Vec<(u16, u64)>, Vec<u64>) {
        let geometry = Geometry {
            sources: SOURCES.into(),
            slabs: 6,
            slab_bytes: 700,
            large_slabs: 1,
            large_slab_bytes: 9000,
        };
        let owner = Owner { run_id: 5, directory: DIRECTORY, checksum: ChecksumKind::Xxh3, frame_max: 8000 };
        let arena = Arena::kept(run_dir, geometry, &owner).unwrap();
        let begun = arena.begun();
        let pool = Arc::new(SlabPool::new(arena));
        let (queue, slabs) = slab_queue(3);
        let mut hand_over = HandOver::new(HandOverSettings {
            pool: Arc::clone(&pool),
            queue,
            ledger: Arc::new(LossLedger::new(SOURCES.into())),
            wake: Arc::new(Event::new()),
            checksum: ChecksumKind::Xxh3,
            frame_max: 8000,
            interval_ns: u64::MAX,
            begun,
            sources: SOURCES.into(),
        });
        let mut next = vec![0; SOURCES.into()];
        let mut written = Vec::new();
        for (source, writes) in steps {
            let seq = next[usize::from(*source)];
            next[usize::from(*source)] += 1;
            hand_over.begin(*source, seq);
            let payload = payload(*source, seq);
            let reading = Reading { source: *source, seq, mono_ns: seq * 10, wall_offset_ns: 0 };
            hand_over.append(reading, payload.len(), |place| place.copy_from_slice(&payload));
            if *writes && let Ok(slab) = slabs.try_recv() {
                written.extend(
                    slab.runs()
                        .iter()
                        .flat_map(|run| (run.first_seq..=run.last_seq).map(|seq| (run.source, seq))),
                );
                pool.give_back(slab);
            }
        }
        // What is queued and what is open is what a kill leaves; nothing is cleared any more.
        let queued: Vec<_> = slabs.try_iter().collect();
        let mut left: Vec<(u16, u64)> = Vec::new();
        for slab in queued.iter().map(|slab| &**slab).chain(hand_over.open_slab()) {
            for run in slab.runs() {
                left.extend((run.first_seq..=run.last_seq).map(|seq| (run.source, seq)));
            }
        }
        left.sort_unstable();
        (left, next)
    }

    fn numbers(frames: &[Vec<u8>]) -> Vec<(u16, u64)> {
        let number = |frame: &Vec<u8>| {
            let (header, _) = envelope::split(&frame[12..]).unwrap();
            assert_eq!(frame[12..], payload(header.source(), header.seq()));
            (header.source(), header.seq())
        };
        frames.iter().map(number).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        // Goal: what is rescued is what was finished and not yet written, no more and no less, and every reading that was
        // begun is known. Method: random steps, then the file as a kill would leave it.
        #[test]
        fn everything_finished_is_found(
            steps in proptest::collection::vec((0..SOURCES, any::<bool>()), 0..200),
        ) {
            let folder = folder();
            let (left, begun) = killed_run(folder.path(), &steps);
            prop_assert_eq!(Rescue::find(folder.path(), (7, 9)).unwrap().len(), 0, "another directory's");
            let mut rescues = Rescue::find(folder.path(), DIRECTORY).unwrap();
            prop_assert_eq!(rescues.len(), 1);
            let rescue = rescues.remove(0);
            prop_assert_eq!(rescue.run_id(), 5);
            prop_assert_eq!(rescue.begun().unwrap().into_values().collect::<Vec<_>>(), begun);
            let frames = rescue.frames().unwrap();
            let mut found = numbers(&frames);
            prop_assert!(found.is_sorted_by_key(|(_, seq)| *seq), "in the order of time");
            found.sort_unstable();
            prop_assert_eq!(found, left);
            rescue.remove();
            prop_assert_eq!(Rescue::find(folder.path(), DIRECTORY).unwrap().len(), 0);
        }

        // Goal: no content makes the rescue panic, take memory or believe what was not written. Method: random bytes over a
        // file that was right, the header most of all.
        #[test]
        fn damaged_memory_is_not_believed(
            damage in proptest::collection::vec((any::<u32>(), any::<u8>(), any::<bool>()), 1..30),
        ) {
            let folder = folder();
            let steps: Vec<(u16, bool)> = (0..60).map(|k| (k % SOURCES, k % 7 == 0)).collect();
            killed_run(folder.path(), &steps);
            let path = folder.path().join(file_name(5));
            let mut bytes = std::fs::read(&path).unwrap();
            for (at, value, is_header) in damage {
                let range = if is_header { 88 } else { bytes.len() };
                let at = at as usize % range;
                bytes[at] = value;
            }
            std::fs::write(&path, &bytes).unwrap();
            for rescue in Rescue::find(folder.path(), DIRECTORY).unwrap() {
                let frames = rescue.frames().unwrap();
                // Under another checksum kind than was written nothing else is known of a frame.
                if rescue.checksum == ChecksumKind::Xxh3 {
                    numbers(&frames);
                }
                rescue.begun().unwrap();
            }
        }
    }
}
