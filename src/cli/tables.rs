//! Plain tables for people, and the columns that several verbs share.

use comfy_table::{CellAlignment, Table};

/// Columns of the table of sources, of `info` and of `record`.
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

/// Returns a plain table: the first column is left-aligned, the others are right-aligned.
pub(super) fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header(header);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}
