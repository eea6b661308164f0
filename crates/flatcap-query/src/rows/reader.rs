//! Rows. A row combines the values of a query at one time. If rows are elements, a row combines the
//! values of one element at one time.

use std::collections::{BTreeMap, HashMap, VecDeque};

use flatcap_format::replay::Notice;
use flatcap_format::segment::{Gap, Marker, SegmentError};

use super::held_value::HeldValue;
use super::join::{RowBuffer, RowStamp, SampleJoin};
use super::layout::{RowColumn, RowLayout};
use super::leading_source::LeadingSource;
use super::merge::{BatchMerge, BatchRank, MergedSample};
use super::options::RowOptions;
use super::selected_columns::SelectedColumns;
use super::step_rows::StepRows;
use super::steps::Aggregate;
use super::window::{PERIODS_HELD, RowWindow};
use crate::columns::batch::ColumnBatch;
use crate::computed::part_of_step;
use crate::error::QueryError;
use crate::names::elements::ElementName;
use crate::rates::rate::CounterRates;
use crate::recording::Recording;
use crate::request::Query;
use crate::results::{QueryItem, QueryResults, RunInfo};
use crate::summary::QuerySummary;

/// An item that [`RowReader`] returns.
#[derive(Debug)]
pub enum RowItem {
    /// A run begins.
    Run(RunInfo),
    /// A row. [`RowReader::values`] returns the values of the row.
    Row(RowStamp),
    /// Samples of a source that were lost.
    Gap(String, Gap),
    /// A note at a point in time.
    Marker(Marker),
    /// A problem with a file.
    Notice(Notice),
}

/// Reads the rows of a query. Samples of several sources are joined on time. There is a row for
/// each sample of the source with the shortest period. If several sources have the shortest period,
/// the first requested one is used. The row also has the last values of the other sources, unless a
/// value is older than two periods of its source.
#[derive(Debug)]
pub struct RowReader {
    results: QueryResults,
    options: RowOptions,
    window: RowWindow,
    periods: BTreeMap<String, u64>,
    has_elements: bool,
    layout: RowLayout,
    rates: Option<CounterRates>,
    /// Whether the rate of a step is computed from the growth in the step. Otherwise, the rate of a
    /// step is an aggregate of the rates of its samples.
    is_averaged: bool,
    join: SampleJoin,
    steps: Option<StepRows>,
    merge: BatchMerge,
    /// The leading source. Each sample of the leading source is a row.
    leading: LeadingSource,
    /// Sources that have had samples in this run, in the order of their first batches.
    sources: HashMap<u16, usize>,
    /// The id of the source to which the last row belongs.
    last_source: Option<u16>,
    /// Gaps and markers, with their monotonic times. An event is returned after all rows that have
    /// an earlier time.
    events: VecDeque<(u64, RowItem)>,
    /// A run or a notice that is returned after the rows of the current batches.
    waiting: Option<RowItem>,
    rows: RowBuffer,
    next_row: usize,
    is_merging: bool,
    /// The maximum age of the value of each column, in nanoseconds.
    ages_ns: Vec<u64>,
}

impl Recording {
    /// Queries the values of some fields as rows.
    ///
    /// # Errors
    /// This function returns the same errors as [`query`](Self::query). It also returns
    /// `NotOneList` if rows are elements, but the fields are in several lists or in no list.
    pub fn rows(&self, query: &Query, options: RowOptions) -> Result<RowReader, QueryError> {
        let selected = SelectedColumns::of(self, query, &options)?;
        if options.is_long && selected.lists.len() != 1 {
            return Err(QueryError::NotOneList { lists: selected.lists });
        }
        RowReader::open(self, query.clone(), options, selected)
    }
}

impl RowReader {
    fn open(
        recording: &Recording,
        mut query: Query,
        options: RowOptions,
        selected: SelectedColumns,
    ) -> Result<Self, QueryError> {
        let periods = selected.periods;
        // Each step must consist of whole samples of the computed source.
        query.computed_step_ns = options.steps.map(|steps| part_of_step(steps.step_ns));
        let mut window = RowWindow::default();
        // The rates of the first rows depend on the samples before these rows.
        if options.is_rate {
            window.widen(&mut query, periods.values().copied());
        }
        let is_averaged = options
            .steps
            .is_some_and(|steps| steps.aggregate.is_none_or(|aggregate| aggregate == Aggregate::Mean));
        let results = recording.query(&query)?;
        Ok(Self {
            results: if options.is_rate { results.for_rates() } else { results },
            window,
            periods,
            has_elements: selected.has_elements,
            layout: RowLayout::new((selected.own_names, selected.names), selected.columns, &options),
            rates: options.is_rate.then(CounterRates::default),
            is_averaged,
            join: SampleJoin::default(),
            steps: options.steps.map(StepRows::new),
            merge: BatchMerge::default(),
            leading: LeadingSource::new(options.is_long),
            sources: HashMap::new(),
            last_source: None,
            events: VecDeque::new(),
            waiting: None,
            rows: RowBuffer::default(),
            next_row: 0,
            is_merging: false,
            ages_ns: Vec::new(),
            options,
        })
    }

