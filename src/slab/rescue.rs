//! What a killed run has left in its memory: finished frames, and how many readings had begun.
//!
//! Nothing in it is believed that does not prove itself: the header must fit the file, each frame its checksum and the
//! numbers that its source had begun.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::arena::{Geometry, HEADER_NUMBERS, MAGIC, SOURCES_MAX, boot_numbers, checksum_of};
use crate::os::host;
use crate::os::shared_memory::KeptMemory;
use crate::os::storage::ReadAt;
use crate::schema::envelope;
use crate::stream::{ChecksumKind, KindDeframer, SliceDeframer, Step};

/// How the files of runs are called, behind their ids.
const SUFFIX: &str = ".slabs";
/// A killed process lets go of its memory within milliseconds; one that hangs in the kernel is given up after this.
const DYING_MAX_NS: u64 = 5_000_000_000;

/// The name of a run's file.
pub fn file_name(run_id: u64) -> String {
    format!("{run_id:016x}{SUFFIX}")
}

/// Whether a file is called as that of a run.
fn is_run_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let run_id = name.strip_suffix(SUFFIX).and_then(|run_id| u64::from_str_radix(run_id, 16).ok());
    run_id.is_some_and(|run_id| file_name(run_id) == name)
}

/// The memory of a dead run.
#[derive(Debug)]
pub struct Rescue {
    memory: KeptMemory,
    header: Header,
}

/// What a file says of itself, and its length bears out.
#[derive(Debug, Clone, Copy)]
struct Header {
    run_id: u64,
    directory: (u64, u64), // device and inode
    boot: (u64, u64),      // (0, 0) if unknown
    checksum: ChecksumKind,
    frame_max: usize,
    geometry: Geometry,
}

