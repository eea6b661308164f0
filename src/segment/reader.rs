//! One segment, frame by frame, reading on behind damage.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::control::ClockSync;
use super::crew::Crew;
use super::error::SegmentError;
use super::examine::{BEYOND, Found, claimed_end, examine_in};
use super::footer::Footer;
use super::header::{HEADER_BYTES_MAX, Header, SourceInfo};
use super::index::Index;
use super::kind::{FrameAt, FrameKind, Head, Telemetry};
use super::mend::HASHED_IN_VAIN_MIN;
use super::opening::{Ends, find_ends};
use super::packed::Packed;
use super::seek::LeaveOut;
use super::survey::RunSamples;
use super::window::Window;
use crate::os::directory::open_regular;
use crate::os::mapped_file::MappedFile;
use crate::os::storage::ReadAt;
use crate::schema::envelope::{self, ENVELOPE_BYTES};
use crate::schema::frame::FrameHeader;
use crate::stream::{HEADER_BYTES_MAX as HEAD_BYTES_MAX, KindDeframer, SliceDeframer, Step};

/// Bytes that are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// How many bytes, up to the next intact frame or the end.
    pub length: u64,
    /// What is wrong, in a few words.
    pub what: &'static str,
}

/// What stands next in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// A frame, intact or repaired.
    Frame(FrameAt),
    /// A hole; reading goes on behind it.
    Damage(Damage),
}

/// Reads one segment, sealed or not, from its header on. Takes memory for one frame.
#[derive(Debug)]
pub struct SegmentReader {
    path: PathBuf,
    file: Option<Arc<File>>,     // if it was opened here
    packed: Option<Arc<Packed>>, // what the windows show, unless they show the file
    pub(super) window: Window,
    pub(super) aside: Window, // for looks elsewhere, which would move the other one to and fro
    pub(super) header: Header,
    pub(super) deframer: KindDeframer,
    pub(super) footer: Option<Footer>,
    pub(super) footer_offset: Option<u64>, // in this file: another one than the footer says where frames were removed
    offset: u64,
    sample: Option<(u64, FrameHeader)>, // the last frame, by its offset, if it came by the short way
    tail: Option<Damage>,
    pub(super) latest: Vec<Latest>,
    pub(super) leave_out: Option<LeaveOut>,
    pub(super) is_wary: bool, // behind a hole: reading may have come to frames inside a payload
    lacks_front: bool,        // what stands where the header should is not it
    pub(super) hashed_in_vain: u64, // since the file was opened
}

/// The last intact sample of a source that no damage stood in front of in its interval.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latest {
    pub(super) source: u16,
    pub(super) seq: u64,
    pub(super) mono_ns: u64,
}

/// What a header says of a packed segment that cannot be read.
const UNPACKABLE: &str = "that it is packed, but neither its first block nor its last one can be unpacked";

impl SegmentReader {
    /// Opens a file and finds out how it is framed: by its header, or by the footer where the header is damaged. Of a packed segment the
    /// reader shows what was packed: all offsets are those of the segment as it was recorded.
    ///
    /// # Errors
    /// Every kind of [`SegmentError`].
    pub fn open(path: &Path) -> Result<Self, SegmentError> {
        let file = open_regular(path).map_err(|error| SegmentError::Io { path: path.to_owned(), error })?;
        let file = Arc::new(file);
        let reader = Self::new(path, Window::over(Arc::clone(&file) as Arc<dyn ReadAt>))?;
        Ok(Self { file: Some(file), ..reader })
    }

