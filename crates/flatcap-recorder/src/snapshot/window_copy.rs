//! Copies a time window from the segments of a run into one segment. The copy contains exactly the
//! samples within the window.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};

use flatcap_format::block::SourceCompression;
use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{
    Advance, Attachment, ClockSync, FrameKind, FrameLocation, Frames, Gap, LiveCompressor, Marker,
    MarkerOrigin, SampleSpan, SealState, SegmentHeader, SegmentName, SegmentOptions, SegmentReader,
    SegmentWriter, SourceInfo,
};
use flatcap_format::storage::Storage;
use flatcap_stream::SliceFramer;

use super::ring_segment::{RingSegment, open};

/// Number of uncompressed bytes per write. The bytes of one write are compressed as one block.
const WRITE_BYTES: usize = 1 << 20;
/// Number of segments that are searched for the first sample of each source. The searched segments
/// are the segment that was open at the begin of the window, and the next segment. If neither
/// segment has a sample of a source, the header of the following segment contains the next sequence
/// number of the source.
const SEGMENTS_SEARCHED: usize = 2;

/// The parameters of a copy.
pub(super) struct WindowCopy<'a> {
    /// The segments in the order of their numbers. The segments must contain all existing samples
    /// of the window.
    pub(super) segments: &'a [RingSegment],
    /// Minimum begin time of the samples to copy, in monotonic nanoseconds.
    pub(super) first_mono_ns: u64,
    /// Maximum begin time of the samples to copy, in monotonic nanoseconds.
    pub(super) last_mono_ns: u64,
    /// A marker to add to the copy. The marker is not added if the window already contains a rule's
    /// marker with the same time.
    pub(super) marker: Option<Marker>,
    pub(super) attachments: &'a [Attachment],
    /// The function that returns the compression settings for a header.
    pub(super) compression: &'a dyn Fn(&SegmentHeader) -> SourceCompression,
}

/// The result of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CopiedWindow {
    pub(super) samples: u64,
    pub(super) lost: u64,
    /// Wall times of the first and the last sample, or `None` if there are no samples.
    pub(super) wall_ns: Option<(i64, i64)>,
}

/// Copies a window into a segment of `target`. The segment gets its final name after it is on disk.
///
/// # Errors
/// `NotFound` if there is no segment. Errors of reading the ring and of writing the segment.
pub(super) fn copy_window(copy: &WindowCopy<'_>, target: &dyn Storage) -> io::Result<CopiedWindow> {
    // The copy begins with the segment that was open at the begin of the window. Earlier segments
    // were sealed before the window.
    let begin = copy.segments.iter().rposition(|segment| segment.created_ns <= copy.first_mono_ns);
    let segments = copy.segments.get(begin.unwrap_or(0)..).unwrap_or_default();
    let first = segments.first().ok_or(io::ErrorKind::NotFound)?;
    let start = WindowStart::find(segments, copy)?;
    let mut header = open(first)?.header().clone();
    header.segment = 0;
    for source in &mut header.sources {
        source.next_seq = start.next_seq.get(&source.id).copied().unwrap_or(source.next_seq);
    }
    let name = SegmentName {
        number: 0,
        created_s: header.clocks.wall_ns.div_euclid(1_000_000_000),
        run_id: header.run_id,
        state: SealState::Active,
    };
    let compressor = LiveCompressor::new((copy.compression)(&header), &header);
    let options =
        SegmentOptions { compressor: Some(compressor), copies_header: true, ..SegmentOptions::default() };
    let attachments: Vec<Attachment> = start.configuration.iter().chain(copy.attachments).cloned().collect();
    let next = header.sources.iter().map(|source| (source.id, SourceCut::from(source.next_seq))).collect();
    let writer = SegmentWriter::create_with(target, name, header, &attachments, options)?;
    let mut cut = WindowCut {
        writer,
        sources: next,
        first_seqs: start.next_seq,
        marker: copy.marker.clone(),
        window: (copy.first_mono_ns, copy.last_mono_ns),
        frames: Vec::with_capacity(WRITE_BYTES),
        headers: Vec::new(),
        count: 0,
        samples: Vec::new(),
        copied: CopiedWindow::default(),
    };
    for segment in segments {
        cut.copy_segment(&mut open(segment)?)?;
    }
    cut.add_marker(u64::MAX)?;
    cut.flush()?;
    cut.writer.seal()?.publish(target)?;
    Ok(cut.copied)
}

