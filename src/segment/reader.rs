//! Reads one segment frame by frame, and continues after damage.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch_scan::BatchSamples;
use super::compressed::CompressedSegment;
use super::control_frames::ClockSync;
pub use super::damage::Damage;
use super::error::SegmentError;
use super::file_window::FileWindow;
use super::footer::Footer;
use super::frame_kind::{FrameKind, FrameLocation, RawFrameHeader, SampleView};
use super::frame_probe::{BEYOND_FILE_END, FrameProbe, declared_end, probe_frame};
use super::header::{HEADER_BYTES_MAX, SegmentHeader, SourceInfo};
use super::header_and_footer::{HeaderAndFooter, find_header_and_footer};
use super::index::IndexFrame;
use super::resync::HASH_BUDGET_MIN;
use super::seek::SkipBefore;
use crate::os::directory::open_regular;
use crate::os::mapped_file::MappedFile;
use crate::os::storage::ReadAt;
use crate::schema::envelope::{self, ENVELOPE_BYTES};
use crate::schema::frame::FrameHeader;
use crate::stream::{DeframeStatus, HEADER_BYTES_MAX as HEAD_BYTES_MAX, KindDeframer, SliceDeframer};

/// The next item of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// A frame, intact or repaired.
    Frame(FrameLocation),
    /// A damaged range. Reading continues after it.
    Damage(Damage),
}

/// Reads one segment, sealed or not, from its header on. Takes memory for one frame.
#[derive(Debug)]
pub struct SegmentReader {
    path: PathBuf,
    file: Option<Arc<File>>,                    // if it was opened here
    compressed: Option<Arc<CompressedSegment>>, // the content of the windows, if not the file
    pub(super) window: FileWindow,
    pub(super) probe_window: FileWindow, // for reads elsewhere, so that `window` need not move
    pub(super) header: SegmentHeader,
    pub(super) deframer: KindDeframer,
    pub(super) footer: Option<Footer>,
    // In this file. Differs from the trailer's offset if frames were removed.
    pub(super) footer_offset: Option<u64>,
    offset: u64,
    last_sample: Option<(u64, FrameHeader)>, // the last frame, if read by `next_sample`, by its offset
    tail: Option<Damage>,
    pub(super) latest: Vec<LatestSample>,
    pub(super) skip: Option<SkipBefore>,
    // After damage: reading may be inside a payload that contains frames.
    pub(super) is_resyncing: bool,
    lacks_header: bool,                // no header was found at the file's start
    pub(super) wasted_hash_bytes: u64, // since the file was opened
}

/// The last intact sample of a source that no damage precedes in its interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatestSample {
    pub(super) source: u16,
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
}

/// Error for a compressed segment that cannot be decompressed.
const UNDECODABLE: &str = "compressed, but neither the first nor the last block can be decompressed";

impl SegmentReader {
    /// Opens a file and finds out how it is framed: from its header, or from its footer if the
    /// header is damaged. A compressed segment is read as the raw segment: all offsets are raw
    /// offsets.
    ///
    /// # Errors
    /// Every kind of [`SegmentError`].
    pub fn open(path: &Path) -> Result<Self, SegmentError> {
        let file = open_regular(path).map_err(|error| SegmentError::Io { path: path.to_owned(), error })?;
        let file = Arc::new(file);
        let reader = Self::new(path, FileWindow::over(Arc::clone(&file) as Arc<dyn ReadAt>))?;
        Ok(Self { file: Some(file), ..reader })
    }

