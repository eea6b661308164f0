//! Crash recovery from the memory of a killed run. Recovers the complete frames of the run, and the
//! number of begun samples of each source.
//!
//! All contents of the memory are verified. The header must fit the file. Each frame must have a
//! correct checksum and a sequence number that its source had begun.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use flatcap_format::schema::envelope;
use flatcap_format::storage::ReadAt;
use flatcap_os::host;
use flatcap_os::shared_memory::SharedMemoryFile;
use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, SliceDeframer};

use super::arena::{
    ARENA_FILE_SUFFIX, Geometry, HEADER_NUMBERS, MAGIC, SOURCES_MAX, boot_numbers, checksum_from_number,
    is_arena_file_name,
};
use super::notes::{self, NOTES_BYTES_MAX};

/// Maximum time to wait for the end of a killed process, in nanoseconds. A killed process releases
/// its memory within milliseconds, unless it hangs in the kernel.
const EXIT_WAIT_MAX_NS: u64 = 5_000_000_000;

/// The memory of a crashed run.
#[derive(Debug)]
pub struct CrashedRun {
    memory: SharedMemoryFile,
    header: ArenaHeader,
}

/// The header of an arena file. The header was checked against the file's length.
#[derive(Debug, Clone, Copy)]
struct ArenaHeader {
    run_id: u64,
    directory: (u64, u64), // device and inode
    boot: (u64, u64),      // (0, 0) if unknown
    checksum: ChecksumKind,
    frame_max: usize,
    geometry: Geometry,
}

/// The classification of a file in the directory.
enum OpenedArena {
    Ours(CrashedRun),
    NotOurs,
    Unknown,
}

/// A complete frame.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct FoundFrame {
    mono_ns: u64,
    source: u16,
    seq: u64,
    frame: Vec<u8>,
}

