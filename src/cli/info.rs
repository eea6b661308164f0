//! `info`: shows what segments contain. Reads headers and footers. A segment without a footer is
//! read in full.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flatcap_format::frame::Incomplete;
use flatcap_format::histogram::TotalHistogram;
use flatcap_format::replay::{RecordedHost, RecordedHosts};
use flatcap_format::schema::GapCauseNames;
use flatcap_format::segment::{
    Advance, Attachment, CompressedSegment, FooterTotals, FrameKind, ListedSegment, SegmentError,
    SegmentReader, SourceSender, markers,
};
use serde::Serialize;

use super::error::CliError;
use super::hosts::{find_host, host_lines};
use super::name_lines::{NameRow, name_lines, odd_names};
use super::recordings::{default_recordings, segments_of};
use super::sender_text::sender_lines;
use super::source_sum::SourceSum;
use super::tables::{SOURCE_COLUMNS, SPARE_SOURCE_COLUMNS, SpareColumns, fitted, table};
use super::terminal::{Output, wrapped};
use super::unsealed_totals::count_unsealed;
use super::zone_option::ZoneOption;
use super::{ExitStatus, human, print_json};
use crate::config;
use flatcap_text::time_printer::TimePrinter;

/// Columns that the table of segments omits on a narrow terminal, the least important first.
const SPARE_SEGMENT_COLUMNS: [SpareColumns; 5] = [
    ("checksum", &[2]),
    ("last sample", &[8]),
    ("raw size", &[4, 5]),
    ("frames", &[6]),
    ("first sample", &[7]),
];

/// Show what segments contain: sources, rates, lateness, losses and sizes.
///
/// Reads headers and footers; a segment without a footer is read in full.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments [default: ./flatcap-data, else /var/lib/flatcap].
    #[arg(value_name = "PATH", default_values_os_t = default_recordings(), hide_default_value = true)]
    paths: Vec<PathBuf>,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Show only the recordings of this host: its name or its machine id.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    zone: ZoneOption,
    /// Print a file that is attached to the segments, from the newest segment that has it.
    /// flatcap.toml is the configuration of the recording.
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    attachment: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct InfoReport {
    hosts: Vec<RecordedHost>,
    segments: Vec<InfoSegment>,
    sources: Vec<InfoSource>,
    frames: u64,
    bytes: u64,
    raw_bytes: u64,
    stored_bytes: u64,
    marks: u64,
    /// Names that readers quote, change or omit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<NameRow>,
}

#[derive(Debug, Serialize)]
struct InfoSegment {
    path: PathBuf,
    host: String,
    state: &'static str,
    recovered: bool,
    checksum: &'static str,
    bytes: u64,
    compressed: bool,
    raw_bytes: u64,
    stored_bytes: u64,
    frames: u64,
    first_wall_ns: Option<i64>,
    first_time: Option<String>,
    last_wall_ns: Option<i64>,
    last_time: Option<String>,
    run_id: String,
    /// Whether a segment is compressed and has samples, but no sizes by source. Only a footer has
    /// these sizes.
    #[serde(skip)]
    lacks_sizes: bool,
}

#[derive(Debug, Serialize)]
struct InfoSource {
    name: String,
    host: String,
    id: u16,
    run_id: String,
    root: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    period_ns: u64,
    recorded: u64,
    lost: u64,
    thinned: u64,
    lost_causes: Option<String>,
    /// The sum over the segments whose footers count missed samples; `None` if no footer does.
    missed: Option<u64>,
    incomplete: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete_reasons: Option<String>, // in words; `None` if unknown
    /// Whether there are also segments that have samples of the source and do not count `missed`
    /// and `incomplete`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partly_counted: bool,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    requested_hz: Option<f64>,
    achieved_hz: Option<f64>,
    lateness_ns: InfoLatency,
    read_duration_ns: InfoLatency,
    /// The uncompressed and the stored size of the source's frames in compressed segments, in
    /// bytes.
    compressed_raw_bytes: u64,
    compressed_stored_bytes: u64,
}

