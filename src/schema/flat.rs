//! Which columns does a payload fill? Nested fields as `a.b`, elements of lists as `a.0.b`.

use std::cmp::Ordering;
use std::ops::Range;

use super::error::{DecodeError, Fault};
use super::plan::{Field, Meaning, Plan};
use super::value::{Place, Value, Visitor};

/// Most columns of one table. A payload that would add more is refused ([`Fault::TooManyColumns`]).
pub const COLUMNS_MAX: usize = 1 << 16;

/// One payload as a row: cells in the order of the schema. Its buffers are kept from walk to walk.
///
/// A row is used with the one plan that filled it: a cell's key is the field positions and element indices on
/// the way to it, so that keys sort as the schema does, `a.2.x` before `a.10.x`.
#[derive(Debug, Default)]
pub struct Row {
    /// The way to the value at hand.
    way: Vec<usize>,
    /// The keys of all cells, one behind the other; they ascend.
    keys: Vec<usize>,
    /// The texts of all cells, one behind the other.
    texts: String,
    cells: Vec<Cell>,
}

#[derive(Debug)]
struct Cell {
    /// In `keys`.
    key: Range<usize>,
    value: Held,
}

#[derive(Debug)]
enum Held {
    Plain(Value<'static>),
    /// In `texts`.
    Text(Range<usize>),
}

impl Row {
    /// A row without cells.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the cells by those of a payload.
    ///
    /// # Errors
    /// As [`Plan::walk`]; the row is then empty.
    pub fn fill(&mut self, plan: &Plan, payload: &[u8]) -> Result<(), DecodeError> {
        let walked = plan.walk(payload, self);
        if walked.is_err() {
            self.clear();
        }
        walked
    }

    /// Removes all cells and keeps the buffers.
    pub fn clear(&mut self) {
        self.way.clear();
        self.keys.clear();
        self.texts.clear();
        self.cells.clear();
    }

    /// How many cells there are.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are no cells.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The values of all cells, in their order.
    pub fn values(&self) -> impl Iterator<Item = Value<'_>> {
        self.cells.iter().map(|cell| self.value_of(cell))
    }

    fn key(&self, cell: usize) -> Option<&[usize]> {
        self.keys.get(self.cells.get(cell)?.key.clone())
    }

    fn value_of(&self, cell: &Cell) -> Value<'_> {
        match &cell.value {
            Held::Plain(value) => *value,
            Held::Text(range) => Value::Text(self.texts.get(range.clone()).unwrap_or_default()),
        }
    }

    fn enter(&mut self, place: Place<'_>) {
        match place {
            Place::Root => self.clear(),
            Place::Field(field) => self.way.push(field.index()),
            Place::Element(_, index) => self.way.push(index),
        }
    }
}

impl Visitor for Row {
    fn begin_object(&mut self, place: Place<'_>) {
        self.enter(place);
    }

    fn end_object(&mut self) {
        self.way.pop();
    }

    fn begin_list(&mut self, place: Place<'_>, _length: usize) {
        self.enter(place);
    }

    fn end_list(&mut self) {
        self.way.pop();
    }

    fn value(&mut self, place: Place<'_>, value: Value<'_>) {
        if let Place::Field(field) = place
            && value == Value::Absent
            && !field.is_single()
        {
            return;
        }
        self.enter(place);
        let start = self.keys.len();
        self.keys.extend_from_slice(&self.way);
        self.way.pop();
        let value = match value {
            Value::Text(text) => {
                let start = self.texts.len();
                self.texts.push_str(text);
                Held::Text(start..self.texts.len())
            }
            Value::Unsigned(number) => Held::Plain(Value::Unsigned(number)),
            Value::Signed(number) => Held::Plain(Value::Signed(number)),
            Value::Float32(number) => Held::Plain(Value::Float32(number)),
            Value::Float(number) => Held::Plain(Value::Float(number)),
            Value::Bool(truth) => Held::Plain(Value::Bool(truth)),
            Value::Absent => Held::Plain(Value::Absent),
        };
        self.cells.push(Cell { key: start..self.keys.len(), value });
    }
}

/// One column.
#[derive(Debug, Clone)]
pub struct Column {
    key: Box<[usize]>,
    path: String,
    unit: Option<Box<str>>,
    meaning: Meaning,
}

impl Column {
    /// Names and indices from the root, joined by dots.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The unit of the field.
    pub fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// The meaning of the field.
    pub fn meaning(&self) -> Meaning {
        self.meaning
    }

