//! Reads the elements of a list forward, up to a time that advances.

use std::collections::{HashMap, VecDeque};

use flatcap_format::replay::{HostIdentity, ReplayFilter};
use flatcap_format::schema::FieldValue;
use flatcap_query::{
    ChangeTime, ColumnBatch, ElementIdentity, ElementName, FieldPath, FieldReading, Formula, FormulaHistory,
    Query, QueryError, QueryItem, QueryResults, ReadProgress, Recording, TableInfo, exact_path, held_ns,
};

use super::catalog::{ColumnValue, ElementTable};
use super::element_shape::ElementShape;
use super::error::ViewError;

/// Maximum time over which a change is computed, even if the step is longer.
// A table shows the current values, so an old change would mislead.
const CHANGE_MAX_NS: u64 = 10_000_000_000;
/// Maximum number of elements; further elements are left out.
const ELEMENTS_MAX: usize = 1 << 16;

/// A feed of the elements of a list.
#[derive(Debug)]
pub struct TableFeed {
    results: QueryResults,
    progress: ReadProgress,
    pending: VecDeque<PendingBatch>,
    fold: TableFold,
    from_ns: i64,
    reached_ns: i64,
}

/// A batch of samples, with the indices of the first sample and of the first row that are still to
/// be read.
#[derive(Debug)]
struct PendingBatch {
    batch: ColumnBatch,
    sample: usize,
    row: usize,
}

/// Identifies a list by its table and the id of its source.
type ListKey = (usize, u16);

/// An element and its values.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementValues {
    /// The element's name.
    pub name: String,
    /// The element's process id, if it has one.
    pub pid: Option<u64>,
    /// The numbers by column, or `None` for a string or an absent value.
    pub numbers: Vec<Option<f64>>,
    /// The strings by column, or an empty string for a number.
    pub texts: Vec<String>,
}

#[derive(Debug)]
struct TableFold {
    table: ElementTable,
    /// For each path of the query: the column of `table`, and the field in the formula of this
    /// column.
    owners: Vec<(usize, usize)>,
    /// For each table of the query's results: the bindings of its columns. A binding is a column of
    /// the results, and the column and field of `table` that this column fills.
    bindings: Vec<Vec<(usize, usize, usize)>>,
    elements: HashMap<u32, FollowedElement>,
    lists: HashMap<ListKey, FollowedList>,
    wanted_ns: u64,
    held_ns: u64,
}

/// The samples of a list.
#[derive(Debug, Default)]
struct FollowedList {
    /// Sequence number of the last sample.
    sample: u64,
    /// Sequence number of the last sample that leaves out no element. Elements that this sample
    /// lacks have ended.
    complete: u64,
}

#[derive(Debug)]
struct FollowedElement {
    /// The name of the element when it was last seen.
    name: ElementName,
    seen_ns: i64,
    /// The list, and the sequence number of the list's last sample with the element.
    seen_in: (ListKey, u64),
    cells: Vec<FollowedCell>,
}

#[derive(Debug, Default)]
struct FollowedCell {
    history: FormulaHistory,
    number: Option<f64>,
    text: String,
}

impl TableFeed {
    /// Opens a feed that can return the table's values at `wall_ns`, with the changes over one
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
        // Samples may leave out an element for as long as a value holds.
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

    /// Reads up to a wall time while `has_time` returns true. Returns whether the feed reached the
    /// requested wall time.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn advance(&mut self, until_ns: i64, has_time: &mut dyn FnMut() -> bool) -> Result<bool, ViewError> {
        self.reached_ns = self.reached_ns.max(until_ns);
        loop {
            let Self { results, pending, fold, .. } = self;
            pending.retain_mut(|batch| fold.add_samples(batch, until_ns, results.tables()));
            if self.progress.complete_ns() > until_ns {
                return Ok(true);
            }
            if !has_time() {
                return Ok(false);
            }
            let Some(item) = self.results.next()? else { return Ok(true) };
            self.progress.observe(&item);
            match item {
                // All rows of the previous run are earlier, so no row is pending.
                QueryItem::Run(_) => self.fold.begin_run(),
                QueryItem::Batch(batch) => self.pending.push_back(PendingBatch { batch, sample: 0, row: 0 }),
                _ => {}
            }
        }
    }

    /// Checks for new segments. New samples in known segments are read without this call.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn refresh(&mut self) -> Result<(), ViewError> {
        Ok(self.results.refresh()?)
    }

    /// Returns whether the feed can get the values at a wall time by reading forward. The feed can
    /// do this if it has not yet passed this time and this time is less than 60 s ahead.
    pub fn covers(&self, wall_ns: i64) -> bool {
        const AHEAD_NS: i64 = 60_000_000_000;
        wall_ns >= self.reached_ns && wall_ns.saturating_sub(self.from_ns.max(self.reached_ns)) < AHEAD_NS
    }

    /// Returns the elements at the time that the feed has reached, in no particular order.
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