#[derive(Debug, Serialize)]
struct InfoLatency {
    p50: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let listings = segments_of(&args.paths)?;
    if let Some(name) = &args.attachment {
        return attachment(&listings, name, out);
    }
    let mut report = InfoReport::default();
    let hosts = RecordedHosts::of(&listings);
    let wanted = args.host.as_deref().map(|name| find_host(&hosts, name)).transpose()?;
    let mut sums: BTreeMap<(u64, u16), SourceSum> = BTreeMap::new();
    let mut order = BTreeMap::new(); // of runs, as listed: their ids are random
    let mut outcome = ExitStatus::Done;
    for listing in &listings {
        match listing.open() {
            Ok(Some(reader)) => {
                if wanted.as_ref().is_some_and(|wanted| !wanted.is_of(reader.header())) {
                    continue;
                }
                let run_id = reader.header().run_id;
                let place = order.len();
                order.entry(run_id).or_insert(place);
                let host = hosts.name_of(run_id).to_owned();
                add_segment(&mut report, &mut sums, listing, host, reader)?;
            }
            Ok(None) => {}
            Err(error) => {
                outcome = ExitStatus::DataLoss;
                writeln!(io::stderr(), "flatcap: {}", human::escaped(&error.to_string()))?;
            }
        }
    }
    if report.segments.is_empty() && outcome == ExitStatus::DataLoss {
        // None of the requested files could be read.
        return Ok(ExitStatus::Failed);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|((run_id, id), _)| (order.get(run_id), *id));
    let source = |((run_id, id), sum): ((u64, u16), SourceSum)| {
        info_source(hosts.name_of(run_id).to_owned(), run_id, id, sum)
    };
    report.sources = sums.into_iter().map(source).collect();
    report.frames = report.segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.frames));
    report.bytes = report.segments.iter().map(|segment| segment.bytes).sum();
    report.raw_bytes = report.segments.iter().map(|segment| segment.raw_bytes).sum();
    report.stored_bytes = report.segments.iter().map(|segment| segment.stored_bytes).sum();
    report.hosts = hosts.into_shown(wanted.as_ref());
    report.names = odd_names(&args.paths);
    if args.json {
        print_json(&report, out)?;
    } else {
        print(&report, TimePrinter::new(args.zone.zone()?), out)?;
    }
    Ok(outcome)
}

/// Prints an attachment byte for byte. On a terminal, control characters are escaped, because an
/// attachment may be the log of the host, to which any user can write lines.
fn attachment(listings: &[ListedSegment], wanted: &str, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let mut names = BTreeSet::new();
    let (mut has_read, mut unreadable) = (false, None);
    for listing in listings.iter().rev() {
        let mut reader = match listing.open() {
            Ok(Some(reader)) => reader,
            Ok(None) => continue,
            Err(error) => {
                unreadable = Some(error);
                continue;
            }
        };
        has_read = true;
        while let Some(advance) = reader.advance()? {
            let Advance::Frame(at) = advance else { continue };
            if at.kind != FrameKind::Attachment {
                continue;
            }
            let Some(attachment) = Attachment::decode(reader.payload(at)) else { continue };
            if attachment.name == wanted {
                if Output::Stdout.is_terminal() {
                    out.write_all(human::escaped_lines(&attachment.content).as_bytes())?;
                } else {
                    out.write_all(&attachment.content)?;
                }
                return Ok(ExitStatus::Done);
            }
            names.insert(attachment.name);
        }
    }
    if let Some(error) = unreadable.filter(|_| !has_read) {
        return Err(error.into());
    }
    let names = human::escaped_list(&names);
    let known = if names.is_empty() { "they have none".to_owned() } else { format!("they have {names}") };
    Err(CliError::Usage(format!("--attachment {wanted}: not attached to these segments; {known}")))
}

