//! Reads which thread ran on each CPU. One thread owns a reader and its open timelines.

use std::collections::BTreeSet;

use flatcap_os::clock::monotonic_ns;

use super::api_request::{TasksRequest, WallRange};
use super::tasks_answer::{CELLS_MAX, SLICES_MAX, THREADS_MAX, TasksAnswer, TracksAnswer};
use crate::ViewError;
use crate::tracks::{PixelTracks, SchedReader, SchedSource, SliceTracks, TrackCell, TrackGrid};

/// Maximum number of open timelines. A timeline takes about 4 MB.
// This number is enough for the zooms of one page.
const TIMELINES_MAX: usize = 8;
/// Maximum reading time per answer, in nanoseconds. If this time is not enough, the answer has the
/// result so far. The page then repeats the request.
const READ_NS: u64 = 250_000_000;
/// Length of the time before the displayed range that is also read, in nanoseconds.
// Threads that run at the start of the displayed range may have waited before it.
const LEAD_NS: i64 = 100_000_000;
/// A timeline starts at a multiple of its width divided by this number.
// With this alignment, one timeline can be reused while the page scrolls.
const ALIGNED_PART: u32 = 3;

/// Reads the timeline of the CPUs.
#[derive(Debug, Default)]
pub(super) struct TasksReader {
    /// The open timelines, from the least to the most recently used.
    timelines: Vec<OpenTimeline>,
    /// Number of CPUs that are known so far.
    cpus: usize,
}

#[derive(Debug)]
struct OpenTimeline {
    source: String,
    is_growing: bool,
    reader: SchedReader,
    tracks: PixelTracks,
}

impl TasksReader {
    pub(super) fn read(
        &mut self,
        source: &SchedSource,
        is_growing: bool,
        request: &TasksRequest,
    ) -> Result<TasksAnswer, ViewError> {
        let deadline_ns = monotonic_ns() + READ_NS;
        let WallRange { from_ns, to_ns } = request.wall_ns;
        let (timeline, is_complete) = loop {
            // The number of CPUs is known only after reading.
            let pixels_max = u32::try_from(CELLS_MAX / self.cpus.max(1)).unwrap_or(u32::MAX).max(1);
            let pixels = request.pixels.min(pixels_max);
            let grid = grid(request.wall_ns, pixels);
            let mut timeline = self.take(source, is_growing, grid, request)?;
            if is_growing {
                timeline.reader.refresh()?;
            }
            let mut may_go_on = || monotonic_ns() < deadline_ns;
            let is_complete = timeline.reader.advance(to_ns, &mut timeline.tracks, &mut may_go_on)?;
            self.cpus = self.cpus.max(timeline.tracks.cpus()).max(timeline.reader.cpus());
            // If there are more CPUs than expected, each CPU gets fewer pixels.
            if u32::try_from(CELLS_MAX / self.cpus.max(1)).is_ok_and(|most| most.max(1) >= pixels) {
                break (timeline, is_complete);
            }
        };
        // The open intervals still grow, so they are added to a copy.
        let mut tracks = timeline.tracks.clone();
        timeline.reader.open_intervals(&mut tracks);
        let mut answer = pixels_answer(&tracks, request.wall_ns);
        answer.is_complete = is_complete;
        answer.has_wakeups = timeline.reader.has_wakeups();
        answer.unreadable = timeline.reader.unreadable();
        self.timelines.push(timeline);
        if self.timelines.len() > TIMELINES_MAX {
            self.timelines.remove(0);
        }
        if is_complete && answer.has_few_slices() {
            read_slices(source, from_ns..to_ns, &mut answer)?;
        }
        Ok(answer)
    }

    /// Removes an open timeline from the list and returns it, if it covers the requested range.
    /// Otherwise opens a timeline with this grid.
    fn take(
        &mut self,
        source: &SchedSource,
        is_growing: bool,
        grid: TrackGrid,
        request: &TasksRequest,
    ) -> Result<OpenTimeline, ViewError> {
        let WallRange { from_ns, to_ns } = request.wall_ns;
        let is_usable = |timeline: &OpenTimeline| {
            let own = timeline.tracks.grid();
            (&timeline.source, timeline.is_growing) == (&source.name, is_growing)
                && (own.pixel_ns, timeline.tracks.process()) == (grid.pixel_ns, request.process)
                && own.index(from_ns).is_some()
                && own.index(to_ns - 1).is_some()
        };
        if let Some(place) = self.timelines.iter().position(is_usable) {
            return Ok(self.timelines.remove(place));
        }
        let reader = SchedReader::open(source, grid.begin_ns(0), grid.begin_ns(grid.count))?;
        let tracks = PixelTracks::new(grid, request.process);
        Ok(OpenTimeline { source: source.name.clone(), is_growing, reader, tracks })
    }
}

