//! The events of one sample from all CPUs, written with the indexes of their threads. The code is
//! pure, since records are passed in.

use flatbuffers::FlatBufferBuilder;
use flatcap_os::perf_record::{PerfRecord, RecordedEvent, ThreadId};
use flatcap_tasks::schema::{RunningThread, Sched, SchedArgs, Switch, TaskEvent, TaskEventKind, Wakeup};

use super::thread_table::ThreadTable;
use super::wakeup_tracepoint::WakeupTracepoint;
use crate::Incomplete;

/// Number of events of each kind for which memory is reserved. This is enough for 10 ms at 400,000
/// switches a second.
const RESERVED_EVENTS: usize = 4096;
/// The id of a thread that has ended and that the kernel no longer knows.
const UNKNOWN_THREAD: u32 = u32::MAX;

/// Begin and end of a sample, on `CLOCK_MONOTONIC`. Events at `begin_ns` belong to the sample, and
/// events at `end_ns` belong to the next sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventSpan {
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64, // > begin_ns
}

/// The content of a sample in addition to its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SampleState {
    pub(super) span: EventSpan,
    pub(super) has_wakeups: bool,
    pub(super) stopped_ns: u64,
    pub(super) is_stopped: bool,
}

/// The events of a sample, and the known state of CPUs and threads.
#[derive(Debug)]
pub(super) struct EventBatch {
    threads: ThreadTable,
    tracepoint: Option<WakeupTracepoint>,
    cpus: Vec<Option<ThreadId>>, // by number; the thread that runs there, if known
    lost: u64,                   // lost records since the source was opened
    lost_before: u64,            // lost records until the sample began
    unrecorded: u64,             // switches in the sample without a record
    // The following vectors belong to the current sample.
    running: Vec<RunningThread>,
    switches: Vec<Switch>,
    wakeups: Vec<Wakeup>,
    task_events: Vec<TaskEvent>,
}

impl EventBatch {
    /// Creates a batch that uses the thread table `threads`.
    pub(super) fn new(threads: ThreadTable, tracepoint: Option<WakeupTracepoint>) -> Self {
        Self {
            threads,
            tracepoint,
            cpus: Vec::new(),
            lost: 0,
            lost_before: 0,
            unrecorded: 0,
            running: Vec::new(),
            switches: Vec::with_capacity(RESERVED_EVENTS),
            wakeups: Vec::with_capacity(RESERVED_EVENTS),
            task_events: Vec::with_capacity(RESERVED_EVENTS),
        }
    }

    /// Begins a sample with the threads that run on each CPU.
    pub(super) fn begin(&mut self) {
        self.threads.begin_sample();
        (self.lost_before, self.unrecorded) = (self.lost, 0);
        self.running.clear();
        self.switches.clear();
        self.wakeups.clear();
        self.task_events.clear();
        for (cpu, thread) in (0..=u16::MAX).zip(&self.cpus) {
            if let Some(thread) = thread.and_then(|thread| self.threads.mention(thread)) {
                self.running.push(RunningThread::new(cpu, thread));
            }
        }
    }

    /// Adds the next record. Records must come in the order of time.
    pub(super) fn add(&mut self, cpu: u16, record: &PerfRecord<'_>) {
        let is_named = self.add_named(cpu, record).is_some();
        self.lost += u64::from(!is_named);
    }

    /// Adds `records` to the number of lost records.
    pub(super) fn count_lost(&mut self, records: u64) {
        self.lost += records;
    }

