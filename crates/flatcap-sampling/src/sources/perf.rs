//! `perf`: hardware, software and cache counters of each core, and of configured processes.

use std::io::{self, ErrorKind};
use std::time::Duration;

use flatbuffers::FlatBufferBuilder;
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::directory_handle::raise_open_files_limit;
use flatcap_os::host::HostFile;
use flatcap_os::perf::{CountTarget, CounterGroup, CounterValue};
use flatcap_schemas::host::{CoreCount, CountedEvent, Perf, PerfArgs, ProcessCount};

use super::core_list::{ONLINE, parse_core_list};
use super::perf_access::{PARANOID, denied};
use super::perf_groups::{event_code, group_events, incomplete_reason, open_groups, read_groups};
use super::text::ABSENT;
use super::threads::CountedProcesses;
use super::{OpenContext, OwnKeys, SourceOpener, SourceSpec, Unavailable, host_file};
use crate::{Incomplete, OpenedSampler, OwnSettings, PerfEvent, ReadError, Sampler};

/// `include` and `exclude` match names of events. Each event on each core needs an open file.
pub(super) const SPEC: SourceSpec = SourceSpec {
    name: "perf",
    about: "Hardware and software performance counters.",
    root: "flatcap.host.Perf",
    schema: include_bytes!("../../../../generated/host/perf.bfbs"),
    files: &[PARANOID, ONLINE],
    // Each counter costs one system call per sample.
    period: Duration::from_millis(100),
    refresh: "immediately",
    selects: "events, such as cycles",
    needs: &["CAP_PERFMON"],
    hint: ": this kernel has no performance counters (CONFIG_PERF_EVENTS)",
    keys: OwnKeys::Perf,
    opener: SourceOpener::Host(open),
    ..SourceSpec::DEFAULTS
};

/// Interval at which counters that the kernel has refused are tried again.
const RETRY_INTERVAL_NS: u64 = NS_PER_S;

fn open(context: &OpenContext<'_>) -> Result<OpenedSampler, Unavailable> {
    open_counters(context).map(OpenedSampler::built)
}

fn open_counters(context: &OpenContext<'_>) -> Result<PerfSampler, Unavailable> {
    let paranoid = host_file(context.host, PARANOID, SPEC.hint)?;
    let online = host_file(context.host, ONLINE, "")?;
    let OwnSettings::Perf(config) = context.settings.own else {
        return Err(Unavailable::of(ErrorKind::InvalidInput.into()));
    };
    let selection = context.selection();
    let wanted: Vec<PerfEvent> =
        config.events.iter().copied().filter(|event| selection.matches(event.as_str().as_bytes())).collect();
    // Each counter takes one descriptor. If the limit is still too low, the open call that exceeds
    // the limit reports the error.
    let _limit = raise_open_files_limit(usize::MAX);
    let mut cores = Vec::new();
    parse_core_list(online.content(), &mut cores);
    let Some(first) = cores.first() else {
        return Err(Unavailable { file: ONLINE, error: ErrorKind::InvalidData.into(), hint: "" });
    };
    let events = countable(&wanted, CountTarget::Core(*first), paranoid.content())?;
    let processes = CountedProcesses::open(context.host, &config.processes)?;
    let mut sampler = PerfSampler {
        online,
        listed_content: Vec::new(),
        numbers: cores,
        groups: group_events(&events),
        events,
        cores: Vec::new(),
        opening_incomplete: Incomplete::NONE,
        must_retry: false,
        opened_ns: 0,
        processes,
        rows: Vec::new(),
        process_rows: Vec::new(),
    };
    sampler.update_cores();
    Ok(sampler)
}

/// Returns the events that the kernel counts on this host, and logs all refused events in one line.
fn countable(wanted: &[PerfEvent], at: CountTarget, paranoid: &[u8]) -> Result<Vec<PerfEvent>, Unavailable> {
    let mut events = Vec::new();
    let mut refused: Vec<(&str, io::Error)> = Vec::new();
    for event in wanted {
        match CounterGroup::open(at, event_code(*event)) {
            Ok(_) => events.push(*event),
            Err(error) => refused.push((event.as_str(), error)),
        }
    }
    let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    if !events.is_empty() {
        if !refused.is_empty() {
            tracing::info!(source = "perf", "this host cannot count {names}: skipped");
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
            format!("this host cannot count {names}: {error}"),
        )));
    }
    Err(Unavailable::of(denied("counting", &error, paranoid)))
}

