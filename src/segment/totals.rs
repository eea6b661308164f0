//! What one segment holds of one source: counted by the writer as it appends, by a reader as it walks.

use super::control::Gap;
use crate::metrics::Total;
use crate::schema::segment as wire;

/// Counts and bounds of one source in one segment.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// The source's id.
    pub source: u16,
    /// Telemetry frames.
    pub recorded: u64,
    /// Readings in Gap frames.
    pub lost: u64,
    /// Ticks that were never begun, as far as the sampler had reported them.
    pub missed: u64,
    /// Recorded readings that lacked something, as far as the sampler had reported them.
    pub partial: u64,
    /// Why the lost ones were lost, all together, as a set of bits (`GapCause` in schemas/segment.fbs).
    pub causes: u32,
    /// The first and the last frame; none where nothing was recorded.
    pub span: Option<Span>,
    /// Begin of a reading minus its deadline.
    pub lateness: Total,
    /// How long the readings took.
    pub read_duration: Total,
}

/// The first and the last of some readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First sequence number.
    pub first_seq: u64,
    /// Last sequence number.
    pub last_seq: u64,
    /// Begin of the first reading, in monotonic nanoseconds.
    pub first_mono_ns: u64,
    /// Begin of the last reading, in monotonic nanoseconds.
    pub last_mono_ns: u64,
    /// Begin of the first reading, in wall nanoseconds.
    pub first_wall_ns: i64,
    /// Begin of the last reading, in wall nanoseconds.
    pub last_wall_ns: i64,
}

impl Totals {
    /// Nothing yet.
    pub fn new(source: u16) -> Self {
        Self { source, ..Self::default() }
    }

    /// Counts `count` frames that stand behind all counted before.
    pub fn record(&mut self, count: u64, span: Span) {
        self.recorded = self.recorded.saturating_add(count);
        self.span = Some(match self.span {
            None => span,
            Some(before) => Span {
                first_seq: before.first_seq,
                first_mono_ns: before.first_mono_ns,
                first_wall_ns: before.first_wall_ns,
                ..span
            },
        });
    }

    /// Forgets the latencies, and nothing else.
    pub(super) fn forget_latencies(&mut self) {
        (self.lateness, self.read_duration) = (Total::default(), Total::default());
    }

    /// Counts a gap.
    pub fn lose(&mut self, gap: &Gap) {
        self.lost = self.lost.saturating_add(gap.count);
        self.causes |= gap.causes;
    }

    /// Adds what a later segment of the same source holds.
    pub fn add(&mut self, later: &Self) {
        self.lost = self.lost.saturating_add(later.lost);
        self.missed = self.missed.saturating_add(later.missed);
        self.partial = self.partial.saturating_add(later.partial);
        self.causes |= later.causes;
        if let Some(span) = later.span {
            self.record(later.recorded, span);
        }
        later.lateness.buckets().for_each(|(value_ns, count)| self.lateness.add_bucket(value_ns, count));
        later
            .read_duration
            .buckets()
            .for_each(|(value_ns, count)| self.read_duration.add_bucket(value_ns, count));
    }

    /// Readings recorded a second, of a source with this period: between the first and the last, or, if that is less, as often as
    /// ticks were kept. Between those two nothing is seen of ticks that were missed at either end. None for fewer than two.
    #[allow(clippy::cast_precision_loss, reason = "a rate for people: 53 bits are plenty")]
    pub fn achieved_hz(&self, period_ns: u64) -> Option<f64> {
        let span = self.span.filter(|_| self.recorded > 1)?;
        let elapsed_ns = span.last_mono_ns.checked_sub(span.first_mono_ns).filter(|ns| *ns > 0)?;
        let between = (self.recorded - 1) as f64 / (elapsed_ns as f64 / 1e9);
        let ticks = self.recorded.saturating_add(self.lost).saturating_add(self.missed);
        let kept = self.recorded as f64 / ticks as f64;
        Some(if period_ns > 0 { between.min(1e9 / period_ns as f64 * kept) } else { between })
    }

    pub(super) fn read(totals: wire::SourceTotals<'_>) -> Self {
        let histogram = |buckets: Option<flatbuffers::Vector<'_, wire::Bucket>>| {
            let mut total = Total::default();
            for bucket in buckets.into_iter().flatten() {
                total.add_bucket(bucket.value_ns(), bucket.count());
            }
            total
        };
        Self {
            source: totals.source(),
            recorded: totals.recorded(),
            lost: totals.lost(),
            missed: totals.missed(),
            partial: totals.partial(),
            causes: totals.causes().bits(),
            span: (totals.recorded() > 0).then(|| Span {
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

    pub(super) fn build<'a>(
        &self,
        builder: &mut flatbuffers::FlatBufferBuilder<'a>,
    ) -> flatbuffers::WIPOffset<wire::SourceTotals<'a>> {
        let buckets = |total: &Total| -> Vec<wire::Bucket> {
            total.buckets().map(|(value_ns, count)| wire::Bucket::new(value_ns, count)).collect()
        };
        let lateness = builder.create_vector(&buckets(&self.lateness));
        let read_duration = builder.create_vector(&buckets(&self.read_duration));
        let mut args = wire::SourceTotalsArgs {
            source: self.source,
            recorded: self.recorded,
            lost: self.lost,
            missed: self.missed,
            partial: self.partial,
            causes: wire::GapCause::from_bits_retain(self.causes),
            lateness: Some(lateness),
            read_duration: Some(read_duration),
            ..wire::SourceTotalsArgs::default()
        };
        if let Some(span) = self.span {
            args.first_seq = span.first_seq;
            args.last_seq = span.last_seq;
            args.first_mono_ns = span.first_mono_ns;
            args.last_mono_ns = span.last_mono_ns;
            args.first_wall_ns = span.first_wall_ns;
            args.last_wall_ns = span.last_wall_ns;
        }
        wire::SourceTotals::create(builder, &args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: what a file says that was written before totals had causes is read, with none. Method: totals without the slots of the
    // later fields, which a builder leaves out that does not force zeros, and totals that have them.
    #[test]
    fn earlier_totals_are_read() {
        let read_back = |totals: &Totals| {
            let mut builder = flatbuffers::FlatBufferBuilder::new();
            let root = totals.build(&mut builder);
            builder.finish_minimal(root);
            Totals::read(flatbuffers::root::<wire::SourceTotals<'_>>(builder.finished_data()).unwrap())
        };
        let mut totals = Totals { lost: 3, missed: 4, ..Totals::new(1) };
        let back = read_back(&totals);
        assert_eq!((back.lost, back.missed, back.partial, back.causes), (3, 4, 0, 0));
        totals.lose(&Gap {
            source: 1,
            first: 9,
            count: 2,
            causes: 1 << 7,
            after_mono_ns: 0,
            before_mono_ns: 0,
        });
        (totals.partial, totals.causes) = (5, totals.causes | 1);
        let mut sum = read_back(&totals);
        assert_eq!((sum.lost, sum.partial, sum.causes), (5, 5, 1 | 1 << 7));
        sum.add(&Totals { lost: 1, partial: 1, causes: 2, ..Totals::new(1) });
        assert_eq!((sum.lost, sum.partial, sum.causes), (6, 6, 3 | 1 << 7));
    }
}
