//! Forks, execs and exits that the kernel reports between two samples.

use flatcap_os::host::HostRoot;
use flatcap_os::process_events::{ProcessEvent, ProcessEvents};
use flatcap_schemas::host::{ProcessEvents as EventCounters, ProcessExec, ProcessExit};

use super::exec_names::{EXECS_MAX, ExecWatcher};
use super::table::ProcessTable;
use crate::Incomplete;
use crate::sources::text::ABSENT;

/// Maximum number of exits in one sample.
pub(super) const EXITS_MAX: usize = 4096;
/// The bits of a wait(2) status that contain the signal. The next constants describe the bits of
/// the status that contain the exit code.
const SIGNAL_BITS: u32 = 0x7F;
const CODE_SHIFT: u32 = 8;
const CODE_BITS: u32 = 0xFF;

/// Number of recent exits that are searched, after an exec, for an exit of the same process. A
/// small number is enough. When a thread runs another program, the exit of its process's first
/// thread comes just before the exec.
const EXITS_SEARCHED: usize = 64;

/// The kernel's process events and their effects since the last sample.
#[derive(Debug)]
pub(super) struct ProcessMonitor {
    events: ProcessEvents,
    exec_watcher: Option<ExecWatcher>,
    log: EventLog,
}

/// Effects of events since the last sample.
#[derive(Debug)]
struct EventLog {
    counts: EventCounts,
    execs: Vec<ProcessExec>,  // since the last sample
    exits: Vec<ProcessExit>,  // since the last sample
    forks_before: Vec<usize>, // number of forks reported before each exit; one per exit
    has_lost_events: bool,
    incomplete: Incomplete,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct EventCounts {
    forks: u64,
    threads: u64,
    execs: u64,
    exits: u64,
    overruns: u64,
}

impl ProcessMonitor {
    /// Subscribes to events, if the kernel's events describe the host's processes. If the
    /// subscription is impossible, logs this fact one time.
    pub(super) fn subscribe(host: &HostRoot) -> Option<Self> {
        let events = if host.shares_pid_namespace() {
            ProcessEvents::subscribe().map_err(|error| error.to_string())
        } else {
            Err("the host's processes are in another PID namespace than the recorder".to_owned())
        };
        match events {
            Ok(events) => {
                let exec_watcher = ExecWatcher::start(host).inspect_err(
                    |error| tracing::info!(%error, "no names of short-lived processes are recorded"),
                );
                Some(Self { events, exec_watcher: exec_watcher.ok(), log: EventLog::new() })
            }
            Err(error) => {
                tracing::info!(
                    %error,
                    "no process events: exits of processes and names of short-lived ones are not recorded; \
                     they need CAP_NET_ADMIN (before Linux 6.6) and the host's PID, user and network namespaces"
                );
                None
            }
        }
    }

    /// Reads the events since the last sample. Returns whether all events were received.
    pub(super) fn drain(&mut self, table: &mut ProcessTable) -> bool {
        let Self { events, exec_watcher, log } = self;
        log.clear();
        events.drain(|event| log.record(event, table));
        if let Some(watcher) = exec_watcher {
            log.incomplete |= Incomplete::TOO_MANY.unless(watcher.drain(&mut log.execs));
        }
        if log.has_lost_events {
            table.events_lost();
        }
        !log.has_lost_events
    }

    /// Returns the exits since the last sample.
    pub(super) fn exits(&self) -> &[ProcessExit] {
        &self.log.exits
    }

    /// Returns the programs that were started since the last sample.
    pub(super) fn execs(&self) -> &[ProcessExec] {
        &self.log.execs
    }

    /// Returns the reasons why the events are incomplete.
    pub(super) fn incomplete(&self) -> Incomplete {
        self.log.incomplete
    }

    pub(super) fn counters(&self) -> EventCounters {
        let EventCounts { forks, threads, execs, exits, overruns } = self.log.counts;
        EventCounters::new(forks, threads, execs, exits, overruns)
    }
}

impl EventLog {
    fn new() -> Self {
        let (exits, forks_before) = (Vec::with_capacity(EXITS_MAX), Vec::with_capacity(EXITS_MAX));
        Self {
            counts: EventCounts::default(),
            execs: Vec::with_capacity(EXECS_MAX),
            exits,
            forks_before,
            has_lost_events: false,
            incomplete: Incomplete::NONE,
        }
    }

    fn clear(&mut self) {
        self.exits.clear();
        self.forks_before.clear();
        self.has_lost_events = false;
        self.incomplete = Incomplete::NONE;
    }

    fn record(&mut self, event: ProcessEvent, table: &mut ProcessTable) {
        match event {
            ProcessEvent::Forked { pid } => {
                self.counts.forks += 1;
                table.forked(pid);
            }
            ProcessEvent::ThreadStarted => self.counts.threads += 1,
            ProcessEvent::Executed { pid, .. } => {
                self.counts.execs += 1;
                self.remove_exit(pid, table);
                table.changed(pid);
            }
            ProcessEvent::Changed { pid } => table.changed(pid),
            ProcessEvent::Exited { pid, parent, status, mono_ns } => {
                self.counts.exits += 1;
                let start = if self.has_lost_events { ABSENT } else { table.exited(pid) };
                if self.exits.len() < EXITS_MAX {
                    self.exits.push(exit_row(pid, parent, start, mono_ns, status));
                    self.forks_before.push(table.fork_count());
                } else {
                    self.incomplete |= Incomplete::TOO_MANY;
                }
            }
            ProcessEvent::Overrun => {
                self.counts.overruns += 1;
                self.has_lost_events = true;
                self.incomplete |= Incomplete::TOO_MANY;
            }
        }
    }

