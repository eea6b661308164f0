//! `OpenMetrics`: a family for each numeric field, with times, as Prometheus takes them for its
//! blocks.
//!
//! The format wants all values of a series together, so each field is read by itself, and several
//! times if its elements have more values than fit into memory. A series that does not fit alone
//! is written while it is read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;

use flatcap_arrow::{RecordedItem, SampleBatch, SampleReader};
use flatcap_format::metric::{HostLabels, Metric, metrics};
use flatcap_format::query::{ColumnInfo, CommonUnit, ElementName, FieldPath, Query, Recording};
use flatcap_format::replay::{Notice, RecordedHosts};
use flatcap_format::schema::ColumnType;
use flatcap_format::segment::{Gap, list};

use crate::error::ColumnarError;
use crate::request::{ColumnarEvent, ColumnarReport, ColumnarRequest};
use crate::single_output::SingleOutput;

/// Step between the values of a series, unless another is asked for.
const STEP_NS: u64 = 1_000_000_000;
/// Shortest step: Prometheus has times in milliseconds.
const STEP_NS_MIN: u64 = 1_000_000;
/// Most values that are held: 48 MiB. Further series are read later.
const VALUES_MAX: usize = 2 << 20;

/// Writes the selected fields: the first value of each series in each step. A file appears at the
/// end; without a path, standard output gets the text. The export stops if `watch` returns false.
///
/// # Errors
/// Any [`ColumnarError`].
pub fn to_openmetrics(
    request: &ColumnarRequest,
    path: Option<&Path>,
    watch: &mut dyn FnMut(ColumnarEvent) -> bool,
) -> Result<ColumnarReport, ColumnarError> {
    let step_ns = request.step_ns.unwrap_or(STEP_NS);
    if step_ns < STEP_NS_MIN {
        return Err(ColumnarError::Usage(format!(
            "--every: {step_ns} ns is shorter than 1ms, the resolution of times in Prometheus"
        )));
    }
    let recording = Recording::open_with_added_sources(&request.paths)?;
    // An unknown field is refused before anything is written.
    let checked =
        Query { fields: request.fields.clone(), filter: request.filter.clone(), ..Query::default() };
    drop(recording.query(&checked)?);
    let mut export = OpenMetricsExport {
        request,
        recording: &recording,
        hosts: RecordedHosts::of(&list(&request.paths)?),
        step_ns,
        out: SingleOutput::create(path, request.should_replace)?,
        begun: BTreeSet::new(),
        family: None,
        lost: BTreeMap::new(),
        report: ColumnarReport::default(),
        values: 0,
        left_out: 0,
        has_read: false,
        is_unreadable: false,
    };
    for metric in wanted_metrics(&recording, request)? {
        if !export.add_metric(&metric, watch)? {
            return Ok(ColumnarReport { is_stopped: true, ..ColumnarReport::default() });
        }
    }
    export.complete()
}

/// Returns the metrics of the fields that were asked for.
fn wanted_metrics(recording: &Recording, request: &ColumnarRequest) -> Result<Vec<Metric>, ColumnarError> {
    let asked: Vec<&str> = request.fields.iter().map(FieldPath::as_str).collect();
    let sources = &request.filter.sources;
    // They repeat another source.
    let computed: BTreeSet<&str> =
        recording.sources().iter().filter(|source| source.is_computed).map(|source| &*source.name).collect();
    let is_wanted = |metric: &Metric| {
        let path = metric.path();
        let is_asked = asked.is_empty() || asked.iter().any(|asked| is_below(&path, asked));
        // What only identifies something, or says since when it is there, is no measurement.
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

/// Returns whether a field is one that was asked for, or below it. Elements that were picked are
/// those of any.
fn is_below(path: &str, asked: &str) -> bool {
    let plain = |path: &str| {
        let mut text = String::new();
        let mut depth = 0_u32;
        for c in path.chars() {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => text.push(c),
                _ => {}
            }
        }
        text
    };
    let (path, asked) = (plain(path), plain(asked));
    path == asked
        || path.strip_prefix(&asked).is_some_and(|rest| rest.starts_with('.'))
        || path.ends_with(&format!(".{asked}"))
}

/// The text that is written.
struct OpenMetricsExport<'r> {
    request: &'r ColumnarRequest,
    recording: &'r Recording,
    hosts: RecordedHosts,
    step_ns: u64,
    out: SingleOutput,
    /// The sources of which there is a family.
    begun: BTreeSet<String>,
    /// The family that is being written.
    family: Option<String>,
    /// The lost samples of each source and host: when, and how many. The first sample is none lost.
    lost: BTreeMap<(String, String), Vec<(i64, u64)>>,
    report: ColumnarReport,
    values: u64,
    /// Values that came too late for their series.
    left_out: u64,
    has_read: bool,
    is_unreadable: bool,
}

