//! Verifies that segments contain exactly the bytes that were written. Checks every frame, the
//! digests, and the counts in the footer. Also checks for each source and run that recorded + lost
//! + thinned = sampled.
//!
//! The caller passes segments in the order of their numbers. A frame that was removed, added or
//! exchanged causes only one finding, because wrong counts in the footer are reported only if no
//! other finding explains them.

use std::path::{Path, PathBuf};

use super::batch_source::BatchSource;
use super::completeness::{CompletenessCheck, SequenceFinding, SourceCompleteness};
use super::digest_check::DigestCheck;
use super::removed::RemovedSegments;
use crate::segment::compressed::compressed_segment::CompressedSegment;
use crate::segment::format::control_frames::Gap;
use crate::segment::format::damage::Damage;
use crate::segment::format::error::SegmentError;
use crate::segment::format::footer::Trailer;
use crate::segment::format::frame_kind::{FrameKind, FrameLocation};
use crate::segment::format::index::IndexFrame;
use crate::segment::read::reader::{Advance, SegmentReader};

/// Maximum number of flaws that are kept, and maximum number of unexplained gaps that are kept.
/// Findings beyond this number are only counted. The limit is needed because a hostile file may
/// have a flaw every twenty bytes.
const FINDINGS_KEPT_MAX: usize = 1000;

/// Number of bytes between two progress reports.
const PROGRESS_BYTES: u64 = 1 << 20;

/// A part of a file that differs from the bytes that were written.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SegmentFlaw {
    /// The file.
    pub path: PathBuf,
    /// Offset of the flaw in the file.
    pub offset: u64,
    /// Length of the flaw in bytes. The value is 0 if the flaw concerns a whole interval.
    pub length: u64,
    /// A short description of the flaw.
    pub what: String,
}

/// Samples that are neither recorded nor counted as lost.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct UnexplainedGap {
    /// The file that was being verified when the missing samples were noticed.
    pub path: PathBuf,
    /// Offset of the first frame after the missing samples.
    pub offset: u64,
    /// The source's name.
    pub source: String,
    /// Number of samples.
    pub count: u64,
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerificationReport {
    /// Number of telemetry frames.
    pub frames: u64,
    /// Number of frames of kinds that this build does not know.
    pub unknown_frames: u64,
    /// The first flaws, that is, parts of files that differ from the bytes that were written.
    pub flaws: Vec<SegmentFlaw>,
    /// Number of flaws that are not kept in `flaws`.
    pub more_flaws: u64,
    /// The first gaps in the sequence numbers whose samples are neither recorded nor counted as
    /// lost.
    pub unexplained_gaps: Vec<UnexplainedGap>,
    /// Number of further unexplained gaps.
    pub more_unexplained_gaps: u64,
    /// The counts of the sources, by run and source id.
    pub sources: Vec<((u64, u16), SourceCompleteness)>,
    /// The sum of the counts of earlier runs, which were too many to keep.
    pub earlier: SourceCompleteness,
}

impl VerificationReport {
    /// Returns whether all bytes equal the bytes that were written.
    pub fn is_intact(&self) -> bool {
        self.flaws.is_empty()
    }

    /// Returns the number of samples that Gap frames count as lost. Thinned samples are not
    /// included.
    pub fn lost(&self) -> u64 {
        self.all_sources().fold(0, |sum, source| sum.saturating_add(source.lost))
    }

    /// Returns the number of samples that were left out on purpose.
    pub fn thinned(&self) -> u64 {
        self.all_sources().fold(0, |sum, source| sum.saturating_add(source.thinned))
    }

    /// Returns the number of samples in removed segments. Retention removed these segments,
    /// although earlier and later segments of the run remain.
    pub fn removed(&self) -> u64 {
        self.all_sources().fold(0, |sum, source| sum.saturating_add(source.removed))
    }

