//! Tests that compare tracks with the recorded slices.

use std::collections::BTreeMap;

use flatcap_tasks::testing::SchedPayload;
use flatcap_tasks::{IntervalEnd, ThreadInfo};
use proptest::prelude::*;

use super::{PixelTracks, SchedReader, SchedSource, SliceTracks, StretchKind, TrackCell, TrackGrid};
use crate::test_recording::{START_MONO_NS, SchedSample, wall_of, write_sched};
use crate::test_schedule::{PlannedSlice, Schedule, samples, thread};

/// A recording that a test has written.
struct Recorded {
    folder: tempfile::TempDir,
}

impl Recorded {
    fn new(samples: &[SchedSample]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_sched(folder.path(), samples);
        Self { folder }
    }

    fn reader(&self, from_ns: i64, until_ns: i64) -> SchedReader {
        let paths = vec![self.folder.path().to_owned()];
        let source = SchedSource { paths, host: None, name: "sched".to_owned() };
        SchedReader::open(&source, from_ns, until_ns).unwrap()
    }

    /// Returns the tracks of a grid, and the reader that filled them one sample at a time.
    fn pixels(&self, grid: TrackGrid, process: Option<u32>) -> (PixelTracks, SchedReader) {
        let mut reader = self.reader(grid.begin_ns(0), grid.begin_ns(grid.count));
        let mut tracks = PixelTracks::new(grid, process);
        loop {
            let mut is_first = true;
            let mut may_go_on = || std::mem::replace(&mut is_first, false);
            if reader.advance(grid.begin_ns(grid.count), &mut tracks, &mut may_go_on).unwrap() {
                break;
            }
        }
        reader.open_intervals(&mut tracks);
        (tracks, reader)
    }

    fn slices(&self, from_ns: i64, to_ns: i64) -> SliceTracks {
        let mut slices = SliceTracks::new(from_ns..to_ns, 10_000, 10_000);
        let mut reader = self.reader(from_ns, to_ns);
        assert!(reader.advance(to_ns, &mut slices, &mut || true).unwrap());
        reader.open_intervals(&mut slices);
        slices
    }
}

/// Generates a schedule of random slices. Threads do not migrate between CPUs.
fn schedules() -> impl Strategy<Value = (Schedule, Vec<u64>)> {
    let slice = (0..5_u32, 1..2000_u64, any::<bool>());
    let cpu = prop::collection::vec(slice, 1..60);
    let cuts = prop::collection::vec(0..60_000_u64, 0..12);
    (prop::collection::vec(cpu, 1..4), cuts).prop_map(|(cpus, cuts)| {
        let mut schedule = Schedule::default();
        for (cpu, slices) in (0..).zip(cpus) {
            let mut last = None;
            let slices = slices.into_iter().filter_map(|(own, length_ns, is_preempted)| {
                // A CPU switches only to a different thread.
                if last.replace(own) == Some(own) {
                    return None;
                }
                let id = if own == 0 { 0 } else { 1000 * (cpu + 1) + own };
                Some((thread(id, id / 2, "task"), length_ns, is_preempted))
            });
            schedule.run(slices.collect::<Vec<_>>());
        }
        // The slices of all CPUs end at the same time.
        let end_ns = schedule.end_ns();
        for slices in &mut schedule.cpus {
            slices.retain(|slice| slice.begin_ns < end_ns);
            slices.last_mut().unwrap().end_ns = end_ns;
        }
        (schedule, cuts.into_iter().map(|cut| START_MONO_NS + cut).collect())
    })
}

/// Returns how many nanoseconds of a slice are in a wall time range.
fn overlap_ns(slice: &PlannedSlice, from_ns: i64, to_ns: i64) -> u64 {
    let (begin_ns, end_ns) = (wall_of(slice.begin_ns).max(from_ns), wall_of(slice.end_ns).min(to_ns));
    u64::try_from(end_ns - begin_ns).unwrap_or(0)
}

