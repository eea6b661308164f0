//! Clocks in nanoseconds, and the detection of steps of the wall clock. CLOCK_MONOTONIC orders
//! events; wall time is monotonic time plus an offset. NTP corrects clock drift in both clocks
//! alike, so only a step changes the offset.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};

use flatcap_format::host::ClockReading;
use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Nanoseconds per second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// Returns CLOCK_MONOTONIC, in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    unsigned_ns(clock_gettime(ClockId::Monotonic))
}

/// Returns the CPU time of the calling thread, in nanoseconds. The call takes 700 ns.
pub fn thread_cpu_ns() -> u64 {
    unsigned_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// Returns the CPU time of all threads of the process, in nanoseconds. The call takes some
/// microseconds.
pub fn process_cpu_ns() -> u64 {
    unsigned_ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// Returns the CPU time of all threads of another process, in nanoseconds. The time includes
/// running threads up to now, and threads that have ended. Returns `None` if there is no such
/// process. No privilege is needed. /proc/PID/stat has the same time in steps of 10 ms;
/// /proc/PID/schedstat covers only the first thread.
#[allow(unsafe_code, reason = "neither the standard library nor rustix reads this clock")]
pub fn cpu_ns_of(pid: u32) -> Option<u64> {
    /// The CPU time clock of a process (the kernel's `CPUCLOCK_SCHED`).
    const CLOCK_OF_PROCESS: libc::clockid_t = 2;
    // The clock id is the same number that clock_getcpuclockid(3) returns.
    let clock = !libc::pid_t::try_from(pid).ok()? << 3 | CLOCK_OF_PROCESS;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec at the pointer, which is valid until it returns.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let ns = u64::try_from(time.tv_nsec).ok()?;
    (result == 0).then(|| seconds.saturating_mul(NS_PER_S).saturating_add(ns))
}

/// Number of attempts to read the clocks; the fastest attempt is used.
const ATTEMPTS: usize = 8;

/// Reads all clocks. Reads the monotonic clock before and after the other clocks. Keeps the attempt
/// with the shortest interval between these two reads, so that a preemption in between does not
/// skew the result.
pub fn read_clocks() -> ClockReading {
    let attempt = || {
        let before = monotonic_ns();
        let boot_ns = unsigned_ns(clock_gettime(ClockId::Boottime));
        let wall_ns = signed_ns(clock_gettime(ClockId::Realtime));
        let after = monotonic_ns();
        (after - before, ClockReading { mono_ns: before + (after - before) / 2, boot_ns, wall_ns })
    };
    let mut best = attempt();
    for _ in 1..ATTEMPTS {
        let next = attempt();
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

/// Wall time minus monotonic time, in nanoseconds. The recorder sets the offset after each step of
/// the wall clock; every sampler reads it.
#[derive(Debug, Default)]
pub struct WallOffset(AtomicI64);

impl WallOffset {
    /// Creates the offset between the two clocks in this reading.
    pub fn new(clocks: &ClockReading) -> Self {
        Self(AtomicI64::new(clocks.wall_offset_ns()))
    }

    /// Returns the offset as last set.
    #[inline]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the offset to the difference between the two clocks in this reading.
    pub fn set(&self, clocks: &ClockReading) {
        self.0.store(clocks.wall_offset_ns(), Ordering::Relaxed);
    }
}

/// The reason why a wall clock offset is outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// The wall clock was set.
    Stepped,
    /// The host has resumed from suspend.
    Resumed,
}

/// Detects clock changes. This is a trait so that a test can change the recorder's clock without
/// changing the host's clock.
pub trait ClockChangeDetector: Debug + Send {
    /// If the wall clock offset has become outdated since the last call, returns the kind of the
    /// change and new clock readings. Never waits.
    fn poll_change(&mut self) -> Option<(ClockChange, ClockReading)>;
}

/// Detects clock changes by a timer on the wall clock. The kernel cancels the timer when the clock
/// is set and when the host resumes from suspend (`timerfd_create(2)`, `TFD_TIMER_CANCEL_ON_SET`).
#[derive(Debug)]
pub struct ClockChangeTimer {
    timer: OwnedFd,
    suspended_ns: u64, // boot time minus monotonic time
}

impl ClockChangeTimer {
    /// Minimum change of the difference between boot time and monotonic time that is treated as a
    /// suspend, in nanoseconds. The clocks are read one after the other, so a smaller difference
    /// proves nothing.
    const SUSPENDED_MIN_NS: u64 = 1_000_000;

    /// Starts the timer.
    ///
    /// # Errors
    /// The kernel refuses a timer.
    pub fn start() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        let clocks = read_clocks();
        let watch = Self { timer, suspended_ns: clocks.boot_ns.saturating_sub(clocks.mono_ns) };
        watch.arm()?;
        Ok(watch)
    }

    /// Sets the timer to the latest time that the kernel accepts, so that it never expires.
    fn arm(&self) -> io::Result<()> {
        let never = Timespec { tv_sec: i64::MAX / NS_PER_S.cast_signed(), tv_nsec: 0 };
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &timer)?;
        Ok(())
    }
}

impl ClockChangeDetector for ClockChangeTimer {
    fn poll_change(&mut self) -> Option<(ClockChange, ClockReading)> {
        let mut expirations = [0; 8];
        match rustix::io::read(&self.timer, &mut expirations) {
            Err(Errno::CANCELED) => {}
            _ => return None,
        }
        if let Err(error) = self.arm() {
            tracing::error!(%error, "cannot watch the wall clock any longer: further steps will not be recorded");
        }
        let clocks = read_clocks();
        let asleep_ns = clocks.boot_ns.saturating_sub(clocks.mono_ns);
        let change = if asleep_ns > self.suspended_ns + Self::SUSPENDED_MIN_NS {
            ClockChange::Resumed
        } else {
            ClockChange::Stepped
        };
        self.suspended_ns = asleep_ns;
        Some((change, clocks))
    }
}

pub(super) fn timespec(ns: u64) -> Timespec {
    let seconds = i64::try_from(ns / NS_PER_S).unwrap_or(i64::MAX);
    let nanoseconds = i64::try_from(ns % NS_PER_S).unwrap_or(0);
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds }
}

