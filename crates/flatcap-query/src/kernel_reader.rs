//! Reads the payloads that contain events of the kernel. The events come from the scheduler, from
//! sampled stacks, and from the kernel log.

use std::collections::BTreeSet;

use flatcap_format::replay::{MergedReader, Notice, ReplayFilter, ReplayItem};
use flatcap_format::segment::{Gap, SampleView, SegmentError, SourceInfo};
use flatcap_tasks::schema::{KMSG_ROOT, PROFILE_ROOT, SCHED_ROOT};

use super::recording::Recording;
use super::results::RunInfo;

/// The kind of the events that a source contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelSource {
    /// The scheduler. The payloads contain events of the scheduler, which
    /// `flatcap_tasks::SchedBatch` reads.
    Scheduler,
    /// Sampled stacks. The payloads contain sampled stacks, which `flatcap_tasks::ProfileBatch`
    /// reads.
    Stacks,
    /// The kernel log. The payloads contain lines of the kernel log, which
    /// `flatcap_tasks::LogBatch` reads.
    Log,
}

/// An item that [`KernelReader`] returns.
#[derive(Debug)]
pub enum KernelItem<'a> {
    /// A run begins. The following items belong to this run.
    Run(RunInfo),
    /// A payload, with the sample to which it belongs.
    Payload(KernelSource, SampleView<'a>),
    /// Samples that were lost.
    Gap(KernelSource, Gap),
    /// A problem with a file.
    Notice(Notice),
    /// Any other part of the recording.
    Other,
}

/// Reads events, ordered by the time of their sample. The events of a sample happened at most one
/// period before the sample's time.
#[derive(Debug)]
pub struct KernelReader {
    reader: MergedReader,
    /// The sources of the current run, by their ids.
    sources: Vec<(u16, KernelSource)>,
}

impl KernelSource {
    /// Returns the kind of the events that a source contains. Returns `None` for a pushed source,
    /// and for a source whose samples do not contain events of the kernel.
    fn of(source: &SourceInfo) -> Option<Self> {
        // An application chose the schema of a pushed source, so its schema does not prove what the
        // samples contain.
        if source.sender().is_none() { Self::of_root(&source.root) } else { None }
    }

    fn of_root(root: &str) -> Option<Self> {
        match root {
            SCHED_ROOT => Some(Self::Scheduler),
            PROFILE_ROOT => Some(Self::Stacks),
            KMSG_ROOT => Some(Self::Log),
            _ => None,
        }
    }
}

impl Recording {
    /// Returns the sources with events of the kernel. For each source, returns the kind of its
    /// events, its name and its period.
    pub fn kernel_sources(&self) -> impl Iterator<Item = (KernelSource, &str, u64)> {
        self.sources().iter().filter(|source| !source.is_pushed()).filter_map(|source| {
            let kind = KernelSource::of_root(source.schema.as_ref()?.root_name())?;
            Some((kind, source.name.as_str(), source.period_ns))
        })
    }

    /// Creates a reader of the events of the kernel in the samples that pass a filter. `wanted`
    /// selects the kinds of events. The selection of sources in the filter is ignored. Returns
    /// `None` if the recording has no sources with events of these kinds.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn kernel_events(
        &self,
        filter: &ReplayFilter,
        wanted: impl Fn(KernelSource) -> bool,
    ) -> Result<Option<KernelReader>, SegmentError> {
        let names = self.kernel_sources().filter(|(kind, ..)| wanted(*kind));
        let sources: BTreeSet<String> = names.map(|(_, name, _)| name.to_owned()).collect();
        if sources.is_empty() {
            return Ok(None);
        }
        let filter = ReplayFilter { sources, ..filter.clone() };
        let reader = MergedReader::open(self.paths(), filter)?;
        Ok(Some(KernelReader { reader, sources: Vec::new() }))
    }
}

impl KernelReader {
    /// Returns the next item, or `None` at the end of the recording.
    ///
    /// # Errors
    /// `Io`.
    #[allow(clippy::should_implement_trait, reason = "the item borrows the reader")]
    pub fn next(&mut self) -> Result<Option<KernelItem<'_>>, SegmentError> {
        let Self { reader, sources } = self;
        let kind_of = |sources: &[(u16, KernelSource)], id: u16| {
            sources.iter().find(|(known, _)| *known == id).map(|(_, kind)| *kind)
        };
        Ok(reader.next()?.map(|item| match item {
            ReplayItem::Header(header, _) => {
                sources.clear();
                add_sources(sources, &header.sources);
                KernelItem::Run(RunInfo::of(header))
            }
            ReplayItem::Source(source, _) => {
                add_sources(sources, std::slice::from_ref(source));
                KernelItem::Other
            }
            ReplayItem::Sample(sample) => match kind_of(sources, sample.telemetry.source) {
                Some(kind) => KernelItem::Payload(kind, sample.telemetry),
                None => KernelItem::Other,
            },
            ReplayItem::Gap(gap, _) => match kind_of(sources, gap.source) {
                Some(kind) => KernelItem::Gap(kind, gap),
                None => KernelItem::Other,
            },
            ReplayItem::Notice(notice) => KernelItem::Notice(notice),
            ReplayItem::Marker(..) | ReplayItem::Other(..) => KernelItem::Other,
        }))
    }
}

fn add_sources(known: &mut Vec<(u16, KernelSource)>, sources: &[SourceInfo]) {
    known.extend(sources.iter().filter_map(|source| Some((source.id, KernelSource::of(source)?))));
}
