//! Memory that outlives a killed process. It is a file on tmpfs that is mapped shared, allocated in
//! full at the start, and handed out in ranges that do not overlap.
//!
//! Apart from `perf_ring`, this is the only file in the recorder that accesses memory through a raw
//! pointer. Rust has no safe way to share a mapping that the kernel keeps when the process dies.
//! Copying each frame into a file with `write` would cost a system call (at least 230 ns). Without
//! the system call, a frame takes 7 to 60 ns.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use flatcap_format::storage::ReadAt;
use flatcap_format::storage::linux::{Directory, FileAccess};
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, fallocate, fstatfs, linkat, openat};

use super::clock::monotonic_ns;
use super::environment;
use super::wake_event::WakeEvent;

/// The magic number of tmpfs in `statfs(2)`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// Mode of the directory, with access for the owner only.
const DIRECTORY_MODE: u32 = 0o700;
/// Mode of the file, with access for the owner only.
const FILE_MODE: u32 = 0o600;
/// Mode bits that let group or others write.
const OTHERS_WRITE: u32 = 0o022;
/// The unit of `st_blocks` (stat(2)), in bytes.
const BLOCK_BYTES: u64 = 512;
/// Number of bytes at the start of a file that show whether the file was ever written to.
const PAGE_BYTES: usize = 4096;
/// Retry interval for a lock that another process holds.
const LOCK_RETRY_NS: u64 = 5_000_000;
/// Number of bytes that are mapped by one call. It bounds how long another thread must wait before
/// it can change the process's mappings.
const POPULATE_STEP_BYTES: usize = 1 << 20;
/// Alignment of ranges, in bytes. It is the size of a cache line, which is more than the alignment
/// that a number needs.
const ALIGNMENT: usize = 64;

/// Returns the default directory for the memory of runs. This is the service's runtime directory,
/// or a directory per user under /dev/shm.
pub fn default_directory() -> PathBuf {
    let given = environment::directory("RUNTIME_DIRECTORY");
    given.unwrap_or_else(|| PathBuf::from(format!("/dev/shm/flatcap-{}", rustix::process::getuid().as_raw())))
}

/// Creates a directory that only this user can write to, unless it exists.
///
/// # Errors
/// `PermissionDenied` if the directory exists and belongs to another user, or if others may write
/// to it; or any error of the underlying system call.
pub fn create_private_directory(directory: &Path) -> io::Result<()> {
    Directory::create(directory, DIRECTORY_MODE)?;
    open_trusted(directory).map(drop)
}

/// Returns whether a directory exists, belongs to this user and is closed to others, so that its
/// content can be trusted.
pub fn is_private_directory(directory: &Path) -> bool {
    open_trusted(directory).is_ok()
}

/// Memory that is handed out in ranges. Its bytes are initially zero.
#[derive(Debug)]
pub struct SharedMemory {
    map: Arc<MmapRaw>,
    allocated: usize, // <= map.len()
}

/// The file of a [`SharedMemory`] that has no name yet.
#[derive(Debug)]
pub struct UnnamedFile {
    folder: Directory,
    file: File,
}

impl UnnamedFile {
    /// Gives the file its name. From then on, the file outlives this process. The mapping keeps the
    /// file open and its lock held. Returns the end of the file, to which more can be appended.
    ///
    /// # Errors
    /// The name exists; /proc is not mounted; or any error of the underlying system call.
    pub fn publish(self, name: &str) -> io::Result<SharedMemoryEnd> {
        // The link goes through /proc, because a link by descriptor alone needs CAP_DAC_READ_SEARCH
        // (open(2), O_TMPFILE).
        let link = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, link.as_str(), &self.folder, name, AtFlags::SYMLINK_FOLLOW)?;
        let at = self.file.metadata()?.len();
        Ok(SharedMemoryEnd { file: self.file, at })
    }
}

/// The end of the file of a [`SharedMemory`], after the mapped part, for data whose size is not
/// known at the start. It is written by system calls, so a full tmpfs causes an error instead of a
/// SIGBUS.
#[derive(Debug)]
pub struct SharedMemoryEnd {
    file: File,
    at: u64,
}

