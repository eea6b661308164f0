//! Flattens a payload into columns. A nested field becomes `a.b`, and a field of a list element
//! becomes `a.0.b`.

use std::cmp::Ordering;
use std::ops::Range;

use super::compiled::{CompiledSchema, Field, MetricKind};
use super::error::{DecodeError, DecodeFault};
use super::value::FieldValue;
use super::visitor::{PathStep, Visitor};

/// Maximum number of columns of one table. A payload that needs more columns is rejected
/// ([`DecodeFault::TooManyColumns`]).
pub const COLUMNS_MAX: usize = 1 << 16;

/// One payload as a row of cells, in the order of the schema. The row implements the visitor that
/// receives the values of a walk. Each walk replaces the cells and reuses the buffers. If a walk
/// failed, the cells have no meaning.
///
/// Use a row only together with the compiled schema that was used to walk the payload. The key of a
/// cell is its path, which consists of field positions and element indices. So keys sort in the
/// order of the schema, for example `a.2.x` before `a.10.x`.
#[derive(Debug, Default)]
pub struct FlatRow {
    /// Path to the current value.
    path: Vec<usize>,
    /// The keys of all cells, concatenated, in ascending order.
    keys: Vec<usize>,
    /// The strings of all cells, concatenated.
    texts: String,
    cells: Vec<FlatCell>,
}

#[derive(Debug)]
struct FlatCell {
    /// Range in `keys`.
    key: Range<usize>,
    value: CellValue,
}

#[derive(Debug)]
enum CellValue {
    Plain(FieldValue<'static>),
    /// Range in `texts`.
    Text(Range<usize>),
}

impl FlatRow {
    /// Iterates over the values of all cells, in order.
    #[cfg(test)]
    pub(crate) fn values(&self) -> impl Iterator<Item = FieldValue<'_>> {
        self.cells.iter().map(|cell| self.value_of(cell))
    }

    fn key(&self, cell: usize) -> Option<&[usize]> {
        self.keys.get(self.cells.get(cell)?.key.clone())
    }

    fn value_of(&self, cell: &FlatCell) -> FieldValue<'_> {
        match &cell.value {
            CellValue::Plain(value) => *value,
            CellValue::Text(range) => FieldValue::Text(self.texts.get(range.clone()).unwrap_or_default()),
        }
    }

    fn enter(&mut self, step: PathStep<'_>) {
        match step {
            // Each walk begins at the root, so no cell of an earlier payload remains, even if the
            // earlier walk failed.
            PathStep::Root => {
                self.path.clear();
                self.keys.clear();
                self.texts.clear();
                self.cells.clear();
            }
            PathStep::Field(field) => self.path.push(field.index()),
            PathStep::Element(_, index) => self.path.push(index),
        }
    }
}

impl Visitor for FlatRow {
    fn begin_object(&mut self, step: PathStep<'_>) {
        self.enter(step);
    }

    fn end_object(&mut self) {
        // The root pushed no step onto the path, so at its end the path is empty, and `pop` has no
        // effect.
        self.path.pop();
    }

    fn begin_list(&mut self, step: PathStep<'_>, _length: usize) {
        self.enter(step);
    }

    fn end_list(&mut self) {
        self.path.pop();
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        // If an absent object or list were a cell, it would add a column `a` to the columns `a.b`
        // of other rows.
        if let PathStep::Field(field) = step
            && value == FieldValue::Absent
            && !field.is_single()
        {
            return;
        }
        self.enter(step);
        let start = self.keys.len();
        self.keys.extend_from_slice(&self.path);
        self.path.pop();
        // Constructing each variant again converts the borrowed type to a `'static` type. Strings
        // are copied to one shared buffer, so that a reused row does not allocate.
        let value = match value {
            FieldValue::Text(text) => {
                let start = self.texts.len();
                self.texts.push_str(text);
                CellValue::Text(start..self.texts.len())
            }
            FieldValue::Unsigned(number) => CellValue::Plain(FieldValue::Unsigned(number)),
            FieldValue::Signed(number) => CellValue::Plain(FieldValue::Signed(number)),
            FieldValue::Float32(number) => CellValue::Plain(FieldValue::Float32(number)),
            FieldValue::Float(number) => CellValue::Plain(FieldValue::Float(number)),
            FieldValue::Bool(truth) => CellValue::Plain(FieldValue::Bool(truth)),
            FieldValue::Absent => CellValue::Plain(FieldValue::Absent),
        };
        self.cells.push(FlatCell { key: start..self.keys.len(), value });
    }
}

/// One column.
#[derive(Debug, Clone)]
pub struct FlatColumn {
    key: Box<[usize]>,
    path: String,
    metric_kind: MetricKind,
}

