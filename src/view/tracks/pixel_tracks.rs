//! What each CPU did, pixel by pixel.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flatcap_tasks::{Task, TaskState, ThreadInfo};

use super::pixel_grid::PixelGrid;
use super::stretches::{Stretch, Stretches};
use super::wall_interval::{TrackObserver, WallInterval};

/// Most CPUs that are shown.
pub(super) const CPUS_MAX: usize = 1024;
/// Most threads that are told apart in a pixel of a CPU: more are as many, and none of them is the
/// one that ran longest.
const CELL_THREADS_MAX: usize = 4096;

/// What a CPU did in a pixel. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::view) struct TrackCell {
    /// How much of the pixel is known.
    pub(in crate::view) known_ns: u64,
    /// How long threads ran.
    pub(in crate::view) busy_ns: u64,
    /// How long those of the chosen process ran.
    pub(in crate::view) own_ns: u64,
    /// The thread that ran longest, and how long; none if none ran.
    pub(in crate::view) top: Option<(ThreadInfo, u64)>,
    /// How long all threads of its process ran.
    pub(in crate::view) top_process_ns: u64,
    /// How many threads ran.
    pub(in crate::view) threads: u32,
    /// How many slices began, those of the idle loop included.
    pub(in crate::view) switches: u32,
}

/// Who waited for a CPU in a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::view) struct WaitCell {
    /// How long threads waited in it, all together, in nanoseconds.
    pub(in crate::view) waited_ns: u64,
    /// How long the one that waited longest did, before and after the pixel too, in nanoseconds.
    pub(in crate::view) longest_ns: u64,
}

/// Folds what threads did into pixels, so that memory depends on their number alone.
#[derive(Debug, Clone)]
pub(in crate::view) struct PixelTracks {
    grid: PixelGrid,
    /// The process whose time is counted apart.
    process: Option<u32>,
    tracks: BTreeMap<u16, CpuTrack>,
    waiting: Vec<WaitCell>,
    stretches: Stretches,
    left_out: BTreeSet<u16>,
}

#[derive(Debug, Clone, Default)]
struct CpuTrack {
    cells: Vec<TrackCell>,
    /// The newest pixel that has slices: slices of a CPU follow each other.
    newest: usize,
    /// How long each thread, and each process, ran in it.
    threads: HashMap<Task, u64>,
    processes: HashMap<u32, u64>,
}

impl PixelTracks {
    pub(in crate::view) fn new(grid: PixelGrid, process: Option<u32>) -> Self {
        Self {
            grid,
            process,
            tracks: BTreeMap::new(),
            waiting: vec![WaitCell::default(); grid.count],
            stretches: Stretches::new(grid.pixel_ns),
            left_out: BTreeSet::new(),
        }
    }

    pub(in crate::view) fn grid(&self) -> PixelGrid {
        self.grid
    }

    pub(in crate::view) fn process(&self) -> Option<u32> {
        self.process
    }

    /// Returns how many CPUs have tracks.
    pub(in crate::view) fn cpus(&self) -> usize {
        self.tracks.len()
    }

    /// Returns how many CPUs have none, for there are too many.
    pub(in crate::view) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Returns the cells of each CPU in these pixels. Cells after the last one that is known are
    /// left out.
    pub(in crate::view) fn tracks(&self, pixels: &std::ops::Range<usize>) -> Vec<(u16, Vec<TrackCell>)> {
        let cells = |track: &CpuTrack| {
            let end = pixels.end.min(track.cells.len());
            track.cells.get(pixels.start..end).map_or(Vec::new(), <[_]>::to_vec)
        };
        self.tracks.iter().map(|(cpu, track)| (*cpu, cells(track))).collect()
    }

    pub(in crate::view) fn waiting(&self, pixels: &std::ops::Range<usize>) -> &[WaitCell] {
        self.waiting.get(pixels.clone()).unwrap_or_default()
    }

    /// Returns the times of which not everything is known.
    pub(in crate::view) fn stretches(&self, from_ns: i64, to_ns: i64) -> Vec<Stretch> {
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
    fn add(&mut self, grid: PixelGrid, process: Option<u32>, slice: &WallInterval) {
        let Some(range) = grid.range(slice.begin_ns, slice.end_ns) else { return };
        if self.cells.len() <= *range.pixels.end() {
            self.cells.resize(range.pixels.end() + 1, TrackCell::default());
        }
        let begins = grid.index(slice.begin_ns);
        for index in range.pixels.clone() {
            // Only a clock that was set back leads to an earlier pixel. Its threads are forgotten.
            if index != self.newest {
                self.newest = index;
                self.threads.clear();
                self.processes.clear();
            }
            let Some(cell) = self.cells.get_mut(index) else { continue };
            let part_ns = grid.part_ns(&range, index);
            cell.known_ns = cell.known_ns.saturating_add(part_ns);
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
