//! Commands to the recorder while it records, and its answers.
//!
//! Commands wait in a bounded queue that the recorder polls after each poll for slabs. The sender
//! does not wait: the answer goes to a closure, on the recorder's thread. While the storage is
//! stalled, commands wait with the recorder.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::drain::Recorder;
use super::retention::RetentionLimits;
use super::settings::RunPlan;
use crate::metrics::{Consumer, GroupLatencies};
use crate::os::clock::monotonic_ns;
use crate::os::wake_event::WakeEvent;
use crate::segment::{Marker, MarkerOrigin};

/// Maximum number of waiting commands, without those being executed; more are refused as
/// [`CommandError::Busy`].
const COMMANDS_MAX: usize = 64;
/// Longest text of a mark, in bytes; a longer one is refused as [`CommandError::Invalid`].
pub const MARK_BYTES_MAX: usize = 4096;

/// A command to the recorder.
#[derive(Debug)]
pub enum RecorderCommand {
    /// Seal the open segment and begin the next one.
    Rotate,
    /// Write this text of a person as a marker with the current time: 1 to [`MARK_BYTES_MAX`]
    /// bytes.
    Mark(String),
    /// Write and sync everything queued before the command was sent.
    Flush,
    /// Switch to another plan, in a new segment.
    UpdatePlan(Box<PlanUpdate>),
}

/// The changeable part of a run's plan.
#[derive(Debug)]
pub struct PlanUpdate {
    /// The plan of all later segments. Of its header only the sources count: all that the run has
    /// had, and new ones.
    pub plan: RunPlan,
    /// Limits of the data directory.
    pub limits: RetentionLimits,
    /// Latencies of groups whose sources change, in addition to the previous ones, which end.
    pub latencies: Vec<Consumer<GroupLatencies>>,
    /// Ids of the sources whose last samples are still in flight.
    pub removed: Vec<u16>,
}

/// Why a command was not executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The command is invalid.
    #[error("{0}")]
    Invalid(String),
    /// Too many commands wait.
    #[error("{COMMANDS_MAX} commands are waiting already, the storage may be stalled; try again later")]
    Busy,
    /// The run ends.
    #[error("the recorder is stopping; everything sampled so far is written before it exits")]
    Ending,
    /// The storage refuses.
    #[error("{0}")]
    Failed(String),
}

/// Receives the answer: one line that says what was done.
pub type Reply = Box<dyn FnOnce(Result<String, CommandError>) + Send>;

struct QueuedCommand {
    command: RecorderCommand,
    sent_ns: u64,
    reply: Reply,
}

/// The sending end.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "holds closures, which have nothing to show")]
pub struct RecorderHandle {
    queue: Sender<QueuedCommand>,
    wake: Arc<WakeEvent>,
}

/// The recorder's end.
#[allow(missing_debug_implementations, reason = "holds closures, which have nothing to show")]
pub struct CommandQueue {
    receiver: Receiver<QueuedCommand>,
    flushes: Vec<(u64, Reply)>, // by the time of sending; at most COMMANDS_MAX
}

impl std::fmt::Debug for CommandQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandQueue").field("waiting", &self.receiver.len()).finish_non_exhaustive()
    }
}

/// Creates both ends. `wake` is the event on which the recorder sleeps.
pub fn command_queue(wake: Arc<WakeEvent>) -> (RecorderHandle, CommandQueue) {
    let (to, from) = bounded(COMMANDS_MAX);
    (RecorderHandle { queue: to, wake }, CommandQueue { receiver: from, flushes: Vec::new() })
}