/// Adds the counts of one segment to the row of the segment and to the sources of its run.
fn add_segment(
    report: &mut InfoReport,
    sums: &mut BTreeMap<(u64, u16), SourceSum>,
    listing: &ListedSegment,
    host: String,
    mut reader: SegmentReader,
) -> Result<(), SegmentError> {
    let path = reader.path().to_owned();
    let io_error = |error| SegmentError::Io { path: path.clone(), error };
    let recovered = reader.footer().is_some_and(|footer| footer.recovered);
    let is_sealed = reader.is_sealed();
    let footer = reader.footer().map(|footer| footer.totals.clone());
    // Only a footer that the recorder wrote has latencies, and these latencies cover all samples.
    let is_recorders = !recovered
        && footer.iter().flatten().any(|totals: &FooterTotals| totals.lateness.buckets().next().is_some());
    let is_counted = footer.is_none();
    let (totals, marks) = match footer {
        Some(totals) => (totals, markers(&mut reader)?.len() as u64),
        None => count_unsealed(&mut reader)?,
    };
    report.marks += marks;
    // The footer also lists the sources that were added after the header was written.
    let (length, occupied) = match reader.metadata().map_err(io_error)? {
        Some(metadata) => (metadata.len(), metadata.blocks() * 512),
        None => (0, 0),
    };
    let compressed = reader.compressed();
    let header = reader.footer().map_or_else(|| reader.header(), |footer| &footer.header).clone();
    let spans = || totals.iter().filter_map(|totals| totals.span);
    let first_wall_ns = spans().map(|span| span.first_wall_ns).min();
    let last_wall_ns = spans().map(|span| span.last_wall_ns).max();
    report.segments.push(InfoSegment {
        path: path.clone(),
        host,
        state: if is_sealed {
            "sealed"
        } else if listing.live {
            "active"
        } else {
            "torn"
        },
        recovered,
        checksum: header.checksum.name(),
        bytes: occupied,
        compressed: compressed.is_some(),
        raw_bytes: compressed.map_or(length, CompressedSegment::raw_bytes),
        stored_bytes: length,
        frames: totals.iter().fold(0, |sum, totals| sum.saturating_add(totals.recorded)),
        first_wall_ns,
        first_time: first_wall_ns.map(TimePrinter::utc),
        last_wall_ns,
        last_time: last_wall_ns.map(TimePrinter::utc),
        run_id: format!("{:016x}", header.run_id),
        lacks_sizes: compressed.is_some_and(|compressed| compressed.sizes().is_empty())
            && spans().next().is_some(),
    });
    for totals in &totals {
        let Some(source) = header.source(totals.source) else { continue };
        let sum = sums.entry((header.run_id, totals.source)).or_insert_with(|| SourceSum {
            name: source.name.clone(),
            root: source.root.clone(),
            labels: source.labels.iter().cloned().collect(),
            period_ns: source.period_ns,
            totals: FooterTotals::new(totals.source),
            missed: None,
            incomplete: None,
            is_counted: (false, false),
            compressed: (0, 0),
        });
        sum.add(totals, is_recorders, is_counted);
        let sizes = compressed.map(CompressedSegment::sizes).unwrap_or_default();
        for size in sizes.iter().filter(|size| size.source == totals.source) {
            sum.compressed.0 = sum.compressed.0.saturating_add(size.raw_bytes);
            sum.compressed.1 = sum.compressed.1.saturating_add(size.stored_bytes);
        }
    }
    Ok(())
}

