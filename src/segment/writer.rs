//! One segment being written: appended to, tallied, sealed, published.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::appender::{Appender, into_io};
use super::control::{Attachment, ClockSync, Gap, Marker};
use super::footer::{Footer, ended};
use super::header::{Header, SourceInfo};
use super::header_copy;
use super::name::SegmentName;
use super::packing::{Packer, Packing};
use super::reserve::{Reserve, full, is_full};
use super::sealed::SealedSegment;
use super::tally::Tally;
use super::totals::{Span, Totals};
use crate::os::storage::{Storage, StorageFile};
use crate::stream::{self, ChecksumKind, Framer, SliceFramer, StreamWriter};

/// Space for the gaps, clock pairings and indexes that may have to be written when the disk is full...
const GAPS_RESERVE_BYTES: u64 = 16 << 10;
/// ...with a last gap for each source, and its counts in the footer.
const SOURCE_RESERVE_BYTES: u64 = 1 << 10;
/// What the latency histograms of a source take in a footer: 16 bytes a bucket, and some hundred buckets in use in each of two. Where they take more
/// and the disk is full, the footer goes without them.
const LATENCIES_RESERVE_BYTES: u64 = 16 << 10;
/// One sample adds at most two buckets.
const SAMPLE_BUCKETS_BYTES: u64 = 32;
/// What an entry of the index takes in a footer, and of each source in it.
const ENTRY_BYTES: u64 = 128;
const ENTRY_SOURCE_BYTES: u64 = 24;

/// A segment that frames are appended to. The first error ends it, unless it says that the medium is full: then nothing was
/// written, and the room that was kept for it still takes footer and trailer.
#[derive(Debug)]
pub struct SegmentWriter {
    name: SegmentName,
    header: Header,
    file: Arc<dyn StorageFile>,
    stream: StreamWriter<'static, Appender, ChecksumKind>,
    packer: Option<Packer>,   // of a segment that is packed while it is recorded
    copy: Option<Attachment>, // of the header, until it is written
    header_bytes: u64,
    tally: Tally,
    reserve: Reserve,
}

/// How a segment is written.
#[derive(Debug, Clone, Default)]
pub struct Form {
    /// The step in bytes in which room is reserved; 0 reserves no more than footer and trailer will take.
    pub preallocate: u64,
    /// What packs it; none: its frames are written as they are.
    pub packing: Option<Packing>,
    /// With an Index frame it gets a second copy of its header, for as long as it has no footer.
    pub copies_header: bool,
}

