//! The producer end of a queue, which a sampler uses. The producer writes frames into the open
//! slab, queues full slabs, and applies the policy for a full queue.

use std::sync::Arc;

use flatcap_metrics::GroupMetrics;
use flatcap_os::clock::monotonic_ns;
use flatcap_os::wake_event::WakeEvent;
use flatcap_stream::ChecksumKind;

use super::arena::SequenceCounters;
use super::ledger::{Causes, Loss, LossLedger};
use super::pool::SlabPool;
use super::queue::{OnFull, QueueSender, TrySendError};
use super::slab::{FrameMeta, Slab};

/// During a backlog, an old slab stays open if the next tick is at most this many nanoseconds away.
/// An open slab can take more frames.
const DEFERRED_MAX_NS: u64 = 1_000_000_000;
/// Interval at which a group that waits for space checks whether the run is stopped, in
/// nanoseconds.
const STOP_POLL_NS: u64 = 10_000_000;
/// Number of entries by which the list of pending losses grows. The list has one entry per source.
const PENDING_STEP: usize = 64;
/// Total time for which a group continues to wait for space after the stop, in nanoseconds. A
/// healthy recorder makes space within milliseconds. A stalled recorder must not delay the end of
/// the run.
const WAIT_AFTER_STOP_NS: u64 = 1_000_000_000;

/// The inputs that a group needs to queue slabs. The recorder and the other groups share the parts
/// that are in an `Arc`.
#[derive(Debug)]
pub struct SlabProducerSettings {
    /// The pool of free slabs.
    pub pool: Arc<SlabPool>,
    /// The queue of filled slabs. When this sender is dropped, the recorder sees that the group has
    /// ended.
    pub queue: QueueSender<Box<Slab>>,
    /// The ledger of losses.
    pub ledger: Arc<LossLedger>,
    /// The event that wakes the recorder when the queue is half full. If the queue has fewer slabs,
    /// the recorder polls.
    pub wake: Arc<WakeEvent>,
    /// Checksum of each frame.
    pub checksum: ChecksumKind,
    /// Maximum length of a frame's payload, in bytes.
    pub frame_max: u32,
    /// Maximum time between the first frame of a slab and the queueing of the slab, in nanoseconds.
    pub flush_interval_ns: u64,
    /// Sequence counters that crash recovery reads if this process is killed.
    pub sequence_counters: Arc<SequenceCounters>,
    /// Number of sources at the start of the run. Memory for the pending losses of these sources is
    /// preallocated. The first loss of a source with a higher id allocates more memory.
    pub sources: usize,
    /// The group's counters.
    pub metrics: Arc<GroupMetrics>,
    /// The event that ends a group's wait for space.
    pub stop: Arc<WakeEvent>,
}

/// Identity and time of a sample that was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleMeta {
    /// The source's id.
    pub source: u16,
    /// The sample's sequence number.
    pub seq: u64,
    /// Start of the sample on `CLOCK_MONOTONIC`, in nanoseconds.
    pub mono_ns: u64,
    /// Offset that is added to monotonic time to get wall time, in nanoseconds.
    pub wall_offset_ns: i64,
}

/// The producer of one sampler thread, which writes frames into its open slab. Every sample ends up
/// either in a queued slab or in the ledger.
#[derive(Debug)]
pub struct SlabProducer {
    settings: SlabProducerSettings,
    high_water: usize,
    open: Option<Box<Slab>>,
    pending: Vec<Option<Loss>>, // the loss of each source that may still grow
    give_up_ns: Option<u64>,    // no waiting after this; set by the first wait after the stop
}

impl SlabProducer {
    /// Number of bytes that a group needs for each source of the run, including the sources of
    /// other groups. The bytes store the pending loss of the source.
    pub const SOURCE_BYTES: usize = size_of::<Option<Loss>>();

    /// Creates a producer without an open slab. The producer takes a slab for the first frame.
    pub fn new(settings: SlabProducerSettings) -> Self {
        let high_water = settings.queue.capacity().div_ceil(2);
        let pending = (0..settings.sources).map(|_| None).collect();
        Self { settings, high_water, open: None, pending, give_up_ns: None }
    }

