//! The lane of a thread, and the data that the thread needs for a push.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use flatcap_lane::{OnFullSlab, Refusal};
use rustix::thread::nanosleep;
use rustix::time::Timespec;

use super::clock::{CALIBRATION_MAX_NS, NS_PER_S, PushClock, monotonic_ns};
use super::error::PushError;
use super::process_mark::ProcessMark;
use super::registry::{DropCounters, LaneEnd};
use super::setup::{OnFullLane, SourceSlot};
use super::shared::ClientShared;

/// Maximum number of pushes between two readings of the clock while no recorder is connected. The
/// actual number of pushes is chosen so that the clock is read about once per [`LOOK_EVERY_NS`].
/// The clock is not read at each push, because reading it takes as long as twenty pushes that drop
/// their sample.
const UNTIMED_MAX: u32 = 64;
const LOOK_EVERY_NS: u64 = NS_PER_S / 10;
/// Minimum pause of a push that waits for space, in nanoseconds. The next constant is the maximum
/// pause.
const PAUSE_MIN_NS: u64 = 50_000;
const PAUSE_MAX_NS: u64 = 1_000_000;
/// Maximum number of steps to prepare the lane for one sample. A step gets a new lane, a slot or
/// the next slab.
const STEPS_MAX: u32 = 8;

thread_local! {
    /// The lane that this thread used last. The cell is empty while the lane is in use, so that a
    /// signal handler does not find the lane.
    static CURRENT: LaneCell = const { Cell::new(None) };
    /// Whether this thread has already had a lane.
    static IS_KNOWN: Cell<bool> = const { Cell::new(false) };
    /// The lanes of this thread for other clients.
    #[allow(clippy::vec_box, reason = "boxes move between here and `CURRENT`")]
    static OTHERS: RefCell<Vec<Box<ThreadLane>>> = const { RefCell::new(Vec::new()) };
}

/// The lane of one thread, for one client.
#[derive(Debug)]
pub(crate) struct ThreadLane {
    client: Arc<ClientShared>,
    end: Option<LaneEnd>,
    mark: Option<ProcessMark>,
    clock: PushClock,
    next_check_ns: u64,
    next_lane_ns: u64, // after the recorder has refused or ended one
    untimed: u32,      // pushes until the clock is read, without a recorder
    untimed_from: u32,
    last_look_ns: u64,
    counters: Arc<DropCounters>,
    refused: u64, // sources, by bit, that this recorder does not take
}

/// The cell of the lane that the thread used last.
type LaneCell = Cell<Option<Box<ThreadLane>>>;

/// Pushes a sample of `bytes` bytes through the lane of this thread. `fill` writes the payload of
/// the sample.
#[inline]
pub(crate) fn push(
    client: &Arc<ClientShared>,
    source: &SourceSlot,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), PushError> {
    // While the thread ends, there is no lane any more.
    let pushed = CURRENT.try_with(|current| match current.take() {
        Some(lane) if Arc::ptr_eq(&lane.client, client) => push_by(current, lane, source, bytes, fill),
        other => {
            let lane = find_lane(client, other).ok_or(PushError::Busy)?;
            push_by(current, lane, source, bytes, fill)
        }
    });
    pushed.unwrap_or(Err(PushError::Busy))
}

/// Pushes a sample through this lane, or drops the sample. Then puts the lane back into its cell.
#[inline]
fn push_by(
    current: &LaneCell,
    mut lane: Box<ThreadLane>,
    source: &SourceSlot,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), PushError> {
    if lane.drops_fast(source.number) {
        current.set(Some(lane));
        return Err(PushError::NoRecorder);
    }
    push_to_lane(current, lane, source, bytes, fill)
}

/// Pushes a sample through this lane, and then puts the lane back into its cell. Not inlined, so
/// that the fast path of a drop does not save the registers that this function needs.
#[inline(never)]
fn push_to_lane(
    current: &LaneCell,
    lane: Box<ThreadLane>,
    source: &SourceSlot,
    bytes: usize,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), PushError> {
    // Puts the lane back even if the caller's code panics.
    let mut held = HeldLane { current, lane: Some(lane) };
    let Some(lane) = &mut held.lane else { return Err(PushError::Busy) };
    lane.push(source, bytes, fill)
}

/// Takes the lane of this thread. Returns `None` if the lane is in use.
#[inline]
pub(crate) fn take_lane(client: &Arc<ClientShared>) -> Option<Box<ThreadLane>> {
    // While the thread ends, there is no lane any more.
    match CURRENT.try_with(Cell::take).ok()? {
        Some(lane) if Arc::ptr_eq(&lane.client, client) => Some(lane),
        other => find_lane(client, other),
    }
}

/// Puts a lane back.
#[inline]
pub(crate) fn put_lane(lane: Box<ThreadLane>) {
    // At the end of the thread, the lane is released instead.
    let _ends = CURRENT.try_with(|current| current.set(Some(lane)));
}

/// A lane that is in use, and the cell to which the lane returns.
struct HeldLane<'c> {
    current: &'c LaneCell,
    lane: Option<Box<ThreadLane>>,
}

