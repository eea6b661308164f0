//! What the recorder is told to do while it records, and what it answers.
//!
//! Orders wait in a bounded queue that the recorder looks into whenever it has looked for slabs. Whoever gives one does not wait: the
//! answer goes to a closure, on the recorder's thread. While the storage is stalled the orders wait with the recorder.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::drain::Recorder;
use super::retention::RetentionLimits;
use super::settings::RunPlan;
use crate::metrics::{Consumer, GroupLatencies};
use crate::os::clock::monotonic_ns;
use crate::os::event::Event;
use crate::segment::{Marker, MarkerOrigin};

/// Orders that may wait, those that are being carried out not counted; more are refused as [`OrderError::Busy`].
const ORDERS_MAX: usize = 64;
/// Longest text of a marker that is ordered, in bytes; a longer one is refused as [`OrderError::Invalid`].
pub const MARK_BYTES_MAX: usize = 4096;

/// What the recorder may be told to do.
#[derive(Debug)]
pub enum Order {
    /// Seal the open segment and begin the next one.
    Rotate,
    /// Write this text into the recording, with the time, as said by a person: 1 to [`MARK_BYTES_MAX`] bytes.
    Mark(String),
    /// Write and sync what was handed over before the order was given.
    Flush,
    /// Go on by another plan, in a new segment.
    Replan(Box<Replan>),
}

/// What of a run's plan may change while it goes on.
#[derive(Debug)]
pub struct Replan {
    /// The plan of all segments from now on. Its header counts for its sources alone: all that the run has had, and more.
    pub plan: RunPlan,
    /// What the data directory may hold.
    pub limits: RetentionLimits,
    /// Latencies of groups that measure other sources from now on, beside those that come to their end.
    pub latencies: Vec<Consumer<GroupLatencies>>,
    /// Ids of the sources whose last readings are on their way.
    pub removed: Vec<u16>,
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// What was ordered makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// Too many wait.
    #[error("the recorder has {ORDERS_MAX} orders to carry out; its storage may be stalled; ask again")]
    Busy,
    /// The run ends.
    #[error("the agent is ending; what was sampled is written before it has ended")]
    Ending,
    /// The storage does not let it be done.
    #[error("{0}")]
    Failed(String),
}

/// Takes the answer: one line that says what was done.
pub type Reply = Box<dyn FnOnce(Result<String, OrderError>) + Send>;

struct Task {
    order: Order,
    given_ns: u64,
    reply: Reply,
}

/// The end that orders.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "closures on their way: nothing to show")]
pub struct Orders {
    to: Sender<Task>,
    wake: Arc<Event>,
}

/// The recorder's end.
#[allow(missing_debug_implementations, reason = "closures on their way: nothing to show")]
pub struct OrderBook {
    from: Receiver<Task>,
    flushes: Vec<(u64, Reply)>, // given when, in the order of that; at most ORDERS_MAX
}

impl std::fmt::Debug for OrderBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OrderBook").field("waiting", &self.from.len()).finish_non_exhaustive()
    }
}

/// Both ends. `wake` is the event on which the recorder sleeps.
pub fn orders(wake: Arc<Event>) -> (Orders, OrderBook) {
    let (to, from) = bounded(ORDERS_MAX);
    (Orders { to, wake }, OrderBook { from, flushes: Vec::new() })
}

impl Orders {
    /// Gives an order. `reply` hears what became of it, at once where it is refused, else on the recorder's thread.
    pub fn give(&self, order: Order, reply: impl FnOnce(Result<String, OrderError>) + Send + 'static) {
        if let Order::Mark(text) = &order
            && !(1..=MARK_BYTES_MAX).contains(&text.len())
        {
            let bytes = text.len();
            return reply(Err(OrderError::Invalid(format!(
                "a mark of {bytes} bytes: it needs 1 to {MARK_BYTES_MAX}; nothing was recorded"
            ))));
        }
        match self.to.try_send(Task { order, given_ns: monotonic_ns(), reply: Box::new(reply) }) {
            Ok(()) => self.wake.set(),
            Err(TrySendError::Full(task)) => (task.reply)(Err(OrderError::Busy)),
            Err(TrySendError::Disconnected(task)) => (task.reply)(Err(OrderError::Ending)),
        }
    }
}

