//! Commands to a recorder that is running, with their queue and their replies.
//!
//! Commands wait in a bounded queue that the recorder polls after each poll for slabs. The sender
//! does not wait for the result. The recorder's thread calls a closure with the reply. Stalled
//! storage delays the commands, because it delays the recorder.
//!
//! New sources have a separate queue. The recorder reads that queue after it takes slabs and before
//! it writes them. If a source is sent before its first slab is queued, the recorder therefore
//! knows the source before it writes that slab.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use flatcap_format::segment::{Marker, SourceInfo};
use flatcap_metrics::{Consumer, GroupLatencies};
use flatcap_os::clock::monotonic_ns;
use flatcap_os::wake_event::WakeEvent;

use super::recorder_rules::RecorderRules;
use super::retention::RetentionLimits;
use super::run_plan::RunPlan;

/// Maximum number of waiting commands, not counting commands that are being executed. Further
/// commands are refused with [`CommandError::Busy`].
pub(super) const COMMANDS_MAX: usize = 64;
/// Maximum number of new sources that wait for the recorder.
const NEW_SOURCES_MAX: usize = 64;
/// Maximum length of the text of a mark, in bytes. A longer text is refused with
/// [`CommandError::Invalid`].
pub const MARK_BYTES_MAX: usize = 4096;

/// A command to the recorder.
#[derive(Debug)]
pub enum RecorderCommand {
    /// Seal the open segment and begin the next one.
    Rotate,
    /// Write a marker with the current time and a text that a person has entered. The text has 1 to
    /// [`MARK_BYTES_MAX`] bytes.
    Mark(String),
    /// Write a marker that the ring's recorder has created.
    CopyMarker(Box<Marker>),
    /// Write and sync everything queued before the command was sent.
    Flush,
    /// Switch to another plan, in a new segment.
    UpdatePlan(Box<PlanUpdate>),
}

/// The changeable part of a run's plan.
#[derive(Debug)]
pub struct PlanUpdate {
    /// The plan of all later segments. Only the sources of its header are used. The header contains
    /// all previous sources of the run, and the new sources.
    pub plan: RunPlan,
    /// The new limits of the data directory.
    pub limits: RetentionLimits,
    /// Receivers of latencies for the groups whose sources change. These receivers are added to the
    /// previous receivers, which will end.
    pub latencies: Vec<Consumer<GroupLatencies>>,
    /// Ids of the removed sources, whose last samples may still be in the queues.
    pub removed: Vec<u16>,
    /// The rules of the new configuration.
    pub rules: RecorderRules,
}

/// The reason why a command was not executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The command is invalid.
    #[error("{0}")]
    Invalid(String),
    /// Too many commands are queued.
    #[error("{COMMANDS_MAX} commands are waiting already, the storage may be stalled; try again later")]
    Busy,
    /// The run is ending.
    #[error("the recorder is stopping; everything sampled so far is written before it exits")]
    Ending,
    /// The storage failed or refused the operation.
    #[error("{0}")]
    Failed(String),
}

/// The callback that receives the reply. The reply is one line that describes the result.
pub type Reply = Box<dyn FnOnce(Result<String, CommandError>) + Send>;

/// A command in the queue.
pub(super) struct QueuedCommand {
    pub(super) command: RecorderCommand,
    pub(super) sent_ns: u64,
    pub(super) reply: Reply,
}

/// The end of the queue that sends commands.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "holds closures, which have nothing to show")]
pub struct RecorderHandle {
    queue: Sender<QueuedCommand>,
    sources: Sender<SourceInfo>,
    wake: Arc<WakeEvent>,
}

/// The end of the queue that the recorder reads.
#[allow(missing_debug_implementations, reason = "holds closures, which have nothing to show")]
pub struct CommandQueue {
    pub(super) receiver: Receiver<QueuedCommand>,
    pub(super) sources: Receiver<SourceInfo>, // in the order of their ids
    pub(super) flushes: Vec<(u64, Reply)>,    // by the time of sending; at most COMMANDS_MAX
}

impl std::fmt::Debug for CommandQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandQueue").field("waiting", &self.receiver.len()).finish_non_exhaustive()
    }
}

