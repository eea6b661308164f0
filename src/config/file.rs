//! Which files make a configuration, and what is in one? Each is read within a limit, and nothing else than a file is waited for.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::{ConfigError, Place, Problem};
use super::readout::{Provenance, Rights};
use super::texts::place;

/// A longer file is refused unread, and so is what goes beyond it in all files and variables together: a full configuration with
/// all its comments has a fiftieth of this.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Most files in one folder of drop-ins; a folder with more is refused as a whole.
pub const DROP_INS_MAX: usize = 256;
/// Names of other files in that folder that are kept to be shown; the rest is counted.
const PASSED_OVER_MAX: usize = 10;

/// A file that was read.
#[derive(Debug)]
pub(super) struct TextFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) provenance: Provenance,
}

/// What a folder of drop-ins holds.
#[derive(Debug, Default)]
pub(super) struct DropIns {
    /// In byte order of their names.
    pub(super) paths: Vec<PathBuf>,
    pub(super) passed_over: PassedOver,
}

/// Files of a folder that nobody reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// The first of them, at most ten.
    pub paths: Vec<PathBuf>,
    /// How many more there are.
    pub more: usize,
}

impl TextFile {
    /// Reads a file. `room` is what all files may still take; it gets smaller.
    ///
    /// # Errors
    /// As its kind says: what cannot be opened, is no file, is too long, is not UTF-8.
    pub(super) fn read(path: &Path, room: &mut usize) -> Result<Self, Box<ConfigError>> {
        let in_file = |problem| error(path, problem);
        let unreadable = |error| in_file(Problem::Unreadable(error));
        let file = open(path).map_err(unreadable)?;
        let kind = file.metadata().map_err(unreadable)?.file_type();
        if let Some(found) = no_file(kind) {
            return Err(in_file(Problem::NotAFile { found }));
        }
        let provenance = provenance(path, &file).map_err(unreadable)?;
        let mut bytes = Vec::new();
        // One byte more than the limit tells a file at the limit from a longer one.
        let limit = FILE_BYTES_MAX as u64 + 1;
        file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(in_file(Problem::FileTooLarge { limit: FILE_BYTES_MAX as u64 }));
        }
        *room = room
            .checked_sub(bytes.len())
            .ok_or_else(|| in_file(Problem::AllTooLarge { limit: FILE_BYTES_MAX as u64 }))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            let before = error.as_bytes().get(..offset).and_then(|valid| std::str::from_utf8(valid).ok());
            let place = place(&path.display().to_string(), before.unwrap_or_default(), offset);
            Box::new(ConfigError { place, key: None, value: None, problem: Problem::NotUtf8 { offset } })
        })?;
        Ok(Self { path: path.to_owned(), text, provenance })
    }
}

impl DropIns {
    /// Lists a folder; one that is not there holds nothing.
    ///
    /// # Errors
    /// It cannot be read, or holds more than [`DROP_INS_MAX`].
    pub(super) fn list(folder: &Path) -> Result<Self, Box<ConfigError>> {
        let unreadable = |io| error(folder, Problem::Unreadable(io));
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            // A link that leads nowhere was meant to lead somewhere.
            Err(error) if error.kind() == ErrorKind::NotFound && folder.symlink_metadata().is_err() => {
                return Ok(Self::default());
            }
            Err(error) => return Err(unreadable(error)),
        };
        let mut names: Vec<OsString> = Vec::new();
        let (mut others, mut more) = (BTreeSet::new(), 0);
        for entry in entries {
            let name = entry.map_err(unreadable)?.file_name();
            let bytes = name.as_bytes();
            if bytes.starts_with(b".") {
                continue;
            }
            if bytes.ends_with(b".toml") {
                if names.len() == DROP_INS_MAX {
                    return Err(error(folder, Problem::TooManyFiles { limit: DROP_INS_MAX }));
                }
                names.push(name);
                continue;
            }
            others.insert(name);
            if others.len() > PASSED_OVER_MAX {
                others.pop_last();
                more += 1;
            }
        }
        names.sort();
        let paths = others.into_iter().map(|name| folder.join(name)).collect();
        let passed_over = PassedOver { paths, more };
        Ok(Self { paths: names.into_iter().map(|name| folder.join(name)).collect(), passed_over })
    }
}

/// Opens it without waiting: a named pipe that nobody writes to would hold up the start for ever.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// What it is where it is no file. A character device may be `/dev/null`, which is an empty one.
fn no_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_block_device() => Some("a block device"),
        kind if kind.is_socket() => Some("a socket"),
        _ => None,
    }
}

/// Who may change the file that was opened, and who may put another one in its place.
fn provenance(path: &Path, file: &File) -> io::Result<Provenance> {
    let rights = |metadata: &Metadata| Rights { owner: metadata.uid(), mode: metadata.mode() & 0o7777 };
    let whole = path.canonicalize()?;
    Ok(Provenance {
        path: path.to_owned(),
        file: rights(&file.metadata()?),
        directory: rights(&whole.parent().unwrap_or(&whole).metadata()?),
    })
}

fn error(path: &Path, problem: Problem) -> Box<ConfigError> {
    let place = Place::File(path.display().to_string());
    Box::new(ConfigError { place, key: None, value: None, problem })
}
