//! The tables of rules: `[trigger.NAME]`.

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
    /// The condition that fires it; none until its key is read, without which a configuration is
    /// refused.
    pub when: Option<SampleCondition>,
    /// The condition that clears it; none: that `when` does not hold.
    pub clear: Option<SampleCondition>,
    /// How long the condition must hold.
    pub for_time: Duration,
    /// How much to keep before the firing.
    pub before: Duration,
    /// How much to keep after it.
    pub after: Duration,
    /// How long the rule does not fire again once the time of after has passed.
    pub hold_off: Duration,
    /// Most firings in 24 hours.
    pub max_per_day: u32,
    /// Logs that the snapshot gets.
    pub capture: Vec<HostLog>,
    /// The program that is run at a firing, and its arguments; empty for none.
    pub run: Vec<String>,
    /// The file that sets `run`; none if no file does.
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
            // What led to an event is in the seconds before it; its effects are in those after.
            before: Duration::from_secs(10),
            after: Duration::from_secs(5),
            // A condition that comes and goes is one incident.
            hold_off: Duration::from_secs(60),
            // One in an hour: somebody still looks at each.
            max_per_day: 24,
            // The kernel and the services often say what happened.
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

    /// Returns the rule; none without a condition.
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

    /// Condition on which it may fire again, such as a lower threshold; "" for: when does not hold.
    clear: ConditionOrEmpty, Reload, |trigger| Some(&mut trigger.clear);

    /// Whether the rule is evaluated.
    enabled: Flag, Reload, |trigger| Some(&mut trigger.enabled);

    /// How long the condition must hold without a break before the rule fires.
    // What lasts a day is found by looking, not by a trigger.
    for: Time(0..=DAY), Reload, |trigger| Some(&mut trigger.for_time);

    /// How much of the time before the firing the snapshot keeps.
    before: Time(0..=HOUR), Reload, |trigger| Some(&mut trigger.before);

    /// How much of the time after the firing the snapshot keeps. Another firing in this time
    /// extends the snapshot.
    // An episode ends at the latest then.
    after: Time(0..=EPISODE_NS_MAX), Reload, |trigger| Some(&mut trigger.after);

    /// How long the rule does not fire after that.
    hold_off: Time(0..=7 * DAY), Reload, |trigger| Some(&mut trigger.hold_off);

    /// How often the rule fires in 24 hours at most.
    max_per_day: Number(1..=u64::from(FIRINGS_PER_DAY_MAX)), Reload,
        |trigger| Some(&mut trigger.max_per_day);

    /// Logs of the host that the snapshot gets for its window, if flatcap may read them; [] for
    /// none.
    capture: ExpectedValue::KeywordsOrNone(HostLog::keywords()), Reload,
        |trigger| Some(&mut trigger.capture);

    /// Program that is run when the rule fires, with one JSON object on its standard input; [] for
    /// none. It is not waited for. Nobody but root and the user of flatcap may be able to change
    /// it.
    run: CommandOrNone, Reload, |trigger| Some(&mut trigger.run);
}
