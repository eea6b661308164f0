//! Exposition of all counters for Prometheus: `OpenMetrics` text, or the older text format for
//! clients that support nothing else.
//!
//! The metrics are listed in one table per subject: name, help, unit and source of the value. A new
//! metric needs one entry there, and one in docs/OPERATIONS.md.

use std::fmt::{self, Write};
use std::sync::Arc;

use flatcap_metrics::{BUCKET_BOUNDS_NS, Distribution, Metrics};
use flatcap_os::process_usage::ProcessUsage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use super::metric_table::{
    COMPRESSOR, DAEMON, DIRECTORY, GROUPS, LATENCIES, MetricFamily, MetricValue, PROCESS, PUSH,
    ProcessSnapshot, RECORDER, RULES, SOURCE_LATENCIES, SOURCES,
};
use super::seconds::seconds;

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
        let current = metrics.current_sources();
        let sources = || current.iter().map(|(_, source)| (Some(("source", source.name.as_str())), *source));
        for family in SOURCES {
            family.encode_each(&mut encoder, sources())?;
        }
        for family in SOURCE_LATENCIES {
            let each = sources().map(|(labels, source)| (labels, (family.latency)(source).distribution()));
            histogram(&mut encoder, (family.name, family.help), each)?;
        }
        for family in GROUPS {
            let groups = metrics.queueing_groups().map(|group| (Some(("group", group.name)), group));
            family.encode_each(&mut encoder, groups)?;
        }
        for family in RULES {
            let rules = metrics.rules.iter().map(|rule| (Some(("rule", rule.name.as_str())), rule));
            family.encode_each(&mut encoder, rules)?;
        }
        for family in LATENCIES {
            let distribution = (family.latency)(&metrics.recorder).distribution();
            histogram(&mut encoder, (family.name, family.help), [(None, distribution)].into_iter())?;
        }
        // Zeros if /proc cannot be read.
        let usage = ProcessUsage::now().unwrap_or_default();
        let now = ProcessSnapshot { usage, start_wall_ns: self.run.start_wall_ns };
        for family in RECORDER {
            family.encode_each(&mut encoder, [(None, &metrics.recorder)].into_iter())?;
        }
        for family in DIRECTORY {
            family.encode_each(&mut encoder, [(None, &*metrics.directory)].into_iter())?;
        }
        for family in COMPRESSOR {
            family.encode_each(&mut encoder, [(None, &*metrics.compression)].into_iter())?;
        }
        for family in PUSH {
            family.encode_each(&mut encoder, [(None, &*metrics.push)].into_iter())?;
        }
        for family in DAEMON {
            family.encode_each(&mut encoder, [(None, metrics)].into_iter())?;
        }
        for family in PROCESS {
            family.encode_each(&mut encoder, [(None, &now)].into_iter())?;
        }
        Ok(())
    }
}

impl<T: 'static> MetricFamily<T> {
    /// Encodes one metric per item.
    fn encode_each<'a>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        each: impl Iterator<Item = (Labels<'a>, &'a T)>,
    ) -> fmt::Result {
        let kind = if self.is_counter { MetricType::Counter } else { MetricType::Gauge };
        let mut metric = descriptor(encoder, (self.name, self.help), kind)?;
        for (labels, of) in each {
            let value = (self.value)(of);
            match labels {
                Some(label) => line(&mut metric.encode_family(&[label])?, self.is_counter, value)?,
                None => line(&mut metric, self.is_counter, value)?,
            }
        }
        Ok(())
    }
}

/// Begins a metric family. The library appends the unit to the name.
fn descriptor<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    (name, help): (&'static str, &str),
    kind: MetricType,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    let units = [("_seconds", &Unit::Seconds), ("_bytes", &Unit::Bytes)];
    let with_unit = units.into_iter().find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, unit)));
    let (name, unit) = with_unit.map_or((name, None), |(name, unit)| (name, Some(unit)));
    encoder.encode_descriptor(name, help, unit, kind)
}

fn line(metric: &mut MetricEncoder<'_>, is_counter: bool, value: MetricValue) -> fmt::Result {
    let no_exemplar = None::<&Exemplar<NoLabelSet, f64>>;
    match (value, is_counter) {
        (MetricValue::Integer(value), true) => metric.encode_counter(&value, no_exemplar),
        (MetricValue::Integer(value), false) => metric.encode_gauge(&value),
        (MetricValue::Float(value), true) => metric.encode_counter(&value, no_exemplar),
        (MetricValue::Float(value), false) => metric.encode_gauge(&value),
    }
}

fn histogram<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    named: (&'static str, &str),
    each: impl Iterator<Item = (Labels<'a>, Distribution)>,
) -> fmt::Result {
    let mut metric = descriptor(encoder, named, MetricType::Histogram)?;
    for (labels, distribution) in each {
        let bounds = BUCKET_BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(distribution.counts).collect();
        let count = distribution.counts.iter().sum();
        let sum = seconds(distribution.sum_ns);
        match labels {
            Some(label) => {
                metric.encode_family(&[label])?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
            None => metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?,
        }
    }
    Ok(())
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
