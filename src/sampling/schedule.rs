//! Which source is due, how late it is, and how many ticks went by. Pure: time is handed in.

/// The ticks of a group's sources: absolute deadlines on a fixed grid, so that lateness never adds up to drift.
#[derive(Debug, Clone)]
pub struct Schedule {
    ticks: Vec<Tick>, // one a source, in the group's order
}

/// The ticks of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tick {
    period_ns: u64, // > 0
    next_ns: u64,
    stride: u64,  // every how many ticks one is served; 1 unless a budget is short
    skipped: u64, // ticks left out on purpose in front of the next one
}

/// A reading to be made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Which source, as an index into the group.
    pub index: usize,
    /// How long ago its oldest unserved tick was, in nanoseconds.
    pub lateness_ns: u64,
    /// Ticks that went by since the last reading: counted, never caught up in a burst.
    pub missed: u64,
}

impl Tick {
    /// Ticks of this period on the grid that began at `start_ns`; the first is the first one behind `now_ns`.
    pub(super) fn behind(now_ns: u64, period_ns: u64, start_ns: u64) -> Self {
        let period_ns = period_ns.max(1);
        let past = now_ns.checked_sub(start_ns).map_or(0, |since_ns| since_ns / period_ns + 1);
        let next_ns = start_ns.saturating_add(past.saturating_mul(period_ns));
        Self { period_ns, next_ns, stride: 1, skipped: 0 }
    }

    /// Their period, in nanoseconds.
    pub(super) fn period_ns(&self) -> u64 {
        self.period_ns
    }
}

impl Schedule {
    /// Sources with these periods in nanoseconds (a period of 0 counts as 1), all first due at `start_ns`.
    pub fn new(periods_ns: impl IntoIterator<Item = u64>, start_ns: u64) -> Self {
        let tick =
            |period_ns: u64| Tick { period_ns: period_ns.max(1), next_ns: start_ns, stride: 1, skipped: 0 };
        Self { ticks: periods_ns.into_iter().map(tick).collect() }
    }

