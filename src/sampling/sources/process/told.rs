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

/// What was told.
#[derive(Debug)]
pub(super) struct Told {
    events: ProcessEvents,
    counts: Counts,
    /// Since the last sample.
    pub(super) exits: Vec<ProcessExit>,
    shortfall: Shortfall,
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
            Ok(events) => Some(Self::new(events)),
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

    fn new(events: ProcessEvents) -> Self {
        let exits = Vec::with_capacity(EXITS_MAX);
        Self { events, counts: Counts::default(), exits, shortfall: Shortfall::NONE }
    }

    /// Takes what was told since the last sample. Says whether that is all that happened.
    pub(super) fn take(&mut self, table: &mut Table) -> bool {
        self.exits.clear();
        self.shortfall = Shortfall::NONE;
        let Self { events, counts, exits, shortfall } = self;
        let mut is_doubtful = false;
        events.drain(|event| match event {
            ProcessEvent::Forked { pid } => {
                counts.forks += 1;
                table.forked(pid);
            }
            ProcessEvent::ThreadStarted => counts.threads += 1,
            ProcessEvent::Executed { pid } => {
                counts.execs += 1;
                table.changed(pid);
            }
            ProcessEvent::Changed { pid } => table.changed(pid),
            ProcessEvent::Exited { pid, parent, status, mono_ns } => {
                counts.exits += 1;
                let start = if is_doubtful { ABSENT } else { table.ended(pid) };
                if exits.len() < EXITS_MAX {
                    exits.push(exit(pid, parent, start, mono_ns, status));
                } else {
                    *shortfall |= Shortfall::TOO_MANY;
                }
            }
            ProcessEvent::Overrun => {
                counts.overruns += 1;
                is_doubtful = true;
                *shortfall |= Shortfall::TOO_MANY;
            }
        });
        if is_doubtful {
            table.doubt();
        }
        !is_doubtful
    }

    /// What the kernel told and had no room for.
    pub(super) fn shortfall(&self) -> Shortfall {
        self.shortfall
    }

    pub(super) fn counters(&self) -> EventCounters {
        let Counts { forks, threads, execs, exits, overruns } = self.counts;
        EventCounters::new(forks, threads, execs, exits, overruns)
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
}
