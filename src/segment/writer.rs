//! One segment being written: appended to, tallied, sealed, published.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use super::control::{Attachment, ClockSync, Gap, Marker};
use super::footer::{Footer, Trailer};
use super::header::{Header, SourceInfo};
use super::name::SegmentName;
use super::tally::Tally;
use super::totals::{Span, Totals};
use crate::os::storage::{Storage, StorageFile};
use crate::stream::{self, ChecksumKind, SliceFramer, StreamWriter};

/// Room is reserved in steps of at least so much: each step is a call.
const RESERVE_STEP_MIN: u64 = 1 << 20;
/// Room for the gaps that may have to be written when the medium is full.
const GAPS_RESERVE_BYTES: u64 = 16 << 10;

/// A segment that frames are appended to. The first error ends it, unless it says that the medium is full: then nothing was
/// written, and the room that was kept for it still takes footer and trailer.
#[derive(Debug)]
pub struct SegmentWriter {
    name: SegmentName,
    header: Header,
    file: Arc<dyn StorageFile>,
    stream: StreamWriter<'static, Appender, ChecksumKind>,
    header_bytes: u64,
    tally: Tally,
    reserve: Reserve,
}

/// A segment with footer and trailer, to be published.
#[derive(Debug)]
pub struct SealedSegment {
    name: SegmentName,
    file: Arc<dyn StorageFile>,
    bytes: u64,
}

/// Whole frames to be appended.
#[derive(Debug)]
pub struct Frames<'a, 'b> {
    /// Their bytes, in pieces.
    pub pieces: &'a mut [IoSlice<'b>],
    /// Their headers (length and stored checksum), one behind the other, in pieces.
    pub heads: &'a [&'b [u8]],
    /// How many.
    pub count: u64,
}

/// Room on the medium, taken in steps ahead of the writing.
#[derive(Debug)]
struct Reserve {
    step: u64, // at least RESERVE_STEP_MIN: room for footer and trailer is always kept
    end: u64,
    is_supported: bool,
}

impl SegmentWriter {
    /// Creates the file and writes the header and the attachments. `preallocate` is the step in bytes in which room is
    /// reserved; 0 reserves no more than footer and trailer will take.
    ///
    /// # Errors
    /// What the storage says. The file is then removed again.
    pub fn create(
        storage: &dyn Storage,
        name: SegmentName,
        header: Header,
        attachments: &[Attachment],
        preallocate: u64,
    ) -> io::Result<Self> {
        let file = storage.create(&name.to_string())?;
        let tally = Tally::new(&header);
        let mut segment = Self::resume(name, header, file, tally);
        segment.reserve.step = preallocate;
        if let Err(error) = segment.begin(attachments) {
            // A full disk would else be littered with empty files, one an attempt.
            let _best_effort = storage.remove(&name.to_string());
            return Err(error);
        }
        Ok(segment)
    }

    /// Goes on behind what stands in the file and was counted by `tally`.
    pub(super) fn resume(
        name: SegmentName,
        header: Header,
        file: Arc<dyn StorageFile>,
        tally: Tally,
    ) -> Self {
        let stream = StreamWriter::new(Appender(Arc::clone(&file)), header.checksum);
        Self {
            name,
            header_bytes: header.encode().len() as u64,
            reserve: Reserve { step: 0, end: 0, is_supported: true },
            header,
            file,
            stream,
            tally,
        }
    }

    pub(super) fn begin(&mut self, attachments: &[Attachment]) -> io::Result<()> {
        let payload = self.header.encode();
        self.write_payload(&payload)?;
        for attachment in attachments {
            self.write_payload(&attachment.encode())?;
        }
        self.tally.begin_content();
        Ok(())
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
        self.tally.bytes()
    }

    /// Frames written so far.
    pub fn frames(&self) -> u64 {
        self.tally.frames()
    }

    /// About how many bytes footer and trailer will take: the footer repeats the header, and its totals take some
    /// kilobytes a source, most of them histograms; an entry of the index takes some hundred bytes.
    pub fn seal_bytes(&self) -> u64 {
        const TOTALS_BYTES: u64 = 4 << 10;
        const ENTRY_BYTES: u64 = 128;
        const ENTRY_SOURCE_BYTES: u64 = 24;
        let sources = self.tally.totals().len() as u64;
        self.header_bytes
            + TOTALS_BYTES * sources
            + (ENTRY_BYTES + ENTRY_SOURCE_BYTES * sources) * self.tally.intervals()
    }

    /// Checksum of its frames.
    pub fn checksum(&self) -> ChecksumKind {
        self.header.checksum
    }

