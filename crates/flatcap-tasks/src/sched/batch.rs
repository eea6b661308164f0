//! Checked payloads of the source `sched`.

use flatbuffers::Vector;

use crate::error::{PayloadError, check_index, check_times};
use crate::generated::kernel::{
    RunningThread, ScheduledThread, Switch, TaskEvent, TaskEventKind, Wakeup, root_as_sched,
};
use crate::task::{TaskName, ThreadInfo};

/// A payload of the source `sched`, which has the scheduler's events between two times.
#[derive(Debug, Clone, Copy)]
pub struct SchedBatch<'p> {
    begin_ns: u64,
    end_ns: u64,
    lost: u64,
    stopped_ns: u64,
    is_stopped: bool,
    has_wakeups: bool,
    threads: Vector<'p, ScheduledThread>,
    running: Vector<'p, RunningThread>,
    switches: Vector<'p, Switch>,
    wakeups: Vector<'p, Wakeup>,
    events: Vector<'p, TaskEvent>,
}

/// A scheduler event with its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedEvent {
    /// Recorded time of the event in monotonic nanoseconds.
    pub time_ns: u64,
    /// Kind of the event.
    pub kind: SchedEventKind,
}

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedEventKind {
    /// A thread started, ended, or changed.
    Changed {
        /// The thread, with its name after the change.
        thread: ThreadInfo,
        /// The change. The field may have a value that this version of the schema does not define.
        change: TaskEventKind,
        /// Process id of the parent, or 0 if it is unknown.
        parent: u32,
    },
    /// A thread became ready to run.
    Woken {
        /// The thread.
        thread: ThreadInfo,
        /// The thread that woke this thread. If an interrupt woke this thread, `waker` is the
        /// thread that was interrupted.
        waker: ThreadInfo,
        /// The CPU on which the waker ran.
        cpu: u16,
    },
    /// A CPU switched from one thread to another.
    Switched {
        /// The thread that stopped running on the CPU.
        previous: ThreadInfo,
        /// The thread that started to run.
        next: ThreadInfo,
        /// The CPU.
        cpu: u16,
        /// Whether the previous thread was still runnable.
        is_preempted: bool,
    },
}

impl<'p> SchedBatch<'p> {
    /// Checks a payload, including its whole structure, its times, and every index in it.
    ///
    /// # Errors
    /// Fails if the payload is malformed.
    pub fn read(payload: &'p [u8]) -> Result<Self, PayloadError> {
        let sched = root_as_sched(payload)?;
        let batch = Self {
            begin_ns: sched.begin(),
            end_ns: sched.end(),
            lost: sched.lost(),
            stopped_ns: sched.stopped(),
            is_stopped: sched.is_stopped(),
            has_wakeups: sched.has_wakeups(),
            threads: sched.threads(),
            running: sched.running(),
            switches: sched.switches(),
            wakeups: sched.wakeups(),
            events: sched.events(),
        };
        batch.check()?;
        Ok(batch)
    }

    fn check(&self) -> Result<(), PayloadError> {
        check_times(self.begin_ns, self.end_ns)?;
        let threads = ("threads", self.threads.len());
        for running in self.running {
            check_index(("running", running.thread()), threads)?;
        }
        for switch in self.switches {
            check_index(("switches", switch.previous()), threads)?;
            check_index(("switches", switch.next()), threads)?;
        }
        for wakeup in self.wakeups {
            check_index(("wakeups", wakeup.thread()), threads)?;
            check_index(("wakeups", wakeup.waker()), threads)?;
        }
        for event in self.events {
            check_index(("events", event.thread()), threads)?;
        }
        Ok(())
    }

    /// Returns the start of the time range that the payload's events cover, in monotonic
    /// nanoseconds.
    pub fn begin_ns(&self) -> u64 {
        self.begin_ns
    }

    /// Returns the exclusive end of the time range that the payload's events cover, in monotonic
    /// nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the number of records that were lost since the source was opened. The count includes
    /// records that the kernel could not deliver, and switches that are missing for an unknown
    /// reason.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the total time during which switches were not recorded since the source was opened,
    /// in nanoseconds.
    pub fn stopped_ns(&self) -> u64 {
        self.stopped_ns
    }

