//! How long before a deadline must a thread be awake to meet it? Pure: what was seen is handed in.

/// One sleep in this many may end later than the lead allows for: less than half of what the 99th percentile leaves, the rest of
/// which is for what no lead helps against.
const LATE_ONE_IN: u64 = 250;
/// A sleep that ended too late lengthens the lead by this part of itself; one that did not shortens it by this part over
/// `LATE_ONE_IN`. The two balance where just one in `LATE_ONE_IN` is too late, and a single long one moves little.
const STEP_PART: u64 = 32;
/// On top of what sleeps take: reading the clock, and the loop that leaves the spin.
const MARGIN_NS: u64 = 1_000;
/// No lead is shorter: no kernel wakes a thread sooner.
const LEAD_MIN_NS: u64 = 3_000;
/// No lead is longer: at 1 kHz spinning then takes 12 % of a core at most. Sleeps that end later still were held up by something
/// that no lead makes good; they say nothing about it.
const LEAD_MAX_NS: u64 = 120_000;
/// Before anything is known: what an idle virtual machine needs.
const LEAD_START_NS: u64 = 100_000;
/// Leads are kept in these parts of a nanosecond, or the shortest would never become shorter.
const PARTS: u64 = 1 << 10;

/// Follows how late sleeps end: a high quantile of it, which forgets what was long ago.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lead {
    parts: u64, // LEAD_MIN_NS * PARTS <= parts <= LEAD_MAX_NS * PARTS
}

impl Default for Lead {
    fn default() -> Self {
        Self { parts: LEAD_START_NS * PARTS }
    }
}

impl Lead {
    /// How long before a deadline a sleep should end, in nanoseconds.
    #[inline]
    pub(super) fn ns(self) -> u64 {
        self.parts / PARTS
    }

    /// A sleep ended so much later than it was asked to.
    #[inline]
    pub(super) fn slept(&mut self, late_ns: u64) {
        if late_ns > LEAD_MAX_NS {
            return;
        }
        let is_too_late = late_ns + MARGIN_NS > self.ns();
        let step = self.parts / STEP_PART;
        self.parts = if is_too_late { self.parts + step } else { self.parts - step / (LATE_ONE_IN - 1) };
        self.parts = self.parts.clamp(LEAD_MIN_NS * PARTS, LEAD_MAX_NS * PARTS);
    }

    /// The lead left no time to sleep. It becomes shorter, or nobody would ever see that it is too long.
    #[inline]
    pub(super) fn not_slept(&mut self) {
        self.slept(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// After so many sleeps, each as late as the next of `late_ns`, over and over.
    fn after(mut lead: Lead, sleeps: usize, late_ns: &[u64]) -> Lead {
        late_ns.iter().cycle().take(sleeps).for_each(|late_ns| lead.slept(*late_ns));
        lead
    }

    // Goal: the lead covers sleeps and little more, whether they become later or less late. Method: sleeps of one lateness,
    // then of another; later ones are believed within 100 sleeps, less late ones within 20,000.
    #[test]
    fn it_follows_what_sleeps_take() {
        let calm = after(Lead::default(), 20_000, &[20_000]);
        assert!((20_000..24_000).contains(&calm.ns()), "{calm:?}");
        let deep = after(calm, 100, &[90_000]);
        assert!((90_000..98_000).contains(&deep.ns()), "{deep:?}");
        let again = after(deep, 20_000, &[20_000]);
        assert!((20_000..24_000).contains(&again.ns()), "{again:?}");
    }

    // Goal: a rare long sleep costs no spinning, and one that no lead makes good none at all. Method: one sleep in 1,000, and then
    // every other one, is much later than the rest.
    #[test]
    fn late_sleeps_decide_nothing() {
        let mut late_ns = vec![20_000; 1_000];
        late_ns[500] = LEAD_MAX_NS;
        for late_ns in [&late_ns[..], &[20_000, LEAD_MAX_NS + 1], &[20_000, u64::MAX]] {
            let lead = after(Lead::default(), 30_000, late_ns);
            assert!((20_000..24_000).contains(&lead.ns()), "{lead:?}");
        }
    }

    // Goal: where the lead left no time to sleep at all, it becomes short enough to try. Method: an interval of 50 us.
    #[test]
    fn it_does_not_spin_for_ever() {
        let mut lead = Lead::default();
        let spun = std::iter::from_fn(|| (lead.ns() > 50_000).then(|| lead.not_slept())).take(20_000).count();
        assert!(spun < 8_000, "{spun}");
    }

    proptest! {
        // Goal: of any sleeps that go on alike about one in 250 is later than the lead, unless a limit is in the way.
        // Method: lateness drawn evenly between two values, from a seed; the share of late ones after a time to settle.
        #[test]
        fn one_in_so_many_is_late(least in 5_000_u64..50_000, width in 10_000_u64..65_000, seed in any::<u64>()) {
            const SLEEPS: u64 = 100_000;
            let (mut lead, mut state, mut late) = (Lead::default(), seed, 0_u64);
            for sleep in 0..2 * SLEEPS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let late_ns = least + (state >> 33) % width; // < LEAD_MAX_NS
                late += u64::from(sleep >= SLEEPS && late_ns + MARGIN_NS > lead.ns());
                lead.slept(late_ns);
                prop_assert!((LEAD_MIN_NS..=LEAD_MAX_NS).contains(&lead.ns()));
            }
            let expected = SLEEPS / LATE_ONE_IN;
            prop_assert!((expected * 8 / 10..=expected * 12 / 10).contains(&late), "{late}, {expected} expected");
        }
    }
}
