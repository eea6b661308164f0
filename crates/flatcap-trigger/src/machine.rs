//! The state machine of a rule, which converts the results of a condition over time into firings
//! (alerts). A second condition, which rearms the rule after a firing, gives the rule hysteresis.
//! The time `hold_off` is the cooldown of the rule. The state machine depends only on samples and
//! times.

use std::collections::VecDeque;

use flatcap_query::language::Truth;

/// Maximum length of an episode from its first firing, in nanoseconds. The limit is necessary
/// because a flapping rule must not keep a snapshot open forever. Later firings are suppressed
/// until the episode has ended.
pub const EPISODE_NS_MAX: u64 = 600_000_000_000;
/// Maximum of `max_per_day`. The limit is necessary because the times of all firings of a day are
/// kept.
pub const FIRINGS_PER_DAY_MAX: u32 = 10_000;

const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// The times and limits of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggerTimes {
    /// Time for which the condition must hold before the rule fires, in nanoseconds.
    pub for_ns: u64,
    /// Length of the time range to keep before the first firing, in nanoseconds.
    pub before_ns: u64,
    /// Length of the time range to keep after the latest firing, in nanoseconds. A firing within
    /// this range extends the episode.
    pub after_ns: u64,
    /// Time after the end of an episode in which the rule does not fire, in nanoseconds.
    pub hold_off_ns: u64,
    /// Maximum number of episodes in any 24 hours, from 1 to [`FIRINGS_PER_DAY_MAX`].
    pub max_per_day: u32,
}

/// The reason why a rule did not fire although its condition held long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suppression {
    /// The time since the end of the last episode is shorter than `hold_off`.
    HoldOff,
    /// There were `max_per_day` episodes in the last 24 hours.
    DailyLimit,
    /// The episode would become longer than [`EPISODE_NS_MAX`].
    EpisodeLength,
}

/// The times of an episode, in monotonic nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Episode {
    pub(crate) number: u64,
    pub(crate) condition_ns: u64,
    pub(crate) fired_ns: u64,
    pub(crate) last_fired_ns: u64,
    pub(crate) until_ns: u64,
}

/// The results of a step of the state machine. The results occur in the order of the fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StepResult {
    /// The episode that has ended, if any.
    pub(crate) ended: Option<Episode>,
    /// The episode of the firing, and whether the firing extends the episode.
    pub(crate) fired: Option<(Episode, bool)>,
    /// The reason why a firing was suppressed.
    pub(crate) suppressed: Option<Suppression>,
}

/// The state of the condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConditionState {
    /// The condition does not hold.
    Idle,
    /// The condition has held since the time `since_ns`, but not yet for the time `for`.
    Pending { since_ns: u64 },
    /// The condition held long enough, and has not been cleared.
    Firing,
}

/// Whether earlier firings allow another firing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EpisodeState {
    Ready,
    Open(Episode),
    HoldOff { until_ns: u64 },
}

/// The state machine of a rule.
#[derive(Debug, Clone)]
pub(crate) struct TriggerMachine {
    times: TriggerTimes,
    now_ns: u64,
    condition: ConditionState,
    episode: EpisodeState,
    episodes: u64,
    /// The time of the first firing of each episode of the last 24 hours, oldest first.
    firings: VecDeque<u64>,
}

impl TriggerMachine {
    pub(crate) fn new(times: TriggerTimes) -> Self {
        Self {
            times,
            now_ns: 0,
            condition: ConditionState::Idle,
            episode: EpisodeState::Ready,
            episodes: 0,
            firings: VecDeque::new(),
        }
    }

    pub(crate) fn times(&self) -> TriggerTimes {
        self.times
    }

    /// Records that the condition was not observed for a while. The condition may have been false
    /// in this time.
    pub(crate) fn interrupt(&mut self) {
        // A rule that has fired remains in the state `Firing`. Otherwise each pause of a source
        // would make the rule fire again.
        if matches!(self.condition, ConditionState::Pending { .. }) {
            self.condition = ConditionState::Idle;
        }
    }

