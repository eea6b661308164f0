//! Series found in a text, that is, values that are identified by a name and labels. Each series is
//! stored as a table of the payload.

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatcap_schemas::host::{FileCounter, FileCounterArgs, FileGauge, FileGaugeArgs};

use super::skipped_values::{SkipReason, SkippedValues};
use crate::NameFilter;

/// Maximum number of series in one sample.
const SERIES_MAX: usize = 4096;
/// Maximum length of a name, and of labels, in bytes. The longest label sets of Kubernetes have
/// about 600 bytes. The series of a sample always fit into the default `frame_max`.
const IDENTITY_BYTES_MAX: usize = 1024;

/// A series as it is found in a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FoundSeries<'t> {
    pub(super) kind: SeriesKind,
    pub(super) name: &'t str,
    /// The labels in the order of their names, such as `code="200",method="get"`.
    pub(super) labels: &'t str,
    /// The value, or NaN if the text has no finite number.
    pub(super) value: f64,
}

/// The kind of a series, which decides whether readers compute its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeriesKind {
    /// The value of the series only grows.
    Counter,
    /// A value that may rise and fall, or whose text does not state its type.
    Gauge,
}

/// Writes series into a payload and keeps their offsets until the next payload. All sources with
/// series use the tables of the schema `file`, because their schemas share the layout of these
/// tables.
#[derive(Debug, Default)]
pub(super) struct NamedSeries {
    filter: NameFilter,
    found: usize, // number of series, wanted or not
    last: LastName,
    no_labels: Option<WIPOffset<&'static str>>,
    counters: Vec<WIPOffset<FileCounter<'static>>>, // reused
    gauges: Vec<WIPOffset<FileGauge<'static>>>,     // reused
}

/// The name of the previous series. The series of a metric follow each other, so the name of the
/// metric is written and compared with the filter only one time.
#[derive(Debug, Default)]
struct LastName {
    name: String, // reused; empty before the first one
    is_wanted: bool,
    offset: Option<WIPOffset<&'static str>>,
}

impl NamedSeries {
    /// Creates an empty list. The filter selects names.
    pub(super) fn new(filter: NameFilter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Forgets all series, and the offsets of their names in the payload.
    pub(super) fn clear(&mut self) {
        self.found = 0;
        self.last.name.clear();
        self.last.offset = None;
        self.no_labels = None;
        self.counters.clear();
        self.gauges.clear();
    }

    /// Writes a series if the filter selects it and the sample has space for it.
    pub(super) fn add(
        &mut self,
        builder: &mut FlatBufferBuilder<'static>,
        found: FoundSeries<'_>,
        skipped: &mut SkippedValues,
    ) {
        self.found += 1;
        if self.last.name != found.name || found.name.is_empty() {
            self.last.name.clear();
            self.last.name.push_str(found.name);
            self.last.is_wanted = self.filter.matches(found.name.as_bytes());
            self.last.offset = None;
        }
        if !self.last.is_wanted {
            return;
        }
        let bytes_max = IDENTITY_BYTES_MAX;
        if found.name.is_empty() || found.name.len() > bytes_max {
            return skipped.add(SkipReason::Name { bytes_max }, found.name.as_bytes());
        }
        if found.labels.len() > bytes_max {
            return skipped.add(SkipReason::Labels { bytes_max }, found.name.as_bytes());
        }
        if self.counters.len() + self.gauges.len() == SERIES_MAX {
            return skipped.add(SkipReason::TooMany { values_max: SERIES_MAX }, found.name.as_bytes());
        }
        if found.value.is_nan() {
            skipped.add(SkipReason::NotFinite, found.name.as_bytes());
        }
        let name = *self.last.offset.get_or_insert_with(|| builder.create_string(found.name));
        let labels = match found.labels {
            "" => *self.no_labels.get_or_insert_with(|| builder.create_string("")),
            labels => builder.create_string(labels),
        };
        let (name, labels, value) = (Some(name), Some(labels), found.value);
        match found.kind {
            SeriesKind::Counter => {
                let counter = FileCounterArgs { name, labels, value };
                self.counters.push(FileCounter::create(builder, &counter));
            }
            SeriesKind::Gauge => {
                let gauge = FileGaugeArgs { name, labels, value };
                self.gauges.push(FileGauge::create(builder, &gauge));
            }
        }
    }

    /// Returns the number of series that the text contains, including the series that the filter
    /// rejects.
    pub(super) fn found(&self) -> usize {
        self.found
    }

    /// Returns the counters, in the order of the text.
    pub(super) fn counters(&self) -> &[WIPOffset<FileCounter<'static>>] {
        &self.counters
    }

    /// Returns the gauges, in the order of the text.
    pub(super) fn gauges(&self) -> &[WIPOffset<FileGauge<'static>>] {
        &self.gauges
    }
}
