//! Counts the events of each thread in the configured processes, for the source `perf`.

use std::ffi::CStr;
use std::io::{self, ErrorKind, Write as _};

use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::host::{HostDirectory, HostRoot};
use flatcap_os::perf::{CountTarget, CounterGroup, CounterValue};

use super::perf_groups::{incomplete_reason, open_groups, read_groups};
use super::{Unavailable, devices, text};
use crate::{Incomplete, PerfEvent};

const PROC: &str = "proc";
/// Maximum number of processes counted at the same time.
const PROCESSES_MAX: usize = 64;
/// Maximum number of threads counted in one process.
const THREADS_MAX: usize = 256;
/// Interval between searches for new processes with a configured name. Each search reads the names
/// of all processes.
const SEARCH_INTERVAL_NS: u64 = NS_PER_S;
const NAME_BYTES: usize = 16;
/// Maximum length of a name in /proc. The kernel's own threads have longer names than the schema
/// allows.
const COMM_BYTES: usize = 64;

/// The processes that the configuration names, if they exist.
#[derive(Debug, Default)]
pub(super) struct CountedProcesses {
    /// The host's /proc, or `None` if no process is configured.
    directory: Option<HostDirectory>,
    numbers: Vec<u32>,   // processes that are configured by number
    names: Vec<Vec<u8>>, // processes that are configured by name
    processes: Vec<CountedProcess>,
    searched_ns: u64,
    present: Vec<u32>, // reused
    incomplete: Incomplete,
}

#[derive(Debug)]
struct CountedProcess {
    number: u32,
    name: [u8; NAME_BYTES],
    tasks: HostDirectory, // threads of this process, never of a later one
    threads: Vec<CountedThread>,
    ended: Vec<Option<CounterValue>>,  // sums of ended threads, one per event
    counts: Vec<Option<CounterValue>>, // sums of all threads
    opening_incomplete: Incomplete,
    is_gone: bool,
}

#[derive(Debug)]
struct CountedThread {
    number: u32,
    groups: Vec<(CounterGroup, Vec<usize>)>,
    counts: Vec<Option<CounterValue>>,
}

impl CountedProcesses {
    /// Opens the directory in which the processes are found.
    pub(super) fn open(host: &HostRoot, chosen: &[String]) -> Result<Self, Unavailable> {
        let mut this = Self::default();
        if chosen.is_empty() {
            return Ok(this);
        }
        if !host.is_own_root() {
            // The kernel expects process ids of the caller's own namespace.
            let message = "processes can be counted only if host_root is \"/\"";
            return Err(Unavailable::of(io::Error::new(ErrorKind::Unsupported, message)));
        }
        this.directory =
            Some(host.directory(PROC).map_err(|error| Unavailable { file: PROC, error, hint: "" })?);
        for word in chosen {
            match text::number(word.as_bytes()).and_then(|number| u32::try_from(number).ok()) {
                Some(number) => this.numbers.push(number),
                None => this.names.push(word.as_bytes().to_vec()),
            }
        }
        Ok(this)
    }

    /// Reads the counters of all processes. Checks for new processes once a second, and for new
    /// threads at each sample.
    pub(super) fn read(&mut self, events: &[PerfEvent], layout: &[Vec<usize>]) {
        if self.directory.is_none() {
            return;
        }
        let now = monotonic_ns();
        if self.searched_ns == 0 || now - self.searched_ns >= SEARCH_INTERVAL_NS {
            self.searched_ns = now;
            self.find_processes(events.len());
        }
        for process in &mut self.processes {
            process.update_threads(events, layout, &mut self.present);
            process.read();
        }
        self.processes.retain(|process| !process.is_gone);
    }

    /// Returns the reasons why the last read was incomplete.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.processes.iter().fold(self.incomplete, |all, process| all | process.opening_incomplete)
    }

    /// Returns the id, the name and the counts of each process.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, &[u8; NAME_BYTES], &[Option<CounterValue>])> {
        self.processes
            .iter()
            .map(|process| (u64::from(process.number), &process.name, process.counts.as_slice()))
    }

    /// Finds configured processes that are not counted yet.
    fn find_processes(&mut self, events: usize) {
        let Self { directory, numbers, names, processes, present, incomplete, .. } = self;
        let Some(directory) = directory else { return };
        *incomplete = Incomplete::NONE;
        present.clear();
        let listed = directory.list(|name| present.extend(number(name)));
        if listed.is_err() {
            *incomplete = Incomplete::MISSING;
            return;
        }
        for found in present.iter() {
            let is_chosen = numbers.contains(found);
            if processes.iter().any(|process| process.number == *found) || (!is_chosen && names.is_empty()) {
                continue;
            }
            let name = comm(directory, *found);
            let is_named =
                |name: &[u8; COMM_BYTES]| names.iter().any(|chosen| chosen == devices::until_zero(name));
            if !is_chosen && !name.as_ref().is_some_and(is_named) {
                continue;
            }
            if processes.len() == PROCESSES_MAX {
                *incomplete |= Incomplete::TOO_MANY;
                return;
            }
            // The loop skips a process that has ended since the listing.
            let tasks = with_path(*found, "task", |path| directory.directory(path));
            if let (Some(name), Some(tasks)) = (name, tasks) {
                processes.push(CountedProcess {
                    number: *found,
                    name: devices::truncated(devices::until_zero(&name)),
                    tasks,
                    threads: Vec::new(),
                    ended: vec![None; events],
                    counts: vec![None; events],
                    opening_incomplete: Incomplete::NONE,
                    is_gone: false,
                });
            }
        }
    }
}

