//! Exposition of all metrics for Prometheus. The text is `OpenMetrics`, or the older text format
//! for clients that support no other format. The tables in `flatcap-metrics` declare the metrics.

use std::fmt::{self, Write};
use std::sync::Arc;

use flatcap_metrics::{
    BUCKET_BOUNDS_NS, Distribution, MetricReading, MetricTable, MetricUnit, Metrics, ProcessMetrics,
};
use flatcap_os::process_usage::ProcessUsage;

/// The text format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpositionFormat {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus text, version 0.0.4.
    Prometheus,
}

impl ExpositionFormat {
    /// Selects the format by the client's `Accept` header. The older format is selected only if the
    /// header names it and does not name the newer one.
    pub(super) fn from_accept(accept: &str) -> Self {
        if accept.contains("text/plain") && !accept.contains("openmetrics-text") {
            Self::Prometheus
        } else {
            Self::OpenMetrics
        }
    }

    /// The media type.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics of a run.
#[derive(Debug)]
pub(super) struct Exposition {
    metrics: Arc<Metrics>,
    run: RunLabels,
}

/// Labels that are constant during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLabels {
    /// The run's id, 16 hexadecimal digits.
    pub run_id: String,
    /// Wall clock time at the start of the run, in nanoseconds since 1970.
    pub start_wall_ns: i64,
}

impl Exposition {
    pub(super) fn new(metrics: Arc<Metrics>, run: RunLabels) -> Self {
        Self { metrics, run }
    }

    /// Returns the current values of all metrics as text.
    pub(super) fn text(&self, format: ExpositionFormat) -> String {
        let mut out = ExpositionWriter { text: String::new(), format };
        // Writing to memory does not fail.
        let _infallible = self.write(&mut out);
        out.text
    }

    fn write(&self, out: &mut ExpositionWriter) -> fmt::Result {
        let metrics = &*self.metrics;
        let help =
            "Always 1; the labels are the version and the run id, which is part of the segments' names.";
        out.family("flatcap_build", help, FamilyKind::Info)?;
        let build = [("version", env!("CARGO_PKG_VERSION")), ("run_id", self.run.run_id.as_str())];
        out.line("flatcap_build_info", &build, &1)?;
        let sources = metrics.current_sources().into_iter();
        let sources: Vec<_> =
            sources.map(|(_, source)| (Some(("source", source.name.as_str())), source)).collect();
        let groups: Vec<_> =
            metrics.queueing_groups().map(|group| (Some(("group", group.name)), group)).collect();
        let rules: Vec<_> =
            metrics.rules.iter().map(|rule| (Some(("rule", rule.name.as_str())), rule)).collect();
        out.table(&sources)?;
        out.table(&groups)?;
        out.table(&rules)?;
        out.table(&[(None, &metrics.recorder)])?;
        out.table(&[(None, &*metrics.directory)])?;
        out.table(&[(None, &*metrics.compression)])?;
        out.table(&[(None, &*metrics.push)])?;
        out.table(&[(None, &metrics.ring)])?;
        out.table(&[(None, &*metrics.snapshots)])?;
        out.table(&[(None, metrics)])?;
        out.table(&[(None, &metrics.daemon)])?;
        out.table(&[(None, &metrics.control)])?;
        out.table(&[(None, &metrics.log)])?;
        let start_wall_ns = u64::try_from(self.run.start_wall_ns).unwrap_or_default();
        out.table(&[(None, &ProcessMetrics { start_wall_ns })])?;
        if let Ok(usage) = ProcessUsage::now() {
            out.table(&[(None, &usage)])?;
        }
        match out.format {
            ExpositionFormat::OpenMetrics => out.text.write_str("# EOF\n"),
            ExpositionFormat::Prometheus => Ok(()),
        }
    }
}

/// A label of a metric, which is its name and its value.
type Label<'a> = (&'static str, &'a str);

/// The type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FamilyKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// Writes metric families in a text format. The format is `OpenMetrics` 1.0 or the text format
/// 0.0.4 of Prometheus. The Prometheus format lacks units, the info type and the end marker. In the
/// Prometheus format, the name of a counter family ends with `_total`, like the names of its lines.
struct ExpositionWriter {
    text: String,
    format: ExpositionFormat,
}