impl SharedMemoryEnd {
    /// Appends all of these bytes, or nothing.
    ///
    /// # Errors
    /// tmpfs is full (`StorageFull`), or any error of the underlying system call.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(bytes, self.at) {
            // If this truncation also fails, the next append overwrites the remaining bytes.
            let _is_cut = self.file.set_len(self.at);
            return Err(error);
        }
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl SharedMemory {
    /// Creates memory that is freed when the process ends.
    ///
    /// # Errors
    /// The kernel is out of memory.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let map = MmapMut::map_anon(bytes.max(1))?;
        Ok(Self { map: Arc::new(map.into()), allocated: 0 })
    }

    /// Creates memory in an unnamed file of `directory`, locked (flock) while this process lives.
    /// The whole memory is allocated on tmpfs immediately. If a page were allocated only at the
    /// first access and tmpfs were full, this access would cause a SIGBUS. If the process is killed
    /// before the file has a name ([`UnnamedFile::publish`]), the kernel frees the file. Therefore
    /// every file that remains identifies its owner.
    ///
    /// # Errors
    /// The directory is missing, belongs to another user, can be written to by others, or is not on
    /// tmpfs; or tmpfs is full (`StorageFull`).
    pub fn create(directory: &Path, bytes: usize) -> io::Result<(Self, UnnamedFile)> {
        Directory::create(directory, DIRECTORY_MODE)?;
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
        Ok((Self { map: Arc::new(map), allocated: 0 }, UnnamedFile { folder, file }))
    }

    /// Returns the pages of the memory, so that they can be mapped before they are needed.
    pub fn pages(&self) -> MappedPages {
        MappedPages(Arc::clone(&self.map))
    }

    /// Allocates the next `bytes`, exclusively for the caller. Returns `None` if fewer bytes are
    /// left.
    pub fn allocate(&mut self, bytes: usize) -> Option<SharedSlice> {
        let start = self.allocated;
        let end = start.checked_add(bytes).filter(|end| *end <= self.map.len())?;
        self.allocated = end.next_multiple_of(ALIGNMENT).min(self.map.len());
        Some(SharedSlice { map: Arc::clone(&self.map), start, length: bytes })
    }

    /// Allocates the next number. Other processes can read the value of this number from the file.
    pub fn allocate_number(&mut self) -> Option<SharedNumber> {
        // Numbers are adjacent. With one cache line per number, a few sources would already need
        // another page.
        let start = self.allocated.next_multiple_of(size_of::<u64>());
        let end = start.checked_add(size_of::<u64>()).filter(|end| *end <= self.map.len())?;
        self.allocated = end;
        Some(SharedNumber { map: Arc::clone(&self.map), start })
    }

    /// Advances the next allocation to a multiple of `bytes`.
    pub fn align(&mut self, bytes: usize) {
        self.allocated = self.allocated.next_multiple_of(bytes).min(self.map.len());
    }
}

/// The pages of a [`SharedMemory`].
#[derive(Debug, Clone)]
pub struct MappedPages(Arc<MmapRaw>);

impl MappedPages {
    /// Maps every page, so that later accesses cause no page fault. Changes no content and is safe
    /// while other threads use the memory. This is best effort, because kernels before 5.14 lack
    /// the call. On such kernels, the first access to a page costs a microsecond.
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

/// A range of a [`SharedMemory`] with a single owner.
#[derive(Debug)]
pub struct SharedSlice {
    map: Arc<MmapRaw>,
    start: usize, // start + length <= map.len()
    length: usize,
}

impl SharedSlice {
    /// Returns the length in bytes.
    #[inline]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the bytes.
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies within the mapping (checked by `allocate`), which lives as long as
        // `map`. No other value in this process refers to these bytes, because `allocate` hands out
        // each range only one time, and `&self` excludes `bytes_mut`. Other processes only read the
        // file, and only after this process has died and its lock is free.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(self.start), self.length) }
    }

    /// Returns the bytes for writing.
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes every other reference to this range.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(self.start), self.length) }
    }
}

/// A number in a [`SharedMemory`]. A later process reads the value that was last stored.
#[derive(Debug)]
pub struct SharedNumber {
    map: Arc<MmapRaw>,
    start: usize, // start + 8 <= map.len(), a multiple of 8
}

impl SharedNumber {
    /// Returns the number.
    #[inline]
    #[allow(unsafe_code, reason = "the kernel's interface: a shared mapping is a raw pointer")]
    pub fn get(&self) -> &AtomicU64 {
        // SAFETY: the eight bytes lie within the mapping (checked by `allocate_number`), which
        // lives as long as `map`. Mappings begin at a page, so the address is a multiple of 8. No
        // `SharedSlice` covers these bytes. Every access is atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(self.start).cast()) }
    }
}

/// Opens a directory that belongs to this user and that no other user can write to. Follows a
/// symbolic link to the directory only if the link belongs to this user or to root, because in
/// /dev/shm any user can create links. Links that belong to root are accepted, because systemd
/// creates such links.
fn open_trusted(directory: &Path) -> io::Result<Directory> {
    let refuse = |why: &str| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    let folder = Directory::open(directory)?;
    if folder.owner() != rustix::process::geteuid().as_raw() {
        return refuse("it belongs to another user");
    }
    if folder.mode() & OTHERS_WRITE != 0 {
        return refuse("other users may write to it");
    }
    Ok(folder)
}

/// The shared memory file of a process that may have ended.
#[derive(Debug)]
pub struct SharedMemoryFile {
    path: PathBuf,
    /// The file, open for reading.
    pub file: File,
}

