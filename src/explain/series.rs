//! Turns batches into observations: what a series was between two samples.
//!
//! A series is a numeric field of one element, one value of a text of an element, or the processes
//! below an element. A counter is observed as its rate since the sample before in which its element
//! was seen, however long ago that is: a sample may leave elements out.

use std::collections::HashMap;

use flatcap_format::query::{ColumnBatch, ColumnInfo, ElementNames, TableInfo, ValueColumn};
use flatcap_format::schema::{FieldValue, MetricKind};

use super::measure::Measure;

/// Most series that are followed at a time; further ones are counted and left out. Each takes some
/// 300 bytes, one whose blocks differ up to 1 KiB.
const SERIES_MAX: usize = 1 << 16;
/// Most values of a text that are told apart for one element: a state has a few, and a free text is
/// none.
const STATES_MAX: usize = 8;
/// A longer time without a sample is a hole, not a slow change.
const INTERVAL_MAX_NS: u64 = 300_000_000_000;
/// An element is new if it was not there in so much time before: every second, a sample has all of
/// them.
const NEW_AFTER_NS: u64 = 2_200_000_000;
/// The process of which all threads of the kernel are children (kthreadd).
pub(super) const KERNEL_PARENT: u64 = 2;
/// The element of tables that are no lists.
const NO_LIST: u32 = u32::MAX - 1;

/// What a series is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeriesInfo {
    pub(super) table: usize,
    pub(super) column: usize,
    pub(super) element: Option<u32>,
    pub(super) measure: Measure,
    /// The value of a text whose share is observed.
    pub(super) state: Option<Box<str>>,
    /// It was 0 before this monotonic time; none if nothing is known.
    pub(super) born_ns: Option<u64>,
    /// Its element is new.
    pub(super) is_newcomer: bool,
}

/// What a series was between two monotonic times, in the unit of its class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Observation {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) value: f64,
}

/// Receives the observations of all series.
pub(super) trait Observer {
    /// A series begins. Its number may have been that of another one, which has ended.
    fn begin(&mut self, series: usize, info: &SeriesInfo);
    /// Its observations come in the order of time.
    fn observe(&mut self, series: usize, info: &SeriesInfo, observation: Observation);
    /// A series ends.
    fn end(&mut self, series: usize, info: &SeriesInfo);
}

/// What is known of a process beside its series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessFacts {
    pub(super) pid: u64,
    pub(super) parent: Option<u64>,
    /// When it was first seen, if it began during the recording.
    pub(super) born_ns: Option<u64>,
}

/// The series of a query.
#[derive(Debug)]
pub(super) struct SeriesSet {
    tables: Vec<TableSeries>,
    series: Vec<SeriesInfo>,
    free: Vec<usize>,
    /// By element.
    pub(super) processes: HashMap<u32, ProcessFacts>,
    elements_by_pid: HashMap<u64, u32>,
    /// Series that were left out for [`SERIES_MAX`].
    pub(super) left_out: u64,
    /// Elements that were not seen for so long are forgotten.
    forgets_after_ns: u64,
}

#[derive(Debug)]
struct TableSeries {
    columns: Vec<ColumnUse>,
    /// Column with the process id of a parent.
    parent: Option<usize>,
    /// It has fields of its elements that are followed, not only the fact that they are there.
    has_values: bool,
    slots: HashMap<u32, ElementSlot>,
    offspring: HashMap<u32, usize>,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    swept_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ColumnUse {
    Number(Measure),
    State,
    None,
}

/// The last values of an element.
#[derive(Debug)]
struct ElementSlot {
    seen_ns: u64,
    born_ns: Option<u64>,
    cells: Vec<ElementCell>,
}

#[derive(Debug, Default)]
struct ElementCell {
    series: Option<usize>,
    last: Option<Number>,
    states: Vec<StateSeries>,
    last_state: Option<usize>,
    /// The series of all states but the usual one.
    away: Option<usize>,
}

#[derive(Debug)]
struct StateSeries {
    text: Box<str>,
    series: Option<usize>,
    /// Samples that have it.
    seen: u64,
}

#[derive(Debug, Clone, Copy)]
enum Number {
    Integer(u64),
    Float(f64),
}

impl SeriesSet {
    pub(super) fn new(forgets_after_ns: u64) -> Self {
        Self {
            tables: Vec::new(),
            series: Vec::new(),
            free: Vec::new(),
            processes: HashMap::new(),
            elements_by_pid: HashMap::new(),
            left_out: 0,
            forgets_after_ns,
        }
    }

    pub(super) fn info(&self, series: usize) -> Option<&SeriesInfo> {
        self.series.get(series)
    }

