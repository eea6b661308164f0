//! Turns batches into observations. An observation is the value of a series between two samples.
//!
//! There are three kinds of series: a numeric field of an element, one value of a string of an
//! element, and the processes below an element. A counter is observed as its rate since the
//! previous sample that has its element. The previous sample with the element may be much older,
//! because a sample may leave out elements.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

use flatcap_query::{ColumnBatch, ElementName, ElementNames, NO_ELEMENT, TableInfo};

use super::element_row::{ElementRow, INTERVAL_MAX_NS, seconds};
use super::element_rows::{ElementRows, rows_of};
use super::element_slot::ElementSlot;
use super::measure::Measure;
use super::observation::{Observation, Observer, SeriesInfo, SeriesStore};
use super::process_exits::{ProcessEnd, ProcessExits};
use super::table_shape::{
    EXITS_MAX, ForeignSources, NEW_AFTER_NS, ProcessFacts, RowReading, TableOrigin, TableShape, ended_below,
    ends_at,
};

/// The process of which all threads of the kernel are children (kthreadd).
pub(super) const KERNEL_PARENT: u64 = 2;
/// Maximum number of stored time ranges in which the growth of an element is left out.
const LEFT_OUT_MAX: usize = 1 << 12;
/// Maximum number of names of an element that are kept. The latest names are kept.
const NAMES_MAX: usize = 64;
/// Accuracy of the clock of a run. A name is valid from this duration before the sample that
/// contains it.
const CLOCK_NS: i64 = 1_000_000;

/// The series of a query.
#[derive(Debug, Default)]
pub(super) struct SeriesSet {
    foreign: ForeignSources,
    tables: Vec<TableSeries>,
    series: Vec<SeriesInfo>,
    free: Vec<usize>,
    /// The names of each element, with the wall time of the first sample with the name.
    named: Vec<Vec<(i64, ElementName)>>,
    /// Facts about processes, by element.
    pub(super) processes: HashMap<u32, ProcessFacts>,
    elements_by_pid: HashMap<u64, u32>,
    /// The elements of processes, by process id and start time.
    elements_by_start: HashMap<(u64, u64), u32>,
    /// The processes in `elements_by_start` whose slots were removed, in order of the removal.
    ended_starts: VecDeque<(u64, u64)>,
    exits: ProcessExits,
    /// Samples of lists from which only the parents are used. The offspring in these samples is not
    /// counted yet.
    uncounted: Vec<ParentSample>,
    /// Elements of processes to which the kernel added bytes of ended processes, with the time
    /// ranges in which this happened. The growth of these elements in these ranges is left out.
    inherited: VecDeque<(u32, Range<u64>)>,
    /// The process id of the recorder of the run; 0 if it is not known.
    recorder_pid: u64,
    /// The elements of the recorders of all runs.
    recorders: HashSet<u32>,
    /// Number of series that were left out because of [`SERIES_MAX`].
    pub(super) left_out: u64,
    /// Time after which a missing element is removed, in nanoseconds.
    forgets_after_ns: u64,
    observations: Vec<Observation>, // reused
}

#[derive(Debug)]
struct TableSeries {
    shape: TableShape,
    /// The slots, by the index of the element. The indexes of elements begin at 0 and have no
    /// holes. A table that is not a list has one slot.
    slots: Vec<Option<Box<ElementSlot>>>,
    /// Rows to be observed.
    rows: ElementRows,
    offspring: BTreeMap<u32, usize>,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    swept_ns: u64,
    /// The indexes of the current sample and of the last complete sample before it.
    sample: u64,
    complete_before: u64,
    /// Whether the current sample may leave out elements.
    leaves_out: bool,
}

/// The parents in a sample of a list.
#[derive(Debug)]
struct ParentSample {
    table: usize,
    span: Range<u64>,
    counts: BTreeMap<u64, f64>,
}

