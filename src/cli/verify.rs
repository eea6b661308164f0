//! `verify`: reads everything and proves it, or says where it is not what was written.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::CliError;
use super::record::table;
use super::{Outcome, text};
use crate::segment::{
    Advance, Audit, Damage, Finding, FrameAt, FrameKind, Gap, Index, Listing, Proof, SegmentError,
    SegmentReader, SourceAudit, SourceInfo, Trailer, list,
};

/// Read everything: checksums, order, footers, and the sum recorded + lost = sampled.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Exit with 3 also when readings were lost that the files explain.
    #[arg(long)]
    strict: bool,
    /// One JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    intact: bool,
    frames: u64,
    lost: u64,
    unexplained: u64,
    damage: Vec<DamageRow>,
    holes: Vec<Hole>,
    unknown_frames: u64,
}

#[derive(Debug, Serialize)]
struct DamageRow {
    path: PathBuf,
    offset: u64,
    length: u64,
    what: String,
}

#[derive(Debug, Serialize)]
struct Hole {
    path: PathBuf,
    offset: u64,
    source: String,
    count: u64,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let listings = list(&args.paths)?;
    if listings.is_empty() {
        return Err(CliError::NoSegments(args.paths.clone()));
    }
    let mut check = Check::default();
    let total_bytes: u64 =
        listings.iter().filter_map(|listing| Some(listing.path.metadata().ok()?.len())).sum();
    let mut progress =
        ProgressLine { shown: !args.json && io::stderr().is_terminal(), total_bytes, done_bytes: 0 };
    for listing in &listings {
        match listing.open() {
            Ok(Some(reader)) => check.segment(listing, reader, &mut progress)?,
            Ok(None) => {}
            Err(SegmentError::Io { path, error }) => return Err(SegmentError::Io { path, error }.into()),
            Err(error) => check.unreadable(&listing.path, &error),
        }
    }
    progress.end();
    let Check { mut report, audit, .. } = check;
    let sources = audit.finish();
    report.lost = sources.iter().fold(0, |sum, (_, source)| sum.saturating_add(source.lost));
    report.unexplained = sources.iter().fold(0, |sum, (_, source)| sum.saturating_add(source.unexplained));
    report.intact = report.damage.is_empty();
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, &sources, out)?;
    }
    let is_sound = report.intact && report.unexplained == 0 && !(args.strict && report.lost > 0);
    Ok(if is_sound { Outcome::Done } else { Outcome::DataLoss })
}

#[derive(Default)]
struct Check {
    report: Report,
    audit: Audit,
}

/// What was counted while walking one segment, to be compared with its footer and its index.
#[derive(Default)]
struct Walked {
    run_id: u64,
    frames: u64,
    bytes: u64,
    sources: Vec<Counted>, // by id
    damaged: bool,
    proof: Proof,
    proven: usize, // rows of damage when the last Index frame was read: behind it a live file is in flight
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

impl Check {
    fn segment(
        &mut self,
        listing: &Listing,
        mut reader: SegmentReader,
        progress: &mut ProgressLine,
    ) -> Result<(), SegmentError> {
        let path = reader.path().to_owned();
        let path = path.as_path();
        let mut walked =
            Walked { run_id: reader.header().run_id, proven: self.report.damage.len(), ..Walked::default() };
        for (source, finding) in self.audit.header(reader.header()) {
            self.finding(&reader, 0, source, Some(finding));
        }
        let footer_offset = reader.footer().map(|footer| footer.bytes);
        while let Some(advance) = reader.advance()? {
            progress.at(reader.offset());
            let at = match advance {
                Advance::Damage(damage) => {
                    walked.damaged = true;
                    walked.proof.damage();
                    self.damage(path, damage.offset, damage.length, damage.what);
                    continue;
                }
                Advance::Frame(at) => at,
            };
            if at.is_repaired {
                let what = "a damaged length, repaired: the checksum proves the frame";
                self.damage(path, at.offset, 4, what);
            }
            let finding = self.frame(&reader, at, &mut walked);
            if footer_offset.is_none_or(|footer| at.offset < footer) {
                walked.frames += 1;
                walked.bytes += at.bytes as u64;
                walked.proof.frame(&reader.head(at), at.bytes);
            }
            if let Some((source, finding)) = finding {
                self.finding(&reader, at.offset, source, Some(finding));
            }
        }
        if listing.live {
            self.report.damage.truncate(walked.proven);
        }
        self.end(listing, &reader, &mut walked);
        progress.next_file(path);
        Ok(())
    }

