//! The scheduler in a trace of Perfetto. Switches and wakeups per CPU have the form of the kernel's
//! trace events. So Perfetto's user interface shows them like the kernel's own events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use flatcap_format::schema::text_of;
use flatcap_tasks::schema::TaskEventKind;
use flatcap_tasks::{SchedBatch, SchedEventKind, TaskName, ThreadInfo};

use crate::perfetto_packets::{
    FtraceEvent, FtraceEventBundle, ProcessTree, SchedSwitch, SchedWaking, TracePacket, TraceProcess,
    TraceThread,
};

/// The default priority of a thread. It is used for all threads, because recordings do not contain
/// priorities.
const PRIORITY: i32 = 120;
/// States of a thread that stops running, with the values of the field `prev_state` of the kernel's
/// `sched_switch` event.
const STATE_READY: i64 = 0;
const STATE_SLEEPS: i64 = 1;
const STATE_DEAD: i64 = 16;
/// The id of the thread that is shown as running while switches are not recorded. Without this
/// thread, the trace would show another thread as running during that time. No kernel has such a
/// large thread id, because the maximum is 2^22.
const UNRECORDED: u32 = 1 << 30;
const UNRECORDED_NAME: &str = "(not recorded)";
/// Maximum number of threads whose names are kept.
const THREADS_MAX: usize = 1 << 18;

/// Creates packets from the payloads of a host.
#[derive(Debug, Default)]
pub(crate) struct SchedTracks {
    /// Process and name of each thread that the trace already describes.
    threads: HashMap<u32, (u32, TaskName)>,
    /// The thread that runs on each CPU.
    running: BTreeMap<u16, ThreadInfo>,
    /// Whether the trace contains the running threads.
    is_open: bool,
    /// Threads that have exited. Each one ends in the trace at its next context switch.
    ended: HashSet<u32>,
    /// The end of the last payload, in monotonic nanoseconds.
    end_ns: u64,
    packets: Vec<TracePacket>,
    events: BTreeMap<u16, Vec<FtraceEvent>>,
}

impl SchedTracks {
    /// Adds those events of a payload that are in the selected time range. `offset_ns` is time in
    /// the trace minus monotonic time.
    pub(crate) fn add(&mut self, batch: &SchedBatch<'_>, window: &Range<u64>, offset_ns: i64) {
        if batch.begin_ns() != self.end_ns {
            self.close(offset_ns);
        }
        self.end_ns = batch.end_ns().min(window.end);
        batch.threads().for_each(|thread| self.describe(thread, batch.begin_ns(), offset_ns));
        let begin_ns = batch.begin_ns().max(window.start);
        for (cpu, thread) in batch.running() {
            let before = self.running.insert(cpu, thread);
            if self.is_open && before.map(|before| before.thread) != Some(thread.thread) {
                self.put_switch(
                    (cpu, begin_ns, offset_ns),
                    (before.unwrap_or(unrecorded()), STATE_SLEEPS),
                    thread,
                );
            }
        }
        for event in batch.events().take_while(|event| event.time_ns < window.end) {
            let is_selected = event.time_ns >= window.start;
            if is_selected {
                self.open(begin_ns, offset_ns);
            }
            match event.kind {
                SchedEventKind::Changed { thread, change, .. } => {
                    if change == TaskEventKind::Exit {
                        self.ended.insert(thread.thread);
                    }
                }
                SchedEventKind::Woken { thread, waker, cpu } if is_selected => {
                    let waking = SchedWaking {
                        comm: Some(text_of(thread.name.as_bytes()).into_owned()),
                        pid: Some(id(thread.thread)),
                        prio: Some(PRIORITY),
                        success: Some(1),
                        // It is not known yet on which CPU the thread will run.
                        target_cpu: None,
                    };
                    let event = FtraceEvent {
                        timestamp: Some(event.time_ns.saturating_add_signed(offset_ns)),
                        pid: Some(waker.thread),
                        sched_waking: Some(waking),
                        sched_switch: None,
                    };
                    self.events.entry(cpu).or_default().push(event);
                }
                SchedEventKind::Woken { .. } => {}
                SchedEventKind::Switched { previous, next, cpu, is_preempted } => {
                    self.running.insert(cpu, next);
                    let state = match is_preempted {
                        _ if self.ended.remove(&previous.thread) => STATE_DEAD,
                        true => STATE_READY,
                        false => STATE_SLEEPS,
                    };
                    if is_selected {
                        self.put_switch((cpu, event.time_ns, offset_ns), (previous, state), next);
                    }
                }
            }
        }
        if begin_ns < self.end_ns {
            self.open(begin_ns, offset_ns);
        }
        if batch.is_stopped() || batch.end_ns() >= window.end {
            self.close(offset_ns);
        }
        self.bundle();
    }

