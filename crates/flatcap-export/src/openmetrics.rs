//! Exports to `OpenMetrics`. Each numeric field becomes a metric family whose values have
//! timestamps. Prometheus accepts this text to create its blocks. Recorded Prometheus metrics keep
//! their names and labels.
//!
//! The format requires that all values of a series are adjacent in the text. Therefore each source
//! is read separately. It is read several times if its series have more values than fit into
//! memory. A single series that does not fit into memory is written while it is read. The format
//! cannot express that a series has ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use flatcap_arrow::{RecordedItem, SampleBatch, SampleReader};
use flatcap_format::replay::RecordedHosts;
use flatcap_format::schema::ColumnType;
use flatcap_format::segment::{Gap, list};
use flatcap_query::metric::{HostLabels, Metric, MetricSeries, element_factor, metrics};
use flatcap_query::{ColumnInfo, CommonUnit, ElementName, FieldPath, Query, Recording};

use crate::asked_fields::is_below;
use crate::error::ColumnarError;
use crate::request::{ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;
use crate::watch::{ColumnarEvent, ExportWatch};

/// Default step between two values of a series, in nanoseconds.
const STEP_NS: u64 = 1_000_000_000;
/// Minimum step in nanoseconds, because Prometheus stores times in milliseconds.
const STEP_NS_MIN: u64 = 1_000_000;
/// Maximum number of values in memory, which take 48 MiB. Further series are read in a later pass.
const VALUES_MAX: usize = 2 << 20;

/// Writes the selected fields. Only the first value of each series in each step is written. With a
/// path, the text becomes a file, which gets its name when it is complete. Without a path, the text
/// is written to standard output.
///
/// # Errors
/// Any [`ColumnarError`].
pub(crate) fn to_openmetrics(
    request: &ColumnarRequest,
    path: Option<&Path>,
    watch: &mut ExportWatch<'_>,
) -> Result<ColumnarReport, ColumnarError> {
    let step_ns = request.step_ns.unwrap_or(STEP_NS);
    if step_ns < STEP_NS_MIN {
        return Err(ColumnarError::Usage(format!(
            "--every: {step_ns} ns is shorter than 1ms, the resolution of times in Prometheus"
        )));
    }
    let recording = Recording::open_with_added_sources(&request.paths)?;
    // This check is made first, so that an unknown field is refused before anything is written.
    let checked =
        Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    drop(recording.query(&checked)?);
    let mut export = OpenMetricsExport {
        request,
        recording: &recording,
        hosts: RecordedHosts::of(&list(&request.paths)?),
        step_ns,
        out: SingleOutput::create(path, request.should_replace)?,
        family: None,
        lost: BTreeMap::new(),
        report: ColumnarReport::default(),
        values: 0,
        left_out: 0,
    };
    // All lines of a family must be together, so sources that have metrics with the same names are
    // read together.
    let (foreign, own): (Vec<Metric>, Vec<Metric>) =
        wanted_metrics(&recording, request)?.into_iter().partition(|metric| metric.has_named_elements);
    let sources = own.chunk_by(|one, next| one.source == next.source);
    for metrics in sources.chain([foreign.as_slice()]).filter(|metrics| !metrics.is_empty()) {
        export.add_metrics(metrics, watch)?;
    }
    watch.check_samples(export.values, request)?;
    export.complete()
}

/// Returns the metrics of the requested fields.
fn wanted_metrics(recording: &Recording, request: &ColumnarRequest) -> Result<Vec<Metric>, ColumnarError> {
    let asked: Vec<&str> = request.fields.iter().map(FieldPath::as_str).collect();
    let sources = &request.filter.sources;
    // The samples of computed sources repeat another source.
    let of_kind = |is_computed: bool| {
        let sources = recording.sources().iter().filter(move |source| source.is_computed == is_computed);
        sources.map(|source| &*source.name).collect::<BTreeSet<&str>>()
    };
    let computed = &of_kind(true) - &of_kind(false);
    let is_wanted = |metric: &Metric| {
        let path = metric.path();
        let is_asked = asked.is_empty() || asked.iter().any(|asked| is_below(&path, asked));
        // Fields that only identify an element or state its start are not measurements, so they are
        // left out unless they are requested.
        let is_number = metric.is_measured() || !asked.is_empty();
        let is_repeated =
            computed.contains(&*metric.source) && asked.is_empty() && !sources.contains(&metric.source);
        is_asked && is_number && !is_repeated && (sources.is_empty() || sources.contains(&metric.source))
    };
    let mut all = metrics(recording);
    all.retain(is_wanted);
    if all.is_empty() {
        return Err(ColumnarError::Usage(
            "none of these fields is a number: openmetrics has numbers alone; flatcap fields lists them"
                .to_owned(),
        ));
    }
    Ok(all)
}

/// The output text.
struct OpenMetricsExport<'r> {
    request: &'r ColumnarRequest,
    recording: &'r Recording,
    hosts: RecordedHosts,
    step_ns: u64,
    out: SingleOutput,
    /// The family that is being written.
    family: Option<String>,
    /// The losses of each source and host. Each loss is a time and a number of samples. One entry
    /// has the time of the first sample and the count 0.
    lost: BTreeMap<(String, String), Vec<(i64, u64)>>,
    report: ColumnarReport,
    values: u64,
    /// Number of values that were dropped because later values of their series had already been
    /// written.
    left_out: u64,
}

