//! `status`: how the running agent is.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table};

use super::error::CliError;
use super::orders::Agent;
use super::record::table;
use super::{Outcome, text};
use crate::config;
use crate::control::{
    AgentStatus, FormerStatus, QueueStatus, ReloadStatus, SealerStatus, SegmentStatus, SourceStatus, Status,
    StorageStatus,
};

/// Share of a limit from which on it is shown as near.
const NEAR: f64 = 0.9;

/// A segment that has waited this long to be compressed is worth a word: the guaranteed share should have had it by then.
const LONG_WAIT_NS: u64 = 300_000_000_000;

/// How the running agent is: rates, losses, the open segment, room on the disk. Exit status 3 when readings were lost, the
/// storage has failed, the last reload was refused, or the agent records by its last good configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// One JSON object instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    agent: Agent,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let client = args.agent.find()?;
    let json = client.status_json()?;
    let status = Status::from_json(&json).map_err(|error| CliError::Status(error.to_string()))?;
    if args.json {
        writeln!(out, "{json}")?;
    } else {
        out.write_all(Page { coloured: shows_colour() }.of(&status).as_bytes())?;
    }
    Ok(if status.is_lossy() || status.is_outdated() { Outcome::DataLoss } else { Outcome::Done })
}

/// Whether standard output is a terminal that shows colours, and whoever sits there wants them.
fn shows_colour() -> bool {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    io::stdout().is_terminal() && !is_unwanted && !is_dumb
}

/// How much a number should worry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Calm,
    Heed,
    Bad,
}

/// A state as people read it.
#[derive(Debug)]
struct Page {
    coloured: bool,
}

impl Page {
    fn of(&self, status: &Status) -> String {
        let mut lines = vec![agent_line(&status.agent), self.segment_line(&status.segment)];
        lines.extend(self.storage_lines(&status.storage));
        lines.extend(self.sealer_line(&status.sealer));
        lines.push(self.queue_line(&status.queues));
        lines.extend(self.reload_line(&status.reload));
        lines.push(String::new());
        lines.push(self.sources(&status.sources).to_string());
        lines.extend(status.sources.iter().flat_map(|source| self.remarks(source)));
        lines.extend(self.former_line(status.former));
        let lines = lines.iter().flat_map(|text| text.split('\n'));
        lines.fold(String::new(), |page, line| page + line.trim_end() + "\n")
    }

