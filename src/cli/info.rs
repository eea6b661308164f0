//! `info`: what is in these files, from headers and footers; a segment without a footer is read through.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use serde::Serialize;

use super::error::CliError;
use super::record::table;
use super::{Outcome, text};
use crate::config;
use crate::frame::Shortfall;
use crate::metrics::Total;
use crate::segment::{
    Advance, Attachment, FrameKind, Gap, Listing, Packed, SegmentError, SegmentReader, SourceInfo, Span,
    Totals, list,
};
use crate::slab::Causes;

/// What is in these files, from headers and footers.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Segment files, or directories of segments.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// One JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Print a file that is attached to the newest of these segments that has it: flatcap.toml is the configuration it was
    /// recorded under.
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    attachment: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    segments: Vec<Segment>,
    sources: Vec<Source>,
    frames: u64,
    bytes: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Segment {
    path: PathBuf,
    state: &'static str,
    recovered: bool,
    checksum: &'static str,
    bytes: u64,
    packed: bool,
    raw_bytes: u64,
    stored_bytes: u64,
    frames: u64,
    first_wall_ns: Option<i64>,
    last_wall_ns: Option<i64>,
    run_id: String,
    /// Packed, and of samples, but it does not say which source's: its footer would.
    #[serde(skip)]
    lacks_sizes: bool,
}

#[derive(Debug, Serialize)]
struct Source {
    name: String,
    id: u16,
    run_id: String,
    root: String,
    period_ns: u64,
    recorded: u64,
    lost: u64,
    lost_causes: Option<String>,
    missed: u64,
    partial: u64,
    first_seq: Option<u64>,
    last_seq: Option<u64>,
    asked_hz: Option<f64>,
    achieved_hz: Option<f64>,
    lateness_ns: Latency,
    read_duration_ns: Latency,
    /// Of its frames in packed segments: as they were recorded, and as they are.
    packed_raw_bytes: u64,
    packed_stored_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Latency {
    p50: u64,
    p99: u64,
    max: u64,
}

/// What is shown of a source, by `record` too.
pub(super) const SOURCE_COLUMNS: [&str; 14] = [
    "source",
    "period",
    "asked Hz",
    "achieved Hz",
    "recorded",
    "lost",
    "missed",
    "partial",
    "lateness p50",
    "p99",
    "max",
    "read p50",
    "p99",
    "max",
];

/// One source of one run over all its segments.
struct Sum {
    name: String,
    root: String,
    period_ns: u64,
    totals: Totals,
    packed: (u64, u64), // bytes in packed segments: raw, stored
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let listings = list(&args.paths)?;
    if listings.is_empty() {
        return Err(CliError::NoSegments(args.paths.clone()));
    }
    if let Some(name) = &args.attachment {
        return attachment(&listings, name, out);
    }
    let mut report = Report::default();
    let mut sums: BTreeMap<(u64, u16), Sum> = BTreeMap::new();
    let mut order = Vec::new(); // runs as they come: their ids are random
    let mut outcome = Outcome::Done;
    for listing in &listings {
        match listing.open() {
            Ok(Some(reader)) => {
                let run_id = reader.header().run_id;
                if !order.contains(&run_id) {
                    order.push(run_id);
                }
                add(&mut report, &mut sums, listing, reader)?;
            }
            Ok(None) => {}
            Err(error) => {
                outcome = Outcome::DataLoss;
                writeln!(io::stderr(), "flatcap: {error}")?;
            }
        }
    }
    if report.segments.is_empty() && outcome == Outcome::DataLoss {
        // What was asked for is not there at all.
        return Ok(Outcome::Failed);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|((run_id, id), _)| (order.iter().position(|run| run == run_id), *id));
    report.sources = sums.into_iter().map(|((run_id, id), sum)| source(run_id, id, sum)).collect();
    report.frames = report.segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.frames));
    report.bytes = report.segments.iter().map(|segment| segment.bytes).sum();
    report.raw_bytes = report.segments.iter().map(|segment| segment.raw_bytes).sum();
    report.stored_bytes = report.segments.iter().map(|segment| segment.stored_bytes).sum();
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    Ok(outcome)
}

/// Prints an attachment, byte for byte.
fn attachment(listings: &[Listing], wanted: &str, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let mut names = BTreeSet::new();
    for listing in listings.iter().rev() {
        let Ok(Some(mut reader)) = listing.open() else { continue };
        while let Some(advance) = reader.advance()? {
            let Advance::Frame(at) = advance else { continue };
            if at.kind != FrameKind::Attachment {
                continue;
            }
            let Some(attachment) = Attachment::decode(reader.payload(at)) else { continue };
            if attachment.name == wanted {
                out.write_all(&attachment.content)?;
                return Ok(Outcome::Done);
            }
            names.insert(attachment.name);
        }
    }
    let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let known = if names.is_empty() { "they have none".to_owned() } else { format!("they have {names}") };
    Err(CliError::Usage(format!("--attachment {wanted}: not attached to these segments; {known}")))
}

