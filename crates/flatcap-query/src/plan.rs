//! The plan of a query for one source of one run. The plan assigns fields to columns of tables.

use std::sync::Arc;

use flatcap_format::schema::{
    ColumnType, CompiledSchema, Field, LeafField, MetricKind, SchemaError, StructField, StructList, Usage,
};

use crate::columns::counter_columns::CounterColumns;
use crate::names::label_rules::{LabelRole, NamingField, label_rules};
use crate::names::path::{ElementPick, IdentityTest, TestOperator, whole_match};
use crate::names::path_text::{instance_name, quoted};
use crate::names::resolve::{SelectedField, picked_path};

/// The value of `order` for columns that are not requested, but are needed for a condition or for
/// rates.
pub(super) const HIDDEN: usize = usize::MAX;

/// A table of a query's result. The table contains either the fields that have one value per
/// sample, or the fields of the elements of one list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// The source's name.
    pub source: Box<str>,
    /// The source's id. `None` unless the run has several sources with this name at the same time.
    pub instance: Option<u16>,
    /// The path of the list with its selected elements, such as `devices[vda]`. `None` if the table
    /// is not a list.
    pub list: Option<Box<str>>,
    /// The columns.
    pub columns: Vec<ColumnInfo>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Path of the field in the element, or in the source if the table is not a list. Empty if the
    /// elements of the list are plain values.
    pub path: Box<str>,
    /// The type of the values.
    pub column_type: ColumnType,
    /// The name of the type in the schema.
    pub type_name: Box<str>,
    /// The attribute `unit`.
    pub unit: Option<Box<str>>,
    /// The metric kind, such as counter or gauge, which describes how successive values are
    /// related.
    pub kind: MetricKind,
    /// The relation of the values to the use of a resource.
    pub usage: Usage,
    /// Whether the field identifies an element.
    pub is_identity: bool,
    /// Index in the query of the path that selected the field.
    pub order: usize,
}

impl ColumnInfo {
    fn of(field: &Field, (path, column_type): (&str, ColumnType), order: usize) -> Self {
        Self {
            path: path.into(),
            column_type,
            type_name: field.type_name().into(),
            unit: field.unit().map(Into::into),
            kind: field.metric_kind(),
            usage: field.usage(),
            is_identity: field.is_identity(),
            order,
        }
    }
}

impl TableInfo {
    /// Returns the name of the source. If other sources share the name, the source's id follows,
    /// such as in `orders[3]`.
    pub fn source_name(&self) -> String {
        instance_name(&self.source, self.instance)
    }

    /// Returns the path of a column below the source, such as `devices[*].reads`, in a form that
    /// [`FieldPath`](super::FieldPath) accepts.
    pub fn path(&self, column: &ColumnInfo) -> String {
        match (&self.list, column.path.is_empty()) {
            (None, _) => column.path.to_string(),
            (Some(list), true) => list.to_string(),
            (Some(list), false) => format!("{list}.{}", column.path),
        }
    }

    /// Returns the path of a column for one element, such as `devices[vda].reads`.
    pub fn element_path(&self, column: &ColumnInfo, label: &str) -> String {
        let Some(list) = &self.list else { return column.path.to_string() };
        let name = last_pick(list).and_then(|at| list.get(..at)).unwrap_or(list);
        let label = quoted(label);
        if column.path.is_empty() {
            format!("{name}[{label}]")
        } else {
            format!("{name}[{label}].{}", column.path)
        }
    }
}

/// Returns the start of the last brackets in the path of a list. Names in quotes may contain
/// further brackets, such as in `processes["rustc[812]"]`.
fn last_pick(list: &str) -> Option<usize> {
    let (mut pick, mut is_inside, mut is_quoted, mut is_escaped) = (None, false, false, false);
    for (at, character) in list.char_indices() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' if is_inside => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '[' => (pick, is_inside) = (Some(at), true),
            ']' => is_inside = false,
            _ => {}
        }
    }
    pick
}