impl SeriesSet {
    pub(super) fn new(forgets_after_ns: u64, foreign: ForeignSources) -> Self {
        Self { foreign, forgets_after_ns, ..Self::default() }
    }

    pub(super) fn info(&self, series: usize) -> Option<&SeriesInfo> {
        self.series.get(series)
    }

    /// Returns the processes whose end the kernel reported in a range of monotonic time.
    pub(super) fn ends(&self, span: &Range<u64>) -> impl Iterator<Item = &ProcessEnd> {
        self.exits.ends(span)
    }

    /// Returns the element of a process that ended, or `None` if no sample contains the process. A
    /// process id may be used again, so the start of the process decides.
    pub(super) fn element_of_end(&self, end: &ProcessEnd) -> Option<u32> {
        self.elements_by_start.get(&(end.pid, end.start?)).copied()
    }

    /// Returns the monotonic times at which processes ended, by element. An end may have been read
    /// before the samples of its process.
    fn ended_elements(&self) -> HashMap<u32, u64> {
        let ends = self.exits.ends(&(0..u64::MAX));
        ends.filter_map(|end| Some((self.element_of_end(end)?, end.mono_ns))).collect()
    }

    /// Returns the series of an element, with their descriptions.
    pub(super) fn series_of(&self, element: u32) -> impl Iterator<Item = (usize, &SeriesInfo)> {
        self.series.iter().enumerate().filter(move |(_, info)| info.element == Some(element))
    }

    /// Returns the element of a running or ended process.
    pub(super) fn element_of(&self, pid: u64) -> Option<u32> {
        self.elements_by_pid.get(&pid).copied()
    }

    /// Returns the name that an element had at a wall time, because a process may execute another
    /// program later.
    pub(super) fn name_at(&self, names: &ElementNames, element: u32, wall_ns: i64) -> ElementName {
        let own = self.named.get(element as usize).map_or(&[][..], Vec::as_slice);
        let is_before = |(since_ns, _): &&(i64, ElementName)| *since_ns <= wall_ns.saturating_add(CLOCK_NS);
        let found = own.iter().rev().find(is_before).or(own.first());
        found.map_or_else(|| names.latest(element), |(_, name)| *name)
    }

    /// Stores the name of an element in a row.
    fn note_name(&mut self, batch: &ColumnBatch, row: usize) {
        let (Some(element), Some(name)) = (batch.element(row), batch.name(row)) else { return };
        let Some(wall_ns) = batch.times.wall_ns.get(batch.sample(row)).filter(|_| element != NO_ELEMENT)
        else {
            return;
        };
        let place = element as usize;
        if self.named.len() <= place {
            self.named.resize_with(place + 1, Vec::new);
        }
        let Some(own) = self.named.get_mut(place) else { return };
        if own.last().is_none_or(|(_, last)| *last != name) {
            if own.len() == NAMES_MAX {
                own.remove(0);
            }
            own.push((*wall_ns, name));
        }
    }

    /// Returns whether a program pushed the values of a table.
    pub(super) fn is_pushed(&self, table: usize) -> bool {
        self.tables.get(table).is_some_and(|table| table.shape.origin == TableOrigin::Pushed)
    }

    /// Returns whether the values of a column are ranked.
    pub(super) fn is_ranked(&self, table: usize, column: usize) -> bool {
        self.tables.get(table).is_some_and(|table| {
            let shape = &table.shape;
            shape.numbers.iter().any(|(number, _)| *number == column) || shape.states.contains(&column)
        })
    }

    /// Returns the time ranges in which the kernel added bytes of ended processes to the byte
    /// counters of an element.
    pub(super) fn inherited(&self, element: u32) -> Vec<Range<u64>> {
        let own = self.inherited.iter().filter(|(other, _)| *other == element);
        own.map(|(_, span)| span.clone()).collect()
    }

    /// Returns whether an element is the process of a recorder.
    pub(super) fn is_recorder(&self, element: u32) -> bool {
        self.recorders.contains(&element)
    }

