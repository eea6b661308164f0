//! Whether segments are what was written: every frame read, the digests, the footer's counts, and for each source and
//! run recorded + lost = sampled.
//!
//! Fed with segments in the order of their numbers. A frame that was removed, added or exchanged is one finding: only
//! where nothing else has explained it, the footer's counts are one too.

use std::path::{Path, PathBuf};

use super::audit::{Audit, Finding, SourceAudit};
use super::control::Gap;
use super::error::SegmentError;
use super::footer::Trailer;
use super::index::Index;
use super::kind::{FrameAt, FrameKind};
use super::packed::Packed;
use super::proof::Proof;
use super::reader::{Advance, Damage, SegmentReader};
use super::runs::Runs;

/// Most flaws, and most holes, that are kept; more are counted. A hostile file may have one every twenty bytes.
const FINDINGS_KEPT_MAX: usize = 1000;

/// How often the progress is told.
const PROGRESS_BYTES: u64 = 1 << 20;

/// Something in a file that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The file.
    pub path: PathBuf,
    /// Where.
    pub offset: u64,
    /// How many bytes; 0 for what is said of a whole stretch.
    pub length: u64,
    /// What is wrong, in a few words.
    pub what: String,
}

/// Readings that are neither recorded nor explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The file in which it was noticed.
    pub path: PathBuf,
    /// In front of which offset.
    pub offset: u64,
    /// The source's name.
    pub source: String,
    /// How many readings.
    pub count: u64,
}

/// What a verification came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Telemetry frames.
    pub frames: u64,
    /// Frames of kinds that this build does not know.
    pub unknown_frames: u64,
    /// What is not what was written: the first of them.
    pub flaws: Vec<Flaw>,
    /// How many more there are.
    pub more_flaws: u64,
    /// Readings that are neither recorded nor explained: the first of them.
    pub holes: Vec<Hole>,
    /// How many more there are.
    pub more_holes: u64,
    /// The sources by run and id.
    pub sources: Vec<((u64, u16), SourceAudit)>,
    /// The sum of sources of earlier runs that were too many to be kept one by one.
    pub earlier: SourceAudit,
}

impl Verdict {
    /// Whether everything stands there as it was written.
    pub fn is_intact(&self) -> bool {
        self.flaws.is_empty()
    }

    /// Readings in Gap frames.
    pub fn lost(&self) -> u64 {
        self.all_sources().fold(0, |sum, source| sum.saturating_add(source.lost))
    }

    /// Readings that are neither recorded nor in a Gap frame.
    pub fn unexplained(&self) -> u64 {
        self.all_sources().fold(0, |sum, source| sum.saturating_add(source.unexplained))
    }

    fn all_sources(&self) -> impl Iterator<Item = &SourceAudit> {
        self.sources.iter().map(|(_, source)| source).chain([&self.earlier])
    }
}

/// A verification in the making.
#[derive(Debug, Default)]
pub struct Verification {
    verdict: Verdict,
    audit: Audit,
}

/// What was counted while walking one segment, to be compared with its footer and its index.
#[derive(Default)]
struct Walked {
    run_id: u64,
    frames: u64,
    bytes: u64,
    sources: Vec<Counted>, // by id
    described: usize,      // of the header's sources, the audit knows so many
    is_explained: bool,    // something was found already: the footer's counts say nothing new
    proof: Proof,
    proven: (usize, u64), // flaws, kept and more, when the last Index frame was read: what follows in a live file is in flight
}

#[derive(Clone, Copy, Default)]
struct Counted {
    recorded: u64,
    lost: u64,
}

impl Walked {
    fn source(&mut self, id: u16) -> Option<&mut Counted> {
        let at = usize::from(id);
        if self.sources.len() <= at {
            self.sources.resize(at + 1, Counted::default());
        }
        self.sources.get_mut(at)
    }
}