    /// Ends the running threads, at the end of the recording or of a run.
    pub(crate) fn end(&mut self, offset_ns: i64) {
        self.close(offset_ns);
        self.bundle();
        self.end_ns = 0;
        // In another boot, the same thread ids belong to other threads.
        self.threads.clear();
        self.ended.clear();
    }

    /// Returns the packets that were added since the last call.
    pub(crate) fn take(&mut self) -> Vec<TracePacket> {
        std::mem::take(&mut self.packets)
    }

    fn open(&mut self, at_ns: u64, offset_ns: i64) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        for (cpu, thread) in self.running.clone() {
            self.put_switch((cpu, at_ns, offset_ns), (unrecorded(), STATE_SLEEPS), thread);
        }
    }

    fn close(&mut self, offset_ns: i64) {
        let running = std::mem::take(&mut self.running);
        // It is not known whether the ended threads ran again in the meantime.
        self.ended.clear();
        if !std::mem::replace(&mut self.is_open, false) {
            return;
        }
        for (cpu, thread) in running {
            self.put_switch((cpu, self.end_ns, offset_ns), (thread, STATE_SLEEPS), unrecorded());
        }
    }

    fn put_switch(
        &mut self,
        (cpu, at_ns, offset_ns): (u16, u64, i64),
        (previous, state): (ThreadInfo, i64),
        next: ThreadInfo,
    ) {
        let switch = SchedSwitch {
            prev_comm: Some(name(previous)),
            prev_pid: Some(id(previous.thread)),
            prev_prio: Some(PRIORITY),
            prev_state: Some(state),
            next_comm: Some(name(next)),
            next_pid: Some(id(next.thread)),
            next_prio: Some(PRIORITY),
        };
        let event = FtraceEvent {
            timestamp: Some(at_ns.saturating_add_signed(offset_ns)),
            pid: Some(previous.thread),
            sched_switch: Some(switch),
            sched_waking: None,
        };
        self.events.entry(cpu).or_default().push(event);
    }

    /// Creates a packet with the events of each CPU.
    fn bundle(&mut self) {
        for (cpu, event) in std::mem::take(&mut self.events) {
            let bundle = FtraceEventBundle { cpu: Some(u32::from(cpu)), event };
            self.packets.push(TracePacket { ftrace_events: Some(bundle), ..TracePacket::default() });
        }
    }

    /// Adds the process and the name of a thread, unless the trace already contains them.
    pub(crate) fn describe(&mut self, thread: ThreadInfo, at_ns: u64, offset_ns: i64) {
        let own = (thread.process, thread.name);
        if thread.is_idle() || self.threads.get(&thread.thread) == Some(&own) {
            return;
        }
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        self.threads.insert(thread.thread, own);
        let name = Some(name(thread)).filter(|name| !name.is_empty());
        let process = (thread.thread == thread.process).then(|| TraceProcess {
            pid: Some(id(thread.process)),
            cmdline: name.clone().into_iter().collect(),
            cmdline_is_comm: Some(true),
        });
        let own = TraceThread { tid: Some(id(thread.thread)), name, tgid: Some(id(thread.process)) };
        let tree = ProcessTree { processes: process.into_iter().collect(), threads: vec![own] };
        self.packets.push(TracePacket {
            timestamp: Some(at_ns.saturating_add_signed(offset_ns)),
            process_tree: Some(tree),
            ..TracePacket::default()
        });
    }
}

fn unrecorded() -> ThreadInfo {
    ThreadInfo { thread: UNRECORDED, process: UNRECORDED, name: TaskName::new(UNRECORDED_NAME.as_bytes()) }
}

/// Returns the name of a thread. For an idle loop, this is the name that the kernel uses.
fn name(thread: ThreadInfo) -> String {
    if thread.is_idle() { "swapper".to_owned() } else { text_of(thread.name.as_bytes()).into_owned() }
}

/// Returns a thread id in the type that the trace uses.
fn id(thread: u32) -> i32 {
    i32::try_from(thread).unwrap_or(i32::MAX)
}