    /// Returns the number of samples that are neither recorded nor counted by a Gap frame.
    pub fn unexplained(&self) -> u64 {
        self.all_sources().fold(0, |sum, source| sum.saturating_add(source.unexplained))
    }

    fn all_sources(&self) -> impl Iterator<Item = &SourceCompleteness> {
        self.sources.iter().map(|(_, source)| source).chain([&self.earlier])
    }
}

/// Verifies segments, one after the other.
#[derive(Debug, Default)]
pub struct Verification {
    report: VerificationReport,
    completeness: CompletenessCheck,
}

/// Counts of the segment that is being read, which are compared with the segment's footer and
/// index.
#[derive(Default)]
struct CheckState {
    run_id: u64,
    frames: u64,
    bytes: u64,
    sources: Vec<SampleCounts>, // by id
    known_sources: usize,       // sources of the header that were added to the completeness check
    // Whether another finding explains wrong counts in the footer.
    is_explained: bool,
    digest_check: DigestCheck,
    // Number of kept flaws and number of further flaws, as counted at the last Index frame. In a
    // live file, the frames after this Index frame are still being written.
    flaws_at_index: (usize, u64),
}

#[derive(Clone, Copy, Default)]
struct SampleCounts {
    recorded: u64,
    lost: u64,
    thinned: u64,
}

impl CheckState {
    fn source(&mut self, id: u16) -> Option<&mut SampleCounts> {
        let at = usize::from(id);
        if self.sources.len() <= at {
            self.sources.resize(at + 1, SampleCounts::default());
        }
        self.sources.get_mut(at)
    }
}

impl Verification {
    /// Adds segments that retention has removed. The samples of these segments are not counted as
    /// missing.
    pub fn add_removed(&mut self, removed: &RemovedSegments) {
        self.completeness.add_removed(removed);
    }

