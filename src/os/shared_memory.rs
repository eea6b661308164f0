//! Memory that outlives a killed process: a file on tmpfs, mapped shared, taken in full at the start and handed out in
//! pieces that do not overlap.
//!
//! The only place in the agent where memory is reached through a raw pointer: Rust has no safe way to share a mapping that
//! the kernel keeps when the process dies, and copying each frame into a file by `write` would cost a system call (230 ns
//! at least) where the frame itself takes 7 to 60.

use std::fs::{DirBuilder, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, fallocate, fstatfs, linkat, openat};

use super::clock::monotonic_ns;
use super::directory::{Access, Directory};
use super::environment;
use super::event::Event;
use super::storage::ReadAt;

/// What `statfs(2)` says of tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Access to the directory: its owner alone.
const DIRECTORY_MODE: u32 = 0o700;
/// Access to the file.
const FILE_MODE: u32 = 0o600;
/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// The unit in which the kernel counts what a file occupies (stat(2)).
const BLOCK_BYTES: u64 = 512;
/// How much of a file is looked at to see whether anybody has written to it.
const PAGE_BYTES: usize = 4096;
/// How often a lock that is held is tried again.
const LOCK_AGAIN_NS: u64 = 5_000_000;
/// So much is mapped in one call: a thread that changes the process's mappings meanwhile waits for no more.
const POPULATE_STEP_BYTES: usize = 1 << 20;
/// Pieces begin at multiples of this: a cache line, and more than any number needs.
const ALIGNMENT: usize = 64;

/// Where runs keep their memory if nobody says otherwise: the service's runtime directory, else one of the user's own under
/// /dev/shm.
pub fn default_directory() -> PathBuf {
    let given = environment::directory("RUNTIME_DIRECTORY");
    given.unwrap_or_else(|| PathBuf::from(format!("/dev/shm/flatcap-{}", rustix::process::getuid().as_raw())))
}

/// Makes a directory that is ours and closed to others, if there is none.
///
/// # Errors
/// What the kernel says; `PermissionDenied` where it is there and not ours, or others may write into it.
pub fn own_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    open_trusted(directory).map(drop)
}

/// Whether a directory is there, ours, and closed to others: what is in it was put there by us.
pub fn is_own_directory(directory: &Path) -> bool {
    open_trusted(directory).is_ok()
}

/// A stretch of memory, zero at first.
#[derive(Debug)]
pub struct SharedMemory {
    map: Arc<MmapRaw>,
    taken: usize, // <= map.len(), a multiple of ALIGNMENT
}

/// The file of a [`SharedMemory`] that has no name yet.
#[derive(Debug)]
pub struct UnnamedFile {
    folder: Directory,
    file: File,
}

impl UnnamedFile {
    /// Gives the file its name: from now on it outlives this process. The mapping keeps it open, and its lock held.
    ///
    /// # Errors
    /// The name is taken; what the kernel says, among it that /proc is missing.
    pub fn publish(self, name: &str) -> io::Result<()> {
        // By way of /proc: by its descriptor alone it takes CAP_DAC_READ_SEARCH (open(2), O_TMPFILE).
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(linkat(CWD, link.as_str(), &self.folder, name, AtFlags::SYMLINK_FOLLOW)?)
    }
}