/// A value of a series: its time in milliseconds, the index of its step, and the value itself.
type SeriesValue = (i64, i64, f64);

/// The sort key of a series. The key consists of the index of the metric, the name and the labels.
/// The index is 0 for recorded Prometheus metrics, whose elements have their own names. The order
/// of the keys keeps the series of a family together.
type SeriesKey = (usize, String, String);

/// The values of fields, grouped by series.
#[derive(Default)]
struct HeldSeries {
    values_max: usize,
    /// For each series, the index of the metric and the index of the values in `values`. The index
    /// of the values is `None` for a series that is postponed to another pass.
    known: BTreeMap<SeriesKey, (usize, Option<usize>)>,
    /// The values of each series, by index. An entry is `None` for a series that was postponed to a
    /// later pass after its first values.
    values: Vec<Option<Vec<SeriesValue>>>,
    /// Number of values in memory, and number of series with values in memory.
    held: usize,
    open: usize,
    /// Whether series were postponed to another pass.
    is_incomplete: bool,
    /// The index of the series that does not fit into memory even alone, and the last step of this
    /// series that was removed and written.
    taken: Option<(usize, i64)>,
    /// Number of values of that series that were dropped because an earlier pass had already
    /// removed later steps.
    left_out: u64,
}

impl OpenMetricsExport<'_> {
    /// Writes the families of some metrics.
    fn add_metrics(&mut self, metrics: &[Metric], watch: &mut ExportWatch<'_>) -> Result<(), ColumnarError> {
        let mut done: BTreeSet<SeriesKey> = BTreeSet::new();
        let mut is_first = true;
        loop {
            let found = self.read(metrics, (&done, is_first), watch)?;
            is_first = false;
            let HeldSeries { known, mut values, is_incomplete, left_out, .. } = found;
            self.left_out += left_out;
            let before = done.len();
            let mut series: Vec<(SeriesKey, usize, usize)> =
                known.into_iter().filter_map(|(key, (metric, place))| Some((key, metric, place?))).collect();
            // If an earlier pass began a family, this family continues first.
            series.sort_by_key(|((_, name, _), metric, _)| {
                let family = metrics.get(*metric).map(|metric| family_of(metric, name).0);
                family != self.family.as_deref()
            });
            for (key, metric, place) in series {
                let values = values.get_mut(place).and_then(Option::take).unwrap_or_default();
                if let Some(metric) = metrics.get(metric) {
                    self.put_series((metric, &key.1), &key.2, &in_order(values))?;
                }
                done.insert(key);
            }
            if !is_incomplete || done.len() == before {
                return Ok(());
            }
        }
    }

    /// Reads the values of fields. Series that are already complete are skipped.
    fn read(
        &mut self,
        metrics: &[Metric],
        (done, takes_gaps): (&BTreeSet<SeriesKey>, bool),
        watch: &mut ExportWatch<'_>,
    ) -> Result<HeldSeries, ColumnarError> {
        let paths = metrics.iter().map(Metric::field_path);
        let fields = paths
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error: flatcap_query::PathError| ColumnarError::Fields(error.into()))?;
        let mut filter = self.request.filter.clone();
        filter.sources = metrics.iter().map(|metric| metric.source.clone()).collect();
        let query = Query { fields, filter, ..Query::default() };
        let mut reader = SampleReader::by_source(self.recording.query(&query)?);
        let (mut found, mut host) = (HeldSeries::new(VALUES_MAX), HostLabels::default());
        // Gaps come before the samples around them, so their wall time is not yet known. Therefore
        // they are held until the first sample.
        let (mut host_name, mut gaps, mut offset_ns) = (String::new(), Vec::new(), None);
        while let Some(item) = reader.next()? {
            match item {
                RecordedItem::Run(mut run) => {
                    // Hosts with the same name must have separate series.
                    let name = self.hosts.name_of(run.run_id);
                    if !name.is_empty() {
                        name.clone_into(&mut run.host.name);
                    }
                    self.count_lost(&host_name, offset_ns, std::mem::take(&mut gaps));
                    (host, host_name) = (HostLabels::of(&run), run.host.name);
                    offset_ns = None;
                }
                RecordedItem::Samples(samples) => {
                    let times = samples.times();
                    let source = samples.tables.first().and_then(|batch| reader.table(batch.table));
                    if takes_gaps && let (Some(first_ns), Some(table)) = (times.wall_ns.first(), source) {
                        let key = (table.source.to_string(), host_name.clone());
                        let counts = self.lost.entry(key).or_default();
                        if counts.iter().all(|(_, lost)| *lost > 0) {
                            counts.push((*first_ns, 0));
                        }
                        let first_offset_ns = offset_of(times.wall_ns.first(), times.mono_ns.first());
                        self.count_lost(&host_name, first_offset_ns, std::mem::take(&mut gaps));
                    }
                    offset_ns = offset_of(times.wall_ns.last(), times.mono_ns.last());
                    found.add((&samples, metrics), &reader, (&host, self.step_ns, done));
                    if let Some(((_, name, labels), metric, values)) = found.take_overfull()
                        && let Some(metric) = metrics.get(metric)
                    {
                        self.put_series((metric, &name), &labels, &values)?;
                    }
                    watch.report(ColumnarEvent::after(&samples))?;
                }
                RecordedItem::Gap(source, gap) => {
                    if takes_gaps && !gap.is_thinned() {
                        gaps.push((source, gap));
                    }
                }
                RecordedItem::Marker(_) => {}
                RecordedItem::Notice(notice) => watch.report(ColumnarEvent::Notice(notice))?,
            }
        }
        // Each file is read again for each source, so its problems are reported only the first
        // time.
        watch.silence_notices();
        self.count_lost(&host_name, offset_ns, gaps);
        let summary = reader.summary();
        let undecodable = summary.undecodable + summary.malformed_schemas;
        self.report.undecodable = self.report.undecodable.max(undecodable);
        self.report.has_unnamed_elements |= summary.has_more_elements;
        Ok(found)
    }

    /// Adds lost samples of a run. `offset_ns` is wall time minus monotonic time.
    fn count_lost(&mut self, host: &str, offset_ns: Option<i64>, gaps: Vec<(String, Gap)>) {
        let Some(offset_ns) = offset_ns else { return };
        for (source, gap) in gaps {
            // The pair with the count 0 is missing for a source that has no samples yet, because
            // only its losses are known.
            let counts = self.lost.entry((source, host.to_owned())).or_default();
            // `before_mono_ns` is 0 if no sample follows the gap.
            let mono_ns = if gap.before_mono_ns > 0 { gap.before_mono_ns } else { gap.after_mono_ns };
            counts.push((offset_ns.wrapping_add_unsigned(mono_ns), gap.count));
        }
    }

    /// Writes the header lines of a family, if this family is not the current one.
    fn begin_family(&mut self, metric: &Metric, name: &str) -> Result<(), ColumnarError> {
        let (family, kind) = family_of(metric, name);
        if self.family.as_deref() == Some(family) {
            return Ok(());
        }
        self.family = Some(family.to_owned());
        let is_own = family == metric.family;
        let meaning = metric.field.meaning.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut head = format!("# TYPE {family} {kind}\n");
        // Writing to a string cannot fail.
        if let Some(unit) = metric.unit.filter(|_| is_own) {
            let _infallible = writeln!(head, "# UNIT {family} {unit}");
        }
        if !meaning.is_empty() && is_own {
            let _infallible = writeln!(head, "# HELP {family} {}", escaped(&meaning));
        }
        self.out.put(head.as_bytes())
    }

    /// Writes values of a series.
    fn put_series(
        &mut self,
        (metric, name): (&Metric, &str),
        labels: &str,
        values: &[SeriesValue],
    ) -> Result<(), ColumnarError> {
        self.begin_family(metric, name)?;
        let mut text = String::new();
        for (wall_ms, _, value) in values {
            text.clear();
            put_line(&mut text, name, labels, *value, *wall_ms);
            self.out.put(text.as_bytes())?;
        }
        self.values += values.len() as u64;
        Ok(())
    }

    fn complete(mut self) -> Result<ColumnarReport, ColumnarError> {
        let mut text = String::from(
            "# TYPE flatcap_lost counter\n# HELP flatcap_lost Samples that the recording reports as lost.\n",
        );
        for ((source, host), counts) in &self.lost {
            let labels = labels_text([("host", host.as_str()), ("source", source.as_str())]);
            for (wall_ms, lost) in totals(counts) {
                #[expect(clippy::cast_precision_loss, reason = "values of Prometheus have 53 bits")]
                put_line(&mut text, "flatcap_lost_total", &labels, lost as f64, wall_ms);
            }
        }
        text.push_str("# EOF\n");
        self.out.put(text.as_bytes())?;
        let files = self.out.complete(self.request.should_replace, (None, self.values))?;
        if self.left_out > 0 {
            self.report.remarks.push(format!(
                "{} values are left out: they came after later ones of their series, of which \
                 more than {VALUES_MAX} are not sorted; a longer --every makes them fewer",
                self.left_out
            ));
        }
        Ok(ColumnarReport { files, ..self.report })
    }
}

