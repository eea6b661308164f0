//! Profiles the cells of a column, to find its type, its unit and its words for missing values.

use std::net::Ipv4Addr;

use flatcap_text::human::shell_word;

use super::csv_type::{CsvType, NumberClass, is_bool, number_class};
use super::numeral::{DecimalMark, numeral};
use crate::findings::{FindingKind, ImportFindings, Tally, option_with};

/// Words for missing values, in lower case. Any text in square brackets also stands for a missing
/// value.
const ABSENT_WORDS: [&str; 21] = [
    "n/a",
    "na",
    "n.a.",
    "#n/a",
    "#na",
    "null",
    "(null)",
    "none",
    "nil",
    "-",
    "--",
    "---",
    "?",
    "\\n",
    "missing",
    "undefined",
    "unavailable",
    "not available",
    "not supported",
    "no data",
    "k.a.",
];
/// Maximum number of different words for missing values in a column. Further words are treated as
/// ordinary cells.
const WORDS_MAX: usize = 8;
/// Minimum ratio of numbers to other cells in a numeric column. Up to this ratio, other cells are
/// errors that do not change the type. The same ratio applies to columns of bools.
const NUMBERS_PER_OTHER: u64 = 8;
/// Prefixes of units for thousands and more. Programs that write 1.2k for 1,200 write 900 without a
/// prefix, so a column may have numbers with and without a prefix.
const UNIT_PREFIXES: [char; 5] = ['k', 'K', 'M', 'G', 'T'];
/// Maximum length of a cell in a message, in characters.
const SHOWN_CHARS_MAX: usize = 40;

/// Returns the start of a cell for a message.
pub(super) fn shown(cell: &str) -> String {
    let start: String = cell.chars().take(SHOWN_CHARS_MAX).collect();
    if start.len() < cell.len() { start + "..." } else { start }
}

/// The number of cells in a category, and the line and the text of its first cell.
#[derive(Debug, Clone, Default)]
struct Sort {
    cells: Tally,
    first: String,
}

impl Sort {
    fn add(&mut self, line: u64, cell: &str) {
        if self.cells.count == 0 {
            self.first = shown(cell);
        }
        self.cells.add(line);
    }
}

/// The profile of a column's numbers, assuming one of the two decimal marks.
#[derive(Debug, Clone, Default)]
struct NumberCensus {
    mark: DecimalMark,
    numbers: u64,
    /// For each of the types unsigned, integer and float: whether this type can represent all
    /// numbers.
    holds: [bool; 3],
    uses_all_bits: bool,
    codes: Sort,
    /// Cells that are not numbers.
    others: Sort,
    /// The unit of the first number that has one.
    unit: Option<String>,
    /// Numbers whose unit differs from `unit`.
    other_units: Sort,
    /// Numbers without a unit that are not zero.
    bare: Sort,
    /// Numbers that no type can represent together with the numbers before them.
    misfits: Sort,
    /// The type that could represent all numbers before the first misfit.
    before_misfits: Option<CsvType>,
}

/// Counts of numbers that show which decimal mark a column uses. The numbers of a column are
/// counted by their points and commas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MarkEvidence {
    /// Numbers in which only the point can be the decimal mark.
    pub(super) point: Tally,
    /// Numbers in which only the comma can be the decimal mark.
    pub(super) comma: Tally,
    /// Numbers such as 1,234, whose comma may be a decimal mark or a thousands separator.
    pub(super) either_comma: Tally,
    /// Numbers such as 1.234, whose point may be a decimal mark or a thousands separator.
    pub(super) either_point: Tally,
}

/// The profile of a column.
#[derive(Debug, Clone)]
pub(super) struct ColumnCensus {
    /// Cells with a value or with a word for a missing value.
    cells: u64,
    bools: u64,
    not_bools: Sort,
    point: NumberCensus,
    comma: NumberCensus,
    /// Words for missing values.
    words: Vec<Sort>,
    marks: MarkEvidence,
}

/// The interpretation of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnReading {
    pub(super) csv_type: CsvType,
    pub(super) unit: Option<String>,
    /// Words for missing values that occur in the column.
    pub(super) absent: Vec<String>,
    pub(super) uses_all_bits: bool,
}

impl NumberCensus {
    fn new(mark: DecimalMark) -> Self {
        Self { mark, holds: [true; 3], ..Self::default() }
    }

