//! Counters of chosen processes, thread by thread: what `perf` does on request.

use std::ffi::CStr;
use std::io::{self, ErrorKind, Write as _};

use super::perf::{open_groups, read_groups, reason};
use super::{Unavailable, devices, text};
use crate::config::PerfEvent;
use crate::os::clock::{NS_PER_S, monotonic_ns};
use crate::os::host::{HostDirectory, HostRoot};
use crate::os::perf::{Count, CounterGroup, Where};
use crate::sampling::Shortfall;

const PROC: &str = "proc";
/// Most processes that are counted at once.
const PROCESSES_MAX: usize = 64;
/// Most threads of one process that are counted.
const THREADS_MAX: usize = 256;
/// How often new processes of a chosen name are looked for: each time all names are read.
const LOOK_EVERY_NS: u64 = NS_PER_S;
const NAME_BYTES: usize = 16;
/// The kernel's own threads have longer names than the schema has room for.
const COMM_BYTES: usize = 64;

/// The processes that the configuration names, as far as they are there.
#[derive(Debug)]
pub(super) struct CountedProcesses {
    /// Processes of the host; none where none is asked for.
    directory: Option<HostDirectory>,
    numbers: Vec<u32>,   // chosen by number
    names: Vec<Vec<u8>>, // chosen by name
    processes: Vec<Process>,
    looked_ns: u64,
    present: Vec<u32>, // reused
    shortfall: Shortfall,
}

#[derive(Debug)]
struct Process {
    number: u32,
    name: [u8; NAME_BYTES],
    tasks: HostDirectory, // of this process and no later one of the same number
    threads: Vec<Thread>,
    ended: Vec<Option<Count>>,  // what ended threads counted, one an event
    counts: Vec<Option<Count>>, // the sum of all threads
    opening: Shortfall,
    is_gone: bool,
}

#[derive(Debug)]
struct Thread {
    number: u32,
    groups: Vec<(CounterGroup, Vec<usize>)>,
    counts: Vec<Option<Count>>,
}

impl CountedProcesses {
    /// Opens what is needed to find them.
    pub(super) fn open(host: &HostRoot, chosen: &[String]) -> Result<Self, Unavailable> {
        let mut this = Self {
            directory: None,
            numbers: Vec::new(),
            names: Vec::new(),
            processes: Vec::new(),
            looked_ns: 0,
            present: Vec::new(),
            shortfall: Shortfall::NONE,
        };
        if chosen.is_empty() {
            return Ok(this);
        }
        if !host.is_own() {
            // The kernel takes numbers of the caller's own namespace.
            let message = "processes can be counted only where host_root is \"/\"";
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

    /// Reads the counters of all of them; looks for new ones now and then, and for new threads each time.
    pub(super) fn read(&mut self, events: &[PerfEvent], layout: &[Vec<usize>]) {
        if self.directory.is_none() {
            return;
        }
        let now = monotonic_ns();
        if self.looked_ns == 0 || now - self.looked_ns >= LOOK_EVERY_NS {
            self.looked_ns = now;
            self.look(events.len());
        }
        for process in &mut self.processes {
            process.follow_threads(events, layout, &mut self.present);
            process.read();
        }
        self.processes.retain(|process| !process.is_gone);
    }

    /// What is lacking of the last reading.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.processes.iter().fold(self.shortfall, |all, process| all | process.opening)
    }

    /// Number, name and counts of each.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, &[u8; NAME_BYTES], &[Option<Count>])> {
        self.processes
            .iter()
            .map(|process| (u64::from(process.number), &process.name, process.counts.as_slice()))
    }

    /// Finds chosen processes that are not counted yet.
    fn look(&mut self, events: usize) {
        let Self { directory, numbers, names, processes, present, shortfall, .. } = self;
        let Some(directory) = directory else { return };
        *shortfall = Shortfall::NONE;
        present.clear();
        let listed = directory.list(|name| present.extend(number(name)));
        if listed.is_err() {
            *shortfall = Shortfall::MISSING;
            return;
        }
        for found in present.iter() {
            let is_chosen = numbers.contains(found);
            if processes.iter().any(|process| process.number == *found) || (!is_chosen && names.is_empty()) {
                continue;
            }
            let name = comm(directory, *found);
            let is_named =
                |name: &[u8; COMM_BYTES]| names.iter().any(|chosen| chosen == devices::until_end(name));
            if !is_chosen && !name.as_ref().is_some_and(is_named) {
                continue;
            }
            if processes.len() == PROCESSES_MAX {
                *shortfall |= Shortfall::TOO_MANY;
                return;
            }
            // One that ended meanwhile is none.
            let tasks = with_path(*found, "task", |path| directory.directory(path));
            if let (Some(name), Some(tasks)) = (name, tasks) {
                processes.push(Process {
                    number: *found,
                    name: devices::fitted(devices::until_end(&name)),
                    tasks,
                    threads: Vec::new(),
                    ended: vec![None; events],
                    counts: vec![None; events],
                    opening: Shortfall::NONE,
                    is_gone: false,
                });
            }
        }
    }
}

