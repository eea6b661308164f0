//! Numbered directories of sysfs, such as `node0` and `hugepages-2048kB`. The directories are
//! listed at each sample, and their files are kept open while the directories exist.

use std::ffi::CStr;
use std::io::{self, Write as _};

use flatcap_os::host::{HostDirectory, HostFile};

use super::text;
use super::{OpenContext, Unavailable};
use crate::{CachedNameFilter, Incomplete, ReadError, odd_text};

/// Maximum length of a file's path below the directory, including its terminating zero byte.
const PATH_BYTES_MAX: usize = 96;

/// Names of the directories, and the files read in each.
#[derive(Debug, Clone, Copy)]
pub(super) struct NumberedDirKind<const FILES: usize> {
    pub(super) directory: &'static str,
    /// Text before the number.
    pub(super) prefix: &'static str,
    /// Text after the number.
    pub(super) suffix: &'static str,
    pub(super) files: [&'static str; FILES],
    /// Maximum number of directories. If there are more directories, those with the highest numbers
    /// are skipped.
    pub(super) dirs_max: usize,
    /// Explains the error if the directory is missing.
    pub(super) hint: &'static str,
}

impl<const FILES: usize> NumberedDirKind<FILES> {
    /// Returns the reasons why the content of a file lacks values, and notes the file if there are
    /// any reasons. The file is in the directory with this number.
    #[inline]
    pub(super) fn in_file(
        &self,
        incomplete: Incomplete,
        content: &[u8],
        (number, file): (u64, &str),
    ) -> Incomplete {
        let Self { directory, prefix, suffix, .. } = self;
        let path = format_args!("/{directory}/{prefix}{number}{suffix}/{file}");
        odd_text::in_file(incomplete, content, path)
    }
}

/// All directories of a kind.
#[derive(Debug)]
pub(super) struct NumberedDirs<const FILES: usize> {
    kind: NumberedDirKind<FILES>,
    directory: HostDirectory,
    filter: CachedNameFilter,
    numbers: Vec<u64>,              // the numbers of the last listing
    known: Vec<NumberedDir<FILES>>, // in the order of their numbers
    spare: Vec<NumberedDir<FILES>>, // directories that are gone, kept for their buffers
    incomplete: Incomplete,
}

/// One numbered directory.
#[derive(Debug)]
pub(super) struct NumberedDir<const FILES: usize> {
    pub(super) number: u64,
    files: [DirFile; FILES],
    /// Largest number of values that the directory has ever had, as counted by the source.
    pub(super) found_max: usize,
}

/// A file of a directory. The buffer may come from the file of an earlier directory.
#[derive(Debug, Default)]
struct DirFile {
    file: Option<HostFile>,
    is_open: bool,  // if false, the file belongs to an earlier directory
    was_read: bool, // whether the file has been read before
}

impl<const FILES: usize> NumberedDirs<FILES> {
    /// Opens the directory and reads all files one time. `include` and `exclude` match the numbered
    /// directories.
    pub(super) fn open(context: &OpenContext<'_>, kind: NumberedDirKind<FILES>) -> Result<Self, Unavailable> {
        let unavailable = |error| Unavailable { file: kind.directory, error, hint: kind.hint };
        let mut folders = Self {
            kind,
            directory: context.host.directory(kind.directory).map_err(unavailable)?,
            filter: CachedNameFilter::new(context.selection()),
            numbers: Vec::new(),
            known: Vec::new(),
            spare: Vec::new(),
            incomplete: Incomplete::NONE,
        };
        folders.read().map_err(|error| unavailable(error.error))?;
        Ok(folders)
    }

    /// Lists the directories and reads their files.
    pub(super) fn read(&mut self) -> Result<(), ReadError> {
        self.incomplete = Incomplete::NONE;
        self.list().map_err(|error| ReadError { file: self.kind.directory, error })?;
        let Self { kind, directory, known, incomplete, .. } = self;
        for folder in known {
            for (name, slot) in kind.files.iter().zip(&mut folder.files) {
                slot.read(directory, || path(kind, folder.number, name));
                *incomplete |= Incomplete::MISSING.unless(slot.is_open || !slot.was_read);
            }
        }
        Ok(())
    }