/// Computes a cell and the run time of each thread from all slices of the cell's CPU.
fn naive_cell(slices: &[PlannedSlice], from_ns: i64, to_ns: i64) -> (TrackCell, BTreeMap<u32, u64>) {
    let mut cell = TrackCell::default();
    let mut threads: BTreeMap<u32, u64> = BTreeMap::new();
    for slice in slices {
        let ran_ns = overlap_ns(slice, from_ns, to_ns);
        cell.known_ns += ran_ns;
        cell.switches += u32::from((from_ns..to_ns).contains(&wall_of(slice.begin_ns)));
        if ran_ns > 0 && slice.thread.thread != 0 {
            cell.busy_ns += ran_ns;
            *threads.entry(slice.thread.thread).or_default() += ran_ns;
        }
    }
    cell.threads = u32::try_from(threads.len()).unwrap();
    (cell, threads)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Proves that at every zoom, each pixel of each CPU has the run time, threads and switches of
    // its slices. Proves that it also has the thread that ran longest and the share of a process.
    #[test]
    fn pixels_have_what_was_recorded((schedule, cuts) in schedules(), pixel in 0..16_u32, offset in -3..3_i64) {
        let recorded = Recorded::new(&samples(&schedule.payloads(&cuts)));
        let pixel_ns = 1_i64 << pixel;
        let length_ns = wall_of(schedule.end_ns()) - wall_of(START_MONO_NS);
        let first = wall_of(START_MONO_NS).div_euclid(pixel_ns) - offset.abs();
        let count = usize::try_from((length_ns / pixel_ns + 8).min(3000)).unwrap();
        let grid = TrackGrid { pixel_ns, first, count };
        let (tracks, reader) = recorded.pixels(grid, Some(1000));
        prop_assert_eq!(reader.unreadable(), 0);
        prop_assert_eq!(tracks.stretches(i64::MIN, i64::MAX), vec![]);
        prop_assert_eq!((tracks.cpus(), reader.cpus()), (schedule.cpus.len(), schedule.cpus.len()));
        for ((_, cells), slices) in tracks.tracks(&(0..count)).iter().zip(&schedule.cpus) {
            for index in 0..count {
                let (from_ns, to_ns) = (grid.begin_ns(index), grid.begin_ns(index + 1));
                let (naive, threads) = naive_cell(slices, from_ns, to_ns);
                let cell = cells.get(index).copied().unwrap_or_default();
                let own: u64 = threads.iter().filter(|(id, _)| **id / 2 == 1000).map(|(_, ns)| *ns).sum();
                let bare = TrackCell { top: None, top_process_ns: 0, ..cell };
                prop_assert_eq!(bare, TrackCell { own_ns: own, ..naive });
                let longest = threads.values().max().copied();
                prop_assert_eq!(cell.top.map(|(_, top_ns)| top_ns), longest);
                if let Some((top, top_ns)) = cell.top {
                    prop_assert_eq!(threads.get(&top.thread), Some(&top_ns));
                    let of_process = threads.iter().filter(|(id, _)| **id / 2 == top.process);
                    prop_assert_eq!(cell.top_process_ns, of_process.map(|(_, ns)| *ns).sum::<u64>());
                }
            }
        }
    }

    // Proves that each recorded slice of a time range is returned exactly once, however the events
    // are divided into samples.
    #[test]
    fn slices_are_those_recorded((schedule, cuts) in schedules(), from in 0..20_000_i64, length in 1..50_000_i64) {
        let recorded = Recorded::new(&samples(&schedule.payloads(&cuts)));
        let from_ns = wall_of(START_MONO_NS) + from;
        let to_ns = from_ns + length;
        let slices = recorded.slices(from_ns, to_ns);
        prop_assert!(!slices.is_too_much());
        let (tracks, stretches) = slices.into_parts();
        prop_assert_eq!(stretches, vec![]);
        let tracks: BTreeMap<_, _> = tracks.into_iter().collect();
        for (cpu, planned) in (0_u16..).zip(&schedule.cpus) {
            let wanted = planned.iter().filter(|slice| overlap_ns(slice, from_ns, to_ns) > 0);
            let cut = |thread: ThreadInfo, begin_ns: i64, end_ns: i64| {
                (thread, begin_ns.max(from_ns), end_ns.min(to_ns))
            };
            let wanted: Vec<_> =
                wanted.map(|slice| cut(slice.thread, wall_of(slice.begin_ns), wall_of(slice.end_ns))).collect();
            let found = tracks.get(&cpu).into_iter().flatten();
            let found: Vec<_> = found
                .map(|slice| {
                    let thread = if slice.thread.thread == 0 { thread(0, 0, "task") } else { slice.thread };
                    cut(thread, slice.begin_ns, slice.end_ns)
                })
                .filter(|(_, begin_ns, end_ns)| begin_ns < end_ns)
                .collect();
            prop_assert_eq!(found, wanted);
        }
    }
}

fn one_thread() -> Schedule {
    let mut schedule = Schedule::default();
    schedule.run(
        (0..100)
            .map(|_| (thread(7, 7, "loop"), 1000, true))
            .flat_map(|slice| [slice, (thread(8, 7, "more"), 1000, true)]),
    );
    schedule
}

/// Returns payloads that each cover 10 us.
fn payloads(schedule: &Schedule) -> Vec<SchedPayload> {
    let cuts: Vec<u64> = (1..20).map(|cut| START_MONO_NS + cut * 10_000).collect();
    schedule.payloads(&cuts)
}