impl Process {
    /// Opens counters in new threads, and adds up those of ended ones.
    fn follow_threads(&mut self, events: &[PerfEvent], layout: &[Vec<usize>], present: &mut Vec<u32>) {
        present.clear();
        let listed = self.tasks.list(|name| present.extend(number(name)));
        if listed.is_err() || present.is_empty() {
            self.is_gone = true;
            return;
        }
        let Self { threads, ended, opening, .. } = self;
        threads.retain_mut(|thread| {
            let is_there = present.contains(&thread.number);
            if !is_there {
                // Its counters are still open and hold the last count.
                thread.read();
                add(ended, &thread.counts);
            }
            is_there
        });
        // A thread that ended before its counters were open lacks nothing that could be had.
        *opening = Shortfall::NONE;
        for number in present.iter() {
            if threads.iter().any(|thread| thread.number == *number) {
                continue;
            }
            if threads.len() == THREADS_MAX {
                *opening |= Shortfall::TOO_MANY;
                break;
            }
            let (groups, refusal) = open_groups(Where::Thread(*number), events, layout);
            *opening |= refusal.map_or(Shortfall::NONE, |error| reason(&error));
            if !groups.is_empty() {
                threads.push(Thread { number: *number, groups, counts: vec![None; events.len()] });
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

impl Thread {
    fn read(&mut self) {
        self.counts.fill(None);
        // What cannot be read is none, and adds nothing.
        read_groups(&self.groups, &mut self.counts);
    }
}

fn add(sum: &mut [Option<Count>], counts: &[Option<Count>]) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        let Some(count) = count else { continue };
        let so_far = sum.unwrap_or_default();
        *sum = Some(Count {
            value: so_far.value.saturating_add(count.value),
            time_enabled: so_far.time_enabled.saturating_add(count.time_enabled),
            time_running: so_far.time_running.saturating_add(count.time_running),
        });
    }
}

/// The number of a process or thread, if the entry is one.
fn number(name: &CStr) -> Option<u32> {
    text::number(name.to_bytes()).and_then(|number| u32::try_from(number).ok())
}

/// Calls with the path of a process's file below /proc.
fn with_path<T>(number: u32, file: &str, call: impl FnOnce(&CStr) -> io::Result<T>) -> Option<T> {
    let mut path = [0_u8; 32];
    write!(&mut path[..], "{number}/{file}").ok()?;
    // The rest of the path is zero bytes.
    call(CStr::from_bytes_until_nul(&path).ok()?).ok()
}

/// A process's name, ended by zero bytes.
fn comm(directory: &HostDirectory, number: u32) -> Option<[u8; COMM_BYTES]> {
    let file = with_path(number, "comm", |path| directory.short_file(path))?;
    let mut buffer = [0; COMM_BYTES];
    Some(devices::fitted(file.read(&mut buffer).ok()?.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Child, Command};

    use flatbuffers::FlatBufferBuilder;

    use super::*;
    use crate::sampling::Sampler;
    use crate::sampling::sources::perf::ENTRY;
    use crate::sampling::sources::tests::opened;
    use crate::schema::host::{CountedEvent, Perf};

    /// Number, event and value of each row.
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

    // Goal: a process is counted while it runs, by number and by name, and forgotten when it ends. Method: one that works,
    // one that sleeps.
    #[test]
    fn processes_are_counted() {
        let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let keys = format!("events = [\"task-clock\", \"page-faults\"]\nprocesses = [\"{}\"]", busy.id());
        let mut sampler = match opened(&ENTRY, &keys, Path::new("/")) {
            Ok(sampler) => sampler,
            Err(missing) => {
                println!("passed over: {missing}");
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

    // Goal: threads that ended stay in the sum. Method: counts of an ended thread and of one that lives, by hand.
    #[test]
    fn ended_threads_stay_in_the_sum() {
        let count = |value| Some(Count { value, time_enabled: 10 * value, time_running: 5 * value });
        let mut sum = [None, count(7), None];
        add(&mut sum, &[count(3), count(4), None]);
        assert_eq!(sum, [count(3), count(11), None]);
    }
}
