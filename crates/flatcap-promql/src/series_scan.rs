//! Reads the samples of a selector in one pass, and computes its values at all steps during this
//! pass. Only the computed values are kept. Memory use therefore depends on the windows and the
//! number of steps, not on the time between steps.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flatcap_format::replay::{HostIdentity, Notice, ReplayFilter};
use flatcap_query::metric::{HostLabels, Metric, element_factor};
use flatcap_query::{
    ColumnBatch, CommonUnit, ElementEnds, ElementName, FieldPath, NO_ELEMENT, Query, QueryError, QueryItem,
    QueryResults, Recording, SampleEnds, end_fields, unnamed_end_list,
};

use crate::batch_labels::{is_number, labels_of};
use crate::error::PromqlError;
use crate::labels::Labels;
use crate::selection::Selection;
use crate::series::{LabelledSeries, check_size};
use crate::time_grid::TimeGrid;
use crate::window::{MovingWindow, WindowShape};

/// Maximum number of fields that are read for one selector.
const FIELDS_MAX: usize = 128;
/// Maximum number of samples in the windows of all series together. They take 64 MiB.
const HELD_MAX: usize = 4 << 20;
/// Maximum number of samples that the functions of one selector may read. Reading this number takes
/// a few seconds.
pub(crate) const VISITED_MAX: u64 = 1 << 31;
const NS_PER_MS: i64 = 1_000_000;

/// The recording from which selectors read their series, and the steps of the evaluation.
#[derive(Debug)]
pub(crate) struct SeriesScan<'r> {
    pub(crate) recording: &'r Recording,
    pub(crate) metrics: &'r [Metric],
    pub(crate) host: Option<&'r HostIdentity>,
    pub(crate) grid: TimeGrid,
    /// The end time of each run, by run id.
    pub(crate) run_ends: &'r BTreeMap<u64, i64>,
}

/// The series found so far for a selector.
struct OpenSeries<'s> {
    selection: &'s Selection,
    shape: &'s WindowShape,
    grid: TimeGrid,
    known: BTreeMap<Labels, usize>,
    windows: Vec<MovingWindow>,
    /// The elements of the current run that have ended.
    ends: ElementEnds,
    /// The index of the series of each element in the run.
    places: HashMap<ElementColumn, usize>,
    /// Time of the newest sample of the run, in nanoseconds.
    last_ns: i64,
}

/// The index of the table, the index of the column, and the element.
type ElementColumn = (usize, usize, Option<u32>);

impl SeriesScan<'_> {
    /// Returns the series of a selector with their labels. Adds a description of any data that
    /// could not be read to `warnings`.
    pub(crate) fn read(
        &self,
        selection: &Selection,
        shape: &WindowShape,
        warnings: &mut BTreeSet<String>,
    ) -> Result<Vec<LabelledSeries>, PromqlError> {
        let metrics = selection.metrics(self.metrics);
        if metrics.len() > FIELDS_MAX {
            return Err(PromqlError::Evaluation(format!(
                "a selector names {} metrics, at most {FIELDS_MAX}; name one, or those of one source, as \
                 {{__name__=~\"flatcap_cpu_.*\"}}",
                metrics.len()
            )));
        }
        if metrics.is_empty() {
            return Ok(Vec::new());
        }
        let (first_ms, last_ms) = shape.span_ms(&self.grid);
        // `until_ns` is exclusive, and the last millisecond belongs to the window.
        let times_ns =
            (first_ms.saturating_mul(NS_PER_MS), last_ms.saturating_add(1).saturating_mul(NS_PER_MS));
        let mut results = self.ask(&metrics, times_ns, shape)?;
        let mut open = OpenSeries {
            selection,
            shape,
            grid: self.grid,
            known: BTreeMap::new(),
            windows: Vec::new(),
            ends: ElementEnds::default(),
            places: HashMap::new(),
            last_ns: i64::MIN,
        };
        let (mut host, mut run_id) = (HostLabels::default(), 0);
        // Batches of different tables of one source follow each other if they contain the same
        // samples.
        let mut held: Vec<ColumnBatch> = Vec::new();
        loop {
            let item = results.next()?;
            if !matches!(&item, Some(QueryItem::Batch(batch)) if are_together(&held, batch, &results)) {
                open.add(&std::mem::take(&mut held), &results, (&metrics, &host))?;
            }
            match item {
                Some(QueryItem::Batch(batch)) => held.push(batch),
                Some(QueryItem::Run(run)) => {
                    open.end_run(self.run_ends.get(&run_id).copied());
                    (host, run_id) = (HostLabels::of(&run), run.run_id);
                }
                Some(QueryItem::Notice(notice)) => warn(&notice, warnings),
                Some(_) => {}
                None => break,
            }
        }
        open.end_run(self.run_ends.get(&run_id).copied());
        let summary = results.summary();
        if summary.undecodable + summary.malformed_schemas > 0 {
            warnings.insert("some samples could not be decoded; flatcap verify says which".to_owned());
        }
        if summary.has_more_elements {
            warnings.insert("the recording has more elements than a query tells apart".to_owned());
        }
        Ok(open.complete())
    }

    /// Requests the fields of some metrics, and the fields that show when elements end.
    fn ask(
        &self,
        metrics: &[&Metric],
        times_ns: (i64, i64),
        shape: &WindowShape,
    ) -> Result<QueryResults, PromqlError> {
        let mut paths = Vec::new();
        // Window functions use all samples, so only current values depend on when elements end.
        if shape.function.is_current() {
            let sources: BTreeSet<&str> = metrics.iter().map(|metric| &*metric.source).collect();
            for source in sources {
                let own = self.metrics.iter().filter(|metric| metric.source == source);
                paths.extend(end_fields(source, own.map(|metric| &metric.field)));
            }
        }
        ask(self.recording, (metrics, paths), self.host, times_ns)
    }
}

