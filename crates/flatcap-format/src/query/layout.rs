//! The columns of rows: which value of which table and element is in which place.

use std::collections::HashMap;

use super::elements::ElementNames;
use super::plan::{ColumnInfo, TableInfo};
use super::row_options::RowOptions;
use super::steps::Aggregate;
use crate::schema::{ColumnType, MetricKind, has_rate};

/// Most columns of a row: each element of a list may be one, and processes come and go.
const ROW_COLUMNS_MAX: usize = 1 << 16;

/// A column of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowColumn {
    /// The path of its field: as it was asked for if that selects one field, else in full.
    pub name: String,
    /// The source.
    pub source: Box<str>,
    /// The type of the values in the schema.
    pub column_type: ColumnType,
    /// The attribute `unit`.
    pub unit: Option<Box<str>>,
    /// How successive values relate.
    pub kind: MetricKind,
    /// The values are changes per second of a counter.
    pub is_rate: bool,
    /// Position in the query of the path that selected it, and position of its field among those
    /// of the path.
    pub order: (usize, usize),
}

impl RowColumn {
    /// Creates the first column of a query.
    pub(super) fn new(
        name: String,
        source: &str,
        (column_type, unit, kind): (ColumnType, Option<Box<str>>, MetricKind),
        options: &RowOptions,
    ) -> Self {
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

    /// Sets the position in the query.
    pub(super) fn at(self, order: (usize, usize)) -> Self {
        Self { order, ..self }
    }
}

/// Assigns values to the columns of rows.
#[derive(Debug)]
pub(super) struct RowLayout {
    pub(super) columns: Vec<RowColumn>,
    by_name: HashMap<String, usize>,
    /// The names of paths that select one field.
    own_names: Vec<Option<String>>,
    tables: Vec<TableLayout>,
    options: RowOptions,
    /// No column is added: the header was printed.
    is_fixed: bool,
}

/// The columns of one table.
#[derive(Debug)]
struct TableLayout {
    /// Of each column; of a list whose elements have columns of their own, none.
    shared: Vec<Option<usize>>,
    /// Of each column by element.
    by_element: HashMap<u32, Vec<Option<usize>>>,
}

impl RowLayout {
    /// Creates the layout of the selected fields. Elements have columns of their own, when they are
    /// seen, unless rows are elements.
    pub(super) fn new(
        own_names: Vec<Option<String>>,
        mut selected: Vec<RowColumn>,
        options: &RowOptions,
    ) -> Self {
        selected.retain(|column| options.is_long || !column.name.contains("[*]"));
        let mut layout = Self {
            columns: Vec::new(),
            by_name: HashMap::new(),
            own_names,
            tables: Vec::new(),
            options: options.clone(),
            is_fixed: false,
        };
        layout.set(selected);
        layout
    }

    /// Uses these columns and no others.
    pub(super) fn fix(&mut self, columns: Vec<RowColumn>) {
        self.set(columns);
        self.is_fixed = true;
    }

    fn set(&mut self, columns: Vec<RowColumn>) {
        let numbered = columns.iter().enumerate().map(|(number, column)| (column.name.clone(), number));
        self.by_name = numbered.collect();
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

    /// Adds the columns of an element that is new, unless rows are elements.
    pub(super) fn number_element(
        &mut self,
        number: usize,
        table: &TableInfo,
        element: Option<u32>,
        names: &ElementNames,
    ) {
        let Some(element) = element.filter(|_| !self.options.is_long) else { return };
        if self.tables.get(number).is_none_or(|own| own.by_element.contains_key(&element)) {
            return;
        }
        let label = names.label(element);
        let places = table.columns.iter().enumerate();
        let columns = places.map(|(place, info)| self.column(table, place, info, Some(label))).collect();
        if let Some(own) = self.tables.get_mut(number) {
            own.by_element.insert(element, columns);
        }
    }

    /// Returns the column of each value of a row; none for a value without one.
    pub(super) fn places(&self, number: usize, element: Option<u32>) -> &[Option<usize>] {
        let Some(own) = self.tables.get(number) else { return &[] };
        match element {
            Some(element) if !self.options.is_long => own.by_element.get(&element).map_or(&[], Vec::as_slice),
            _ => &own.shared,
        }
    }

    /// Returns the number of a column, which is added if it is new.
    fn column(
        &mut self,
        table: &TableInfo,
        place: usize,
        info: &ColumnInfo,
        label: Option<&str>,
    ) -> Option<usize> {
        let own = self.own_names.get(info.order).and_then(Clone::clone);
        let name = match (own, label) {
            (Some(own), None) => own,
            (_, None) => format!("{}.{}", table.source, without_picks(&table.path(info))),
            (_, Some(label)) => format!("{}.{}", table.source, table.element_path(info, label)),
        };
        if let Some(known) = self.by_name.get(&name) {
            return Some(*known);
        }
        if self.is_fixed || self.columns.len() >= ROW_COLUMNS_MAX {
            return None;
        }
        let kind = (info.column_type, info.unit.clone(), info.kind);
        let column = RowColumn::new(name.clone(), &table.source, kind, &self.options);
        self.columns.push(column.at((info.order, place)));
        self.by_name.insert(name, self.columns.len() - 1);
        Some(self.columns.len() - 1)
    }
}

/// Returns a path with `[*]` in place of what is in brackets.
fn without_picks(path: &str) -> String {
    let (mut plain, mut is_inside, mut is_quoted) = (String::new(), false, false);
    for character in path.chars() {
        match character {
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

    // Proves that picks are replaced, quoted brackets included.
    #[test]
    fn picks_are_replaced() {
        for (path, plain) in
            [("a.b", "a.b"), ("a[x].b", "a[*].b"), (r#"a[n="]["].b[y]"#, "a[*].b[*]"), ("a[*]", "a[*]")]
        {
            assert_eq!(without_picks(path), plain);
        }
    }
}