impl Verification {
    /// Reads a segment from its start to its end. `is_live`: a recorder is at work on it, so what stands behind its last
    /// Index frame is in flight. `progress` is told how far it has got, in bytes.
    ///
    /// # Errors
    /// `Io`.
    pub fn segment(
        &mut self,
        reader: &mut SegmentReader,
        is_live: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SegmentError> {
        let limit = reader.footer_offset().unwrap_or(u64::MAX);
        match reader.crew() {
            Some(crew) => {
                let runs = Runs::new(Some(&crew), limit);
                crew.during(|| self.segment_by(reader, runs, is_live, progress))
            }
            None => self.segment_by(reader, Runs::new(None, limit), is_live, progress),
        }
    }

    /// The same, by runs from wherever they come.
    pub(super) fn segment_by(
        &mut self,
        reader: &mut SegmentReader,
        mut runs: Runs<'_>,
        is_live: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SegmentError> {
        let mut walked = Walked { proven: self.flaws_so_far(), ..Walked::default() };
        if let Some(what) = reader.packed().and_then(Packed::flaw) {
            self.flaw(reader.path(), 0, 0, what);
        }
        self.header(reader, 0, &mut walked);
        let footer_offset = reader.footer_offset().unwrap_or(u64::MAX);
        let mut said = 0;
        loop {
            if reader.offset() >= said + PROGRESS_BYTES {
                said = reader.offset();
                progress(said);
            }
            if reader.offset() < footer_offset && reader.header().sources.len() == walked.described {
                if self.run(reader, &mut runs, &mut walked) {
                    continue;
                }
                if let Some(at) = reader.next_sample() {
                    if let Some((source, finding)) = self.sample(reader, at, &mut walked) {
                        self.finding(reader, at.offset, source, finding);
                    }
                    continue;
                }
            }
            let Some(advance) = reader.advance()? else { break };
            let at = match advance {
                Advance::Damage(damage) => {
                    walked.is_explained = true;
                    walked.proof.damage();
                    let block = reader.packed().and_then(|packed| packed.explain(damage.offset));
                    let what = block.unwrap_or_else(|| damage.what.to_owned());
                    self.flaw(reader.path(), damage.offset, damage.length, what);
                    continue;
                }
                Advance::Frame(at) => at,
            };
            if at.is_repaired {
                let what = "a damaged length, repaired: the checksum proves the frame";
                self.flaw(reader.path(), at.offset, 4, what);
            }
            if reader.header().sources.len() > walked.described {
                self.described(reader, at.offset, &mut walked);
            }
            let finding = self.frame(reader, at, &mut walked);
            if at.offset < footer_offset {
                walked.frames += 1;
                walked.bytes += at.bytes as u64;
                if at.is_repaired {
                    walked.proof.frame(reader.head(at).as_bytes(), at.bytes);
                } else {
                    walked.proof.frame(reader.stored_head(at), at.bytes);
                }
            }
            if let Some((source, finding)) = finding {
                self.finding(reader, at.offset, source, finding);
            }
        }
        if is_live {
            self.verdict.flaws.truncate(walked.proven.0);
            self.verdict.more_flaws = walked.proven.1;
        }
        self.end(reader, is_live, &mut walked);
        Ok(())
    }

    /// A file that cannot be read as a segment.
    pub fn unreadable(&mut self, path: &Path, bytes: u64, error: &SegmentError) {
        self.flaw(path, 0, bytes, error.to_string());
    }

    /// What it came to.
    pub fn finish(mut self) -> Verdict {
        self.verdict.earlier = self.audit.earlier().clone();
        self.verdict.sources = self.audit.finish();
        self.verdict
    }

    /// A header: the one in force when reading begins, or another one in a replay of several runs.
    fn header(&mut self, reader: &SegmentReader, offset: u64, walked: &mut Walked) {
        walked.run_id = reader.header().run_id;
        walked.described = reader.header().sources.len();
        for (source, finding) in self.audit.header(reader.header()) {
            self.finding(reader, offset, source, finding);
        }
    }

    /// Sources that were not in the header: by their descriptors, or by the footer's copy where those are damaged.
    fn described(&mut self, reader: &SegmentReader, offset: u64, walked: &mut Walked) {
        for source in reader.header().sources.iter().skip(walked.described) {
            if let Some(finding) = self.audit.source(walked.run_id, source) {
                self.finding(reader, offset, source.id, finding);
            }
        }
        walked.described = reader.header().sources.len();
    }

    /// Takes the run that begins where the reader stands, if its samples one by one would have no finding.
    fn run(&mut self, reader: &mut SegmentReader, runs: &mut Runs<'_>, walked: &mut Walked) -> bool {
        let Some(run) = runs.at(reader) else { return false };
        let samples = runs.samples(&run);
        let is_expected = samples.iter().all(|of| self.audit.expects(walked.run_id, of.source, of.first_seq));
        if !is_expected || !reader.knows(samples) {
            runs.refuse(&run);
            return false;
        }
        for of in samples {
            if let Some(counted) = walked.source(of.source) {
                counted.recorded += of.more + 1;
            }
            // It has no finding.
            self.audit.samples(walked.run_id, of.source, of.first_seq, of.more);
        }
        self.verdict.frames += run.frames;
        walked.frames += run.frames;
        walked.bytes += run.bytes;
        walked.proof.frames(runs.heads(&run), run.frames, run.bytes);
        reader.pass_run(run.end(), samples);
        true
    }

    /// Counts a sample that came by the short way, as most do.
    #[inline]
    fn sample(&mut self, reader: &SegmentReader, at: FrameAt, walked: &mut Walked) -> Option<(u16, Finding)> {
        walked.frames += 1;
        walked.bytes += at.bytes as u64;
        walked.proof.frame(reader.stored_head(at), at.bytes);
        let (source, seq) = reader.number(at)?;
        self.verdict.frames += 1;
        walked.source(source)?.recorded += 1;
        let finding = self.audit.sample(walked.run_id, source, seq)?;
        Some((source, finding))
    }

    /// Checks one frame against what was read before.
    fn frame(&mut self, reader: &SegmentReader, at: FrameAt, walked: &mut Walked) -> Option<(u16, Finding)> {
        let payload = || reader.payload(at);
        match at.kind {
            FrameKind::Telemetry => {
                let (source, seq) = reader.number(at)?;
                self.verdict.frames += 1;
                walked.source(source)?.recorded += 1;
                let finding = self.audit.sample(walked.run_id, source, seq)?;
                return Some((source, finding));
            }
            FrameKind::Gap => {
                let gap = Gap::decode(payload())?;
                let lost = &mut walked.source(gap.source)?.lost;
                *lost = lost.saturating_add(gap.count);
                return Some((gap.source, self.audit.gap(walked.run_id, &gap)?));
            }
            FrameKind::Index => {
                let what = walked.proof.index(&Index::decode(payload())?);
                self.disproven(reader, at, what, walked);
                walked.proven = self.flaws_so_far();
            }
            FrameKind::Footer => {
                let what = reader.footer().and_then(|footer| walked.proof.footer(footer));
                self.disproven(reader, at, what, walked);
            }
            FrameKind::Trailer => self.trailer(reader, Trailer::decode(payload()), at.offset),
            FrameKind::Unknown(_) => self.verdict.unknown_frames += 1,
            FrameKind::Header if at.offset > 0 => self.header(reader, at.offset, walked),
            FrameKind::Header
            | FrameKind::Descriptor
            | FrameKind::ClockSync
            | FrameKind::Marker
            | FrameKind::Attachment => {}
        }
        None
    }

    fn disproven(
        &mut self,
        reader: &SegmentReader,
        at: FrameAt,
        what: Option<&'static str>,
        walked: &mut Walked,
    ) {
        if let Some(what) = what {
            walked.is_explained = true;
            self.flaw(reader.path(), at.offset, 0, what);
        }
    }

    /// What the end of a segment says of the rest.
    fn end(&mut self, reader: &SegmentReader, is_live: bool, walked: &mut Walked) {
        let path = reader.path();
        let Some(footer) = reader.footer() else {
            if !is_live {
                let tail = reader.tail();
                let Damage { offset, length, what } =
                    tail.unwrap_or(Damage { offset: reader.offset(), length: 0, what: "nothing behind it" });
                self.flaw(path, offset, length, format!("not sealed: no footer and no trailer ({what})"));
            }
            return;
        };
        let counted_alike = footer.totals.iter().all(|totals| {
            let counted = walked.source(totals.source).copied().unwrap_or_default();
            totals.recorded == counted.recorded && totals.lost == counted.lost
        });
        if !walked.is_explained
            && (!counted_alike || footer.frames != walked.frames || footer.bytes != walked.bytes)
        {
            let what = "the footer counts other frames than there are: some were added, removed or exchanged";
            self.flaw(path, footer.bytes, 0, what);
        }
    }

    fn trailer(&mut self, reader: &SegmentReader, trailer: Option<Trailer>, offset: u64) {
        let header = reader.header();
        if trailer.is_none_or(|trailer| trailer.run_id != header.run_id || trailer.segment != header.segment)
        {
            self.flaw(reader.path(), offset, 0, "the trailer belongs to another segment");
        }
    }

    fn finding(&mut self, reader: &SegmentReader, offset: u64, source: u16, finding: Finding) {
        let path = reader.path();
        let name =
            reader.header().source(source).map_or_else(|| source.to_string(), |source| source.name.clone());
        match finding {
            Finding::Repeated => {
                let what = format!(
                    "sequence numbers of source {name} that were passed before: repeated or out of order"
                );
                self.flaw(path, offset, 0, what);
            }
            Finding::Hole(_) if self.verdict.holes.len() == FINDINGS_KEPT_MAX => self.verdict.more_holes += 1,
            Finding::Hole(count) => {
                self.verdict.holes.push(Hole { path: path.to_owned(), offset, source: name, count });
            }
        }
    }

    fn flaws_so_far(&self) -> (usize, u64) {
        (self.verdict.flaws.len(), self.verdict.more_flaws)
    }

    fn flaw(&mut self, path: &Path, offset: u64, length: u64, what: impl Into<String>) {
        if self.verdict.flaws.len() == FINDINGS_KEPT_MAX {
            self.verdict.more_flaws += 1;
            return;
        }
        self.verdict.flaws.push(Flaw { path: path.to_owned(), offset, length, what: what.into() });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs::File;
    use std::io::IoSlice;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::Leftovers;
    use super::super::crew::{Crew, stretches};
    use super::super::header::tests::example;
    use super::super::walk::Walk;
    use super::super::{
        Form, Frames, IndexEntry, Marker, MarkerOrigin, SegmentName, SegmentWriter, Span, State,
    };
    use super::*;
    use crate::effort;
    use crate::frame::{ENVELOPE_BYTES, Envelope, Shortfall, Stamp};
    use crate::os::mapped_file::MappedFile;
    use crate::os::storage::{DataDirectory, Storage};
    use crate::stream::{Framer, KindDeframer};

    // Goal: however many places are damaged, the lists stay short, and the rest is counted. Method: a segment whose every second frame is
    // damaged, 3,000 of them; its verdict, and that of a recovery's walk.
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
        verification.segment(&mut SegmentReader::open(&path).unwrap(), false, &mut |_| {}).unwrap();
        let verdict = verification.finish();
        assert_eq!((verdict.frames, verdict.unexplained()), (3000, 3000));
        assert_eq!((verdict.flaws.len(), verdict.holes.len()), (FINDINGS_KEPT_MAX, FINDINGS_KEPT_MAX));
        let (flaws, holes) = (FINDINGS_KEPT_MAX as u64 + verdict.more_flaws, verdict.more_holes);
        assert!((3000..=3010).contains(&flaws) && holes > 1000, "{flaws} {holes}");
        let mut reader = SegmentReader::open(&path).unwrap();
        let walk = Walk::through(&mut reader, &Leftovers::default()).unwrap();
        let (first, last) = (walk.damage.first().unwrap(), walk.damage.last().unwrap());
        assert!(walk.damage.len() <= 1001, "{}", walk.damage.len());
        assert!(
            first.offset < 10_000 && last.offset + last.length >= at_samples[at_samples.len() - 2] as u64
        );
    }

    /// What a made-up recorder does next.
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

    /// Writes a sealed segment; its file.
    pub(crate) fn written(folder: &Path, acts: &[Act]) -> PathBuf {
        written_as(folder, acts, Form::default(), &mut |_| {})
    }

    /// The same in any form. `each` is shown the file whenever it has grown.
    pub(crate) fn written_as(
        folder: &Path,
        acts: &[Act],
        form: Form,
        each: &mut dyn FnMut(&Path),
    ) -> PathBuf {
        let storage = Arc::new(DataDirectory::open(folder).unwrap());
        let name = SegmentName { number: 7, created_s: 1_700_000_000, run_id: 5, state: State::Active };
        let mut writer = SegmentWriter::create_as(&*storage, name, example(), &[], form).unwrap();
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
                            shortfall: Shortfall::NONE,
                            duration_ns: 1,
                        };
                        Envelope::new(*source).write(&mut payload, &stamp, &vec![7; *body]);
                        *seq += 1;
                        let mut frame = Vec::new();
                        let kind = writer.checksum();
                        kind.frame_and_write(&mut frame, &payload).unwrap();
                        let heads = [&frame[..kind.frame_bytes(0)]];
                        let mut pieces = [IoSlice::new(&frame)];
                        writer.append(Frames { pieces: &mut pieces, heads: &heads, count: 1 }).unwrap();
                        let span = Span {
                            first_seq: at,
                            last_seq: at,
                            first_mono_ns: at,
                            last_mono_ns: at,
                            first_wall_ns: wall_ns,
                            last_wall_ns: wall_ns,
                        };
                        writer.tally(*source, 1, span);
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

    /// The verdict on a file, by runs up to `limit` from the reader's own surveys.
    fn alone(path: &Path, limit: u64) -> Verdict {
        let mut verification = Verification::default();
        let mut reader = SegmentReader::open(path).unwrap();
        let runs = Runs::new(None, limit.min(reader.footer_offset().unwrap_or(u64::MAX)));
        verification.segment_by(&mut reader, runs, false, &mut |_| {}).unwrap();
        verification.finish()
    }

    /// The verdict on a file with a crew, and with an index that says what it likes.
    fn with_crew(path: &Path, surveyors: usize, lies: &[IndexEntry]) -> Verdict {
        let mut verification = Verification::default();
        let mut reader = SegmentReader::open(path).unwrap();
        reader.map().unwrap();
        let limit = reader.footer_offset().unwrap_or(u64::MAX);
        let own = reader.footer().map_or(&[][..], |footer| &footer.index);
        let stretches = stretches(if lies.is_empty() { own } else { lies }, limit);
        let map = Arc::new(MappedFile::map(&File::open(path).unwrap()).unwrap());
        let deframer = KindDeframer::new(reader.header().checksum);
        let crew = Crew::of(map, deframer, stretches, surveyors);
        let runs = Runs::new(Some(&crew), limit);
        crew.during(|| verification.segment_by(&mut reader, runs, false, &mut |_| {})).unwrap();
        verification.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::of(16, 64)))]
        // Goal: whoever finds the runs, the verdict is that of reading frame by frame. Method: segments of random samples,
        // gaps, unexplained losses, notes and intervals; as they are, with flipped bits and with bytes removed; alone and
        // with none to three surveyors, by their own index and by one that lies.
        #[test]
        fn runs_do_not_change_the_verdict(
            acts in acts(),
            flips in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            removed in prop::option::weighted(0.3, (any::<prop::sample::Index>(), 1..400_usize)),
            surveyors in 0..4_usize,
            lies in prop::collection::vec((0..60_000_u64, 0..9_000_u64), 0..12),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = written(folder.path(), &acts);
            let intact = alone(&path, 0);
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
            prop_assert_eq!(&with_crew(&path, surveyors, &[]), &intact);
            prop_assert_eq!(&with_crew(&path, surveyors, &lies), &intact);
            std::fs::write(&path, bytes).unwrap();
            if SegmentReader::open(&path).is_ok() {
                let by_frames = alone(&path, 0);
                prop_assert_eq!(&alone(&path, u64::MAX), &by_frames);
                prop_assert_eq!(&with_crew(&path, surveyors, &[]), &by_frames);
                prop_assert_eq!(&with_crew(&path, surveyors, &lies), &by_frames);
            }
        }
    }
}
