//! `status`: shows the state of the running recorder.

use std::fmt::Write as _;
use std::io::Write;
use std::time::Duration;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table};
use flatcap_control::{
    CompressorStatus, FormerStatus, ProcessStatus, PushStatus, QueueStatus, ReloadStatus, RingStatus,
    RuleStatus, SegmentStatus, SourceStatus, Status, StorageStatus,
};
use flatcap_format::schema::visible_json;

use super::error::CliError;
use super::remote::RecorderSocket;
use super::sender_text::pushing_lines;
use super::tables::{SpareColumns, fitted, table};
use super::terminal::{Output, wrapped};
use super::{ExitStatus, human};
use crate::config;

/// Share of a limit above which a value is highlighted.
const HIGHLIGHT_SHARE: f64 = 0.9;

/// Time that a segment may wait for compression, in nanoseconds. A longer wait is reported, because
/// the segment should have received its guaranteed share of CPU time within this time.
const LONG_WAIT_NS: u64 = 300_000_000_000;

/// The reason why a rule does not know the values of some list elements.
pub(super) const UNTRACKED: &str = "since there are more elements than its transforms track";

/// Columns that the table of sources omits on a narrow terminal, the least important first.
const SPARE_COLUMNS: [SpareColumns; 4] =
    [("requested Hz", &[1]), ("max lateness", &[9]), ("cost", &[10]), ("lateness p99", &[8])];

/// Show the state of the running recorder.
///
/// Rates, losses, the open segment, disk space. The exit status is 3 if samples were lost, a source
/// or the storage has failed, a lane of an application was refused, the last reload was refused, or
/// the recorder uses its last good configuration.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    recorder: RecorderSocket,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let client = args.recorder.connect()?;
    let json = client.status_json()?;
    let status = Status::from_json(&json).map_err(|error| CliError::Status(error.to_string()))?;
    if args.json {
        // The recorder may have another version, and applications may choose the names of sources.
        // Therefore control characters are made visible.
        writeln!(out, "{}", visible_json(json))?;
    } else {
        let page = StatusPage { coloured: Output::Stdout.has_colors(), width: Output::Stdout.width() };
        out.write_all(page.format_status(&status).as_bytes())?;
    }
    Ok(if status.is_lossy() || status.is_outdated() { ExitStatus::DataLoss } else { ExitStatus::Done })
}

/// The severity of a value, which determines its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Normal,
    Warning,
    Error,
}

/// A human-readable status page.
#[derive(Debug)]
struct StatusPage {
    coloured: bool,
    width: Option<usize>, // of the terminal
}

impl StatusPage {
    fn format_status(&self, status: &Status) -> String {
        // Lines that continue a named line are indented to the column after the name.
        const INDENT: usize = 9;
        let mut lines = vec![agent_line(&status.recorder), self.segment_line(&status.segment)];
        lines.extend(self.storage_lines(&status.storage, &status.compression));
        lines.extend(self.compressor_line(&status.compression));
        lines.extend(status.ring.as_ref().map(|ring| self.ring_line(ring)));
        lines.extend(status.push.as_ref().map(|push| self.push_line(push)));
        lines.extend(status.push.iter().flat_map(|push| pushing_lines(&push.senders)));
        lines.push(self.queue_line(&status.queues));
        lines.extend(priority_line(status));
        lines.extend(self.reload_line(&status.reload));
        lines.push(String::new());
        let mut lines: Vec<String> = lines.iter().map(|line| wrapped(line, self.width, INDENT)).collect();
        lines.push(fitted(self.sources(&status.sources), self.width, &SPARE_COLUMNS));
        let remarks = status.sources.iter().flat_map(|source| self.remarks(source));
        let remarks = remarks.chain(self.removed_sources_line(status.former));
        let remarks = remarks.chain(status.rules.iter().filter_map(|rule| self.rule_line(rule)));
        lines.extend(remarks.map(|line| wrapped(&line, self.width, 2)));
        let lines = lines.iter().flat_map(|text| text.split('\n'));
        lines.fold(String::new(), |page, line| page + line.trim_end() + "\n")
    }

