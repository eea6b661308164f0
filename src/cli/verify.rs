//! `verify`: reads segments in full and reports damage and losses.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use flatcap_format::replay::{RecordedHost, RecordedHosts};
use flatcap_format::schema::GapCauseNames;
use flatcap_format::segment::{
    ListedSegment, REMOVED_NAME, RemovedSegments, SegmentError, SegmentFlaw, SourceCompleteness,
    UnexplainedGap, Verification, VerificationReport,
};
use flatcap_format::storage::open_regular;
use serde::Serialize;

use super::error::CliError;
use super::hosts::{find_host, host_lines};
use super::name_lines::{NameRow, name_lines, odd_names};
use super::recordings::{default_recordings, segments_of};
use super::tables::table;
use super::terminal::{Output, wrapped};
use super::{ExitStatus, human, print_json};

/// Verify segments: read them in full and check everything.
///
/// Checks checksums, order, footers, and that recorded + lost = sampled.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments [default: ./flatcap-data, else /var/lib/flatcap].
    #[arg(value_name = "PATH", default_values_os_t = default_recordings(), hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// Verify only the recordings of this host: its name or its machine id.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Exit with status 3 if samples were lost, even if the files explain the loss.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct VerifyReport {
    hosts: Vec<RecordedHost>,
    intact: bool,
    frames: u64,
    lost: u64,
    thinned: u64,
    /// The number of samples in segments that retention has removed from between remaining
    /// segments.
    #[serde(skip_serializing_if = "is_none")]
    removed: u64,
    unexplained: u64,
    /// The first damaged ranges; the others are only counted.
    damage: Vec<SegmentFlaw>,
    #[serde(skip_serializing_if = "is_none")]
    more_damage: u64,
    holes: Vec<UnexplainedGap>,
    #[serde(skip_serializing_if = "is_none")]
    more_holes: u64,
    losses: Vec<LossRow>,
    unknown_frames: u64,
    /// Files that could not be read. `intact` covers the other files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableRow>,
    /// Names that readers quote, change or omit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<NameRow>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A file that the system could not read.
#[derive(Debug, Serialize)]
struct UnreadableRow {
    path: PathBuf,
    error: String,
}

/// The losses of one source in one run, according to its Gap frames.
#[derive(Debug, Serialize)]
struct LossRow {
    source: String,
    count: u64,
    causes: String,
}

impl VerifyReport {
    fn of(verdict: &VerificationReport, unreadable: Vec<UnreadableRow>, hosts: Vec<RecordedHost>) -> Self {
        let loss = |source: &SourceCompleteness| LossRow {
            source: name_of(source),
            count: source.lost,
            causes: GapCauseNames(source.causes).to_string(),
        };
        let sources = verdict.sources.iter().map(|(_, source)| source).chain([&verdict.earlier]);
        Self {
            losses: sources.filter(|source| source.lost > 0).map(loss).collect(),
            hosts,
            intact: verdict.is_intact(),
            frames: verdict.frames,
            lost: verdict.lost(),
            thinned: verdict.thinned(),
            removed: verdict.removed(),
            unexplained: verdict.unexplained(),
            damage: verdict.flaws.clone(),
            more_damage: verdict.more_flaws,
            holes: verdict.unexplained_gaps.clone(),
            more_holes: verdict.more_unexplained_gaps,
            unknown_frames: verdict.unknown_frames,
            unreadable,
            names: Vec::new(),
        }
    }

    /// Returns the exit status for this report.
    fn outcome(&self, is_strict: bool) -> ExitStatus {
        let is_sound = self.intact && self.unexplained == 0 && self.unreadable.is_empty();
        if is_sound && !(is_strict && self.lost > 0) { ExitStatus::Done } else { ExitStatus::DataLoss }
    }
}

/// Returns the name of a source, or a label if the counts are a sum over many sources.
fn name_of(source: &SourceCompleteness) -> String {
    if source.name.is_empty() { "(sources of earlier runs)".to_owned() } else { source.name.clone() }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let mut listings = segments_of(&args.paths)?;
    let hosts = RecordedHosts::of(&listings);
    let wanted = args.host.as_deref().map(|name| find_host(&hosts, name)).transpose()?;
    if let Some(wanted) = &wanted {
        // A segment that cannot be read may belong to the host, so it is verified too.
        let is_of_other = |listing: &ListedSegment| {
            listing.open().is_ok_and(|reader| reader.is_some_and(|reader| !wanted.is_of(reader.header())))
        };
        listings.retain(|listing| !is_of_other(listing));
    }
    let mut verification = Verification::default();
    let folders: BTreeSet<&Path> = listings.iter().filter_map(|listing| listing.path.parent()).collect();
    for folder in folders {
        verification.add_removed(&removed_segments(folder));
    }
    let total_bytes: u64 = listings.iter().map(|listing| bytes_of(&listing.path)).sum();
    let mut progress = ProgressLine {
        shown: !args.json && io::stderr().is_terminal(),
        total_bytes,
        done_bytes: 0,
        percent: 0,
    };
    let mut unreadable = Vec::new();
    for listing in &listings {
        match verify(&mut verification, listing, &mut progress) {
            Ok(()) => {}
            Err(SegmentError::Io { path, error }) => {
                unreadable.push(UnreadableRow { path, error: error.to_string() });
            }
            Err(error) => verification.add_unreadable(&listing.path, bytes_of(&listing.path), &error),
        }
    }
    progress.end();
    let is_nothing_read = unreadable.len() == listings.len();
    let verdict = verification.finish();
    let mut report = VerifyReport::of(&verdict, unreadable, hosts.into_shown(wanted.as_ref()));
    report.names = odd_names(&args.paths);
    if args.json {
        print_json(&report, out)?;
    } else {
        print(&report, &verdict, out)?;
    }
    Ok(if is_nothing_read { ExitStatus::Failed } else { report.outcome(args.strict) })
}

