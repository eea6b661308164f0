//! Counts the totals of one source in one segment. A writer counts while it appends frames, and a
//! reader counts while it reads frames.

use super::control_frames::Gap;
use crate::histogram::TotalHistogram;
use crate::schema::segment as wire;

/// Counts and range of the samples of one source in one segment.
#[derive(Debug, Clone, Default)]
pub struct FooterTotals {
    /// The source's id.
    pub source: u16,
    /// Number of telemetry frames.
    pub recorded: u64,
    /// Number of samples that Gap frames count as lost. Thinned samples are not included.
    pub lost: u64,
    /// Number of samples that Gap frames count as left out on purpose and for no other cause.
    pub thinned: u64,
    /// Number of ticks for which no sample was begun, as far as the sampler had reported such
    /// ticks.
    pub missed: u64,
    /// Number of incomplete samples, as far as the sampler had reported them.
    pub incomplete: u64,
    /// Union of the reasons why samples were incomplete, from the flags of their frames. The value
    /// is 0 if the reasons are not known.
    pub incomplete_flags: u16,
    /// Union of the causes of all lost samples, as a set of bits (`GapCause` in
    /// schemas/segment.fbs).
    pub causes: u32,
    /// Range of the recorded samples, or `None` if there are no samples.
    pub span: Option<SampleSpan>,
    /// Histogram of the lateness, that is, the time from a sample's deadline to the start of the
    /// sample.
    pub lateness: TotalHistogram,
    /// Histogram of the time that it took to read the source for each sample.
    pub read_duration: TotalHistogram,
}

/// The sequence numbers and times of the first and the last sample of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleSpan {
    /// Sequence number of the first sample.
    pub first_seq: u64,
    /// Sequence number of the last sample.
    pub last_seq: u64,
    /// Time at which the first sample began, in monotonic nanoseconds.
    pub first_mono_ns: u64,
    /// Time at which the last sample began, in monotonic nanoseconds.
    pub last_mono_ns: u64,
    /// Time at which the first sample began, in wall nanoseconds.
    pub first_wall_ns: i64,
    /// Time at which the last sample began, in wall nanoseconds.
    pub last_wall_ns: i64,
}

impl SampleSpan {
    /// Returns the span of one sample.
    pub fn of(seq: u64, mono_ns: u64, wall_ns: i64) -> Self {
        Self {
            first_seq: seq,
            last_seq: seq,
            first_mono_ns: mono_ns,
            last_mono_ns: mono_ns,
            first_wall_ns: wall_ns,
            last_wall_ns: wall_ns,
        }
    }
}

impl FooterTotals {
    /// Creates totals in which all counts are zero.
    pub fn new(source: u16) -> Self {
        Self { source, ..Self::default() }
    }

    /// Counts `count` samples that follow all samples counted so far.
    pub fn add_samples(&mut self, count: u64, span: SampleSpan) {
        self.recorded = self.recorded.saturating_add(count);
        self.span = Some(match self.span {
            None => span,
            Some(before) => SampleSpan {
                first_seq: before.first_seq,
                first_mono_ns: before.first_mono_ns,
                first_wall_ns: before.first_wall_ns,
                ..span
            },
        });
    }

    /// Clears the latency histograms. Keeps all other totals.
    pub(in crate::segment) fn clear_latencies(&mut self) {
        (self.lateness, self.read_duration) = (TotalHistogram::default(), TotalHistogram::default());
    }

    /// Counts a gap.
    pub fn add_gap(&mut self, gap: &Gap) {
        let sum = if gap.is_thinned() { &mut self.thinned } else { &mut self.lost };
        *sum = sum.saturating_add(gap.count);
        if !gap.is_thinned() {
            self.causes |= gap.causes;
        }
    }

    /// Adds the totals of the same source in a later segment.
    pub fn add(&mut self, later: &Self) {
        self.lost = self.lost.saturating_add(later.lost);
        self.thinned = self.thinned.saturating_add(later.thinned);
        self.missed = self.missed.saturating_add(later.missed);
        self.incomplete = self.incomplete.saturating_add(later.incomplete);
        self.incomplete_flags |= later.incomplete_flags;
        self.causes |= later.causes;
        if let Some(span) = later.span {
            self.add_samples(later.recorded, span);
        }
        later.lateness.buckets().for_each(|(value_ns, count)| self.lateness.add_bucket(value_ns, count));
        later
            .read_duration
            .buckets()
            .for_each(|(value_ns, count)| self.read_duration.add_bucket(value_ns, count));
    }

    /// Returns the number of samples recorded per second, for a source with this period. The result
    /// is the lower of two rates. One is the rate between the first and the last sample. The other
    /// is the nominal rate times the share of ticks that were recorded. The nominal rate is needed
    /// because the rate between two samples ignores ticks that were missed before the first or
    /// after the last sample. If there are thinned samples, the result is always the rate between
    /// the first and the last sample. Thinned samples took sequence numbers at another period.
    /// Returns `None` for fewer than two samples.
    #[allow(clippy::cast_precision_loss, reason = "a rate for display: 53 bits are enough")]
    pub fn achieved_hz(&self, period_ns: u64) -> Option<f64> {
        let span = self.span.filter(|_| self.recorded > 1)?;
        let elapsed_ns = span.last_mono_ns.checked_sub(span.first_mono_ns).filter(|ns| *ns > 0)?;
        let between = (self.recorded - 1) as f64 / (elapsed_ns as f64 / 1e9);
        let ticks = self.recorded.saturating_add(self.lost).saturating_add(self.missed);
        let recorded_share = self.recorded as f64 / ticks as f64;
        let has_one_period = period_ns > 0 && self.thinned == 0;
        Some(if has_one_period { between.min(1e9 / period_ns as f64 * recorded_share) } else { between })
    }

