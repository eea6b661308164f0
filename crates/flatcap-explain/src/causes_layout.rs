//! Formats the kernel's events as lines of text: the threads that ran, the threads that waited for
//! a CPU or slept longer than usual, the code that ran, and the log.

use flatcap_format::schema::{latency, percent, shortened, shortened_element, visible_text as escaped};

use super::kernel_causes::{
    BlockingProcess, FunctionTime, KernelCauses, LoggedLines, RunningProcess, SleepingThread, StackCauses,
    TaskCauses, UnrecordedCause, UnrecordedTime, WaitingProcess,
};
use super::layout::TextLayout;

/// Maximum number of unrecorded times on the screen.
const UNRECORDED_SHOWN: usize = 4;
/// Maximum number of processes that ran, and of processes that waited, on the screen.
const PROCESSES_SHOWN: usize = 5;
/// Maximum number of code locations on the screen.
const PLACES_SHOWN: usize = 5;
/// Maximum number of lines of the kernel log on the screen.
const LINES_SHOWN: usize = 5;
/// Maximum number of processes that the screen lists as running while another process waited.
const BLOCKERS_SHOWN: usize = 2;
/// Widths of the columns for a process, for a code location, and for the processes that ran during
/// a wait. A line has at most 80 columns.
const PROCESS_WIDTH: usize = 21;
const PLACE_WIDTH: usize = 48;
const MEANWHILE_WIDTH: usize = 24;

impl TextLayout<'_> {
    /// Returns the lines about the kernel's events.
    pub(super) fn causes(&self, causes: &KernelCauses) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(tasks) = &causes.tasks {
            self.push_unrecorded(tasks, &mut lines);
            push_running(tasks, &mut lines);
            push_waiting(causes.waits.as_deref().unwrap_or_default(), tasks, &mut lines);
            push_sleeping(causes.sleeps.as_deref(), tasks, &mut lines);
            push_faults(tasks, &mut lines);
        }
        if let Some(stacks) = &causes.stacks {
            push_stacks(stacks, &mut lines);
        }
        if let Some(log) = &causes.log {
            self.push_log(log, &mut lines);
        }
        lines.iter().map(|line| self.fitting(line.trim_end())).collect()
    }

    /// Adds lines about the parts of the window that were not recorded, with the reasons.
    fn push_unrecorded(&self, tasks: &TaskCauses, lines: &mut Vec<String>) {
        for UnrecordedTime { cause, begin_wall_ns, end_wall_ns, records } in
            tasks.unrecorded.iter().take(UNRECORDED_SHOWN)
        {
            let [begin, end] = [*begin_wall_ns, *end_wall_ns].map(|wall_ns| self.time_of_day(wall_ns));
            lines.push(match cause {
                UnrecordedCause::Stopped => {
                    format!("switches were not recorded from {begin} to {end}: above the budget")
                }
                UnrecordedCause::LostRecords => {
                    format!("the kernel lost {} records from {begin} to {end}", records.unwrap_or_default())
                }
                UnrecordedCause::MissingSamples => format!("samples are missing from {begin} to {end}"),
            });
        }
        let left_out = tasks.unrecorded.len().saturating_sub(UNRECORDED_SHOWN);
        let further = tasks.further_unrecorded + u64::try_from(left_out).unwrap_or(u64::MAX);
        if further > 0 {
            lines.push(format!("and {further} more times in which not all was recorded"));
        }
        if tasks.unrecorded.is_empty() {
            return;
        }
        let mut text = "so these times are lower bounds".to_owned();
        if tasks.recorded_ns < tasks.window_ns {
            text.push_str(": ");
            text.push_str(&recorded_part(tasks));
        }
        lines.push(text);
    }

    fn push_log(&self, log: &LoggedLines, lines: &mut Vec<String>) {
        for line in log.lines.iter().take(LINES_SHOWN) {
            lines.push(format!("kernel {} {}", self.time_of_day(line.wall_ns), escaped(&line.text)));
        }
        let left_out = log.lines.len().saturating_sub(LINES_SHOWN);
        let more = log.further + u64::try_from(left_out).unwrap_or(u64::MAX);
        if more > 0 {
            lines.push(format!("kernel: {more} more lines"));
        }
        if log.lost > 0 {
            lines.push(format!("kernel: {} lines were overwritten before they were read", log.lost));
        }
    }
}

/// Returns the line for an empty list. The line says "nobody" if the whole window was recorded.
/// Otherwise it says "unknown".
fn nobody(list: &str, tasks: &TaskCauses) -> String {
    // An empty list of an incomplete window does not prove that no process ran.
    if tasks.is_complete {
        return format!("{list}: nobody");
    }
    format!("{list}: unknown, {}", recorded_part(tasks))
}

