//! The part of `explain` that comes from the kernel's events, as text: who ran, who waited for a
//! CPU and because of whom, who slept longer than usual, which code ran, what the kernel logged.

use std::io::{self, Write};

use flatcap_explain::{
    KernelCauses, LoggedLines, RunningProcess, TaskCauses, UnrecordedTime, WaitingProcess,
};
use flatcap_format::schema::text_of;
use flatcap_tasks::schema::CodeKind;
use flatcap_tasks::{Blocker, CodeObjectInfo, FrameTotal, HoleCause, StackTotals};
use flatcap_text::human;

use super::time_printer::TimePrinter;

/// Maximum number of unrecorded times on the screen.
const UNRECORDED_SHOWN: usize = 4;
/// Maximum number of processes that ran, and that waited, on the screen.
const PROCESSES_SHOWN: usize = 5;
/// Maximum number of places in the code on the screen.
const PLACES_SHOWN: usize = 5;
/// Maximum number of lines of the kernel log on the screen.
const LINES_SHOWN: usize = 5;
/// Maximum number of processes named among the ones that ran while another one waited.
const BLOCKERS_SHOWN: usize = 2;
/// Columns for a process, a place in the code, and those that ran meanwhile, so that lines have 80.
const PROCESS_WIDTH: usize = 21;
const PLACE_WIDTH: usize = 48;
const MEANWHILE_WIDTH: usize = 24;

/// Finds the name of the function at an offset of an object.
pub(super) type FunctionNames<'n> = &'n mut dyn FnMut(&CodeObjectInfo, u64) -> Option<String>;

/// Prints what the kernel's events say, on 80 columns.
pub(super) struct CausesScreen<'s> {
    pub(super) times: &'s mut TimePrinter,
    pub(super) limit: usize,
    pub(super) width: usize,
    pub(super) out: &'s mut dyn Write,
}

