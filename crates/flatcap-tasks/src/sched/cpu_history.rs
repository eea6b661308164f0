//! Stores the most recent time slices of each CPU.

use std::collections::VecDeque;
use std::ops::Range;

use crate::task::Task;

/// Maximum number of slices that are kept per CPU. If more slices ran while a thread waited, the
/// cause of the first part of its wait is unknown.
const SLICES_MAX: usize = 1024;

/// A time slice on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSlice {
    /// The task that ran, which is the idle loop if the CPU was idle.
    pub task: Task,
    /// The start of the slice, in monotonic nanoseconds.
    pub begin_ns: u64,
    /// The end of the slice, in monotonic nanoseconds.
    pub end_ns: u64,
}

/// The most recent slices of each CPU.
#[derive(Debug, Default)]
pub struct CpuHistory {
    cpus: Vec<VecDeque<CpuSlice>>,
}

impl CpuHistory {
    /// Returns the slices of a CPU that overlap a time range, the latest slice first. The slices
    /// are clipped to this range.
    pub(super) fn who_ran(&self, cpu: u16, range: Range<u64>) -> impl Iterator<Item = CpuSlice> {
        let slices = self.cpus.get(usize::from(cpu)).into_iter().flat_map(|slices| slices.iter().rev());
        slices
            .take_while({
                let begin_ns = range.start;
                move |slice| slice.end_ns > begin_ns
            })
            .map(move |slice| CpuSlice {
                begin_ns: slice.begin_ns.max(range.start),
                end_ns: slice.end_ns.min(range.end),
                ..*slice
            })
            .filter(|slice| slice.begin_ns < slice.end_ns)
    }

    pub(super) fn add(&mut self, cpu: u16, slice: CpuSlice) {
        let cpu = usize::from(cpu);
        if self.cpus.len() <= cpu {
            self.cpus.resize_with(cpu + 1, VecDeque::new);
        }
        if let Some(slices) = self.cpus.get_mut(cpu) {
            if slices.len() >= SLICES_MAX {
                slices.pop_front();
            }
            slices.push_back(slice);
        }
    }
}
