//! Writes one segment. Appends frames, counts them, and seals the segment.

use std::io::{self, IoSlice};
use std::sync::Arc;

use flatcap_stream::{ChecksumKind, FrameHeader, Framer, SliceFramer};

use super::live_compression::{LiveCompressor, SegmentCompressor};
use super::preallocation::{Preallocation, into_storage_full, is_storage_full};
use super::sealed::SealedSegment;
use crate::block::BlockFeatures;
use crate::segment::format::control_frames::{Attachment, ClockSync, Gap, Marker};
use crate::segment::format::footer::{Footer, footer_and_trailer};
use crate::segment::format::footer_totals::{FooterTotals, SampleSpan};
use crate::segment::format::header::{SegmentHeader, SourceInfo};
use crate::segment::format::segment_counts::SegmentCounts;
use crate::segment::format::segment_name::SegmentName;
use crate::segment::open::header_copy;
use crate::storage::{Storage, StorageFile};

/// Reserved space for the gaps, clock pairings and indexes that may be written when the disk is
/// full, in bytes.
const GAPS_RESERVE_BYTES: u64 = 16 << 10;
/// Reserved space per source for a last gap, and for the source's counts in the footer, in bytes.
const SOURCE_RESERVE_BYTES: u64 = 1 << 10;
/// Reserved space per source for the latency histograms in a footer, in bytes. A bucket takes 16
/// bytes, and each of the two histograms uses a few hundred buckets. If the histograms take more
/// space and the disk is full, the footer is written without the histograms.
const LATENCIES_RESERVE_BYTES: u64 = 16 << 10;
/// Maximum number of bytes that a sample adds to the histograms in a footer: the size of two
/// buckets.
const SAMPLE_BUCKETS_BYTES: u64 = 32;
/// Length of an index entry in a footer without its sources, and length that each source adds to
/// the entry, in bytes.
const ENTRY_BYTES: u64 = 128;
const ENTRY_SOURCE_BYTES: u64 = 24;

/// Writes one segment. After the first error, the caller must not write to the segment again. The
/// only exception is the error for a full disk. After an error for a full disk, nothing was
/// written, and the footer and the trailer fit into the space that is reserved for them.
#[derive(Debug)]
pub struct SegmentWriter {
    name: SegmentName,
    header: SegmentHeader,
    file: Arc<dyn StorageFile>,
    compressor: Option<SegmentCompressor>, // if the segment is compressed while it is recorded
    copy: Option<Attachment>,              // of the header, until the copy is written
    header_bytes: u64,
    counts: SegmentCounts,
    reserve: Preallocation,
}

/// Options for writing a segment.
#[derive(Debug, Clone, Default)]
pub struct SegmentOptions {
    /// Step in which disk space is preallocated, in bytes. The value 0 selects the default step.
    pub preallocate: u64,
    /// Compressor that compresses the segment while it is recorded. `None` means that frames are
    /// written uncompressed.
    pub compressor: Option<LiveCompressor>,
    /// Whether the writer adds a second copy of the header before an Index frame. The copy protects
    /// the header until the segment has a footer.
    pub copies_header: bool,
}

/// The disk space that a write may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteSpace {
    /// New space, preallocated before the write.
    Preallocated,
    /// The reserved space, if no other space is available.
    Reserved,
}

/// Whole frames to be appended.
#[derive(Debug)]
pub struct Frames<'a, 'b> {
    /// The bytes of the frames, as a list of slices.
    pub pieces: &'a mut [IoSlice<'b>],
    /// The concatenated headers of the frames (length and stored checksum), as a list of slices.
    pub headers: &'a [&'b [u8]],
    /// Number of frames.
    pub count: u64,
}

impl SegmentWriter {
    /// Creates the file and writes the header and the attachments. `preallocate` is the step in
    /// which space is preallocated, in bytes. The value 0 selects the default step.
    ///
    /// # Errors
    /// Returns any error of the storage. After an error, the file is removed.
    pub fn create(
        storage: &dyn Storage,
        name: SegmentName,
        header: SegmentHeader,
        attachments: &[Attachment],
        preallocate: u64,
    ) -> io::Result<Self> {
        Self::create_with(
            storage,
            name,
            header,
            attachments,
            SegmentOptions { preallocate, ..SegmentOptions::default() },
        )
    }