    /// Adds a cell. Returns whether the cell is treated as a number.
    fn add(&mut self, cell: &str, line: u64) -> bool {
        let found = numeral(cell, self.mark);
        let Some(found) = found else {
            self.others.add(line, cell);
            return false;
        };
        let holds = match number_class(&found.number) {
            NumberClass::Number(holds) => holds,
            NumberClass::Code if found.unit.is_empty() => {
                self.codes.add(line, cell);
                return false;
            }
            NumberClass::Code | NumberClass::Other => {
                self.others.add(line, cell);
                return false;
            }
        };
        if !found.unit.is_empty() {
            let unit = self.unit.get_or_insert_with(|| found.unit.to_owned());
            if unit != found.unit {
                self.other_units.add(line, cell);
                return false;
            }
        } else if found.number.bytes().any(|byte| matches!(byte, b'1'..=b'9')) {
            self.bare.add(line, cell);
        }
        self.numbers += 1;
        let before = self.narrowest();
        self.holds.iter_mut().zip(holds).for_each(|(all, own)| *all &= own);
        if before.is_some() && self.narrowest().is_none() {
            self.misfits.add(line, cell);
            self.before_misfits = before;
        }
        self.uses_all_bits |= found.number.parse::<u64>().is_ok_and(|number| i64::try_from(number).is_err());
        true
    }

    /// Returns the narrowest type that can represent all numbers.
    fn narrowest(&self) -> Option<CsvType> {
        let types = [CsvType::Unsigned, CsvType::Signed, CsvType::Float];
        types.into_iter().zip(self.holds).find(|(_, holds)| *holds).map(|(csv_type, _)| csv_type)
    }
}

impl ColumnCensus {
    pub(super) fn new() -> Self {
        Self {
            cells: 0,
            bools: 0,
            not_bools: Sort::default(),
            point: NumberCensus::new(DecimalMark::Point),
            comma: NumberCensus::new(DecimalMark::Comma),
            words: Vec::new(),
            marks: MarkEvidence::default(),
        }
    }

    /// Adds a cell that is not empty.
    pub(super) fn add(&mut self, cell: &str, line: u64) {
        self.cells += 1;
        if is_absent_word(cell) {
            if let Some(word) = self.words.iter_mut().find(|word| word.first == cell) {
                word.cells.add(line);
                return;
            }
            if self.words.len() < WORDS_MAX {
                let mut word = Sort::default();
                word.add(line, cell);
                self.words.push(word);
                return;
            }
        }
        if is_bool(cell) {
            self.bools += 1;
        } else {
            self.not_bools.add(line, cell);
        }
        let (is_point, is_comma) = (self.point.add(cell, line), self.comma.add(cell, line));
        match (is_point, is_comma, cell.contains(','), cell.contains('.')) {
            (true, true, true, false) => self.marks.either_comma.add(line),
            (true, true, false, true) => self.marks.either_point.add(line),
            (true, false, _, true) => self.marks.point.add(line),
            // Several points in one cell are thousands separators, unless the cell is an address.
            (false, true, true, _) => self.marks.comma.add(line),
            (false, true, false, true) if cell.parse::<Ipv4Addr>().is_err() => self.marks.comma.add(line),
            _ => {}
        }
    }

    /// Returns the counts of numbers that show which decimal mark the column uses.
    pub(super) fn marks(&self) -> MarkEvidence {
        self.marks
    }

    /// Returns the number of cells with a value of a type.
    pub(super) fn values(&self, csv_type: CsvType, mark: DecimalMark) -> u64 {
        let numbers = self.numbers(mark);
        let words: u64 = self.words.iter().map(|word| word.cells.count).sum();
        let without = match csv_type {
            CsvType::Bool => words + self.not_bools.cells.count,
            _ if csv_type.is_number() => words + numbers.others.cells.count + numbers.other_units.cells.count,
            _ => 0,
        };
        self.cells.saturating_sub(without)
    }

    fn numbers(&self, mark: DecimalMark) -> &NumberCensus {
        if mark == DecimalMark::Point { &self.point } else { &self.comma }
    }

