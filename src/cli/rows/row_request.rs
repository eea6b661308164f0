//! A user's request: the fields and rows to print, and the format.

use std::io::{self, IsTerminal};
use std::time::Duration;

use flatcap_format::replay::ReplayFilter;
use flatcap_query::{Aggregate, FieldPath, PathError, RowCondition, Steps};
use flatcap_text::quantity::duration_argument;
use jiff::tz::TimeZone;

use super::row_cell::{TextRule, UnitMode};
use crate::cli::selection::RecordingSelection;
use crate::config;

/// Options of rows.
#[derive(Debug, Default, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(in crate::cli) struct RowArgs {
    /// Print only these fields, in this order, of one or several sources: paths of flatcap fields,
    /// separated by commas (cpu.total.user,disk.devices[vda].reads). The end of a path is enough if
    /// only one field has this end (forks).
    #[arg(long, value_name = "A,B.C", value_parser = parse_fields)]
    pub(in crate::cli) fields: Option<FieldList>,
    /// Print only the rows for which a condition on the recorded values is true. It compares fields
    /// with numbers and their units (avg10 > 20%), with strings in quotes by =, != and =~ (a
    /// regular expression), or with each other. Comparisons are joined by the words and, or and
    /// not, and by parentheses. As in rules, a comparison with an absent value is unknown, which
    /// does not count as true. The condition applies to the sources that have all of its fields,
    /// and changes no value. With --rate, a change is relative to the previous sample, even if that
    /// sample is not printed.
    #[arg(long = "where", value_name = "CONDITION")]
    pub(in crate::cli) condition: Option<RowCondition>,
    /// Print a row for each element of a list, such as each process, instead of columns.
    #[arg(long)]
    pub(in crate::cli) long: bool,
    /// Print a row for each step of this length. AGG is min, max, mean, last, sum, count or p50 to
    /// p99.9 of the values in the step. The default is the mean, for a counter the last value, and
    /// with --rate the change over the whole step.
    #[arg(long, value_name = "STEP[:AGG]", value_parser = parse_steps)]
    pub(in crate::cli) every: Option<Steps>,
    /// Stop after this many rows.
    #[arg(long, short = 'n', value_name = "N", value_parser = config::count_argument::<u64>)]
    pub(in crate::cli) limit: Option<u64>,
    /// Convert values to common units (bytes, seconds, percent), and print the units.
    #[arg(long)]
    pub(in crate::cli) units: bool,
    /// Print numbers in tables as in the file, not in units for people.
    #[arg(long)]
    pub(in crate::cli) raw: bool,
    /// In csv and jsonl, leave out the readable time. `wall_ns` states the same time, in ns since
    /// 1970.
    #[arg(long)]
    pub(in crate::cli) no_time: bool,
    /// How strings are written in cells of CSV. By default the same as for standard output.
    #[arg(skip)]
    pub(in crate::cli) stated_text_rule: Option<TextRule>,
}

/// The value of --fields.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct FieldList(pub(in crate::cli) Vec<FieldPath>);

/// The output format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(in crate::cli) enum RowOutput {
    Table,
    Jsonl,
    Csv,
}

/// Whether rows are printed while the recording grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Follow {
    No,
    ToSignal,
    /// Follow until this wall time, in nanoseconds, or until a signal.
    Until(i64),
}

/// The request for rows or samples.
pub(in crate::cli) struct RowRequest<'a> {
    pub(in crate::cli) selection: &'a RecordingSelection,
    pub(in crate::cli) filter: ReplayFilter,
    pub(in crate::cli) zone: TimeZone,
    pub(in crate::cli) args: &'a RowArgs,
    pub(in crate::cli) fields: Vec<FieldPath>,
    pub(in crate::cli) output: RowOutput,
    pub(in crate::cli) is_rate: bool,
    /// Whether a row per element is printed.
    pub(in crate::cli) is_long: bool,
    /// Whether one value per line is printed, however few values there are.
    pub(in crate::cli) is_turned: bool,
    pub(in crate::cli) follow: Follow,
}