impl CrashedRun {
    /// Finds the memory of every crashed run, except `exclude_run`, that recorded into the data
    /// directory with the device and inode `directory`. The caller must hold the lock of the data
    /// directory. Invalid files and the arenas of other data directories remain unchanged.
    ///
    /// # Errors
    /// Fails with `PermissionDenied` if another user may have written the content of `run_dir`.
    /// Fails with `ResourceBusy` if a process does not release the arena of a run that recorded
    /// into our data directory. Also returns any error of reading `run_dir`.
    pub fn find(run_dir: &Path, directory: (u64, u64), exclude_run: Option<u64>) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for memory in SharedMemoryFile::list(run_dir, ARENA_FILE_SUFFIX)? {
            let path = memory.path().display().to_string();
            match Self::open(memory, directory, exclude_run) {
                // The recorder of the run no longer holds the directory's lock, so the recorder has
                // ended or is about to end. The samples of that run must not be skipped.
                Ok(OpenedArena::Ours(run)) if run.memory.take_over(EXIT_WAIT_MAX_NS)? => found.push(run),
                Ok(OpenedArena::Ours(_)) => return Err(io::ErrorKind::ResourceBusy.into()),
                Ok(OpenedArena::NotOurs) => {}
                Ok(OpenedArena::Unknown) => {
                    tracing::warn!(path, "not the slab memory of a run of this version and boot; left alone");
                }
                Err(error) => {
                    tracing::warn!(path, %error, "cannot read the owner of this slab memory; left alone");
                }
            }
        }
        Ok(found)
    }

    /// Removes the blank arena files that killed runs of earlier versions have left. These files
    /// were never written, have the name of an arena file, and are not locked.
    ///
    /// # Errors
    /// Returns the same errors as [`find`](Self::find).
    pub fn remove_blank(run_dir: &Path) -> io::Result<()> {
        let mut files = 0;
        for memory in SharedMemoryFile::list(run_dir, ARENA_FILE_SUFFIX)? {
            // The check is repeated under the lock, because an earlier version may have locked and
            // written the file in the meantime.
            if is_arena_file_name(memory.path())
                && memory.is_blank()?
                && memory.take_over(0)?
                && memory.is_blank()?
            {
                memory.remove();
                files += 1;
            }
        }
        if files > 0 {
            let run_dir = run_dir.display();
            tracing::info!(%run_dir, files, "removed blank slab memory of killed runs");
        }
        Ok(())
    }

    /// Reads the header without a lock. A lock on the arena of another data directory would hide
    /// this arena from a recorder that searches for it at the same time.
    fn open(
        memory: SharedMemoryFile,
        directory: (u64, u64),
        exclude_run: Option<u64>,
    ) -> io::Result<OpenedArena> {
        let Some(header) = ArenaHeader::read(&memory)? else {
            // If the file is empty or locked, its run is about to start.
            let begins = memory.file.length()? == 0 || memory.is_locked();
            return Ok(if begins { OpenedArena::NotOurs } else { OpenedArena::Unknown });
        };
        if header.directory != directory || Some(header.run_id) == exclude_run {
            return Ok(OpenedArena::NotOurs);
        }
        let (now, unknown) = (boot_numbers(host::boot_id_number()), (0, 0));
        if header.boot != now && header.boot != unknown && now != unknown {
            return Ok(OpenedArena::Unknown);
        }
        Ok(OpenedArena::Ours(Self { memory, header }))
    }

    /// Returns the run's id.
    pub fn run_id(&self) -> u64 {
        self.header.run_id
    }

    /// Returns the path of the arena file.
    pub fn path(&self) -> &Path {
        self.memory.path()
    }

    /// Returns the number of samples that each source has begun, by the source's id.
    ///
    /// # Errors
    /// Returns any error of reading the file.
    pub fn begun(&self) -> io::Result<BTreeMap<u16, u64>> {
        let numbers = self.numbers(Geometry::counters_offset(), self.header.geometry.sources)?;
        Ok((0..=u16::MAX).zip(numbers).collect())
    }

    /// Returns the records in the notes of the run.
    ///
    /// # Errors
    /// Returns any error of reading the file.
    pub fn records(&self) -> io::Result<Vec<Vec<u8>>> {
        let begin = self.header.geometry.bytes() as u64;
        let bytes = self.memory.file.length()?.saturating_sub(begin).min(NOTES_BYTES_MAX as u64);
        let mut notes = vec![0; usize::try_from(bytes).unwrap_or_default()];
        let count = self.memory.file.read_all_at(&mut notes, begin)?;
        notes.truncate(count);
        Ok(notes::records(&notes, self.header.checksum))
    }

    /// Returns every complete frame in time order, without duplicates.
    ///
    /// # Errors
    /// Returns any error of reading the file.
    pub fn frames(&self) -> io::Result<Vec<Vec<u8>>> {
        let slabs = self.header.geometry.slabs + self.header.geometry.large_slabs;
        let lengths = self.numbers(self.header.geometry.lengths_offset(), slabs)?;
        let begun = self.numbers(Geometry::counters_offset(), self.header.geometry.sources)?;
        let mut found = Vec::new();
        let mut buffer = Vec::new();
        for (slab, length) in lengths.into_iter().enumerate() {
            let (at, bytes) = self.header.geometry.buffer(slab);
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes);
            buffer.resize(length, 0);
            self.memory.file.read_all_at(&mut buffer, at as u64)?;
            self.collect_frames(&buffer, &begun, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.into_iter().map(|found| found.frame).collect())
    }

    /// Removes the file. Before this call, the caller must have stored the file's content safely.
    pub fn remove(self) {
        self.memory.remove();
    }

    fn collect_frames(&self, mut bytes: &[u8], begun: &[u64], found: &mut Vec<FoundFrame>) {
        let deframer = KindDeframer::new(self.header.checksum).with_max_frame_len(self.header.frame_max);
        // An invalid frame ends the slab, because the next frame cannot be located.
        while let Ok(DeframeStatus::Frame(frame)) = deframer.deframe(bytes) {
            let Some((header, _)) = envelope::split(frame.payload()) else { return };
            let (source, seq, mono_ns) = (header.source(), header.seq(), header.mono_ns());
            // A pushed frame is counted as begun only after it is in the slab, and the process may
            // have been killed in between.
            if begun.get(usize::from(source)).is_none_or(|begun| seq > *begun) {
                return;
            }
            found.push(FoundFrame { mono_ns, source, seq, frame: frame.bytes().to_vec() });
            bytes = bytes.get(frame.bytes().len()..).unwrap_or_default();
        }
    }

    fn numbers(&self, at: usize, count: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; count * 8];
        self.memory.file.read_all_at(&mut bytes, at as u64)?;
        let (numbers, _) = bytes.as_chunks();
        Ok(numbers.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }
}

