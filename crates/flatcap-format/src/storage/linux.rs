//! Opening files on Linux: no symbolic link of another user is followed, no file of another kind is
//! opened, and no open waits.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Maximum number of symbolic links followed in a row, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Flags for every open: follow no link, never wait.
const SAFE_FLAGS: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens a regular file for reading by its path: resolves the path once and never waits. Follows a
/// symbolic link at the end of the path only if it belongs to this user or to root.
///
/// # Errors
/// The file is of another kind; `PermissionDenied` for a link of another user; or any error of the
/// underlying system call.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_path(CWD, path, FileType::RegularFile).map(File::from)
}

/// Opens the file that a path names, if it is of this kind. A relative path begins at `start`.
/// Follows a symbolic link at the end of the path only if it belongs to this user or to root.
///
/// # Errors
/// The file is of another kind; `PermissionDenied` for a link of another user; or any error of the
/// underlying system call.
pub fn open_path(start: BorrowedFd<'_>, path: &Path, wanted: FileType) -> io::Result<OwnedFd> {
    let flags = match wanted {
        FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
        _ => OFlags::RDONLY,
    };
    let mut folder: Option<OwnedFd> = None; // the directory that `path` is relative to
    // Removes a trailing slash, which would make the kernel follow a link.
    let mut path: PathBuf = path.components().collect();
    for _ in 0..LINKS_MAX {
        let at = folder.as_ref().map_or(start, AsFd::as_fd);
        let Some(name) = path.file_name() else {
            // `/`, `.` and `..` are not links.
            return require_kind(open_safely(at, &path, (flags, 0))?, wanted);
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(at, parent.unwrap_or(Path::new(".")), parent_flags, Mode::empty())?;
        // Opens the link itself, so that the link that is checked is the one that is followed.
        let found = openat(&parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let status = fstat(&found)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::Symlink {
            check_kind(&status, wanted)?;
            match open_safely(parent.as_fd(), Path::new(name), (flags, 0)) {
                // Replaced by a link meanwhile: check it in the next iteration.
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => continue,
                opened => return require_kind(opened?, wanted),
            }
        }
        if ![geteuid().as_raw(), 0].contains(&status.st_uid) {
            let why = "it is a symbolic link that belongs to another user; use the path of its target";
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        let target = readlinkat(&found, "", Vec::new())?;
        path = Path::new(OsStr::from_bytes(target.as_bytes())).components().collect();
        folder = Some(parent);
    }
    Err(Errno::LOOP.into())
}

/// Returns the names of the files in a directory, in no particular order. Skips names that are not
/// UTF-8; they are not ours.
///
/// # Errors
/// Any error of the underlying system call.
pub fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    names(&open_path(CWD, directory, FileType::Directory)?)
}

/// Returns all names in an open directory, in no particular order. Skips names that are not UTF-8.
///
/// # Errors
/// Any error of the underlying system call.
pub fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut entries = Dir::read_from(directory)?;
    let mut names = Vec::new();
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = CStr::to_str(entry.file_name()).ok().filter(|name| ![".", ".."].contains(name));
        names.extend(name.map(str::to_owned));
    }
    Ok(names)
}

/// Opens a file without following a link and without waiting, with these flags and this mode.
///
/// # Errors
/// Any error of the underlying system call.
pub fn open_safely(at: BorrowedFd<'_>, path: &Path, (flags, mode): (OFlags, u32)) -> io::Result<OwnedFd> {
    Ok(openat(at, path, flags | SAFE_FLAGS, Mode::from_raw_mode(mode))?)
}

/// Returns the file if it is of this kind.
///
/// # Errors
/// It is of another kind: the error names both.
pub fn require_kind(file: OwnedFd, wanted: FileType) -> io::Result<OwnedFd> {
    check_kind(&fstat(&file)?, wanted)?;
    Ok(file)
}

/// Checks that a file is of this kind.
///
/// # Errors
/// It is of another kind: the error names both.
pub fn check_kind(status: &Stat, wanted: FileType) -> io::Result<()> {
    let found = FileType::from_raw_mode(status.st_mode);
    if found == wanted {
        return Ok(());
    }
    let kind = match (wanted, found) {
        (FileType::Directory, _) => ErrorKind::NotADirectory,
        (_, FileType::Directory) => ErrorKind::IsADirectory,
        _ => ErrorKind::InvalidInput,
    };
    Err(io::Error::new(kind, format!("is {}, not {}", kind_name(found), kind_name(wanted))))
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown kind",
    }
}
