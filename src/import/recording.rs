//! Frames of an import on their way into segments: numbered, stamped, framed, written in large pieces.

use std::io;

use super::batch::Batch;
use super::error::ImportError;
use super::run_clock::RunClock;
use crate::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
use crate::os::clock::{ClockReading, NS_PER_S};
use crate::os::host::{HostIdentity, HostRoot, random_u64};
use crate::os::storage::Storage;
use crate::schema::segment::GapCause;
use crate::segment::{
    ClockCause, ClockSync, Gap, Header, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use crate::stream::ChecksumKind;

/// Bytes behind which an Index frame is written, as a recorder does (docs/FORMAT.md, section 5).
const INDEX_BYTES: u64 = 4 << 20;
/// A segment takes room in so many steps. Fewer than the writer would take by itself: the kernel looks at all of a file on tmpfs in each,
/// which at a step a megabyte cost four times the rest of an import.
const RESERVE_STEPS: u64 = 4;
/// Most sources in one import.
const SOURCES_MAX: usize = 1024;

/// What is the same in all segments of an import.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Size at which a segment is sealed, in bytes.
    pub segment_bytes: u64,
    /// Longest payload of a telemetry frame, envelope included, in bytes.
    pub frame_max: u32,
}

/// A source as an importer describes it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Keys and values that tell it from others of its kind.
    pub labels: Vec<(String, String)>,
    /// Full name of its payload's root table; empty for opaque payloads.
    pub root: String,
    /// Binary schema of its payload; empty for opaque payloads.
    pub schema: Vec<u8>,
}

/// What was written.
#[derive(Debug, Default)]
pub struct Written {
    /// One a source, in the order of ids.
    pub sources: Vec<WrittenSource>,
    /// Segments, all sealed and published.
    pub segments: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// What was written of one source.
#[derive(Debug, Clone, Default)]
pub struct WrittenSource {
    /// Its name.
    pub name: String,
    /// Frames in the segments.
    pub recorded: u64,
    /// Numbers that are in gaps.
    pub lost: u64,
}

/// A run that is written by an importer. Without [`finish`](Self::finish) the last segment stays as a killed recorder would leave it.
#[derive(Debug)]
pub struct Recording<'s> {
    storage: &'s dyn Storage,
    plan: Plan,
    header: Header, // of the next segment
    next_number: u64,
    writer: Option<SegmentWriter>, // from the first frame on
    clock: RunClock,
    sources: Vec<SourceState>,
    batch: Batch,
    written: Written,
}

#[derive(Debug)]
struct SourceState {
    envelope: Envelope,
    next_seq: u64,
    last_mono_ns: u64,
    skipped: u64, // numbers in front of next_seq that no gap tells yet
    causes: u32,
}