    /// Returns the element of a running or ended process.
    pub(super) fn element_of(&self, pid: u64) -> Option<u32> {
        self.elements_by_pid.get(&pid).copied()
    }

    /// Forgets the last values: those of the next run are of other counters.
    pub(super) fn begin_run(&mut self) {
        for table in &mut self.tables {
            (table.first_ns, table.last_ns) = (None, None);
            for cell in table.slots.values_mut().flat_map(|slot| &mut slot.cells) {
                (cell.last, cell.last_state) = (None, None);
            }
        }
    }

    /// Adds the rows of a batch.
    pub(super) fn add(
        &mut self,
        batch: &ColumnBatch,
        tables: &[TableInfo],
        names: &ElementNames,
        observer: &mut impl Observer,
    ) {
        while self.tables.len() <= batch.table {
            let Some(info) = tables.get(self.tables.len()) else { return };
            self.tables.push(TableSeries::new(info));
        }
        let mut row = 0;
        let mut offspring: HashMap<u64, f64> = HashMap::new();
        for (sample, mono_ns) in batch.times.mono_ns.iter().enumerate() {
            let before_ns = self.tables.get(batch.table).and_then(|table| table.last_ns);
            while row < batch.rows() && batch.sample(row) == sample {
                let reading = RowReading { batch, row, mono_ns: *mono_ns, before_ns };
                self.add_row(&reading, names, &mut offspring, observer);
                row += 1;
            }
            if let Some(before_ns) = before_ns {
                self.add_offspring(batch.table, before_ns..*mono_ns, &mut offspring, observer);
            }
            offspring.clear();
            if let Some(table) = self.tables.get_mut(batch.table) {
                table.first_ns.get_or_insert(*mono_ns);
                table.last_ns = Some(*mono_ns);
            }
            self.sweep(batch.table, *mono_ns, observer);
        }
    }

    fn add_row(
        &mut self,
        reading: &RowReading<'_>,
        names: &ElementNames,
        offspring: &mut HashMap<u64, f64>,
        observer: &mut impl Observer,
    ) {
        let Self { tables, series, free, left_out, .. } = self;
        let Some(table) = tables.get_mut(reading.batch.table) else { return };
        let element = reading.batch.element(reading.row);
        let parent = table.parent.and_then(|column| reading.unsigned(column));
        if !table.has_values {
            if let Some(parent) = parent {
                *offspring.entry(parent).or_default() += 1.0;
            }
            return;
        }
        let mut store = SeriesStore { series, free, left_out, observer };
        let key = element.unwrap_or(NO_LIST);
        let columns = table.columns.len();
        let is_new =
            element.is_some() && table.first_ns.is_some_and(|first| first + NEW_AFTER_NS < reading.mono_ns);
        let mut is_first = false;
        let slot = table.slots.entry(key).or_insert_with(|| {
            is_first = true;
            let mut cells = Vec::new();
            cells.resize_with(columns, ElementCell::default);
            let born_ns = if is_new { reading.before_ns } else { None };
            ElementSlot { seen_ns: reading.before_ns.unwrap_or(reading.mono_ns), born_ns, cells }
        });
        let interval = reading.mono_ns.saturating_sub(slot.seen_ns);
        let is_hole = interval == 0 || interval > INTERVAL_MAX_NS;
        for (column, (field, cell)) in table.columns.iter().zip(&mut slot.cells).enumerate() {
            let Some(values) = reading.batch.columns.get(column) else { continue };
            let mut place = SeriesInfo {
                table: reading.batch.table,
                column,
                element,
                measure: Measure::STATE,
                state: None,
                born_ns: slot.born_ns,
                is_newcomer: slot.born_ns.is_some(),
            };
            let span = (slot.seen_ns, reading.mono_ns);
            match field {
                ColumnUse::Number(measure) => {
                    place.measure = *measure;
                    let now = number(values, reading.row);
                    let value = cell.value(now, *measure, interval, slot.born_ns.is_some() && is_first);
                    cell.last = now;
                    if let Some(value) = value.filter(|_| !is_hole) {
                        let series = *cell.series.get_or_insert_with(|| store.begin(place));
                        store.observe(series, span, value);
                    }
                }
                // What a thread of the kernel waits for is the work of others.
                ColumnUse::State if parent == Some(KERNEL_PARENT) => {}
                ColumnUse::State => cell.observe_state(&place, values.get(reading.row), span, &mut store),
                ColumnUse::None => {}
            }
        }
        slot.seen_ns = reading.mono_ns;
        if is_first && let Some(element) = element {
            let born_ns = slot.born_ns;
            self.add_process(element, parent, born_ns, names);
            if let Some(parent) = parent.filter(|_| born_ns.is_some()) {
                *offspring.entry(parent).or_default() += 1.0;
            }
        }
    }