/// Returns whether a batch has the same source and the same sample times as the batches in `held`.
fn are_together(held: &[ColumnBatch], batch: &ColumnBatch, results: &QueryResults) -> bool {
    let source = |batch: &ColumnBatch| results.tables().get(batch.table).map(|table| &table.source);
    held.first().is_some_and(|first| source(first) == source(batch) && first.times == batch.times)
        && held.iter().all(|other| other.table != batch.table)
}

/// Requests the fields of some metrics, and then further fields of their sources.
pub(crate) fn ask(
    recording: &Recording,
    (metrics, more): (&[&Metric], Vec<FieldPath>),
    host: Option<&HostIdentity>,
    (since_ns, until_ns): (i64, i64),
) -> Result<QueryResults, PromqlError> {
    let paths = metrics.iter().map(|metric| metric.field_path());
    let mut fields = paths.collect::<Result<Vec<_>, _>>().map_err(QueryError::from)?;
    let has_more = !more.is_empty();
    fields.extend(more);
    let filter = ReplayFilter {
        sources: metrics.iter().map(|metric| metric.source.clone()).collect(),
        since_ns: Some(since_ns),
        until_ns: Some(until_ns),
        host: host.cloned(),
        ..ReplayFilter::default()
    };
    let is_asked = |list: &String| metrics.iter().any(|metric| metric.path().starts_with(list.as_str()));
    let unnamed_lists = filter.sources.iter().map(|source| unnamed_end_list(source));
    // The names of processes that have ended are not needed, unless the list of these processes is
    // requested.
    let unnamed_lists = unnamed_lists.filter(|list| has_more && !is_asked(list));
    let unnamed_lists = unnamed_lists.collect();
    Ok(recording.query(&Query { fields, filter, unnamed_lists, ..Query::default() })?)
}

/// Adds a notice of the query to the warnings.
pub(crate) fn warn(notice: &Notice, warnings: &mut BTreeSet<String>) {
    warnings.insert(notice.to_string());
}

