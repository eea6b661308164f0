//! The CPU budget of pushes, and the share of each user in the CPU time used. If the budget is
//! exceeded, frames wait in the lanes of the clients. This waiting is the backpressure on
//! applications.
//!
//! All work for pushes is charged. The work consists of connecting, registering, reading and
//! verifying frames, and the recorders' work on these frames. If the budget is exceeded, the thread
//! sleeps until the debt is paid. During the sleep, messages wait in their sockets and frames in
//! their lanes. The user who has recently used the least CPU time is served first. So users delay
//! mostly themselves, and they delay other users by at most one turn.

use std::collections::BTreeMap;

use flatcap_os::clock::NS_PER_S;
use flatcap_os::throttle::Throttle;

/// Maximum unused CPU time that can be used later in one burst.
const BURST_NS: u64 = 20_000_000;
/// Duration that is added to each pause, in addition to the time that pays the debt. Without this
/// addition, a pause would follow each piece of work. Polling for work would then use most of the
/// budget.
const CREDIT_NS: u64 = 5_000_000;
/// Interval at which the usage of all users is halved.
const HALVING_NS: u64 = NS_PER_S;
/// Interval over which the lengths of pauses are summed for the warning about pauses. Also the
/// minimum interval between two warnings.
const WINDOW_NS: u64 = 10 * NS_PER_S;
const WARNING_INTERVAL_NS: u64 = 60 * NS_PER_S;
/// Maximum number of users whose usage is stored. If there are more users, the users with the
/// lowest usage are dropped.
const USERS_MAX: usize = 256;
/// Divisor of the budget for connections of users who may not push, and for connections whose user
/// is not known yet. These connections get only 1/20 of the budget, because they have no claim to
/// it.
const STRANGERS_PART: u64 = 20;

/// The account to which work is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payer {
    /// A single account for all users who may not push and for connections whose user is not known
    /// yet.
    Stranger,
    /// A user who may push.
    User(u32),
}

/// The budget and the usage of all payers. The caller passes the current time and the CPU times.
#[derive(Debug)]
pub(super) struct PushCpuBudget {
    all: Throttle,
    strangers: Throttle,
    payers: BTreeMap<Payer, PayerUsage>,
    halved_ns: u64,
    warning: BudgetWarning,
    /// CPU time charged so far for the thread and for the recorders.
    thread_ns: u64,
    recorders_ns: u64,
}

/// Decides when to warn that pushes wait for their budget.
#[derive(Debug, Default)]
struct BudgetWarning {
    begin_ns: u64,
    waited_ns: u64, // since then
    earliest: u64,  // time of the next warning, in nanoseconds
}

#[derive(Debug, Default, Clone, Copy)]
struct PayerUsage {
    recent_ns: u64, // CPU time, halved each second
    bytes: u64,     // passed on since the last charge of the recorders
}

impl PushCpuBudget {
    /// Creates a budget in basis points of a core. `thread_ns` is the CPU time that the thread has
    /// used so far.
    pub(super) fn new(basis_points: u32, thread_ns: u64) -> Self {
        let per_second = u64::from(basis_points).max(1) * (NS_PER_S / 10_000);
        Self {
            all: Throttle::new(per_second).with_burst(BURST_NS),
            strangers: Throttle::new(per_second / STRANGERS_PART).with_burst(BURST_NS),
            payers: BTreeMap::new(),
            halved_ns: 0,
            warning: BudgetWarning::default(),
            thread_ns,
            recorders_ns: 0,
        }
    }

    /// Returns the time for which all work must pause, in nanoseconds.
    pub(super) fn wait_ns(&self, now_ns: u64) -> u64 {
        with_credit(self.all.wait_ns(now_ns))
    }

    /// Returns the time for which accepting connections must pause, in nanoseconds.
    pub(super) fn accept_wait_ns(&self, now_ns: u64) -> u64 {
        with_credit(self.strangers.wait_ns(now_ns))
    }

    /// Charges a payer for the CPU time that the thread has used since the previous charge.
    pub(super) fn charge(&mut self, payer: Payer, thread_ns: u64, now_ns: u64) {
        let used_ns = self.take_used(thread_ns, now_ns);
        if payer == Payer::Stranger {
            self.strangers.charge(now_ns, used_ns);
        }
        self.add(payer, |usage| usage.recent_ns = usage.recent_ns.saturating_add(used_ns));
    }

    /// Charges no payer for the CPU time that the thread has used since the previous charge. The
    /// CPU time still counts towards the budget of all pushes.
    pub(super) fn charge_nobody(&mut self, thread_ns: u64, now_ns: u64) {
        self.take_used(thread_ns, now_ns);
    }

