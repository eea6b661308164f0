//! The sources of a group. For each source, this module defines how it is read, and the state that
//! is kept between samples.

use std::io;
use std::sync::Arc;

use flatcap_format::frame::Envelope;
use flatcap_metrics::SourceMetrics;
use flatcap_slab::SampleMeta;

use super::budget::SourceBudget;
use super::odd_text;
use super::offloaded_read::OffloadedRead;
use super::sampler::OpenedSampler;
use super::{Incomplete, sources};

/// An opened source of a group.
#[derive(Debug)]
pub struct GroupSource {
    /// The source's id.
    pub id: u16,
    /// The source's period, in nanoseconds.
    pub period_ns: u64,
    /// The source's CPU budget, in basis points of a core.
    pub budget: u32,
    /// Reads the source and builds its payloads.
    pub sampler: OpenedSampler,
    /// Thread name and timeout of a source whose reads may block, or `None` if reads do not block.
    /// The named thread reads the source, and the timeout of a read is in nanoseconds.
    pub offloaded: Option<(String, u64)>,
    /// The source's counters.
    pub metrics: Arc<SourceMetrics>,
}

/// A source that is ready to be read.
#[derive(Debug)]
pub struct ReadySource {
    pub(super) source: ActiveSource,
    pub(super) period_ns: u64,
}

impl ReadySource {
    /// Prepares a source, so that it can be read from `now_ns` on. If the source has a separate
    /// thread, this thread runs on `cpus`, or on all CPUs if the list is empty.
    ///
    /// # Errors
    /// Fails if the source needs a separate thread and the kernel refuses to start it.
    pub fn new(source: GroupSource, cpus: &[u32], now_ns: u64) -> io::Result<Self> {
        let GroupSource { id, period_ns, budget, sampler, offloaded, metrics } = source;
        let envelope = Envelope::new(id);
        let source = ActiveSource {
            template: match &sampler {
                OpenedSampler::Built(_) => Box::default(),
                OpenedSampler::Fixed(sampler) => envelope.prefilled(sampler.template().payload()),
            },
            envelope,
            metrics,
            next_seq: 0,
            payload_bytes: 0,
            builds: 0,
            build_ns: 0,
            budget: SourceBudget::new(budget, period_ns, now_ns),
            read_mode: match offloaded {
                None => ReadMode::Inline(sampler),
                Some((name, timeout_ns)) => {
                    ReadMode::Offloaded(OffloadedRead::start(&name, sampler, timeout_ns, cpus.to_vec())?)
                }
            },
        };
        Ok(Self { source, period_ns })
    }
}

/// A source that its group reads.
#[derive(Debug)]
pub(super) struct ActiveSource {
    pub(super) read_mode: ReadMode,
    pub(super) envelope: Envelope,
    pub(super) metrics: Arc<SourceMetrics>,
    pub(super) template: Box<[u8]>, // of a whole frame; empty if payloads vary
    pub(super) next_seq: u64,
    pub(super) payload_bytes: usize, // size of the last one; selects the next size class
    pub(super) builds: u64,
    pub(super) build_ns: u64, // duration of the last build that was timed
    pub(super) budget: SourceBudget,
}

impl ActiveSource {
    pub(super) fn id(&self) -> u16 {
        self.envelope.source()
    }

    /// Returns the state of offloaded reads, or `None` if the source has no separate thread.
    #[inline]
    pub(super) fn offloaded(&self) -> Option<&OffloadedRead> {
        match &self.read_mode {
            ReadMode::Inline(_) => None,
            ReadMode::Offloaded(offloaded) => Some(offloaded),
        }
    }

    /// Counts an incomplete sample, and logs the reason if no earlier sample was incomplete for the
    /// same reason.
    #[cold]
    pub(super) fn note_incomplete(&self, incomplete: Incomplete) {
        let odd = odd_text::take();
        let metrics = &self.metrics;
        metrics.incomplete.add(1);
        let (known, flags) = (metrics.incomplete_flags.get(), u64::from(incomplete.flags()));
        if flags & !known == 0 {
            return;
        }
        metrics.incomplete_flags.set(known | flags);
        let mut detail = incomplete.explanation();
        if let Some(odd) = odd {
            // If the source reads only one file, this file is the place, even if no file was noted.
            let spec = sources::find(&metrics.name);
            let file = match spec.map(|spec| spec.files) {
                Some([file]) if !odd.has_file() => format!("/{file} "),
                _ => String::new(),
            };
            detail = format!("{detail}: {file}{odd}");
        }
        tracing::info!(source = metrics.name, "samples are incomplete: {detail}");
        metrics.explain_incomplete(detail);
    }

    /// Gives up the read in flight, if there is one. Counts the read as timed out and returns the
    /// sample of the read.
    pub(super) fn abandon_read(&mut self) -> Option<SampleMeta> {
        let ReadMode::Offloaded(offloaded) = &mut self.read_mode else { return None };
        let sample = offloaded.abandon()?;
        self.metrics.timed_out.add(1);
        Some(sample)
    }
}

/// The thread that reads a source.
#[derive(Debug)]
pub(super) enum ReadMode {
    /// The thread of the group reads the source.
    Inline(OpenedSampler),
    /// A separate thread reads the source, because reads may block.
    Offloaded(OffloadedRead),
}