    /// Adds a record. Returns `None` if the sample cannot refer to the threads of the record.
    fn add_named(&mut self, cpu: u16, record: &PerfRecord<'_>) -> Option<()> {
        let PerfRecord { time, current, event } = *record;
        let running = self.cpus.get(usize::from(cpu)).copied().flatten();
        match event {
            RecordedEvent::SwitchOut { next, is_preempted } => {
                self.push_switch(cpu, time, (current, next), is_preempted)?;
            }
            // This is the second record of a switch, and the first one is enough. Some switches
            // have no first record, for example if the kernel of a sandbox hides the thread.
            RecordedEvent::SwitchIn { .. } if running.is_some_and(|id| id.thread == current.thread) => {}
            RecordedEvent::SwitchIn { previous } => {
                self.push_switch(cpu, time, (previous, current), false)?;
            }
            RecordedEvent::Tracepoint(data) => {
                let thread = self.tracepoint?.thread(data)?;
                let process = self.threads.process_of(thread);
                let thread = self.threads.mention(ThreadId { process, thread })?;
                let is_known = current.thread != UNKNOWN_THREAD;
                let waker = self.threads.mention(if is_known { current } else { running? })?;
                self.wakeups.push(Wakeup::new(time, thread, waker, cpu));
            }
            RecordedEvent::Fork { child, parent } => {
                self.threads.fork(child, parent);
                self.push_task(time, child, TaskEventKind::Fork, parent.process)?;
            }
            RecordedEvent::Exit { thread, parent } => {
                self.threads.end(thread, time);
                self.push_task(time, thread, TaskEventKind::Exit, parent)?;
            }
            RecordedEvent::Name { thread, name, is_exec } => {
                self.threads.set_name(thread, name);
                // A thread that runs another program gets the id of its process.
                if is_exec && let Some(Some(running)) = self.cpus.get_mut(usize::from(cpu)) {
                    *running = thread;
                }
                let kind = if is_exec { TaskEventKind::Exec } else { TaskEventKind::Rename };
                self.push_task(time, thread, kind, 0)?;
            }
            RecordedEvent::Lost(count) => {
                self.lost += count;
                if let Some(running) = self.cpus.get_mut(usize::from(cpu)) {
                    *running = None;
                }
            }
            RecordedEvent::Mapping(_) | RecordedEvent::CallChain(_) | RecordedEvent::Other => {}
        }
        Some(())
    }

    fn push_switch(
        &mut self,
        cpu: u16,
        time: u64,
        (previous, next): (ThreadId, ThreadId),
        is_preempted: bool,
    ) -> Option<()> {
        let place = usize::from(cpu);
        if place >= self.cpus.len() {
            self.cpus.resize(place + 1, None);
        }
        let running = self.cpus.get_mut(place)?.replace(next);
        // The kernel no longer knows a thread that has ended when it switches for the last time.
        let is_known = previous.thread != UNKNOWN_THREAD;
        // The kernel of a sandbox records no switch between two threads that it hides.
        let is_other = |running: ThreadId| {
            running.thread != previous.thread && !self.threads.has_taken_over(running, previous)
        };
        if is_known && running.filter(|id| id.thread != UNKNOWN_THREAD).is_some_and(is_other) {
            self.lost += 1;
            self.unrecorded += 1;
        }
        let previous = self.threads.mention(if is_known { previous } else { running? })?;
        let next = self.threads.mention(next)?;
        self.switches.push(Switch::new(time, previous, next, cpu, is_preempted));
        Some(())
    }

    fn push_task(&mut self, time: u64, thread: ThreadId, kind: TaskEventKind, parent: u32) -> Option<()> {
        let thread = self.threads.mention(thread)?;
        self.task_events.push(TaskEvent::new(time, thread, kind, parent));
        Some(())
    }

    /// Forgets which threads run on the CPUs for which `is_kept` returns false.
    pub(super) fn keep_cpus(&mut self, is_kept: impl Fn(u32) -> bool) {
        for (cpu, running) in (0..).zip(&mut self.cpus) {
            if !is_kept(cpu) {
                *running = None;
            }
        }
    }

    /// Forgets which threads run on the CPUs, because switches were not recorded for a while.
    pub(super) fn forget_running(&mut self) {
        self.cpus.fill(None);
    }

    /// Builds the payload of the sample. Returns the counts of the kernel's records in the sample.
    pub(super) fn build(
        &mut self,
        state: SampleState,
        builder: &mut FlatBufferBuilder<'static>,
    ) -> BuiltEvents {
        let Self { threads, running, switches, wakeups, task_events, lost, .. } = self;
        let threads = Some(builder.create_vector(threads.end_sample(state.span.end_ns)));
        let args = SchedArgs {
            begin: state.span.begin_ns,
            end: state.span.end_ns,
            threads,
            running: Some(builder.create_vector(running.as_slice())),
            switches: Some(builder.create_vector(switches.as_slice())),
            wakeups: Some(builder.create_vector(wakeups.as_slice())),
            events: Some(builder.create_vector(task_events.as_slice())),
            has_wakeups: state.has_wakeups,
            lost: *lost,
            stopped: state.stopped_ns,
            is_stopped: state.is_stopped,
        };
        let root = Sched::create(builder, &args);
        builder.finish_minimal(root);
        BuiltEvents {
            switches: switches.len() as u64,
            wakeups: wakeups.len() as u64,
            dropped: self.lost - self.lost_before - self.unrecorded,
            incomplete: self.threads.incomplete(),
        }
    }
}

