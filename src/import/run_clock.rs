//! The clocks of a run whose times are foreign (docs/FORMAT.md, section 3).

use crate::os::clock::{ClockReading, NS_PER_S};

/// A step back of the foreign clock by more than this is a clock that was set; by less, frames that were captured out of order.
const STEP_BACK_NS: i64 = NS_PER_S.cast_signed();

/// The clocks of a run that is made of foreign times.
#[derive(Debug, Default)]
#[allow(clippy::struct_field_names, reason = "the unit is part of the name")]
pub(super) struct RunClock {
    offset_ns: i64, // wall - monotonic
    last_mono_ns: u64,
    last_wall_ns: i64,
}

impl RunClock {
    /// Whether a wall time fits the pairing in force.
    #[inline]
    pub(super) fn keeps(&self, wall_ns: i64) -> bool {
        wall_ns.saturating_sub(self.last_wall_ns) >= -STEP_BACK_NS
    }

    /// The monotonic time of a frame: never before that of the last one.
    #[inline]
    pub(super) fn mono_ns(&mut self, wall_ns: i64) -> u64 {
        let mono_ns = u64::try_from(wall_ns.saturating_sub(self.offset_ns)).unwrap_or(0);
        self.last_mono_ns = self.last_mono_ns.max(mono_ns);
        self.last_wall_ns = self.last_wall_ns.max(wall_ns);
        self.last_mono_ns
    }

    /// A new pairing. The first one shows the same number on both clocks, or 0 on the monotonic one before 1970.
    pub(super) fn pair(&mut self, wall_ns: i64, is_first: bool) -> ClockReading {
        if is_first {
            self.last_mono_ns = u64::try_from(wall_ns).unwrap_or(0);
        }
        self.last_wall_ns = wall_ns;
        self.offset_ns = wall_ns.saturating_sub(i64::try_from(self.last_mono_ns).unwrap_or(i64::MAX));
        self.now()
    }

    pub(super) fn now(&self) -> ClockReading {
        let mono_ns = self.last_mono_ns;
        let wall_ns = self.offset_ns.saturating_add(i64::try_from(mono_ns).unwrap_or(i64::MAX));
        ClockReading { mono_ns, boot_ns: mono_ns, wall_ns }
    }
}