impl CausesScreen<'_> {
    pub(super) fn print(&mut self, causes: &KernelCauses, names: FunctionNames<'_>) -> io::Result<()> {
        if let Some(tasks) = &causes.tasks {
            self.print_unrecorded(tasks)?;
            self.print_running(tasks)?;
            self.print_waiting(tasks)?;
            self.print_sleeping(tasks)?;
            self.print_faults(tasks)?;
        }
        if let Some(stacks) = &causes.stacks {
            self.print_stacks(stacks, names)?;
        }
        if let Some(log) = &causes.log {
            self.print_log(log)?;
        }
        Ok(())
    }

    /// Says what of the window was not recorded, and why.
    fn print_unrecorded(&mut self, tasks: &TaskCauses) -> io::Result<()> {
        for UnrecordedTime { begin_wall_ns, end_wall_ns, cause } in
            tasks.unrecorded.iter().take(UNRECORDED_SHOWN)
        {
            let [begin, end] = [*begin_wall_ns, *end_wall_ns].map(|wall_ns| self.time_of_day(wall_ns));
            self.line(&match cause {
                HoleCause::Stopped => {
                    format!("switches were not recorded from {begin} to {end}: above the budget")
                }
                HoleCause::LostRecords(records) => {
                    format!("the kernel lost {records} records from {begin} to {end}")
                }
                HoleCause::MissingSamples => format!("samples are missing from {begin} to {end}"),
            })?;
        }
        let left_out = tasks.unrecorded.len().saturating_sub(UNRECORDED_SHOWN);
        let further = tasks.further_unrecorded + u64::try_from(left_out).unwrap_or(u64::MAX);
        if further > 0 {
            self.line(&format!("and {further} more times in which not all was recorded"))?;
        }
        if tasks.unrecorded.is_empty() {
            return Ok(());
        }
        let mut text = "so these times are lower bounds".to_owned();
        if tasks.recorded_ns < tasks.window_ns {
            text.push_str(": ");
            text.push_str(&recorded_part(tasks));
        }
        self.line(&text)
    }

    /// Says that a list is empty: nobody, if all of the window was recorded, else nobody knows.
    fn print_nobody(&mut self, list: &str, tasks: &TaskCauses) -> io::Result<()> {
        if tasks.is_complete() {
            return self.line(&format!("{list}: nobody"));
        }
        self.line(&format!("{list}: unknown, {}", recorded_part(tasks)))
    }

    fn print_running(&mut self, tasks: &TaskCauses) -> io::Result<()> {
        if tasks.running.is_empty() {
            return self.print_nobody("who ran", tasks);
        }
        let heading = format!(
            "{:<PROCESS_WIDTH$}  {:>10}  {:>10}  {:>10}  {:>8}",
            "who ran", "on CPU", "of a core", "usual", "switches"
        );
        self.line(&heading)?;
        for process in tasks.running.iter().take(self.limit.min(PROCESSES_SHOWN)) {
            let RunningProcess { process: id, name, on_cpu_ns, usual_ns, switches } = process;
            self.line(&format!(
                "{:<PROCESS_WIDTH$}  {:>10}  {:>10}  {:>10}  {switches:>8}",
                process_name(name, *id),
                human::latency(*on_cpu_ns),
                human::percent(*on_cpu_ns, tasks.recorded_ns),
                printed_usual(*usual_ns),
            ))?;
        }
        Ok(())
    }

    fn print_waiting(&mut self, tasks: &TaskCauses) -> io::Result<()> {
        if tasks.waiting.is_empty() {
            return self.print_nobody("who waited for a CPU", tasks);
        }
        let heading = format!(
            "{:<PROCESS_WIDTH$}  {:>9}  {:>9}  {:>9}  while these ran",
            "who waited for a CPU", "in all", "at most", "usual"
        );
        self.line(&heading)?;
        for process in tasks.waiting.iter().take(self.limit.min(PROCESSES_SHOWN)) {
            self.line(&format!(
                "{:<PROCESS_WIDTH$}  {:>9}  {:>9}  {:>9}  {}",
                process_name(&process.name, process.process),
                human::latency(process.run_delay_ns),
                human::latency(process.longest_ns),
                printed_usual(process.usual_ns),
                human::shortened(&meanwhile(process), MEANWHILE_WIDTH),
            ))?;
        }
        Ok(())
    }

    /// Lists the threads that slept longer than usual; says nothing if all slept as usual.
    fn print_sleeping(&mut self, tasks: &TaskCauses) -> io::Result<()> {
        let Some(sleeping) = &tasks.sleeping else {
            return self.line("who slept longer: unknown, too little was recorded before the window");
        };
        if sleeping.is_empty() {
            return if tasks.is_complete() { Ok(()) } else { self.print_nobody("who slept longer", tasks) };
        }
        let heading = format!(
            "{:<PROCESS_WIDTH$}  {:>9}  {:>13}  thread",
            "who slept longer", "at most", "usual at most"
        );
        self.line(&heading)?;
        for slept in sleeping.iter().take(self.limit.min(PROCESSES_SHOWN)) {
            let is_main = slept.thread == slept.process;
            let thread = format!("{}[{}]", human::escaped(&slept.thread_name), slept.thread);
            self.line(&format!(
                "{:<PROCESS_WIDTH$}  {:>9}  {:>13}  {}",
                process_name(&slept.name, slept.process),
                human::latency(slept.longest_ns),
                human::latency(slept.usual_longest_ns),
                if is_main { "main" } else { &thread },
            ))?;
        }
        Ok(())
    }

    /// Says what the times around the window lack, with which it is compared, and all waits.
    fn print_faults(&mut self, tasks: &TaskCauses) -> io::Result<()> {
        let faults = tasks.faults;
        let mut said = Vec::new();
        // These counts are of all that was read. If a part of the window is missing, they include
        // it, and the lines above have said so.
        let are_outside = tasks.unrecorded.is_empty();
        if are_outside && faults.lost > 0 {
            said.push(format!("the kernel lost {} records", faults.lost));
        }
        if are_outside && faults.gaps > 0 {
            said.push(format!("samples are missing at {} places", faults.gaps));
        }
        if are_outside && faults.stopped_ns > 0 {
            said.push(format!("not recorded for {}: above the budget", human::latency(faults.stopped_ns)));
        }
        for (at, reason) in said.iter().enumerate() {
            let begin = if at == 0 { "outside of the window:" } else { "and" };
            self.line(&format!("{begin} {reason}"))?;
        }
        if faults.lacks_wakeups {
            self.line("waits are lower bounds, and sleeps include waits: wakeups were not recorded")?;
        }
        Ok(())
    }

    fn print_stacks(&mut self, stacks: &StackTotals, names: FunctionNames<'_>) -> io::Result<()> {
        if stacks.samples() == 0 {
            return self.line("code: no samples of stacks");
        }
        self.line(&format!("{:<PLACE_WIDTH$}  {:>7}  in", "code", "of all"))?;
        for total in top_functions(stacks, names).iter().take(self.limit.min(PLACES_SHOWN)) {
            self.line(&format!(
                "{:<PLACE_WIDTH$}  {:>7}  {}",
                place_name(stacks, total),
                human::percent(total.self_ns, stacks.total_ns()),
                process_name(&text_of(total.name.as_bytes()), total.process),
            ))?;
        }
        if stacks.lost() > 0 {
            self.line(&format!("the kernel lost {} samples of stacks", stacks.lost()))?;
        }
        Ok(())
    }

    fn print_log(&mut self, log: &LoggedLines) -> io::Result<()> {
        for line in log.lines.iter().take(LINES_SHOWN) {
            let time = self.time_of_day(line.wall_ns);
            self.line(&format!("kernel {time} {}", human::escaped(&line.text)))?;
        }
        let shown = log.lines.len().min(LINES_SHOWN);
        let more = log.further + u64::try_from(log.lines.len() - shown).unwrap_or(u64::MAX);
        if more > 0 {
            self.line(&format!("kernel: {more} more lines"))?;
        }
        if log.lost > 0 {
            self.line(&format!("kernel: {} lines were overwritten before they were read", log.lost))?;
        }
        Ok(())
    }

    fn time_of_day(&mut self, wall_ns: i64) -> String {
        let time = self.times.milliseconds(wall_ns);
        time.get(11..23).unwrap_or(&time).to_owned()
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", human::shortened(text.trim_end(), self.width))
    }
}

