//! The schedule of a group. The schedule determines the source that is due, its lateness (jitter),
//! and the number of ticks that it has missed. The code is pure, since the caller passes the time.

/// The ticks of a group's sources. Ticks are absolute deadlines on a fixed grid, so that lateness
/// never accumulates.
#[derive(Debug, Clone)]
pub struct Schedule {
    ticks: Vec<Tick>, // one per source, in the group's order
}

/// The ticks of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tick {
    period_ns: u64, // > 0
    next_ns: u64,
    stride: u64,  // number of ticks per sample; 1 unless a budget limits the source
    skipped: u64, // ticks skipped on purpose before the next sample
    counted: u64, // skipped ticks that were already counted as missed
}

/// A sample that is due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The index of the source in the group.
    pub index: usize,
    /// Time since the oldest unserved tick of the source, in nanoseconds.
    pub lateness_ns: u64,
    /// Number of ticks that were missed since the last sample. Missed ticks are counted, but never
    /// served later in a burst.
    pub missed: u64,
}

impl Tick {
    /// Creates the ticks of a source with this period, on the grid that begins at `start_ns`. The
    /// first tick is after `now_ns`.
    pub(super) fn after(now_ns: u64, period_ns: u64, start_ns: u64) -> Self {
        let period_ns = period_ns.max(1);
        let past = now_ns.checked_sub(start_ns).map_or(0, |since_ns| since_ns / period_ns + 1);
        let next_ns = start_ns.saturating_add(past.saturating_mul(period_ns));
        Self { period_ns, next_ns, stride: 1, skipped: 0, counted: 0 }
    }

    /// Returns the period of the ticks, in nanoseconds.
    pub(super) fn period_ns(&self) -> u64 {
        self.period_ns
    }
}

impl Schedule {
    /// Creates the schedule of sources with these periods, in nanoseconds. A period of 0 is treated
    /// as 1. All sources are first due at `start_ns`.
    pub fn new(periods_ns: impl IntoIterator<Item = u64>, start_ns: u64) -> Self {
        let tick = |period_ns: u64| Tick {
            period_ns: period_ns.max(1),
            next_ns: start_ns,
            stride: 1,
            skipped: 0,
            counted: 0,
        };
        Self { ticks: periods_ns.into_iter().map(tick).collect() }
    }

    /// Returns the earliest deadline, or `None` if there are no sources.
    #[inline]
    pub fn next_ns(&self) -> Option<u64> {
        self.ticks.iter().map(|tick| tick.next_ns).min()
    }

    /// Returns the source with the oldest deadline, if that deadline has passed. The next deadline
    /// of the source is then the first tick on its grid after `now_ns`.
    #[inline]
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Due> {
        let (index, tick) = self.ticks.iter_mut().enumerate().min_by_key(|(_, tick)| tick.next_ns)?;
        let lateness_ns = now_ns.checked_sub(tick.next_ns)?;
        // The division is skipped if possible, because it takes longer than the rest of this
        // function.
        let late = if lateness_ns < tick.period_ns { 0 } else { lateness_ns / tick.period_ns };
        let missed = late + tick.skipped - tick.counted;
        (tick.skipped, tick.counted) = (tick.stride - 1, 0);
        tick.next_ns = tick.next_ns.saturating_add((late + tick.stride).saturating_mul(tick.period_ns));
        Some(Due { index, lateness_ns, missed })
    }

    /// Returns, for each source in the group's order, the number of ticks before `now_ns` that the
    /// source skipped on purpose. Ticks that an earlier call returned are not included. The
    /// returned ticks count as missed immediately, and not only at the next sample.
    pub(super) fn take_passed(&mut self, now_ns: u64) -> impl Iterator<Item = u64> {
        self.ticks.iter_mut().map(move |tick| {
            let first_ns = tick.next_ns.saturating_sub(tick.skipped.saturating_mul(tick.period_ns));
            let passed = now_ns.saturating_sub(first_ns).div_ceil(tick.period_ns).min(tick.skipped);
            passed.saturating_sub(std::mem::replace(&mut tick.counted, passed))
        })
    }

    /// Returns, for each source in the group's order, the number of ticks up to `now_ns` since the
    /// last sample of the source. These ticks are missed if the group ends now. A tick that is due
    /// exactly now does not count, since it would still be served in time.
    pub(crate) fn unserved(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        self.ticks.iter().map(move |tick| {
            let first_ns = tick.next_ns - tick.skipped * tick.period_ns;
            let come = now_ns.checked_sub(first_ns).map_or(0, |since_ns| since_ns / tick.period_ns + 1);
            (come - u64::from(now_ns >= tick.next_ns)).saturating_sub(tick.counted)
        })
    }

    /// Returns, for each source in the group's order, the number of ticks up to `now_ns` that were
    /// not served, including a tick that is due exactly now.
    pub(super) fn unserved_including_now(&self, now_ns: u64) -> impl Iterator<Item = u64> {
        let unserved = self.unserved(now_ns).zip(&self.ticks);
        unserved.map(move |(unserved, tick)| unserved + u64::from(now_ns >= tick.next_ns))
    }