impl Drop for HeldLane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.current.set(self.lane.take());
    }
}

/// Finds or creates the lane for a client that is not the client of the last push.
#[cold]
fn find_lane(client: &Arc<ClientShared>, other: Option<Box<ThreadLane>>) -> Option<Box<ThreadLane>> {
    let is_first = !IS_KNOWN.try_with(|is_known| is_known.replace(true)).ok()?;
    let is_at_hand = other.is_some();
    OTHERS
        .try_with(|others| {
            let mut others = others.try_borrow_mut().ok()?;
            others.extend(other);
            if let Some(found) = others.iter().position(|lane| Arc::ptr_eq(&lane.client, client)) {
                return Some(others.swap_remove(found));
            }
            // Closed clients push no further samples, so their lanes are dropped now instead of at
            // the end of the thread.
            others.retain(|lane| !lane.client.process().registry.is_closed());
            // A thread without a lane at hand, for which a lane was opened before, is inside a call
            // that uses this lane.
            (is_first || is_at_hand).then(|| Box::new(ThreadLane::new(client)))
        })
        .ok()?
}

impl ThreadLane {
    fn new(client: &Arc<ClientShared>) -> Self {
        let clock =
            client.setup.opened.map_or(PushClock::Monotonic, |point| PushClock::Counter(point.clock()));
        Self {
            client: Arc::clone(client),
            end: None,
            mark: ProcessMark::current(),
            clock,
            next_check_ns: 0,
            next_lane_ns: 0,
            untimed: 1,
            untimed_from: 1,
            last_look_ns: 0,
            counters: client.process().registry.new_counters(),
            refused: 0,
        }
    }

    /// The fast path if no recorder is connected. Drops a sample, unless it is time to search for a
    /// recorder. Returns whether the sample was dropped.
    #[inline]
    fn drops_fast(&mut self, slot: u8) -> bool {
        let is_dropped = self.end.is_none() && self.untimed > 1;
        if is_dropped {
            self.untimed -= 1;
            self.counters.add(slot);
        }
        is_dropped
    }

    /// Pushes a sample. The function `fill` writes the payload of the sample.
    #[inline]
    fn push(
        &mut self,
        source: &SourceSlot,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), PushError> {
        if let Some(end) = &mut self.end
            && self.mark.is_some_and(ProcessMark::is_own_process)
        {
            let now_ns = self.clock.now_ns();
            if now_ns < self.next_check_ns && end.writer.ready(source.number, bytes).is_ok() {
                end.writer.push(source.number, bytes, now_ns, fill);
                return Ok(());
            }
        }
        self.push_slowly(source, bytes, fill)
    }

    #[cold]
    #[inline(never)]
    fn push_slowly(
        &mut self,
        source: &SourceSlot,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), PushError> {
        self.prepare(source, bytes)?;
        let now_ns = self.clock.now_ns();
        let Some(end) = &mut self.end else { return Err(PushError::NoRecorder) };
        end.writer.push(source.number, bytes, now_ns, fill);
        Ok(())
    }

    /// Begins a sample. Returns the memory for the sample's payload, which may have up to `bytes`
    /// bytes.
    pub(crate) fn begin(&mut self, source: &SourceSlot, bytes: usize) -> Result<BegunSample, PushError> {
        self.prepare(source, bytes)?;
        let mono_ns = self.clock.now_ns();
        let Some(end) = &mut self.end else { return Err(PushError::NoRecorder) };
        let place = end.writer.payload(bytes, <[u8]>::as_mut_ptr);
        Ok(BegunSample { slot: source.number, bytes, mono_ns, place })
    }

    /// Completes a sample. The payload of the sample is the first `bytes` bytes of the sample's
    /// memory.
    pub(crate) fn commit(&mut self, sample: &BegunSample, bytes: usize) -> Result<(), PushError> {
        let is_own = self.mark.is_some_and(ProcessMark::is_own_process);
        match &mut self.end {
            Some(end) if is_own && bytes <= sample.bytes => {
                end.writer.commit(sample.slot, bytes, sample.mono_ns);
                Ok(())
            }
            _ => Err(self.drop_sample(sample.slot, PushError::NoRecorder)),
        }
    }

    /// Prepares the lane for a sample. If this fails, counts the sample as dropped.
    fn prepare(&mut self, source: &SourceSlot, bytes: usize) -> Result<(), PushError> {
        let SourceSlot { number: slot, on_full } = *source;
        self.abandon_in_child();
        let now_ns = monotonic_ns();
        self.check(now_ns);
        for _ in 0..STEPS_MAX {
            let Some(end) = &mut self.end else { return Err(self.drop_sample(slot, PushError::NoRecorder)) };
            match end.writer.ready(slot, bytes) {
                Ok(()) => return Ok(()),
                Err(Refusal::Ended) => self.renew(now_ns),
                Err(Refusal::Unbound) if self.bind(slot) => {}
                Err(Refusal::Unbound) => return Err(self.drop_sample(slot, PushError::NoRecorder)),
                Err(Refusal::SlabFull) if self.open_next(on_full, now_ns) => {}
                Err(Refusal::SlabFull) => return Err(self.lose(slot, PushError::Full)),
                Err(Refusal::Paused) => return Err(self.lose(slot, PushError::Paused)),
                Err(Refusal::TooLarge) => return Err(self.lose(slot, PushError::TooLarge)),
            }
        }
        Err(self.drop_sample(slot, PushError::NoRecorder))
    }

