//! How are targets and what was reached shown? One table, on a terminal and as Markdown. Budget: none.

use std::fmt::Write;
use std::path::PathBuf;

use crate::{Measured, machine};

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Long enough to be quoted.
    Full,
    /// Long enough to see that it works.
    Quick,
}

impl Length {
    /// One of the two.
    pub fn of<T>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }
}

/// Rows that are measured together.
pub struct Family {
    /// Their names.
    pub rows: &'static [&'static str],
    /// Measures them.
    pub measure: fn(Length) -> Measured,
}

impl Family {
    /// Whether one of its rows was asked for; without words all are.
    pub fn is_asked(&self, words: &[&str]) -> bool {
        self.rows.iter().any(|row| is_asked(row, words))
    }
}

fn is_asked(row: &str, words: &[&str]) -> bool {
    words.is_empty() || words.iter().any(|word| row.contains(word))
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    /// Its family's name.
    pub name: &'static str,
    /// What is measured.
    pub what: String,
    /// What it should come to.
    pub target: String,
    /// What it came to.
    pub reached: String,
    /// Whether that is as it should be; none where there is no target or it cannot be said.
    pub met: Option<bool>,
    /// What else belongs to it: the rival's figure, what was beside it.
    pub beside: String,
}

impl Row {
    /// Whether it was asked for; without words all are.
    pub fn is_asked(&self, words: &[&str]) -> bool {
        is_asked(self.name, words)
    }
}

/// What a run of the bench has come to.
pub struct Report {
    pub rows: Vec<Row>,
    pub failures: Vec<String>,
    length: Length,
    command: String,
    load_before: String,
}

impl Report {
    /// An empty one.
    pub fn new(length: Length, arguments: &[String]) -> Self {
        let words: Vec<&str> =
            arguments.iter().map(String::as_str).filter(|word| *word != "--bench").collect();
        let command = match words.as_slice() {
            [] => "cargo bench --bench capture".to_owned(),
            words => format!("cargo bench --bench capture -- {}", words.join(" ")),
        };
        Self { rows: Vec::new(), failures: Vec::new(), length, command, load_before: machine::load() }
    }

    fn judgement(&self, row: &Row) -> &'static str {
        match row.met.filter(|_| self.length == Length::Full) {
            Some(true) => "reached",
            Some(false) => "missed",
            None => "-",
        }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_preset(comfy_table::presets::UTF8_HORIZONTAL_ONLY)
            .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
            .set_header(["row", "what", "target", "reached", "", "beside it"]);
        if !table.is_tty() {
            table.load_preset(comfy_table::presets::ASCII_HORIZONTAL_ONLY).set_width(180);
        }
        for row in &self.rows {
            table.add_row([row.name, &row.what, &row.target, &row.reached, self.judgement(row), &row.beside]);
        }
        let failures: String =
            self.failures.iter().fold(String::new(), |all, failure| all + "FAILED " + failure + "\n");
        format!("{}\n{table}\n{failures}", self.head())
    }

    fn head(&self) -> String {
        let quick = match self.length {
            Length::Full => "",
            Length::Quick => "\nA smoke run: too short for any figure to be quoted, and no target is judged.",
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
        let mut text = format!("# Capture\n\n{}\n", self.head());
        text.push_str("| row | what | target | reached | | beside it |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            // Writing to a string cannot fail.
            let _written = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.name,
                row.what,
                row.target,
                row.reached,
                self.judgement(row),
                row.beside
            );
        }
        for failure in &self.failures {
            let _written = writeln!(text, "\n**Failed**: {failure}");
        }
        text
    }

    /// Writes the Markdown to where it is wanted.
    pub fn write(&self) -> std::io::Result<()> {
        let path = std::env::var_os("FLATCAP_CAPTURE_REPORT")
            .map_or_else(|| machine::target_directory().join("capture.md"), PathBuf::from);
        std::fs::write(&path, self.markdown())?;
        eprintln!("capture: written to {}", path.display());
        Ok(())
    }
}