impl SharedMemory {
    /// Memory that goes with the process.
    ///
    /// # Errors
    /// The kernel has none.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let map = MmapMut::map_anon(bytes.max(1))?;
        Ok(Self { map: Arc::new(map.into()), taken: 0 })
    }

    /// Memory in a file of `directory` without a name, locked (flock) for as long as this process lives. All of it is taken
    /// from tmpfs at once: memory that is missing later would be a SIGBUS. A kill takes it until it has a name
    /// ([`UnnamedFile::publish`]), so that none is left that says nothing of its owner.
    ///
    /// # Errors
    /// The directory is none, not ours, open to others, or not on tmpfs; tmpfs is full (`StorageFull`).
    pub fn create(directory: &Path, bytes: usize) -> io::Result<(Self, UnnamedFile)> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        let folder = open_trusted(directory)?;
        if u64::try_from(fstatfs(&folder)?.f_type).ok() != Some(TMPFS_MAGIC) {
            return Err(io::Error::new(ErrorKind::Unsupported, "it is not on tmpfs"));
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(openat(&folder, c".", flags, Mode::from_raw_mode(FILE_MODE))?);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ErrorKind::ResourceBusy.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        Ok((Self { map: Arc::new(map), taken: 0 }, UnnamedFile { folder, file }))
    }

    /// Its pages, to be mapped before they are needed.
    pub fn pages(&self) -> Pages {
        Pages(Arc::clone(&self.map))
    }

    /// The next `bytes` of it, which nobody else has; none if so much is not left.
    pub fn take(&mut self, bytes: usize) -> Option<Piece> {
        let start = self.taken;
        let end = start.checked_add(bytes).filter(|end| *end <= self.map.len())?;
        self.taken = end.next_multiple_of(ALIGNMENT).min(self.map.len());
        Some(Piece { map: Arc::clone(&self.map), start, length: bytes })
    }

    /// The next number of it, shared with whoever reads the file.
    pub fn take_number(&mut self) -> Option<SharedNumber> {
        // Numbers stand one behind the other: each in a cache line of its own would waste a page a few sources.
        let start = self.taken.next_multiple_of(size_of::<u64>());
        let end = start.checked_add(size_of::<u64>()).filter(|end| *end <= self.map.len())?;
        self.taken = end;
        Some(SharedNumber { map: Arc::clone(&self.map), start })
    }

    /// Goes on at a multiple of `bytes`.
    pub fn align(&mut self, bytes: usize) {
        self.taken = self.taken.next_multiple_of(bytes).min(self.map.len());
    }
}

/// The pages of a [`SharedMemory`].
#[derive(Debug, Clone)]
pub struct Pages(Arc<MmapRaw>);

impl Pages {
    /// Maps every page, so that no access to one will be a page fault. Changes no content, and may be done while others use
    /// the memory. Best effort: a kernel before 5.14 knows no such call, and the first access to a page then costs a
    /// microsecond.
    pub fn populate(&self) {
        let mut at = 0;
        while at < self.0.len() {
            let bytes = POPULATE_STEP_BYTES.min(self.0.len() - at);
            if self.0.advise_range(Advice::PopulateWrite, at, bytes).is_err() {
                return;
            }
            at += bytes;
        }
    }
}

/// A part of a [`SharedMemory`] that nobody else has.
#[derive(Debug)]
pub struct Piece {
    map: Arc<MmapRaw>,
    start: usize, // start + length <= map.len()
    length: usize,
}

impl Piece {
    /// How many bytes it has.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Its bytes.
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies within the mapping (checked by `take`), which lives as long as `map`. Nobody else in this
        // process has these bytes: `take` hands out each once, and `&self` excludes `bytes_mut`. Other processes only read
        // the file, and only once this one is dead and its lock free.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.start), self.length) }
    }

    /// Its bytes, to be written.
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes every other reference to this piece.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(self.start), self.length) }
    }
}

/// A number in a [`SharedMemory`] that a later process finds as it was last stored.
#[derive(Debug)]
pub struct SharedNumber {
    map: Arc<MmapRaw>,
    start: usize, // start + 8 <= map.len(), a multiple of 8
}

impl SharedNumber {
    /// The number.
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    pub fn get(&self) -> &AtomicU64 {
        // SAFETY: the eight bytes lie within the mapping (checked by `take_number`), which lives as long as `map`; mappings
        // begin at a page, so the address is a multiple of 8; no `Piece` covers them; every access is atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(self.start).cast()) }
    }
}

/// Opens a directory that is ours and that nobody else can write to. A link to it is followed if it is ours or root's: systemd makes
/// links, as root; in /dev/shm anybody can.
fn open_trusted(directory: &Path) -> io::Result<Directory> {
    let refuse = |why: &str| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    let folder = Directory::open(directory)?;
    if folder.owner() != rustix::process::geteuid().as_raw() {
        return refuse("it belongs to somebody else");
    }
    if folder.mode() & OTHERS_WRITE != 0 {
        return refuse("others may write to it");
    }
    Ok(folder)
}

/// A file of some process, alive or dead.
#[derive(Debug)]
pub struct KeptMemory {
    path: PathBuf,
    /// Open for reading.
    pub file: File,
}