/// Returns the functions with time of their own, in descending order of this time.
pub(super) fn top_functions(stacks: &StackTotals, names: FunctionNames<'_>) -> Vec<FrameTotal> {
    let mut functions = stacks.functions(names);
    functions.retain(|total| total.self_ns > 0);
    functions
}

/// Returns the name of a function with its file, or of a file with an offset.
fn place_name(stacks: &StackTotals, total: &FrameTotal) -> String {
    let frame = stacks.frame(total.frame);
    let object = frame.and_then(|frame| stacks.object(frame));
    let path = object.map_or("", |object| &object.path);
    let file = path.rsplit('/').next().unwrap_or(path);
    let file = if file.is_empty() && object.is_some_and(|own| own.kind != CodeKind::File) {
        "[unknown]"
    } else {
        file
    };
    let name = match (&total.function, frame) {
        (Some(function), _) => format!("{function} ({file})"),
        (None, Some(frame)) => format!("{file}+{:#x}", frame.offset),
        (None, None) => file.to_owned(),
    };
    human::shortened(&human::escaped(&name), PLACE_WIDTH)
}

/// Says how much of the window was recorded.
fn recorded_part(tasks: &TaskCauses) -> String {
    let (recorded, window) = (human::latency(tasks.recorded_ns), human::latency(tasks.window_ns));
    format!("{recorded} of {window} were recorded")
}

/// Returns who ran while a process waited, with their shares of its waits.
fn meanwhile(process: &WaitingProcess) -> String {
    let share = |blocker: &Blocker| {
        let name = blocker_name(blocker);
        format!("{} {}", human::escaped(&name), human::percent(blocker.ns, process.run_delay_ns))
    };
    let shown: Vec<String> = process.blockers.iter().take(BLOCKERS_SHOWN).map(share).collect();
    shown.join(", ")
}

/// Returns the name of a process that ran while another one waited.
pub(super) fn blocker_name(blocker: &Blocker) -> String {
    if blocker.info.is_idle() {
        "idle".to_owned()
    } else {
        text_of(blocker.info.name.as_bytes()).into_owned()
    }
}

fn process_name(name: &str, id: u32) -> String {
    human::shortened_element(&format!("{}[{id}]", human::escaped(name)), PROCESS_WIDTH)
}

fn printed_usual(usual_ns: Option<u64>) -> String {
    usual_ns.map_or_else(|| "unknown".to_owned(), human::latency)
}
