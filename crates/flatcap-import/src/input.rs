//! An input file, with its decompressed content and a count of the bytes read.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use flatcap_os::stoppable_input::StoppableInput;
use flatcap_os::wake_event::WakeEvent;
use flate2::bufread::MultiGzDecoder;

use super::error::ImportError;

/// Read size, in bytes.
const READ_BYTES: usize = 256 << 10;
/// The first bytes of a gzip file (RFC 1952, 2.3.1).
const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 8];

/// The state that an input shares with its import.
#[derive(Debug, Clone, Default)]
pub(super) struct InputContext {
    /// Counts the bytes read from files, before decompression.
    pub(super) bytes: Rc<Cell<u64>>,
    /// The event that interrupts a read while it waits for the writer of a pipe.
    pub(super) stop: Arc<WakeEvent>,
}

/// The decompressed content of a file.
pub struct Input {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    is_compressed: bool,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("path", &self.path)
            .field("is_compressed", &self.is_compressed)
            .finish_non_exhaustive()
    }
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(super) fn open(path: &Path, context: InputContext) -> Result<Self, ImportError> {
        let InputContext { bytes, stop } = context;
        let opened = if path == Path::new("-") {
            StoppableInput::stdin(stop)
        } else {
            StoppableInput::open(path, stop)
        };
        opened.and_then(|source| Self::new(path, Box::new(source), bytes)).map_err(ImportError::read(path))
    }

    /// Wraps another reader. `is_packed` says whether errors of the reader may be due to damaged
    /// compressed content.
    pub(super) fn from_reader(path: &Path, reader: Box<dyn BufRead>, is_packed: bool) -> Self {
        Self { path: path.to_owned(), reader, is_compressed: is_packed }
    }

    /// Wraps a reader as if it were the file `path`. Detects gzip by the first bytes.
    pub(super) fn new(path: &Path, source: Box<dyn Read>, bytes: Rc<Cell<u64>>) -> io::Result<Self> {
        let mut start = Vec::new();
        let mut counted = CountingInput { source, bytes };
        (&mut counted).take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
        let is_packed = start == GZIP_MAGIC;
        let whole = BufReader::with_capacity(READ_BYTES, io::Cursor::new(start).chain(counted));
        let reader: Box<dyn BufRead> = if is_packed {
            Box::new(BufReader::with_capacity(READ_BYTES, MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        Ok(Self { path: path.to_owned(), reader, is_compressed: is_packed })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file is compressed. For a compressed file, offsets refer to the
    /// decompressed content.
    pub(crate) fn is_compressed(&self) -> bool {
        self.is_compressed
    }

    /// Returns whether a read error means that a compressed file is damaged or truncated. Any other
    /// error means that the file cannot be read.
    pub fn is_damage(&self, error: &io::Error) -> bool {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        self.is_compressed && matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

/// A reader that counts the bytes read.
pub(super) struct CountingInput<R> {
    pub(super) source: R,
    pub(super) bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingInput<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn read(content: Vec<u8>) -> (bool, io::Result<Vec<u8>>, u64, bool) {
        let bytes = Rc::new(Cell::new(0));
        let mut input =
            Input::new(Path::new("a"), Box::new(io::Cursor::new(content)), Rc::clone(&bytes)).unwrap();
        let mut whole = Vec::new();
        let result = input.read_to_end(&mut whole);
        let is_damage = result.as_ref().is_err_and(|error| input.is_damage(error));
        (input.is_compressed(), result.map(|_| whole), bytes.get(), is_damage)
    }

    // Proves that compressed files are detected by their content, that several gzip members are
    // read in sequence, and that read bytes are counted.
    #[test]
    fn compressed_files_are_detected() {
        for plain in [&b""[..], b"\x1F", b"\x1F\x8B", b"\x1F\x8B\x07 abc", b"plain"] {
            let (is_packed, content, bytes, _) = read(plain.to_vec());
            assert!(!is_packed && content.unwrap() == plain && bytes == plain.len() as u64);
        }
        let two = [gzip(b"one"), gzip(b"two")].concat();
        let length = two.len() as u64;
        let (is_packed, content, bytes, _) = read(two);
        assert!(is_packed && content.unwrap() == b"onetwo" && bytes == length);
    }

    // Proves that the error for a truncated or damaged compressed file is treated as damage, and
    // not as an unreadable file.
    #[test]
    fn truncated_and_damaged_gzip_is_damage() {
        let whole = gzip(&(0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
        let (_, result, _, is_damage) = read(whole[..whole.len() / 2].to_vec());
        assert!(result.is_err() && is_damage);
        let mut flipped = whole;
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x10;
        let (_, result, _, is_damage) = read(flipped);
        assert!(result.is_err() && is_damage);
    }
}