impl KeptMemory {
    /// Every file in `directory` whose name ends with `suffix`. An absent directory has none. No lock is tried: that would
    /// make others believe, for a moment, that the process is alive.
    ///
    /// # Errors
    /// `PermissionDenied` for a directory that somebody else can write to: what lies there is not to be believed. Or the
    /// directory cannot be read.
    pub fn list(directory: &Path, suffix: &str) -> io::Result<Vec<Self>> {
        let folder = match open_trusted(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            folder => folder?,
        };
        let mut found = Vec::new();
        for name in folder.names()?.into_iter().filter(|name| name.ends_with(suffix)) {
            // Removed since, somebody else's, or no regular file: not ours to take.
            if let Ok(file) = folder.file(&name, Access::Read) {
                found.push(Self { path: directory.join(name), file });
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes, none if it is shorter on tmpfs than that: memory is taken in full before anything is in it, so
    /// that one with holes is not what a run has left.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn whole_length(&self) -> io::Result<Option<u64>> {
        let metadata = self.file.metadata()?;
        let held = metadata.blocks().saturating_mul(BLOCK_BYTES);
        Ok(Some(metadata.len()).filter(|length| *length <= held))
    }

    /// Takes it over if its process is dead, for as long as `self` lives. A process that is being killed is waited for.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn take_over(&self, wait_ns: u64) -> io::Result<bool> {
        let (never, deadline_ns) = (Event::new(), monotonic_ns().saturating_add(wait_ns));
        loop {
            match self.file.try_lock() {
                Ok(()) => return Ok(true),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {}
            }
            let now = monotonic_ns();
            if now >= deadline_ns {
                return Ok(false);
            }
            never.wait_until(now + LOCK_AGAIN_NS);
        }
    }

    /// Whether a process holds it. Not to be asked of an empty file, which is about to be locked.
    pub fn is_held(&self) -> bool {
        matches!(self.file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Whether nobody has written to it: it is empty, or its first page is zero. A run writes who it is before anything else.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn is_blank(&self) -> io::Result<bool> {
        let mut page = [0; PAGE_BYTES];
        let count = self.file.read_all_at(&mut page, 0)?;
        Ok(page.iter().take(count).all(|byte| *byte == 0))
    }

    /// Removes it if the name still leads to it: what is in it is safe.
    pub fn remove(self) {
        let is_same = |found: Metadata| {
            self.file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        if std::fs::symlink_metadata(&self.path).is_ok_and(is_same) {
            remove_if_there(&self.path);
        }
    }
}

/// Removes the file of a run that has ended, best effort: it is on tmpfs, and found again by the next run if it stays.
#[allow(clippy::disallowed_methods, reason = "this is the door that the ban points to")]
pub fn remove_if_there(path: &Path) {
    match std::fs::remove_file(path) {
        // Where nothing may be written the kernel says that first, whether the file is there or not.
        Err(error) if std::fs::symlink_metadata(path).is_ok() => {
            tracing::warn!(path = %path.display(), %error, "cannot remove the memory of a run that has ended");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap()
    }

    // Goal: pieces and numbers do not overlap, hold what is written, and end where the memory does. Method: fill each with
    // a value of its own, read them all.
    #[test]
    fn pieces_do_not_overlap() {
        let mut memory = SharedMemory::anonymous(1000).unwrap();
        let numbers: Vec<SharedNumber> = (0..5).map(|_| memory.take_number().unwrap()).collect();
        memory.align(64);
        let mut pieces: Vec<Piece> = (0..4).map(|_| memory.take(100).unwrap()).collect();
        assert!(memory.take(1000).is_none());
        for (piece, value) in pieces.iter_mut().zip(1..) {
            piece.bytes_mut().fill(value);
        }
        for (number, value) in numbers.iter().zip(100..) {
            number.get().store(value, Ordering::Release);
        }
        for (piece, value) in pieces.iter().zip(1..) {
            assert_eq!(piece.bytes(), [value; 100]);
        }
        for (number, value) in numbers.iter().zip(100..) {
            assert_eq!(number.get().load(Ordering::Acquire), value);
        }
    }

    // Goal: what was written is in the file, which is locked while its process lives. Method: read the file beside it.
    #[test]
    fn the_file_holds_what_was_written() {
        let folder = folder();
        let (mut memory, file) = SharedMemory::create(folder.path(), 8192).unwrap();
        let number = memory.take_number().unwrap();
        number.get().store(0x0102_0304, Ordering::Release);
        memory.align(4096);
        memory.take(10).unwrap().bytes_mut().copy_from_slice(b"0123456789");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a kill leaves nothing");
        file.publish("a.slabs").unwrap();
        let kept = KeptMemory::list(folder.path(), ".slabs").unwrap();
        assert!(kept[0].is_held() && !kept[0].take_over(1).unwrap(), "its process lives");
        assert_eq!(kept[0].whole_length().unwrap(), Some(8192));
        let content = std::fs::read(folder.path().join("a.slabs")).unwrap();
        assert_eq!(content.len(), 8192);
        assert_eq!(content[..8], 0x0102_0304_u64.to_le_bytes());
        assert_eq!(content[4096..4106], *b"0123456789");
        let (_, another) = SharedMemory::create(folder.path(), 8192).unwrap();
        assert_eq!(another.publish("a.slabs").unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop((number, memory));
        assert!(!kept[0].is_held() && kept[0].take_over(1).unwrap());
        kept.into_iter().for_each(KeptMemory::remove);
        assert_eq!(KeptMemory::list(folder.path(), ".slabs").unwrap().len(), 0);
    }

    // Goal: mapping pages ahead changes nothing in them, whatever the length. Method: content before and behind; the kernel's count of
    // page faults of this thread for a touch of every page.
    #[test]
    fn pages_are_mapped_ahead() {
        const BYTES: usize = (3 << 20) + 8192;
        let folder = folder();
        let (mut memory, _file) = SharedMemory::create(folder.path(), BYTES).unwrap();
        let pages = memory.pages();
        let mut piece = memory.take(BYTES).unwrap();
        piece.bytes_mut()[5000..5003].copy_from_slice(b"abc");
        pages.populate();
        let before = page_faults();
        piece.bytes_mut().iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let taken = page_faults() - before;
        assert!(taken < 50, "{taken} page faults for {} pages", BYTES / 4096);
        assert_eq!(piece.bytes()[5000..5003], *b"abc");
        assert!(piece.bytes()[5003..8192].iter().all(|byte| *byte == 0));
    }

    /// Page faults of this thread without I/O so far (`proc_pid_stat(5)`, field 10).
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(7).unwrap().parse().unwrap()
    }

    // Goal: a place that cannot keep memory is refused by name. Method: a directory on a disk, one open to others, more
    // memory than there is.
    #[test]
    fn bad_places_are_refused() {
        let refused = |path: &Path, bytes| SharedMemory::create(path, bytes).unwrap_err();
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert_eq!(refused(disk.path(), 4096).to_string(), "it is not on tmpfs");
        let folder = folder();
        let open = folder.path().join("open");
        DirBuilder::new().mode(0o700).create(&open).unwrap();
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(refused(&open, 4096).to_string(), "others may write to it");
        assert_eq!(refused(folder.path(), 1 << 46).kind(), ErrorKind::StorageFull);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing stays behind");
        assert_eq!(KeptMemory::list(Path::new("/nonexistent/x"), ".slabs").unwrap().len(), 0);
        let distrusted = KeptMemory::list(&open, ".slabs").unwrap_err();
        assert_eq!(distrusted.kind(), ErrorKind::PermissionDenied, "nor is it read from");
    }

    // Goal: what is put in the place of the directory is refused, and not waited for. Method: a FIFO, as anybody can make one in
    // /dev/shm; a link to a directory of ours, which is followed.
    #[test]
    fn a_fifo_is_no_directory() {
        let folder = folder();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(is_own_directory(&link) && !is_own_directory(&pipe));
        assert!(own_directory(&pipe).is_err() && SharedMemory::create(&pipe, 4096).is_err());
        let error = KeptMemory::list(&pipe, ".slabs").unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::NotADirectory, "is a FIFO, not a directory".into())
        );
    }

    // Goal: what is no file is passed over, not waited for, and a file with holes is told from one taken in full. Method: a
    // link, a directory, a pipe and a file of holes under the names of memory.
    #[test]
    fn only_whole_files_count() {
        let folder = folder();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.slabs")).unwrap();
        std::fs::create_dir(folder.path().join("folder.slabs")).unwrap();
        let pipe = folder.path().join("pipe.slabs");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        File::create_new(folder.path().join("holes.slabs")).unwrap().set_len(1 << 40).unwrap();
        let kept = KeptMemory::list(folder.path(), ".slabs").unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].whole_length().unwrap(), None);
    }

    // Goal: a process that is dying is waited for. Method: its memory goes while somebody tries to take it over.
    #[test]
    fn a_dying_process_is_waited_for() {
        let folder = folder();
        let (memory, file) = SharedMemory::create(folder.path(), 4096).unwrap();
        file.publish("c.slabs").unwrap();
        let kept = KeptMemory::list(folder.path(), ".slabs").unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| kept[0].take_over(120_000_000_000).unwrap());
            Event::new().wait_until(monotonic_ns() + 30_000_000);
            drop(memory);
            assert!(taken.join().unwrap());
        });
    }
}
