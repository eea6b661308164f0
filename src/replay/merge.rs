//! Frames of many segments in the order of their time.
//!
//! Within a segment frames of different sources step back in time by at most the reorder window, so a frame is given
//! out once a frame that much younger has been seen. Memory is bounded by the frames of one window.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;

use super::filter::Filter;
use super::item::{Item, Notice, Sample};
use crate::segment::{
    Advance, ClockSync, Damage, FrameKind, Gap, Header, Marker, SegmentError, SegmentReader, Selected,
    SourceInfo, Start, State, Telemetry, list, select,
};
use crate::stream::{ChecksumKind, Framer};

/// Most frames held back; beyond it the oldest goes out, so that a wrong window cannot take the memory.
const HELD_FRAMES_MAX: usize = 1 << 20;
/// Most bytes held back, likewise.
const HELD_BYTES_MAX: usize = 256 << 20;

/// For how many refreshes without anything new the segment of a killed run is waited for: the next run completes it, with what was rescued.
const RECOVERY_REFRESHES: u64 = 100;

/// Reads segments one after the other and gives their frames out in the order of time.
#[derive(Debug)]
pub struct MergedReader {
    paths: Vec<PathBuf>,
    filter: Filter,
    waiting: VecDeque<Selected>,
    last_numbers: BTreeMap<(usize, u64), u64>, // seen, by place in `paths` and run
    current: Option<SegmentReader>,
    is_live: bool,
    end: Option<End>,         // of what is wanted in the current segment
    has_ended: bool,          // the current segment's trailer has been read
    looks: u64,               // for segments; the first one finds those that are there, later ones follow
    waits_since: Option<u64>, // look at which a later run was seen behind the current segment
    header: Option<(Header, Vec<u8>)>,
    next_run: Option<(Header, Vec<u8>)>, // given out once nothing of the run before is held
    new_sources: VecDeque<(SourceInfo, Vec<u8>)>, // of the run that is given out
    given_source: Option<(SourceInfo, Vec<u8>)>,
    takes_attachments: bool,        // each segment of a run begins with the same
    elapsed_ns: Option<Range<u64>>, // wanted, by the clock of the run that is read
    window_ns: u64,
    newest_ns: u64,
    arrivals: u64,
    held: BinaryHeap<Reverse<Held>>,
    held_bytes: usize,
    given: Vec<u8>,
    free: Vec<Vec<u8>>, // buffers to be used again
}

/// A frame that waits for its turn. Ordered by time, then by arrival: frames of one source keep their order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    mono_ns: u64,
    arrival: u64,
    kind: HeldKind,
    frame: Vec<u8>,
    header_bytes: usize,
}

/// Where what is wanted of a segment ends: at the first sample that both of these are passed at.
#[derive(Debug, Clone, Copy)]
struct End {
    mono_ns: u64,
    offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum HeldKind {
    Sample,
    Gap,
    Attachment,
    ClockSync,
    Marker,
}

/// What reading on has brought.
enum Step {
    On,
    Notice(Notice),
    End,
}

impl MergedReader {
    /// A reader of every segment that `paths` name.
    ///
    /// # Errors
    /// `Io` for a path that is missing or unreadable.
    pub fn open(paths: &[PathBuf], filter: Filter) -> Result<Self, SegmentError> {
        let mut reader = Self {
            paths: paths.to_vec(),
            filter,
            waiting: VecDeque::new(),
            last_numbers: BTreeMap::new(),
            current: None,
            is_live: false,
            end: None,
            has_ended: false,
            looks: 0,
            waits_since: None,
            header: None,
            next_run: None,
            new_sources: VecDeque::new(),
            given_source: None,
            takes_attachments: true,
            elapsed_ns: None,
            window_ns: 0,
            newest_ns: 0,
            arrivals: 0,
            held: BinaryHeap::new(),
            held_bytes: 0,
            given: Vec::new(),
            free: Vec::new(),
        };
        reader.refresh()?;
        Ok(reader)
    }