    /// Remembers an element whose identity has a process id.
    fn add_process(&mut self, element: u32, parent: Option<u64>, born_ns: Option<u64>, names: &ElementNames) {
        let Some(pid) = pid_of(names, element) else { return };
        self.processes.insert(element, ProcessFacts { pid, parent, born_ns });
        self.elements_by_pid.insert(pid, element);
    }

    fn add_offspring(
        &mut self,
        table: usize,
        span: std::ops::Range<u64>,
        offspring: &mut HashMap<u64, f64>,
        observer: &mut impl Observer,
    ) {
        let Self { tables, series, free, left_out, elements_by_pid, .. } = self;
        let Some(own) = tables.get_mut(table) else { return };
        let mut store = SeriesStore { series, free, left_out, observer };
        let interval = span.end.saturating_sub(span.start);
        if interval == 0 {
            return;
        }
        let column = own.columns.len();
        for (parent, count) in offspring.drain() {
            let Some(element) = elements_by_pid.get(&parent).copied() else { continue };
            let is_late = own.first_ns.is_some_and(|first| first + NEW_AFTER_NS < span.start);
            let series = *own.offspring.entry(element).or_insert_with(|| {
                store.begin(SeriesInfo {
                    table,
                    column,
                    element: Some(element),
                    measure: Measure::OFFSPRING,
                    state: None,
                    born_ns: is_late.then_some(span.start),
                    is_newcomer: false,
                })
            });
            store.observe(series, (span.start, span.end), count / seconds(interval));
        }
    }

    /// Ends the series of elements that were not seen for long.
    fn sweep(&mut self, table: usize, mono_ns: u64, observer: &mut impl Observer) {
        let Some(own) = self.tables.get_mut(table) else { return };
        if mono_ns.saturating_sub(own.swept_ns) < self.forgets_after_ns {
            return;
        }
        own.swept_ns = mono_ns;
        let limit_ns = mono_ns.saturating_sub(self.forgets_after_ns);
        let Self { series, free, left_out, processes, elements_by_pid, .. } = self;
        let mut store = SeriesStore { series, free, left_out, observer };
        own.slots.retain(|element, slot| {
            if slot.seen_ns >= limit_ns || *element == NO_LIST {
                return true;
            }
            for cell in &slot.cells {
                let states = cell.states.iter().filter_map(|state| state.series);
                let own = cell.series.into_iter().chain(cell.away);
                own.chain(states).for_each(|series| store.end(series));
            }
            if let Some(facts) = processes.remove(element)
                && elements_by_pid.get(&facts.pid) == Some(element)
            {
                elements_by_pid.remove(&facts.pid);
            }
            false
        });
        own.offspring.retain(|element, series| {
            let is_known = processes.contains_key(element);
            if !is_known {
                store.end(*series);
            }
            is_known
        });
    }
}

/// A row that is being read.
struct RowReading<'b> {
    batch: &'b ColumnBatch,
    row: usize,
    mono_ns: u64,
    /// The sample before.
    before_ns: Option<u64>,
}

impl RowReading<'_> {
    fn unsigned(&self, column: usize) -> Option<u64> {
        match self.batch.columns.get(column)?.get(self.row) {
            FieldValue::Unsigned(number) => Some(number),
            _ => None,
        }
    }
}

/// Numbers series and passes their observations on.
struct SeriesStore<'s, O> {
    series: &'s mut Vec<SeriesInfo>,
    free: &'s mut Vec<usize>,
    left_out: &'s mut u64,
    observer: &'s mut O,
}

impl<O: Observer> SeriesStore<'_, O> {
    /// Begins a series. One beyond the limit gets a number that no observation reaches.
    fn begin(&mut self, info: SeriesInfo) -> usize {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.series.len() >= SERIES_MAX => {
                *self.left_out += 1;
                return usize::MAX;
            }
            None => {
                self.series.push(info.clone());
                self.series.len() - 1
            }
        };
        self.observer.begin(number, &info);
        if let Some(own) = self.series.get_mut(number) {
            *own = info;
        }
        number
    }

    fn observe(&mut self, series: usize, (from_ns, to_ns): (u64, u64), value: f64) {
        if let Some(info) = self.series.get(series) {
            self.observer.observe(series, info, Observation { from_ns, to_ns, value });
        }
    }

    fn end(&mut self, series: usize) {
        if let Some(info) = self.series.get(series) {
            self.observer.end(series, info);
            self.free.push(series);
        }
    }
}

