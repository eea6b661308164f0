//! Formats what the kernel's events show about a moment as lines of text.

use flatcap_explain::{KernelCauses, LoggedLines, TaskCauses};
use flatcap_format::schema::text_of;
use flatcap_tasks::StackTotals;
use flatcap_text::stack_names::StackNames;
use jiff::tz::TimeZone;

use super::appearance::Appearance;
use super::chart_frame::shortened;
use super::times::{length, time_of_day};

/// Maximum number of entries in each list of processes, functions and log lines.
const LISTED_MAX: usize = 6;
/// Widths of names and values.
// Lines fit half of a wide screen, or a narrow screen.
const NAME_WIDTH: usize = 36;
const VALUE_WIDTH: usize = 9;
/// Width of a line of the kernel log, without its time.
const TEXT_WIDTH: usize = 43;

/// Returns lines about the running and waiting threads, the sampled code and the kernel log.
/// Returns no lines if the recording has no such sources. Each line fits 58 columns.
pub(super) fn causes_lines(
    causes: &KernelCauses,
    names: &StackNames,
    zone: &TimeZone,
    appearance: Appearance,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(tasks) = &causes.tasks {
        add_tasks(&mut lines, tasks, appearance);
    }
    if let Some(stacks) = &causes.stacks {
        add_stacks(&mut lines, stacks, names, appearance);
    }
    if let Some(log) = &causes.log {
        add_log(&mut lines, log, zone, appearance);
    }
    lines
}

fn add_tasks(lines: &mut Vec<String>, tasks: &TaskCauses, appearance: Appearance) {
    let named = |name: &str, process: u32| appearance.text(&format!("{name}[{process}]"));
    // If part of the time was not recorded, an empty list does not mean that nothing ran.
    let nobody = if tasks.is_complete() { "nobody" } else { "unknown, not all was recorded" };
    let ran = tasks.running.iter().map(|process| {
        let usual = process.usual_ns.map_or_else(|| "?".to_owned(), printed);
        (named(&process.name, process.process), [printed(process.on_cpu_ns), usual])
    });
    add_list(lines, ("who ran", ["on CPU", "usual"]), ran, nobody);
    let waited = tasks.waiting.iter().map(|process| {
        let values = [printed(process.run_delay_ns), printed(process.longest_ns)];
        (named(&process.name, process.process), values)
    });
    add_list(lines, ("who waited for a CPU", ["in all", "longest"]), waited, nobody);
    let slept = tasks.sleeping.iter().flatten().map(|thread| {
        let values = [printed(thread.longest_ns), printed(thread.usual_longest_ns)];
        (named(&thread.thread_name, thread.thread), values)
    });
    let nobody = if tasks.sleeping.is_some() { nobody } else { "unknown, too little was recorded before" };
    add_list(lines, ("who slept longer", ["longest", "usual"]), slept, nobody);
    if !tasks.is_complete() && !tasks.running.is_empty() {
        lines.push("not all was recorded: times are lower bounds".to_owned());
    }
}

fn add_stacks(lines: &mut Vec<String>, stacks: &StackTotals, names: &StackNames, appearance: Appearance) {
    let places = stacks.functions(|object, offset| names.function(object, offset));
    let functions = places.into_iter().filter(|place| place.self_ns > 0).map(|place| {
        let frame = stacks.frame(place.frame);
        let object = frame.and_then(|frame| stacks.object(frame)).map_or("?", |object| &object.path);
        let file = object.rsplit_once('/').map_or(object, |(_, file)| file);
        let offset = frame.map_or(0, |frame| frame.offset);
        let function = place.function.unwrap_or_else(|| format!("{file}+{offset:#x}"));
        let share = share(place.self_ns, stacks.total_ns());
        let process = text_of(place.name.as_bytes());
        (appearance.text(&format!("{function} ({process})")), [printed(place.self_ns), share])
    });
    add_list(lines, ("which code ran", ["on CPU", "of all"]), functions, "no sampled stacks");
}

fn add_log(lines: &mut Vec<String>, log: &LoggedLines, zone: &TimeZone, appearance: Appearance) {
    lines.push(String::new());
    let shown = log.lines.iter().take(LISTED_MAX);
    let further = log.further.saturating_add(log.lines.len().saturating_sub(LISTED_MAX) as u64);
    if log.lines.is_empty() {
        lines.push("kernel log: no lines".to_owned());
    } else {
        lines.push("kernel log".to_owned());
    }
    lines.extend(shown.map(|line| {
        let text = shortened(&appearance.text(&line.text), TEXT_WIDTH);
        format!("{}  {text}", time_of_day(line.wall_ns, zone))
    }));
    if further > 0 {
        lines.push(format!("and {further} more lines"));
    }
    if log.lost > 0 {
        lines.push(format!("{} lines were overwritten before they were read", log.lost));
    }
}