    /// Reads and verifies a segment from start to end. `is_live` means that a recorder is writing
    /// the segment, so frames after the last Index frame are still being written. `progress` is
    /// called with the offset that the reader has reached, in bytes.
    ///
    /// # Errors
    /// `Io`.
    pub fn verify(
        &mut self,
        reader: &mut SegmentReader,
        is_live: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SegmentError> {
        let limit = reader.footer_offset().unwrap_or(u64::MAX);
        match reader.scan_pool() {
            Some(pool) => {
                let batches = BatchSource::new(Some(&pool), limit);
                pool.with_workers(|| self.verify_with(reader, batches, is_live, progress))
            }
            None => self.verify_with(reader, BatchSource::new(None, limit), is_live, progress),
        }
    }

    /// Verifies a segment like [`verify`](Self::verify), with batches from the given source.
    pub(in crate::segment) fn verify_with(
        &mut self,
        reader: &mut SegmentReader,
        mut batches: BatchSource<'_>,
        is_live: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SegmentError> {
        let mut state = CheckState { flaws_at_index: self.flaw_counts(), ..CheckState::default() };
        if let Some(what) = reader.compressed().and_then(CompressedSegment::flaw) {
            self.add_flaw(reader.path(), 0, 0, what);
        }
        if let Some(compressed) = reader.compressed() {
            compressed.check_bounds();
        }
        self.begin_header(reader, 0, &mut state);
        let footer_offset = reader.footer_offset().unwrap_or(u64::MAX);
        let mut reported = 0;
        loop {
            if reader.offset() >= reported + PROGRESS_BYTES {
                reported = reader.offset();
                progress(reported);
            }
            if reader.offset() < footer_offset && reader.header().sources.len() == state.known_sources {
                if self.take_batch(reader, &mut batches, &mut state) {
                    continue;
                }
                if let Some(at) = reader.next_sample() {
                    if let Some((source, finding)) = self.count_sample(reader, at, &mut state) {
                        self.add_finding(reader, at.offset, source, finding);
                    }
                    continue;
                }
            }
            let Some(advance) = reader.advance()? else { break };
            let at = match advance {
                Advance::Damage(damage) => {
                    state.is_explained = true;
                    state.digest_check.add_damage();
                    let block = reader.compressed().and_then(|compressed| compressed.explain(damage.offset));
                    let what = block.unwrap_or_else(|| damage.what.to_owned());
                    self.add_flaw(reader.path(), damage.offset, damage.length, what);
                    continue;
                }
                Advance::Frame(at) => at,
            };
            if at.is_repaired {
                let what = "a damaged length, repaired: the checksum proves the frame";
                self.add_flaw(reader.path(), at.offset, 4, what);
            }
            if reader.header().sources.len() > state.known_sources {
                self.add_described_sources(reader, at.offset, &mut state);
            }
            let finding = self.check_frame(reader, at, &mut state);
            if at.offset < footer_offset {
                state.frames += 1;
                state.bytes += at.bytes as u64;
                if at.is_repaired {
                    state.digest_check.add_frame(reader.frame_header(at).as_bytes(), at.bytes);
                } else {
                    state.digest_check.add_frame(reader.stored_frame_header(at), at.bytes);
                }
            }
            if let Some((source, finding)) = finding {
                self.add_finding(reader, at.offset, source, finding);
            }
        }
        if is_live {
            self.report.flaws.truncate(state.flaws_at_index.0);
            self.report.more_flaws = state.flaws_at_index.1;
        }
        // Wrong bounds are flaws of a block, because queries skip a block by its bounds, even in a
        // file that is still being written.
        for (entry, what) in reader.compressed().map(CompressedSegment::wrong_bounds).unwrap_or_default() {
            self.add_flaw(reader.path(), entry.raw_offset, u64::from(entry.raw_bytes), what);
        }
        self.check_end(reader, is_live, &mut state);
        Ok(())
    }

    /// Adds a file that cannot be read as a segment.
    pub fn add_unreadable(&mut self, path: &Path, bytes: u64, error: &SegmentError) {
        let error = error.to_string();
        let path_first = format!("{}: ", path.display()); // a flaw already has the path
        self.add_flaw(path, 0, bytes, error.strip_prefix(&path_first).unwrap_or(&error).to_owned());
    }

    /// Returns the result.
    pub fn finish(mut self) -> VerificationReport {
        self.report.earlier = self.completeness.earlier().clone();
        self.report.sources = self.completeness.finish();
        self.report
    }

    /// Begins a run with the run's header. This is the header at the start of the file, or a later
    /// header in a replay of several runs.
    fn begin_header(&mut self, reader: &SegmentReader, offset: u64, state: &mut CheckState) {
        state.run_id = reader.header().run_id;
        state.known_sources = reader.header().sources.len();
        for (source, finding) in self.completeness.begin_segment(reader.header()) {
            self.add_finding(reader, offset, source, finding);
        }
    }

    /// Adds sources that are not in the header. Uses the descriptors of the sources, or the
    /// footer's copy if the descriptors are damaged.
    fn add_described_sources(&mut self, reader: &SegmentReader, offset: u64, state: &mut CheckState) {
        for source in reader.header().sources.iter().skip(state.known_sources) {
            if let Some(finding) = self.completeness.add_source(state.run_id, source) {
                self.add_finding(reader, offset, source.id, finding);
            }
        }
        state.known_sources = reader.header().sources.len();
    }

    /// Accepts the batch at the reader's offset if none of its samples causes a finding.
    fn take_batch(
        &mut self,
        reader: &mut SegmentReader,
        batches: &mut BatchSource<'_>,
        state: &mut CheckState,
    ) -> bool {
        let Some(batch) = batches.batch_at(reader) else { return false };
        let samples = batches.samples(&batch);
        let is_expected =
            samples.iter().all(|of| self.completeness.expects(state.run_id, of.source, of.first_seq));
        if !is_expected || !reader.knows_sources(samples) {
            batches.refuse(&batch);
            return false;
        }
        for of in samples {
            if let Some(counted) = state.source(of.source) {
                counted.recorded += of.more + 1;
            }
            // The call never returns a finding, because all samples are expected.
            self.completeness.add_samples(state.run_id, of.source, of.first_seq, of.more);
        }
        self.report.frames += batch.frames;
        state.frames += batch.frames;
        state.bytes += batch.bytes;
        state.digest_check.add_frames(batches.headers(&batch), batch.frames, batch.bytes);
        reader.accept_batch(batch.end(), samples);
        true
    }

    /// Counts a sample that `next_sample` has returned.
    #[inline]
    fn count_sample(
        &mut self,
        reader: &SegmentReader,
        at: FrameLocation,
        state: &mut CheckState,
    ) -> Option<(u16, SequenceFinding)> {
        state.frames += 1;
        state.bytes += at.bytes as u64;
        state.digest_check.add_frame(reader.stored_frame_header(at), at.bytes);
        let (source, seq) = reader.source_and_seq(at)?;
        self.report.frames += 1;
        state.source(source)?.recorded += 1;
        let finding = self.completeness.add_sample(state.run_id, source, seq)?;
        Some((source, finding))
    }

    /// Checks one frame against the frames before it.
    fn check_frame(
        &mut self,
        reader: &SegmentReader,
        at: FrameLocation,
        state: &mut CheckState,
    ) -> Option<(u16, SequenceFinding)> {
        let payload = || reader.payload(at);
        match at.kind {
            FrameKind::Telemetry => {
                let (source, seq) = reader.source_and_seq(at)?;
                self.report.frames += 1;
                state.source(source)?.recorded += 1;
                let finding = self.completeness.add_sample(state.run_id, source, seq)?;
                return Some((source, finding));
            }
            FrameKind::Gap => {
                let gap = Gap::decode(payload())?;
                let counts = state.source(gap.source)?;
                let sum = if gap.is_thinned() { &mut counts.thinned } else { &mut counts.lost };
                *sum = sum.saturating_add(gap.count);
                return Some((gap.source, self.completeness.add_gap(state.run_id, &gap)?));
            }
            FrameKind::Index => {
                let what = state.digest_check.check_index(&IndexFrame::decode(payload())?);
                self.add_mismatch(reader, at, what, state);
                state.flaws_at_index = self.flaw_counts();
            }
            FrameKind::Footer => {
                let what = reader.footer().and_then(|footer| state.digest_check.check_footer(footer));
                self.add_mismatch(reader, at, what, state);
            }
            FrameKind::Trailer => self.check_trailer(reader, Trailer::decode(payload()), at.offset),
            FrameKind::Unknown(_) => self.report.unknown_frames += 1,
            FrameKind::Header if at.offset > 0 => self.begin_header(reader, at.offset, state),
            FrameKind::Header
            | FrameKind::Descriptor
            | FrameKind::ClockSync
            | FrameKind::Marker
            | FrameKind::Attachment => {}
        }
        None
    }

    fn add_mismatch(
        &mut self,
        reader: &SegmentReader,
        at: FrameLocation,
        what: Option<&'static str>,
        state: &mut CheckState,
    ) {
        if let Some(what) = what {
            state.is_explained = true;
            self.add_flaw(reader.path(), at.offset, 0, what);
        }
    }

    /// Checks the end of a segment, and the counts in the footer.
    fn check_end(&mut self, reader: &SegmentReader, is_live: bool, state: &mut CheckState) {
        let path = reader.path();
        let Some(footer) = reader.footer() else {
            if !is_live {
                let tail = reader.tail();
                let Damage { offset, length, what } =
                    tail.unwrap_or(Damage { offset: reader.offset(), length: 0, what: "nothing after it" });
                self.add_flaw(path, offset, length, format!("not sealed: no footer and no trailer ({what})"));
            }
            return;
        };
        let counts_match = footer.totals.iter().all(|totals| {
            let counted = state.source(totals.source).copied().unwrap_or_default();
            (totals.recorded, totals.lost, totals.thinned)
                == (counted.recorded, counted.lost, counted.thinned)
        });
        if !state.is_explained
            && (!counts_match || footer.frames != state.frames || footer.bytes != state.bytes)
        {
            let what = "the footer's counts differ from the frames: some were added, removed or exchanged";
            self.add_flaw(path, footer.bytes, 0, what);
        }
    }

    fn check_trailer(&mut self, reader: &SegmentReader, trailer: Option<Trailer>, offset: u64) {
        let header = reader.header();
        if trailer.is_none_or(|trailer| trailer.run_id != header.run_id || trailer.segment != header.segment)
        {
            self.add_flaw(reader.path(), offset, 0, "the trailer belongs to another segment");
        }
    }

    fn add_finding(&mut self, reader: &SegmentReader, offset: u64, source: u16, finding: SequenceFinding) {
        let path = reader.path();
        let name =
            reader.header().source(source).map_or_else(|| source.to_string(), |source| source.name.clone());
        match finding {
            SequenceFinding::Repeated => {
                let what = format!(
                    "sequence numbers of source {name} that were passed before: repeated or out of order"
                );
                self.add_flaw(path, offset, 0, what);
            }
            SequenceFinding::Unexplained(_) if self.report.unexplained_gaps.len() == FINDINGS_KEPT_MAX => {
                self.report.more_unexplained_gaps += 1;
            }
            SequenceFinding::Unexplained(count) => {
                self.report.unexplained_gaps.push(UnexplainedGap {
                    path: path.to_owned(),
                    offset,
                    source: name,
                    count,
                });
            }
        }
    }

    fn flaw_counts(&self) -> (usize, u64) {
        (self.report.flaws.len(), self.report.more_flaws)
    }

    fn add_flaw(&mut self, path: &Path, offset: u64, length: u64, what: impl Into<String>) {
        if self.report.flaws.len() == FINDINGS_KEPT_MAX {
            self.report.more_flaws += 1;
            return;
        }
        self.report.flaws.push(SegmentFlaw { path: path.to_owned(), offset, length, what: what.into() });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::io::IoSlice;
    use std::sync::Arc;

    use flatcap_stream::{Framer, KindDeframer};
    use proptest::prelude::*;

    use super::super::scan_pool::{ScanPool, chunks};
    use super::*;
    use crate::frame::{ENVELOPE_BYTES, Envelope, Incomplete, Stamp};
    use crate::mapped_file::MappedFile;
    use crate::segment::Leftovers;
    use crate::segment::recover::full_scan::FullScan;
    use crate::segment::{
        Frames, IndexEntry, Marker, MarkerOrigin, SampleSpan, SealState, SegmentName, SegmentOptions,
        SegmentWriter,
    };
    use crate::storage::Storage;
    use crate::testing::Folder;
    use crate::testing::effort;
    use crate::testing::example;

    // Proves that the lists of findings are bounded, and that findings beyond the limit are
    // counted. Method: damage to every second of 6,000 samples.
    #[test]
    fn lists_of_findings_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let acts: Vec<Act> =
            (0..3000_u16).map(|at| Act::Samples { source: at % 2, count: 2, body: 20 }).collect();
        let path = written(folder.path(), &acts);
        let mut bytes = std::fs::read(&path).unwrap();
        let mut reader = SegmentReader::open(&path).unwrap();
        let mut at_samples = Vec::new();
        while let Some(Advance::Frame(at)) = reader.advance().unwrap() {
            let end = usize::try_from(at.offset).unwrap() + at.bytes;
            at_samples.extend((at.kind == FrameKind::Telemetry).then_some(end - 1));
        }
        at_samples.iter().step_by(2).for_each(|at| bytes[*at] ^= 1);
        std::fs::write(&path, &bytes).unwrap();
        let mut verification = Verification::default();
        verification.verify(&mut SegmentReader::open(&path).unwrap(), false, &mut |_| {}).unwrap();
        let verdict = verification.finish();
        assert_eq!((verdict.frames, verdict.unexplained()), (3000, 3000));
        assert_eq!(
            (verdict.flaws.len(), verdict.unexplained_gaps.len()),
            (FINDINGS_KEPT_MAX, FINDINGS_KEPT_MAX)
        );
        let (flaws, gaps) = (FINDINGS_KEPT_MAX as u64 + verdict.more_flaws, verdict.more_unexplained_gaps);
        assert!((3000..=3010).contains(&flaws) && gaps > 1000, "{flaws} {gaps}");
        let mut reader = SegmentReader::open(&path).unwrap();
        let scan = FullScan::read(&mut reader, &Leftovers::default()).unwrap();
        let (first, last) = (scan.damage.first().unwrap(), scan.damage.last().unwrap());
        assert!(scan.damage.len() <= 1001, "{}", scan.damage.len());
        assert!(
            first.offset < 10_000 && last.offset + last.length >= at_samples[at_samples.len() - 2] as u64
        );
    }

    /// An action of a simulated recorder.
    #[derive(Debug, Clone)]
    pub(crate) enum Act {
        Samples { source: u16, count: u64, body: usize },
        Lose { source: u16, count: u64, is_said: bool },
        Note,
        Index,
    }

    pub(crate) fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            6 => (0..2_u16, 1..80_u64, 0..300_usize)
                .prop_map(|(source, count, body)| Act::Samples { source, count, body }),
            2 => (0..2_u16, 1..5_u64, prop::bool::weighted(0.8))
                .prop_map(|(source, count, is_said)| Act::Lose { source, count, is_said }),
            1 => Just(Act::Note),
            3 => Just(Act::Index),
        ];
        prop::collection::vec(act, 1..60)
    }