/// The counts of a payload that was built from the kernel's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BuiltEvents {
    pub(super) switches: u64,
    pub(super) wakeups: u64,
    pub(super) dropped: u64,           // records that were lost or that name no thread
    pub(super) incomplete: Incomplete, // set if there were too many threads
}

#[cfg(test)]
#[allow(clippy::host_endian_bytes, reason = "numbers as the kernel of this host writes them")]
mod tests {
    use flatcap_os::host::HostRoot;
    use flatcap_os::perf_batch::PerfBatch;
    use flatcap_os::perf_record::SampleContent;
    use proptest::prelude::*;

    use super::*;
    use crate::sources::tests::{fixed_text, host_with};

    fn id(thread: u32) -> ThreadId {
        ThreadId { process: if thread == UNKNOWN_THREAD { thread } else { thread / 10 * 10 }, thread }
    }

    fn record(time: u64, current: u32, event: RecordedEvent<'_>) -> Vec<u8> {
        PerfRecord { time, current: id(current), event }.encode()
    }

    fn switch(time: u64, previous: u32, next: u32) -> Vec<u8> {
        record(time, previous, RecordedEvent::SwitchOut { next: id(next), is_preempted: next == 0 })
    }

    fn waking(time: u64, waker: u32, thread: u32) -> Vec<u8> {
        let data = [&[0; 24][..], &thread.to_ne_bytes()].concat();
        record(time, waker, RecordedEvent::Tracepoint(&data))
    }

