//! LOBSTER inputs. A LOBSTER input is a plain or gzip text file, or an entry of a ZIP archive
//! (PKWARE APPNOTE 6.3).
//!
//! The zip crate reads the directory of the archive. Entries are decompressed while they are read.
//! Two entries can be open at the same time, each at its own offset.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::DeflateDecoder;
use zip::CompressionMethod;
use zip::read::{ZipArchive, ZipFile, read_zipfile_from_stream};
use zip::result::{ZipError, ZipResult};

use crate::error::ImportError;
use crate::input::{CountingInput, Input, InputContext};

/// Maximum number of entries of an archive. An archive with more entries is rejected.
pub const ENTRIES_MAX: usize = 4096;
/// Maximum length of an entry's name, in bytes. The limit equals the maximum length of a path. An
/// entry with a longer name is reported as a flaw.
const NAME_BYTES_MAX: usize = 4096;
/// Maximum number of bytes that are read from an archive to list its entries. An archive that needs
/// more is rejected.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// Read size, in bytes.
const READ_BYTES: usize = 64 << 10;

/// The location of a text.
#[derive(Debug, Clone)]
pub(super) enum TextLocation {
    /// A file, plain or gzip.
    File(PathBuf),
    /// An entry of an archive.
    Entry(PathBuf, ArchiveEntry),
}

/// An entry of an archive.
#[derive(Debug, Clone)]
pub(super) struct ArchiveEntry {
    name: String,
    start: u64, // offset of its data in the archive
    compressed_bytes: u64,
    is_deflated: bool,
    crc: u32,
}

/// The content of an archive.
#[derive(Debug, Default)]
pub(super) struct ArchiveContents {
    pub(super) entries: Vec<ArchiveEntry>,
    /// Unreadable entries, each with the offset in the archive and the reason.
    pub(super) flaws: Vec<(u64, String)>,
    entry_count: usize, // entries of all kinds: <= ENTRIES_MAX + 1
}

impl TextLocation {
    /// Returns the path that messages show. For an entry, this is the archive's path followed by
    /// the entry's name.
    pub(super) fn display_path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Entry(archive, entry) => {
                let mut path = archive.clone().into_os_string();
                path.push(format!("/{}", entry.name.escape_debug()));
                path.into()
            }
        }
    }

    /// Returns the name of the file or entry without directories.
    pub(super) fn file_name(&self) -> Option<&str> {
        let path = match self {
            Self::File(path) => path,
            Self::Entry(_, entry) => Path::new(&entry.name),
        };
        path.file_name()?.to_str()
    }

    /// Opens the file or entry.
    ///
    /// # Errors
    /// [`ImportError::Read`], [`ImportError::Stopped`].
    pub(super) fn open(&self, context: InputContext) -> Result<Input, ImportError> {
        match self {
            Self::File(path) => Input::open(path, context),
            Self::Entry(archive, entry) => {
                let failed = ImportError::read(archive);
                let mut file = File::open(archive).map_err(&failed)?;
                file.seek(SeekFrom::Start(entry.start)).map_err(&failed)?;
                let compressed =
                    CountingInput { source: file.take(entry.compressed_bytes), bytes: context.bytes };
                let compressed = BufReader::with_capacity(READ_BYTES, compressed);
                let source: Box<dyn Read> = if entry.is_deflated {
                    Box::new(DeflateDecoder::new(compressed))
                } else {
                    Box::new(compressed)
                };
                let checked = CrcReader { source, hasher: crc32fast::Hasher::new(), crc: entry.crc };
                let reader: Box<dyn BufRead> = Box::new(BufReader::with_capacity(READ_BYTES, checked));
                Ok(Input::from_reader(&self.display_path(), reader, true))
            }
        }
    }
}