fn info_source(host: String, run_id: u64, id: u16, sum: SourceSum) -> InfoSource {
    let latency = |total: &TotalHistogram| {
        let summary = Some(total.summary()).filter(|_| total.buckets().next().is_some());
        InfoLatency {
            p50: summary.map(|summary| summary.p50_ns),
            p99: summary.map(|summary| summary.p99_ns),
            max: summary.map(|summary| summary.max_ns),
        }
    };
    InfoSource {
        name: sum.name,
        host,
        id,
        run_id: format!("{run_id:016x}"),
        root: sum.root,
        labels: sum.labels,
        period_ns: sum.period_ns,
        recorded: sum.totals.recorded,
        lost: sum.totals.lost,
        thinned: sum.totals.thinned,
        lost_causes: (sum.totals.lost > 0).then(|| GapCauseNames(sum.totals.causes).to_string()),
        missed: sum.missed,
        incomplete: sum.incomplete,
        is_partly_counted: sum.is_counted == (true, true),
        incomplete_reasons: Some(Incomplete::of_flags(sum.totals.incomplete_flags).explanation())
            .filter(|text| !text.is_empty()),
        first_seq: sum.totals.span.map(|span| span.first_seq),
        last_seq: sum.totals.span.map(|span| span.last_seq),
        requested_hz: human::asked_hz(sum.period_ns),
        achieved_hz: sum.totals.achieved_hz(sum.period_ns),
        lateness_ns: latency(&sum.totals.lateness),
        read_duration_ns: latency(&sum.totals.read_duration),
        compressed_raw_bytes: sum.compressed.0,
        compressed_stored_bytes: sum.compressed.1,
    }
}

/// Returns the file name of a path, escaped for a terminal.
fn file_name(path: &Path) -> String {
    human::escaped(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()).into_owned()
}

/// Returns lines that state the compression ratio of each source.
fn compression_lines(report: &InfoReport) -> Vec<String> {
    let mut lines = Vec::new();
    for source in report.sources.iter().filter(|source| source.compressed_raw_bytes > 0) {
        let (raw, stored) = (source.compressed_raw_bytes, source.compressed_stored_bytes);
        let (name, share) = (human::escaped(&source.name), human::percent(stored, raw));
        let (raw, stored) = (human::bytes(raw), human::bytes(stored));
        lines.push(format!("compressed: {name}: {raw} became {stored} ({share})"));
    }
    let (compressed, lacking) = report.segments.iter().fold((0, 0), |(compressed, lacking), segment| {
        (compressed + u32::from(segment.compressed), lacking + u32::from(segment.lacks_sizes))
    });
    if lacking > 0 {
        lines.push(format!(
            "compressed: {lacking} of {compressed} compressed segment(s) not counted by source, since their \
             footers lack these sizes"
        ));
    }
    lines
}

/// Returns a line for each source with incomplete samples, with the reason why they are incomplete.
fn incomplete_lines(report: &InfoReport) -> impl Iterator<Item = String> {
    report.sources.iter().filter_map(|source| {
        let (reasons, count) = (source.incomplete_reasons.as_ref()?, source.incomplete?);
        let name = human::escaped(&source.name);
        Some(format!(
            "incomplete: {count} sample(s) of {name}: {reasons}; the log of the recorder, and flatcap status \
             while it runs, name the first file and line"
        ))
    })
}

/// Returns lines that say how many samples of each source were left out on purpose.
fn thinned_lines(report: &InfoReport) -> impl Iterator<Item = String> {
    let thinned = report.sources.iter().filter(|source| source.thinned > 0);
    thinned.map(|source| format!("thinned: {} sample(s) of {}", source.thinned, human::escaped(&source.name)))
}

/// Returns a line for each program that has pushed sources.
fn pushed_lines(report: &InfoReport) -> Vec<String> {
    let sender = |source: &InfoSource| SourceSender::from_labels(|label| source.labels.get(label).cloned());
    sender_lines(report.sources.iter().filter_map(|source| Some((sender(source)?, source.name.as_str()))))
}

/// Returns the line with the time range of the segments; `None` if there are no samples.
fn span_line(report: &InfoReport, times: &mut TimePrinter) -> Option<String> {
    let first = report.segments.iter().filter_map(|segment| segment.first_wall_ns).min()?;
    let last = report.segments.iter().filter_map(|segment| segment.last_wall_ns).max()?;
    Some(format!("time: {} to {}", times.microseconds(first), times.microseconds(last)))
}

