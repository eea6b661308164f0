//! The host's own trees, /proc and /sys, under a root that containers and tests can set.

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, SeekFrom, openat, readlinkat_raw, seek, stat};

/// Longest content of one file under /proc or /sys that is read, in bytes. A longer file is an error
/// (`FileTooLarge`), so that no file can take the agent's memory.
pub const HOST_FILE_BYTES_MAX: usize = 4 << 20;

/// Where the host's trees are found: `/` on the host itself.
#[derive(Debug, Clone)]
pub struct HostRoot {
    root: PathBuf,
}

impl HostRoot {
    /// A root under which `proc` and `sys` lie.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether it is there.
    ///
    /// # Errors
    /// What the kernel says; `NotADirectory`.
    pub fn look(&self) -> io::Result<()> {
        self.directory("").map(drop)
    }

    /// Whether it is the agent's own root.
    pub fn is_own(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Whether its `proc` numbers processes as the agent does: then it is of the agent's own namespace of processes.
    pub fn shows_own_processes(&self) -> bool {
        let own = rustix::process::getpid().as_raw_nonzero().to_string();
        rustix::fs::readlink(self.path("proc/self"), Vec::new())
            .is_ok_and(|itself| itself.to_bytes() == own.as_bytes())
    }

    /// Where a path of the host, given without a leading slash (`proc/stat`), lies.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative.trim_start_matches('/'))
    }

    /// Whether two paths lead to the same file, as far as this host tells. Files below proc/PID/net are the same where processes share
    /// their network namespace.
    pub fn is_same_file(&self, one: &str, other: &str) -> bool {
        use std::os::unix::fs::MetadataExt;
        let identity =
            |path: &str| std::fs::metadata(self.path(path)).ok().map(|file| (file.dev(), file.ino()));
        identity(one).is_some_and(|one| Some(one) == identity(other))
    }

    /// Opens a directory and keeps it open.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` where this host lacks it.
    pub fn directory(&self, relative: &str) -> io::Result<HostDirectory> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(HostDirectory::of(openat(CWD, self.path(relative), flags, Mode::empty())?))
    }

    /// Opens a file and keeps it open, as [`HostFile`] needs it.
    ///
    /// # Errors
    /// What the kernel says; `NotFound` where this host lacks the file.
    pub fn open(&self, relative: &str) -> io::Result<HostFile> {
        HostFile::open(&self.path(relative))
    }
}

/// A directory that stays open and is listed again at each sample, as devices, sensors and processes come and go.
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
    /// Entries come in portions that fit here: 1,000 processes take two calls.
    const BUFFER_BYTES: usize = 16 << 10;

    fn of(directory: OwnedFd) -> Self {
        Self { directory, buffer: vec![MaybeUninit::uninit(); Self::BUFFER_BYTES] }
    }

    /// Tells the name of each entry but `.` and `..`, in the kernel's order, as it is now. Allocates nothing.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn list(&mut self, mut entry: impl FnMut(&CStr)) -> io::Result<()> {
        self.list_numbered(|name, _| entry(name))
    }

    /// As [`list`](Self::list), with the number of each entry's inode: a file that took another's name has another one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn list_numbered(&mut self, entry: impl FnMut(&CStr, u64)) -> io::Result<()> {
        seek(&self.directory, SeekFrom::Start(0))?;
        entries(&self.directory, &mut self.buffer, entry)
    }

    /// Lists a directory beneath, which is not kept open.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn list_beneath(&mut self, path: &CStr, mut entry: impl FnMut(&CStr)) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let beneath = openat(&self.directory, path, flags, Mode::empty())?;
        entries(&beneath, &mut self.buffer, |name, _| entry(name))
    }

    /// Opens a file of a few bytes beneath, by its path from here, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn short_file(&self, path: &CStr) -> io::Result<ShortFile> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(ShortFile { file: File::from(openat(&self.directory, path, flags, Mode::empty())?) })
    }

    /// Where a link beneath leads, as far as it fits.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link<'b>(&self, path: &CStr, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
        let length = readlinkat_raw(&self.directory, path, &mut *buffer)?;
        Ok(buffer.get(..length).unwrap_or_default())
    }

    /// Opens a file beneath, by its path from here; it stays the same file whatever is called so later.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(&self, path: &CStr) -> io::Result<HostFile> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(HostFile::of(File::from(openat(&self.directory, path, flags, Mode::empty())?)))
    }

    /// Opens a file beneath in place of the one that `file` was until now, whose buffer it keeps: nothing is allocated. The old one
    /// stays if that fails.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reopen(&self, path: &CStr, file: &mut HostFile) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        file.file = File::from(openat(&self.directory, path, flags, Mode::empty())?);
        file.length = 0;
        Ok(())
    }

    /// Opens a directory beneath.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn directory(&self, path: &CStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        Ok(Self::of(openat(&self.directory, path, flags, Mode::empty())?))
    }
}