impl HeldSeries {
    /// Creates an empty set of series that holds at most `values_max` values.
    fn new(values_max: usize) -> Self {
        Self { values_max, ..Self::default() }
    }

    /// Adds the values of samples. Only the first value of each series and step is added.
    fn add(
        &mut self,
        (samples, metrics): (&SampleBatch, &[Metric]),
        reader: &SampleReader,
        (host, step_ns, done): (&HostLabels, u64, &BTreeSet<SeriesKey>),
    ) {
        for batch in &samples.tables {
            let Some(table) = reader.table(batch.table) else { continue };
            let columns = table.columns.iter().zip(&batch.columns);
            for (info, values) in columns.filter(|(info, _)| is_number(info)) {
                let metric = metrics.get(info.order).filter(|metric| metric.has_values_of(table, info));
                let Some(metric) = metric else { continue };
                let unit = CommonUnit::of(info.unit.as_deref(), false);
                // Caches the place of each element's series, because it is the same for all rows of
                // a batch.
                let mut places: HashMap<Option<ElementName>, Option<usize>> = HashMap::new();
                for row in 0..batch.rows() {
                    let Some(wall_ns) = batch.times.wall_ns.get(batch.sample(row)).copied() else { continue };
                    let Some(value) = values.number(row) else { continue };
                    let step = i128::from(wall_ns).div_euclid(i128::from(step_ns));
                    let step = i64::try_from(step).unwrap_or_default();
                    let element = batch.name(row);
                    let place = *places.entry(element).or_insert_with(|| {
                        let of = (host, table);
                        let MetricSeries { name, labels } = metric.series(of, element, reader.elements());
                        let labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
                        let order = if metric.has_named_elements { 0 } else { info.order };
                        let key = (order, name, labels_text(labels));
                        (!done.contains(&key)).then(|| self.place(key, info.order)).flatten()
                    });
                    let factor = element_factor(info.unit.as_deref(), element, reader.elements());
                    if let (Some(place), Some(factor)) = (place, factor) {
                        let value = unit.convert(value) * factor;
                        self.push(place, (wall_ns.div_euclid(1_000_000), step, value));
                    }
                }
            }
        }
    }

