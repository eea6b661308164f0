//! Stores the values of one payload as rows of tables.

use std::ops::Range;

use super::elements::{ElementIdentity, ElementNames};
use super::path::TestOperator;
use super::plan::{ElementTest, ListPlan, Naming, PlanNode};
use super::table_rows::{CellBytes, TableRows};
use crate::schema::{Field, FieldValue, PathStep, Visitor};

/// Stores the values of one payload in rows.
pub(super) struct RowVisitor<'r> {
    tables: &'r mut [TableRows],
    names: &'r mut ElementNames,
    sample: u32,
    root: &'r PlanNode,
    /// Where the values are, if someone asks.
    log: Option<&'r mut AccessLog>,
    /// The bytes of the next value.
    read: Option<Range<usize>>,
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

/// What values of a payload depend on, besides their own bytes.
#[derive(Debug, Default)]
pub(super) struct AccessLog {
    /// Bytes that determine which rows there are, and where their values are.
    pub(super) fixed: Vec<Range<usize>>,
    /// The elements of the rows.
    pub(super) named: Vec<NamedElement>,
}

/// An element, as a payload names it.
#[derive(Debug)]
pub(super) struct NamedElement {
    pub(super) number: u32,
    pub(super) label: String,
    pub(super) identity: Vec<ElementIdentity>,
}

impl<'r> RowVisitor<'r> {
    /// Creates a visitor that appends the rows of a sample with this number.
    pub(super) fn new(
        root: &'r PlanNode,
        tables: &'r mut [TableRows],
        names: &'r mut ElementNames,
        sample: u32,
        log: Option<&'r mut AccessLog>,
    ) -> Self {
        Self {
            tables,
            names,
            sample,
            root,
            log,
            read: None,
            stack: Vec::new(),
            ignored: 0,
            lengths: Vec::new(),
            open: Vec::new(),
        }
    }

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
        if let Some(log) = &mut self.log {
            log.named.push(NamedElement { number, label, identity: element.identity });
        }
        for table in &element.list.tables {
            if let Some(table) = self.tables.get_mut(*table) {
                table.end_row(self.sample, number);
            }
        }
    }

    fn store(&mut self, node: &PlanNode, field: Option<&Field>, value: FieldValue<'_>) {
        let bytes = self.read.take().filter(|_| self.log.is_some());
        let cell = bytes.zip(field).map(|(bytes, field)| CellBytes::new(bytes, field));
        for (table, column) in &node.cells {
            if let Some(table) = self.tables.get_mut(*table) {
                table.set_last(*column, value, cell.as_ref());
            }
        }
        if let (Some(naming), Some(element)) = (&node.naming, self.open.last_mut()) {
            element.identify(naming, value);
            // Other bytes would be another element.
            if let (Some(log), Some(cell)) = (&mut self.log, cell) {
                log.fixed.push(cell.bytes);
            }
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

    fn reads_structure(&mut self, bytes: Range<usize>) {
        if let Some(log) = &mut self.log {
            log.fixed.push(bytes);
        }
    }

    fn reads_value(&mut self, bytes: Range<usize>) {
        self.read = Some(bytes);
    }

    fn begin_list(&mut self, step: PathStep<'_>, length: usize) {
        // Of a text that is not UTF-8, which has no value.
        if let (Some(bytes), Some(log)) = (self.read.take(), &mut self.log) {
            log.fixed.push(bytes);
        }
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
            self.read = None;
            return;
        }
        let Some(node) = self.node(step) else {
            self.read = None;
            return;
        };
        match (step, &node.list) {
            // An element that is a value, or an element that is absent.
            (PathStep::Element(_, position), Some(list)) => {
                let length = self.lengths.last().copied().unwrap_or_default();
                self.begin_element(list, position, length);
                self.store(node, step.field(), value);
                self.end_element();
            }
            // An absent list.
            (PathStep::Field(_), Some(_)) => {}
            _ => self.store(node, step.field(), value),
        }
    }
}
