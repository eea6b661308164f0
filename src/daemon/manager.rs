//! The recording as the service manager is told of it: ready, reloading, ending, how it goes, and whether its watchdog is fed.
//!
//! What stalls is said in the log, too, and here: a recorder that waits for its storage cannot.

use std::io;
use std::time::Duration;

use super::status_line::{Standing, StatusLine};
use super::watchdog::{Seen, Verdict, Watchdog};
use crate::metrics::Metrics;
use crate::os::clock::{NS_PER_S, monotonic_ns};
use crate::os::service_manager::{ServiceManager, State};

/// A watchdog that wants to be fed more often than this may bite a recorder that only sleeps: `drain` may be a second.
const WATCHDOG_MIN: Duration = Duration::from_secs(3);
/// While the end goes on, so much time is asked for, from then on.
const END_TIME: Duration = Duration::from_secs(10);
/// How often.
const END_INTERVAL_NS: u64 = NS_PER_S;

/// The daemon's end of it.
#[derive(Debug)]
pub(super) struct Manager {
    link: ServiceManager,
    watchdog: Option<Watchdog>,
    status: StatusLine,
    stall_ns: u64,       // of the stall that was said, as last seen; 0 without one
    is_stuck_said: bool, // that the watchdog is not fed
    has_failed: bool,    // the link; said once
    end_ns: u64,         // when time was last asked for
}

impl Manager {
    /// Finds the service manager, if there is one.
    pub(super) fn find(metrics: &Metrics) -> Self {
        let link = ServiceManager::of_environment().unwrap_or_else(|error| {
            tracing::warn!(%error, "NOTIFY_SOCKET names no socket: the service manager is told nothing");
            ServiceManager::none()
        });
        let now_ns = monotonic_ns();
        if let Some(limit) = link.watchdog().filter(|limit| *limit < WATCHDOG_MIN) {
            tracing::warn!(
                "WatchdogSec= is {limit:?}, less than {WATCHDOG_MIN:?}: a recorder that only sleeps may be taken for one that is stuck"
            );
        }
        Self {
            watchdog: link.watchdog().map(|limit| Watchdog::new(limit, now_ns)),
            link,
            status: StatusLine::new(now_ns, metrics),
            stall_ns: 0,
            is_stuck_said: false,
            has_failed: false,
            end_ns: 0,
        }
    }

    /// The first segment is open and the samplers run.
    pub(super) fn ready(&mut self, metrics: &Metrics) {
        let result = self.link.tell(State::Ready, &StatusLine::first(metrics));
        self.note(result);
    }

    /// A reload begins.
    pub(super) fn reload_begins(&mut self) {
        let result = self.link.tell(State::Reloading(monotonic_ns()), "reading the configuration again");
        self.note(result);
    }

    /// It has ended, whichever way.
    pub(super) fn reload_ends(&mut self, metrics: &Metrics) {
        self.ready(metrics);
    }

    /// The end begins.
    pub(super) fn end_begins(&mut self) {
        let result = self.link.tell(State::Stopping, "ending: writing what was sampled");
        self.note(result);
    }

    /// Feeds the watchdog, says what stalls, shows how it goes: as is due.
    pub(super) fn look(&mut self, now_ns: u64, metrics: &Metrics) {
        let result = self.link.settle();
        self.note(result);
        let stuck_ns = self.feed(now_ns, metrics);
        let standing = match (self.name_stall(now_ns, metrics), stuck_ns) {
            (Some(ns), _) => Standing::Stalled(ns),
            (None, Some(ns)) => Standing::Stuck(ns),
            (None, None) => Standing::Recording,
        };
        self.show(now_ns, metrics, standing);
    }

    /// The same while the end goes on, which has its own limits: within them it may take longer than `TimeoutStopSec=`.
    pub(super) fn look_at_end(&mut self, now_ns: u64, metrics: &Metrics) {
        if now_ns < self.end_ns + END_INTERVAL_NS {
            return;
        }
        self.end_ns = now_ns;
        let result = self.link.ask_for_time(END_TIME);
        self.note(result);
        let stall_ns = self.name_stall(now_ns, metrics);
        self.show(now_ns, metrics, stall_ns.map_or(Standing::Ending, Standing::Stalled));
    }

    /// For how long the recorder has been stuck, if it is.
    fn feed(&mut self, now_ns: u64, metrics: &Metrics) -> Option<u64> {
        let recorder = &metrics.recorder;
        let seen = Seen { turns: recorder.turns.get(), in_storage_since_ns: recorder.in_storage_since.get() };
        match self.watchdog.as_mut()?.look(now_ns, seen) {
            Verdict::Wait => None,
            Verdict::Feed | Verdict::FeedStalled(_) => {
                self.is_stuck_said = false;
                let result = self.link.feed();
                self.note(result);
                None
            }
            Verdict::Starve(ns) => {
                // One that sleeps for `drain` is none: it is said when it can be nothing else.
                let is_stuck = ns > u64::try_from(WATCHDOG_MIN.as_nanos()).unwrap_or(u64::MAX);
                if is_stuck && !self.is_stuck_said {
                    self.is_stuck_said = true;
                    tracing::error!(
                        "the recorder is stuck, and not in the storage: the watchdog is not fed until it goes on, and the service \
                         manager will restart the service"
                    );
                }
                is_stuck.then_some(ns)
            }
        }
    }

    /// Says that the storage stalls and that it no longer does. For how long it has, if it does.
    fn name_stall(&mut self, now_ns: u64, metrics: &Metrics) -> Option<u64> {
        let stall_ns = metrics.recorder.stall_ns(now_ns);
        match (stall_ns, self.stall_ns) {
            (Some(_), 0) => tracing::warn!(
                "the storage does not answer; sampling goes on into memory, see the kernel's log for the disk's errors"
            ),
            (None, before @ 1..) => {
                tracing::info!(seconds = before / NS_PER_S, "the storage answers again");
            }
            _ => {}
        }
        self.stall_ns = stall_ns.unwrap_or(0);
        stall_ns
    }

    fn show(&mut self, now_ns: u64, metrics: &Metrics, standing: Standing) {
        if !self.link.is_there() {
            return;
        }
        if let Some(line) = self.status.look(now_ns, metrics, standing) {
            let result = self.link.show(line);
            self.note(result);
        }
    }

    fn note(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.has_failed = false,
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                tracing::warn!(%error, "the service manager cannot be told how it goes; recording goes on");
            }
        }
    }
}