impl OpenSeries<'_> {
    /// Adds batches that contain the same samples of different tables of one source.
    fn add(
        &mut self,
        batches: &[ColumnBatch],
        results: &QueryResults,
        of: (&[&Metric], &HostLabels),
    ) -> Result<(), PromqlError> {
        let ends = if self.shape.function.is_current() {
            self.ends.add(batches, |table| results.tables().get(table), results.elements())
        } else {
            SampleEnds::default()
        };
        for (position, batch) in batches.iter().enumerate() {
            self.add_table((batch, position), &ends, results, of);
        }
        if let Some(times) = batches.first().map(|batch| &batch.times) {
            self.last_ns = times.wall_ns.iter().copied().fold(self.last_ns, i64::max);
        }
        check_size(self.windows.len(), self.grid.steps())?;
        self.check_work()
    }

    fn add_table(
        &mut self,
        (batch, position): (&ColumnBatch, usize),
        ends: &SampleEnds,
        results: &QueryResults,
        (metrics, host): (&[&Metric], &HostLabels),
    ) {
        let Some(table) = results.tables().get(batch.table) else { return };
        let ms_of = |sample: usize| Some(batch.times.wall_ns.get(sample)?.div_euclid(NS_PER_MS));
        let columns = table.columns.iter().zip(&batch.columns).enumerate();
        for (number, (info, values)) in columns.filter(|(_, (info, _))| is_number(info)) {
            let metric = metrics.get(info.order).filter(|metric| metric.has_values_of(table, info));
            let Some(metric) = metric else { continue };
            let unit = CommonUnit::of(info.unit.as_deref(), false);
            // Labels are created only one time for each element of a batch.
            let mut places: HashMap<Option<u32>, (Option<ElementName>, Option<usize>)> = HashMap::new();
            let mut ended = ends.of_table(position).iter().peekable();
            for row in 0..batch.rows() {
                let (sample, element, name) = (batch.sample(row), batch.element(row), batch.name(row));
                while let Some(end) = ended.next_if(|end| end.sample <= sample) {
                    places.remove(&Some(end.element));
                    self.end((batch.table, number, Some(end.element)), ms_of(end.sample));
                }
                let key = (batch.table, number, element);
                let Some(ms) = ms_of(sample) else { continue };
                let Some(value) = values.number(row) else {
                    // The sample contains the element, but the element has no value in this column.
                    if ends.is_complete(position, sample) && element != Some(NO_ELEMENT) {
                        places.remove(&element);
                        self.end(key, Some(ms));
                    }
                    continue;
                };
                let known = places.get(&element).filter(|(known, _)| *known == name);
                let place = if let Some((_, place)) = known {
                    *place
                } else {
                    let place = self.place(labels_of(metric, (host, table), name, results.elements()));
                    if self.places.get(&key).copied() != place {
                        // If the labels have changed, a new series begins.
                        self.end(key, Some(ms));
                        self.places.extend(place.map(|place| (key, place)));
                    }
                    places.insert(element, (name, place));
                    place
                };
                let Some(window) = place.and_then(|place| self.windows.get_mut(place)) else { continue };
                let factor = element_factor(info.unit.as_deref(), name, results.elements());
                let Some(factor) = factor else { continue };
                window.add((ms, unit.convert(value) * factor), self.shape, &self.grid);
            }
            for end in ended {
                self.end((batch.table, number, Some(end.element)), ms_of(end.sample));
            }
        }
    }

    /// Ends the series of an element.
    fn end(&mut self, key: ElementColumn, ms: Option<i64>) {
        let window = self.places.remove(&key).and_then(|place| self.windows.get_mut(place));
        if let (Some(window), Some(ms)) = (window, ms) {
            window.end(ms, self.shape, &self.grid);
        }
    }

    /// Ends all series of a run that has ended at this time. The time is `None` if the run
    /// continues.
    fn end_run(&mut self, end_ns: Option<i64>) {
        // A sample is valid during its whole millisecond, so the series ends at the start of the
        // next millisecond.
        let after_ms = end_ns.map(|end_ns| end_ns.max(self.last_ns).div_euclid(NS_PER_MS).saturating_add(1));
        for (_, place) in std::mem::take(&mut self.places) {
            if let (Some(window), Some(ms)) = (self.windows.get_mut(place), after_ms) {
                window.end(ms, self.shape, &self.grid);
            }
        }
        self.ends.clear();
        self.last_ns = i64::MIN;
    }

    /// Returns the index of the series with these labels, and adds the series if it is new. Returns
    /// `None` if the selector does not match the labels.
    fn place(&mut self, labels: Labels) -> Option<usize> {
        if let Some(place) = self.known.get(&labels) {
            return Some(*place);
        }
        if !self.selection.passes(&labels) {
            return None;
        }
        self.windows.push(MovingWindow::default());
        let place = self.windows.len() - 1;
        self.known.insert(labels, place);
        Some(place)
    }

    fn check_work(&self) -> Result<(), PromqlError> {
        // The limit is checked after each batch, so that a query fails before it exhausts the
        // memory.
        let held: usize = self.windows.iter().map(MovingWindow::held).sum();
        if held > HELD_MAX {
            return Err(PromqlError::Evaluation(format!(
                "the windows of a selector hold {held} samples, at most {HELD_MAX}; use a shorter window, or name an \
                 element"
            )));
        }
        let visited: u64 = self.windows.iter().map(MovingWindow::visited).sum();
        if visited > VISITED_MAX {
            return Err(PromqlError::Evaluation(format!(
                "the windows of a selector overlap so much that {visited} samples are looked at, at most \
                 {VISITED_MAX}; use a longer step or a shorter window"
            )));
        }
        Ok(())
    }

    fn complete(self) -> Vec<LabelledSeries> {
        let Self { shape, grid, known, windows, .. } = self;
        let mut values: Vec<Vec<Option<f64>>> =
            windows.into_iter().map(|window| window.complete(shape, &grid)).collect();
        let series = known.into_iter().map(|(labels, place)| LabelledSeries {
            labels,
            values: values.get_mut(place).map(std::mem::take).unwrap_or_default(),
        });
        series.filter(LabelledSeries::has_values).collect()
    }
}
