//! The last lines of `record --for`. They state the largest change, the process that caused it, and
//! the command to run next.

use std::path::Path;

use flatcap_explain::{RecordingChoice, TextLayout, explain, find_spikes};
use flatcap_format::replay::ReplayFilter;
use flatcap_text::human::shell_word;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use flatcap_text::time_printer::zone_of;

/// Maximum length of the time at the end of a run that the answer covers, in nanoseconds. Reading a
/// longer time would take seconds.
const ANSWERED_NS: u64 = 600_000_000_000;
/// Length of the window around the change, and of its baseline, in nanoseconds. Both lengths are
/// the same as in `explain`.
const WINDOW_NS: u64 = 300_000_000;
const BASELINE_NS: u64 = 10_000_000_000;
/// Width of the column with the names of the answers.
const NAME_WIDTH: usize = "changed most".len();
/// Length below which the answer advises a longer recording, in nanoseconds. In a shorter
/// recording, most of the time may be too early to have a baseline.
const SHORT_NS: u64 = 30_000_000_000;

/// Returns the lines about a run that has just ended, recorded to `data_dir`, began at `begun` and
/// took `elapsed_ns`. An answer that cannot be found is left out without an error, because the
/// recording itself is complete.
pub(super) fn lines(data_dir: &Path, begun: Timestamp, elapsed_ns: u64) -> Vec<String> {
    let line = |name: &str, text: &str| format!("{name:<NAME_WIDTH$}  {text}");
    let next = |at: &str| -> Vec<String> {
        // If the directory is not valid UTF-8, no command is printed. A command with a changed name
        // would not find the directory.
        let Some(directory) = data_dir.to_str().map(shell_word) else { return Vec::new() };
        let program = program();
        let explain = line("next", &format!("{program} explain {directory}{at}"));
        vec![explain, line("", &format!("{program} view {directory}"))]
    };
    let [begun_ns, now_ns] =
        [begun, Timestamp::now()].map(|time| i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX));
    // The start of the run is used instead of the elapsed time before now, because on a busy host
    // the last sample may be older.
    let since_ns = begun_ns.max(now_ns.saturating_sub_unsigned(ANSWERED_NS));
    let filter = ReplayFilter { since_ns: Some(since_ns), ..ReplayFilter::default() };
    let choice = RecordingChoice { paths: vec![data_dir.into()], sources: [].into(), host: None };
    let Ok(found) = find_spikes(&choice, filter, 1, &mut |_| {}) else { return next("") };
    let zone = zone_of(false).unwrap_or(TimeZone::UTC);
    let layout = TextLayout { zone: &zone, width: 80 };
    let summary =
        layout.summary(&found, |wall_ns| explain(&choice, wall_ns, WINDOW_NS, BASELINE_NS, &mut |_| {}).ok());
    let advice = match &summary.at {
        None if elapsed_ns < SHORT_NS => "; record for 30 s or longer",
        _ => "",
    };
    let own = summary.lines.iter().map(|(name, text)| line(name, &format!("{text}{advice}")));
    let at = summary.at.map_or_else(String::new, |at| format!(" --at {at}"));
    own.chain(next(&at)).collect()
}

/// Returns the name by which this program was executed, quoted for a shell, or `flatcap` if that
/// name is not known.
fn program() -> String {
    let name = std::env::args_os().next().and_then(|name| name.into_string().ok());
    name.map_or_else(|| "flatcap".to_owned(), |name| shell_word(&name))
}
