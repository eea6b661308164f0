//! Executes commands of other threads between two batches.

use flatcap_format::segment::{Marker, MarkerOrigin};
use flatcap_os::clock::monotonic_ns;

use super::commands::{COMMANDS_MAX, CommandError, CommandQueue, PlanUpdate, QueuedCommand, RecorderCommand};
use super::rule_watch::RuleWatch;
use super::segment_slot::SegmentSlot;
use super::thinner::Thinner;

/// Executes the waiting commands. The caller must have taken and written all slabs that were queued
/// before `taken_ns`.
pub(super) fn run(
    queue: &mut CommandQueue,
    slot: &mut SegmentSlot,
    rules: &mut RuleWatch,
    taken_ns: u64,
    thinner: Option<&mut Thinner>,
) {
    if let Some(thinner) = thinner
        && queue.flushes.first().is_some_and(|(given_ns, _)| *given_ns < taken_ns)
    {
        // The flush of the ring is followed by a flush of the recorder of the data directory, which
        // must already have these samples.
        thinner.flush(monotonic_ns(), true);
    }
    flush_if_due(queue, slot, taken_ns);
    while let Ok(QueuedCommand { command: order, sent_ns: given_ns, reply }) = queue.receiver.try_recv() {
        match order {
            RecorderCommand::Rotate => reply(rotate(slot)),
            RecorderCommand::Mark(text) => reply(mark(slot, rules, text)),
            RecorderCommand::CopyMarker(marker) => {
                slot.append_control(monotonic_ns(), |writer| writer.append_marker(&marker));
                reply(Ok(String::new()));
            }
            RecorderCommand::UpdatePlan(replan) => reply(update_plan(slot, rules, *replan)),
            RecorderCommand::Flush if queue.flushes.len() < COMMANDS_MAX => {
                queue.flushes.push((given_ns, reply));
            }
            RecorderCommand::Flush => reply(Err(CommandError::Busy)),
        }
    }
}

