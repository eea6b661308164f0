//! Reads the elements of a list up to a moving time.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use flatcap_format::replay::{HostIdentity, ReplayFilter};
use flatcap_format::schema::FieldValue;
use flatcap_query::{
    ChangeTime, ColumnBatch, ElementIdentity, ElementName, FieldPath, FieldReading, Formula, FormulaHistory,
    Query, QueryError, QueryItem, QueryResults, ReadProgress, Recording, TableInfo, exact_path, held_ns,
};

use super::catalog::{ColumnValue, ElementTable};
use super::element_shape::ElementShape;
use super::error::ViewError;

/// Maximum time over which a change is computed, whatever the step.
// A table shows the present.
const CHANGE_MAX_NS: u64 = 10_000_000_000;
/// Maximum number of elements; further elements are left out.
const ELEMENTS_MAX: usize = 1 << 16;

/// The elements of a list.
#[derive(Debug)]
pub struct TableFeed {
    results: QueryResults,
    progress: ReadProgress,
    /// Batches, and the first row of each that is later than the time reached.
    pending: VecDeque<(ColumnBatch, usize)>,
    fold: TableFold,
    from_ns: i64,
    reached_ns: i64,
}

/// An element and its values.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementValues {
    /// The element's name.
    pub name: String,
    /// The element's process id, if it has one.
    pub pid: Option<u64>,
    /// The numbers, by column; `None` for a string or an absent value.
    pub numbers: Vec<Option<f64>>,
    /// The strings, by column; empty for a number.
    pub texts: Vec<String>,
}

#[derive(Debug)]
struct TableFold {
    table: ElementTable,
    /// Column and field of each path of the query.
    owners: Vec<(usize, usize)>,
    /// By table: for each path of the query its table column, and the output column and field.
    bindings: Vec<Vec<(usize, usize, usize)>>,
    elements: HashMap<u32, FollowedElement>,
    /// The lists, by table and id of the source.
    lists: HashMap<(usize, u16), FollowedList>,
    wanted_ns: u64,
    held_ns: u64,
}

/// The samples of a list.
#[derive(Debug, Default)]
struct FollowedList {
    /// Number of the last sample.
    sample: u64,
    /// Number of the last sample that leaves out no element: elements that it lacks have ended.
    complete: u64,
}

#[derive(Debug)]
struct FollowedElement {
    /// The name when the element was last seen.
    name: ElementName,
    seen_ns: i64,
    /// The list, and the number of its last sample with the element.
    seen_in: ((usize, u16), u64),
    cells: Vec<FollowedCell>,
}

#[derive(Debug, Default)]
struct FollowedCell {
    history: FormulaHistory,
    number: Option<f64>,
    text: String,
}