impl OrderBook {
    /// Refuses everything that still waits: the run ends.
    pub(super) fn close(self) {
        let flushes = self.flushes.into_iter().map(|(_, reply)| reply);
        flushes.chain(self.from.try_iter().map(|task| task.reply)).for_each(|reply| {
            reply(Err(OrderError::Ending));
        });
    }
}

impl Recorder {
    /// Carries out what was ordered. Everything that was handed over before `taken_ns` was taken from the queues and written.
    pub(super) fn obey(&mut self, taken_ns: u64) {
        self.flush_if_due(taken_ns);
        while let Ok(Task { order, given_ns, reply }) = self.orders.from.try_recv() {
            match order {
                Order::Rotate => reply(self.rotate_as_told()),
                Order::Mark(text) => reply(self.mark(text)),
                Order::Replan(replan) => reply(self.replan(*replan)),
                Order::Flush if self.orders.flushes.len() < ORDERS_MAX => {
                    self.orders.flushes.push((given_ns, reply));
                }
                Order::Flush => reply(Err(OrderError::Busy)),
            }
        }
    }

    /// Syncs, once everything is written that was handed over before a flush was ordered and the syncer has nothing to do: two syncs at
    /// once could hide an error from each other.
    fn flush_if_due(&mut self, taken_ns: u64) {
        let due = self.orders.flushes.partition_point(|(given_ns, _)| *given_ns < taken_ns);
        if due == 0 || !self.syncer.is_idle() {
            return;
        }
        self.sync_inline();
        let (_, refused) = self.losses.pending();
        let result = match &self.segment {
            Some(segment) if self.is_open_removed() => Err(OrderError::Failed(format!(
                "segment {} was removed from the data directory while it was open: what is in it is gone; the next one begins by itself",
                segment.writer.name().number
            ))),
            Some(_) if refused > 0 => Err(OrderError::Failed(format!(
                "{refused} readings could not be written and are lost; what was written before is on the medium; the log says why"
            ))),
            Some(segment) => {
                Ok(format!("segment {} is on the medium up to here", segment.writer.name().number))
            }
            None => Err(no_segment()),
        };
        for (_, reply) in self.orders.flushes.drain(..due) {
            reply(result.clone());
        }
    }

    fn rotate_as_told(&mut self) -> Result<String, OrderError> {
        let Some(segment) = &self.segment else { return Err(no_segment()) };
        let open = segment.writer.name().number;
        if !segment.writer.has_content() {
            return Ok(format!("segment {open} is still empty: there is nothing to seal"));
        }
        let next = self.begin_next()?;
        Ok(format!("segment {open} is sealed, segment {next} is open"))
    }

    /// Seals the open segment and goes on in a new one, which is made first. Returns its number.
    fn begin_next(&mut self) -> Result<u64, OrderError> {
        let next = self.create_segment().map_err(|error| {
            OrderError::Failed(format!(
                "cannot create a segment: {error}; the open one goes on; make room or look at the disk, and ask again"
            ))
        })?;
        self.failures = 0;
        self.seal();
        let number = next.writer.name().number;
        self.segment = Some(next);
        Ok(number)
    }

    fn mark(&mut self, text: String) -> Result<String, OrderError> {
        let mono_ns = monotonic_ns();
        let wall_ns = self.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(mono_ns);
        let marker = Marker { mono_ns, wall_ns, origin: MarkerOrigin::Person, text };
        let Some(segment) = &self.segment else { return Err(no_segment()) };
        let number = segment.writer.name().number;
        let mut failure = None;
        self.append_control(mono_ns, |writer| {
            writer.append_marker(&marker).inspect_err(|error| failure = Some(error.to_string()))
        });
        match failure {
            None => Ok(format!("marked in segment {number}")),
            Some(error) => {
                Err(OrderError::Failed(format!("cannot write the mark: {error}; it is not recorded")))
            }
        }
    }