fn push_running(tasks: &TaskCauses, lines: &mut Vec<String>) {
    if tasks.running.is_empty() {
        lines.push(nobody("who ran", tasks));
        return;
    }
    lines.push(format!(
        "{:<PROCESS_WIDTH$}  {:>10}  {:>10}  {:>10}  {:>8}",
        "who ran", "on CPU", "of a core", "usual", "switches"
    ));
    lines.extend(tasks.running.iter().take(PROCESSES_SHOWN).map(|process| {
        let RunningProcess { pid, name, on_cpu_ns, usual_ns, switches } = process;
        format!(
            "{:<PROCESS_WIDTH$}  {:>10}  {:>10}  {:>10}  {switches:>8}",
            process_name(name, *pid),
            latency(*on_cpu_ns),
            percent(*on_cpu_ns, tasks.recorded_ns),
            printed_usual(*usual_ns),
        )
    }));
}

fn push_waiting(waits: &[WaitingProcess], tasks: &TaskCauses, lines: &mut Vec<String>) {
    if waits.is_empty() {
        lines.push(nobody("who waited for a CPU", tasks));
        return;
    }
    lines.push(format!(
        "{:<PROCESS_WIDTH$}  {:>9}  {:>9}  {:>9}  while these ran",
        "who waited for a CPU", "in all", "at most", "usual"
    ));
    lines.extend(waits.iter().take(PROCESSES_SHOWN).map(|process| {
        format!(
            "{:<PROCESS_WIDTH$}  {:>9}  {:>9}  {:>9}  {}",
            process_name(&process.name, process.pid),
            latency(process.run_delay_ns),
            latency(process.longest_ns),
            printed_usual(process.usual_ns),
            shortened(&meanwhile(process), MEANWHILE_WIDTH),
        )
    }));
}

/// Adds lines about the threads that slept longer than usual. Adds nothing if all threads slept as
/// usual.
fn push_sleeping(sleeps: Option<&[SleepingThread]>, tasks: &TaskCauses, lines: &mut Vec<String>) {
    let Some(sleeps) = sleeps else {
        lines.push("who slept longer: unknown, too little was recorded before the window".to_owned());
        return;
    };
    if sleeps.is_empty() {
        lines.extend((!tasks.is_complete).then(|| nobody("who slept longer", tasks)));
        return;
    }
    lines.push(format!(
        "{:<PROCESS_WIDTH$}  {:>9}  {:>13}  thread",
        "who slept longer", "at most", "usual at most"
    ));
    lines.extend(sleeps.iter().take(PROCESSES_SHOWN).map(|slept| {
        let thread = format!("{}[{}]", escaped(&slept.thread), slept.tid);
        format!(
            "{:<PROCESS_WIDTH$}  {:>9}  {:>13}  {}",
            process_name(&slept.name, slept.pid),
            latency(slept.longest_ns),
            latency(slept.usual_longest_ns),
            if slept.tid == slept.pid { "main" } else { &thread },
        )
    }));
}

/// Adds lines about records that the baseline lacks. Also adds a line about missing wakeups, which
/// affect all waits.
fn push_faults(tasks: &TaskCauses, lines: &mut Vec<String>) {
    let mut said = Vec::new();
    // The counts of faults cover all times that were read. If a part of the window is missing, the
    // counts include this part, and the lines above already report it.
    let are_outside = tasks.unrecorded.is_empty();
    if are_outside && tasks.lost > 0 {
        said.push(format!("the kernel lost {} records", tasks.lost));
    }
    if are_outside && tasks.gaps > 0 {
        said.push(format!("samples are missing at {} places", tasks.gaps));
    }
    if are_outside && tasks.stopped_ns > 0 {
        said.push(format!("not recorded for {}: above the budget", latency(tasks.stopped_ns)));
    }
    for (at, reason) in said.iter().enumerate() {
        let begin = if at == 0 { "outside of the window:" } else { "and" };
        lines.push(format!("{begin} {reason}"));
    }
    if !tasks.has_wakeups {
        let bounds = "waits are lower bounds, and sleeps include waits: wakeups were not recorded";
        lines.push(bounds.to_owned());
    }
}

fn push_stacks(stacks: &StackCauses, lines: &mut Vec<String>) {
    if stacks.samples == 0 {
        lines.push("code: no samples of stacks".to_owned());
        return;
    }
    lines.push(format!("{:<PLACE_WIDTH$}  {:>7}  in", "code", "of all"));
    lines.extend(stacks.functions.iter().take(PLACES_SHOWN).map(|place| {
        format!(
            "{:<PLACE_WIDTH$}  {:>7}  {}",
            place_name(place),
            percent(place.self_ns, stacks.total_ns),
            process_name(&place.name, place.pid),
        )
    }));
    if stacks.lost > 0 {
        lines.push(format!("the kernel lost {} samples of stacks", stacks.lost));
    }
}

/// Returns the name and file of a function, or the file and offset of code without a known function
/// name.
fn place_name(place: &FunctionTime) -> String {
    let file = place.object.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or("[unknown]");
    let name = match &place.function {
        Some(function) => format!("{function} ({file})"),
        None => format!("{file}+{:#x}", place.offset),
    };
    shortened(&escaped(&name), PLACE_WIDTH)
}