/// The first sample number of each source in a window, and the configuration.
struct WindowStart {
    next_seq: BTreeMap<u16, u64>,
    configuration: Option<Attachment>,
}

impl WindowStart {
    fn find(segments: &[RingSegment], copy: &WindowCopy<'_>) -> io::Result<Self> {
        let mut start = Self { next_seq: BTreeMap::new(), configuration: None };
        let mut found: BTreeMap<u16, u64> = BTreeMap::new();
        for segment in segments.iter().take(SEGMENTS_SEARCHED) {
            let mut reader = open(segment)?;
            for source in &reader.header().sources {
                start.next_seq.entry(source.id).or_insert(source.next_seq);
            }
            while let Some(advance) = reader.advance().map_err(io::Error::other)? {
                let Advance::Frame(at) = advance else { continue };
                match at.kind {
                    FrameKind::Telemetry => {
                        let Some(sample) = reader.sample(at) else { continue };
                        if sample.mono_ns >= copy.first_mono_ns {
                            found.entry(sample.source).or_insert(sample.seq);
                        } else if !found.contains_key(&sample.source) {
                            start.next_seq.insert(sample.source, sample.seq.saturating_add(1));
                        }
                    }
                    FrameKind::Attachment if start.configuration.is_none() => {
                        start.configuration = Attachment::decode(reader.payload(at))
                            .filter(|attachment| attachment.name == "flatcap.toml");
                    }
                    _ => {}
                }
            }
        }
        start.next_seq.extend(found);
        Ok(start)
    }
}

/// The state of a source during the copy.
#[derive(Debug, Default)]
struct SourceCut {
    next_seq: u64,
    last_mono_ns: u64,
    /// Gaps of the source that the copy writes before the source's next sample.
    gaps: Vec<Gap>,
    has_ended: bool,
}

impl From<u64> for SourceCut {
    fn from(next_seq: u64) -> Self {
        Self { next_seq, ..Self::default() }
    }
}

impl SourceCut {
    /// Returns the gaps before a sample. The result contains the recorded gaps, and a gap with
    /// cause `damaged` for each range of missing numbers that no recorded gap covers.
    fn gaps_before(&mut self, source: u16, seq: u64, mono_ns: u64) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut next = self.next_seq;
        let times = (self.last_mono_ns, mono_ns);
        let mut add = |first: u64, end: u64, causes: u32| {
            if first < end {
                let (after_mono_ns, before_mono_ns) = times;
                gaps.push(Gap { source, first, count: end - first, causes, after_mono_ns, before_mono_ns });
            }
        };
        self.gaps.sort_unstable_by_key(|gap| gap.first);
        for gap in &self.gaps {
            let (first, end) = (gap.first.max(next), gap.first.saturating_add(gap.count).min(seq));
            if first < end {
                add(next, first, GapCause::Damaged.bits());
                add(first, end, gap.causes);
                next = end;
            }
        }
        add(next, seq, GapCause::Damaged.bits());
        self.gaps.retain(|gap| gap.first.saturating_add(gap.count) > seq);
        gaps
    }
}

/// The state of the copy that is being written.
struct WindowCut {
    writer: SegmentWriter,
    sources: BTreeMap<u16, SourceCut>,
    first_seqs: BTreeMap<u16, u64>, // of the sources that begin in the first segments
    marker: Option<Marker>,         // until it is written
    window: (u64, u64),
    frames: Vec<u8>,
    headers: Vec<u8>, // copies of the frames' headers
    count: u64,
    samples: Vec<(u16, SampleSpan)>,
    copied: CopiedWindow,
}

impl WindowCut {
    /// Adds the sources that the segment being read has described so far.
    fn add_sources(&mut self, reader: &SegmentReader) -> io::Result<()> {
        let is_new = |source: &&SourceInfo| !self.sources.contains_key(&source.id);
        let new: Vec<SourceInfo> = reader.header().sources.iter().filter(is_new).cloned().collect();
        for source in new {
            self.flush()?;
            let next_seq = self.first_seqs.get(&source.id).copied().unwrap_or(source.next_seq);
            self.sources.insert(source.id, SourceCut::from(next_seq));
            self.writer.append_source(SourceInfo { next_seq, ..source })?;
        }
        Ok(())
    }

