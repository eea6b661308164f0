//! `perf`: hardware, software and cache counters of each core, and of chosen processes.

use std::io::{self, ErrorKind};

use flatbuffers::FlatBufferBuilder;

use super::text::{self, ABSENT};
use super::threads::CountedProcesses;
use super::{Entry, Opening, Unavailable, host_file};
use crate::config::PerfEvent;
use crate::os::host::HostFile;
use crate::os::perf::{Count, CounterGroup, EventCode, Where, open_more_files};
use crate::sampling::{Opened, ReadError, Sampler, Shortfall};
use crate::schema::host::{CoreCount, CountedEvent, Perf, PerfArgs, ProcessCount};

const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";
const ONLINE: &str = "sys/devices/system/cpu/online";
const WITHOUT: &str = ": this kernel has no performance counters (CONFIG_PERF_EVENTS)";
/// Most cores; Linux is built for at most as many.
const CORES_MAX: usize = 8192;
/// Hardware events in one group: a group counts only when all of it fits into a processor's counters, of which most have
/// at least four and the kernel's watchdog holds one.
const HARDWARE_GROUP_MAX: usize = 4;

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;
const MISSES: u64 = 1 << 16;

/// `include` and `exclude` match the names of the events. Each event on each core is an open file.
pub(super) const ENTRY: Entry = Entry {
    name: "perf",
    root: "flatcap.host.Perf",
    schema: include_bytes!("../../../generated/host/perf.bfbs"),
    files: &[PARANOID, ONLINE],
    refresh: "at once",
    selects: "events, such as cycles",
    needs: &["CAP_PERFMON"],
    open,
};

fn open(opening: &Opening<'_>) -> Result<Opened, Unavailable> {
    let paranoid = host_file(opening.host, PARANOID, WITHOUT)?;
    let online = host_file(opening.host, ONLINE, "")?;
    let Some(config) = opening.config.perf.as_ref() else {
        return Err(Unavailable::of(ErrorKind::InvalidInput.into()));
    };
    let selection = opening.selection();
    let wanted: Vec<PerfEvent> =
        config.events.iter().copied().filter(|event| selection.wants(event.as_str().as_bytes())).collect();
    open_more_files();
    let mut cores = Vec::new();
    list(online.content(), &mut cores);
    let Some(first) = cores.first() else {
        return Err(Unavailable { file: ONLINE, error: ErrorKind::InvalidData.into(), hint: "" });
    };
    let events = countable(&wanted, Where::Core(*first), paranoid.content())?;
    let processes = CountedProcesses::open(opening.host, &config.processes)?;
    let mut sampler = PerfSampler {
        online,
        listed: Vec::new(),
        numbers: cores,
        groups: layout(&events),
        events,
        cores: Vec::new(),
        opening: Shortfall::NONE,
        processes,
        rows: Vec::new(),
        process_rows: Vec::new(),
    };
    sampler.follow_cores();
    Ok(Opened::built(sampler))
}

/// The events that the kernel counts here; the others are told in one line.
fn countable(wanted: &[PerfEvent], at: Where, paranoid: &[u8]) -> Result<Vec<PerfEvent>, Unavailable> {
    let mut events = Vec::new();
    let mut refused: Vec<(&str, io::Error)> = Vec::new();
    for event in wanted {
        match CounterGroup::open(at, code(*event)) {
            Ok(_) => events.push(*event),
            Err(error) => refused.push((event.as_str(), error)),
        }
    }
    let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    if !events.is_empty() {
        if !refused.is_empty() {
            tracing::info!(source = "perf", "this host does not count {names}: left out");
        }
        return Ok(events);
    }
    let Some((_, error)) = refused.pop() else {
        let all_excluded = io::Error::new(ErrorKind::InvalidInput, "include and exclude leave no event");
        return Err(Unavailable::of(all_excluded));
    };
    if error.kind() != ErrorKind::PermissionDenied {
        return Err(Unavailable::of(io::Error::new(
            error.kind(),
            format!("this host does not count {names}: {error}"),
        )));
    }
    let level = String::from_utf8_lossy(paranoid.trim_ascii()).into_owned();
    Err(Unavailable::of(io::Error::new(
        error.kind(),
        format!(
            "perf_event_open: {error}: counting on whole cores needs CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), or \
             kernel.perf_event_paranoid of at most 0, which is {level}"
        ),
    )))
}

/// Which events, by their places in the list, count together: hardware a few at a time, software all at once and never taking
/// turns.
fn layout(events: &[PerfEvent]) -> Vec<Vec<usize>> {
    let is_software = |at: &usize| events.get(*at).is_some_and(|event| code(*event).kind == SOFTWARE);
    let (software, hardware): (Vec<usize>, Vec<usize>) = (0..events.len()).partition(is_software);
    let hardware = hardware.chunks(HARDWARE_GROUP_MAX).map(<[usize]>::to_vec);
    hardware.chain((!software.is_empty()).then_some(software)).collect()
}

