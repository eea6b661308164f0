//! Stores the values of one payload as rows of tables.

use std::ops::Range;

use flatcap_format::schema::{CompiledSchema, Field, FieldValue, PathStep, Visitor, text_of};

use super::open_element::OpenElement;
use super::struct_rows::{StructElements, StructRows};
use super::table_rows::{CellBytes, TableRows};
use crate::names::elements::{ElementLabel, ElementName, ElementNames, NO_ELEMENT};
use crate::plan::{ListPlan, PlanNode};

/// Stores the values of one payload in rows.
pub(super) struct RowVisitor<'r> {
    tables: &'r mut [TableRows],
    names: &'r mut ElementNames,
    sample: u32,
    root: &'r PlanNode,
    /// The log of the bytes from which the values are read, if the log is needed.
    pub(super) log: Option<&'r mut AccessLog>,
    /// The known elements, if lists of structs are read in one step.
    pub(super) structs: Option<(&'r CompiledSchema, &'r mut StructElements)>,
    /// The positions of the next value's bytes.
    read: Option<Range<usize>>,
    stack: Vec<&'r PlanNode>,
    /// Number of open objects and lists below a node that is not in the plan.
    ignored: usize,
    /// Lengths of the open lists, outermost list first.
    lengths: Vec<usize>,
    /// The open elements of lists, outermost element first.
    open: Vec<OpenElement<'r>>,
}

/// The data on which the rows of a payload depend, apart from the bytes of the values themselves.
#[derive(Debug, Default)]
pub(super) struct AccessLog {
    /// Positions of the bytes that determine which rows exist and where their values are.
    pub(super) fixed: Vec<Range<usize>>,
    /// The elements of the rows, each with the name that it has in the payload.
    pub(super) named: Vec<(u32, ElementName)>,
}

impl<'r> RowVisitor<'r> {
    /// Creates a visitor that appends the rows of a sample, given the index of the sample in the
    /// batch.
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
        let key = self.open.last().map(OpenElement::inner_key).unwrap_or_default();
        let mut element = OpenElement::new(list, key, position, length);
        element.rows = rows;
        self.open.push(element);
    }

    fn end_element(&mut self) {
        let Some(mut element) = self.open.pop() else { return };
        element.end_key();
        let list = element.list;
        let (number, before) = match list.number {
            Some(number) => self.names.intern(number, &element.key),
            None => (NO_ELEMENT, 0),
        };
        // All samples with this element have the same outer elements.
        let is_named = list.number.is_some() || !list.picks.is_empty();
        let named = if is_named { element.named(&self.open, before) } else { ElementLabel::default() };
        for ((table, test), (_, row)) in list.picks.iter().zip(&element.rows) {
            if !element.passes(test, &named)
                && let Some(table) = self.tables.get_mut(*table)
            {
                table.truncate(*row);
            }
        }
        if list.number.is_none() {
            return self.end_rows(list, (NO_ELEMENT, ElementName::NONE));
        }
        let name = self.names.name(number, named);
        if let Some(log) = &mut self.log {
            log.named.push((number, name));
        }
        self.end_rows(list, (number, name));
    }

    fn end_rows(&mut self, list: &ListPlan, element: (u32, ElementName)) {
        for table in &list.tables {
            if let Some(table) = self.tables.get_mut(*table) {
                table.end_row(self.sample, element);
            }
        }
    }

    /// Stores a value. If the value is a string that is not UTF-8, `text` contains its bytes,
    /// because they may identify an element.
    fn store(&mut self, node: &PlanNode, field: Option<&Field>, value: FieldValue<'_>, text: Option<&[u8]>) {
        let bytes = self.read.take().filter(|_| self.log.is_some());
        let cell = bytes.zip(field).map(|(bytes, field)| CellBytes::new(bytes, field));
        for (table, column) in &node.cells {
            if let Some(table) = self.tables.get_mut(*table) {
                table.set_last(*column, value, cell.as_ref());
            }
        }
        if let (Some(naming), Some(element)) = (&node.naming, self.open.last_mut()) {
            match text {
                Some(bytes) => element.identify_text(naming, bytes),
                None => element.identify(naming, value),
            }
            // Different bytes would identify a different element, so these bytes belong to the
            // fixed bytes.
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
            // Parts outside of the plan are only counted, so that their ends are not mistaken for
            // the ends of parts in the plan.
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
        // The stack contains the node of a list one time for the list, and one more time for each
        // open element of the list.
        if let (Some(ended), Some(list)) = (ended, self.stack.last())
            && std::ptr::eq(ended, *list)
        {
            self.end_element();
        }
    }

    fn structs(&mut self, elements: &[u8], stride: usize) -> bool {
        // A template needs the positions of each value's bytes. Inner elements need the keys of the
        // elements that contain them.
        if self.ignored > 0 || !self.open.is_empty() || self.log.is_some() {
            return false;
        }
        let list = self.stack.last().and_then(|node| node.list.as_ref());
        let plan = list.and_then(|list| Some((list, list.structs.as_ref()?)));
        let (Some((list, plan)), Some((schema, known))) = (plan, &mut self.structs) else { return false };
        let rows = StructRows { list, plan, schema, stride, sample: self.sample };
        rows.append(elements, known, self.names, self.tables);
        true
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
        let node = if self.ignored > 0 { None } else { self.node(step) };
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
        self.take(step, value, None);
    }

    fn text_bytes(&mut self, step: PathStep<'_>, bytes: &[u8]) {
        self.take(step, FieldValue::Text(&text_of(bytes)), Some(bytes));
    }
}

impl RowVisitor<'_> {
    /// Accepts a value. If the value is a string that is not UTF-8, `text` contains its bytes.
    fn take(&mut self, step: PathStep<'_>, value: FieldValue<'_>, text: Option<&[u8]>) {
        if self.ignored > 0 {
            // The bytes of an ignored value must not be used as the bytes of the next value.
            self.read = None;
            return;
        }
        let Some(node) = self.node(step) else {
            self.read = None;
            return;
        };
        match (step, &node.list) {
            // The element is a plain value, or the element is absent.
            (PathStep::Element(_, position), Some(list)) => {
                let length = self.lengths.last().copied().unwrap_or_default();
                self.begin_element(list, position, length);
                self.store(node, step.field(), value, text);
                self.end_element();
            }
            // The list is absent.
            (PathStep::Field(_), Some(_)) => {}
            _ => self.store(node, step.field(), value, text),
        }
    }
}
