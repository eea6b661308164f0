//! The events of rules: firings, and the time range around them that is worth keeping.

use std::fmt::{self, Display};
use std::sync::Arc;

use flatcap_query::language::UnitValue;

/// A firing of a rule, or the end of the range that it asks to keep. All times are monotonic
/// nanoseconds.
///
/// An *episode* consists of a firing and all firings that follow before its range ends. An episode
/// has one [`Fired`](TriggerChange::Fired), any number of [`Extended`](TriggerChange::Extended)
/// and, unless the run ends first, one [`Ended`](TriggerChange::Ended).
#[derive(Debug, Clone, PartialEq)]
pub struct TriggerEvent {
    /// The rule's name.
    pub rule: Arc<str>,
    /// The kind of event.
    pub change: TriggerChange,
    /// Number of the episode of this rule in this run, from 1.
    pub episode: u64,
    /// The time at which the condition became true before the latest firing, in monotonic
    /// nanoseconds.
    pub condition_mono_ns: u64,
    /// The first firing of the episode.
    pub fired_mono_ns: u64,
    /// The latest firing of the episode.
    pub last_fired_mono_ns: u64,
    /// Begin of the range to keep, inclusive: `before` before the first firing.
    pub from_mono_ns: u64,
    /// End of the range to keep, inclusive: `after` after the latest firing.
    pub until_mono_ns: u64,
    /// The comparisons of the condition with their values at the latest firing, in the order of the
    /// text.
    pub values: Vec<ComparedQuantity>,
}

/// A change of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerChange {
    /// The episode began.
    Fired,
    /// The rule fired again before the end of the range, which was extended.
    Extended,
    /// The range has ended: all samples in the range were observed.
    Ended,
}

/// A comparison of a condition, with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedQuantity {
    /// The part of the condition, as written: `pressure.io_some.total:rate > 20%`.
    pub text: Arc<str>,
    /// The value of the left side; `None` if it is unknown or a string.
    pub value: Option<UnitValue>,
    /// The element that decided, such as `vda`; `None` if the field is in no list.
    pub element: Option<Box<str>>,
}

impl Display for TriggerEvent {
    /// Writes the rule and the values: `io-stall: pressure.io_some.total:rate > 20% (34.2 %)`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.rule)?;
        for (number, compared) in self.values.iter().enumerate() {
            write!(formatter, "{}{compared}", if number == 0 { " " } else { "; " })?;
        }
        Ok(())
    }
}

impl Display for ComparedQuantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)?;
        match (&self.element, &self.value) {
            (Some(element), Some(value)) => write!(formatter, " ({element}: {value})"),
            (Some(element), None) => write!(formatter, " ({element})"),
            (None, Some(value)) => write!(formatter, " ({value})"),
            (None, None) => Ok(()),
        }
    }
}
