//! The time on CLOCK_MONOTONIC, read from the kernel or computed from the processor's timestamp
//! counter.
//!
//! Reading the kernel's clock takes about 25 ns, which is two thirds of the time of a push. Reading
//! the timestamp counter takes a third as long as reading the clock. A line through two measured
//! points converts the counter to a time. The points are at most a second apart, so the time
//! follows the kernel's corrections of the clock's speed (at most 500 ppm, in practice 1 ppm).

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds per second.
pub(crate) const NS_PER_S: u64 = 1_000_000_000;
/// Minimum time between the two points, in nanoseconds. At this distance, a measurement error of 40
/// ns changes the computed speed by 4 ppm, which is accurate enough.
const CALIBRATION_MIN_NS: u64 = 10_000_000;
/// Maximum time between two points, in nanoseconds.
pub(crate) const CALIBRATION_MAX_NS: u64 = NS_PER_S;

/// Returns CLOCK_MONOTONIC, in nanoseconds.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // The clock counts from the boot, so it is never negative, and 2^64 ns are 584 years.
    time.tv_sec.cast_unsigned().wrapping_mul(NS_PER_S).wrapping_add(time.tv_nsec.cast_unsigned())
}

/// The clock of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PushClock {
    Monotonic,
    Counter(CounterClock),
}

/// A line through two points, each with a value of the counter and a time of the clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CounterClock {
    point: ClockPoint,
    ns_per_tick: u64, // times 2^32
}

/// Both clocks, read at the same time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockPoint {
    ticks: u64,
    mono_ns: u64,
}

impl PushClock {
    /// Returns CLOCK_MONOTONIC, in nanoseconds.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Self::Monotonic => monotonic_ns(),
            Self::Counter(clock) => clock.at(ticks()),
        }
    }

    /// Calibrates the counter against the kernel's clock again. Returns the time for which the
    /// measurement is valid, in nanoseconds.
    pub(crate) fn calibrate(&mut self) -> u64 {
        if let Self::Counter(clock) = self {
            return clock.calibrate();
        }
        CALIBRATION_MAX_NS
    }
}

impl ClockPoint {
    /// Reads both clocks. Returns `None` if the kernel does not trust the counter for its own
    /// clock.
    pub(crate) fn if_trusted() -> Option<Self> {
        const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let source = std::fs::read_to_string(CLOCK_SOURCE).ok()?;
        (cfg!(target_arch = "x86_64") && source.trim() == "tsc").then(Self::now)
    }

    /// Reads both clocks several times, and returns the result of the attempt that took the
    /// shortest time.
    fn now() -> Self {
        let attempt = |_| {
            let before = ticks();
            let mono_ns = monotonic_ns();
            let after = ticks();
            (
                after.wrapping_sub(before),
                Self { ticks: before.wrapping_add(after.wrapping_sub(before) / 2), mono_ns },
            )
        };
        let best = (0..4).map(attempt).min_by_key(|(ticks, _)| *ticks);
        best.map_or(Self { ticks: 0, mono_ns: 0 }, |(_, point)| point)
    }

    /// Returns the line through this point and the current point. Waits until the two points are
    /// far enough apart.
    pub(crate) fn clock(self) -> CounterClock {
        let mut clock = CounterClock { point: self, ns_per_tick: 0 };
        while clock.calibrate() == 0 {
            std::hint::spin_loop();
        }
        clock
    }
}

impl CounterClock {
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a point is seconds old: less than 2^64 ns")]
    fn at(&self, ticks: u64) -> u64 {
        // The counter of another processor may be a few ticks behind the counter value of the
        // point.
        let passed = ticks.wrapping_sub(self.point.ticks).cast_signed().max(0).cast_unsigned();
        self.point.mono_ns + ((u128::from(passed) * u128::from(self.ns_per_tick)) >> 32) as u64
    }

    /// Returns the time for which the line is valid, in nanoseconds. This is the time between its
    /// two points, but at most `CALIBRATION_MAX_NS`, or 0 if the points are too close.
    fn calibrate(&mut self) -> u64 {
        let now = ClockPoint::now();
        let ns = now.mono_ns.saturating_sub(self.point.mono_ns);
        let ticks = now.ticks.wrapping_sub(self.point.ticks);
        if ns < CALIBRATION_MIN_NS || ticks == 0 {
            return 0;
        }
        let ratio = (u128::from(ns) << 32) / u128::from(ticks);
        *self = Self { point: now, ns_per_tick: u64::try_from(ratio).unwrap_or_default() };
        ns.min(CALIBRATION_MAX_NS)
    }
}

#[inline]
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the instruction has no safe name")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it only reads a counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the converted counter equals the kernel's clock. The tolerance is the time that
    // reading both takes plus a thousandth of the time since the measurement.
    #[test]
    fn the_counter_is_the_clock() {
        let Some(point) = ClockPoint::if_trusted() else {
            eprintln!("skipped: the kernel's clock is not the timestamp counter");
            return;
        };
        let clock = PushClock::Counter(point.clock());
        for _ in 0..1000 {
            let before = monotonic_ns();
            let counted = clock.now_ns();
            let after = monotonic_ns();
            let slack = 1000 + (after - point.mono_ns) / 1000;
            assert!(counted + slack >= before && counted <= after + slack, "{before} {counted} {after}");
        }
    }
}