    /// Checks one frame against what was read before.
    fn frame(&mut self, reader: &SegmentReader, at: FrameAt, walked: &mut Walked) -> Option<(u16, Finding)> {
        let payload = reader.payload(at);
        match at.kind {
            FrameKind::Telemetry => {
                let sample = reader.telemetry(at)?;
                self.report.frames += 1;
                walked.source(sample.source)?.recorded += 1;
                let finding = self.audit.sample(walked.run_id, sample.source, sample.seq)?;
                return Some((sample.source, finding));
            }
            FrameKind::Gap => {
                let gap = Gap::decode(payload)?;
                let lost = &mut walked.source(gap.source)?.lost;
                *lost = lost.saturating_add(gap.count);
                return Some((gap.source, self.audit.gap(walked.run_id, &gap)?));
            }
            FrameKind::Descriptor => {
                let source = SourceInfo::decode(payload)?;
                return Some((source.id, self.audit.source(walked.run_id, &source)?));
            }
            FrameKind::Index => {
                if let Some(what) = walked.proof.index(&Index::decode(payload)?) {
                    self.damage(reader.path(), at.offset, 0, what);
                }
                walked.proven = self.report.damage.len();
            }
            FrameKind::Footer => {
                if let Some(what) = reader.footer().and_then(|footer| walked.proof.footer(footer)) {
                    self.damage(reader.path(), at.offset, 0, what);
                }
            }
            FrameKind::Trailer => self.trailer(reader, Trailer::decode(payload), at.offset),
            FrameKind::Unknown(_) => self.report.unknown_frames += 1,
            FrameKind::Header if at.offset > 0 => {
                // A replay of several runs is one stream.
                walked.run_id = reader.header().run_id;
                for (source, finding) in self.audit.header(reader.header()) {
                    self.finding(reader, at.offset, source, Some(finding));
                }
            }
            FrameKind::Header | FrameKind::ClockSync | FrameKind::Marker | FrameKind::Attachment => {}
        }
        None
    }

    /// What the end of a segment says of the rest.
    fn end(&mut self, listing: &Listing, reader: &SegmentReader, walked: &mut Walked) {
        let path = reader.path();
        let Some(footer) = reader.footer() else {
            if !listing.live {
                let tail = reader.tail();
                let Damage { offset, length, what } =
                    tail.unwrap_or(Damage { offset: reader.offset(), length: 0, what: "nothing behind it" });
                self.damage(path, offset, length, format!("not sealed: no footer and no trailer ({what})"));
            }
            return;
        };
        let counted_alike = footer.totals.iter().all(|totals| {
            let counted = walked.source(totals.source).copied().unwrap_or_default();
            totals.recorded == counted.recorded && totals.lost == counted.lost
        });
        if !walked.damaged
            && (!counted_alike || footer.frames != walked.frames || footer.bytes != walked.bytes)
        {
            let what = "the footer counts other frames than there are: some were added, removed or exchanged";
            self.damage(path, footer.bytes, 0, what);
        }
    }

    fn trailer(&mut self, reader: &SegmentReader, trailer: Option<Trailer>, offset: u64) {
        let header = reader.header();
        if trailer.is_none_or(|trailer| trailer.run_id != header.run_id || trailer.segment != header.segment)
        {
            self.damage(reader.path(), offset, 0, "the trailer belongs to another segment");
        }
    }

    fn finding(&mut self, reader: &SegmentReader, offset: u64, source: u16, finding: Option<Finding>) {
        let path = reader.path();
        let name =
            reader.header().source(source).map_or_else(|| source.to_string(), |source| source.name.clone());
        match finding {
            None => {}
            Some(Finding::Repeated) => self.damage(
                path,
                offset,
                0,
                format!(
                    "sequence numbers of source {name} that were passed before: repeated or out of order"
                ),
            ),
            Some(Finding::Hole(count)) => {
                self.report.holes.push(Hole { path: path.to_owned(), offset, source: name, count });
            }
        }
    }

    fn unreadable(&mut self, path: &Path, error: &SegmentError) {
        let length = path.metadata().map_or(0, |metadata| metadata.len());
        self.damage(path, 0, length, error.to_string());
    }

    fn damage(&mut self, path: &Path, offset: u64, length: u64, what: impl Into<String>) {
        self.report.damage.push(DamageRow { path: path.to_owned(), offset, length, what: what.into() });
    }
}

/// How far a long check has got, on a terminal.
struct ProgressLine {
    shown: bool,
    total_bytes: u64,
    done_bytes: u64, // of the files before
}

impl ProgressLine {
    fn at(&mut self, offset: u64) {
        const EVERY_BYTES: u64 = 64 << 20;
        if self.shown && offset % EVERY_BYTES < (16 << 10) {
            let percent = (self.done_bytes + offset).saturating_mul(100) / self.total_bytes.max(1);
            let _gone = write!(io::stderr(), "\r\x1b[2Kverifying: {percent} %");
        }
    }

    fn next_file(&mut self, path: &Path) {
        self.done_bytes += path.metadata().map_or(0, |metadata| metadata.len());
    }

    fn end(&self) {
        if self.shown {
            let _gone = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn print(report: &Report, sources: &[((u64, u16), SourceAudit)], out: &mut dyn Write) -> io::Result<()> {
    let mut rows = table(["source", "sampled", "recorded", "lost", "unexplained"]);
    for (_, source) in sources {
        let sampled = source.recorded.saturating_add(source.lost).saturating_add(source.unexplained);
        rows.add_row([
            source.name.clone(),
            sampled.to_string(),
            source.recorded.to_string(),
            source.lost.to_string(),
            source.unexplained.to_string(),
        ]);
    }
    writeln!(out, "{rows}\n")?;
    for damage in &report.damage {
        let (path, size) = (damage.path.display(), text::bytes(damage.length));
        writeln!(out, "damage: {path} at {}, {size}: {}", damage.offset, damage.what)?;
    }
    for hole in &report.holes {
        let path = hole.path.display();
        let (count, source, offset) = (hole.count, &hole.source, hole.offset);
        writeln!(out, "unexplained: {path} before {offset}: {count} reading(s) of {source} are missing")?;
    }
    let verdict = if report.intact && report.unexplained == 0 { "intact" } else { "NOT intact" };
    let (frames, lost, unexplained) = (report.frames, report.lost, report.unexplained);
    writeln!(out, "{verdict}: {frames} frames, {lost} lost and explained, {unexplained} unexplained")
}
