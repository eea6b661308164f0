//! Reads configuration files and lists drop-ins. Sizes and counts are limited, and a path that is
//! not a regular file never blocks the reader.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flatcap_os::program_guard::{OwnerAndMode, Provenance};
use flatcap_text::quantity::format_size;
use rustix::fs::OFlags;

use super::error::{ConfigError, ConfigLocation};
use super::input_texts::line_and_column;

/// Maximum size of one file, and also of all files and variables together, in bytes. A full
/// configuration with all its comments takes a fiftieth of this.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of drop-ins in one directory. A directory with more drop-ins is rejected.
pub const DROP_INS_MAX: usize = 256;
/// Maximum number of skipped files in a drop-in directory that are listed by name. The other
/// skipped files are counted.
const SKIPPED_MAX: usize = 10;

/// A file that was read.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    pub(super) provenance: Provenance,
}

/// The contents of a drop-in directory.
#[derive(Debug, Default)]
pub(super) struct DropIns {
    /// The paths of the drop-ins, sorted by the bytes of their names.
    pub(super) paths: Vec<PathBuf>,
    pub(super) skipped: SkippedFiles,
}

/// Files of a drop-in directory that are not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkippedFiles {
    /// The first ten of these files.
    pub paths: Vec<PathBuf>,
    /// The number of files that are not in `paths`.
    pub more: usize,
}

impl ConfigFile {
    /// Reads a file. `bytes_left` is the maximum size of all files that are still to be read, in
    /// bytes. This function reduces it by the size of this file.
    ///
    /// # Errors
    /// The file cannot be opened, is not a regular file, is too large, or is not UTF-8.
    pub(super) fn read(path: &Path, bytes_left: &mut usize) -> Result<Self, ConfigError> {
        let in_file = |problem| error(path, problem);
        let unreadable = |error| in_file(unreadable(&error));
        let file = open(path).map_err(unreadable)?;
        // The kind, owner and mode are read from the open file, because the path may now refer to
        // another file.
        let kind = file.metadata().map_err(unreadable)?.file_type();
        if let Some(found) = non_regular_kind(kind) {
            return Err(in_file(format!("is {found}; write the path of a file")));
        }
        let provenance = provenance(path, &file).map_err(unreadable)?;
        let mut bytes = Vec::new();
        // Reads one byte more than the limit, to detect a file that exceeds it.
        let limit = FILE_BYTES_MAX as u64 + 1;
        // The size in the metadata cannot replace this check, since the file may grow.
        file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(in_file(file_too_large()));
        }
        *bytes_left = bytes_left.checked_sub(bytes.len()).ok_or_else(|| in_file(all_too_large()))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            // All bytes before the invalid byte are valid, so its line and column can be counted.
            let before = error.as_bytes().get(..offset).and_then(|valid| std::str::from_utf8(valid).ok());
            let place = line_and_column(&path.display().to_string(), before.unwrap_or_default(), offset);
            ConfigError {
                location: place,
                key: None,
                value: None,
                problem: format!("byte {offset} is not UTF-8; save the file as UTF-8"),
            }
        })?;
        Ok(Self { path: path.to_owned(), text, provenance })
    }
}

impl DropIns {
    /// Lists a directory. A directory that does not exist is treated as an empty directory.
    ///
    /// # Errors
    /// The directory cannot be read, or contains more than [`DROP_INS_MAX`] drop-ins.
    pub(super) fn list(folder: &Path) -> Result<Self, ConfigError> {
        let unreadable = |io| error(folder, unreadable(&io));
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            // A dangling symbolic link is a mistake, not a missing directory.
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
            // Hidden files are ignored, because editors create locks and backups with such names,
            // some of which end in .toml.
            if bytes.starts_with(b".") {
                continue;
            }
            if bytes.ends_with(b".toml") {
                // The listing stops here, because a wrong directory may have any number of files.
                if names.len() == DROP_INS_MAX {
                    let problem = format!("contains more than {DROP_INS_MAX} .toml files; merge some");
                    return Err(error(folder, problem));
                }
                names.push(name);
                continue;
            }
            // The list is sorted and truncated as it grows, so that the first names are always the
            // same and the memory is bounded.
            others.insert(name);
            if others.len() > SKIPPED_MAX {
                others.pop_last();
                more += 1;
            }
        }
        // `read_dir` returns names in no fixed order. The names are sorted by their bytes and not
        // by locale, so that all hosts read the files in the same order.
        names.sort();
        let paths = others.into_iter().map(|name| folder.join(name)).collect();
        let passed_over = SkippedFiles { paths, more };
        Ok(Self { paths: names.into_iter().map(|name| folder.join(name)).collect(), skipped: passed_over })
    }
}

/// Opens a file without blocking, because a named pipe without a writer would block the start
/// forever.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)
}

/// Returns the kind of a file that is not a regular file; `None` for a file that can be read as a
/// regular file. A character device is accepted, because it may be `/dev/null`, which is treated as
/// an empty file.
fn non_regular_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_dir() => Some("a directory"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_block_device() => Some("a block device"),
        kind if kind.is_socket() => Some("a socket"),
        _ => None,
    }
}

/// Returns the owner and mode of the open file and of its directory. They determine who may change
/// or replace the file.
fn provenance(path: &Path, file: &File) -> io::Result<Provenance> {
    let rights = |metadata: &Metadata| OwnerAndMode { owner: metadata.uid(), mode: metadata.mode() & 0o7777 };
    // Symbolic links are resolved, because an account that can write to the directory of the target
    // file can replace that file.
    let whole = path.canonicalize()?;
    Ok(Provenance {
        path: path.to_owned(),
        file: rights(&file.metadata()?),
        directory: rights(&whole.parent().unwrap_or(&whole).metadata()?),
    })
}

/// Returns the problem text for a file that cannot be opened or read. The most likely reason is a
/// wrong path or wrong access rights.
pub(super) fn unreadable(error: &io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::NotFound => "; create it, or correct its path",
        ErrorKind::PermissionDenied => "; give the recorder's account read access to it and its directory",
        _ => "",
    };
    format!("cannot be read: {error}{hint}")
}

/// Returns the problem text for a file that is larger than any configuration. The most likely
/// reason is that it is the wrong file.
pub(super) fn file_too_large() -> String {
    format!("larger than {}, the limit of a configuration file", format_size(FILE_BYTES_MAX as u64))
}

/// Returns the problem text for files and variables that are small enough one by one, but too large
/// together.
pub(super) fn all_too_large() -> String {
    format!(
        "exceeds the limit of {} for all files and variables together; shorten or remove some",
        format_size(FILE_BYTES_MAX as u64)
    )
}

fn error(path: &Path, problem: String) -> ConfigError {
    let place = ConfigLocation::File(path.display().to_string());
    ConfigError { location: place, key: None, value: None, problem }
}