    /// Creates the file like [`create`](Self::create), with all options.
    ///
    /// # Errors
    /// Returns any error of the storage. After an error, the file is removed.
    pub fn create_with(
        storage: &dyn Storage,
        name: SegmentName,
        header: SegmentHeader,
        attachments: &[Attachment],
        options: SegmentOptions,
    ) -> io::Result<Self> {
        // A header that cannot be encoded is rejected before the file is created.
        let compressor =
            options.compressor.map(|compressor| SegmentCompressor::begin(compressor, &header)).transpose()?;
        let mut copy = None;
        if options.copies_header {
            let mut frame = Vec::new();
            header.checksum.frame_and_write(&mut frame, &header.encode()).map_err(io::Error::other)?;
            copy = Some(header_copy::attachment(&header, frame));
        }
        let file = storage.create(&name.to_string())?;
        let counts = SegmentCounts::new(&header);
        let reserve = Preallocation::new(options.preallocate);
        let mut segment = Self { compressor, copy, reserve, ..Self::resume(name, header, file, counts) };
        // Reserve the space for the end of the file already now. Otherwise the segment could not be
        // sealed if the disk became full.
        let begun = segment.begin(attachments).and_then(|()| segment.reserve_end());
        if let Err(error) = begun {
            // If the file were not removed, each attempt on a full disk would leave an empty file.
            let _best_effort = storage.remove(&name.to_string());
            return Err(error);
        }
        Ok(segment)
    }

    /// Continues a file whose frames a full scan has counted.
    pub(in crate::segment) fn resume(
        name: SegmentName,
        header: SegmentHeader,
        file: Arc<dyn StorageFile>,
        counts: SegmentCounts,
    ) -> Self {
        Self {
            name,
            header_bytes: header.encode().len() as u64,
            reserve: Preallocation::new(0),
            compressor: None,
            copy: None,
            header,
            file,
            counts,
        }
    }

    /// Makes later writes append blocks after the blocks in the file, if there is a compressor.
    pub(in crate::segment) fn with_compressor(mut self, compressor: Option<SegmentCompressor>) -> Self {
        self.compressor = compressor;
        self
    }

    pub(in crate::segment) fn begin(&mut self, attachments: &[Attachment]) -> io::Result<()> {
        let payload = self.header.encode();
        self.write_payload(&payload, WriteSpace::Reserved)?;
        for attachment in attachments {
            self.write_payload(&attachment.encode(), WriteSpace::Reserved)?;
        }
        self.counts.begin_content();
        Ok(())
    }

    /// Returns the segment's name.
    pub fn name(&self) -> SegmentName {
        self.name
    }