impl RecorderHandle {
    /// Sends a command. `reply` receives the answer: at once if refused, else on the recorder's
    /// thread.
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

impl CommandQueue {
    /// Refuses all waiting commands: the run ends.
    pub(super) fn close(self) {
        let flushes = self.flushes.into_iter().map(|(_, reply)| reply);
        flushes.chain(self.receiver.try_iter().map(|task| task.reply)).for_each(|reply| {
            reply(Err(CommandError::Ending));
        });
    }
}

impl Recorder {
    /// Executes the waiting commands. All slabs queued before `taken_ns` are taken and written.
    pub(super) fn run_commands(&mut self, taken_ns: u64) {
        self.flush_if_due(taken_ns);
        while let Ok(QueuedCommand { command: order, sent_ns: given_ns, reply }) =
            self.commands.receiver.try_recv()
        {
            match order {
                RecorderCommand::Rotate => reply(self.rotate_on_command()),
                RecorderCommand::Mark(text) => reply(self.mark(text)),
                RecorderCommand::UpdatePlan(replan) => reply(self.update_plan(*replan)),
                RecorderCommand::Flush if self.commands.flushes.len() < COMMANDS_MAX => {
                    self.commands.flushes.push((given_ns, reply));
                }
                RecorderCommand::Flush => reply(Err(CommandError::Busy)),
            }
        }
    }

    /// Syncs, once everything queued before a flush is written and the syncer is idle: of two syncs
    /// at once, one could hide the error of the other.
    fn flush_if_due(&mut self, taken_ns: u64) {
        let due = self.commands.flushes.partition_point(|(given_ns, _)| *given_ns < taken_ns);
        if due == 0 || !self.syncer.is_idle() {
            return;
        }
        self.sync_inline();
        let (_, refused) = self.losses.pending();
        let result = match &self.segment {
            Some(segment) if self.is_segment_removed() => Err(CommandError::Failed(format!(
                "segment {} was removed from the data directory while it was open; its samples are lost; the \
                 recorder begins the next segment by itself",
                segment.writer.name().number
            ))),
            Some(_) if refused > 0 => Err(CommandError::Failed(format!(
                "{refused} samples could not be written and are lost; earlier ones are on disk; see the log for the \
                 reason"
            ))),
            Some(segment) => Ok(format!("segment {} is on disk up to here", segment.writer.name().number)),
            None => Err(no_segment()),
        };
        for (_, reply) in self.commands.flushes.drain(..due) {
            reply(result.clone());
        }
    }

    fn rotate_on_command(&mut self) -> Result<String, CommandError> {
        let Some(segment) = &self.segment else { return Err(no_segment()) };
        let open = segment.writer.name().number;
        if !segment.writer.has_content() {
            return Ok(format!("segment {open} is empty; nothing to seal"));
        }
        let next = self.start_next_segment()?;
        Ok(format!("segment {open} is sealed, segment {next} is open"))
    }

    /// Creates the next segment, then seals the open one. Returns the number of the new one.
    fn start_next_segment(&mut self) -> Result<u64, CommandError> {
        let next = self.create_segment().map_err(|error| {
            CommandError::Failed(format!(
                "cannot create a segment: {error}; the open one continues; free space or check the disk, then try again"
            ))
        })?;
        self.failures = 0;
        self.seal();
        let number = next.writer.name().number;
        self.segment = Some(next);
        Ok(number)
    }

