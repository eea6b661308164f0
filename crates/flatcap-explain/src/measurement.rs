//! The samples of a printed value, and the command that prints them.

use flatcap_format::schema::shell_word;
use serde::Serialize;

use super::reading::RecordingChoice;

/// A step of `dump --every` that is longer than any recording.
const WHOLE_STEP: &str = "36500d";

/// The samples from which a value was computed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// Wall time of the first sample of the value.
    pub from_wall_ns: i64,
    /// Exclusive end of the samples, as wall time.
    pub until_wall_ns: i64,
    /// The way in which `dump` shows the samples.
    pub shown: ShownValues,
    /// Whether the element is new, so that its counter was 0 at `from_wall_ns`, before the element
    /// existed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_since_start: bool,
    /// Whether the counter grew by more than is possible in the time between the samples. This
    /// happens because a wait that began earlier is counted only when it ends. In this case, the
    /// value is the largest possible value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_limited: bool,
    /// The command that prints the samples, or the value.
    pub dump: String,
}

/// The way in which `dump` shows the samples of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ShownValues {
    /// `dump` shows one row: the change per second of a counter.
    Rate,
    /// `dump` shows one row: the mean.
    Mean,
    /// `dump` shows one row: the count of a new element's counter, in the unit of its schema. The
    /// printed value is this count per second.
    Last,
    /// `dump` shows the samples. The printed value is the share or the number of these samples.
    Samples,
}

/// Returns the command that prints the samples of `field` from the first wall time up to the last
/// one. With `has_common_unit`, `dump --units` converts to the unit of the value. Otherwise, `dump`
/// prints the value unconverted.
pub(super) fn dump_command(
    choice: &RecordingChoice,
    field: String,
    (from_wall_ns, until_wall_ns): (i64, i64),
    shown: ShownValues,
    has_common_unit: bool,
) -> String {
    let mut words = vec!["flatcap".to_owned(), "dump".to_owned()];
    words.extend(choice.paths.iter().map(|path| path.to_string_lossy().into_owned()));
    if let Some(host) = &choice.host {
        words.extend(["--host".to_owned(), host.name.clone()]);
    }
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    option("--fields", field);
    // A rate covers the time since the previous sample.
    let is_rate = shown == ShownValues::Rate;
    option("--since", from_wall_ns.saturating_add(i64::from(is_rate)).to_string());
    option("--until", until_wall_ns.to_string());
    match shown {
        ShownValues::Rate => option("--every", WHOLE_STEP.to_owned()),
        ShownValues::Mean => option("--every", format!("{WHOLE_STEP}:mean")),
        ShownValues::Last => option("--every", format!("{WHOLE_STEP}:last")),
        ShownValues::Samples => {}
    }
    if is_rate {
        words.push("--rate".to_owned());
    }
    if shown == ShownValues::Samples {
        words.push("--long".to_owned());
    } else if has_common_unit && shown != ShownValues::Last {
        words.push("--units".to_owned());
    }
    words.extend(["--format".to_owned(), "csv".to_owned()]);
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}
