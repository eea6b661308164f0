//! Rates in whole samples. The query engine reads the counters of a source as columns. A walk of a
//! payload takes the rate of each counter from these columns.

use flatcap_format::schema::{
    CompiledSchema, FieldValue, LeafField, PathStep, SchemaError, Visitor, has_rate,
};
use flatcap_format::segment::SampleView;

use super::counter_fields::CounterFields;
use super::rate::CounterRates;
use crate::columns::batch::ColumnBatch;
use crate::names::elements::{ELEMENTS_MAX, ElementNames};
use crate::names::path::ElementPick;
use crate::names::resolve::SelectedField;
use crate::plan::{SourcePlan, TableInfo};
use crate::scan::collector::Collector;
use crate::scan::filter::{is_visible, visible};

/// Number of elements after which the ids of elements start again at 0. Because of this restart,
/// rates are computed for recordings of any length.
const RESTART_ELEMENTS: usize = ELEMENTS_MAX / 2;

/// The counters of a source, and their rates in its last sample.
#[derive(Debug)]
pub(crate) struct SampleRates {
    collector: Collector,
    names: ElementNames,
    rates: CounterRates,
    /// The tables that contain the counters.
    tables: Vec<TableInfo>,
    /// The batches with the rates in the last sample, one batch for each table.
    batches: Vec<ColumnBatch>,
    root: RateNode,
}

/// A field of the schema, with its children by position.
#[derive(Debug, Default)]
struct RateNode {
    children: Vec<RateNode>,
    /// The table and column of the counter. `None` if the field is not a counter.
    cell: Option<(usize, usize)>,
    /// The table whose rows are the elements of the list. Set if the field is a list with counters.
    table: Option<usize>,
}

impl SampleRates {
    /// Plans the counters of a source.
    ///
    /// # Errors
    /// The path of a counter is too long.
    pub(crate) fn new(name: &str, schema: &CompiledSchema) -> Result<Self, SchemaError> {
        // `--fields` with `--rate` returns rates of the same counters, because both use the same
        // rule for the fields that have a rate.
        let leaves: Vec<LeafField<'_>> = schema.fields().collect();
        let is_counter = |leaf: &LeafField<'_>| {
            leaf.field.column_type().is_some_and(|own| has_rate(leaf.field.metric_kind(), own))
        };
        let counters: Vec<usize> =
            (0..leaves.len()).filter(|leaf| leaves.get(*leaf).is_some_and(is_counter)).collect();
        let selected = counters.iter().filter_map(|leaf| {
            let picks = vec![ElementPick::All; leaves.get(*leaf)?.lists.len()];
            Some(SelectedField { leaf: *leaf, picks, order: *leaf })
        });
        let mut selected: Vec<SelectedField> = selected.collect();
        // A rate may need another field, which contains the value at which the counter wraps, or
        // the number of elements that the sample leaves out.
        let needed = CounterFields::add_to(&mut selected, schema);
        let mut lists = 0;
        let number = |_: &str| {
            lists += 1;
            Some(lists)
        };
        let mut plan = SourcePlan::new(name, schema, &selected, number)?;
        plan.counters = needed.columns(&plan);
        let mut root = RateNode::default();
        for (leaf, place) in counters.iter().zip(&plan.places) {
            if let (Some(leaf), Some(place)) = (leaves.get(*leaf), place) {
                root.add(leaf, *place);
            }
        }
        // The tables that are needed only for the rates follow the tables of the counters.
        let tables = plan.tables.iter().filter(|table| is_visible(table)).map(visible).collect();
        plan.numbers = (0..plan.tables.len()).collect();
        Ok(Self {
            collector: Collector::new(0, plan, None),
            names: ElementNames::default(),
            rates: CounterRates::default(),
            tables,
            batches: Vec::new(),
            root,
        })
    }

    /// Returns whether the number of elements has reached its limit. The caller should then replace
    /// this object by a new one.
    pub(crate) fn is_full(&self) -> bool {
        self.names.len() > RESTART_ELEMENTS
    }

    /// Computes the rates of a sample. The rates are absent if the sample does not fit its schema.
    /// Returns whether the sample has more elements than can be distinguished.
    pub(crate) fn observe(&mut self, sample: &SampleView<'_>) -> bool {
        self.batches.clear();
        // Nothing is known about a sample that does not fit its schema, so none of its counters has
        // a rate.
        if self.collector.add(sample, &mut self.names).is_ok() {
            self.collector.take(u64::MAX, &mut self.batches);
        }
        for (batch, table) in self.batches.iter_mut().zip(&self.tables) {
            self.rates.apply(batch, table, &self.names);
        }
        self.names.has_more()
    }

    /// Returns a visitor that passes the rate of each counter to `inner` instead of its value, and
    /// passes everything else unchanged. The visitor must walk the payload that was passed to the
    /// last call of `observe`.
    pub(crate) fn replace_counters<'r, V: Visitor>(&'r self, inner: &'r mut V) -> impl Visitor + use<'r, V> {
        RateVisitor { rates: self, inner, open: Vec::new(), rows: vec![0; self.tables.len()] }
    }
}