impl RowArgs {
    /// Returns how strings are written in cells of CSV.
    pub(in crate::cli) fn text_rule(&self) -> TextRule {
        let of_output =
            || if io::stdout().is_terminal() { TextRule::ForTerminal } else { TextRule::Unchanged };
        self.stated_text_rule.unwrap_or_else(of_output)
    }

    /// Returns whether an option requests rows of fields instead of whole samples.
    pub(in crate::cli) fn are_given(&self) -> bool {
        let have_options = self.long || self.units || self.no_time;
        self.fields.is_some() || self.condition.is_some() || self.every.is_some() || have_options
    }
}

/// Parses the value of --fields. A unit in parentheses, as --units prints it, is ignored.
pub(in crate::cli) fn parse_fields(text: &str) -> Result<FieldList, PathError> {
    FieldPath::parse_list(&without_units(text)).map(FieldList)
}

/// Removes each ` (UNIT)` that is not in quotes.
fn without_units(text: &str) -> String {
    let (mut plain, mut rest, mut is_quoted) = (String::with_capacity(text.len()), text, false);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' if is_quoted => rest.chars().take(2).map(char::len_utf8).sum(),
            _ => first.len_utf8(),
        };
        is_quoted ^= first == '"';
        if !is_quoted && let Some(unit) = rest.strip_prefix(" (") {
            rest = unit.split_once(')').map_or("", |(_, after)| after);
        } else {
            let (kept, after) = rest.split_at(length);
            plain.push_str(kept);
            rest = after;
        }
    }
    plain
}

fn parse_steps(text: &str) -> Result<Steps, String> {
    let (step, aggregate) = text.split_once(':').map_or((text, None), |(step, name)| (step, Some(name)));
    let step: Duration = duration_argument(step)?;
    let aggregate =
        aggregate.map(|name| name.parse::<Aggregate>().map_err(|error| format!("{name:?}: {error}")));
    Ok(Steps {
        step_ns: u64::try_from(step.as_nanos()).unwrap_or(u64::MAX),
        aggregate: aggregate.transpose()?,
    })
}

impl RowRequest<'_> {
    /// Returns the unit of printed values.
    pub(in crate::cli) fn unit_mode(&self) -> UnitMode {
        match self.output {
            _ if self.args.raw => UnitMode::Own,
            RowOutput::Table => UnitMode::People,
            RowOutput::Jsonl | RowOutput::Csv if self.args.units => UnitMode::Common,
            RowOutput::Jsonl | RowOutput::Csv => UnitMode::Own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that column names are accepted as they are printed, that is, with their unit.
    #[test]
    fn names_with_units_are_fields() {
        let names = |text: &str| -> Vec<String> {
            parse_fields(text).unwrap().0.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            names("cpu.total.user (%),disk.devices[vda].reads (/s)"),
            ["cpu.total.user", "disk.devices[vda].reads"]
        );
        assert_eq!(names("a,b.c"), ["a", "b.c"]);
        assert_eq!(names(r#""ba (".load1 (%)"#), names(r#""ba (".load1"#));
        assert_eq!(names(r#""a\" (".b,c (s)"#), names(r#""a\" (".b,c"#));
        assert!(parse_fields("a,,b").is_err());
    }

    // Proves that steps are parsed, and that the error for a mistake lists the valid values.
    #[test]
    fn steps_have_a_length_and_an_aggregate() {
        assert_eq!(parse_steps("100ms"), Ok(Steps { step_ns: 100_000_000, aggregate: None }));
        let expected = Steps { step_ns: 1_000_000_000, aggregate: Some(Aggregate::Max) };
        assert_eq!(parse_steps("1s:max"), Ok(expected));
        assert!(parse_steps("1s:median").unwrap_err().contains("p50 to p99.9"));
        assert!(parse_steps("0s").is_err() && parse_steps("5").is_err());
    }
}