    /// Returns the counters of the group.
    pub fn metrics(&self) -> &GroupMetrics {
        &self.settings.metrics
    }

    /// Marks that a sample has begun. After this call, the sample is accounted for even if it is
    /// lost.
    #[inline]
    pub fn begin_sample(&self, source: u16, seq: u64) {
        self.settings.sequence_counters.set(source, seq.saturating_add(1));
    }

    /// Appends a frame. The closure `fill` writes the frame's payload of `payload_bytes` bytes in
    /// place. If there is no space, the sample is recorded as lost.
    ///
    /// # Panics
    /// Never. The messages of the two `expect` calls state why the calls cannot fail.
    #[allow(
        clippy::inline_always,
        reason = "else the sample metadata is passed on the stack: a tenth of a small sample's cost"
    )]
    #[inline(always)]
    pub fn append(&mut self, sample: &SampleMeta, payload_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        if payload_bytes > self.settings.frame_max as usize {
            return self.lose(*sample, Causes::TooLarge);
        }
        let kind = self.settings.checksum;
        let bytes = kind.frame_bytes(payload_bytes);
        if self.open.as_ref().is_none_or(|slab| !slab.fits(bytes)) {
            self.queue_open_slab(sample.mono_ns);
            if self.open.as_ref().is_none_or(|slab| slab.capacity() < bytes) {
                // This slab is still open because the queue was full. It is too small, so it is
                // returned to the pool.
                self.open.take().into_iter().for_each(|slab| self.settings.pool.give_back(slab));
                self.open = self.take_slab(bytes);
            }
        }
        let Some(slab) = self.open.as_mut() else {
            return self.lose(*sample, Causes::PoolEmpty);
        };
        let (frame, header) = slab.reserve(bytes).expect("a slab just taken, or found to have space");
        fill(frame.split_at_mut(bytes - payload_bytes).1);
        kind.frame_in_place_with_copy(frame, header).expect("the frame limit is a u32");
        slab.commit(FrameMeta {
            bytes,
            header_bytes: bytes - payload_bytes,
            source: sample.source,
            seq: sample.seq,
            mono_ns: sample.mono_ns,
            wall_offset_ns: sample.wall_offset_ns,
        });
        self.flush_loss(sample.source);
    }

    /// Appends a copy of a whole frame from another slab. If there is no space, the sample is
    /// recorded as lost.
    pub fn append_frame(&mut self, sample: &SampleMeta, frame: &[u8], checksum: ChecksumKind) {
        // The header is copied from the frame, so its checksum still proves the sampled bytes.
        let header_bytes = checksum.frame_bytes(0);
        let (Some(head), Some(payload)) = (frame.get(..header_bytes), frame.get(header_bytes..)) else {
            return self.lose(*sample, Causes::default());
        };
        if payload.len() > self.settings.frame_max as usize {
            return self.lose(*sample, Causes::TooLarge);
        }
        let bytes = frame.len();
        if self.open.as_ref().is_none_or(|slab| !slab.fits(bytes)) {
            self.queue_open_slab(sample.mono_ns);
            if self.open.as_ref().is_none_or(|slab| slab.capacity() < bytes) {
                self.open.take().into_iter().for_each(|slab| self.settings.pool.give_back(slab));
                self.open = self.take_slab(bytes);
            }
        }
        let Some((space, header)) = self.open.as_mut().and_then(|slab| slab.reserve(bytes)) else {
            return self.lose(*sample, Causes::PoolEmpty);
        };
        space.copy_from_slice(frame);
        header.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
        if let Some(slab) = self.open.as_mut() {
            slab.commit(FrameMeta {
                bytes,
                header_bytes,
                source: sample.source,
                seq: sample.seq,
                mono_ns: sample.mono_ns,
                wall_offset_ns: sample.wall_offset_ns,
            });
        }
        self.flush_loss(sample.source);
    }

    /// Records a loss of consecutive samples. These samples must have begun after all samples of
    /// the same source that are already recorded or lost.
    pub fn report_loss(&mut self, loss: Loss) {
        self.record_loss(loss);
    }

    /// Records that a sample is lost.
    #[cold]
    pub fn lose(&mut self, sample: SampleMeta, causes: Causes) {
        self.record_loss(Loss { source: sample.source, first_seq: sample.seq, count: 1, causes });
    }

    /// Returns the number of slabs that can be queued without a loss.
    pub fn queue_space(&self) -> usize {
        self.settings.queue.capacity().saturating_sub(self.settings.queue.len())
    }

    /// Returns whether the open slab should be queued. A slab is due if its first frame is older
    /// than the flush interval, or would become older before the next tick. During a backlog with
    /// frequent ticks, the slab stays open until it is full or the queue is shorter. The recorder
    /// would not take the slab now, and a full slab bridges a longer stall.
    #[inline]
    pub fn is_due(&self, now_ns: u64, next_tick_ns: u64) -> bool {
        let first = self.open.as_ref().and_then(|slab| slab.first_mono_ns());
        let is_old = first.is_some_and(|first| {
            let limit = first.saturating_add(self.settings.flush_interval_ns);
            now_ns >= limit || next_tick_ns > limit
        });
        let ticks_soon = next_tick_ns <= now_ns.saturating_add(DEFERRED_MAX_NS);
        is_old && !(ticks_soon && self.settings.queue.len() >= self.high_water)
    }

    /// Queues the open slab. If the queue is full, the policy [`OnFull`] of the queue applies.
    /// Every dropped frame is recorded as lost.
    pub fn queue_open_slab(&mut self, now_ns: u64) {
        let Some(mut slab) = self.open.take_if(|slab| !slab.is_empty()) else { return };
        slab.queued_ns = now_ns;
        match self.settings.queue.try_send(slab) {
            Ok(()) => self.note_queued(),
            Err(TrySendError::Full(slab)) => self.handle_full_queue(slab),
            // The recorder has ended before its samplers, so nothing reaches the storage any more.
            Err(TrySendError::Disconnected(slab)) => self.drop_slab(slab, Causes::Storage),
        }
    }

    fn note_queued(&self) {
        self.settings.metrics.slabs.add(1);
        // Waking a parked thread takes 7 to 10 us, but a push to a thread that polls takes only 40
        // ns.
        if self.settings.queue.len() >= self.high_water {
            self.settings.wake.set();
        }
    }

    #[cold]
    fn handle_full_queue(&mut self, slab: Box<Slab>) {
        let sent = match self.settings.queue.on_full() {
            OnFull::DropNewest => Err(TrySendError::Full(slab)),
            OnFull::DropOldest => {
                self.evict_oldest();
                // There is space now, because this is the only sender.
                self.settings.queue.try_send(slab)
            }
            OnFull::Block => self.send_blocking(slab),
        };
        match sent {
            Ok(()) => self.note_queued(),
            Err(TrySendError::Full(slab)) => self.drop_slab(slab, Causes::QueueFull),
            Err(TrySendError::Disconnected(slab)) => self.drop_slab(slab, Causes::Storage),
        }
    }

    /// Drops the oldest queued slab. The losses of the slab are in the ledger before the recorder
    /// can see later slabs. The lost samples are older than the pending loss and cannot be merged
    /// with it.
    fn evict_oldest(&mut self) {
        let Self { settings, .. } = self;
        let oldest = settings.queue.evict_oldest(|slab| {
            losses(slab, Causes::QueueFull).for_each(|loss| settings.ledger.write(loss));
        });
        if let Some(oldest) = oldest {
            self.settings.metrics.slabs_dropped.add(1);
            self.reuse(oldest);
        }
    }

    /// Waits until there is space and then queues a slab.
    fn send_blocking(&mut self, slab: Box<Slab>) -> Result<(), TrySendError<Box<Slab>>> {
        let Self { settings, give_up_ns, .. } = self;
        let queue = &settings.queue;
        let attempt = |slab| match queue.try_send(slab) {
            Err(TrySendError::Full(mut slab)) => {
                // The slab is stamped again, because the time of this wait does not count as time
                // in the queue.
                slab.queued_ns = monotonic_ns();
                Err(slab)
            }
            sent => Ok(sent),
        };
        let mut waits = BlockedWait::begin(settings, give_up_ns);
        queue
            .wait_for_space(slab, attempt, || waits.next_attempt_ns())
            .unwrap_or_else(|slab| Err(TrySendError::Full(slab)))
    }

    /// Takes a free slab with space for a frame of `bytes` bytes. With [`OnFull::Block`], waits for
    /// a slab if necessary. Only a large slab can require a wait, because the pool has enough
    /// standard slabs for all simultaneous uses.
    fn take_slab(&mut self, bytes: usize) -> Option<Box<Slab>> {
        let Self { settings, give_up_ns, .. } = self;
        let free = settings.pool.take(bytes);
        if free.is_some() || settings.queue.on_full() != OnFull::Block {
            return free;
        }
        let mut waits = BlockedWait::begin(settings, give_up_ns);
        let attempt = |()| settings.pool.take(bytes).ok_or(());
        settings.queue.wait_for_space((), attempt, || waits.next_attempt_ns()).ok()
    }

    /// Returns the slab that is being filled.
    #[cfg(test)]
    pub(super) fn open_slab(&self) -> Option<&Slab> {
        self.open.as_deref()
    }

    /// Queues the last slab and records all pending losses. Then `self` is dropped, which also
    /// drops the sender.
    pub fn finish(mut self, now_ns: u64) {
        self.queue_open_slab(now_ns);
        if let Some(slab) = self.open.take() {
            self.settings.pool.give_back(slab);
        }
        (0..u16::MAX).take(self.pending.len()).for_each(|source| self.flush_loss(source));
    }

    /// Drops the newest slab, which could not be queued.
    #[cold]
    fn drop_slab(&mut self, slab: Box<Slab>, causes: Causes) {
        self.settings.metrics.slabs_dropped.add(1);
        losses(&slab, causes).for_each(|loss| self.record_loss(loss));
        self.reuse(slab);
    }

    /// Reuses a slab whose frames are dropped. A large slab is returned to the pool, so that it is
    /// available for large frames.
    fn reuse(&mut self, mut slab: Box<Slab>) {
        if self.settings.pool.is_large(&slab) {
            return self.settings.pool.give_back(slab);
        }
        slab.clear();
        self.open = Some(slab);
    }

    /// Extends the pending loss, or starts a new pending loss.
    fn record_loss(&mut self, loss: Loss) {
        let place = usize::from(loss.source);
        if place >= self.pending.len() {
            self.pending.resize((place + 1).next_multiple_of(PENDING_STEP), None);
        }
        let Some(pending) = self.pending.get_mut(place) else { return };
        match pending {
            Some(open) if open.first_seq + open.count == loss.first_seq && open.causes == loss.causes => {
                open.count += loss.count;
            }
            _ => {
                if let Some(complete) = pending.replace(loss) {
                    self.settings.ledger.write(complete);
                }
            }
        }
    }

    /// Returns the policy for a full queue.
    #[cfg(any(test, feature = "testing"))]
    pub fn on_full(&self) -> OnFull {
        self.settings.queue.on_full()
    }

    /// Sets the policy for a full queue.
    pub fn set_on_full(&mut self, on_full: OnFull) {
        self.settings.queue.set_on_full(on_full);
    }

    /// Records a source's pending loss in the ledger. The caller must do this before a later frame
    /// of the source can reach the recorder, and when the source ends.
    #[inline]
    pub fn flush_loss(&mut self, source: u16) {
        if let Some(loss) = self.pending.get_mut(usize::from(source)).and_then(Option::take) {
            self.settings.ledger.write(loss);
        }
    }
}

