//! Collects the values of payloads into batches.

use super::batch::{BatchTimes, ColumnBatch, RowSource};
use super::column::ValueColumn;
use super::elements::{ElementIdentity, ElementNames};
use super::path::TestOperator;
use super::plan::{ElementTest, ListPlan, Naming, PlanNode, SourcePlan};
use crate::schema::{DecodeError, FieldValue, PathStep, Visitor};
use crate::segment::SampleView;

/// Collects the samples of one source.
#[derive(Debug)]
pub(super) struct Collector {
    pub(super) plan: SourcePlan,
    times: BatchTimes,
    tables: Vec<TableRows>,
}

/// The rows of one table.
#[derive(Debug)]
struct TableRows {
    is_list: bool,
    samples: Vec<u32>,
    elements: Vec<u32>,
    columns: Vec<ValueColumn>,
}

impl Collector {
    pub(super) fn new(plan: SourcePlan) -> Self {
        let tables = plan.tables.iter().map(|table| TableRows {
            is_list: table.list.is_some(),
            samples: Vec::new(),
            elements: Vec::new(),
            columns: table.columns.iter().map(|column| ValueColumn::new(column.column_type)).collect(),
        });
        let tables = tables.collect();
        Self { plan, times: BatchTimes::default(), tables }
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// The payload does not fit its schema; no row of it remains.
    pub(super) fn add(
        &mut self,
        sample: &SampleView<'_>,
        names: &mut ElementNames,
    ) -> Result<(), DecodeError> {
        let before: Vec<usize> = self.tables.iter().map(TableRows::rows).collect();
        let number = u32::try_from(self.times.len()).unwrap_or(u32::MAX);
        for table in self.tables.iter_mut().filter(|table| !table.is_list) {
            table.begin_row();
        }
        let mut visitor = RowVisitor {
            tables: &mut self.tables,
            names,
            sample: number,
            stack: Vec::new(),
            ignored: 0,
            lengths: Vec::new(),
            open: Vec::new(),
            root: &self.plan.root,
        };
        if let Err(error) = self.plan.schema.walk(sample.payload, &mut visitor) {
            for (table, rows) in self.tables.iter_mut().zip(before) {
                table.truncate(rows);
            }
            return Err(error);
        }
        self.times.seq.push(sample.seq);
        self.times.mono_ns.push(sample.mono_ns);
        self.times.wall_ns.push(sample.wall_ns);
        self.times.duration_ns.push(sample.duration_ns);
        self.times.flags.push(sample.flags);
        Ok(())
    }

    /// Returns the number of values that are held.
    pub(super) fn values(&self) -> usize {
        self.tables.iter().map(|table| table.rows() * table.columns.len()).sum()
    }

    /// Moves the rows so far to `batches`: one batch per table, even if it has samples without
    /// rows.
    pub(super) fn take(&mut self, batches: &mut impl Extend<ColumnBatch>) {
        if self.times.is_empty() {
            return;
        }
        let times = std::mem::take(&mut self.times);
        let Self { plan, tables, .. } = self;
        batches.extend(tables.iter_mut().zip(&plan.tables).zip(&plan.numbers).map(
            |((rows, info), number)| {
                let new = |column: &super::plan::ColumnInfo| ValueColumn::new(column.column_type);
                let columns = std::mem::replace(&mut rows.columns, info.columns.iter().map(new).collect());
                let (samples, elements) =
                    (std::mem::take(&mut rows.samples), std::mem::take(&mut rows.elements));
                let source =
                    if rows.is_list { RowSource::Elements { samples, elements } } else { RowSource::Samples };
                ColumnBatch { table: *number, times: times.clone(), rows: source, columns }
            },
        ));
    }
}

impl TableRows {
    fn rows(&self) -> usize {
        self.samples.len()
    }

    fn begin_row(&mut self) {
        self.samples.push(0);
        self.columns.iter_mut().for_each(ValueColumn::push_absent);
    }

