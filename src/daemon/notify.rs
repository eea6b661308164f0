//! Notifies the service manager of the state of the recording. It reports that the run is ready,
//! reloading or stopping, sends the status line, and feeds the watchdog.
//!
//! This module also logs storage stalls, because a recorder that waits for its storage cannot log.

use std::io;
use std::time::Duration;

use flatcap_metrics::Metrics;
use flatcap_os::clock::{NS_PER_S, monotonic_ns};
use flatcap_os::service_manager::{ServiceManager, ServiceState};

use super::status_line::{RecordingState, StatusLine};
use super::watchdog::{RecorderActivity, Watchdog, WatchdogAction};

/// Minimum watchdog interval. With a shorter interval, the watchdog might kill a recorder that only
/// sleeps, because `poll_interval` can be one second.
const WATCHDOG_MIN: Duration = Duration::from_secs(3);
/// Extension of the stop timeout that is requested repeatedly while the run is stopping.
const END_TIME: Duration = Duration::from_secs(10);
/// Interval between two requests for an extension of the stop timeout.
const END_INTERVAL_NS: u64 = NS_PER_S;

/// The connection to the service manager.
#[derive(Debug)]
pub(super) struct ServiceNotifier {
    link: ServiceManager,
    watchdog: Option<Watchdog>,
    ring_watchdog: Option<Watchdog>, // of the ring's recorder, which takes the samples if there is one
    status: StatusLine,
    stall_ns: u64,         // of the stall that was logged, as last seen; 0 without one
    is_stuck_logged: bool, // logged that the watchdog is not fed
    has_failed: bool,      // sending; logged once
    end_ns: u64,           // when more time was last requested
}

impl ServiceNotifier {
    /// Connects to the service manager, if there is one.
    pub(super) fn connect(metrics: &Metrics) -> Self {
        let link = ServiceManager::from_environment().unwrap_or_else(|error| {
            tracing::warn!(%error, "NOTIFY_SOCKET is not a usable socket: the service manager is not notified");
            ServiceManager::none()
        });
        let now_ns = monotonic_ns();
        if let Some(limit) = link.watchdog().filter(|limit| *limit < WATCHDOG_MIN) {
            tracing::warn!(
                "WatchdogSec= is {limit:?}, less than {WATCHDOG_MIN:?}: a recorder that only sleeps may be considered stuck; raise it"
            );
        }
        Self {
            watchdog: link.watchdog().map(|limit| Watchdog::new(limit, now_ns)),
            ring_watchdog: link.watchdog().map(|limit| Watchdog::new(limit, now_ns)),
            link,
            status: StatusLine::new(now_ns, metrics),
            stall_ns: 0,
            is_stuck_logged: false,
            has_failed: false,
            end_ns: 0,
        }
    }

    /// Reports readiness, that is, the first segment is open and the samplers run.
    pub(super) fn ready(&mut self, metrics: &Metrics) {
        let result = self.link.notify_state(ServiceState::Ready, &StatusLine::first(metrics));
        self.log_failure(result);
    }

    /// Reports the start of a reload.
    pub(super) fn reload_begins(&mut self) {
        let result =
            self.link.notify_state(ServiceState::Reloading(monotonic_ns()), "reloading the configuration");
        self.log_failure(result);
    }

    /// Reports the end of a reload, successful or not.
    pub(super) fn reload_ends(&mut self, metrics: &Metrics) {
        self.ready(metrics);
    }

    /// Reports that the run is stopping.
    pub(super) fn end_begins(&mut self) {
        let result =
            self.link.notify_state(ServiceState::Stopping, "stopping: writing the remaining samples");
        self.log_failure(result);
    }

