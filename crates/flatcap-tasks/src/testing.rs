//! Builds payloads from plain values, for tests.

use flatbuffers::FlatBufferBuilder;

use crate::generated::kernel::{
    CodeKind, CodeObject, CodeObjectArgs, Kmsg, KmsgArgs, LogLine, LogLineArgs, Profile, ProfileArgs,
    RunningThread, SampledThread, Sched, SchedArgs, ScheduledThread, Stack, StackArgs, StackFrame,
    StackSample, Switch, TaskEvent, TaskEventKind, Wakeup,
};
use crate::task::ThreadInfo;

/// Contents of a payload of the source `sched`. Threads are referred to by their index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedPayload {
    /// The field `begin`, in nanoseconds.
    pub begin_ns: u64,
    /// The field `end`, in nanoseconds.
    pub end_ns: u64,
    /// The threads.
    pub threads: Vec<ThreadInfo>,
    /// Pairs of a CPU and the thread that runs on the CPU at the start of the payload.
    pub running: Vec<(u16, u16)>,
    /// Switches, each with its time, CPU, previous thread, next thread, and whether the previous
    /// thread was preempted.
    pub switches: Vec<(u64, u16, u16, u16, bool)>,
    /// Wakeups, each with its time, CPU, thread and waker.
    pub wakeups: Vec<(u64, u16, u16, u16)>,
    /// Events, each with its time, thread and kind.
    pub events: Vec<(u64, u16, TaskEventKind)>,
    /// Whether wakeups are not recorded.
    pub lacks_wakeups: bool,
    /// Number of records that the kernel could not deliver.
    pub lost: u64,
    /// Time for which switches were not recorded, in nanoseconds.
    pub stopped_ns: u64,
    /// Whether recording of switches is stopped at the end of the payload.
    pub is_stopped: bool,
}

/// Contents of a payload of the source `profile`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfilePayload {
    /// The field `begin`, in nanoseconds.
    pub begin_ns: u64,
    /// The field `end`, in nanoseconds.
    pub end_ns: u64,
    /// CPU time that each sample represents, in nanoseconds.
    pub interval_ns: u64,
    /// The threads.
    pub threads: Vec<ThreadInfo>,
    /// Samples, each with its time, thread, CPU and stack.
    pub samples: Vec<(u64, u16, u16, u16)>,
    /// Stacks, each as a list of frame indexes with the innermost frame first.
    pub stacks: Vec<Vec<u16>>,
    /// Frames, each with its object and its offset.
    pub frames: Vec<(u16, u64)>,
    /// Objects, each with its kind, path and build id.
    pub objects: Vec<(CodeKind, String, Vec<u8>)>,
    /// Sizes and modification times of the first files in `objects`.
    pub versions: Vec<(u64, i64)>,
    /// Number of records that the kernel could not deliver.
    pub lost: u64,
}

/// Contents of a payload of the source `kmsg`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KmsgPayload {
    /// Lines, each with its time, number, priority and text.
    pub lines: Vec<(u64, u64, u8, String)>,
    /// Number of lines that the kernel overwrote before they were read.
    pub lost: u64,
}

impl SchedPayload {
    /// Returns the payload's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let threads: Vec<ScheduledThread> = self
            .threads
            .iter()
            .map(|info| ScheduledThread::new(info.thread, info.process, info.name.bytes()))
            .collect();
        let running: Vec<RunningThread> =
            self.running.iter().map(|(cpu, thread)| RunningThread::new(*cpu, *thread)).collect();
        let switches: Vec<Switch> = self
            .switches
            .iter()
            .map(|(time, cpu, previous, next, is_preempted)| {
                Switch::new(*time, *previous, *next, *cpu, *is_preempted)
            })
            .collect();
        let wakeups: Vec<Wakeup> = self
            .wakeups
            .iter()
            .map(|(time, cpu, thread, waker)| Wakeup::new(*time, *thread, *waker, *cpu))
            .collect();
        let events: Vec<TaskEvent> =
            self.events.iter().map(|(time, thread, kind)| TaskEvent::new(*time, *thread, *kind, 0)).collect();
        let args = SchedArgs {
            begin: self.begin_ns,
            end: self.end_ns,
            threads: Some(builder.create_vector(&threads)),
            running: Some(builder.create_vector(&running)),
            switches: Some(builder.create_vector(&switches)),
            wakeups: Some(builder.create_vector(&wakeups)),
            events: Some(builder.create_vector(&events)),
            has_wakeups: !self.lacks_wakeups,
            lost: self.lost,
            stopped: self.stopped_ns,
            is_stopped: self.is_stopped,
        };
        let sched = Sched::create(&mut builder, &args);
        builder.finish_minimal(sched);
        builder.finished_data().to_vec()
    }
}

impl ProfilePayload {
    /// Returns the payload's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let threads: Vec<SampledThread> = self
            .threads
            .iter()
            .map(|info| SampledThread::new(info.thread, info.process, info.name.bytes()))
            .collect();
        let samples: Vec<StackSample> = self
            .samples
            .iter()
            .map(|(time, thread, cpu, stack)| StackSample::new(*time, *thread, *cpu, *stack))
            .collect();
        let frames: Vec<StackFrame> =
            self.frames.iter().map(|(object, offset)| StackFrame::new(*offset, *object)).collect();
        let mut stacks = Vec::new();
        for stack in &self.stacks {
            let frames = Some(builder.create_vector(stack));
            stacks.push(Stack::create(&mut builder, &StackArgs { frames }));
        }
        let mut objects = Vec::new();
        for (at, (kind, path, build_id)) in self.objects.iter().enumerate() {
            let path = Some(builder.create_string(path));
            let build_id = (!build_id.is_empty()).then(|| builder.create_vector(build_id));
            let (size, modified) = self.versions.get(at).copied().unzip();
            let args = CodeObjectArgs { kind: *kind, path, build_id, size, modified };
            objects.push(CodeObject::create(&mut builder, &args));
        }
        let args = ProfileArgs {
            begin: self.begin_ns,
            end: self.end_ns,
            interval: self.interval_ns,
            threads: Some(builder.create_vector(&threads)),
            samples: Some(builder.create_vector(&samples)),
            stacks: Some(builder.create_vector(&stacks)),
            frames: Some(builder.create_vector(&frames)),
            objects: Some(builder.create_vector(&objects)),
            lost: self.lost,
        };
        let profile = Profile::create(&mut builder, &args);
        builder.finish_minimal(profile);
        builder.finished_data().to_vec()
    }
}

impl KmsgPayload {
    /// Returns the payload's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let mut lines = Vec::new();
        for (time, sequence, priority, text) in &self.lines {
            let text = Some(builder.create_string(text));
            let args =
                LogLineArgs { time: *time, sequence: *sequence, priority: *priority, facility: 0, text };
            lines.push(LogLine::create(&mut builder, &args));
        }
        let args = KmsgArgs { lines: Some(builder.create_vector(&lines)), lost: self.lost };
        let kmsg = Kmsg::create(&mut builder, &args);
        builder.finish_minimal(kmsg);
        builder.finished_data().to_vec()
    }
}
