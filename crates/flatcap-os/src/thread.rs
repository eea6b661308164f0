//! Named threads, with settings for their wake-up precision, scheduling priority and CPU affinity.

use std::io;
use std::num::NonZeroU64;
use std::thread::{Builder, JoinHandle};

use rustix::process::{getpid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use super::clock::monotonic_ns;
use super::wake_event::WakeEvent;

/// Starts a thread with a name that `ps -L` and debuggers show. The kernel keeps only the first 15
/// bytes of the name.
///
/// # Errors
/// The kernel refuses to create a thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(body)
}

/// Waits until a thread has ended, or until a deadline. The standard library has no such wait.
/// Returns false if the thread still runs at `deadline_ns` of the monotonic clock. Calls
/// `meanwhile` every millisecond of the wait, with the current time.
pub fn wait_for_exit<T>(thread: &JoinHandle<T>, deadline_ns: u64, meanwhile: &mut dyn FnMut(u64)) -> bool {
    const LOOK_EVERY_NS: u64 = 1_000_000;
    let never = WakeEvent::new();
    while !thread.is_finished() {
        let now = monotonic_ns();
        if now >= deadline_ns {
            return false;
        }
        meanwhile(now);
        never.wait_until(now + LOOK_EVERY_NS);
    }
    true
}