/// Adds one segment's counts to its own row and to its run's sources.
fn add(
    report: &mut Report,
    sums: &mut BTreeMap<(u64, u16), Sum>,
    listing: &Listing,
    mut reader: SegmentReader,
) -> Result<(), SegmentError> {
    let path = reader.path().to_owned();
    let io_error = |error| SegmentError::Io { path: path.clone(), error };
    let recovered = reader.footer().is_some_and(|footer| footer.recovered);
    let is_sealed = reader.is_sealed();
    let totals = match reader.footer() {
        Some(footer) => footer.totals.clone(),
        None => walk(&mut reader)?,
    };
    // With the sources that came after the header.
    let (length, occupied) = match reader.metadata().map_err(io_error)? {
        Some(metadata) => (metadata.len(), metadata.blocks() * 512),
        None => (0, 0),
    };
    let packed = reader.packed();
    let header = reader.footer().map_or_else(|| reader.header(), |footer| &footer.header).clone();
    let spans = || totals.iter().filter_map(|totals| totals.span);
    report.segments.push(Segment {
        path: path.clone(),
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
        packed: packed.is_some(),
        raw_bytes: packed.map_or(length, Packed::raw_bytes),
        stored_bytes: length,
        frames: totals.iter().fold(0, |sum, totals| sum.saturating_add(totals.recorded)),
        first_wall_ns: spans().map(|span| span.first_wall_ns).min(),
        last_wall_ns: spans().map(|span| span.last_wall_ns).max(),
        run_id: format!("{:016x}", header.run_id),
        lacks_sizes: packed.is_some_and(|packed| packed.sizes().is_empty()) && spans().next().is_some(),
    });
    for totals in &totals {
        let Some(source) = header.source(totals.source) else { continue };
        let sum = sums.entry((header.run_id, totals.source)).or_insert_with(|| Sum {
            name: source.name.clone(),
            root: source.root.clone(),
            period_ns: source.period_ns,
            totals: Totals::new(totals.source),
            packed: (0, 0),
        });
        sum.totals.add(totals);
        let sizes = packed.map(Packed::sizes).unwrap_or_default();
        for size in sizes.iter().filter(|size| size.source == totals.source) {
            sum.packed.0 = sum.packed.0.saturating_add(size.raw_bytes);
            sum.packed.1 = sum.packed.1.saturating_add(size.stored_bytes);
        }
    }
    Ok(())
}

/// Counts what an unsealed segment holds.
fn walk(reader: &mut SegmentReader) -> Result<Vec<Totals>, SegmentError> {
    let mut totals: Vec<Totals> =
        reader.header().sources.iter().map(|source| Totals::new(source.id)).collect();
    while let Some(advance) = reader.advance()? {
        let Advance::Frame(at) = advance else { continue };
        match at.kind {
            FrameKind::Telemetry => {
                let Some(sample) = reader.telemetry(at) else { continue };
                let span = Span {
                    first_seq: sample.seq,
                    last_seq: sample.seq,
                    first_mono_ns: sample.mono_ns,
                    last_mono_ns: sample.mono_ns,
                    first_wall_ns: sample.wall_ns,
                    last_wall_ns: sample.wall_ns,
                };
                if let Some(totals) = of(&mut totals, sample.source) {
                    totals.record(1, span);
                    totals.partial += u64::from(!Shortfall::of_flags(sample.flags).is_none());
                }
            }
            FrameKind::Descriptor => {
                if let Some(source) = SourceInfo::decode(reader.payload(at))
                    && of(&mut totals, source.id).is_none()
                {
                    totals.push(Totals::new(source.id));
                }
            }
            FrameKind::Gap => {
                let Some(gap) = Gap::decode(reader.payload(at)) else { continue };
                if let Some(totals) = of(&mut totals, gap.source) {
                    totals.lose(&gap);
                }
            }
            _ => {}
        }
    }
    Ok(totals)
}

fn of(totals: &mut [Totals], source: u16) -> Option<&mut Totals> {
    totals.iter_mut().find(|totals| totals.source == source)
}