    /// Returns the place of a series, or `None` if the series is postponed to another pass.
    fn place(&mut self, key: SeriesKey, metric: usize) -> Option<usize> {
        if let Some((_, place)) = self.known.get(&key) {
            return *place;
        }
        // The values of a series must be together, and so must the series of a family. Therefore,
        // if a series is left for another pass, all later series are left too.
        let is_left = |(_, place): &(usize, Option<usize>)| place.is_none();
        let place = if self.taken.is_some()
            || self.known.range(..&key).next_back().is_some_and(|(_, at)| is_left(at))
        {
            self.is_incomplete = true;
            None
        } else {
            self.values.push(Some(Vec::new()));
            self.open += 1;
            Some(self.values.len() - 1)
        };
        self.known.insert(key, (metric, place));
        place
    }

    fn push(&mut self, place: usize, value: SeriesValue) {
        let Some(Some(values)) = self.values.get_mut(place) else { return };
        let (_, step, _) = value;
        if let Some((_, taken_step)) = self.taken.filter(|(_, taken_step)| step <= *taken_step) {
            self.left_out += u64::from(step < taken_step);
            return;
        }
        if values.last().is_some_and(|(_, last_step, _)| *last_step == step) {
            return;
        }
        values.push(value);
        self.held += 1;
        while self.held > self.values_max && self.open > 1 {
            let last = self.known.iter_mut().rev().find_map(|(_, (_, place))| place.take());
            let Some(values) = last.and_then(|last| self.values.get_mut(last)?.take()) else { return };
            self.held -= values.len();
            self.open -= 1;
            self.is_incomplete = true;
        }
    }