impl FlatColumn {
    /// Returns the path from the root, that is, names and indices joined by dots.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the metric kind of the field.
    pub fn metric_kind(&self) -> MetricKind {
        self.metric_kind
    }

    fn new(schema: &CompiledSchema, key: &[usize]) -> Self {
        let mut path = String::new();
        let mut object = Some(schema.root);
        let mut last: Option<&Field> = None;
        for step in key {
            if !path.is_empty() {
                path.push('.');
            }
            // If an object is open, the step is the position of a field. Otherwise the step is an
            // index. After an index, an object is open only in a list of objects.
            if let Some(field) = object.and_then(|object| schema.object(object).fields.get(*step)) {
                path.push_str(field.name());
                object = if field.is_list() { None } else { field.nested() };
                last = Some(field);
            } else {
                path.push_str(&step.to_string());
                object = last.and_then(Field::nested);
            }
        }
        Self { key: key.into(), path, metric_kind: last.map_or(MetricKind::Unknown, Field::metric_kind) }
    }
}

/// The union of the columns of several rows, in the order of the schema.
///
/// If the lists of different rows differ in length, the rows must be processed in two passes. The
/// first pass calls [`add`](Self::add) for each row, and the second pass calls
/// [`align`](Self::align) for each row.
#[derive(Debug, Clone, Default)]
pub struct FlatColumns {
    /// The columns in ascending order of their keys, without duplicates.
    columns: Vec<FlatColumn>,
}

impl FlatColumns {
    /// Returns all columns so far.
    pub fn as_slice(&self) -> &[FlatColumn] {
        &self.columns
    }

    /// Adds the columns of a row that do not exist yet. Allocates only if a column is missing. The
    /// schema must be the schema that was used to walk the row's payload, and must be the same for
    /// all rows.
    ///
    /// # Errors
    /// Returns `TooManyColumns` if there would be more than [`COLUMNS_MAX`] columns. If there is an
    /// error, the columns are unchanged.
    pub fn add(&mut self, schema: &CompiledSchema, row: &FlatRow) -> Result<(), DecodeError> {
        // The missing columns are counted before any column is built. So a row with too many
        // columns takes no memory and changes nothing.
        let missing = self.missing(row).count();
        if missing == 0 {
            return Ok(());
        }
        if missing > COLUMNS_MAX.saturating_sub(self.columns.len()) {
            return Err(DecodeError { path: String::new(), offset: 0, fault: DecodeFault::TooManyColumns });
        }
        let added: Vec<_> = self.missing(row).map(|key| FlatColumn::new(schema, key)).collect();
        self.columns.extend(added);
        // The columns are now two ascending sequences, which the sort merges.
        self.columns.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(())
    }

    /// Iterates over all columns and returns the row's value for each. The value is absent if the
    /// row does not contain the column.
    pub fn align<'r>(&'r self, row: &'r FlatRow) -> impl Iterator<Item = FieldValue<'r>> {
        // Cells and columns are both in ascending order of their keys, so one pass over each of
        // them suffices.
        let mut next = 0;
        self.columns.iter().map(move |column| {
            while let Some(key) = row.key(next) {
                match key.cmp(&column.key) {
                    Ordering::Less => next += 1,
                    Ordering::Equal => {
                        next += 1;
                        return row.cells.get(next - 1).map_or(FieldValue::Absent, |cell| row.value_of(cell));
                    }
                    Ordering::Greater => break,
                }
            }
            FieldValue::Absent
        })
    }