impl CountedProcess {
    /// Opens counters for new threads, and adds the counters of ended threads to the sum.
    fn update_threads(&mut self, events: &[PerfEvent], layout: &[Vec<usize>], present: &mut Vec<u32>) {
        present.clear();
        let listed = self.tasks.list(|name| present.extend(number(name)));
        if listed.is_err() || present.is_empty() {
            self.is_gone = true;
            return;
        }
        let Self { threads, ended, opening_incomplete, .. } = self;
        threads.retain_mut(|thread| {
            let is_there = present.contains(&thread.number);
            if !is_there {
                // The counters of the thread are still open and have the last count.
                thread.read();
                add(ended, &thread.counts);
            }
            is_there
        });
        // Threads whose counters could not be opened are tried again. Threads that have ended since
        // no longer make the sample incomplete.
        *opening_incomplete = Incomplete::NONE;
        for number in present.iter() {
            if threads.iter().any(|thread| thread.number == *number) {
                continue;
            }
            if threads.len() == THREADS_MAX {
                *opening_incomplete |= Incomplete::TOO_MANY;
                break;
            }
            let (groups, refusal) = open_groups(CountTarget::Thread(*number), events, layout);
            *opening_incomplete |= refusal.map_or(Incomplete::NONE, |error| incomplete_reason(&error));
            if !groups.is_empty() {
                threads.push(CountedThread { number: *number, groups, counts: vec![None; events.len()] });
            }
        }
    }

    fn read(&mut self) {
        self.counts.clone_from(&self.ended);
        for thread in &mut self.threads {
            thread.read();
            add(&mut self.counts, &thread.counts);
        }
    }
}

impl CountedThread {
    fn read(&mut self) {
        self.counts.fill(None);
        // Counters that cannot be read add nothing to the sums.
        read_groups(&self.groups, &mut self.counts);
    }
}

fn add(sum: &mut [Option<CounterValue>], counts: &[Option<CounterValue>]) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        let Some(count) = count else { continue };
        let so_far = sum.unwrap_or_default();
        *sum = Some(CounterValue {
            value: so_far.value.saturating_add(count.value),
            time_enabled: so_far.time_enabled.saturating_add(count.time_enabled),
            time_running: so_far.time_running.saturating_add(count.time_running),
        });
    }
}

/// Parses the id of a process or thread. Returns `None` for directory entries that are not ids.
fn number(name: &CStr) -> Option<u32> {
    text::number(name.to_bytes()).and_then(|number| u32::try_from(number).ok())
}

/// Calls `call` with the path of a process's file below /proc.
fn with_path<T>(number: u32, file: &str, call: impl FnOnce(&CStr) -> io::Result<T>) -> Option<T> {
    let mut path = [0_u8; 32];
    write!(&mut path[..], "{number}/{file}").ok()?;
    // The rest of the path is zero bytes.
    call(CStr::from_bytes_until_nul(&path).ok()?).ok()
}

/// Returns the name of a process, padded with zero bytes.
fn comm(directory: &HostDirectory, number: u32) -> Option<[u8; COMM_BYTES]> {
    let file = with_path(number, "comm", |path| directory.open_small_file(path))?;
    let mut buffer = [0; COMM_BYTES];
    Some(devices::truncated(file.read(&mut buffer).ok()?.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Child, Command};

    use flatbuffers::FlatBufferBuilder;
    use flatcap_schemas::host::{CountedEvent, Perf};

    use super::*;
    use crate::Sampler;
    use crate::sources::perf::SPEC;
    use crate::sources::tests::open_sampler;

    /// Returns the process id, the event and the value of each row.
    fn rows(sampler: &mut dyn Sampler) -> Vec<(u64, CountedEvent, u64)> {
        let mut builder = FlatBufferBuilder::new();
        sampler.read().unwrap();
        sampler.build(0, &mut builder);
        let perf = flatbuffers::root::<Perf<'_>>(builder.finished_data()).unwrap();
        perf.processes().iter().map(|row| (row.process(), row.event(), row.value())).collect()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    // Proves that a process is counted while it runs, and forgotten when it ends.
    #[test]
    fn processes_are_counted() {
        let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let keys = format!("events = [\"task-clock\", \"page-faults\"]\nprocesses = [\"{}\"]", busy.id());
        let mut sampler = match open_sampler(&SPEC, &keys, Path::new("/")) {
            Ok(sampler) => sampler,
            Err(missing) => {
                println!("skipped: {missing}");
                end(busy);
                return;
            }
        };
        let number = u64::from(busy.id());
        let before = rows(&mut *sampler);
        assert_eq!(
            before.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(),
            [(number, CountedEvent::TaskClock), (number, CountedEvent::PageFaults)]
        );
        let begin = monotonic_ns();
        while rows(&mut *sampler)[0].2 < before[0].2 + 10_000_000 {
            assert!(monotonic_ns() - begin < 120 * NS_PER_S, "it does not run");
        }
        end(busy);
        assert!(rows(&mut *sampler).is_empty());
    }

    // Proves that counts of ended threads stay in the sum.
    #[test]
    fn ended_threads_stay_in_the_sum() {
        let count = |value| Some(CounterValue { value, time_enabled: 10 * value, time_running: 5 * value });
        let mut sum = [None, count(7), None];
        add(&mut sum, &[count(3), count(4), None]);
        assert_eq!(sum, [count(3), count(11), None]);
    }
}