    fn truncate(&mut self, rows: usize) {
        self.samples.truncate(rows);
        self.elements.truncate(rows);
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
    }
}

/// Stores the values of one payload in rows.
struct RowVisitor<'r> {
    tables: &'r mut [TableRows],
    names: &'r mut ElementNames,
    sample: u32,
    root: &'r PlanNode,
    stack: Vec<&'r PlanNode>,
    /// Objects and lists that are open below a node that is not in the plan.
    ignored: usize,
    /// Lengths of the lists that are open, outermost first.
    lengths: Vec<usize>,
    /// The elements of lists that are open, outermost first.
    open: Vec<OpenElement<'r>>,
}

/// An element whose values are being read.
struct OpenElement<'r> {
    list: &'r ListPlan,
    key: Vec<u8>,
    has_key: bool,
    position: usize,
    length: usize,
    identity: Vec<ElementIdentity>,
    label_number: Option<Box<str>>,
    /// The first row of each table when it began, for an element that is not picked.
    rows: Vec<(usize, usize)>,
}

impl<'r> RowVisitor<'r> {
    fn node(&self, step: PathStep<'_>) -> Option<&'r PlanNode> {
        match step {
            PathStep::Root => Some(self.root),
            PathStep::Field(field) => self.stack.last()?.children.get(field.index()),
            PathStep::Element(..) => self.stack.last().copied(),
        }
    }

    fn begin_element(&mut self, list: &'r ListPlan, position: usize, length: usize) {
        let rows = list
            .picks
            .iter()
            .filter_map(|(table, _)| Some((*table, self.tables.get(*table)?.rows())))
            .collect();
        for table in &list.tables {
            if let Some(table) = self.tables.get_mut(*table) {
                table.begin_row();
            }
        }
        // Fields of the outer element that follow the inner list cannot be a part of the key.
        let key = self.open.last().map(|outer| outer.key.clone()).unwrap_or_default();
        self.open.push(OpenElement {
            list,
            key,
            has_key: false,
            position,
            length,
            identity: Vec::new(),
            label_number: None,
            rows,
        });
    }

    fn end_element(&mut self) {
        let Some(mut element) = self.open.pop() else { return };
        if !element.has_key {
            // The length is a part of it: after an insertion a position may be another element.
            element.push_key(&(element.length as u64).to_le_bytes());
            element.push_key(&(element.position as u64).to_le_bytes());
        }
        for ((table, test), (_, row)) in element.list.picks.iter().zip(&element.rows) {
            if !element.passes(test)
                && let Some(table) = self.tables.get_mut(*table)
            {
                table.truncate(*row);
            }
        }
        let number = self.names.intern(element.list.number, &element.key);
        let outer = self.open.last().map(OpenElement::label);
        let label = match outer {
            Some(outer) => format!("{outer}/{}", element.label()),
            None => element.label(),
        };
        self.names.name(number, &label, &element.identity);
        for table in &element.list.tables {
            if let Some(table) = self.tables.get_mut(*table)
                && table.elements.len() < table.samples.len()
            {
                table.elements.push(number);
                if let Some(sample) = table.samples.last_mut() {
                    *sample = self.sample;
                }
            }
        }
    }

    fn store(&mut self, node: &PlanNode, value: FieldValue<'_>) {
        for (table, column) in &node.cells {
            if let Some(column) = self.tables.get_mut(*table).and_then(|table| table.columns.get_mut(*column))
            {
                column.set_last(value);
            }
        }
        if let (Some(naming), Some(element)) = (&node.naming, self.open.last_mut()) {
            element.identify(naming, value);
        }
    }
}

impl OpenElement<'_> {
    /// Appends a part of the key; its length keeps parts apart.
    fn push_key(&mut self, part: &[u8]) {
        self.key.extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.key.extend_from_slice(part);
    }