    /// Returns the directories in the order of their numbers.
    pub(super) fn dirs(&mut self) -> impl Iterator<Item = &mut NumberedDir<FILES>> {
        self.known.iter_mut()
    }

    /// Returns the reasons why the last read was incomplete.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.incomplete
    }

    fn list(&mut self) -> io::Result<()> {
        let Self { kind, directory, filter, numbers, known, spare, incomplete } = self;
        numbers.clear();
        let mut at = 0;
        directory.list(|name| {
            let name = name.to_bytes();
            let number = name.strip_prefix(kind.prefix.as_bytes());
            let number = number.and_then(|rest| rest.strip_suffix(kind.suffix.as_bytes()));
            let Some(number) = number.and_then(text::number) else { return };
            if filter.matches(at, name) {
                numbers.push(number);
            }
            at += 1;
        })?;
        numbers.sort_unstable();
        if numbers.len() > kind.dirs_max {
            *incomplete |= Incomplete::TOO_MANY;
            numbers.truncate(kind.dirs_max);
        }
        let is_there = |folder: &NumberedDir<FILES>| numbers.binary_search(&folder.number).is_ok();
        while let Some(gone) = known.iter().position(|folder| !is_there(folder)) {
            spare.push(known.remove(gone));
        }
        for number in numbers {
            if let Err(place) = known.binary_search_by_key(number, |folder| folder.number) {
                known.insert(place, NumberedDir::of(*number, spare.pop()));
            }
        }
        Ok(())
    }
}

impl<const FILES: usize> NumberedDir<FILES> {
    /// Creates the entry of a directory that was not listed before, and reuses the buffers of a
    /// removed directory.
    fn of(number: u64, spare: Option<Self>) -> Self {
        let mut files = spare.map_or_else(|| [(); FILES].map(|()| DirFile::default()), |folder| folder.files);
        for slot in &mut files {
            (slot.is_open, slot.was_read) = (false, false);
        }
        Self { number, files, found_max: 0 }
    }

    /// Returns the content of each file, in the order of [`NumberedDirKind`]'s file names, or
    /// `None` for a file that could not be read.
    pub(super) fn contents(&self) -> [Option<&[u8]>; FILES] {
        self.files.each_ref().map(|slot| slot.file.as_ref().filter(|_| slot.is_open).map(HostFile::content))
    }
}

impl DirFile {
    /// Reads the file. If the read fails, the file is reopened one time, because the directory may
    /// have been removed and created again.
    fn read(&mut self, directory: &HostDirectory, path: impl Fn() -> [u8; PATH_BYTES_MAX]) {
        let was_open = self.is_open;
        self.is_open = (was_open && self.read_open()) || (self.open(directory, &path()) && self.read_open());
        self.was_read |= self.is_open;
    }

    fn read_open(&mut self) -> bool {
        self.file.as_mut().is_some_and(|file| file.read().is_ok())
    }

    fn open(&mut self, directory: &HostDirectory, path: &[u8]) -> bool {
        let Ok(path) = CStr::from_bytes_until_nul(path) else { return false };
        if let Some(file) = &mut self.file {
            return directory.reopen(path, file).is_ok();
        }
        self.file = directory.open(path).ok();
        self.file.is_some()
    }
}

/// Returns the path of a file below the directory, padded with zero bytes. A path that is too long
/// has no terminating zero byte.
fn path<const FILES: usize>(kind: &NumberedDirKind<FILES>, number: u64, file: &str) -> [u8; PATH_BYTES_MAX] {
    let mut path = [0; PATH_BYTES_MAX];
    let written = write!(&mut path[..], "{}{number}{}/{file}", kind.prefix, kind.suffix);
    if written.is_err() { [b'/'; PATH_BYTES_MAX] } else { path }
}
