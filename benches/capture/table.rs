//! Prints targets and results as one table, on a terminal and as Markdown. Budget: none.

use std::fmt::Write;
use std::path::PathBuf;

use crate::{MeasuredRows, machine};

/// Time for which to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchLength {
    /// Long enough for figures that may be quoted.
    Full,
    /// Long enough to see that everything runs.
    Quick,
}

impl BenchLength {
    /// Returns the value for this length.
    pub fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// Rows that are measured together.
pub struct RowFamily {
    /// Their names.
    pub rows: &'static [&'static str],
    /// Measures them.
    pub measure: fn(BenchLength) -> MeasuredRows,
}

impl RowFamily {
    /// Whether one of its rows is selected; without words all are.
    pub fn is_selected(&self, words: &[&str]) -> bool {
        self.rows.iter().any(|row| is_selected(row, words))
    }
}

fn is_selected(row: &str, words: &[&str]) -> bool {
    words.is_empty() || words.iter().any(|word| row.contains(word))
}

/// One line of the table.
#[derive(Debug)]
pub struct CaptureRow {
    /// The name of its family.
    pub name: &'static str,
    /// The measured quantity.
    pub quantity: String,
    /// Its target.
    pub target: String,
    /// The measured value.
    pub reached: String,
    /// Whether the target is reached; `None` if there is no target or it cannot be judged.
    pub met: Option<bool>,
    /// Further figures: the comparison's figures and their range.
    pub details: String,
}

impl CaptureRow {
    /// Whether it is selected; without words all are.
    pub fn is_selected(&self, words: &[&str]) -> bool {
        is_selected(self.name, words)
    }
}

/// The results of one run of the bench.
pub struct CaptureReport {
    pub rows: Vec<CaptureRow>,
    pub failures: Vec<String>,
    length: BenchLength,
    command: String,
    load_before: String,
}

impl CaptureReport {
    /// Creates an empty report.
    pub fn new(length: BenchLength, arguments: &[String]) -> Self {
        let words: Vec<&str> =
            arguments.iter().map(String::as_str).filter(|word| *word != "--bench").collect();
        let command = match words.as_slice() {
            [] => "cargo bench --bench capture".to_owned(),
            words => format!("cargo bench --bench capture -- {}", words.join(" ")),
        };
        Self { rows: Vec::new(), failures: Vec::new(), length, command, load_before: machine::load() }
    }

    fn verdict(&self, row: &CaptureRow) -> &'static str {
        match row.met.filter(|_| self.length == BenchLength::Full) {
            Some(true) => "reached",
            Some(false) => "missed",
            None => "-",
        }
    }

    /// Formats the report for a terminal.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_preset(comfy_table::presets::UTF8_HORIZONTAL_ONLY)
            .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
            .set_header(["row", "what", "target", "reached", "", "details"]);
        if !table.is_tty() {
            table.load_preset(comfy_table::presets::ASCII_HORIZONTAL_ONLY).set_width(180);
        }
        for row in &self.rows {
            table.add_row([
                row.name,
                &row.quantity,
                &row.target,
                &row.reached,
                self.verdict(row),
                &row.details,
            ]);
        }
        let failures: String =
            self.failures.iter().fold(String::new(), |all, failure| all + "FAILED " + failure + "\n");
        format!("{}\n{table}\n{failures}", self.header())
    }

    fn header(&self) -> String {
        let quick = match self.length {
            BenchLength::Full => "",
            BenchLength::Quick => "\nA smoke test: too short to quote any figure, and no target is judged.",
        };
        format!(
            "{}, {}; load {} before, {} after.\n`{}`{quick}\n",
            machine::date(),
            machine::describe(),
            self.load_before,
            machine::load(),
            self.command
        )
    }

    fn markdown(&self) -> String {
        let mut text = format!("# Capture\n\n{}\n", self.header());
        text.push_str("| row | what | target | reached | | details |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            // Writing to a string cannot fail.
            let _written = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.name,
                row.quantity,
                row.target,
                row.reached,
                self.verdict(row),
                row.details
            );
        }
        for failure in &self.failures {
            let _written = writeln!(text, "\n**Failed**: {failure}");
        }
        text
    }

    /// Writes the Markdown file.
    pub fn write(&self) -> std::io::Result<()> {
        let path = std::env::var_os("FLATCAP_CAPTURE_REPORT")
            .map_or_else(|| machine::target_directory().join("capture.md"), PathBuf::from);
        std::fs::write(&path, self.markdown())?;
        eprintln!("capture: written to {}", path.display());
        Ok(())
    }
}
