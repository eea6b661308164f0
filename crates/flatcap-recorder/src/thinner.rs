//! Thinning (downsampling, decimation). For each source, the thinner passes one sample per
//! interval, all samples, or no samples on to the next recorder. All other samples are reported to
//! the next recorder as thinned.
//!
//! The first recorder takes every slab and writes it to the ring. The second recorder records the
//! samples that were passed on. So a stalled disk delays only the second recorder. The queue of the
//! second recorder can absorb a much longer stall, because fewer samples arrive there.

use flatcap_format::schema::envelope;
use flatcap_slab::{Causes, Loss, LossLedger, SampleMeta, SampleRange, Slab, SlabProducer};
use flatcap_stream::{ChecksumKind, DeframeStatus, KindDeframer, SliceDeframer};

use super::losses::LossTracker;

/// Passes samples from the slabs of one recorder on to the queue of the next recorder.
#[derive(Debug)]
pub struct Thinner {
    producer: SlabProducer,
    checksum: ChecksumKind,
    frame_max: u32,
    interval_ns: u64,
    sources: Vec<ThinnedSource>, // by id
}

/// The selection of a source's samples that are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceThinning {
    /// The first sample of each interval, or every sample if the source's period is not shorter
    /// than the interval. The value is the period of the source in nanoseconds, or 0 for events.
    Interval(u64),
    /// Every sample, because each sample contains different events.
    All,
    /// No sample. The ring alone contains the source.
    None,
}

/// The thinning state of a source.
#[derive(Debug, Clone, Copy, Default)]
struct ThinnedSource {
    next_seq: u64,
    /// Index of the last interval from which a sample was passed on, plus 1. The value is 0 before
    /// the first such interval.
    last_interval: u64,
}

impl ThinnedSource {
    /// Returns whether a sample is passed on.
    fn keeps(&mut self, mono_ns: u64, thinning: SourceThinning, interval_ns: u64) -> bool {
        let period_ns = match thinning {
            SourceThinning::Interval(period_ns) => period_ns,
            SourceThinning::All => return true,
            SourceThinning::None => return false,
        };
        let interval = mono_ns / interval_ns.max(1) + 1;
        let is_first = interval > self.last_interval;
        self.last_interval = self.last_interval.max(interval);
        is_first || period_ns == 0 || period_ns >= interval_ns
    }
}

impl Thinner {
    /// Creates a thinner for sources with ids below `sources`. Frames have this checksum kind and a
    /// payload of at most `frame_max` bytes. `interval_ns` is the interval between the samples that
    /// are passed on.
    pub fn new(
        producer: SlabProducer,
        (checksum, frame_max): (ChecksumKind, u32),
        interval_ns: u64,
        sources: usize,
    ) -> Self {
        let sources = vec![ThinnedSource::default(); sources];
        Self { producer, checksum, frame_max, interval_ns, sources }
    }

    /// Passes on the samples of a slab. `thinning` returns the selection for a source id. `losses`
    /// contains the causes for which samples are missing in the slabs.
    pub(super) fn take(
        &mut self,
        slab: &Slab,
        thinning: impl Fn(u16) -> SourceThinning,
        losses: (&LossTracker, &LossLedger),
    ) {
        let deframer = KindDeframer::new(self.checksum).with_max_frame_len(self.frame_max as usize);
        let mut bytes = slab.bytes();
        while let Ok(DeframeStatus::Frame(frame)) = deframer.deframe(bytes) {
            bytes = bytes.get(frame.bytes().len()..).unwrap_or_default();
            let Some((header, _)) = envelope::split(frame.payload()) else { continue };
            let sample = SampleMeta {
                source: header.source(),
                seq: header.seq(),
                mono_ns: header.mono_ns(),
                wall_offset_ns: header.wall_ns().wrapping_sub_unsigned(header.mono_ns()),
            };
            self.pass(&sample, frame.bytes(), thinning(sample.source), losses);
        }
        // The loop ends at a frame whose memory is damaged. The samples after this frame are
        // missing in both storages, and count as lost without a cause.
        slab.ranges().iter().for_each(|range| self.note_end(range));
    }