/// Returns the name of an element without its process id or its cgroup id. That id has a separate
/// column or is not useful.
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

impl TableFold {
    /// Finds the query's columns in tables that were added since the last call.
    fn bind(&mut self, tables: &[TableInfo]) {
        for table in tables.iter().skip(self.bindings.len()) {
            let places = table.columns.iter().enumerate().filter_map(|(place, info)| {
                let (column, field) = self.owners.get(info.order).copied()?;
                Some((place, column, field))
            });
            self.bindings.push(places.collect());
        }
    }

    fn begin_run(&mut self) {
        // Counters start again with each run, but the elements stay visible until the next sample.
        for cell in self.elements.values_mut().flat_map(|element| &mut element.cells) {
            cell.history.clear();
            cell.number = None;
        }
    }

    /// Adds the samples of a batch until a wall time is reached. Returns whether the batch has
    /// later samples.
    fn add_samples(&mut self, pending: &mut PendingBatch, until_ns: i64, tables: &[TableInfo]) -> bool {
        self.bind(tables);
        let PendingBatch { batch, sample, row } = pending;
        let source = (batch.table, batch.source);
        let mut last_ns = None;
        while let Some(&wall_ns) = batch.times.wall_ns.get(*sample).filter(|wall_ns| **wall_ns <= until_ns) {
            // A sample without elements is also taken into account, because all elements have ended
            // if the sample is complete.
            let list = self.lists.entry(source).or_default();
            let complete_before = list.complete;
            list.sample += 1;
            if !batch.leaves_out(*sample) {
                list.complete = list.sample;
            }
            let seen = Seen { wall_ns, place: (source, list.sample), complete_before };
            while *row < batch.rows() && batch.sample(*row) == *sample {
                self.add_row(batch, *row, &seen);
                *row += 1;
            }
            *sample += 1;
            last_ns = Some(wall_ns);
        }
        if let Some(last_ns) = last_ns {
            let oldest_ns = last_ns.saturating_sub_unsigned(self.held_ns);
            self.elements.retain(|_, element| element.seen_ns >= oldest_ns);
        }
        *sample < batch.times.wall_ns.len()
    }

    fn add_row(&mut self, batch: &ColumnBatch, row: usize, seen: &Seen) {
        let Some(places) = self.bindings.get(batch.table) else { return };
        let mono_ns = batch.times.mono_ns.get(batch.sample(row));
        let (Some(&mono_ns), Some(number)) = (mono_ns, batch.element(row)) else { return };
        if self.elements.len() >= ELEMENTS_MAX && !self.elements.contains_key(&number) {
            return;
        }
        let columns = self.table.columns.len();
        let element = self.elements.entry(number).or_insert_with(|| {
            let cells = std::iter::repeat_with(FollowedCell::default).take(columns).collect();
            FollowedElement { name: ElementName::NONE, seen_ns: seen.wall_ns, seen_in: seen.place, cells }
        });
        if element.seen_in.0 != seen.place.0 || element.seen_in.1 < seen.complete_before {
            // The element had ended, so its counters start again.
            element.cells.iter_mut().for_each(|cell| cell.history.clear());
        }
        (element.seen_ns, element.seen_in) = (seen.wall_ns, seen.place);
        element.name = batch.name(row).unwrap_or(ElementName::NONE);
        for (at, (column, cell)) in self.table.columns.iter().zip(&mut element.cells).enumerate() {
            let own = || places.iter().filter(|(_, column, _)| *column == at);
            if let ColumnValue::Number(formula) = &column.value {
                let mut numbers = vec![None; formula.fields.len()];
                for (place, _, field) in own() {
                    let value =
                        batch.columns.get(*place).and_then(|column| FieldReading::of(column.get(row)));
                    if let Some(number) = numbers.get_mut(*field) {
                        *number = value;
                    }
                }
                let time = change_time(formula, self.wanted_ns, self.held_ns);
                cell.number = cell.history.value(formula, mono_ns, &numbers, time);
            } else if let Some(FieldValue::Text(text)) =
                own().find_map(|(place, ..)| Some(batch.columns.get(*place)?.get(row)))
                && cell.text != text
            {
                text.clone_into(&mut cell.text);
            }
        }
    }
}

/// The sample of a row: its time, its list, and its sequence number in the list. Also the sequence
/// number of the last complete sample before this sample.
struct Seen {
    wall_ns: i64,
    place: (ListKey, u64),
    complete_before: u64,
}

fn change_time(formula: &Formula, wanted_ns: u64, held_ns: u64) -> ChangeTime {
    ChangeTime {
        wanted_ns: wanted_ns.max(formula.resolution_ns),
        least_ns: formula.resolution_ns,
        most_ns: wanted_ns.max(formula.resolution_ns).saturating_add(held_ns),
    }
}