    /// Decides type, unit and words for missing values, and adds a finding for each assumption. If
    /// an option states the type, only the unit is decided, without findings.
    pub(super) fn read(
        &self,
        title: &str,
        mark: DecimalMark,
        stated: Option<CsvType>,
        findings: &mut ImportFindings,
    ) -> ColumnReading {
        let numbers = self.numbers(mark);
        let mut reading = ColumnReading {
            csv_type: stated.unwrap_or(CsvType::Text),
            unit: None,
            absent: Vec::new(),
            uses_all_bits: numbers.uses_all_bits,
        };
        if let Some(csv_type) = stated {
            if csv_type.is_number() {
                reading.unit.clone_from(&numbers.unit);
            }
            return reading;
        }
        let others = numbers.others.cells.count + numbers.other_units.cells.count;
        let is_few = |few: u64, many: u64| few.saturating_mul(NUMBERS_PER_OTHER) <= many;
        let narrowest = numbers.narrowest().filter(|_| numbers.numbers > 0 && numbers.codes.cells.count == 0);
        if let Some(csv_type) = narrowest.filter(|_| is_few(others, numbers.numbers)) {
            reading.csv_type = csv_type;
            reading.unit.clone_from(&numbers.unit);
            let fault = |sort: &Sort, what: &str| {
                format!("column {title}: {:?} {what}; such cells are left out", sort.first)
            };
            let option = Some(type_options(title, csv_type, "text", "to keep them"));
            let what = fault(&numbers.others, "is no number");
            findings.add(FindingKind::Type, numbers.others.cells, what, option.clone());
            let unit = numbers.unit.clone().unwrap_or_default();
            let what = fault(&numbers.other_units, &format!("is not of the unit {unit}"));
            findings.add(FindingKind::Type, numbers.other_units.cells, what, option);
            if unit.starts_with(UNIT_PREFIXES) {
                let what = format!("column {title}: {:?} has no unit; taken for {unit}", numbers.bare.first);
                let option = type_options(title, csv_type, "text", "to keep the cells");
                findings.add(FindingKind::Type, numbers.bare.cells, what, Some(option));
            }
        } else if self.bools > 0 && is_few(self.not_bools.cells.count, self.bools) {
            reading.csv_type = CsvType::Bool;
            let what = format!(
                "column {title}: {:?} is neither true nor false; such cells are left out",
                self.not_bools.first
            );
            let option = Some(type_options(title, CsvType::Bool, "text", "to keep them"));
            findings.add(FindingKind::Type, self.not_bools.cells, what, option);
        } else {
            self.explain_text(title, numbers, findings);
            return reading;
        }
        for word in &self.words {
            reading.absent.push(word.first.clone());
            let what = format!("column {title}: {:?} is taken for an absent value", word.first);
            findings.add(FindingKind::Absent, word.cells, what, Some(option_with("--absent", &word.first)));
        }
        reading
    }

    /// If most cells of a text column are numbers, adds a finding about the first cell that made it
    /// a text column.
    fn explain_text(&self, title: &str, numbers: &NumberCensus, findings: &mut ImportFindings) {
        let values = self.not_bools.cells.count + self.bools;
        if numbers.numbers * 2 <= values {
            return;
        }
        // If no type can represent all numbers, the finding names the first number that does not
        // fit the numbers before it.
        let sorts = [&numbers.others, &numbers.other_units, &numbers.codes, &numbers.misfits];
        let Some(first) =
            sorts.into_iter().filter(|sort| sort.cells.count > 0).min_by_key(|sort| sort.cells.line)
        else {
            return;
        };
        let what = format!("column {title}: {:?} makes it text, though most cells are numbers", first.first);
        let csv_type = numbers.narrowest().or(numbers.before_misfits).unwrap_or(CsvType::Float);
        let option = type_options(title, CsvType::Text, csv_type.as_str(), "to leave such cells out");
        findings.add(FindingKind::Type, first.cells, what, Some(option));
    }
}

/// Returns the option that keeps a column's type. Also returns the option that sets another type,
/// with a description of its effect.
fn type_options(title: &str, csv_type: CsvType, other: &str, effect: &str) -> String {
    let own = option_with("--type", &format!("{title}={}", csv_type.as_str()));
    format!("{own}, or {} {effect}", shell_word(&format!("{title}={other}")))
}

