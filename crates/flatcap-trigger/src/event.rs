//! The events of rules. The events are firings, and changes of the time range that the recorder
//! should keep around a firing.

use std::fmt::{self, Display};
use std::sync::Arc;

use flatcap_query::language::UnitValue;

/// A firing of a rule, or the end of the time range that the rule asks the recorder to keep. All
/// times are monotonic nanoseconds.
///
/// An *episode* consists of a firing and all firings that follow before the range of the episode
/// ends. An episode has one [`Fired`](TriggerChange::Fired), any number of
/// [`Extended`](TriggerChange::Extended) and, unless the run ends first, one
/// [`Ended`](TriggerChange::Ended).
#[derive(Debug, Clone, PartialEq)]
pub struct TriggerEvent {
    /// The rule's name.
    pub rule: Arc<str>,
    /// The kind of event.
    pub change: TriggerChange,
    /// Number of the episode of this rule in this run, counted from 1.
    pub episode: u64,
    /// The time at which the condition became true before the latest firing, in monotonic
    /// nanoseconds.
    pub condition_mono_ns: u64,
    /// The time of the first firing of the episode.
    pub fired_mono_ns: u64,
    /// The time of the latest firing of the episode.
    pub last_fired_mono_ns: u64,
    /// Start of the range to keep, inclusive. The range begins at the time of the first firing
    /// minus `before`.
    pub from_mono_ns: u64,
    /// End of the range to keep, inclusive. The range ends at the time of the latest firing plus
    /// `after`.
    pub until_mono_ns: u64,
    /// The comparisons in the condition, with their values at the latest firing, in the order in
    /// which the user wrote them.
    pub values: Vec<ComparedQuantity>,
}

/// A change of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerChange {
    /// The episode began.
    Fired,
    /// The rule fired again before the end of the range, and the range was extended.
    Extended,
    /// The range has ended, so all samples in the range have been observed.
    Ended,
}

/// A comparison of a condition, with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedQuantity {
    /// The part of the condition as the user wrote it, such as `pressure.io_some.total:rate > 20%`.
    pub text: Arc<str>,
    /// The value of the left side. `None` if the value is unknown or a string.
    pub value: Option<UnitValue>,
    /// The element that determined the result, such as `vda`. `None` if the field is not in a list.
    pub element: Option<Box<str>>,
}

impl Display for TriggerEvent {
    /// Writes the name of the rule and the compared values. An example is `io-stall:
    /// pressure.io_some.total:rate > 20% (34.2 %)`.
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