    /// If a single series fills the memory, removes and returns the values that this series has so
    /// far.
    fn take_overfull(&mut self) -> Option<(SeriesKey, usize, Vec<SeriesValue>)> {
        if self.held < self.values_max || self.open != 1 {
            return None;
        }
        let (key, (metric, place)) = self.known.iter().find(|(_, (_, place))| place.is_some())?;
        let (key, metric, place) = (key.clone(), *metric, (*place)?);
        let values = in_order(std::mem::take(self.values.get_mut(place)?.as_mut()?));
        self.held = 0;
        let step = values.last().map(|(_, step, _)| *step).max(self.taken.map(|(_, step)| step))?;
        self.taken = Some((place, step));
        Some((key, metric, values))
    }
}

/// Returns the name and the type of the family to which samples with this name belong. In
/// `OpenMetrics`, the name of every counter ends with `_total`. So a counter without this ending
/// has the type `unknown`.
fn family_of<'m>(metric: &'m Metric, name: &'m str) -> (&'m str, &'static str) {
    let stem = name.strip_suffix("_total");
    match (metric.is_counter(), stem) {
        (true, Some(family)) => (family, "counter"),
        (true, None) => (name, "unknown"),
        (false, _) => (name, "gauge"),
    }
}

/// Returns values in the order of time. Only the first value of each step is kept. Sorting is
/// needed because runs may be read in another order, and because a clock may be set back.
/// Prometheus accepts only one value per series and millisecond.
fn in_order(mut values: Vec<SeriesValue>) -> Vec<SeriesValue> {
    if !values.is_sorted_by_key(|(wall_ms, ..)| *wall_ms) {
        values.sort_by_key(|(wall_ms, ..)| *wall_ms);
    }
    values.dedup_by_key(|(_, step, _)| *step);
    values.dedup_by_key(|(wall_ms, ..)| *wall_ms);
    values
}

/// Returns the total number of samples lost up to each millisecond. `counts` contains pairs of a
/// time and a count.
fn totals(counts: &[(i64, u64)]) -> BTreeMap<i64, u64> {
    let mut totals = BTreeMap::<i64, u64>::new();
    for (wall_ns, count) in counts {
        let lost = totals.entry(wall_ns.div_euclid(1_000_000)).or_default();
        *lost = lost.saturating_add(*count);
    }
    let mut total = 0_u64;
    for lost in totals.values_mut() {
        total = total.saturating_add(*lost);
        *lost = total;
    }
    totals
}

/// Returns wall time minus monotonic time.
fn offset_of(wall_ns: Option<&i64>, mono_ns: Option<&u64>) -> Option<i64> {
    Some(wall_ns?.wrapping_sub_unsigned(*mono_ns?))
}

fn is_number(info: &ColumnInfo) -> bool {
    info.column_type != ColumnType::Text && !info.is_identity
}