fn print(report: &InfoReport, mut times: TimePrinter, out: &mut dyn Write) -> io::Result<()> {
    let mut lines = host_lines(&report.hosts);
    lines.extend(span_line(report, &mut times));
    let width = Output::Stdout.width();
    for line in &lines {
        writeln!(out, "{}", wrapped(line, width, 2))?;
    }
    let mut time = |wall_ns: Option<i64>| wall_ns.map_or_else(|| "-".to_owned(), |ns| times.microseconds(ns));
    // The column of the host is the last column of each table, and is shown only if there are
    // several hosts.
    let host_column = (report.hosts.len() > 1).then_some("host");
    let host_cell = |host: &str| host_column.map(|_| human::escaped(host).into_owned());
    let header = ["segment", "state", "checksum", "size", "raw", "ratio", "frames", "first", "last"];
    let mut segments = table(header.into_iter().chain(host_column));
    for segment in &report.segments {
        let row = [
            file_name(&segment.path),
            segment.state.to_owned(),
            segment.checksum.to_owned(),
            human::bytes(segment.bytes),
            human::bytes(segment.raw_bytes),
            ratio(segment.compressed, segment.stored_bytes, segment.raw_bytes),
            segment.frames.to_string(),
            time(segment.first_wall_ns),
            time(segment.last_wall_ns),
        ];
        segments.add_row(row.into_iter().chain(host_cell(&segment.host)));
    }
    let mut sources = table(SOURCE_COLUMNS.into_iter().chain(host_column));
    for source in &report.sources {
        let rate = |hz: Option<f64>| hz.map_or_else(|| "-".to_owned(), human::hertz);
        let mut row = vec![
            human::escaped(&source.name).into_owned(),
            // Imported sources have no period.
            if source.period_ns == 0 {
                "-".to_owned()
            } else {
                config::format_duration(Duration::from_nanos(source.period_ns))
            },
            rate(source.requested_hz),
            rate(source.achieved_hz),
        ];
        row.extend([source.recorded, source.lost].map(|count| count.to_string()));
        row.extend([source.missed, source.incomplete].map(|count| counted(count, source.is_partly_counted)));
        for InfoLatency { p50, p99, max } in [&source.lateness_ns, &source.read_duration_ns] {
            let shown = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), human::latency);
            row.extend([*p50, *p99, *max].map(shown));
        }
        row.extend(host_cell(&source.host));
        sources.add_row(row);
    }
    writeln!(out, "{}\n", fitted(segments, width, &SPARE_SEGMENT_COLUMNS))?;
    writeln!(out, "{}\n", fitted(sources, width, &SPARE_SOURCE_COLUMNS))?;
    let mut lines = compression_lines(report);
    let lossy = report.sources.iter().filter_map(|source| Some((source, source.lost_causes.as_ref()?)));
    lines.extend(lossy.map(|(source, causes)| {
        format!("lost: {} sample(s) of {}: {causes}", source.lost, human::escaped(&source.name))
    }));
    lines.extend(incomplete_lines(report));
    lines.extend(thinned_lines(report));
    lines.extend(pushed_lines(report));
    lines.extend(name_lines(&report.names));
    if report.marks > 0 {
        lines.push(format!("marks: {}; flatcap marks lists them", report.marks));
    }
    for line in &lines {
        writeln!(out, "{}", wrapped(line, width, 2))?;
    }
    write!(out, "{} frames, {}", report.frames, human::bytes(report.bytes))?;
    if report.segments.iter().any(|segment| segment.compressed) {
        let (raw, stored) = (report.raw_bytes, report.stored_bytes);
        write!(out, "; {} as recorded ({})", human::bytes(raw), human::percent(stored, raw))?;
    }
    writeln!(out)
}

/// Formats a count for display. A plus sign marks a lower bound.
fn counted(count: Option<u64>, is_partial: bool) -> String {
    match count {
        // "0+" would contain no information.
        Some(0) | None if is_partial => "-".to_owned(),
        Some(count) if is_partial => format!("{count}+"),
        count => count.map_or_else(|| "-".to_owned(), |count| count.to_string()),
    }
}

/// Returns the compression ratio of a segment.
fn ratio(compressed: bool, stored_bytes: u64, raw_bytes: u64) -> String {
    if compressed { human::percent(stored_bytes, raw_bytes) } else { "-".to_owned() }
}