impl<'s> Recording<'s> {
    /// A run in this storage. Nothing is written before the first frame.
    ///
    /// # Errors
    /// [`ImportError::Write`]: the storage cannot be listed, or has shown the last number that a segment can have.
    pub fn begin(storage: &'s dyn Storage, plan: Plan) -> Result<Self, ImportError> {
        let entries = storage.entries().map_err(ImportError::Write)?;
        let next_number = SegmentName::number_behind(entries.iter().map(|entry| entry.name.as_str()))
            .ok_or_else(|| ImportError::Write(io::ErrorKind::StorageFull.into()))?;
        let header = Header {
            segment: next_number,
            run_id: random_u64().map_err(ImportError::Write)?,
            // Of the boot nothing can be said: the times are not this host's.
            host: HostIdentity { boot_id: None, ..HostIdentity::read(&HostRoot::new("/")) },
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: ChecksumKind::Xxh3,
            frame_max: plan.frame_max,
            clocks: ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: 0 },
            reorder_window_ns: 0,
            sources: Vec::new(),
            clock_table: Vec::new(),
        };
        Ok(Self {
            storage,
            plan,
            header,
            next_number,
            writer: None,
            clock: RunClock::default(),
            sources: Vec::new(),
            batch: Batch::new(),
            written: Written::default(),
        })
    }

    /// One more source; its id.
    ///
    /// # Errors
    /// Too many of them, or its description cannot be written.
    pub fn add_source(&mut self, source: Source) -> Result<u16, ImportError> {
        let too_many = || ImportError::Sources { limit: SOURCES_MAX };
        if self.sources.len() >= SOURCES_MAX {
            return Err(too_many());
        }
        let id = u16::try_from(self.sources.len()).map_err(|_| too_many())?;
        self.written.sources.push(WrittenSource { name: source.name.clone(), ..WrittenSource::default() });
        let info = SourceInfo {
            id,
            name: source.name,
            labels: source.labels,
            kind: SourceKind::Imported,
            period_ns: 0,
            root: source.root,
            schema: source.schema,
            next_seq: 0,
        };
        self.sources.push(SourceState {
            envelope: Envelope::new(id),
            next_seq: 0,
            last_mono_ns: 0,
            skipped: 0,
            causes: 0,
        });
        if self.writer.is_some() {
            self.flush()?;
        }
        if let Some(writer) = &mut self.writer {
            writer.append_source(info.clone()).map_err(ImportError::Write)?;
        }
        self.header.sources.push(info);
        Ok(id)
    }

    /// Whether a payload of so many bytes may be a frame.
    #[inline]
    pub fn takes(&self, payload_bytes: usize) -> bool {
        payload_bytes.checked_add(ENVELOPE_BYTES).is_some_and(|bytes| bytes <= self.plan.frame_max as usize)
    }

    /// Frames recorded so far.
    pub fn frames(&self) -> u64 {
        self.written.sources.iter().map(|source| source.recorded).sum()
    }

    /// Records one frame of a source: its payload of `payload_bytes` is written by `fill` into zeros or older bytes, all of which it must
    /// overwrite. `wall_ns` is when, in nanoseconds since 1970, UTC; 0 where nobody knows.
    ///
    /// # Errors
    /// [`ImportError::Write`].
    ///
    /// # Panics
    /// No such source, or a payload that it does not [take](Self::takes): mistakes of the caller.
    #[inline]
    pub fn append(
        &mut self,
        source: u16,
        wall_ns: i64,
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), ImportError> {
        assert!(self.takes(payload_bytes), "the frame limit was met before");
        let frame_bytes = self.header.checksum.frame_bytes(ENVELOPE_BYTES + payload_bytes);
        if !self.batch.has_room(frame_bytes) {
            self.flush()?;
        }
        if self.writer.is_none() || !self.clock.keeps(wall_ns) {
            self.pair_clocks(wall_ns)?;
        }
        let mono_ns = self.clock.mono_ns(wall_ns);
        let state = self.sources.get_mut(usize::from(source)).expect("a source of this recording");
        if state.skipped > 0 {
            self.close_gap(source, mono_ns)?;
        }
        let state = self.sources.get_mut(usize::from(source)).expect("a source of this recording");
        let seq = state.next_seq;
        state.next_seq += 1;
        state.last_mono_ns = mono_ns;
        let stamp = Stamp { mono_ns, wall_ns, seq, shortfall: Shortfall::NONE, duration_ns: 0 };
        let head_bytes = frame_bytes - ENVELOPE_BYTES - payload_bytes;
        let (frame, head) = self.batch.place(frame_bytes, head_bytes);
        let (_, body) = frame.split_at_mut(head_bytes);
        let (envelope, payload) = body.split_at_mut(ENVELOPE_BYTES);
        state.envelope.begin(envelope, payload_bytes, &stamp);
        fill(payload);
        self.header.checksum.seal_with_copy(frame, head).expect("the frame limit is a u32");
        self.batch.count(source, &stamp);
        if let Some(written) = self.written.sources.get_mut(usize::from(source)) {
            written.recorded += 1;
        }
        Ok(())
    }

    /// Numbers of a source that are not in the input: `count` of them are passed over, and become part of one Gap in front of its next
    /// frame.
    ///
    /// # Panics
    /// No such source: a mistake of the caller.
    pub fn skip(&mut self, source: u16, count: u64, cause: GapCause) {
        let state = self.sources.get_mut(usize::from(source)).expect("a source of this recording");
        // Numbers that a damaged input claims are beyond counting.
        let count = count.min(u64::MAX / 2 - state.next_seq.min(u64::MAX / 2));
        state.skipped += count;
        state.next_seq += count;
        if count > 0 {
            // What took nothing is no cause of the next gap.
            state.causes |= cause.bits();
        }
    }

    /// Writes what is left, seals and publishes the last segment.
    ///
    /// # Errors
    /// [`ImportError::Write`].
    pub fn finish(mut self) -> Result<Written, ImportError> {
        self.flush()?;
        let end_ns = self.clock.now().mono_ns;
        for source in 0..self.sources.len() {
            // A recording of nothing has no gaps either.
            if self.writer.is_some() {
                self.close_gap(u16::try_from(source).unwrap_or(u16::MAX), end_ns)?;
            }
        }
        if let Some(writer) = self.writer.take() {
            self.publish(writer).map_err(ImportError::Write)?;
        }
        Ok(self.written)
    }

    /// The clocks from this moment on: at the first frame, and where the foreign clock stepped back.
    #[cold]
    fn pair_clocks(&mut self, wall_ns: i64) -> Result<(), ImportError> {
        self.flush()?;
        let is_first = self.writer.is_none();
        let clocks = self.clock.pair(wall_ns, is_first);
        match &mut self.writer {
            None => {
                self.header.clock_table = vec![clocks];
                self.writer = Some(self.create().map_err(ImportError::Write)?);
            }
            Some(writer) => {
                self.header.add_clocks(clocks);
                let sync = ClockSync { clocks, cause: ClockCause::Stepped };
                writer.append_clock_sync(&sync).map_err(ImportError::Write)?;
            }
        }
        Ok(())
    }

    /// Writes the gap in front of a source's next frame, if there is one.
    #[cold]
    fn close_gap(&mut self, source: u16, before_mono_ns: u64) -> Result<(), ImportError> {
        // What is in the batch goes first; and a segment that this ends, and the one it begins, do not know the gap yet.
        self.flush()?;
        let Some(state) = self.sources.get_mut(usize::from(source)).filter(|state| state.skipped > 0) else {
            return Ok(());
        };
        let gap = Gap {
            source,
            first: state.next_seq - state.skipped,
            count: state.skipped,
            causes: std::mem::take(&mut state.causes),
            after_mono_ns: state.last_mono_ns,
            before_mono_ns,
        };
        state.skipped = 0;
        if let Some(written) = self.written.sources.get_mut(usize::from(source)) {
            written.lost += gap.count;
        }
        let writer = self.writer.as_mut().expect("there was a frame, or its clocks");
        writer.append_gaps(&[gap]).map_err(ImportError::Write)
    }

    /// Writes the batch; ends an interval and a segment that are long enough.
    #[cold]
    fn flush(&mut self) -> Result<(), ImportError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let writer = self.writer.as_mut().expect("there is one from the first frame on");
        let result = self.batch.write(writer);
        self.batch.clear();
        match result.and_then(|()| self.keep_up()) {
            Ok(()) => Ok(()),
            Err(error) => {
                // What is there is sealed, if that is possible; after a write that failed half way it is not.
                if error.kind() == io::ErrorKind::StorageFull
                    && let Some(writer) = self.writer.take()
                {
                    let _best_effort = self.publish(writer);
                }
                Err(ImportError::Write(error))
            }
        }
    }

    fn keep_up(&mut self) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if writer.unindexed_bytes().is_some_and(|bytes| bytes >= INDEX_BYTES) {
            writer.append_index(0)?;
        }
        if writer.bytes() >= self.plan.segment_bytes {
            let next = self.create()?;
            if let Some(full) = self.writer.replace(next) {
                self.publish(full)?;
            }
        }
        Ok(())
    }

    fn create(&mut self) -> io::Result<SegmentWriter> {
        let header = &mut self.header;
        header.segment = self.next_number;
        header.clocks = self.clock.now();
        for (info, state) in header.sources.iter_mut().zip(&self.sources) {
            // What was skipped is told by a gap in this segment.
            info.next_seq = state.next_seq - state.skipped;
        }
        let name = SegmentName {
            number: self.next_number,
            created_s: ClockReading::now().wall_ns.div_euclid(NS_PER_S.cast_signed()),
            run_id: header.run_id,
            state: crate::segment::State::Active,
        };
        self.next_number = SegmentName::next_number(self.next_number).ok_or(io::ErrorKind::StorageFull)?;
        let step = self.plan.segment_bytes / RESERVE_STEPS;
        SegmentWriter::create(self.storage, name, header.clone(), &[], step)
    }

    fn publish(&mut self, writer: SegmentWriter) -> io::Result<()> {
        let sealed = writer.seal()?;
        sealed.publish(self.storage)?;
        self.written.segments += 1;
        self.written.bytes += sealed.bytes();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::storage::DataDirectory;
    use crate::segment::{Advance, FrameKind, Verdict, Verification, list};

    fn opaque(name: &str) -> Source {
        Source { name: name.to_owned(), labels: Vec::new(), root: String::new(), schema: Vec::new() }
    }

    /// Source, number, wall time and payload of a frame.
    type Sample = (u16, u64, i64, Vec<u8>);

    /// What stands in the segments of a directory, frame by frame, with its monotonic times, and what a verification says of it.
    fn read(directory: &DataDirectory) -> (Vec<Sample>, Vec<u64>, Verdict) {
        let (mut frames, mut monos, mut verification) = (Vec::new(), Vec::new(), Verification::default());
        for listing in list(&[directory.path().to_owned()]).unwrap() {
            let mut reader = listing.open().unwrap().unwrap();
            assert!(reader.is_sealed());
            verification.segment(&mut reader, false, &mut |_| {}).unwrap();
            let mut reader = listing.open().unwrap().unwrap();
            while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
                if let Some(sample) = reader.telemetry(at).filter(|_| at.kind == FrameKind::Telemetry) {
                    frames.push((sample.source, sample.seq, sample.wall_ns, sample.payload.to_vec()));
                    monos.push(sample.mono_ns);
                }
            }
        }
        (frames, monos, verification.finish())
    }

    // Goal: what was appended stands in the segments, numbered behind what was skipped, whatever the foreign clock does. Method: a random
    // course of three sources, one of which comes later, over many segments; holes of all sizes, times before 1970, clocks set back.
    #[test]
    fn what_was_appended_stands_in_the_segments() {
        for seed in 1..6_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut random = move |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let folder = tempfile::tempdir().unwrap();
            let directory = DataDirectory::open(folder.path()).unwrap();
            let plan = Plan { segment_bytes: 300 << 10, frame_max: 1 << 20 };
            let mut recording = Recording::begin(&directory, plan).unwrap();
            let mut next = vec![0; 2];
            recording.add_source(opaque("a")).unwrap();
            recording.add_source(opaque("b")).unwrap();
            let mut wall_ns = if seed % 3 == 0 { -5_000_000_000 } else { 1_700_000_000_000_000_000 };
            let mut expected = Vec::new();
            let mut lost = 0;
            for step in 0..3000 {
                if step == 1000 {
                    assert_eq!(recording.add_source(opaque("late")).unwrap(), 2);
                    next.push(0);
                }
                wall_ns += i64::try_from(random(1_000_000)).unwrap();
                match random(300) {
                    0 => wall_ns -= 3_600_000_000_000,
                    1..10 => wall_ns -= 40_000_000,
                    10 => wall_ns += 86_400_000_000_000,
                    _ => {}
                }
                let source = u16::try_from(random(next.len() as u64)).unwrap();
                let next = &mut next[usize::from(source)];
                if random(20) == 0 {
                    let count = 1 + random(1000);
                    recording.skip(source, count, GapCause::NotReceived);
                    *next += count;
                    lost += count;
                }
                let length = if random(100) == 0 { random(700_000) } else { random(300) };
                let length = usize::try_from(length).unwrap();
                let byte = u8::try_from(random(256)).unwrap();
                recording.append(source, wall_ns, length, |payload| payload.fill(byte)).unwrap();
                expected.push((source, *next, wall_ns, vec![byte; length]));
                *next += 1;
            }
            assert_eq!(recording.frames(), 3000);
            let written = recording.finish().unwrap();
            let (frames, monos, verdict) = read(&directory);
            let other = frames.iter().zip(&expected).position(|(one, other)| one != other);
            assert_eq!((frames.len(), other), (expected.len(), None), "seed {seed}");
            assert!(monos.is_sorted(), "monotonic");
            assert!(verdict.is_intact() && verdict.unexplained() == 0, "seed {seed}: {verdict:?}");
            assert_eq!(verdict.lost(), lost);
            assert_eq!(written.sources.iter().map(|source| source.lost).sum::<u64>(), lost);
            assert!(written.segments > 10);
        }
    }

    // Goal: neighbouring holes are one Gap, the last one too, and a recording of nothing leaves nothing. Method: skips behind one another
    // around one frame; none at all.
    #[test]
    fn neighbouring_holes_are_one_gap() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path()).unwrap();
        let plan = Plan { segment_bytes: 1 << 20, frame_max: 1 << 20 };
        let mut recording = Recording::begin(&directory, plan.clone()).unwrap();
        let source = recording.add_source(opaque("a")).unwrap();
        recording.skip(source, 3, GapCause::NotReceived);
        recording.skip(source, 4, GapCause::Damaged);
        recording.append(source, 50, 2, |payload| payload.copy_from_slice(b"ab")).unwrap();
        recording.skip(source, 5, GapCause::NotReceived);
        recording.skip(source, u64::MAX, GapCause::NotReceived);
        recording.finish().unwrap();
        let mut gaps = Vec::new();
        for listing in list(&[folder.path().to_owned()]).unwrap() {
            let mut reader = listing.open().unwrap().unwrap();
            while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
                if at.kind == FrameKind::Gap {
                    gaps.extend(
                        Gap::decode(reader.payload(at)).map(|gap| (gap.first, gap.count, gap.causes)),
                    );
                }
            }
        }
        let both = (GapCause::NotReceived | GapCause::Damaged).bits();
        assert_eq!((gaps.len(), gaps[0]), (2, (0, 7, both)));
        assert_eq!((gaps[1].0, gaps[1].2), (8, GapCause::NotReceived.bits()));

        let nothing = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(nothing.path()).unwrap();
        let mut recording = Recording::begin(&directory, plan).unwrap();
        let source = recording.add_source(opaque("a")).unwrap();
        recording.skip(source, 9, GapCause::NotReceived);
        assert_eq!(recording.finish().unwrap().segments, 0);
        assert!(list(&[nothing.path().to_owned()]).unwrap().is_empty());
    }
}