    fn named(time: u64, thread: u32, text: &[u8], is_exec: bool) -> Vec<u8> {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text);
        record(time, thread, RecordedEvent::Name { thread: id(thread), name, is_exec })
    }

    fn batch() -> EventBatch {
        let host = host_with(&[("sys/kernel/tracing/events/sched/sched_waking/id", "375\n")]);
        EventBatch::new(ThreadTable::new(), WakeupTracepoint::find(&HostRoot::new(host.path())))
    }

    fn span(begin_ns: u64, end_ns: u64) -> EventSpan {
        EventSpan { begin_ns, end_ns }
    }

    /// Builds a sample of the CPUs `cpus` and formats its events as strings. Asserts that all
    /// indexes are valid, and that all times increase and are within the sample. Also returns the
    /// number of bytes that were taken from each CPU.
    fn sample(batch: &mut EventBatch, span: EventSpan, cpus: &[Vec<u8>]) -> (Vec<String>, Vec<usize>) {
        let mut records = PerfBatch::of_bytes(SampleContent::Tracepoint, cpus);
        records.begin(span.begin_ns, span.end_ns);
        batch.begin();
        records.take(|ring, record| batch.add(u16::try_from(ring).unwrap(), record));
        let (taken, malformed) = records.used();
        batch.count_lost(malformed);
        let state = SampleState { span, has_wakeups: true, stopped_ns: 0, is_stopped: false };
        let mut builder = FlatBufferBuilder::new();
        batch.build(state, &mut builder);
        let sched = flatbuffers::root::<Sched<'_>>(builder.finished_data()).unwrap();
        let threads = sched.threads();
        let thread = |index: u16| threads.get(usize::from(index)).thread();
        let mut lines = Vec::new();
        for running in sched.running() {
            lines.push(format!("cpu {} runs {}", running.cpu(), thread(running.thread())));
        }
        let mut times = Vec::new();
        for switch in sched.switches() {
            times.push(switch.time());
            let how = if switch.preempted() { "preempted" } else { "waits" };
            let (cpu, previous, next) = (switch.cpu(), thread(switch.previous()), thread(switch.next()));
            lines.push(format!("{} cpu {cpu} {previous} {how} {next}", switch.time()));
        }
        assert!(times.is_sorted());
        times.clear();
        for wakeup in sched.wakeups() {
            times.push(wakeup.time());
            let (cpu, waker, woken) = (wakeup.cpu(), thread(wakeup.waker()), thread(wakeup.thread()));
            lines.push(format!("{} cpu {cpu} {waker} wakes {woken}", wakeup.time()));
        }
        assert!(times.is_sorted());
        times.clear();
        for event in sched.events() {
            times.push(event.time());
            let kind = event.kind().variant_name().unwrap();
            lines.push(format!("{} {kind} {} {}", event.time(), thread(event.thread()), event.parent()));
        }
        assert!(times.is_sorted());
        assert!(times.iter().all(|time| (span.begin_ns..span.end_ns).contains(time)));
        for thread in threads {
            let name = fixed_text(thread.name());
            if !name.is_empty() && thread.thread() != 0 {
                lines.push(format!("{} of {} is {name}", thread.thread(), thread.process()));
            }
        }
        if sched.lost() > 0 {
            lines.push(format!("lost {}", sched.lost()));
        }
        (lines, taken)
    }

    // Proves that events of several CPUs are in the order of time, and that events after the end
    // are left for the next sample. Each sample begins with the running threads.
    #[test]
    fn samples_follow_each_other() {
        let mut batch = batch();
        let cpus = [
            [switch(10, 0, 11), waking(20, 11, 12), switch(30, 11, 0), switch(50, 0, 13)].concat(),
            [switch(25, 0, 12), switch(40, 12, 0)].concat(),
        ];
        let (lines, taken) = sample(&mut batch, span(5, 40), &cpus);
        let expected =
            ["10 cpu 0 0 waits 11", "25 cpu 1 0 waits 12", "30 cpu 0 11 preempted 0", "20 cpu 0 11 wakes 12"];
        assert_eq!(lines, expected);
        let rest: Vec<Vec<u8>> =
            cpus.iter().zip(taken).map(|(bytes, taken)| bytes[taken..].to_vec()).collect();
        let (lines, taken) = sample(&mut batch, span(40, 60), &rest);
        let expected = ["cpu 0 runs 0", "cpu 1 runs 12", "40 cpu 1 12 preempted 0", "50 cpu 0 0 waits 13"];
        assert_eq!(lines, expected);
        assert_eq!(taken, [rest[0].len(), rest[1].len()]);
        let (lines, _) = sample(&mut batch, span(60, 61), &[]);
        assert_eq!(lines, ["cpu 0 runs 13", "cpu 1 runs 0"]);
        batch.forget_running();
        assert_eq!(sample(&mut batch, span(61, 70), &[]).0, [""; 0]);
    }

    // Proves that a thread inherits its name and can change it, and that its last switch is
    // assigned to it although the kernel no longer knows the thread. A late record gets the time of
    // the begin of the sample.
    #[test]
    fn threads_begin_and_end() {
        let mut batch = batch();
        let fork = RecordedEvent::Fork { child: id(21), parent: id(10) };
        let exit = RecordedEvent::Exit { thread: id(21), parent: 10 };
        let bytes = [
            named(1, 10, b"shell", false),
            record(2, 10, fork),
            switch(3, 10, 21),
            named(4, 21, b"make", true),
            record(5, 21, exit),
            switch(6, UNKNOWN_THREAD, 10),
        ]
        .concat();
        let (lines, _) = sample(&mut batch, span(2, 10), &[bytes]);
        let expected = [
            "3 cpu 0 10 waits 21",
            "6 cpu 0 21 waits 10",
            "2 Rename 10 0",
            "2 Fork 21 10",
            "4 Exec 21 0",
            "5 Exit 21 10",
            "10 of 10 is shell",
            "21 of 20 is make",
        ];
        assert_eq!(lines, expected);
        let (lines, _) = sample(&mut batch, span(10, 20), &[record(12, 10, fork)]);
        assert_eq!(lines[1..], ["12 Fork 21 10", "10 of 10 is shell", "21 of 20 is shell"]);
    }

    // Proves that the second record of a switch adds nothing, and that it replaces the first record
    // if the first record is missing.
    #[test]
    fn a_switch_has_two_records() {
        let switched_in =
            |time, thread, previous| record(time, thread, RecordedEvent::SwitchIn { previous: id(previous) });
        let bytes = [
            switched_in(1, 11, 0),
            switch(2, 11, 12),
            switched_in(3, 12, 11),
            switch(4, 12, 13),
            switched_in(5, 14, 13),
            switch(6, 14, 0),
        ];
        let (lines, _) = sample(&mut batch(), span(0, 10), &[bytes.concat()]);
        let expected = [
            "1 cpu 0 0 waits 11",
            "2 cpu 0 11 waits 12",
            "4 cpu 0 12 waits 13",
            "5 cpu 0 13 waits 14",
            "6 cpu 0 14 preempted 0",
        ];
        assert_eq!(lines, expected);
    }

    // Proves that a switch without a record is counted as lost, but that a new id after an exec is
    // not.
    #[test]
    fn missing_switches_are_counted() {
        let mut batch = batch();
        let bytes = [switch(1, 0, 11), switch(2, 13, 0), switch(3, 0, 25), named(4, 20, b"make", true)];
        let (lines, _) = sample(&mut batch, span(0, 10), &[bytes.concat()]);
        assert_eq!(lines[..3], ["1 cpu 0 0 waits 11", "2 cpu 0 13 preempted 0", "3 cpu 0 0 waits 25"]);
        assert_eq!(lines.last().unwrap(), "lost 1");
        let (lines, _) = sample(&mut batch, span(10, 20), &[switch(11, 20, 0)]);
        assert_eq!(lines.last().unwrap(), "lost 1");
    }

    // Proves that a preemption within an exec is not counted as a loss. The thread is preempted
    // after it got the id of its process and before the kernel reports this. Any other switch
    // without a record is counted as a loss.
    #[test]
    fn a_switch_within_an_exec_is_no_loss() {
        let end = |thread| record(2, thread, RecordedEvent::Exit { thread: id(thread), parent: 1 });
        let exec = |is_ended: bool| {
            let mut batch = batch();
            let others = if is_ended { end(20) } else { Vec::new() };
            let own = [switch(1, 0, 25), switch(3, 20, 0), switch(4, 0, 20), named(5, 20, b"make", true)];
            let (lines, _) = sample(&mut batch, span(0, 10), &[own.concat(), others]);
            lines.last().unwrap().starts_with("lost")
        };
        assert!(!exec(true), "the first thread has ended, so 25 has taken over its id");
        assert!(exec(false), "the first thread lives");
        let mut batch = batch();
        let own = [switch(1, 0, 25), switch(3, 30, 0)];
        let (lines, _) = sample(&mut batch, span(0, 10), &[own.concat(), end(30)]);
        assert_eq!(lines.last().unwrap(), "lost 1", "a thread of another process");
    }

    // Proves that records that the kernel could not deliver are counted, as is a switch from an
    // unknown thread. After a loss, the running threads are unknown.
    #[test]
    fn losses_are_counted() {
        let mut batch = batch();
        let bytes = [
            switch(1, 0, 11),
            record(2, 11, RecordedEvent::Lost(5)),
            switch(3, UNKNOWN_THREAD, 12),
            record(4, 12, RecordedEvent::Tracepoint(b"short")),
        ];
        let (lines, _) = sample(&mut batch, span(0, 10), &[bytes.concat()]);
        assert_eq!(lines, ["1 cpu 0 0 waits 11", "lost 7"]);
        let mut malformed = switch(20, 12, 0);
        malformed[6..8].copy_from_slice(&8_u16.to_ne_bytes());
        let (lines, taken) = sample(&mut batch, span(10, 30), &[malformed.clone()]);
        assert_eq!((lines.last().unwrap().as_str(), taken), ("lost 9", vec![malformed.len()]));
    }

    proptest! {
        // Proves that any records of any CPUs, split into samples at any times, give the same
        // events as one sample. Each event occurs exactly once and with valid indexes.
        #[test]
        fn samples_add_up(
            records in prop::collection::vec((0_usize..3, 0_u32..40, 0_u32..40, 0_u8..5), 0..60),
            cuts in prop::collection::btree_set(1_u64..70, 0..6),
        ) {
            let mut cpus = [Vec::new(), Vec::new(), Vec::new()];
            for (time, (cpu, one, other, kind)) in (1..).zip(&records) {
                cpus[*cpu].extend(match kind {
                    0 | 1 => switch(time, *one, *other),
                    2 => waking(time, *one, *other),
                    3 => record(time, *one, RecordedEvent::Fork { child: id(*other), parent: id(*one) }),
                    _ => record(time, *one, RecordedEvent::Exit { thread: id(*one), parent: *other }),
                });
            }
            // Each sample names its threads and the running threads, which are not events.
            let is_event = |line: &&String| {
                !line.starts_with("cpu") && !line.contains(" is ") && !line.starts_with("lost")
            };
            // This is the count since the first sample.
            let lost = |lines: &[String]| lines.iter().rfind(|line| line.starts_with("lost")).cloned();
            let count = |lines: &[String]| {
                let mut events: Vec<String> = lines.iter().filter(is_event).cloned().collect();
                events.sort();
                events
            };
            let (whole, _) = sample(&mut batch(), span(0, 100), &cpus);
            let (mut parts, mut begin, mut parted) = (Vec::new(), 0, batch());
            for end in cuts.into_iter().chain([100]) {
                let (lines, taken) = sample(&mut parted, span(begin, end), &cpus);
                parts.extend(lines);
                for (bytes, taken) in cpus.iter_mut().zip(taken) {
                    bytes.drain(..taken);
                }
                begin = end;
            }
            prop_assert_eq!(count(&whole), count(&parts));
            prop_assert_eq!(lost(&whole), lost(&parts));
            prop_assert!(cpus.iter().all(Vec::is_empty));
        }
    }
}
