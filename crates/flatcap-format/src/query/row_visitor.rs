//! Stores the values of one payload as rows of tables.

use std::ops::Range;

use super::elements::{ElementIdentity, ElementNames, NO_ELEMENT};
use super::open_element::OpenElement;
use super::plan::{ListPlan, PlanNode};
use super::struct_rows::{StructElements, StructRows};
use super::table_rows::{CellBytes, TableRows};
use crate::schema::{CompiledSchema, Field, FieldValue, PathStep, Visitor};

/// Stores the values of one payload in rows.
pub(super) struct RowVisitor<'r> {
    tables: &'r mut [TableRows],
    names: &'r mut ElementNames,
    sample: u32,
    root: &'r PlanNode,
    /// Where the values are, if someone asks.
    pub(super) log: Option<&'r mut AccessLog>,
    /// Structs are read at once, with what is known of their elements.
    pub(super) structs: Option<(&'r CompiledSchema, &'r mut StructElements)>,
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
    ) -> Self {
        Self {
            tables,
            names,
            sample,
            root,
            log: None,
            structs: None,
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
        let mut element = OpenElement::new(list, key, position, length);
        element.rows = rows;
        self.open.push(element);
    }

    fn end_element(&mut self) {
        let Some(mut element) = self.open.pop() else { return };
        element.end_key();
        let outer = self.open.last().map(OpenElement::label);
        let outer = outer.as_deref();
        for ((table, test), (_, row)) in element.list.picks.iter().zip(&element.rows) {
            if !element.passes(test, outer)
                && let Some(table) = self.tables.get_mut(*table)
            {
                table.truncate(*row);
            }
        }
        let Some(list) = element.list.number else { return self.end_rows(element.list, NO_ELEMENT) };
        let number = self.names.intern(list, &element.key);
        let label = element.label_in(outer);
        self.names.name(number, &label, &element.identity);
        if let Some(log) = &mut self.log {
            log.named.push(NamedElement { number, label, identity: element.identity });
        }
        self.end_rows(element.list, number);
    }

    fn end_rows(&mut self, list: &ListPlan, number: u32) {
        for table in &list.tables {
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

    fn structs(&mut self, elements: &[u8], stride: usize) -> Option<usize> {
        if self.ignored > 0 || !self.open.is_empty() || self.log.is_some() {
            return None;
        }
        let list = self.stack.last()?.list.as_ref()?;
        let (schema, known) = self.structs.as_mut()?;
        let rows = StructRows { list, plan: list.structs.as_ref()?, schema, stride, sample: self.sample };
        Some(rows.append(elements, known, self.names, self.tables))
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
