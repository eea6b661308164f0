//! Reads the series of one segment, summarized in equal parts of time.
//!
//! The rate of the first sample of a segment needs the last one of the segment before, so summaries
//! keep both ends of each series. They also keep both ends of each source: a series may have no
//! value in a segment although its source has no gap there.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use flatcap_format::replay::HostIdentity;
use flatcap_format::schema::{ColumnType, CountedValue, CounterHistory, ElementPresence, MetricKind};
use flatcap_format::segment::{Gap, SelectedSegment};

use super::batch::{BatchTimes, ColumnBatch, RowSource};
use super::drawn_value::{DrawnFields, DrawnValue};
use super::elements::{ElementName, ElementNames, NO_ELEMENT};
use super::error::QueryError;
use super::formula_fold::FormulaFold;
use super::layout::RowColumn;
use super::namesakes::Namesakes;
use super::plan::{ColumnInfo, TableInfo};
use super::request::Query;
use super::results::{QueryItem, QueryResults, RunInfo};
use super::series_cells::{
    HoleLimits, SampleNumber, SamplePoint, SeriesCells, SeriesEnds, SeriesField, SeriesFold, SourceSpan,
    TimeCell,
};
use super::thinned_numbers::ThinnedNumbers;
use super::whole_samples::WholeTimes;

/// The parameters of the summary of a segment.
#[derive(Debug, Clone)]
pub(super) struct SegmentRequest {
    pub(super) fields: Arc<DrawnFields>,
    /// Whether counters are drawn as their change per second.
    pub(super) is_rate: bool,
    /// Length of a cell: 2^`bits` nanoseconds.
    pub(super) bits: u32,
    /// Maximum number of series. Further series are counted and left out.
    pub(super) series_max: usize,
    /// The periods of sources.
    pub(super) periods: Arc<BTreeMap<String, u64>>,
}

/// The series of a segment, by run. A file that is not named as a segment may have several runs.
#[derive(Debug, Default)]
pub(super) struct SegmentOverview {
    pub(super) runs: Vec<RunOverview>,
    /// Damaged ranges, files that cannot be read, and samples that do not fit their schema.
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
    /// Series that were left out.
    pub(super) left_out: u64,
}

impl SegmentOverview {
    /// Reads the results of a query from a segment. The first changes of formulas depend on the
    /// samples in `lead`, the end of the segments before.
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
            fold.begin_segment(results.tables());
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

    /// Returns the approximate memory that the summary takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let series = self.runs.iter().flat_map(|run| &run.series);
        series.map(SeriesCells::bytes).fold(size_of::<Self>(), usize::saturating_add)
    }
}

/// Summarizes the series of a run.
#[derive(Debug)]
pub(super) struct RunFold {
    pub(super) run_id: u64,
    pub(super) host: HostIdentity,
    request: SegmentRequest,
    tables: BTreeMap<usize, TableFold>,
    /// For each source: the samples that are missing on purpose.
    thinned: BTreeMap<Box<str>, ThinnedNumbers>,
    limit: SeriesLimit,
}

/// The number of series that may still begin, and the number of series that could not.
#[derive(Debug)]
struct SeriesLimit {
    remaining: usize,
    left_out: u64,
}

/// Summarizes the series of one table.
#[derive(Debug)]
struct TableFold {
    limits: HoleLimits,
    /// The columns with numbers that are drawn, and whether each is drawn as a rate.
    columns: Vec<(usize, bool)>,
    formulas: Vec<FormulaFold>,
    bits: u32,
    /// The places of the series, by the number of the element's name.
    places: Vec<ElementPlace>,
    /// The elements that have series, with their names: each name of an element has its own series.
    elements: Vec<Option<(u32, ElementName)>>,
    known: HashMap<(u32, ElementName), ElementPlace>,
    /// The last name of each element, by the number of the element, and the name of its series.
    latest: Vec<(ElementName, ElementName)>,
    /// For each of these elements, one series per column.
    series: Vec<SeriesFold>,
    /// The samples of the source, or `None` before the first one.
    span: Option<SourceSpan>,
    /// The id of the source of the latest samples.
    source: Option<u16>,
    /// The elements of the samples read so far.
    history: CounterHistory,
}

/// The location of an element's series.
#[derive(Debug, Clone, Copy)]
enum ElementPlace {
    Unknown,
    /// At this position in the list of elements that have series.
    At(usize),
    LeftOut,
}

/// Samples of a batch without a hole between them.
struct WholePart {
    samples: Range<usize>,
    hole_end_ns: u64,
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
            // Another source with this name has other counters.
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

