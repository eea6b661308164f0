//! Aggregates the activity of each CPU per pixel.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flatcap_tasks::{Task, TaskState, ThreadInfo};

use super::stretches::{Stretch, Stretches};
use super::track_grid::TrackGrid;
use super::wall_interval::{TrackObserver, WallInterval};

/// Maximum number of CPUs with tracks.
pub(super) const CPUS_MAX: usize = 1024;
/// Maximum number of threads distinguished in a pixel of a CPU. Further threads are not counted and
/// cannot be the longest-running thread.
const CELL_THREADS_MAX: usize = 4096;

/// The activity of a CPU in a pixel. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TrackCell {
    /// The part of the pixel in which the activity is known.
    pub(crate) known_ns: u64,
    /// Run time of all threads.
    pub(crate) busy_ns: u64,
    /// Run time of the threads of the chosen process.
    pub(crate) own_ns: u64,
    /// The thread that ran longest, and its run time; `None` if no thread ran.
    pub(crate) top: Option<(ThreadInfo, u64)>,
    /// Run time of all threads of the process to which the longest-running thread belongs.
    pub(crate) top_process_ns: u64,
    /// Number of threads that ran.
    pub(crate) threads: u32,
    /// Number of slices that started, including slices of the idle loop.
    pub(crate) switches: u32,
}

/// The waits of threads for a CPU within a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WaitCell {
    /// Sum of the waits of all threads in the pixel, in nanoseconds.
    pub(crate) waited_ns: u64,
    /// The longest single wait, including its parts outside the pixel, in nanoseconds.
    pub(crate) longest_ns: u64,
}

/// Aggregates intervals of threads per pixel.
#[derive(Debug, Clone)]
// Because intervals are folded, memory depends only on the number of pixels.
pub(crate) struct PixelTracks {
    grid: TrackGrid,
    /// The process whose run time is counted separately.
    process: Option<u32>,
    tracks: BTreeMap<u16, CpuTrack>,
    waiting: Vec<WaitCell>,
    stretches: Stretches,
    left_out: BTreeSet<u16>,
}

#[derive(Debug, Clone, Default)]
struct CpuTrack {
    cells: Vec<TrackCell>,
    /// The newest pixel with slices.
    // The slices of a CPU arrive in time order.
    newest: usize,
    /// Run time of each thread and each process in the newest pixel.
    threads: HashMap<Task, u64>,
    processes: HashMap<u32, u64>,
}

impl PixelTracks {
    pub(crate) fn new(grid: TrackGrid, process: Option<u32>) -> Self {
        Self {
            grid,
            process,
            tracks: BTreeMap::new(),
            waiting: vec![WaitCell::default(); grid.count],
            stretches: Stretches::new(grid.pixel_ns),
            left_out: BTreeSet::new(),
        }
    }

    pub(crate) fn grid(&self) -> TrackGrid {
        self.grid
    }

    pub(crate) fn process(&self) -> Option<u32> {
        self.process
    }

    /// Returns the number of CPUs with tracks.
    pub(crate) fn cpus(&self) -> usize {
        self.tracks.len()
    }

    /// Returns the number of CPUs without tracks because of the limit.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Returns the cells of each CPU in a range of pixels. Pixels after the last known cell of a
    /// CPU are omitted.
    pub(crate) fn tracks(&self, pixels: &std::ops::Range<usize>) -> Vec<(u16, Vec<TrackCell>)> {
        let cells = |track: &CpuTrack| {
            let end = pixels.end.min(track.cells.len());
            track.cells.get(pixels.start..end).map_or(Vec::new(), <[_]>::to_vec)
        };
        self.tracks.iter().map(|(cpu, track)| (*cpu, cells(track))).collect()
    }

    pub(crate) fn waiting(&self, pixels: &std::ops::Range<usize>) -> &[WaitCell] {
        self.waiting.get(pixels.clone()).unwrap_or_default()
    }

    /// Returns the time ranges in which the activity of the CPUs is not completely known.
    pub(crate) fn stretches(&self, from_ns: i64, to_ns: i64) -> Vec<Stretch> {
        self.stretches.within(from_ns, to_ns)
    }

    fn add_slice(&mut self, cpu: u16, slice: &WallInterval) {
        if !self.tracks.contains_key(&cpu) && self.tracks.len() >= CPUS_MAX {
            self.left_out.insert(cpu);
            return;
        }
        let track = self.tracks.entry(cpu).or_default();
        track.add(self.grid, self.process, slice);
    }

    fn add_wait(&mut self, wait: &WallInterval) {
        let Some(range) = self.grid.range(wait.begin_ns, wait.end_ns) else { return };
        // The length of the whole wait is used, so that a long wait is visible at each zoom.
        let length_ns = wait.end_ns.abs_diff(wait.begin_ns);
        for index in range.pixels.clone() {
            if let Some(cell) = self.waiting.get_mut(index) {
                cell.waited_ns = cell.waited_ns.saturating_add(self.grid.part_ns(&range, index));
                cell.longest_ns = cell.longest_ns.max(length_ns);
            }
        }
    }
}

impl TrackObserver for PixelTracks {
    fn interval(&mut self, interval: &WallInterval) {
        match (interval.state, interval.cpu) {
            (TaskState::Running, Some(cpu)) => self.add_slice(cpu, interval),
            (TaskState::Ready, _) => self.add_wait(interval),
            _ => {}
        }
    }

    fn stretch(&mut self, stretch: Stretch) {
        self.stretches.add(stretch);
    }
}

impl CpuTrack {
    fn add(&mut self, grid: TrackGrid, process: Option<u32>, slice: &WallInterval) {
        let Some(range) = grid.range(slice.begin_ns, slice.end_ns) else { return };
        if self.cells.len() <= *range.pixels.end() {
            self.cells.resize(range.pixels.end() + 1, TrackCell::default());
        }
        let begins = grid.index(slice.begin_ns);
        for index in range.pixels.clone() {
            // The stored times per thread belong to only one pixel. An earlier pixel follows only
            // if the clock was set back; the threads of that pixel are then counted again.
            if index != self.newest {
                self.newest = index;
                self.threads.clear();
                self.processes.clear();
            }
            let Some(cell) = self.cells.get_mut(index) else { continue };
            let part_ns = grid.part_ns(&range, index);
            cell.known_ns = cell.known_ns.saturating_add(part_ns);
            // A slice that spans several pixels is counted only in the pixel in which it begins.
            cell.switches = cell.switches.saturating_add(u32::from(begins == Some(index)));
            if slice.task.is_idle() {
                continue;
            }
            cell.busy_ns = cell.busy_ns.saturating_add(part_ns);
            if process == Some(slice.task.info.process) {
                cell.own_ns = cell.own_ns.saturating_add(part_ns);
            }
            let is_new = !self.threads.contains_key(&slice.task);
            if is_new && self.threads.len() >= CELL_THREADS_MAX {
                continue;
            }
            cell.threads = cell.threads.saturating_add(u32::from(is_new));
            let ran_ns = self.threads.entry(slice.task).or_default();
            *ran_ns = ran_ns.saturating_add(part_ns);
            let process = slice.task.info.process;
            let process_ns = self.processes.entry(process).or_default();
            *process_ns = process_ns.saturating_add(part_ns);
            if cell.top.is_none_or(|(_, top_ns)| *ran_ns > top_ns) {
                cell.top = Some((slice.task.info, *ran_ns));
            }
            if cell.top.is_some_and(|(top, _)| top.process == process) {
                cell.top_process_ns = *process_ns;
            }
        }
    }
}