#[derive(Debug)]
struct PerfSampler {
    online: HostFile,
    listed_content: Vec<u8>, // list of cores from which `cores` was made
    numbers: Vec<u32>,       // reused
    events: Vec<PerfEvent>,
    groups: Vec<Vec<usize>>,
    cores: Vec<CountedCore>, // in the order of their numbers
    opening_incomplete: Incomplete,
    must_retry: bool, // whether a core has no counter that could be opened
    opened_ns: u64,   // when opening was last tried
    processes: CountedProcesses,
    rows: Vec<CoreCount>,            // reused
    process_rows: Vec<ProcessCount>, // reused
}

/// The counters of one core.
#[derive(Debug)]
struct CountedCore {
    number: u32,
    groups: Vec<(CounterGroup, Vec<usize>)>,
    counts: Vec<Option<CounterValue>>, // one per event, from the last read
    enabled_ns: Vec<Option<u64>>,      // time enabled per group, at the last read
    is_complete: bool,
    is_stopped: bool,    // whether the kernel stopped some, as the core was offline
    refusal: Incomplete, // why some counters could not be opened
}

impl Sampler for PerfSampler {
    fn read(&mut self) -> Result<(), ReadError> {
        self.online.read().map_err(|error| ReadError { file: ONLINE, error })?;
        if self.online.content() != self.listed_content {
            self.update_cores();
        }
        let mut is_stopped = false;
        for core in &mut self.cores {
            core.read();
            is_stopped |= core.is_stopped;
        }
        // A suspend takes the cores offline and back online between two samples. The list of cores
        // is the same afterwards, but the kernel has stopped the counters for ever.
        if is_stopped || (self.must_retry && self.is_retry_due()) {
            self.update_cores();
            let new = self.cores.iter_mut().filter(|core| core.enabled_ns.iter().all(Option::is_none));
            new.for_each(CountedCore::read);
        }
        self.processes.read(&self.events, &self.groups);
        Ok(())
    }

