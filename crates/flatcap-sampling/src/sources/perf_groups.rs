//! Groups of counters of `perf`. The module decides which events are counted together, and opens
//! and reads the groups.

use std::io::{self, ErrorKind};

use flatcap_os::perf::{CountTarget, CounterGroup, CounterValue, EventCode};

use crate::{Incomplete, PerfEvent};

/// Maximum number of hardware events in one group. A group counts only if all its events fit into
/// the processor's counters. Most processors have at least four counters, and the kernel's watchdog
/// uses one of them.
const HARDWARE_GROUP_MAX: usize = 4;

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;
const MISSES: u64 = 1 << 16;

/// Returns the groups of events that are counted together, as indices into `events`. A group has a
/// few hardware events, or all software events. The group of software events is never multiplexed.
pub(super) fn group_events(events: &[PerfEvent]) -> Vec<Vec<usize>> {
    let is_software = |at: &usize| events.get(*at).is_some_and(|event| event_code(*event).kind == SOFTWARE);
    let (software, hardware): (Vec<usize>, Vec<usize>) = (0..events.len()).partition(is_software);
    let hardware = hardware.chunks(HARDWARE_GROUP_MAX).map(<[usize]>::to_vec);
    hardware.chain((!software.is_empty()).then_some(software)).collect()
}

/// Opens the groups of events that `layout` lists. A group that the processor cannot hold is split.
/// An event that cannot be counted here is skipped, and its error is returned.
pub(super) fn open_groups(
    at: CountTarget,
    events: &[PerfEvent],
    layout: &[Vec<usize>],
) -> (Vec<(CounterGroup, Vec<usize>)>, Option<io::Error>) {
    let mut groups: Vec<(CounterGroup, Vec<usize>)> = Vec::new();
    let mut refusal = None;
    for together in layout {
        let mut is_new = true;
        for place in together {
            let Some(event) = events.get(*place).map(|event| event_code(*event)) else { continue };
            let joined = match groups.last_mut().filter(|_| !is_new) {
                Some((group, places)) => group.add(event).map(|()| places.push(*place)),
                None => Err(ErrorKind::InvalidInput.into()),
            };
            if joined.is_ok() {
                continue;
            }
            match CounterGroup::open(at, event) {
                Ok(group) => {
                    groups.push((group, vec![*place]));
                    is_new = false;
                }
                Err(error) => refusal = Some(error),
            }
        }
    }
    for (group, _) in &groups {
        if let Err(error) = group.start() {
            refusal = Some(error);
        }
    }
    (groups, refusal)
}

/// Reads the counters of groups, and stores the values in `counts`. Returns false if a group could
/// not be read.
pub(super) fn read_groups(
    groups: &[(CounterGroup, Vec<usize>)],
    counts: &mut [Option<CounterValue>],
) -> bool {
    let mut all_read = true;
    for (group, places) in groups {
        let mut places = places.iter();
        let read = group.read(|count| {
            if let Some(place) = places.next().and_then(|place| counts.get_mut(*place)) {
                *place = Some(count);
            }
        });
        all_read &= read.is_ok();
    }
    all_read
}

/// Returns the reason why a sample is incomplete if a counter could not be opened.
pub(super) fn incomplete_reason(error: &io::Error) -> Incomplete {
    match error.kind() {
        ErrorKind::PermissionDenied => Incomplete::DENIED,
        // The process or the host has too many open files (EMFILE, ENFILE).
        _ if matches!(error.raw_os_error(), Some(23 | 24)) => Incomplete::TOO_MANY,
        _ => Incomplete::MISSING,
    }
}

/// Returns the type and the code by which the kernel identifies an event
/// (`include/uapi/linux/perf_event.h`).
pub(super) fn event_code(event: PerfEvent) -> EventCode {
    let (kind, config) = match event {
        PerfEvent::Cycles => (HARDWARE, 0),
        PerfEvent::Instructions => (HARDWARE, 1),
        PerfEvent::CacheReferences => (HARDWARE, 2),
        PerfEvent::CacheMisses => (HARDWARE, 3),
        PerfEvent::Branches => (HARDWARE, 4),
        PerfEvent::BranchMisses => (HARDWARE, 5),
        PerfEvent::BusCycles => (HARDWARE, 6),
        PerfEvent::StalledCyclesFrontend => (HARDWARE, 7),
        PerfEvent::StalledCyclesBackend => (HARDWARE, 8),
        PerfEvent::RefCycles => (HARDWARE, 9),
        PerfEvent::CpuClock => (SOFTWARE, 0),
        PerfEvent::TaskClock => (SOFTWARE, 1),
        PerfEvent::PageFaults => (SOFTWARE, 2),
        PerfEvent::ContextSwitches => (SOFTWARE, 3),
        PerfEvent::CpuMigrations => (SOFTWARE, 4),
        PerfEvent::MinorFaults => (SOFTWARE, 5),
        PerfEvent::MajorFaults => (SOFTWARE, 6),
        PerfEvent::AlignmentFaults => (SOFTWARE, 7),
        PerfEvent::EmulationFaults => (SOFTWARE, 8),
        // Bits 0 to 7 are the cache. Bits 8 to 15 are the operation, which is 0 for reads. Bits 16
        // to 23 are the result, which is 1 for misses.
        PerfEvent::L1DcacheLoads => (CACHE, 0),
        PerfEvent::L1DcacheLoadMisses => (CACHE, MISSES),
        PerfEvent::L1IcacheLoadMisses => (CACHE, 1 | MISSES),
        PerfEvent::LlcLoads => (CACHE, 2),
        PerfEvent::LlcLoadMisses => (CACHE, 2 | MISSES),
        PerfEvent::DtlbLoadMisses => (CACHE, 3 | MISSES),
        PerfEvent::ItlbLoadMisses => (CACHE, 4 | MISSES),
        PerfEvent::NodeLoadMisses => (CACHE, 6 | MISSES),
    };
    EventCode { kind, config }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that hardware events are grouped a few at a time, and software events all together.
    #[test]
    fn groups_fit_processors() {
        let events = [
            PerfEvent::Cycles,
            PerfEvent::TaskClock,
            PerfEvent::Instructions,
            PerfEvent::CacheMisses,
            PerfEvent::BranchMisses,
            PerfEvent::LlcLoads,
            PerfEvent::PageFaults,
        ];
        assert_eq!(group_events(&events), [vec![0, 2, 3, 4], vec![5], vec![1, 6]]);
    }
}
