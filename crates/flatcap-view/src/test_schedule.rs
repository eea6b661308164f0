//! Schedules with known slices, as samples of the source `sched`.

use flatcap_tasks::testing::SchedPayload;
use flatcap_tasks::{TaskName, ThreadInfo};

use super::test_recording::{START_MONO_NS, SchedSample};

/// Delay between the end of a sample's time range and the time at which the sample is read.
const READ_LATE_NS: u64 = 200_000;

/// A time range in which a thread runs on a CPU, in monotonic nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlannedSlice {
    pub(super) thread: ThreadInfo,
    pub(super) begin_ns: u64,
    pub(super) end_ns: u64,
    pub(super) is_preempted: bool,
}

/// The slices of each CPU: consecutive and without holes.
#[derive(Debug, Clone, Default)]
pub(super) struct Schedule {
    pub(super) cpus: Vec<Vec<PlannedSlice>>,
    /// Time, CPU, thread and waker of each wakeup.
    pub(super) wakeups: Vec<(u64, u16, ThreadInfo, ThreadInfo)>,
}

/// Returns a thread with a name.
pub(super) fn thread(thread: u32, process: u32, name: &str) -> ThreadInfo {
    ThreadInfo { thread, process, name: TaskName::new(name.as_bytes()) }
}

impl Schedule {
    /// Adds a CPU that runs threads one after the other from the start of the recording. Each
    /// thread runs for the given number of nanoseconds.
    pub(super) fn run(&mut self, slices: impl IntoIterator<Item = (ThreadInfo, u64, bool)>) {
        let mut at_ns = START_MONO_NS;
        let slice = |(thread, length_ns, is_preempted)| {
            let begin_ns = at_ns;
            at_ns += length_ns;
            PlannedSlice { thread, begin_ns, end_ns: at_ns, is_preempted }
        };
        self.cpus.push(slices.into_iter().map(slice).collect());
    }

    /// Returns the time up to which all CPUs have slices.
    pub(super) fn end_ns(&self) -> u64 {
        self.cpus.iter().filter_map(|slices| Some(slices.last()?.end_ns)).min().unwrap_or(START_MONO_NS)
    }

    /// Returns a payload with the events between two times.
    pub(super) fn payload(&self, begin_ns: u64, end_ns: u64) -> SchedPayload {
        let mut payload = SchedPayload { begin_ns, end_ns, ..SchedPayload::default() };
        let mut threads: Vec<ThreadInfo> = Vec::new();
        let mut index = |thread: ThreadInfo| {
            let found = threads.iter().position(|known| *known == thread);
            let at = found.unwrap_or_else(|| {
                threads.push(thread);
                threads.len() - 1
            });
            u16::try_from(at).unwrap()
        };
        for (cpu, slices) in (0..).zip(&self.cpus) {
            // A switch exactly at the start is treated as an event of the payload.
            let at = slices.partition_point(|slice| slice.begin_ns < begin_ns).saturating_sub(1);
            payload.running.push((cpu, index(slices[at].thread)));
            for pair in slices.windows(2) {
                let time_ns = pair[1].begin_ns;
                if (begin_ns..end_ns).contains(&time_ns) {
                    let (previous, next) = (index(pair[0].thread), index(pair[1].thread));
                    payload.switches.push((time_ns, cpu, previous, next, pair[0].is_preempted));
                }
            }
        }
        for (time_ns, cpu, woken, waker) in &self.wakeups {
            if (begin_ns..end_ns).contains(time_ns) {
                payload.wakeups.push((*time_ns, *cpu, index(*woken), index(*waker)));
            }
        }
        payload.switches.sort_by_key(|switch| switch.0);
        payload.wakeups.sort_by_key(|wakeup| wakeup.0);
        payload.threads = threads;
        payload
    }

    /// Returns payloads that end at the given times. The last payload ends at the end of the
    /// schedule.
    pub(super) fn payloads(&self, cuts: &[u64]) -> Vec<SchedPayload> {
        let end_ns = self.end_ns();
        let mut times: Vec<u64> =
            cuts.iter().copied().filter(|cut| (START_MONO_NS + 1..end_ns).contains(cut)).collect();
        times.extend([START_MONO_NS, end_ns]);
        times.sort_unstable();
        times.dedup();
        times.windows(2).map(|pair| self.payload(pair[0], pair[1])).collect()
    }
}

/// Returns one sample for each payload, numbered consecutively.
pub(super) fn samples(payloads: &[SchedPayload]) -> Vec<SchedSample> {
    let sample = |(seq, payload): (u64, &SchedPayload)| (seq, payload.end_ns + READ_LATE_NS, payload.bytes());
    (0..).zip(payloads).map(sample).collect()
}