/// Returns text about the recorded part of the window.
fn recorded_part(tasks: &TaskCauses) -> String {
    format!("{} of {} were recorded", latency(tasks.recorded_ns), latency(tasks.window_ns))
}

/// Returns the processes that ran while another process waited, with their shares of its waits.
fn meanwhile(process: &WaitingProcess) -> String {
    let share = |BlockingProcess { name, ns, .. }: &BlockingProcess| {
        format!("{} {}", escaped(name), percent(*ns, process.run_delay_ns))
    };
    process.meanwhile.iter().take(BLOCKERS_SHOWN).map(share).collect::<Vec<_>>().join(", ")
}

fn process_name(name: &str, pid: u32) -> String {
    shortened_element(&format!("{}[{pid}]", escaped(name)), PROCESS_WIDTH)
}

fn printed_usual(usual_ns: Option<u64>) -> String {
    usual_ns.map_or_else(|| "unknown".to_owned(), latency)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::kernel_causes::LoggedLine;

    fn causes() -> KernelCauses {
        KernelCauses {
            tasks: Some(TaskCauses {
                recorded_ns: 300_000_000,
                lost: 0,
                gaps: 0,
                stopped_ns: 0,
                has_wakeups: true,
                is_complete: true,
                unrecorded: Vec::new(),
                running: vec![RunningProcess {
                    pid: 812,
                    name: "billing\u{1b}[31m".to_owned(),
                    on_cpu_ns: 212_000_000,
                    usual_ns: None,
                    switches: 9,
                }],
                further_unrecorded: 0,
                window_ns: 300_000_000,
            }),
            waits: Some(vec![WaitingProcess {
                pid: 44,
                name: "a-name-that-is-much-longer-than-its-column".to_owned(),
                run_delay_ns: 90_000_000,
                longest_ns: 45_000_000,
                usual_ns: Some(0),
                meanwhile: vec![BlockingProcess { pid: 0, name: "idle".to_owned(), ns: 9_000_000 }],
            }]),
            sleeps: Some(vec![SleepingThread {
                pid: 9,
                name: "db".to_owned(),
                tid: 10,
                thread: "writer".to_owned(),
                longest_ns: 66_800_000,
                usual_longest_ns: 7_980_000,
            }]),
            ..KernelCauses::default()
        }
    }

    fn lines(causes: &KernelCauses, width: usize) -> String {
        let lines = TextLayout { zone: &TimeZone::UTC, width }.causes(causes);
        assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
        lines.join("\n")
    }

    // Proves that each list is present with its values, that names from the recording are escaped,
    // and that lines fit, also on a narrow screen.
    #[test]
    fn causes_are_listed() {
        let log = LoggedLines {
            lines: vec![LoggedLine { wall_ns: 1_500_000_000, priority: 3, text: "disk error ".repeat(9) }],
            further: 2,
            lost: 1,
        };
        let causes = KernelCauses { log: Some(log), ..causes() };
        let text = lines(&causes, 80);
        for (name, values) in [
            ("who ran", "on CPU   of a core       usual"),
            ("billing\\u{1b}...[812]", "212ms       70.7%     unknown"),
            ("who waited for a CPU", "in all    at most"),
            ("a-name-that-is...[44]", "90.0ms     45.0ms        0ns  idle 10.0%"),
            ("db[9]", "66.8ms         7.98ms  writer[10]"),
            ("kernel 00:00:01.500 disk error", "error"),
            ("kernel: 2 more", "lines"),
            ("kernel: 1 lines were", "overwritten"),
        ] {
            let is_there = |line: &str| line.contains(name) && line.contains(values);
            assert!(text.lines().any(is_there), "{name} {values}:\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
        assert_eq!(lines(&causes, 58).lines().count(), text.lines().count());
    }

    // Proves that an empty list distinguishes "nobody" from "unknown", and that a recording without
    // sources of kernel events gives no lines.
    #[test]
    fn what_is_not_known_is_not_nobody() {
        assert!(lines(&KernelCauses::default(), 80).is_empty());
        let mut causes = causes();
        let tasks = causes.tasks.as_mut().unwrap();
        tasks.running.clear();
        causes.waits = Some(Vec::new());
        let text = lines(&causes, 80);
        assert!(text.contains("who ran: nobody\nwho waited for a CPU: nobody\n"), "{text}");
        let tasks = causes.tasks.as_mut().unwrap();
        (tasks.recorded_ns, tasks.is_complete, causes.sleeps) = (5, false, None);
        let text = lines(&causes, 80);
        assert!(text.contains("who ran: unknown, 5ns of 300ms were recorded"), "{text}");
        assert!(text.contains("slept longer: unknown, too little was recorded before"), "{text}");
    }
}