// Proves that time without a sample is shown as not recorded, and neither as idle nor as busy.
#[test]
fn gaps_are_no_data() {
    let schedule = one_thread();
    let mut samples = samples(&payloads(&schedule));
    samples.drain(5..8);
    let recorded = Recorded::new(&samples);
    let (lost_from, lost_to) = (wall_of(START_MONO_NS + 50_000), wall_of(START_MONO_NS + 80_000));
    let grid = TrackGrid { pixel_ns: 1024, first: wall_of(START_MONO_NS) / 1024, count: 300 };
    let (tracks, _) = recorded.pixels(grid, None);
    let stretches = tracks.stretches(i64::MIN, i64::MAX);
    let found: Vec<_> = stretches.iter().map(|one| (one.kind, one.begin_ns, one.end_ns)).collect();
    assert_eq!(found, vec![(StretchKind::NotRecorded, lost_from, lost_to)]);
    let (_, cells) = &tracks.tracks(&(0..300))[0];
    for (index, cell) in cells.iter().enumerate() {
        let (from_ns, to_ns) = (grid.begin_ns(index), grid.begin_ns(index + 1));
        if from_ns >= lost_from && to_ns <= lost_to {
            assert_eq!(*cell, TrackCell::default());
        }
    }
    let (slices, _) = recorded.slices(lost_from - 5000, lost_to + 5000).into_parts();
    let is_inside = |begin_ns: i64, end_ns: i64| begin_ns < lost_to && end_ns > lost_from;
    assert!(!slices[0].1.iter().any(|slice| is_inside(slice.begin_ns, slice.end_ns)));
    assert!(slices[0].1.iter().any(|slice| slice.end == IntervalEnd::Lost));
}

// Proves that dropped records and stopped switches are reported as ranges with their counts, and
// that nothing is known about stopped time.
#[test]
fn dropped_records_and_stops_are_stretches() {
    let mut payloads = payloads(&one_thread());
    for (at, payload) in payloads.iter_mut().enumerate() {
        payload.lost = if at >= 3 { 12 } else { 5 };
        let stopped = at.clamp(10, 13) as u64 - 10;
        payload.stopped_ns = stopped * 10_000;
        payload.is_stopped = (10..13).contains(&at);
        if (11..14).contains(&at) {
            payload.switches.clear();
            payload.running.clear();
        }
    }
    let recorded = Recorded::new(&samples(&payloads));
    let grid = TrackGrid { pixel_ns: 1024, first: wall_of(START_MONO_NS) / 1024, count: 300 };
    let (tracks, _) = recorded.pixels(grid, None);
    let at = |us: u64| wall_of(START_MONO_NS + us * 1000);
    let stretches = tracks.stretches(i64::MIN, i64::MAX);
    let found: Vec<_> = stretches.iter().map(|one| (one.kind, one.begin_ns, one.end_ns, one.lost)).collect();
    let wanted = [(StretchKind::Lost, at(30), at(40), 7), (StretchKind::Stopped, at(110), at(140), 0)];
    assert_eq!(found, wanted);
    let (_, cells) = &tracks.tracks(&(0..300))[0];
    let stopped = grid.index(at(110)).unwrap() + 1..grid.index(at(140)).unwrap();
    assert!(cells[stopped].iter().all(|cell| cell.known_ns == 0), "nothing is known while stopped");
}

// Proves that a slice has the times for which its thread was ready and slept, and the thread that
// woke it.
#[test]
fn slices_know_what_their_threads_waited_for() {
    let (idle, worker, waker) = (thread(0, 0, ""), thread(7, 7, "worker"), thread(9, 9, "waker"));
    let mut schedule = Schedule::default();
    schedule.run([(worker, 1000, false), (idle, 4000, true), (worker, 1000, true), (idle, 1000, true)]);
    schedule.run([(waker, 7000, true)]);
    schedule.wakeups.push((START_MONO_NS + 4400, 1, worker, waker));
    let recorded = Recorded::new(&samples(&schedule.payloads(&[])));
    let from_ns = wall_of(START_MONO_NS);
    let (tracks, _) = recorded.slices(from_ns, from_ns + 7000).into_parts();
    let slice = tracks[0].1.iter().find(|slice| slice.begin_ns == from_ns + 5000).unwrap();
    let waited = slice.waited;
    assert_eq!((waited.slept_ns, waited.ready_ns, waited.waker), (Some(3400), Some(600), Some(waker)));
    assert_eq!((slice.thread, slice.end), (worker, IntervalEnd::Preempted));
    let grid = TrackGrid { pixel_ns: 8192, first: from_ns / 8192, count: 3 };
    let (tracks, reader) = recorded.pixels(grid, None);
    assert!(reader.has_wakeups());
    let waited: u64 = tracks.waiting(&(0..3)).iter().map(|cell| cell.waited_ns).sum();
    // The worker waits again between its second slice and the end.
    assert_eq!(waited, 600 + 1000);
}

// Proves that invalid payloads are counted and skipped, and that reading continues.
#[test]
fn damaged_payloads_are_counted() {
    let mut samples = samples(&payloads(&one_thread()));
    samples[4].2 = vec![0xff; 64];
    samples[9].2.truncate(8);
    let recorded = Recorded::new(&samples);
    let grid = TrackGrid { pixel_ns: 1024, first: wall_of(START_MONO_NS) / 1024, count: 300 };
    let (tracks, reader) = recorded.pixels(grid, None);
    assert_eq!(reader.unreadable(), 2);
    assert_eq!(reader.reached_ns(), Some(wall_of(START_MONO_NS + 200_000)));
    assert_eq!(tracks.stretches(i64::MIN, i64::MAX).len(), 2);
}
