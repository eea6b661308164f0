//! Sources of a run that have the same name at the same time. Such sources occur because each
//! thread that pushes samples under a name is a separate source.

use std::collections::{BTreeMap, BTreeSet};

use flatcap_format::segment::{Advance, FrameKind, ListedSegment, SegmentHeader, SegmentReader, SourceInfo};

use crate::computed::computed_namesakes;

/// The sources that share their name with another source at the same time, by run and id.
///
/// A reload ends a source and begins another one with the same name. These two sources do not
/// overlap in time, so their name identifies them.
#[derive(Debug, Clone, Default)]
// A computed source exists at all times, so a recorded source with its name is listed here, too.
pub(crate) struct Namesakes(BTreeSet<(u64, u16)>);

/// The monotonic times of the first and the last sample of each source.
type SourceSpans = BTreeMap<u16, (u64, u64)>;

impl Namesakes {
    /// Returns whether a source of a run shares its name with another source at the same time.
    pub(crate) fn contains(&self, run_id: u64, source: u16) -> bool {
        self.0.contains(&(run_id, source))
    }

    /// Adds the sources of a run. `header` contains all sources of the run.
    pub(crate) fn add_run(&mut self, run: &[ListedSegment], header: &SegmentHeader) {
        let mut by_name: BTreeMap<&str, Vec<&SourceInfo>> = BTreeMap::new();
        for source in &header.sources {
            by_name.entry(&source.name).or_default().push(source);
        }
        let of_computed = computed_namesakes(&header.sources);
        self.0.extend(of_computed.map(|source| (header.run_id, source.id)));
        // Without shared names, no segment has to be read.
        by_name.retain(|_, own| own.len() > 1);
        if by_name.is_empty() {
            return;
        }
        // The recorder's own sources never overlap. Only sources of applications overlap, and these
        // sources have labels. If no source has labels, unsealed segments need not be read.
        let may_overlap = by_name.values().flatten().any(|source| !source.labels.is_empty());
        let mut spans = SourceSpans::new();
        for listing in run {
            if let Ok(Some(reader)) = listing.open_without_index() {
                add_spans(reader, may_overlap, &mut spans);
            }
        }
        for sources in by_name.values() {
            let mut own: Vec<(u64, u64)> =
                sources.iter().filter_map(|source| spans.get(&source.id).copied()).collect();
            // The spans are sorted by their start. So a span overlaps an earlier span if it begins
            // before the latest end so far.
            own.sort_unstable();
            let mut end_ns = None;
            let overlap = own.iter().any(|(first_ns, last_ns)| {
                let is_before = end_ns.is_some_and(|end_ns| *first_ns <= end_ns);
                end_ns = Some(end_ns.map_or(*last_ns, |end_ns: u64| end_ns.max(*last_ns)));
                is_before
            });
            if overlap {
                self.0.extend(sources.iter().map(|source| (header.run_id, source.id)));
            }
        }
    }
}

fn add_spans(mut reader: SegmentReader, reads_all: bool, spans: &mut SourceSpans) {
    let mut add = |source: u16, first_ns: u64, last_ns: u64| {
        let span = spans.entry(source).or_insert((first_ns, last_ns));
        *span = (span.0.min(first_ns), span.1.max(last_ns));
    };
    // The footer contains the times, so the frames need not be read.
    if let Some(footer) = reader.footer() {
        for totals in &footer.totals {
            if let Some(span) = totals.span {
                add(totals.source, span.first_mono_ns, span.last_mono_ns);
            }
        }
        return;
    }
    while reads_all && let Ok(Some(advance)) = reader.advance() {
        let Advance::Frame(at) = advance else { continue };
        if at.kind == FrameKind::Telemetry
            && let Some(sample) = reader.sample(at)
        {
            add(sample.source, sample.mono_ns, sample.mono_ns);
        }
    }
}