/// Tells the name and the number of the inode of each entry but `.` and `..`.
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

/// A file of a few bytes that stays open, such as those of /sys with one value: without a buffer of its own, since there may be
/// thousands.
#[derive(Debug)]
pub struct ShortFile {
    file: File,
}

impl ShortFile {
    /// Reads what the file begins with, as it is now. A buffer that comes back full may not hold all of it.
    ///
    /// # Errors
    /// What the kernel says.
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

/// A file that stays open and is read again from its start at each sample, into one buffer that is kept.
#[derive(Debug)]
pub struct HostFile {
    file: File,
    buffer: Vec<u8>,
    length: usize,
    records: Records,
}

/// How the kernel composes a file of /proc (`seq_file` in the kernel's documentation). Knowing it saves the read that would
/// only bring the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Unknown: only a read of nothing says that the end is reached.
    Unknown,
    /// One record (`single_open`): what leaves room is all.
    One,
    /// Records, lines mostly, of at most so many bytes. The kernel gathers whole ones in a buffer of at least
    /// [`KERNEL_BUFFER_BYTES`], so that it stops short only where the next one does not fit, or at the end.
    UpTo(usize),
}

/// The least buffer in which the kernel gathers records: the smallest page there is.
pub const KERNEL_BUFFER_BYTES: usize = 4096;

impl Records {
    /// Whether a read that brought `count` bytes, and had room for more, has brought everything.
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
    /// What the kernel says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?))
    }

    fn of(file: File) -> Self {
        Self { file, buffer: vec![0; Self::BUFFER_BYTES_MIN], length: 0, records: Records::Unknown }
    }

    /// The same file, whose records are known to be of this kind.
    #[must_use]
    pub fn of_records(mut self, records: Records) -> Self {
        self.records = records;
        self
    }

    /// Opens what has this path now, to be followed by [`become_file`](Self::become_file).
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open_by_name(path: &CStr) -> io::Result<Self> {
        Ok(Self::of(by_name(path)?))
    }

    /// Turns to what has this path now: another file may have been put in the place of the one that is open. Keeps the
    /// buffer, without its content.
    ///
    /// # Errors
    /// What the kernel says; the file that was open then stays so.
    pub fn become_file(&mut self, path: &CStr) -> io::Result<()> {
        self.length = 0;
        self.file = by_name(path)?;
        Ok(())
    }

    /// Reads the whole content as it is now. Allocates only while the content grows beyond what it ever was.
    ///
    /// The kernel hands out long files piece by piece: what is known of its records says which piece is the last.
    ///
    /// # Errors
    /// What the kernel says; `FileTooLarge` beyond [`HOST_FILE_BYTES_MAX`].
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
                    let leaves_room = count < free.len();
                    length += count;
                    if leaves_room && self.records.is_end(count) {
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

    /// What the last successful [`read`](Self::read) brought; empty before the first and after a failed one.
    pub fn content(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }
}

/// Opens a regular file, or a directory, of which reading says that it is one. What is neither is not opened: that alone can let a
/// pipe's writer go on, or start a watchdog.
fn by_name(path: &CStr) -> io::Result<File> {
    let kind = FileType::from_raw_mode(stat(path)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) {
        let message = "only regular files are read, no pipes, sockets and devices";
        return Err(io::Error::new(ErrorKind::Unsupported, message));
    }
    // Another one may have come in its place: never wait for somebody at its other end.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

/// Who this host is, as far as it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host name (uname).
    pub name: String,
    /// /etc/machine-id, where the host has one.
    pub machine_id: Option<String>,
    /// `/proc/sys/kernel/random/boot_id`: changes at each boot.
    pub boot_id: Option<String>,
}

impl HostIdentity {
    /// Reads them once.
    pub fn read(root: &HostRoot) -> Self {
        let line = |relative: &str| {
            let mut file = root.open(relative).ok()?;
            file.read().ok()?;
            let text = std::str::from_utf8(file.content()).ok()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        Self {
            name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            machine_id: line("etc/machine-id"),
            boot_id: line("proc/sys/kernel/random/boot_id"),
        }
    }
}

/// Bytes of a page of memory, in which the kernel counts.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The running kernel's boot id as a number: memory does not outlive it. 0 if the kernel tells none.
pub fn boot_number() -> u128 {
    let text = HostIdentity::read(&HostRoot::new("/")).boot_id.unwrap_or_default();
    u128::from_str_radix(&text.replace('-', ""), 16).unwrap_or(0)
}

/// A number that no other run of any recorder is likely to have: 64 bits from the kernel's generator.
///
/// # Errors
/// What the kernel says of getrandom(2), which needs no file: a container may have none.
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
