//! Turns batches into observations: what a series was between two samples.
//!
//! A series is a numeric field of one element, one value of a text of an element, or the processes
//! below an element. A counter is observed as its rate since the sample before in which its element
//! was seen, however long ago that is: a sample may leave elements out.

use std::collections::{BTreeMap, HashMap};

use flatcap_format::query::{ColumnBatch, ColumnInfo, ElementNames, NO_ELEMENT, RowSource, TableInfo};
use flatcap_format::schema::{FieldValue, MetricKind};

use super::element_slot::{ElementSlot, NumberCell, SeriesPlace, StateCell, number, seconds};
use super::measure::{Measure, ValueClass};
use super::observation::{Observer, SeriesInfo, SeriesStore};

/// A longer time without a sample is a hole, not a slow change.
const INTERVAL_MAX_NS: u64 = 300_000_000_000;
/// An element is new if it was not there in so much time before: every second, a sample has all of
/// them.
const NEW_AFTER_NS: u64 = 2_200_000_000;
/// The process of which all threads of the kernel are children (kthreadd).
pub(super) const KERNEL_PARENT: u64 = 2;

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
    shape: TableShape,
    /// By the number of the element: elements are numbered from 0, without holes. A table that is
    /// no list has one.
    slots: Vec<Option<Box<ElementSlot>>>,
    offspring: BTreeMap<u32, usize>,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    swept_ns: u64,
}