    fn copy_segment(&mut self, reader: &mut SegmentReader) -> io::Result<()> {
        self.add_sources(reader)?;
        while let Some(advance) = reader.advance().map_err(io::Error::other)? {
            let Advance::Frame(at) = advance else { continue };
            match at.kind {
                FrameKind::Telemetry => self.copy_sample(reader, at)?,
                FrameKind::Descriptor => self.add_sources(reader)?,
                FrameKind::Gap => {
                    if let Some(gap) = Gap::decode(reader.payload(at))
                        && let Some(source) = self.sources.get_mut(&gap.source)
                        && gap.first.saturating_add(gap.count) > source.next_seq
                        && !source.has_ended
                    {
                        source.gaps.push(gap);
                    }
                }
                FrameKind::ClockSync => {
                    let known = self.writer.header().clock_table.last().map_or(0, |clocks| clocks.mono_ns);
                    let sync = ClockSync::decode(reader.payload(at));
                    if let Some(sync) = sync.filter(|sync| sync.clocks.mono_ns > known) {
                        self.flush()?;
                        self.writer.append_clock_sync(&sync)?;
                    }
                }
                FrameKind::Marker => {
                    let (first, last) = self.window;
                    let marker = Marker::decode(reader.payload(at));
                    if let Some(marker) = marker.filter(|marker| (first..=last).contains(&marker.mono_ns)) {
                        // The recorder has already marked the firing of the rule, so no second
                        // marker is needed.
                        let is_same = |own: &mut Marker| {
                            (own.mono_ns, own.origin) == (marker.mono_ns, MarkerOrigin::Trigger)
                        };
                        let _marked = self.marker.take_if(is_same);
                        self.flush()?;
                        self.writer.append_marker(&marker)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn copy_sample(&mut self, reader: &SegmentReader, at: FrameLocation) -> io::Result<()> {
        let Some(sample) = reader.sample(at) else { return Ok(()) };
        let (first, last) = self.window;
        let Some(source) = self.sources.get_mut(&sample.source) else { return Ok(()) };
        source.has_ended |= sample.mono_ns > last;
        if source.has_ended || sample.mono_ns < first || sample.seq < source.next_seq {
            return Ok(());
        }
        let gaps = source.gaps_before(sample.source, sample.seq, sample.mono_ns);
        source.next_seq = sample.seq.saturating_add(1);
        source.last_mono_ns = sample.mono_ns;
        // The segments may still contain a marker of a rule, so only a marker of a person is added
        // now.
        if self.marker.as_ref().is_some_and(|marker| marker.origin == MarkerOrigin::Person) {
            self.add_marker(sample.mono_ns)?;
        }
        for gap in &gaps {
            let payload = gap.encode();
            let header = self.writer.checksum().header(&payload).map_err(io::Error::other)?;
            self.headers.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(header.as_bytes());
            self.frames.extend_from_slice(&payload);
            self.count += 1;
            self.writer.count_gap(gap);
            self.copied.lost = self.copied.lost.saturating_add(gap.count);
        }
        let header_bytes = self.writer.checksum().frame_bytes(0);
        let begin = self.frames.len();
        reader.copy_frame(at, &mut self.frames);
        let header = self.frames.get(begin..begin + header_bytes).unwrap_or_default();
        self.headers.extend_from_slice(header);
        self.count += 1;
        self.samples.push((sample.source, SampleSpan::of(sample.seq, sample.mono_ns, sample.wall_ns)));
        self.copied.samples += 1;
        let (earliest, latest) = self.copied.wall_ns.unwrap_or((sample.wall_ns, sample.wall_ns));
        self.copied.wall_ns = Some((earliest.min(sample.wall_ns), latest.max(sample.wall_ns)));
        if self.frames.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the marker when the copy has reached the time of the marker.
    fn add_marker(&mut self, mono_ns: u64) -> io::Result<()> {
        if let Some(marker) = self.marker.take_if(|marker| marker.mono_ns <= mono_ns) {
            self.flush()?;
            self.writer.append_marker(&marker)?;
        }
        Ok(())
    }

    /// Writes the collected frames.
    fn flush(&mut self) -> io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        self.writer.append(Frames {
            pieces: &mut [IoSlice::new(&self.frames)],
            headers: &[&self.headers],
            count: self.count,
        })?;
        for (source, span) in self.samples.drain(..) {
            self.writer.count_samples(source, 1, span);
        }
        self.writer.append_index(0)?;
        self.frames.clear();
        self.headers.clear();
        self.count = 0;
        Ok(())
    }
}
