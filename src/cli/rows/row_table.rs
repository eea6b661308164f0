//! Prints rows as a table whose columns fit their values. If the table is too wide, it is
//! transposed, so that each line has one value.

use std::io::{self, Write};

/// Number of rows that determine the widths of the columns. Most later values are not wider than
/// the values in these rows.
const SAMPLE_ROWS: usize = 50;
/// Number of spaces between two columns.
const GAP_WIDTH: usize = 2;

/// A table of text cells.
pub(super) struct RowTable<'a> {
    out: &'a mut dyn Write,
    /// Width of the terminal, in columns; `None` if the width is not limited.
    limit: Option<usize>,
    heading: Vec<String>,
    units: Option<Vec<String>>,
    widths: Vec<usize>,
    waiting: Vec<TableLine>,
    is_open: bool,
    is_turned: bool,
}

/// A line of a table.
enum TableLine {
    /// The cells of a row. The first cells are its time and its element.
    Cells(Vec<String>),
    /// A remark that is printed between rows.
    Remark(String),
}

impl<'a> RowTable<'a> {
    pub(super) fn new(limit: Option<usize>, out: &'a mut dyn Write) -> Self {
        Self {
            out,
            limit,
            heading: Vec::new(),
            units: None,
            widths: Vec::new(),
            waiting: Vec::new(),
            is_open: false,
            is_turned: false,
        }
    }

    /// Sets the names of the columns. If the names have changed, they are printed before the next
    /// row.
    pub(super) fn head(&mut self, names: Vec<String>, units: Option<Vec<String>>) -> io::Result<()> {
        if self.heading == names {
            return Ok(());
        }
        self.flush()?;
        self.is_open = false;
        self.heading = names;
        self.units = units;
        Ok(())
    }

    pub(super) fn row(&mut self, cells: Vec<String>) -> io::Result<()> {
        self.add(TableLine::Cells(cells))
    }

    pub(super) fn remark(&mut self, text: String) -> io::Result<()> {
        self.add(TableLine::Remark(text))
    }

    fn add(&mut self, line: TableLine) -> io::Result<()> {
        self.waiting.push(line);
        if self.is_open || self.waiting.len() >= SAMPLE_ROWS { self.print_waiting() } else { Ok(()) }
    }

    /// Prints the lines that are held back.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.print_waiting()?;
        }
        self.out.flush()
    }

    fn print_waiting(&mut self) -> io::Result<()> {
        if !self.is_open {
            self.open()?;
        }
        for line in std::mem::take(&mut self.waiting) {
            match line {
                TableLine::Remark(text) => writeln!(self.out, "-- {text}")?,
                TableLine::Cells(cells) if self.is_turned => self.print_turned(&cells)?,
                TableLine::Cells(cells) => print_line(self.out, &cells, &self.widths)?,
            }
        }
        Ok(())
    }

    /// Chooses the widths from the rows that are held back, and prints the heading.
    fn open(&mut self) -> io::Result<()> {
        self.is_open = true;
        self.widths = self.heading.iter().map(|name| name.chars().count()).collect();
        let rows = self.waiting.iter().filter_map(|line| match line {
            TableLine::Cells(cells) => Some(cells),
            TableLine::Remark(_) => None,
        });
        for cells in self.units.iter().chain(rows) {
            for (width, cell) in self.widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let all = self.widths.iter().map(|width| width + GAP_WIDTH).sum::<usize>().saturating_sub(GAP_WIDTH);
        self.is_turned = self.limit.is_some_and(|limit| all > limit);
        if self.is_turned {
            return Ok(());
        }
        print_line(self.out, &self.heading, &self.widths)?;
        self.units.as_ref().map_or(Ok(()), |units| print_line(self.out, units, &self.widths))
    }

    /// Prints the time of a row, and a line for each value of the row.
    fn print_turned(&mut self, cells: &[String]) -> io::Result<()> {
        let named = self.heading.iter().zip(cells);
        let name_width = self.heading.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        for (number, (name, cell)) in named.enumerate() {
            if number == 0 {
                writeln!(self.out, "-- {cell}")?;
            } else if cell != "-" {
                let unit = self.units.as_ref().and_then(|units| units.get(number));
                let unit = unit.map(|unit| format!(" {unit}")).unwrap_or_default();
                writeln!(self.out, "{}", format!("{name:<name_width$}  {cell}{unit}").trim_end())?;
            }
        }
        Ok(())
    }
}

/// Prints cells. The first cell is left-aligned, and the others are right-aligned.
fn print_line(out: &mut dyn Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    for (number, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if number == 0 {
            write!(out, "{cell:<width$}")?;
        } else {
            write!(out, "  {cell:>width$}")?;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings<const N: usize>(texts: [&str; N]) -> Vec<String> {
        texts.map(str::to_owned).to_vec()
    }

    fn printed(limit: Option<usize>) -> String {
        let mut out = Vec::new();
        let mut table = RowTable::new(limit, &mut out);
        table.head(strings(["time", "a", "long_name"]), None).unwrap();
        table.row(strings(["12:00", "5.70 GiB", "-"])).unwrap();
        table.remark("gap".to_owned()).unwrap();
        table.row(strings(["12:01", "7 B", "x"])).unwrap();
        table.flush().unwrap();
        String::from_utf8(out).unwrap()
    }

    // Proves that columns are as wide as their values, and that rows that do not fit the width are
    // transposed.
    #[test]
    fn tables_are_turned_when_they_are_too_wide() {
        let table =
            "time          a  long_name\n12:00  5.70 GiB          -\n-- gap\n12:01       7 B          x\n";
        assert_eq!(printed(None), table);
        assert_eq!(printed(Some(26)), table);
        let turned = "-- 12:00\na          5.70 GiB\n-- gap\n-- 12:01\na          7 B\nlong_name  x\n";
        assert_eq!(printed(Some(25)), turned);
    }

    // Proves that a new heading is printed when columns are added.
    #[test]
    fn headings_follow_the_columns() {
        let mut out = Vec::new();
        let mut table = RowTable::new(None, &mut out);
        table.head(strings(["t", "a"]), Some(strings(["", "B"]))).unwrap();
        table.row(strings(["1", "2"])).unwrap();
        table.head(strings(["t", "a"]), None).unwrap();
        table.head(strings(["t", "a", "b"]), None).unwrap();
        table.row(strings(["1", "2", "3"])).unwrap();
        table.flush().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "t  a\n   B\n1  2\nt  a  b\n1  2  3\n");
    }
}