    /// Returns whether recording of switches is stopped at the end of the sample.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Returns whether wakeups are recorded. Without wakeups, the time that a thread waits for a
    /// CPU after a sleep is counted as sleep.
    pub fn has_wakeups(&self) -> bool {
        self.has_wakeups
    }

    /// Returns the threads in the payload's events.
    pub fn threads(&self) -> impl ExactSizeIterator<Item = ThreadInfo> + use<'p> {
        self.threads.iter().map(thread_info)
    }

    /// Returns the thread that runs on each CPU at the start of the payload. CPUs whose thread is
    /// not known are left out.
    pub fn running(&self) -> impl Iterator<Item = (u16, ThreadInfo)> + use<'p> {
        let threads = self.threads;
        self.running.iter().map(move |running| (running.cpu(), thread_at(threads, running.thread())))
    }

    /// Returns the number of context switches.
    #[cfg(any(test, feature = "testing"))]
    pub fn switches(&self) -> usize {
        self.switches.len()
    }

    /// Returns the time, the CPU and the previous thread of each switch. The switches are in time
    /// order.
    pub(super) fn stopped_threads(&self) -> impl Iterator<Item = (u64, u16, ThreadInfo)> + use<'p> {
        let threads = self.threads;
        self.switches
            .iter()
            .map(move |switch| (switch.time(), switch.cpu(), thread_at(threads, switch.previous())))
    }

    /// Returns all events in time order. At equal times, changes come first, then wakeups, then
    /// switches.
    pub fn events(&self) -> SchedEvents<'p> {
        SchedEvents { batch: *self, next_change: 0, next_wakeup: 0, next_switch: 0 }
    }
}

/// The events of a payload, in time order.
#[derive(Debug, Clone)]
pub struct SchedEvents<'p> {
    batch: SchedBatch<'p>,
    next_change: usize,
    next_wakeup: usize,
    next_switch: usize,
}

impl Iterator for SchedEvents<'_> {
    type Item = SchedEvent;

    fn next(&mut self) -> Option<SchedEvent> {
        let SchedBatch { threads, switches, wakeups, events, .. } = self.batch;
        let change = (self.next_change < events.len()).then(|| events.get(self.next_change));
        let wakeup = (self.next_wakeup < wakeups.len()).then(|| wakeups.get(self.next_wakeup));
        let switch = (self.next_switch < switches.len()).then(|| switches.get(self.next_switch));
        let after_change = |time_ns: u64| change.is_none_or(|change| time_ns < change.time());
        let after_wakeup = |time_ns: u64| wakeup.is_none_or(|wakeup| time_ns < wakeup.time());
        if let Some(switch) = switch.filter(|own| after_change(own.time()) && after_wakeup(own.time())) {
            self.next_switch += 1;
            let kind = SchedEventKind::Switched {
                previous: thread_at(threads, switch.previous()),
                next: thread_at(threads, switch.next()),
                cpu: switch.cpu(),
                is_preempted: switch.preempted(),
            };
            return Some(SchedEvent { time_ns: switch.time(), kind });
        }
        if let Some(wakeup) = wakeup.filter(|own| after_change(own.time())) {
            self.next_wakeup += 1;
            let kind = SchedEventKind::Woken {
                thread: thread_at(threads, wakeup.thread()),
                waker: thread_at(threads, wakeup.waker()),
                cpu: wakeup.cpu(),
            };
            return Some(SchedEvent { time_ns: wakeup.time(), kind });
        }
        let change = change?;
        self.next_change += 1;
        let kind = SchedEventKind::Changed {
            thread: thread_at(threads, change.thread()),
            change: change.kind(),
            parent: change.parent(),
        };
        Some(SchedEvent { time_ns: change.time(), kind })
    }
}

/// Returns the thread at an index that was already checked.
fn thread_at(threads: Vector<'_, ScheduledThread>, index: u16) -> ThreadInfo {
    let index = usize::from(index);
    if index < threads.len() { thread_info(threads.get(index)) } else { ThreadInfo::default() }
}

fn thread_info(thread: &ScheduledThread) -> ThreadInfo {
    let name: [u8; 16] = thread.name().into();
    ThreadInfo { thread: thread.thread(), process: thread.process(), name: TaskName::new(&name) }
}