    /// Whether it holds anything but its header and what belongs to it.
    pub fn has_content(&self) -> bool {
        self.tally.has_content()
    }

    /// The file, to be synced from another thread.
    pub fn file(&self) -> Arc<dyn StorageFile> {
        Arc::clone(&self.file)
    }

    /// What it occupies on the medium now, in bytes.
    ///
    /// # Errors
    /// What the storage says.
    pub fn allocated(&self) -> io::Result<u64> {
        self.file.allocated()
    }

    /// Bytes and frames that no Index frame covers yet; none if there are none.
    pub fn unindexed_bytes(&self) -> Option<u64> {
        self.tally.has_unindexed().then(|| self.tally.interval().bytes)
    }

    /// Appends whole frames.
    ///
    /// # Errors
    /// What the storage says. [`io::ErrorKind::StorageFull`]: nothing was written, and the segment may be sealed. After any other
    /// error it is not known what was written, and the segment must not be written to any more.
    pub fn append(&mut self, frames: Frames<'_, '_>) -> io::Result<()> {
        let Frames { pieces, heads, count } = frames;
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let before = self.tally.bytes();
        let seal_bytes = self.seal_bytes() + GAPS_RESERVE_BYTES;
        self.reserve.ahead_of(before + bytes, seal_bytes, &*self.file)?;
        self.write(pieces)?;
        for heads in heads {
            self.tally.add(heads, 0, 0);
        }
        self.tally.add(&[], count, bytes);
        Ok(())
    }

    /// Appends gaps, into the room that is kept for them if there is no other.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_gaps(&mut self, gaps: &[Gap]) -> io::Result<()> {
        for gap in gaps {
            self.write_payload(&gap.encode())?;
            self.tally.gap(gap);
        }
        Ok(())
    }

    /// Appends a new pairing of the clocks.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_clock_sync(&mut self, sync: &ClockSync) -> io::Result<()> {
        self.write_payload(&sync.encode())?;
        self.header.add_clocks(sync.clocks);
        Ok(())
    }

    /// Appends a note.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_marker(&mut self, marker: &Marker) -> io::Result<()> {
        self.append_payload(&marker.encode())
    }

    /// Appends a named file.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_attachment(&mut self, attachment: &Attachment) -> io::Result<()> {
        self.append_payload(&attachment.encode())
    }

    /// Describes a source that is not in the header, in front of its first sample.
    ///
    /// # Errors
    /// As [`append`](Self::append). `InvalidInput` for an id that is taken, or one source too many: nothing was written.
    pub fn append_source(&mut self, source: SourceInfo) -> io::Result<()> {
        if self.header.source(source.id).is_some() || !self.header.takes_source(&source) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let payload = source.encode();
        // The footer repeats it.
        self.header_bytes += payload.len() as u64;
        self.append_payload(&payload)?;
        self.tally.add_source(source.id);
        self.header.add_source(source);
        Ok(())
    }

    /// Ends the interval by an Index frame. `synced_offset` is up to where the file is known to be on the medium.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_index(&mut self, synced_offset: u64) -> io::Result<()> {
        let index = self.tally.close_interval(synced_offset);
        self.write_payload(&index.encode())
    }

    /// Counts appended telemetry: `count` frames of one source with consecutive numbers.
    pub fn tally(&mut self, source: u16, count: u64, span: Span) {
        self.tally.samples(source, count, span);
    }

    /// Counts an appended gap.
    pub fn tally_gap(&mut self, gap: &Gap) {
        self.tally.gap(gap);
    }

    /// The counts of one source, for what only the recorder knows.
    pub fn totals_mut(&mut self, source: u16) -> Option<&mut Totals> {
        self.tally.totals_mut(source)
    }

    /// Writes footer and trailer.
    ///
    /// # Errors
    /// What the storage says. The segment then stays as it is, unsealed.
    pub fn seal(self) -> io::Result<SealedSegment> {
        self.end(false)
    }

    /// Writes footer and trailer of a segment that is completed after a crash.
    ///
    /// # Errors
    /// What the storage says. The segment then stays as it is, unsealed.
    pub fn seal_recovered(self) -> io::Result<SealedSegment> {
        self.end(true)
    }

    fn end(mut self, recovered: bool) -> io::Result<SealedSegment> {
        let footer_offset = self.tally.bytes();
        let frames = self.tally.frames();
        let (totals, index) = self.tally.finish();
        let footer = Footer {
            header: self.header.clone(),
            totals,
            frames,
            bytes: footer_offset,
            reorder_window_ns: self.tally.reorder_window_ns(),
            recovered,
            index,
            blocks: Vec::new(),
            sizes: Vec::new(),
        };
        let footer = footer.encode();
        let trailer = Trailer {
            footer_offset,
            footer_length: u32::try_from(footer.len()).map_err(io::Error::other)?,
            segment: self.header.segment,
            run_id: self.header.run_id,
        };
        // One write, so that no footer is seen without its trailer but for a crash.
        let trailer = trailer.encode();
        let heads = [self.head(&footer)?, self.head(&trailer)?];
        let [footer_head, trailer_head] = &heads;
        let mut pieces =
            [footer_head.as_bytes(), &footer, trailer_head.as_bytes(), &trailer].map(IoSlice::new);
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.write(&mut pieces)?;
        Ok(SealedSegment { name: self.name, file: self.file, bytes: footer_offset + bytes as u64 })
    }

    /// Appends one frame, into room of its own.
    fn append_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let seal_bytes = self.seal_bytes() + GAPS_RESERVE_BYTES;
        let end = self.tally.bytes() + self.header.checksum.frame_bytes(payload.len()) as u64;
        self.reserve.ahead_of(end, seal_bytes, &*self.file)?;
        self.write_payload(payload)
    }

    /// Writes one frame of the recorder's own, into the room that is kept for it if there is no other.
    fn write_payload(&mut self, payload: &[u8]) -> io::Result<()> {
        let head = self.head(payload)?;
        self.write(&mut [IoSlice::new(head.as_bytes()), IoSlice::new(payload)])?;
        self.tally.add(head.as_bytes(), 1, (head.as_bytes().len() + payload.len()) as u64);
        Ok(())
    }

    fn head(&self, payload: &[u8]) -> io::Result<stream::FrameHeader> {
        self.header.checksum.header(payload).map_err(into_io)
    }

    fn write(&mut self, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let Err(error) = self.stream.write_framed(pieces) else { return Ok(()) };
        let error = into_io(error);
        if is_full(&error) {
            // What was written of the frames goes again. If it does not, whatever the reason, the segment is broken.
            self.file.truncate(self.tally.bytes()).map_err(io::Error::other)?;
            // With it went what was reserved.
            self.reserve.end = 0;
            return Err(full(error));
        }
        Err(error)
    }
}

