//! Reads the series of one segment, and summarizes them in equal parts of time.
//!
//! The rate of the first sample of a segment needs the last sample of the previous segment. So
//! summaries keep the first and the last sample of each series. Summaries also keep the first and
//! the last sample of each source. These are necessary because a series may have no value in a
//! segment although its source has no gap there.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatcap_format::replay::HostIdentity;
use flatcap_format::schema::{ColumnType, CounterHistory, MetricKind};
use flatcap_format::segment::{Gap, SelectedSegment};

use super::formula_fold::FormulaFold;
use super::series_cells::{SeriesCells, SeriesEnds, SeriesField, SeriesFold, SourceSpan, TimeCell};
use super::table_fold::{SegmentRequest, SeriesLimit, TableFold, element_rows};
use super::thinned_numbers::ThinnedNumbers;
use crate::columns::batch::ColumnBatch;
use crate::error::QueryError;
use crate::names::elements::{ElementName, ElementNames};
use crate::names::namesakes::Namesakes;
use crate::plan::{ColumnInfo, TableInfo};
use crate::request::Query;
use crate::results::{QueryItem, QueryResults, RunInfo};
use crate::rows::layout::RowColumn;

/// The series of a segment, by run. A file whose name is not the name of a segment may have several
/// runs.
#[derive(Debug, Default)]
pub(super) struct SegmentOverview {
    pub(super) runs: Vec<RunOverview>,
    /// Number of damaged ranges, files that cannot be read, and samples that do not fit their
    /// schema.
    pub(super) unreadable: u64,
}

/// The series of one run.
#[derive(Debug)]
pub(super) struct RunOverview {
    pub(super) run_id: u64,
    pub(super) host: HostIdentity,
    /// The samples of each source, including sources without a value in any series.
    pub(super) sources: BTreeMap<Box<str>, SourceSpan>,
    pub(super) series: Vec<SeriesCells>,
    /// Number of series that were left out.
    pub(super) left_out: u64,
}

impl SegmentOverview {
    /// Reads the results of a query from a segment. The first changes of formulas depend on the
    /// samples in `lead`, which is the last part of the previous segments.
    ///
    /// # Errors
    /// The same errors as [`QueryResults::next`].
    pub(super) fn read(
        (lead, segment): (Vec<SelectedSegment>, SelectedSegment),
        (query, namesakes): (&Query, &Arc<Namesakes>),
        request: &SegmentRequest,
    ) -> Result<Self, QueryError> {
        let mut fold: Option<RunFold> = None;
        let mut results = QueryResults::of_segments(lead, query).with_namesakes(namesakes);
        while let Some(item) = results.next()? {
            match (item, &mut fold) {
                (QueryItem::Run(run), _) => fold = Some(RunFold::new(request, run)),
                (QueryItem::Batch(batch), Some(fold)) => {
                    fold.add(&batch, results.tables(), results.elements());
                }
                _ => {}
            }
        }
        if let Some(fold) = &mut fold {
            fold.keep_readings(results.tables());
        }
        let before = results.summary().undecodable;
        results.push_segment(segment);
        let mut overview = Self::default();
        while let Some(item) = results.next()? {
            match item {
                QueryItem::Run(run) => {
                    let before = fold.replace(RunFold::new(request, run));
                    overview
                        .runs
                        .extend(before.map(|fold| fold.finish(results.tables(), results.elements())));
                }
                QueryItem::Batch(batch) => {
                    if let Some(fold) = &mut fold {
                        fold.add(&batch, results.tables(), results.elements());
                    }
                }
                QueryItem::Gap(source, gap) => {
                    if let Some(fold) = &mut fold {
                        fold.add_gap(&source, &gap);
                    }
                }
                QueryItem::Notice(_) => overview.unreadable += 1,
                QueryItem::Marker(_) | QueryItem::Complete(_) => {}
            }
        }
        overview.runs.extend(fold.map(|fold| fold.finish(results.tables(), results.elements())));
        overview.unreadable += results.summary().undecodable - before;
        Ok(overview)
    }

