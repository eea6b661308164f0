//! Forks, execs and exits, as the kernel tells them between two samples.

use super::table::Table;
use crate::os::host::HostRoot;
use crate::os::process_events::{ProcessEvent, ProcessEvents};
use crate::sampling::Shortfall;
use crate::sampling::sources::text::ABSENT;
use crate::schema::host::{ProcessEvents as EventCounters, ProcessExit};

/// Most ends in one sample.
pub(super) const EXITS_MAX: usize = 4096;
/// Status of wait(2).
const SIGNAL_BITS: u32 = 0x7F;
const CODE_SHIFT: u32 = 8;
const CODE_BITS: u32 = 0xFF;

/// An end is looked for among so many of the last ones: a thread that runs another program ends the first one just before.
const EXITS_LOOKED_AT: usize = 64;

/// What was told, and by whom.
#[derive(Debug)]
pub(super) struct Told {
    events: ProcessEvents,
    heard: Heard,
}

/// What was told.
#[derive(Debug)]
struct Heard {
    counts: Counts,
    exits: Vec<ProcessExit>, // since the last sample
    born: Vec<usize>,        // one an exit: how many processes had been told of by then
    is_doubtful: bool,
    shortfall: Shortfall,
}

/// What was told of a process's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    NotTold,
    /// It may still be listed, until its parent has waited for it.
    Told,
    /// Perhaps it was among the events that were lost: the next sample knows.
    Doubtful,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    forks: u64,
    threads: u64,
    execs: u64,
    exits: u64,
    overruns: u64,
}

impl Told {
    /// Listens, if these processes are those that the kernel would tell of. Says once where it cannot be.
    pub(super) fn listen(host: &HostRoot) -> Option<Self> {
        let events = if host.shows_own_processes() {
            ProcessEvents::listen().map_err(|error| error.to_string())
        } else {
            Err("the host's processes are numbered otherwise than the agent's".to_owned())
        };
        match events {
            Ok(events) => Some(Self { events, heard: Heard::new() }),
            Err(error) => {
                tracing::info!(
                    %error,
                    "no process events: ends of processes are not recorded; they need CAP_NET_ADMIN (before Linux 6.6) and the host's \
                     namespaces of processes, users and network"
                );
                None
            }
        }
    }

    /// Takes what was told since the last sample. Says whether that is all that happened.
    pub(super) fn take(&mut self, table: &mut Table) -> bool {
        let Self { events, heard } = self;
        heard.clear();
        events.drain(|event| heard.hear(event, table));
        if heard.is_doubtful {
            table.doubt();
        }
        !heard.is_doubtful
    }

    /// Ends since the sample before.
    pub(super) fn exits(&self) -> &[ProcessExit] {
        &self.heard.exits
    }

    /// What the kernel told and had no room for.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.heard.shortfall
    }

    pub(super) fn counters(&self) -> EventCounters {
        let Counts { forks, threads, execs, exits, overruns } = self.heard.counts;
        EventCounters::new(forks, threads, execs, exits, overruns)
    }
}

impl Heard {
    fn new() -> Self {
        let (exits, born) = (Vec::with_capacity(EXITS_MAX), Vec::with_capacity(EXITS_MAX));
        Self { counts: Counts::default(), exits, born, is_doubtful: false, shortfall: Shortfall::NONE }
    }

    fn clear(&mut self) {
        self.exits.clear();
        self.born.clear();
        self.is_doubtful = false;
        self.shortfall = Shortfall::NONE;
    }

    fn hear(&mut self, event: ProcessEvent, table: &mut Table) {
        match event {
            ProcessEvent::Forked { pid } => {
                self.counts.forks += 1;
                table.forked(pid);
            }
            ProcessEvent::ThreadStarted => self.counts.threads += 1,
            ProcessEvent::Executed { pid } => {
                self.counts.execs += 1;
                self.take_back(pid, table);
                table.changed(pid);
            }
            ProcessEvent::Changed { pid } => table.changed(pid),
            ProcessEvent::Exited { pid, parent, status, mono_ns } => {
                self.counts.exits += 1;
                let start = if self.is_doubtful { ABSENT } else { table.ended(pid) };
                if self.exits.len() < EXITS_MAX {
                    self.exits.push(exit(pid, parent, start, mono_ns, status));
                    self.born.push(table.born());
                } else {
                    self.shortfall |= Shortfall::TOO_MANY;
                }
            }
            ProcessEvent::Overrun => {
                self.counts.overruns += 1;
                self.is_doubtful = true;
                self.shortfall |= Shortfall::TOO_MANY;
            }
        }
    }