    /// Uses only the columns of another reader, which has read all rows of the same query.
    #[must_use]
    pub fn with_columns(mut self, columns: Vec<RowColumn>) -> Self {
        self.layout.fix(columns);
        self
    }

    /// Returns whether elements of lists have their own columns. The columns of elements are known
    /// only after all samples were read.
    pub fn has_elements(&self) -> bool {
        self.has_elements
    }

    /// Returns whether each row is an element of a list.
    pub fn is_long(&self) -> bool {
        self.options.is_long
    }

    /// Returns the columns so far. New elements may add columns at the end.
    pub fn columns(&self) -> &[RowColumn] {
        &self.layout.columns
    }

    /// Returns the values of the row that was returned last, by column. Columns that were added
    /// after this row have no value.
    pub fn values(&self) -> &[HeldValue] {
        let columns = self.rows.values.len().checked_div(self.rows.stamps.len()).unwrap_or_default();
        let end = self.next_row * columns;
        self.rows.values.get(end.saturating_sub(columns)..end).unwrap_or_default()
    }

    /// Returns the label that an element had in a row.
    pub fn label(&self, element: ElementName) -> &str {
        self.results.elements().label(element)
    }

    /// Returns the summary of the data read so far.
    pub fn summary(&self) -> QuerySummary {
        self.results.summary()
    }

    /// Returns the next item, or `None` at the end.
    ///
    /// # Errors
    /// The same errors as [`QueryResults::next`].
    #[allow(clippy::should_implement_trait, reason = "an item is about the reader's current row")]
    pub fn next(&mut self) -> Result<Option<RowItem>, QueryError> {
        loop {
            if let Some(stamp) = self.rows.stamps.get(self.next_row).copied() {
                self.next_row += 1;
                return Ok(Some(RowItem::Row(stamp)));
            }
            if self.is_merging {
                let sample = self.merge.peek(self.leading.name());
                let is_due = |event: &(u64, RowItem)| sample.is_none_or(|sample| event.0 < sample.mono_ns);
                if self.events.front().is_some_and(is_due) {
                    return Ok(self.events.pop_front().map(|(_, item)| item));
                }
                if let Some(sample) = sample {
                    self.take_sample(&sample);
                } else {
                    self.merge.clear();
                    self.is_merging = false;
                }
            } else if let Some(waiting) = self.waiting.take() {
                match &waiting {
                    // The last step belongs to the run that ends, so the rows of this step are
                    // returned before the next run.
                    RowItem::Run(_) if self.end_steps() => self.waiting = Some(waiting),
                    RowItem::Run(run) => {
                        self.begin_run(&run.clone());
                        return Ok(Some(waiting));
                    }
                    _ => return Ok(Some(waiting)),
                }
            } else if let Some(item) = self.results.next()? {
                self.add(item);
            } else if !self.merge.is_empty() || !self.events.is_empty() {
                // At the end of a recording, no item says that all samples so far were returned.
                self.is_merging = true;
            // A recording that grows may still add samples to the last step, so this step is not
            // ended.
            } else if self.options.is_growing || !self.end_steps() {
                return Ok(None);
            }
        }
    }

