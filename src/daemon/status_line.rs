//! One line on how the recording goes, as the service manager shows it. Pure.

use crate::metrics::Metrics;

const NS_PER_S: u64 = 1_000_000_000;
/// Rates are over this long: each new line wakes the service manager and whoever watches it.
const RATE_INTERVAL_NS: u64 = 5 * NS_PER_S;
/// No line is replaced sooner than this.
const LINE_INTERVAL_NS: u64 = NS_PER_S;

/// What a line says beside rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// All is as it should be.
    Recording,
    /// The storage has not answered for so many nanoseconds.
    Stalled(u64),
    /// The recorder has neither turned nor waited for the storage for so many nanoseconds.
    Stuck(u64),
    /// The end has begun.
    Ending,
}

impl Standing {
    /// Whether the two are of one kind, and a new line may wait.
    fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// What the rates are reckoned from.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    at_ns: u64,
    recorded: u64,
    bytes: u64,
}

/// Makes the lines, and says when there is a new one.
#[derive(Debug)]
pub(super) struct StatusLine {
    before: Totals,
    shown: String,
    standing: Standing,
    next_ns: u64,
    dropped: u64, // slabs, when last looked at
    pending: u64, // losses that no gap counts yet, when last looked at
}

impl StatusLine {
    /// Rates are reckoned from `now_ns` on.
    pub(super) fn new(now_ns: u64, metrics: &Metrics) -> Self {
        Self {
            before: totals(now_ns, metrics),
            shown: String::new(),
            standing: Standing::Recording,
            next_ns: 0,
            dropped: 0,
            pending: 0,
        }
    }

    /// The first line, when there are no rates yet.
    pub(super) fn first(metrics: &Metrics) -> String {
        format!("recording {}{}", sources(metrics), refused(metrics))
    }

    /// The line to be shown now, if it is another one than before.
    pub(super) fn look(&mut self, now_ns: u64, metrics: &Metrics, standing: Standing) -> Option<&str> {
        let rates_are_due = now_ns.saturating_sub(self.before.at_ns) >= RATE_INTERVAL_NS;
        let pending = metrics.recorder.losses_pending.get();
        let is_losing = standing == Standing::Recording && pending > self.pending;
        let is_calm = standing == Standing::Recording && self.standing.is_like(standing) && !is_losing;
        if now_ns < self.next_ns || is_calm && !rates_are_due {
            return None;
        }
        self.next_ns = now_ns + LINE_INTERVAL_NS;
        self.standing = standing;
        let now = totals(now_ns, metrics);
        self.pending = pending;
        let counted: u64 = metrics.sources.iter().map(|source| source.lost.get()).sum();
        // What no gap counts yet is lost all the same.
        let lost = counted.saturating_add(pending);
        let line = match standing {
            Standing::Recording if is_losing => {
                format!("{}: {} samples lost", trouble(metrics), grouped(pending))
            }
            Standing::Recording if rates_are_due => {
                let per_second = |now_count: u64, before: u64| {
                    let passed_ns = u128::from((now.at_ns - self.before.at_ns).max(1));
                    let rate =
                        u128::from(now_count.saturating_sub(before)) * u128::from(NS_PER_S) / passed_ns;
                    u64::try_from(rate).unwrap_or(u64::MAX)
                };
                let line = format!(
                    "recording {}, {} readings/s, {} lost, {}/s{}",
                    sources(metrics),
                    grouped(per_second(now.recorded, self.before.recorded)),
                    grouped(lost),
                    bytes(per_second(now.bytes, self.before.bytes)),
                    refused(metrics),
                );
                self.before = now;
                line
            }
            Standing::Recording => {
                format!("recording {}, {} lost{}", sources(metrics), grouped(lost), refused(metrics))
            }
            Standing::Stalled(ns) => {
                // What is lost meanwhile is not counted before the recorder goes on; the samplers know that they give up some.
                let dropped: u64 = metrics.groups.iter().map(|group| group.slabs_dropped.get()).sum();
                let is_full = std::mem::replace(&mut self.dropped, dropped) < dropped;
                format!(
                    "the storage has not answered for {} s; sampling goes on into memory{}",
                    grouped(ns / NS_PER_S),
                    if is_full { ", which is full: readings are lost" } else { "" }
                )
            }
            Standing::Stuck(ns) => format!(
                "the recorder is stuck outside the storage for {} s; the watchdog is not fed",
                grouped(ns / NS_PER_S)
            ),
            Standing::Ending => "ending: writing what was sampled".to_owned(),
        };
        if line == self.shown {
            return None;
        }
        self.shown = line;
        Some(&self.shown)
    }
}

/// Why samples are being lost.
fn trouble(metrics: &Metrics) -> String {
    match metrics.recorder.storage_failure() {
        Some(error) if error.kind() == std::io::ErrorKind::StorageFull => "disk full".to_owned(),
        Some(error) => format!("the storage fails ({error})"),
        None => "not everything is recorded".to_owned(),
    }
}

fn totals(at_ns: u64, metrics: &Metrics) -> Totals {
    let recorded = metrics.sources.iter().map(|source| source.recorded.get()).sum();
    Totals { at_ns, recorded, bytes: metrics.recorder.bytes.get() }
}

fn sources(metrics: &Metrics) -> String {
    let sources = match metrics.current_sources().len() {
        1 => "1 source".to_owned(),
        count => format!("{count} sources"),
    };
    let is_fallback = metrics.daemon.config_fallback.get() == 1;
    sources + if is_fallback { " by the last good configuration (the present one is refused)" } else { "" }
}