    fn pass(
        &mut self,
        sample: &SampleMeta,
        frame: &[u8],
        thinning: SourceThinning,
        (losses, ledger): (&LossTracker, &LossLedger),
    ) {
        let Some(source) = self.sources.get_mut(usize::from(sample.source)) else { return };
        let first_seq = std::mem::replace(&mut source.next_seq, sample.seq.saturating_add(1));
        let keeps = source.keeps(sample.mono_ns, thinning, self.interval_ns);
        if let Some(count) = sample.seq.checked_sub(first_seq).filter(|count| *count > 0) {
            let causes = losses.causes(sample.source, first_seq, sample.seq, ledger);
            self.producer.report_loss(Loss { source: sample.source, first_seq, count, causes });
        }
        if keeps {
            self.producer.append_frame(sample, frame, self.checksum);
        } else {
            self.producer.lose(*sample, Causes::Thinned);
        }
    }

    fn note_end(&mut self, range: &SampleRange) {
        if let Some(source) = self.sources.get_mut(usize::from(range.source))
            && source.next_seq <= range.last_seq
        {
            let (first_seq, count) = (source.next_seq, range.last_seq + 1 - source.next_seq);
            source.next_seq = range.last_seq + 1;
            self.producer.report_loss(Loss {
                source: range.source,
                first_seq,
                count,
                causes: Causes::default(),
            });
        }
    }

    /// Queues the samples to pass on if they are old enough, or at once if `is_forced` is true.
    pub(super) fn flush(&mut self, now_ns: u64, is_forced: bool) {
        if is_forced || self.producer.is_due(now_ns, now_ns) {
            self.producer.queue_open_slab(now_ns);
        }
    }

    /// Passes on the last samples and losses. `begun` is the number of samples that a source has
    /// begun. After that, the next recorder ends.
    pub(super) fn finish(
        mut self,
        now_ns: u64,
        begun: impl Fn(u16) -> u64,
        (losses, ledger): (&LossTracker, &LossLedger),
    ) {
        for (id, source) in (0..=u16::MAX).zip(&self.sources) {
            let (first_seq, end) = (source.next_seq, begun(id));
            if let Some(count) = end.checked_sub(first_seq).filter(|count| *count > 0) {
                let causes = losses.causes(id, first_seq, end, ledger);
                self.producer.report_loss(Loss { source: id, first_seq, count, causes });
            }
        }
        self.producer.finish(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that exactly one sample per interval is passed on, whatever the jitter. If the period
    // of a source is not shorter than the interval, all samples of the source are passed on. With
    // the settings `All` and `None`, all samples or no samples are passed on.
    #[test]
    fn one_sample_per_interval() {
        let thinned = |thinning: SourceThinning, times: &[u64]| {
            let mut source = ThinnedSource::default();
            times.iter().copied().filter(|at| source.keeps(*at, thinning, 100)).collect::<Vec<_>>()
        };
        let kept = |period_ns: u64, times: &[u64]| thinned(SourceThinning::Interval(period_ns), times);
        let fast: Vec<u64> = (0..500).collect();
        assert_eq!(kept(1, &fast), [0, 100, 200, 300, 400]);
        assert_eq!(kept(30, &[5, 36, 99, 101, 130, 350, 351]), [5, 101, 350]);
        assert_eq!(kept(100, &[5, 99, 205, 290]), [5, 99, 205, 290]);
        assert_eq!(kept(1000, &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(kept(0, &[1, 2]), [1, 2], "events");
        assert_eq!(thinned(SourceThinning::All, &[1, 2, 101]), [1, 2, 101]);
        assert_eq!(thinned(SourceThinning::None, &[1, 2, 101]), [0; 0]);
    }
}
