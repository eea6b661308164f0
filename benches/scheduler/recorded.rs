//! Reads the times of threads from a recording.

use std::error::Error;
use std::path::Path;

use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_tasks::{
    CpuHistory, Interval, SchedBatch, TaskState, TaskTimes, ThreadTimes, Timeline, TimelineObserver,
};

use crate::workload::ThreadAccount;

/// The times of all stretches, and the number of times that a CPU was given away.
struct Stretches {
    times: Vec<TaskTimes>,
    switches: u64,
}

impl TimelineObserver for Stretches {
    fn interval(&mut self, interval: &Interval, history: &CpuHistory) {
        self.switches += u64::from(interval.state == TaskState::Running);
        self.times.iter_mut().for_each(|times| times.interval(interval, history));
    }
}

/// Returns what each thread did in its stretch. Switches may be missing, such as switches of
/// threads that the kernel hides from perf. The resulting errors count like all others.
pub fn times<'a>(
    data: &Path,
    accounts: impl Iterator<Item = &'a ThreadAccount> + Clone,
) -> Result<Vec<ThreadTimes>, Box<dyn Error>> {
    let window = |account: &ThreadAccount| TaskTimes::new(account.span_ns.0..account.span_ns.1);
    let mut stretches = Stretches { times: accounts.clone().map(window).collect(), switches: 0 };
    let mut timeline = Timeline::new();
    let mut reader = MergedReader::open(&[data.to_owned()], ReplayFilter::default())?;
    while let Some(item) = reader.next()? {
        match item {
            ReplayItem::Sample(sample) => {
                let batch = SchedBatch::read(sample.telemetry.payload)?;
                timeline.add(sample.telemetry.seq, &batch, &mut stretches);
            }
            ReplayItem::Gap(gap, _) => return Err(format!("{} samples were lost", gap.count).into()),
            _ => {}
        }
    }
    let faults = timeline.faults();
    if faults.stopped_ns > 0 || faults.lacks_wakeups {
        return Err(format!("the recording is incomplete: {faults:?}").into());
    }
    println!("{} switches, and {} lost", stretches.switches, faults.lost);
    stretches.times.iter_mut().for_each(|times| times.reach(&timeline));
    let of_thread = |(times, account): (&TaskTimes, &ThreadAccount)| {
        let mut found = times.threads().into_iter();
        let found = found.find(|times| times.task.info.thread == account.thread);
        found.ok_or_else(|| format!("{} is not in the recording", account.name).into())
    };
    stretches.times.iter().zip(accounts).map(of_thread).collect()
}