#[inline]
fn unsigned_ns(time: Timespec) -> u64 {
    // Both clocks count from boot, so they are never negative. They cannot overflow, because 2^64
    // ns are 584 years.
    time.tv_sec.cast_unsigned().wrapping_mul(NS_PER_S).wrapping_add(time.tv_nsec.cast_unsigned())
}

fn signed_ns(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the clock of a process covers all its threads, and that an unused process id has
    // no clock. The clock of this process advances with this thread's CPU time and equals the clock
    // that the process reads for itself.
    #[test]
    fn the_clock_of_a_process() {
        let pid = std::process::id();
        let own_before = process_cpu_ns();
        let before = cpu_ns_of(pid).unwrap();
        let thread_before = thread_cpu_ns();
        while thread_cpu_ns() - thread_before < 1_000_000 {}
        let after = cpu_ns_of(pid).unwrap();
        assert!(after - before >= 1_000_000, "{before} {after}");
        assert!(own_before <= before && after <= process_cpu_ns());
        assert!(cpu_ns_of(1).is_some_and(|ns| ns > 0));
        assert_eq!((cpu_ns_of(u32::MAX), cpu_ns_of((1 << 22) + 1)), (None, None));
    }

    // Proves that the offset maps a monotonic time to the wall time that was read together with it.
    // The error is at most the duration of the test.
    #[test]
    fn wall_time_follows_from_the_pairing() {
        let begin = monotonic_ns();
        let reading = read_clocks();
        let mono = monotonic_ns();
        let wall = signed_ns(clock_gettime(ClockId::Realtime));
        let most = monotonic_ns() - begin;
        let derived = reading.wall_offset_ns().wrapping_add_unsigned(mono);
        assert!((wall - derived).unsigned_abs() <= most, "derived {derived}, read {wall}, within {most}");
    }

    // Proves that deadlines at the edges of a second are converted to a timespec without loss.
    #[test]
    fn timespec_splits_at_the_second() {
        assert_eq!(timespec(0), Timespec { tv_sec: 0, tv_nsec: 0 });
        assert_eq!(timespec(2 * NS_PER_S - 1), Timespec { tv_sec: 1, tv_nsec: 999_999_999 });
        assert_eq!(timespec(2 * NS_PER_S), Timespec { tv_sec: 2, tv_nsec: 0 });
    }
}