impl ExpositionWriter {
    /// Writes all metrics of the table `T`. Each metric has one value per item in `each`.
    fn table<T: MetricTable>(&mut self, each: &[(Option<Label<'_>>, &T)]) -> fmt::Result {
        for metric in T::METRICS {
            match metric.reading {
                MetricReading::Histogram(latency) => {
                    self.family(metric.name, metric.help(), FamilyKind::Histogram)?;
                    for (label, of) in each {
                        self.histogram(metric.name, *label, &latency(of).distribution())?;
                    }
                }
                MetricReading::Gauge(read) => {
                    self.family(metric.name, metric.help(), FamilyKind::Gauge)?;
                    for (label, of) in each {
                        self.value(metric.name, label.as_slice(), metric.unit, read(of))?;
                    }
                }
                MetricReading::Counter(read) => {
                    self.family(metric.name, metric.help(), FamilyKind::Counter)?;
                    let name = format!("{}_total", metric.name);
                    for (label, of) in each {
                        self.value(&name, label.as_slice(), metric.unit, read(of))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins a family. The name of a metric ends with its unit.
    fn family(&mut self, name: &str, help: &str, kind: FamilyKind) -> fmt::Result {
        let is_open = self.format == ExpositionFormat::OpenMetrics;
        let (suffix, kind) = match kind {
            FamilyKind::Counter => (if is_open { "" } else { "_total" }, "counter"),
            FamilyKind::Gauge => ("", "gauge"),
            FamilyKind::Histogram => ("", "histogram"),
            FamilyKind::Info if is_open => ("", "info"),
            FamilyKind::Info => ("_info", "gauge"),
        };
        writeln!(self.text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}")?;
        let unit = ["seconds", "bytes"].into_iter().find(|unit| name.ends_with(unit));
        unit.filter(|_| is_open).map_or(Ok(()), |unit| writeln!(self.text, "# UNIT {name} {unit}"))
    }

    fn value(&mut self, name: &str, labels: &[Label<'_>], unit: MetricUnit, value: u64) -> fmt::Result {
        match unit {
            MetricUnit::Number => self.line(name, labels, &value),
            MetricUnit::Nanoseconds => self.line(name, labels, &Float(seconds(value))),
            MetricUnit::WallNanoseconds => self.line(name, labels, &Float(wall_seconds(value))),
        }
    }

    fn histogram(&mut self, name: &str, label: Option<Label<'_>>, of: &Distribution) -> fmt::Result {
        self.line(&format!("{name}_sum"), label.as_slice(), &Float(seconds(of.sum_ns)))?;
        self.line(&format!("{name}_count"), label.as_slice(), &of.counts.iter().sum::<u64>())?;
        let bucket = format!("{name}_bucket");
        let bounds = BUCKET_BOUNDS_NS.iter().map(|bound| Float(seconds(*bound)).to_string());
        let mut up_to = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(of.counts) {
            up_to += count;
            let labels: Vec<Label<'_>> = [("le", bound.as_str())].into_iter().chain(label).collect();
            self.line(&bucket, &labels, &up_to)?;
        }
        Ok(())
    }

    fn line(&mut self, name: &str, labels: &[Label<'_>], value: &dyn fmt::Display) -> fmt::Result {
        self.text.write_str(name)?;
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
            write!(self.text, "{before}{label}=\"{text}\"")?;
        }
        let after = if labels.is_empty() { "" } else { "}" };
        writeln!(self.text, "{after} {value}")
    }
}

/// A value that is printed with a decimal point and without an exponent.
struct Float(f64);

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = if self.0.fract() == 0.0 { ".0" } else { "" };
        write!(f, "{}{point}", self.0)
    }
}

/// Converts nanoseconds to seconds, the unit of all times in metrics. The result is exact to the
/// nanosecond up to a hundred days, and to the microsecond beyond that.
#[allow(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are a hundred days")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Converts wall clock nanoseconds to seconds since 1970. For present times, the result is exact to
/// a quarter of a microsecond.
#[allow(
    clippy::cast_precision_loss,
    reason = "whole seconds are separate, so that the fraction is rounded once"
)]
fn wall_seconds(ns: u64) -> f64 {
    (ns / 1_000_000_000) as f64 + (ns % 1_000_000_000) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use flatcap_metrics::{GroupMetrics, IntervalHistogram, RuleMetrics, SourceMetrics};

    use super::*;

    fn exposition() -> (Exposition, Arc<Metrics>) {
        let sources =
            [SourceMetrics::new("cpu".to_owned(), 10_000_000), SourceMetrics::new("disk".to_owned(), 7)];
        let groups = [Arc::new(GroupMetrics::new("fast", 0))];
        let metrics = Arc::new(Metrics::new(sources, 2, Box::new(groups)));
        let run =
            RunLabels { run_id: "00000000000000af".to_owned(), start_wall_ns: 1_700_000_000_250_000_000 };
        (Exposition::new(Arc::clone(&metrics), run), metrics)
    }

    // Proves that the text follows the conventions for units, suffixes, labels, cumulative buckets
    // and the end marker.
    #[test]
    fn counters_are_exposed() {
        let (exposition, metrics) = exposition();
        metrics.sources.get(0).unwrap().begun.set(42);
        metrics.sources.get(1).unwrap().lost.set(3);
        metrics.groups[0].waited_ns.set(1_500_000_000);
        metrics.rules.push(RuleMetrics { name: "io-stall".to_owned(), ..RuleMetrics::default() }).unwrap();
        metrics.rules.get(0).unwrap().fired.set(2);
        let mut interval = IntervalHistogram::default();
        for ns in [900, 900, 2_000_000, 30_000_000_000] {
            interval.record(ns);
        }
        metrics.sources.get(0).unwrap().lateness.publish(&interval);
        let text = exposition.text(ExpositionFormat::OpenMetrics);
        for line in [
            "# TYPE flatcap_source_begun counter",
            "flatcap_source_begun_total{source=\"cpu\"} 42",
            "flatcap_source_lost_total{source=\"disk\"} 3",
            "flatcap_source_lost_total{source=\"cpu\"} 0",
            "flatcap_trigger_fired_total{rule=\"io-stall\"} 2",
            "# UNIT flatcap_group_waited_seconds seconds",
            "flatcap_group_waited_seconds_total{group=\"fast\"} 1.5",
            "# TYPE flatcap_source_lateness_seconds histogram",
            "flatcap_source_lateness_seconds_count{source=\"cpu\"} 4",
            "flatcap_source_lateness_seconds_bucket{le=\"0.000001\",source=\"cpu\"} 2",
            "flatcap_source_lateness_seconds_bucket{le=\"0.0025\",source=\"cpu\"} 3",
            "flatcap_source_lateness_seconds_bucket{le=\"10.0\",source=\"cpu\"} 3",
            "flatcap_source_lateness_seconds_bucket{le=\"+Inf\",source=\"cpu\"} 4",
            "process_start_time_seconds 1700000000.25",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("flatcap_build_info{version=") && text.ends_with("# EOF\n"));
    }

    // Proves that the text in the older format contains the same metrics, and nothing that the
    // older format does not support.
    #[test]
    fn the_older_format_has_the_same_lines() {
        let (exposition, _metrics) = exposition();
        let (newer, older) =
            (exposition.text(ExpositionFormat::OpenMetrics), exposition.text(ExpositionFormat::Prometheus));
        // The values of the process change between the two calls, so only the number of lines is
        // compared.
        let counts = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(counts(&newer), counts(&older));
        assert!(
            older.contains("# TYPE flatcap_source_begun_total counter\nflatcap_source_begun_total{"),
            "{older}"
        );
        assert!(older.contains("# TYPE flatcap_build_info gauge\nflatcap_build_info{"), "{older}");
        assert!(older.contains("# HELP flatcap_source_begun_total Samples"), "{older}");
        assert!(!older.contains("EOF") && !older.contains("UNIT"));
    }

    // Proves that a client gets the older format only if it accepts nothing else.
    #[test]
    fn the_format_is_the_one_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        for (accept, format) in [
            ("", ExpositionFormat::OpenMetrics),
            ("*/*", ExpositionFormat::OpenMetrics),
            (prometheus, ExpositionFormat::OpenMetrics),
            ("text/plain;version=0.0.4", ExpositionFormat::Prometheus),
        ] {
            assert_eq!(ExpositionFormat::from_accept(accept), format, "{accept}");
        }
    }
}