/// Lists the entries of an archive from its directory. If the directory is damaged or missing, the
/// entries are listed from their local file headers.
///
/// # Errors
/// [`ImportError::Read`]; [`ImportError::Kind`] for more than [`ENTRIES_MAX`] entries.
pub(super) fn contents(path: &Path) -> Result<ArchiveContents, ImportError> {
    let open = || File::open(path).map_err(ImportError::read(path));
    let contents = match by_directory(open()?) {
        Ok(contents) => Ok(contents),
        Err(ZipError::Io(error)) if error.raw_os_error().is_some() => Err(error),
        Err(error) => by_headers(open()?, &error),
    };
    let contents = contents.map_err(ImportError::read(path))?;
    if contents.entry_count > ENTRIES_MAX {
        let what = format!("more than {ENTRIES_MAX} entries in one archive; unpack it and import the files");
        return Err(ImportError::Kind { path: path.to_owned(), what });
    }
    Ok(contents)
}

fn by_directory(file: File) -> ZipResult<ArchiveContents> {
    let mut archive =
        ZipArchive::new(BufReader::new(LimitedFile { file, remaining_bytes: DIRECTORY_BYTES_MAX }))?;
    let mut contents = ArchiveContents::default();
    for number in 0..archive.len().min(ENTRIES_MAX + 1) {
        let header_start = archive.by_index_data(number).map_or(0, |entry| entry.header_start());
        match archive.by_index_raw(number) {
            Ok(entry) => {
                let start = entry.data_start().unwrap_or(0);
                contents.add(&entry, start, header_start);
            }
            Err(error) => contents.flaws.push((header_start, format!("an entry cannot be read: {error}"))),
        }
    }
    Ok(contents)
}

/// Lists entries by following their local file headers, up to the first offset that has no header.
fn by_headers(file: File, why: &ZipError) -> io::Result<ArchiveContents> {
    let mut contents = ArchiveContents::default();
    let at = Rc::new(Cell::new(0));
    let mut reader = CountingInput { source: BufReader::new(file), bytes: Rc::clone(&at) };
    let reason = loop {
        let header_start = at.get();
        match read_zipfile_from_stream(&mut reader) {
            Ok(Some(entry)) => contents.add(&entry, at.get(), header_start),
            Ok(None) => break "the directory of the archive is damaged or truncated".to_owned(),
            Err(ZipError::Io(error)) if error.raw_os_error().is_some() => return Err(error),
            Err(_) => {
                break format!(
                    "the archive is damaged or truncated ({why}); to import the rest, unpack it with another program"
                );
            }
        }
        if contents.entry_count > ENTRIES_MAX {
            return Ok(contents);
        }
    };
    contents.flaws.push((at.get(), reason));
    Ok(contents)
}

impl ArchiveContents {
    fn add<R: Read>(&mut self, entry: &ZipFile<'_, R>, start: u64, header_start: u64) {
        self.entry_count += 1;
        if entry.is_dir() {
            return;
        }
        if entry.name_raw().len() > NAME_BYTES_MAX {
            self.flaws.push((header_start, format!("an entry's name is longer than {NAME_BYTES_MAX} bytes")));
            return;
        }
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let is_deflated = match entry.compression() {
            _ if entry.encrypted() => {
                let why = format!("entry {} is encrypted; unpack it first", name.escape_debug());
                self.flaws.push((header_start, why));
                return;
            }
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            other => {
                let why = format!(
                    "entry {} is compressed with {other}, only stored and deflated entries can be read; unpack it first",
                    name.escape_debug()
                );
                self.flaws.push((header_start, why));
                return;
            }
        };
        let (packed_bytes, crc) = (entry.compressed_size(), entry.crc32());
        self.entries.push(ArchiveEntry { name, start, compressed_bytes: packed_bytes, is_deflated, crc });
    }
}

/// A file with a limit on the bytes read.
struct LimitedFile {
    file: File,
    remaining_bytes: u64,
}

impl Read for LimitedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.remaining_bytes).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!(
                "the archive's directory is larger than {DIRECTORY_BYTES_MAX} bytes"
            )));
        }
        let read = self.file.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.remaining_bytes -= read as u64;
        Ok(read)
    }
}

impl Seek for LimitedFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Decompressed content. At the end of the entry, the CRC of its content is compared with the CRC
/// in the archive.
struct CrcReader {
    source: Box<dyn Read>,
    hasher: crc32fast::Hasher,
    crc: u32,
}

impl Read for CrcReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        if read == 0 && !buffer.is_empty() && self.hasher.clone().finalize() != self.crc {
            let what = "the entry is truncated, or its content does not match its checksum";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(read)
    }
}
