//! All counters as Prometheus reads them: `OpenMetrics` text, or the older text format for who knows no other.
//!
//! One table a subject: name, help, unit, and where the number is. To add a metric is to add a line, and one to
//! docs/OPERATIONS.md.

use std::fmt::{self, Write};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use super::families::{
    AGENT, DIRECTORY, Family, GROUPS, LATENCIES, Number, PROCESS, RECORDER, SEALER, SOURCE_LATENCIES, SOURCES,
};
use crate::metrics::{BOUNDS_NS, Distribution, Metrics};
use crate::os::clock::{ClockReading, NS_PER_S};
use crate::os::process_usage::ProcessUsage;

/// In which format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus text, version 0.0.4.
    Prometheus,
}

impl Format {
    /// As a client's `Accept` asks: the older one only where it names that and not the newer one.
    pub(super) fn accepted(accept: &str) -> Self {
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

/// Tells the metrics of a run.
#[derive(Debug)]
pub(super) struct Exposition {
    registry: Registry,
}

/// What is the same in every answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLabels {
    /// 16 hexadecimal digits.
    pub run_id: String,
    /// When the run began, as the wall clock said, in nanoseconds since 1970.
    pub start_wall_ns: i64,
}

impl Exposition {
    pub(super) fn new(metrics: Arc<Metrics>, run: RunLabels) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Everything { metrics, run }));
        Self { registry }
    }

    /// All metrics as they are now.
    pub(super) fn text(&self, format: Format) -> String {
        let mut text = String::new();
        // Writing to memory does not fail.
        let _infallible = encode(&mut text, &self.registry);
        match format {
            Format::OpenMetrics => text,
            Format::Prometheus => older(&text),
        }
    }
}

#[derive(Debug)]
struct Everything {
    metrics: Arc<Metrics>,
    run: RunLabels,
}

/// What the labels of a line are made of: none, or one.
type Labels<'a> = Option<(&'static str, &'a str)>;

impl Collector for Everything {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &*self.metrics;
        let build = [("version", env!("CARGO_PKG_VERSION")), ("run_id", self.run.run_id.as_str())];
        let help = "Always 1; which version records, and the run's id as in the names of its segments.";
        encoder.encode_descriptor("flatcap_build", help, None, MetricType::Info)?.encode_info(&build)?;
        let current = metrics.current_sources();
        let sources = || current.iter().map(|(_, source)| (Some(("source", source.name.as_str())), *source));
        for family in SOURCES {
            family.encode_each(&mut encoder, sources())?;
        }
        for family in SOURCE_LATENCIES {
            let each = sources().map(|(labels, source)| (labels, (family.of)(source).distribution()));
            histogram(&mut encoder, (family.name, family.help), each)?;
        }
        for family in GROUPS {
            let groups = metrics.groups.iter().map(|group| (Some(("group", group.name)), &**group));
            family.encode_each(&mut encoder, groups)?;
        }
        for family in LATENCIES {
            let distribution = (family.of)(&metrics.recorder).distribution();
            histogram(&mut encoder, (family.name, family.help), [(None, distribution)].into_iter())?;
        }
        // Where /proc cannot be read there are zeros.
        let usage = ProcessUsage::now().unwrap_or_default();
        let now = Moment { usage, start_wall_ns: self.run.start_wall_ns };
        for family in RECORDER {
            family.encode_each(&mut encoder, [(None, &metrics.recorder)].into_iter())?;
        }
        for family in DIRECTORY {
            family.encode_each(&mut encoder, [(None, &*metrics.directory)].into_iter())?;
        }
        for family in SEALER {
            family.encode_each(&mut encoder, [(None, &*metrics.sealer)].into_iter())?;
        }
        for family in AGENT {
            family.encode_each(&mut encoder, [(None, metrics)].into_iter())?;
        }
        for family in PROCESS {
            family.encode_each(&mut encoder, [(None, &now)].into_iter())?;
        }
        Ok(())
    }
}

/// What the metrics of the process are read from.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) usage: ProcessUsage,
    pub(super) start_wall_ns: i64,
}

impl<T: 'static> Family<T> {
    /// One line for each of these.
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

/// Begins a metric. The library writes the unit behind the name by itself.
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

