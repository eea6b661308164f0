//! The samplers' side: frames into the open slab, full slabs into the queue, and the policy for what does not fit.

use std::sync::Arc;

use super::arena::Begun;
use super::ledger::{Causes, Loss, LossLedger};
use super::pool::SlabPool;
use super::queue::{OnFull, QueueSender, TrySendError};
use super::slab::{Kept, Slab};
use crate::metrics::GroupMetrics;
use crate::os::clock::monotonic_ns;
use crate::os::event::Event;
use crate::stream::ChecksumKind;

/// An open slab that is old stays open behind a backlog, to be filled, if the next tick is no further off than this.
const DEFERRED_MAX_NS: u64 = 1_000_000_000;
/// How often a group that waits for room looks whether the run is stopped.
const STOP_LOOK_NS: u64 = 10_000_000;
/// How long a group goes on waiting for room after the stop, all its slabs together. A recorder that is well makes room in
/// milliseconds; of one that is not, the end must not wait.
const WAIT_AFTER_STOP_NS: u64 = 1_000_000_000;

/// What a group needs to hand slabs over. Shared things are shared with the recorder and the other groups.
#[derive(Debug)]
pub struct HandOverSettings {
    /// Free slabs.
    pub pool: Arc<SlabPool>,
    /// Filled slabs; dropping it tells the recorder that this group has ended.
    pub queue: QueueSender<Box<Slab>>,
    /// Losses.
    pub ledger: Arc<LossLedger>,
    /// Wakes the recorder once the queue is half full; below that it comes by itself.
    pub wake: Arc<Event>,
    /// Checksum of each frame.
    pub checksum: ChecksumKind,
    /// Longest payload of a frame, in bytes.
    pub frame_max: u32,
    /// A slab goes at the latest this long after its first frame, in nanoseconds.
    pub interval_ns: u64,
    /// How many readings have begun, for whoever comes when this process was killed.
    pub begun: Arc<Begun>,
    /// Number of sources; ids are below it.
    pub sources: usize,
    /// The group's counters.
    pub metrics: Arc<GroupMetrics>,
    /// Ends the wait of a group that waits for room.
    pub stop: Arc<Event>,
}

/// A reading that was begun: whose, which, when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The source's id.
    pub source: u16,
    /// Its number.
    pub seq: u64,
    /// When it began, in monotonic nanoseconds.
    pub mono_ns: u64,
    /// What is added to that to get wall time, in nanoseconds.
    pub wall_offset_ns: i64,
}

/// The open slab of one thread. Every reading ends either in a slab that is handed over or in the ledger.
#[derive(Debug)]
pub struct HandOver {
    settings: HandOverSettings,
    high_water: usize,
    open: Option<Box<Slab>>,
    pending: Box<[Option<Loss>]>, // one a source, the loss that may still grow
    give_up_ns: Option<u64>, // no more waiting for room from then on: set by the first wait after the stop
}

impl HandOver {
    /// What a group keeps for each source of the run, whoever reads it: its loss that may still grow.
    pub const SOURCE_BYTES: usize = size_of::<Option<Loss>>();

    /// Starts without an open slab: it is taken for the first frame.
    pub fn new(settings: HandOverSettings) -> Self {
        let high_water = settings.queue.capacity().div_ceil(2);
        let pending = (0..settings.sources).map(|_| None).collect();
        Self { settings, high_water, open: None, pending, give_up_ns: None }
    }

    /// A reading begins: it is known from here on, whatever becomes of it.
    #[inline]
    pub fn begin(&self, source: u16, seq: u64) {
        self.settings.begun.set(source, seq.saturating_add(1));
    }

