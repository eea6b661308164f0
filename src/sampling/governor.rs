//! How does the whole agent keep within its share of the processors? Pure: times and costs are handed in.
//!
//! Each source gets the same cap, the highest at which all that is spent fits. So those that cost most give way first, and those
//! that cost less than the cap do not notice. What belongs to no source (the recorder, above all) may become less with what the
//! sources bring, or may not; both are reckoned with, so that it neither gives way further than it must nor comes back too far.

use crate::os::clock::NS_PER_S;

/// How often it judges.
pub const GOVERN_INTERVAL_NS: u64 = NS_PER_S;
/// The cap is found for this share of the budget, and kept until the whole is exceeded: it does not follow every little change.
const AIM_PERCENT: u64 = 95;
/// A higher cap must be possible for so long...
const CALM_NS: u64 = 10 * NS_PER_S;
/// ...and be higher by at least one part in this many.
const RISE_PART: u64 = 20;
/// Where the sources take no more than one part in this many of what belongs to none, taking from them does not help.
const NEGLIGIBLE_PART: u64 = 20;

/// What the governor has seen at one time.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// Monotonic time, in nanoseconds.
    pub now_ns: u64,
    /// Processor time of the process, in nanoseconds.
    pub process_ns: u64,
    /// What of it belongs to sources, in nanoseconds.
    pub sources_ns: u64,
}

/// What the sources get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// As much as their own budgets allow.
    All,
    /// Each of them so many nanoseconds of a core a second, at least 1.
    Cap(u64),
    /// Nothing: what belongs to no source takes the whole budget by itself.
    Nothing,
}

/// What was spent in one interval, in nanoseconds of a core a second.
#[derive(Debug, Clone, Copy)]
struct Seen {
    used: u64, // by the process
    rest: u64, // of it, by no source; <= used
}

/// What was too much, in nanoseconds of a core a second.
#[derive(Debug, Clone, Copy)]
struct Excess {
    taken: u64, // by the sources
    used: u64,  // by the process
}

/// Keeps one budget.
#[derive(Debug)]
pub struct Governor {
    budget: u64, // in nanoseconds a second, > 0
    before: Option<Spent>,
    seen: Option<Seen>, // in the last interval, if nothing has changed since it began
    allowance: Allowance,
    calm: Option<(u64, Allowance)>, // since when more could be given, and the least of it since then
    excess: Option<Excess>,         // what was last too much, if nothing was given since
    demands: Vec<u64>,              // reused; ascending while it is used
}

impl Governor {
    /// All of so many sources together may take so many hundredths of a percent of a core.
    pub fn new(basis_points: u32, sources: usize) -> Self {
        Self {
            budget: u64::from(basis_points).max(1) * (NS_PER_S / 10_000),
            before: None,
            seen: None,
            allowance: Allowance::All,
            calm: None,
            excess: None,
            demands: Vec::with_capacity(sources),
        }
    }

    /// All sources together may take so many hundredths of a percent of a core from now on. What they are left stays until the next
    /// judgements.
    pub fn set_budget(&mut self, basis_points: u32) {
        self.budget = u64::from(basis_points).max(1) * (NS_PER_S / 10_000);
        self.calm = None;
        self.excess = None;
    }

    /// What belonged to no source in the last interval, in nanoseconds of a core a second.
    pub fn rest(&self) -> u64 {
        self.seen.map_or(0, |seen| seen.rest)
    }

    /// What was spent since the last call does not count. For stretches in which the process works at something that will end.
    pub fn pass_over(&mut self, spent: Spent) {
        self.before = Some(spent);
        self.seen = None;
    }

