//! The files below the host's /proc and /sys. Containers and tests can set another root directory
//! for them.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flatcap_format::host::HostName;
use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, SeekFrom, openat, readlinkat_raw, seek, stat};

/// Maximum length of a file under /proc or /sys that is read, in bytes. A longer file is an error
/// (`FileTooLarge`), so that no file can exhaust the recorder's memory.
// For comparison, /proc/interrupts of a host with 512 CPUs and 750 interrupts has 4 MiB.
pub(crate) const HOST_FILE_BYTES_MAX: usize = 16 << 20;

/// The root of the host's file tree, which is `/` on the host itself.
#[derive(Debug, Clone)]
pub struct HostRoot {
    root: PathBuf,
}

impl HostRoot {
    /// Creates a root that contains `proc` and `sys`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Checks that the root is a directory.
    ///
    /// # Errors
    /// `NotADirectory`, or any error of the underlying system call.
    pub fn check(&self) -> io::Result<()> {
        self.directory("").map(drop)
    }

    /// Returns whether this root is the recorder's own root.
    pub fn is_own_root(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns whether the root's `proc` shows the pid namespace of the recorder.
    pub fn shares_pid_namespace(&self) -> bool {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        self.own_pid().is_some_and(|pid| i64::from(pid) == i64::from(own))
    }

    /// Returns the process id of the recorder in the root's `proc`, or `None` if that `proc` does
    /// not show the recorder.
    pub fn own_pid(&self) -> Option<u32> {
        let link = rustix::fs::readlink(self.path("proc/self"), Vec::new()).ok()?;
        link.to_str().ok()?.parse().ok()
    }

    /// Returns whether the root's `proc` is the kernel's file system rather than a captured tree.
    pub fn has_procfs(&self) -> bool {
        let status = rustix::fs::statfs(self.path("proc"));
        status.is_ok_and(|status| status.f_type == rustix::fs::PROC_SUPER_MAGIC)
    }

    /// Returns whether the kernel hides the host's first process from the recorder (mount option
    /// hidepid). If so, processes that are not found may still exist.
    pub fn hides_first_process(&self) -> bool {
        let first = rustix::fs::lstat(self.path("proc/1"));
        self.has_procfs() && matches!(first, Err(rustix::io::Errno::NOENT))
    }

    /// Returns the path of a file of the host; `relative` has no leading slash (`proc/stat`).
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative.trim_start_matches('/'))
    }

    /// Returns whether two paths refer to the same file, by device and inode. Files below
    /// proc/PID/net are the same for processes that share a network namespace.
    pub fn is_same_file(&self, one: &str, other: &str) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity =
            |path: &str| std::fs::metadata(self.path(path)).ok().map(|file| (file.dev(), file.ino()));
        identity(one).is_some_and(|one| Some(one) == identity(other))
    }

    /// Opens a directory, to be kept open.
    ///
    /// # Errors
    /// `NotFound` if this host lacks the directory, or any error of the underlying system call.
    pub fn directory(&self, relative: &str) -> io::Result<HostDirectory> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(HostDirectory::of(openat(CWD, self.path(relative), flags, Mode::empty())?))
    }

    /// Opens a file, to be kept open and read repeatedly.
    ///
    /// # Errors
    /// `NotFound` if this host lacks the file, or any error of the underlying system call.
    pub fn open(&self, relative: &str) -> io::Result<HostFile> {
        HostFile::open(&self.path(relative))
    }
}

/// A directory that stays open. The directory is listed again for each sample, because devices,
/// sensors and processes come and go.
pub struct HostDirectory {
    directory: OwnedFd,
    buffer: Vec<MaybeUninit<u8>>,
}