/// Returns the kernel's id of the calling thread.
pub fn current_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Returns whether a thread of this process runs or waits only for a CPU (state R in
/// `/proc/self/task/ID/stat`, see `proc_pid_stat(5)`). Returns false if the file cannot be read.
pub fn is_ready(id: i32) -> bool {
    let stat = std::fs::read(format!("/proc/self/task/{id}/stat")).unwrap_or_default();
    // The name may contain any character, so it ends at the last parenthesis of the line.
    let name_end = stat.iter().rposition(|byte| *byte == b')');
    name_end.and_then(|end| stat.get(end..)).is_some_and(|rest| rest.starts_with(b") R"))
}

/// Sets the calling thread's timer slack to 1 ns. With the default of 50 us, the kernel batches
/// wake-ups and may wake the thread after its deadlines. At 1 kHz, the measured median lateness is
/// 43 us instead of 91 us.
///
/// # Errors
/// Any error of `prctl(PR_SET_TIMERSLACK)`. After an error, the thread keeps the default slack.
pub fn set_min_timer_slack() -> io::Result<()> {
    Ok(set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Restores the calling thread's default timer slack.
///
/// # Errors
/// Any error of `prctl(PR_SET_TIMERSLACK)`.
pub fn reset_timer_slack() -> io::Result<()> {
    Ok(set_current_timer_slack(None)?)
}

/// Gives the calling thread real-time priority (`SCHED_FIFO`, 1 to 99). The thread then takes
/// precedence over all threads with a lower or no real-time priority. Threads and programs that the
/// calling thread starts do not inherit the priority.
///
/// # Errors
/// Any error of `sched_setscheduler`, such as `PermissionDenied` without `CAP_SYS_NICE` if
/// `RLIMIT_RTPRIO` is lower, and `InvalidInput` if the priority is out of range. The thread then
/// keeps its priority.
pub fn set_realtime_priority(priority: u8) -> io::Result<()> {
    set_scheduler(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Makes the calling thread use a CPU only when the CPU is otherwise idle (`SCHED_IDLE`). If the
/// I/O scheduler has classes, the same applies to the disk (idle class of `ioprio_set`). Cannot be
/// undone without privileges. Threads that the calling thread starts inherit both settings.
///
/// # Errors
/// Any error of `sched_setscheduler` or `ioprio_set`. If one call fails, the other call is made
/// nevertheless.
pub fn set_idle_priority() -> io::Result<()> {
    let processor = set_scheduler(libc::SCHED_IDLE, 0);
    processor.and(set_idle_io_class())
}

#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn set_idle_io_class() -> io::Result<()> {
    // In linux/ioprio.h, the class is in the bits from 13 on. WHO_THREAD (1) selects a thread by
    // its id; id 0 is the calling thread.
    const IDLE_CLASS: libc::c_int = 3 << 13;
    const WHO_THREAD: libc::c_int = 1;
    // SAFETY: the call takes three integers and touches no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, IDLE_CLASS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the calling thread a batch thread (`SCHED_BATCH`, nice 0 or higher). The thread then gets
/// a normal share of the CPU but yields to threads that wake up. A negative nice value is raised to
/// 0, because it is meant for the process's samplers. A positive value is kept.
///
/// # Errors
/// Any error of `sched_setscheduler` or `setpriority`. If one call fails, the other call is made
/// nevertheless.
pub fn set_batch_priority() -> io::Result<()> {
    let policy = set_scheduler(libc::SCHED_BATCH, 0);
    policy.and(reset_negative_nice())
}

/// Raises the calling thread's nice value to 0 if it is negative, for example because the service
/// has a raised priority. Programs that the thread starts inherit the value.
///
/// # Errors
/// Any error of `setpriority`.
pub fn reset_negative_nice() -> io::Result<()> {
    // On Linux both calls affect only the calling thread, and lowering a priority needs no
    // privilege.
    if getpriority_process(None)? < 0 {
        setpriority_process(None, 0)?;
    }
    Ok(())
}

/// Drops the calling thread's real-time priority.
///
/// # Errors
/// Any error of `sched_setscheduler`.
pub fn drop_realtime_priority() -> io::Result<()> {
    // SCHED_RESET_ON_FORK is kept, because clearing this flag would need a privilege.
    set_scheduler(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
}

#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn set_scheduler(policy: libc::c_int, priority: u8) -> io::Result<()> {
    // The kernel's sched_param consists of only this number. The structure of a C library may be
    // longer (musl), and musl's function always fails.
    let parameters = libc::c_int::from(priority);
    // SAFETY: the call reads one int at the pointer, which is valid until the call returns. Thread
    // id 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts the calling thread to these CPUs. Returns the given CPUs on which the thread cannot
/// run. Such a CPU is missing, offline, or not in the control group's set.
///
/// # Errors
/// Any error of `sched_setaffinity`, such as `InvalidInput` if none of the CPUs is usable. The
/// thread's affinity is then unchanged.
pub fn pin_to_cpus(cpus: &[u32]) -> io::Result<Vec<u32>> {
    let cpu_index = |cpu: u32| usize::try_from(cpu).ok().filter(|place| *place < CpuSet::MAX_CPU);
    let mut wanted = CpuSet::new();
    cpus.iter().filter_map(|cpu| cpu_index(*cpu)).for_each(|place| wanted.set(place));
    sched_setaffinity(None, &wanted)?;
    let given = sched_getaffinity(None)?;
    Ok(cpus.iter().copied().filter(|cpu| cpu_index(*cpu).is_none_or(|place| !given.is_set(place))).collect())
}

/// Gives the calling thread the affinity of the process's main thread, which equals the affinity at
/// the start of the process.
///
/// # Errors
/// Any error of `sched_setaffinity`.
pub fn reset_affinity() -> io::Result<()> {
    Ok(sched_setaffinity(None, &sched_getaffinity(Some(getpid()))?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a field of the calling thread's status file.
    fn status(key: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line[key.len()..].trim().to_owned()
    }

    /// Runs `body` on a new thread, so that the thread's settings do not outlast `body`.
    fn on_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        spawn("test", body).unwrap().join().unwrap()
    }

    // Proves that a thread runs on the requested CPUs only, and that missing CPUs are reported.
    #[test]
    fn threads_run_on_their_cpus() {
        let first: u32 = {
            let list = status("Cpus_allowed_list:");
            list.split([',', '-']).next().unwrap().parse().unwrap()
        };
        let absent = 1023;
        let before = status("Cpus_allowed_list:");
        for (cpus, unusable) in [(vec![first], vec![]), (vec![first, absent, 9_999], vec![absent, 9_999])] {
            let (result, list, after) = on_a_thread(move || {
                let result = pin_to_cpus(&cpus);
                let list = status("Cpus_allowed_list:");
                reset_affinity().unwrap();
                (result, list, status("Cpus_allowed_list:"))
            });
            assert_eq!((result.unwrap(), list), (unusable, first.to_string()));
            assert_eq!(after, before);
        }
        let (result, list) = on_a_thread(move || (pin_to_cpus(&[absent]), status("Cpus_allowed_list:")));
        assert_eq!((result.unwrap_err().kind(), list), (io::ErrorKind::InvalidInput, before));
    }

    // Proves that `set_idle_priority` sets SCHED_IDLE (5 in /proc).
    #[test]
    fn threads_get_idle_priority() {
        let policy = on_a_thread(|| {
            set_idle_priority().unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned()
        });
        assert_eq!(policy, "5");
    }

    // Proves that only the calling thread's negative nice value is reset, and that a positive one
    // is kept. Setting a negative value needs a privilege that the test may lack.
    #[test]
    fn threads_reset_negative_nice() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
        };
        let own = nice();
        for (before, expected) in [(-5, 0), (7, 7)] {
            let after = on_a_thread(move || {
                setpriority_process(None, before).ok()?;
                reset_negative_nice().unwrap();
                Some(nice())
            });
            assert!(after.is_none_or(|after| after == expected), "{before}: {after:?}");
        }
        assert_eq!(nice(), own);
    }

    // Proves that a thread gets the requested real-time priority and that its children do not
    // inherit it. Without the privilege, the kernel's error is returned.
    #[test]
    fn threads_get_realtime_priority() {
        let policy = || {
            // These are fields 40 and 41 of proc_pid_stat(5). They are counted from field 3, which
            // is the first field after the name, because the name may contain any character.
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            let fields: Vec<&str> = fields.split(' ').collect();
            (fields[37].to_owned(), fields[38].to_owned())
        };
        let seen = on_a_thread(move || {
            set_realtime_priority(7)?;
            let (own, started) = (policy(), on_a_thread(policy));
            drop_realtime_priority()?;
            Ok::<_, io::Error>((own, started, policy()))
        });
        match seen {
            Ok((own, started, behind)) => {
                assert_eq!((behind.0.as_str(), behind.1.as_str()), ("0", "0"), "given back");
                assert_eq!((own.0.as_str(), own.1.as_str()), ("7", "1"), "SCHED_FIFO is 1");
                assert_eq!((started.0.as_str(), started.1.as_str()), ("0", "0"), "not inherited");
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied),
        }
        assert_eq!(
            on_a_thread(|| set_realtime_priority(100)).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
