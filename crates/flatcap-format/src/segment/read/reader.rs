//! Reads one segment frame by frame. Continues reading after damage.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatcap_stream::resync::HashBudget;
use flatcap_stream::{DeframeStatus, HEADER_BYTES_MAX as HEAD_BYTES_MAX, KindDeframer, SliceDeframer};

use super::batch_scan::BatchSamples;
use super::index_search::{offset_after_time, offset_after_wall_time, offset_of_time, offset_of_wall_time};
use crate::block::SeekResult;
use crate::mapped_file::MappedFile;
use crate::schema::envelope::{self, ENVELOPE_BYTES};
use crate::schema::frame::FrameHeader;
use crate::segment::compressed::compressed_segment::CompressedSegment;
use crate::segment::compressed::outer_footer;
use crate::segment::compressed::source_selection::source_selector;
use crate::segment::format::control_frames::ClockSync;
use crate::segment::format::damage::Damage;
use crate::segment::format::error::SegmentError;
use crate::segment::format::footer::Footer;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation, RawFrameHeader, SampleView};
use crate::segment::format::header::{SegmentHeader, SourceInfo};
use crate::segment::format::index::IndexFrame;
use crate::segment::format::payload_codec::HEADER_BYTES_MAX;
use crate::segment::open::file_window::FileWindow;
use crate::segment::open::header_and_footer::{HeaderAndFooter, find_header_and_footer};
use crate::segment::open::header_copy::HeaderCopy;
use crate::segment::resync::frame_probe::{BEYOND_FILE_END, FrameProbe};
use crate::segment::resync::frame_search::{FrameFinder, Resync};
use crate::segment::resync::plausibility::{LatestSample, ReadState};
use crate::storage::ReadAt;
use crate::storage::open_regular;

/// The next item of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// A frame, intact or repaired.
    Frame(FrameLocation),
    /// A damaged range. Reading continues after the damage.
    Damage(Damage),
}

/// Reads one segment from its header on. The segment may be sealed or unsealed. Holds only a window
/// of the file in memory, which may grow to the length of one frame.
#[derive(Debug)]
pub struct SegmentReader {
    path: PathBuf,
    file: Option<Arc<File>>,                    // if this reader opened it
    compressed: Option<Arc<CompressedSegment>>, // read by the windows instead of the file
    pub(in crate::segment) frames: FrameFinder,
    offset: u64,
    last_sample: Option<(u64, FrameHeader)>, // offset and header, if `next_sample` read the frame
    tail: Option<Damage>,
    skip: Option<SkipBefore>,
    lacks_header: bool, // no header was found at the file's start
}

/// The parts of a footer that a reader needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FooterParts {
    All,
    WithoutIndex,
}

/// The reader skips samples that are before both this wall time and this offset.
#[derive(Debug, Clone, Copy)]
struct SkipBefore {
    wall_ns: i64, // samples older than this wall time are skipped
    until: u64,   // offset after the last skipped sample
}

/// Error for a compressed segment that cannot be decompressed.
const UNDECODABLE: &str =
    "compressed, but neither the first block nor the header of the compressed file can be read";

impl SegmentReader {
    /// Opens a file and reads its format from the header, or from the footer if the header is
    /// damaged. A compressed segment is read as the raw segment, so all offsets are raw offsets.
    ///
    /// # Errors
    /// Returns any kind of [`SegmentError`].
    pub fn open(path: &Path) -> Result<Self, SegmentError> {
        Self::open_with(path, FooterParts::All)
    }

    /// Opens a file like [`open`](Self::open), but the footer may lack the index and the
    /// histograms. If the index is missing, functions that use the index read the whole segment.
    ///
    /// # Errors
    /// Returns any kind of [`SegmentError`].
    pub(in crate::segment) fn open_without_index(path: &Path) -> Result<Self, SegmentError> {
        Self::open_with(path, FooterParts::WithoutIndex)
    }

    fn open_with(path: &Path, parts: FooterParts) -> Result<Self, SegmentError> {
        let file = open_regular(path).map_err(|error| SegmentError::Io { path: path.to_owned(), error })?;
        let file = Arc::new(file);
        let reader = Self::new(path, FileWindow::over(Arc::clone(&file) as Arc<dyn ReadAt>), parts)?;
        Ok(Self { file: Some(file), ..reader })
    }

