//! Clocks of a run whose times come from another clock, the foreign clock (docs/FORMAT.md, section
//! 3).

use flatcap_format::host::ClockReading;
use flatcap_os::clock::NS_PER_S;

/// Limit on a backward step of the foreign clock. A larger step means that the clock was set back.
/// A smaller step means that frames were captured out of order.
const STEP_BACK_NS: i64 = NS_PER_S.cast_signed();

/// Maps the wall times of an import to a monotonic clock.
#[derive(Debug, Default)]
#[allow(clippy::struct_field_names, reason = "the unit is part of the name")]
pub(super) struct RunClock {
    offset_ns: i64, // wall - monotonic
    last_mono_ns: u64,
    last_wall_ns: i64,
}

impl RunClock {
    /// Returns whether a wall time is consistent with the current clock offset.
    #[inline]
    pub(super) fn is_continuous(&self, wall_ns: i64) -> bool {
        wall_ns.saturating_sub(self.last_wall_ns) >= -STEP_BACK_NS
    }

    /// Returns the monotonic time of a frame, which is never before the time of the last frame.
    #[inline]
    pub(super) fn mono_ns(&mut self, wall_ns: i64) -> u64 {
        let mono_ns = u64::try_from(wall_ns.saturating_sub(self.offset_ns)).unwrap_or(0);
        self.last_mono_ns = self.last_mono_ns.max(mono_ns);
        self.last_wall_ns = self.last_wall_ns.max(wall_ns);
        self.last_mono_ns
    }

    /// Sets a new clock offset. After the first call, both clocks show the same number. For times
    /// before 1970, the monotonic clock shows 0.
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