    /// Feeds the watchdog, logs stalls and sends the status line, each when it is due. `ring` has
    /// the counters of the ring's recorder, or is `None` without a ring.
    pub(super) fn update(&mut self, now_ns: u64, metrics: &Metrics, ring: Option<&Metrics>) {
        let result = self.link.send_pending();
        self.log_failure(result);
        let stuck_ns = self.feed(now_ns, metrics, ring);
        let state = match (self.log_stall(now_ns, metrics), stuck_ns) {
            (Some(ns), _) => RecordingState::Stalled(ns),
            (None, Some(ns)) => RecordingState::Stuck(ns),
            (None, None) => RecordingState::Recording,
        };
        self.show(now_ns, metrics, state);
    }

    /// Does the same as `update` while the run is stopping. Stopping has its own time limits, and
    /// within these limits it may exceed `TimeoutStopSec=`.
    pub(super) fn update_while_stopping(&mut self, now_ns: u64, metrics: &Metrics) {
        if now_ns < self.end_ns + END_INTERVAL_NS {
            return;
        }
        self.end_ns = now_ns;
        let result = self.link.extend_timeout(END_TIME);
        self.log_failure(result);
        let stall_ns = self.log_stall(now_ns, metrics);
        self.show(now_ns, metrics, stall_ns.map_or(RecordingState::Ending, RecordingState::Stalled));
    }

    /// Feeds the watchdog. If a recorder is stuck, returns for how long it has been stuck, in
    /// nanoseconds.
    fn feed(&mut self, now_ns: u64, metrics: &Metrics, ring: Option<&Metrics>) -> Option<u64> {
        let activity = |metrics: &Metrics| RecorderActivity {
            iterations: metrics.recorder.iterations.get(),
            in_storage_since_ns: metrics.recorder.in_storage_since.get(),
        };
        let action = self.watchdog.as_mut()?.check(now_ns, activity(metrics));
        let of_ring = self.ring_watchdog.as_mut().zip(ring);
        let of_ring = of_ring.map(|(watchdog, ring)| watchdog.check(now_ns, activity(ring)));
        let action = match of_ring {
            Some(stuck @ WatchdogAction::Withhold(_)) => stuck,
            _ => action,
        };
        match action {
            WatchdogAction::Wait => None,
            WatchdogAction::Feed | WatchdogAction::FeedStalled(_) => {
                self.is_stuck_logged = false;
                let result = self.link.ping_watchdog();
                self.log_failure(result);
                None
            }
            WatchdogAction::Withhold(ns) => {
                // A recorder that is inactive for a short time may be sleeping for `poll_interval`.
                // It is reported as stuck only after a time that is longer than any such sleep.
                let is_stuck = ns > u64::try_from(WATCHDOG_MIN.as_nanos()).unwrap_or(u64::MAX);
                if is_stuck && !self.is_stuck_logged {
                    self.is_stuck_logged = true;
                    tracing::error!(
                        "the recorder is stuck outside of storage calls: the watchdog is not fed until it continues, and the service \
                         manager will restart the service"
                    );
                }
                is_stuck.then_some(ns)
            }
        }
    }

    /// Logs the start and the end of a storage stall. Returns the duration of the current stall, if
    /// there is one.
    fn log_stall(&mut self, now_ns: u64, metrics: &Metrics) -> Option<u64> {
        let stall_ns = metrics.recorder.current_stall_ns(now_ns);
        match (stall_ns, self.stall_ns) {
            (Some(_), 0) => tracing::warn!(
                "the storage does not respond; sampling continues in memory, see the kernel's log for disk errors"
            ),
            (None, before @ 1..) => {
                tracing::info!(seconds = before / NS_PER_S, "the storage responds again");
            }
            _ => {}
        }
        self.stall_ns = stall_ns.unwrap_or(0);
        stall_ns
    }

    fn show(&mut self, now_ns: u64, metrics: &Metrics, state: RecordingState) {
        if !self.link.is_connected() {
            return;
        }
        if let Some(line) = self.status.update(now_ns, metrics, state) {
            let result = self.link.notify_status(line);
            self.log_failure(result);
        }
    }

    fn log_failure(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) => self.has_failed = false,
            Err(_) if self.has_failed => {}
            Err(error) => {
                self.has_failed = true;
                tracing::warn!(%error, "cannot notify the service manager; recording continues");
            }
        }
    }
}