    /// Reads a file that is not in the file system; `path` is its name in errors.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn over(path: &Path, file: Arc<dyn ReadAt>) -> Result<Self, SegmentError> {
        Self::new(path, FileWindow::over(file))
    }

    fn new(path: &Path, mut window: FileWindow) -> Result<Self, SegmentError> {
        let ends = find_header_and_footer(path, &mut window)?;
        if !ends.holds_blocks() {
            return Self::from_parts(path, window, None, ends);
        }
        let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
        let compressed =
            Arc::new(CompressedSegment::open(Arc::clone(window.file()), &ends).map_err(io_error)?);
        let mut window = FileWindow::over(Arc::clone(&compressed) as Arc<dyn ReadAt>);
        let bad = |what| SegmentError::BadHeader { path: path.to_owned(), what };
        let ends = match find_header_and_footer(path, &mut window) {
            Err(SegmentError::Empty { .. }) => Err(bad(UNDECODABLE)),
            Ok(ends) if ends.header().is_none() => Err(bad(UNDECODABLE)),
            Ok(ends) if ends.holds_blocks() => Err(bad("blocks within blocks")),
            ends => ends,
        }?;
        compressed.set_inner_sealed(ends.footer.is_some());
        Self::from_parts(path, window, Some(compressed), ends)
    }

    fn from_parts(
        path: &Path,
        window: FileWindow,
        compressed: Option<Arc<CompressedSegment>>,
        ends: HeaderAndFooter,
    ) -> Result<Self, SegmentError> {
        let header = ends.header().cloned();
        let header = header.ok_or_else(|| SegmentError::NotASegment { path: path.to_owned() })?;
        let lacks_header = ends.leading.is_none();
        let (footer, footer_offset) = ends.footer.unzip();
        let deframer = KindDeframer::new(header.checksum)
            .with_max_frame_len(header.frame_max.max(HEADER_BYTES_MAX) as usize);
        Ok(Self {
            path: path.to_owned(),
            file: None,
            compressed,
            probe_window: window.probe_window(),
            window,
            header,
            deframer,
            footer,
            footer_offset,
            offset: 0,
            last_sample: None,
            tail: None,
            latest: Vec::new(),
            skip: None,
            is_resyncing: false,
            lacks_header,
            wasted_hash_bytes: 0,
        })
    }

    /// The compressed segment, if the file is one.
    pub fn compressed(&self) -> Option<&CompressedSegment> {
        self.compressed.as_deref()
    }

    /// The raw segment, if the file is a compressed one.
    pub fn decompressed(&self) -> Option<Arc<dyn ReadAt>> {
        self.compressed.clone().map(|compressed| compressed as Arc<dyn ReadAt>)
    }

    /// Returns stat(2) of the opened file, even if its name now belongs to another file. None if it
    /// was not opened by path.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn metadata(&self) -> io::Result<Option<Metadata>> {
        self.file.as_ref().map(|file| file.metadata()).transpose()
    }

    /// From now on reads a sealed segment through a memory map. This takes a quarter less time, but
    /// the kernel ends the process if the file is truncated meanwhile. No effect on a segment that
    /// is not sealed, is compressed, or was not opened by path.
    ///
    /// # Errors
    /// The kernel refuses the map; the segment is then read as before.
    pub fn map(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.footer.is_some() && self.compressed.is_none())
        {
            // Maps the opened file: compression may have given its name to another one since.
            let map = Arc::new(MappedFile::map(file)?);
            self.window.map(Arc::clone(&map));
            self.probe_window.map(map);
        }
        Ok(())
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header, with the descriptors and clock pairings read since.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The footer of a sealed segment.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Offset of a sealed segment's footer.
    pub fn footer_offset(&self) -> Option<u64> {
        self.footer_offset
    }

    /// Returns whether the segment has footer and trailer.
    pub fn is_sealed(&self) -> bool {
        self.footer.is_some()
    }

    /// Offset of the next frame.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Continues at an offset where a frame begins, for example one from the index.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
        self.last_sample = None;
        self.tail = None;
        self.latest.clear();
        self.is_resyncing = false;
    }

    /// The bytes after the last frame of an unsealed segment, once [`advance`](Self::advance) has
    /// returned none: a write in progress, or one that was cut off. After the last block of a
    /// compressed file, the length is that in the file.
    pub fn tail(&self) -> Option<Damage> {
        self.tail
    }

    /// Reads the next frame or damaged range; none at the end. An unsealed segment may be asked
    /// again after it has grown.
    ///
    /// # Errors
    /// `Io`.
    pub fn advance(&mut self) -> Result<Option<Advance>, SegmentError> {
        self.try_advance().map_err(|error| SegmentError::Io { path: self.path.clone(), error })
    }

    /// A frame's bytes as they are in the file, header included. Empty once the reader has
    /// advanced.
    #[inline]
    pub fn bytes(&self, at: FrameLocation) -> &[u8] {
        self.window.cached(at.offset).get(..at.bytes).unwrap_or_default()
    }

    /// A frame's payload. Empty once the reader has advanced.
    #[inline]
    pub fn payload(&self, at: FrameLocation) -> &[u8] {
        self.bytes(at).get(self.deframer.header_bytes()..).unwrap_or_default()
    }

    /// A frame's header as it was written: length and stored checksum. Empty once the reader has
    /// advanced.
    #[inline]
    pub fn frame_header(&self, at: FrameLocation) -> RawFrameHeader {
        let bytes = self.bytes(at);
        let header_bytes = self.deframer.header_bytes();
        let mut head = RawFrameHeader { bytes: [0; HEAD_BYTES_MAX], length: header_bytes };
        if let Some(stored) = bytes.first_chunk() {
            // Longer than the header of most checksums, but one copy of a fixed length.
            head.bytes = *stored;
        } else {
            let stored = bytes.get(..header_bytes).unwrap_or_default();
            head.length = stored.len();
            head.bytes.iter_mut().zip(stored).for_each(|(place, byte)| *place = *byte);
        }
        if at.is_repaired {
            let length = u32::try_from(at.bytes - header_bytes).unwrap_or(u32::MAX);
            head.bytes.iter_mut().zip(length.to_le_bytes()).for_each(|(place, byte)| *place = byte);
        }
        head
    }

    /// A frame's header as it is in the file. Empty once the reader has advanced.
    #[inline]
    pub(super) fn stored_frame_header(&self, at: FrameLocation) -> &[u8] {
        self.bytes(at).get(..self.deframer.header_bytes()).unwrap_or_default()
    }

    /// Source and sequence number of a sample. None for another frame, or once the reader has
    /// advanced.
    #[inline]
    pub(super) fn source_and_seq(&self, at: FrameLocation) -> Option<(u16, u64)> {
        match &self.last_sample {
            Some((offset, header)) if *offset == at.offset => Some((header.source(), header.seq())),
            _ => self.sample(at).map(|sample| (sample.source, sample.seq)),
        }
    }

    /// Appends a frame as it was written: with its true length if that was repaired.
    pub fn copy_frame(&self, at: FrameLocation, into: &mut Vec<u8>) {
        into.extend_from_slice(self.frame_header(at).as_bytes());
        into.extend_from_slice(self.payload(at));
    }

    /// The content of a telemetry frame. None for another frame, or once the reader has advanced.
    #[inline]
    pub fn sample(&self, at: FrameLocation) -> Option<SampleView<'_>> {
        match &self.last_sample {
            // Verified by `next_sample`.
            Some((offset, header)) if *offset == at.offset => {
                Some(SampleView::new(header, self.payload(at).get(ENVELOPE_BYTES..)?))
            }
            _ => SampleView::read(self.payload(at)),
        }
    }

    fn try_advance(&mut self) -> io::Result<Option<Advance>> {
        self.skip_unneeded()?;
        if let Some(at) = self.next_sample() {
            return Ok(Some(Advance::Frame(at)));
        }
        self.tail = None;
        self.last_sample = None;
        let what = match self.probe_next(self.offset)? {
            // Without checksums, a damaged header may pass for a frame of another kind.
            FrameProbe::Frame(FrameLocation { offset: 0, kind: FrameKind::Unknown(_), .. })
                if self.lacks_header =>
            {
                "the header, which was read from its copy or the footer"
            }
            FrameProbe::Frame(at) => {
                self.accept(at);
                return Ok(Some(Advance::Frame(at)));
            }
            FrameProbe::End => {
                self.tail = self.compressed.as_ref().map_or(Ok(None), |compressed| compressed.tail())?;
                return Ok(None);
            }
            FrameProbe::Damaged(what) => what,
        };
        if let Some(damage) =
            self.compressed.as_ref().and_then(|compressed| compressed.damage_at(self.offset))
        {
            // A frame begins after a block for certain, so no resync is needed.
            self.offset = damage.offset + damage.length;
            return Ok(Some(Advance::Damage(damage)));
        }
        let hashed_before = self.wasted_hash_bytes;
        let resync = self.resync(self.offset, what)?;
        if what == BEYOND_FILE_END
            && self.footer.is_none()
            && !matches!(resync, Resync::Frame(_))
            && let FrameProbe::Frame(at) = self.probe(self.offset)?
        {
            // The frame was being written, and is complete now.
            self.accept(at);
            return Ok(Some(Advance::Frame(at)));
        }
        match resync {
            Resync::Frame(at) => {
                self.accept(at);
                Ok(Some(Advance::Frame(at)))
            }
            Resync::DamagedToEnd(damage) if self.footer.is_none() => {
                // No intact frame follows, and the file may not be complete: read it again when it
                // has grown.
                self.window.forget();
                self.probe_window.forget();
                self.wasted_hash_bytes = hashed_before;
                self.tail = Some(damage);
                Ok(None)
            }
            Resync::Damaged(damage) | Resync::DamagedToEnd(damage) => {
                self.offset = damage.offset + damage.length;
                self.is_resyncing = true;
                Ok(Some(Advance::Damage(damage)))
            }
        }
    }

    /// The short path for most frames: returns the next one if it is an intact sample with an
    /// ordinary envelope, is in memory, and follows no damage. None means that it has to be read
    /// the long way.
    #[inline]
    pub(super) fn next_sample(&mut self) -> Option<FrameLocation> {
        if self.is_resyncing || self.wasted_hash_bytes > 0 {
            return None;
        }
        let offset = self.offset;
        self.window.prefetch(offset);
        let Ok(DeframeStatus::Frame(frame)) = self.deframer.deframe(self.window.cached(offset)) else {
            return None;
        };
        let (header, _) = envelope::split(frame.payload())?;
        let bytes = frame.bytes().len();
        self.header.source(header.source())?;
        self.set_latest(LatestSample {
            source: header.source(),
            seq: header.seq(),
            mono_ns: header.mono_ns(),
        });
        self.tail = None;
        self.offset = offset + bytes as u64;
        self.last_sample = Some((offset, header));
        Some(FrameLocation { offset, bytes, kind: FrameKind::Telemetry, is_repaired: false })
    }

    /// Returns whether a batch that begins here may be taken: the reader is not resyncing, and its
    /// hash budget is not spent.
    pub(super) fn can_take_batch(&self) -> bool {
        !self.is_resyncing && self.wasted_hash_bytes <= HASH_BUDGET_MIN
    }

    /// Returns whether all these sources are known here.
    pub(super) fn knows_sources(&self, samples: &[BatchSamples]) -> bool {
        samples.iter().all(|samples| self.header.source(samples.source).is_some())
    }

    /// Continues after a batch that begins here, as if each of its samples had been read.
    pub(super) fn accept_batch(&mut self, end: u64, samples: &[BatchSamples]) {
        for samples in samples {
            let (seq, mono_ns) = (samples.last_seq(), samples.last_mono_ns);
            self.set_latest(LatestSample { source: samples.source, seq, mono_ns });
        }
        self.offset = end;
        self.last_sample = None;
        self.tail = None;
    }

    #[inline]
    fn set_latest(&mut self, latest: LatestSample) {
        match self.latest.iter_mut().find(|known| known.source == latest.source) {
            Some(known) => *known = latest,
            None => self.latest.push(latest),
        }
    }

    /// Looks for a frame where one should begin.
    #[inline]
    fn probe_next(&mut self, offset: u64) -> io::Result<FrameProbe> {
        if self.is_expensive(offset)? {
            return Ok(FrameProbe::Damaged("a long frame amid damage"));
        }
        let found = self.probe(offset)?;
        match found {
            FrameProbe::Frame(at) if self.is_resyncing && !self.can_follow_directly(at) => {
                Ok(FrameProbe::Damaged("a frame that cannot follow those before it"))
            }
            FrameProbe::Damaged(what) if what != BEYOND_FILE_END => {
                let head = self.window.at(offset, self.deframer.header_bytes())?;
                let end = declared_end(offset, self.deframer.header_bytes(), head).unwrap_or(offset);
                if end <= self.window.file_bytes()? {
                    self.wasted_hash_bytes = self.wasted_hash_bytes.saturating_add(end - offset);
                }
                Ok(FrameProbe::Damaged(what))
            }
            found => Ok(found),
        }
    }

    /// Returns whether a frame right after an intact one is plausible, in a range that may be a
    /// payload.
    fn can_follow_directly(&self, at: FrameLocation) -> bool {
        match at.kind {
            // The range in an Index frame would reject a valid one in a file from which frames were
            // removed.
            FrameKind::Index | FrameKind::Unknown(_) => true,
            _ => self.can_follow(at.offset, self.payload(at)),
        }
    }

    /// Continues after a frame, and keeps its state for the checks of later ones.
    fn accept(&mut self, at: FrameLocation) {
        self.offset = at.offset + at.bytes as u64;
        match at.kind {
            // While resyncing, a sample may come from inside a payload: real samples are judged by
            // earlier ones.
            FrameKind::Telemetry if !self.is_resyncing => {
                let Some(sample) = self.sample(at) else { return };
                let latest = LatestSample { source: sample.source, seq: sample.seq, mono_ns: sample.mono_ns };
                self.set_latest(latest);
            }
            FrameKind::Header => {
                if let Ok(header) = SegmentHeader::decode(self.payload(at)) {
                    // A replay of several runs is one stream: each run begins with its own header.
                    self.header = header;
                    self.latest.clear();
                }
            }
            FrameKind::Descriptor => {
                if let Some(source) = SourceInfo::decode(self.payload(at)) {
                    self.header.add_source(source);
                }
            }
            FrameKind::ClockSync => {
                // The header may be the footer's copy, which has it already.
                if let Some(sync) = ClockSync::decode(self.payload(at))
                    && !self.header.clock_table.contains(&sync.clocks)
                {
                    self.header.add_clocks(sync.clocks);
                }
            }
            FrameKind::Index => {
                let index = IndexFrame::decode(self.payload(at));
                self.is_resyncing &= index.is_none_or(|index| index.entry.end() != at.offset);
            }
            _ => {}
        }
    }

    /// Looks for a frame at `offset`.
    #[inline]
    pub(super) fn probe(&mut self, offset: u64) -> io::Result<FrameProbe> {
        probe_frame(&mut self.window, &self.deframer, &self.header, offset)
    }
}

/// The result of a resync where no intact frame begins.
pub(super) enum Resync {
    /// Only its length was damaged.
    Frame(FrameLocation),
    /// Damage; reading continues after it.
    Damaged(Damage),
    /// Damage; nothing intact follows.
    DamagedToEnd(Damage),
}