impl TableFeed {
    /// Starts to read a table so that its values are known at a wall time, with changes over one
    /// step.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn open(
        recording: &Recording,
        table: &ElementTable,
        host: Option<&HostIdentity>,
        (wall_ns, step_ns): (i64, i64),
    ) -> Result<Self, ViewError> {
        let (mut fields, mut owners) = (Vec::new(), Vec::new());
        for (column, info) in table.columns.iter().enumerate() {
            match &info.value {
                ColumnValue::Text(path) => {
                    fields.push(exact_path(&table.source, path));
                    owners.push((column, 0));
                }
                ColumnValue::Number(formula) => {
                    for (at, field) in formula.fields.iter().enumerate() {
                        fields.push(exact_path(&table.source, &field.path));
                        owners.push((column, at));
                    }
                }
            }
        }
        let wanted_ns = step_ns.unsigned_abs().min(CHANGE_MAX_NS);
        // Samples may leave elements out for as long as a value holds.
        let held_ns = held_ns(table.period_ns, true);
        let since_ns = Some(wall_ns.saturating_sub_unsigned(wanted_ns).saturating_sub_unsigned(held_ns));
        let filter = ReplayFilter { since_ns, host: host.cloned(), ..ReplayFilter::default() };
        let fields: Result<Vec<FieldPath>, _> = fields.iter().map(|path| path.parse()).collect();
        let query = Query { fields: fields.map_err(QueryError::from)?, filter, ..Query::default() };
        let fold = TableFold {
            table: table.clone(),
            owners,
            bindings: Vec::new(),
            elements: HashMap::new(),
            lists: HashMap::new(),
            wanted_ns,
            held_ns,
        };
        Ok(Self {
            results: recording.query(&query)?,
            progress: ReadProgress::default(),
            pending: VecDeque::new(),
            fold,
            from_ns: wall_ns,
            reached_ns: wall_ns,
        })
    }

    /// Reads up to a wall time while `has_time` returns true. Returns whether the feed reached that
    /// time.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn advance(&mut self, until_ns: i64, has_time: &mut dyn FnMut() -> bool) -> Result<bool, ViewError> {
        self.reached_ns = self.reached_ns.max(until_ns);
        loop {
            let Self { results, pending, fold, .. } = self;
            pending.retain_mut(|(batch, first)| {
                let end = end_of(batch, *first, until_ns);
                fold.add_rows(batch, *first..end, results.tables());
                *first = end;
                end < batch.rows()
            });
            if self.progress.complete_ns() > until_ns {
                return Ok(true);
            }
            if !has_time() {
                return Ok(false);
            }
            let Some(item) = self.results.next()? else { return Ok(true) };
            self.progress.observe(&item);
            match item {
                // All rows of the run before are earlier, so none is pending.
                QueryItem::Run(_) => self.fold.begin_run(),
                QueryItem::Batch(batch) => self.pending.push_back((batch, 0)),
                _ => {}
            }
        }
    }

    /// Checks for new segments. New samples are read without this call.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn refresh(&mut self) -> Result<(), ViewError> {
        Ok(self.results.refresh()?)
    }

    /// Returns whether reading forward leads to the values at a wall time: the feed has not passed
    /// it, and it is less than 60 s ahead.
    pub fn covers(&self, wall_ns: i64) -> bool {
        const AHEAD_NS: i64 = 60_000_000_000;
        wall_ns >= self.reached_ns && wall_ns.saturating_sub(self.from_ns.max(self.reached_ns)) < AHEAD_NS
    }

    /// Returns the elements at the time reached, in no particular order.
    pub fn elements(&self) -> Vec<ElementValues> {
        let names = self.results.elements();
        let oldest_ns = self.reached_ns.saturating_sub_unsigned(self.fold.held_ns);
        let has_ended = |element: &FollowedElement| {
            let (list, sample) = element.seen_in;
            self.fold.lists.get(&list).is_some_and(|list| sample < list.complete)
        };
        let shown = self.fold.elements.values();
        let shown = shown.filter(|element| element.seen_ns >= oldest_ns && !has_ended(element));
        shown
            .map(|element| {
                let identity = names.identity(element.name);
                let pid = identity.iter().find(|part| &*part.field == "pid");
                let pid = pid.and_then(|part| part.value.parse().ok());
                ElementValues {
                    name: name_of(self.fold.table.shape, names.label(element.name), identity),
                    pid,
                    numbers: element.cells.iter().map(|cell| cell.number).collect(),
                    texts: element.cells.iter().map(|cell| cell.text.clone()).collect(),
                }
            })
            .collect()
    }
}

/// Returns the name of an element without its number, which has a column of its own or is not
/// useful.
fn name_of(shape: ElementShape, label: &str, identity: &[ElementIdentity]) -> String {
    let number = match shape {
        ElementShape::Processes => "pid",
        ElementShape::ControlGroups => "id",
        ElementShape::Disks | ElementShape::Interfaces => return label.to_owned(),
    };
    let number = identity.iter().find(|part| &*part.field == number).map_or("", |part| &part.value);
    match label.strip_suffix(&format!("[{number}]")) {
        Some(name) => name.to_owned(),
        // The root cgroup has no name.
        None if shape == ElementShape::ControlGroups && label == number => "/".to_owned(),
        None => label.to_owned(),
    }
}

/// Returns one past the last row of a batch that is not after a wall time.
fn end_of(batch: &ColumnBatch, first: usize, until_ns: i64) -> usize {
    let is_past =
        |row: usize| batch.times.wall_ns.get(batch.sample(row)).is_some_and(|wall_ns| *wall_ns <= until_ns);
    (first..batch.rows()).find(|row| !is_past(*row)).unwrap_or(batch.rows())
}