    /// Removes all values except the readings on which later values of formulas depend.
    fn begin_segment(&mut self, tables: &[TableInfo]) {
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

    /// Adds missing samples. Must be called before the following samples are added. Missing samples
    /// are a hole, unless they were left out on purpose.
    pub(super) fn add_gap(&mut self, source: &str, gap: &Gap) {
        self.thinned.entry(source.into()).or_default().add(gap);
    }

    /// Returns the number of series that are left out.
    pub(super) fn left_out(&self) -> u64 {
        self.limit.left_out
    }

    /// Returns the element with the value of a formula at a wall time.
    pub(super) fn largest_element(&self, value: usize, wall_ns: i64) -> Option<ElementName> {
        let formulas = self.tables.values().flat_map(|table| &table.formulas);
        formulas.filter(|own| own.value == value).find_map(|own| own.largest_at(wall_ns))
    }

    /// Removes the cells below a number from all series, and returns the series that had such
    /// cells.
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
            // Numbers that were left out on purpose are no hole between two segments.
            if let Some(thinned) = self.thinned.get(&info.source) {
                span.widen(thinned);
            }
            sources.entry(info.source_name().into()).or_insert(span).add(&span);
        }
        let series = self.take(tables, names, SeriesFold::take);
        let Self { run_id, host, limit: SeriesLimit { left_out, .. }, .. } = self;
        RunOverview { run_id, host, sources, series, left_out }
    }

    /// Returns the series from which cells were taken.
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
                        // Formulas may have the same fields, so the number identifies one.
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
                // A later element may have the same key, and no rate may join the two.
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

impl TableFold {
    fn new(info: &TableInfo, request: &SegmentRequest) -> Self {
        let period_ns = request.periods.get(&*info.source).copied().unwrap_or_default();
        let (mut columns, mut formulas) = (Vec::new(), Vec::<FormulaFold>::new());
        for (number, column) in info.columns.iter().enumerate() {
            let (value, field) = request.fields.owner(column.order);
            if let Some(DrawnValue::Formula(formula, _)) = request.fields.values.get(value) {
                let place = formulas.iter().position(|own| own.value == value).unwrap_or_else(|| {
                    formulas.push(FormulaFold::new(value, formula, request.bits));
                    formulas.len() - 1
                });
                if let Some(own) = formulas.get_mut(place) {
                    own.bind(field, number);
                }
            } else if column.column_type != ColumnType::Text {
                columns.push((number, request.is_rate && column.has_rate()));
            }
        }
        Self {
            limits: HoleLimits::of(period_ns, info.list.is_some()),
            columns,
            formulas,
            bits: request.bits,
            places: Vec::new(),
            elements: Vec::new(),
            known: HashMap::new(),
            latest: Vec::new(),
            series: Vec::new(),
            span: None,
            source: None,
            history: CounterHistory::default(),
        }
    }

    /// Splits the samples of a batch at the holes of the source: where sequence numbers are missing
    /// or the distance is too long.
    fn parts(&mut self, source: u16, times: &BatchTimes, thinned: &ThinnedNumbers) -> Vec<WholePart> {
        let (mut parts, mut start) = (Vec::new(), 0);
        let numbers = times.seq.iter().zip(&times.mono_ns);
        let numbers = numbers.map(|(seq, mono_ns)| SampleNumber { seq: *seq, mono_ns: *mono_ns });
        let Some(first) = numbers.clone().next() else { return parts };
        let is_other = self.source.replace(source).is_some_and(|last| last != source);
        let span = self.span.get_or_insert(SourceSpan::new(first, self.limits));
        if is_other {
            // Another source with this name has begun. The new source has its own sequence numbers.
            (span.hole_end_ns, span.last) = (first.mono_ns, first);
        }
        for (sample, now) in numbers.enumerate() {
            let next_seq = span.last.seq.wrapping_add(1);
            let between_ns = now.mono_ns.saturating_sub(span.last.mono_ns);
            // A source that was recorded as often as intended has no hole.
            let is_thinned = now.seq > next_seq
                && thinned.skip(next_seq) == now.seq
                && self.limits.follow(between_ns, now.seq - span.last.seq);
            if is_thinned {
                span.hole_ns = self.limits.source_ns();
            } else if span.last.is_followed_by_hole(now, span.hole_ns) {
                parts.push(WholePart { samples: start..sample, hole_end_ns: span.hole_end_ns });
                span.hole_end_ns = now.mono_ns;
                start = sample;
            }
            span.last = now;
        }
        parts.push(WholePart { samples: start..times.len(), hole_end_ns: span.hole_end_ns });
        parts
    }