fn source(run_id: u64, id: u16, sum: Sum) -> Source {
    let latency = |total: &Total| {
        let summary = total.summary();
        Latency { p50: summary.p50_ns, p99: summary.p99_ns, max: summary.max_ns }
    };
    Source {
        name: sum.name,
        id,
        run_id: format!("{run_id:016x}"),
        root: sum.root,
        period_ns: sum.period_ns,
        recorded: sum.totals.recorded,
        lost: sum.totals.lost,
        lost_causes: (sum.totals.lost > 0).then(|| Causes::from_bits(sum.totals.causes).to_string()),
        missed: sum.totals.missed,
        partial: sum.totals.partial,
        first_seq: sum.totals.span.map(|span| span.first_seq),
        last_seq: sum.totals.span.map(|span| span.last_seq),
        asked_hz: text::asked_hz(sum.period_ns),
        achieved_hz: sum.totals.achieved_hz(sum.period_ns),
        lateness_ns: latency(&sum.totals.lateness),
        read_duration_ns: latency(&sum.totals.read_duration),
        packed_raw_bytes: sum.packed.0,
        packed_stored_bytes: sum.packed.1,
    }
}

fn print(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    // On a terminal the reader is here: local time. In a pipe the output is kept: UTC.
    let zone = if io::stdout().is_terminal() { TimeZone::system() } else { TimeZone::UTC };
    let time = |wall_ns: Option<i64>| wall_ns.map_or_else(|| "-".to_owned(), |ns| text::local(ns, &zone));
    let mut segments =
        table(["segment", "state", "checksum", "size", "raw", "ratio", "frames", "first", "last"]);
    for segment in &report.segments {
        segments.add_row([
            segment.path.file_name().unwrap_or(segment.path.as_os_str()).to_string_lossy().into_owned(),
            segment.state.to_owned(),
            segment.checksum.to_owned(),
            text::bytes(segment.bytes),
            text::bytes(segment.raw_bytes),
            ratio(segment.packed, segment.stored_bytes, segment.raw_bytes),
            segment.frames.to_string(),
            time(segment.first_wall_ns),
            time(segment.last_wall_ns),
        ]);
    }
    let mut sources = table(SOURCE_COLUMNS);
    for source in &report.sources {
        let rate = |hz: Option<f64>| hz.map_or_else(|| "-".to_owned(), text::hertz);
        let mut row = vec![
            source.name.clone(),
            // What was imported has no period.
            if source.period_ns == 0 {
                "-".to_owned()
            } else {
                config::format_duration(Duration::from_nanos(source.period_ns))
            },
            rate(source.asked_hz),
            rate(source.achieved_hz),
        ];
        let counts = [source.recorded, source.lost, source.missed, source.partial];
        row.extend(counts.map(|count| count.to_string()));
        for Latency { p50, p99, max } in [&source.lateness_ns, &source.read_duration_ns] {
            // Only a footer knows them; no reading is ever made at its very deadline, or in no time.
            let shown = |ns: u64| if *max == 0 { "-".to_owned() } else { text::latency(ns) };
            row.extend([*p50, *p99, *max].map(shown));
        }
        sources.add_row(row);
    }
    writeln!(out, "{segments}\n\n{sources}\n")?;
    for source in report.sources.iter().filter(|source| source.packed_raw_bytes > 0) {
        let (raw, stored) = (source.packed_raw_bytes, source.packed_stored_bytes);
        let share = text::percent(stored, raw);
        writeln!(
            out,
            "packed: {}: {} became {} ({share})",
            source.name,
            text::bytes(raw),
            text::bytes(stored)
        )?;
    }
    let (packed, lacking) = report.segments.iter().fold((0, 0), |(packed, lacking), segment| {
        (packed + u32::from(segment.packed), lacking + u32::from(segment.lacks_sizes))
    });
    if lacking > 0 {
        writeln!(
            out,
            "packed: {lacking} of {packed} packed segment(s) not counted by source: only a footer tells these sizes, and there is none, or it lacks them"
        )?;
    }
    for source in &report.sources {
        if let Some(causes) = &source.lost_causes {
            writeln!(out, "lost: {} reading(s) of {}: {causes}", source.lost, source.name)?;
        }
    }
    write!(out, "{} frames, {}", report.frames, text::bytes(report.bytes))?;
    if report.segments.iter().any(|segment| segment.packed) {
        let (raw, stored) = (report.raw_bytes, report.stored_bytes);
        write!(out, "; {} as recorded ({})", text::bytes(raw), text::percent(stored, raw))?;
    }
    writeln!(out)
}

/// What is left of a packed segment.
fn ratio(packed: bool, stored_bytes: u64, raw_bytes: u64) -> String {
    if packed { text::percent(stored_bytes, raw_bytes) } else { "-".to_owned() }
}