    fn identify(&mut self, naming: &Naming, value: FieldValue<'_>) {
        let text = match value {
            FieldValue::Text(text) => text.to_owned(),
            FieldValue::Unsigned(number) => number.to_string(),
            FieldValue::Signed(number) => number.to_string(),
            FieldValue::Bool(value) => value.to_string(),
            FieldValue::Float32(_) | FieldValue::Float(_) | FieldValue::Absent => return,
        };
        if naming.is_key {
            self.has_key = true;
            self.push_key(text.as_bytes());
        }
        if naming.is_labelled && self.label_number.is_none() && is_number(&text) {
            self.label_number = Some(text.as_str().into());
        }
        self.identity.push(ElementIdentity { field: naming.field.clone(), value: text.into() });
    }

    /// The first text, and the first number that is declared to identify it: `postgres[812]`;
    /// without either, the position.
    fn label(&self) -> String {
        let text = self
            .identity
            .iter()
            .map(|part| &*part.value)
            .find(|value| !value.is_empty() && !is_number(value));
        match (text, self.label_number.as_deref()) {
            (Some(text), Some(number)) => format!("{text}[{number}]"),
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (None, None) => self.position.to_string(),
        }
    }

    fn passes(&self, test: &ElementTest) -> bool {
        match test {
            ElementTest::Named(name) => {
                self.identity.iter().any(|part| part.value == *name)
                    || self.label() == **name
                    || (!self.has_number() && self.position.to_string() == **name)
            }
            ElementTest::Tests(tests) => tests.iter().all(|(test, expression)| {
                let value =
                    self.identity.iter().find(|part| part.field == test.field).map(|part| &*part.value);
                match test.operator {
                    TestOperator::Equal => value == Some(&*test.value),
                    TestOperator::NotEqual => value != Some(&*test.value),
                    TestOperator::Matches => value
                        .zip(expression.as_ref())
                        .is_some_and(|(value, expression)| expression.is_match(value)),
                }
            }),
        }
    }

    /// A number identifies it, so a number in a path is not a position.
    fn has_number(&self) -> bool {
        self.identity.iter().any(|part| part.value.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

fn is_number(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}

impl Visitor for RowVisitor<'_> {
    fn begin_object(&mut self, step: PathStep<'_>) {
        let node = if self.ignored > 0 { None } else { self.node(step) };
        let Some(node) = node else {
            self.ignored += 1;
            return;
        };
        if let (PathStep::Element(_, position), Some(list)) = (step, &node.list) {
            let length = self.lengths.last().copied().unwrap_or_default();
            self.begin_element(list, position, length);
        }
        self.stack.push(node);
    }

    fn end_object(&mut self) {
        if self.ignored > 0 {
            self.ignored -= 1;
            return;
        }
        let ended = self.stack.pop();
        // The node of a list is on the stack for the list, and once more for an element of it.
        if let (Some(ended), Some(list)) = (ended, self.stack.last())
            && std::ptr::eq(ended, *list)
        {
            self.end_element();
        }
    }

    fn begin_list(&mut self, step: PathStep<'_>, length: usize) {
        let node = if self.ignored > 0 { None } else { self.node(step) };
        // Text that is not UTF-8 comes as a list of its bytes; its column stays without a value.
        let Some(node) = node.filter(|node| node.list.is_some() && !matches!(step, PathStep::Element(..)))
        else {
            self.ignored += 1;
            return;
        };
        self.lengths.push(length);
        self.stack.push(node);
    }

    fn end_list(&mut self) {
        if self.ignored > 0 {
            self.ignored -= 1;
            return;
        }
        self.stack.pop();
        self.lengths.pop();
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        if self.ignored > 0 {
            return;
        }
        let Some(node) = self.node(step) else { return };
        match (step, &node.list) {
            // An element that is a value, or an element that is absent.
            (PathStep::Element(_, position), Some(list)) => {
                let length = self.lengths.last().copied().unwrap_or_default();
                self.begin_element(list, position, length);
                self.store(node, value);
                self.end_element();
            }
            // An absent list.
            (PathStep::Field(_), Some(_)) => {}
            _ => self.store(node, value),
        }
    }
}
