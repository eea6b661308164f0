//! Time in a trace.

/// The time in the trace, which begins with the boot of the host of the first run. Runs of other
/// boots and hosts are placed according to their wall time.
#[derive(Debug, Default)]
#[allow(clippy::struct_field_names, reason = "all are times in nanoseconds")]
pub(crate) struct TraceClock {
    /// Wall time of the earliest sample in nanoseconds, if it is known.
    earliest_wall_ns: Option<i64>,
    /// Wall time minus time in the trace; `None` before the first time of the trace.
    wall_offset_ns: Option<i64>,
    /// Boot time minus monotonic time of the run, in nanoseconds.
    suspended_ns: u64,
    /// Time in the trace minus monotonic time of the run; `None` before the first time of the run.
    offset_ns: Option<i64>,
}

impl TraceClock {
    /// Creates the clock of a recording whose earliest sample has this wall time.
    pub(crate) fn new(earliest_wall_ns: Option<i64>) -> Self {
        Self { earliest_wall_ns, ..Self::default() }
    }

    /// Begins another run. The following times belong to this run. `suspended_ns` is boot time
    /// minus monotonic time at the start of this run.
    pub(crate) fn begin_run(&mut self, suspended_ns: u64) {
        (self.suspended_ns, self.offset_ns) = (suspended_ns, None);
    }

    /// Sets the start of the run's time, unless it is already set. Returns whether this run is the
    /// first one.
    pub(crate) fn begin(&mut self, mono_ns: u64, wall_ns: i64) -> bool {
        if self.offset_ns.is_some() {
            return false;
        }
        let is_first = self.wall_offset_ns.is_none();
        let wall_offset_ns = *self.wall_offset_ns.get_or_insert_with(|| {
            let boot_wall_ns = wall_ns.saturating_sub_unsigned(mono_ns.saturating_add(self.suspended_ns));
            // No sample may be before time 0, and a run of an earlier boot may be read later.
            self.earliest_wall_ns.map_or(boot_wall_ns, |earliest_ns| boot_wall_ns.min(earliest_ns))
        });
        self.offset_ns = Some(wall_ns.wrapping_sub(wall_offset_ns).wrapping_sub_unsigned(mono_ns));
        is_first
    }

    /// Returns time in the trace minus monotonic time of the run, or `None` before the first time
    /// of the run.
    pub(crate) fn offset_ns(&self) -> Option<i64> {
        self.offset_ns
    }

    /// Converts a monotonic time of the run to the time in the trace.
    pub(crate) fn trace_ns(&self, mono_ns: u64) -> u64 {
        mono_ns.saturating_add_signed(self.offset_ns.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_NS: i64 = 1_000_000;

    // Proves that the time in the trace is boot time, including suspended time, and that another
    // run is placed according to its wall time.
    #[test]
    fn time_is_since_boot() {
        let mut clock = TraceClock::new(Some(WALL_NS));
        clock.begin_run(50);
        assert_eq!((clock.begin(200, WALL_NS), clock.trace_ns(200)), (true, 250));
        assert_eq!((clock.begin(900, WALL_NS + 999), clock.trace_ns(201)), (false, 251));
        clock.begin_run(0);
        assert_eq!(clock.offset_ns(), None);
        assert_eq!((clock.begin(7, WALL_NS + 1000), clock.trace_ns(7)), (false, 1250));
    }

    // Proves that an earlier boot's run is not before time 0, even if the run is read later.
    #[test]
    fn nothing_is_before_the_begin() {
        let mut clock = TraceClock::new(Some(WALL_NS - 5000));
        clock.begin_run(0);
        assert_eq!((clock.begin(200, WALL_NS), clock.trace_ns(200)), (true, 5000));
        clock.begin_run(0);
        assert_eq!((clock.begin(3000, WALL_NS - 5000), clock.trace_ns(3000)), (false, 0));
    }
}
