//! Writes an import as a run. The writer numbers, stamps and frames the payloads, and writes the
//! frames to segments in large batches.

use std::io;

use flatcap_format::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
use flatcap_format::host::{ClockReading, HostName};
use flatcap_format::schema::segment::GapCause;
use flatcap_format::segment::{
    ClockCause, ClockSync, Gap, SegmentHeader, SegmentName, SegmentWriter, SourceInfo, SourceKind,
};
use flatcap_format::storage::Storage;
use flatcap_os::clock::{NS_PER_S, read_clocks};
use flatcap_os::host::{HostRoot, host_name, random_u64};
use flatcap_stream::ChecksumKind;
use serde::Serialize;

use super::batch::FrameBatch;
use super::error::ImportError;
use super::run_clock::RunClock;

/// Interval of Index frames, in bytes, as in a recorder (docs/FORMAT.md, section 5).
const INDEX_BYTES: u64 = 4 << 20;
/// Number of steps in which a segment is preallocated. The number is lower than the writer's
/// default, because on tmpfs the kernel visits the whole file in each step. With one step per
/// megabyte, preallocation took four times as long as the rest of an import.
const PREALLOCATION_STEPS: u64 = 4;
/// Maximum number of sources in one import.
const SOURCES_MAX: usize = 1024;

/// Limits common to all segments of an import.
#[derive(Debug, Clone)]
pub struct ImportLimits {
    /// Size at which a segment is sealed, in bytes.
    pub segment_bytes: u64,
    /// Maximum length of a telemetry frame's payload including the envelope, in bytes.
    pub frame_max: u32,
}

/// A source, as described by an importer.
#[derive(Debug, Clone)]
pub struct ImportSource {
    /// Name.
    pub name: String,
    /// Keys and values that distinguish this source from similar sources.
    pub labels: Vec<(String, String)>,
    /// Full name of the payload's root table, or an empty string for opaque payloads.
    pub root: String,
    /// Binary schema of the payload, or empty for opaque payloads.
    pub schema: Vec<u8>,
}

/// Totals of an import.
#[derive(Debug, Default, Serialize)]
pub struct ImportTotals {
    /// One entry per source, in the order of ids.
    pub sources: Vec<ImportedSource>,
    /// Number of segments. All these segments are sealed and have their final names.
    pub segments: u64,
    /// Number of bytes in these segments.
    pub bytes: u64,
}

impl ImportTotals {
    /// Adds the totals of another run.
    pub(super) fn add(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.segments += other.segments;
        self.bytes += other.bytes;
    }
}

/// Totals of one source.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ImportedSource {
    /// Name.
    pub name: String,
    /// Number of frames in the segments.
    pub recorded: u64,
    /// Number of samples in gaps.
    pub lost: u64,
}

/// Writes a run of imported samples. Without a call of [`finish`](Self::finish) the last segment
/// stays unsealed, like the segment of a killed recorder.
#[derive(Debug)]
pub struct RunWriter<'s> {
    storage: &'s dyn Storage,
    limits: ImportLimits,
    header: SegmentHeader, // of the next segment
    next_number: u64,
    writer: Option<SegmentWriter>, // from the first frame on
    clock: RunClock,
    sources: Vec<ImportSourceState>,
    batch: FrameBatch,
    totals: ImportTotals,
}

#[derive(Debug)]
struct ImportSourceState {
    envelope: Envelope,
    next_seq: u64,
    last_mono_ns: u64,
    skipped: u64, // numbers before next_seq that are not in a gap yet
    causes: u32,
}

impl<'s> RunWriter<'s> {
    /// Begins a run in this storage. Writes nothing before the first frame.
    ///
    /// # Errors
    /// [`ImportError::Write`] if the storage cannot be listed, or if its segment numbers are
    /// exhausted.
    pub fn begin(storage: &'s dyn Storage, plan: ImportLimits) -> Result<Self, ImportError> {
        let entries = storage.entries().map_err(ImportError::Write)?;
        let next_number = SegmentName::next_free_number(entries.iter().map(|entry| entry.name.as_str()))
            .ok_or_else(|| ImportError::Write(io::ErrorKind::StorageFull.into()))?;
        let header = SegmentHeader {
            segment: next_number,
            run_id: random_u64().map_err(ImportError::Write)?,
            // The boot id is absent, because the times are not times of this host.
            host: HostName { boot_id: None, ..host_name(&HostRoot::new("/")) },
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            checksum: ChecksumKind::Xxh3,
            frame_max: plan.frame_max,
            clocks: ClockReading { mono_ns: 0, boot_ns: 0, wall_ns: 0 },
            reorder_window_ns: 0,
            sources: Vec::new(),
            clock_table: Vec::new(),
            recorder_pid: 0,
        };
        Ok(Self {
            storage,
            limits: plan,
            header,
            next_number,
            writer: None,
            clock: RunClock::default(),
            sources: Vec::new(),
            batch: FrameBatch::new(),
            totals: ImportTotals::default(),
        })
    }

