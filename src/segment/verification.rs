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
use super::proof::Proof;
use super::reader::{Advance, Damage, SegmentReader};

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
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// Telemetry frames.
    pub frames: u64,
    /// Frames of kinds that this build does not know.
    pub unknown_frames: u64,
    /// What is not what was written.
    pub flaws: Vec<Flaw>,
    /// Readings that are neither recorded nor explained.
    pub holes: Vec<Hole>,
    /// Every source by run and id.
    pub sources: Vec<((u64, u16), SourceAudit)>,
}

impl Verdict {
    /// Whether everything stands there as it was written.
    pub fn is_intact(&self) -> bool {
        self.flaws.is_empty()
    }

    /// Readings in Gap frames.
    pub fn lost(&self) -> u64 {
        self.sources.iter().fold(0, |sum, (_, source)| sum.saturating_add(source.lost))
    }

    /// Readings that are neither recorded nor in a Gap frame.
    pub fn unexplained(&self) -> u64 {
        self.sources.iter().fold(0, |sum, (_, source)| sum.saturating_add(source.unexplained))
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
    proven: usize, // flaws when the last Index frame was read: behind it a live file is in flight
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
        let mut walked = Walked { proven: self.verdict.flaws.len(), ..Walked::default() };
        self.header(reader, 0, &mut walked);
        let footer_offset = reader.footer_offset().unwrap_or(u64::MAX);
        let mut said = 0;
        loop {
            if reader.offset() < footer_offset
                && reader.header().sources.len() == walked.described
                && let Some(at) = reader.next_sample()
            {
                if let Some((source, finding)) = self.sample(reader, at, &mut walked) {
                    self.finding(reader, at.offset, source, finding);
                }
                continue;
            }
            let Some(advance) = reader.advance()? else { break };
            if reader.offset() >= said + PROGRESS_BYTES {
                said = reader.offset();
                progress(said);
            }
            let at = match advance {
                Advance::Damage(damage) => {
                    walked.is_explained = true;
                    walked.proof.damage();
                    self.flaw(reader.path(), damage.offset, damage.length, damage.what);
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
            self.verdict.flaws.truncate(walked.proven);
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
                walked.proven = self.verdict.flaws.len();
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
            Finding::Hole(count) => {
                self.verdict.holes.push(Hole { path: path.to_owned(), offset, source: name, count });
            }
        }
    }

    fn flaw(&mut self, path: &Path, offset: u64, length: u64, what: impl Into<String>) {
        self.verdict.flaws.push(Flaw { path: path.to_owned(), offset, length, what: what.into() });
    }
}