    /// A process that runs another program has not ended: where that was told, only its first thread had, for another one of its threads
    /// took its place.
    fn take_back(&mut self, pid: u32, table: &mut Table) {
        let last = self.exits.len().saturating_sub(EXITS_LOOKED_AT);
        let found = self.exits.iter().skip(last).rposition(|exit| exit.pid() == u64::from(pid));
        let at = found.map(|at| last + at);
        let born = at.and_then(|at| self.born.get(at)).copied().unwrap_or(0);
        if table.lives(pid, born)
            && let Some(at) = at
        {
            self.exits.remove(at);
            self.born.remove(at);
            self.counts.exits -= 1;
        }
    }
}

fn exit(pid: u32, parent: u32, start: u64, mono_ns: u64, status: u32) -> ProcessExit {
    let signal = status & SIGNAL_BITS;
    let code = (status >> CODE_SHIFT) & CODE_BITS;
    let (code, signal) = if signal == 0 { (code.into(), ABSENT) } else { (ABSENT, signal.into()) };
    ProcessExit::new(pid.into(), parent.into(), start, mono_ns, code, signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a code and a signal are told apart. Method: status words of wait(2), with and without a core.
    #[test]
    fn codes_and_signals_are_told_apart() {
        for (status, expected) in
            [(0, (0, ABSENT)), (0x0300, (3, ABSENT)), (9, (ABSENT, 9)), (0x8B, (ABSENT, 11))]
        {
            let exit = exit(5, 4, 3, 2, status);
            assert_eq!((exit.exit_code(), exit.signal()), expected);
            assert_eq!((exit.pid(), exit.parent(), exit.start(), exit.ended()), (5, 4, 3, 2));
        }
    }

    fn host(pids: &[u32]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for pid in pids {
            let process = folder.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&process).unwrap();
            std::fs::write(process.join("stat"), format!("{pid} (x) S 1\n")).unwrap();
        }
        folder
    }

    fn table(host: &tempfile::TempDir) -> Table {
        let details = super::super::texts::Details { groups: false, command_lines: false };
        let mut table = Table::open(&HostRoot::new(host.path()), details, true).unwrap();
        table.read(1, true).unwrap();
        for index in 0..table.order().len() {
            let known = table.order()[index];
            table.get(known).unwrap().0.start = u64::from(known.pid) * 100;
        }
        table
    }

    fn exited(pid: u32) -> ProcessEvent {
        ProcessEvent::Exited { pid, parent: 1, status: 0, mono_ns: 5 }
    }

    fn starts(heard: &Heard) -> Vec<(u64, u64)> {
        heard.exits.iter().map(|exit| (exit.pid(), exit.start())).collect()
    }

    // Goal: a process whose first thread ends because another one has it run a program has not ended; its real end has its start. Who
    // has the pid of one that ended is another process. Method: each order of events, of a known process and of a new one.
    #[test]
    fn only_processes_end() {
        let host = host(&[7]);
        let (mut table, mut heard) = (table(&host), Heard::new());
        let mut hear = |heard: &mut Heard, events: &[ProcessEvent]| {
            for event in events {
                heard.hear(*event, &mut table);
            }
        };
        hear(&mut heard, &[exited(7), exited(9), ProcessEvent::Executed { pid: 7 }]);
        assert_eq!((starts(&heard), heard.counts.exits), (vec![(9, ABSENT)], 1));
        heard.clear();
        // Told in two samples, it is too late for the first one.
        hear(&mut heard, &[exited(7)]);
        assert_eq!(starts(&heard), [(7, 700)]);
        heard.clear();
        hear(&mut heard, &[ProcessEvent::Executed { pid: 7 }, exited(7)]);
        assert_eq!(starts(&heard), [(7, 700)]);
        heard.clear();
        let born = |pid| ProcessEvent::Forked { pid };
        hear(&mut heard, &[born(8), exited(8), ProcessEvent::Executed { pid: 8 }]);
        assert!(heard.exits.is_empty());
        hear(&mut heard, &[exited(8), born(8), ProcessEvent::Executed { pid: 8 }]);
        assert_eq!(starts(&heard), [(8, ABSENT)]);
    }

    // Goal: after events were lost, ends are told with their starts again once a sample has found who is still there. Method: an end
    // before that sample, and one behind it.
    #[test]
    fn doubt_ends_with_the_next_sample() {
        let host = host(&[7, 8]);
        let (mut table, mut heard) = (table(&host), Heard::new());
        heard.hear(ProcessEvent::Overrun, &mut table);
        table.doubt();
        assert_eq!(table.ended(7), ABSENT);
        table.read(2, true).unwrap();
        assert_eq!((table.ended(8), table.ended(8)), (800, ABSENT));
    }
}