/// Creates both ends. `wake` is the event on which the recorder sleeps.
pub fn command_queue(wake: Arc<WakeEvent>) -> (RecorderHandle, CommandQueue) {
    let (to, from) = bounded(COMMANDS_MAX);
    let (sources, new_sources) = bounded(NEW_SOURCES_MAX);
    let queue = CommandQueue { receiver: from, sources: new_sources, flushes: Vec::new() };
    (RecorderHandle { queue: to, sources, wake }, queue)
}

impl RecorderHandle {
    /// Returns whether [`add_source`](Self::add_source) has space in its queue. If there is no
    /// space, the storage may be stalled.
    pub fn takes_source(&self) -> bool {
        !self.sources.is_full()
    }

    /// Adds a source to the run, with the next id. If the source is sent before the slab with its
    /// first sample is queued, the open segment describes the source before that sample. Must be
    /// called by one thread at a time, and only if [`takes_source`](Self::takes_source) returns
    /// true.
    pub fn add_source(&self, source: SourceInfo) {
        // If the recorder has ended, the source is lost. All samples of the source are lost too.
        let _has_ended = self.sources.try_send(source);
        self.wake.set();
    }

    /// Sends a command. `reply` receives the answer. If the command is refused, the calling thread
    /// calls `reply` immediately. Otherwise, the recorder's thread calls it.
    pub fn send(
        &self,
        command: RecorderCommand,
        reply: impl FnOnce(Result<String, CommandError>) + Send + 'static,
    ) {
        if let RecorderCommand::Mark(text) = &command
            && !(1..=MARK_BYTES_MAX).contains(&text.len())
        {
            let bytes = text.len();
            return reply(Err(CommandError::Invalid(format!(
                "the text of a mark has {bytes} bytes; it must have 1 to {MARK_BYTES_MAX}; nothing was recorded"
            ))));
        }
        match self.queue.try_send(QueuedCommand { command, sent_ns: monotonic_ns(), reply: Box::new(reply) })
        {
            Ok(()) => self.wake.set(),
            Err(TrySendError::Full(task)) => (task.reply)(Err(CommandError::Busy)),
            Err(TrySendError::Disconnected(task)) => (task.reply)(Err(CommandError::Ending)),
        }
    }
}

/// Writes and syncs the queued slabs. If there is a ring, its recorder executes the flush first,
/// and passes samples on to the recorder of the data directory. The callback `reply` receives the
/// reply of the data directory's recorder.
pub fn flush(
    recorder: &RecorderHandle,
    ring: Option<&RecorderHandle>,
    reply: impl FnOnce(Result<String, CommandError>) + Send + 'static,
) {
    let Some(ring) = ring else { return recorder.send(RecorderCommand::Flush, reply) };
    let next = recorder.clone();
    ring.send(RecorderCommand::Flush, move |_| next.send(RecorderCommand::Flush, reply));
}

/// Does the same as [`flush`], but waits for the reply until the monotonic time `deadline_ns`.
/// Calls `meanwhile` with the current time, repeatedly, until the wait ends. Returns whether all
/// queued slabs are on disk.
pub fn flush_until(
    recorder: &RecorderHandle,
    ring: Option<&RecorderHandle>,
    deadline_ns: u64,
    meanwhile: &mut dyn FnMut(u64),
) -> bool {
    const LOOK_EVERY_NS: u64 = 1_000_000;
    let (answers, answer) = bounded(1);
    flush(recorder, ring, move |result| {
        // If the deadline has passed, the receiver of the answer no longer exists.
        let _unheard = answers.send(result.is_ok());
    });
    let never = WakeEvent::new();
    loop {
        match answer.try_recv() {
            Ok(is_flushed) => return is_flushed,
            Err(TryRecvError::Disconnected) => return false,
            Err(TryRecvError::Empty) => {}
        }
        let now = monotonic_ns();
        if now >= deadline_ns {
            return false;
        }
        meanwhile(now);
        never.wait_until(now + LOOK_EVERY_NS);
    }
}

impl CommandQueue {
    /// Refuses all queued commands, because the run is ending.
    pub(super) fn close(self) {
        let flushes = self.flushes.into_iter().map(|(_, reply)| reply);
        flushes.chain(self.receiver.try_iter().map(|task| task.reply)).for_each(|reply| {
            reply(Err(CommandError::Ending));
        });
    }
}