/// The plan of one source.
#[derive(Debug)]
pub(super) struct SourcePlan {
    /// The schema, reduced to the fields that are needed.
    pub(super) schema: CompiledSchema,
    pub(super) tables: Vec<TableInfo>,
    /// For each table, its index in the tables of the query's results.
    pub(super) numbers: Vec<usize>,
    /// The table and column of each selected field. `None` if the field has no column.
    pub(super) places: Vec<Option<(usize, usize)>>,
    pub(super) root: PlanNode,
    /// The additional columns that are needed for rates of counters.
    pub(super) counters: CounterColumns,
}

/// The purposes of a field of the selected schema. The children are in the order of their positions
/// in the object or struct.
#[derive(Debug, Default)]
pub(super) struct PlanNode {
    pub(super) children: Vec<PlanNode>,
    /// The table and column to which the field's values are written.
    pub(super) cells: Vec<(usize, usize)>,
    /// The role of the field in the identity of an element. Set if the field identifies or names an
    /// element of the innermost list.
    pub(super) naming: Option<Naming>,
    /// The plan of the list. Set if the field is a list.
    pub(super) list: Option<Box<ListPlan>>,
}

/// The role of a field that identifies or names an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Naming {
    pub(super) field: Arc<str>,
    /// Whether the field is a part of the key.
    pub(super) is_key: bool,
    /// The role of the field in the label of the element.
    pub(super) rule: LabelRole,
}

/// The plan of a list.
#[derive(Debug, Default)]
pub(super) struct ListPlan {
    /// Tables whose rows are elements of this list.
    pub(super) tables: Vec<usize>,
    /// The selections of elements, for each table whose rows are elements of this list or of its
    /// inner lists.
    pub(super) picks: Vec<(usize, ElementTest)>,
    /// The index of the list for [`ElementNames`](super::ElementNames). `None` if its elements are
    /// not distinguished.
    pub(super) number: Option<u32>,
    /// Whether the elements are events. An event is unrelated to the element at the same position
    /// in the next sample.
    pub(super) are_events: bool,
    /// Whether an inner list precedes the field that identifies the elements.
    pub(super) has_late_key: bool,
    /// Set if the elements are structs of numbers and strings, and all elements are selected.
    pub(super) structs: Option<StructPlan>,
}

/// The offsets of the fields of a struct, and the purposes of these fields.
#[derive(Debug)]
pub(super) struct StructPlan {
    pub(super) fields: Vec<StructColumn>,
}

/// A field of a struct.
#[derive(Debug)]
pub(super) struct StructColumn {
    pub(super) field: StructField,
    /// The table and column to which the field's values are written.
    pub(super) cells: Vec<(usize, usize)>,
    pub(super) naming: Option<Naming>,
}

impl StructPlan {
    pub(super) fn new(nodes: &[PlanNode], fields: &[StructField]) -> Self {
        let fields = fields.iter().map(|field| {
            let node = nodes.get(field.index);
            StructColumn {
                field: field.clone(),
                cells: node.map(|node| node.cells.clone()).unwrap_or_default(),
                naming: node.and_then(|node| node.naming.clone()),
            }
        });
        Self { fields: fields.collect() }
    }

    /// Returns whether the struct has strings, which may not be UTF-8.
    pub(super) fn has_text(&self) -> bool {
        self.fields.iter().any(|column| column.field.reader.is_none())
    }
}

/// A selection of elements, in a form in which elements can be tested quickly.
#[derive(Debug, Clone)]
pub(super) enum ElementTest {
    Named(Box<str>),
    Tests(Vec<(IdentityTest, Option<regex::Regex>)>),
}

/// A table, and the selection of elements for each list on the path to the table's rows.
type PickedTable = (usize, Vec<ElementPick>);

