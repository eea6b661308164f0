//! `verify`: reads everything and proves it, or says where it is not what was written.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::CliError;
use super::record::table;
use super::{Outcome, text};
use crate::segment::{Flaw, Hole, SegmentError, SourceAudit, Verdict, Verification, list};
use crate::slab::Causes;

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

#[derive(Debug, Serialize)]
struct Report {
    intact: bool,
    frames: u64,
    lost: u64,
    unexplained: u64,
    damage: Vec<DamageRow>,
    holes: Vec<HoleRow>,
    losses: Vec<LossRow>,
    unknown_frames: u64,
}

#[derive(Debug, Serialize)]
struct DamageRow {
    path: PathBuf,
    offset: u64,
    length: u64,
    what: String,
}

/// What Gap frames say of a source in a run.
#[derive(Debug, Serialize)]
struct LossRow {
    source: String,
    count: u64,
    causes: String,
}

#[derive(Debug, Serialize)]
struct HoleRow {
    path: PathBuf,
    offset: u64,
    source: String,
    count: u64,
}

impl Report {
    fn of(verdict: &Verdict) -> Self {
        let damage = |Flaw { path, offset, length, what }: Flaw| DamageRow { path, offset, length, what };
        let hole = |Hole { path, offset, source, count }: Hole| HoleRow { path, offset, source, count };
        let lossy = verdict.sources.iter().filter(|(_, source)| source.lost > 0);
        let loss = |(_, source): &(_, SourceAudit)| LossRow {
            source: source.name.clone(),
            count: source.lost,
            causes: Causes::from_bits(source.causes).to_string(),
        };
        Self {
            losses: lossy.map(loss).collect(),
            intact: verdict.is_intact(),
            frames: verdict.frames,
            lost: verdict.lost(),
            unexplained: verdict.unexplained(),
            damage: verdict.flaws.iter().cloned().map(damage).collect(),
            holes: verdict.holes.iter().cloned().map(hole).collect(),
            unknown_frames: verdict.unknown_frames,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let listings = list(&args.paths)?;
    if listings.is_empty() {
        return Err(CliError::NoSegments(args.paths.clone()));
    }
    let mut verification = Verification::default();
    let bytes = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    let total_bytes: u64 = listings.iter().map(|listing| bytes(&listing.path)).sum();
    let mut progress = ProgressLine {
        shown: !args.json && io::stderr().is_terminal(),
        total_bytes,
        done_bytes: 0,
        percent: 0,
    };
    for listing in &listings {
        match listing.open() {
            Ok(Some(mut reader)) => {
                // Without a map it is read all the same, more slowly.
                let _unmapped = reader.map();
                verification.segment(&mut reader, listing.live, &mut |offset| progress.at(offset))?;
                progress.next_file(reader.path());
            }
            Ok(None) => {}
            Err(SegmentError::Io { path, error }) => return Err(SegmentError::Io { path, error }.into()),
            Err(error) => verification.unreadable(&listing.path, bytes(&listing.path), &error),
        }
    }
    progress.end();
    let verdict = verification.finish();
    let report = Report::of(&verdict);
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, &verdict.sources, out)?;
    }
    let is_sound = report.intact && report.unexplained == 0 && !(args.strict && report.lost > 0);
    Ok(if is_sound { Outcome::Done } else { Outcome::DataLoss })
}

/// How far a long check has got, on a terminal.
struct ProgressLine {
    shown: bool,
    total_bytes: u64,
    done_bytes: u64, // of the files before
    percent: u64,    // as last said
}

impl ProgressLine {
    fn at(&mut self, offset: u64) {
        let percent = (self.done_bytes + offset).saturating_mul(100) / self.total_bytes.max(1);
        if self.shown && percent != self.percent {
            self.percent = percent;
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
    for LossRow { source, count, causes } in &report.losses {
        writeln!(out, "lost: {count} reading(s) of {source}: {causes}")?;
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