    /// Forgets the last values, since the counters of the next run are independent of them. A
    /// process id of 0 means that the recorder's process id is not known.
    pub(super) fn begin_run(&mut self, recorder_pid: u32) {
        self.recorder_pid = u64::from(recorder_pid);
        self.exits.clear();
        for table in &mut self.tables {
            (table.first_ns, table.last_ns, table.swept_ns) = (None, None, 0);
            for slot in table.slots.iter_mut().flatten() {
                // Monotonic time may start again at a lower value.
                slot.seen_ns = None;
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
            self.tables.push(TableSeries::new(info, &self.foreign));
        }
        if self.tables.get(batch.table).is_some_and(|table| table.shape.has_parents_alone()) {
            self.count_offspring(observer);
            self.add_parents(batch);
            return;
        }
        let mut row = 0;
        let mut offspring = BTreeMap::new();
        for (sample, mono_ns) in batch.times.mono_ns.iter().enumerate() {
            let before_ns = self.tables.get(batch.table).and_then(|table| table.last_ns);
            if let Some(table) = self.tables.get_mut(batch.table) {
                table.begin_sample(batch.leaves_out(sample));
            }
            let rows = rows_of(batch, sample, row);
            while row < rows.end {
                let reading = RowReading { batch, row, rows: rows.clone(), mono_ns: *mono_ns, before_ns };
                self.note_name(batch, row);
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
                if mono_ns.saturating_sub(table.swept_ns) >= self.forgets_after_ns {
                    // The rows are observed first, because they refer to slots that the sweep
                    // frees.
                    self.observe_rows(batch, observer);
                    self.sweep(batch.table, *mono_ns, observer);
                }
            }
        }
        self.observe_rows(batch, observer);
        // Processes must be known before the ended processes below them are counted.
        if self.tables.get(batch.table).is_some_and(|table| table.shape.are_processes) {
            self.count_offspring(observer);
        }
    }

    /// Adds a batch of a list from which only the parents are used. Must be called before the
    /// counters of the parents are read, because process exits affect these counters.
    fn add_parents(&mut self, batch: &ColumnBatch) {
        let Some(own) = self.tables.get(batch.table) else { return };
        let Some(parent) = own.shape.parent else { return };
        let exits = own.shape.exits;
        let mut before = own.last_ns;
        let mut row = 0;
        for (sample, mono_ns) in batch.times.mono_ns.iter().enumerate() {
            let mut counts = BTreeMap::<u64, f64>::new();
            let rows = rows_of(batch, sample, row);
            while row < rows.end {
                let reading =
                    RowReading { batch, row, rows: rows.clone(), mono_ns: *mono_ns, before_ns: before };
                if let Some(parent) = reading.unsigned(parent) {
                    *counts.entry(parent).or_default() += 1.0;
                }
                let end = exits.and_then(|columns| {
                    Some(ProcessEnd {
                        pid: reading.unsigned(columns.pid)?,
                        start: reading.unsigned(columns.start),
                        mono_ns: reading.unsigned(columns.ended)?,
                        exit_code: reading.unsigned(columns.exit_code),
                        signal: reading.unsigned(columns.signal),
                    })
                });
                if let Some(end) = end {
                    self.exits.add_end(end);
                }
                row += 1;
            }
            if let Some(before_ns) = before {
                let span = before_ns..*mono_ns;
                self.exits.add(batch.table, &span, counts.keys().copied());
                if !counts.is_empty() {
                    self.uncounted.push(ParentSample { table: batch.table, span, counts });
                }
            }
            before = Some(*mono_ns);
        }
        self.exits.limit(batch.table);
        if let Some(own) = self.tables.get_mut(batch.table) {
            if let Some(first) = batch.times.mono_ns.first() {
                own.first_ns.get_or_insert(*first);
            }
            own.last_ns = before;
        }
    }

    /// Counts the offspring in lists from which only the parents are used.
    fn count_offspring(&mut self, observer: &mut impl Observer) {
        for ParentSample { table, span, mut counts } in std::mem::take(&mut self.uncounted) {
            self.add_offspring(table, span.clone(), &mut counts, observer);
            let swept_ns = self.tables.get(table).map_or(0, |table| table.swept_ns);
            if span.end.saturating_sub(swept_ns) >= self.forgets_after_ns {
                self.sweep(table, span.end, observer);
            }
        }
    }

    /// At the end of a run, passes the observations that are held back to the observer.
    pub(super) fn flush(&mut self, observer: &mut impl Observer) {
        self.count_offspring(observer);
        let ended = self.ended_elements();
        let Self { tables, series, free, left_out, observations, .. } = self;
        let mut store = SeriesStore { series, free, left_out, observer, observations };
        for (number, table) in tables.iter_mut().enumerate() {
            let TableSeries { shape, slots, last_ns, .. } = table;
            for (element, slot) in (0_u32..).zip(slots) {
                let Some(slot) = slot else { continue };
                slot.flush((number, shape.is_list.then_some(element)), shape.columns(), &mut store);
                if shape.are_processes
                    && let (Some(end_ns), Some(last_ns)) = (ended.get(&element), *last_ns)
                {
                    slot.rest(&slot.time_after(*end_ns, last_ns), shape.columns(), &mut store);
                }
            }
        }
    }

    /// Observes the rows of a batch that were added so far.
    fn observe_rows(&mut self, batch: &ColumnBatch, observer: &mut impl Observer) {
        let Self { tables, series, free, left_out, observations, .. } = self;
        let Some(TableSeries { shape, slots, rows, .. }) = tables.get_mut(batch.table) else { return };
        let mut store = SeriesStore { series, free, left_out, observer, observations };
        rows.observe(batch, shape.columns(), slots, &mut store);
    }

    fn add_row(
        &mut self,
        reading: &RowReading<'_>,
        names: &ElementNames,
        offspring: &mut BTreeMap<u64, f64>,
        observer: &mut impl Observer,
    ) {
        let Self { tables, series, free, left_out, observations, exits, inherited, .. } = self;
        let (processes, elements_by_pid) = (&self.processes, &self.elements_by_pid);
        let Some(table) = tables.get_mut(reading.batch.table) else { return };
        let element = reading.batch.element(reading.row);
        let TableSeries { shape, slots, rows, first_ns, sample, complete_before, .. } = table;
        let is_pushed = shape.origin == TableOrigin::Pushed;
        let parent = shape.parent.and_then(|column| reading.unsigned(column));
        let mut store = SeriesStore { series, free, left_out, observer, observations };
        if shape.may_inherit(slots, rows, reading) {
            let at = element.unwrap_or_default();
            let ended = ended_below(slots, at, reading);
            // The previous values of the counters are in rows that are not observed yet.
            for at in ended.iter().chain([&at]) {
                rows.observe_slot(*at as usize, (reading.batch, shape.columns()), slots, &mut store);
            }
            let since = slots.get(at as usize).and_then(Option::as_ref).and_then(|slot| slot.seen_ns);
            let span = since.unwrap_or(reading.mono_ns)..reading.mono_ns;
            let has_ended_below = pid_of(names, at).is_some_and(|pid| {
                let mut parents = exits.within(&span);
                parents.any(|parent| ends_at(parent, pid, reading, (processes, elements_by_pid)))
            });
            if shape.leave_out_inherited(slots, reading, (&ended, has_ended_below)) {
                inherited.push_back((at, span));
                let excess = inherited.len().saturating_sub(LEFT_OUT_MAX);
                inherited.drain(..excess);
            }
        }
        let Some((slot, is_first)) = shape.slot(slots, *first_ns, reading) else { return };
        // A complete sample without the element proves that it had ended.
        let is_another = !is_first && slot.seen_sample < *complete_before;
        let last_ns = reading.before_ns.unwrap_or(reading.mono_ns);
        let row = ElementRow {
            row: reading.row,
            from_ns: slot.seen_ns.filter(|_| !is_another).unwrap_or(last_ns),
            to_ns: reading.mono_ns,
            before_ns: reading.before_ns.unwrap_or(reading.mono_ns),
            is_born: slot.born_ns.is_some() && is_first,
            is_another,
        };
        (slot.seen_ns, slot.seen_sample) = (Some(reading.mono_ns), *sample);
        let born_ns = slot.born_ns;
        slot.is_of_kernel = parent == Some(KERNEL_PARENT);
        rows.add(element.unwrap_or_default() as usize, row);
        if is_first && let Some(element) = element.filter(|_| !is_pushed) {
            self.add_process(element, parent, born_ns, names);
            self.add_child(reading.batch.table, element, parent);
            if let Some(parent) = parent.filter(|_| born_ns.is_some()) {
                *offspring.entry(parent).or_default() += 1.0;
            }
        }
    }

    /// Stores an element whose identity has a process id.
    fn add_process(&mut self, element: u32, parent: Option<u64>, born_ns: Option<u64>, names: &ElementNames) {
        let Some(pid) = pid_of(names, element) else { return };
        let start = number_in(names, names.latest(element), "start");
        self.processes.insert(element, ProcessFacts { pid, start, parent, born_ns });
        self.elements_by_pid.insert(pid, element);
        if let Some(start) = start {
            self.elements_by_start.insert((pid, start), element);
        }
        if pid == self.recorder_pid && pid != 0 {
            self.recorders.insert(element);
        }
    }

    /// Stores the parent of an element.
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
        if offspring.is_empty() {
            return; // most samples
        }
        let Self { tables, series, free, left_out, elements_by_pid, observations, .. } = self;
        let Some(own) = tables.get_mut(table) else { return };
        let mut store = SeriesStore { series, free, left_out, observer, observations };
        let interval = span.end.saturating_sub(span.start);
        if !(1..=INTERVAL_MAX_NS).contains(&interval) {
            return;
        }
        let column = own.shape.width;
        for (parent, count) in std::mem::take(offspring) {
            let Some(element) = elements_by_pid.get(&parent).copied() else { continue };
            // At the start of a recording, all elements seem new.
            let is_late = own.first_ns.is_some_and(|first| first.saturating_add(NEW_AFTER_NS) < span.start);
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
            let value = count / seconds(interval);
            store.observe(series, &[Observation { from_ns: span.start, to_ns: span.end, value }]);
        }
    }

