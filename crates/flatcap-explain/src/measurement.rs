//! The samples of a printed value, and the command that prints them.

use super::reading::RecordingChoice;

/// A step of `dump --every` that is longer than any recording.
const WHOLE_STEP: &str = "36500d";

/// The samples of a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Wall time of the first sample of the value.
    pub from_wall_ns: i64,
    /// Wall time after the last sample, exclusive.
    pub until_wall_ns: i64,
    /// The element is new: its counter was 0 at `from_wall_ns`, before the element existed.
    pub is_since_start: bool,
    /// The count exceeds what is possible in this time, since a wait that began before is counted
    /// when it ends. So the value is the largest possible one.
    pub is_limited: bool,
    /// The path of the field for `dump`.
    pub field: String,
    /// The way in which `dump` shows the samples.
    pub shown: ShownValues,
    /// `dump --units` converts to its unit; otherwise `dump` prints the value unconverted.
    pub(super) has_common_unit: bool,
}

/// The way in which `dump` shows the samples of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownValues {
    /// `dump` shows one row: the change per second of a counter.
    Rate,
    /// `dump` shows one row: the mean.
    Mean,
    /// `dump` shows one row: the count of a new element's counter, in the unit of its schema. The
    /// value is this count per second.
    Last,
    /// `dump` shows the samples. The value is a share or a number of these samples.
    Samples,
}

impl ShownValues {
    /// Returns the word for this way.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Mean => "mean",
            Self::Last => "last",
            Self::Samples => "samples",
        }
    }
}

impl Measurement {
    /// Returns the arguments of `flatcap` that print the samples, or the value.
    pub fn dump_arguments(&self, choice: &RecordingChoice) -> Vec<String> {
        let mut arguments = vec!["dump".to_owned()];
        arguments.extend(choice.paths.iter().map(|path| path.to_string_lossy().into_owned()));
        if let Some(host) = &choice.host {
            arguments.extend(["--host".to_owned(), host.name.clone()]);
        }
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--fields", self.field.clone());
        // A rate covers the time since the previous sample.
        let is_rate = self.shown == ShownValues::Rate;
        option("--since", self.from_wall_ns.saturating_add(i64::from(is_rate)).to_string());
        option("--until", self.until_wall_ns.to_string());
        match self.shown {
            ShownValues::Rate => option("--every", WHOLE_STEP.to_owned()),
            ShownValues::Mean => option("--every", format!("{WHOLE_STEP}:mean")),
            ShownValues::Last => option("--every", format!("{WHOLE_STEP}:last")),
            ShownValues::Samples => {}
        }
        if self.shown == ShownValues::Rate {
            arguments.push("--rate".to_owned());
        }
        if self.shown == ShownValues::Samples {
            arguments.push("--long".to_owned());
        } else if self.has_common_unit && self.shown != ShownValues::Last {
            arguments.push("--units".to_owned());
        }
        arguments.extend(["--format".to_owned(), "csv".to_owned()]);
        arguments
    }
}