impl TableSeries {
    fn new(info: &TableInfo) -> Self {
        // The first text of an element is its name; another one says what it does.
        let mut texts = 0;
        let mut use_of = |column: &ColumnInfo| match Measure::of(column) {
            Some(measure) => ColumnUse::Number(measure),
            None if column.kind == MetricKind::Text && info.list.is_some() => {
                texts += 1;
                if texts > 1 { ColumnUse::State } else { ColumnUse::None }
            }
            None => ColumnUse::None,
        };
        let columns: Vec<ColumnUse> = info.columns.iter().map(&mut use_of).collect();
        let has_values = columns.iter().any(|column| matches!(column, ColumnUse::Number(_)));
        let parent = info.columns.iter().position(|column| &*column.path == "parent");
        Self {
            columns,
            parent: parent.filter(|_| info.list.is_some()),
            has_values,
            slots: HashMap::new(),
            offspring: HashMap::new(),
            first_ns: None,
            last_ns: None,
            swept_ns: 0,
        }
    }
}

impl ElementCell {
    /// Returns the value between the last sample and this one. The counters of a new element were 0
    /// at the sample before.
    fn value(&self, now: Option<Number>, measure: Measure, interval_ns: u64, is_born: bool) -> Option<f64> {
        let now = now?;
        if !measure.is_counter {
            return Some(now.float() * measure.factor);
        }
        let before = if is_born { Some(Number::Integer(0)) } else { self.last };
        let grown = match (before?, now) {
            (Number::Integer(before), Number::Integer(now)) => {
                Number::Integer(now.checked_sub(before)?).float()
            }
            (before, now) => Some(now.float() - before.float()).filter(|grown| *grown >= 0.0)?,
        };
        Some(grown * measure.factor / seconds(interval_ns))
    }

    /// Observes the share of each state, and that of all but the usual one. One that is seen in a
    /// single sample may have been there for a microsecond, so time counts between two samples that
    /// both have it.
    fn observe_state(
        &mut self,
        place: &SeriesInfo,
        value: FieldValue<'_>,
        span: (u64, u64),
        store: &mut SeriesStore<'_, impl Observer>,
    ) {
        let FieldValue::Text(text) = value else {
            self.last_state = None;
            return;
        };
        let known = self.states.iter().position(|state| *state.text == *text);
        let now = known.or_else(|| {
            (self.states.len() < STATES_MAX).then(|| {
                self.states.push(StateSeries { text: text.into(), series: None, seen: 0 });
                self.states.len() - 1
            })
        });
        let usual = (0..self.states.len()).max_by_key(|at| self.states.get(*at).map(|state| state.seen));
        let before = std::mem::replace(&mut self.last_state, now);
        if let Some(state) = now.and_then(|now| self.states.get_mut(now)) {
            state.seen += 1;
        }
        if before.is_none() || span.0 == span.1 {
            return;
        }
        let was_observed = self.states.iter().any(|state| state.series.is_some());
        for (number, state) in self.states.iter_mut().enumerate() {
            let series = *state.series.get_or_insert_with(|| {
                // A state that is new after others was never there before.
                let born_ns = place.born_ns.or(was_observed.then_some(span.0));
                store.begin(SeriesInfo { state: Some(state.text.clone()), born_ns, ..place.clone() })
            });
            let is_there = now == Some(number) && before == now;
            store.observe(series, span, f64::from(u8::from(is_there)));
        }
        let Some(usual_text) = usual.and_then(|usual| Some(self.states.get(usual)?.text.clone())) else {
            return;
        };
        let away = *self.away.get_or_insert_with(|| {
            let state = Some(format!("not {usual_text}").into());
            store.begin(SeriesInfo { state, ..place.clone() })
        });
        store.observe(away, span, f64::from(u8::from(now != usual && before != usual)));
    }
}

impl Number {
    #[allow(clippy::cast_precision_loss, reason = "statistics: 53 bits are plenty")]
    fn float(self) -> f64 {
        match self {
            Self::Integer(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

fn number(column: &ValueColumn, row: usize) -> Option<Number> {
    match column.get(row) {
        FieldValue::Unsigned(number) => Some(Number::Integer(number)),
        _ => column.number(row).filter(|number| number.is_finite()).map(Number::Float),
    }
}

/// Returns the process id in the identity of an element.
pub(super) fn pid_of(names: &ElementNames, element: u32) -> Option<u64> {
    names.identity(element).iter().find(|part| &*part.field == "pid")?.value.parse().ok()
}

#[allow(clippy::cast_precision_loss, reason = "a length of time")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