/// Returns labels as a string.
fn labels_text<'l>(labels: impl IntoIterator<Item = (&'l str, &'l str)>) -> String {
    let mut text = String::new();
    for (at, (name, value)) in labels.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{comma}{name}=\"{}\"", escaped(value));
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn put_line(text: &mut String, name: &str, labels: &str, value: f64, wall_ms: i64) {
    // Before 1970, the fraction counts down too, as in -3.250 s.
    let (sign, ms) = (if wall_ms < 0 { "-" } else { "" }, wall_ms.unsigned_abs());
    let (seconds, ms) = (ms / 1000, ms % 1000);
    // Writing to a string cannot fail.
    let _infallible = writeln!(text, "{name}{{{labels}}} {value} {sign}{seconds}.{ms:03}");
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the values of labels are escaped.
    #[test]
    fn labels_are_escaped() {
        assert_eq!(
            labels_text([("host", "a\"b\\c\n"), ("role", "\u{e4}")]),
            "host=\"a\\\"b\\\\c\\n\",role=\"\u{e4}\""
        );
    }

    // Proves that times before 1970 are printed as negative numbers, exact to the millisecond.
    #[test]
    fn times_before_1970_are_negative() {
        let mut text = String::new();
        for wall_ms in [-3250, -1, 0, 1, 61_500, i64::MIN] {
            put_line(&mut text, "x", "", 1.0, wall_ms);
        }
        let times: Vec<&str> = text.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(times, ["-3.250", "-0.001", "0.000", "0.001", "61.500", "-9223372036854775.808"]);
    }

    fn key(label: &str) -> SeriesKey {
        (0, "x".to_owned(), label.to_owned())
    }

    // Proves that series that do not fit are left for another pass, beginning with the last series.
    // Also proves that all series after a postponed series are postponed too.
    #[test]
    fn series_that_do_not_fit_are_read_later() {
        let mut found = HeldSeries::new(5);
        let b = found.place(key("b"), 0).unwrap();
        for step in 0..5 {
            found.push(b, (step, step, 1.0));
        }
        assert!(!found.is_incomplete);
        let a = found.place(key("a"), 0).unwrap();
        found.push(a, (0, 0, 2.0));
        assert_eq!((found.open, found.held, found.is_incomplete), (1, 1, true));
        found.push(b, (5, 5, 1.0));
        assert_eq!((found.held, found.place(key("b"), 0), found.place(key("c"), 0)), (1, None, None));
        assert!(found.place(key("A"), 0).is_some());
    }

    // Proves that a series that does not fit alone is taken out in parts, while other series are
    // left for another pass. Also proves that values that are read too late are counted.
    #[test]
    fn a_long_series_is_taken_in_parts() {
        let mut found = HeldSeries::new(3);
        let a = found.place(key("a"), 0).unwrap();
        let taken = |found: &mut HeldSeries| {
            let (taken, _, values) = found.take_overfull()?;
            assert_eq!(taken, key("a"));
            Some(values.into_iter().map(|(_, step, _)| step).collect::<Vec<_>>())
        };
        for step in [0, 2] {
            found.push(a, (step, step, 1.0));
        }
        assert_eq!(taken(&mut found), None);
        found.push(a, (1, 1, 1.0));
        assert_eq!(taken(&mut found), Some(vec![0, 1, 2]));
        assert_eq!((found.place(key("b"), 0), found.is_incomplete), (None, true));
        for step in [1, 2, 3, 4, 5] {
            found.push(a, (step, step, 1.0));
        }
        assert_eq!(taken(&mut found), Some(vec![3, 4, 5]));
        assert_eq!((found.left_out, found.held), (1, 0));
    }

    // Proves that values are in time order, and that there is one value per step and millisecond,
    // whatever the order in which the values were read.
    #[test]
    fn values_are_in_order() {
        let came = vec![(30, 3, 1.0), (40, 4, 2.0), (10, 1, 3.0), (10, 2, 4.0), (45, 4, 5.0)];
        assert_eq!(in_order(came), [(10, 1, 3.0), (30, 3, 1.0), (40, 4, 2.0)]);
    }

    // Proves that losses add up in the order of time, and that losses of the same millisecond are
    // one value.
    #[test]
    fn losses_add_up() {
        let lost = totals(&[(5_000_000, 0), (9_100_000, 2), (4_000_000, 1), (9_900_000, 3)]);
        assert_eq!(lost.into_iter().collect::<Vec<_>>(), [(4, 1), (5, 1), (9, 6)]);
    }
}
