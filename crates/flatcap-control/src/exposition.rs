//! Exposition of all metrics for Prometheus: `OpenMetrics` text, or the older text format for
//! clients that support nothing else. The tables in `flatcap-metrics` declare the metrics.

use std::fmt::{self, Write};
use std::sync::Arc;

use flatcap_metrics::{
    BUCKET_BOUNDS_NS, Distribution, MetricReading, MetricTable, MetricUnit, Metrics, ProcessMetrics,
    RunMetric,
};
use flatcap_os::process_usage::ProcessUsage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

/// The text format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpositionFormat {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus text, version 0.0.4.
    Prometheus,
}

impl ExpositionFormat {
    /// Selects the format by the client's `Accept` header: the older one only if the header names
    /// it and not the newer one.
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

/// Formats the metrics of a run.
#[derive(Debug)]
pub(super) struct Exposition {
    registry: Registry,
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
        let mut registry = Registry::default();
        registry.register_collector(Box::new(AllMetrics { metrics, run }));
        Self { registry }
    }

    /// Returns all metrics as they are now.
    pub(super) fn text(&self, format: ExpositionFormat) -> String {
        let mut text = String::new();
        // Writing to memory does not fail.
        let _infallible = encode(&mut text, &self.registry);
        match format {
            ExpositionFormat::OpenMetrics => text,
            ExpositionFormat::Prometheus => to_older_format(&text),
        }
    }
}

#[derive(Debug)]
struct AllMetrics {
    metrics: Arc<Metrics>,
    run: RunLabels,
}

/// The label of a metric: none or one.
type Labels<'a> = Option<(&'static str, &'a str)>;

impl Collector for AllMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &*self.metrics;
        let build = [("version", env!("CARGO_PKG_VERSION")), ("run_id", self.run.run_id.as_str())];
        let help =
            "Always 1; the labels are the version and the run id, which is part of the segments' names.";
        encoder.encode_descriptor("flatcap_build", help, None, MetricType::Info)?.encode_info(&build)?;
        let sources = metrics.current_sources().into_iter();
        let sources: Vec<_> =
            sources.map(|(_, source)| (Some(("source", source.name.as_str())), source)).collect();
        let groups: Vec<_> =
            metrics.queueing_groups().map(|group| (Some(("group", group.name)), group)).collect();
        let rules: Vec<_> =
            metrics.rules.iter().map(|rule| (Some(("rule", rule.name.as_str())), rule)).collect();
        let process = ProcessMetrics {
            // Zeros if /proc cannot be read.
            usage: ProcessUsage::now().unwrap_or_default(),
            start_wall_ns: u64::try_from(self.run.start_wall_ns).unwrap_or_default(),
        };
        encode_each(&mut encoder, &sources)?;
        encode_each(&mut encoder, &groups)?;
        encode_each(&mut encoder, &rules)?;
        encode_each(&mut encoder, &[(None, &metrics.recorder)])?;
        encode_each(&mut encoder, &[(None, &*metrics.directory)])?;
        encode_each(&mut encoder, &[(None, &*metrics.compression)])?;
        encode_each(&mut encoder, &[(None, &*metrics.push)])?;
        encode_each(&mut encoder, &[(None, &metrics.ring)])?;
        encode_each(&mut encoder, &[(None, &*metrics.snapshots)])?;
        encode_each(&mut encoder, &[(None, metrics)])?;
        encode_each(&mut encoder, &[(None, &metrics.daemon)])?;
        encode_each(&mut encoder, &[(None, &metrics.control)])?;
        encode_each(&mut encoder, &[(None, &metrics.log)])?;
        encode_each(&mut encoder, &[(None, &process)])
    }
}

/// Encodes all metrics of a type, with one value per item.
fn encode_each<T: MetricTable>(
    encoder: &mut DescriptorEncoder<'_>,
    each: &[(Labels<'_>, &T)],
) -> fmt::Result {
    for metric in T::METRICS {
        let kind = match metric.reading {
            MetricReading::Counter(_) => MetricType::Counter,
            MetricReading::Gauge(_) => MetricType::Gauge,
            MetricReading::Histogram(_) => MetricType::Histogram,
        };
        // The library appends the unit to the name.
        let units = [("_seconds", &Unit::Seconds), ("_bytes", &Unit::Bytes)];
        let with_unit =
            units.into_iter().find_map(|(ending, unit)| Some((metric.name.strip_suffix(ending)?, unit)));
        let (name, unit) = with_unit.map_or((metric.name, None), |(name, unit)| (name, Some(unit)));
        let mut family = encoder.encode_descriptor(name, metric.help(), unit, kind)?;
        for (labels, of) in each {
            match labels {
                Some(label) => encode_value(&mut family.encode_family(&[*label])?, metric, of)?,
                None => encode_value(&mut family, metric, of)?,
            }
        }
    }
    Ok(())
}

fn encode_value<T>(family: &mut MetricEncoder<'_>, metric: &RunMetric<T>, of: &T) -> fmt::Result {
    let (value, is_counter) = match metric.reading {
        MetricReading::Histogram(latency) => return encode_histogram(family, &latency(of).distribution()),
        MetricReading::Counter(read) => (read(of), true),
        MetricReading::Gauge(read) => (read(of), false),
    };
    let seconds = match metric.unit {
        MetricUnit::Number => None,
        MetricUnit::Nanoseconds => Some(seconds(value)),
        MetricUnit::WallNanoseconds => Some(wall_seconds(value)),
    };
    let no_exemplar = None::<&Exemplar<NoLabelSet, f64>>;
    match (seconds, is_counter) {
        (None, true) => family.encode_counter(&value, no_exemplar),
        (None, false) => family.encode_gauge(&value),
        (Some(seconds), true) => family.encode_counter(&seconds, no_exemplar),
        (Some(seconds), false) => family.encode_gauge(&seconds),
    }
}

fn encode_histogram(family: &mut MetricEncoder<'_>, distribution: &Distribution) -> fmt::Result {
    let bounds = BUCKET_BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(distribution.counts).collect();
    let (sum, count) = (seconds(distribution.sum_ns), distribution.counts.iter().sum());
    family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

/// Converts nanoseconds to seconds, the unit of all times in metrics: exact to the nanosecond up to
/// a hundred days, to the microsecond beyond.
#[allow(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are a hundred days")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Converts wall clock nanoseconds to seconds since 1970, at present exact to a quarter of a
/// microsecond.
#[allow(
    clippy::cast_precision_loss,
    reason = "whole seconds are separate, so that the fraction is rounded once"
)]
fn wall_seconds(ns: u64) -> f64 {
    (ns / 1_000_000_000) as f64 + (ns % 1_000_000_000) as f64 / 1e9
}

/// Converts `OpenMetrics` text to the older format: no units, end marker or info type; a counter
/// family is named like its metrics.
fn to_older_format(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            let help = help.strip_prefix(name).unwrap_or_default();
            // Writing to memory does not fail.
            let _infallible = writeln!(out, "# HELP {name}{suffix}{help}\n# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with("# ") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
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

    // Proves that the text follows the conventions: units, suffixes, labels, cumulative buckets and
    // the end marker.
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

    // Proves that the older format has the same metrics and nothing that it does not support.
    #[test]
    fn the_older_format_has_the_same_lines() {
        let (exposition, _metrics) = exposition();
        let (newer, older) =
            (exposition.text(ExpositionFormat::OpenMetrics), exposition.text(ExpositionFormat::Prometheus));
        // The values of the process change between the two.
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
