//! The maintenance work between two batches. The work covers clock syncs (after the wall clock was
//! set), the index, fsync, rotation, metrics and warnings.

use std::sync::Arc;

use flatcap_format::host::ClockReading;
use flatcap_format::segment::{ClockCause, ClockSync, Marker, MarkerOrigin};
use flatcap_metrics::LimitingBudget;
use flatcap_os::clock::{ClockChange, ClockChangeDetector, NS_PER_S, WallOffset, monotonic_ns};
use flatcap_slab::SlabPool;

use super::segment_slot::SegmentSlot;

/// Interval at which latencies are collected.
const COLLECT_INTERVAL_NS: u64 = NS_PER_S;

/// The maintenance work, which does not depend on queued slabs.
#[derive(Debug)]
pub(super) struct Maintenance {
    pub(super) collect_ns: u64,
    pub(super) queued_max: usize, // slabs; maximum since the last collection
    pool: Arc<SlabPool>,
    clock_watch: Box<dyn ClockChangeDetector>,
    wall_offset: Arc<WallOffset>,
}

impl Maintenance {
    pub(super) fn new(
        pool: Arc<SlabPool>,
        clock_watch: Box<dyn ClockChangeDetector>,
        wall_offset: Arc<WallOffset>,
    ) -> Self {
        let collect_ns = monotonic_ns() + COLLECT_INTERVAL_NS;
        Self { collect_ns, queued_max: 0, pool, clock_watch, wall_offset }
    }

    /// Does the maintenance that is due.
    pub(super) fn run(&mut self, slot: &mut SegmentSlot, now: u64) {
        slot.poll_syncer(now);
        if let Some(change) = self.clock_watch.poll_change() {
            self.record_clock_sync(slot, change, now);
        }
        if now >= self.collect_ns {
            self.collect_ns = now + COLLECT_INTERVAL_NS;
            slot.latencies.collect();
            slot.metrics.recorder.slabs_queued.set(std::mem::take(&mut self.queued_max) as u64);
            slot.metrics.recorder.slabs_free.set(self.pool.free() as u64);
            slot.metrics.recorder.losses_pending.set(slot.gaps.losses.pending().0);
            if !slot.is_ring {
                // The recorder of the ring skips these reports, because the recorder of the data
                // directory already reports the same samplers.
                mark_stride_changes(slot, now);
                warn_unresponsive_sources(slot);
                warn_failing_sources(slot);
            }
            let wall_ns = slot.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(now);
            let open = slot.segment.as_ref().map(|segment| &segment.writer);
            slot.syncer.enforce_limits(wall_ns.div_euclid(NS_PER_S.cast_signed()), open);
        }
        slot.index_if_due(now);
        slot.sync_if_due(now);
        slot.rotate_if_due(0, now);
        slot.publish_segment_metrics();
    }

    /// Records a clock sync, and uses it for the stamps of later samples.
    fn record_clock_sync(
        &self,
        slot: &mut SegmentSlot,
        (change, clocks): (ClockChange, ClockReading),
        now: u64,
    ) {
        let old_ns = slot.plan.header.clocks.wall_offset_ns();
        let cause = match change {
            ClockChange::Stepped => ClockCause::Stepped,
            ClockChange::Resumed => ClockCause::Resumed,
        };
        tracing::info!(
            step_ns = clocks.wall_offset_ns().wrapping_sub(old_ns),
            "the wall clock was set or the host was suspended; recording a new clock sync"
        );
        slot.plan.header.clocks = clocks;
        slot.plan.header.add_clocks(clocks);
        // If the clock sync cannot be written, the next header still contains it.
        slot.append_control(now, |writer| writer.append_clock_sync(&ClockSync { clocks, cause }));
        self.wall_offset.set(&clocks);
    }
}

/// Writes a mark for each source whose stride has changed. The stride changes when the source
/// exceeds its budget, or no longer exceeds it.
fn mark_stride_changes(slot: &mut SegmentSlot, now: u64) {
    let metrics = Arc::clone(&slot.metrics);
    for (id, source) in metrics.sources.iter().enumerate() {
        let (Some(progress), (stride, limit)) = (slot.gaps.progress.get_mut(id), source.stride_and_budget())
        else {
            continue;
        };
        if progress.stride == stride {
            continue;
        }
        progress.stride = stride;
        let text = match (stride, limit) {
            (1, _) => format!("{}: every period is read again, within all budgets", source.name),
            (_, LimitingBudget::Source) => {
                format!("{}: one period in {stride} is read, to stay within the source's budget", source.name)
            }
            (_, LimitingBudget::Recorder) => format!(
                "{}: one period in {stride} is read, to stay within cpu_budget, the budget of all sources together",
                source.name
            ),
        };
        if stride == 1 {
            tracing::info!(source = source.name.as_str(), stride, "{text}");
        } else {
            tracing::warn!(source = source.name.as_str(), stride, "kept within its budget: {text}");
        }
        let wall_ns = slot.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(now);
        let marker = Marker { mono_ns: now, wall_ns, origin: MarkerOrigin::Recorder, text };
        slot.append_control(now, |writer| writer.append_marker(&marker));
    }
}

/// Warns about sources that did not answer in time.
fn warn_unresponsive_sources(slot: &mut SegmentSlot) {
    for (source, progress) in slot.metrics.sources.iter().zip(&mut slot.gaps.progress) {
        let timed_out = source.timed_out.get();
        if timed_out > progress.logged_timed_out {
            progress.logged_timed_out = timed_out;
            tracing::warn!(
                source = source.name.as_str(),
                samples = timed_out,
                "source does not answer in time; these samples are lost"
            );
        }
    }
}

/// Warns about sources that cannot be read. A source is reported only once, until it recovers or
/// fails for another reason.
fn warn_failing_sources(slot: &mut SegmentSlot) {
    for (source, progress) in slot.metrics.sources.iter().zip(&mut slot.gaps.progress) {
        let failed = source.failed.get();
        if failed <= progress.seen_failed {
            continue;
        }
        let others = source.begun.get().saturating_sub(failed + source.timed_out.get());
        // The difference may be 1 without a recovery, because one sample may still be in progress.
        let has_recovered = others > progress.logged_not_failed + 1;
        let error = source.last_errno.get();
        let is_said = progress.seen_failed > 0 && error == progress.logged_errno && !has_recovered;
        progress.seen_failed = failed;
        if let Some(reason) = source.failure().filter(|_| !is_said) {
            (progress.logged_errno, progress.logged_not_failed) = (error, others);
            tracing::warn!(
                source = source.name.as_str(),
                error = %reason,
                "cannot read this source; its samples are lost until it can be read"
            );
        }
    }
}