    /// Opens a file that is not in the file system. `path` is the name of the file in errors.
    ///
    /// # Errors
    /// Returns the errors of [`open`](Self::open).
    pub fn over(path: &Path, file: Arc<dyn ReadAt>) -> Result<Self, SegmentError> {
        Self::new(path, FileWindow::over(file), FooterParts::All)
    }

    fn new(path: &Path, mut window: FileWindow, parts: FooterParts) -> Result<Self, SegmentError> {
        let ends = find_header_and_footer(path, &mut window)?;
        if !ends.holds_blocks() {
            return Self::from_parts(path, window, None, ends);
        }
        let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
        let compressed =
            Arc::new(CompressedSegment::open(Arc::clone(window.file()), &ends).map_err(io_error)?);
        let mut window = FileWindow::over(Arc::clone(&compressed) as Arc<dyn ReadAt>);
        if parts == FooterParts::WithoutIndex
            && let Some(raw) = outer_footer::find_ends(path, &mut window, &compressed, &ends)?
        {
            compressed.set_inner_sealed(true);
            return Self::from_parts(path, window, Some(compressed), raw);
        }
        let bad = |what| SegmentError::BadHeader { path: path.to_owned(), what };
        let find = |window: &mut FileWindow| match find_header_and_footer(path, window) {
            Err(SegmentError::Empty { .. }) => Err(bad(UNDECODABLE)),
            Ok(ends) if ends.holds_blocks() => Err(bad("blocks within blocks")),
            ends => ends,
        };
        let mut ends = find(&mut window)?;
        if let Some(copy) = ends.copy.take_if(|copy| compressed.replace_first_block(copy)) {
            // The footer can be read only now, because it is in the last block, which refers to the
            // first block.
            ends = find(&mut window)?;
            ends.copy = Some(copy);
        }
        if ends.header().is_none() {
            // Without a copy, both the header and the footer of the raw segment are lost.
            let header = compressed.header_without_schemas().map_err(io_error)?;
            ends.copy = header.map(|header| HeaderCopy { header, frame: Vec::new() });
        }
        if ends.header().is_none() {
            return Err(bad(UNDECODABLE));
        }
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
        let deframer = KindDeframer::new(header.checksum)
            .with_max_frame_len(header.frame_max.max(HEADER_BYTES_MAX) as usize);
        Ok(Self {
            path: path.to_owned(),
            file: None,
            compressed,
            frames: FrameFinder::new(window, deframer, ReadState::new(header, ends.footer)),
            offset: 0,
            last_sample: None,
            tail: None,
            skip: None,
            lacks_header,
        })
    }

    /// Returns the compressed segment, or `None` if the file is not compressed.
    pub fn compressed(&self) -> Option<&CompressedSegment> {
        self.compressed.as_deref()
    }

    /// Returns the content of a compressed file as a raw segment, or `None` if the file is not
    /// compressed.
    pub fn decompressed(&self) -> Option<Arc<dyn ReadAt>> {
        self.compressed.clone().map(|compressed| compressed as Arc<dyn ReadAt>)
    }

    /// Returns the status (stat(2)) of the opened file, even if its name now belongs to another
    /// file. Returns `None` if the segment was not opened by path.
    ///
    /// # Errors
    /// Returns any error of the kernel.
    pub fn metadata(&self) -> io::Result<Option<Metadata>> {
        self.file.as_ref().map(|file| file.metadata()).transpose()
    }

    /// Switches to a memory map for all later reads of a sealed segment. Reading through a memory
    /// map takes a quarter less time, but the kernel kills the process if the file is truncated
    /// during a read. Has no effect on a segment that is not sealed, is compressed, or was not
    /// opened by path.
    ///
    /// # Errors
    /// Fails if the kernel refuses the memory map. After an error, the segment is still read
    /// without a memory map.
    pub fn map(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.is_sealed() && self.compressed.is_none()) {
            // This call maps the opened file and not the path, because a compressed file may have
            // taken the file's name since then.
            let map = Arc::new(MappedFile::map(file)?);
            self.frames.window.map(Arc::clone(&map));
            self.frames.probe_window.map(map);
        }
        Ok(())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the header, with the descriptors and clock pairings that were read after it.
    pub fn header(&self) -> &SegmentHeader {
        &self.frames.state.header
    }

    /// Returns the footer, or `None` if the segment is not sealed.
    pub fn footer(&self) -> Option<&Footer> {
        self.frames.state.footer.as_ref()
    }