impl ArenaHeader {
    /// Reads and checks the header. Returns `None` if the header does not match the file.
    fn read(memory: &SharedMemoryFile) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_NUMBERS * 8];
        // A file without holes is not larger than the memory of the host, so the products and the
        // sum below cannot overflow.
        let Some(file_bytes) = memory.complete_length()? else { return Ok(None) };
        let count = memory.file.read_all_at(&mut bytes, 0)?;
        Ok(if count < bytes.len() { None } else { Self::parse(&bytes, file_bytes) })
    }

    fn parse(bytes: &[u8], file_bytes: u64) -> Option<Self> {
        if bytes.first_chunk() != Some(&MAGIC) {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at * 8..)?.first_chunk()?));
        let size = |at: usize| usize::try_from(number(at)?).ok().filter(|size| *size as u64 <= file_bytes);
        let geometry = Geometry {
            sources: size(6)?,
            slabs: size(7)?,
            slab_bytes: size(8)?,
            large_slabs: size(9)?,
            large_slab_bytes: size(10)?,
        };
        let product = |count: usize, bytes: usize| count as u128 * bytes as u128;
        let least = product(geometry.slabs, geometry.slab_bytes)
            + product(geometry.large_slabs, geometry.large_slab_bytes)
            + product(geometry.sources, 8);
        let fits = geometry.sources <= SOURCES_MAX
            && least <= u128::from(file_bytes)
            && geometry.bytes() as u64 <= file_bytes;
        fits.then_some(Self {
            run_id: number(1)?,
            directory: (number(2)?, number(3)?),
            boot: (number(11)?, number(12)?),
            checksum: checksum_from_number(number(4)?)?,
            frame_max: usize::try_from(number(5)?).ok()?,
            geometry,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatcap_format::schema::frame::FrameHeader;
    use flatcap_os::wake_event::WakeEvent;
    use proptest::prelude::*;

    use super::*;
    use crate::arena::{Arena, Owner, arena_file_name};
    use crate::{LossLedger, OnFull, SampleMeta, SlabPool, SlabProducer, SlabProducerSettings, slab_queue};

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

    /// Simulates a run and leaves its arena file in the state after a kill. Each step has a source
    /// and a flag that states whether a slab is taken and written. Returns the samples that are
    /// complete but not written, and the number of samples that each source has begun.
    fn killed_run(run_dir: &Path, steps: &[(u16, bool)]) -> (Vec<(u16, u64)>, Vec<u64>) {
        let geometry = Geometry {
            sources: SOURCES.into(),
            slabs: 6,
            slab_bytes: 700,
            large_slabs: 1,
            large_slab_bytes: 9000,
        };
        let owner = Owner {
            run_id: 5,
            directory: DIRECTORY,
            checksum: ChecksumKind::Xxh3,
            frame_max: 8000,
            boot: host::boot_id_number(),
        };
        let arena = Arena::file_backed(run_dir, geometry, &owner).unwrap();
        let begun = arena.sequence_counters();
        let pool = Arc::new(SlabPool::new(arena));
        let (queue, mut slabs) = slab_queue(3, OnFull::DropNewest);
        let mut producer = SlabProducer::new(SlabProducerSettings {
            pool: Arc::clone(&pool),
            queue,
            ledger: Arc::new(LossLedger::new(SOURCES.into())),
            wake: Arc::new(WakeEvent::new()),
            checksum: ChecksumKind::Xxh3,
            frame_max: 8000,
            flush_interval_ns: u64::MAX,
            sequence_counters: begun,
            sources: SOURCES.into(),
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        let mut next = vec![0; SOURCES.into()];
        let mut written = Vec::new();
        for (source, writes) in steps {
            let seq = next[usize::from(*source)];
            next[usize::from(*source)] += 1;
            producer.begin_sample(*source, seq);
            let payload = payload(*source, seq);
            let reading = SampleMeta { source: *source, seq, mono_ns: seq * 10, wall_offset_ns: 0 };
            producer.append(&reading, payload.len(), |place| place.copy_from_slice(&payload));
            if *writes && let Ok(slab) = slabs.try_recv() {
                written.extend(
                    slab.ranges()
                        .iter()
                        .flat_map(|run| (run.first_seq..=run.last_seq).map(|seq| (run.source, seq))),
                );
                pool.give_back(slab);
            }
        }
        // A kill leaves the queued slabs and the open slab uncleared.
        let queued: Vec<_> = std::iter::from_fn(|| slabs.try_recv().ok()).collect();
        let mut left: Vec<(u16, u64)> = Vec::new();
        for slab in queued.iter().map(|slab| &**slab).chain(producer.open_slab()) {
            for run in slab.ranges() {
                left.extend((run.first_seq..=run.last_seq).map(|seq| (run.source, seq)));
            }
        }
        left.sort_unstable();
        (left, next)
    }

    // Proves that the records in the notes of a killed run are found, up to a truncated record.
    #[test]
    fn records_are_found() {
        let folder = folder();
        let geometry =
            Geometry { sources: 9, slabs: 2, slab_bytes: 700, large_slabs: 1, large_slab_bytes: 9000 };
        for checksum in ChecksumKind::ALL.iter().copied() {
            let owner = Owner { run_id: 6, directory: DIRECTORY, checksum, frame_max: 8000, boot: 0 };
            let mut arena = Arena::file_backed(folder.path(), geometry, &owner).unwrap();
            let mut notes = arena.take_notes().unwrap();
            let records = [vec![7; 1000], vec![8; 1], vec![9; 20_000]];
            for record in &records {
                notes.append(record).unwrap();
            }
            drop((arena, notes));
            let path = folder.path().join(arena_file_name(6));
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            for cut in 0..2 {
                file.set_len(file.metadata().unwrap().len() - cut).unwrap();
                let found = CrashedRun::find(folder.path(), DIRECTORY, None).unwrap();
                let whole = records.len() - usize::try_from(cut).unwrap();
                assert_eq!(found[0].records().unwrap(), records[..whole], "{checksum}");
                if cut == 1 {
                    found.into_iter().for_each(CrashedRun::remove);
                }
            }
        }
    }

    fn numbers(frames: &[Vec<u8>]) -> Vec<(u16, u64)> {
        let number = |frame: &Vec<u8>| {
            let (header, _) = envelope::split(&frame[12..]).unwrap();
            assert_eq!(frame[12..], payload(header.source(), header.seq()));
            (header.source(), header.seq())
        };
        frames.iter().map(number).collect()
    }

    struct SetOnDrop<'a>(&'a WakeEvent);

    impl Drop for SetOnDrop<'_> {
        fn drop(&mut self) {
            self.0.set();
        }
    }

    // Proves that recorders of other directories that constantly scan the same `run_dir` hide no
    // file from each other or from a run that starts.
    #[test]
    fn concurrent_scans_hide_nothing() {
        let folder = folder();
        let done = WakeEvent::new();
        std::thread::scope(|scope| {
            // This ends the scanning threads even if an assertion fails.
            let _ends = SetOnDrop(&done);
            for other in 0..2 {
                let (folder, done) = (&folder, &done);
                scope.spawn(move || {
                    while !done.is_set() {
                        assert_eq!(CrashedRun::find(folder.path(), (1, other), None).unwrap().len(), 0);
                    }
                });
            }
            for _ in 0..200 {
                let (left, _) = killed_run(folder.path(), &[(0, false), (1, false)]);
                assert_eq!(CrashedRun::find(folder.path(), DIRECTORY, Some(5)).unwrap().len(), 0, "spared");
                let found = CrashedRun::find(folder.path(), DIRECTORY, None).unwrap();
                assert_eq!(numbers(&found[0].frames().unwrap()), left);
                found.into_iter().for_each(CrashedRun::remove);
            }
        });
    }

    // Proves that a file of an unknown owner is not removed. The file is empty, has wrong content,
    // or has a valid header before a hole of the right size.
    #[test]
    fn unknown_files_are_left_alone() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false)]);
        let whole = std::fs::read(folder.path().join(arena_file_name(5))).unwrap();
        for (name, content) in
            [("a", &[][..]), ("b", &[7; 5000]), ("c", &whole[..100]), ("d", &whole[..4096])]
        {
            let path = folder.path().join(format!("{name}{ARENA_FILE_SUFFIX}"));
            std::fs::write(&path, content).unwrap();
            if name == "d" {
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(whole.len() as u64).unwrap();
            }
        }
        let found = CrashedRun::find(folder.path(), DIRECTORY, None).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    // Proves that only files to which nothing was written are removed. These are blank files that
    // have the name of an arena file and are not locked.
    #[test]
    fn blank_memory_is_removed() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false)]);
        let path = |name: &str| folder.path().join(name);
        let blank = [arena_file_name(1), arena_file_name(2), arena_file_name(3)];
        for (name, content) in blank.iter().zip([&[][..], &[0; 100], &[0; 9000]]) {
            std::fs::write(path(name), content).unwrap();
        }
        std::fs::write(path("notes.slabs"), [0; 9000]).unwrap();
        std::fs::write(path(&arena_file_name(6)), [7; 5000]).unwrap();
        std::fs::write(path(&arena_file_name(7)), [0; 9000]).unwrap();
        let held = std::fs::File::open(path(&arena_file_name(7))).unwrap();
        held.lock().unwrap();
        CrashedRun::remove_blank(folder.path()).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            [arena_file_name(5), arena_file_name(6), arena_file_name(7), "notes.slabs".to_owned()]
                .map(std::ffi::OsString::from)
        );
        drop(held);
        assert_eq!(CrashedRun::find(folder.path(), DIRECTORY, None).unwrap().len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        // Proves that after random steps, recovery finds exactly the frames that are complete and
        // not yet written, and the number of samples that were begun.
        #[test]
        fn everything_finished_is_found(
            steps in proptest::collection::vec((0..SOURCES, any::<bool>()), 0..200),
        ) {
            let folder = folder();
            let (left, begun) = killed_run(folder.path(), &steps);
            prop_assert_eq!(CrashedRun::find(folder.path(), (7, 9), None).unwrap().len(), 0, "another directory's");
            let mut rescues = CrashedRun::find(folder.path(), DIRECTORY, None).unwrap();
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
            prop_assert_eq!(CrashedRun::find(folder.path(), DIRECTORY, None).unwrap().len(), 0);
        }

        // Proves that recovery of a damaged file does not panic, does not exhaust memory, and does
        // not accept frames that were never written.
        #[test]
        fn damaged_memory_is_rejected(
            damage in proptest::collection::vec((any::<u32>(), any::<u8>(), any::<bool>()), 1..30),
        ) {
            let folder = folder();
            let steps: Vec<(u16, bool)> = (0..60).map(|k| (k % SOURCES, k % 7 == 0)).collect();
            killed_run(folder.path(), &steps);
            let path = folder.path().join(arena_file_name(5));
            let mut bytes = std::fs::read(&path).unwrap();
            for (at, value, is_header) in damage {
                let range = if is_header { HEADER_NUMBERS * 8 } else { bytes.len() };
                let at = at as usize % range;
                bytes[at] = value;
            }
            std::fs::write(&path, &bytes).unwrap();
            for rescue in CrashedRun::find(folder.path(), DIRECTORY, None).unwrap() {
                let frames = rescue.frames().unwrap();
                // If the header has another checksum kind, damaged frames may be accepted.
                if rescue.header.checksum == ChecksumKind::Xxh3 {
                    numbers(&frames);
                }
                rescue.begun().unwrap();
            }
        }
    }

    // Proves that extreme numbers in a header cause no panic and do not exhaust memory, and that
    // the arena of another boot is not recovered.
    #[test]
    fn extreme_headers_are_rejected() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false)]);
        let path = folder.path().join(arena_file_name(5));
        let right = std::fs::read(&path).unwrap();
        let find = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            CrashedRun::find(folder.path(), DIRECTORY, None).unwrap().pop()
        };
        let with = |bytes: &[u8], at: usize, number: u64| {
            let mut bytes = bytes.to_vec();
            bytes[at * 8..][..8].copy_from_slice(&number.to_le_bytes());
            bytes
        };
        for at in 0..HEADER_NUMBERS {
            for number in [0, 1, 1 << 12, 1 << 32, (1 << 61) + 1, u64::MAX] {
                if let Some(rescue) = find(&with(&right, at, number)) {
                    rescue.begun().unwrap();
                    rescue.frames().unwrap();
                }
            }
        }
        let without_slabs =
            (7..=10).fold(right[..HEADER_NUMBERS * 8].to_vec(), |bytes, at| with(&bytes, at, 0));
        let sources = |count: u64| {
            let mut bytes = with(&without_slabs, 6, count);
            bytes.resize(4096 + 8 * usize::try_from(count).unwrap(), 0);
            bytes
        };
        let all = find(&sources(1 << 16)).unwrap();
        assert_eq!((all.begun().unwrap().len(), all.frames().unwrap().len()), (1 << 16, 0));
        drop(all);
        assert!(find(&sources(1 << 17)).is_none(), "more sources than ids");
        assert!(find(&right).is_some());
        assert!(find(&with(&right, 12, 1)).is_none(), "another boot's");
        assert!(path.exists(), "left alone");
    }

    // Proves that a frame is rejected if its number is above the number of its source's next
    // sample. The next sample itself is accepted, because a pushed frame is complete before it is
    // counted as begun.
    #[test]
    fn frames_not_begun_are_rejected() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false), (0, false), (0, false)]);
        let path = folder.path().join(arena_file_name(5));
        let mut bytes = std::fs::read(&path).unwrap();
        let frames = || CrashedRun::find(folder.path(), DIRECTORY, None).unwrap()[0].frames().unwrap().len();
        assert_eq!(frames(), 3);
        bytes[Geometry::counters_offset()] = 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(frames(), 2);
    }
}