impl RateNode {
    /// Adds a counter.
    fn add(&mut self, leaf: &LeafField<'_>, (table, column): (usize, usize)) {
        let (mut node, mut end) = (self, 0);
        let mut names = leaf.path.split('.');
        for position in &leaf.positions {
            end += names.next().map_or(0, |name| name.len() + usize::from(end > 0));
            if node.children.len() <= *position {
                node.children.resize_with(position + 1, Self::default);
            }
            let Some(child) = node.children.get_mut(*position) else { return };
            node = child;
            if leaf.lists.last() == Some(&end) {
                node.table = Some(table);
            }
        }
        node.cell = Some((table, column));
    }
}

struct RateVisitor<'r, V> {
    rates: &'r SampleRates,
    inner: &'r mut V,
    /// The fields of the open objects and lists. An entry is `None` for an object or list without
    /// counters.
    open: Vec<Option<&'r RateNode>>,
    /// Number of rows of each table so far.
    rows: Vec<usize>,
}

impl<'r, V: Visitor> RateVisitor<'r, V> {
    /// Returns the node of a field. If the step is an element, begins the row of the element.
    fn enter(&mut self, step: PathStep<'_>) -> Option<&'r RateNode> {
        let last = self.open.last().copied().flatten();
        match step {
            PathStep::Root => Some(&self.rates.root),
            PathStep::Field(field) => last?.children.get(field.index()),
            PathStep::Element(..) => {
                if let Some(rows) = last?.table.and_then(|table| self.rows.get_mut(table)) {
                    *rows += 1;
                }
                last
            }
        }
    }

    fn rate(&self, node: Option<&RateNode>) -> FieldValue<'r> {
        let value = node.and_then(|node| node.cell).and_then(|(table, column)| {
            // A table outside of lists has one row. No element begins this row.
            let row = self.rows.get(table)?.saturating_sub(1);
            Some(self.rates.batches.get(table)?.columns.get(column)?.get(row))
        });
        value.unwrap_or(FieldValue::Absent)
    }
}

impl<V: Visitor> Visitor for RateVisitor<'_, V> {
    fn begin_object(&mut self, step: PathStep<'_>) {
        let node = self.enter(step);
        self.open.push(node);
        self.inner.begin_object(step);
    }

    fn end_object(&mut self) {
        self.open.pop();
        self.inner.end_object();
    }

    fn begin_list(&mut self, step: PathStep<'_>, length: usize) {
        let node = self.enter(step);
        self.open.push(node);
        self.inner.begin_list(step, length);
    }

    fn end_list(&mut self) {
        self.open.pop();
        self.inner.end_list();
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        let node = self.enter(step);
        let is_counter = step.field().is_some_and(|field| {
            field.column_type().is_some_and(|column_type| has_rate(field.metric_kind(), column_type))
        });
        // A counter to which no path leads, such as a counter in a table inside itself, has no
        // rate.
        let is_replaced = is_counter && value != FieldValue::Absent;
        self.inner.value(step, if is_replaced { self.rate(node) } else { value });
    }

    fn text_bytes(&mut self, step: PathStep<'_>, bytes: &[u8]) {
        self.enter(step);
        self.inner.text_bytes(step, bytes);
    }
}