/// Where room for a write comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// It is seen to before.
    Own,
    /// It is kept for this, if there is no other.
    Kept,
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
        Self::create_as(storage, name, header, attachments, Form { preallocate, ..Form::default() })
    }

    /// The same, in any form.
    ///
    /// # Errors
    /// What the storage says. The file is then removed again.
    pub fn create_as(
        storage: &dyn Storage,
        name: SegmentName,
        header: Header,
        attachments: &[Attachment],
        form: Form,
    ) -> io::Result<Self> {
        let file = storage.create(&name.to_string())?;
        let tally = Tally::new(&header);
        let packer = form.packing.map(|packing| Packer::begin(packing, &header)).transpose()?;
        let mut segment = Self::resume(name, header, file, tally);
        segment.packer = packer;
        segment.reserve = Reserve::new(form.preallocate);
        if form.copies_header {
            let mut frame = Vec::new();
            let payload = segment.header.encode();
            segment.header.checksum.frame_and_write(&mut frame, &payload).map_err(into_io)?;
            segment.copy = Some(header_copy::attachment(&segment.header, frame));
        }
        // With space for its end from the start on: else a disk that fills up now would leave a segment that cannot be sealed.
        let begun = segment.begin(attachments).and_then(|()| segment.reserve_end());
        if let Err(error) = begun {
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
            reserve: Reserve::new(0),
            packer: None,
            copy: None,
            header,
            file,
            stream,
            tally,
        }
    }

    /// What is written from now on goes into blocks behind those that stand in the file, if there is who packs.
    pub(super) fn packed_by(mut self, packer: Option<Packer>) -> Self {
        self.packer = packer;
        self
    }

    pub(super) fn begin(&mut self, attachments: &[Attachment]) -> io::Result<()> {
        let payload = self.header.encode();
        self.write_payload(&payload, Room::Kept)?;
        for attachment in attachments {
            self.write_payload(&attachment.encode(), Room::Kept)?;
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

    /// Bytes of its frames so far. They are what is written, unless it is packed.
    pub fn bytes(&self) -> u64 {
        self.tally.bytes()
    }

    /// Bytes of its file so far.
    pub fn stored_bytes(&self) -> u64 {
        self.packer.as_ref().map_or(self.tally.bytes(), Packer::stored_bytes)
    }

    /// Whether it has as many blocks as one should have at most.
    pub fn is_crowded(&self) -> bool {
        self.packer.as_ref().is_some_and(Packer::is_crowded)
    }

    /// Frames written so far.
    pub fn frames(&self) -> u64 {
        self.tally.frames()
    }

    /// About how many bytes footer and trailer will take: the footer repeats the header, and its totals take some
    /// kilobytes a source, most of them histograms; an entry of the index takes some hundred bytes.
    pub fn seal_bytes(&self) -> u64 {
        const TOTALS_BYTES: u64 = 4 << 10;
        let sources = self.tally.totals().len() as u64;
        self.header_bytes + TOTALS_BYTES * sources + self.index_bytes(sources)
    }

    /// About how many bytes the index takes in the footer.
    fn index_bytes(&self, sources: u64) -> u64 {
        (ENTRY_BYTES + ENTRY_SOURCE_BYTES * sources) * self.tally.intervals()
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
        self.write(pieces, Room::Own)?;
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
            self.write_payload(&gap.encode(), Room::Kept)?;
            self.tally.gap(gap);
        }
        Ok(())
    }

    /// Appends a new pairing of the clocks.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_clock_sync(&mut self, sync: &ClockSync) -> io::Result<()> {
        self.write_payload(&sync.encode(), Room::Kept)?;
        self.header.add_clocks(sync.clocks);
        Ok(())
    }

    /// Appends a note.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_marker(&mut self, marker: &Marker) -> io::Result<()> {
        self.write_payload(&marker.encode(), Room::Own)
    }

    /// Appends a named file.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_attachment(&mut self, attachment: &Attachment) -> io::Result<()> {
        self.write_payload(&attachment.encode(), Room::Own)
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
        if let Some(packer) = &self.packer {
            packer.describe(&source);
        }
        self.write_payload(&payload, Room::Own)?;
        self.tally.add_source(source.id);
        self.header.add_source(source);
        Ok(())
    }

    /// Ends the interval by an Index frame. `synced_offset` is up to where the file is known to be on the medium.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_index(&mut self, synced_offset: u64) -> io::Result<()> {
        self.append_copy()?;
        let index = self.tally.close_interval(synced_offset);
        self.write_payload(&index.encode(), Room::Kept)
    }

    /// Appends the copy of the header, once the segment is long enough for it. Where there is no room for it, the next Index frame
    /// tries again.
    fn append_copy(&mut self) -> io::Result<()> {
        let bytes = self.tally.bytes();
        let Some(copy) = self.copy.take_if(|copy| header_copy::is_due(bytes, copy.content.len())) else {
            return Ok(());
        };
        match self.append_attachment(&copy) {
            Err(error) if is_full(&error) => {
                self.copy = Some(copy);
                Ok(())
            }
            result => result,
        }
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

    /// Takes over what only the footer of a segment tells whose frames were copied into this one.
    pub(super) fn take_over(&mut self, totals: &[Totals]) {
        for old in totals {
            if let Some(new) = self.tally.totals_mut(old.source) {
                (new.missed, new.partial) = (old.missed, old.partial);
                (new.lateness, new.read_duration) = (old.lateness.clone(), old.read_duration.clone());
            }
        }
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
        let frames = self.tally.frames();
        let (totals, index) = self.tally.finish();
        let mut footer = Footer {
            header: self.header.clone(),
            totals,
            frames,
            bytes: self.tally.bytes(),
            reorder_window_ns: self.tally.reorder_window_ns(),
            recovered,
            index,
            blocks: Vec::new(),
            sizes: Vec::new(),
            small_blocks: false,
        };
        let written = match self.write_end(&footer) {
            // What is kept for the end has no space for these histograms: better a footer without them than none.
            Err(error) if is_full(&error) => {
                footer.totals.iter_mut().for_each(Totals::forget_latencies);
                self.write_end(&footer)?
            }
            written => written?,
        };
        Ok(SealedSegment::new(self.name, self.file, written))
    }

    /// Writes footer and trailer. Returns the length of the file.
    fn write_end(&mut self, footer: &Footer) -> io::Result<u64> {
        let (payload, trailer) = ended(footer)?;
        // One write, so that no footer is seen without its trailer but for a crash.
        let heads = [self.head(&payload)?, self.head(&trailer)?];
        let [footer_head, trailer_head] = &heads;
        let mut pieces =
            [footer_head.as_bytes(), &payload, trailer_head.as_bytes(), &trailer].map(IoSlice::new);
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let stored = self.stored_bytes();
        let Self { stream, packer, .. } = &mut *self;
        let mut write = |pieces: &mut [IoSlice<'_>]| stream.write_framed(pieces).map_err(into_io);
        let written = match packer {
            None => write(&mut pieces).map(|()| footer.bytes + bytes as u64),
            Some(packer) => packer.append_last(&pieces, footer, write),
        };
        written.map_err(|error| self.cut_off(stored, error))
    }

    /// Writes one frame of the recorder's own.
    fn write_payload(&mut self, payload: &[u8], room: Room) -> io::Result<()> {
        let head = self.head(payload)?;
        self.write(&mut [IoSlice::new(head.as_bytes()), IoSlice::new(payload)], room)?;
        self.tally.add(head.as_bytes(), 1, (head.as_bytes().len() + payload.len()) as u64);
        Ok(())
    }

    fn head(&self, payload: &[u8]) -> io::Result<stream::FrameHeader> {
        self.header.checksum.header(payload).map_err(into_io)
    }

    /// Writes whole frames, or none of them where there is no room.
    fn write(&mut self, pieces: &mut [IoSlice<'_>], room: Room) -> io::Result<()> {
        let (stored, keep) = (self.stored_bytes(), self.keep_bytes());
        let Self { stream, packer, reserve, file, header, .. } = self;
        let mut has_room = room == Room::Kept;
        let mut write = |end: u64, pieces: &mut [IoSlice<'_>]| {
            if !has_room {
                reserve.ahead_of(end, keep, &**file)?;
                has_room = true;
            }
            stream.write_framed(pieces).map_err(into_io)
        };
        let written = match packer {
            None => {
                let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
                write(stored + bytes, pieces)
            }
            Some(packer) => packer.append(pieces, header.checksum, write),
        };
        match written {
            Err(error) if has_room => Err(self.cut_off(stored, error)),
            written => written,
        }
    }

    /// What a write that has failed has left goes again, if it failed for want of room. If it does not, whatever the reason, the segment is broken.
    #[cold]
    fn cut_off(&mut self, stored: u64, error: io::Error) -> io::Error {
        if !is_full(&error) {
            return error;
        }
        if self.file.length().is_ok_and(|length| length == stored) {
            // Nothing was written, and what is reserved stays.
            return full(error);
        }
        self.reserve.forget();
        match self.file.truncate(stored) {
            Ok(()) => full(error),
            Err(error) => io::Error::other(error),
        }
    }

    /// Reserves space for what ends the file.
    fn reserve_end(&mut self) -> io::Result<()> {
        let (stored, keep) = (self.stored_bytes(), self.keep_bytes());
        self.reserve.ahead_of(stored, keep, &*self.file)
    }

    /// Space that is kept for what ends the file: gaps, footer, trailer.
    fn keep_bytes(&self) -> u64 {
        let sources = self.tally.totals().len() as u64;
        let latencies = (LATENCIES_RESERVE_BYTES * sources).min(SAMPLE_BUCKETS_BYTES * self.tally.frames());
        let footer =
            self.header_bytes + SOURCE_RESERVE_BYTES * sources + self.index_bytes(sources) + latencies;
        let raw_bytes = footer + GAPS_RESERVE_BYTES;
        self.packer.as_ref().map_or(raw_bytes, |packer| packer.keep_bytes(raw_bytes))
    }
}