    fn new(plan: &Plan, key: &[usize]) -> Self {
        let mut path = String::new();
        let mut object = Some(plan.root);
        let mut last: Option<&Field> = None;
        for step in key {
            if !path.is_empty() {
                path.push('.');
            }
            // A step is a field while an object is open, else an index; only a list of objects opens one anew.
            if let Some(field) = object.and_then(|object| plan.object(object).fields.get(*step)) {
                path.push_str(field.name());
                object = if field.is_list() { None } else { field.nested() };
                last = Some(field);
            } else {
                path.push_str(&step.to_string());
                object = last.and_then(Field::nested);
            }
        }
        let unit = last.and_then(Field::unit).map(Into::into);
        Self { key: key.into(), path, unit, meaning: last.map_or(Meaning::Unknown, Field::meaning) }
    }
}

/// The columns that all the rows of a table need, in the order of the schema.
///
/// Rows that differ in the length of their lists need two passes: [`add`](Self::add) each, then
/// [`align`](Self::align) each.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    /// Ascending by key, each key once.
    columns: Vec<Column>,
}

impl Columns {
    /// No columns yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// All columns so far.
    pub fn as_slice(&self) -> &[Column] {
        &self.columns
    }

    /// Adds the columns that a row needs and that are not there yet; allocates only then. The plan is the one
    /// that filled the row, the same for all rows.
    ///
    /// # Errors
    /// `TooManyColumns` beyond [`COLUMNS_MAX`]; the columns are then as they were.
    pub fn add(&mut self, plan: &Plan, row: &Row) -> Result<(), DecodeError> {
        let missing = self.missing(row).count();
        if missing == 0 {
            return Ok(());
        }
        if missing > COLUMNS_MAX.saturating_sub(self.columns.len()) {
            return Err(DecodeError { path: String::new(), offset: 0, fault: Fault::TooManyColumns });
        }
        let added: Vec<_> = self.missing(row).map(|key| Column::new(plan, key)).collect();
        self.columns.extend(added);
        // Two ascending runs: the sort merges them.
        self.columns.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(())
    }

    /// The row's value for each column, absent where the row has none.
    pub fn align<'r>(&'r self, row: &'r Row) -> impl Iterator<Item = Value<'r>> {
        let mut next = 0;
        self.columns.iter().map(move |column| {
            while let Some(key) = row.key(next) {
                match key.cmp(&column.key) {
                    Ordering::Less => next += 1,
                    Ordering::Equal => {
                        next += 1;
                        return row.cells.get(next - 1).map_or(Value::Absent, |cell| row.value_of(cell));
                    }
                    Ordering::Greater => break,
                }
            }
            Value::Absent
        })
    }

    /// The keys of a row that no column has, ascending.
    fn missing<'r>(&'r self, row: &'r Row) -> impl Iterator<Item = &'r [usize]> {
        let mut columns = self.columns.iter().peekable();
        (0..row.len()).filter_map(|cell| row.key(cell)).filter(move |key| {
            while columns.next_if(|column| *column.key < **key).is_some() {}
            columns.peek().is_none_or(|column| *column.key != **key)
        })
    }
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::super::fixtures::{MARKED_PAYLOAD, SHAPES_PAYLOAD, marked, shapes};
    use super::*;

    fn row(plan: &Plan, payload: &[u8]) -> Row {
        let mut row = Row::new();
        row.fill(plan, payload).unwrap();
        row
    }

    fn paths(columns: &Columns) -> Vec<&str> {
        columns.as_slice().iter().map(Column::path).collect()
    }

    /// A payload of Shapes that has only numbers and words.
    fn lists(numbers: &[u64], words: &[&str]) -> Vec<u8> {
        let mut builder = FlatBufferBuilder::new();
        let numbers = builder.create_vector(numbers);
        let words: Vec<_> = words.iter().map(|word| builder.create_string(word)).collect();
        let words = builder.create_vector(&words);
        let start = builder.start_table();
        builder.push_slot_always(4 + 2 * 7, numbers);
        builder.push_slot_always(4 + 2 * 13, words);
        let root = builder.end_table(start);
        builder.finish(root, None);
        builder.finished_data().to_vec()
    }