    /// Takes over state from an earlier machine of the same rule, so that a reload neither shortens
    /// a hold-off nor discards the firings of the day. If the condition is the same and the rule
    /// has fired, the rule must still be cleared before it fires again.
    pub(crate) fn adopt(&mut self, earlier: &Self, is_same_condition: bool) {
        if is_same_condition && earlier.condition == ConditionState::Firing {
            self.condition = ConditionState::Firing;
        }
        self.now_ns = earlier.now_ns;
        self.episode = earlier.episode;
        self.episodes = earlier.episodes;
        self.firings.clone_from(&earlier.firings);
    }

    /// Processes the results of the condition and of `clear` at the time `mono_ns`. If the time is
    /// earlier than the latest time so far, the latest time is used instead. If both conditions
    /// hold, `clear` is ignored. Returns `None` if nothing happened.
    #[inline]
    pub(crate) fn observe(&mut self, mono_ns: u64, when: Truth, clear: Truth) -> Option<StepResult> {
        // This is the common case, which occurs after almost every sample.
        if when != Truth::True
            && self.condition == ConditionState::Idle
            && matches!(self.episode, EpisodeState::Ready)
        {
            self.now_ns = self.now_ns.max(mono_ns);
            return None;
        }
        let result = self.step(mono_ns, when, clear);
        (result != StepResult::default()).then_some(result)
    }

    fn step(&mut self, mono_ns: u64, when: Truth, clear: Truth) -> StepResult {
        let mut result = self.advance(mono_ns);
        // If both conditions hold, `clear` must be ignored. Otherwise the rule would rearm and fire
        // at each sample.
        let since_ns = match (self.condition, when, clear) {
            (ConditionState::Firing, Truth::False | Truth::Unknown, Truth::True) => {
                self.condition = ConditionState::Idle;
                return result;
            }
            (ConditionState::Firing, ..) => return result,
            // The condition may have been false while its result was unknown, so `for` starts
            // again.
            (_, Truth::False | Truth::Unknown, _) => {
                self.condition = ConditionState::Idle;
                return result;
            }
            (ConditionState::Idle, Truth::True, _) => self.now_ns,
            (ConditionState::Pending { since_ns }, Truth::True, _) => since_ns,
        };
        if self.now_ns - since_ns < self.times.for_ns {
            self.condition = ConditionState::Pending { since_ns };
            return result;
        }
        // The state changes even if the firing is suppressed below, because one crossing of the
        // threshold must not fire more than once.
        self.condition = ConditionState::Firing;
        match self.fire(since_ns) {
            Ok(fired) => result.fired = Some(fired),
            Err(suppression) => result.suppressed = Some(suppression),
        }
        result
    }

    /// Advances the time to `mono_ns`. The caller must already have passed all observations before
    /// this time.
    pub(crate) fn advance(&mut self, mono_ns: u64) -> StepResult {
        self.now_ns = self.now_ns.max(mono_ns);
        let mut result = StepResult::default();
        // The end is inclusive, so a sample at exactly this time still belongs to the episode.
        if let EpisodeState::Open(episode) = self.episode
            && self.now_ns > episode.until_ns
        {
            result.ended = Some(episode);
            let until_ns = episode.until_ns.saturating_add(self.times.hold_off_ns);
            self.episode = EpisodeState::HoldOff { until_ns };
        }
        if let EpisodeState::HoldOff { until_ns } = self.episode
            && self.now_ns >= until_ns
        {
            self.episode = EpisodeState::Ready;
        }
        result
    }