    /// Counts a dropped sample in the lane, so that the recorder accounts for it.
    fn lose(&mut self, slot: u8, why: PushError) -> PushError {
        self.end.as_mut().into_iter().for_each(|end| end.writer.lose(slot));
        self.drop_sample(slot, why)
    }

    fn drop_sample(&self, slot: u8, why: PushError) -> PushError {
        self.counters.add(slot);
        why
    }

    /// Drops the lane in a child of the process that owned the lane. The memory is not mapped in
    /// the child, and must not be unmapped.
    fn abandon_in_child(&mut self) {
        if self.mark.is_some_and(ProcessMark::is_own_process) {
            return;
        }
        let _left = self.end.take().map(ManuallyDrop::new);
        self.mark = ProcessMark::current();
        self.counters = self.client.process().registry.new_counters();
        self.next_check_ns = 0;
    }

    /// Called once a second. Reads the messages of the recorder. If no recorder is connected,
    /// searches for one. If the recorder has changed, replaces the lane.
    fn check(&mut self, now_ns: u64) {
        if self.end.is_none() {
            self.choose_untimed(now_ns);
        }
        if now_ns < self.next_check_ns || self.mark.is_none() {
            return;
        }
        let good_ns = self.clock.calibrate();
        self.next_check_ns = now_ns.saturating_add(good_ns.clamp(1, CALIBRATION_MAX_NS));
        let connection = self.client.process().registry.check(&self.client.setup, now_ns);
        if self.end.as_ref().is_none_or(|end| end.connection != connection) {
            self.next_lane_ns = 0;
            self.renew(now_ns);
        }
    }

    /// Chooses the number of pushes after which the clock is read again.
    fn choose_untimed(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.last_look_ns);
        self.last_look_ns = now_ns;
        self.untimed_from =
            if passed_ns < LOOK_EVERY_NS { (self.untimed_from * 2).min(UNTIMED_MAX) } else { 1 };
        self.untimed = self.untimed_from;
    }

    /// Hands over the lane and requests a new one. Requests at most one lane per second from the
    /// same recorder.
    fn renew(&mut self, now_ns: u64) {
        let registry = &self.client.process().registry;
        if let Some(end) = self.end.take() {
            registry.hand_over(&end);
        }
        self.refused = 0;
        if now_ns >= self.next_lane_ns {
            self.end = registry.lane(&self.client.setup);
            self.next_lane_ns = now_ns.saturating_add(NS_PER_S);
        }
    }

    fn bind(&mut self, slot: u8) -> bool {
        let is_refused = self.refused & (1 << slot) != 0;
        let Some(end) = self.end.as_mut().filter(|_| !is_refused) else { return false };
        let is_bound = self.client.process().registry.bind(&self.client.setup, end, slot);
        if !is_bound {
            self.refused |= 1 << slot;
        }
        is_bound
    }

    /// Opens the next slab. If the ring is full, applies the policy `on_full`.
    fn open_next(&mut self, on_full: OnFullLane, now_ns: u64) -> bool {
        let Some(end) = &mut self.end else { return false };
        let registry = &self.client.process().registry;
        let policy = if on_full == OnFullLane::DropOldest { OnFullSlab::Overwrite } else { OnFullSlab::Keep };
        let mut is_open = end.writer.open_next(policy);
        if !is_open && on_full == OnFullLane::Block {
            let limit_ns =
                u64::try_from(self.client.setup.options.block_limit.as_nanos()).unwrap_or(u64::MAX);
            let mut pause_ns = PAUSE_MIN_NS;
            while !is_open && monotonic_ns().saturating_sub(now_ns) < limit_ns && registry.wake(end) {
                pause(pause_ns);
                pause_ns = (pause_ns * 2).min(PAUSE_MAX_NS);
                is_open = end.writer.open_next(policy);
            }
        }
        if end.writer.should_wake() {
            registry.wake(end);
        }
        is_open
    }
}

impl Drop for ThreadLane {
    fn drop(&mut self) {
        let Some(end) = self.end.take() else { return };
        if self.mark.is_some_and(ProcessMark::is_own_process) {
            self.client.process().registry.release(end);
        } else {
            let _left = ManuallyDrop::new(end);
        }
    }
}

/// A sample that was begun, with the address of its payload.
#[derive(Debug)]
pub(crate) struct BegunSample {
    slot: u8,
    bytes: usize,
    mono_ns: u64,
    pub(crate) place: *mut u8,
}

impl BegunSample {
    pub(crate) fn slot(&self) -> u8 {
        self.slot
    }
}

fn pause(ns: u64) {
    let nanoseconds = i64::try_from(ns).unwrap_or_default();
    // If a signal ends the wait early, the caller checks again.
    let _early = nanosleep(&Timespec { tv_sec: 0, tv_nsec: nanoseconds });
}
