//! Determines the time span of recordings from the first and the last segments of their runs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::filter::{HostIdentity, ReplayFilter};
use super::item::ReplayItem;
use super::merge::MergedReader;
use crate::segment::{
    Advance, FrameKind, ListedSegment, RecordingStart, SampleView, SegmentError, list, runs,
};

/// Returns the first sample that a filter selects, or `None` if it selects no sample.
///
/// # Errors
/// Fails if a segment cannot be read.
pub fn first_sample(paths: &[PathBuf], filter: ReplayFilter) -> Result<Option<RecordingStart>, SegmentError> {
    let mut reader = MergedReader::open(paths, filter)?;
    let mut run = None;
    while let Some(item) = reader.next()? {
        match item {
            ReplayItem::Header(header, _) => run = Some((header.run_id, header.host.boot_id.clone())),
            ReplayItem::Sample(sample) => {
                let (run_id, boot_id) = run.unwrap_or_default();
                let SampleView { mono_ns, wall_ns, .. } = sample.telemetry;
                return Ok(Some(RecordingStart { run_id, boot_id, mono_ns, wall_ns }));
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Returns the wall times of the first and the last sample in nanoseconds, for one host or for all
/// hosts. Returns `None` if there are no samples. Reads an unsealed segment in full. Skips segments
/// that cannot be read.
///
/// # Errors
/// Returns `Io` if a path is missing or unreadable.
pub fn recording_span(
    paths: &[PathBuf],
    host: Option<&HostIdentity>,
) -> Result<Option<RangeInclusive<i64>>, SegmentError> {
    let listings = list(paths)?;
    let segment_span = |listing: &ListedSegment| segment_span(listing, host);
    let spans = runs(&listings).filter_map(|run| {
        let first = run.iter().find_map(segment_span)?;
        let last = run.iter().rev().find_map(segment_span)?;
        Some(*first.start()..=*last.end())
    });
    Ok(spans.reduce(|one, next| *one.start().min(next.start())..=*one.end().max(next.end())))
}

/// Returns the wall time at which recordings end, in nanoseconds. The result is `now_ns` if a
/// recorder is still writing one of the recordings, otherwise the time of the last sample. Returns
/// `None` if there are no samples.
///
/// # Errors
/// Returns the same errors as [`recording_span`].
pub(super) fn recording_end(
    paths: &[PathBuf],
    host: Option<&HostIdentity>,
    now_ns: i64,
) -> Result<Option<i64>, SegmentError> {
    let listings = list(paths)?;
    let is_running = |listing: &ListedSegment| {
        let is_of = |host: &HostIdentity| {
            listing.open().is_ok_and(|reader| reader.is_some_and(|reader| host.is_of(reader.header())))
        };
        listing.live && host.is_none_or(is_of)
    };
    if listings.iter().any(is_running) {
        return Ok(Some(now_ns));
    }
    let last = |run: &[ListedSegment]| {
        run.iter().rev().find_map(|listing| segment_span(listing, host)).map(|span| *span.end())
    };
    Ok(runs(&listings).filter_map(last).max())
}

/// Returns the wall time of the last sample of each ended run, in nanoseconds, by run id. Reads an
/// unsealed segment in full.
///
/// # Errors
/// Returns `Io` if a path is missing or unreadable.
pub fn run_ends(paths: &[PathBuf], host: Option<&HostIdentity>) -> Result<BTreeMap<u64, i64>, SegmentError> {
    let listings = list(paths)?;
    let has_ended = |run: &&[ListedSegment]| !run.iter().any(|listing| listing.live);
    let mut ends = BTreeMap::new();
    for run in runs(&listings).filter(has_ended) {
        let last = run.iter().rev().find_map(|listing| run_span(listing, host));
        if let Some((run_id, span)) = last {
            let end = ends.entry(run_id).or_insert(*span.end());
            *end = (*end).max(*span.end());
        }
    }
    Ok(ends)
}

/// Returns the wall times of the first and the last sample of a segment, or `None` if the segment
/// has no samples. The monotonic clock determines which sample is first and which one is last,
/// because a step of the wall clock does not affect the monotonic clock.
fn segment_span(listing: &ListedSegment, host: Option<&HostIdentity>) -> Option<RangeInclusive<i64>> {
    run_span(listing, host).map(|(_, span)| span)
}

/// Returns the wall times of the first and the last sample of a segment, like [`segment_span`], and
/// the id of the segment's run.
fn run_span(listing: &ListedSegment, host: Option<&HostIdentity>) -> Option<(u64, RangeInclusive<i64>)> {
    let mut reader = listing.open().ok()??;
    if host.is_some_and(|host| !host.is_of(reader.header())) {
        return None;
    }
    let run_id = reader.header().run_id;
    if let Some(footer) = reader.footer() {
        let spans = || footer.totals.iter().filter_map(|totals| totals.span);
        let first = spans().min_by_key(|span| span.first_mono_ns)?.first_wall_ns;
        let last = spans().max_by_key(|span| span.last_mono_ns)?.last_wall_ns;
        return Some((run_id, first..=last));
    }
    // The monotonic time and the wall time, first of the earliest sample, then of the latest
    // sample.
    let mut span: Option<[(u64, i64); 2]> = None;
    while let Ok(Some(advance)) = reader.advance() {
        let Advance::Frame(at) = advance else { continue };
        if at.kind == FrameKind::Telemetry
            && let Some(sample) = reader.sample(at)
        {
            let time = (sample.mono_ns, sample.wall_ns);
            let [first, last] = span.unwrap_or([time; 2]);
            span = Some([first.min(time), last.max(time)]);
        }
    }
    span.map(|[first, last]| (run_id, first.1..=last.1))
}