    /// Goes on by another plan. Where the segment that begins with it cannot be made, everything stays as it is.
    fn replan(&mut self, replan: Replan) -> Result<String, OrderError> {
        if self.segment.is_none() {
            return Err(no_segment());
        }
        let Replan { mut plan, limits, latencies, removed } = replan;
        // The clocks are the recorder's own.
        let header = &self.plan.header;
        (plan.header.clocks, plan.header.clock_table) = (header.clocks, header.clock_table.clone());
        let sources = plan.header.sources.len();
        let limits_before = self.storage.set_limits(limits);
        let plan_before = std::mem::replace(&mut self.plan, plan);
        match self.begin_next() {
            Ok(number) => {
                self.take_sources(sources);
                self.latencies.change(sources, latencies, removed);
                Ok(format!("segment {number} is open"))
            }
            Err(error) => {
                self.storage.set_limits(limits_before);
                self.plan = plan_before;
                Err(error)
            }
        }
    }
}

fn no_segment() -> OrderError {
    OrderError::Failed(
        "no segment is open: the storage fails, and is tried again by itself; the log says why; ask again later"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::SyncPolicy;
    use super::super::rig::{Item, Looker, Script};
    use super::*;
    use crate::os::simulated::{CrashKind, SimulatedStorage};
    use crate::segment::FrameKind;
    use crate::slab::{Causes, HandOver, Loss};

    /// A recorder that records when it is told to, what tells it, and what it has answered.
    struct Rig {
        recorder: Recorder,
        orders: Orders,
        answers: Arc<Mutex<Vec<Result<String, OrderError>>>>,
        storage: SimulatedStorage,
        hand_over: HandOver,
    }

    fn rig() -> Rig {
        let storage = SimulatedStorage::new(0);
        let (mut settings, hand_over) = Script::fixed(SyncPolicy::Never).settings(&storage, 8, 4);
        let (orders, book) = orders(Arc::clone(&settings.wake));
        settings.orders = book;
        let recorder = Recorder::start(settings).unwrap();
        Rig { recorder, orders, answers: Arc::default(), storage, hand_over }
    }

    impl Rig {
        fn give(&self, order: Order) {
            let answers = Arc::clone(&self.answers);
            self.orders.give(order, move |answer| answers.lock().unwrap().push(answer));
        }

        /// What it answers to an order that it carries out now.
        fn answer(&mut self, order: Order) -> Result<String, OrderError> {
            self.give(order);
            self.recorder.obey(0);
            self.answers.lock().unwrap().pop().expect("an answer")
        }

        fn replan(&self) -> Replan {
            let mut plan = self.recorder.plan.clone();
            let mut third = plan.header.sources[1].clone();
            (third.id, third.name) = (2, "third".to_owned());
            plan.header.sources.push(third);
            plan.segment_bytes = 1 << 20;
            let limits = RetentionLimits { bytes: 1 << 30, ..RetentionLimits::NONE };
            Replan { plan, limits, latencies: Vec::new(), removed: Vec::new() }
        }
    }

    // Goal: a mark is in the file, by a person, and makes a segment that may be sealed; one without anything is not sealed; what no
    // file can hold is refused. Method: rotations before and behind a mark; marks of no byte, of as many as there may be, and of one more.
    #[test]
    fn marks_and_rotations() {
        let mut rig = rig();
        assert!(rig.answer(Order::Rotate).unwrap().contains("nothing to seal"));
        for (bytes, is_taken) in [(0, false), (MARK_BYTES_MAX, true), (MARK_BYTES_MAX + 1, false)] {
            rig.give(Order::Mark("x".repeat(bytes)));
            rig.recorder.obey(0);
            let answer = rig.answers.lock().unwrap().pop().unwrap();
            assert_eq!(answer.is_ok(), is_taken, "{bytes}: {answer:?}");
        }
        assert_eq!(rig.answer(Order::Rotate).unwrap(), "segment 0 is sealed, segment 1 is open");
        let files = Looker::new().look(&rig.storage.crash_image(0, CrashKind::ProcessKilled));
        let is_marker = |item: &&Item| matches!(item, Item::Other { kind: FrameKind::Marker });
        let markers: Vec<usize> =
            files.iter().map(|(_, file)| file.items.iter().filter(is_marker).count()).collect();
        assert_eq!(markers, [1, 0]);
    }

    // Goal: another plan that cannot begin changes nothing: neither plan nor limits nor books; with room it is in the next header, with
    // the numbers of those that stay. Method: a medium that is full, and is not any more.
    #[test]
    fn a_full_medium_refuses_a_plan() {
        let mut rig = rig();
        rig.recorder.progress[1].next_seq = 7;
        let before = (rig.recorder.plan.segment_bytes, rig.recorder.plan.header.sources.len());
        rig.storage.set_capacity(0);
        let replan = rig.replan();
        let refused = rig.answer(Order::Replan(Box::new(replan))).unwrap_err();
        assert!(refused.to_string().starts_with("cannot create a segment"), "{refused}");
        assert_eq!((rig.recorder.plan.segment_bytes, rig.recorder.plan.header.sources.len()), before);
        assert_eq!(rig.recorder.storage.set_limits(RetentionLimits::NONE), RetentionLimits::NONE);
        assert!(rig.recorder.segment.is_some() && rig.recorder.progress.len() == 2);
        rig.storage.set_capacity(1 << 30);
        let replan = rig.replan();
        rig.answer(Order::Replan(Box::new(replan))).unwrap();
        let header = rig.recorder.segment.as_ref().unwrap().writer.header();
        let found: Vec<_> = header.sources.iter().map(|source| (source.id, source.next_seq)).collect();
        assert_eq!(found, [(0, 0), (1, 7), (2, 0)]);
        assert_eq!((rig.recorder.progress.len(), rig.recorder.plan.segment_bytes), (3, 1 << 20));
        rig.recorder.segment = None;
        let replan = rig.replan();
        assert!(matches!(rig.answer(Order::Replan(Box::new(replan))), Err(OrderError::Failed(_))));
    }

    // Goal: a flush is answered when what was handed over before it is written and nothing is being synced, not before. Method: the
    // time up to which slabs were taken, by hand.
    #[test]
    fn a_flush_waits_for_its_slabs() {
        let mut rig = rig();
        rig.give(Order::Flush);
        let given_ns = monotonic_ns();
        for taken_ns in [0, 0, given_ns - given_ns / 2] {
            rig.recorder.obey(taken_ns);
            assert!(rig.answers.lock().unwrap().is_empty());
        }
        rig.recorder.obey(given_ns + 1);
        let answer = rig.answers.lock().unwrap().pop().unwrap();
        assert_eq!(answer.unwrap(), "segment 0 is on the medium up to here");
    }

    // Goal: a flush does not claim to have written what the storage has refused. Method: readings that were refused and are in no gap
    // yet; others that are lost for another reason; then the gap.
    #[test]
    fn a_flush_says_what_is_lost() {
        let mut rig = rig();
        let flush = |rig: &mut Rig| {
            rig.give(Order::Flush);
            rig.recorder.obey(0); // taken
            rig.recorder.obey(u64::MAX);
            rig.answers.lock().unwrap().pop().unwrap()
        };
        let loss = |first_seq, causes| Loss { source: 1, first_seq, count: 3, causes };
        rig.recorder.losses.add(loss(0, Causes::READ_FAILED));
        assert!(flush(&mut rig).is_ok());
        rig.recorder.losses.add(loss(3, Causes::STORAGE));
        assert_eq!(rig.recorder.losses.pending(), (6, 3));
        let refused = flush(&mut rig).unwrap_err().to_string();
        assert!(refused.starts_with("3 readings could not be written and are lost"), "{refused}");
        rig.recorder.losses.settle(1, 6);
        assert!(flush(&mut rig).is_ok());
    }

    // Goal: orders are bounded, and each is answered, also those of a run that ends. Method: more than may wait while nobody carries
    // them out; then the end; then one more.
    #[test]
    fn every_order_is_answered() {
        let Rig { recorder, orders, answers, hand_over, .. } = {
            let rig = rig();
            (0..ORDERS_MAX).for_each(|_| rig.give(Order::Rotate));
            assert!(rig.answers.lock().unwrap().is_empty());
            rig.give(Order::Flush);
            assert_eq!(rig.answers.lock().unwrap().pop(), Some(Err(OrderError::Busy)));
            rig
        };
        drop(hand_over);
        recorder.run();
        assert_eq!(answers.lock().unwrap().iter().filter(|answer| answer.is_ok()).count(), ORDERS_MAX);
        let late = Arc::clone(&answers);
        orders.give(Order::Flush, move |answer| late.lock().unwrap().push(answer));
        assert_eq!(answers.lock().unwrap().pop(), Some(Err(OrderError::Ending)));
    }
}