    /// Returns the offset of the footer, or `None` if the segment is not sealed.
    pub(crate) fn footer_offset(&self) -> Option<u64> {
        self.frames.state.footer_offset
    }

    /// Returns whether the segment has a footer and a trailer.
    pub fn is_sealed(&self) -> bool {
        self.frames.state.footer.is_some()
    }

    /// Returns the offset of the next frame.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Makes the reader continue at `offset`. A frame must begin at this offset. Each offset in the
    /// index meets this condition.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.offset = offset;
        self.last_sample = None;
        self.tail = None;
        self.frames.state.forget_latest();
        self.frames.is_resyncing = false;
    }

    /// Seeks back to the end of an unsealed file that has become shorter, because a recorder undid
    /// a write. Returns the offset of the end, or `None` if the file was not truncated.
    pub(crate) fn rewind_if_truncated(&mut self) -> Option<u64> {
        let is_raw_and_open = !self.is_sealed() && self.compressed.is_none();
        let end = self.frames.window.file_bytes().ok().filter(|_| is_raw_and_open)?;
        if end >= self.offset {
            return None;
        }
        self.frames.forget_windows();
        self.seek(end);
        Some(end)
    }

    /// Seeks to the first interval that contains samples at or after `mono_ns`, if the index in the
    /// footer has such an interval.
    pub(crate) fn seek_time(&mut self, mono_ns: u64) {
        let found = self.footer().and_then(|footer| offset_of_time(&footer.index, mono_ns));
        self.seek_forward(found);
    }

    /// Returns the offset after the last interval that contains samples earlier than `mono_ns`,
    /// according to the index in the footer. Without a footer, returns `u64::MAX`.
    pub(crate) fn offset_after_time(&self, mono_ns: u64) -> u64 {
        self.footer().map_or(u64::MAX, |footer| offset_after_time(&footer.index, mono_ns))
    }

    /// Skips samples that are older than `wall_ns`, from the current offset on, if skipping takes
    /// little time. With an index, the reader skips whole intervals. In a compressed segment, the
    /// reader also skips single samples. In such a segment, the reader also skips the Index frames
    /// between these samples, because the footer repeats the content of these frames. The reader
    /// returns all other frames as usual, and does not report skipped samples. Callers must still
    /// filter by time.
    pub(crate) fn skip_before(&mut self, wall_ns: i64) {
        let Some(footer) = self.footer() else { return };
        let from = offset_of_wall_time(&footer.index, wall_ns);
        let until = offset_after_wall_time(&footer.index, wall_ns);
        self.seek_forward(from);
        self.skip = Some(SkipBefore { wall_ns, until });
    }

    /// Restricts reading to the sources with these names. An empty set has no effect. Later samples
    /// of other sources have correct envelopes. In a compressed segment, however, their fields are
    /// not decompressed and have the bytes of another sample of the same shape. A raw segment is
    /// read as before.
    pub fn select_sources(&mut self, sources: &BTreeSet<String>) {
        if let Some(compressed) = self.compressed()
            && !sources.is_empty()
        {
            compressed.set_selector(source_selector(self.header(), sources));
        }
    }

    /// Returns the bytes after the last frame of an unsealed segment, after
    /// [`advance`](Self::advance) has returned `None`. These bytes belong to a write that is in
    /// progress or that was interrupted. If the bytes follow the last block of a compressed file,
    /// their length is in bytes of the file, not of the raw segment.
    pub fn tail(&self) -> Option<Damage> {
        self.tail
    }

    /// Reads the next frame or damaged range. Returns `None` at the end. If the segment is not
    /// sealed, the caller may call this function again after the file has grown.
    ///
    /// # Errors
    /// `Io`.
    pub fn advance(&mut self) -> Result<Option<Advance>, SegmentError> {
        self.try_advance().map_err(|error| SegmentError::Io { path: self.path.clone(), error })
    }

    /// Returns the bytes of a frame as they are in the file, including the frame's header. Returns
    /// an empty slice if the reader has advanced after it returned the frame.
    #[inline]
    pub fn bytes(&self, at: FrameLocation) -> &[u8] {
        self.frames.window.cached(at.offset).get(..at.bytes).unwrap_or_default()
    }

    /// Returns the payload of a frame, or an empty slice if the reader has advanced after it
    /// returned the frame.
    #[inline]
    pub fn payload(&self, at: FrameLocation) -> &[u8] {
        self.bytes(at).get(self.frames.deframer.header_bytes()..).unwrap_or_default()
    }

    /// Returns the header of a frame as the recorder wrote it. It consists of the length and the
    /// stored checksum. If the length was damaged, the header contains the repaired length. Returns
    /// an empty header if the reader has advanced after it returned the frame.
    #[inline]
    pub(crate) fn frame_header(&self, at: FrameLocation) -> RawFrameHeader {
        let bytes = self.bytes(at);
        let header_bytes = self.frames.deframer.header_bytes();
        let mut head = RawFrameHeader { bytes: [0; HEAD_BYTES_MAX], length: header_bytes };
        if let Some(stored) = bytes.first_chunk() {
            // This copies more bytes than most checksum kinds need, but copies them at once,
            // because their number is fixed.
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

    /// Returns the header of a frame as it is in the file, or an empty slice if the reader has
    /// advanced since then.
    #[inline]
    pub(in crate::segment) fn stored_frame_header(&self, at: FrameLocation) -> &[u8] {
        self.bytes(at).get(..self.frames.deframer.header_bytes()).unwrap_or_default()
    }

    /// Returns the source and the sequence number of a sample. Returns `None` if the frame is not a
    /// sample, or if the reader has advanced after it returned the frame.
    #[inline]
    pub(in crate::segment) fn source_and_seq(&self, at: FrameLocation) -> Option<(u16, u64)> {
        match &self.last_sample {
            Some((offset, header)) if *offset == at.offset => Some((header.source(), header.seq())),
            _ => self.sample(at).map(|sample| (sample.source, sample.seq)),
        }
    }

    /// Appends a frame to `into` as the recorder wrote it. If the length of the frame was damaged,
    /// appends the repaired length.
    pub fn copy_frame(&self, at: FrameLocation, into: &mut Vec<u8>) {
        into.extend_from_slice(self.frame_header(at).as_bytes());
        into.extend_from_slice(self.payload(at));
    }

    /// Returns the content of a telemetry frame. Returns `None` if the frame is not a sample, or if
    /// the reader has advanced after it returned the frame.
    #[inline]
    pub fn sample(&self, at: FrameLocation) -> Option<SampleView<'_>> {
        match &self.last_sample {
            // `next_sample` has verified the envelope.
            Some((offset, header)) if *offset == at.offset => {
                Some(SampleView::new(header, self.payload(at).get(ENVELOPE_BYTES..)?))
            }
            _ => SampleView::read(self.payload(at)),
        }
    }

    /// Seeks to an offset from the index, unless the reader is at or after this offset. So the
    /// reader does not read the header again, which is at the start of the first interval.
    fn seek_forward(&mut self, offset: Option<u64>) {
        if let Some(offset) = offset.filter(|offset| *offset > self.offset) {
            self.seek(offset);
        }
    }

    /// Skips to the first needed sample, if skipping costs less than reading.
    #[inline]
    fn skip_unneeded(&mut self) -> io::Result<()> {
        let Some(SkipBefore { wall_ns, until }) = self.skip else { return Ok(()) };
        while self.offset < until {
            if self.frames.is_resyncing {
                return Ok(());
            }
            let Some(compressed) = &self.compressed else { break };
            match compressed.next_from(self.offset, wall_ns)? {
                SeekResult::End(offset) => self.seek(offset),
                SeekResult::Other(offset) if offset > self.offset => self.seek(offset),
                SeekResult::Other(_) => return Ok(()),
                SeekResult::Sample(offset) => {
                    self.seek(offset);
                    break;
                }
            }
        }
        self.skip = None;
        Ok(())
    }

    fn try_advance(&mut self) -> io::Result<Option<Advance>> {
        self.skip_unneeded()?;
        if let Some(at) = self.next_sample() {
            return Ok(Some(Advance::Frame(at)));
        }
        self.tail = None;
        self.last_sample = None;
        let what = match self.frames.probe_next(self.offset)? {
            // Without checksums, a damaged header may look like a frame of an unknown kind.
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
            // No resync is needed, because a frame certainly begins after a block.
            self.offset = damage.offset + damage.length;
            return Ok(Some(Advance::Damage(damage)));
        }
        let budget_before = self.frames.hash_budget;
        let resync = self.frames.resync(self.offset, what)?;
        if what == BEYOND_FILE_END
            && !self.is_sealed()
            && !matches!(resync, Resync::Frame(_))
            && let FrameProbe::Frame(at) = self.frames.probe(self.offset)?
        {
            // The frame was incomplete at the previous call, and is complete now.
            self.accept(at);
            return Ok(Some(Advance::Frame(at)));
        }
        match resync {
            Resync::Frame(at) => {
                self.accept(at);
                Ok(Some(Advance::Frame(at)))
            }
            Resync::DamagedToEnd(damage) if !self.is_sealed() => {
                // No intact frame follows, but the file may still grow. The tail is read again when
                // the file has grown.
                self.frames.forget_windows();
                self.frames.hash_budget = budget_before;
                self.tail = Some(damage);
                Ok(None)
            }
            Resync::Damaged(damage) | Resync::DamagedToEnd(damage) => {
                self.offset = damage.offset + damage.length;
                self.frames.is_resyncing = true;
                Ok(Some(Advance::Damage(damage)))
            }
        }
    }

    /// Returns the next frame if it is an intact sample with an ordinary envelope, is in memory,
    /// and does not follow damage. This is the fast path for most frames. If the result is `None`,
    /// the caller must use `advance`.
    #[inline]
    pub(in crate::segment) fn next_sample(&mut self) -> Option<FrameLocation> {
        let frames = &mut self.frames;
        if frames.is_resyncing || frames.hash_budget.spent > 0 {
            return None;
        }
        let offset = self.offset;
        frames.window.prefetch(offset);
        let Ok(DeframeStatus::Frame(frame)) = frames.deframer.deframe(frames.window.cached(offset)) else {
            return None;
        };
        let (header, _) = envelope::split(frame.payload())?;
        let bytes = frame.bytes().len();
        frames.state.header.source(header.source())?;
        frames.state.set_latest(LatestSample {
            source: header.source(),
            seq: header.seq(),
            mono_ns: header.mono_ns(),
        });
        self.tail = None;
        self.offset = offset + bytes as u64;
        self.last_sample = Some((offset, header));
        Some(FrameLocation { offset, bytes, kind: FrameKind::Telemetry, is_repaired: false })
    }

    /// Returns whether the reader may accept a batch that begins at the current offset. The reader
    /// may not accept a batch during a resync, or if hashing has exceeded its budget.
    pub(in crate::segment) fn can_take_batch(&self) -> bool {
        !self.frames.is_resyncing && self.frames.hash_budget.spent <= HashBudget::limit(0)
    }

    /// Returns whether the header describes the sources of all these samples.
    pub(in crate::segment) fn knows_sources(&self, samples: &[BatchSamples]) -> bool {
        samples.iter().all(|samples| self.header().source(samples.source).is_some())
    }

    /// Moves to the end of a batch that begins at the current offset, as if each of its samples had
    /// been read.
    pub(in crate::segment) fn accept_batch(&mut self, end: u64, samples: &[BatchSamples]) {
        for samples in samples {
            let (seq, mono_ns) = (samples.last_seq(), samples.last_mono_ns);
            self.frames.state.set_latest(LatestSample { source: samples.source, seq, mono_ns });
        }
        self.offset = end;
        self.last_sample = None;
        self.tail = None;
    }

    /// Moves to the end of a frame. Updates the state that is needed to check later frames.
    fn accept(&mut self, at: FrameLocation) {
        self.offset = at.offset + at.bytes as u64;
        match at.kind {
            // During a resync, a sample may be part of the payload of another frame, so it is not
            // used to check later samples.
            FrameKind::Telemetry if !self.frames.is_resyncing => {
                let Some(sample) = self.sample(at) else { return };
                let latest = LatestSample { source: sample.source, seq: sample.seq, mono_ns: sample.mono_ns };
                self.frames.state.set_latest(latest);
            }
            FrameKind::Header => {
                if let Ok(header) = SegmentHeader::decode(self.payload(at)) {
                    // A replay of several runs is one stream, in which each run begins with a
                    // header.
                    self.frames.state.header = header;
                    self.frames.state.forget_latest();
                }
            }
            FrameKind::Descriptor => {
                if let Some(source) = SourceInfo::decode(self.payload(at)) {
                    self.frames.state.header.add_source(source);
                }
            }
            FrameKind::ClockSync => {
                // The header may be the footer's copy, which already contains the pairing.
                if let Some(sync) = ClockSync::decode(self.payload(at))
                    && !self.header().clock_table.contains(&sync.clocks)
                {
                    self.frames.state.header.add_clocks(sync.clocks);
                }
            }
            FrameKind::Index => {
                let index = IndexFrame::decode(self.payload(at));
                self.frames.is_resyncing &= index.is_none_or(|index| index.entry.end() != at.offset);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::compressed::source_selection::tests::{SAMPLES, raw_segment};
    use crate::segment::verify::verification::tests::{Act, written};
    use crate::testing::compressed;

    // Proves that a needed sample is never skipped, and that almost all other samples are skipped
    // in a compressed segment. Method: every wall time of a segment.
    #[test]
    fn needed_samples_are_never_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = raw_segment(folder.path());
        let read = |since: i64| {
            let mut reader = SegmentReader::open(&path).unwrap();
            reader.skip_before(since);
            let (mut needed, mut others) = (Vec::new(), 0);
            while let Some(advance) = reader.advance().unwrap() {
                let Advance::Frame(at) = advance else { panic!("{advance:?}") };
                match reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) {
                    Some(sample) if sample.wall_ns >= since => needed.push((sample.source, sample.seq)),
                    Some(_) => others += 1,
                    None => {}
                }
            }
            (needed, others)
        };
        let times: Vec<i64> = (-1..=SAMPLES.cast_signed() + 1).collect();
        let of_raw: Vec<_> = times.iter().map(|since| read(*since).0).collect();
        std::fs::write(&path, compressed(&path, 4096)).unwrap();
        for (since, of_raw) in times.into_iter().zip(of_raw) {
            let (needed, others) = read(since);
            let expected = 2 * SAMPLES.saturating_sub(u64::try_from(since).unwrap_or_default());
            assert_eq!(needed.len() as u64, expected, "{since}");
            assert_eq!(needed, of_raw, "{since}");
            assert!(others < 20, "{since}: {others} samples not skipped");
        }
    }

    /// Reads a segment and skips all of its samples. Returns the kinds of the frames that were
    /// read, and the damaged ranges.
    fn read_skipping(path: &std::path::Path) -> (Vec<FrameKind>, Vec<(u64, u64)>) {
        let mut reader = SegmentReader::open(path).unwrap();
        reader.skip_before(1);
        let (mut kinds, mut ranges) = (Vec::new(), Vec::new());
        while let Some(advance) = reader.advance().unwrap() {
            match advance {
                Advance::Frame(at) => kinds.push(at.kind),
                Advance::Damage(damage) => ranges.push((damage.offset, damage.offset + damage.length)),
            }
        }
        (kinds, ranges)
    }

    // Proves that only samples and Index frames are skipped, and that damage between skipped frames
    // is reported.
    #[test]
    fn other_frames_and_damage_are_not_skipped() {
        let samples = Act::Samples { source: 0, count: 60, body: 200 };
        let lose = Act::Lose { source: 0, count: 3, is_said: true };
        let acts = [samples.clone(), Act::Index, samples.clone(), lose, samples.clone(), Act::Note, samples];
        let expected = [FrameKind::Gap, FrameKind::Marker, FrameKind::Footer, FrameKind::Trailer];
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), &acts);
        let raw = std::fs::read(&path).unwrap();
        let from = SegmentReader::open(&path).unwrap().footer().unwrap().index.last().unwrap().offset;
        for block_bytes in [1 << 20, 4096] {
            std::fs::write(&path, &raw).unwrap();
            let bytes = compressed(&path, block_bytes);
            std::fs::write(&path, &bytes).unwrap();
            let (kinds, ranges) = read_skipping(&path);
            assert_eq!((kinds.as_slice(), ranges.is_empty()), (&expected[..], true), "{block_bytes}");
            let mut blocks = SegmentReader::open(&path).unwrap().compressed().unwrap().blocks();
            blocks.pop(); // footer and trailer, which are read on opening
            for block in blocks.iter().filter(|block| block.raw_end() > from) {
                let mut damaged = bytes.clone();
                damaged[usize::try_from(block.offset).unwrap() + block.bytes as usize / 2] ^= 0x40;
                std::fs::write(&path, &damaged).unwrap();
                let ranges = read_skipping(&path).1;
                assert_eq!(ranges, [(block.raw_offset.max(from), block.raw_end())], "{block_bytes}");
            }
        }
    }
}