    fn build(&mut self, _seq: u64, builder: &mut FlatBufferBuilder<'static>) -> Incomplete {
        let mut incomplete = self.opening_incomplete | self.processes.incomplete();
        self.rows.clear();
        for core in &self.cores {
            incomplete |= Incomplete::MISSING.unless(core.is_complete);
            for (event, count) in self.events.iter().zip(&core.counts) {
                let [value, time_enabled, time_running, scaled] = scaled_columns(*count, &mut incomplete);
                let number = u64::from(core.number);
                self.rows.push(CoreCount::new(
                    number,
                    schema_event(*event),
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
                let [value, time_enabled, time_running, scaled] = scaled_columns(*count, &mut incomplete);
                self.process_rows.push(ProcessCount::new(
                    process,
                    name,
                    schema_event(*event),
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
        incomplete
    }
}

impl CountedCore {
    /// Reads the counters of the core, and notes whether the kernel has stopped any of them.
    fn read(&mut self) {
        self.counts.fill(None);
        self.is_complete = read_groups(&self.groups, &mut self.counts);
        self.is_stopped = !self.is_complete;
        for ((_, places), enabled) in self.groups.iter().zip(&mut self.enabled_ns) {
            let count = places.first().and_then(|place| self.counts.get(*place)).copied().flatten();
            let Some(count) = count else { continue };
            // The counters of a core are always enabled, so their enabled time advances between two
            // reads unless they have stopped.
            self.is_stopped |= enabled.replace(count.time_enabled) == Some(count.time_enabled);
        }
        if self.is_stopped {
            self.counts.fill(None);
        }
    }
}

impl PerfSampler {
    /// Returns whether counters that the kernel has refused are to be tried again now.
    fn is_retry_due(&mut self) -> bool {
        let now = monotonic_ns();
        let is_due = now.saturating_sub(self.opened_ns) >= RETRY_INTERVAL_NS;
        if is_due {
            self.cores.iter_mut().for_each(|core| core.is_stopped |= core.groups.is_empty());
        }
        is_due
    }

    /// Opens counters on new cores, closes the counters of removed cores, and replaces counters
    /// that the kernel has stopped.
    fn update_cores(&mut self) {
        self.listed_content.clear();
        self.listed_content.extend_from_slice(self.online.content());
        let is_whole = parse_core_list(&self.listed_content, &mut self.numbers);
        let Self { numbers, cores, events, groups, .. } = self;
        cores.retain(|core| !core.is_stopped && numbers.contains(&core.number));
        for number in numbers {
            if let Err(place) = cores.binary_search_by_key(number, |core| core.number) {
                let (groups, refusal) = open_groups(CountTarget::Core(*number), events, groups);
                let core = CountedCore {
                    number: *number,
                    enabled_ns: vec![None; groups.len()],
                    groups,
                    counts: vec![None; events.len()],
                    is_complete: true,
                    is_stopped: false,
                    refusal: refusal.map_or(Incomplete::NONE, |error| incomplete_reason(&error)),
                };
                cores.insert(place, core);
            }
        }
        let refusals = cores.iter().fold(Incomplete::NONE, |all, core| all | core.refusal);
        // Cores may support different events. Therefore only cores without any counter are tried
        // again, because open counters must not restart.
        self.must_retry = cores.iter().any(|core| core.groups.is_empty());
        self.opened_ns = monotonic_ns();
        self.opening_incomplete = Incomplete::UNREADABLE.unless(is_whole) | refusals;
    }
}

/// Returns value, time enabled, time running and scaled value. An event that never ran has no
/// value.
fn scaled_columns(count: Option<CounterValue>, incomplete: &mut Incomplete) -> [u64; 4] {
    let Some(CounterValue { value, time_enabled, time_running }) = count else { return [ABSENT; 4] };
    let scaled = if time_running == time_enabled {
        Some(value)
    } else {
        let scaled = u128::from(value) * u128::from(time_enabled);
        scaled.checked_div(u128::from(time_running)).and_then(|scaled| u64::try_from(scaled).ok())
    };
    let has_run = time_running > 0 || time_enabled == 0;
    *incomplete |= Incomplete::UNREADABLE.unless(has_run && scaled.is_some());
    [if has_run { value } else { ABSENT }, time_enabled, time_running, scaled.unwrap_or(ABSENT)]
}

/// Converts an event to the schema's type. The schema has the events in the same order as the
/// configuration.
fn schema_event(event: PerfEvent) -> CountedEvent {
    CountedEvent(event as u64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use flatcap_os::host::HostRoot;

    use super::*;
    use crate::sources::tests::{open_sampler, sample_under};
    use crate::test_settings::TestSettings;

    fn rows(payload: &[u8]) -> Vec<CoreCount> {
        flatbuffers::root::<Perf<'_>>(payload).unwrap().cores().iter().copied().collect()
    }

    /// Returns whether this host allows counting.
    fn can_count() -> bool {
        let opened = open_sampler(&SPEC, "events = [\"context-switches\"]", Path::new("/"));
        if let Err(missing) = &opened {
            println!("skipped: {missing}");
        }
        opened.is_ok()
    }

    // Proves that each event of the configuration has its name in the schema.
    #[test]
    fn events_have_the_names_of_the_schema() {
        for event in PerfEvent::ALL {
            let name = schema_event(*event).variant_name().unwrap().to_lowercase();
            assert_eq!(event.as_str().replace('-', ""), name);
        }
        assert_eq!(CountedEvent::ENUM_MAX + 1, PerfEvent::ALL.len() as u64);
    }

    // Proves that counts are scaled without overflow, and that an event that never ran has no
    // value.
    #[test]
    fn counts_are_scaled() {
        let columns = |value, time_enabled, time_running| {
            let mut incomplete = Incomplete::NONE;
            let columns =
                scaled_columns(Some(CounterValue { value, time_enabled, time_running }), &mut incomplete);
            (columns, incomplete)
        };
        assert_eq!(columns(10, 7, 7), ([10, 7, 7, 10], Incomplete::NONE));
        assert_eq!(columns(10, 9, 3), ([10, 9, 3, 30], Incomplete::NONE));
        assert_eq!(columns(0, 0, 0), ([0, 0, 0, 0], Incomplete::NONE));
        assert_eq!(columns(0, 9, 0), ([ABSENT, 9, 0, ABSENT], Incomplete::UNREADABLE));
        let large = u64::MAX / 3;
        assert_eq!(columns(large, 2 << 60, 1 << 60).0[3], large * 2);
        assert_eq!(
            columns(large, 4 << 60, 1 << 60),
            ([large, 4 << 60, 1 << 60, ABSENT], Incomplete::UNREADABLE)
        );
    }

    // Proves that counters that the kernel has stopped are opened again, and that the other
    // counters continue. The kernel stops counters in a suspend, which leaves the list of cores the
    // same.
    #[test]
    fn stopped_counters_are_opened_again() {
        if !can_count() {
            return;
        }
        for events in ["\"task-clock\"", "\"task-clock\", \"context-switches\""] {
            let settings = TestSettings::new(&SPEC, &format!("events = [{events}]"));
            let context = OpenContext { host: &HostRoot::new("/"), settings: settings.get() };
            let mut sampler = open_counters(&context).unwrap();
            let mut builder = FlatBufferBuilder::new();
            let mut next = |sampler: &mut PerfSampler| {
                builder.reset();
                sampler.read().unwrap();
                let incomplete = sampler.build(0, &mut builder);
                (rows(builder.finished_data()), incomplete)
            };
            let (before, _) = next(&mut sampler);
            for stopped in 0..sampler.cores.len() {
                sampler.cores[stopped].groups.iter().for_each(|(group, _)| group.stop().unwrap());
                // The counter may have counted between the last sample and the time when it
                // stopped.
                next(&mut sampler);
                let (first, incomplete) = next(&mut sampler);
                assert_eq!((first.len(), incomplete), (before.len(), Incomplete::NONE));
                let (second, _) = next(&mut sampler);
                for (first, second) in first.iter().zip(&second) {
                    assert!(second.time_enabled() > first.time_enabled(), "{first:?} {second:?}");
                }
            }
        }
    }

    // Proves that the context switches that are counted on this host agree with /proc/stat, which
    // the test reads around and between two samples.
    #[test]
    fn agrees_with_proc_stat() {
        if !can_count() {
            return;
        }
        let naive = || -> u64 {
            let text = std::fs::read_to_string("/proc/stat").unwrap();
            text.lines().find_map(|line| line.strip_prefix("ctxt ")).unwrap().trim().parse().unwrap()
        };
        let keys = "events = [\"context-switches\", \"task-clock\"]";
        let mut sampler = open_sampler(&SPEC, keys, Path::new("/")).unwrap();
        let mut total = || {
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            assert_eq!(sampler.build(0, &mut builder), Incomplete::NONE);
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
        // As in /proc/stat, switches to and from a core's idle task are counted. A few switches may
        // occur during the reads.
        assert!(counted + 50 >= inner_end - inner_begin, "{counted} {}", inner_end - inner_begin);
    }

    // Proves that events that this host cannot count are skipped, and that cores come and go in a
    // list that changes between samples.
    #[test]
    fn cores_come_and_go() {
        if !can_count() {
            return;
        }
        let words: Vec<String> =
            PerfEvent::ALL.iter().map(|event| format!("\"{}\"", event.as_str())).collect();
        let keys = format!("events = [{}]\nexclude = [\"cpu-*\"]", words.join(", "));
        let (payload, _) = sample_under(&SPEC, &keys, Path::new("/"));
        let counted: Vec<CountedEvent> = rows(&payload).iter().map(CoreCount::event).collect();
        assert!(counted.contains(&CountedEvent::PageFaults) && !counted.contains(&CountedEvent::CpuClock));

        let folder = tempfile::tempdir().unwrap();
        for file in [PARANOID, ONLINE] {
            std::fs::create_dir_all(folder.path().join(file).parent().unwrap()).unwrap();
        }
        let online = |text: &str| std::fs::write(folder.path().join(ONLINE), text).unwrap();
        std::fs::write(folder.path().join(PARANOID), "2\n").unwrap();
        online("0\n");
        let mut sampler = open_sampler(&SPEC, "events = [\"task-clock\"]", folder.path()).unwrap();
        let mut sample = || {
            let mut builder = FlatBufferBuilder::new();
            sampler.read().unwrap();
            let incomplete = sampler.build(0, &mut builder);
            let rows = rows(builder.finished_data());
            (rows.iter().map(CoreCount::core).collect::<Vec<_>>(), rows[0].time_enabled(), incomplete)
        };
        let (cores, before, incomplete) = sample();
        assert_eq!((cores, incomplete), (vec![0], Incomplete::NONE));
        // Events of a core that does not exist cannot be counted, so its values are absent and
        // marked.
        online("0,4095\n");
        let (cores, after, incomplete) = sample();
        assert_eq!((cores, incomplete), (vec![0, 4095], Incomplete::MISSING));
        assert!(after > before, "a core that stays keeps its counters");
        online("0\n");
        assert_eq!(sample().0, [0]);
        online("0-x\n");
        let (cores, _, incomplete) = {
            online("0,x\n");
            sample()
        };
        assert_eq!((cores, incomplete), (vec![0], Incomplete::UNREADABLE));
    }
}