/// Adds a list with its heading: names with two values each.
fn add_list(
    lines: &mut Vec<String>,
    (title, heads): (&str, [&str; 2]),
    rows: impl Iterator<Item = (String, [String; 2])>,
    nothing: &str,
) {
    lines.push(String::new());
    let row = |name: &str, [one, other]: [&str; 2]| {
        let name = shortened(name, NAME_WIDTH);
        format!("{name:<NAME_WIDTH$} {one:>VALUE_WIDTH$} {other:>VALUE_WIDTH$}")
    };
    let rows: Vec<String> =
        rows.take(LISTED_MAX).map(|(name, [one, other])| row(&name, [&one, &other])).collect();
    if rows.is_empty() {
        lines.push(format!("{title}: {nothing}"));
    } else {
        lines.push(row(title, heads));
        lines.extend(rows);
    }
}

fn printed(ns: u64) -> String {
    length(i64::try_from(ns).unwrap_or(i64::MAX))
}

/// Returns a part of a time as a percentage.
fn share(part_ns: u64, all_ns: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let percent = if all_ns == 0 { 0.0 } else { part_ns as f64 * 100.0 / all_ns as f64 };
    format!("{percent:.1} %")
}

#[cfg(test)]
mod tests {
    use flatcap_explain::{LoggedLine, RunningProcess, SleepingThread, WaitingProcess};
    use flatcap_tasks::RecordingFaults;

    use super::*;

    const APPEARANCE: Appearance = Appearance { is_ascii: true, is_plain: true };

    fn tasks() -> TaskCauses {
        TaskCauses {
            window_ns: 300_000_000,
            recorded_ns: 300_000_000,
            running: vec![RunningProcess {
                process: 812,
                name: "billing\u{1b}[31m".to_owned(),
                on_cpu_ns: 212_000_000,
                usual_ns: None,
                switches: 9,
            }],
            waiting: vec![WaitingProcess {
                process: 44,
                name: "a-name-that-is-much-longer-than-its-column".to_owned(),
                run_delay_ns: 90_000_000,
                longest_ns: 45_000_000,
                usual_ns: Some(0),
                blockers: Vec::new(),
            }],
            sleeping: Some(vec![SleepingThread {
                process: 9,
                name: "db".to_owned(),
                thread: 10,
                thread_name: "writer".to_owned(),
                longest_ns: 66_800_000,
                usual_longest_ns: 7_980_000,
            }]),
            unrecorded: Vec::new(),
            further_unrecorded: 0,
            faults: RecordingFaults::default(),
        }
    }

    fn lines(causes: &KernelCauses) -> String {
        let lines = causes_lines(causes, &StackNames::default(), &TimeZone::UTC, APPEARANCE);
        assert!(lines.iter().all(|line| line.chars().count() <= 58), "{lines:#?}");
        lines.join("\n")
    }

    // Proves that each list is present with its values, that names from the recording are escaped,
    // and that lines fit.
    #[test]
    fn causes_are_listed() {
        let log = LoggedLines {
            lines: vec![LoggedLine { wall_ns: 1_500_000_000, priority: 3, text: "disk error ".repeat(9) }],
            further: 2,
            lost: 1,
        };
        let causes = KernelCauses { tasks: Some(tasks()), log: Some(log), ..KernelCauses::default() };
        let text = lines(&causes);
        for (name, values) in [
            ("who ran", "on CPU     usual"),
            ("[31m[812]", "212 ms         ?"),
            ("who waited for a CPU", "in all   longest"),
            ("a-name-that-is-mu", "90 ms     45 ms"),
            ("writer[10]", "66.8 ms      8 ms"),
            ("00:00:01.500  disk error", "error "),
            ("and 2 more", "lines"),
            ("1 lines were", "overwritten"),
        ] {
            let is_there = |line: &str| line.contains(name) && line.contains(values);
            assert!(text.lines().any(is_there), "{name} {values}:\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    // Proves that an empty list distinguishes "nobody" from "unknown", and that a recording without
    // such sources gives no lines.
    #[test]
    fn what_is_not_known_is_not_nobody() {
        assert!(lines(&KernelCauses::default()).is_empty());
        let empty = || TaskCauses { running: Vec::new(), waiting: Vec::new(), ..tasks() };
        let text = lines(&KernelCauses { tasks: Some(empty()), ..KernelCauses::default() });
        assert!(text.contains("who ran: nobody"), "{text}");
        let tasks = TaskCauses { recorded_ns: 5, sleeping: None, ..empty() };
        let text = lines(&KernelCauses { tasks: Some(tasks), ..KernelCauses::default() });
        assert!(text.contains("who ran: unknown, not all was recorded"), "{text}");
        assert!(text.contains("slept longer: unknown, too little was recorded before"), "{text}");
    }
}