    /// Returns the ticks of one source.
    pub(super) fn tick(&self, index: usize) -> Option<Tick> {
        self.ticks.get(index).copied()
    }

    /// Replaces all ticks. `ticks` has one entry per source, in the group's order.
    pub(super) fn set_ticks(&mut self, ticks: Vec<Tick>) {
        self.ticks = ticks;
    }

    /// From the next sample of a source on, serves only one tick out of `stride` ticks, where
    /// `stride` is at least 1. The skipped ticks count as missed when they have passed. If the new
    /// stride is shorter, the next sample is moved to the time that the new stride requires, but
    /// not before `now_ns`. This is necessary because, with the old stride, the next sample may be
    /// hours away.
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

    // Proves that the lateness of samples does not shift the grid of a source.
    #[test]
    fn lateness_does_not_add_up() {
        let mut schedule = Schedule::new([100], 1000);
        for k in 0..10 {
            assert_eq!(schedule.next_ns(), Some(1000 + k * 100));
            let due = schedule.take_due(1000 + k * 100 + 7).unwrap();
            assert_eq!(due, Due { index: 0, lateness_ns: 7, missed: 0 });
        }
    }

    // Proves that a stall is followed by only one sample, and that the ticks during the stall are
    // counted.
    #[test]
    fn a_stall_is_counted_and_not_caught_up() {
        let mut schedule = Schedule::new([100], 0);
        assert_eq!(schedule.take_due(550), Some(Due { index: 0, lateness_ns: 550, missed: 5 }));
        assert_eq!(schedule.take_due(550), None);
        assert_eq!(schedule.next_ns(), Some(600));
    }

    // Proves that the oldest deadline is served first, so that no source starves another.
    #[test]
    fn the_oldest_deadline_goes_first() {
        let mut schedule = Schedule::new([30, 100], 0);
        let order: Vec<usize> = std::iter::from_fn(|| schedule.take_due(29)).map(|due| due.index).collect();
        assert_eq!(order, [0, 1]);
        schedule.take_due(30).unwrap();
        assert_eq!(schedule.next_ns(), Some(60));
        assert_eq!(Schedule::new([], 0).next_ns(), None);
    }

    // Proves that a longer stride stays on the grid and counts the skipped ticks when they have
    // passed.
    #[test]
    fn a_stride_counts_what_it_leaves_out() {
        let mut schedule = Schedule::new([100], 0);
        schedule.set_stride(0, 3, 0);
        assert_eq!(schedule.take_due(0), Some(Due { index: 0, lateness_ns: 0, missed: 0 }));
        assert_eq!((schedule.take_due(299), schedule.next_ns()), (None, Some(300)));
        let unserved = |schedule: &Schedule, now| schedule.unserved(now).next().unwrap();
        assert_eq!([99, 100, 299, 300, 400].map(|now| unserved(&schedule, now)), [0, 1, 2, 2, 3]);
        assert_eq!(schedule.take_due(450), Some(Due { index: 0, lateness_ns: 150, missed: 3 }));
        assert_eq!(schedule.next_ns(), Some(700), "one tick was late, two are skipped");
        schedule.set_stride(0, 1, 610);
        assert_eq!(schedule.take_due(700), Some(Due { index: 0, lateness_ns: 0, missed: 2 }));
        assert_eq!(schedule.take_due(800), Some(Due { index: 0, lateness_ns: 0, missed: 0 }));
    }

    // Proves that no tick is lost when the period of a source changes during a run. Every interval
    // has exactly the ticks of its period on the grid of the run.
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
            let mut missed = schedule.unserved_including_now(first).next().unwrap();
            schedule.set_ticks(vec![Tick::after(first, 30, 0)]);
            serve(&mut schedule, second - 1);
            missed += schedule.unserved_including_now(second).next().unwrap();
            schedule.set_ticks(vec![Tick::after(second, 70, 0)]);
            assert!(schedule.next_ns().unwrap() > second && schedule.next_ns().unwrap().is_multiple_of(70));
            serve(&mut schedule, 2000);
            let ticks = |period: u64, from: u64, to: u64| to / period - from / period;
            let expected = 1 + ticks(100, 0, first) + ticks(30, first, second) + ticks(70, second, 2000);
            assert_eq!(served + missed, expected, "{first} {second}");
        }
    }

    // Proves that a shorter stride applies at once and makes no sample late.
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
        // Proves that, for any clock and any strides, the number of begun ticks plus the number of
        // missed ticks is the number of ticks until now. No tick is served early.
        #[test]
        fn begun_plus_missed_is_every_tick(
            periods in proptest::collection::vec(1_u64..1000, 1..5),
            steps in proptest::collection::vec((0_u64..3000, 0_usize..8, 1_u64..20, any::<bool>()), 1..100),
        ) {
            let mut schedule = Schedule::new(periods.clone(), 0);
            let mut served = vec![0_u64; periods.len()];
            let mut now = 0;
            for (step, index, stride, is_published) in steps {
                now += step;
                if is_published {
                    served.iter_mut().zip(schedule.take_passed(now)).for_each(|(all, passed)| *all += passed);
                }
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