impl fmt::Debug for HostDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDirectory").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl HostDirectory {
    /// Size of a batch of entries, in bytes. Listing 1,000 processes takes two calls.
    const BUFFER_BYTES: usize = 16 << 10;

    fn of(directory: OwnedFd) -> Self {
        Self { directory, buffer: vec![MaybeUninit::uninit(); Self::BUFFER_BYTES] }
    }

    /// Calls `entry` with the current name of each entry except `.` and `..`, in the kernel's
    /// order. Does not allocate.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn list(&mut self, mut entry: impl FnMut(&CStr)) -> io::Result<()> {
        self.list_with_inodes(|name, _| entry(name))
    }

    /// Like [`list`](Self::list), with the inode of each entry. A new file that takes over a name
    /// has another inode.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn list_with_inodes(&mut self, entry: impl FnMut(&CStr, u64)) -> io::Result<()> {
        seek(&self.directory, SeekFrom::Start(0))?;
        entries(&self.directory, &mut self.buffer, entry)
    }

    /// Lists a subdirectory, which is not kept open.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn list_subdirectory(&mut self, path: &CStr, mut entry: impl FnMut(&CStr)) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let beneath = openat(&self.directory, path, flags, Mode::empty())?;
        entries(&beneath, &mut self.buffer, |name, _| entry(name))
    }

    /// Opens a small file by its path relative to this directory, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open_small_file(&self, path: &CStr) -> io::Result<SmallFile> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(SmallFile { file: File::from(openat(&self.directory, path, flags, Mode::empty())?) })
    }

    /// Returns the target of a symbolic link, truncated to the buffer.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn read_link<'b>(&self, path: &CStr, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let length = readlinkat_raw(&self.directory, path, &mut *buffer)?;
        Ok(buffer.get(..length).unwrap_or_default())
    }

    /// Opens a file by its path relative to this directory. The opened file stays the same if the
    /// path changes.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open(&self, path: &CStr) -> io::Result<HostFile> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(HostFile::of(File::from(openat(&self.directory, path, flags, Mode::empty())?)))
    }

    /// Opens another file in place of the file that `file` has open. Reuses the buffer of `file`,
    /// so this method does not allocate. Keeps the old file on failure.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn reopen(&self, path: &CStr, file: &mut HostFile) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        file.file = File::from(openat(&self.directory, path, flags, Mode::empty())?);
        file.length = 0;
        Ok(())
    }

    /// Opens a subdirectory.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn directory(&self, path: &CStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(Self::of(openat(&self.directory, path, flags, Mode::empty())?))
    }
}

/// Calls `entry` with name and inode of each entry except `.` and `..`.
fn entries(
    directory: &OwnedFd,
    buffer: &mut [MaybeUninit<u8>],
    mut entry: impl FnMut(&CStr, u64),
) -> io::Result<()> {
    let mut entries = RawDir::new(directory, buffer);
    while let Some(next) = entries.next() {
        let next = next?;
        if !matches!(next.file_name().to_bytes(), b"." | b"..") {
            entry(next.file_name(), next.ino());
        }
    }
    Ok(())
}

/// A small file that stays open, such as a /sys file with one value. This type owns no buffer,
/// because there may be thousands of such files.
#[derive(Debug)]
pub struct SmallFile {
    file: File,
}