    /// Starts an episode, or extends the current episode.
    fn fire(&mut self, condition_ns: u64) -> Result<(Episode, bool), Suppression> {
        let now_ns = self.now_ns;
        let until_ns = now_ns.saturating_add(self.times.after_ns);
        match self.episode {
            EpisodeState::HoldOff { .. } => Err(Suppression::HoldOff),
            EpisodeState::Open(episode) => {
                if until_ns > episode.fired_ns.saturating_add(EPISODE_NS_MAX) {
                    return Err(Suppression::EpisodeLength);
                }
                let episode = Episode { condition_ns, last_fired_ns: now_ns, until_ns, ..episode };
                self.episode = EpisodeState::Open(episode);
                Ok((episode, true))
            }
            EpisodeState::Ready => {
                // The daily limit applies to the last 24 hours. With calendar days, a flapping rule
                // could use up the limits of two days around midnight.
                while self.firings.front().is_some_and(|first| now_ns - first >= DAY_NS) {
                    self.firings.pop_front();
                }
                if self.firings.len() >= self.times.max_per_day as usize {
                    return Err(Suppression::DailyLimit);
                }
                self.firings.push_back(now_ns);
                self.episodes += 1;
                let number = self.episodes;
                let episode =
                    Episode { number, condition_ns, fired_ns: now_ns, last_fired_ns: now_ns, until_ns };
                self.episode = EpisodeState::Open(episode);
                Ok((episode, false))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMES: TriggerTimes =
        TriggerTimes { for_ns: 0, before_ns: 0, after_ns: 0, hold_off_ns: 0, max_per_day: 1000 };

    /// A step of a test, with the time and the results of the condition and of `clear`.
    type Step = (u64, Truth, Truth);

    /// Returns the expected episodes and suppressions of some steps. The results are computed from
    /// the whole history, not step by step. First finds the times at which the condition was met,
    /// and then derives the episodes from these times.
    fn expected(times: TriggerTimes, steps: &[Step]) -> (Vec<Episode>, Vec<Suppression>) {
        let mut met: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while at < steps.len() {
            // The number of steps, starting with this step, in which the condition holds without
            // interruption.
            let held = steps[at..].iter().take_while(|(_, when, _)| *when == Truth::True).count();
            let long_enough = steps[at..at + held].iter().position(|(t, ..)| t - steps[at].0 >= times.for_ns);
            let Some(first) = long_enough else {
                at += held.max(1);
                continue;
            };
            met.push((steps[at].0, steps[at + first].0));
            let rest = &steps[at + first + 1..];
            let cleared =
                rest.iter().position(|(_, when, clear)| *when != Truth::True && *clear == Truth::True);
            at = cleared.map_or(steps.len(), |cleared| at + first + 1 + cleared + 1);
        }
        let (mut episodes, mut suppressed): (Vec<Episode>, Vec<Suppression>) = (Vec::new(), Vec::new());
        for (condition_ns, now) in met {
            let until_ns = now + times.after_ns;
            match episodes.last_mut() {
                Some(last) if now <= last.until_ns => {
                    if until_ns > last.fired_ns + EPISODE_NS_MAX {
                        suppressed.push(Suppression::EpisodeLength);
                    } else {
                        (last.condition_ns, last.last_fired_ns, last.until_ns) =
                            (condition_ns, now, until_ns);
                    }
                    continue;
                }
                Some(last) if now < last.until_ns + times.hold_off_ns => {
                    suppressed.push(Suppression::HoldOff);
                    continue;
                }
                _ => {}
            }
            let of_day = episodes.iter().filter(|episode| now - episode.fired_ns < DAY_NS).count();
            if of_day >= times.max_per_day as usize {
                suppressed.push(Suppression::DailyLimit);
                continue;
            }
            let number = episodes.len() as u64 + 1;
            episodes.push(Episode { number, condition_ns, fired_ns: now, last_fired_ns: now, until_ns });
        }
        (episodes, suppressed)
    }

    fn run(machine: &mut TriggerMachine, steps: &[Step]) -> (Vec<Episode>, Vec<Suppression>) {
        let (mut episodes, mut suppressed) = (Vec::new(), Vec::new());
        let mut open: Option<Episode> = None;
        for (t, when, clear) in steps {
            let result = machine.observe(*t, *when, *clear).unwrap_or_default();
            if let Some(ended) = result.ended {
                assert_eq!(open.take(), Some(ended));
                episodes.push(ended);
            }
            if let Some((episode, extends)) = result.fired {
                assert_eq!(open.is_some(), extends);
                open = Some(episode);
            }
            suppressed.extend(result.suppressed);
        }
        episodes.extend(open);
        (episodes, suppressed)
    }

    fn truth() -> impl Strategy<Value = Truth> {
        prop_oneof![3 => Just(Truth::True), 2 => Just(Truth::False), 1 => Just(Truth::Unknown)]
    }

    proptest! {
        // Proves that the machine finds the same episodes and suppressions as a computation over
        // the whole history. This is true for any results of the conditions, any steps of time and
        // any settings.
        #[test]
        fn episodes_are_those_of_the_history(
            steps in prop::collection::vec((0..8_u64, truth(), truth()), 0..120),
            scale in prop_oneof![Just(1_u64), Just(DAY_NS / 20), Just(EPISODE_NS_MAX / 9)],
            settings in (0..12_u64, 0..10_u64, 0..20_u64, 1..6_u32),
            default_clear in any::<bool>(),
        ) {
            let (for_ns, after_ns, hold_off_ns, max_per_day) = settings;
            let times = TriggerTimes {
                for_ns: for_ns * scale,
                before_ns: 0,
                after_ns: after_ns * scale,
                hold_off_ns: hold_off_ns * scale,
                max_per_day,
            };
            let mut now = 0;
            let steps: Vec<Step> = steps
                .into_iter()
                .map(|(step, when, clear)| {
                    now += step * scale;
                    (now, when, if default_clear { !when } else { clear })
                })
                .collect();
            prop_assert_eq!(run(&mut TriggerMachine::new(times), &steps), expected(times, &steps));
        }
    }

    // Proves that an unknown result neither fires nor clears a rule, and that it restarts `for`.
    #[test]
    fn the_unknown_does_nothing() {
        let (t, f, u) = (Truth::True, Truth::False, Truth::Unknown);
        let times = TriggerTimes { for_ns: 2, ..TIMES };
        let steps = [(0, t, f), (1, u, u), (2, t, f), (3, u, u), (4, t, f), (5, t, f), (6, t, f)];
        let fired = run(&mut TriggerMachine::new(times), &steps).0;
        assert_eq!(fired.iter().map(|episode| episode.fired_ns).collect::<Vec<_>>(), [6]);
        let steps = [(0, t, f), (1, u, u), (2, t, f), (3, f, t), (4, t, f)];
        let fired = run(&mut TriggerMachine::new(TIMES), &steps).0;
        assert_eq!(fired.iter().map(|episode| episode.fired_ns).collect::<Vec<_>>(), [0, 4]);
    }

    // Proves that a time that steps back is replaced by the latest time so far.
    #[test]
    fn time_does_not_step_back() {
        let mut machine = TriggerMachine::new(TriggerTimes { after_ns: 5, ..TIMES });
        assert!(machine.observe(100, Truth::True, Truth::False).unwrap().fired.is_some());
        machine.observe(90, Truth::False, Truth::True);
        let (episode, extends) = machine.observe(91, Truth::True, Truth::False).unwrap().fired.unwrap();
        assert!(extends);
        assert_eq!((episode.condition_ns, episode.last_fired_ns, episode.until_ns), (100, 100, 105));
    }

    // Proves that a reload keeps the hold-off and the day's firings.
    #[test]
    fn a_successor_keeps_the_limits() {
        let times = TriggerTimes { hold_off_ns: 50, max_per_day: 2, ..TIMES };
        let mut machine = TriggerMachine::new(times);
        machine.observe(0, Truth::True, Truth::False);
        machine.advance(1);
        let mut next = TriggerMachine::new(times);
        next.adopt(&machine, true);
        assert_eq!(next.observe(9, Truth::True, Truth::False), None, "it has fired, and was not cleared");
        next.adopt(&machine, false);
        next.condition = ConditionState::Idle;
        assert_eq!(
            next.observe(10, Truth::True, Truth::False).unwrap().suppressed,
            Some(Suppression::HoldOff)
        );
        next.observe(60, Truth::False, Truth::True);
        assert_eq!(next.observe(61, Truth::True, Truth::False).unwrap().fired.unwrap().0.number, 2);
        next.observe(112, Truth::False, Truth::True);
        assert_eq!(
            next.observe(300, Truth::True, Truth::False).unwrap().suppressed,
            Some(Suppression::DailyLimit)
        );
    }
}
