//! The lost samples of a recording, by source. This module does not read the samples.

use std::collections::BTreeMap;

use flatcap_format::replay::HostIdentity;
use flatcap_format::segment::{SegmentError, gaps, list, runs};

use super::recording::Recording;
use super::results::RunInfo;

/// The lost samples of a source in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLosses {
    /// The run.
    pub run: RunInfo,
    /// The name of the source.
    pub source: String,
    /// The source's id. `None` unless other sources of the run have the same name at the same time.
    pub instance: Option<u16>,
    /// Wall time at which the first segment with the source begins, in nanoseconds since 1970.
    pub since_ns: i64,
    /// For each gap, the wall time of the first sample after the gap, in nanoseconds since 1970,
    /// and the number of lost samples. The gaps are in the order of time.
    pub losses: Vec<(i64, u64)>,
}

impl Recording {
    /// Returns the lost samples of all sources, in the order of their runs. Includes sources
    /// without losses. Samples that were left out on purpose do not count as lost. Skips segments
    /// that cannot be read.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn losses(&self, host: Option<&HostIdentity>) -> Result<Vec<SourceLosses>, SegmentError> {
        let mut found = Vec::new();
        for run in runs(&list(self.paths())?) {
            let mut sources: BTreeMap<u16, SourceLosses> = BTreeMap::new();
            for listing in run {
                let Ok(Some(mut reader)) = listing.open() else { continue };
                if host.is_some_and(|host| !host.is_of(reader.header())) {
                    continue;
                }
                let Ok(gaps) = gaps(&mut reader) else { continue };
                // The copy of the header in the footer also contains the sources that were added
                // after the segment began.
                let header = reader.footer().map_or(reader.header(), |footer| &footer.header);
                let offset_ns = header.clocks.wall_offset_ns();
                for source in &header.sources {
                    sources.entry(source.id).or_insert_with(|| SourceLosses {
                        run: RunInfo::of(header),
                        source: source.name.clone(),
                        instance: self.namesakes().contains(header.run_id, source.id).then_some(source.id),
                        since_ns: header.clocks.wall_ns,
                        losses: Vec::new(),
                    });
                }
                for gap in gaps.iter().filter(|gap| !gap.is_thinned()) {
                    // `before_mono_ns` is 0 if no sample follows the gap in the segment.
                    let mono_ns = if gap.before_mono_ns > 0 { gap.before_mono_ns } else { gap.after_mono_ns };
                    if let Some(of_source) = sources.get_mut(&gap.source) {
                        of_source.losses.push((offset_ns.wrapping_add_unsigned(mono_ns), gap.count));
                    }
                }
            }
            found.extend(sources.into_values());
        }
        for of_source in &mut found {
            of_source.losses.sort_unstable();
        }
        Ok(found)
    }
}
