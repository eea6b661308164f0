//! What lies in a file: text, plain or packed by gzip, or the entries of a ZIP archive (PKWARE APPNOTE 6.3).
//!
//! The directory of an archive is read by a library; entries are unpacked as they are read, two at once, from wherever they lie.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::bufread::DeflateDecoder;
use zip::CompressionMethod;
use zip::read::{ZipArchive, ZipFile, read_zipfile_from_stream};
use zip::result::{ZipError, ZipResult};

use crate::import::error::ImportError;
use crate::import::input::{Counted, Input};

/// Most entries of an archive; one with more is refused.
pub const ENTRIES_MAX: usize = 4096;
/// Longest name of an entry, in bytes, as of a path; one with a longer name is a flaw.
const NAME_BYTES_MAX: usize = 4096;
/// Most bytes that are read of an archive to know its entries; one that takes more is refused.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// How much is read at once, in bytes.
const READ_BYTES: usize = 64 << 10;

/// Where a text lies.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// It is the file, packed by gzip or not.
    File(PathBuf),
    /// It is an entry of an archive.
    Entry(PathBuf, Entry),
}

/// An entry of an archive.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    name: String,
    start: u64, // of its bytes in the archive
    packed_bytes: u64,
    is_deflated: bool,
    crc: u32,
}

/// What an archive holds.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) entries: Vec<Entry>,
    /// What cannot be read: where in the archive, and why.
    pub(super) flaws: Vec<(u64, String)>,
    seen: usize, // entries of all kinds: <= ENTRIES_MAX + 1
}

impl Place {
    /// How it is named to a person: of an entry the archive, then its name.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::File(path) => path.clone(),
            Self::Entry(archive, entry) => {
                let mut path = archive.clone().into_os_string();
                path.push(format!("/{}", entry.name.escape_debug()));
                path.into()
            }
        }
    }

    /// Its name without folders.
    pub(super) fn file_name(&self) -> Option<&str> {
        let path = match self {
            Self::File(path) => path,
            Self::Entry(_, entry) => Path::new(&entry.name),
        };
        path.file_name()?.to_str()
    }

    /// Opens it; `bytes` counts what is read of the file, packed.
    ///
    /// # Errors
    /// [`ImportError::Read`].
    pub(super) fn open(&self, bytes: Rc<Cell<u64>>) -> Result<Input, ImportError> {
        match self {
            Self::File(path) => Input::open(path, bytes),
            Self::Entry(archive, entry) => {
                let failed = ImportError::read(archive);
                let mut file = File::open(archive).map_err(&failed)?;
                file.seek(SeekFrom::Start(entry.start)).map_err(&failed)?;
                let packed = Counted { source: file.take(entry.packed_bytes), bytes };
                let packed = BufReader::with_capacity(READ_BYTES, packed);
                let source: Box<dyn Read> =
                    if entry.is_deflated { Box::new(DeflateDecoder::new(packed)) } else { Box::new(packed) };
                let checked = Checked { source, hasher: crc32fast::Hasher::new(), crc: entry.crc };
                let reader: Box<dyn BufRead> = Box::new(BufReader::with_capacity(READ_BYTES, checked));
                Ok(Input::of(&self.path(), reader, true))
            }
        }
    }
}

/// What an archive holds, by its directory or, where that is damaged or cut off, by the headers of the entries.
///
/// # Errors
/// [`ImportError::Read`]; [`ImportError::Kind`]: more entries than [`ENTRIES_MAX`].
pub(super) fn contents(path: &Path) -> Result<Contents, ImportError> {
    let open = || File::open(path).map_err(ImportError::read(path));
    let contents = match by_directory(open()?) {
        Ok(contents) => Ok(contents),
        Err(ZipError::Io(error)) if error.raw_os_error().is_some() => Err(error),
        Err(error) => by_headers(open()?, &error),
    };
    let contents = contents.map_err(ImportError::read(path))?;
    if contents.seen > ENTRIES_MAX {
        let what = format!("more than {ENTRIES_MAX} entries in one archive: unpack it and name the files");
        return Err(ImportError::Kind { path: path.to_owned(), what });
    }
    Ok(contents)
}

fn by_directory(file: File) -> ZipResult<Contents> {
    let mut archive = ZipArchive::new(BufReader::new(Limited { file, left: DIRECTORY_BYTES_MAX }))?;
    let mut contents = Contents::default();
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

/// Walks from header to header until one is none.
fn by_headers(file: File, why: &ZipError) -> io::Result<Contents> {
    let mut contents = Contents::default();
    let at = Rc::new(Cell::new(0));
    let mut reader = Counted { source: BufReader::new(file), bytes: Rc::clone(&at) };
    let reason = loop {
        let header_start = at.get();
        match read_zipfile_from_stream(&mut reader) {
            Ok(Some(entry)) => contents.add(&entry, at.get(), header_start),
            Ok(None) => break "the directory of the archive is damaged or cut off".to_owned(),
            Err(ZipError::Io(error)) if error.raw_os_error().is_some() => return Err(error),
            Err(_) => {
                break format!(
                    "the archive is damaged or cut off ({why}): unpack it with another program if more lies behind"
                );
            }
        }
        if contents.seen > ENTRIES_MAX {
            return Ok(contents);
        }
    };
    contents.flaws.push((at.get(), reason));
    Ok(contents)
}

impl Contents {
    fn add<R: Read>(&mut self, entry: &ZipFile<'_, R>, start: u64, header_start: u64) {
        self.seen += 1;
        if entry.is_dir() {
            return;
        }
        if entry.name_raw().len() > NAME_BYTES_MAX {
            self.flaws
                .push((header_start, format!("an entry whose name has more than {NAME_BYTES_MAX} bytes")));
            return;
        }
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let is_deflated = match entry.compression() {
            _ if entry.encrypted() => {
                let why = format!("entry {} is encrypted: unpack it first", name.escape_debug());
                self.flaws.push((header_start, why));
                return;
            }
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            other => {
                let why = format!("entry {} is packed by {other}: unpack it first", name.escape_debug());
                self.flaws.push((header_start, why));
                return;
            }
        };
        let (packed_bytes, crc) = (entry.compressed_size(), entry.crc32());
        self.entries.push(Entry { name, start, packed_bytes, is_deflated, crc });
    }
}

/// A file of which only so much may be read.
struct Limited {
    file: File,
    left: u64,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 && !buffer.is_empty() {
            return Err(io::Error::other(format!("its directory has more than {DIRECTORY_BYTES_MAX} bytes")));
        }
        let read = self.file.read(buffer.get_mut(..most).unwrap_or_default())?;
        self.left -= read as u64;
        Ok(read)
    }
}

impl Seek for Limited {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// What was unpacked, compared at its end with the checksum that the archive has of it.
struct Checked {
    source: Box<dyn Read>,
    hasher: crc32fast::Hasher,
    crc: u32,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.hasher.update(buffer.get(..read).unwrap_or_default());
        if read == 0 && !buffer.is_empty() && self.hasher.clone().finalize() != self.crc {
            let what = "the entry is cut off, or its content is not what its checksum says";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(read)
    }
}