    /// Appends a frame whose payload of `payload_bytes` is written by `fill`, in place. Without room the reading is
    /// lost, and written down.
    ///
    /// # Panics
    /// Never: the proofs stand beside the two places that could.
    #[allow(
        clippy::inline_always,
        reason = "else the reading goes by way of the stack: a tenth of a small sample"
    )]
    #[inline(always)]
    pub fn append(&mut self, reading: &Reading, payload_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        if payload_bytes > self.settings.frame_max as usize {
            return self.lose(*reading, Causes::TOO_LARGE);
        }
        let kind = self.settings.checksum;
        let bytes = kind.frame_bytes(payload_bytes);
        if self.open.as_ref().is_none_or(|slab| !slab.has_room(bytes)) {
            self.hand_over(reading.mono_ns);
            if self.open.as_ref().is_none_or(|slab| slab.capacity() < bytes) {
                // The slab that a full queue left here is too small: it goes back.
                self.open.take().into_iter().for_each(|slab| self.settings.pool.give_back(slab));
                self.open = self.take_slab(bytes);
            }
        }
        let Some(slab) = self.open.as_mut() else {
            return self.lose(*reading, Causes::POOL_EMPTY);
        };
        let (frame, head) = slab.reserve(bytes).expect("a slab just taken, or found to have room");
        fill(frame.split_at_mut(bytes - payload_bytes).1);
        kind.seal_with_copy(frame, head).expect("the frame limit is a u32");
        slab.commit(Kept {
            bytes,
            head_bytes: bytes - payload_bytes,
            source: reading.source,
            seq: reading.seq,
            mono_ns: reading.mono_ns,
            wall_offset_ns: reading.wall_offset_ns,
        });
        self.settle(reading.source);
    }

    /// Writes down that a reading came to nothing.
    #[cold]
    pub fn lose(&mut self, reading: Reading, causes: Causes) {
        self.write_loss(Loss { source: reading.source, first_seq: reading.seq, count: 1, causes });
    }

    /// Whether the open slab should go: its first frame is older than the interval, or will be before the next tick
    /// could hand it over. Behind a backlog it stays until it is full or the queue is shorter, if ticks come often: the
    /// recorder would not take it now, and a full slab bridges more of a stall.
    #[inline]
    pub fn is_due(&self, now_ns: u64, next_tick_ns: u64) -> bool {
        let first = self.open.as_ref().and_then(|slab| slab.first_mono_ns());
        let is_old = first.is_some_and(|first| {
            let limit = first.saturating_add(self.settings.interval_ns);
            now_ns >= limit || next_tick_ns > limit
        });
        let ticks_soon = next_tick_ns <= now_ns.saturating_add(DEFERRED_MAX_NS);
        is_old && !(ticks_soon && self.settings.queue.len() >= self.high_water)
    }

    /// Hands the open slab over. What becomes of it where the queue is full is the queue's setting; every frame that is given
    /// up is written down.
    pub fn hand_over(&mut self, now_ns: u64) {
        let Some(mut slab) = self.open.take_if(|slab| !slab.is_empty()) else { return };
        slab.handed_over_ns = now_ns;
        match self.settings.queue.try_send(slab) {
            Ok(()) => self.note_handed_over(),
            Err(TrySendError::Full(slab)) => self.hand_over_to_full(slab),
            // The recorder has ended before its samplers: nothing reaches the storage any more.
            Err(TrySendError::Disconnected(slab)) => self.give_up(slab, Causes::STORAGE),
        }
    }

    fn note_handed_over(&self) {
        self.settings.metrics.slabs.add(1);
        if self.settings.queue.len() >= self.high_water {
            self.settings.wake.set();
        }
    }

    #[cold]
    fn hand_over_to_full(&mut self, slab: Box<Slab>) {
        let sent = match self.settings.queue.on_full() {
            OnFull::DropNewest => Err(TrySendError::Full(slab)),
            OnFull::DropOldest => {
                self.withdraw_oldest();
                // There is room now: nobody else sends.
                self.settings.queue.try_send(slab)
            }
            OnFull::Block => self.send_waiting(slab),
        };
        match sent {
            Ok(()) => self.note_handed_over(),
            Err(TrySendError::Full(slab)) => self.give_up(slab, Causes::QUEUE_FULL),
            Err(TrySendError::Disconnected(slab)) => self.give_up(slab, Causes::STORAGE),
        }
    }

    /// Gives up the oldest slab that is queued. Its losses are in the ledger before the recorder can see what is behind them;
    /// they are older than the one that may still grow, and do not touch it.
    fn withdraw_oldest(&mut self) {
        let Self { settings, .. } = self;
        let oldest = settings.queue.withdraw_oldest(|slab| {
            losses(slab, Causes::QUEUE_FULL).for_each(|loss| settings.ledger.write(loss));
        });
        if let Some(oldest) = oldest {
            self.settings.metrics.slabs_dropped.add(1);
            self.reuse(oldest);
        }
    }

    /// Hands a slab over once there is room.
    fn send_waiting(&mut self, slab: Box<Slab>) -> Result<(), TrySendError<Box<Slab>>> {
        let Self { settings, give_up_ns, .. } = self;
        let queue = &settings.queue;
        let attempt = |slab| match queue.try_send(slab) {
            Err(TrySendError::Full(mut slab)) => {
                // As if it had been handed over just now: it would have waited in the queue, not here.
                slab.handed_over_ns = monotonic_ns();
                Err(slab)
            }
            sent => Ok(sent),
        };
        let mut waits = Waits::begin(settings, give_up_ns);
        queue
            .wait_for_room(slab, attempt, || waits.go_on())
            .unwrap_or_else(|slab| Err(TrySendError::Full(slab)))
    }

    /// A free slab with room for a frame of `bytes`, waited for where that was chosen. Only a large one ever is: there are as
    /// many common ones as can be in use.
    fn take_slab(&mut self, bytes: usize) -> Option<Box<Slab>> {
        let Self { settings, give_up_ns, .. } = self;
        let free = settings.pool.take(bytes);
        if free.is_some() || settings.queue.on_full() != OnFull::Block {
            return free;
        }
        let mut waits = Waits::begin(settings, give_up_ns);
        let attempt = |()| settings.pool.take(bytes).ok_or(());
        settings.queue.wait_for_room((), attempt, || waits.go_on()).ok()
    }

    /// The slab that is being filled.
    #[cfg(test)]
    pub(super) fn open_slab(&self) -> Option<&Slab> {
        self.open.as_deref()
    }

    /// Hands the last slab over and settles all losses; dropping `self` then drops the sender.
    pub fn finish(mut self, now_ns: u64) {
        self.hand_over(now_ns);
        if let Some(slab) = self.open.take() {
            self.settings.pool.give_back(slab);
        }
        (0..u16::MAX).take(self.pending.len()).for_each(|source| self.settle(source));
    }

    /// Gives up a slab that could not be handed over, the newest there is.
    #[cold]
    fn give_up(&mut self, slab: Box<Slab>, causes: Causes) {
        self.settings.metrics.slabs_dropped.add(1);
        losses(&slab, causes).for_each(|loss| self.write_loss(loss));
        self.reuse(slab);
    }

    /// Goes on with a slab whose frames are given up. A large one goes back: it is for frames that need it.
    fn reuse(&mut self, mut slab: Box<Slab>) {
        if self.settings.pool.is_large(&slab) {
            return self.settings.pool.give_back(slab);
        }
        slab.clear();
        self.open = Some(slab);
    }

    /// Lets a growing loss grow, or starts a new one.
    fn write_loss(&mut self, loss: Loss) {
        let Some(pending) = self.pending.get_mut(usize::from(loss.source)) else { return };
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

    /// What it does with a slab that finds the queue full.
    pub fn on_full(&self) -> OnFull {
        self.settings.queue.on_full()
    }

    /// From now on does this with a slab that finds the queue full.
    pub fn set_on_full(&mut self, on_full: OnFull) {
        self.settings.queue.set_on_full(on_full);
    }

    /// Writes a source's growing loss down, before a frame behind it can reach the recorder, or since it has no next reading.
    #[inline]
    pub fn settle(&mut self, source: u16) {
        if let Some(loss) = self.pending.get_mut(usize::from(source)).and_then(Option::take) {
            self.settings.ledger.write(loss);
        }
    }
}