impl TableFold {
    /// Finds the columns in tables that were added since the last call.
    fn bind(&mut self, tables: &[TableInfo]) {
        for table in tables.iter().skip(self.bindings.len()) {
            let places = table.columns.iter().enumerate().filter_map(|(place, info)| {
                let (column, field) = self.owners.get(info.order).copied()?;
                Some((place, column, field))
            });
            self.bindings.push(places.collect());
        }
    }

    fn change_time(&self, formula: &Formula) -> ChangeTime {
        ChangeTime {
            wanted_ns: self.wanted_ns.max(formula.resolution_ns),
            least_ns: formula.resolution_ns,
            most_ns: self.wanted_ns.max(formula.resolution_ns).saturating_add(self.held_ns),
        }
    }

    fn begin_run(&mut self) {
        // Counters begin again with the run, but the elements stay visible until the next sample.
        for cell in self.elements.values_mut().flat_map(|element| &mut element.cells) {
            cell.history.clear();
            cell.number = None;
        }
    }

    fn add_rows(&mut self, batch: &ColumnBatch, rows: Range<usize>, tables: &[TableInfo]) {
        self.bind(tables);
        let Some(places) = self.bindings.get(batch.table).cloned() else { return };
        let times: Vec<Option<ChangeTime>> = (self.table.columns.iter())
            .map(|column| match &column.value {
                ColumnValue::Number(formula) => Some(self.change_time(formula)),
                ColumnValue::Text(_) => None,
            })
            .collect();
        let source = (batch.table, batch.source);
        let list = self.lists.entry(source).or_default();
        // The sample of the row, and the last complete sample before it.
        let mut current = (usize::MAX, 0);
        for row in rows.clone() {
            let sample = batch.sample(row);
            let times_of = (batch.times.mono_ns.get(sample), batch.times.wall_ns.get(sample));
            let (Some(mono_ns), Some(wall_ns), Some(number)) = (times_of.0, times_of.1, batch.element(row))
            else {
                continue;
            };
            if current.0 != sample {
                current = (sample, list.complete);
                list.sample += 1;
                if !batch.leaves_out(sample) {
                    list.complete = list.sample;
                }
            }
            if self.elements.len() >= ELEMENTS_MAX && !self.elements.contains_key(&number) {
                continue;
            }
            let columns = self.table.columns.len();
            let element = self.elements.entry(number).or_insert_with(|| {
                let cells = std::iter::repeat_with(FollowedCell::default).take(columns).collect();
                let seen_in = (source, list.sample);
                FollowedElement { name: ElementName::NONE, seen_ns: *wall_ns, seen_in, cells }
            });
            if element.seen_in.0 != source || element.seen_in.1 < current.1 {
                // It had ended: its counters begin again.
                element.cells.iter_mut().for_each(|cell| cell.history.clear());
            }
            (element.seen_ns, element.seen_in) = (*wall_ns, (source, list.sample));
            element.name = batch.name(row).unwrap_or(ElementName::NONE);
            for (at, (column, cell)) in self.table.columns.iter().zip(&mut element.cells).enumerate() {
                let own = || places.iter().filter(|(_, column, _)| *column == at);
                if let (ColumnValue::Number(formula), Some(time)) =
                    (&column.value, times.get(at).copied().flatten())
                {
                    let mut numbers = vec![None; formula.fields.len()];
                    for (place, _, field) in own() {
                        let value =
                            batch.columns.get(*place).and_then(|column| FieldReading::of(column.get(row)));
                        if let Some(number) = numbers.get_mut(*field) {
                            *number = value;
                        }
                    }
                    cell.number = cell.history.value(formula, *mono_ns, &numbers, time);
                } else if let Some(FieldValue::Text(text)) =
                    own().find_map(|(place, ..)| Some(batch.columns.get(*place)?.get(row)))
                    && cell.text != text
                {
                    text.clone_into(&mut cell.text);
                }
            }
        }
        if let Some(wall_ns) = batch.times.wall_ns.get(batch.sample(rows.end.saturating_sub(1))) {
            let oldest_ns = wall_ns.saturating_sub_unsigned(self.held_ns);
            self.elements.retain(|_, element| element.seen_ns >= oldest_ns);
        }
    }
}