    /// Returns the approximate memory use of the summary, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let series = self.runs.iter().flat_map(|run| &run.series);
        series.map(SeriesCells::bytes).fold(size_of::<Self>(), usize::saturating_add)
    }
}

/// Summarizes the series of one run.
#[derive(Debug)]
pub(super) struct RunFold {
    pub(super) run_id: u64,
    pub(super) host: HostIdentity,
    request: SegmentRequest,
    tables: BTreeMap<usize, TableFold>,
    /// For each source, the sequence numbers of thinned samples, which are missing from the
    /// recording on purpose.
    thinned: BTreeMap<Box<str>, ThinnedNumbers>,
    limit: SeriesLimit,
}

impl RunFold {
    pub(super) fn new(request: &SegmentRequest, run: RunInfo) -> Self {
        Self {
            run_id: run.run_id,
            host: HostIdentity { name: run.host.name, machine_id: run.host.machine_id },
            request: request.clone(),
            tables: BTreeMap::new(),
            thinned: BTreeMap::new(),
            limit: SeriesLimit { remaining: request.series_max, left_out: 0 },
        }
    }

    /// Adds the values of a batch.
    pub(super) fn add(&mut self, batch: &ColumnBatch, tables: &[TableInfo], names: &ElementNames) {
        let Some(info) = tables.get(batch.table) else { return };
        let table = self.tables.entry(batch.table).or_insert_with(|| TableFold::new(info, &self.request));
        let mut first_row = 0;
        if table.source.is_some_and(|source| source != batch.source) {
            // Another source with this name has different counters.
            table.history = CounterHistory::default();
            table.formulas.iter_mut().for_each(FormulaFold::clear);
        }
        let mut kinds = element_rows(&mut table.history, batch, names);
        table.note_names(batch, names, &mut kinds);
        let thinned = self.thinned.entry(info.source.clone()).or_default();
        for part in table.parts(batch.source, &batch.times, thinned) {
            let rows = first_row..batch.rows_before(part.samples.end);
            first_row = rows.end;
            for formula in &mut table.formulas {
                formula.add(batch, (rows.clone(), &kinds), (table.limits, part.hole_end_ns, names));
            }
            table.add(batch, (rows, &kinds), (part.hole_end_ns, names), &mut self.limit);
        }
    }

    /// Removes all values, except the readings on which later values of formulas depend.
    fn keep_readings(&mut self, tables: &[TableInfo]) {
        self.thinned.clear();
        self.limit = SeriesLimit { remaining: self.request.series_max, left_out: 0 };
        for (number, table) in &mut self.tables {
            let Some(info) = tables.get(*number) else { continue };
            let TableFold { formulas, history, source, .. } =
                std::mem::replace(table, TableFold::new(info, &self.request));
            table.source = source;
            for (own, before) in table.formulas.iter_mut().zip(formulas) {
                own.follow(before, |element| history.has_ended(u64::from(element)));
            }
        }
    }

    /// Adds missing samples. The caller must add a gap before it adds the samples after the gap.
    /// Missing samples form a hole, unless they were left out on purpose.
    pub(super) fn add_gap(&mut self, source: &str, gap: &Gap) {
        self.thinned.entry(source.into()).or_default().add(gap);
    }

    /// Returns the number of series that are left out.
    pub(super) fn left_out(&self) -> u64 {
        self.limit.left_out
    }

    /// Returns the element that had the largest value of a formula at a wall time.
    pub(super) fn largest_element(&self, value: usize, wall_ns: i64) -> Option<ElementName> {
        let formulas = self.tables.values().flat_map(|table| &table.formulas);
        formulas.filter(|own| own.value == value).find_map(|own| own.largest_at(wall_ns))
    }

    /// Removes all cells whose index is below a limit from all series. Returns the series that had
    /// such cells.
    pub(super) fn take_before(
        &mut self,
        number: i64,
        tables: &[TableInfo],
        names: &ElementNames,
    ) -> Vec<SeriesCells> {
        self.take(tables, names, |series| series.take_before(number))
    }