    #[test]
    fn a_payload_becomes_columns_in_the_order_of_the_schema() {
        // Goal: paths, values and attributes of each column. Method: a payload with lists of tables.
        let plan = marked();
        let row = row(&plan, MARKED_PAYLOAD);
        let mut columns = Columns::new();
        columns.add(&plan, &row).unwrap();
        let expected = "total.user total.system cores.0.id cores.0.times.user cores.0.times.system \
            cores.0.states.0 cores.0.states.1 cores.0.states.2 cores.1.id causes unit.name unit.heat unit.small \
            note raw.0 raw.1 load state odd";
        assert_eq!(paths(&columns).join(" "), expected);
        let values: Vec<_> = columns.align(&row).collect();
        assert_eq!(values, row.values().collect::<Vec<_>>());
        assert_eq!(values[..3], [Value::Unsigned(10), Value::Absent, Value::Unsigned(0)]);
        assert_eq!(values[5..8], [Value::Text("On"), Value::Absent, Value::Unsigned(9)]);
        assert_eq!(values[10], Value::Text("eth0"));
        let user = &columns.as_slice()[3];
        assert_eq!((user.unit(), user.meaning()), (Some("ns"), Meaning::Counter));
    }

    #[test]
    fn columns_are_those_of_the_widest_rows_in_the_order_of_elements() {
        // Goal: later, wider rows fit in place, 10 behind 9. Method: rows that grow, shrink and change texts.
        let plan = shapes().select(&["numbers", "words", "last"]).unwrap();
        let payloads =
            [lists(&[], &["a"]), lists(&[5; 11], &[]), lists(&[6, 7], &["b", "c"]), lists(&[], &[])];
        let mut columns = Columns::new();
        let mut reused = Row::new();
        for payload in &payloads {
            reused.fill(&plan, payload).unwrap();
            columns.add(&plan, &reused).unwrap();
        }
        let mut expected: Vec<_> = (0..11).map(|index| format!("numbers.{index}")).collect();
        expected.extend(["words.0", "words.1", "last"].map(str::to_owned));
        assert_eq!(paths(&columns), expected);
        for payload in &payloads {
            reused.fill(&plan, payload).unwrap();
            let there = columns.align(&reused).filter(|value| *value != Value::Absent);
            assert_eq!(there.collect::<Vec<_>>(), reused.values().collect::<Vec<_>>());
        }
        reused.fill(&plan, &payloads[2]).unwrap();
        let values: Vec<_> = columns.align(&reused).collect();
        assert_eq!(values[..3], [Value::Unsigned(6), Value::Unsigned(7), Value::Absent]);
        assert_eq!(values[11..], [Value::Text("b"), Value::Text("c"), Value::Unsigned(0)]);
    }

    #[test]
    fn absent_objects_and_lists_have_no_columns_but_single_values_do() {
        // Goal: the header holds what can be told from the data. Method: an empty table.
        let mut builder = FlatBufferBuilder::new();
        let start = builder.start_table();
        let root = builder.end_table(start);
        builder.finish(root, None);
        for (plan, expected) in [(shapes(), "maybe text last"), (marked(), "causes note load state odd")] {
            let mut columns = Columns::new();
            columns.add(&plan, &row(&plan, builder.finished_data())).unwrap();
            assert_eq!(paths(&columns).join(" "), expected);
        }
    }

    #[test]
    fn a_row_that_the_columns_do_not_know_is_aligned_as_far_as_they_go() {
        // Goal: align never runs out of step. Method: columns of a short row, a longer row.
        let plan = shapes().select(&["numbers", "last"]).unwrap();
        let mut columns = Columns::new();
        columns.add(&plan, &row(&plan, &lists(&[1], &[]))).unwrap();
        let longer = row(&plan, &lists(&[1, 2, 3], &[]));
        let values: Vec<_> = columns.align(&longer).collect();
        assert_eq!(values, [Value::Unsigned(1), Value::Unsigned(0)]);
    }

    #[test]
    fn columns_have_a_limit_and_failures_leave_nothing_behind() {
        // Goal: bounded memory, no half rows. Method: a list longer than the limit, and a damaged payload.
        let plan = shapes().select(&["numbers"]).unwrap();
        let mut row = row(&plan, &lists(&vec![0; COLUMNS_MAX + 1], &[]));
        let mut columns = Columns::new();
        let error = columns.add(&plan, &row).unwrap_err();
        assert_eq!((error.fault, columns.as_slice().len()), (Fault::TooManyColumns, 0));
        let cut = &SHAPES_PAYLOAD[..SHAPES_PAYLOAD.len() - 64];
        assert!(row.fill(&shapes(), cut).is_err());
        assert!(row.is_empty());
    }
}