    /// Text in the colour of a mood.
    fn tint(&self, mood: Mood, text: String) -> String {
        let code = match mood {
            Mood::Heed if self.coloured => "33",
            Mood::Bad if self.coloured => "1;31",
            _ => return text,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    fn segment_line(&self, segment: &SegmentStatus) -> String {
        if !segment.open {
            let text = "none is open: readings are being lost until one can be begun".to_owned();
            return format!("segment  {}", self.tint(Mood::Bad, text));
        }
        format!(
            "segment  {}: {}, {} frames, {} old; {} closed by this run",
            segment.name,
            text::bytes(segment.bytes),
            segment.frames,
            text::elapsed(segment.age_ns),
            segment.sealed
        )
    }

    fn storage_lines(&self, storage: &StorageStatus) -> Vec<String> {
        let used = share(storage.data_bytes, storage.retain_bytes);
        let mut line = format!(
            "disk     {} of {} ({:.1}%), {} free of which {} stay free",
            text::bytes(storage.data_bytes),
            text::bytes(storage.retain_bytes),
            used * 100.0,
            text::bytes(storage.free_bytes),
            text::bytes(storage.keep_free_bytes),
        );
        if let Some(rate) = storage.bytes_per_s {
            let _infallible = write!(line, "; {}/s", text::bytes(rounded(rate)));
        }
        if let Some(ns) = storage.time_to_full_ns {
            let _infallible = write!(line, ", the oldest segments go in {}", long_time(ns));
        }
        if storage.removed > 0 {
            let _infallible = write!(line, "; {} file(s) removed for room or age", storage.removed);
        }
        let is_near = used >= NEAR || storage.free_bytes <= storage.keep_free_bytes;
        let mut lines = vec![self.tint(if is_near { Mood::Heed } else { Mood::Calm }, line)];
        if let Some(ns) = storage.stalled_ns {
            let seconds = ns / 1_000_000_000;
            let text = format!(
                "         the storage has not answered for {seconds} s: sampling goes on into memory"
            );
            lines.push(self.tint(Mood::Bad, text));
        }
        if storage.errors > 0 {
            let why = storage.last_error.as_deref().unwrap_or("unknown");
            let text = format!("         the storage failed {} time(s); the last one: {why}", storage.errors);
            lines.push(self.tint(Mood::Bad, text));
        }
        lines
    }

    /// Nothing of one that has nothing to do.
    fn sealer_line(&self, sealer: &SealerStatus) -> Option<String> {
        let SealerStatus { enabled, segments, raw_bytes, stored_bytes, left, failures, waiting, .. } =
            *sealer;
        if !enabled && segments == 0 {
            return None;
        }
        let mut line = format!(
            "sealing  {segments} segments became {} of {} ({:.1}%)",
            text::bytes(stored_bytes),
            text::bytes(raw_bytes),
            share(stored_bytes, raw_bytes) * 100.0,
        );
        let others = [(waiting, "wait"), (left, "left as they are")];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            let _infallible = write!(line, "; {count} {what}");
        }
        if sealer.oldest_wait_ns > LONG_WAIT_NS {
            let text = format!("; the oldest has waited {}", long_time(sealer.oldest_wait_ns));
            line += &self.tint(Mood::Heed, text);
        }
        if failures > 0 {
            line += &self.tint(Mood::Heed, format!("; failed {failures} time(s), see the log"));
        }
        Some(line)
    }

    fn queue_line(&self, queues: &QueueStatus) -> String {
        let dropped: u64 = queues.groups.iter().map(|group| group.slabs_dropped).sum();
        let waited: u64 = queues.groups.iter().map(|group| group.waited_ns).sum();
        let mut line =
            format!("queue    {} slabs waiting at most, {} free", queues.slabs_queued, queues.slabs_free);
        if waited > 0 {
            line += &self.tint(Mood::Heed, format!("; groups waited {} for room", text::latency(waited)));
        }
        if dropped > 0 {
            line += &self.tint(Mood::Bad, format!("; {dropped} slabs given up"));
        }
        if queues.losses_pending > 0 {
            let text =
                format!("; {} readings are lost that the table does not have yet", queues.losses_pending);
            line += &self.tint(Mood::Bad, text);
        }
        line
    }

    fn reload_line(&self, reload: &ReloadStatus) -> Option<String> {
        let last = reload.last.as_deref()?;
        let (mood, outcome) = match reload {
            ReloadStatus { current: true, .. } => (Mood::Calm, ""),
            ReloadStatus { fallback: true, .. } => {
                (Mood::Bad, "refused, recording by the last good configuration: ")
            }
            _ => (Mood::Bad, "refused, all goes on as it was: "),
        };
        let more = if last.lines().nth(1).is_some() { " (and more, see the log)" } else { "" };
        Some(format!(
            "reload   {}",
            self.tint(mood, format!("{outcome}{}{more}", last.lines().next().unwrap_or_default()))
        ))
    }

    /// What those have lost that have no row.
    fn former_line(&self, former: FormerStatus) -> Option<String> {
        let FormerStatus { sources, lost, failed, timed_out } = former;
        let text = format!(
            "before a reload: {lost} lost, {failed} failed, {timed_out} not back in time, of {sources} source(s) that are read no more \
             or count anew"
        );
        (lost > 0 || failed > 0 || timed_out > 0).then(|| self.tint(Mood::Bad, text))
    }

    fn sources(&self, sources: &[SourceStatus]) -> Table {
        let mut table = table([
            "source",
            "asked Hz",
            "Hz",
            "recorded",
            "lost",
            "missed",
            "partial",
            "lateness p50",
            "p99",
            "max",
            "cost",
            "per second",
        ]);
        if self.coloured {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        for source in sources {
            let late = source.lateness_ns;
            let hz = source.achieved_hz;
            let is_slow = hz.is_some_and(|hz| hz < NEAR * source.asked_hz);
            let count = |count: u64, mood| (count.to_string(), if count > 0 { mood } else { Mood::Calm });
            let calm = |text: String| (text, Mood::Calm);
            let latency = |ns: u64| calm(if late.count > 0 { text::latency(ns) } else { "-".to_owned() });
            let row = [
                calm(source.name.clone()),
                calm(text::hertz(source.asked_hz)),
                (
                    hz.map_or_else(|| "-".to_owned(), text::hertz),
                    if is_slow { Mood::Heed } else { Mood::Calm },
                ),
                calm(source.recorded.to_string()),
                count(source.lost, Mood::Bad),
                count(source.missed, Mood::Heed),
                count(source.partial, Mood::Heed),
                latency(late.p50),
                latency(late.p99),
                latency(late.max),
                calm(source.cost_ns.map_or_else(|| "-".to_owned(), text::latency)),
                calm(source.bytes_per_s.map_or_else(|| "-".to_owned(), |rate| text::bytes(rounded(rate)))),
            ];
            let cells =
                row.into_iter().enumerate().map(|(column, (text, mood))| self.cell(column, text, mood));
            table.add_row(cells);
        }
        table
    }

    fn cell(&self, column: usize, text: String, mood: Mood) -> Cell {
        let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
        let cell = Cell::new(text).set_alignment(alignment);
        match mood {
            Mood::Heed if self.coloured => cell.fg(Color::DarkYellow),
            Mood::Bad if self.coloured => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            _ => cell,
        }
    }

    fn remarks(&self, source: &SourceStatus) -> Vec<String> {
        let name = &source.name;
        let mut lines = Vec::new();
        if let Some(by) = &source.limited_by {
            let period =
                config::format_duration(Duration::from_nanos(source.period_ns.saturating_mul(source.stride)));
            let budget =
                if by == "agent" { "cpu_budget, the budget of all sources together" } else { "its budget" };
            lines.push((Mood::Heed, format!("{name}: read every {period}, to stay within {budget}")));
        }
        if let Some(causes) = &source.lost_causes {
            lines.push((Mood::Bad, format!("{name}: {} lost: {causes}", source.lost)));
        }
        if let Some(failure) = &source.failure {
            lines.push((Mood::Bad, format!("{name}: {} failed; the last one: {failure}", source.failed)));
        }
        if source.timed_out > 0 {
            lines.push((Mood::Bad, format!("{name}: {} did not come back in time", source.timed_out)));
        }
        lines.into_iter().map(|(mood, line)| self.tint(mood, line)).collect()
    }
}

fn agent_line(agent: &AgentStatus) -> String {
    format!(
        "flatcap {}, pid {}, run {}: recording to {} for {}; {:.1}% of a core ({:.1}% on average), {} resident{}{}",
        agent.version,
        agent.pid,
        agent.run_id,
        agent.data_dir,
        text::elapsed(agent.uptime_ns),
        agent.cpu_now * 100.0,
        agent.cpu * 100.0,
        text::bytes(agent.resident_bytes),
        if agent.recovering { "; completing what earlier runs left" } else { "" },
        if agent.run_dir_in_use { "" } else { "; a kill loses what is not written yet (no run_dir)" },
    )
}

#[allow(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A rate without its fraction.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from f64 saturates")]
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

/// A time that may be long: `3d 04h` beyond two days.
fn long_time(ns: u64) -> String {
    let hours = ns / 3_600_000_000_000;
    if hours < 48 { text::elapsed(ns) } else { format!("{}d {:02}h", hours / 24, hours % 24) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Latency;

    fn status() -> Status {
        let source = |name: &str, lost| SourceStatus {
            name: name.to_owned(),
            period_ns: 10_000_000,
            asked_hz: 100.0,
            achieved_hz: Some(99.8),
            recorded: 1000,
            lost,
            lost_causes: (lost > 0).then(|| "storage".to_owned()),
            lateness_ns: Latency { count: 100, p50: 30_000, p99: 60_000, max: 90_000 },
            bytes_per_s: Some(51_200.0),
            stride: 1,
            ..SourceStatus::default()
        };
        Status {
            sources: vec![source("cpu", 0), source("disk", 3)],
            segment: SegmentStatus {
                open: true,
                name: "0000000001-x.bin.active".to_owned(),
                ..SegmentStatus::default()
            },
            storage: StorageStatus {
                data_bytes: 95,
                retain_bytes: 100,
                time_to_full_ns: Some(300_000_000_000_000),
                ..StorageStatus::default()
            },
            sealer: SealerStatus {
                enabled: true,
                segments: 3,
                raw_bytes: 3 << 20,
                stored_bytes: 3 << 15,
                waiting: 1,
                ..SealerStatus::default()
            },
            ..Status::default()
        }
    }

    // Goal: what matters is there, aligned, and without colour where nobody sees it. Method: a page of known numbers.
    #[test]
    fn a_page_says_what_matters() {
        let page = Page { coloured: false }.of(&status());
        assert!(!page.contains('\x1b') && page.ends_with('\n'), "{page}");
        for text in [
            "0000000001-x.bin.active",
            "95 B of 100 B (95.0%)",
            "in 3d 11h",
            "disk: 3 lost: storage",
            "sealing  3 segments became 96.0 KiB of 3.0 MiB (3.1%); 1 wait\n",
            "50.0 KiB",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
        let rows: Vec<&str> = page.lines().filter(|line| line.trim_start().starts_with("cpu ")).collect();
        assert_eq!(rows.len(), 1, "{page}");
        assert!(page.lines().all(|line| !line.ends_with(' ')), "{page:?}");
    }

    // Goal: a reload that was refused is told from one that was done. Method: the same words with each.
    #[test]
    fn a_refused_reload_is_called_so() {
        let mut status = status();
        status.reload =
            ReloadStatus { current: true, last: Some("cpu: off".to_owned()), ..ReloadStatus::default() };
        assert!(Page { coloured: false }.of(&status).contains("reload   cpu: off\n"));
        status.reload.current = false;
        let page = Page { coloured: false }.of(&status);
        assert!(page.contains("reload   refused, all goes on as it was: cpu: off\n"), "{page}");
    }

    // Goal: colour marks what is wrong and nothing else. Method: the page with and without losses.
    #[test]
    fn colour_marks_what_is_wrong() {
        let mut status = status();
        let page = Page { coloured: true }.of(&status);
        assert!(page.contains("\x1b[1;31mdisk: 3 lost"), "{page:?}");
        status.sources.retain(|source| source.lost == 0);
        status.storage = StorageStatus { retain_bytes: 100, free_bytes: 10, ..StorageStatus::default() };
        let calm = Page { coloured: true }.of(&status);
        assert!(!calm.contains("31m") && !calm.contains("33m"), "{calm:?}");
        status.former = FormerStatus { sources: 2, ..FormerStatus::default() };
        assert_eq!(Page { coloured: true }.of(&status), calm);
        status.former.lost = 12;
        let page = Page { coloured: true }.of(&status);
        assert!(page.contains("\x1b[1;31mbefore a reload: 12 lost"), "{page:?}");
        status.queues.losses_pending = 7;
        let page = Page { coloured: true }.of(&status);
        assert!(page.contains("\x1b[1;31m; 7 readings are lost"), "{page:?}");
        status.storage.stalled_ns = Some(9_999_999_999);
        assert!(
            Page { coloured: true }.of(&status).contains("the storage has not answered for 9 s"),
            "{page:?}"
        );
        status.segment.open = false;
        assert!(Page { coloured: true }.of(&status).contains("\x1b[1;31mnone is open"));
    }
}
