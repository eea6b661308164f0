//! Numbered things that sysfs keeps in a folder each, such as `node0` and `hugepages-2048kB`: listed at each sample, their
//! files kept open as long as they are there.

use std::ffi::CStr;
use std::io::{self, Write as _};

use super::text;
use super::{Opening, Unavailable};
use crate::os::host::{HostDirectory, HostFile};
use crate::sampling::{Chosen, ReadError, Shortfall};

/// Longest path of a file below the directory, with its end.
const PATH_BYTES_MAX: usize = 96;

/// What the folders are called, and which files are read in each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind<const FILES: usize> {
    pub(super) directory: &'static str,
    /// What stands before the number.
    pub(super) prefix: &'static str,
    /// What stands behind it.
    pub(super) suffix: &'static str,
    pub(super) files: [&'static str; FILES],
    /// Most folders; those with the highest numbers are left out.
    pub(super) folders_max: usize,
    /// What it means if there is no such directory.
    pub(super) hint: &'static str,
}

/// All folders of a kind.
#[derive(Debug)]
pub(super) struct Folders<const FILES: usize> {
    kind: Kind<FILES>,
    directory: HostDirectory,
    chosen: Chosen,
    numbers: Vec<u64>,         // as listed last
    known: Vec<Folder<FILES>>, // in the order of their numbers
    spare: Vec<Folder<FILES>>, // of those that are gone, for their buffers
    shortfall: Shortfall,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Folder<const FILES: usize> {
    pub(super) number: u64,
    files: [Slot; FILES],
    /// Values that it ever had, as its source counts them.
    pub(super) present: usize,
}

/// A file, and the buffer of the one that was here before.
#[derive(Debug, Default)]
struct Slot {
    file: Option<HostFile>,
    is_open: bool,   // else the file is another folder's
    was_there: bool, // it was read at some time
}

impl<const FILES: usize> Folders<FILES> {
    /// Opens the directory and reads all once. Include and exclude speak of folders.
    pub(super) fn open(opening: &Opening<'_>, kind: Kind<FILES>) -> Result<Self, Unavailable> {
        let unavailable = |error| Unavailable { file: kind.directory, error, hint: kind.hint };
        let mut folders = Self {
            kind,
            directory: opening.host.directory(kind.directory).map_err(unavailable)?,
            chosen: Chosen::new(opening.selection()),
            numbers: Vec::new(),
            known: Vec::new(),
            spare: Vec::new(),
            shortfall: Shortfall::NONE,
        };
        folders.read().map_err(|error| unavailable(error.error))?;
        Ok(folders)
    }

    /// Reads the files of all folders that are there now.
    pub(super) fn read(&mut self) -> Result<(), ReadError> {
        self.shortfall = Shortfall::NONE;
        self.list().map_err(|error| ReadError { file: self.kind.directory, error })?;
        let Self { kind, directory, known, shortfall, .. } = self;
        for folder in known {
            for (name, slot) in kind.files.iter().zip(&mut folder.files) {
                slot.read(directory, || path(kind, folder.number, name));
                *shortfall |= Shortfall::MISSING.unless(slot.is_open || !slot.was_there);
            }
        }
        Ok(())
    }

    /// The folders, in the order of their numbers.
    pub(super) fn folders(&mut self) -> impl Iterator<Item = &mut Folder<FILES>> {
        self.known.iter_mut()
    }

    /// What the last reading lacks.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    fn list(&mut self) -> io::Result<()> {
        let Self { kind, directory, chosen, numbers, known, spare, shortfall } = self;
        numbers.clear();
        let mut at = 0;
        directory.list(|name| {
            let name = name.to_bytes();
            let number = name.strip_prefix(kind.prefix.as_bytes());
            let number = number.and_then(|rest| rest.strip_suffix(kind.suffix.as_bytes()));
            let Some(number) = number.and_then(text::number) else { return };
            if chosen.wants(at, name) {
                numbers.push(number);
            }
            at += 1;
        })?;
        numbers.sort_unstable();
        if numbers.len() > kind.folders_max {
            *shortfall |= Shortfall::TOO_MANY;
            numbers.truncate(kind.folders_max);
        }
        let is_there = |folder: &Folder<FILES>| numbers.binary_search(&folder.number).is_ok();
        while let Some(gone) = known.iter().position(|folder| !is_there(folder)) {
            spare.push(known.remove(gone));
        }
        for number in numbers {
            if let Err(place) = known.binary_search_by_key(number, |folder| folder.number) {
                known.insert(place, Folder::of(*number, spare.pop()));
            }
        }
        Ok(())
    }
}

impl<const FILES: usize> Folder<FILES> {
    /// A folder that was not there before, with the buffers of one that is gone.
    fn of(number: u64, spare: Option<Self>) -> Self {
        let mut files = spare.map_or_else(|| [(); FILES].map(|()| Slot::default()), |folder| folder.files);
        for slot in &mut files {
            (slot.is_open, slot.was_there) = (false, false);
        }
        Self { number, files, present: 0 }
    }

    /// What each file has, in the order of the kind; nothing for one that could not be read.
    pub(super) fn contents(&self) -> [Option<&[u8]>; FILES] {
        self.files.each_ref().map(|slot| slot.file.as_ref().filter(|_| slot.is_open).map(HostFile::content))
    }
}

impl Slot {
    /// Reads the file. One that fails may be of a folder that went and came back, so it is opened once more.
    fn read(&mut self, directory: &HostDirectory, path: impl Fn() -> [u8; PATH_BYTES_MAX]) {
        let was_open = self.is_open;
        self.is_open = (was_open && self.read_open()) || (self.open(directory, &path()) && self.read_open());
        self.was_there |= self.is_open;
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

/// The path of a file below the directory, ended by zero bytes; without an end if it is too long.
fn path<const FILES: usize>(kind: &Kind<FILES>, number: u64, file: &str) -> [u8; PATH_BYTES_MAX] {
    let mut path = [0; PATH_BYTES_MAX];
    let written = write!(&mut path[..], "{}{number}{}/{file}", kind.prefix, kind.suffix);
    if written.is_err() { [b'/'; PATH_BYTES_MAX] } else { path }
}
