//! The status line that the service manager shows. Has no side effects.

use flatcap_metrics::Metrics;

const NS_PER_S: u64 = 1_000_000_000;
/// Averaging interval of rates. It is long because each new line wakes the service manager and its
/// clients.
const RATE_INTERVAL_NS: u64 = 5 * NS_PER_S;
/// Minimum interval between two lines.
const LINE_INTERVAL_NS: u64 = NS_PER_S;

/// The state of the recording, which selects the text of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordingState {
    /// Recording without problems.
    Recording,
    /// A storage call has not returned for this many nanoseconds.
    Stalled(u64),
    /// The recorder's loop has neither iterated nor waited for storage for this many nanoseconds.
    Stuck(u64),
    /// The run is ending.
    Ending,
}

impl RecordingState {
    /// Returns whether both are the same variant. In that case, the new line need not be shown at
    /// once.
    fn is_same_kind(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// The counters from which rates are computed.
#[derive(Debug, Clone, Copy, Default)]
struct StatusTotals {
    at_ns: u64,
    recorded: u64,
    bytes: u64,
}

/// Formats the lines and detects new ones.
#[derive(Debug)]
pub(super) struct StatusLine {
    before: StatusTotals,
    shown: String,
    state: RecordingState,
    next_ns: u64,
    dropped: u64, // slabs, as of the last update
    pending: u64, // losses not yet in a gap, as of the last update
}

impl StatusLine {
    /// Creates a status line whose rates start at `now_ns`.
    pub(super) fn new(now_ns: u64, metrics: &Metrics) -> Self {
        Self {
            before: totals(now_ns, metrics),
            shown: String::new(),
            state: RecordingState::Recording,
            next_ns: 0,
            dropped: 0,
            pending: 0,
        }
    }

    /// Returns the first line, which has no rates, because they are not known yet.
    pub(super) fn first(metrics: &Metrics) -> String {
        format!("recording {}{}", sources(metrics), refused(metrics))
    }

    /// Returns the line to show now; `None` if it equals the last line.
    pub(super) fn update(&mut self, now_ns: u64, metrics: &Metrics, state: RecordingState) -> Option<&str> {
        let rates_are_due = now_ns.saturating_sub(self.before.at_ns) >= RATE_INTERVAL_NS;
        let pending = metrics.recorder.losses_pending.get();
        let is_losing = state == RecordingState::Recording && pending > self.pending;
        let is_unchanged = state == RecordingState::Recording && self.state.is_same_kind(state) && !is_losing;
        if now_ns < self.next_ns || is_unchanged && !rates_are_due {
            return None;
        }
        self.next_ns = now_ns + LINE_INTERVAL_NS;
        self.state = state;
        let now = totals(now_ns, metrics);
        self.pending = pending;
        let counted: u64 = metrics.sources.iter().map(|source| source.lost.get()).sum();
        // Losses that are not yet in a gap count too.
        let lost = counted.saturating_add(pending);
        let line = match state {
            RecordingState::Recording if is_losing => {
                format!("{}: {} samples lost", loss_reason(metrics), grouped(pending))
            }
            RecordingState::Recording if rates_are_due => {
                let per_second = |now_count: u64, before: u64| {
                    let passed_ns = u128::from((now.at_ns - self.before.at_ns).max(1));
                    let rate =
                        u128::from(now_count.saturating_sub(before)) * u128::from(NS_PER_S) / passed_ns;
                    u64::try_from(rate).unwrap_or(u64::MAX)
                };
                let line = format!(
                    "recording {}, {} samples/s, {} lost, {}/s{}",
                    sources(metrics),
                    grouped(per_second(now.recorded, self.before.recorded)),
                    grouped(lost),
                    bytes(per_second(now.bytes, self.before.bytes)),
                    refused(metrics),
                );
                self.before = now;
                line
            }
            RecordingState::Recording => {
                format!("recording {}, {} lost{}", sources(metrics), grouped(lost), refused(metrics))
            }
            RecordingState::Stalled(ns) => {
                // The recorder counts losses only after the stall. The producers know earlier which
                // slabs they dropped.
                let dropped: u64 = metrics.groups.iter().map(|group| group.slabs_dropped.get()).sum();
                let is_full = std::mem::replace(&mut self.dropped, dropped) < dropped;
                format!(
                    "the storage has not responded for {} s; sampling continues in memory{}",
                    grouped(ns / NS_PER_S),
                    if is_full { ", which is full: samples are lost" } else { "" }
                )
            }
            RecordingState::Stuck(ns) => format!(
                "the recorder has been stuck outside of storage calls for {} s; the watchdog is not fed",
                grouped(ns / NS_PER_S)
            ),
            RecordingState::Ending => "stopping: writing the remaining samples".to_owned(),
        };
        if line == self.shown {
            return None;
        }
        self.shown = line;
        Some(&self.shown)
    }
}

/// Returns the reason why samples are being lost.
fn loss_reason(metrics: &Metrics) -> String {
    match metrics.recorder.storage_failure() {
        Some(error) if error.kind() == std::io::ErrorKind::StorageFull => "disk full".to_owned(),
        Some(error) => format!("the storage fails ({error})"),
        None => "not everything is recorded".to_owned(),
    }
}

fn totals(at_ns: u64, metrics: &Metrics) -> StatusTotals {
    let recorded = metrics.sources.iter().map(|source| source.recorded.get()).sum();
    StatusTotals { at_ns, recorded, bytes: metrics.recorder.bytes.get() }
}

fn sources(metrics: &Metrics) -> String {
    let sources = match metrics.current_sources().len() {
        1 => "1 source".to_owned(),
        count => format!("{count} sources"),
    };
    let is_fallback = metrics.daemon.config_fallback.get() == 1;
    sources + if is_fallback { " with the last good configuration (the current one is refused)" } else { "" }
}

/// Returns a hint that the last reload was refused; empty after a reload has succeeded.
fn refused(metrics: &Metrics) -> &'static str {
    let is_refused = metrics.daemon.config_current.get() == 0 && metrics.daemon.reloads_failed.get() > 0;
    if is_refused { "; the last reload was refused, see the log" } else { "" }
}

/// Formats a number with separators, for example 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size in the largest unit that leaves at least two digits, for example 9,999 B, 10 KB,
/// 9,999 KB or 10 MB.
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{} B", grouped(count)),
        10_000..10_000_000 => format!("{} KB", grouped(count / 1_000)),
        _ => format!("{} MB", grouped(count / 1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use flatcap_metrics::SourceMetrics;

    use super::*;

    fn metrics() -> Metrics {
        let sources = ["cpu", "disk"].map(|name| SourceMetrics::new(name.to_owned(), NS_PER_S));
        Metrics::new(sources, 2, Box::default())
    }

    // Proves that rates cover the last five seconds, and that each line is returned only one time.
    #[test]
    fn rates_are_of_the_last_seconds() {
        let metrics = metrics();
        let mut line = StatusLine::new(NS_PER_S, &metrics);
        metrics.sources.get(0).unwrap().recorded.add(20_500);
        metrics.sources.get(1).unwrap().lost.add(1234);
        metrics.recorder.bytes.add(2_050_000);
        assert_eq!(line.update(5 * NS_PER_S, &metrics, RecordingState::Recording), None);
        let expected = "recording 2 sources, 4,100 samples/s, 1,234 lost, 410 KB/s";
        assert_eq!(line.update(6 * NS_PER_S, &metrics, RecordingState::Recording), Some(expected));
        metrics.sources.get(1).unwrap().recorded.add(20_500);
        metrics.recorder.bytes.add(2_050_000);
        assert_eq!(line.update(11 * NS_PER_S, &metrics, RecordingState::Recording), None, "unchanged");
        assert_eq!(
            line.update(16 * NS_PER_S, &metrics, RecordingState::Recording),
            Some("recording 2 sources, 0 samples/s, 1,234 lost, 0 B/s")
        );
    }

    // Proves that a refused reload is shown until a reload succeeds.
    #[test]
    fn a_refused_reload_is_shown() {
        let metrics = metrics();
        metrics.daemon.note_config(1);
        let mut line = StatusLine::new(NS_PER_S, &metrics);
        let mut said = |at_s: u64, metrics: &Metrics| {
            let later = line.update(at_s * NS_PER_S, metrics, RecordingState::Recording).map(str::to_owned);
            [StatusLine::first(metrics), later.unwrap()]
                .map(|line| line.contains("the last reload was refused"))
        };
        assert_eq!(said(6, &metrics), [false, false]);
        metrics.daemon.note_failed_reload();
        assert_eq!(said(11, &metrics), [true, true]);
        metrics.daemon.note_reload(2);
        assert_eq!(said(16, &metrics), [false, false]);
    }

    // Proves that removed sources are not counted.
    #[test]
    fn removed_sources_do_not_count() {
        let metrics = metrics();
        assert_eq!(StatusLine::first(&metrics), "recording 2 sources");
        metrics.sources.get(0).unwrap().removed.set(1);
        assert_eq!(StatusLine::first(&metrics), "recording 1 source");
    }

    // Proves that the start and the end of a problem are shown at the next update, at most once a
    // second.
    #[test]
    fn problems_are_shown_at_once() {
        let metrics = metrics();
        let mut line = StatusLine::new(0, &metrics);
        let stalled = |line: &mut StatusLine, at_ns: u64| {
            let state = RecordingState::Stalled(at_ns - 3 * NS_PER_S);
            line.update(at_ns, &metrics, state).map(str::to_owned)
        };
        let expected = |seconds| {
            Some(format!("the storage has not responded for {seconds} s; sampling continues in memory"))
        };
        assert_eq!(stalled(&mut line, 4 * NS_PER_S), expected(1));
        assert_eq!(stalled(&mut line, 4 * NS_PER_S + NS_PER_S / 5), None);
        assert_eq!(stalled(&mut line, 5 * NS_PER_S), expected(2));
        assert_eq!(
            line.update(6 * NS_PER_S, &metrics, RecordingState::Ending),
            Some("stopping: writing the remaining samples")
        );
        assert!(line.update(7 * NS_PER_S, &metrics, RecordingState::Recording).is_some());
        assert!(
            line.update(8 * NS_PER_S, &metrics, RecordingState::Stuck(NS_PER_S)).unwrap().contains("not fed")
        );
    }

    // Proves that lost samples are shown with the reason within a second, before a gap counts them.
    // Also proves that the sum stays in the line afterwards.
    #[test]
    fn a_full_disk_shows_at_once() {
        let metrics = metrics();
        let mut line = StatusLine::new(0, &metrics);
        assert_eq!(line.update(NS_PER_S, &metrics, RecordingState::Recording), None);
        metrics.recorder.note_storage_error(&std::io::ErrorKind::StorageFull.into());
        for second in 2..5 {
            metrics.recorder.losses_pending.set(1000 * second);
            let expected = format!("disk full: {second},000 samples lost");
            assert_eq!(
                line.update(second * NS_PER_S, &metrics, RecordingState::Recording),
                Some(expected.as_str())
            );
        }
        let over = line.update(5 * NS_PER_S, &metrics, RecordingState::Recording);
        assert_eq!(over, Some("recording 2 sources, 0 samples/s, 4,000 lost, 0 B/s"));
    }

    // Proves that numbers have digit separators, and that sizes have a suitable unit.
    #[test]
    fn numbers_are_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let sizes = [9_999, 10_000, 9_999_999, 10_000_000].map(bytes);
        assert_eq!(sizes, ["9,999 B", "10 KB", "9,999 KB", "10 MB"]);
    }
}
