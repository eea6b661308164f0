//! Merges the frames of many segments in the order of time.
//!
//! Within a segment, a frame may be older than a preceding frame of another source, but by at most
//! the reorder window. The reader returns a frame after it has read another frame that is newer by
//! at least the reorder window. The memory used is bounded by the frames of one window.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

use flatcap_stream::{ChecksumKind, Framer};

use super::filter::{ReplayFilter, RunSelection, WantedTimes};
use super::held_frame::{HeldFrame, HeldKind};
use super::item::{Notice, ReplayItem, ReplayPart, ReplaySample, WholeSegment};
use crate::segment::{
    Advance, ClockSync, Damage, FrameKind, Gap, ListedSegment, Marker, SampleView, SegmentError,
    SegmentHeader, SegmentReader, SelectedSegment, SourceInfo, list, select,
};

/// Maximum number of frames that the reader holds in memory. If the reader holds more frames, it
/// returns the oldest one, so that a wrong reorder window does not exhaust the memory.
const HELD_FRAMES_MAX: usize = 1 << 20;
/// Maximum total length of the frames that the reader holds in memory, in bytes. The limit has the
/// same purpose as `HELD_FRAMES_MAX`.
const HELD_BYTES_MAX: usize = 256 << 20;

/// The reader stops waiting for the recovery of a killed run's segment after this number of
/// refreshes without new data.
const RECOVERY_REFRESHES: u64 = 100;

/// Reads segments one after the other and returns their frames in the order of time.
#[derive(Debug, Default)]
pub struct MergedReader {
    paths: Vec<PathBuf>,
    filter: ReplayFilter,
    run_id: Option<u64>, // segments of other runs are not read
    pending_segments: VecDeque<SelectedSegment>,
    last_numbers: BTreeMap<(usize, u64), u64>, // last read, by index in `paths` and run
    current: Option<SegmentReader>,
    is_live: bool,
    current_run: RunSelection,
    reads: u64,                    // number of reads in the current segment
    wanted_ns: Option<Range<u64>>, // selected in the current segment, by monotonic time
    end: Option<WantedEnd>,        // of the selected part of the current segment
    has_ended: bool,               // the current segment's trailer was read
    refreshes: u64,                // the first one finds existing segments, later ones new segments
    later_run_since: Option<u64>,  // number of the refresh that found a later run
    header: Option<(SegmentHeader, Vec<u8>)>,
    next_run: Option<(SegmentHeader, Vec<u8>)>, // begins when no frame is held
    new_sources: VecDeque<(SourceInfo, Vec<u8>)>, // of the current run
    current_source: Option<(SourceInfo, Vec<u8>)>,
    has_attachments: bool, // of the current run; all its segments begin with the same ones
    times: Option<WantedTimes>, // selected in the current run
    window_ns: u64,
    newest_ns: u64,
    arrivals: u64,
    held: BinaryHeap<Reverse<HeldFrame>>,
    held_bytes: usize,
    current_frame: Vec<u8>,
    free_buffers: Vec<Vec<u8>>, // buffers for reuse
}

/// The end of the selected part of a segment, which is the first sample that is at or after both
/// this offset and this time.
#[derive(Debug, Clone, Copy)]
struct WantedEnd {
    mono_ns: u64,
    offset: u64,
}

/// The result of reading one frame.
enum ReadStep {
    Continue,
    Notice(Notice),
    End,
}

impl MergedReader {
    /// Opens a reader of all segments in `paths`.
    ///
    /// # Errors
    /// Returns `Io` if a path is missing or unreadable.
    pub fn open(paths: &[PathBuf], filter: ReplayFilter) -> Result<Self, SegmentError> {
        let mut reader = Self::of_segments(Vec::new(), filter);
        reader.paths = paths.to_vec();
        reader.refresh()?;
        Ok(reader)
    }