/// What is to be said of a reload that was refused, until one is done.
fn refused(metrics: &Metrics) -> &'static str {
    let is_refused = metrics.daemon.config_current.get() == 0 && metrics.daemon.reloads_failed.get() > 0;
    if is_refused { "; the last reload was refused, see the log" } else { "" }
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// In the largest unit that leaves two digits: 9,999 B, 10 KB, 9,999 KB, 10 MB.
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{} B", grouped(count)),
        10_000..10_000_000 => format!("{} KB", grouped(count / 1_000)),
        _ => format!("{} MB", grouped(count / 1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::SourceMetrics;

    fn metrics() -> Metrics {
        let sources = ["cpu", "disk"].map(|name| SourceMetrics::new(name.to_owned(), NS_PER_S));
        Metrics::new(sources, 2, Box::default())
    }

    // Goal: rates are those of the last five seconds, and a line is given once. Method: counters and times by hand.
    #[test]
    fn rates_are_of_the_last_seconds() {
        let metrics = metrics();
        let mut line = StatusLine::new(NS_PER_S, &metrics);
        metrics.sources.get(0).unwrap().recorded.add(20_500);
        metrics.sources.get(1).unwrap().lost.add(1234);
        metrics.recorder.bytes.add(2_050_000);
        assert_eq!(line.look(5 * NS_PER_S, &metrics, Standing::Recording), None);
        let expected = "recording 2 sources, 4,100 readings/s, 1,234 lost, 410 KB/s";
        assert_eq!(line.look(6 * NS_PER_S, &metrics, Standing::Recording), Some(expected));
        metrics.sources.get(1).unwrap().recorded.add(20_500);
        metrics.recorder.bytes.add(2_050_000);
        assert_eq!(line.look(11 * NS_PER_S, &metrics, Standing::Recording), None, "the same again");
        assert_eq!(
            line.look(16 * NS_PER_S, &metrics, Standing::Recording),
            Some("recording 2 sources, 0 readings/s, 1,234 lost, 0 B/s")
        );
    }

    // Goal: a reload that was refused is shown until one is done. Method: one of each, with the first line and with a later one.
    #[test]
    fn a_refused_reload_is_shown() {
        let metrics = metrics();
        metrics.daemon.note_config(1);
        let mut line = StatusLine::new(NS_PER_S, &metrics);
        let mut said = |at_s: u64, metrics: &Metrics| {
            let later = line.look(at_s * NS_PER_S, metrics, Standing::Recording).map(str::to_owned);
            [StatusLine::first(metrics), later.unwrap()]
                .map(|line| line.contains("the last reload was refused"))
        };
        assert_eq!(said(6, &metrics), [false, false]);
        metrics.daemon.note_failed_reload();
        assert_eq!(said(11, &metrics), [true, true]);
        metrics.daemon.note_reload(2);
        assert_eq!(said(16, &metrics), [false, false]);
    }

    // Goal: sources are those that are read now. Method: one that a reload has taken away.
    #[test]
    fn removed_sources_do_not_count() {
        let metrics = metrics();
        assert_eq!(StatusLine::first(&metrics), "recording 2 sources");
        metrics.sources.get(0).unwrap().removed.set(1);
        assert_eq!(StatusLine::first(&metrics), "recording 1 source");
    }

    // Goal: what is wrong is shown at the next look, at most once a second; that it is over, too. Method: a stall of three seconds.
    #[test]
    fn what_is_wrong_is_shown_at_once() {
        let metrics = metrics();
        let mut line = StatusLine::new(0, &metrics);
        let stalled = |line: &mut StatusLine, at_ns: u64| {
            let standing = Standing::Stalled(at_ns - 3 * NS_PER_S);
            line.look(at_ns, &metrics, standing).map(str::to_owned)
        };
        let expected = |seconds| {
            Some(format!("the storage has not answered for {seconds} s; sampling goes on into memory"))
        };
        assert_eq!(stalled(&mut line, 4 * NS_PER_S), expected(1));
        assert_eq!(stalled(&mut line, 4 * NS_PER_S + NS_PER_S / 5), None);
        assert_eq!(stalled(&mut line, 5 * NS_PER_S), expected(2));
        assert_eq!(
            line.look(6 * NS_PER_S, &metrics, Standing::Ending),
            Some("ending: writing what was sampled")
        );
        assert!(line.look(7 * NS_PER_S, &metrics, Standing::Recording).is_some());
        assert!(line.look(8 * NS_PER_S, &metrics, Standing::Stuck(NS_PER_S)).unwrap().contains("not fed"));
    }

    // Goal: samples that are lost show within a second, before any gap counts them, with the reason; when that is over, the sum stays in the line. Method:
    // losses pending that grow for three seconds, by hand.
    #[test]
    fn a_full_disk_shows_at_once() {
        let metrics = metrics();
        let mut line = StatusLine::new(0, &metrics);
        assert_eq!(line.look(NS_PER_S, &metrics, Standing::Recording), None);
        metrics.recorder.note_storage_error(&std::io::ErrorKind::StorageFull.into());
        for second in 2..5 {
            metrics.recorder.losses_pending.set(1000 * second);
            let expected = format!("disk full: {second},000 samples lost");
            assert_eq!(line.look(second * NS_PER_S, &metrics, Standing::Recording), Some(expected.as_str()));
        }
        let over = line.look(5 * NS_PER_S, &metrics, Standing::Recording);
        assert_eq!(over, Some("recording 2 sources, 0 readings/s, 4,000 lost, 0 B/s"));
    }

    // Goal: numbers are grouped, and bytes in a unit that fits. Method: edges.
    #[test]
    fn numbers_are_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let sizes = [9_999, 10_000, 9_999_999, 10_000_000].map(bytes);
        assert_eq!(sizes, ["9,999 B", "10 KB", "9,999 KB", "10 MB"]);
    }
}
