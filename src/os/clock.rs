//! Time as nanoseconds: CLOCK_MONOTONIC orders, wall time is monotonic time plus an offset.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC, in nanoseconds.
#[inline]
pub fn monotonic_ns() -> u64 {
    unsigned_ns(clock_gettime(ClockId::Monotonic))
}

/// Time that the calling thread has spent on a processor, in nanoseconds. Asking takes 700 ns.
pub fn thread_cpu_ns() -> u64 {
    unsigned_ns(clock_gettime(ClockId::ThreadCPUTime))
}

/// Time that all threads of the process have spent on processors, in nanoseconds. Asking takes some microseconds.
pub fn process_cpu_ns() -> u64 {
    unsigned_ns(clock_gettime(ClockId::ProcessCPUTime))
}

/// The three clocks of this host at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub mono_ns: u64,
    /// CLOCK_BOOTTIME, in nanoseconds: monotonic time plus time asleep.
    pub boot_ns: u64,
    /// CLOCK_REALTIME, in nanoseconds since 1970, UTC.
    pub wall_ns: i64,
}

impl ClockReading {
    /// How often the clocks are read; the tightest reading counts.
    const ATTEMPTS: usize = 8;

    /// Reads all clocks. The monotonic clock is read on both sides of the others, and of several attempts the one
    /// with the least time between the two wins: a preemption in the middle cannot skew the pairing.
    pub fn now() -> Self {
        let attempt = || {
            let before = monotonic_ns();
            let boot_ns = unsigned_ns(clock_gettime(ClockId::Boottime));
            let wall_ns = signed_ns(clock_gettime(ClockId::Realtime));
            let after = monotonic_ns();
            (after - before, Self { mono_ns: before + (after - before) / 2, boot_ns, wall_ns })
        };
        let mut best = attempt();
        for _ in 1..Self::ATTEMPTS {
            let next = attempt();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }

    /// What is added to monotonic time to get wall time, in nanoseconds.
    pub fn wall_offset_ns(&self) -> i64 {
        self.wall_ns.wrapping_sub_unsigned(self.mono_ns)
    }
}

/// What is added to monotonic time to get wall time, in nanoseconds: set by the recorder when the wall clock was stepped,
/// read by every sampler.
#[derive(Debug, Default)]
pub struct WallOffset(AtomicI64);

impl WallOffset {
    /// As these clocks say.
    pub fn new(clocks: &ClockReading) -> Self {
        Self(AtomicI64::new(clocks.wall_offset_ns()))
    }

    /// As last set.
    #[inline]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// From now on as these clocks say.
    pub fn set(&self, clocks: &ClockReading) {
        self.0.store(clocks.wall_offset_ns(), Ordering::Relaxed);
    }
}

/// What has made a pairing of the clocks wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockChange {
    /// The wall clock was set.
    Stepped,
    /// The host was suspended and has come back.
    Resumed,
}

/// Who notices that. A trait, so that a test can set the clock of a recorder and not the host's.
pub trait ClockWatch: Debug + Send {
    /// Whether the pairing has become wrong since the last call, and the new one. Never waits.
    fn changed(&mut self) -> Option<(ClockChange, ClockReading)>;
}

/// The kernel's own notice: a timer on the wall clock that is cancelled when that clock is set, and when the host comes
/// back from suspend (`timerfd_create(2)`, `TFD_TIMER_CANCEL_ON_SET`).
#[derive(Debug)]
pub struct ClockTimer {
    timer: OwnedFd,
    asleep_ns: u64, // boot time minus monotonic time
}

impl ClockTimer {
    /// Time asleep by which boot time and monotonic time must have come apart for a suspend: they are read one after the
    /// other, so a little is no evidence.
    const ASLEEP_MIN_NS: u64 = 1_000_000;

    /// Watches from now on.
    ///
    /// # Errors
    /// The kernel refuses a timer.
    pub fn start() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        let clocks = ClockReading::now();
        let watch = Self { timer, asleep_ns: clocks.boot_ns.saturating_sub(clocks.mono_ns) };
        watch.arm()?;
        Ok(watch)
    }

    /// Sets the timer to the end of time.
    fn arm(&self) -> io::Result<()> {
        let never = Timespec { tv_sec: i64::MAX / NS_PER_S.cast_signed(), tv_nsec: 0 };
        let timer = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &timer)?;
        Ok(())
    }
}

impl ClockWatch for ClockTimer {
    fn changed(&mut self) -> Option<(ClockChange, ClockReading)> {
        let mut expirations = [0; 8];
        match rustix::io::read(&self.timer, &mut expirations) {
            Err(Errno::CANCELED) => {}
            _ => return None,
        }
        if let Err(error) = self.arm() {
            tracing::error!(%error, "cannot watch the wall clock any more: further steps will not be recorded");
        }
        let clocks = ClockReading::now();
        let asleep_ns = clocks.boot_ns.saturating_sub(clocks.mono_ns);
        let change = if asleep_ns > self.asleep_ns + Self::ASLEEP_MIN_NS {
            ClockChange::Resumed
        } else {
            ClockChange::Stepped
        };
        self.asleep_ns = asleep_ns;
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
    // Both clocks count from the boot: never negative, and 2^64 ns are 584 years.
    time.tv_sec.cast_unsigned().wrapping_mul(NS_PER_S).wrapping_add(time.tv_nsec.cast_unsigned())
}

fn signed_ns(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: a pairing maps a monotonic reading to the wall time read beside it. Method: a plain read of both clocks; they differ by no
    // more than the time that all of this took.
    #[test]
    fn wall_time_follows_from_the_pairing() {
        let begin = monotonic_ns();
        let reading = ClockReading::now();
        let mono = monotonic_ns();
        let wall = signed_ns(clock_gettime(ClockId::Realtime));
        let most = monotonic_ns() - begin;
        let derived = reading.wall_offset_ns().wrapping_add_unsigned(mono);
        assert!((wall - derived).unsigned_abs() <= most, "derived {derived}, read {wall}, within {most}");
    }

    // Goal: deadlines survive the conversion to the kernel's form. Method: edges of a second.
    #[test]
    fn timespec_splits_at_the_second() {
        assert_eq!(timespec(0), Timespec { tv_sec: 0, tv_nsec: 0 });
        assert_eq!(timespec(2 * NS_PER_S - 1), Timespec { tv_sec: 1, tv_nsec: 999_999_999 });
        assert_eq!(timespec(2 * NS_PER_S), Timespec { tv_sec: 2, tv_nsec: 0 });
    }
}