    /// Removes the reported exit of a process that has not ended, but runs another program. Only
    /// the first thread of the process ended, because another thread of the process took its place.
    fn remove_exit(&mut self, pid: u32, table: &mut ProcessTable) {
        let last = self.exits.len().saturating_sub(EXITS_SEARCHED);
        let found = self.exits.iter().skip(last).rposition(|exit| exit.pid() == u64::from(pid));
        let at = found.map(|at| last + at);
        let forks_before = at.and_then(|at| self.forks_before.get(at)).copied().unwrap_or(0);
        if table.survives_exec(pid, forks_before)
            && let Some(at) = at
        {
            self.exits.remove(at);
            self.forks_before.remove(at);
            self.counts.exits -= 1;
        }
    }
}

fn exit_row(pid: u32, parent: u32, start: u64, mono_ns: u64, status: u32) -> ProcessExit {
    let signal = status & SIGNAL_BITS;
    let code = (status >> CODE_SHIFT) & CODE_BITS;
    let (code, signal) = if signal == 0 { (code.into(), ABSENT) } else { (ABSENT, signal.into()) };
    ProcessExit::new(pid.into(), parent.into(), start, mono_ns, code, signal)
}

#[cfg(test)]
mod tests {
    use super::super::table::PassScope;
    use super::*;

    // Proves that exit codes and signals are distinguished, with and without a core dump.
    #[test]
    fn codes_and_signals_are_distinguished() {
        for (status, expected) in
            [(0, (0, ABSENT)), (0x0300, (3, ABSENT)), (9, (ABSENT, 9)), (0x8B, (ABSENT, 11))]
        {
            let exit = exit_row(5, 4, 3, 2, status);
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

    fn table(host: &tempfile::TempDir) -> ProcessTable {
        let details = super::super::texts::RequestedTexts { groups: None };
        let mut table = ProcessTable::open(&HostRoot::new(host.path()), details, true).unwrap();
        table.read(1, PassScope::All, true).unwrap();
        for index in 0..table.order().len() {
            let known = table.order()[index];
            table.get(known).unwrap().0.start = u64::from(known.pid) * 100;
        }
        table
    }

    fn exited(pid: u32) -> ProcessEvent {
        ProcessEvent::Exited { pid, parent: 1, status: 0, mono_ns: 5 }
    }

    fn starts(log: &EventLog) -> Vec<(u64, u64)> {
        log.exits.iter().map(|exit| (exit.pid(), exit.start())).collect()
    }

    // Proves that a process is not treated as ended if its first thread ends because another thread
    // runs a program. The real exit of the process is recorded with the start of the process. A
    // process that reuses the pid of an ended process is treated as a different process.
    #[test]
    fn exec_by_a_thread_is_no_exit() {
        let host = host(&[7]);
        let (mut table, mut log) = (table(&host), EventLog::new());
        let mut record = |log: &mut EventLog, events: &[ProcessEvent]| {
            for event in events {
                log.record(*event, &mut table);
            }
        };
        record(&mut log, &[exited(7), exited(9), ProcessEvent::Executed { pid: 7, mono_ns: 3 }]);
        assert_eq!((starts(&log), log.counts.exits), (vec![(9, ABSENT)], 1));
        log.clear();
        // In the next sample it is too late to remove the first exit.
        record(&mut log, &[exited(7)]);
        assert_eq!(starts(&log), [(7, 700)]);
        log.clear();
        record(&mut log, &[ProcessEvent::Executed { pid: 7, mono_ns: 3 }, exited(7)]);
        assert_eq!(starts(&log), [(7, 700)]);
        log.clear();
        let forked = |pid| ProcessEvent::Forked { pid };
        record(&mut log, &[forked(8), exited(8), ProcessEvent::Executed { pid: 8, mono_ns: 3 }]);
        assert!(log.exits.is_empty());
        record(&mut log, &[exited(8), forked(8), ProcessEvent::Executed { pid: 8, mono_ns: 3 }]);
        assert_eq!(starts(&log), [(8, ABSENT)]);
    }

    // Proves that after lost events, exits contain the start of the process again as soon as a
    // sample has shown which processes still exist.
    #[test]
    fn exits_are_certain_after_the_next_sample() {
        let host = host(&[7, 8]);
        let (mut table, mut log) = (table(&host), EventLog::new());
        log.record(ProcessEvent::Overrun, &mut table);
        table.events_lost();
        assert_eq!(table.exited(7), ABSENT);
        table.read(2, PassScope::All, true).unwrap();
        assert_eq!((table.exited(8), table.exited(8)), (800, ABSENT));
    }
}