    /// Looks for segments that have come since, to follow a recording at work. Segments are read one after the other: to follow recordings in
    /// several directories, open a reader for each.
    ///
    /// # Errors
    /// `Io` for a path that is missing or unreadable.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        let is_first = self.looks == 0;
        self.looks += 1;
        let mut new = Vec::new();
        for (place, path) in self.paths.iter().enumerate() {
            // What is named as a file is read to its end; another name that it gets is no other segment.
            if !is_first && !path.is_dir() {
                continue;
            }
            for listing in list(std::slice::from_ref(path))? {
                let Some(name) = listing.name else {
                    new.push(listing);
                    continue;
                };
                let last = self.last_numbers.get(&(place, name.run_id)).copied();
                if last.is_none_or(|last| name.number > last) {
                    self.last_numbers.insert((place, name.run_id), name.number);
                    new.push(listing);
                }
            }
        }
        let Filter { since_ns, until_ns, elapsed, .. } = &self.filter;
        self.waiting.extend(select(new, *since_ns, *until_ns, elapsed.as_ref()));
        Ok(())
    }

    /// Whether the segment being read is one that a recorder may still append to.
    pub fn is_live(&self) -> bool {
        self.current.is_some() && self.is_live && !self.has_ended
    }

    /// What comes next; none at the end. After [`refresh`](Self::refresh), or when the last segment has grown, the
    /// question may be asked again.
    ///
    /// # Errors
    /// `Io`.
    #[allow(clippy::should_implement_trait, reason = "the item borrows the reader: no Iterator can give it")]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, SegmentError> {
        loop {
            if self.next_run.is_none()
                && let Some((source, frame)) = self.new_sources.pop_front()
            {
                if let Some((header, _)) = &mut self.header {
                    header.sources.push(source.clone());
                }
                let (source, frame) = self.given_source.insert((source, frame));
                return Ok(Some(Item::Source(source, frame)));
            }
            if self.has_one_to_give() {
                return Ok(self.give());
            }
            if let Some(run) = self.next_run.take() {
                self.newest_ns = 0;
                let (header, frame) = self.header.insert(run);
                self.window_ns = self.window_ns.max(header.reorder_window_ns);
                return Ok(Some(Item::Header(header, frame)));
            }
            match self.read_on()? {
                Step::On => {}
                Step::Notice(notice) => return Ok(Some(Item::Notice(notice))),
                Step::End if self.held.is_empty() => return Ok(None),
                Step::End => return Ok(self.give()),
            }
        }
    }

    fn has_one_to_give(&self) -> bool {
        let Some(Reverse(oldest)) = self.held.peek() else { return false };
        self.next_run.is_some()
            || oldest.mono_ns.saturating_add(self.window_ns) < self.newest_ns
            || self.held.len() > HELD_FRAMES_MAX
            || self.held_bytes > HELD_BYTES_MAX
    }

    fn give(&mut self) -> Option<Item<'_>> {
        let Reverse(held) = self.held.pop()?;
        self.held_bytes -= held.frame.len();
        self.free.push(std::mem::replace(&mut self.given, held.frame));
        let payload = self.given.get(held.header_bytes..).unwrap_or_default();
        // Read once before it was held, so both can be read again.
        match held.kind {
            HeldKind::Sample => {
                Some(Item::Sample(Sample { telemetry: Telemetry::read(payload)?, frame: &self.given }))
            }
            HeldKind::Gap => Some(Item::Gap(Gap::decode(payload)?, &self.given)),
            HeldKind::Attachment => Some(Item::Other(FrameKind::Attachment, &self.given)),
            HeldKind::ClockSync => Some(Item::Other(FrameKind::ClockSync, &self.given)),
            HeldKind::Marker => Some(Item::Marker(Marker::decode(payload)?, &self.given)),
        }
    }

    /// Reads one frame on, or goes on to the next segment.
    fn read_on(&mut self) -> Result<Step, SegmentError> {
        let Some(reader) = &mut self.current else {
            let Some(selected) = self.waiting.front() else { return Ok(Step::End) };
            return Ok(match selected.listing.open() {
                Ok(Some(reader)) => self.begin(reader),
                Ok(None) => return Ok(Step::End),
                Err(error) => {
                    self.waiting.pop_front();
                    Step::Notice(Notice::Unreadable(error))
                }
            });
        };
        match reader.advance()? {
            Some(Advance::Damage(damage)) => {
                Ok(Step::Notice(Notice::Damaged(reader.path().to_owned(), damage)))
            }
            Some(Advance::Frame(at)) => {
                self.waits_since = None;
                match at.kind {
                    FrameKind::Trailer => self.has_ended = true,
                    // A stream of several runs, as a replay makes it.
                    FrameKind::Header if at.offset > 0 => {
                        let mut frame = Vec::new();
                        reader.copy_frame(at, &mut frame);
                        let header = reader.header().clone();
                        self.elapsed_ns =
                            self.filter.elapsed.as_ref().map(|elapsed| elapsed.mono_ns(&header));
                        self.next_run = Some((header, frame));
                        self.takes_attachments = true;
                    }
                    FrameKind::Descriptor => {
                        let header = reader.header().clone();
                        self.learn(&header);
                    }
                    _ if self.is_behind(at) => self.current = None,
                    _ => self.hold(at),
                }
                Ok(Step::On)
            }
            None => {
                if let Some(offset) = self.is_live.then(|| reader.go_back_if_cut()).flatten() {
                    return Ok(Step::Notice(Notice::TakenBack(reader.path().to_owned(), offset)));
                }
                let torn = reader.tail().filter(|_| !self.is_live);
                let notice = torn.map(|tail| Notice::Torn(reader.path().to_owned(), tail));
                if self.is_live()
                    && let Some(step) = self.stay()
                {
                    return Ok(step);
                }
                self.current = None;
                Ok(notice.map_or(Step::On, Step::Notice))
            }
        }
    }

    /// Whether more may come in the segment being read, at whose end reading is: what to do then; none if it is over.
    fn stay(&mut self) -> Option<Step> {
        let Some(next) = self.waiting.front() else { return Some(Step::End) };
        match next.listing.open() {
            Ok(None) => Some(Step::End),
            // It could not be begun, and the one before goes on.
            Err(SegmentError::Io { error, .. }) if error.kind() == ErrorKind::NotFound => {
                self.waiting.pop_front();
                Some(Step::On)
            }
            Ok(Some(next)) => {
                let is_of_run = |reader: &SegmentReader| reader.header().run_id == next.header().run_id;
                if self.looks <= 1 || self.current.as_ref().is_none_or(is_of_run) {
                    return None;
                }
                let since = *self.waits_since.get_or_insert(self.looks);
                if self.looks - since < RECOVERY_REFRESHES {
                    return Some(Step::End);
                }
                let passed_over = self.current.take()?;
                Some(Step::Notice(Notice::PassedOver(passed_over.path().to_owned())))
            }
            Err(_) => None,
        }
    }

    /// Starts with a segment.
    fn begin(&mut self, mut reader: SegmentReader) -> Step {
        let Some(Selected { listing, mono_ns }) = self.waiting.pop_front() else { return Step::End };
        if !self.overlaps(&reader) {
            return Step::On;
        }
        self.end =
            mono_ns.as_ref().map(|range| End { mono_ns: range.end, offset: reader.end_of_time(range.end) });
        // Who follows waits for the next run to complete what a killed one has left.
        let is_active = listing.name.is_some_and(|name| name.state == State::Active);
        let is_live = listing.live || (self.looks > 1 && is_active);
        reader.want_fields(&self.filter.sources, &self.filter.fields);
        let header = reader.header().clone();
        let frame = match reader.advance() {
            Ok(Some(Advance::Frame(at))) if at.kind == FrameKind::Header => {
                let mut frame = Vec::new();
                reader.copy_frame(at, &mut frame);
                frame
            }
            Ok(Some(Advance::Damage(damage))) => {
                // The footer's copy has replaced the header. Framed anew, it is what was written.
                self.start(reader, is_live, header.clone(), framed(header.checksum, &header.encode()));
                return self.damaged(damage);
            }
            _ => framed(header.checksum, &header.encode()),
        };
        if let Some(range) = mono_ns {
            reader.seek_time(range.start);
        }
        if let Some(since_ns) = self.filter.since_ns {
            reader.leave_out_before(since_ns);
        }
        self.start(reader, is_live, header, frame);
        Step::On
    }

    fn start(&mut self, reader: SegmentReader, is_live: bool, header: Header, frame: Vec<u8>) {
        self.elapsed_ns = self.filter.elapsed.as_ref().map(|elapsed| elapsed.mono_ns(&header));
        // Sources that the header lacks: a reading that begins further on, or a damaged descriptor, would miss them.
        let footer = reader.footer().map(|footer| footer.header.clone());
        self.is_live = is_live;
        self.has_ended = false;
        self.waits_since = None;
        self.window_ns = reader.footer().map_or(header.reorder_window_ns, |footer| footer.reorder_window_ns);
        self.current = Some(reader);
        self.takes_attachments = self.header.as_ref().is_none_or(|(last, _)| last.run_id != header.run_id);
        if self.takes_attachments {
            self.next_run = Some((header, frame));
        } else {
            self.learn(&header);
        }
        if let Some(footer) = footer {
            self.learn(&footer);
        }
    }

    /// Gives out the descriptors that this header has and the run's first one had not.
    fn learn(&mut self, header: &Header) {
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

    fn damaged(&self, damage: Damage) -> Step {
        let path = self.current.as_ref().map(|reader| reader.path().to_owned());
        Step::Notice(Notice::Damaged(path.unwrap_or_default(), damage))
    }

    /// Whether a sealed segment may hold anything in the wanted range of time.
    fn overlaps(&self, reader: &SegmentReader) -> bool {
        let Some(footer) = reader.footer() else { return true };
        let elapsed_ns = self.filter.elapsed.as_ref().map(|elapsed| elapsed.mono_ns(reader.header()));
        // Not the totals: of a source whose clock was set its first and last wall times are no bounds.
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

    /// Whether nothing that is wanted can follow in this segment: all intervals with samples of the wanted time have been read, and this
    /// sample is from after it.
    fn is_behind(&self, at: crate::segment::FrameAt) -> bool {
        let (Some(end), Some(reader)) = (&self.end, &self.current) else { return false };
        at.kind == FrameKind::Telemetry
            && at.offset >= end.offset
            && reader.telemetry(at).is_some_and(|sample| sample.mono_ns >= end.mono_ns)
    }

    /// Whether a time in the segment that is read is wanted, by both clocks.
    fn wants_time(&self, wall_ns: i64, mono_ns: u64) -> bool {
        self.filter.wants_wall(wall_ns)
            && self.elapsed_ns.as_ref().is_none_or(|elapsed| elapsed.contains(&mono_ns))
    }

    /// Holds a frame until its turn, if it is wanted.
    fn hold(&mut self, at: crate::segment::FrameAt) {
        let Some(reader) = &self.current else { return };
        let header = reader.header();
        let wants =
            |source| header.source(source).is_some_and(|source| self.filter.wants_source(&source.name));
        let (kind, mono_ns) = match at.kind {
            FrameKind::Telemetry => {
                let Some(sample) = reader.telemetry(at) else { return };
                // One that is not wanted tells the time as well: those that are need not wait for another of their own.
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
            FrameKind::Attachment if self.takes_attachments => (HeldKind::Attachment, 0),
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
        let mut frame = self.free.pop().unwrap_or_default();
        frame.clear();
        reader.copy_frame(at, &mut frame);
        let header_bytes = frame.len() - reader.payload(at).len();
        self.held_bytes += frame.len();
        self.arrivals += 1;
        self.held.push(Reverse(Held { mono_ns, arrival: self.arrivals, kind, frame, header_bytes }));
    }
}

/// A header or a descriptor as a whole frame.
fn framed(checksum: ChecksumKind, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(checksum.frame_bytes(payload.len()));
    // A header read from a file is far below 4 GiB, and a vector takes everything.
    checksum.frame_and_write(&mut frame, payload).expect("a header has a limit");
    frame
}

/// The first sample of a recording; none without samples.
pub(crate) fn first_sample(
    paths: &[PathBuf],
    sources: &BTreeSet<String>,
) -> Result<Option<Start>, SegmentError> {
    let filter = Filter { sources: sources.clone(), ..Filter::default() };
    let mut reader = MergedReader::open(paths, filter)?;
    let mut run = None;
    while let Some(item) = reader.next()? {
        match item {
            Item::Header(header, _) => run = Some((header.run_id, header.host.boot_id.clone())),
            Item::Sample(sample) => {
                let (run_id, boot_id) = run.unwrap_or_default();
                let Telemetry { mono_ns, wall_ns, .. } = sample.telemetry;
                return Ok(Some(Start { run_id, boot_id, mono_ns, wall_ns }));
            }
            _ => {}
        }
    }
    Ok(None)
}