    /// The earliest deadline; none without sources.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.ticks.iter().map(|tick| tick.next_ns).min()
    }

    /// The source whose deadline is the oldest, if it has come; its next deadline is then the first one on its grid
    /// after `now_ns`.
    #[inline]
    pub fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        let (index, tick) = self.ticks.iter_mut().enumerate().min_by_key(|(_, tick)| tick.next_ns)?;
        let lateness_ns = now_ns.checked_sub(tick.next_ns)?;
        // A division takes longer than all the rest of this.
        let late = if lateness_ns < tick.period_ns { 0 } else { lateness_ns / tick.period_ns };
        let missed = late + tick.skipped;
        tick.skipped = tick.stride - 1;
        tick.next_ns = tick.next_ns.saturating_add((late + tick.stride).saturating_mul(tick.period_ns));
        Some(Due { index, lateness_ns, missed })
    }

    /// Ticks that have gone by at `now_ns` since each source's last reading, in the group's order: missed, if the group ends now. The
    /// one that has just come is not: it would still be served in time.
    pub fn unserved(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        self.ticks.iter().map(move |tick| {
            let first_ns = tick.next_ns - tick.skipped * tick.period_ns;
            let come = now_ns.checked_sub(first_ns).map_or(0, |since_ns| since_ns / tick.period_ns + 1);
            come - u64::from(now_ns >= tick.next_ns)
        })
    }

    /// Ticks that have come up to `now_ns` and were not served, in the group's order: all of them, also one that has just come.
    pub(super) fn gone_by(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let unserved = self.unserved(now_ns).zip(&self.ticks);
        unserved.map(move |(unserved, tick)| unserved + u64::from(now_ns >= tick.next_ns))
    }

    /// The ticks of a source.
    pub(super) fn tick(&self, index: usize) -> Option<Tick> {
        self.ticks.get(index).copied()
    }

    /// These from now on, one a source in the group's order.
    pub(super) fn set(&mut self, ticks: Vec<Tick>) {
        self.ticks = ticks;
    }

    /// From the next reading on serves one in `stride` (at least 1) ticks of a source; those between count as missed when
    /// they have gone by. The next reading itself comes no later than it would have come by this stride, but not before `now_ns`: with
    /// a longer one it may have been hours away.
    pub fn set_stride(&mut self, index: usize, stride: u64, now_ns: u64) {
        let Some(tick) = self.ticks.get_mut(index) else { return };
        tick.stride = stride.max(1);
        let first_ns = tick.next_ns.saturating_sub(tick.skipped.saturating_mul(tick.period_ns));
        let gone_by = now_ns.saturating_sub(first_ns).div_ceil(tick.period_ns);
        let skipped = gone_by.max(tick.stride - 1);
        if skipped < tick.skipped {
            tick.skipped = skipped;
            tick.next_ns = first_ns + skipped * tick.period_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Goal: a punctual source ticks on its grid. Method: the clock by hand, always a little late.
    #[test]
    fn lateness_does_not_add_up() {
        let mut schedule = Schedule::new([100], 1000);
        for k in 0..10 {
            assert_eq!(schedule.next_ns(), Some(1000 + k * 100));
            let due = schedule.take_due(1000 + k * 100 + 7).unwrap();
            assert_eq!(due, Due { index: 0, lateness_ns: 7, missed: 0 });
        }
    }

    // Goal: after a stall one reading is made and the rest are counted. Method: a stall of 5.5 periods.
    #[test]
    fn a_stall_is_counted_and_not_caught_up() {
        let mut schedule = Schedule::new([100], 0);
        assert_eq!(schedule.take_due(550), Some(Due { index: 0, lateness_ns: 550, missed: 5 }));
        assert_eq!(schedule.take_due(550), None);
        assert_eq!(schedule.next_ns(), Some(600));
    }

    // Goal: the oldest deadline goes first, so no source starves another. Method: two sources, both due.
    #[test]
    fn the_oldest_deadline_goes_first() {
        let mut schedule = Schedule::new([30, 100], 0);
        let order: Vec<usize> = std::iter::from_fn(|| schedule.take_due(29)).map(|due| due.index).collect();
        assert_eq!(order, [0, 1]);
        schedule.take_due(30).unwrap();
        assert_eq!(schedule.next_ns(), Some(60));
        assert_eq!(Schedule::new([], 0).next_ns(), None);
    }

    // Goal: a longer stride stays on the grid, and what it leaves out is counted once it has gone by. Method: a stride of 3,
    // and back.
    #[test]
    fn a_stride_counts_what_it_leaves_out() {
        let mut schedule = Schedule::new([100], 0);
        schedule.set_stride(0, 3, 0);
        assert_eq!(schedule.take_due(0), Some(Due { index: 0, lateness_ns: 0, missed: 0 }));
        assert_eq!((schedule.take_due(299), schedule.next_ns()), (None, Some(300)));
        let unserved = |schedule: &Schedule, now| schedule.unserved(now).next().unwrap();
        assert_eq!([99, 100, 299, 300, 400].map(|now| unserved(&schedule, now)), [0, 1, 2, 2, 3]);
        assert_eq!(schedule.take_due(450), Some(Due { index: 0, lateness_ns: 150, missed: 3 }));
        assert_eq!(schedule.next_ns(), Some(700), "one tick was late, two are left out");
        schedule.set_stride(0, 1, 610);
        assert_eq!(schedule.take_due(700), Some(Due { index: 0, lateness_ns: 0, missed: 2 }));
        assert_eq!(schedule.take_due(800), Some(Due { index: 0, lateness_ns: 0, missed: 0 }));
    }

    // Goal: whatever comes of a source's period while the run goes on, no tick leaves the books: each stretch has exactly the ticks of
    // its period, on the grid of the run. Method: a period of 100 that becomes 30 and then 70, between ticks, at one, and behind some.
    #[test]
    fn ticks_of_changed_periods_add_up() {
        for (first, second) in [(250, 480), (300, 510), (955, 957), (150, 151)] {
            let mut schedule = Schedule::new([100], 0);
            let mut served = 0;
            let mut serve = |schedule: &mut Schedule, until: u64| {
                while let Some(due) = schedule.take_due(until) {
                    served += 1 + due.missed;
                }
            };
            serve(&mut schedule, 150);
            let mut missed = schedule.gone_by(first).next().unwrap();
            schedule.set(vec![Tick::behind(first, 30, 0)]);
            serve(&mut schedule, second - 1);
            missed += schedule.gone_by(second).next().unwrap();
            schedule.set(vec![Tick::behind(second, 70, 0)]);
            assert!(schedule.next_ns().unwrap() > second && schedule.next_ns().unwrap().is_multiple_of(70));
            serve(&mut schedule, 2000);
            let ticks = |period: u64, from: u64, to: u64| to / period - from / period;
            let expected = 1 + ticks(100, 0, first) + ticks(30, first, second) + ticks(70, second, 2000);
            assert_eq!(served + missed, expected, "{first} {second}");
        }
    }

    // Goal: a shorter stride does not wait for the end of a long one, and makes nothing late. Method: a stride of 10,000, given up
    // between two ticks, at a tick, and for one that is still long.
    #[test]
    fn a_shorter_stride_holds_at_once() {
        let begun = || {
            let mut schedule = Schedule::new([100], 0);
            schedule.set_stride(0, 10_000, 0);
            schedule.take_due(0).unwrap();
            assert_eq!(schedule.next_ns(), Some(1_000_000));
            schedule
        };
        for (stride, now, next, missed) in
            [(1, 50, 100, 0), (1, 5_050, 5_100, 50), (1, 5_100, 5_100, 50), (30, 5, 3_000, 29)]
        {
            let mut schedule = begun();
            schedule.set_stride(0, stride, now);
            assert_eq!(schedule.next_ns(), Some(next));
            assert_eq!(schedule.take_due(next), Some(Due { index: 0, lateness_ns: 0, missed }));
            assert_eq!(schedule.next_ns(), Some(next + stride * 100));
        }
    }

    proptest! {
        // Goal: begun + missed is the number of ticks that have come, for any times and any strides, none of which is served before it
        // has come. Method: random clocks, strides that are set in between, and 1 at the end.
        #[test]
        fn begun_plus_missed_is_every_tick(
            periods in proptest::collection::vec(1_u64..1000, 1..5),
            steps in proptest::collection::vec((0_u64..3000, 0_usize..8, 1_u64..20), 1..100),
        ) {
            let mut schedule = Schedule::new(periods.clone(), 0);
            let mut served = vec![0_u64; periods.len()];
            let mut now = 0;
            for (step, index, stride) in steps {
                now += step;
                while let Some(due) = schedule.take_due(now) {
                    served[due.index] += 1 + due.missed;
                }
                prop_assert!(schedule.next_ns().unwrap() > now);
                for (served, (unserved, period)) in served.iter().zip(schedule.unserved(now).zip(&periods)) {
                    prop_assert_eq!(served + unserved, now / period + 1);
                }
                schedule.set_stride(index, stride, now);
                prop_assert!(schedule.next_ns().unwrap() >= now);
            }
            (0..periods.len()).for_each(|index| schedule.set_stride(index, 1, now));
            while let Some(due) = schedule.take_due(now) {
                served[due.index] += 1 + due.missed;
            }
            for (index, period) in periods.iter().enumerate() {
                let unserved = schedule.unserved(now).nth(index).unwrap();
                prop_assert_eq!(served[index] + unserved, now / period + 1);
            }
        }
    }
}