/// Opens groups as they are laid out. A group that the processor cannot hold is split; an event that cannot be counted here
/// is left out, and with it the reason told.
pub(super) fn open_groups(
    at: Where,
    events: &[PerfEvent],
    layout: &[Vec<usize>],
) -> (Vec<(CounterGroup, Vec<usize>)>, Option<io::Error>) {
    let mut groups: Vec<(CounterGroup, Vec<usize>)> = Vec::new();
    let mut refusal = None;
    for together in layout {
        let mut is_new = true;
        for place in together {
            let Some(event) = events.get(*place).map(|event| code(*event)) else { continue };
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

/// Reads groups into the places of their events; false if one could not be read.
pub(super) fn read_groups(groups: &[(CounterGroup, Vec<usize>)], counts: &mut [Option<Count>]) -> bool {
    let mut are_read = true;
    for (group, places) in groups {
        let mut places = places.iter();
        let read = group.read(|count| {
            if let Some(place) = places.next().and_then(|place| counts.get_mut(*place)) {
                *place = Some(count);
            }
        });
        are_read &= read.is_ok();
    }
    are_read
}

#[derive(Debug)]
struct PerfSampler {
    online: HostFile,
    listed: Vec<u8>,   // the list of cores that `cores` was made of
    numbers: Vec<u32>, // reused
    events: Vec<PerfEvent>,
    groups: Vec<Vec<usize>>,
    cores: Vec<Core>, // in the order of their numbers
    opening: Shortfall,
    processes: CountedProcesses,
    rows: Vec<CoreCount>,            // reused
    process_rows: Vec<ProcessCount>, // reused
}

/// The counters of one core.
#[derive(Debug)]
struct Core {
    number: u32,
    groups: Vec<(CounterGroup, Vec<usize>)>,
    counts: Vec<Option<Count>>, // one an event, of the last reading
    are_read: bool,
}

impl Sampler for PerfSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.online.read().map_err(|error| ReadError { file: ONLINE, error })?;
        if self.online.content() != self.listed {
            self.follow_cores();
        }
        for core in &mut self.cores {
            core.counts.fill(None);
            core.are_read = read_groups(&core.groups, &mut core.counts);
        }
        self.processes.read(&self.events, &self.groups);
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Shortfall {
        let mut shortfall = self.opening | self.processes.shortfall();
        self.rows.clear();
        for core in &self.cores {
            shortfall |= Shortfall::MISSING.unless(core.are_read);
            for (event, count) in self.events.iter().zip(&core.counts) {
                let [value, time_enabled, time_running, scaled] = columns(*count, &mut shortfall);
                let number = u64::from(core.number);
                self.rows.push(CoreCount::new(
                    number,
                    counted(*event),
                    value,
                    time_enabled,
                    time_running,
                    scaled,
                ));
            }
        }
        self.process_rows.clear();
        for (process, name, counts) in self.processes.counts() {
            for (event, count) in self.events.iter().zip(counts) {
                let [value, time_enabled, time_running, scaled] = columns(*count, &mut shortfall);
                self.process_rows.push(ProcessCount::new(
                    process,
                    name,
                    counted(*event),
                    value,
                    time_enabled,
                    time_running,
                    scaled,
                ));
            }
        }
        let cores = Some(builder.create_vector(&self.rows));
        let processes = Some(builder.create_vector(&self.process_rows));
        let root = Perf::create(builder, &PerfArgs { cores, processes });
        builder.finish_minimal(root);
        shortfall
    }
}

impl PerfSampler {
    /// Opens counters on cores that came, and closes those of cores that went.
    fn follow_cores(&mut self) {
        self.listed.clear();
        self.listed.extend_from_slice(self.online.content());
        let is_whole = list(&self.listed, &mut self.numbers);
        let Self { numbers, cores, events, groups, opening, .. } = self;
        *opening = Shortfall::UNREADABLE.unless(is_whole);
        cores.retain(|core| numbers.contains(&core.number));
        for number in numbers {
            if let Err(place) = cores.binary_search_by_key(number, |core| core.number) {
                let (groups, refusal) = open_groups(Where::Core(*number), events, groups);
                *opening |= refusal.map_or(Shortfall::NONE, |error| reason(&error));
                let counts = vec![None; events.len()];
                cores.insert(place, Core { number: *number, groups, counts, are_read: true });
            }
        }
    }
}

/// What a sample lacks where a counter could not be opened.
pub(super) fn reason(error: &io::Error) -> Shortfall {
    match error.kind() {
        ErrorKind::PermissionDenied => Shortfall::DENIED,
        // Too many open files.
        _ if matches!(error.raw_os_error(), Some(23 | 24)) => Shortfall::TOO_MANY,
        _ => Shortfall::MISSING,
    }
}

/// Value, time enabled, time running and scaled value. An event that had no turn has no value.
fn columns(count: Option<Count>, shortfall: &mut Shortfall) -> [u64; 4] {
    let Some(Count { value, time_enabled, time_running }) = count else { return [ABSENT; 4] };
    let scaled = if time_running == time_enabled {
        Some(value)
    } else {
        let scaled = u128::from(value) * u128::from(time_enabled);
        scaled.checked_div(u128::from(time_running)).and_then(|scaled| u64::try_from(scaled).ok())
    };
    let had_turn = time_running > 0 || time_enabled == 0;
    *shortfall |= Shortfall::UNREADABLE.unless(had_turn && scaled.is_some());
    [if had_turn { value } else { ABSENT }, time_enabled, time_running, scaled.unwrap_or(ABSENT)]
}

/// Reads a list such as `0-3,5,7-8`. False if it is none, or names more cores than there can be; what was read until then holds.
fn list(content: &[u8], numbers: &mut Vec<u32>) -> bool {
    numbers.clear();
    let (mut lines, cut) = text::whole_lines(content);
    let number = |text: &[u8]| text::number(text).and_then(|number| u32::try_from(number).ok());
    for range in lines.next().unwrap_or_default().split(|byte| *byte == b',') {
        let mut ends = range.splitn(2, |byte| *byte == b'-');
        let Some(first) = ends.next().and_then(number) else { return false };
        let last = match ends.next() {
            Some(last) => number(last),
            None => Some(first),
        };
        let next = numbers.last().map_or(0, |last| last + 1);
        let Some(last) = last.filter(|last| first >= next && *last >= first) else { return false };
        if last as usize >= CORES_MAX {
            return false;
        }
        numbers.extend(first..=last);
    }
    cut.is_none()
}

/// The kernel's numbers of an event: `include/uapi/linux/perf_event.h`.
fn code(event: PerfEvent) -> EventCode {
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
        // The cache in bits 0 to 7, reads in 8 to 15, misses in 16 to 23.
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

/// The schema has the events in the order of the configuration.
fn counted(event: PerfEvent) -> CountedEvent {
    CountedEvent(event as u64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sampling::sources::tests::{opened, sampled_under};

    fn rows(payload: &[u8]) -> Vec<CoreCount> {
        flatbuffers::root::<Perf<'_>>(payload).unwrap().cores().iter().copied().collect()
    }

    /// Whether this host lets us count.
    fn is_here() -> bool {
        let opened = opened(&ENTRY, "events = [\"context-switches\"]", Path::new("/"));
        if let Err(missing) = &opened {
            println!("passed over: {missing}");
        }
        opened.is_ok()
    }

    // Goal: each event of the configuration has its name in the schema. Method: all of them, by their words.
    #[test]
    fn events_have_the_names_of_the_schema() {
        for event in PerfEvent::ALL {
            let name = counted(*event).variant_name().unwrap().to_lowercase();
            assert_eq!(event.as_str().replace('-', ""), name);
        }
        assert_eq!(CountedEvent::ENUM_MAX + 1, PerfEvent::ALL.len() as u64);
    }

    // Goal: counts are scaled without overflow, and no turn is no value. Method: by hand.
    #[test]
    fn counts_are_scaled() {
        let columns = |value, time_enabled, time_running| {
            let mut shortfall = Shortfall::NONE;
            let columns = columns(Some(Count { value, time_enabled, time_running }), &mut shortfall);
            (columns, shortfall)
        };
        assert_eq!(columns(10, 7, 7), ([10, 7, 7, 10], Shortfall::NONE));
        assert_eq!(columns(10, 9, 3), ([10, 9, 3, 30], Shortfall::NONE));
        assert_eq!(columns(0, 0, 0), ([0, 0, 0, 0], Shortfall::NONE));
        assert_eq!(columns(0, 9, 0), ([ABSENT, 9, 0, ABSENT], Shortfall::UNREADABLE));
        let large = u64::MAX / 3;
        assert_eq!(columns(large, 2 << 60, 1 << 60).0[3], large * 2);
        assert_eq!(
            columns(large, 4 << 60, 1 << 60),
            ([large, 4 << 60, 1 << 60, ABSENT], Shortfall::UNREADABLE)
        );
    }

    // Goal: lists of cores are read exactly, and never more than there can be. Method: by hand, damaged and hostile ones.
    #[test]
    fn lists_of_cores_are_read() {
        let mut numbers = Vec::new();
        assert!(list(b"0-2,5,7-8\n", &mut numbers));
        assert_eq!(numbers, [0, 1, 2, 5, 7, 8]);
        assert!(list(b"3\n", &mut numbers) && numbers == [3]);
        for wrong in
            [&b""[..], b"\n", b"0-", b"x\n", b"2-1\n", b"1,1\n", b"0-99999999\n", b"0-1", b"4294967296\n"]
        {
            assert!(!list(wrong, &mut numbers), "{wrong:?}");
            assert!(numbers.len() <= 2);
        }
    }

    // Goal: hardware events count a few together, software events all. Method: the default and some more.
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
        assert_eq!(layout(&events), [vec![0, 2, 3, 4], vec![5], vec![1, 6]]);
    }

    // Goal: what is counted on this host agrees with /proc/stat. Method: context switches of all cores between two samples,
    // between two readings of the file around them, and between two within.
    #[test]
    fn agrees_with_proc_stat() {
        if !is_here() {
            return;
        }
        let naive = || -> u64 {
            let text = std::fs::read_to_string("/proc/stat").unwrap();
            text.lines().find_map(|line| line.strip_prefix("ctxt ")).unwrap().trim().parse().unwrap()
        };
        let keys = "events = [\"context-switches\", \"task-clock\"]";
        let mut sampler = opened(&ENTRY, keys, Path::new("/")).unwrap();
        let mut total = || {
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            assert_eq!(sampler.build(0, &mut builder), Shortfall::NONE);
            let rows = rows(builder.finished_data());
            assert_eq!(rows.len() % 2, 0);
            assert!(
                rows.iter().all(|row| row.time_running() == row.time_enabled() && row.time_enabled() > 0)
            );
            rows.iter()
                .step_by(2)
                .map(|row| {
                    assert_eq!(row.event(), CountedEvent::ContextSwitches);
                    row.value()
                })
                .sum::<u64>()
        };
        let (outer_begin, begin, inner_begin) = (naive(), total(), naive());
        for _ in 0..200 {
            std::thread::yield_now();
            drop(std::process::Command::new("true").status());
        }
        let (inner_end, end, outer_end) = (naive(), total(), naive());
        let counted = end - begin;
        assert!(counted > 100, "{counted}");
        assert!(counted <= outer_end - outer_begin, "{counted} {}", outer_end - outer_begin);
        // Switches to and from a core's idle task are counted as the file counts them; a few may be under way.
        assert!(counted + 50 >= inner_end - inner_begin, "{counted} {}", inner_end - inner_begin);
    }

    // Goal: what this host cannot count is left out, and cores come and go. Method: all events there are; a list of cores of
    // our own that changes between samples.
    #[test]
    fn cores_come_and_go() {
        if !is_here() {
            return;
        }
        let words: Vec<String> =
            PerfEvent::ALL.iter().map(|event| format!("\"{}\"", event.as_str())).collect();
        let keys = format!("events = [{}]\nexclude = [\"cpu-*\"]", words.join(", "));
        let (payload, _) = sampled_under(&ENTRY, &keys, Path::new("/"));
        let counted: Vec<CountedEvent> = rows(&payload).iter().map(CoreCount::event).collect();
        assert!(counted.contains(&CountedEvent::PageFaults) && !counted.contains(&CountedEvent::CpuClock));

        let folder = tempfile::tempdir().unwrap();
        for file in [PARANOID, ONLINE] {
            std::fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
        }
        let online = |text: &str| std::fs::write(folder.path().join(ONLINE), text).unwrap();
        std::fs::write(folder.path().join(PARANOID), "2\n").unwrap();
        online("0\n");
        let mut sampler = opened(&ENTRY, "events = [\"task-clock\"]", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            let shortfall = sampler.build(0, &mut builder);
            let rows = rows(builder.finished_data());
            (rows.iter().map(CoreCount::core).collect::<Vec<_>>(), rows[0].time_enabled(), shortfall)
        };
        let (cores, before, shortfall) = sample();
        assert_eq!((cores, shortfall), (vec![0], Shortfall::NONE));
        // A core that does not exist cannot be counted on: its values are absent and marked.
        online("0,4095\n");
        let (cores, after, shortfall) = sample();
        assert_eq!((cores, shortfall), (vec![0, 4095], Shortfall::MISSING));
        assert!(after > before, "the counters of a core that stays go on");
        online("0\n");
        assert_eq!(sample().0, [0]);
        online("0-x\n");
        let (cores, _, shortfall) = {
            online("0,x\n");
            sample()
        };
        assert_eq!((cores, shortfall), (vec![0], Shortfall::UNREADABLE));
    }
}
