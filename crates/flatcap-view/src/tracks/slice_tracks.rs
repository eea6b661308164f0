//! Keeps each slice of a short time range.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use flatcap_tasks::{IntervalEnd, TaskState, ThreadInfo};

use super::stretches::{Stretch, Stretches};
use super::wall_interval::{TrackObserver, WallInterval};

/// Maximum number of threads whose last wait is kept until they run.
// Only threads that are ready at the same time need an entry.
const WAITS_MAX: usize = 1 << 16;

/// A time slice of a thread, or of the idle loop, on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrackSlice {
    /// The thread that ran in this slice.
    pub(crate) thread: ThreadInfo,
    /// Start in wall nanoseconds.
    pub(crate) begin_ns: i64,
    /// End in wall nanoseconds.
    pub(crate) end_ns: i64,
    pub(crate) end: IntervalEnd,
    pub(crate) waited: Waited,
}

/// The waits of a thread before it ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Waited {
    /// Wait for a CPU, in nanoseconds; `None` if the wait is not known.
    pub(crate) ready_ns: Option<u64>,
    /// Sleep before that wait, in nanoseconds; `None` if the thread was preempted or the length is
    /// not known.
    pub(crate) slept_ns: Option<u64>,
    /// The thread that woke the waiting thread.
    pub(crate) waker: Option<ThreadInfo>,
}

/// Keeps the slices of a time range, up to a maximum number of slices and of threads.
#[derive(Debug, Clone)]
pub(crate) struct SliceTracks {
    wall_ns: Range<i64>,
    slices_max: usize,
    threads_max: usize,
    tracks: BTreeMap<u16, Vec<TrackSlice>>,
    slices: usize,
    threads: HashSet<ThreadInfo>,
    /// The waits of each thread that is ready or about to run.
    waits: HashMap<u64, Waited>,
    stretches: Stretches,
}

impl SliceTracks {
    pub(crate) fn new(wall_ns: Range<i64>, slices_max: usize, threads_max: usize) -> Self {
        Self {
            wall_ns,
            slices_max,
            threads_max,
            tracks: BTreeMap::new(),
            slices: 0,
            threads: HashSet::new(),
            waits: HashMap::new(),
            stretches: Stretches::new(1),
        }
    }

    /// Returns whether slices or threads exceed their limits, so that some are left out.
    pub(crate) fn is_too_much(&self) -> bool {
        self.slices > self.slices_max || self.threads.len() > self.threads_max
    }

    /// Returns the slices of each CPU, and the ranges in which the activity is not completely
    /// known.
    pub(crate) fn into_parts(self) -> (Vec<(u16, Vec<TrackSlice>)>, Vec<Stretch>) {
        let stretches = self.stretches.within(self.wall_ns.start, self.wall_ns.end);
        (self.tracks.into_iter().collect(), stretches)
    }

    fn add_slice(&mut self, cpu: u16, slice: &WallInterval) {
        // The wait is removed even if the slice is outside the range, so that the waits of threads
        // that ran do not accumulate.
        let waited = self.waits.remove(&slice.task.number).unwrap_or_default();
        if slice.begin_ns >= self.wall_ns.end || slice.end_ns < self.wall_ns.start {
            return;
        }
        // The slice is counted even if it is not kept, because the caller must learn that the limit
        // is exceeded.
        self.slices += 1;
        self.threads.insert(slice.task.info);
        self.threads.extend(waited.waker);
        if self.is_too_much() {
            return;
        }
        self.tracks.entry(cpu).or_default().push(TrackSlice {
            thread: slice.task.info,
            begin_ns: slice.begin_ns,
            end_ns: slice.end_ns,
            end: slice.end,
            waited,
        });
    }

    fn add_wait(&mut self, wait: &WallInterval) {
        let number = wait.task.number;
        if self.waits.len() >= WAITS_MAX && !self.waits.contains_key(&number) {
            return;
        }
        let length_ns = wait.end_ns.abs_diff(wait.begin_ns);
        let waited = match wait.state {
            TaskState::Sleeping => Waited { slept_ns: Some(length_ns), ..Waited::default() },
            _ => Waited {
                ready_ns: Some(length_ns),
                waker: wait.waker.map(|waker| waker.info),
                slept_ns: self.waits.get(&number).and_then(|slept| slept.slept_ns),
            },
        };
        self.waits.insert(number, waited);
    }
}

impl TrackObserver for SliceTracks {
    fn interval(&mut self, interval: &WallInterval) {
        match (interval.state, interval.cpu) {
            (TaskState::Running, Some(cpu)) => self.add_slice(cpu, interval),
            (TaskState::Running, None) => {}
            _ if matches!(interval.end, IntervalEnd::Ran | IntervalEnd::Woken) => self.add_wait(interval),
            // The thread never ran again, or its further states are not known.
            _ => {
                self.waits.remove(&interval.task.number);
            }
        }
    }

    fn stretch(&mut self, stretch: Stretch) {
        self.stretches.add(stretch);
    }
}
