//! The payloads of the kernel's sources. They contain events of the scheduler, samples of the code
//! that ran, and lines of the kernel log.
//!
//! A payload is written after its events. So reading continues after the end of the selected time
//! range, and each event is selected by its own time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::segment::{Elapsed, SegmentHeader, SourceInfo};
use flatcap_query::Recording;
use flatcap_tasks::PAYLOAD_NS_MAX;
use flatcap_tasks::schema::{KMSG_ROOT, PROFILE_ROOT, SCHED_ROOT};

use crate::error::ColumnarError;
use crate::request::ColumnarRequest;
use crate::watch::{ColumnarEvent, ExportWatch};

/// The content of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KernelPayload {
    /// Events of the scheduler.
    Sched,
    /// Samples of the code that ran.
    Profile,
    /// Lines of the kernel log.
    Log,
}

/// A payload of a source of kernel events.
#[derive(Debug)]
pub(crate) struct KernelSample<'p> {
    pub(crate) source: KernelPayload,
    /// The run that recorded the payload.
    pub(crate) run: &'p KernelRun,
    /// The time at which the payload was read, by the monotonic and by the wall clock.
    pub(crate) mono_ns: u64,
    pub(crate) wall_ns: i64,
    /// The selected time range, in monotonic nanoseconds of the run.
    pub(crate) window: Range<u64>,
    pub(crate) payload: &'p [u8],
}

/// A run of a recorder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KernelRun {
    pub(crate) run_id: u64,
    pub(crate) host: String,
    pub(crate) machine_id: Option<String>,
    pub(crate) boot_id: Option<String>,
    /// Boot time minus monotonic time at the start of the run, in nanoseconds.
    pub(crate) suspended_ns: u64,
}

/// Passes the payloads of the wanted kernel sources to `take`, in time order. Returns whether the
/// recording has such a source.
pub(crate) fn read_kernel_samples(
    request: &ColumnarRequest,
    sources: &[KernelPayload],
    watch: &mut ExportWatch<'_>,
    take: &mut dyn FnMut(KernelSample<'_>) -> Result<(), ColumnarError>,
) -> Result<bool, ColumnarError> {
    let names = source_names(request, sources)?;
    if names.is_empty() {
        return Ok(false);
    }
    let mut reader = MergedReader::open(&request.paths, widened(&request.filter, names))?;
    let (mut run, mut elapsed) = (KernelRun::default(), 0..u64::MAX);
    let mut ids = BTreeMap::new();
    while let Some(item) = reader.next()? {
        match item {
            ReplayItem::Header(header, _) => {
                run = KernelRun::of(header);
                elapsed =
                    request.filter.elapsed.as_ref().map_or(0..u64::MAX, |elapsed| elapsed.mono_ns(header));
                ids.clear();
                ids.extend(header.sources.iter().filter_map(|source| source_id(source, sources)));
            }
            ReplayItem::Source(source, _) => ids.extend(source_id(source, sources)),
            ReplayItem::Sample(sample) => {
                let sample = sample.telemetry;
                let Some(source) = ids.get(&sample.source).copied() else { continue };
                let offset_ns = sample.wall_ns.wrapping_sub_unsigned(sample.mono_ns);
                let window = window(&request.filter, offset_ns, &elapsed);
                let (mono_ns, wall_ns, payload) = (sample.mono_ns, sample.wall_ns, sample.payload);
                take(KernelSample { source, run: &run, mono_ns, wall_ns, window, payload })?;
                watch.report(ColumnarEvent::Progress(wall_ns))?;
            }
            ReplayItem::Notice(notice) => watch.report(ColumnarEvent::Notice(notice))?,
            ReplayItem::Gap(..) | ReplayItem::Marker(..) | ReplayItem::Other(..) => {}
        }
    }
    Ok(true)
}

impl KernelRun {
    fn of(header: &SegmentHeader) -> Self {
        Self {
            run_id: header.run_id,
            host: header.host.name.clone(),
            machine_id: header.host.machine_id.clone(),
            boot_id: header.host.boot_id.clone(),
            suspended_ns: header.clocks.suspended_ns(),
        }
    }
}

impl KernelPayload {
    /// Returns the kind of payload that has this root table.
    fn of(root: &str) -> Option<Self> {
        match root {
            SCHED_ROOT => Some(Self::Sched),
            PROFILE_ROOT => Some(Self::Profile),
            KMSG_ROOT => Some(Self::Log),
            _ => None,
        }
    }
}

/// Returns the id of a source with events of the kernel, unless a program pushed it.
fn source_id(source: &SourceInfo, wanted: &[KernelPayload]) -> Option<(u16, KernelPayload)> {
    let found = KernelPayload::of(&source.root).filter(|_| source.sender().is_none());
    found.filter(|found| wanted.contains(found)).map(|found| (source.id, found))
}

/// Returns the names of the selected sources that have the wanted kinds of payloads. The
/// configuration determines the names of the sources, but not their payloads.
fn source_names(
    request: &ColumnarRequest,
    wanted: &[KernelPayload],
) -> Result<BTreeSet<String>, ColumnarError> {
    let recording = Recording::open(&request.paths)?;
    let selected = &request.filter.sources;
    let names = recording.sources().iter().filter(|source| {
        let found = source.schema.as_ref().and_then(|schema| KernelPayload::of(schema.root_name()));
        let is_selected = selected.is_empty() || selected.contains(&source.name);
        found.is_some_and(|found| wanted.contains(&found)) && is_selected && !source.is_pushed()
    });
    Ok(names.map(|source| source.name.clone()).collect())
}

/// Returns the filter, extended to include samples that were written shortly after the end of the
/// selected time range.
fn widened(filter: &ReplayFilter, sources: BTreeSet<String>) -> ReplayFilter {
    let longest_ns = PAYLOAD_NS_MAX;
    ReplayFilter {
        sources,
        until_ns: filter.until_ns.map(|until_ns| until_ns.saturating_add_unsigned(longest_ns)),
        elapsed: filter.elapsed.as_ref().map(|elapsed| Elapsed {
            ns: elapsed.ns.start..elapsed.ns.end.saturating_add(longest_ns),
            ..elapsed.clone()
        }),
        ..filter.clone()
    }
}

/// Returns the selected time range on the monotonic clock. `offset_ns` is wall time minus monotonic
/// time.
fn window(filter: &ReplayFilter, offset_ns: i64, elapsed: &Range<u64>) -> Range<u64> {
    let mono_ns = |wall_ns: i64| u64::try_from(wall_ns.saturating_sub(offset_ns)).unwrap_or_default();
    let since_ns = filter.since_ns.map_or(0, mono_ns).max(elapsed.start);
    let until_ns = filter.until_ns.map_or(u64::MAX, mono_ns).min(elapsed.end);
    since_ns..until_ns
}
