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
        let result = match &self.segment {
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
