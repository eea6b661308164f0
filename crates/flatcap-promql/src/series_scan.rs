//! Reads the samples of a selector, once, and computes its values at all steps on the way. Only
//! those are kept, so memory depends on windows and steps, not on the time between.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use flatcap_format::metric::{HostLabels, Metric};
use flatcap_format::query::{
    ColumnBatch, CommonUnit, ElementName, FieldPath, Query, QueryError, QueryItem, QueryResults, Recording,
};
use flatcap_format::replay::{HostIdentity, Notice, ReplayFilter};

use crate::batch_labels::{is_number, labels_of};
use crate::error::PromqlError;
use crate::labels::Labels;
use crate::selection::Selection;
use crate::series::{LabelledSeries, check_size};
use crate::time_grid::TimeGrid;
use crate::window::{MovingWindow, WindowShape};

/// Most fields that one selector reads.
const FIELDS_MAX: usize = 128;
/// Most samples in the windows of all series: 64 MiB.
const HELD_MAX: usize = 4 << 20;
/// Most samples that the functions of one selector look at: some seconds.
const VISITED_MAX: u64 = 1 << 31;
const NS_PER_MS: i64 = 1_000_000;

/// The recording that selectors name series of.
#[derive(Debug)]
pub(crate) struct SeriesScan<'r> {
    pub(crate) recording: &'r Recording,
    pub(crate) metrics: &'r [Metric],
    pub(crate) host: Option<&'r HostIdentity>,
    pub(crate) grid: TimeGrid,
}

/// The series of a selector that were found so far.
struct OpenSeries<'s> {
    selection: &'s Selection,
    shape: &'s WindowShape,
    grid: TimeGrid,
    known: BTreeMap<Labels, usize>,
    windows: Vec<MovingWindow>,
}

impl SeriesScan<'_> {
    /// Returns the series of a selector, by labels. What could not be read is added to `warnings`.
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
        let times_ns =
            (first_ms.saturating_mul(NS_PER_MS), last_ms.saturating_add(1).saturating_mul(NS_PER_MS));
        let mut results = ask(self.recording, &metrics, self.host, times_ns)?;
        let mut open =
            OpenSeries { selection, shape, grid: self.grid, known: BTreeMap::new(), windows: Vec::new() };
        let mut host = HostLabels::default();
        while let Some(item) = results.next()? {
            match item {
                QueryItem::Run(run) => host = HostLabels::of(&run),
                QueryItem::Batch(batch) => open.add(&batch, &results, (&metrics, &host))?,
                QueryItem::Notice(notice) => warn(&notice, warnings),
                _ => {}
            }
        }
        let summary = results.summary();
        if summary.undecodable + summary.malformed_schemas > 0 {
            warnings.insert("some samples could not be decoded; flatcap verify says which".to_owned());
        }
        if summary.has_more_elements {
            warnings.insert("the recording has more elements than a query tells apart".to_owned());
        }
        Ok(open.complete())
    }
}

/// Asks for the fields of some metrics.
pub(crate) fn ask(
    recording: &Recording,
    metrics: &[&Metric],
    host: Option<&HostIdentity>,
    (since_ns, until_ns): (i64, i64),
) -> Result<QueryResults, PromqlError> {
    let paths = metrics.iter().map(|metric| metric.path().parse::<FieldPath>());
    let fields = paths.collect::<Result<_, _>>().map_err(QueryError::from)?;
    let filter = ReplayFilter {
        sources: metrics.iter().map(|metric| metric.source.clone()).collect(),
        since_ns: Some(since_ns),
        until_ns: Some(until_ns),
        host: host.cloned(),
        ..ReplayFilter::default()
    };
    Ok(recording.query(&Query { fields, filter, ..Query::default() })?)
}

/// Adds what a notice means for an answer.
pub(crate) fn warn(notice: &Notice, warnings: &mut BTreeSet<String>) {
    warnings.insert(notice.to_string());
}

impl OpenSeries<'_> {
    fn add(
        &mut self,
        batch: &ColumnBatch,
        results: &QueryResults,
        (metrics, host): (&[&Metric], &HostLabels),
    ) -> Result<(), PromqlError> {
        let Some(table) = results.tables().get(batch.table) else { return Ok(()) };
        let columns = table.columns.iter().zip(&batch.columns);
        for (info, values) in columns.filter(|(info, _)| is_number(info)) {
            let metric = metrics.get(info.order).filter(|metric| metric.has_values_of(info));
            let Some(metric) = metric else { continue };
            let unit = CommonUnit::of(info.unit.as_deref(), false);
            // Labels are made once for each element of a batch.
            let mut places: HashMap<Option<ElementName>, Option<usize>> = HashMap::new();
            for row in 0..batch.rows() {
                let Some(wall_ns) = batch.times.wall_ns.get(batch.sample(row)).copied() else { continue };
                let Some(value) = values.number(row) else { continue };
                let element = batch.name(row);
                let place = *places.entry(element).or_insert_with(|| {
                    self.place(labels_of(metric, (host, table), element, results.elements()))
                });
                let Some(place) = place else { continue };
                let Some(window) = self.windows.get_mut(place) else { continue };
                window.add((wall_ns.div_euclid(NS_PER_MS), unit.convert(value)), self.shape, &self.grid);
            }
        }
        check_size(self.windows.len(), self.grid.steps())?;
        self.check_work()
    }

    /// Returns the place of the series with some labels; none if they do not pass.
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