/// What a file in the directory is.
enum Opened {
    Ours(Rescue),
    NotOurs,
    Unknown,
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
    /// The memory of every dead run but `spare_run` that recorded into the data directory with this device and inode, whose
    /// lock the caller holds. Files that are not what they should be are left alone, those of other directories untouched.
    ///
    /// # Errors
    /// `PermissionDenied` where somebody else may have written what is in `run_dir`; it cannot be read; `ResourceBusy` if a
    /// process does not let go of what is ours.
    pub fn find(run_dir: &Path, directory: (u64, u64), spare_run: Option<u64>) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for memory in KeptMemory::list(run_dir, SUFFIX)? {
            let path = memory.path().display().to_string();
            match Self::open(memory, directory, spare_run) {
                // Its recorder does not hold the directory's lock any more, so that it is dead or dies at this moment. What
                // it left is not to be passed over.
                Ok(Opened::Ours(rescue)) if rescue.memory.take_over(DYING_MAX_NS)? => found.push(rescue),
                Ok(Opened::Ours(_)) => return Err(io::ErrorKind::ResourceBusy.into()),
                Ok(Opened::NotOurs) => {}
                Ok(Opened::Unknown) => {
                    tracing::warn!(
                        path,
                        "not the memory of a run, or of another version or boot; left alone"
                    );
                }
                Err(error) => tracing::warn!(path, %error, "cannot read whose memory it is; left alone"),
            }
        }
        Ok(found)
    }

    /// Removes the files that killed runs of earlier versions have left before they wrote to them: blank, under a run's name, and
    /// locked by nobody.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn remove_blank(run_dir: &Path) -> io::Result<()> {
        let mut files = 0;
        for memory in KeptMemory::list(run_dir, SUFFIX)? {
            // Once more under the lock: an earlier version may have locked it in between, to write to it.
            if is_run_name(memory.path())
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
            tracing::info!(%run_dir, files, "removed memory that killed runs had not written to");
        }
        Ok(())
    }

    /// Reads the header without a lock: one on the memory of another directory's run would hide it from whoever looks for it
    /// at the same time.
    fn open(memory: KeptMemory, directory: (u64, u64), spare_run: Option<u64>) -> io::Result<Opened> {
        let Some(header) = Header::read(&memory)? else {
            // Empty, or held: its run is about to begin.
            let begins = memory.file.length()? == 0 || memory.is_held();
            return Ok(if begins { Opened::NotOurs } else { Opened::Unknown });
        };
        if header.directory != directory || Some(header.run_id) == spare_run {
            return Ok(Opened::NotOurs);
        }
        let (now, unknown) = (boot_numbers(host::boot_number()), (0, 0));
        if header.boot != now && header.boot != unknown && now != unknown {
            return Ok(Opened::Unknown);
        }
        Ok(Opened::Ours(Self { memory, header }))
    }

    /// The run.
    pub fn run_id(&self) -> u64 {
        self.header.run_id
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        self.memory.path()
    }

    /// How many readings each source had begun, by its id.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begun(&self) -> io::Result<BTreeMap<u16, u64>> {
        let numbers = self.numbers(Geometry::begun_at(), self.header.geometry.sources)?;
        Ok((0..=u16::MAX).zip(numbers).collect())
    }

    /// Every finished frame, in the order of time, each once.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn frames(&self) -> io::Result<Vec<Vec<u8>>> {
        let slabs = self.header.geometry.slabs + self.header.geometry.large_slabs;
        let lengths = self.numbers(self.header.geometry.lengths_at(), slabs)?;
        let begun = self.numbers(Geometry::begun_at(), self.header.geometry.sources)?;
        let mut found = Vec::new();
        let mut buffer = Vec::new();
        for (slab, length) in lengths.into_iter().enumerate() {
            let (at, bytes) = self.header.geometry.buffer(slab);
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes);
            buffer.resize(length, 0);
            self.memory.file.read_all_at(&mut buffer, at as u64)?;
            self.walk(&buffer, &begun, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        Ok(found.into_iter().map(|found| found.frame).collect())
    }

    /// Removes the file: what is in it is safe.
    pub fn remove(self) {
        self.memory.remove();
    }

    fn walk(&self, mut bytes: &[u8], begun: &[u64], found: &mut Vec<Found>) {
        let deframer = KindDeframer::new(self.header.checksum).with_max_frame_len(self.header.frame_max);
        // A frame that is not right ends its slab: what follows it has no known place.
        while let Ok(Step::Frame(frame)) = deframer.deframe(bytes) {
            let Some((header, _)) = envelope::split(frame.payload()) else { return };
            let (source, seq, mono_ns) = (header.source(), header.seq(), header.mono_ns());
            if begun.get(usize::from(source)).is_none_or(|begun| seq >= *begun) {
                return;
            }
            found.push(Found { mono_ns, source, seq, frame: frame.bytes().to_vec() });
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

impl Header {
    /// None if it does not fit the file.
    fn read(memory: &KeptMemory) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_NUMBERS * 8];
        // With no hole in it a file is no larger than the memory there is: below, neither product nor sum overflows.
        let Some(file_bytes) = memory.whole_length()? else { return Ok(None) };
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
            && geometry.bytes() as u64 == file_bytes;
        fits.then_some(Self {
            run_id: number(1)?,
            directory: (number(2)?, number(3)?),
            boot: (number(11)?, number(12)?),
            checksum: checksum_of(number(4)?)?,
            frame_max: usize::try_from(number(5)?).ok()?,
            geometry,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::os::event::Event;
    use crate::schema::frame::FrameHeader;
    use crate::slab::arena::{Arena, Owner};
    use crate::slab::{HandOver, HandOverSettings, LossLedger, OnFull, Reading, SlabPool, slab_queue};

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
        let owner = Owner {
            run_id: 5,
            directory: DIRECTORY,
            checksum: ChecksumKind::Xxh3,
            frame_max: 8000,
            boot: host::boot_number(),
        };
        let arena = Arena::kept(run_dir, geometry, &owner).unwrap();
        let begun = arena.begun();
        let pool = Arc::new(SlabPool::new(arena));
        let (queue, mut slabs) = slab_queue(3, OnFull::DropNewest);
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
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        let mut next = vec![0; SOURCES.into()];
        let mut written = Vec::new();
        for (source, writes) in steps {
            let seq = next[usize::from(*source)];
            next[usize::from(*source)] += 1;
            hand_over.begin(*source, seq);
            let payload = payload(*source, seq);
            let reading = Reading { source: *source, seq, mono_ns: seq * 10, wall_offset_ns: 0 };
            hand_over.append(&reading, payload.len(), |place| place.copy_from_slice(&payload));
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
        let queued: Vec<_> = std::iter::from_fn(|| slabs.try_recv().ok()).collect();
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

    struct Ends<'a>(&'a Event);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.set();
        }
    }

    // Goal: recorders of other directories that look into the same place at the same time hide nothing from each other, nor
    // from one that begins. Method: two that look all the time, one that dies again and again and must be found.
    #[test]
    fn others_that_look_hide_nothing() {
        let folder = folder();
        let done = Event::new();
        std::thread::scope(|scope| {
            // A failure, too, ends those that look.
            let _ends = Ends(&done);
            for other in 0..2 {
                let (folder, done) = (&folder, &done);
                scope.spawn(move || {
                    while !done.is_set() {
                        assert_eq!(Rescue::find(folder.path(), (1, other), None).unwrap().len(), 0);
                    }
                });
            }
            for _ in 0..200 {
                let (left, _) = killed_run(folder.path(), &[(0, false), (1, false)]);
                assert_eq!(Rescue::find(folder.path(), DIRECTORY, Some(5)).unwrap().len(), 0, "spared");
                let found = Rescue::find(folder.path(), DIRECTORY, None).unwrap();
                assert_eq!(numbers(&found[0].frames().unwrap()), left);
                found.into_iter().for_each(Rescue::remove);
            }
        });
    }

    // Goal: what does not say whose it is stays, however it looks. Method: no bytes, wrong bytes, and a right header in front
    // of a hole of the right size.
    #[test]
    fn what_is_not_known_is_left_alone() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false)]);
        let whole = std::fs::read(folder.path().join(file_name(5))).unwrap();
        for (name, content) in
            [("a", &[][..]), ("b", &[7; 5000]), ("c", &whole[..100]), ("d", &whole[..4096])]
        {
            let path = folder.path().join(format!("{name}{SUFFIX}"));
            std::fs::write(&path, content).unwrap();
            if name == "d" {
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(whole.len() as u64).unwrap();
            }
        }
        let found = Rescue::find(folder.path(), DIRECTORY, None).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    }

    // Goal: what a kill left before anything was written to it goes, and nothing else. Method: empty and zeros under a run's name;
    // zeros under another name, zeros that are locked, a run's memory, a page that is not zero.
    #[test]
    fn blank_memory_is_removed() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false)]);
        let path = |name: &str| folder.path().join(name);
        let blank = [file_name(1), file_name(2), file_name(3)];
        for (name, content) in blank.iter().zip([&[][..], &[0; 100], &[0; 9000]]) {
            std::fs::write(path(name), content).unwrap();
        }
        std::fs::write(path("notes.slabs"), [0; 9000]).unwrap();
        std::fs::write(path(&file_name(6)), [7; 5000]).unwrap();
        std::fs::write(path(&file_name(7)), [0; 9000]).unwrap();
        let held = std::fs::File::open(path(&file_name(7))).unwrap();
        held.lock().unwrap();
        Rescue::remove_blank(folder.path()).unwrap();
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(
            left,
            [file_name(5), file_name(6), file_name(7), "notes.slabs".to_owned()]
                .map(std::ffi::OsString::from)
        );
        drop(held);
        assert_eq!(Rescue::find(folder.path(), DIRECTORY, None).unwrap().len(), 1);
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
            prop_assert_eq!(Rescue::find(folder.path(), (7, 9), None).unwrap().len(), 0, "another directory's");
            let mut rescues = Rescue::find(folder.path(), DIRECTORY, None).unwrap();
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
            prop_assert_eq!(Rescue::find(folder.path(), DIRECTORY, None).unwrap().len(), 0);
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
                let range = if is_header { HEADER_NUMBERS * 8 } else { bytes.len() };
                let at = at as usize % range;
                bytes[at] = value;
            }
            std::fs::write(&path, &bytes).unwrap();
            for rescue in Rescue::find(folder.path(), DIRECTORY, None).unwrap() {
                let frames = rescue.frames().unwrap();
                // Under another checksum kind than was written nothing else is known of a frame.
                if rescue.header.checksum == ChecksumKind::Xxh3 {
                    numbers(&frames);
                }
                rescue.begun().unwrap();
            }
        }
    }

    // Goal: numbers in a header that only a hostile hand writes neither panic nor take memory, and a header of another boot is
    // not ours. Method: extremes in every place of the header; as many sources as ids, and more; another boot id.
    #[test]
    fn extreme_headers_are_survived() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false)]);
        let path = folder.path().join(file_name(5));
        let right = std::fs::read(&path).unwrap();
        let find = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Rescue::find(folder.path(), DIRECTORY, None).unwrap().pop()
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

    // Goal: a frame is not believed if its source had not begun so many readings. Method: a right file, its number lowered.
    #[test]
    fn numbers_that_were_not_begun_are_not_believed() {
        let folder = folder();
        killed_run(folder.path(), &[(0, false), (0, false), (0, false)]);
        let path = folder.path().join(file_name(5));
        let mut bytes = std::fs::read(&path).unwrap();
        let frames = || Rescue::find(folder.path(), DIRECTORY, None).unwrap()[0].frames().unwrap().len();
        assert_eq!(frames(), 3);
        bytes[Geometry::begun_at()] = 2;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(frames(), 2);
    }
}