    /// Records the number of a user's bytes that were queued for the recorders.
    pub(super) fn note_bytes(&mut self, uid: u32, bytes: u64) {
        if bytes > 0 {
            self.add(Payer::User(uid), |usage| usage.bytes = usage.bytes.saturating_add(bytes));
        }
    }

    /// Charges the users for the recorders' work on pushed frames since the last call. Each user's
    /// share is in proportion to the user's bytes. `recorders_ns` is the total CPU time of that
    /// work so far.
    pub(super) fn charge_recorders(&mut self, recorders_ns: u64, now_ns: u64) {
        let used_ns = recorders_ns.saturating_sub(self.recorders_ns);
        if used_ns == 0 {
            return;
        }
        self.recorders_ns = recorders_ns;
        self.all.charge(now_ns, used_ns);
        let bytes = self.payers.values().fold(0_u64, |sum, usage| sum.saturating_add(usage.bytes));
        for usage in self.payers.values_mut() {
            let part = u128::from(used_ns) * u128::from(std::mem::take(&mut usage.bytes));
            let part = part.checked_div(u128::from(bytes)).unwrap_or_default();
            usage.recent_ns = usage.recent_ns.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        }
    }

    /// Records a pause of all work. Logs a warning if pushes have waited for a long time.
    pub(super) fn note_pause(&mut self, pause_ns: u64, now_ns: u64) {
        if !self.warning.note(pause_ns, now_ns) {
            return;
        }
        let busiest = self.payers.iter().max_by_key(|(_, usage)| usage.recent_ns);
        let uid = match busiest {
            Some((Payer::User(uid), _)) => Some(*uid),
            _ => None,
        };
        tracing::warn!(
            uid,
            "pushes wait, since they use more than [push] cpu_budget: frames stay in their lanes; raise it, or push less"
        );
    }

    /// Returns the recently used CPU time of a payer. The payer with the least CPU time is served
    /// first.
    pub(super) fn recent_ns(&self, payer: Payer) -> u64 {
        self.payers.get(&payer).map_or(0, |usage| usage.recent_ns)
    }

    /// Returns the CPU time that was charged for the thread and the recorders, in nanoseconds.
    pub(super) fn charged_ns(&self) -> u64 {
        self.thread_ns.saturating_add(self.recorders_ns)
    }

    fn take_used(&mut self, thread_ns: u64, now_ns: u64) -> u64 {
        let used_ns = thread_ns.saturating_sub(self.thread_ns);
        self.thread_ns = self.thread_ns.max(thread_ns);
        self.all.charge(now_ns, used_ns);
        if now_ns.saturating_sub(self.halved_ns) >= HALVING_NS {
            self.halved_ns = now_ns;
            for usage in self.payers.values_mut() {
                usage.recent_ns /= 2;
            }
            self.payers.retain(|_, usage| usage.recent_ns > 0 || usage.bytes > 0);
        }
        used_ns
    }

    fn add(&mut self, payer: Payer, change: impl FnOnce(&mut PayerUsage)) {
        if self.payers.len() >= USERS_MAX && !self.payers.contains_key(&payer) {
            let least = self.payers.iter().min_by_key(|(_, usage)| usage.recent_ns);
            if let Some(least) = least.map(|(payer, _)| *payer) {
                self.payers.remove(&least);
            }
        }
        change(self.payers.entry(payer).or_default());
    }
}

impl BudgetWarning {
    /// Records a pause. Returns whether to warn that pushes have waited for at least a tenth of the
    /// last ten seconds. Warns at most once a minute.
    fn note(&mut self, pause_ns: u64, now_ns: u64) -> bool {
        self.waited_ns = self.waited_ns.saturating_add(pause_ns);
        if now_ns.saturating_sub(self.begin_ns) < WINDOW_NS {
            return false;
        }
        let is_long = self.waited_ns >= WINDOW_NS / 10;
        (self.begin_ns, self.waited_ns) = (now_ns, 0);
        let is_due = is_long && now_ns >= self.earliest;
        if is_due {
            self.earliest = now_ns.saturating_add(WARNING_INTERVAL_NS);
        }
        is_due
    }
}

fn with_credit(debt_ns: u64) -> u64 {
    if debt_ns == 0 { 0 } else { debt_ns.saturating_add(CREDIT_NS) }
}

#[cfg(test)]
mod tests {
    use flatcap_format::testing::effort;
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// A simulated thread that does pieces of work, and sleeps when the budget requires it.
    struct SimulatedThread {
        budget: PushCpuBudget,
        now_ns: u64,
        thread_ns: u64,
    }

    impl SimulatedThread {
        fn new(basis_points: u32) -> Self {
            Self { budget: PushCpuBudget::new(basis_points, 0), now_ns: NS_PER_S, thread_ns: 0 }
        }