    fn finish(mut self, tables: &[TableInfo], names: &ElementNames) -> RunOverview {
        let mut sources = BTreeMap::<Box<str>, SourceSpan>::new();
        for (number, fold) in &self.tables {
            let (Some(info), Some(mut span)) = (tables.get(*number), fold.span) else { continue };
            // Samples between two segments that were left out on purpose do not form a hole.
            if let Some(thinned) = self.thinned.get(&info.source) {
                span.widen(thinned);
            }
            sources.entry(info.source_name().into()).or_insert(span).add(&span);
        }
        let series = self.take(tables, names, SeriesFold::take);
        let Self { run_id, host, limit: SeriesLimit { left_out, .. }, .. } = self;
        RunOverview { run_id, host, sources, series, left_out }
    }

    /// Removes cells of each series with the function `take`, and returns the series that had such
    /// cells.
    fn take(
        &mut self,
        tables: &[TableInfo],
        names: &ElementNames,
        take: impl Fn(&mut SeriesFold) -> Option<(Vec<TimeCell>, SeriesEnds)>,
    ) -> Vec<SeriesCells> {
        let (keys, mut taken, request) = (names.keys(), Vec::new(), &self.request);
        for (number, fold) in &mut self.tables {
            let Some(info) = tables.get(*number) else { continue };
            let TableFold { limits, bits, columns, formulas, elements, series, history, latest, .. } = fold;
            for FormulaFold { value, formula, series, .. } in formulas {
                let Some((cells, ends)) = take(series) else { continue };
                let unit = Some(formula.unit.as_str().into());
                taken.push(SeriesCells {
                    field: SeriesField {
                        source: info.source_name().into(),
                        // Several formulas may use the same fields, so a formula is identified by
                        // its number.
                        path: value.to_string().into(),
                        unit: unit.clone(),
                        kind: MetricKind::Gauge,
                    },
                    column: RowColumn {
                        name: String::new(),
                        source: info.source_name().into(),
                        column_type: ColumnType::Float,
                        unit,
                        kind: MetricKind::Gauge,
                        is_rate: false,
                        order: (*value, 0),
                    },
                    element: Box::default(),
                    label: None,
                    identity: Vec::new(),
                    limits: *limits,
                    bits: *bits,
                    cells,
                    ends,
                });
            }
            let places =
                elements.iter().flat_map(|element| columns.iter().map(move |column| (element, column)));
            for ((element, (column, is_rate)), own) in places.zip(series) {
                let Some(column) = info.columns.get(*column) else { continue };
                let has_ended = |(element, name): &(u32, ElementName)| {
                    history.has_ended(u64::from(*element))
                        || latest.get(*element as usize).is_some_and(|(_, latest)| latest != name)
                };
                // A later element may have the same key, and no rate may be computed across the two
                // elements.
                if element.as_ref().is_some_and(has_ended) {
                    own.end();
                }
                let Some((cells, ends)) = take(own) else { continue };
                let name = element.map(|(_, name)| name);
                let label = name.map(|name| names.label(name));
                taken.push(SeriesCells {
                    field: SeriesField {
                        source: info.source_name().into(),
                        path: info.path(column).into(),
                        unit: column.unit.clone(),
                        kind: column.kind,
                    },
                    column: row_column((info, column), label, *is_rate, request.fields.value(column.order)),
                    element: element.map_or_else(Box::default, |(element, name)| {
                        let key = keys.get(&element).copied().unwrap_or_default();
                        [key, names.full_label(name).as_bytes()].concat().into()
                    }),
                    label: label.map(Into::into),
                    identity: name.map_or(Vec::new(), |name| names.identity(name).to_vec()),
                    limits: *limits,
                    bits: *bits,
                    cells,
                    ends,
                });
            }
        }
        taken
    }
}

fn row_column(
    (table, column): (&TableInfo, &ColumnInfo),
    label: Option<&str>,
    is_rate: bool,
    value: usize,
) -> RowColumn {
    let path = label.map_or_else(|| table.path(column), |label| table.element_path(column, label));
    RowColumn {
        name: format!("{}.{path}", table.source_name()),
        source: table.source_name().into(),
        column_type: column.column_type,
        unit: column.unit.clone(),
        kind: column.kind,
        is_rate,
        order: (value, 0),
    }
}