    fn mark(&mut self, text: String) -> Result<String, CommandError> {
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
                Err(CommandError::Failed(format!("cannot write the mark: {error}; it is not recorded")))
            }
        }
    }

    /// Switches to another plan. If its first segment cannot be created, nothing changes.
    fn update_plan(&mut self, replan: PlanUpdate) -> Result<String, CommandError> {
        if self.segment.is_none() {
            return Err(no_segment());
        }
        let PlanUpdate { mut plan, limits, latencies, removed } = replan;
        // The clocks are the recorder's own.
        let header = &self.plan.header;
        (plan.header.clocks, plan.header.clock_table) = (header.clocks, header.clock_table.clone());
        let sources = plan.header.sources.len();
        let limits_before = self.storage.set_limits(limits);
        let plan_before = std::mem::replace(&mut self.plan, plan);
        match self.start_next_segment() {
            Ok(number) => {
                self.resize_sources(sources);
                self.latencies.update_sources(sources, latencies, removed);
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

fn no_segment() -> CommandError {
    CommandError::Failed(
        "no segment is open because the storage fails; the recorder retries by itself; see the log for the reason"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::SyncPolicy;
    use super::super::rig::{FileItem, ImageReader, Script};
    use super::*;
    use crate::os::simulated::{CrashKind, SimulatedStorage};
    use crate::segment::FrameKind;
    use crate::slab::{Causes, Loss, SlabProducer};

    /// A recorder that runs step by step, the handle to send it commands, and its answers.
    struct CommandRig {
        recorder: Recorder,
        handle: RecorderHandle,
        answers: Arc<Mutex<Vec<Result<String, CommandError>>>>,
        storage: SimulatedStorage,
        producer: SlabProducer,
    }

    fn rig() -> CommandRig {
        let storage = SimulatedStorage::new(0);
        let (mut settings, producer) = Script::fixed(SyncPolicy::Never).settings(&storage, 8, 4);
        let (handle, commands) = command_queue(Arc::clone(&settings.wake));
        settings.commands = commands;
        let recorder = Recorder::start(settings).unwrap();
        CommandRig { recorder, handle, answers: Arc::default(), storage, producer }
    }

    impl CommandRig {
        fn send(&self, order: RecorderCommand) {
            let answers = Arc::clone(&self.answers);
            self.handle.send(order, move |answer| answers.lock().unwrap().push(answer));
        }

        /// Sends a command, executes it and returns the answer.
        fn answer(&mut self, order: RecorderCommand) -> Result<String, CommandError> {
            self.send(order);
            self.recorder.run_commands(0);
            self.answers.lock().unwrap().pop().expect("an answer")
        }

        fn plan_update(&self) -> PlanUpdate {
            let mut plan = self.recorder.plan.clone();
            let mut third = plan.header.sources[1].clone();
            (third.id, third.name) = (2, "third".to_owned());
            plan.header.sources.push(third);
            plan.segment_bytes = 1 << 20;
            let limits = RetentionLimits { bytes: 1 << 30, ..RetentionLimits::NONE };
            PlanUpdate { plan, limits, latencies: Vec::new(), removed: Vec::new() }
        }
    }

    // Proves that a mark is in the file and makes its segment sealable, that an empty segment is
    // not sealed, and that a mark of invalid length is refused.
    #[test]
    fn marks_and_rotations() {
        let mut rig = rig();
        assert!(rig.answer(RecorderCommand::Rotate).unwrap().contains("nothing to seal"));
        for (bytes, is_taken) in [(0, false), (MARK_BYTES_MAX, true), (MARK_BYTES_MAX + 1, false)] {
            rig.send(RecorderCommand::Mark("x".repeat(bytes)));
            rig.recorder.run_commands(0);
            let answer = rig.answers.lock().unwrap().pop().unwrap();
            assert_eq!(answer.is_ok(), is_taken, "{bytes}: {answer:?}");
        }
        assert_eq!(rig.answer(RecorderCommand::Rotate).unwrap(), "segment 0 is sealed, segment 1 is open");
        let files = ImageReader::new().read_image(&rig.storage.crash_image(0, CrashKind::ProcessKilled));
        let is_marker = |item: &&FileItem| matches!(item, FileItem::Other { kind: FrameKind::Marker });
        let markers: Vec<usize> =
            files.iter().map(|(_, file)| file.items.iter().filter(is_marker).count()).collect();
        assert_eq!(markers, [1, 0]);
    }

    // Proves that a plan that cannot begin on a full disk changes nothing, and that with space it
    // is in the next header, with the sequence numbers of the sources that stay.
    #[test]
    fn a_full_disk_refuses_a_plan() {
        let mut rig = rig();
        rig.recorder.progress[1].next_seq = 7;
        let before = (rig.recorder.plan.segment_bytes, rig.recorder.plan.header.sources.len());
        rig.storage.set_capacity(0);
        let replan = rig.plan_update();
        let refused = rig.answer(RecorderCommand::UpdatePlan(Box::new(replan))).unwrap_err();
        assert!(refused.to_string().starts_with("cannot create a segment"), "{refused}");
        assert_eq!((rig.recorder.plan.segment_bytes, rig.recorder.plan.header.sources.len()), before);
        assert_eq!(rig.recorder.storage.set_limits(RetentionLimits::NONE), RetentionLimits::NONE);
        assert!(rig.recorder.segment.is_some() && rig.recorder.progress.len() == 2);
        rig.storage.set_capacity(1 << 30);
        let replan = rig.plan_update();
        rig.answer(RecorderCommand::UpdatePlan(Box::new(replan))).unwrap();
        let header = rig.recorder.segment.as_ref().unwrap().writer.header();
        let found: Vec<_> = header.sources.iter().map(|source| (source.id, source.next_seq)).collect();
        assert_eq!(found, [(0, 0), (1, 7), (2, 0)]);
        assert_eq!((rig.recorder.progress.len(), rig.recorder.plan.segment_bytes), (3, 1 << 20));
        rig.recorder.segment = None;
        let replan = rig.plan_update();
        assert!(matches!(
            rig.answer(RecorderCommand::UpdatePlan(Box::new(replan))),
            Err(CommandError::Failed(_))
        ));
    }

    // Proves that a flush is answered only when everything queued before it is written and no sync
    // is in progress.
    #[test]
    fn a_flush_waits_for_its_slabs() {
        let mut rig = rig();
        rig.send(RecorderCommand::Flush);
        let given_ns = monotonic_ns();
        for taken_ns in [0, 0, given_ns - given_ns / 2] {
            rig.recorder.run_commands(taken_ns);
            assert!(rig.answers.lock().unwrap().is_empty());
        }
        rig.recorder.run_commands(given_ns + 1);
        let answer = rig.answers.lock().unwrap().pop().unwrap();
        assert_eq!(answer.unwrap(), "segment 0 is on disk up to here");
    }

    // Proves that a flush fails while samples refused by the storage are not yet in a gap.
    #[test]
    fn a_flush_says_what_is_lost() {
        let mut rig = rig();
        let flush = |rig: &mut CommandRig| {
            rig.send(RecorderCommand::Flush);
            rig.recorder.run_commands(0); // takes the command
            rig.recorder.run_commands(u64::MAX);
            rig.answers.lock().unwrap().pop().unwrap()
        };
        let loss = |first_seq, causes| Loss { source: 1, first_seq, count: 3, causes };
        rig.recorder.losses.add(loss(0, Causes::READ_FAILED));
        assert!(flush(&mut rig).is_ok());
        rig.recorder.losses.add(loss(3, Causes::STORAGE));
        assert_eq!(rig.recorder.losses.pending(), (6, 3));
        let refused = flush(&mut rig).unwrap_err().to_string();
        assert!(refused.starts_with("3 samples could not be written and are lost"), "{refused}");
        rig.recorder.losses.discard_before(1, 6);
        assert!(flush(&mut rig).is_ok());
    }

    // Proves that commands are bounded and that each is answered, even at the end of the run.
    #[test]
    fn every_command_is_answered() {
        let CommandRig { recorder, handle, answers, producer, .. } = {
            let rig = rig();
            (0..COMMANDS_MAX).for_each(|_| rig.send(RecorderCommand::Rotate));
            assert!(rig.answers.lock().unwrap().is_empty());
            rig.send(RecorderCommand::Flush);
            assert_eq!(rig.answers.lock().unwrap().pop(), Some(Err(CommandError::Busy)));
            rig
        };
        drop(producer);
        recorder.run();
        assert_eq!(answers.lock().unwrap().iter().filter(|answer| answer.is_ok()).count(), COMMANDS_MAX);
        let late = Arc::clone(&answers);
        handle.send(RecorderCommand::Flush, move |answer| late.lock().unwrap().push(answer));
        assert_eq!(answers.lock().unwrap().pop(), Some(Err(CommandError::Ending)));
    }
}