    /// Returns those keys of a row that have no column in the table, in ascending order.
    fn missing<'r>(&'r self, row: &'r FlatRow) -> impl Iterator<Item = &'r [usize]> {
        let mut columns = self.columns.iter().peekable();
        (0..row.cells.len()).filter_map(|cell| row.key(cell)).filter(move |key| {
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

    fn row(plan: &CompiledSchema, payload: &[u8]) -> FlatRow {
        let mut row = FlatRow::default();
        plan.walk(payload, &mut row).unwrap();
        row
    }

    fn paths(columns: &FlatColumns) -> Vec<&str> {
        columns.as_slice().iter().map(FlatColumn::path).collect()
    }

    /// Builds a payload of Shapes that has only a list of numbers and a list of strings.
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
        // Proves the paths, values and attributes of the columns of a payload with lists of tables.
        let plan = marked();
        let row = row(&plan, MARKED_PAYLOAD);
        let mut columns = FlatColumns::default();
        columns.add(&plan, &row).unwrap();
        let expected = "total.user total.system cores.0.id cores.0.times.user cores.0.times.system \
            cores.0.states.0 cores.0.states.1 cores.0.states.2 cores.1.id causes unit.name unit.heat unit.small \
            note raw.0 raw.1 load state odd";
        assert_eq!(paths(&columns).join(" "), expected);
        let values: Vec<_> = columns.align(&row).collect();
        assert_eq!(values, row.values().collect::<Vec<_>>());
        assert_eq!(values[..3], [FieldValue::Unsigned(10), FieldValue::Absent, FieldValue::Unsigned(0)]);
        assert_eq!(values[5..8], [FieldValue::Text("On"), FieldValue::Absent, FieldValue::Unsigned(9)]);
        assert_eq!(values[10], FieldValue::Text("eth0"));
        let user = &columns.as_slice()[3];
        assert_eq!(user.metric_kind(), MetricKind::Counter);
    }

    #[test]
    fn columns_are_those_of_the_widest_rows_in_the_order_of_elements() {
        // Proves that the new columns of later rows with longer lists are inserted in order, for
        // example 10 after 9. From row to row, the lists grow and shrink, and the strings change.
        let plan = shapes().select(&["numbers", "words", "last"]).unwrap();
        let payloads =
            [lists(&[], &["a"]), lists(&[5; 11], &[]), lists(&[6, 7], &["b", "c"]), lists(&[], &[])];
        let mut columns = FlatColumns::default();
        let mut reused = FlatRow::default();
        for payload in &payloads {
            plan.walk(payload, &mut reused).unwrap();
            columns.add(&plan, &reused).unwrap();
        }
        let mut expected: Vec<_> = (0..11).map(|index| format!("numbers.{index}")).collect();
        expected.extend(["words.0", "words.1", "last"].map(str::to_owned));
        assert_eq!(paths(&columns), expected);
        for payload in &payloads {
            plan.walk(payload, &mut reused).unwrap();
            let there = columns.align(&reused).filter(|value| *value != FieldValue::Absent);
            assert_eq!(there.collect::<Vec<_>>(), reused.values().collect::<Vec<_>>());
        }
        plan.walk(&payloads[2], &mut reused).unwrap();
        let values: Vec<_> = columns.align(&reused).collect();
        assert_eq!(values[..3], [FieldValue::Unsigned(6), FieldValue::Unsigned(7), FieldValue::Absent]);
        assert_eq!(values[11..], [FieldValue::Text("b"), FieldValue::Text("c"), FieldValue::Unsigned(0)]);
    }

    #[test]
    fn absent_objects_and_lists_have_no_columns_but_single_values_do() {
        // Proves that omitted objects and lists have no columns, and that an omitted single value
        // has a column.
        let mut builder = FlatBufferBuilder::new();
        let start = builder.start_table();
        let root = builder.end_table(start);
        builder.finish(root, None);
        for (plan, expected) in [(shapes(), "maybe text last"), (marked(), "causes note load state odd")] {
            let mut columns = FlatColumns::default();
            columns.add(&plan, &row(&plan, builder.finished_data())).unwrap();
            assert_eq!(paths(&columns).join(" "), expected);
        }
    }

    #[test]
    fn a_row_that_the_columns_do_not_know_is_aligned_as_far_as_they_go() {
        // Proves that a row with more cells than columns is aligned to the existing columns.
        let plan = shapes().select(&["numbers", "last"]).unwrap();
        let mut columns = FlatColumns::default();
        columns.add(&plan, &row(&plan, &lists(&[1], &[]))).unwrap();
        let longer = row(&plan, &lists(&[1, 2, 3], &[]));
        let values: Vec<_> = columns.align(&longer).collect();
        assert_eq!(values, [FieldValue::Unsigned(1), FieldValue::Unsigned(0)]);
    }

    #[test]
    fn columns_have_a_limit_and_failures_leave_nothing_behind() {
        // Proves that the number of columns is limited, and that a later row contains no cells of a
        // walk that failed.
        let plan = shapes().select(&["numbers"]).unwrap();
        let mut long = row(&plan, &lists(&vec![0; COLUMNS_MAX + 1], &[]));
        let mut columns = FlatColumns::default();
        let error = columns.add(&plan, &long).unwrap_err();
        assert_eq!((error.fault, columns.as_slice().len()), (DecodeFault::TooManyColumns, 0));
        let cut = &SHAPES_PAYLOAD[..SHAPES_PAYLOAD.len() - 64];
        assert!(shapes().walk(cut, &mut long).is_err());
        plan.walk(&lists(&[3], &[]), &mut long).unwrap();
        assert_eq!(long.values().collect::<Vec<_>>(), [FieldValue::Unsigned(3)]);
    }
}
