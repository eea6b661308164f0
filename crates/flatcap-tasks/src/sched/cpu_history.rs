//! Who ran on each CPU lately.

use std::collections::VecDeque;
use std::ops::Range;

use crate::task::Task;

/// Most slices that are kept of a CPU. Of a thread that waited while more of them ran, the first
/// part of the time has no known cause.
const SLICES_MAX: usize = 1024;

/// Time on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSlice {
    /// Who ran; the idle loop if nobody did.
    pub task: Task,
    /// When it began, in monotonic nanoseconds.
    pub begin_ns: u64,
    /// When it ended, in monotonic nanoseconds.
    pub end_ns: u64,
}

/// The last slices of each CPU.
#[derive(Debug, Default)]
pub struct CpuHistory {
    cpus: Vec<VecDeque<CpuSlice>>,
}

impl CpuHistory {
    /// Returns who ran on a CPU within a range of time, the last first, cut to that range.
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