    /// Sets the host from which the input comes. Must be called before the first frame.
    pub fn set_host(&mut self, host: HostName) {
        self.header.host = host;
    }

    /// Adds a source and returns its id.
    ///
    /// # Errors
    /// There are too many sources, or the source's description cannot be written.
    pub fn add_source(&mut self, source: ImportSource) -> Result<u16, ImportError> {
        let too_many = || ImportError::Sources { limit: SOURCES_MAX };
        if self.sources.len() >= SOURCES_MAX {
            return Err(too_many());
        }
        let id = u16::try_from(self.sources.len()).map_err(|_| too_many())?;
        self.totals.sources.push(ImportedSource { name: source.name.clone(), ..ImportedSource::default() });
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
        self.sources.push(ImportSourceState {
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
            writer.append_source(info.clone()).map_err(|error| self.fail(error))?;
        }
        self.header.sources.push(info);
        Ok(id)
    }

    /// Returns whether a payload of this length fits into a frame.
    #[inline]
    pub fn fits(&self, payload_bytes: usize) -> bool {
        payload_bytes.checked_add(ENVELOPE_BYTES).is_some_and(|bytes| bytes <= self.limits.frame_max as usize)
    }

    /// Returns the number of frames recorded so far.
    pub fn frames(&self) -> u64 {
        self.totals.sources.iter().map(|source| source.recorded).sum()
    }

    /// Records one sample. `fill` writes the payload of `payload_bytes` bytes. `fill` must
    /// overwrite the whole buffer, because the buffer may contain zeros or older bytes. `wall_ns`
    /// is the sample's time in nanoseconds since 1970, UTC, or 0 if the time is unknown.
    ///
    /// # Errors
    /// [`ImportError::Write`].
    ///
    /// # Panics
    /// Panics if the source does not exist or the payload does not [fit](Self::fits). Both are
    /// mistakes of the caller.
    #[inline]
    pub fn append(
        &mut self,
        source: u16,
        wall_ns: i64,
        payload_bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), ImportError> {
        assert!(self.fits(payload_bytes), "the frame limit was met before");
        let frame_bytes = self.header.checksum.frame_bytes(ENVELOPE_BYTES + payload_bytes);
        if !self.batch.fits(frame_bytes) {
            self.flush()?;
        }
        if self.writer.is_none() || !self.clock.is_continuous(wall_ns) {
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
        let stamp = Stamp { mono_ns, wall_ns, seq, incomplete: Incomplete::NONE, duration_ns: 0 };
        let head_bytes = frame_bytes - ENVELOPE_BYTES - payload_bytes;
        let (frame, head) = self.batch.reserve(frame_bytes, head_bytes);
        let (_, body) = frame.split_at_mut(head_bytes);
        let (envelope, payload) = body.split_at_mut(ENVELOPE_BYTES);
        state.envelope.begin(envelope, payload_bytes, &stamp);
        fill(payload);
        self.header.checksum.frame_in_place_with_copy(frame, head).expect("the frame limit is a u32");
        self.batch.count(source, &stamp);
        if let Some(written) = self.totals.sources.get_mut(usize::from(source)) {
            written.recorded += 1;
        }
        Ok(())
    }

    /// Skips `count` sample numbers of a source, because the input lacks these samples. The skipped
    /// samples become part of one Gap before the source's next frame.
    ///
    /// # Panics
    /// Panics if the source does not exist, which is a mistake of the caller.
    pub fn skip(&mut self, source: u16, count: u64, cause: GapCause) {
        let state = self.sources.get_mut(usize::from(source)).expect("a source of this recording");
        // A damaged input can claim any number, so the count is limited to prevent an overflow of
        // the sum.
        let count = count.min(u64::MAX / 2 - state.next_seq.min(u64::MAX / 2));
        state.skipped += count;
        state.next_seq += count;
        if count > 0 {
            // If nothing was lost, the cause must not be reported as a cause of the next gap.
            state.causes |= cause.bits();
        }
    }

    /// Writes the remaining frames, seals the last segment and gives the segment its final name.
    ///
    /// # Errors
    /// [`ImportError::Write`].
    pub fn finish(mut self) -> Result<ImportTotals, ImportError> {
        self.flush()?;
        let end_ns = self.clock.now().mono_ns;
        for source in 0..self.sources.len() {
            // A run without frames has no gaps either.
            if self.writer.is_some() {
                self.close_gap(u16::try_from(source).unwrap_or(u16::MAX), end_ns)?;
            }
        }
        if let Some(writer) = self.writer.take() {
            self.publish(writer).map_err(ImportError::Write)?;
        }
        Ok(self.totals)
    }

    /// Pairs the clocks at the first frame and after a backward step of the foreign clock.
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
                writer.append_clock_sync(&sync).map_err(|error| self.fail(error))?;
            }
        }
        Ok(())
    }

    /// Writes the gap before a source's next frame, if there is one.
    #[cold]
    fn close_gap(&mut self, source: u16, before_mono_ns: u64) -> Result<(), ImportError> {
        // The batch is written first. If this write ends a segment, the gap is not yet in that
        // segment, nor in the header of the next one.
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
        if let Some(written) = self.totals.sources.get_mut(usize::from(source)) {
            written.lost += gap.count;
        }
        let writer = self.writer.as_mut().expect("there was a frame, or its clocks");
        writer.append_gaps(&[gap]).map_err(|error| self.fail(error))
    }

    /// Writes the batch. Then writes an Index frame or seals the segment, if that is due.
    #[cold]
    fn flush(&mut self) -> Result<(), ImportError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let writer = self.writer.as_mut().expect("there is one from the first frame on");
        let result = self.batch.write(writer);
        self.batch.clear();
        result.and_then(|()| self.maintain()).map_err(|error| self.fail(error))
    }

    /// Handles an error of the storage. If the disk is full, seals the segment with the frames
    /// written so far. Any other failed write may be partial. The segment then stays unsealed, like
    /// the segment of a killed recorder.
    #[cold]
    fn fail(&mut self, error: io::Error) -> ImportError {
        let writer = self.writer.take().filter(|_| error.kind() == io::ErrorKind::StorageFull);
        if let Some(writer) = writer {
            let _best_effort = self.publish(writer);
        }
        ImportError::Write(error)
    }

    fn maintain(&mut self) -> io::Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if writer.unindexed_bytes().is_some_and(|bytes| bytes >= INDEX_BYTES) {
            writer.append_index(0)?;
        }
        if writer.bytes() >= self.limits.segment_bytes {
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
            // A gap in this segment will cover the skipped numbers.
            info.next_seq = state.next_seq - state.skipped;
        }
        let name = SegmentName {
            number: self.next_number,
            created_s: read_clocks().wall_ns.div_euclid(NS_PER_S.cast_signed()),
            run_id: header.run_id,
            state: flatcap_format::segment::SealState::Active,
        };
        self.next_number = SegmentName::next_number(self.next_number).ok_or(io::ErrorKind::StorageFull)?;
        let step = self.limits.segment_bytes / PREALLOCATION_STEPS;
        SegmentWriter::create(self.storage, name, header.clone(), &[], step)
    }

    fn publish(&mut self, writer: SegmentWriter) -> io::Result<()> {
        let sealed = writer.seal()?;
        sealed.publish(self.storage)?;
        self.totals.segments += 1;
        self.totals.bytes += sealed.bytes();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flatcap_format::segment::{Advance, FrameKind, Verification, VerificationReport, list};
    use flatcap_os::storage::DataDirectory;

    use super::*;

    fn opaque(name: &str) -> ImportSource {
        ImportSource { name: name.to_owned(), labels: Vec::new(), root: String::new(), schema: Vec::new() }
    }

    /// Source, number, wall time and payload of a frame.
    type WrittenSample = (u16, u64, i64, Vec<u8>);

    /// Returns the samples in the segments of a directory, their monotonic times, and the result of
    /// a verification.
    fn read(directory: &DataDirectory) -> (Vec<WrittenSample>, Vec<u64>, VerificationReport) {
        let (mut frames, mut monos, mut verification) = (Vec::new(), Vec::new(), Verification::default());
        for listing in list(&[directory.path().to_owned()]).unwrap() {
            let mut reader = listing.open().unwrap().unwrap();
            assert!(reader.is_sealed());
            verification.verify(&mut reader, false, &mut |_| {}).unwrap();
            let mut reader = listing.open().unwrap().unwrap();
            while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
                if let Some(sample) = reader.sample(at).filter(|_| at.kind == FrameKind::Telemetry) {
                    frames.push((sample.source, sample.seq, sample.wall_ns, sample.payload.to_vec()));
                    monos.push(sample.mono_ns);
                }
            }
        }
        (frames, monos, verification.finish())
    }

    // Proves that all appended samples are in the segments, numbered after the skipped ones,
    // whatever the foreign clock does. Method: three sources, one of which starts later; gaps of
    // all sizes, times before 1970, and clocks that were set back.
    #[test]
    fn appended_samples_are_in_the_segments() {
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
            let plan = ImportLimits { segment_bytes: 300 << 10, frame_max: 1 << 20 };
            let mut recording = RunWriter::begin(&directory, plan).unwrap();
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

    // Proves that adjacent skips become one Gap, also at the end, and that a run without frames
    // leaves no segment.
    #[test]
    fn adjacent_skips_are_one_gap() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path()).unwrap();
        let plan = ImportLimits { segment_bytes: 1 << 20, frame_max: 1 << 20 };
        let mut recording = RunWriter::begin(&directory, plan.clone()).unwrap();
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
        let mut recording = RunWriter::begin(&directory, plan).unwrap();
        let source = recording.add_source(opaque("a")).unwrap();
        recording.skip(source, 9, GapCause::NotReceived);
        assert_eq!(recording.finish().unwrap().segments, 0);
        assert!(list(&[nothing.path().to_owned()]).unwrap().is_empty());
    }
}
