//! Determines the access to `perf_event_open(2)` that the kernel allows.

use std::io::{self, ErrorKind};
use std::time::Duration;

use flatcap_os::host::{HostRoot, in_initial_pid_namespace};
use flatcap_tasks::PAYLOAD_NS_MAX;

use super::Unavailable;

/// File with the kernel's restriction level for events. From a certain level on, the kernel refuses
/// events to processes without a capability.
pub(super) const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";

/// Returns an error that names the permissions that events on whole cores need. `what` is the
/// refused operation, which is counting or recording. `paranoid` is the content of [`PARANOID`].
pub(super) fn denied(what: &str, error: &io::Error, paranoid: &[u8]) -> io::Error {
    let level = String::from_utf8_lossy(paranoid.trim_ascii());
    io::Error::new(
        error.kind(),
        format!(
            "perf_event_open: {error}: {what} on whole cores needs CAP_PERFMON (CAP_SYS_ADMIN before Linux \
             5.8), or kernel.perf_event_paranoid at most 0; it is {level}"
        ),
    )
}

/// Checks that the kernel's records contain an id for every thread of the host. In the PID
/// namespace of a container, threads outside of the container have no ids.
pub(super) fn require_host_ids(source: &str, host: &HostRoot) -> Result<(), Unavailable> {
    if in_initial_pid_namespace() && host.shares_pid_namespace() {
        return Ok(());
    }
    let message = format!(
        "{source} needs the PID namespace of the host (hostPID, --pid=host): threads of others have no ids"
    );
    Err(Unavailable::of(io::Error::new(ErrorKind::Unsupported, message)))
}

/// Checks that the period of a source that records events is not longer than readers accept.
pub(super) fn require_short_period(period: Duration) -> Result<(), Unavailable> {
    let longest = Duration::from_nanos(PAYLOAD_NS_MAX);
    if period <= longest {
        return Ok(());
    }
    let message = format!(
        "the period is {} s, and a sample can have what happens in {} s at most: set a shorter period",
        period.as_secs(),
        longest.as_secs()
    );
    Err(Unavailable::of(io::Error::new(ErrorKind::InvalidInput, message)))
}
