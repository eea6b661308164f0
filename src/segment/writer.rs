//! One segment being written: appended to, tallied, sealed, published.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use super::control::{Footer, Gap, Trailer};
use super::header::Header;
use super::name::SegmentName;
use super::totals::{Span, Totals};
use crate::os::storage::{Storage, StorageFile};
use crate::stream::{self, ChecksumKind, SliceFramer, StreamWriter};

/// A segment that frames are appended to. The first error ends it: what the kernel did with the bytes is unknown, so
/// nothing more is written behind them.
#[derive(Debug)]
pub struct SegmentWriter {
    name: SegmentName,
    header: Header,
    file: Arc<dyn StorageFile>,
    stream: StreamWriter<'static, Appender, ChecksumKind>,
    header_bytes: u64,
    bytes: u64,
    frames: u64,
    totals: Vec<Totals>, // in the order of header.sources
    latest_mono_ns: u64,
    reorder_window_ns: u64,
    reserve: Reserve,
}

/// A segment with footer and trailer, to be published.
#[derive(Debug)]
pub struct SealedSegment {
    name: SegmentName,
    file: Arc<dyn StorageFile>,
    bytes: u64,
}

/// Room on the medium, taken in steps ahead of the writing.
#[derive(Debug)]
struct Reserve {
    step: u64, // 0: off
    end: u64,
}

impl SegmentWriter {
    /// Creates the file and writes the header. `preallocate` is the step in bytes in which room is reserved; 0 turns
    /// it off.
    ///
    /// # Errors
    /// What the storage says.
    pub fn create(
        storage: &dyn Storage,
        name: SegmentName,
        header: Header,
        preallocate: u64,
    ) -> io::Result<Self> {
        let file = storage.create(&name.to_string())?;
        let stream = StreamWriter::new(Appender(Arc::clone(&file)), header.checksum);
        let payload = header.encode();
        let mut segment = Self {
            name,
            totals: header.sources.iter().map(|source| Totals::new(source.id)).collect(),
            latest_mono_ns: 0,
            reorder_window_ns: 0,
            header_bytes: payload.len() as u64,
            bytes: 0,
            frames: 0,
            reserve: Reserve { step: preallocate, end: 0 },
            header,
            file,
            stream,
        };
        if let Err(error) = segment.write_payload(&payload) {
            // A full disk would else be littered with empty files, one an attempt.
            let _best_effort = storage.remove(&name.to_string());
            return Err(error);
        }
        Ok(segment)
    }

    /// Its name.
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// About how many bytes footer and trailer will take: the footer repeats the header, and its totals take some
    /// kilobytes a source, most of them histograms.
    pub fn seal_bytes(&self) -> u64 {
        const TOTALS_BYTES: u64 = 4 << 10;
        self.header_bytes + TOTALS_BYTES * self.totals.len() as u64
    }

    /// Checksum of its frames.
    pub fn checksum(&self) -> ChecksumKind {
        self.header.checksum
    }

    /// Whether it holds telemetry or gaps.
    pub fn has_content(&self) -> bool {
        self.frames > 1
    }

    /// The file, to be synced from another thread.
    pub fn file(&self) -> Arc<dyn StorageFile> {
        Arc::clone(&self.file)
    }

    /// Appends whole frames, `frames` of them in `bytes` bytes.
    ///
    /// # Errors
    /// What the storage says. What was written of them is cut off again, best effort, and the segment must not be
    /// written to any more.
    pub fn append(&mut self, pieces: &mut [IoSlice<'_>], frames: u64) -> io::Result<()> {
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.reserve.ahead_of(self.bytes + bytes, &*self.file);
        if let Err(error) = self.stream.write_framed(pieces) {
            // If this fails too, the reader finds the torn frames; either way they count as lost.
            let _best_effort = self.file.truncate(self.bytes);
            return Err(into_io(error));
        }
        self.bytes += bytes;
        self.frames += frames;
        Ok(())
    }

    /// Counts appended telemetry: `count` frames of one source with consecutive numbers.
    pub fn tally(&mut self, source: u16, count: u64, span: Span) {
        if let Some(totals) = totals_of(&mut self.totals, source) {
            totals.record(count, span);
        }
        self.reorder_window_ns =
            self.reorder_window_ns.max(self.latest_mono_ns.saturating_sub(span.first_mono_ns));
        self.latest_mono_ns = self.latest_mono_ns.max(span.last_mono_ns);
    }

    /// Counts an appended gap.
    pub fn tally_gap(&mut self, gap: &Gap) {
        if let Some(totals) = totals_of(&mut self.totals, gap.source) {
            totals.lost += gap.count;
        }
    }

    /// The counts of one source, for what only the recorder knows.
    pub fn totals_mut(&mut self, source: u16) -> Option<&mut Totals> {
        totals_of(&mut self.totals, source)
    }

    /// Writes footer and trailer.
    ///
    /// # Errors
    /// What the storage says. The segment then stays as it is, unsealed.
    pub fn seal(mut self) -> io::Result<SealedSegment> {
        let footer_offset = self.bytes;
        let footer = Footer {
            header: self.header.clone(),
            totals: std::mem::take(&mut self.totals),
            frames: self.frames,
            bytes: self.bytes,
            reorder_window_ns: self.reorder_window_ns,
            recovered: false,
        };
        let footer = footer.encode();
        self.write_payload(&footer)?;
        let trailer = Trailer {
            footer_offset,
            footer_length: u32::try_from(footer.len()).map_err(io::Error::other)?,
            segment: self.header.segment,
            run_id: self.header.run_id,
        };
        self.write_payload(&trailer.encode())?;
        Ok(SealedSegment { name: self.name, file: self.file, bytes: self.bytes })
    }

    fn write_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let header = self.header.checksum.header(payload).map_err(into_io)?;
        self.append(&mut [IoSlice::new(header.as_bytes()), IoSlice::new(payload)], 1)
    }
}

impl SealedSegment {
    /// Gives unused room back, brings the file to the medium and then gives it its final name: whoever sees the name
    /// sees a whole segment, even after a power cut.
    ///
    /// # Errors
    /// What the storage says. The segment then keeps its `.active` name.
    pub fn publish(&self, storage: &dyn Storage) -> io::Result<()> {
        self.file.truncate(self.bytes)?;
        self.file.sync()?;
        storage.rename(&self.name.to_string(), &self.name.sealed().to_string())?;
        storage.sync_directory()
    }

    /// Bytes of the whole file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// The name it gets.
    pub fn name(&self) -> SegmentName {
        self.name.sealed()
    }
}

impl Reserve {
    /// Sees to room up to `end` before it is written. A storage that cannot reserve is not asked again.
    fn ahead_of(&mut self, end: u64, file: &dyn StorageFile) {
        if self.step == 0 || end <= self.end {
            return;
        }
        self.end = end.next_multiple_of(self.step);
        if file.preallocate(self.end).is_err() {
            self.step = 0;
        }
    }
}

/// A storage file as a sink of the stream writer.
#[derive(Debug)]
struct Appender(Arc<dyn StorageFile>);

impl Write for Appender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.append(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.append(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn totals_of(totals: &mut [Totals], source: u16) -> Option<&mut Totals> {
    totals.iter_mut().find(|totals| totals.source == source)
}

fn into_io(error: stream::Error) -> io::Error {
    match error.kind() {
        // The kind and the number are what a caller asks for; they are cheap to carry over.
        stream::ErrorKind::Io(inner) => match inner.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => inner.kind().into(),
        },
        _ => io::Error::other(error),
    }
}
