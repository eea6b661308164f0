//! Plain tables for people, and the columns that several verbs share.

use comfy_table::{CellAlignment, ColumnConstraint, Table};

/// Padding of a cell, in columns of the terminal. Each side of a cell has one column of padding.
const PADDING: usize = 2;

/// Columns of the table of sources that `info` and `record` print.
pub(super) const SOURCE_COLUMNS: [&str; 14] = [
    "source",
    "period",
    "requested Hz",
    "achieved Hz",
    "recorded",
    "lost",
    "missed",
    "incomplete",
    "lateness p50",
    "p99",
    "max",
    "read p50",
    "p99",
    "max",
];

/// Columns of [`SOURCE_COLUMNS`] that are hidden on a narrow terminal, the least important first.
pub(super) const SPARE_SOURCE_COLUMNS: [SpareColumns; 5] = [
    ("read times", &[11, 12, 13]),
    ("requested Hz", &[2]),
    ("max lateness", &[10]),
    ("period", &[1]),
    ("lateness p99", &[9]),
];

/// A description of some columns, and the indices of these columns.
pub(super) type SpareColumns = (&'static str, &'static [usize]);

/// Returns a plain table. The first column is left-aligned, the others are right-aligned.
pub(super) fn table<'h>(header: impl IntoIterator<Item = &'h str>) -> Table {
    let mut table = left_aligned(header);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// Returns a plain table of strings, in which all columns are left-aligned.
pub(super) fn left_aligned<'h>(header: impl IntoIterator<Item = &'h str>) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header(header.into_iter().collect::<Vec<_>>());
    table
}

/// Returns a table as a string. Hides spare columns until the table fits the width, and names the
/// hidden columns in a last line. Otherwise, the lines of the table would wrap and be unreadable.
pub(super) fn fitted(mut table: Table, width: Option<usize>, spare: &[SpareColumns]) -> String {
    let widths = table.column_max_content_widths();
    // The padding after the last cell is not printed.
    let mut needed =
        widths.iter().map(|width| usize::from(*width) + PADDING).sum::<usize>().saturating_sub(1);
    let mut hidden = Vec::new();
    for (what, columns) in spare {
        if width.is_none_or(|width| needed <= width) {
            break;
        }
        for index in *columns {
            let Some(column) = table.column_mut(*index) else { continue };
            column.set_constraint(ColumnConstraint::Hidden);
            needed -= widths.get(*index).map_or(0, |width| usize::from(*width) + PADDING);
        }
        hidden.push(*what);
    }
    let text = table.trim_fmt();
    match hidden.as_slice() {
        [] => text,
        hidden => format!("{text}\n(too narrow for: {})", hidden.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Table {
        let mut table = table(SOURCE_COLUMNS);
        table.add_row(["network", "10ms", "100.0", "82.9", "2910", "0", "100", "0", "2.24ms", "39.6ms"]);
        table
    }

    // Proves that a table fits into 80 columns without wrapping, and that it names the columns that
    // it leaves out. Also proves that the table is complete if the width is sufficient or unknown.
    #[test]
    fn tables_fit_the_terminal() {
        let all = fitted(sources(), None, &SPARE_SOURCE_COLUMNS);
        assert!(all.contains("read p50") && !all.contains("narrow"), "{all}");
        let width = all.lines().map(str::len).max().unwrap();
        assert_eq!(fitted(sources(), Some(width), &SPARE_SOURCE_COLUMNS), all);
        let narrow = fitted(sources(), Some(width - 1), &SPARE_SOURCE_COLUMNS);
        assert!(narrow.ends_with("(too narrow for: read times)"), "{narrow}");
        let narrow = fitted(sources(), Some(80), &SPARE_SOURCE_COLUMNS);
        assert!(narrow.lines().all(|line| line.len() <= 80) && narrow.contains("lateness p50"), "{narrow}");
        assert!(narrow.lines().last().unwrap().contains("requested Hz"), "{narrow}");
    }
}