    /// Returns the segment's header.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// Returns the length of the frames so far, before compression, in bytes.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes()
    }

    /// Returns the length of the file so far, in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.compressor.as_ref().map_or(self.counts.bytes(), SegmentCompressor::stored_bytes)
    }

    /// Returns whether the segment has reached the limit on the number of blocks.
    pub fn has_max_blocks(&self) -> bool {
        self.compressor.as_ref().is_some_and(SegmentCompressor::has_max_blocks)
    }

    /// Returns the number of frames written so far.
    pub fn frames(&self) -> u64 {
        self.counts.frames()
    }

    /// Estimates the length of the footer and the trailer, in bytes. The footer repeats the header.
    /// The totals in the footer take a few kilobytes per source, mostly for histograms. An index
    /// entry takes a few hundred bytes.
    pub fn seal_bytes(&self) -> u64 {
        const TOTALS_BYTES: u64 = 4 << 10;
        let sources = self.counts.totals().len() as u64;
        self.header_bytes + TOTALS_BYTES * sources + self.index_bytes(sources)
    }

    /// Estimates the length of the index in the footer, in bytes.
    fn index_bytes(&self, sources: u64) -> u64 {
        (ENTRY_BYTES + ENTRY_SOURCE_BYTES * sources) * self.counts.intervals()
    }

    /// Returns the checksum kind of the frames.
    pub fn checksum(&self) -> ChecksumKind {
        self.header.checksum
    }

    /// Returns whether anything follows the header and its attachments.
    pub fn has_content(&self) -> bool {
        self.counts.has_content()
    }

    /// Returns the file, so that another thread can sync it.
    pub fn file(&self) -> Arc<dyn StorageFile> {
        Arc::clone(&self.file)
    }

    /// Returns the number of bytes that no Index frame covers yet, or `None` if Index frames cover
    /// all bytes.
    pub fn unindexed_bytes(&self) -> Option<u64> {
        self.counts.has_unindexed().then(|| self.counts.interval().bytes)
    }

    /// Appends whole frames.
    ///
    /// # Errors
    /// Returns any error of the storage. After [`io::ErrorKind::StorageFull`], nothing was written,
    /// and the caller may still seal the segment. After any other error, the number of bytes
    /// written is not known, and the caller must not write to the segment again.
    pub fn append(&mut self, frames: Frames<'_, '_>) -> io::Result<()> {
        let Frames { pieces, headers, count } = frames;
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.write(pieces, WriteSpace::Preallocated)?;
        for headers in headers {
            self.counts.add_frames(headers, 0, 0);
        }
        self.counts.add_frames(&[], count, bytes);
        Ok(())
    }

    /// Appends gaps. Uses the reserved space if no other space is available.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    pub fn append_gaps(&mut self, gaps: &[Gap]) -> io::Result<()> {
        for gap in gaps {
            self.write_payload(&gap.encode(), WriteSpace::Reserved)?;
            self.counts.add_gap(gap);
        }
        Ok(())
    }

    /// Appends a new clock pairing.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    pub fn append_clock_sync(&mut self, sync: &ClockSync) -> io::Result<()> {
        self.write_payload(&sync.encode(), WriteSpace::Reserved)?;
        self.header.add_clocks(sync.clocks);
        Ok(())
    }

    /// Appends a marker.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    pub fn append_marker(&mut self, marker: &Marker) -> io::Result<()> {
        self.write_payload(&marker.encode(), WriteSpace::Preallocated)
    }

    /// Appends a named file.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    pub fn append_attachment(&mut self, attachment: &Attachment) -> io::Result<()> {
        self.write_payload(&attachment.encode(), WriteSpace::Preallocated)
    }

    /// Appends the descriptor of a source that is not in the header. Must be called before the
    /// first sample of the source.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append). Also returns `InvalidInput` if another
    /// source has the same id, or if there are too many sources. After `InvalidInput` nothing was
    /// written.
    pub fn append_source(&mut self, source: SourceInfo) -> io::Result<()> {
        if self.header.source(source.id).is_some() || !self.header.can_add_source(&source) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let payload = source.encode();
        let bytes = payload.len() as u64;
        // The footer repeats the descriptor, so space is needed for both copies.
        self.header_bytes += bytes;
        if let Some(compressor) = &self.compressor {
            compressor.describe(&source);
        }
        self.write_payload(&payload, WriteSpace::Preallocated).inspect_err(|_| self.header_bytes -= bytes)?;
        self.counts.add_source(source.id);
        self.header.add_source(source);
        Ok(())
    }

    /// Ends the interval with an Index frame. `synced_offset` is the offset up to which the file is
    /// known to be on disk.
    ///
    /// # Errors
    /// Returns the errors of [`append`](Self::append).
    pub fn append_index(&mut self, synced_offset: u64) -> io::Result<()> {
        self.append_header_copy()?;
        let index = self.counts.close_interval(synced_offset);
        self.write_payload(&index.encode(), WriteSpace::Reserved)
    }

    /// Appends the copy of the header if the segment is long enough and has no copy yet. If the
    /// disk is full, the call for the next Index frame tries again.
    fn append_header_copy(&mut self) -> io::Result<()> {
        let bytes = self.counts.bytes();
        let Some(copy) = self.copy.take_if(|copy| header_copy::is_due(bytes, copy.content.len())) else {
            return Ok(());
        };
        match self.append_attachment(&copy) {
            Err(error) if is_storage_full(&error) => {
                self.copy = Some(copy);
                Ok(())
            }
            result => result,
        }
    }

    /// Counts `count` appended samples of one source, which have consecutive numbers.
    pub fn count_samples(&mut self, source: u16, count: u64, span: SampleSpan) {
        self.counts.add_samples(source, count, span);
    }

    /// Counts an appended gap.
    pub fn count_gap(&mut self, gap: &Gap) {
        self.counts.add_gap(gap);
    }

    /// Returns the totals of one source, so that the recorder can set values that only the recorder
    /// knows.
    pub fn totals_mut(&mut self, source: u16) -> Option<&mut FooterTotals> {
        self.counts.totals_mut(source)
    }

    /// Copies the counts that exist only in the footer of another segment, whose frames were copied
    /// into this segment.
    pub(in crate::segment) fn copy_totals(&mut self, totals: &[FooterTotals]) {
        for old in totals {
            if let Some(new) = self.counts.totals_mut(old.source) {
                (new.missed, new.incomplete) = (old.missed, old.incomplete);
                new.incomplete_flags = old.incomplete_flags;
                (new.lateness, new.read_duration) = (old.lateness.clone(), old.read_duration.clone());
            }
        }
    }

    /// Writes the footer and the trailer.
    ///
    /// # Errors
    /// Returns any error of the storage. After an error, the segment stays unsealed.
    pub fn seal(self) -> io::Result<SealedSegment> {
        self.end(false)
    }

    /// Writes the footer and the trailer of a segment that is completed after a crash.
    ///
    /// # Errors
    /// Returns any error of the storage. After an error, the segment stays unsealed.
    pub fn seal_recovered(self) -> io::Result<SealedSegment> {
        self.end(true)
    }

    fn end(mut self, recovered: bool) -> io::Result<SealedSegment> {
        let frames = self.counts.frames();
        let (totals, index) = self.counts.finish();
        let mut footer = Footer {
            header: self.header.clone(),
            totals,
            frames,
            bytes: self.counts.bytes(),
            reorder_window_ns: self.counts.reorder_window_ns(),
            recovered,
            index,
            blocks: Vec::new(),
            features: BlockFeatures::NONE,
            sizes: Vec::new(),
            small_blocks: false,
        };
        let written = match self.write_end(&footer) {
            // In this case, the reserved space is too small for the histograms. A footer without
            // histograms is better than no footer.
            Err(error) if is_storage_full(&error) => {
                footer.totals.iter_mut().for_each(FooterTotals::clear_latencies);
                self.write_end(&footer)?
            }
            written => written?,
        };
        Ok(SealedSegment::new(self.name, self.file, written))
    }

    /// Writes the footer and the trailer. Returns the length of the file.
    fn write_end(&mut self, footer: &Footer) -> io::Result<u64> {
        let (payload, trailer) = footer_and_trailer(footer)?;
        // Both frames are written with one call, so that only a crash can leave a footer without a
        // trailer.
        let headers = [self.frame_header(&payload)?, self.frame_header(&trailer)?];
        let [footer_head, trailer_head] = &headers;
        let mut pieces =
            [footer_head.as_bytes(), &payload, trailer_head.as_bytes(), &trailer].map(IoSlice::new);
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let stored = self.stored_bytes();
        let Self { file, compressor, .. } = &mut *self;
        let written = match compressor {
            None => file.append_all(&mut pieces).map(|()| footer.bytes + bytes as u64),
            Some(compressor) => compressor.append_last(&pieces, footer, |pieces| file.append_all(pieces)),
        };
        written.map_err(|error| self.undo_write(stored, error))
    }

    /// Writes a frame with this payload, which is not a sample.
    fn write_payload(&mut self, payload: &[u8], space: WriteSpace) -> io::Result<()> {
        let head = self.frame_header(payload)?;
        self.write(&mut [IoSlice::new(head.as_bytes()), IoSlice::new(payload)], space)?;
        self.counts.add_frames(head.as_bytes(), 1, (head.as_bytes().len() + payload.len()) as u64);
        Ok(())
    }

    fn frame_header(&self, payload: &[u8]) -> io::Result<FrameHeader> {
        self.header.checksum.header(payload).map_err(io::Error::other)
    }

    /// Writes whole frames. If there is not enough space, writes none of the frames.
    fn write(&mut self, pieces: &mut [IoSlice<'_>], space: WriteSpace) -> io::Result<()> {
        let (stored, keep) = (self.stored_bytes(), self.reserve_bytes());
        let Self { compressor, reserve, file, header, .. } = self;
        let mut has_space = space == WriteSpace::Reserved;
        let mut write = |end: u64, pieces: &mut [IoSlice<'_>]| {
            if !has_space {
                reserve.ensure(end, keep, &**file)?;
                has_space = true;
            }
            file.append_all(pieces)
        };
        let written = match compressor {
            None => {
                let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
                write(stored + bytes, pieces)
            }
            Some(compressor) => compressor.append(pieces, header.checksum, write),
        };
        match written {
            Err(error) if has_space => Err(self.undo_write(stored, error)),
            written => written,
        }
    }

    /// Removes the bytes of a write that has failed because there was not enough space. If the
    /// removal also fails, returns an error after which the caller must not write to the segment
    /// again.
    #[cold]
    fn undo_write(&mut self, stored: u64, error: io::Error) -> io::Error {
        if !is_storage_full(&error) {
            return error;
        }
        if self.file.length().is_ok_and(|length| length == stored) {
            // Nothing was written, and the preallocated space stays allocated.
            return into_storage_full(error);
        }
        self.reserve.reset();
        match self.file.truncate(stored) {
            Ok(()) => into_storage_full(error),
            Err(error) => io::Error::other(error),
        }
    }

    /// Preallocates the reserved space for the end of the file.
    fn reserve_end(&mut self) -> io::Result<()> {
        let (stored, keep) = (self.stored_bytes(), self.reserve_bytes());
        self.reserve.ensure(stored, keep, &*self.file)
    }

    /// Returns the length of the space that is reserved for the gaps, the footer and the trailer at
    /// the end of the file.
    fn reserve_bytes(&self) -> u64 {
        let sources = self.counts.totals().len() as u64;
        let latencies = (LATENCIES_RESERVE_BYTES * sources).min(SAMPLE_BUCKETS_BYTES * self.counts.frames());
        let footer =
            self.header_bytes + SOURCE_RESERVE_BYTES * sources + self.index_bytes(sources) + latencies;
        let raw_bytes = footer + GAPS_RESERVE_BYTES;
        self.compressor.as_ref().map_or(raw_bytes, |compressor| compressor.reserve_bytes(raw_bytes))
    }
}