/// What is followed of a table.
#[derive(Debug)]
struct TableShape {
    /// Number of columns.
    width: usize,
    /// Columns with numbers that are followed. Without any, only the fact that elements are there
    /// is of interest.
    numbers: Vec<(usize, Measure)>,
    /// Columns with texts that are followed.
    states: Vec<usize>,
    /// Column with the process id of a parent.
    parent: Option<usize>,
    is_list: bool,
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
            for slot in table.slots.iter_mut().flatten() {
                slot.numbers.iter_mut().for_each(|cell| cell.last = None);
                slot.states.iter_mut().for_each(|cell| cell.last = None);
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
        let mut offspring = BTreeMap::new();
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
        offspring: &mut BTreeMap<u64, f64>,
        observer: &mut impl Observer,
    ) {
        let Self { tables, series, free, left_out, .. } = self;
        let Some(table) = tables.get_mut(reading.batch.table) else { return };
        let element = reading.batch.element(reading.row);
        let TableSeries { shape, slots, first_ns, .. } = table;
        let parent = shape.parent.and_then(|column| reading.unsigned(column));
        if shape.numbers.is_empty() {
            if let Some(parent) = parent {
                *offspring.entry(parent).or_default() += 1.0;
            }
            return;
        }
        let mut store = SeriesStore { series, free, left_out, observer };
        shape.leave_out_children(slots, reading);
        let Some((slot, is_first)) = shape.slot(slots, *first_ns, reading) else { return };
        let place = SeriesPlace { table: reading.batch.table, element, born_ns: slot.born_ns };
        let span = (slot.seen_ns, reading.mono_ns);
        let interval = reading.mono_ns.saturating_sub(slot.seen_ns);
        let is_hole = interval == 0 || interval > INTERVAL_MAX_NS;
        for ((column, measure), cell) in shape.numbers.iter().zip(&mut slot.numbers) {
            let Some(values) = reading.batch.columns.get(*column) else { continue };
            let now = number(values, reading.row);
            let value = cell.value(now, *measure, interval, slot.born_ns.is_some() && is_first);
            cell.last = now;
            if let Some(value) = value.filter(|_| !is_hole) {
                let series = if let Some(series) = cell.series {
                    series as usize
                } else {
                    let series = store.begin(place.info(*column, *measure));
                    cell.series = Some(u32::try_from(series).unwrap_or(u32::MAX));
                    series
                };
                store.observe(series, span, value);
            }
        }
        // What a thread of the kernel waits for is the work of others.
        if parent != Some(KERNEL_PARENT) {
            for (column, cell) in shape.states.iter().zip(&mut slot.states) {
                let Some(values) = reading.batch.columns.get(*column) else { continue };
                cell.observe((&place, *column), values.get(reading.row), span, &mut store);
            }
        }
        slot.seen_ns = reading.mono_ns;
        if is_first && let Some(element) = element {
            let born_ns = slot.born_ns;
            self.add_process(element, parent, born_ns, names);
            self.add_child(reading.batch.table, element, parent);
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

    /// Remembers whose child an element is.
    fn add_child(&mut self, table: usize, element: u32, parent: Option<u64>) {
        let parent = parent.and_then(|parent| self.element_of(parent)).filter(|parent| *parent != element);
        let slots = self.tables.get_mut(table).map(|table| &mut table.slots);
        if let (Some(parent), Some(slots)) = (parent, slots)
            && let Some(Some(slot)) = slots.get_mut(parent as usize)
        {
            slot.children.push(element);
        }
    }

    fn add_offspring(
        &mut self,
        table: usize,
        span: std::ops::Range<u64>,
        offspring: &mut BTreeMap<u64, f64>,
        observer: &mut impl Observer,
    ) {
        let Self { tables, series, free, left_out, elements_by_pid, .. } = self;
        let Some(own) = tables.get_mut(table) else { return };
        let mut store = SeriesStore { series, free, left_out, observer };
        let interval = span.end.saturating_sub(span.start);
        if interval == 0 {
            return;
        }
        let column = own.shape.width;
        for (parent, count) in std::mem::take(offspring) {
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
        for (element, slot) in (0_u32..).zip(own.slots.iter_mut().filter(|_| own.shape.is_list)) {
            let Some(ended) = slot.take_if(|slot| slot.seen_ns < limit_ns) else { continue };
            ended.series().for_each(|series| store.end(series));
            if let Some(facts) = processes.remove(&element)
                && elements_by_pid.get(&facts.pid) == Some(&element)
            {
                elements_by_pid.remove(&facts.pid);
            }
        }
        let is_there: Vec<bool> = own.slots.iter().map(Option::is_some).collect();
        for slot in own.slots.iter_mut().flatten() {
            slot.children.retain(|child| is_there.get(*child as usize) == Some(&true));
        }
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
    /// Returns whether an element is in the sample of the row.
    fn has_element(&self, element: u32) -> bool {
        let RowSource::Elements { samples, elements } = &self.batch.rows else { return false };
        let own = samples.get(self.row);
        let first = samples.partition_point(|sample| Some(sample) < own);
        let end = samples.partition_point(|sample| Some(sample) <= own);
        elements.get(first..end).unwrap_or_default().contains(&element)
    }

    fn unsigned(&self, column: usize) -> Option<u64> {
        match self.batch.columns.get(column)?.get(self.row) {
            FieldValue::Unsigned(number) => Some(number),
            _ => None,
        }
    }
}

impl TableSeries {
    fn new(info: &TableInfo) -> Self {
        let is_list = info.list.is_some();
        let columns = || info.columns.iter().enumerate();
        let numbers = columns().filter_map(|(at, column)| Some((at, Measure::of(column)?)));
        let is_text = |(_, column): &(usize, &ColumnInfo)| {
            column.kind == MetricKind::Text && Measure::of(column).is_none()
        };
        // The first text of an element is its name; another one says what it does.
        let states = columns().filter(|_| is_list).filter(is_text).skip(1).map(|(at, _)| at);
        let parent = info.columns.iter().position(|column| &*column.path == "parent");
        let shape = TableShape {
            width: info.columns.len(),
            numbers: numbers.collect(),
            states: states.collect(),
            parent: parent.filter(|_| is_list),
            is_list,
        };
        Self {
            shape,
            slots: Vec::new(),
            offspring: BTreeMap::new(),
            first_ns: None,
            last_ns: None,
            swept_ns: 0,
        }
    }
}

impl TableShape {
    /// Leaves out of the byte counters of a process what its children did that have ended: the
    /// kernel adds their bytes to its own at once when it waits for them. A child that is not in
    /// this sample has ended, or was skipped because it does little, as its bytes are then few.
    fn leave_out_children(&self, slots: &mut [Option<Box<ElementSlot>>], reading: &RowReading<'_>) {
        let at = reading.batch.element(reading.row).map_or(usize::MAX, |element| element as usize);
        let Some(Some(slot)) = slots.get_mut(at) else { return };
        if slot.children.is_empty() {
            return;
        }
        let seconds = seconds(reading.mono_ns.saturating_sub(slot.seen_ns));
        let children = std::mem::take(&mut slot.children);
        for (place, (column, measure)) in self.numbers.iter().enumerate() {
            if !(measure.class == ValueClass::ByteRate && measure.is_counter) {
                continue;
            }
            let now = reading.batch.columns.get(*column).and_then(|values| number(values, reading.row));
            let cell = slots.get(at).and_then(Option::as_ref).and_then(|slot| slot.numbers.get(place));
            let Some(growth) = cell.and_then(|cell| cell.growth(now)) else { continue };
            #[allow(clippy::cast_precision_loss, reason = "statistics: 53 bits are plenty")]
            let rate = growth as f64 * measure.factor / seconds;
            // Less is no departure, whoever did it.
            if rate.is_nan() || rate <= measure.class.least_departure() {
                continue;
            }
            let mut of_children = 0;
            for child in children.iter().filter(|child| !reading.has_element(**child)) {
                let child = slots.get_mut(*child as usize).and_then(Option::as_mut);
                let cell = child.and_then(|child| child.numbers.get_mut(place));
                of_children += cell.map_or(0, |cell| cell.inherit(growth - of_children));
            }
            let cell = slots.get_mut(at).and_then(Option::as_mut);
            if let Some(cell) = cell.and_then(|slot| slot.numbers.get_mut(place)) {
                // What they did after they were seen last is not known: about as much, at most.
                cell.leave_out(of_children.saturating_mul(2).min(growth));
            }
        }
        if let Some(Some(slot)) = slots.get_mut(at) {
            slot.children = children;
        }
    }

    /// Returns the slot of an element, and whether it is new; none for an element for which there
    /// was no number.
    fn slot<'s>(
        &self,
        slots: &'s mut Vec<Option<Box<ElementSlot>>>,
        first_ns: Option<u64>,
        reading: &RowReading<'_>,
    ) -> Option<(&'s mut ElementSlot, bool)> {
        let element = reading.batch.element(reading.row);
        if element == Some(NO_ELEMENT) {
            return None;
        }
        let at = element.unwrap_or_default() as usize;
        if slots.len() <= at {
            slots.resize_with(at + 1, || None);
        }
        let slot = slots.get_mut(at)?;
        let is_first = slot.is_none();
        let slot = slot.get_or_insert_with(|| {
            let is_late = first_ns.is_some_and(|first| first + NEW_AFTER_NS < reading.mono_ns);
            let is_new = element.is_some() && is_late;
            Box::new(ElementSlot {
                seen_ns: reading.before_ns.unwrap_or(reading.mono_ns),
                born_ns: if is_new { reading.before_ns } else { None },
                numbers: vec![NumberCell::default(); self.numbers.len()].into(),
                states: self.states.iter().map(|_| StateCell::default()).collect(),
                children: Vec::new(),
            })
        });
        Some((slot, is_first))
    }
}

/// Returns the process id in the identity of an element.
pub(super) fn pid_of(names: &ElementNames, element: u32) -> Option<u64> {
    names.identity(element).iter().find(|part| &*part.field == "pid")?.value.parse().ok()
}
