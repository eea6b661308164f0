//! The inputs that the program gets from its host, which are clocks and random numbers.

use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Returns monotonic time, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic)).unsigned_abs()
}

/// Returns the time of day, in nanoseconds since 1970.
pub(crate) fn wall_ns() -> i64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// Returns the CPU time of all threads of this process, in nanoseconds.
pub(crate) fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime)).unsigned_abs()
}

/// Returns a random part of a duration. If there are no random numbers, returns the whole duration.
pub(crate) fn random_part(whole: Duration) -> Duration {
    let mut bytes = [0; 4];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(_) => whole.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)),
        Err(_) => whole,
    }
}

fn nanoseconds(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}