    /// Reads what another place than the file system holds; `path` is its name in errors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(path: &Path, file: Arc<dyn ReadAt>) -> Result<Self, SegmentError> {
        Self::new(path, Window::over(file))
    }

    fn new(path: &Path, mut window: Window) -> Result<Self, SegmentError> {
        let ends = find_ends(path, &mut window)?;
        if !ends.announce_blocks() {
            return Self::of_ends(path, window, None, ends);
        }
        let io_error = |error| SegmentError::Io { path: path.to_owned(), error };
        let packed = Arc::new(Packed::open(Arc::clone(window.file()), &ends).map_err(io_error)?);
        let mut window = Window::over(Arc::clone(&packed) as Arc<dyn ReadAt>);
        let bad = |what| SegmentError::BadHeader { path: path.to_owned(), what };
        let ends = match find_ends(path, &mut window) {
            Err(SegmentError::Empty { .. }) => Err(bad(UNPACKABLE)),
            Ok(ends) if ends.header().is_none() => Err(bad(UNPACKABLE)),
            Ok(ends) if ends.announce_blocks() => Err(bad("that blocks hold blocks, which they never do")),
            ends => ends,
        }?;
        packed.holds_sealed(ends.footer.is_some());
        Self::of_ends(path, window, Some(packed), ends)
    }

    fn of_ends(
        path: &Path,
        window: Window,
        packed: Option<Arc<Packed>>,
        ends: Ends,
    ) -> Result<Self, SegmentError> {
        let header = ends.header().cloned();
        let header = header.ok_or_else(|| SegmentError::NotASegment { path: path.to_owned() })?;
        let lacks_front = ends.front.is_none();
        let (footer, footer_offset) = ends.footer.unzip();
        let deframer = KindDeframer::new(header.checksum)
            .with_max_frame_len(header.frame_max.max(HEADER_BYTES_MAX) as usize);
        Ok(Self {
            path: path.to_owned(),
            file: None,
            packed,
            aside: window.aside(),
            window,
            header,
            deframer,
            footer,
            footer_offset,
            offset: 0,
            sample: None,
            tail: None,
            latest: Vec::new(),
            leave_out: None,
            is_wary: false,
            lacks_front,
            hashed_in_vain: 0,
        })
    }

    /// What the file holds if it is a packed segment.
    pub fn packed(&self) -> Option<&Packed> {
        self.packed.as_deref()
    }

    /// The segment as it was recorded, where the file holds it packed.
    pub fn unpacked(&self) -> Option<Arc<dyn ReadAt>> {
        self.packed.clone().map(|packed| packed as Arc<dyn ReadAt>)
    }

    /// What stat(2) says of the file that was opened, whatever has its name now. None for what was not opened by its path.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn metadata(&self) -> io::Result<Option<Metadata>> {
        self.file.as_ref().map(|file| file.metadata()).transpose()
    }

    /// Reads a sealed segment through a memory map from now on: a quarter faster, but if the file is cut meanwhile, the kernel ends
    /// the process. A segment that is not sealed, is packed or was not opened by its path is read as before.
    ///
    /// # Errors
    /// The kernel refuses the map; it is then read as before.
    pub fn map(&mut self) -> io::Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| self.footer.is_some() && self.packed.is_none()) {
            // The file that was opened: sealing may have given its name to another one since.
            let map = Arc::new(MappedFile::map(file)?);
            self.window.map(Arc::clone(&map));
            self.aside.map(map);
        }
        Ok(())
    }

    /// Those who survey a mapped segment for this reader.
    pub(super) fn crew(&self) -> Option<Crew> {
        let (map, footer, limit) = (self.window.mapped()?, self.footer.as_ref()?, self.footer_offset?);
        Some(Crew::new(Arc::clone(map), self.deframer, footer, limit))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header, with the descriptors and pairings of the clocks that have come since.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The footer of a sealed segment.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Where the footer of a sealed segment stands.
    pub fn footer_offset(&self) -> Option<u64> {
        self.footer_offset
    }

    /// Whether it has footer and trailer.
    pub fn is_sealed(&self) -> bool {
        self.footer.is_some()
    }

    /// Offset of what comes next.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Goes to an offset where a frame begins, as the index says.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
        self.sample = None;
        self.tail = None;
        self.latest.clear();
        self.is_wary = false;
    }

    /// What follows the last frame of an unsealed segment once [`advance`](Self::advance) has said that there is
    /// nothing more: a write in progress, or one that was cut off. Behind the last block of a packed file its length is that in the file.
    pub fn tail(&self) -> Option<Damage> {
        self.tail
    }

    /// The next frame or hole; none at the end. For an unsealed segment the question may be asked again when it has
    /// grown.
    ///
    /// # Errors
    /// `Io`.
    pub fn advance(&mut self) -> Result<Option<Advance>, SegmentError> {
        self.try_advance().map_err(|error| SegmentError::Io { path: self.path.clone(), error })
    }

    /// A frame's bytes as they stand in the file, with its header. Empty once the reader has advanced.
    #[inline]
    pub fn bytes(&self, at: FrameAt) -> &[u8] {
        self.window.cached(at.offset).get(..at.bytes).unwrap_or_default()
    }

    /// A frame's payload. Empty once the reader has advanced.
    #[inline]
    pub fn payload(&self, at: FrameAt) -> &[u8] {
        self.bytes(at).get(self.deframer.header_bytes()..).unwrap_or_default()
    }

    /// A frame's header as it was written: length and stored checksum. Empty once the reader has advanced.
    #[inline]
    pub fn head(&self, at: FrameAt) -> Head {
        let bytes = self.bytes(at);
        let header_bytes = self.deframer.header_bytes();
        let mut head = Head { bytes: [0; HEAD_BYTES_MAX], length: header_bytes };
        if let Some(stored) = bytes.first_chunk() {
            // Longer than the header of most kinds: one copy of a known length all the same.
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

    /// A frame's header as it stands in the file. Empty once the reader has advanced.
    #[inline]
    pub(super) fn stored_head(&self, at: FrameAt) -> &[u8] {
        self.bytes(at).get(..self.deframer.header_bytes()).unwrap_or_default()
    }

    /// Source and number of a telemetry frame. None once the reader has advanced, or if it is none.
    #[inline]
    pub(super) fn number(&self, at: FrameAt) -> Option<(u16, u64)> {
        match &self.sample {
            Some((offset, header)) if *offset == at.offset => Some((header.source(), header.seq())),
            _ => self.telemetry(at).map(|sample| (sample.source, sample.seq)),
        }
    }

    /// Appends a frame as it was written: with its true length where that was repaired.
    pub fn copy_frame(&self, at: FrameAt, into: &mut Vec<u8>) {
        into.extend_from_slice(self.head(at).as_bytes());
        into.extend_from_slice(self.payload(at));
    }

    /// A telemetry frame's content. None once the reader has advanced, or if it is none.
    #[inline]
    pub fn telemetry(&self, at: FrameAt) -> Option<Telemetry<'_>> {
        match &self.sample {
            // Checked when it was come upon.
            Some((offset, header)) if *offset == at.offset => {
                Some(Telemetry::new(header, self.payload(at).get(ENVELOPE_BYTES..)?))
            }
            _ => Telemetry::read(self.payload(at)),
        }
    }

    fn try_advance(&mut self) -> io::Result<Option<Advance>> {
        self.pass_left_out()?;
        if let Some(at) = self.next_sample() {
            return Ok(Some(Advance::Frame(at)));
        }
        self.tail = None;
        self.sample = None;
        let what = match self.expect(self.offset)? {
            // Without checksums it may pass for a frame of another kind.
            Found::Frame(FrameAt { offset: 0, kind: FrameKind::Unknown(_), .. }) if self.lacks_front => {
                "the header, which is known from its copy or the footer"
            }
            Found::Frame(at) => {
                self.pass(at);
                return Ok(Some(Advance::Frame(at)));
            }
            Found::End => {
                self.tail = self.packed.as_ref().map_or(Ok(None), |packed| packed.tail())?;
                return Ok(None);
            }
            Found::Nothing(what) => what,
        };
        if let Some(damage) = self.packed.as_ref().and_then(|packed| packed.damage_at(self.offset)) {
            // What comes behind a block is a frame again, and not a guess.
            self.offset = damage.offset + damage.length;
            return Ok(Some(Advance::Damage(damage)));
        }
        let hashed_before = self.hashed_in_vain;
        let mended = self.mend(self.offset, what)?;
        if what == BEYOND
            && self.footer.is_none()
            && !matches!(mended, Mended::Frame(_))
            && let Found::Frame(at) = self.examine(self.offset)?
        {
            // It was being written, and has grown whole since.
            self.pass(at);
            return Ok(Some(Advance::Frame(at)));
        }
        match mended {
            Mended::Frame(at) => {
                self.pass(at);
                Ok(Some(Advance::Frame(at)))
            }
            Mended::Rest(damage) if self.footer.is_none() => {
                // Nothing intact follows and nothing says that the file is complete. Seen again when it has grown.
                self.window.forget();
                self.aside.forget();
                self.hashed_in_vain = hashed_before;
                self.tail = Some(damage);
                Ok(None)
            }
            Mended::Hole(damage) | Mended::Rest(damage) => {
                self.offset = damage.offset + damage.length;
                self.is_wary = true;
                Ok(Some(Advance::Damage(damage)))
            }
        }
    }

    /// The next frame, if it is what most are: an intact sample in its usual shape that is in memory, where nothing is
    /// damaged. None says nothing against it.
    #[inline]
    pub(super) fn next_sample(&mut self) -> Option<FrameAt> {
        if self.is_wary || self.hashed_in_vain > 0 {
            return None;
        }
        let offset = self.offset;
        self.window.look_ahead(offset);
        let Ok(Step::Frame(frame)) = self.deframer.deframe(self.window.cached(offset)) else { return None };
        let (header, _) = envelope::split(frame.payload())?;
        let bytes = frame.bytes().len();
        self.header.source(header.source())?;
        self.keep_latest(Latest { source: header.source(), seq: header.seq(), mono_ns: header.mono_ns() });
        self.tail = None;
        self.offset = offset + bytes as u64;
        self.sample = Some((offset, header));
        Some(FrameAt { offset, bytes, kind: FrameKind::Telemetry, is_repaired: false })
    }

    /// Whether a run that begins here may be taken: what is intact is believed, and nothing is too dear to be hashed.
    pub(super) fn is_at_ease(&self) -> bool {
        !self.is_wary && self.hashed_in_vain <= HASHED_IN_VAIN_MIN
    }

    /// Whether samples of these sources can stand here.
    pub(super) fn knows(&self, samples: &[RunSamples]) -> bool {
        samples.iter().all(|samples| self.header.source(samples.source).is_some())
    }

    /// Goes on behind a run that begins here, as if each of its samples had been read.
    pub(super) fn pass_run(&mut self, end: u64, samples: &[RunSamples]) {
        for samples in samples {
            let (seq, mono_ns) = (samples.last_seq(), samples.last_mono_ns);
            self.keep_latest(Latest { source: samples.source, seq, mono_ns });
        }
        self.offset = end;
        self.sample = None;
        self.tail = None;
    }

    #[inline]
    fn keep_latest(&mut self, latest: Latest) {
        match self.latest.iter_mut().find(|known| known.source == latest.source) {
            Some(known) => *known = latest,
            None => self.latest.push(latest),
        }
    }

    /// What stands where a frame should begin.
    #[inline]
    fn expect(&mut self, offset: u64) -> io::Result<Found> {
        if self.is_dear(offset)? {
            return Ok(Found::Nothing("a long frame amid damage"));
        }
        let found = self.examine(offset)?;
        match found {
            Found::Frame(at) if self.is_wary && !self.can_come_next(at) => {
                Ok(Found::Nothing("a frame that cannot follow those before it"))
            }
            Found::Nothing(what) if what != BEYOND => {
                let head = self.window.at(offset, self.deframer.header_bytes())?;
                let end = claimed_end(offset, self.deframer.header_bytes(), head).unwrap_or(offset);
                if end <= self.window.file_bytes()? {
                    self.hashed_in_vain = self.hashed_in_vain.saturating_add(end - offset);
                }
                Ok(Found::Nothing(what))
            }
            found => Ok(found),
        }
    }

    /// Whether a frame that an intact one stands in front of can be at its place, in a stretch that may be a payload.
    fn can_come_next(&self, at: FrameAt) -> bool {
        match at.kind {
            // Its own word would do in a file from which frames were removed.
            FrameKind::Index | FrameKind::Unknown(_) => true,
            _ => self.can_follow(at.offset, self.payload(at)),
        }
    }

    /// Goes on behind a frame, and keeps what later ones are judged by.
    fn pass(&mut self, at: FrameAt) {
        self.offset = at.offset + at.bytes as u64;
        match at.kind {
            // Amid damage it may be one from inside a payload: real ones are judged by what stood in front of it.
            FrameKind::Telemetry if !self.is_wary => {
                let Some(sample) = self.telemetry(at) else { return };
                let latest = Latest { source: sample.source, seq: sample.seq, mono_ns: sample.mono_ns };
                self.keep_latest(latest);
            }
            FrameKind::Header => {
                if let Ok(header) = Header::decode(self.payload(at)) {
                    // A replay of several runs is one stream: each begins with its own header.
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
                // The footer's copy of the header has it already.
                if let Some(sync) = ClockSync::decode(self.payload(at))
                    && !self.header.clock_table.contains(&sync.clocks)
                {
                    self.header.add_clocks(sync.clocks);
                }
            }
            FrameKind::Index => {
                let index = Index::decode(self.payload(at));
                self.is_wary &= index.is_none_or(|index| index.entry.end() != at.offset);
            }
            _ => {}
        }
    }

    /// What stands at `offset`.
    #[inline]
    pub(super) fn examine(&mut self, offset: u64) -> io::Result<Found> {
        examine_in(&mut self.window, &self.deframer, &self.header, offset)
    }
}

/// What has become of a place where no intact frame stands.
pub(super) enum Mended {
    /// Only its length was damaged.
    Frame(FrameAt),
    /// Reading goes on behind it.
    Hole(Damage),
    /// Nothing intact follows.
    Rest(Damage),
}