    /// Judges what was spent since the last call, and what the sources would take a second, each as often as its own budget allows.
    /// Returns what they get from now on.
    pub fn judge(&mut self, spent: Spent, demands: impl Iterator<Item = u64>) -> Allowance {
        let Some(before) = self.before.replace(spent) else { return self.allowance };
        let elapsed_ns = spent.now_ns.saturating_sub(before.now_ns).max(1);
        let process_ns = spent.process_ns.saturating_sub(before.process_ns);
        let sources_ns = spent.sources_ns.saturating_sub(before.sources_ns);
        let a_second = |ns: u64| scaled(ns, NS_PER_S, elapsed_ns);
        let seen = Seen { used: a_second(process_ns), rest: a_second(process_ns.saturating_sub(sources_ns)) };
        // One second of sealing and syncing decides nothing, nor does one in which a change takes effect: it takes two.
        let Some(last) = self.seen.replace(seen) else { return self.allowance };
        self.demands.clear();
        self.demands.extend(demands);
        self.demands.sort_unstable();
        let allowance = if last.used.min(seen.used) > self.budget {
            self.calm = None;
            self.lower(Seen { used: last.used.min(seen.used), rest: last.rest.min(seen.rest) })
        } else {
            self.excess = None;
            self.higher(Seen { used: last.used.max(seen.used), rest: last.rest.max(seen.rest) }, spent.now_ns)
        };
        if allowance != self.allowance {
            self.allowance = allowance;
            self.seen = (allowance == Allowance::Nothing).then_some(seen);
        }
        allowance
    }

    /// Too much was used, at least this. What belongs to no source first counts as if it became less with the sources; what is still too
    /// much is seen two seconds later, and how much less it really became.
    fn lower(&mut self, seen: Seen) -> Allowance {
        let now = Excess { taken: taken(&self.demands, self.allowance), used: seen.used };
        let before = self.excess.replace(now);
        if seen.rest >= self.budget && now.taken <= seen.rest / NEGLIGIBLE_PART {
            return Allowance::Nothing;
        }
        let most = scaled(now.taken, self.aim(), now.used);
        let least = self.aim().saturating_sub(seen.rest).min(most);
        let available = before.map_or(most, |before| now.fitting(before, self.aim()).clamp(least, most));
        match fill(&self.demands, available) {
            Allowance::Nothing => Allowance::Cap(1),
            allowance => allowance,
        }
        .min(self.allowance)
    }

    /// The budget is kept; at most this was used. What belongs to no source stays, or becomes more with the sources, whichever leaves
    /// less.
    fn higher(&mut self, seen: Seen, now_ns: u64) -> Allowance {
        let taken = taken(&self.demands, self.allowance);
        let mut available = self.aim().saturating_sub(seen.rest);
        if taken > 0 {
            available = available.min(scaled(taken, self.aim(), seen.used));
        }
        let more = fill(&self.demands, available);
        if !more.is_clearly_more_than(self.allowance) {
            self.calm = None;
            return self.allowance;
        }
        let (since_ns, least) = self.calm.unwrap_or((now_ns, more));
        let least = least.min(more);
        if now_ns.saturating_sub(since_ns) < CALM_NS {
            self.calm = Some((since_ns, least));
            return self.allowance;
        }
        self.calm = None;
        least
    }

    fn aim(&self) -> u64 {
        self.budget / 100 * AIM_PERCENT
    }
}

impl Excess {
    /// What the sources may take so that the process uses `aim`, if it goes on as from `before` to now (a secant).
    fn fitting(self, before: Self, aim: u64) -> u64 {
        let (less_taken, less_used) =
            (before.taken.saturating_sub(self.taken), before.used.saturating_sub(self.used));
        if less_used == 0 {
            return 0; // Taking from the sources has not helped.
        }
        self.taken.saturating_sub(scaled(self.used.saturating_sub(aim), less_taken, less_used))
    }
}

