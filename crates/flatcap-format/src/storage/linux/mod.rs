//! Opens files and directories safely on Linux. The functions never follow a symbolic link of
//! another user and never open a file of an unexpected kind. They do not wait when they open a
//! file. In another user's directory, root acts with that user's rights.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, SeekFrom, Stat, fstat, fstatfs, openat,
    openat2, readlinkat, seek,
};
use rustix::io::Errno;
use rustix::process::geteuid;

mod directory;
mod output;
mod owner_rights;

pub use directory::{Directory, FileAccess};
pub use output::{OpenPendingFile, OutputDirectory, PendingFile};
pub use owner_rights::{AssumedRights, OwnerRights};

/// Maximum number of symbolic links in a path, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Flags that open one component of a path without access to its content (`O_PATH`).
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Flags of every call that opens a file. With these flags, the call does not follow a link and
/// never waits.
const SAFE_FLAGS: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens the regular file at this path for reading. Resolves the path only once, and never waits.
/// Follows a symbolic link anywhere in the path only if this user or root owns the link.
///
/// # Errors
/// Fails if the file is of another kind. Returns `PermissionDenied` for a link of another user, or
/// any error of the underlying system call.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_path(CWD, path, FileType::RegularFile).map(File::from)
}

/// Opens the file at a path, if the file has this kind. A relative path begins at `start`. Follows
/// a symbolic link, anywhere in the path, only if the link belongs to this user or to root, because
/// another user could redirect a link at any time.
///
/// # Errors
/// Fails if the file is of another kind. Returns `PermissionDenied` for a link of another user, or
/// any error of the underlying system call.
pub(crate) fn open_path(start: BorrowedFd<'_>, path: &Path, wanted: FileType) -> io::Result<OwnedFd> {
    let flags = match wanted {
        FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
        _ => OFlags::RDONLY,
    };
    let mut walk = PathWalk::begin(start, path)?;
    while let Some(name) = walk.next()? {
        // This opens the file only as a location (`O_PATH`), which has no side effect. The check
        // and the next step then use the same file.
        let found = walk.open(&name)?;
        let status = fstat(&found)?;
        if FileType::from_raw_mode(status.st_mode) == FileType::Symlink {
            walk.follow(&found, &status, &name)?;
        } else if !walk.is_at_end() {
            walk.folder = found;
        } else {
            check_kind(&status, wanted)?;
            match open_safely(walk.folder.as_fd(), Path::new(&name), (flags, 0)) {
                // A link has replaced the file since the check, so the next iteration checks the
                // link.
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    walk.again(name)?;
                }
                opened => return require_kind(opened?, wanted),
            }
        }
    }
    // The path ends with `/`, `.`, `..` or with a link to such a path.
    require_kind(open_safely(walk.folder.as_fd(), Path::new("."), (flags, 0))?, wanted)
}

/// Resolves a path one component at a time.
struct PathWalk {
    /// The directory that was reached so far. The rest of the path is relative to it.
    folder: OwnedFd,
    /// The components of the rest of the path, in reverse order.
    rest: Vec<OsString>,
    /// Number of links that were followed, plus number of names that were resolved again, so far.
    links: u32,
}

impl PathWalk {
    fn begin(start: BorrowedFd<'_>, path: &Path) -> io::Result<Self> {
        // Most paths contain no link. For such a path, the kernel resolves all names except the
        // last one in one call.
        if let (Some(name), Some(parent)) = (path.file_name(), path.parent()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let flags = PLACE | OFlags::DIRECTORY;
            // The call fails for a path with a link, and on kernels before 5.6.
            if let Ok(folder) = openat2(start, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                return Ok(Self { folder, rest: vec![name.to_owned()], links: 0 });
            }
        }
        let folder = openat(start, ".", PLACE | OFlags::DIRECTORY, Mode::empty())?;
        let mut walk = Self { folder, rest: Vec::new(), links: 0 };
        walk.push(path);
        Ok(walk)
    }

    /// Inserts the components of a path before those that are not resolved yet.
    fn push(&mut self, path: &Path) {
        self.rest.extend(path.components().rev().map(|part| part.as_os_str().to_owned()));
    }

    /// Opens the file, directory or link with this name without access to its content. If more
    /// names follow, opens the name as a directory (`O_DIRECTORY`), because otherwise the kernel
    /// does not trigger an automount.
    fn open(&self, name: &OsStr) -> io::Result<OwnedFd> {
        let open = |flags| openat(&self.folder, name, PLACE | OFlags::NOFOLLOW | flags, Mode::empty());
        if !self.is_at_end() {
            match open(OFlags::DIRECTORY) {
                Err(Errno::NOTDIR | Errno::LOOP) => {}
                opened => return Ok(opened?),
            }
        }
        Ok(open(OFlags::empty())?)
    }

    fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the next name, or `None` at the end. The components `/` and `..` are not names, so
    /// this function changes to these directories itself.
    fn next(&mut self) -> io::Result<Option<OsString>> {
        while let Some(part) = self.rest.pop() {
            if part == "/" || part == ".." {
                self.folder = openat(&self.folder, &part, PLACE | OFlags::DIRECTORY, Mode::empty())?;
            } else if part != "." {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Continues with the target of a link.
    fn follow(&mut self, link: &OwnedFd, status: &Stat, name: &OsStr) -> io::Result<()> {
        if ![geteuid().as_raw(), 0].contains(&status.st_uid) {
            let why = format!(
                "{} is a symbolic link that belongs to user {}; use the path of its target",
                name.display(),
                status.st_uid
            );
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        self.count_link()?;
        if fstatfs(&self.folder)?.f_type == PROC_SUPER_MAGIC && !self.is_at_end() {
            // Only the kernel can follow a link such as /proc/1/root, because the content of the
            // link is not the path of its target.
            self.folder = openat(&self.folder, name, PLACE | OFlags::DIRECTORY, Mode::empty())?;
            return Ok(());
        }
        let target = readlinkat(link, "", Vec::new())?;
        self.push(Path::new(OsStr::from_bytes(target.as_bytes())));
        Ok(())
    }

    /// Makes the next iteration resolve this name again.
    fn again(&mut self, name: OsString) -> io::Result<()> {
        self.rest.push(name);
        self.count_link()
    }

    fn count_link(&mut self) -> io::Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX { Err(Errno::LOOP.into()) } else { Ok(()) }
    }
}

/// Returns the offset of the next byte that takes disk space (see
/// [`ReadAt::next_stored`](super::ReadAt::next_stored)). Changes the kernel's file offset of the
/// open file. Positioned reads and appends do not use this offset.
pub(super) fn next_stored(file: &File, offset: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(at) => Ok(at),
        // No byte up to the end of the file takes disk space.
        Err(Errno::NXIO) => Ok(offset.max(file.metadata()?.len())),
        Err(_) => Ok(offset),
    }
}

/// Returns the names of the files in a directory, in no particular order. Skips names that are not
/// UTF-8, because flatcap does not create files with such names.
///
/// # Errors
/// Returns any error of the underlying system call.
pub fn file_names(directory: &Path) -> io::Result<Vec<String>> {
    names(&open_path(CWD, directory, FileType::Directory)?)
}

/// Returns all names in an open directory, in no particular order. Skips names that are not UTF-8.
///
/// # Errors
/// Returns any error of the underlying system call.
pub(crate) fn names(directory: impl AsFd) -> io::Result<Vec<String>> {
    let mut entries = Dir::read_from(directory)?;
    let mut names = Vec::new();
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name = CStr::to_str(entry.file_name()).ok().filter(|name| ![".", ".."].contains(name));
        names.extend(name.map(str::to_owned));
    }
    Ok(names)
}

/// Opens a file with these flags and this mode. Does not follow a link and does not wait.
///
/// # Errors
/// Returns any error of the underlying system call.
pub(super) fn open_safely(
    at: BorrowedFd<'_>,
    path: &Path,
    (flags, mode): (OFlags, u32),
) -> io::Result<OwnedFd> {
    Ok(openat(at, path, flags | SAFE_FLAGS, Mode::from_raw_mode(mode))?)
}

/// Returns `file` if it has the kind `wanted`.
///
/// # Errors
/// Fails if the file has another kind. The error names both kinds.
pub(super) fn require_kind(file: OwnedFd, wanted: FileType) -> io::Result<OwnedFd> {
    check_kind(&fstat(&file)?, wanted)?;
    Ok(file)
}

/// Checks that a file has this kind.
///
/// # Errors
/// Fails if the file is of another kind. The error names both kinds.
pub(super) fn check_kind(status: &Stat, wanted: FileType) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{AtFlags, chownat};
    use rustix::process::Uid;

    use super::*;

    // Proves that links of this user and of root are followed anywhere in a path, with the same
    // result as in the kernel. Cases: relative and absolute links, links through `..` and to `/`,
    // and links in /proc. Also proves that a loop of links is an error.
    #[test]
    fn own_links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/file"), "content").unwrap();
        symlink("a", at("relative")).unwrap();
        symlink(at("a/b"), at("absolute")).unwrap();
        symlink("../relative/b/../b", at("a/up")).unwrap();
        symlink("file", at("a/b/last")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/", at("top")).unwrap();
        for path in ["a/b/file", "relative/b/file", "absolute/last", "a/up/last", "a/../relative/./b/file"] {
            let opened = open_regular(&at(path)).unwrap();
            assert_eq!(io::read_to_string(opened).unwrap(), "content", "{path}");
        }
        for path in ["top", "a/up", "relative/..", "absolute/"] {
            open_path(CWD, &at(path), FileType::Directory).unwrap();
        }
        let through = Path::new("/proc/self/root").join(at("a/b/file").strip_prefix("/").unwrap());
        open_regular(&through).unwrap();
        let looped = open_path(CWD, &at("loop/x"), FileType::Directory).unwrap_err();
        assert_eq!(looped.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        for (path, kind) in [("a/none", ErrorKind::NotFound), ("a/b/file/x", ErrorKind::NotADirectory)] {
            assert_eq!(open_regular(&at(path)).unwrap_err().kind(), kind, "{path}");
        }
    }

    // Proves that a link of another user is refused at each depth of a path, and that the error
    // names the link. Needs root.
    #[test]
    fn links_of_others_are_refused() {
        if !geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("target/a/b")).unwrap();
        std::fs::write(folder.path().join("target/a/b/file"), "content").unwrap();
        for depth in 0..4 {
            let own = folder.path().join(format!("depth{depth}"));
            let parts = ["target", "a", "b", "file"];
            let before: std::path::PathBuf = parts[..depth].iter().collect();
            std::fs::create_dir_all(own.join(&before)).unwrap();
            let to: std::path::PathBuf = parts[..=depth].iter().collect();
            let link = own.join(&to);
            symlink(folder.path().join(&to), &link).unwrap();
            let path = own.join("target/a/b/file");
            open_regular(&path).unwrap();
            chownat(CWD, &link, Some(Uid::from_raw(65_534)), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            let refused = open_regular(&path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{depth}");
            let why = refused.to_string();
            assert!(why.contains(parts[depth]) && why.contains("65534"), "{depth}: {why}");
        }
    }
}