impl SourcePlan {
    /// Plans the tables of the selected fields. The function `list_number` returns the index of a
    /// list in the query, given its path.
    pub(super) fn new(
        source: &str,
        schema: &CompiledSchema,
        selected: &[SelectedField],
        mut list_number: impl FnMut(&str) -> Option<u32>,
    ) -> Result<Self, SchemaError> {
        let leaves: Vec<LeafField<'_>> = schema.fields().collect();
        let mut tables: Vec<TableInfo> = Vec::new();
        let mut cells: Vec<(usize, usize, usize)> = Vec::new(); // leaf, table, column
        let mut lists: Vec<(String, Vec<PickedTable>)> = Vec::new(); // by path
        let mut places = Vec::new();
        for field in selected {
            places.push(None);
            let Some(leaf) = leaves.get(field.leaf) else { continue };
            let Some(column_type) = leaf.field.column_type() else { continue };
            // The path contains the selections. The same list with another selection is a separate
            // table, because it has other rows.
            let list = leaf.lists.last().map(|end| picked_path(leaf, *end, &field.picks));
            let table = tables.iter().position(|table| table.list == list).unwrap_or_else(|| {
                tables.push(TableInfo { source: source.into(), instance: None, list, columns: Vec::new() });
                let table = tables.len() - 1;
                if let Some(end) = leaf.lists.last() {
                    let path = leaf.path.get(..*end).unwrap_or_default();
                    let entry = (table, field.picks.clone());
                    match lists.iter_mut().find(|(known, _)| known == path) {
                        Some((_, tables)) => tables.push(entry),
                        None => lists.push((path.to_owned(), vec![entry])),
                    }
                }
                table
            });
            let Some(info) = tables.get_mut(table) else { continue };
            let start = leaf.lists.last().map_or(0, |end| (end + 1).min(leaf.path.len()));
            cells.push((field.leaf, table, info.columns.len()));
            if let Some(last) = places.last_mut() {
                *last = Some((table, info.columns.len()));
            }
            let path = leaf.path.get(start..).unwrap_or_default();
            info.columns.push(ColumnInfo::of(leaf.field, (path, column_type), field.order));
        }
        // Fields that name the elements of these lists are also read.
        let are_events = schema.has_events();
        let paths = lists.iter().map(|(path, _)| path.as_str());
        let naming = naming_leaves(&leaves, (schema.root_name(), paths), are_events);
        let mut needed: Vec<usize> =
            cells.iter().map(|(leaf, ..)| *leaf).chain(naming.iter().map(|(leaf, _)| *leaf)).collect();
        // The fields are sorted by their order in the schema, because the fields of `narrowed` have
        // this order.
        needed.sort_unstable();
        needed.dedup();
        let paths: Vec<&str> =
            needed.iter().filter_map(|leaf| Some(leaves.get(*leaf)?.path.as_str())).collect();
        // A walk of a payload skips all fields that are not in the reduced schema.
        let narrowed = schema.select(&paths)?;
        let mut root = PlanNode::default();
        for (leaf, number) in narrowed.fields().zip(&needed) {
            let own = cells.iter().filter(|(leaf, ..)| leaf == number);
            let mut list_plan = |path: &str| ListPlan {
                number: list_number(&format!("{source}.{path}")),
                are_events,
                has_late_key: has_late_key(&leaves, &naming, path),
                ..ListPlan::default()
            };
            let node = root.descendant(&leaf, &mut list_plan);
            node.cells = own.map(|(_, table, column)| (*table, *column)).collect();
            node.naming = naming.iter().find(|(leaf, _)| leaf == number).map(|(_, naming)| naming.clone());
        }
        for (path, tables) in &lists {
            for (table, picks) in tables {
                root.add_table(&narrowed, path, *table, picks);
            }
        }
        for list in narrowed.struct_lists() {
            root.plan_structs(&list);
        }
        let numbers = vec![0; tables.len()];
        let counters = CounterColumns::default();
        Ok(Self { schema: narrowed, tables, numbers, places, root, counters })
    }
}

impl SourcePlan {
    /// Returns whether the change per second of any requested column can be computed.
    pub(super) fn has_rates(&self) -> bool {
        self.tables
            .iter()
            .flat_map(|table| &table.columns)
            .any(|info| info.order != HIDDEN && info.has_rate())
    }
}