/// Syncs the segment and replies to the flush commands that are due. A flush is due if the slabs
/// that were queued before it are written and the syncer is idle. The syncer must be idle, because
/// one of two concurrent syncs could hide the error of the other.
fn flush_if_due(queue: &mut CommandQueue, slot: &mut SegmentSlot, taken_ns: u64) {
    let due = queue.flushes.partition_point(|(given_ns, _)| *given_ns < taken_ns);
    if due == 0 || !slot.syncer.is_idle() {
        return;
    }
    slot.sync_inline();
    let (_, refused) = slot.gaps.losses.pending();
    let result = match &slot.segment {
        Some(segment) if slot.is_segment_removed() => Err(CommandError::Failed(format!(
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
    for (_, reply) in queue.flushes.drain(..due) {
        reply(result.clone());
    }
}

fn rotate(slot: &mut SegmentSlot) -> Result<String, CommandError> {
    let Some(segment) = &slot.segment else { return Err(no_segment()) };
    let open = segment.writer.name().number;
    if !segment.writer.has_content() {
        return Ok(format!("segment {open} is empty; nothing to seal"));
    }
    let next = start_next_segment(slot)?;
    Ok(format!("segment {open} is sealed, segment {next} is open"))
}

/// Creates the next segment, then seals the open one. Returns the number of the new segment.
fn start_next_segment(slot: &mut SegmentSlot) -> Result<u64, CommandError> {
    let next = slot.create_segment().map_err(|error| {
        CommandError::Failed(format!(
            "cannot create a segment: {error}; the open one continues; free space or check the disk, then try again"
        ))
    })?;
    slot.failures = 0;
    slot.seal();
    let number = next.writer.name().number;
    slot.segment = Some(next);
    Ok(number)
}

fn mark(slot: &mut SegmentSlot, rules: &mut RuleWatch, text: String) -> Result<String, CommandError> {
    let mono_ns = monotonic_ns();
    let wall_ns = slot.plan.header.clocks.wall_offset_ns().wrapping_add_unsigned(mono_ns);
    let marker = Marker { mono_ns, wall_ns, origin: MarkerOrigin::Person, text };
    let Some(segment) = &slot.segment else { return Err(no_segment()) };
    let number = segment.writer.name().number;
    let mut failure = None;
    slot.append_control(mono_ns, |writer| {
        writer.append_marker(&marker).inspect_err(|error| failure = Some(error.to_string()))
    });
    match failure {
        None => {
            rules.observe_mark(mono_ns, &marker.text);
            Ok(format!("marked in segment {number}"))
        }
        Some(error) => {
            Err(CommandError::Failed(format!("cannot write the mark: {error}; it is not recorded")))
        }
    }
}

/// Switches to another plan. If the first segment of the new plan cannot be created, nothing
/// changes. The recorder of a ring switches to the new plan even if its first segment cannot be
/// created.
fn update_plan(
    slot: &mut SegmentSlot,
    rules: &mut RuleWatch,
    replan: PlanUpdate,
) -> Result<String, CommandError> {
    if slot.segment.is_none() && !slot.is_ring {
        return Err(no_segment());
    }
    let PlanUpdate { mut plan, limits, latencies, removed, rules: next_rules } = replan;
    // The clocks of this recorder are kept, because the new plan has no clock readings.
    let header = &slot.plan.header;
    (plan.header.clocks, plan.header.clock_table) = (header.clocks, header.clock_table.clone());
    let sources = plan.header.sources.len();
    let plan_before = std::mem::replace(&mut slot.plan, plan);
    let answer = match start_next_segment(slot) {
        Ok(number) => format!("segment {number} is open"),
        // A ring must not delay a reload. The ring starts the next segment as soon as possible.
        Err(_) if slot.is_ring => {
            slot.seal();
            "no segment is open".to_owned()
        }
        Err(error) => {
            slot.plan = plan_before;
            return Err(error);
        }
    };
    // Sets the limits only after the switch has succeeded, because segments that were removed
    // because of lower limits cannot be restored.
    slot.storage.set_limits(limits);
    slot.gaps.resize_sources(sources);
    slot.latencies.update_sources(sources, latencies, removed);
    rules.replace(next_rules, &slot.plan.header.sources);
    Ok(answer)
}

fn no_segment() -> CommandError {
    CommandError::Failed(
        "no segment is open because the storage fails; the recorder retries by itself; see the log for the reason"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use flatcap_format::segment::FrameKind;
    use flatcap_format::testing::simulated::{CrashKind, SimulatedStorage};
    use flatcap_slab::{Causes, Loss, SlabProducer};

    use super::super::SyncPolicy;
    use super::super::commands::{MARK_BYTES_MAX, RecorderHandle, command_queue, flush_until};
    use super::super::drain::Recorder;
    use super::super::retention::RetentionLimits;
    use super::*;
    use crate::RecorderRules;
    use crate::tests::rig::{FileItem, ImageReader, Script};

    /// A recorder that runs step by step, the handle that sends commands to it, and the replies to
    /// these commands.
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

        /// Sends a command, executes it, and returns the reply.
        fn answer(&mut self, order: RecorderCommand) -> Result<String, CommandError> {
            self.send(order);
            self.recorder.run_commands(0);
            self.answers.lock().unwrap().pop().expect("an answer")
        }

        fn plan_update(&self) -> PlanUpdate {
            let mut plan = self.recorder.slot.plan.clone();
            let mut third = plan.header.sources[1].clone();
            (third.id, third.name) = (2, "third".to_owned());
            plan.header.sources.push(third);
            plan.segment_bytes = 1 << 20;
            let limits = RetentionLimits { bytes: 1 << 30, ..RetentionLimits::NONE };
            PlanUpdate {
                plan,
                limits,
                latencies: Vec::new(),
                removed: Vec::new(),
                rules: RecorderRules::default(),
            }
        }
    }

    // Proves that a mark is written to the file, that a segment with a mark can be sealed, and that
    // an empty segment is not sealed. A mark of invalid length is refused.
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

    // Proves that a new plan has no effect if its first segment does not fit on a full disk. Once
    // there is space, the next header describes the plan, with the sequence numbers of the
    // remaining sources.
    #[test]
    fn a_full_disk_refuses_a_plan() {
        let mut rig = rig();
        rig.recorder.slot.gaps.progress[1].next_seq = 7;
        let before = (rig.recorder.slot.plan.segment_bytes, rig.recorder.slot.plan.header.sources.len());
        rig.storage.set_capacity(0);
        let replan = rig.plan_update();
        let refused = rig.answer(RecorderCommand::UpdatePlan(Box::new(replan))).unwrap_err();
        assert!(refused.to_string().starts_with("cannot create a segment"), "{refused}");
        assert_eq!(
            (rig.recorder.slot.plan.segment_bytes, rig.recorder.slot.plan.header.sources.len()),
            before
        );
        assert_eq!(rig.recorder.slot.storage.set_limits(RetentionLimits::NONE), RetentionLimits::NONE);
        assert!(rig.recorder.slot.segment.is_some() && rig.recorder.slot.gaps.progress.len() == 2);
        rig.storage.set_capacity(1 << 30);
        let replan = rig.plan_update();
        rig.answer(RecorderCommand::UpdatePlan(Box::new(replan))).unwrap();
        let header = rig.recorder.slot.segment.as_ref().unwrap().writer.header();
        let found: Vec<_> = header.sources.iter().map(|source| (source.id, source.next_seq)).collect();
        assert_eq!(found, [(0, 0), (1, 7), (2, 0)]);
        assert_eq!(
            (rig.recorder.slot.gaps.progress.len(), rig.recorder.slot.plan.segment_bytes),
            (3, 1 << 20)
        );
        rig.recorder.slot.segment = None;
        let replan = rig.plan_update();
        assert!(matches!(
            rig.answer(RecorderCommand::UpdatePlan(Box::new(replan))),
            Err(CommandError::Failed(_))
        ));
    }

    // Proves that a source that is added while a segment is open is described exactly once in that
    // segment. The header of the next segment has the source too, with the sequence numbers reached
    // so far.
    #[test]
    fn added_sources_are_described() {
        let mut rig = rig();
        let mut third = rig.recorder.slot.plan.header.sources[1].clone();
        (third.id, third.name) = (2, "third".to_owned());
        // A reload may already have added the same source.
        rig.handle.add_source(third.clone());
        rig.handle.add_source(third);
        rig.recorder.take_sources();
        let sources = |rig: &CommandRig| {
            let header = rig.recorder.slot.segment.as_ref().unwrap().writer.header();
            header.sources.iter().map(|source| (source.id, source.next_seq)).collect::<Vec<_>>()
        };
        assert_eq!(sources(&rig), [(0, 0), (1, 0), (2, 0)]);
        assert_eq!(rig.recorder.slot.gaps.progress.len(), 3);
        rig.recorder.slot.gaps.progress[2].next_seq = 7;
        assert_eq!(rig.answer(RecorderCommand::Rotate).unwrap(), "segment 0 is sealed, segment 1 is open");
        assert_eq!(sources(&rig), [(0, 0), (1, 0), (2, 7)]);
        let files = ImageReader::new().read_image(&rig.storage.crash_image(0, CrashKind::ProcessKilled));
        let is_descriptor =
            |item: &&FileItem| matches!(item, FileItem::Other { kind: FrameKind::Descriptor });
        let descriptors: Vec<usize> =
            files.iter().map(|(_, file)| file.items.iter().filter(is_descriptor).count()).collect();
        assert_eq!(descriptors, [1, 0]);
    }

    // Proves that a flush is answered only once everything queued before it is written and no sync
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

    // Proves that a flush through the ring's recorder is answered even if a sampler still holds its
    // end of the queue. So a sampler that hangs delays the end of a run only by the time that the
    // writes take. A recorder that does not answer or has ended delays the end of a run at most
    // until the deadline.
    #[test]
    fn a_flush_waits_for_no_sampler() {
        let (ring, disk) = (rig(), rig());
        let flush = |deadline_ns| flush_until(&disk.handle, Some(&ring.handle), deadline_ns, &mut |_now| {});
        assert!(!flush(0), "nobody runs them");
        let run = |recorder: Recorder| flatcap_os::thread::spawn("recorder", move || recorder.run()).unwrap();
        let threads = [run(ring.recorder), run(disk.recorder)];
        assert!(flush(u64::MAX));
        assert!(threads.iter().all(|thread| !thread.is_finished()));
        drop((ring.producer, disk.producer));
        for thread in threads {
            drop(thread.join().unwrap());
        }
        assert!(!flush(u64::MAX), "they have ended");
    }

    // Proves that a flush fails until a gap covers the samples that the storage refused.
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
        rig.recorder.slot.gaps.losses.add(loss(0, Causes::ReadFailed));
        assert!(flush(&mut rig).is_ok());
        rig.recorder.slot.gaps.losses.add(loss(3, Causes::Storage));
        assert_eq!(rig.recorder.slot.gaps.losses.pending(), (6, 3));
        let refused = flush(&mut rig).unwrap_err().to_string();
        assert!(refused.starts_with("3 samples could not be written and are lost"), "{refused}");
        rig.recorder.slot.gaps.losses.discard_before(1, 6);
        assert!(flush(&mut rig).is_ok());
    }

    // Proves that the number of commands is bounded and that each command is answered, even at the
    // end of the run.
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
