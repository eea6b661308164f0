//! The columns of rows. The layout determines the column of each value, by the table and the
//! element of the value.

use std::collections::{HashMap, VecDeque};

use flatcap_format::schema::{ColumnType, MetricKind, has_rate};

use super::options::RowOptions;
use super::steps::Aggregate;
use crate::names::column_meaning::ColumnMeaning;
use crate::names::column_names::ColumnNames;
use crate::names::elements::{ElementName, ElementNames};
use crate::plan::{ColumnInfo, TableInfo};

/// Maximum number of columns of a row.
// Each element of a list may have its own column, and the number of processes over time is not
// limited.
const ROW_COLUMNS_MAX: usize = 1 << 16;

/// A column of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowColumn {
    /// The path of the column's field. The name is the requested path if this path selects only one
    /// field, and otherwise the full path. Columns with the same path may differ in type, unit or
    /// kind between runs. Such columns have these properties in braces, such as `app.load{bytes}`.
    pub name: String,
    /// The name of the source.
    pub source: Box<str>,
    /// The type of the values in the schema.
    pub column_type: ColumnType,
    /// The attribute `unit`.
    pub unit: Option<Box<str>>,
    /// The metric kind, such as counter or gauge, which describes how successive values are
    /// related.
    pub kind: MetricKind,
    /// Whether the values are changes per second of a counter.
    pub is_rate: bool,
    /// First, index of the query's path that selected the column. Second, index of the column's
    /// field among the fields of that path.
    pub order: (usize, usize),
}

/// The identity of a column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ColumnKey {
    source: Box<str>,
    /// The source's id, if the run has several sources with its name.
    instance: Option<u16>,
    /// The path of the field, with `[*]` after each list.
    path: String,
    meaning: ColumnMeaning,
    /// The name of the element, if the element has its own columns.
    element: Option<ElementName>,
}

impl RowColumn {
    /// Creates a column according to the options of the query.
    pub(super) fn new(name: String, source: &str, meaning: ColumnMeaning, options: &RowOptions) -> Self {
        let ColumnMeaning { column_type, unit, kind } = meaning;
        // A count of samples has neither the unit of the values nor a rate.
        let is_count = options.steps.is_some_and(|steps| steps.aggregate == Some(Aggregate::Count));
        Self {
            name,
            source: source.into(),
            column_type,
            unit: unit.filter(|_| !is_count),
            kind,
            is_rate: options.is_rate && has_rate(kind, column_type) && !is_count,
            order: (0, 0),
        }
    }

    /// Returns the type, unit and kind of the values in the column.
    pub(crate) fn meaning(&self) -> ColumnMeaning {
        ColumnMeaning { column_type: self.column_type, unit: self.unit.clone(), kind: self.kind }
    }

    /// Sets the position of the column in the order of the query.
    pub(super) fn at(self, order: (usize, usize)) -> Self {
        Self { order, ..self }
    }
}

/// Assigns values to the columns of rows.
#[derive(Debug)]
pub(super) struct RowLayout {
    pub(super) columns: Vec<RowColumn>,
    known: HashMap<ColumnKey, usize>,
    /// The columns that existed at the start, by name.
    // Several elements may have the same name, so a name may have several columns.
    given: HashMap<String, VecDeque<usize>>,
    /// For each path of the query that selects only one field, the name of its column.
    own_names: Vec<Option<String>>,
    names: ColumnNames,
    tables: Vec<TableLayout>,
    options: RowOptions,
    /// Whether the set of columns is final, so that no columns are added.
    // Columns cannot be added after the header was printed.
    is_fixed: bool,
}

/// The columns of one table.
#[derive(Debug)]
struct TableLayout {
    /// The column of each value in the table. `None` for fields of a list, if the elements of the
    /// list have their own columns.
    shared: Vec<Option<usize>>,
    /// The columns of the values of an element, for each name of an element.
    by_element: HashMap<ElementName, Vec<Option<usize>>>,
}

impl RowLayout {
    /// Creates the layout of the selected fields. Elements get their own columns when they first
    /// occur, unless rows are elements.
    pub(super) fn new(
        (own_names, names): (Vec<Option<String>>, ColumnNames),
        mut selected: Vec<RowColumn>,
        options: &RowOptions,
    ) -> Self {
        // The elements of a list are only known from the samples.
        selected.retain(|column| options.is_long || !column.name.contains("[*]"));
        let mut layout = Self {
            columns: Vec::new(),
            known: HashMap::new(),
            given: HashMap::new(),
            own_names,
            names,
            tables: Vec::new(),
            options: options.clone(),
            is_fixed: false,
        };
        layout.set(selected);
        layout
    }

    /// Uses these columns, and adds no other columns later.
    pub(super) fn fix(&mut self, columns: Vec<RowColumn>) {
        self.set(columns);
        self.is_fixed = true;
    }