impl SharedMemoryFile {
    /// Lists the files in `directory` whose names end with `suffix`. Returns an empty list if the
    /// directory is missing. Takes no lock, because a lock would make other processes believe for a
    /// moment that the file's process is alive.
    ///
    /// # Errors
    /// `PermissionDenied` if another user can write to the directory, so that its content cannot be
    /// trusted; or the directory cannot be read.
    pub fn list(directory: &Path, suffix: &str) -> io::Result<Vec<Self>> {
        let folder = match open_trusted(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            folder => folder?,
        };
        let mut found = Vec::new();
        for name in folder.names()?.into_iter().filter(|name| name.ends_with(suffix)) {
            // A file that was removed, belongs to another user, or is not regular is skipped.
            if let Ok(file) = folder.file(&name, FileAccess::Read) {
                found.push(Self { path: directory.join(name), file });
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the file in bytes, or `None` if fewer bytes are allocated on tmpfs. A
    /// run allocates all of its memory before it writes, so no run leaves a sparse file.
    /// # Errors
    /// Any error of the underlying system call.
    pub fn complete_length(&self) -> io::Result<Option<u64>> {
        let metadata = self.file.metadata()?;
        let allocated_bytes = metadata.blocks().saturating_mul(BLOCK_BYTES);
        Ok(Some(metadata.len()).filter(|length| *length <= allocated_bytes))
    }

    /// Locks the file if its process is dead. The lock is held as long as `self` lives. Waits up to
    /// `wait_ns` for a process that is being killed. Returns whether the lock was taken.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn take_over(&self, wait_ns: u64) -> io::Result<bool> {
        let (never, deadline_ns) = (WakeEvent::new(), monotonic_ns().saturating_add(wait_ns));
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
            never.wait_until(now + LOCK_RETRY_NS);
        }
    }

    /// Returns whether a process has locked the file. Do not call this for an empty file, because
    /// its process is about to lock it.
    pub fn is_locked(&self) -> bool {
        matches!(self.file.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Returns whether the file was never written to. Such a file is empty, or its first page is
    /// zero, because a run writes its identity before anything else.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn is_blank(&self) -> io::Result<bool> {
        let mut page = [0; PAGE_BYTES];
        let count = self.file.read_all_at(&mut page, 0)?;
        Ok(page.iter().take(count).all(|byte| *byte == 0))
    }

    /// Removes the file if its path still refers to it. Call this only when the content of the file
    /// is safe elsewhere.
    pub fn remove(self) {
        let is_same = |found: Metadata| {
            self.file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        if std::fs::symlink_metadata(&self.path).is_ok_and(is_same) {
            remove_if_exists(&self.path);
        }
    }
}

/// Removes the file of a run that has ended. This is best effort: if the file stays on tmpfs, the
/// next run finds it again.
#[allow(clippy::disallowed_methods, reason = "the function that the ban points to")]
pub fn remove_if_exists(path: &Path) {
    match std::fs::remove_file(path) {
        // In a read-only directory, the kernel reports the read-only file system even if the file
        // does not exist.
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

    /// Time limit for a wait that would otherwise never end.
    const WATCHDOG_NS: u64 = 120_000_000_000;

    fn folder() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("flatcap-test-").tempdir_in("/dev/shm").unwrap()
    }

    // Proves that ranges and numbers do not overlap, keep the values that are written to them, and
    // do not exceed the memory.
    #[test]
    fn pieces_do_not_overlap() {
        let mut memory = SharedMemory::anonymous(1000).unwrap();
        let numbers: Vec<SharedNumber> = (0..5).map(|_| memory.allocate_number().unwrap()).collect();
        memory.align(64);
        let mut pieces: Vec<SharedSlice> = (0..4).map(|_| memory.allocate(100).unwrap()).collect();
        assert!(memory.allocate(1000).is_none());
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

    // Proves that the file holds what was written, and is locked while its process lives.
    #[test]
    fn the_file_holds_what_was_written() {
        let folder = folder();
        let (mut memory, file) = SharedMemory::create(folder.path(), 8192).unwrap();
        let number = memory.allocate_number().unwrap();
        number.get().store(0x0102_0304, Ordering::Release);
        memory.align(4096);
        memory.allocate(10).unwrap().bytes_mut().copy_from_slice(b"0123456789");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a kill leaves nothing");
        let mut end = file.publish("a.slabs").unwrap();
        let kept = SharedMemoryFile::list(folder.path(), ".slabs").unwrap();
        assert!(kept[0].is_locked() && !kept[0].take_over(1).unwrap(), "its process lives");
        assert_eq!(kept[0].complete_length().unwrap(), Some(8192));
        let content = std::fs::read(folder.path().join("a.slabs")).unwrap();
        assert_eq!(content.len(), 8192);
        assert_eq!(content[..8], 0x0102_0304_u64.to_le_bytes());
        assert_eq!(content[4096..4106], *b"0123456789");
        let (_, another) = SharedMemory::create(folder.path(), 8192).unwrap();
        assert_eq!(another.publish("a.slabs").unwrap_err().kind(), ErrorKind::AlreadyExists);
        end.append(b"later").unwrap();
        end.append(b" still").unwrap();
        assert_eq!(kept[0].complete_length().unwrap(), Some(8192 + 11));
        assert_eq!(std::fs::read(kept[0].path()).unwrap()[8192..], *b"later still");
        drop((number, memory, end));
        // A program that another test starts also holds the lock between its fork and its exec.
        assert!(kept[0].take_over(WATCHDOG_NS).unwrap() && !kept[0].is_locked());
        kept.into_iter().for_each(SharedMemoryFile::remove);
        assert_eq!(SharedMemoryFile::list(folder.path(), ".slabs").unwrap().len(), 0);
    }

    // Proves that mapping pages in advance keeps their content, for memory of any length. The test
    // counts this thread's page faults while it touches every page.
    #[test]
    fn pages_are_mapped_ahead() {
        const BYTES: usize = (3 << 20) + 8192;
        let folder = folder();
        let (mut memory, _file) = SharedMemory::create(folder.path(), BYTES).unwrap();
        let pages = memory.pages();
        let mut piece = memory.allocate(BYTES).unwrap();
        piece.bytes_mut()[5000..5003].copy_from_slice(b"abc");
        pages.populate();
        let before = page_faults();
        piece.bytes_mut().iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        let taken = page_faults() - before;
        assert!(taken < 50, "{taken} page faults for {} pages", BYTES / 4096);
        assert_eq!(piece.bytes()[5000..5003], *b"abc");
        assert!(piece.bytes()[5003..8192].iter().all(|byte| *byte == 0));
    }

    /// Returns the number of page faults without I/O that this thread has had so far
    /// (`proc_pid_stat(5)`, field 10).
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(')').next().unwrap().split_ascii_whitespace().nth(7).unwrap().parse().unwrap()
    }

    // Proves that unusable directories are rejected with the reason. Such a directory is on a disk,
    // is open to other users, or has too little memory.
    #[test]
    fn bad_places_are_refused() {
        let refused = |path: &Path, bytes| SharedMemory::create(path, bytes).unwrap_err();
        let disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert_eq!(refused(disk.path(), 4096).to_string(), "it is not on tmpfs");
        let folder = folder();
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(refused(&open, 4096).to_string(), "other users may write to it");
        assert_eq!(refused(folder.path(), 1 << 46).kind(), ErrorKind::StorageFull);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing stays behind");
        assert_eq!(SharedMemoryFile::list(&folder.path().join("missing/x"), ".slabs").unwrap().len(), 0);
        let distrusted = SharedMemoryFile::list(&open, ".slabs").unwrap_err();
        assert_eq!(distrusted.kind(), ErrorKind::PermissionDenied, "nor is it read from");
    }

    // Proves that a FIFO in place of the directory is rejected without waiting (in /dev/shm any
    // user can create one), and that a link to our own directory is followed.
    #[test]
    fn a_fifo_is_no_directory() {
        let folder = folder();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o666.into(), 0).unwrap();
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(is_private_directory(&link) && !is_private_directory(&pipe));
        assert!(create_private_directory(&pipe).is_err() && SharedMemory::create(&pipe, 4096).is_err());
        let error = SharedMemoryFile::list(&pipe, ".slabs").unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::NotADirectory, "is a FIFO, not a directory".into())
        );
    }

    // Proves that links, directories and pipes are skipped without waiting, and that a sparse file
    // is recognized.
    #[test]
    fn only_whole_files_count() {
        let folder = folder();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.slabs")).unwrap();
        std::fs::create_dir(folder.path().join("folder.slabs")).unwrap();
        let pipe = folder.path().join("pipe.slabs");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        File::create_new(folder.path().join("holes.slabs")).unwrap().set_len(1 << 40).unwrap();
        let kept = SharedMemoryFile::list(folder.path(), ".slabs").unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].complete_length().unwrap(), None);
    }

    // Proves that `take_over` waits for a dying process, whose memory is freed during the wait.
    #[test]
    fn a_dying_process_is_waited_for() {
        let folder = folder();
        let (memory, file) = SharedMemory::create(folder.path(), 4096).unwrap();
        file.publish("c.slabs").unwrap();
        let kept = SharedMemoryFile::list(folder.path(), ".slabs").unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| kept[0].take_over(WATCHDOG_NS).unwrap());
            WakeEvent::new().wait_until(monotonic_ns() + 30_000_000);
            drop(memory);
            assert!(taken.join().unwrap());
        });
    }
}