        fn work(&mut self, payer: Payer, cost_ns: u64) {
            self.now_ns += cost_ns;
            self.thread_ns += cost_ns;
            self.budget.charge(payer, self.thread_ns, self.now_ns);
        }

        fn sleep(&mut self) {
            self.now_ns += self.budget.wait_ns(self.now_ns);
        }
    }

    // Proves that strangers get a small part of the budget, whatever they do, and that users are
    // not charged for the work for strangers.
    #[test]
    fn strangers_get_a_small_part() {
        let mut thread = SimulatedThread::new(10_000);
        let (begin_ns, mut strangers_ns) = (thread.now_ns, 0);
        while thread.now_ns < begin_ns + 10 * NS_PER_S {
            if thread.budget.accept_wait_ns(thread.now_ns) == 0 {
                thread.work(Payer::Stranger, 50_000);
                strangers_ns += 50_000;
            } else {
                thread.work(Payer::User(1), 50_000);
            }
            thread.sleep();
        }
        let most = 10 * NS_PER_S / STRANGERS_PART;
        assert!((most * 9 / 10..=most * 11 / 10).contains(&strangers_ns), "{strangers_ns}");
        assert_eq!(thread.budget.charged_ns(), thread.thread_ns);
    }

    // Proves that the CPU time of the recorders is charged to the users whose frames they write.
    #[test]
    fn recorders_are_charged_to_those_who_push() {
        let mut budget = PushCpuBudget::new(1_000, 0);
        budget.note_bytes(1, 300);
        budget.note_bytes(2, 100);
        budget.charge_recorders(8 * MS, NS_PER_S);
        assert_eq!([1, 2].map(|uid| budget.recent_ns(Payer::User(uid))), [6 * MS, 2 * MS]);
        let wait_ns = 60 * MS + CREDIT_NS;
        assert_eq!(budget.wait_ns(NS_PER_S), wait_ns, "8 ms of a tenth of a core, less the burst");
        budget.charge_recorders(8 * MS, NS_PER_S);
        assert_eq!(budget.charged_ns(), 8 * MS, "nothing new");
        budget.charge_recorders(9 * MS, NS_PER_S);
        assert_eq!(budget.charged_ns(), 9 * MS, "frames of nobody who is known");
    }

    // Proves that long pauses cause a warning at most once a minute, and that short pauses cause no
    // warning.
    #[test]
    fn long_pauses_are_reported() {
        let mut warnings = |pause_ns: u64| {
            let mut warning = BudgetWarning::default();
            let times = (1..=3_000_u64).map(|tenth| tenth * NS_PER_S / 10);
            times.filter(|now_ns| warning.note(pause_ns, *now_ns)).count()
        };
        assert_eq!([0, 9 * MS, 11 * MS, 100 * MS].map(&mut warnings), [0, 0, 5, 5]);
    }

    // Proves that the memory for the usage of users is bounded, whatever the number of users.
    #[test]
    fn users_are_bounded() {
        let mut thread = SimulatedThread::new(10_000);
        for uid in 0..10_000 {
            thread.work(Payer::User(uid), MS);
        }
        assert!(thread.budget.payers.len() <= USERS_MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(effort::by_hand(40, 1_000)))]

        // Proves that the budget is kept over any interval and for any work, and that users who
        // always have work get equal shares.
        #[test]
        fn the_budget_is_kept_and_shared(
            basis_points in 100_u32..30_000,
            costs in proptest::collection::vec(10_000_u64..2 * MS, 2..6),
        ) {
            let mut thread = SimulatedThread::new(basis_points);
            let begin_ns = thread.now_ns;
            let mut used = vec![0_u64; costs.len()];
            while thread.now_ns < begin_ns + 20 * NS_PER_S {
                thread.sleep();
                let recent = |uid: &usize| {
                    thread.budget.recent_ns(Payer::User(u32::try_from(*uid).unwrap()))
                };
                let uid = (0..costs.len()).min_by_key(recent).unwrap();
                thread.work(Payer::User(u32::try_from(uid).unwrap()), costs[uid]);
                used[uid] += costs[uid];
            }
            let all: u64 = used.iter().sum();
            let passed_ns = thread.now_ns - begin_ns + BURST_NS;
            let budget_ns = u128::from(passed_ns) * u128::from(basis_points) / 10_000;
            prop_assert!(u128::from(all) <= budget_ns + u128::from(2 * MS), "{all} of {budget_ns}");
            let share = all / u64::try_from(costs.len()).unwrap();
            for used in used {
                prop_assert!(used + 4 * MS >= share * 9 / 10, "{used} of {share}");
            }
        }
    }
}