    fn set(&mut self, columns: Vec<RowColumn>) {
        self.given.clear();
        for (number, column) in columns.iter().enumerate() {
            self.given.entry(column.name.clone()).or_default().push_back(number);
        }
        self.columns = columns;
    }

    /// Adds tables that are new.
    pub(super) fn add_tables(&mut self, tables: &[TableInfo]) {
        for table in tables.iter().skip(self.tables.len()) {
            let is_shared = table.list.is_none() || self.options.is_long;
            let shared = if is_shared {
                let places = table.columns.iter().enumerate();
                places.map(|(place, info)| self.column(table, place, info, None)).collect()
            } else {
                Vec::new()
            };
            self.tables.push(TableLayout { shared, by_element: HashMap::new() });
        }
    }

    /// Adds columns for a new name of an element, unless rows are elements.
    pub(super) fn name_element(
        &mut self,
        number: usize,
        table: &TableInfo,
        name: Option<ElementName>,
        names: &ElementNames,
    ) {
        let Some(name) = name.filter(|_| !self.options.is_long) else { return };
        if self.tables.get(number).is_none_or(|own| own.by_element.contains_key(&name)) {
            return;
        }
        // Columns belong to the title of an element, so that no columns are added when a field that
        // only describes the element changes.
        let title = names.title(name);
        let places = table.columns.iter().enumerate();
        let columns =
            places.map(|(place, info)| self.column(table, place, info, Some((title, names)))).collect();
        if let Some(own) = self.tables.get_mut(number) {
            own.by_element.insert(name, columns);
        }
    }

    /// Returns the column of each value of a row. The column is `None` for a value that has no
    /// column.
    pub(super) fn places(&self, number: usize, name: Option<ElementName>) -> &[Option<usize>] {
        let Some(own) = self.tables.get(number) else { return &[] };
        match name {
            Some(name) if !self.options.is_long => own.by_element.get(&name).map_or(&[], Vec::as_slice),
            _ => &own.shared,
        }
    }

    /// Returns the index of a column. Adds the column if it is new.
    fn column(
        &mut self,
        table: &TableInfo,
        place: usize,
        info: &ColumnInfo,
        element: Option<(ElementName, &ElementNames)>,
    ) -> Option<usize> {
        let path = without_picks(&table.path(info));
        let meaning =
            ColumnMeaning { column_type: info.column_type, unit: info.unit.clone(), kind: info.kind };
        let own = self.own_names.get(info.order).and_then(Clone::clone);
        let shown = element.map(|(title, names)| table.element_path(info, names.label(title)));
        // If several sources share the name, the requested path does not identify a single column.
        let name = match (own, &shown) {
            (Some(own), None) if table.instance.is_none() => own,
            (_, shown) => {
                let paths = (path.as_str(), shown.as_deref().unwrap_or(&path));
                self.names.name((&table.source, table.instance), paths, &meaning)
            }
        };
        let (source, instance) = (table.source.clone(), table.instance);
        let key = ColumnKey { source, instance, path, meaning, element: element.map(|(title, _)| title) };
        if let Some(known) = self.known.get(&key) {
            return Some(*known);
        }
        let given = self.given.get_mut(&name).and_then(|given| match element {
            // Each element gets the next column with its name.
            Some(_) => given.pop_front(),
            None => given.back().copied(),
        });
        if let Some(given) = given {
            self.known.insert(key, given);
            return Some(given);
        }
        if self.is_fixed || self.columns.len() >= ROW_COLUMNS_MAX {
            return None;
        }
        let column = RowColumn::new(name, &table.source, key.meaning.clone(), &self.options);
        self.columns.push(column.at((info.order, place)));
        self.known.insert(key, self.columns.len() - 1);
        Some(self.columns.len() - 1)
    }
}

/// Returns a path in which every pair of brackets is replaced by `[*]`, including the text in the
/// brackets.
fn without_picks(path: &str) -> String {
    let (mut plain, mut is_inside, mut is_quoted, mut is_escaped) = (String::new(), false, false, false);
    for character in path.chars() {
        let was_escaped = is_escaped;
        is_escaped = is_quoted && !was_escaped && character == '\\';
        match character {
            '"' if was_escaped => {}
            '"' if is_inside => is_quoted = !is_quoted,
            ']' if !is_quoted => is_inside = false,
            '[' if !is_inside => {
                is_inside = true;
                plain.push_str("[*]");
            }
            other if !is_inside => plain.push(other),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that all brackets are replaced, even brackets that contain other brackets in quotes.
    #[test]
    fn picks_are_replaced() {
        for (path, plain) in
            [("a.b", "a.b"), ("a[x].b", "a[*].b"), (r#"a[n="]["].b[y]"#, "a[*].b[*]"), ("a[*]", "a[*]")]
                .into_iter()
                .chain([(r#"a["x{y=\"]\"}"].b"#, "a[*].b")])
        {
            assert_eq!(without_picks(path), plain);
        }
    }
}