/// Returns the losses of a dropped slab.
fn losses(slab: &Slab, causes: Causes) -> impl Iterator<Item = Loss> {
    slab.ranges().iter().map(move |run| Loss {
        source: run.source,
        first_seq: run.first_seq,
        count: run.count(),
        causes,
    })
}

/// One wait of a group for space. The metrics are updated during the wait.
struct BlockedWait<'a> {
    settings: &'a SlabProducerSettings,
    give_up_ns: &'a mut Option<u64>,
    counted_ns: u64, // waited time is counted up to here
}

impl<'a> BlockedWait<'a> {
    fn begin(settings: &'a SlabProducerSettings, give_up_ns: &'a mut Option<u64>) -> Self {
        Self { settings, give_up_ns, counted_ns: monotonic_ns() }
    }

    /// Returns the time at which the sleep must end, or `None` to give up.
    fn next_attempt_ns(&mut self) -> Option<u64> {
        let now = self.count_wait();
        if self.settings.stop.is_set() {
            let give_up_ns = *self.give_up_ns.get_or_insert(now.saturating_add(WAIT_AFTER_STOP_NS));
            if now >= give_up_ns {
                return None;
            }
        }
        // The recorder is woken now, so that it does not sleep until its next poll.
        self.settings.wake.set();
        Some(now.saturating_add(STOP_POLL_NS))
    }