impl PlanNode {
    fn child(&mut self, position: usize) -> &mut Self {
        if self.children.len() <= position {
            self.children.resize_with(position + 1, Self::default);
        }
        #[expect(clippy::indexing_slicing, reason = "resized above")]
        &mut self.children[position]
    }

    /// Returns the node of a leaf, and marks the lists on the path to the leaf.
    fn descendant(
        &mut self,
        leaf: &LeafField<'_>,
        list_plan: &mut impl FnMut(&str) -> ListPlan,
    ) -> &mut Self {
        let mut end = 0;
        let mut names = leaf.path.split('.');
        leaf.positions.iter().fold(self, |node, position| {
            end += names.next().map_or(0, |name| name.len() + usize::from(end > 0));
            let child = node.child(*position);
            if leaf.lists.contains(&end) && child.list.is_none() {
                child.list = Some(Box::new(list_plan(leaf.path.get(..end).unwrap_or_default())));
            }
            child
        })
    }

    /// Plans the elements of a list for reading them as structs.
    fn plan_structs(&mut self, structs: &StructList) {
        let list = structs.positions.iter().try_fold(self, |node, position| node.children.get_mut(*position));
        let Some(list) = list else { return };
        let plan = StructPlan::new(&list.children, &structs.fields);
        // A selection is tested for each element, so a list with a selection cannot be read column
        // by column.
        let is_plain =
            |own: &&mut Box<ListPlan>| own.picks.is_empty() && (own.number.is_some() || !plan.has_text());
        if let Some(own) = list.list.as_mut().filter(is_plain) {
            own.structs = Some(plan);
        }
    }

    /// Adds a table to the list at `path`, and adds the selections of elements to all lists on this
    /// path.
    fn add_table(&mut self, schema: &CompiledSchema, path: &str, table: usize, picks: &[ElementPick]) {
        // The path `cores` is also a prefix of `cores_total`, so the rest must begin with a dot.
        let below = |leaf: &LeafField<'_>| {
            leaf.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let Some(leaf) = schema.fields().find(below) else { return };
        let mut picks = picks.iter();
        let (mut end, mut names) = (0, leaf.path.split('.'));
        let mut node = self;
        for position in &leaf.positions {
            end += names.next().map_or(0, |name| name.len() + usize::from(end > 0));
            node = node.child(*position);
            let Some(list) = &mut node.list else { continue };
            if let Some(test) = picks.next().and_then(ElementTest::new) {
                list.picks.push((table, test));
            }
            if end == path.len() {
                list.tables.push(table);
                return;
            }
        }
    }
}

impl ElementTest {
    fn new(pick: &ElementPick) -> Option<Self> {
        match pick {
            ElementPick::All => None,
            ElementPick::Named(name) => Some(Self::Named(name.clone())),
            ElementPick::Tests(tests) => Some(Self::Tests(
                tests
                    .iter()
                    .map(|test| {
                        let is_match = test.operator == TestOperator::Matches;
                        // The regular expression was compiled successfully when the path was
                        // parsed, so compiling it again does not fail.
                        (test.clone(), is_match.then(|| whole_match(&test.value).ok()).flatten())
                    })
                    .collect(),
            )),
        }
    }
}