    pub(in crate::segment) fn read(totals: wire::SourceTotals<'_>) -> Self {
        let histogram = |buckets: Option<flatbuffers::Vector<'_, wire::Bucket>>| {
            let mut total = TotalHistogram::default();
            for bucket in buckets.into_iter().flatten() {
                total.add_bucket(bucket.value_ns(), bucket.count());
            }
            total
        };
        Self {
            source: totals.source(),
            recorded: totals.recorded(),
            // In the file, `lost` includes the thinned samples, so that older readers count thinned
            // samples as lost.
            lost: totals.lost().saturating_sub(totals.thinned()),
            thinned: totals.thinned(),
            missed: totals.missed(),
            incomplete: totals.partial(),
            incomplete_flags: totals.partial_flags(),
            causes: totals.causes().bits(),
            span: (totals.recorded() > 0).then(|| SampleSpan {
                first_seq: totals.first_seq(),
                last_seq: totals.last_seq(),
                first_mono_ns: totals.first_mono_ns(),
                last_mono_ns: totals.last_mono_ns(),
                first_wall_ns: totals.first_wall_ns(),
                last_wall_ns: totals.last_wall_ns(),
            }),
            lateness: histogram(totals.lateness()),
            read_duration: histogram(totals.read_duration()),
        }
    }

    pub(in crate::segment) fn build<'a>(
        &self,
        builder: &mut flatbuffers::FlatBufferBuilder<'a>,
    ) -> flatbuffers::WIPOffset<wire::SourceTotals<'a>> {
        let buckets = |total: &TotalHistogram| -> Vec<wire::Bucket> {
            total.buckets().map(|(value_ns, count)| wire::Bucket::new(value_ns, count)).collect()
        };
        let lateness = builder.create_vector(&buckets(&self.lateness));
        let read_duration = builder.create_vector(&buckets(&self.read_duration));
        let span = self.span.unwrap_or_default();
        // This code writes the fields in the same order as the generated `create`. Most footers
        // have no thinned samples. Such a footer omits the field for thinned samples although the
        // builder writes zeros, so that its bytes are the same as before the field existed.
        let mut table = wire::SourceTotalsBuilder::new(builder);
        if self.thinned > 0 {
            table.add_thinned(self.thinned);
        }
        table.add_partial(self.incomplete);
        table.add_last_wall_ns(span.last_wall_ns);
        table.add_first_wall_ns(span.first_wall_ns);
        table.add_last_mono_ns(span.last_mono_ns);
        table.add_first_mono_ns(span.first_mono_ns);
        table.add_last_seq(span.last_seq);
        table.add_first_seq(span.first_seq);
        table.add_missed(self.missed);
        table.add_lost(self.lost.saturating_add(self.thinned));
        table.add_recorded(self.recorded);
        table.add_causes(wire::GapCause::from_bits_retain(self.causes));
        table.add_read_duration(read_duration);
        table.add_lateness(lateness);
        if self.incomplete_flags > 0 {
            table.add_partial_flags(self.incomplete_flags);
        }
        table.add_source(self.source);
        table.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that thinned samples do not lower the rate. The expected rate is the rate between the
    // first and the last of 91 samples in 9 s.
    #[test]
    fn thinned_samples_do_not_lower_the_rate() {
        let mut totals = FooterTotals { thinned: 8910, missed: 77, ..FooterTotals::new(1) };
        totals.add_samples(1, SampleSpan::of(0, 0, 0));
        totals.add_samples(90, SampleSpan::of(9000, 9_000_000_000, 0));
        assert_eq!(totals.achieved_hz(100_000_000), Some(10.0));
        // If there are no thinned samples, ticks that were missed at the end lower the rate.
        let totals = FooterTotals { thinned: 0, missed: 91, ..totals };
        assert_eq!(totals.achieved_hz(100_000_000), Some(5.0));
    }

    // Proves that totals from versions that wrote no causes are read as totals without causes.
    // Method: a builder that omits fields with the value zero.
    #[test]
    fn earlier_totals_are_read() {
        let read_back = |totals: &FooterTotals| {
            let mut builder = flatbuffers::FlatBufferBuilder::new();
            let root = totals.build(&mut builder);
            builder.finish_minimal(root);
            FooterTotals::read(flatbuffers::root::<wire::SourceTotals<'_>>(builder.finished_data()).unwrap())
        };
        let mut totals = FooterTotals { lost: 3, missed: 4, ..FooterTotals::new(1) };
        let back = read_back(&totals);
        assert_eq!((back.lost, back.missed, back.incomplete, back.causes), (3, 4, 0, 0));
        totals.add_gap(&Gap {
            source: 1,
            first: 9,
            count: 2,
            causes: 1 << 7,
            after_mono_ns: 0,
            before_mono_ns: 0,
        });
        (totals.incomplete, totals.causes) = (5, totals.causes | 1);
        totals.incomplete_flags = 0b11;
        let mut sum = read_back(&totals);
        assert_eq!((sum.lost, sum.incomplete, sum.causes), (5, 5, 1 | 1 << 7));
        let later = FooterTotals { lost: 1, incomplete: 1, causes: 2, ..FooterTotals::new(1) };
        sum.add(&FooterTotals { incomplete_flags: 0b101, ..later });
        assert_eq!(sum.incomplete_flags, 0b111);
        assert_eq!((sum.lost, sum.incomplete, sum.causes), (6, 6, 3 | 1 << 7));
    }
}
