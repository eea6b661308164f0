//! Applies the scheduling settings of a sampler thread. If the kernel refuses a setting, a warning
//! is logged, and sampling continues without that setting.

use flatcap_os::thread;

use super::thread_settings::{GroupName, ThreadSettings, Timing};

/// The default of `priority`. Many hosts refuse it, which is no reason for a warning.
const DEFAULT_PRIORITY: u8 = 1;

/// Resets the settings of the calling thread that are no longer in the configuration, and applies
/// the new settings. Returns whether the thread has real-time priority.
pub(super) fn change(name: GroupName, before: &ThreadSettings, group: &ThreadSettings) -> bool {
    let refused = |what: &str, error: std::io::Error| {
        let name = name.as_str();
        tracing::warn!(%error, "[group.{name}] {what}: the kernel refuses to reset it; restart the service");
    };
    if group.timing == Timing::Relaxed && before.timing != Timing::Relaxed {
        thread::reset_timer_slack().unwrap_or_else(|error| refused("timing", error));
    }
    if group.cpus.is_empty() && !before.cpus.is_empty() {
        thread::reset_affinity().unwrap_or_else(|error| refused("cpus", error));
    }
    if group.priority == 0 && before.priority > 0 {
        thread::drop_realtime_priority().unwrap_or_else(|error| refused("priority", error));
    }
    apply(name, group)
}

/// Applies the configured settings to the calling thread. Returns whether the thread has real-time
/// priority.
pub(super) fn apply(name: GroupName, group: &ThreadSettings) -> bool {
    let name = name.as_str();
    if group.timing != Timing::Relaxed
        && let Err(error) = thread::set_min_timer_slack()
    {
        let timing = group.timing.as_str();
        tracing::warn!(
            %error,
            "[group.{name}] timing = \"{timing}\": the kernel refuses a timer slack of 1 ns; samples come up to 50 us later than \
             necessary"
        );
    }
    let cpus = &group.cpus;
    if !cpus.is_empty() {
        match thread::pin_to_cpus(cpus) {
            Ok(skipped) if skipped.is_empty() => {}
            Ok(left_out) => tracing::warn!(
                "[group.{name}] cpus = {cpus:?}: the kernel skips {left_out:?}, the threads run on the others; see \
                 /sys/devices/system/cpu/online for the CPUs of this host, and AllowedCPUs= of the service"
            ),
            Err(error) => tracing::warn!(
                %error,
                "[group.{name}] cpus = {cpus:?}: the kernel refuses, the threads run on any CPU; see \
                 /sys/devices/system/cpu/online for the CPUs of this host, and AllowedCPUs= of the service"
            ),
        }
    }
    let priority = group.priority;
    if priority == 0 {
        return false;
    }
    let Err(error) = thread::set_realtime_priority(priority) else { return true };
    if priority > DEFAULT_PRIORITY {
        tracing::warn!(
            %error,
            "[group.{name}] priority = {priority}: the kernel refuses, the thread has no real-time priority; grant CAP_SYS_NICE, or \
             set LimitRTPRIO={priority} for the service"
        );
    } else {
        tracing::debug!(%error, "[group.{name}] priority = {priority}: the kernel refuses");
    }
    // The thread may have an earlier, lower priority, which nobody would bound. The kernel never
    // refuses to drop it.
    let _refused = thread::drop_realtime_priority();
    false
}