    /// Ends the series of elements that have been missing for too long.
    fn sweep(&mut self, table: usize, mono_ns: u64, observer: &mut impl Observer) {
        let limit_ns = mono_ns.saturating_sub(self.forgets_after_ns);
        let ended = self.ended_elements();
        let Self { tables, series, free, left_out, processes, observations, .. } = self;
        let (elements_by_pid, elements_by_start) = (&mut self.elements_by_pid, &mut self.elements_by_start);
        let Some(own) = tables.get_mut(table) else { return };
        own.swept_ns = mono_ns;
        let mut store = SeriesStore { series, free, left_out, observer, observations };
        for (element, slot) in (0_u32..).zip(own.slots.iter_mut().filter(|_| own.shape.is_list)) {
            // Elements of the previous run are kept until the next sweep.
            let is_ended = |slot: &mut Box<ElementSlot>| *slot.seen_ns.get_or_insert(mono_ns) < limit_ns;
            let Some(mut swept) = slot.take_if(is_ended) else { continue };
            swept.flush((table, Some(element)), own.shape.columns(), &mut store);
            if let Some(end_ns) = ended.get(&element).filter(|_| own.shape.are_processes) {
                swept.rest(&swept.time_after(*end_ns, mono_ns), own.shape.columns(), &mut store);
            }
            swept.series().for_each(|series| store.end(series));
            let Some(facts) = processes.remove(&element) else { continue };
            // The kernel may have given the id to a new process, whose entry must be kept.
            if elements_by_pid.get(&facts.pid) == Some(&element) {
                elements_by_pid.remove(&facts.pid);
            }
            // The end of a process may be examined later.
            self.ended_starts.extend(facts.start.map(|start| (facts.pid, start)));
            if self.ended_starts.len() > EXITS_MAX
                && let Some(oldest) = self.ended_starts.pop_front()
            {
                elements_by_start.remove(&oldest);
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

impl TableSeries {
    fn new(info: &TableInfo, foreign: &ForeignSources) -> Self {
        Self {
            shape: TableShape::new(info, foreign),
            slots: Vec::new(),
            rows: ElementRows::default(),
            offspring: BTreeMap::new(),
            first_ns: None,
            last_ns: None,
            swept_ns: 0,
            sample: 0,
            complete_before: 0,
            leaves_out: true,
        }
    }

    /// Begins a sample. `leaves_out` says whether the sample may leave out elements.
    fn begin_sample(&mut self, leaves_out: bool) {
        if !self.leaves_out {
            self.complete_before = self.sample;
        }
        self.sample += 1;
        self.leaves_out = leaves_out;
    }
}

/// Returns the process id in the identity of an element.
fn pid_of(names: &ElementNames, element: u32) -> Option<u64> {
    pid_in(names, names.latest(element))
}

/// Returns the process id in the identity of an element that has this name.
pub(super) fn pid_in(names: &ElementNames, name: ElementName) -> Option<u64> {
    number_in(names, name, "pid")
}

/// Returns the start time in the identity of a process that has this name.
pub(super) fn start_in(names: &ElementNames, name: ElementName) -> Option<u64> {
    number_in(names, name, "start")
}

/// Returns a number in the identity of an element that has this name.
fn number_in(names: &ElementNames, name: ElementName, field: &str) -> Option<u64> {
    names.identity(name).iter().find(|part| &*part.field == field)?.value.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use flatcap_format::schema::{ColumnType, MetricKind, Usage};
    use flatcap_query::{BatchTimes, ColumnInfo, ColumnValues, RowSource, ValidRows, ValueColumn};

    use super::*;

    const STEP_NS: u64 = 10_000_000;
    const ELEMENTS: usize = 3;

    /// The observations of each series as a function of time, by the name of the series.
    #[derive(Default)]
    pub(crate) struct Recorded<const JOINS: bool> {
        pub(crate) functions: BTreeMap<(Option<u32>, usize), Vec<Observation>>,
        pub(crate) calls: usize,
    }

    fn is_next(last: &Observation, next: &Observation) -> bool {
        last.to_ns == next.from_ns && last.value.to_bits() == next.value.to_bits()
    }

    impl<const JOINS: bool> Observer for Recorded<JOINS> {
        const JOINS: bool = JOINS;

        fn begin(&mut self, _: usize, _: &SeriesInfo) {}

        fn observe(&mut self, _: usize, info: &SeriesInfo, observations: &[Observation]) {
            let known = self.functions.entry((info.element, info.column)).or_default();
            for next in observations {
                self.calls += 1;
                match known.last_mut() {
                    Some(last) if is_next(last, next) => last.to_ns = next.to_ns,
                    last => {
                        assert!(last.is_none_or(|last| last.to_ns <= next.from_ns), "out of order");
                        known.push(*next);
                    }
                }
            }
        }

        fn end(&mut self, _: usize, _: &SeriesInfo) {}
    }

    fn table() -> TableInfo {
        let column = |path: &str, kind| ColumnInfo {
            path: path.into(),
            column_type: ColumnType::Unsigned,
            type_name: "ulong".into(),
            unit: Some("bytes".into()),
            kind,
            usage: Usage::Use,
            is_identity: false,
            order: 0,
        };
        let columns = vec![column("moved", MetricKind::Counter), column("held", MetricKind::Gauge)];
        TableInfo { source: "s".into(), instance: None, list: Some("l[*]".into()), columns }
    }

    /// Returns the samples of a range. The samples contain a counter that stays at rest for some
    /// time, and a gauge that stays at rest longer. The last element ends after half of all
    /// samples, and later nothing is recorded for some minutes.
    fn batch(samples: std::ops::Range<usize>, all: usize) -> ColumnBatch {
        let mut rows = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (number, sample) in samples.clone().enumerate() {
            let here = if sample < all / 2 { ELEMENTS } else { ELEMENTS - 1 };
            for element in 0..here {
                rows.0.push(u32::try_from(number).unwrap());
                rows.1.push(u32::try_from(element).unwrap());
                let moved = if sample / 40 % 3 == element { sample * 7 } else { sample / 40 * 280 };
                rows.2.push(moved as u64);
                rows.3.push((sample / (900 + 500 * element)) as u64);
            }
        }
        let hole_ns = |sample: usize| if sample < all * 2 / 3 { 0 } else { 400_000_000_000 };
        let mono_ns: Vec<u64> =
            samples.map(|sample| (1 + sample as u64) * STEP_NS + hole_ns(sample)).collect();
        let times = BatchTimes {
            seq: mono_ns.clone(),
            wall_ns: mono_ns.iter().map(|ns| ns.cast_signed()).collect(),
            duration_ns: vec![0; mono_ns.len()],
            flags: vec![0; mono_ns.len()],
            mono_ns,
        };
        let column = |values: Vec<u64>| ValueColumn {
            valid: ValidRows::all(values.len()),
            values: ColumnValues::Unsigned(values),
        };
        let columns = vec![column(rows.2), column(rows.3)];
        ColumnBatch {
            table: 0,
            times,
            rows: RowSource::Elements { samples: rows.0, elements: rows.1, names: Vec::new() },
            columns,
            ..ColumnBatch::default()
        }
    }

    /// Returns the observations from batches of `length` samples.
    fn observed<const JOINS: bool>(length: usize) -> Recorded<JOINS> {
        let (all, tables) = (4000, [table()]);
        let mut set = SeriesSet::new(10_000_000_000, ForeignSources::default());
        let mut recorded = Recorded::default();
        let mut from = 0;
        while from < all {
            let to = (from + length).min(all);
            set.add(&batch(from..to, all), &tables, &ElementNames::default(), &mut recorded);
            from = to;
        }
        set.flush(&mut recorded);
        recorded
    }

    // Proves that an element that no longer exists after a reboot is forgotten, although monotonic
    // time is less than in the previous run.
    #[test]
    fn elements_of_an_earlier_boot_are_forgotten() {
        let tables = [table()];
        let mut set = SeriesSet::new(10_000_000_000, ForeignSources::default());
        let mut recorded = Recorded::<true>::default();
        set.add(&batch(60_000..60_500, 1_000_000), &tables, &ElementNames::default(), &mut recorded);
        let known = |set: &SeriesSet| set.tables[0].slots.iter().flatten().count();
        assert_eq!(known(&set), ELEMENTS);
        set.flush(&mut recorded);
        set.begin_run(0);
        recorded.functions.clear();
        // These samples lack the last element, for 30 s.
        set.add(&batch(0..1500, 0), &tables, &ElementNames::default(), &mut recorded);
        set.add(&batch(1500..3000, 0), &tables, &ElementNames::default(), &mut recorded);
        assert_eq!(known(&set), ELEMENTS - 1);
    }

    const SECOND_NS: u64 = 1_000_000_000;

    /// Returns a sample with the columns of [`table`] for some elements.
    fn sample(second: u64, elements: &[(u32, u64)]) -> ColumnBatch {
        let column = |values: Vec<u64>| ValueColumn {
            valid: ValidRows::all(values.len()),
            values: ColumnValues::Unsigned(values),
        };
        let times = BatchTimes {
            seq: vec![second],
            mono_ns: vec![second * SECOND_NS],
            wall_ns: vec![0],
            duration_ns: vec![0],
            flags: vec![0],
        };
        let rows = RowSource::Elements {
            samples: vec![0; elements.len()],
            elements: elements.iter().map(|(element, _)| *element).collect(),
            names: Vec::new(),
        };
        let second_column = elements.iter().map(|(_, value)| *value).collect();
        let columns = vec![column(vec![7; elements.len()]), column(second_column)];
        ColumnBatch { table: 0, times, rows, columns, ..ColumnBatch::default() }
    }

    // Proves that an element that began long before its first sample is not new.
    #[test]
    fn an_element_that_began_before_is_not_new() {
        let mut began = table();
        began.columns[1].is_identity = true;
        began.columns[1].unit = Some("ms".into());
        let tables = [began];
        let mut set = SeriesSet::new(10 * SECOND_NS, ForeignSources::default());
        let mut recorded = Recorded::<true>::default();
        let mut see = |second: u64, elements: &[(u32, u64)]| {
            set.add(&sample(second, elements), &tables, &ElementNames::default(), &mut recorded);
        };
        for second in 100..110 {
            see(second, &[(0, 5)]);
        }
        // This sample comes after a hole in which one of the elements began.
        see(120, &[(0, 5), (1, 90_000), (2, 115_000)]);
        let born = |element: usize| set.tables[0].slots[element].as_ref().unwrap().born_ns;
        assert_eq!([0, 1, 2].map(born), [None, None, Some(109 * SECOND_NS)]);
    }

    // Proves that an element keeps its level over samples that leave it out, with and without
    // joined observations. Complete samples without the element end its level.
    #[test]
    fn a_level_that_was_left_out_stays() {
        fn observed<const JOINS: bool>(is_sparse: bool) -> Vec<Observation> {
            let tables = [table()];
            let mut set = SeriesSet::new(100 * SECOND_NS, ForeignSources::default());
            let mut recorded = Recorded::<JOINS>::default();
            for (second, elements) in
                [(10, &[(0, 5), (1, 5)][..]), (11, &[(0, 5), (1, 5)]), (12, &[(0, 5)]), (13, &[(0, 5)])]
            {
                let batch = ColumnBatch { sparse: vec![is_sparse], ..sample(second, elements) };
                set.add(&batch, &tables, &ElementNames::default(), &mut recorded);
            }
            set.add(&sample(14, &[(0, 5), (1, 9)]), &tables, &ElementNames::default(), &mut recorded);
            set.flush(&mut recorded);
            recorded.functions.remove(&(Some(1), 1)).unwrap()
        }
        let seconds = |from: u64, to: u64, value: f64| Observation {
            from_ns: from * SECOND_NS,
            to_ns: to * SECOND_NS,
            value,
        };
        for (is_sparse, until) in [(true, 13), (false, 11)] {
            let expected = [seconds(10, until, 5.0), seconds(13, 14, 9.0)];
            assert_eq!(observed::<true>(is_sparse), expected);
            assert_eq!(observed::<false>(is_sparse), expected);
        }
    }

    // Proves that series are the same functions of time whether equal values are joined or not, in
    // batches of any length. Joining avoids most observations.
    #[test]
    fn joined_observations_are_the_same() {
        let single = observed::<false>(1);
        assert_eq!(single.functions.len(), 2 * ELEMENTS);
        assert!(single.functions.values().all(|function| function.len() > 1));
        for length in [1, 7, 256, 4000] {
            let (joined, other) = (observed::<true>(length), observed::<false>(length));
            assert!(joined.functions == single.functions, "joined, {length}");
            assert!(other.functions == single.functions, "not joined, {length}");
            assert_eq!(other.calls, single.calls);
            assert!(joined.calls < single.calls / 2, "{} of {}", joined.calls, single.calls);
        }
    }
}