/// Reads a directory's list of segments that retention has removed from between the remaining
/// segments. Without this list, the samples of these segments would count as missing.
fn removed_segments(folder: &Path) -> RemovedSegments {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    open_regular(&folder.join(REMOVED_NAME)).and_then(RemovedSegments::read_from).unwrap_or_default()
}

/// Reads one segment.
fn verify(
    verification: &mut Verification,
    listing: &ListedSegment,
    progress: &mut ProgressLine,
) -> Result<(), SegmentError> {
    let Some(mut reader) = listing.open()? else { return Ok(()) };
    // If memory mapping fails, the segment is read more slowly.
    let _unmapped = reader.map();
    let result = verification.verify(&mut reader, listing.live, &mut |offset| progress.at(offset));
    progress.next_file(reader.path());
    result
}

fn bytes_of(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

/// A line that shows the progress of a long check on a terminal.
struct ProgressLine {
    shown: bool,
    total_bytes: u64,
    done_bytes: u64, // of finished files
    percent: u64,    // as last shown
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
        self.done_bytes += bytes_of(path);
    }

    fn end(&self) {
        if self.shown {
            let _gone = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn print(report: &VerifyReport, verdict: &VerificationReport, out: &mut dyn Write) -> io::Result<()> {
    let width = Output::Stdout.width();
    for line in host_lines(&report.hosts) {
        writeln!(out, "{}", wrapped(&line, width, 2))?;
    }
    // Most recordings have no thinned samples. In this case, the column is omitted.
    let thinned_column = (report.thinned > 0).then_some("thinned");
    let header = ["source", "sampled", "recorded", "lost", "unexplained"];
    let mut rows = table(header.into_iter().chain(thinned_column));
    let earlier = Some(&verdict.earlier).filter(|sum| **sum != SourceCompleteness::default());
    for source in verdict.sources.iter().map(|(_, source)| source).chain(earlier) {
        let counts = [source.lost, source.thinned, source.unexplained];
        let sampled = counts.into_iter().fold(source.recorded, u64::saturating_add);
        let row = [
            human::escaped(&name_of(source)).into_owned(),
            sampled.to_string(),
            source.recorded.to_string(),
            source.lost.to_string(),
            source.unexplained.to_string(),
        ];
        rows.add_row(row.into_iter().chain(thinned_column.map(|_| source.thinned.to_string())));
    }
    writeln!(out, "{}\n", rows.trim_fmt())?;
    for damage in &report.damage {
        let (path, size, what) =
            (escaped_path(&damage.path), human::bytes(damage.length), human::escaped(&damage.what));
        writeln!(out, "damage: {path} at {}, {size}: {what}", damage.offset)?;
    }
    if report.more_damage > 0 {
        writeln!(out, "damage: {} more places", report.more_damage)?;
    }
    for LossRow { source, count, causes } in &report.losses {
        writeln!(out, "lost: {count} sample(s) of {}: {causes}", human::escaped(source))?;
    }
    for source in verdict.sources.iter().map(|(_, source)| source).filter(|source| source.removed > 0) {
        let (count, name) = (source.removed, name_of(source));
        let name = human::escaped(&name);
        writeln!(out, "removed: {count} sample(s) of {name}, in segments between others, by retention")?;
    }
    for hole in &report.holes {
        let (path, source) = (escaped_path(&hole.path), human::escaped(&hole.source));
        let (count, offset) = (hole.count, hole.offset);
        writeln!(out, "unexplained: {path} before {offset}: {count} sample(s) of {source} are missing")?;
    }
    if report.more_holes > 0 {
        writeln!(out, "unexplained: {} more places", report.more_holes)?;
    }
    for UnreadableRow { path: unreadable, error } in &report.unreadable {
        writeln!(out, "unreadable: {}: {error}", escaped_path(unreadable))?;
    }
    for line in name_lines(&report.names) {
        writeln!(out, "{}", wrapped(&line, width, 2))?;
    }
    let verdict = match (report.intact && report.unexplained == 0, report.unreadable.len()) {
        (true, 0) => "intact".to_owned(),
        (true, files) => format!("no damage found, but {files} file(s) could not be read"),
        (false, _) => "NOT intact".to_owned(),
    };
    let (frames, lost, unexplained) = (report.frames, report.lost, report.unexplained);
    let thinned = if report.thinned > 0 { format!("{} thinned, ", report.thinned) } else { String::new() };
    writeln!(out, "{verdict}: {frames} frames, {thinned}{lost} lost and explained, {unexplained} unexplained")
}

/// Returns a path, escaped for a terminal.
fn escaped_path(path: &Path) -> String {
    human::escaped(&path.display().to_string()).into_owned()
}
