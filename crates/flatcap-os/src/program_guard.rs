//! Decides whether a program may be run. It may be run if only root and this process's user can
//! change it.
//!
//! The program runs with the recorder's rights. So the guard checks the program and every directory
//! and symbolic link on its path. It also checks the configuration file that names the program,
//! with the permissions that the file had when it was read.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

const WRITABLE_BY_OTHERS: u32 = 0o022;
/// The sticky bit of a directory. In such a directory, only the owner of a file can replace the
/// file.
const STICKY: u32 = 0o1000;
/// Maximum number of links that the kernel follows on a path before it fails with ELOOP.
const LINKS_MAX: usize = 40;
const ELOOP: i32 = 40;

/// Owner and mode of a configuration file and its directory when the file was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// The path as given.
    pub path: PathBuf,
    /// Owner and mode of the file.
    pub file: OwnerAndMode,
    /// Owner and mode of the file's directory.
    pub directory: OwnerAndMode,
}

/// Owner and permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerAndMode {
    /// User id of the owner.
    pub owner: u32,
    /// The lower twelve bits of the mode.
    pub mode: u32,
}

/// Checks that only root and this process's user can change the program that is run.
#[derive(Debug, Clone)]
pub struct ProgramGuard {
    program: PathBuf,
    named_in: Option<Provenance>,
    user: u32,
}

/// The reason why a command is not run. The message names the path and the remedy.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct NotTrusted(#[from] TrustError);

#[derive(Debug, thiserror::Error)]
enum TrustError {
    /// A part of the path is missing or its status cannot be read.
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    /// Group or others may write to the file or directory.
    #[error(
        "{} is writable by group or others (mode {:04o}), so the command is not run; \
         chmod go-w {}",
        path.display(), rights.mode, path.display()
    )]
    Writable { path: PathBuf, rights: OwnerAndMode },
    /// The directory is like /tmp: everyone may create files in it.
    #[error(
        "{} is writable by everyone (mode {:04o}), so the command is not run; \
         move its files into a directory that only their owner can write to",
        path.display(), rights.mode
    )]
    SharedDirectory { path: PathBuf, rights: OwnerAndMode },
    /// The program belongs to neither root nor this process's user.
    #[error(
        "{} belongs to user {} (mode {:04o}), neither root nor user {user} that flatcap runs as, \
         so the command is not run; chown root {}",
        path.display(), rights.owner, rights.mode, path.display()
    )]
    WrongOwner { path: PathBuf, rights: OwnerAndMode, user: u32 },
}

impl ProgramGuard {
    /// Creates the guard of a program, given by its absolute path. The guard includes the
    /// configuration file that names the program; `named_in` is `None` if no file names it.
    pub fn new(program: PathBuf, named_in: Option<Provenance>) -> Self {
        Self { program, named_in, user: geteuid().as_raw() }
    }

    /// Checks the configuration file and the program in their current state.
    ///
    /// # Errors
    /// Somebody else can change the program that would be run, or the status of a part of the path
    /// cannot be read.
    pub fn check(&self) -> Result<(), NotTrusted> {
        if let Some(named_in) = &self.named_in {
            // This uses the permissions from when the configuration was read, because later changes
            // do not affect which program is run.
            let parent = named_in.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.trust(&named_in.path, named_in.file)?;
            self.trust(parent.unwrap_or(Path::new(".")), named_in.directory)?;
        }
        Ok(self.check_path()?)
    }

    /// Checks the program and every directory and link on its path. If only trusted users can
    /// change these, the program that runs later is the program that was checked.
    fn check_path(&self) -> Result<(), TrustError> {
        let stat = |path: &Path| {
            PathStatus::of(path).map_err(|error| TrustError::Unreadable { path: path.to_owned(), error })
        };
        let (mut directory, mut names) = (PathBuf::from("/"), reversed_components(&self.program));
        let mut links = 0;
        while let Some(name) = names.pop() {
            if name == ".." {
                directory.pop();
                continue;
            }
            let path = directory.join(name);
            let (PathStatus { owner, mode, .. }, found) = (stat(&directory)?, stat(&path)?);
            let is_program = names.is_empty() && found.target.is_none();
            // Other users can create files in such a directory, but cannot replace the files of
            // trusted users.
            let is_sticky = mode & STICKY != 0 && !is_program;
            let mode = if is_sticky { mode & !WRITABLE_BY_OTHERS } else { mode };
            self.trust(&directory, OwnerAndMode { owner, mode })?;
            if let Some(target) = found.target {
                links += 1;
                if links > LINKS_MAX {
                    return Err(TrustError::Unreadable { path, error: io::Error::from_raw_os_error(ELOOP) });
                }
                // The mode of a symbolic link always permits writing, but only the owner of the
                // link can replace it.
                self.trust(&path, OwnerAndMode { owner: found.owner, mode: 0 })?;
                if target.has_root() {
                    directory = PathBuf::from("/");
                }
                names.extend(reversed_components(&target));
                continue;
            }
            // In a directory with the sticky bit, each component of the path must belong to a
            // trusted user. The program itself must belong to a trusted user in any directory.
            let mode = if is_program { found.mode } else { 0 };
            self.trust(&path, OwnerAndMode { owner: found.owner, mode })?;
            directory = path;
        }
        Ok(())
    }

    fn trust(&self, path: &Path, rights: OwnerAndMode) -> Result<(), TrustError> {
        let path = || path.to_owned();
        if rights.mode & WRITABLE_BY_OTHERS != 0 {
            return Err(if rights.mode & STICKY == 0 {
                TrustError::Writable { path: path(), rights }
            } else {
                TrustError::SharedDirectory { path: path(), rights }
            });
        }
        if rights.owner != 0 && rights.owner != self.user {
            return Err(TrustError::WrongOwner { path: path(), rights, user: self.user });
        }
        Ok(())
    }
}

/// Owner, mode and link target of a path.
struct PathStatus {
    owner: u32,
    /// The lower twelve bits of the file's mode.
    mode: u32,
    /// Target of the link, if the file is a symbolic link.
    target: Option<PathBuf>,
}

impl PathStatus {
    /// Reads the status of a path. Does not follow symbolic links.
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.symlink_metadata()?;
        let target = if metadata.is_symlink() { Some(path.read_link()?) } else { None };
        Ok(Self { owner: metadata.uid(), mode: metadata.mode() & 0o7777, target })
    }
}

/// Returns the components of a path in reverse order.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev();
    names
        .filter(|part| !matches!(part, Component::RootDir | Component::CurDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}