/// Returns whether a cell is a word for a missing value.
fn is_absent_word(cell: &str) -> bool {
    let is_bracketed = cell.len() > 2 && cell.starts_with('[') && cell.ends_with(']');
    is_bracketed || ABSENT_WORDS.iter().any(|word| cell.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(cells: &[&str]) -> (ColumnReading, Vec<(u64, String)>) {
        let mut census = ColumnCensus::new();
        cells.iter().zip(2..).for_each(|(cell, line)| census.add(cell, line));
        let mut findings = ImportFindings::new(Path::new("a"));
        let reading = census.read("w", DecimalMark::Point, None, &mut findings);
        let found = findings.into_sorted().into_iter().map(|found| (found.line, found.assumed));
        (reading, found.collect())
    }

    // Proves that a column has the narrowest type that can represent all cells. Codes, and numbers
    // that no type represents exactly, stay text.
    #[test]
    fn columns_have_the_type_of_all_cells() {
        for (cells, expected) in [
            (&[][..], CsvType::Text),
            (&["true", "False"], CsvType::Bool),
            (&["0", "18446744073709551615"], CsvType::Unsigned),
            (&["0", "-7"], CsvType::Signed),
            (&["18446744073709551615", "-7"], CsvType::Text),
            (&["9007199254740992", "0.5"], CsvType::Float),
            (&["9007199254740993", "0.5"], CsvType::Text),
            (&["1", "2.5", "-1e-3", "NaN"], CsvType::Float),
            (&["1", "1e400"], CsvType::Text),
            (&["007", "12"], CsvType::Text),
            (&["18446744073709551616"], CsvType::Text),
            (&["1", "x"], CsvType::Text),
            (&["true", "1"], CsvType::Text),
            (&["-"], CsvType::Text),
            (&["1.0", "07"], CsvType::Text),
            (&["none", "eth0"], CsvType::Text),
            (&["10", "1A", "FF"], CsvType::Text),
        ] {
            assert_eq!(read(cells).0.csv_type, expected, "{cells:?}");
        }
    }

    // Proves that a numeric column stays numeric if one cell is not a number, or if any number of
    // cells have words for missing values. The bad cell and the words are reported with their line.
    #[test]
    fn one_cell_decides_for_no_other() {
        let mut cells = vec!["1.5"; 20];
        cells[6] = "x";
        let (reading, found) = read(&cells);
        assert_eq!((reading.csv_type, found.len(), found[0].0), (CsvType::Float, 1, 8));
        assert!(found[0].1.contains("column w: \"x\" is no number"), "{found:?}");
        let (reading, found) = read(&["N/A", "7", "N/A", "[Not Supported]"]);
        assert_eq!(
            (reading.csv_type, &reading.absent[..]),
            (CsvType::Unsigned, &["N/A", "[Not Supported]"].map(str::to_owned)[..])
        );
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 5]);
        let (reading, found) = read(&["1", "2", "x"]);
        assert_eq!((reading.csv_type, found.len(), found[0].0), (CsvType::Text, 1, 4), "{found:?}");
        assert!(read(&["a", "b", "1"]).1.is_empty(), "mostly texts");
        // The column has a code, or a number that no type can represent together with the other
        // numbers.
        for (cells, line) in [
            (&["1", "2", "3", "007"][..], 5),
            (&["9007199254740993", "nan", "9007199254740995"], 3),
            (&["18446744073709551615", "5", "-7"], 4),
        ] {
            let (reading, found) = read(cells);
            assert_eq!((reading.csv_type, found.len(), found[0].0), (CsvType::Text, 1, line), "{found:?}");
            assert!(found[0].1.contains("makes it text"), "{found:?}");
        }
    }

    // Proves that a column gets the unit of its cells, and that a cell with another unit is
    // reported.
    #[test]
    fn units_are_those_of_all_cells() {
        let (reading, found) = read(&["50 %", "90 %", "0"]);
        assert_eq!(
            (reading.csv_type, reading.unit.as_deref(), found.len()),
            (CsvType::Unsigned, Some("%"), 0)
        );
        for (cells, line) in [
            (&["900", "1.2k", "1.5k"][..], Some(2)),
            (&["1.2 MiB", "0", "0.0", "7"], Some(5)),
            (&["1.2k", "0", "1.5k"], None),
            (&["12 ms", "13"], None),
        ] {
            let found = read(cells).1;
            assert_eq!(found.first().map(|(line, _)| *line), line, "{cells:?} {found:?}");
            assert!(found.iter().all(|(_, what)| what.contains("has no unit")), "{found:?}");
        }
        let mut cells = vec!["1.5 MiB"; 20];
        cells[6] = "2 GiB";
        let (reading, found) = read(&cells);
        assert_eq!((reading.csv_type, reading.unit.as_deref()), (CsvType::Float, Some("MiB")));
        assert!(found[0].1.contains("\"2 GiB\" is not of the unit MiB") && found[0].0 == 8, "{found:?}");
    }
}
