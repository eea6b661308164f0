//! The spin margin is the time before a deadline at which a thread must be awake. With this margin,
//! the thread meets the deadline in spite of jitter in its wake-ups. The code is pure, since
//! measurements are passed in.

/// Number of sleeps of which one may end later than the margin allows. A limit on the 99th
/// percentile permits more than twice this share of late sleeps. The other late sleeps that the
/// percentile permits are reserved for delays that no margin compensates.
const LATE_ONE_IN: u64 = 250;
/// A sleep that ended too late lengthens the margin by 1 / `STEP_PART` of the margin. Any other
/// sleep shortens the margin by 1 / (`LATE_ONE_IN - 1`) of that step. The two effects balance when
/// exactly one sleep in `LATE_ONE_IN` is too late. A single long sleep changes the margin only
/// little.
const STEP_PART: u64 = 32;
/// Time that is added to the lateness of each sleep, for reading the clock and leaving the spin
/// loop.
const OVERHEAD_NS: u64 = 1_000;
/// Lower limit of the margin. No kernel wakes a thread faster.
const MARGIN_MIN_NS: u64 = 3_000;
/// Upper limit of the margin. With this margin, spinning at 1 kHz takes at most 12 % of a core.
/// Sleeps that end later than this are ignored, because no margin compensates such delays.
const MARGIN_MAX_NS: u64 = 120_000;
/// Initial margin, which is the margin that an idle virtual machine needs.
const MARGIN_START_NS: u64 = 100_000;
/// The margin is stored in units of 1 / `FRACTIONS_PER_NS` of a nanosecond. If it were stored in
/// whole nanoseconds, a short margin could never become shorter.
const FRACTIONS_PER_NS: u64 = 1 << 10;

/// Tracks a high quantile of the lateness of sleeps, with exponential decay.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpinMargin {
    fractions: u64, // in [MARGIN_MIN_NS, MARGIN_MAX_NS] * FRACTIONS_PER_NS
}

impl Default for SpinMargin {
    fn default() -> Self {
        Self { fractions: MARGIN_START_NS * FRACTIONS_PER_NS }
    }
}

impl SpinMargin {
    /// Returns the time before a deadline at which a sleep should end, in nanoseconds.
    #[inline]
    pub(super) fn ns(self) -> u64 {
        self.fractions / FRACTIONS_PER_NS
    }

    /// Records a sleep that ended `late_ns` later than requested.
    #[inline]
    pub(super) fn record_sleep(&mut self, late_ns: u64) {
        if late_ns > MARGIN_MAX_NS {
            return;
        }
        let is_too_late = late_ns + OVERHEAD_NS > self.ns();
        let step = self.fractions / STEP_PART;
        self.fractions =
            if is_too_late { self.fractions + step } else { self.fractions - step / (LATE_ONE_IN - 1) };
        self.fractions =
            self.fractions.clamp(MARGIN_MIN_NS * FRACTIONS_PER_NS, MARGIN_MAX_NS * FRACTIONS_PER_NS);
    }

    /// Records that the margin left no time to sleep. The margin becomes shorter, because otherwise
    /// a margin that is too long would never be noticed.
    #[inline]
    pub(super) fn record_no_sleep(&mut self) {
        self.record_sleep(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the margin after `sleeps` sleeps, whose lateness cycles through `late_ns`.
    fn after(mut lead: SpinMargin, sleeps: usize, late_ns: &[u64]) -> SpinMargin {
        late_ns.iter().cycle().take(sleeps).for_each(|late_ns| lead.record_sleep(*late_ns));
        lead
    }

    // Proves that the margin is only slightly longer than the lateness of the sleeps, whether the
    // sleeps end later or earlier than before. The margin grows within 100 sleeps and shrinks
    // within 20,000.
    #[test]
    fn it_follows_what_sleeps_take() {
        let calm = after(SpinMargin::default(), 20_000, &[20_000]);
        assert!((20_000..24_000).contains(&calm.ns()), "{calm:?}");
        let deep = after(calm, 100, &[90_000]);
        assert!((90_000..98_000).contains(&deep.ns()), "{deep:?}");
        let again = after(deep, 20_000, &[20_000]);
        assert!((20_000..24_000).contains(&again.ns()), "{again:?}");
    }

    // Proves that a rare long sleep causes no spinning, and that a sleep beyond the upper limit is
    // ignored.
    #[test]
    fn rare_late_sleeps_are_ignored() {
        let mut late_ns = vec![20_000; 1_000];
        late_ns[500] = MARGIN_MAX_NS;
        for late_ns in [&late_ns[..], &[20_000, MARGIN_MAX_NS + 1], &[20_000, u64::MAX]] {
            let lead = after(SpinMargin::default(), 30_000, late_ns);
            assert!((20_000..24_000).contains(&lead.ns()), "{lead:?}");
        }
    }

    // Proves that a margin that leaves no time to sleep (at an interval of 50 us) becomes short
    // enough to try a sleep again.
    #[test]
    fn it_does_not_spin_for_ever() {
        let mut lead = SpinMargin::default();
        let spun =
            std::iter::from_fn(|| (lead.ns() > 50_000).then(|| lead.record_no_sleep())).take(20_000).count();
        assert!(spun < 8_000, "{spun}");
    }

    proptest! {
        // Proves that about one sleep in 250 is later than the margin, for lateness of any constant
        // distribution within the limits.
        #[test]
        fn one_in_so_many_is_late(least in 5_000_u64..50_000, width in 10_000_u64..65_000, seed in any::<u64>()) {
            const SLEEPS: u64 = 100_000;
            let (mut lead, mut state, mut late) = (SpinMargin::default(), seed, 0_u64);
            for sleep in 0..2 * SLEEPS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let late_ns = least + (state >> 33) % width; // < MARGIN_MAX_NS
                late += u64::from(sleep >= SLEEPS && late_ns + OVERHEAD_NS > lead.ns());
                lead.record_sleep(late_ns);
                prop_assert!((MARGIN_MIN_NS..=MARGIN_MAX_NS).contains(&lead.ns()));
            }
            let expected = SLEEPS / LATE_ONE_IN;
            prop_assert!((expected * 8 / 10..=expected * 12 / 10).contains(&late), "{late}, {expected} expected");
        }
    }
}