/// Returns the grid of a timeline that covers a range.
fn grid(wall_ns: WallRange, pixels: u32) -> TrackGrid {
    let shortest_ns = wall_ns.length_ns().div_ceil(pixels.into()).max(1);
    let pixel_ns =
        i64::try_from(shortest_ns.checked_next_power_of_two().unwrap_or(u64::MAX)).unwrap_or(1 << 62);
    let aligned = i64::from((pixels / ALIGNED_PART).max(1));
    let first = wall_ns.from_ns.div_euclid(pixel_ns).div_euclid(aligned) * aligned;
    // One more pixel is needed, because the range need not start at a pixel boundary.
    let count = i64::from(pixels) + aligned + 1;
    TrackGrid { pixel_ns, first, count: usize::try_from(count).unwrap_or(0) }
}

/// Returns the answer with the pixels of a range.
fn pixels_answer(tracks: &PixelTracks, wall_ns: WallRange) -> TasksAnswer {
    let WallRange { from_ns, to_ns } = wall_ns;
    let grid = tracks.grid();
    let first = grid.index(from_ns).unwrap_or(0);
    let pixels = first..grid.index(to_ns - 1).map_or(first, |last| last + 1);
    TasksAnswer {
        pixel_ns: grid.pixel_ns,
        first_ns: grid.begin_ns(first),
        is_complete: true,
        has_wakeups: false,
        left_out: tracks.left_out(),
        unreadable: 0,
        stretches: tracks.stretches(from_ns, to_ns),
        waiting: tracks.waiting(&pixels).to_vec(),
        tracks: TracksAnswer::Pixels(tracks.tracks(&pixels)),
    }
}

/// Replaces pixels by slices, unless there are too many slices for an answer.
fn read_slices(
    source: &SchedSource,
    wall_ns: std::ops::Range<i64>,
    answer: &mut TasksAnswer,
) -> Result<(), ViewError> {
    let mut slices = SliceTracks::new(wall_ns.clone(), SLICES_MAX, THREADS_MAX);
    let mut reader = SchedReader::open(source, wall_ns.start.saturating_sub(LEAD_NS), wall_ns.end)?;
    // This read has no time limit. It is short, because slices are read only for ranges that have
    // few of them.
    let is_complete = reader.advance(wall_ns.end, &mut slices, &mut || true)?;
    reader.open_intervals(&mut slices);
    if is_complete && !slices.is_too_much() {
        let tracks: BTreeSet<u16> = answer.cpus().collect();
        let (mut found, stretches) = slices.into_parts();
        // A CPU without known activity in this range keeps its track.
        let known: BTreeSet<u16> = found.iter().map(|(cpu, _)| *cpu).collect();
        found.extend(tracks.difference(&known).map(|cpu| (*cpu, Vec::new())));
        found.retain(|(cpu, _)| tracks.contains(cpu));
        found.sort_by_key(|(cpu, _)| *cpu);
        answer.stretches = stretches;
        answer.tracks = TracksAnswer::Slices(found);
    }
    Ok(())
}

impl TasksAnswer {
    fn cpus(&self) -> impl Iterator<Item = u16> {
        let cpus: Vec<u16> = match &self.tracks {
            TracksAnswer::Slices(tracks) => tracks.iter().map(|(cpu, _)| *cpu).collect(),
            TracksAnswer::Pixels(tracks) => tracks.iter().map(|(cpu, _)| *cpu).collect(),
        };
        cpus.into_iter()
    }

    /// Returns whether all slices fit into an answer. These are the slices that started in the
    /// answer's pixels, and the last earlier slice of each CPU.
    fn has_few_slices(&self) -> bool {
        let TracksAnswer::Pixels(tracks) = &self.tracks else { return false };
        let began = |cells: &[TrackCell]| cells.iter().map(|cell| u64::from(cell.switches)).sum::<u64>();
        let slices: u64 = tracks.iter().map(|(_, cells)| began(cells).saturating_add(1)).sum();
        slices <= SLICES_MAX as u64
    }
}
