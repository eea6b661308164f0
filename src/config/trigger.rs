//! The tables of rules, which are named `[trigger.NAME]`.

use std::sync::Arc;
use std::time::Duration;

use flatcap_os::host_log::HostLog;
use flatcap_os::keyword::Keyword;
use flatcap_os::program_guard::Provenance;
use flatcap_trigger::limits::RULES_MAX;
use flatcap_trigger::{EPISODE_NS_MAX, FIRINGS_PER_DAY_MAX, SampleCondition, TriggerRule, TriggerTimes};

use super::expected_value::ExpectedValue::{
    self, CommandOrNone, Condition, ConditionOrEmpty, Duration as Time, Flag, Number,
};
use super::key::{Key, Keyed, keys};
use super::limits::{DAY, HOUR};

/// Maximum number of rules in one configuration.
pub const TRIGGERS_MAX: usize = RULES_MAX;

/// A rule as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerConfig {
    /// Its name.
    pub name: String,
    /// Whether the rule is evaluated.
    pub enabled: bool,
    /// The condition on which the rule fires; `None` until its key is read. A configuration without
    /// that key is refused.
    pub when: Option<SampleCondition>,
    /// The condition that clears the rule; `None` if the rule clears when `when` does not hold.
    pub clear: Option<SampleCondition>,
    /// The time for which the condition must hold before the rule fires.
    pub for_time: Duration,
    /// The time before the firing that the snapshot keeps.
    pub before: Duration,
    /// The time after the firing that the snapshot keeps.
    pub after: Duration,
    /// The time for which the rule does not fire again, counted from the end of the time `after`.
    pub hold_off: Duration,
    /// Maximum number of firings in 24 hours.
    pub max_per_day: u32,
    /// Logs of the host that the snapshot gets.
    pub capture: Vec<HostLog>,
    /// The program that is run at a firing, and its arguments; empty if no program is run.
    pub run: Vec<String>,
    /// The file that sets `run`; `None` if no file sets it.
    pub run_defined_in: Option<Provenance>,
}

impl TriggerConfig {
    /// Returns a rule with default settings, without a condition.
    pub(super) fn new(name: String) -> Self {
        Self {
            name,
            enabled: true,
            when: None,
            clear: None,
            for_time: Duration::ZERO,
            // The cause of an event is in the seconds before it, and its effects are in the seconds
            // after it.
            before: Duration::from_secs(10),
            after: Duration::from_secs(5),
            // A condition that comes and goes within this time is one incident.
            hold_off: Duration::from_secs(60),
            // That is one in an hour on average, so that somebody still looks at each.
            max_per_day: 24,
            // All logs are captured, because the kernel and the services often log the cause.
            capture: HostLog::ALL.to_vec(),
            run: Vec::new(),
            run_defined_in: None,
        }
    }

    /// Returns a rule with this condition and default settings.
    pub fn of_condition(name: String, when: SampleCondition) -> TriggerRule {
        let own = Self::new(name);
        TriggerRule { name: Arc::from(own.name.as_str()), when, clear: None, times: own.times() }
    }

    /// Returns the rule; `None` if the rule has no condition.
    pub fn rule(&self) -> Option<TriggerRule> {
        let (name, clear) = (Arc::from(self.name.as_str()), self.clear.clone());
        Some(TriggerRule { name, when: self.when.clone()?, clear, times: self.times() })
    }

    fn times(&self) -> TriggerTimes {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        TriggerTimes {
            for_ns: ns(self.for_time),
            before_ns: ns(self.before),
            after_ns: ns(self.after),
            hold_off_ns: ns(self.hold_off),
            max_per_day: self.max_per_day,
        }
    }
}

impl Keyed for TriggerConfig {
    fn keys(&self) -> Vec<&'static Key<Self>> {
        TRIGGER.iter().collect()
    }
}

keys! {
    const TRIGGER of TriggerConfig;

    /// Condition on which the rule fires, such as "pressure.io_some.total:rate(100ms) > 20%".
    when: Condition, Reload, |trigger| Some(&mut trigger.when), required();

    /// Condition on which the rule may fire again, such as a lower threshold. "" means that the
    /// rule may fire again as soon as `when` does not hold.
    clear: ConditionOrEmpty, Reload, |trigger| Some(&mut trigger.clear);

    /// Whether the rule is evaluated.
    enabled: Flag, Reload, |trigger| Some(&mut trigger.enabled);

    /// Time for which the condition must hold without a break before the rule fires.
    // A condition that lasts a day is found by looking at the recording, so no trigger is needed
    // for it.
    for: Time(0..=DAY), Reload, |trigger| Some(&mut trigger.for_time);

    /// Length of the recording before the firing that the snapshot keeps.
    before: Time(0..=HOUR), Reload, |trigger| Some(&mut trigger.before);

    /// Length of the recording after the firing that the snapshot keeps. Another firing in this
    /// time extends the snapshot.
    // The maximum is the maximum length of an episode.
    after: Time(0..=EPISODE_NS_MAX), Reload, |trigger| Some(&mut trigger.after);

    /// Time for which the rule does not fire again, counted from the end of the time `after`.
    hold_off: Time(0..=7 * DAY), Reload, |trigger| Some(&mut trigger.hold_off);

    /// Maximum number of firings in 24 hours.
    max_per_day: Number(1..=u64::from(FIRINGS_PER_DAY_MAX)), Reload,
        |trigger| Some(&mut trigger.max_per_day);

    /// Logs of the host that the snapshot gets for its window, if flatcap may read them; [] for
    /// none.
    capture: ExpectedValue::KeywordsOrNone(HostLog::keywords()), Reload,
        |trigger| Some(&mut trigger.capture);

    /// Program that is run when the rule fires, with one JSON object on its standard input; [] for
    /// none. The recorder does not wait for the program. Nobody but root and the user of flatcap
    /// may be able to change it.
    run: CommandOrNone, Reload, |trigger| Some(&mut trigger.run);
}