    /// Opens a reader of one run. The reader reads the segments in `segments`, and those segments
    /// in `paths` that belong to the run. If the name of a file in `paths` is not the name of a
    /// segment, the reader reads all runs in the file.
    ///
    /// # Errors
    /// Returns `Io` if a path is missing or unreadable.
    pub fn of_run(
        run_id: u64,
        (paths, segments): (&[PathBuf], Vec<SelectedSegment>),
        filter: ReplayFilter,
    ) -> Result<Self, SegmentError> {
        let none = Self::of_segments(segments, filter);
        let mut reader = Self { paths: paths.to_vec(), run_id: Some(run_id), ..none };
        reader.refresh()?;
        Ok(reader)
    }

    /// Creates a reader that reads only these segments.
    pub fn of_segments(segments: Vec<SelectedSegment>, filter: ReplayFilter) -> Self {
        Self { pending_segments: segments.into(), filter, ..Self::default() }
    }

    /// Searches for new segments. Callers use this function to follow a running recorder. A reader
    /// reads the segments of all directories one after the other. To follow several directories,
    /// use one reader for each directory.
    ///
    /// # Errors
    /// Returns `Io` if a path is missing or unreadable.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        let is_first = self.refreshes == 0;
        self.refreshes += 1;
        let mut new = Vec::new();
        for (index, path) in self.paths.iter().enumerate() {
            // If the path leads to a file, the file is read to its end. A new name of this file is
            // not a new segment.
            if !is_first && !path.is_dir() {
                continue;
            }
            for listing in list(std::slice::from_ref(path))? {
                let Some(name) = listing.name else {
                    new.push(listing);
                    continue;
                };
                if self.run_id.is_some_and(|run_id| run_id != name.run_id) {
                    continue;
                }
                let last = self.last_numbers.get(&(index, name.run_id)).copied();
                if last.is_none_or(|last| name.number > last) {
                    self.last_numbers.insert((index, name.run_id), name.number);
                    new.push(listing);
                }
            }
        }
        let ReplayFilter { since_ns, until_ns, elapsed, .. } = &self.filter;
        self.pending_segments.extend(select(new, *since_ns, *until_ns, elapsed.as_ref()));
        Ok(())
    }

    /// Adds a segment that is read after all others.
    pub fn push_segment(&mut self, segment: SelectedSegment) {
        self.pending_segments.push_back(segment);
    }

    /// Returns whether a recorder may still append to the segment being read.
    pub fn is_live(&self) -> bool {
        self.current.is_some() && self.is_live && !self.has_ended
    }

    /// Returns the next item, or `None` at the end. The caller may call this function again after
    /// [`refresh`](Self::refresh), or after the last segment has grown.
    ///
    /// # Errors
    /// `Io`.
    #[allow(clippy::should_implement_trait, reason = "the item borrows the reader, no Iterator can do that")]
    pub fn next(&mut self) -> Result<Option<ReplayItem<'_>>, SegmentError> {
        Ok(match self.next_part(false)? {
            Some(ReplayPart::Item(item)) => Some(item),
            Some(ReplayPart::Segment(_)) | None => None,
        })
    }

    /// Returns the next part, or `None` at the end. If `takes_segments` is true, returns each
    /// sealed segment as a whole instead of its frames.
    ///
    /// # Errors
    /// `Io`.
    pub fn next_part(&mut self, takes_segments: bool) -> Result<Option<ReplayPart<'_>>, SegmentError> {
        loop {
            if self.next_run.is_none()
                && let Some((source, frame)) = self.new_sources.pop_front()
            {
                if let Some((header, _)) = &mut self.header {
                    header.sources.push(source.clone());
                }
                let (source, frame) = self.current_source.insert((source, frame));
                return Ok(Some(ReplayPart::Item(ReplayItem::Source(source, frame))));
            }
            if self.is_oldest_ready() {
                return Ok(self.pop_held().map(ReplayPart::Item));
            }
            if let Some(run) = self.next_run.take() {
                self.newest_ns = 0;
                let (header, frame) = self.header.insert(run);
                self.window_ns = self.window_ns.max(header.reorder_window_ns);
                return Ok(Some(ReplayPart::Item(ReplayItem::Header(header, frame))));
            }
            if takes_segments && self.can_be_taken() {
                // The frames of earlier segments must be returned before this segment.
                if self.held.is_empty() {
                    return Ok(self.take_segment().map(|segment| ReplayPart::Segment(Box::new(segment))));
                }
                return Ok(self.pop_held().map(ReplayPart::Item));
            }
            match self.read_next()? {
                ReadStep::Continue => {}
                ReadStep::Notice(notice) => {
                    return Ok(Some(ReplayPart::Item(ReplayItem::Notice(notice))));
                }
                ReadStep::End if self.held.is_empty() => return Ok(None),
                ReadStep::End => return Ok(self.pop_held().map(ReplayPart::Item)),
            }
        }
    }

    /// Returns whether the current segment is sealed and belongs to one run, and whether none of
    /// its frames has been returned yet.
    fn can_be_taken(&self) -> bool {
        let is_taken = self.reads == 0 && !self.is_live && self.current_run == RunSelection::Wanted;
        let Some(reader) = self.current.as_ref().filter(|_| is_taken) else { return false };
        // A file that contains several segments ends with the footer of the last segment.
        let (own, header) = (reader.footer().map(|footer| &footer.header), reader.header());
        own.is_some_and(|own| (own.run_id, own.segment) == (header.run_id, header.segment))
    }

    fn take_segment(&mut self) -> Option<WholeSegment> {
        let reader = self.current.take()?;
        let (times, window_ns) = (self.times.clone()?, self.window_ns);
        let end_offset = self.end.map_or(u64::MAX, |end| end.offset);
        Some(WholeSegment { reader, times, mono_ns: self.wanted_ns.clone(), end_offset, window_ns })
    }

    fn is_oldest_ready(&self) -> bool {
        let Some(Reverse(oldest)) = self.held.peek() else { return false };
        self.next_run.is_some()
            || oldest.mono_ns.saturating_add(self.window_ns) < self.newest_ns
            || self.held.len() > HELD_FRAMES_MAX
            || self.held_bytes > HELD_BYTES_MAX
    }

    fn pop_held(&mut self) -> Option<ReplayItem<'_>> {
        let Reverse(held) = self.held.pop()?;
        self.held_bytes -= held.frame.len();
        self.free_buffers.push(std::mem::replace(&mut self.current_frame, held.frame));
        let payload = self.current_frame.get(held.header_bytes..).unwrap_or_default();
        // Samples and gaps were decoded before they were held, so decoding them again succeeds.
        match held.kind {
            HeldKind::Sample => Some(ReplayItem::Sample(ReplaySample {
                telemetry: SampleView::read(payload)?,
                frame: &self.current_frame,
            })),
            HeldKind::Gap => Some(ReplayItem::Gap(Gap::decode(payload)?, &self.current_frame)),
            HeldKind::Attachment => Some(ReplayItem::Other(FrameKind::Attachment, &self.current_frame)),
            HeldKind::ClockSync => Some(ReplayItem::Other(FrameKind::ClockSync, &self.current_frame)),
            HeldKind::Marker => Some(ReplayItem::Marker(Marker::decode(payload)?, &self.current_frame)),
        }
    }

    /// Reads one frame, or continues with the next segment.
    fn read_next(&mut self) -> Result<ReadStep, SegmentError> {
        self.reads += 1;
        let Some(reader) = &mut self.current else {
            let Some(selected) = self.pending_segments.front() else { return Ok(ReadStep::End) };
            // The reader needs the index only for a search by time.
            let has_times = selected.mono_ns.is_some() || self.filter.has_times();
            let open = if has_times { ListedSegment::open } else { ListedSegment::open_without_index };
            return Ok(match open(&selected.listing) {
                Ok(Some(reader)) => self.begin_segment(reader),
                Ok(None) => return Ok(ReadStep::End),
                // The recorder was killed directly after it had created the segment. Nothing is
                // lost.
                Err(SegmentError::Empty { .. }) if selected.listing.is_active() => {
                    self.pending_segments.pop_front();
                    ReadStep::Continue
                }
                Err(error) => {
                    self.pending_segments.pop_front();
                    ReadStep::Notice(Notice::Unreadable(error))
                }
            });
        };
        match reader.advance()? {
            Some(Advance::Damage(damage)) => {
                Ok(ReadStep::Notice(Notice::Damaged(reader.path().to_owned(), damage)))
            }
            Some(Advance::Frame(at)) => {
                self.later_run_since = None;
                match at.kind {
                    FrameKind::Trailer => self.has_ended = true,
                    // The file is the output of a replay, which may contain several runs.
                    FrameKind::Header if at.offset > 0 => {
                        let mut frame = Vec::new();
                        reader.copy_frame(at, &mut frame);
                        let header = reader.header().clone();
                        self.current_run = RunSelection::of(&header, &self.filter);
                        if self.current_run == RunSelection::Wanted {
                            self.times = Some(WantedTimes::of(&self.filter, &header));
                            self.next_run = Some((header, frame));
                            self.has_attachments = false;
                        }
                    }
                    _ if self.current_run == RunSelection::OfOtherHost => {}
                    FrameKind::Descriptor => {
                        let header = reader.header().clone();
                        self.queue_new_sources(&header);
                    }
                    _ if self.is_past_end(at) => self.current = None,
                    _ => self.hold(at),
                }
                Ok(ReadStep::Continue)
            }
            None => {
                if let Some(offset) = self.is_live.then(|| reader.rewind_if_truncated()).flatten() {
                    return Ok(ReadStep::Notice(Notice::Truncated(reader.path().to_owned(), offset)));
                }
                let torn = reader.tail().filter(|_| !self.is_live);
                let notice = torn.map(|tail| Notice::Torn(reader.path().to_owned(), tail));
                if self.is_live()
                    && let Some(step) = self.at_segment_end()
                {
                    return Ok(step);
                }
                self.current = None;
                Ok(notice.map_or(ReadStep::Continue, ReadStep::Notice))
            }
        }
    }

    /// Decides how to continue at the end of the segment that is being read. Returns `None` if the
    /// segment is complete.
    fn at_segment_end(&mut self) -> Option<ReadStep> {
        let Some(next) = self.pending_segments.front() else { return Some(ReadStep::End) };
        match next.listing.open() {
            Ok(None) => Some(ReadStep::End),
            // The recorder could not begin this segment, so it continues the previous segment.
            Err(SegmentError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
                self.pending_segments.pop_front();
                Some(ReadStep::Continue)
            }
            Ok(Some(next)) => {
                let is_of_run = |reader: &SegmentReader| reader.header().run_id == next.header().run_id;
                if self.refreshes <= 1 || self.current.as_ref().is_none_or(is_of_run) {
                    return None;
                }
                let since = *self.later_run_since.get_or_insert(self.refreshes);
                if self.refreshes - since < RECOVERY_REFRESHES {
                    return Some(ReadStep::End);
                }
                let unrecovered = self.current.take()?;
                Some(ReadStep::Notice(Notice::Unrecovered(unrecovered.path().to_owned())))
            }
            Err(_) => None,
        }
    }

    /// Begins the next segment.
    fn begin_segment(&mut self, mut reader: SegmentReader) -> ReadStep {
        let Some(SelectedSegment { listing, mono_ns }) = self.pending_segments.pop_front() else {
            return ReadStep::End;
        };
        // Only a file without the name of a segment can contain runs of several hosts.
        let is_of_other_host = listing.name.is_some() && !self.filter.wants_host(reader.header());
        if is_of_other_host || !self.overlaps(&reader) {
            return ReadStep::Continue;
        }
        self.end = mono_ns
            .as_ref()
            .map(|range| WantedEnd { mono_ns: range.end, offset: reader.offset_after_time(range.end) });
        // A reader that follows the recording waits until the next run has recovered the segment of
        // a killed run.
        let is_live = listing.live || (self.refreshes > 1 && listing.is_active());
        reader.select_sources(&self.filter.sources);
        let header = reader.header().clone();
        let frame = match reader.advance() {
            Ok(Some(Advance::Frame(at))) if at.kind == FrameKind::Header => {
                let mut frame = Vec::new();
                reader.copy_frame(at, &mut frame);
                frame
            }
            Ok(Some(Advance::Damage(damage))) => {
                // If the header is damaged, the reader uses the copy of the header in the footer.
                // The frame of this copy has the same bytes as the original frame.
                self.start(reader, is_live, header.clone(), framed(header.checksum, &header.encode()));
                return self.damaged(damage);
            }
            _ => framed(header.checksum, &header.encode()),
        };
        if let Some(range) = &mono_ns {
            reader.seek_time(range.start);
        }
        self.wanted_ns = mono_ns;
        if let Some(since_ns) = self.filter.since_ns {
            reader.skip_before(since_ns);
        }
        self.start(reader, is_live, header, frame);
        ReadStep::Continue
    }

    fn start(&mut self, reader: SegmentReader, is_live: bool, header: SegmentHeader, frame: Vec<u8>) {
        self.times = Some(WantedTimes::of(&self.filter, &header));
        self.reads = 0;
        // The footer also describes the sources that the header lacks. The reader would miss these
        // sources if it began after their descriptors, or if a descriptor is damaged.
        let footer = reader.footer().map(|footer| footer.header.clone());
        self.is_live = is_live;
        self.has_ended = false;
        self.later_run_since = None;
        self.window_ns = reader.footer().map_or(header.reorder_window_ns, |footer| footer.reorder_window_ns);
        self.current = Some(reader);
        self.has_attachments = self.header.as_ref().is_some_and(|(last, _)| last.run_id == header.run_id);
        self.current_run = RunSelection::of(&header, &self.filter);
        if self.current_run == RunSelection::OfOtherHost {
            return;
        }
        if self.has_attachments {
            self.queue_new_sources(&header);
        } else {
            self.next_run = Some((header, frame));
        }
        if let Some(footer) = footer {
            self.queue_new_sources(&footer);
        }
    }

    /// Queues the descriptors of all sources that this header contains and the first header of the
    /// run does not.
    fn queue_new_sources(&mut self, header: &SegmentHeader) {
        let run = self.next_run.as_mut().or(self.header.as_mut());
        let Some((known, _)) = run.filter(|(known, _)| known.run_id == header.run_id) else { return };
        for source in &header.sources {
            let is_waiting = self.new_sources.iter().any(|(waiting, _)| waiting.id == source.id);
            if known.source(source.id).is_none() && !is_waiting {
                let frame = framed(header.checksum, &source.encode());
                self.new_sources.push_back((source.clone(), frame));
            }
        }
    }

    fn damaged(&self, damage: Damage) -> ReadStep {
        let path = self.current.as_ref().map(|reader| reader.path().to_owned());
        ReadStep::Notice(Notice::Damaged(path.unwrap_or_default(), damage))
    }

    /// Returns whether a segment may have samples in the selected range of time.
    fn overlaps(&self, reader: &SegmentReader) -> bool {
        let Some(footer) = reader.footer() else { return true };
        let elapsed_ns = self.filter.elapsed.as_ref().map(|elapsed| elapsed.mono_ns(reader.header()));
        // The wall times in the totals of a source are not bounds of its samples if the clock was
        // set.
        let mut bounds = footer.index.iter().filter_map(|entry| entry.bounds).peekable();
        bounds.peek().is_none()
            || bounds.any(|bounds| {
                self.filter.since_ns.is_none_or(|since| bounds.last_wall_ns >= since)
                    && self.filter.until_ns.is_none_or(|until| bounds.first_wall_ns < until)
                    && elapsed_ns.as_ref().is_none_or(|elapsed| {
                        bounds.first_mono_ns < elapsed.end && elapsed.start <= bounds.last_mono_ns
                    })
            })
    }

    /// Returns whether this sample is at or after the end of the selected part. If so, no selected
    /// frame follows in this segment.
    fn is_past_end(&self, at: crate::segment::FrameLocation) -> bool {
        let (Some(end), Some(reader)) = (&self.end, &self.current) else { return false };
        at.kind == FrameKind::Telemetry
            && at.offset >= end.offset
            && reader.sample(at).is_some_and(|sample| sample.mono_ns >= end.mono_ns)
    }

    /// Returns whether the filter selects these times of the current segment on both clocks.
    fn wants_time(&self, wall_ns: i64, mono_ns: u64) -> bool {
        self.times.as_ref().is_none_or(|times| times.contains(wall_ns, mono_ns))
    }

    /// Holds a frame in memory until the reader has returned all earlier frames. Ignores a frame
    /// that is not selected.
    fn hold(&mut self, at: crate::segment::FrameLocation) {
        let Some(reader) = &self.current else { return };
        let header = reader.header();
        let wants =
            |source| header.source(source).is_some_and(|source| self.filter.wants_source(&source.name));
        let (kind, mono_ns) = match at.kind {
            FrameKind::Telemetry => {
                let Some(sample) = reader.sample(at) else { return };
                // A sample that is not selected also advances the time, so that held frames do not
                // wait for a selected sample.
                self.newest_ns = self.newest_ns.max(sample.mono_ns);
                if !wants(sample.source) || !self.wants_time(sample.wall_ns, sample.mono_ns) {
                    return;
                }
                (HeldKind::Sample, sample.mono_ns)
            }
            FrameKind::Gap => match Gap::decode(reader.payload(at)) {
                Some(gap) if wants(gap.source) => {
                    let offset_ns = header.clocks.wall_offset_ns();
                    let wall_ns = offset_ns.wrapping_add_unsigned(gap.before_mono_ns);
                    if !self.wants_time(wall_ns, gap.before_mono_ns) {
                        return;
                    }
                    (HeldKind::Gap, gap.after_mono_ns)
                }
                _ => return,
            },
            FrameKind::Attachment if !self.has_attachments => (HeldKind::Attachment, 0),
            FrameKind::ClockSync => match ClockSync::decode(reader.payload(at)) {
                Some(sync) => (HeldKind::ClockSync, sync.clocks.mono_ns),
                None => return,
            },
            FrameKind::Marker => match Marker::decode(reader.payload(at)) {
                Some(marker) if self.wants_time(marker.wall_ns, marker.mono_ns) => {
                    (HeldKind::Marker, marker.mono_ns)
                }
                _ => return,
            },
            _ => return,
        };
        let mut frame = self.free_buffers.pop().unwrap_or_default();
        frame.clear();
        reader.copy_frame(at, &mut frame);
        let header_bytes = frame.len() - reader.payload(at).len();
        self.held_bytes += frame.len();
        self.arrivals += 1;
        self.held.push(Reverse(HeldFrame { mono_ns, arrival: self.arrivals, kind, frame, header_bytes }));
    }
}

/// Returns a frame with this payload, which is an encoded header or descriptor.
fn framed(checksum: ChecksumKind, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(checksum.frame_bytes(payload.len()));
    // A header read from a file is far shorter than 4 GiB, and writing to a vector cannot fail.
    checksum.frame_and_write(&mut frame, payload).expect("a header has a limit");
    frame
}