/// A value of a series: time in milliseconds, step, and number.
type SeriesValue = (i64, i64, f64);

/// The values of a field by the labels of their series.
struct FieldSeries {
    values_max: usize,
    series: BTreeMap<String, Vec<SeriesValue>>,
    /// In the order in which they came.
    order: Vec<String>,
    held: usize,
    /// Series that are left for another pass.
    later: BTreeSet<String>,
    /// The last step that was taken of the first series, whose values do not fit.
    taken_step: Option<i64>,
    /// Values of this series whose step was taken before.
    left_out: u64,
}

impl OpenMetricsExport<'_> {
    /// Writes the family of a metric. Returns false if `watch` stops the export.
    fn add_metric(
        &mut self,
        metric: &Metric,
        watch: &mut dyn FnMut(ColumnarEvent) -> bool,
    ) -> Result<bool, ColumnarError> {
        let is_first = !self.begun.contains(&metric.source);
        let mut done: BTreeSet<String> = BTreeSet::new();
        loop {
            let Some(found) = self.read(metric, (&done, is_first && done.is_empty()), watch)? else {
                return Ok(false);
            };
            let FieldSeries { series, later, left_out, .. } = found;
            self.left_out += left_out;
            if series.is_empty() {
                return Ok(true);
            }
            for (labels, values) in series {
                self.put_series(metric, &labels, &in_order(values))?;
                done.insert(labels);
            }
            if later.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Reads the values of a field, but for those of the series that are done; none if `watch`
    /// stops the export.
    fn read(
        &mut self,
        metric: &Metric,
        (done, takes_gaps): (&BTreeSet<String>, bool),
        watch: &mut dyn FnMut(ColumnarEvent) -> bool,
    ) -> Result<Option<FieldSeries>, ColumnarError> {
        let source = &*metric.source;
        let path: FieldPath = metric
            .path()
            .parse()
            .map_err(|error: flatcap_format::query::PathError| ColumnarError::Fields(error.into()))?;
        let mut filter = self.request.filter.clone();
        filter.sources = [source.to_owned()].into();
        let query = Query { fields: vec![path], filter, ..Query::default() };
        let mut reader = SampleReader::by_source(self.recording.query(&query)?);
        let (mut found, mut host, mut offset_ns) =
            (FieldSeries::new(VALUES_MAX), HostLabels::default(), None);
        // Each file is read for each field: its problems are reported once.
        let is_first = !std::mem::replace(&mut self.has_read, true);
        // Gaps come before the samples around them, so before the time by the wall clock is known.
        let (mut host_name, mut gaps) = (String::new(), Vec::new());
        while let Some(item) = reader.next()? {
            let event = match item {
                RecordedItem::Run(mut run) => {
                    // Hosts of one name have series of their own.
                    let name = self.hosts.name_of(run.run_id);
                    if !name.is_empty() {
                        name.clone_into(&mut run.host.name);
                    }
                    self.count_lost((source, &host_name), offset_ns, std::mem::take(&mut gaps));
                    (host, host_name) = (HostLabels::of(&run), run.host.name);
                    offset_ns = None;
                    continue;
                }
                RecordedItem::Samples(samples) => {
                    let times = samples.times();
                    if takes_gaps && let Some(first_ns) = times.wall_ns.first() {
                        let key = (source.to_owned(), host_name.clone());
                        self.lost.entry(key).or_insert_with(|| vec![(*first_ns, 0)]);
                        let first_offset_ns = offset_of(times.wall_ns.first(), times.mono_ns.first());
                        self.count_lost((source, &host_name), first_offset_ns, std::mem::take(&mut gaps));
                    }
                    offset_ns = offset_of(times.wall_ns.last(), times.mono_ns.last());
                    found.add(&samples, (metric, &reader), (&host, self.step_ns, done));
                    if let Some((labels, values)) = found.take_overfull() {
                        self.put_series(metric, &labels, &values)?;
                    }
                    ColumnarEvent::Progress(times.wall_ns.last().copied().unwrap_or_default())
                }
                RecordedItem::Gap(_, gap) => {
                    if takes_gaps && !gap.is_thinned() {
                        gaps.push(gap);
                    }
                    continue;
                }
                RecordedItem::Marker(_) => continue,
                RecordedItem::Notice(_) if !is_first => continue,
                RecordedItem::Notice(notice) => {
                    self.is_unreadable |= matches!(notice, Notice::Unreadable(_));
                    ColumnarEvent::Notice(notice)
                }
            };
            if !watch(event) {
                return Ok(None);
            }
        }
        self.count_lost((source, &host_name), offset_ns, gaps);
        let summary = reader.summary();
        let undecodable = summary.undecodable + summary.malformed_schemas;
        self.report.undecodable = self.report.undecodable.max(undecodable);
        self.report.has_unnamed_elements |= summary.has_more_elements;
        Ok(Some(found))
    }

    /// Adds lost samples of a run, whose wall time exceeds monotonic time by `offset_ns`.
    fn count_lost(&mut self, (source, host): (&str, &str), offset_ns: Option<i64>, gaps: Vec<Gap>) {
        let Some(offset_ns) = offset_ns else { return };
        let Some(counts) = self.lost.get_mut(&(source.to_owned(), host.to_owned())) else { return };
        for gap in gaps {
            // 0: no sample is after it.
            let mono_ns = if gap.before_mono_ns > 0 { gap.before_mono_ns } else { gap.after_mono_ns };
            counts.push((offset_ns.wrapping_add_unsigned(mono_ns), gap.count));
        }
    }

    /// Writes the head of a family, if it is another one than before.
    fn begin_family(&mut self, metric: &Metric) -> Result<(), ColumnarError> {
        if self.family.as_deref() == Some(&*metric.family) {
            return Ok(());
        }
        self.family = Some(metric.family.clone());
        self.begun.insert(metric.source.clone());
        let Metric { family, field, unit, .. } = metric;
        let meaning = field.meaning.split_whitespace().collect::<Vec<_>>().join(" ");
        let kind = if metric.is_counter() { "counter" } else { "gauge" };
        let mut head = format!("# TYPE {family} {kind}\n");
        // Writing to a string cannot fail.
        if let Some(unit) = unit {
            let _infallible = writeln!(head, "# UNIT {family} {unit}");
        }
        if !meaning.is_empty() {
            let _infallible = writeln!(head, "# HELP {family} {}", escaped(&meaning));
        }
        self.out.put(head.as_bytes())
    }

    /// Writes values of a series.
    fn put_series(
        &mut self,
        metric: &Metric,
        labels: &str,
        values: &[SeriesValue],
    ) -> Result<(), ColumnarError> {
        self.begin_family(metric)?;
        let name = metric.name();
        let mut text = String::new();
        for (wall_ms, _, value) in values {
            text.clear();
            put_line(&mut text, &name, labels, *value, *wall_ms);
            self.out.put(text.as_bytes())?;
        }
        self.values += values.len() as u64;
        Ok(())
    }

    fn complete(mut self) -> Result<ColumnarReport, ColumnarError> {
        if self.values == 0 {
            if self.is_unreadable {
                // Nothing could be read; the notices say why.
                return Ok(ColumnarReport::default());
            }
            if let Some(error) = self.request.no_samples()? {
                return Err(error);
            }
        }
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

impl FieldSeries {
    /// Creates no series, of which at most so many values are held.
    fn new(values_max: usize) -> Self {
        Self {
            values_max,
            series: BTreeMap::new(),
            order: Vec::new(),
            held: 0,
            later: BTreeSet::new(),
            taken_step: None,
            left_out: 0,
        }
    }

    /// Adds the values of samples, the first one of each series and step.
    fn add(
        &mut self,
        samples: &SampleBatch,
        (metric, reader): (&Metric, &SampleReader),
        (host, step_ns, done): (&HostLabels, u64, &BTreeSet<String>),
    ) {
        for batch in &samples.tables {
            let Some(table) = reader.table(batch.table) else { continue };
            // The labels of each element, which are the same for all rows of a batch.
            let mut known: HashMap<Option<ElementName>, String> = HashMap::new();
            let columns = table.columns.iter().zip(&batch.columns);
            for (info, values) in columns.filter(|(info, _)| is_number(info) && metric.has_values_of(info)) {
                let unit = CommonUnit::of(info.unit.as_deref(), false);
                for row in 0..batch.rows() {
                    let Some(wall_ns) = batch.times.wall_ns.get(batch.sample(row)).copied() else { continue };
                    let Some(value) = values.number(row) else { continue };
                    let step = i128::from(wall_ns).div_euclid(i128::from(step_ns));
                    let step = i64::try_from(step).unwrap_or_default();
                    let element = batch.name(row);
                    let labels = known.entry(element).or_insert_with(|| {
                        let labels = host.series(table, element, reader.elements());
                        labels_text(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())))
                    });
                    if !done.contains(labels) && !self.later.contains(labels) {
                        self.push(labels, (wall_ns.div_euclid(1_000_000), step, unit.convert(value)));
                    }
                }
            }
        }
    }

    fn push(&mut self, labels: &str, value: SeriesValue) {
        if !self.series.contains_key(labels) {
            // The values of a series are together.
            if self.taken_step.is_some() {
                self.later.insert(labels.to_owned());
                return;
            }
            self.order.push(labels.to_owned());
            self.series.insert(labels.to_owned(), Vec::new());
        }
        let Some(values) = self.series.get_mut(labels) else { return };
        let (_, step, _) = value;
        if let Some(taken_step) = self.taken_step.filter(|taken_step| step <= *taken_step) {
            self.left_out += u64::from(step < taken_step);
            return;
        }
        if values.last().is_some_and(|(_, last_step, _)| *last_step == step) {
            return;
        }
        values.push(value);
        self.held += 1;
        while self.held > self.values_max && self.order.len() > 1 {
            let Some(latest) = self.order.pop() else { return };
            self.held -= self.series.remove(&latest).map_or(0, |values| values.len());
            self.later.insert(latest);
        }
    }

    /// Takes the values so far of the first series, if they alone are as many as are held.
    fn take_overfull(&mut self) -> Option<(String, Vec<SeriesValue>)> {
        if self.held < self.values_max || self.order.len() > 1 {
            return None;
        }
        let labels = self.order.first()?.clone();
        let values = in_order(std::mem::take(self.series.get_mut(&labels)?));
        self.held = 0;
        self.taken_step = values.last().map(|(_, step, _)| *step).max(self.taken_step);
        Some((labels, values))
    }
}

/// Returns values in the order of time, the first one of each step: runs may be read in another
/// order, and a clock may be set back. Prometheus has one value per series and millisecond.
fn in_order(mut values: Vec<SeriesValue>) -> Vec<SeriesValue> {
    if !values.is_sorted_by_key(|(wall_ms, ..)| *wall_ms) {
        values.sort_by_key(|(wall_ms, ..)| *wall_ms);
    }
    values.dedup_by_key(|(_, step, _)| *step);
    values.dedup_by_key(|(wall_ms, ..)| *wall_ms);
    values
}

/// Returns how many samples were lost up to each millisecond, from when and how many.
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

/// Returns labels as text.
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
    let (seconds, ms) = (wall_ms.div_euclid(1000), wall_ms.rem_euclid(1000));
    // Writing to a string cannot fail.
    let _infallible = writeln!(text, "{name}{{{labels}}} {value} {seconds}.{ms:03}");
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

    // Proves that paths are found below what was asked for, whatever elements were picked.
    #[test]
    fn fields_are_selected_by_their_begin() {
        for asked in ["disk", "disk.devices[vda]", "disk.devices[*].reads", "devices[*].reads", "reads"] {
            assert!(is_below("disk.devices[*].reads", asked), "{asked}");
        }
        for other in ["dis", "disk.device", "disk.devices[*].read", "ads"] {
            assert!(!is_below("disk.devices[*].reads", other), "{other}");
        }
    }

    // Proves that series that do not fit are left for later, and the first one never.
    #[test]
    fn series_that_do_not_fit_are_read_later() {
        let mut found = FieldSeries::new(5);
        for step in 0..5 {
            found.push("a", (step, step, 1.0));
        }
        found.push("b", (0, 0, 2.0));
        assert_eq!((found.series.len(), found.held), (1, 5));
        assert!(found.later.contains("b"));
    }

    // Proves that a series that does not fit by itself is taken in parts, with others left for
    // later, and that what came too late is counted.
    #[test]
    fn a_long_series_is_taken_in_parts() {
        let mut found = FieldSeries::new(3);
        let taken = |found: &mut FieldSeries| {
            let (labels, values) = found.take_overfull()?;
            assert_eq!(labels, "a");
            Some(values.into_iter().map(|(_, step, _)| step).collect::<Vec<_>>())
        };
        for step in [0, 2] {
            found.push("a", (step, step, 1.0));
        }
        assert_eq!(taken(&mut found), None);
        found.push("a", (1, 1, 1.0));
        assert_eq!(taken(&mut found), Some(vec![0, 1, 2]));
        found.push("b", (0, 0, 2.0));
        for step in [1, 2, 3, 4, 5] {
            found.push("a", (step, step, 1.0));
        }
        assert_eq!(taken(&mut found), Some(vec![3, 4, 5]));
        assert!(found.later.contains("b") && found.series.len() == 1);
        assert_eq!((found.left_out, found.held), (1, 0));
    }

    // Proves that values are in the order of time, one per step and millisecond, whatever the order
    // in which they came.
    #[test]
    fn values_are_in_order() {
        let came = vec![(30, 3, 1.0), (40, 4, 2.0), (10, 1, 3.0), (10, 2, 4.0), (45, 4, 5.0)];
        assert_eq!(in_order(came), [(10, 1, 3.0), (30, 3, 1.0), (40, 4, 2.0)]);
    }

    // Proves that losses add up in the order of time, and that those of one millisecond are one
    // value.
    #[test]
    fn losses_add_up() {
        let lost = totals(&[(5_000_000, 0), (9_100_000, 2), (4_000_000, 1), (9_900_000, 3)]);
        assert_eq!(lost.into_iter().collect::<Vec<_>>(), [(4, 1), (5, 1), (9, 6)]);
    }
}