    /// Writes a sealed segment. Returns its path.
    pub(crate) fn written(folder: &Path, acts: &[Act]) -> PathBuf {
        written_as(folder, acts, SegmentOptions::default(), &mut |_| {})
    }

    /// Writes a sealed segment like [`written`], with any options. Calls `each` with the path
    /// whenever the file has grown.
    pub(crate) fn written_as(
        folder: &Path,
        acts: &[Act],
        form: SegmentOptions,
        each: &mut dyn FnMut(&Path),
    ) -> PathBuf {
        let storage = Arc::new(Folder(folder.to_owned()));
        let name = SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: SealState::Active };
        let mut writer = SegmentWriter::create_with(&*storage, name, example(), &[], form).unwrap();
        let mut next = [9; 2];
        for act in acts {
            each(&folder.join(name.to_string()));
            match act {
                Act::Samples { source, count, body } => {
                    for _ in 0..*count {
                        let seq = &mut next[usize::from(*source)];
                        let mut payload = vec![0; ENVELOPE_BYTES + body];
                        let (at, wall_ns) = (*seq, 0);
                        let stamp = Stamp {
                            mono_ns: at,
                            wall_ns,
                            seq: at,
                            incomplete: Incomplete::NONE,
                            duration_ns: 1,
                        };
                        Envelope::new(*source).write(&mut payload, &stamp, &vec![7; *body]);
                        *seq += 1;
                        let mut frame = Vec::new();
                        let kind = writer.checksum();
                        kind.frame_and_write(&mut frame, &payload).unwrap();
                        let headers = [&frame[..kind.frame_bytes(0)]];
                        let mut pieces = [IoSlice::new(&frame)];
                        writer.append(Frames { pieces: &mut pieces, headers: &headers, count: 1 }).unwrap();
                        let span = SampleSpan::of(at, at, wall_ns);
                        writer.count_samples(*source, 1, span);
                    }
                }
                Act::Lose { source, count, is_said } => {
                    let first = next[usize::from(*source)];
                    next[usize::from(*source)] += count;
                    let (causes, after_mono_ns, before_mono_ns) = (1, 0, 0);
                    let gap =
                        Gap { source: *source, first, count: *count, causes, after_mono_ns, before_mono_ns };
                    if *is_said {
                        writer.append_gaps(&[gap]).unwrap();
                    }
                }
                Act::Note => {
                    let text = "note".to_owned();
                    let note = Marker { mono_ns: 1, wall_ns: 1, origin: MarkerOrigin::Person, text };
                    writer.append_marker(&note).unwrap();
                }
                Act::Index => writer.append_index(0).unwrap(),
            }
        }
        let sealed = writer.seal().unwrap();
        sealed.publish(&*storage as &dyn Storage).unwrap();
        folder.join(sealed.name().to_string())
    }

    /// Verifies a file with batches that the reader scans itself, up to `limit`.
    fn verify_alone(path: &Path, limit: u64) -> VerificationReport {
        let mut verification = Verification::default();
        let mut reader = SegmentReader::open(path).unwrap();
        let batches = BatchSource::new(None, limit.min(reader.footer_offset().unwrap_or(u64::MAX)));
        verification.verify_with(&mut reader, batches, false, &mut |_| {}).unwrap();
        verification.finish()
    }

    /// Verifies a file with a pool of workers, and with an index that may be wrong.
    fn verify_with_pool(path: &Path, workers: usize, lies: &[IndexEntry]) -> VerificationReport {
        let mut verification = Verification::default();
        let mut reader = SegmentReader::open(path).unwrap();
        reader.map().unwrap();
        let limit = reader.footer_offset().unwrap_or(u64::MAX);
        let own = reader.footer().map_or(&[][..], |footer| &footer.index);
        let chunks = chunks(if lies.is_empty() { own } else { lies }, limit);
        let map = Arc::new(MappedFile::map(&File::open(path).unwrap()).unwrap());
        let deframer = KindDeframer::new(reader.header().checksum);
        let pool = ScanPool::from_parts(map, deframer, chunks, workers);
        let batches = BatchSource::new(Some(&pool), limit);
        pool.with_workers(|| verification.verify_with(&mut reader, batches, false, &mut |_| {})).unwrap();
        verification.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::cases(16, 64)))]
        // Proves that a verification with batches has the same result as a verification frame by
        // frame. Method: random segments, intact and damaged, with 0 to 3 workers, with the correct
        // index and with a wrong index.
        #[test]
        fn batches_do_not_change_the_verdict(
            acts in acts(),
            flips in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            removed in prop::option::weighted(0.3, (any::<prop::sample::Index>(), 1..400_usize)),
            workers in 0..4_usize,
            lies in prop::collection::vec((0..60_000_u64, 0..9_000_u64), 0..12),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = written(folder.path(), &acts);
            let intact = verify_alone(&path, 0);
            prop_assert!(intact.is_intact());
            let mut bytes = std::fs::read(&path).unwrap();
            for flip in flips {
                let bit = flip.index(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            if let Some((at, count)) = removed {
                let at = at.index(bytes.len());
                bytes.drain(at..bytes.len().min(at + count));
            }
            let entry = |(offset, bytes)| IndexEntry { offset, bytes, ..IndexEntry::default() };
            let lies: Vec<IndexEntry> = lies.into_iter().map(entry).collect();
            prop_assert_eq!(&verify_with_pool(&path, workers, &[]), &intact);
            prop_assert_eq!(&verify_with_pool(&path, workers, &lies), &intact);
            std::fs::write(&path, bytes).unwrap();
            if SegmentReader::open(&path).is_ok() {
                let by_frames = verify_alone(&path, 0);
                prop_assert_eq!(&verify_alone(&path, u64::MAX), &by_frames);
                prop_assert_eq!(&verify_with_pool(&path, workers, &[]), &by_frames);
                prop_assert_eq!(&verify_with_pool(&path, workers, &lies), &by_frames);
            }
        }
    }
}