    fn add(
        &mut self,
        batch: &ColumnBatch,
        (rows, kinds): (Range<usize>, &[ElementPresence]),
        (hole_end_ns, names): (u64, &ElementNames),
        limit: &mut SeriesLimit,
    ) {
        for row in rows.clone() {
            self.begin((batch.element(row), batch.name(row)), names, limit);
        }
        let Self { columns, places, series, limits, .. } = self;
        // Only tables without elements have exactly one row in each sample.
        let whole = match (&batch.rows, places.as_slice()) {
            (RowSource::Samples, [ElementPlace::At(0)]) => {
                WholeTimes::of(&batch.times, rows.clone(), limits.series_ns())
            }
            _ => None,
        };
        for (number, (column, is_rate)) in columns.iter().enumerate() {
            let Some(values) = batch.columns.get(*column) else { continue };
            if let (Some(whole), Some(fold)) = (&whole, series.get_mut(number))
                && fold.add_whole(whole, (values, rows.clone()), (*limits, hole_end_ns))
            {
                continue;
            }
            for row in rows.clone() {
                let Some(ElementPlace::At(at)) = places.get(slot_of(batch.name(row))) else { continue };
                let Some(fold) = series.get_mut(at * columns.len() + number) else { continue };
                let Some(value) = values.number(row) else { continue };
                let sample = batch.sample(row);
                let times = (batch.times.mono_ns.get(sample), batch.times.wall_ns.get(sample));
                let (Some(mono_ns), Some(wall_ns)) = times else { continue };
                let kind = kinds.get(row).copied().unwrap_or(ElementPresence::Known);
                let is_counted = *is_rate && kind != ElementPresence::Ambiguous;
                let counted = if is_counted { CountedValue::of(values.get(row)) } else { None };
                let point = SamplePoint { mono_ns: *mono_ns, wall_ns: *wall_ns, counted };
                fold.add(point, value, (*limits, hole_end_ns), kind == ElementPresence::New);
            }
        }
    }

    /// Records the names of the elements in a batch. A row whose name differs from the last name of
    /// its element begins a series.
    fn note_names(&mut self, batch: &ColumnBatch, names: &ElementNames, kinds: &mut [ElementPresence]) {
        for (row, kind) in kinds.iter_mut().enumerate() {
            let (Some(element), Some(name)) = (batch.element(row), batch.name(row)) else { continue };
            let place = element as usize;
            if element == NO_ELEMENT || self.latest.get(place).is_some_and(|(last, _)| *last == name) {
                continue;
            }
            if self.latest.len() <= place {
                self.latest.resize(place + 1, (ElementName::NONE, ElementName::NONE));
            }
            let Some(own) = self.latest.get_mut(place) else { continue };
            let title = names.title(name);
            let (_, before) = std::mem::replace(own, (name, title));
            // A field that only describes the element may change at any time, so only another title
            // begins a series.
            if *kind == ElementPresence::Known && before != ElementName::NONE && before != title {
                *kind = ElementPresence::New;
            }
        }
    }

    /// Begins the series of an element with this name, unless it has begun already.
    fn begin(
        &mut self,
        (element, name): (Option<u32>, Option<ElementName>),
        names: &ElementNames,
        limit: &mut SeriesLimit,
    ) {
        if element == Some(NO_ELEMENT) || name == Some(ElementName::NONE) {
            // Elements without a number cannot be counted, so at least one counts as left out.
            limit.left_out = limit.left_out.max(self.columns.len() as u64);
            return;
        }
        let slot = slot_of(name);
        if !matches!(self.places.get(slot), None | Some(ElementPlace::Unknown)) {
            return;
        }
        if self.places.len() <= slot {
            self.places.resize(slot + 1, ElementPlace::Unknown);
        }
        let key = element.zip(name.map(|name| names.title(name)));
        let known = key.and_then(|key| self.known.get(&key)).copied();
        // An element keeps all its series or none.
        let is_possible = self.columns.len() <= limit.remaining;
        let new = if is_possible { ElementPlace::At(self.elements.len()) } else { ElementPlace::LeftOut };
        let own = known.unwrap_or(new);
        if let Some(place) = self.places.get_mut(slot) {
            *place = own;
        }
        if known.is_some() {
            return;
        }
        self.known.extend(key.map(|key| (key, own)));
        if is_possible {
            limit.remaining -= self.columns.len();
            self.elements.push(key);
            let new = self.columns.iter().map(|(_, is_rate)| SeriesFold::new(self.bits, *is_rate));
            self.series.extend(new);
        } else {
            limit.left_out += self.columns.len() as u64;
        }
    }
}

/// Adds the samples of a batch to the history of its elements. Returns the presence of each row's
/// element. Returns an empty list if the table is not a list.
fn element_rows(
    history: &mut CounterHistory,
    batch: &ColumnBatch,
    names: &ElementNames,
) -> Vec<ElementPresence> {
    let RowSource::Elements { elements, .. } = &batch.rows else { return Vec::new() };
    let (mut rows, mut places) = (Vec::with_capacity(elements.len()), Vec::new());
    for sample in 0..batch.times.len() {
        history.begin_sample(batch.leaves_out(sample));
        places.clear();
        while rows.len() + places.len() < elements.len() && batch.sample(rows.len() + places.len()) == sample
        {
            let element = elements.get(rows.len() + places.len()).filter(|element| **element != NO_ELEMENT);
            places.push(
                element
                    .map_or(usize::MAX, |element| history.add_element(u64::from(names.first_of(*element)))),
            );
        }
        rows.extend(places.iter().map(|place| history.row(*place)));
    }
    rows
}

/// Returns the position of a name. A table that is not a list has one position.
fn slot_of(name: Option<ElementName>) -> usize {
    name.map_or(0, |name| name.0 as usize)
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