fn line(metric: &mut MetricEncoder<'_>, is_counter: bool, value: Number) -> fmt::Result {
    let no_exemplar = None::<&Exemplar<NoLabelSet, f64>>;
    match (value, is_counter) {
        (Number::Whole(value), true) => metric.encode_counter(&value, no_exemplar),
        (Number::Whole(value), false) => metric.encode_gauge(&value),
        (Number::Real(value), true) => metric.encode_counter(&value, no_exemplar),
        (Number::Real(value), false) => metric.encode_gauge(&value),
    }
}

fn histogram<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    named: (&'static str, &str),
    each: impl Iterator<Item = (Labels<'a>, Distribution)>,
) -> fmt::Result {
    let mut metric = descriptor(encoder, named, MetricType::Histogram)?;
    for (labels, distribution) in each {
        let bounds = BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
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

/// Nanoseconds as the seconds that Prometheus wants: exact to the nanosecond for a hundred days, to the microsecond beyond.
#[allow(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are a hundred days")]
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Wall nanoseconds as seconds since 1970, to a quarter of a microsecond these days.
#[allow(clippy::cast_precision_loss, reason = "whole seconds apart, so that the fraction is rounded once")]
pub(super) fn wall_seconds(ns: i64) -> f64 {
    ns.div_euclid(1_000_000_000) as f64 + ns.rem_euclid(1_000_000_000) as f64 / 1e9
}

/// Seconds since 1970, now.
pub(super) fn now_s() -> u64 {
    u64::try_from(ClockReading::now().wall_ns / NS_PER_S.cast_signed()).unwrap_or_default()
}

/// `OpenMetrics` text in the format before it: no units, no end, no info; a counter's family has the name of its lines.
fn older(text: &str) -> String {
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
    use super::*;
    use crate::metrics::{GroupMetrics, Interval, SourceMetrics};

    fn exposition() -> (Exposition, Arc<Metrics>) {
        let sources =
            [SourceMetrics::new("cpu".to_owned(), 10_000_000), SourceMetrics::new("disk".to_owned(), 7)];
        let groups = [Arc::new(GroupMetrics::new("fast", 0))];
        let metrics = Arc::new(Metrics::new(sources, 2, Box::new(groups)));
        let run =
            RunLabels { run_id: "00000000000000af".to_owned(), start_wall_ns: 1_700_000_000_250_000_000 };
        (Exposition::new(Arc::clone(&metrics), run), metrics)
    }

    // Goal: the text says what was counted, by the conventions: units, suffixes, labels, cumulative buckets, an end. Method: known
    // counts, and the lines for them.
    #[test]
    fn what_is_counted_is_told() {
        let (exposition, metrics) = exposition();
        metrics.sources.get(0).unwrap().begun.set(42);
        metrics.sources.get(1).unwrap().lost.set(3);
        metrics.groups[0].waited_ns.set(1_500_000_000);
        let mut interval = Interval::default();
        for ns in [900, 900, 2_000_000, 30_000_000_000] {
            interval.record(ns);
        }
        metrics.sources.get(0).unwrap().lateness.publish(&interval);
        let text = exposition.text(Format::OpenMetrics);
        for line in [
            "# TYPE flatcap_source_begun counter",
            "flatcap_source_begun_total{source=\"cpu\"} 42",
            "flatcap_source_lost_total{source=\"disk\"} 3",
            "flatcap_source_lost_total{source=\"cpu\"} 0",
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

    // Goal: the older format has no word that it does not know, and loses no line. Method: both texts.
    #[test]
    fn the_older_format_has_the_same_lines() {
        let (exposition, _metrics) = exposition();
        let (newer, older) = (exposition.text(Format::OpenMetrics), exposition.text(Format::Prometheus));
        // What the process takes changes between the two.
        let counts = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(counts(&newer), counts(&older));
        assert!(
            older.contains("# TYPE flatcap_source_begun_total counter\nflatcap_source_begun_total{"),
            "{older}"
        );
        assert!(older.contains("# TYPE flatcap_build_info gauge\nflatcap_build_info{"), "{older}");
        assert!(older.contains("# HELP flatcap_source_begun_total Readings"), "{older}");
        assert!(!older.contains("EOF") && !older.contains("UNIT"));
    }

    // Goal: who asks for the older format alone gets it. Method: what clients send.
    #[test]
    fn the_format_is_the_one_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
        for (accept, format) in [
            ("", Format::OpenMetrics),
            ("*/*", Format::OpenMetrics),
            (prometheus, Format::OpenMetrics),
            ("text/plain;version=0.0.4", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