impl SmallFile {
    /// Reads the start of the current content. If the buffer is filled, the content may be longer.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        loop {
            match self.file.read_at(buffer, 0) {
                Ok(count) => return Ok(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A file that stays open. For each sample, the file is read again from its start, into a buffer
/// that stays allocated.
#[derive(Debug)]
pub struct HostFile {
    file: File,
    buffer: Vec<u8>,
    length: usize,
    records: RecordStructure,
}

/// The record structure of a /proc file (`seq_file` in the kernel's documentation). If the
/// structure is known, the final read, which would only return the end of file, is not necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordStructure {
    /// The structure is unknown, so only an empty read shows the end.
    Unknown,
    /// The file has one record (`single_open`), so a read that does not fill the buffer is
    /// complete.
    One,
    /// The file has records, mostly lines, of at most this number of bytes. The kernel collects
    /// whole records in a buffer of at least `KERNEL_BUFFER_BYTES`. So a read is short only at the
    /// end of the file, or if the next record does not fit.
    UpTo(usize),
}

/// Size of the smallest buffer in which the kernel collects records, which is the smallest page
/// size.
pub(crate) const KERNEL_BUFFER_BYTES: usize = 4096;

impl RecordStructure {
    /// Returns whether a read of `count` bytes that did not fill the buffer reached the end of the
    /// file.
    fn is_end(self, count: usize) -> bool {
        match self {
            Self::Unknown => count == 0,
            Self::One => true,
            Self::UpTo(bytes) => count + bytes <= KERNEL_BUFFER_BYTES,
        }
    }
}

impl HostFile {
    const BUFFER_BYTES_MIN: usize = 4096;

    /// Opens the file for reading.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?))
    }

    fn of(file: File) -> Self {
        Self { file, buffer: vec![0; Self::BUFFER_BYTES_MIN], length: 0, records: RecordStructure::Unknown }
    }

    /// Sets the known record structure of the file.
    #[must_use]
    pub fn with_records(mut self, records: RecordStructure) -> Self {
        self.records = records;
        self
    }

    /// Opens the file that the path refers to now. [`reopen_path`](Self::reopen_path) later follows
    /// the path again.
    ///
    /// # Errors
    /// Any error of the underlying system call.
    pub fn open_path(path: &CStr) -> io::Result<Self> {
        Ok(Self::of(open_regular_or_directory(path)?))
    }

    /// Opens the file that the path refers to now, in case it was replaced. Keeps the buffer but
    /// not its content.
    ///
    /// # Errors
    /// Any error of the underlying system call; the previous file then stays open.
    pub fn reopen_path(&mut self, path: &CStr) -> io::Result<()> {
        self.length = 0;
        self.file = open_regular_or_directory(path)?;
        Ok(())
    }

    /// Reads the whole current content. Allocates only if the content is longer than all earlier
    /// contents.
    ///
    /// The kernel returns long files in several reads. The record structure shows which read is the
    /// last.
    ///
    /// # Errors
    /// `FileTooLarge` above `HOST_FILE_BYTES_MAX`, or any error of the underlying system call.
    pub fn read(&mut self) -> io::Result<()> {
        self.length = 0;
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                if length >= HOST_FILE_BYTES_MAX {
                    return Err(ErrorKind::FileTooLarge.into());
                }
                self.buffer.resize(length * 2, 0);
            }
            let free = self.buffer.get_mut(length..).unwrap_or_default();
            match self.file.read_at(free, length as u64) {
                Ok(0) => break,
                Ok(count) => {
                    let has_space_left = count < free.len();
                    length += count;
                    if has_space_left && self.records.is_end(count) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.length = length;
        Ok(())
    }

    /// Returns the content of the last [`read`](Self::read). The content is empty before the first
    /// read and after a failed read.
    pub fn content(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

/// Opens a regular file, or a directory (reading it then returns the proper error). Does not open
/// anything else, because opening alone can unblock a pipe's writer or start a watchdog.
fn open_regular_or_directory(path: &CStr) -> io::Result<File> {
    let kind = FileType::from_raw_mode(stat(path)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        let message = "only regular files are read, not pipes, sockets or devices";
        return Err(io::Error::new(ErrorKind::Unsupported, message));
    }
    // The file may have been replaced after its type was checked, and opening the new file must
    // never wait for a peer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

/// Reads the names of the host.
pub fn host_name(root: &HostRoot) -> HostName {
    let line = |relative: &str| {
        let mut file = root.open(relative).ok()?;
        file.read().ok()?;
        let text = std::str::from_utf8(file.content()).ok()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    HostName {
        name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        machine_id: line("etc/machine-id"),
        boot_id: line("proc/sys/kernel/random/boot_id"),
        labels: Vec::new(),
    }
}

/// Returns whether this process is in the host's PID namespace and not in the PID namespace of a
/// container.
pub fn in_initial_pid_namespace() -> bool {
    /// The inode number of the initial PID namespace (`PROC_PID_INIT_INO`).
    const INITIAL: &[u8] = b"pid:[4026531836]";
    rustix::fs::readlink("/proc/self/ns/pid", Vec::new()).is_ok_and(|link| link.to_bytes() == INITIAL)
}

/// Returns the page size, in bytes.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns the running kernel's boot id as a number, or 0 if the boot id is unknown. The boot id
/// shows whether memory contents can still be valid, because they do not survive a reboot.
pub fn boot_id_number() -> u128 {
    let text = host_name(&HostRoot::new("/")).boot_id.unwrap_or_default();
    u128::from_str_radix(&text.replace('-', ""), 16).unwrap_or(0)
}

/// Returns a random number from the kernel's generator, unique to a run with high probability.
///
/// # Errors
/// Any error of getrandom(2). getrandom(2) is used because a container may lack the device file of
/// the random number generator.
pub fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(u64::from_le_bytes(bytes))
}