/// What is lost with a slab.
fn losses(slab: &Slab, causes: Causes) -> impl Iterator<Item = Loss> {
    slab.runs().iter().map(move |run| Loss {
        source: run.source,
        first_seq: run.first_seq,
        count: run.count(),
        causes,
    })
}

/// One wait for room, counted while it lasts.
struct Waits<'a> {
    settings: &'a HandOverSettings,
    give_up_ns: &'a mut Option<u64>,
    counted_ns: u64, // up to here
}

impl<'a> Waits<'a> {
    fn begin(settings: &'a HandOverSettings, give_up_ns: &'a mut Option<u64>) -> Self {
        Self { settings, give_up_ns, counted_ns: monotonic_ns() }
    }

    /// Until when to sleep; none if it has been waited long enough.
    fn go_on(&mut self) -> Option<u64> {
        let now = self.count();
        if self.settings.stop.is_set() {
            let give_up_ns = *self.give_up_ns.get_or_insert(now.saturating_add(WAIT_AFTER_STOP_NS));
            if now >= give_up_ns {
                return None;
            }
        }
        // It is to come at once, not at its next look.
        self.settings.wake.set();
        Some(now.saturating_add(STOP_LOOK_NS))
    }

    /// Adds the time that has passed. Returns the time.
    fn count(&mut self) -> u64 {
        let now = monotonic_ns();
        self.settings.metrics.waited_ns.add(now.saturating_sub(self.counted_ns));
        self.counted_ns = now;
        now
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::slab::arena::{Arena, Geometry};
    use crate::slab::queue::{QueueReceiver, TryRecvError, slab_queue};
    use crate::slab::slab::Run;
    use crate::stream::{KindDeframer, SliceReader};

    const SOURCES: u16 = 3;
    const PAYLOAD_BYTES: usize = 64;

    struct Rig {
        hand_over: HandOver,
        queue: QueueReceiver<Box<Slab>>,
        pool: Arc<SlabPool>,
        ledger: Arc<LossLedger>,
        wake: Arc<Event>,
    }

    fn rig(slabs: usize, queued: usize) -> Rig {
        let geometry = Geometry {
            sources: SOURCES.into(),
            slabs,
            slab_bytes: 256,
            large_slabs: 1,
            large_slab_bytes: 4096,
        };
        let arena = Arena::anonymous(geometry).unwrap();
        let begun = arena.begun();
        let pool = Arc::new(SlabPool::new(arena));
        let ledger = Arc::new(LossLedger::new(SOURCES.into()));
        let wake = Arc::new(Event::new());
        let (sender, queue) = slab_queue(queued, OnFull::DropNewest);
        let hand_over = HandOver::new(HandOverSettings {
            pool: Arc::clone(&pool),
            queue: sender,
            ledger: Arc::clone(&ledger),
            wake: Arc::clone(&wake),
            checksum: ChecksumKind::Xxh3,
            frame_max: 2048,
            interval_ns: 5,
            begun,
            sources: SOURCES.into(),
            metrics: Arc::default(),
            stop: Arc::default(),
        });
        Rig { hand_over, queue, pool, ledger, wake }
    }

    /// Who and which stands in the payload, so that a reader can tell.
    fn append(hand_over: &mut HandOver, reading: Reading, bytes: usize) {
        hand_over.append(&reading, bytes, |payload| {
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
        // Goal: every reading arrives exactly once or is in the ledger exactly once, whatever is full. Method: random
        // sources, sizes, failed reads and drains against a set of all numbers.
        #[test]
        fn arrived_plus_lost_is_begun(
            slabs in 1_usize..6,
            queued in 1_usize..4,
            steps in proptest::collection::vec((0..SOURCES, 0_u8..10, any::<bool>()), 0..300),
        ) {
            let Rig { mut hand_over, mut queue, pool, ledger, .. } = rig(slabs, queued);
            let mut next = [0_u64; SOURCES as usize];
            let mut seen: BTreeMap<(u16, u64), u32> = BTreeMap::new();
            let mut last: BTreeMap<u16, u64> = BTreeMap::new();
            let mut drain = |seen: &mut BTreeMap<(u16, u64), u32>| {
                while let Ok(slab) = queue.try_recv() {
                    let numbers: u64 = slab.runs().iter().map(Run::count).sum();
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
                let reading = Reading { source, seq, mono_ns: clock as u64, wall_offset_ns: 0 };
                match size {
                    0 => hand_over.lose(reading, Causes::READ_FAILED),
                    1 => append(&mut hand_over, reading, 4000), // above the limit
                    2 => append(&mut hand_over, reading, 1500), // needs a large slab
                    _ => append(&mut hand_over, reading, PAYLOAD_BYTES),
                }
                if hand_over.is_due(clock as u64, clock as u64 + 1) {
                    hand_over.hand_over(clock as u64);
                }
                if drains {
                    drain(&mut seen);
                }
            }
            hand_over.finish(0);
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

    // Goal: a slab goes when its first frame is old, or when the next tick would come too late. Method: the clock by
    // hand, an interval of 5.
    #[test]
    fn a_slab_goes_in_time() {
        let Rig { mut hand_over, queue: _queue, .. } = rig(2, 2);
        assert!(!hand_over.is_due(100, 1000), "an empty slab never goes");
        append(&mut hand_over, Reading { source: 0, seq: 0, mono_ns: 100, wall_offset_ns: 0 }, PAYLOAD_BYTES);
        assert!(!hand_over.is_due(101, 105));
        assert!(hand_over.is_due(105, 105));
        assert!(hand_over.is_due(101, 106));
    }

    // Goal: the recorder is woken past the high-water mark and not before. Method: fill a queue of 4.
    #[test]
    fn the_recorder_is_woken_past_the_high_water_mark() {
        let Rig { mut hand_over, queue: _queue, wake, .. } = rig(8, 4);
        for (seq, woken) in [(0, false), (1, true)] {
            append(
                &mut hand_over,
                Reading { source: 0, seq, mono_ns: seq, wall_offset_ns: 0 },
                PAYLOAD_BYTES,
            );
            hand_over.hand_over(seq);
            assert_eq!(wake.is_set(), woken);
        }
    }
}