/// `value * by / of`; saturates.
fn scaled(value: u64, by: u64, of: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// The highest cap at which all of these demands, in ascending order, take no more than `available`.
fn fill(demands: &[u64], available: u64) -> Allowance {
    let mut left = available;
    for (done, demand) in demands.iter().enumerate() {
        let cap = left / u64::try_from(demands.len() - done).unwrap_or(u64::MAX);
        if *demand > cap {
            return if cap == 0 { Allowance::Nothing } else { Allowance::Cap(cap) };
        }
        left -= demand;
    }
    Allowance::All
}

/// What these demands take.
fn taken(demands: &[u64], allowance: Allowance) -> u64 {
    let cap = allowance.cap();
    demands.iter().fold(0, |sum: u64, demand| sum.saturating_add(*demand.min(&cap)))
}

impl Allowance {
    /// In nanoseconds of a core a second.
    fn cap(self) -> u64 {
        match self {
            Self::All => u64::MAX,
            Self::Cap(cap) => cap,
            Self::Nothing => 0,
        }
    }

    fn min(self, other: Self) -> Self {
        if self.cap() < other.cap() { self } else { other }
    }

    fn is_clearly_more_than(self, other: Self) -> bool {
        self.cap() > other.cap().saturating_add(other.cap() / RISE_PART)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERCENT: u64 = NS_PER_S / 100;

    /// A process whose sources take what they are allowed, second by second.
    struct Process {
        governor: Governor,
        spent: Spent,
        follows: u64, // what belongs to no source and follows what they take, in percent of that
    }

    impl Process {
        fn new(basis_points: u32) -> Self {
            let spent = Spent { now_ns: 0, process_ns: 0, sources_ns: 0 };
            let mut governor = Governor::new(basis_points, 8);
            governor.judge(spent, [].into_iter());
            Self { governor, spent, follows: 0 }
        }

        /// So many seconds; what belongs to no source and does not follow takes `rest`.
        fn run(&mut self, seconds: u64, rest: u64, demands: &[u64]) -> Allowance {
            for _ in 0..seconds {
                let sources = taken(demands, self.governor.allowance);
                self.spent.now_ns += NS_PER_S;
                self.spent.process_ns += sources + sources * self.follows / 100 + rest;
                self.spent.sources_ns += sources;
                self.governor.judge(self.spent, demands.iter().copied());
            }
            self.governor.allowance
        }

        /// What all of it takes a second now.
        fn takes(&self, rest: u64, demands: &[u64]) -> u64 {
            let sources = taken(demands, self.governor.allowance);
            sources + sources * self.follows / 100 + rest
        }
    }

    // Goal: those that cost most give way first, and those below the cap keep all. Method: a budget of 20 %, of which 1 % belongs to
    // no source.
    #[test]
    fn the_costliest_give_way_first() {
        let mut process = Process::new(2_000);
        let some = [PERCENT, 2 * PERCENT, 3 * PERCENT];
        assert_eq!(process.run(60, PERCENT, &some), Allowance::All);
        let with_one = [PERCENT, 2 * PERCENT, 40 * PERCENT];
        let Allowance::Cap(cap) = process.run(2, PERCENT, &with_one) else { panic!() };
        assert!((15 * PERCENT..=16 * PERCENT).contains(&cap), "{cap}");
        let with_two = [PERCENT, 50 * PERCENT, 40 * PERCENT];
        let Allowance::Cap(cap) = process.run(3, PERCENT, &with_two) else { panic!() };
        assert!((17 * PERCENT / 2..=9 * PERCENT).contains(&cap), "{cap}");
    }

    // Goal: what was taken comes back when it is calm, and no sooner. Method: 5 s of calm, a moment of need, and then calm.
    #[test]
    fn it_comes_back_when_it_is_calm() {
        let mut process = Process::new(2_000);
        let cap = process.run(2, 0, &[40 * PERCENT]);
        assert_eq!(cap, Allowance::Cap(19 * PERCENT));
        assert_eq!(process.run(5, 0, &[PERCENT]), cap);
        assert_eq!(process.run(1, 0, &[40 * PERCENT]), cap);
        assert_eq!(process.run(10, 0, &[PERCENT]), cap);
        assert_eq!(process.run(2, 0, &[PERCENT]), Allowance::All);
    }

    // Goal: the cap does not follow small changes to and fro. Method: demands that vary by 4 % for a minute.
    #[test]
    fn it_keeps_still() {
        let mut process = Process::new(2_000);
        let mut allowances: Vec<Allowance> = (0..60)
            .map(|second| process.run(1, PERCENT, &[(96 + second % 5) * PERCENT / 10, 40 * PERCENT]))
            .collect();
        allowances.dedup();
        assert_eq!(allowances.len(), 2, "{allowances:?}");
    }

    // Goal: one second in which the process is busy with other things takes nothing from the sources, a lasting need that they cannot
    // make good takes all; it comes back. Method: a whole core for a second beside a budget of 50 %; then for ever; then an end; a
    // stretch that is passed over.
    #[test]
    fn other_work_comes_first_if_it_lasts() {
        let mut process = Process::new(5_000);
        assert_eq!(process.run(30, PERCENT, &[10 * PERCENT]), Allowance::All);
        assert_eq!(process.run(1, 100 * PERCENT, &[10 * PERCENT]), Allowance::All);
        assert_eq!(process.run(1, PERCENT, &[10 * PERCENT]), Allowance::All);
        assert_eq!(process.run(6, 100 * PERCENT, &[10 * PERCENT]), Allowance::Nothing);
        assert_eq!(process.governor.rest(), 100 * PERCENT);
        assert_eq!(process.run(30, PERCENT, &[10 * PERCENT]), Allowance::All);
        for _ in 0..3 {
            process.spent.now_ns += NS_PER_S;
            process.spent.process_ns += 1_000 * NS_PER_S;
            process.governor.pass_over(process.spent);
        }
        assert_eq!(process.run(2, PERCENT, &[10 * PERCENT]), Allowance::All);
    }

    // Goal: what the recorder takes for what the sources bring is no reason to take everything from them. Method: for each second of
    // theirs another one, far beyond the budget; the cap is found in one step and stays.
    #[test]
    fn what_follows_the_sources_becomes_less_with_them() {
        let mut process = Process { follows: 100, ..Process::new(500) };
        let cap = process.run(2, 0, &[40 * PERCENT]);
        assert_eq!(cap, Allowance::Cap(19 * PERCENT / 8));
        assert_eq!(process.run(60, 0, &[40 * PERCENT]), cap);
    }

    proptest! {
        // Goal: a cap fits, and a higher one would not. Method: any demands and any room.
        #[test]
        fn the_cap_is_the_highest_that_fits(
            mut demands in proptest::collection::vec(0_u64..2 * NS_PER_S, 0..20),
            available in 0_u64..4 * NS_PER_S,
        ) {
            demands.sort_unstable();
            let allowance = fill(&demands, available);
            prop_assert!(taken(&demands, allowance) <= available);
            if allowance != Allowance::All {
                let more = Allowance::Cap(allowance.cap() + 1);
                prop_assert!(taken(&demands, more) > available);
            }
        }

        // Goal: whatever sources and the rest take, and however the rest follows them, the budget is soon kept or nothing is left to
        // take, and once it is calm most of it is used. Method: any demands that jump once; a while after each jump.
        #[test]
        fn the_budget_is_kept_and_used(
            budget in 10_u32..100_000,
            rest in 0_u64..NS_PER_S,
            follows in 0_u64..300,
            demands in proptest::collection::vec(proptest::collection::vec(0_u64..2 * NS_PER_S, 8), 2),
        ) {
            let mut process = Process { follows, ..Process::new(budget) };
            let budget = u64::from(budget) * (NS_PER_S / 10_000);
            for demands in demands {
                let allowance = process.run(60, rest, &demands);
                let takes = process.takes(rest, &demands);
                prop_assert!(takes <= budget || taken(&demands, allowance) <= rest / NEGLIGIBLE_PART, "{takes} of {budget}");
                let allowance = process.run(600, rest, &demands);
                let takes = process.takes(rest, &demands);
                let is_used = allowance == Allowance::All || takes >= budget / 100 * 85;
                prop_assert!(is_used || allowance == Allowance::Nothing, "{takes} of {budget}, {allowance:?}");
            }
        }
    }
}