/// The error, under the one kind that says that there is no room.
fn full(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::StorageFull {
        error
    } else {
        io::Error::new(io::ErrorKind::StorageFull, error)
    }
}

/// Whether an error says that there is no room: on the medium, within a quota, or below the largest file size.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl SealedSegment {
    /// A file that is complete, under a name that does not say so yet.
    pub(super) fn new(name: SegmentName, file: Arc<dyn StorageFile>, bytes: u64) -> Self {
        Self { name, file, bytes }
    }

    /// Gives unused room back, and brings the file to the medium.
    ///
    /// # Errors
    /// What the storage says.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.truncate(self.bytes)?;
        self.file.sync()
    }

    /// Gives unused room back, brings the file to the medium and then gives it its final name: whoever sees the name
    /// sees a whole segment, even after a power cut.
    ///
    /// # Errors
    /// What the storage says. The segment then keeps its `.active` name.
    pub fn publish(&self, storage: &dyn Storage) -> io::Result<()> {
        self.sync()?;
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
    /// Sees to room up to `end`, and for what will seal the segment behind it, before anything is written. A storage that
    /// cannot reserve is not asked again.
    fn ahead_of(&mut self, end: u64, seal_bytes: u64, file: &dyn StorageFile) -> io::Result<()> {
        let least = end + seal_bytes;
        if !self.is_supported || least <= self.end {
            return Ok(());
        }
        let wanted = least.next_multiple_of(self.step.max(RESERVE_STEP_MIN));
        // Near the end of the medium less than a whole step may be left.
        let result = file.preallocate(wanted).map(|()| wanted).or_else(|error| {
            if is_full(&error) { file.preallocate(least).map(|()| least) } else { Err(error) }
        });
        match result {
            Ok(end) => self.end = end,
            Err(error) if is_full(&error) => return Err(full(error)),
            Err(_) => self.is_supported = false,
        }
        Ok(())
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

fn into_io(error: stream::Error) -> io::Error {
    match error.kind() {
        // The kind and the number are what a caller asks for; they are cheap to carry over.
        stream::ErrorKind::Io(inner) => match inner.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(inner.kind(), inner.to_string()),
        },
        _ => io::Error::other(error),
    }
}
