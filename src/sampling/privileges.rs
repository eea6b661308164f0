//! What a sampler thread asks of the scheduler. Where the kernel refuses, one warning says so, and sampling goes on without.

use crate::config::{Group, GroupName, Timing};
use crate::os::thread;

/// Gives back what the configuration no longer says, and asks for what it says now, for the calling thread.
pub(super) fn change(name: GroupName, before: &Group, group: &Group) {
    let refused = |what: &str, error: std::io::Error| {
        let name = name.as_str();
        tracing::warn!(%error, "[group.{name}] {what}: the kernel refuses to give it up; restart the service");
    };
    if group.timing == Timing::Relaxed && before.timing != Timing::Relaxed {
        thread::wake_leisurely().unwrap_or_else(|error| refused("timing", error));
    }
    if group.cpus.is_empty() && !before.cpus.is_empty() {
        thread::run_anywhere().unwrap_or_else(|error| refused("cpus", error));
    }
    if group.priority == 0 && before.priority > 0 {
        thread::run_among_others().unwrap_or_else(|error| refused("priority", error));
    }
    ask(name, group);
}

/// Asks for what the configuration says, for the calling thread.
pub(super) fn ask(name: GroupName, group: &Group) {
    let name = name.as_str();
    if group.timing != Timing::Relaxed
        && let Err(error) = thread::wake_precisely()
    {
        let timing = group.timing.as_str();
        tracing::warn!(
            %error,
            "[group.{name}] timing = \"{timing}\": the kernel refuses a timer slack of 1 ns: samples come up to 50 us later than \
             they could"
        );
    }
    let cpus = &group.cpus;
    if !cpus.is_empty() {
        match thread::run_on(cpus) {
            Ok(left_out) if left_out.is_empty() => {}
            Ok(left_out) => tracing::warn!(
                "[group.{name}] cpus = {cpus:?}: the kernel leaves out {left_out:?}, the threads run on the others; see \
                 /sys/devices/system/cpu/online for what this host has, and AllowedCPUs= of the service"
            ),
            Err(error) => tracing::warn!(
                %error,
                "[group.{name}] cpus = {cpus:?}: the kernel refuses, the threads run where they like; see \
                 /sys/devices/system/cpu/online for what this host has, and AllowedCPUs= of the service"
            ),
        }
    }
    let priority = group.priority;
    if priority > 0
        && let Err(error) = thread::run_first(priority)
    {
        tracing::warn!(
            %error,
            "[group.{name}] priority = {priority}: the kernel refuses, the thread has no real-time priority; grant CAP_SYS_NICE, or \
             set LimitRTPRIO={priority} for the service"
        );
    }
}