    /// Returns the text in the colour of a severity.
    fn tint(&self, mood: Severity, text: String) -> String {
        let code = match mood {
            Severity::Warning if self.coloured => "33",
            Severity::Error if self.coloured => "1;31",
            _ => return text,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    fn segment_line(&self, segment: &SegmentStatus) -> String {
        if !segment.open {
            let text = "none is open: samples are lost until one can be created".to_owned();
            return format!("segment  {}", self.tint(Severity::Error, text));
        }
        format!(
            "segment  {}: {}, {} frames, {} old; {} sealed by this run",
            segment.name,
            human::bytes(segment.bytes),
            segment.frames,
            human::elapsed(segment.age_ns),
            segment.sealed
        )
    }

    fn ring_line(&self, ring: &RingStatus) -> String {
        let window = config::format_duration(Duration::from_secs_f64(ring.window_s));
        let mut line = format!(
            "ring     {} s of {window} in {} of {}, {}",
            ring.held_s,
            human::bytes(ring.bytes),
            human::bytes(ring.bytes_max),
            human::escaped(&ring.path)
        );
        if ring.lost > 0 || ring.storage_errors > 0 {
            let lacks = format!("; lacks {} samples, {} errors", ring.lost, ring.storage_errors);
            line.push_str(&self.tint(Severity::Warning, lacks));
        }
        line
    }

    fn push_line(&self, push: &PushStatus) -> String {
        if !push.open {
            let text = "the push socket is not open, see the log".to_owned();
            return format!("push     {}", self.tint(Severity::Error, text));
        }
        let mut line = format!(
            "push     {} clients, {} lanes in {} of {}; {} sources, {} frames, {}",
            push.clients,
            push.lanes,
            human::bytes(push.memory_bytes),
            human::bytes(push.memory_bytes_max),
            push.sources,
            push.recorded,
            human::bytes(push.bytes)
        );
        if push.cpu_ns_max > 0 {
            let percent = push.cpu_ns_max / 10_000_000;
            line.extend(["; CPU ", &human::elapsed(push.cpu_ns), &format!(", at most {percent}%")]);
        }
        if push.cpu_waits > 0 {
            line.extend([", waited ", &push.cpu_waits.to_string(), " times"]);
        }
        let frames = push.user_frames_per_second_max.map(|frames| format!("{frames} frames/s"));
        let bytes = push.user_bytes_per_second_max.map(|bytes| format!("{}/s", human::bytes(bytes)));
        let limits: Vec<String> = frames.into_iter().chain(bytes).collect();
        if !limits.is_empty() {
            line.extend(["; each user at most ", &limits.join(" and ")]);
        }
        if push.lost > 0 {
            line.push_str(&self.tint(Severity::Error, format!("; {} lost", push.lost)));
        }
        if push.lanes_waiting > 0 {
            let waiting = push.lanes_waiting.to_string();
            line.extend(["; ", &waiting, " lanes of a killed run to be rescued"]);
        }
        if push.lanes_refused > 0 {
            let refused = format!("; {} lanes refused, see the log", push.lanes_refused);
            line.push_str(&self.tint(Severity::Error, refused));
        }
        line
    }

    fn storage_lines(&self, storage: &StorageStatus, compression: &CompressorStatus) -> Vec<String> {
        let used = share(storage.data_bytes, storage.retain_bytes);
        let mut line = format!(
            "disk     {} of {} ({:.1}%), {} free (minimum {})",
            human::bytes(storage.data_bytes),
            human::bytes(storage.retain_bytes),
            used * 100.0,
            human::bytes(storage.free_bytes),
            human::bytes(storage.min_free_bytes),
        );
        if let Some(rate) = storage.bytes_per_s {
            let _infallible = write!(line, "; {}/s", human::bytes(rounded(rate)));
            if let Some(ratio) = storage.compression_ratio {
                let compressed = human::bytes(rounded(rate * ratio));
                let _infallible = write!(line, ", compressed {compressed}/s");
            }
        }
        if let Some(ns) = storage.time_to_full_ns {
            let _infallible = write!(line, ", the oldest segments are removed in {}", long_time(ns));
            // The compression ratio is known only after the first segment is compressed.
            if compression.enabled && storage.compression_ratio.is_none() {
                line += " if nothing is compressed";
            }
        }
        if storage.removed > 0 {
            let _infallible = write!(line, "; {} file(s) removed for space or age", storage.removed);
        }
        let is_near = used >= HIGHLIGHT_SHARE || storage.free_bytes <= storage.min_free_bytes;
        let mut lines = vec![self.tint(if is_near { Severity::Warning } else { Severity::Normal }, line)];
        if storage.is_history_kept {
            let text = format!(
                "         others have filled the file system: retain_min keeps {} of history, {} are reserved for new \
                 samples",
                human::bytes(storage.kept_bytes),
                human::bytes(storage.reserved_bytes)
            );
            lines.push(self.tint(Severity::Error, text));
        }
        if let Some(ns) = storage.stalled_ns {
            let seconds = ns / 1_000_000_000;
            let text = format!(
                "         the storage has not responded for {seconds} s: samples are buffered in memory"
            );
            lines.push(self.tint(Severity::Error, text));
        }
        if storage.errors > 0 {
            let why = storage.last_error.as_deref().unwrap_or("unknown");
            let text = format!("         the storage failed {} time(s); the last one: {why}", storage.errors);
            lines.push(self.tint(Severity::Error, text));
        }
        lines
    }

    /// Returns the line about the compressor. Returns `None` if it is off and has done nothing.
    fn compressor_line(&self, compression: &CompressorStatus) -> Option<String> {
        let CompressorStatus {
            enabled,
            segments,
            raw_bytes,
            stored_bytes,
            skipped: left,
            failures,
            waiting,
            ..
        } = *compression;
        if !enabled && segments == 0 {
            return None;
        }
        let mut line = match segments {
            0 => "compress no segment yet".to_owned(),
            _ => format!(
                "compress {segments} segments: {} of {} ({:.1}%)",
                human::bytes(stored_bytes),
                human::bytes(raw_bytes),
                share(stored_bytes, raw_bytes) * 100.0,
            ),
        };
        let others = [(waiting, "waiting"), (left, "skipped")];
        for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
            let _infallible = write!(line, "; {count} {what}");
        }
        if compression.oldest_wait_ns > LONG_WAIT_NS {
            let text = format!("; the oldest has waited {}", long_time(compression.oldest_wait_ns));
            line += &self.tint(Severity::Warning, text);
        }
        if failures > 0 {
            line += &self.tint(Severity::Warning, format!("; failed {failures} time(s), see the log"));
        }
        Some(line)
    }

    fn queue_line(&self, queues: &QueueStatus) -> String {
        let dropped: u64 = queues.groups.iter().map(|group| group.slabs_dropped).sum();
        let waited: u64 = queues.groups.iter().map(|group| group.waited_ns).sum();
        let mut line =
            format!("queue    at most {} slabs queued, {} free", queues.slabs_queued, queues.slabs_free);
        if waited > 0 {
            line += &self
                .tint(Severity::Warning, format!("; groups waited {} for space", human::latency(waited)));
        }
        if dropped > 0 {
            line += &self.tint(Severity::Error, format!("; {dropped} slabs dropped"));
        }
        if queues.losses_pending > 0 {
            let text = format!("; {} lost samples are not in the table yet", queues.losses_pending);
            line += &self.tint(Severity::Error, text);
        }
        line
    }

    fn reload_line(&self, reload: &ReloadStatus) -> Option<String> {
        let last = reload.last.as_deref()?;
        let (mood, outcome) = match reload {
            ReloadStatus { current: true, .. } => (Severity::Normal, ""),
            ReloadStatus { fallback: true, .. } => {
                (Severity::Error, "refused, recording with the last good configuration: ")
            }
            _ => (Severity::Error, "refused, the old configuration stays in effect: "),
        };
        let more = if last.lines().nth(1).is_some() { " (and more, see the log)" } else { "" };
        Some(format!(
            "reload   {}",
            self.tint(mood, format!("{outcome}{}{more}", last.lines().next().unwrap_or_default()))
        ))
    }

    /// Returns the line with the losses of sources that are no longer in the table.
    fn removed_sources_line(&self, former: FormerStatus) -> Option<String> {
        let FormerStatus { sources, lost, failed, timed_out } = former;
        let text = format!(
            "before a reload: {lost} lost, {failed} failed, {timed_out} timed out, of {sources} source(s) that were \
             removed or replaced"
        );
        (lost > 0 || failed > 0 || timed_out > 0).then(|| self.tint(Severity::Error, text))
    }

    /// Returns the line about a rule that does not get all elements of a list.
    fn rule_line(&self, rule: &RuleStatus) -> Option<String> {
        let RuleStatus { name, untracked, .. } = rule;
        let text = format!("rule {name}: {untracked} values of list elements not tracked, {UNTRACKED}");
        (*untracked > 0).then(|| self.tint(Severity::Warning, text))
    }

    fn sources(&self, sources: &[SourceStatus]) -> Table {
        let mut table = table([
            "source",
            "requested Hz",
            "Hz",
            "recorded",
            "lost",
            "missed",
            "incomplete",
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
            let is_slow = hz.is_some_and(|hz| hz < HIGHLIGHT_SHARE * source.requested_hz);
            let count =
                |count: u64, mood| (count.to_string(), if count > 0 { mood } else { Severity::Normal });
            let calm = |text: String| (text, Severity::Normal);
            let latency = |ns: u64| calm(if late.count > 0 { human::latency(ns) } else { "-".to_owned() });
            let row = [
                calm(source.name.clone()),
                calm(human::hertz(source.requested_hz)),
                (
                    hz.map_or_else(|| "-".to_owned(), human::hertz),
                    if is_slow { Severity::Warning } else { Severity::Normal },
                ),
                calm(source.recorded.to_string()),
                count(source.lost, Severity::Error),
                count(source.missed, Severity::Warning),
                count(source.incomplete, Severity::Warning),
                latency(late.p50),
                latency(late.p99),
                latency(late.max),
                calm(source.cost_ns.map_or_else(|| "-".to_owned(), human::latency)),
                calm(source.bytes_per_s.map_or_else(|| "-".to_owned(), |rate| human::bytes(rounded(rate)))),
            ];
            let cells =
                row.into_iter().enumerate().map(|(column, (text, mood))| self.cell(column, text, mood));
            table.add_row(cells);
        }
        table
    }

    fn cell(&self, column: usize, text: String, mood: Severity) -> Cell {
        let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
        let cell = Cell::new(text).set_alignment(alignment);
        match mood {
            Severity::Warning if self.coloured => cell.fg(Color::DarkYellow),
            Severity::Error if self.coloured => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            _ => cell,
        }
    }

    fn remarks(&self, source: &SourceStatus) -> Vec<String> {
        let name = &source.name;
        let mut lines = Vec::new();
        if let Some(by) = &source.limited_by {
            let period =
                config::format_duration(Duration::from_nanos(source.period_ns.saturating_mul(source.stride)));
            let budget = if by == "recorder" {
                "cpu_budget, the budget of all sources together"
            } else {
                "its budget"
            };
            lines.push((Severity::Warning, format!("{name}: read every {period}, to stay within {budget}")));
        }
        if source.thinned > 0 {
            lines.push((Severity::Normal, format!("{name}: {} thinned by disk_period", source.thinned)));
        }
        if let Some(causes) = &source.lost_causes {
            lines.push((Severity::Error, format!("{name}: {} lost: {causes}", source.lost)));
        }
        if let Some(failure) = &source.failure {
            lines.push((
                Severity::Error,
                format!("{name}: {} failed; the last one: {failure}", source.failed),
            ));
        }
        if source.timed_out > 0 {
            lines.push((Severity::Error, format!("{name}: {} timed out", source.timed_out)));
        }
        if let Some(reasons) = &source.incomplete_reasons {
            let text = format!("{name}: {} incomplete: {reasons}", source.incomplete);
            lines.push((Severity::Warning, text));
        }
        lines.into_iter().map(|(mood, line)| self.tint(mood, line)).collect()
    }
}

/// Returns the line about the scheduling that the recorder obtained, or `None` for an older
/// recorder.
fn priority_line(status: &Status) -> Option<String> {
    let nice = status.recorder.nice?;
    let session = status.recorder.session_nice.map(|session| format!(", of the session {session}"));
    let realtime = status.queues.groups.iter().filter(|group| group.realtime);
    let realtime: Vec<&str> = realtime.map(|group| group.name.as_str()).collect();
    let realtime = match realtime.as_slice() {
        [] => "not real-time".to_owned(),
        groups => format!("real-time: {}", groups.join(", ")),
    };
    let yields: u64 = status.queues.groups.iter().map(|group| group.realtime_yields).sum();
    let above = (yields > 0).then(|| format!("; above its share {yields} times"));
    let (session, above) = (session.unwrap_or_default(), above.unwrap_or_default());
    Some(format!("priority nice {nice}{session}; {realtime}{above}"))
}

fn agent_line(recorder: &ProcessStatus) -> String {
    let resident = recorder
        .resident_bytes
        .map_or_else(String::new, |bytes| format!(", {} resident", human::bytes(bytes)));
    format!(
        "flatcap {}, pid {}, run {}: recording to {} for {}; {:.1}% of a core ({:.1}% on average){}{}{}",
        recorder.version,
        recorder.pid,
        recorder.run_id,
        recorder.data_dir,
        human::elapsed(recorder.uptime_ns),
        recorder.cpu_now * 100.0,
        recorder.cpu * 100.0,
        resident,
        if recorder.recovering { "; recovering earlier runs" } else { "" },
        if recorder.run_dir_in_use { "" } else { "; a kill loses unwritten samples (run_dir is not in use)" },
    )
}

#[allow(clippy::cast_precision_loss, reason = "a share for people")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Rounds a rate to a whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from f64 saturates")]
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

/// Formats a long time. From two days, the format is `3d 04h`.
fn long_time(ns: u64) -> String {
    let hours = ns / 3_600_000_000_000;
    if hours < 48 { human::elapsed(ns) } else { format!("{}d {:02}h", hours / 24, hours % 24) }
}

#[cfg(test)]
mod tests {
    use flatcap_control::{GroupStatus, LatencyStatus};

    use super::*;

    fn status() -> Status {
        let source = |name: &str, lost| SourceStatus {
            name: name.to_owned(),
            period_ns: 10_000_000,
            requested_hz: 100.0,
            achieved_hz: Some(99.8),
            recorded: 1000,
            lost,
            lost_causes: (lost > 0).then(|| "storage".to_owned()),
            lateness_ns: LatencyStatus { count: 100, p50: 30_000, p99: 60_000, max: 90_000 },
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
            compression: CompressorStatus {
                enabled: true,
                segments: 3,
                raw_bytes: 3 << 20,
                stored_bytes: 3 << 15,
                waiting: 1,
                ..CompressorStatus::default()
            },
            ..Status::default()
        }
    }

    fn page_of(coloured: bool) -> StatusPage {
        StatusPage { coloured, width: None }
    }

    // Proves that the page contains the important values, aligned, and that it has no color without
    // a terminal.
    #[test]
    fn a_page_says_what_matters() {
        let page = page_of(false).format_status(&status());
        assert!(!page.contains('\x1b') && page.ends_with('\n'), "{page}");
        for text in [
            "0000000001-x.bin.active",
            "95 B of 100 B (95.0%)",
            "in 3d 11h",
            "disk: 3 lost: storage",
            "compress 3 segments: 96.0 KiB of 3.0 MiB (3.1%); 1 waiting\n",
            "50.0 KiB",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
        let rows: Vec<&str> = page.lines().filter(|line| line.trim_start().starts_with("cpu ")).collect();
        assert_eq!(rows.len(), 1, "{page}");
        assert!(page.lines().all(|line| !line.ends_with(' ')), "{page:?}");
    }

    // Proves that the forecast of disk space states whether it includes compression. Once
    // compression is measured, the forecast states the rate after compression. If compression is
    // off, the forecast does not mention compression.
    #[test]
    fn the_forecast_says_whether_it_counts_compression() {
        let mut status = status();
        let line = |status: &Status| {
            let page = page_of(false).format_status(status);
            page.lines().find(|line| line.starts_with("disk ")).unwrap().to_owned()
        };
        let storage = &mut status.storage;
        (storage.bytes_per_s, storage.compression_ratio) = (Some(409_600.0), Some(0.04));
        let expected = "; 400.0 KiB/s, compressed 16.0 KiB/s, the oldest segments are removed in 3d 11h";
        assert!(line(&status).ends_with(expected), "{}", line(&status));
        status.storage.compression_ratio = None;
        let expected = "; 400.0 KiB/s, the oldest segments are removed in 3d 11h if nothing is compressed";
        assert!(line(&status).ends_with(expected), "{}", line(&status));
        status.compression.enabled = false;
        assert!(line(&status).ends_with("removed in 3d 11h"), "{}", line(&status));
    }

    // Proves that a refused reload is shown differently from a reload that was applied.
    #[test]
    fn a_refused_reload_is_called_so() {
        let mut status = status();
        status.reload =
            ReloadStatus { current: true, last: Some("cpu: off".to_owned()), ..ReloadStatus::default() };
        assert!(page_of(false).format_status(&status).contains("reload   cpu: off\n"));
        status.reload.current = false;
        let page = page_of(false).format_status(&status);
        assert!(
            page.contains("reload   refused, the old configuration stays in effect: cpu: off\n"),
            "{page}"
        );
    }

    // Proves that a rule that does not receive all elements of a list has a line, and that no other
    // rule has such a line.
    #[test]
    fn untracked_elements_have_a_line() {
        let rule = |name: &str, untracked| RuleStatus {
            name: name.to_owned(),
            evaluated: 9,
            untracked,
            ..RuleStatus::default()
        };
        let status = Status { rules: vec![rule("io", 0), rule("many", 12)], ..status() };
        let page = page_of(false).format_status(&status);
        let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("rule ")).collect();
        assert_eq!(lines, [format!("rule many: 12 values of list elements not tracked, {UNTRACKED}")]);
    }

    // Proves that the page has a line about the obtained scheduling. An older recorder does not
    // report its scheduling, so the line is missing.
    #[test]
    fn scheduling_has_a_line() {
        let line = |status: &Status| {
            let page = page_of(false).format_status(status);
            page.lines().find(|line| line.starts_with("priority ")).map(str::to_owned)
        };
        let mut status = status();
        status.recorder.nice = None;
        assert_eq!(line(&status), None);
        status.recorder.nice = Some(-10);
        status.queues.groups.clear();
        assert_eq!(line(&status).as_deref(), Some("priority nice -10; not real-time"));
        status.recorder.session_nice = Some(0);
        let fast = GroupStatus { name: "fast".to_owned(), realtime: true, ..GroupStatus::default() };
        status.queues.groups = vec![GroupStatus { realtime_yields: 2, ..fast }];
        let expected = "priority nice -10, of the session 0; real-time: fast; above its share 2 times";
        assert_eq!(line(&status).as_deref(), Some(expected));
    }

    // Proves that problems are colored, and that nothing else is colored.
    #[test]
    fn colour_marks_what_is_wrong() {
        let mut status = status();
        let page = page_of(true).format_status(&status);
        assert!(page.contains("\x1b[1;31mdisk: 3 lost"), "{page:?}");
        status.sources.retain(|source| source.lost == 0);
        status.storage = StorageStatus { retain_bytes: 100, free_bytes: 10, ..StorageStatus::default() };
        let calm = page_of(true).format_status(&status);
        assert!(!calm.contains("31m") && !calm.contains("33m"), "{calm:?}");
        status.former = FormerStatus { sources: 2, ..FormerStatus::default() };
        assert_eq!(page_of(true).format_status(&status), calm);
        status.former.lost = 12;
        let page = page_of(true).format_status(&status);
        assert!(page.contains("\x1b[1;31mbefore a reload: 12 lost"), "{page:?}");
        status.queues.losses_pending = 7;
        let page = page_of(true).format_status(&status);
        assert!(page.contains("\x1b[1;31m; 7 lost samples"), "{page:?}");
        status.storage.stalled_ns = Some(9_999_999_999);
        assert!(
            page_of(true).format_status(&status).contains("the storage has not responded for 9 s"),
            "{page:?}"
        );
        status.segment.open = false;
        assert!(page_of(true).format_status(&status).contains("\x1b[1;31mnone is open"));
    }
}
