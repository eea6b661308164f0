//! Named threads: how punctually the kernel wakes them, before whom they run, and where.

use std::io;
use std::num::NonZeroU64;
use std::thread::{Builder, JoinHandle};

use rustix::process::{getpid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use super::clock::monotonic_ns;
use super::event::Event;

/// Starts a thread under a name that `ps -L` and a debugger show. The kernel keeps 15 bytes of it.
///
/// # Errors
/// The kernel refuses another thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name(name.to_owned()).spawn(body)
}

/// Waits until a thread has ended; false if it has not by this time of the monotonic clock. The standard library can only wait without
/// one. `meanwhile` is called with the time every millisecond.
pub fn ends_by<T>(thread: &JoinHandle<T>, deadline_ns: u64, meanwhile: &mut dyn FnMut(u64)) -> bool {
    const LOOK_EVERY_NS: u64 = 1_000_000;
    let never = Event::new();
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

/// Asks the kernel to wake the calling thread within a nanosecond of its deadlines instead of bundling wake-ups in
/// the default 50 us. Measured at 1 kHz: median lateness 43 instead of 91 us.
///
/// # Errors
/// What `prctl(PR_SET_TIMERSLACK)` says; the thread then keeps the default.
pub fn wake_precisely() -> io::Result<()> {
    Ok(set_current_timer_slack(NonZeroU64::new(1))?)
}

/// Lets the kernel bundle the calling thread's wake-ups again, as it did when the thread was started.
///
/// # Errors
/// What `prctl(PR_SET_TIMERSLACK)` says.
pub fn wake_leisurely() -> io::Result<()> {
    Ok(set_current_timer_slack(None)?)
}

/// Lets the calling thread run before all that has no real-time priority, and before what has a lower one (`SCHED_FIFO`, 1 to 99).
/// Threads and programs that it starts do not inherit this.
///
/// # Errors
/// What `sched_setscheduler` says: `PermissionDenied` without `CAP_SYS_NICE` where `RLIMIT_RTPRIO` is lower, `InvalidInput` for a
/// priority that there is not. The thread then keeps what it has.
pub fn run_first(priority: u8) -> io::Result<()> {
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Lets the calling thread run only when nothing else wants to, on processors (`SCHED_IDLE`) and, where the I/O scheduler knows classes, on disks
/// (the idle class of `ioprio_set`). For good: without a privilege the kernel gives neither back. Threads that it starts inherit both.
///
/// # Errors
/// What `sched_setscheduler` or `ioprio_set` says; both are tried.
pub fn run_last() -> io::Result<()> {
    let processor = schedule(libc::SCHED_IDLE, 0);
    processor.and(disk_last())
}

#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn disk_last() -> io::Result<()> {
    // linux/ioprio.h: the class stands in the bits from 13 on; "who" 1 is a thread, 0 the calling one.
    const IDLE_CLASS: libc::c_int = 3 << 13;
    const WHO_THREAD: libc::c_int = 1;
    // SAFETY: the call takes three integers and touches no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, IDLE_CLASS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the calling thread yield to threads that wake up, but have its part of the processors like any other (`SCHED_BATCH`, nice 0 at the least):
/// a priority that the process was given, for its samplers, is not its own. A process that was made nicer stays so.
///
/// # Errors
/// What `sched_setscheduler` or `setpriority` says; both are tried.
pub fn run_in_batches() -> io::Result<()> {
    let policy = schedule(libc::SCHED_BATCH, 0);
    policy.and(give_up_nice())
}

/// Sets the calling thread's nice value to 0 if it is lower, as it is where the service runs before others. Programs that it starts
/// inherit that.
///
/// # Errors
/// What `setpriority` says.
pub fn give_up_nice() -> io::Result<()> {
    // On Linux these two calls are about the calling thread, and lowering a priority needs no right.
    if getpriority_process(None)? < 0 {
        setpriority_process(None, 0)?;
    }
    Ok(())
}

/// Takes the calling thread's real-time priority away again.
///
/// # Errors
/// What `sched_setscheduler` says.
pub fn run_among_others() -> io::Result<()> {
    // The flag may not be given back without a privilege.
    schedule(libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK, 0)
}

#[allow(unsafe_code, reason = "neither the standard library nor rustix has this call")]
fn schedule(policy: libc::c_int, priority: u8) -> io::Result<()> {
    // The kernel's sched_param is this one number; a C library's may be longer (musl), and musl's own function refuses always.
    let parameters = libc::c_int::from(priority);
    // SAFETY: the call reads one int behind the pointer, which lives until it returns; thread 0 is the calling one.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the calling thread run on these processors alone. Returns those of them that it may not run on: they are not there, not
/// online, or not in the control group's set.
///
/// # Errors
/// What `sched_setaffinity` says: `InvalidInput` where none of them is left. The thread then runs where it could before.
pub fn run_on(cpus: &[u32]) -> io::Result<Vec<u32>> {
    let place = |cpu: u32| usize::try_from(cpu).ok().filter(|place| *place < CpuSet::MAX_CPU);
    let mut wanted = CpuSet::new();
    cpus.iter().filter_map(|cpu| place(*cpu)).for_each(|place| wanted.set(place));
    sched_setaffinity(None, &wanted)?;
    let given = sched_getaffinity(None)?;
    Ok(cpus.iter().copied().filter(|cpu| place(*cpu).is_none_or(|place| !given.is_set(place))).collect())
}

/// Lets the calling thread run wherever the process's first thread may, which is where the process was put when it was started.
///
/// # Errors
/// What `sched_setaffinity` says.
pub fn run_anywhere() -> io::Result<()> {
    Ok(sched_setaffinity(None, &sched_getaffinity(Some(getpid()))?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of the calling thread's status.
    fn status(key: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line[key.len()..].trim().to_owned()
    }

    /// What `body` comes to on a thread of its own, whose settings go with it.
    fn on_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        spawn("test", body).unwrap().join().unwrap()
    }

    // Goal: a thread runs where it is told to, and hears of processors that are not there. Method: the kernel's own list; the
    // first processor this test may use, alone and with one that no host has; and that one alone.
    #[test]
    fn threads_run_where_they_are_told_to() {
        let first: u32 = {
            let list = status("Cpus_allowed_list:");
            list.split([',', '-']).next().unwrap().parse().unwrap()
        };
        let absent = 1023;
        let before = status("Cpus_allowed_list:");
        for (cpus, left_out) in [(vec![first], vec![]), (vec![first, absent, 9_999], vec![absent, 9_999])] {
            let (result, list, behind) = on_a_thread(move || {
                let result = run_on(&cpus);
                let list = status("Cpus_allowed_list:");
                run_anywhere().unwrap();
                (result, list, status("Cpus_allowed_list:"))
            });
            assert_eq!((result.unwrap(), list), (left_out, first.to_string()));
            assert_eq!(behind, before);
        }
        let (result, list) = on_a_thread(move || (run_on(&[absent]), status("Cpus_allowed_list:")));
        assert_eq!((result.unwrap_err().kind(), list), (io::ErrorKind::InvalidInput, before));
    }

    // Goal: a thread that asks for it runs last. Method: the policy as /proc shows it: SCHED_IDLE is 5.
    #[test]
    fn threads_run_last_if_they_ask() {
        let policy = on_a_thread(|| {
            run_last().unwrap();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(38).unwrap().to_owned()
        });
        assert_eq!(policy, "5");
    }

    // Goal: a thread gives up a nice value below 0, for itself alone, and keeps one above. Method: the value as /proc shows it; below 0 needs
    // a right that this test may not have.
    #[test]
    fn threads_give_up_what_puts_them_first() {
        let nice = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse::<i32>().unwrap()
        };
        let own = nice();
        for (before, expected) in [(-5, 0), (7, 7)] {
            let after = on_a_thread(move || {
                setpriority_process(None, before).ok()?;
                give_up_nice().unwrap();
                Some(nice())
            });
            assert!(after.is_none_or(|after| after == expected), "{before}: {after:?}");
        }
        assert_eq!(nice(), own);
    }

    // Goal: a thread has the priority that it asked for, and one that it starts has none; or the kernel's refusal is told.
    // Method: policy and priority as /proc shows them; where this test has no right to it, the kind of the error.
    #[test]
    fn threads_run_first_if_they_may() {
        let policy = || {
            // Behind the name, which may hold anything: fields 40 and 41 of proc_pid_stat(5), counted from field 3.
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            let fields: Vec<&str> = fields.split(' ').collect();
            (fields[37].to_owned(), fields[38].to_owned())
        };
        let seen = on_a_thread(move || {
            run_first(7)?;
            let (own, started) = (policy(), on_a_thread(policy));
            run_among_others()?;
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
        assert_eq!(on_a_thread(|| run_first(100)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