/// Returns the leaves that identify or name the elements of these lists and of their outer lists.
///
/// Fields with the attribute `identity` form the key. If a list has no such fields, its strings and
/// its unsigned states form the key. Strings always name the element, even if they are not part of
/// the key. Events without an identity are identified by their positions.
fn naming_leaves<'l>(
    leaves: &[LeafField<'_>],
    (root, lists): (&str, impl Iterator<Item = &'l str>),
    are_events: bool,
) -> Vec<(usize, Naming)> {
    let mut around: Vec<&str> = lists
        .flat_map(|list| {
            let known = leaves
                .iter()
                .find(|leaf| leaf.lists.last().is_some_and(|end| leaf.path.get(..*end) == Some(list)));
            known
                .map(|leaf| leaf.lists.iter().filter_map(|end| list.get(..*end)).collect::<Vec<_>>())
                .unwrap_or_default()
        })
        .collect();
    around.sort_unstable();
    around.dedup();
    let mut found = Vec::new();
    for list in around {
        let own: Vec<(usize, &LeafField<'_>)> = leaves
            .iter()
            .enumerate()
            .filter(|(_, leaf)| {
                leaf.field.is_single()
                    && leaf.lists.last().is_some_and(|end| leaf.path.get(..*end) == Some(list))
            })
            .collect();
        let has_identity = own.iter().any(|(_, leaf)| leaf.field.is_identity());
        // If a key were formed from the values of an event, each event would be a new element.
        if are_events && !has_identity {
            continue;
        }
        let mut naming: Vec<(usize, &LeafField<'_>, NamingField<'_>)> = Vec::new();
        for (number, leaf) in own {
            let column_type = leaf.field.column_type();
            let is_text = column_type == Some(ColumnType::Text);
            // Numbers other than states change from sample to sample, so they cannot identify an
            // element.
            let is_state =
                column_type == Some(ColumnType::Unsigned) && leaf.field.metric_kind() == MetricKind::State;
            let is_key = if has_identity { leaf.field.is_identity() } else { is_text || is_state };
            if is_key || is_text {
                let path = leaf.path.get(list.len() + 1..).unwrap_or_default();
                // Among the fields that identify elements, only times have a unit.
                let is_time = leaf.field.unit().is_some();
                naming.push((number, leaf, NamingField { path, is_text, is_key, is_time }));
            }
        }
        let fields: Vec<NamingField<'_>> = naming.iter().map(|(.., field)| *field).collect();
        let rules = label_rules((root, list), &fields, has_identity);
        found.extend(naming.into_iter().zip(rules).map(|((number, _, field), rule)| {
            let (path, is_key) = (field.path.into(), field.is_key);
            (number, Naming { field: path, is_key, rule })
        }));
    }
    found
}

/// Returns whether an inner list precedes a field that identifies the elements of this list.
fn has_late_key(leaves: &[LeafField<'_>], naming: &[(usize, Naming)], list: &str) -> bool {
    let mut own = naming.iter().filter(|(leaf, naming)| {
        let leaf = leaves.get(*leaf);
        let innermost = leaf.and_then(|leaf| leaf.path.get(..*leaf.lists.last()?));
        naming.is_key && innermost == Some(list)
    });
    let last_key = own.next_back().map(|(leaf, _)| *leaf);
    let is_inner = |leaf: &LeafField<'_>| {
        leaf.lists
            .split_last()
            .is_some_and(|(_, outer)| outer.iter().any(|end| leaf.path.get(..*end) == Some(list)))
    };
    last_key.is_some_and(|last_key| leaves.iter().take(last_key).any(is_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that the last brackets are found even if names in the path contain brackets, and that
    // the name of an element replaces them.
    #[test]
    fn an_element_takes_the_place_of_the_last_pick() {
        let column = ColumnInfo {
            path: "reads".into(),
            column_type: ColumnType::Unsigned,
            type_name: "ulong".into(),
            unit: None,
            kind: MetricKind::Counter,
            usage: Usage::Use,
            is_identity: false,
            order: 0,
        };
        for (list, expected) in [
            ("devices[*]", "devices[vda].reads"),
            (r#"processes["rustc[812]"]"#, "processes[vda].reads"),
            (r#"zones[*].free["a\"[b]"]"#, "zones[*].free[vda].reads"),
            (r#"zones["x[y]"].free[*]"#, r#"zones["x[y]"].free[vda].reads"#),
        ] {
            let table = TableInfo {
                source: "s".into(),
                instance: None,
                list: Some(list.into()),
                columns: Vec::new(),
            };
            assert_eq!(table.element_path(&column, "vda"), expected);
        }
    }
}