    /// Adds the time since the last call to the metrics. Returns the current time.
    fn count_wait(&mut self) -> u64 {
        let now = monotonic_ns();
        self.settings.metrics.waited_ns.add(now.saturating_sub(self.counted_ns));
        self.counted_ns = now;
        now
    }
}

impl Drop for BlockedWait<'_> {
    fn drop(&mut self) {
        self.count_wait();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flatcap_stream::{KindDeframer, SliceReader};
    use proptest::prelude::*;

    use super::*;
    use crate::arena::{Arena, Geometry};
    use crate::queue::{QueueReceiver, TryRecvError, slab_queue};
    use crate::slab::SampleRange;

    const SOURCES: u16 = 3;
    const PAYLOAD_BYTES: usize = 64;

    struct ProducerRig {
        producer: SlabProducer,
        queue: QueueReceiver<Box<Slab>>,
        pool: Arc<SlabPool>,
        ledger: Arc<LossLedger>,
        wake: Arc<WakeEvent>,
    }

    fn rig(slabs: usize, queued: usize) -> ProducerRig {
        let geometry = Geometry {
            sources: SOURCES.into(),
            slabs,
            slab_bytes: 256,
            large_slabs: 1,
            large_slab_bytes: 4096,
        };
        let arena = Arena::anonymous(geometry).unwrap();
        let begun = arena.sequence_counters();
        let pool = Arc::new(SlabPool::new(arena));
        let ledger = Arc::new(LossLedger::new(SOURCES.into()));
        let wake = Arc::new(WakeEvent::new());
        let (sender, queue) = slab_queue(queued, OnFull::DropNewest);
        let producer = SlabProducer::new(SlabProducerSettings {
            pool: Arc::clone(&pool),
            queue: sender,
            ledger: Arc::clone(&ledger),
            wake: Arc::clone(&wake),
            checksum: ChecksumKind::Xxh3,
            frame_max: 2048,
            flush_interval_ns: 5,
            sequence_counters: begun,
            sources: SOURCES.into(),
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        ProducerRig { producer, queue, pool, ledger, wake }
    }

    /// Writes the source and the sequence number into the payload, so that the reader can check
    /// them.
    fn append(producer: &mut SlabProducer, reading: SampleMeta, bytes: usize) {
        producer.append(&reading, bytes, |payload| {
            payload.fill(0);
            payload[..2].copy_from_slice(&reading.source.to_le_bytes());
            payload[8..16].copy_from_slice(&reading.seq.to_le_bytes());
        });
    }

    fn read(slab: &Slab) -> Vec<(u16, u64)> {
        SliceReader::new(slab.bytes(), KindDeframer::new(ChecksumKind::Xxh3))
            .map(|payload| {
                let payload = payload.unwrap();
                let source = u16::from_le_bytes(payload[..2].try_into().unwrap());
                (source, u64::from_le_bytes(payload[8..16].try_into().unwrap()))
            })
            .collect()
    }

    proptest! {
        // Proves that every sample either arrives exactly once or is in the ledger exactly once,
        // whichever limits are exceeded.
        #[test]
        fn arrived_plus_lost_is_begun(
            slabs in 1_usize..6,
            queued in 1_usize..4,
            steps in proptest::collection::vec((0..SOURCES, 0_u8..10, any::<bool>()), 0..300),
        ) {
            let ProducerRig { mut producer, mut queue, pool, ledger, .. } = rig(slabs, queued);
            let mut next = [0_u64; SOURCES as usize];
            let mut seen: BTreeMap<(u16, u64), u32> = BTreeMap::new();
            let mut last: BTreeMap<u16, u64> = BTreeMap::new();
            let mut drain = |seen: &mut BTreeMap<(u16, u64), u32>| {
                while let Ok(slab) = queue.try_recv() {
                    let numbers: u64 = slab.ranges().iter().map(SampleRange::count).sum();
                    let frames = read(&slab);
                    assert_eq!(numbers, frames.len() as u64);
                    for (source, seq) in frames {
                        *seen.entry((source, seq)).or_default() += 1;
                        assert!(last.insert(source, seq).is_none_or(|before| before < seq), "out of order");
                    }
                    pool.give_back(slab);
                }
            };
            for (clock, (source, size, drains)) in steps.into_iter().enumerate() {
                let seq = next[usize::from(source)];
                next[usize::from(source)] += 1;
                let reading = SampleMeta { source, seq, mono_ns: clock as u64, wall_offset_ns: 0 };
                match size {
                    0 => producer.lose(reading, Causes::ReadFailed),
                    1 => append(&mut producer, reading, 4000), // above the limit
                    2 => append(&mut producer, reading, 1500), // needs a large slab
                    _ => append(&mut producer, reading, PAYLOAD_BYTES),
                }
                if producer.is_due(clock as u64, clock as u64 + 1) {
                    producer.queue_open_slab(clock as u64);
                }
                if drains {
                    drain(&mut seen);
                }
            }
            producer.finish(0);
            drain(&mut seen);
            prop_assert!(matches!(queue.try_recv(), Err(TryRecvError::Disconnected)));
            while let Some(loss) = ledger.take() {
                for seq in loss.first_seq..loss.first_seq + loss.count {
                    *seen.entry((loss.source, seq)).or_default() += 1;
                }
            }
            prop_assert!(seen.values().all(|&count| count == 1));
            prop_assert_eq!(seen.len() as u64, next.iter().sum::<u64>());
            prop_assert_eq!(pool.free(), slabs, "every slab came back");
        }
    }

    // Proves that a slab is due if its first frame is old, or if it would become old before the
    // next tick.
    #[test]
    fn a_slab_goes_in_time() {
        let ProducerRig { mut producer, queue: _queue, .. } = rig(2, 2);
        assert!(!producer.is_due(100, 1000), "an empty slab is never queued");
        append(
            &mut producer,
            SampleMeta { source: 0, seq: 0, mono_ns: 100, wall_offset_ns: 0 },
            PAYLOAD_BYTES,
        );
        assert!(!producer.is_due(101, 105));
        assert!(producer.is_due(105, 105));
        assert!(producer.is_due(101, 106));
    }

    // Proves that the recorder is woken at the high-water mark and not before.
    #[test]
    fn the_recorder_is_woken_past_the_high_water_mark() {
        let ProducerRig { mut producer, queue: _queue, wake, .. } = rig(8, 4);
        for (seq, woken) in [(0, false), (1, true)] {
            append(
                &mut producer,
                SampleMeta { source: 0, seq, mono_ns: seq, wall_offset_ns: 0 },
                PAYLOAD_BYTES,
            );
            producer.queue_open_slab(seq);
            assert_eq!(wake.is_set(), woken);
        }
    }
}