    /// Looks for new segments, so that the reader follows a running recorder.
    ///
    /// # Errors
    /// The error `Io` means that a path is missing or unreadable.
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        self.results.refresh()
    }

    fn add(&mut self, item: QueryItem) {
        match item {
            QueryItem::Batch(batch) => self.add_batch(batch),
            // Before the first row, only samples are needed, so earlier gaps are dropped.
            QueryItem::Gap(_, gap) if self.window.is_gap_before(&gap) => {}
            QueryItem::Marker(marker) if self.window.is_before(marker.mono_ns, marker.wall_ns) => {}
            QueryItem::Gap(source, gap) => {
                self.events.push_back((gap.after_mono_ns, RowItem::Gap(source, gap)));
            }
            QueryItem::Marker(marker) => {
                self.events.push_back((marker.mono_ns, RowItem::Marker(marker)));
            }
            QueryItem::Complete(_) => self.is_merging = true,
            QueryItem::Run(run) => {
                // The rows so far belong to the run that ends, so these rows are merged first.
                self.waiting = Some(RowItem::Run(run));
                self.is_merging = true;
            }
            QueryItem::Notice(notice) => {
                self.waiting = Some(RowItem::Notice(notice));
                self.is_merging = true;
            }
        }
    }

    fn begin_run(&mut self, run: &RunInfo) {
        // Ids of sources and values of counters begin again with each run.
        self.rates.iter_mut().for_each(CounterRates::clear);
        self.join.clear();
        self.steps = self.options.steps.map(StepRows::new);
        self.sources.clear();
        self.leading.begin_run();
        self.last_source = None;
        self.window.begin_run(run);
    }

    fn add_batch(&mut self, mut batch: ColumnBatch) {
        let tables = self.results.tables();
        self.layout.add_tables(tables);
        let Some(table) = tables.get(batch.table) else { return };
        let mut growths = Vec::new();
        match &mut self.rates {
            Some(rates) if self.is_averaged => {
                growths = rates.growths(&batch, table, self.results.elements());
            }
            Some(rates) => rates.apply(&mut batch, table, self.results.elements()),
            None => {}
        }
        if let Some(passing) = batch.passing.take() {
            batch = batch.select(&passing);
            for growth in &mut growths {
                growth.select(&passing);
            }
        }
        // If no row of a block passes the condition, the batch is empty. The block was either read
        // or skipped.
        if batch.times.is_empty() {
            return;
        }
        let new = self.sources.len();
        let source = *self.sources.entry(batch.source).or_insert(new);
        let name = self.leading.add(tables, batch.table, &self.layout.columns, &self.periods);
        // The elements of a sample are merged after its other values, because the rows of the
        // elements repeat these values.
        let rank = source * 2 + usize::from(table.list.is_some());
        self.merge.add(batch, growths, BatchRank { name, rank });
    }

    /// Removes a sample from the batches, and builds the rows that this sample completes.
    fn take_sample(&mut self, sample: &MergedSample) {
        self.rows.clear();
        self.next_row = 0;
        self.merge.take(sample);
        let is_before = self.window.is_before(sample.mono_ns, sample.wall_ns);
        let columns = self.layout.columns.len();
        if let Some(steps) = &mut self.steps
            && let Some(number) = steps.reach(sample)
        {
            steps.finish(number, self.options.is_long, columns, &mut self.rows);
        }
        self.add_sample(sample, is_before);
        let leading = self.leading.name();
        if self.steps.is_some() || sample.name != leading {
            return;
        }
        // The next table belongs to the same sample, so its values are a part of the same row.
        if self.merge.peek(leading).is_some_and(|next| next.is_with(sample)) {
            return;
        }
        // A row contains the values of one sample of its source, and no values of other sources
        // with the same name.
        if let Some(other) = self.last_source.replace(sample.source).filter(|last| *last != sample.source) {
            self.join.forget(other);
        }
        // Elements that do not occur in any sample have no columns.
        if is_before || self.layout.columns.is_empty() {
            return;
        }
        // Columns are added only at the end, so the known ages stay valid.
        for column in self.layout.columns.iter().skip(self.ages_ns.len()) {
            self.ages_ns.push(match self.periods.get(&*column.source) {
                // The values of a source without a period never become too old.
                None | Some(0) => u64::MAX,
                Some(period) => period.saturating_mul(PERIODS_HELD),
            });
        }
        let stamp = RowStamp { mono_ns: sample.mono_ns, wall_ns: sample.wall_ns, element: None };
        self.join.finish(stamp, self.options.is_long, &self.ages_ns, &mut self.rows);
    }

    /// Adds the values of a sample to the join or to the step.
    fn add_sample(&mut self, sample: &MergedSample, is_before: bool) {
        let Some(batch) = self.merge.batch(sample.batch) else { return };
        let Some(table) = self.results.tables().get(batch.table) else { return };
        let is_list_of_rows = self.options.is_long && table.list.is_some();
        if is_list_of_rows && is_before && self.steps.is_none() {
            return;
        }
        let is_held = !is_list_of_rows && self.steps.is_none();
        let origin = if is_held { self.join.begin(batch.source, batch.table) } else { 0 };
        let period_ns = self.periods.get(&*table.source).copied().unwrap_or_default();
        for row in sample.first_row..sample.end_row {
            let name = batch.name(row);
            let own = name.filter(|_| is_list_of_rows);
            let is_row = self.steps.is_none();
            own.filter(|_| is_row).into_iter().for_each(|name| self.join.begin_element(name));
            self.layout.name_element(batch.table, table, name, self.results.elements());
            let places = self.layout.places(batch.table, name);
            let title = own.map(|name| self.results.elements().title(name));
            for (number, (column, place)) in batch.columns.iter().zip(places).enumerate() {
                let Some(place) = *place else { continue };
                let value = column.get(row);
                match (&mut self.steps, own) {
                    (Some(steps), _) => {
                        let Some(info) = self.layout.columns.get(place) else { continue };
                        let kind = steps.kind(info, period_ns);
                        let growth = || self.merge.growth(sample.batch, number, row);
                        steps.add((title, place), kind, value, growth);
                    }
                    (None, Some(_)) => self.join.set_of_element(place, value),
                    (None, None) => self.join.set(place, origin, sample.mono_ns, value),
                }
            }
        }
        // Samples before the first row are used only for the rates.
        if is_before {
            self.steps.iter_mut().for_each(StepRows::forget_values);
        }
    }

    /// Ends the last step. Returns whether the step has rows.
    fn end_steps(&mut self) -> bool {
        self.rows.clear();
        self.next_row = 0;
        if let Some(steps) = &mut self.steps
            && let Some(number) = steps.end()
        {
            steps.finish(number, self.options.is_long, self.layout.columns.len(), &mut self.rows);
        }
        !self.rows.stamps.is_empty()
    }
}
