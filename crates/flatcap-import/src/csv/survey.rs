//! The first pass, which reads all rows and decides how to interpret the file.

use std::path::Path;

use super::cells::Cells;
use super::column_census::{ColumnCensus, MarkEvidence, shown};
use super::columns::{CsvHeader, LastDevice, header_error};
use super::interpretation::{CsvCheck, Interpretation};
use super::key_search::KeySearch;
use super::layout::CsvLayout;
use super::numeral::DecimalMark;
use super::options::CsvOptions;
use super::records::CsvRecord;
use super::sections::{RecordPart, Sections};
use super::text_encoding::TextEncoding;
use super::time_form::{CellTime, TimeForm};
use crate::error::ImportError;
use crate::findings::{FindingKind, ImportFindings, Tally, option_with};
use crate::local_clock::{LocalClock, LocalZone};
use crate::row_times::{RowOrder, RowTimes};

/// Maximum memory for rows that are sorted, in bytes.
const SORTED_BYTES_MAX: u64 = 512 << 20;
/// Memory that a row and each of its cells need in addition to their text, in bytes.
const ROW_BYTES: u64 = 96;
const CELL_BYTES: u64 = 12;

/// The times of a file, read in one possible time format.
struct FormSurvey {
    form: TimeForm,
    /// Whether the number of digits determined the format. If this field is true, a time with a
    /// different number of digits has a different unit.
    by_digits: bool,
    rows: u64,
    /// Rows whose numeric time is before 1990 or after 2099.
    doubtful: Tally,
    first_doubtful: String,
    /// Two states. The first state assumes that the oldest row comes first, the second state that
    /// the newest row comes first.
    both: [(LocalClock, RowTimes); 2],
}

/// The time format of a file, with the times that were read in this format.
struct ChosenForm {
    form: TimeForm,
    by_digits: bool,
    clock: LocalClock,
    times: RowTimes,
}

/// The first pass over a file.
pub(super) struct Survey<'o> {
    options: &'o CsvOptions,
    encoding: TextEncoding,
    layout: CsvLayout,
    header: CsvHeader,
    zone: LocalZone,
    columns: Vec<ColumnCensus>,
    sections: Sections,
    forms: Vec<FormSurvey>,
    keys: KeySearch,
    rows: u64,
    skipped: u64,
    /// The line and time of the first row whose time has no known format.
    first_formless: Option<(u64, String)>,
    bytes: u64,
    last_device: LastDevice,
    /// Cells that are not UTF-8. The encoding is derived from these cells and from the cells with
    /// non-ASCII UTF-8.
    not_utf8: Tally,
    is_utf8: u64,
}

/// The result of the first pass.
pub(super) struct Surveyed {
    pub(super) interpretation: Interpretation,
    pub(super) check: CsvCheck,
    /// The place at which reading stopped before the end of the file, and the reason.
    pub(super) damage: Option<(u64, String)>,
}

impl<'o> Survey<'o> {
    pub(super) fn new(
        options: &'o CsvOptions,
        encoding: TextEncoding,
        (layout, header): (CsvLayout, CsvHeader),
        zone: LocalZone,
    ) -> Self {
        let columns = header.columns.iter().map(|_| ColumnCensus::new()).collect();
        let titles = header.columns.iter().map(|column| (column.position, column.title.as_str()));
        let keys = KeySearch::new(titles);
        Self {
            options,
            encoding,
            layout,
            header,
            zone,
            columns,
            sections: Sections::default(),
            forms: Vec::new(),
            keys,
            rows: 0,
            skipped: 0,
            first_formless: None,
            bytes: 0,
            last_device: LastDevice::default(),
            not_utf8: Tally::default(),
            is_utf8: 0,
        }
    }

    /// Adds the cells of the header, from which the encoding is also derived.
    pub(super) fn add_header(&mut self, cells: &Cells, line: u64) {
        for cell in cells.iter() {
            match std::str::from_utf8(cell) {
                Ok(text) => self.is_utf8 += u64::from(!text.is_ascii()),
                Err(_) => self.not_utf8.add(line),
            }
        }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, record: &CsvRecord<'_>) {
        let CsvRecord { cells, line, quote_fault, .. } = *record;
        if self.sections.part(&self.header, cells, line) != RecordPart::Own {
            return;
        }
        if quote_fault.is_some() || !self.header.is_row(cells) {
            self.skipped += u64::from(!is_comment(cells));
            return;
        }
        let time = self.header.time_text(cells);
        let is_other_device = self.last_device.changes(&self.header, cells);
        if !self.add_time(&time, line, is_other_device) {
            if !is_comment(cells) {
                self.skipped += 1;
                self.first_formless.get_or_insert((line, time));
            }
            return;
        }
        self.rows += 1;
        self.bytes += cells.bytes() as u64 + ROW_BYTES + CELL_BYTES * cells.len() as u64;
        if self.options.columns.keys.is_none() {
            self.keys.add(&time, cells, line);
        }
        for (column, census) in self.header.columns.iter().zip(&mut self.columns) {
            let bytes = cells.get(column.position).unwrap_or_default();
            if let Ok(text) = std::str::from_utf8(bytes) {
                self.is_utf8 += u64::from(!text.is_ascii());
                let text = text.trim();
                if !text.is_empty() && !self.options.absent.iter().any(|absent| absent == text) {
                    census.add(text, line);
                }
            } else {
                self.not_utf8.add(line);
                census.add(String::from_utf8_lossy(bytes).trim(), line);
            }
        }
    }

    /// Adds the time of a row. Returns false if the time has no known format.
    fn add_time(&mut self, time: &str, line: u64, is_other_device: bool) -> bool {
        let mut is_read = false;
        for survey in &mut self.forms {
            is_read |= survey.add(time, line, is_other_device);
        }
        if is_read {
            return true;
        }
        let named = self.header.time_unit_ns.map(TimeForm::SinceEpoch);
        let is_named = named.as_ref().is_some_and(|form| form.read(time).is_some());
        let candidates = match (&self.options.time_form, named.filter(|_| is_named)) {
            (Some(stated), _) => vec![stated.clone()],
            (None, Some(named)) => vec![named],
            (None, None) => TimeForm::candidates(time),
        };
        let by_digits = self.options.time_form.is_none() && !is_named;
        for form in candidates {
            if self.forms.iter().all(|survey| survey.form != form) {
                let mut survey = FormSurvey::new(form, by_digits, &self.zone);
                if survey.add(time, line, is_other_device) {
                    is_read = true;
                    self.forms.push(survey);
                }
            }
        }
        is_read
    }

    /// Returns the encoding with which the file must be read again. The returned encoding is
    /// Latin-1 if some cells are not UTF-8, and if no cell contains non-ASCII UTF-8. Returns `None`
    /// if the file need not be read again.
    pub(super) fn other_encoding(&self) -> Option<(TextEncoding, Tally)> {
        let is_other = self.not_utf8.count > 0 && self.is_utf8 == 0 && self.options.encoding.is_none();
        (is_other && self.encoding == TextEncoding::Utf8).then_some((TextEncoding::Latin1, self.not_utf8))
    }

    /// Decides how to interpret the file, and adds a finding for each assumption.
    ///
    /// # Errors
    /// No time has a known format, or the rows must be sorted but exceed the memory limit.
    pub(super) fn finish(
        mut self,
        path: &Path,
        findings: &mut ImportFindings,
    ) -> Result<Surveyed, ImportError> {
        let ChosenForm { form: time_form, by_digits, mut clock, times } = self.choose_form(path, findings)?;
        let is_newest_first = times.are_newest_first();
        clock.report(findings);
        let order = times.order(self.options.order, findings);
        if order == RowOrder::Time && self.bytes > SORTED_BYTES_MAX {
            let what = format!(
                "the rows are not in the order of time, and too many to be sorted in memory ({} rows): sort the file, or \
                 state --order file",
                self.rows
            );
            return Err(header_error(path, &what));
        }
        self.sections.report(findings);
        let keys = self.choose_keys(findings);
        let decimal = self.choose_decimal(findings);
        let typed = self.header.columns.iter().zip(&self.columns);
        let readings: Vec<_> = typed
            .map(|(column, census)| census.read(&column.title, decimal, column.stated, findings))
            .collect();
        if self.header.is_time_guessed {
            let titles: Vec<&str> = self.header.time.iter().map(|at| self.header.title(*at)).collect();
            let what = format!("the time is taken from {}, the only times", titles.join(" and "));
            let of = Tally { line: self.layout.header_line, count: 1 };
            findings.add(FindingKind::Header, of, what, Some(option_with("--time", &titles.join(","))));
        }
        if let (Some(own), Some(other)) = (self.header.time.first(), self.header.other_times.first()) {
            let (own, other) = (self.header.title(*own), self.header.title(*other));
            let what = format!("the time is taken from {own}, though {other} has other times");
            let of = Tally { line: self.layout.header_line, count: 1 };
            let option = format!("{}, or {}", option_with("--time", own), option_with("--time", other));
            findings.add(FindingKind::Header, of, what, Some(option));
        }
        let typed = self.columns.iter().zip(&readings);
        let values: Vec<u64> =
            typed.map(|(census, reading)| census.values(reading.csv_type, decimal)).collect();
        let rows = (self.rows, self.skipped);
        let interpretation = Interpretation {
            encoding: self.encoding,
            layout: self.layout,
            header: self.header,
            decimal,
            readings,
            time_form,
            by_digits,
            zone: self.zone,
            uses_zone: clock.uses_zone(),
            order,
            is_newest_first,
            keys,
            absent: self.options.absent.clone(),
        };
        let check = interpretation.check(path.display().to_string(), &times, &values, rows);
        Ok(Surveyed { interpretation, check, damage: None })
    }

    /// Returns the time format. If an option states the format, returns this format. Otherwise,
    /// returns the format that fits most rows.
    fn choose_form(&mut self, path: &Path, findings: &mut ImportFindings) -> Result<ChosenForm, ImportError> {
        let most = self.forms.iter().map(|survey| survey.rows).max();
        // If several formats fit all rows, a wrong format distributes the rows over months or
        // years.
        let likely = self.forms.iter().enumerate().filter(|(_, survey)| Some(survey.rows) == most);
        let best = likely.min_by_key(|(_, survey)| survey.span_ns()).map(|(at, _)| at);
        let Some(best) = best.map(|at| self.forms.remove(at)) else {
            if let (Some((line, time)), None) = (&self.first_formless, &self.options.time_form) {
                let time = shown(time);
                let hint = if super::time_form::is_time_of_day(&time) {
                    "it has no date: name the column of the date, too (--time DATE,TIME)"
                } else {
                    "state it with --time-format, such as \"%d.%m.%Y %H:%M:%S\" or s, or name another column with --time"
                };
                let what = format!("line {line}: the time {time:?} has no form that is recognized; {hint}");
                return Err(header_error(path, &what));
            }
            // No row has a time, so the format does not matter.
            let form = self.options.time_form.clone().unwrap_or(TimeForm::Iso);
            let clock = LocalClock::new(self.zone.clone(), false);
            return Ok(ChosenForm { form, by_digits: false, clock, times: RowTimes::default() });
        };
        for other in self.forms.iter().filter(|_| self.options.time_form.is_none()) {
            let (own, name) = (best.form.name(), other.form.name());
            let option = Some(option_with("--time-format", best.form.word()));
            if other.form.is_number() && best.form.is_number() {
                let what = format!(
                    "times have the digits of {name}, others those of {own}; these rows are left out"
                );
                let of = Tally { line: other.first_line(), count: other.rows };
                findings.add(FindingKind::TimeForm, of, what, option);
            } else if other.rows == best.rows {
                let what = format!("times are {own} or {name}; no row says which; taken for {own}");
                let of = Tally { line: best.first_line(), count: best.rows };
                findings.add(FindingKind::TimeForm, of, what, option);
            }
        }
        if !self.header.is_time_elapsed {
            let (name, word) = (best.form.name(), best.form.word());
            let what = format!(
                "{:?} is taken for {name}, a time before 1990 or after 2099: is it another form, or does it count from \
                 another start?",
                best.first_doubtful
            );
            let option = Some(format!("{}, or another form", option_with("--time-format", word)));
            findings.add(FindingKind::TimeForm, best.doubtful, what, option);
        }
        let [oldest_first, newest_first] = best.both;
        let (clock, times) = if newest_first.1.are_newest_first() { newest_first } else { oldest_first };
        Ok(ChosenForm { form: best.form, by_digits: best.by_digits, clock, times })
    }

    /// Returns the key columns, which an option states or the importer recognizes.
    fn choose_keys(&mut self, findings: &mut ImportFindings) -> Vec<usize> {
        if let Some(stated) = &self.header.keys {
            return stated.clone();
        }
        let Some((keys, of)) = std::mem::take(&mut self.keys).finish() else { return Vec::new() };
        let titles: Vec<&str> = keys.iter().map(|key| self.header.title(*key)).collect();
        let titles = titles.join(",");
        let what = format!("rows of one time are taken for those of several devices, told apart by {titles}");
        let option = format!("{}, or --no-key for one series", option_with("--key", &titles));
        findings.add(FindingKind::Key, of, what, Some(option));
        keys
    }

    /// Returns the decimal mark. If an option states the mark, returns this mark. Otherwise, counts
    /// the numbers whose mark is unambiguous, and returns the most frequent mark.
    fn choose_decimal(&self, findings: &mut ImportFindings) -> DecimalMark {
        if let Some(stated) = self.options.decimal {
            return stated;
        }
        let mut all = MarkEvidence::default();
        let untyped = self.header.columns.iter().zip(&self.columns);
        for (_, census) in untyped {
            let own = census.marks();
            for (all, own) in [
                (&mut all.point, own.point),
                (&mut all.comma, own.comma),
                (&mut all.either_comma, own.either_comma),
                (&mut all.either_point, own.either_point),
            ] {
                all.add_many(own);
            }
        }
        let option = |mark| Some(format!("--decimal {mark}"));
        match (all.point.count, all.comma.count) {
            (0, 0) if all.either_comma.count > 0 => {
                let what = "commas in numbers such as 1,234 are taken for marks of thousands";
                findings.add(FindingKind::Decimal, all.either_comma, what, option('.'));
                DecimalMark::Point
            }
            // Decimal commas and commas between cells exclude each other, unless cells are quoted.
            (0, 0) if all.either_point.count > 0 && self.layout.delimiter != b',' => {
                let what = "points in numbers such as 1.234 are taken for decimal marks";
                findings.add(FindingKind::Decimal, all.either_point, what, option('.'));
                DecimalMark::Point
            }
            (point, comma) if comma > point => {
                let what = "most numbers have a decimal comma, these a decimal point";
                findings.add(FindingKind::Decimal, all.point, what, option(','));
                DecimalMark::Comma
            }
            (_, comma) => {
                let of = Tally { count: comma, ..all.comma };
                let what = "most numbers have a decimal point, these a decimal comma";
                findings.add(FindingKind::Decimal, of, what, option('.'));
                DecimalMark::Point
            }
        }
    }
}

impl FormSurvey {
    fn new(form: TimeForm, by_digits: bool, zone: &LocalZone) -> Self {
        let clock = |is_newest_first| (LocalClock::new(zone.clone(), is_newest_first), RowTimes::default());
        Self {
            form,
            by_digits,
            rows: 0,
            doubtful: Tally::default(),
            first_doubtful: String::new(),
            both: [clock(false), clock(true)],
        }
    }

    /// Returns the line of the first row with this format.
    fn first_line(&self) -> u64 {
        self.both.first().map_or(0, |(_, times)| times.first_line())
    }

    /// Returns the time between the earliest and the latest row, in nanoseconds.
    fn span_ns(&self) -> Option<i64> {
        let (_, times) = self.both.first()?;
        Some(times.latest_ns?.saturating_sub(times.earliest_ns?))
    }

    fn add(&mut self, text: &str, line: u64, is_other_device: bool) -> bool {
        let read = if self.by_digits { self.form.read_by_digits(text) } else { self.form.read(text) };
        let Some(time) = read else { return false };
        self.rows += 1;
        if self.by_digits && self.form.is_doubtful(time) {
            if self.doubtful.count == 0 {
                self.first_doubtful = shown(text);
            }
            self.doubtful.add(line);
        }
        for (clock, times) in &mut self.both {
            clock.set_other_device(is_other_device);
            if let Some(ns) = instant(clock, time, line) {
                times.add(ns, line);
            }
        }
        true
    }
}

/// Returns whether a record that is not a row is a comment.
pub(super) fn is_comment(cells: &Cells) -> bool {
    cells.get(0).is_some_and(|cell| cell.trim_ascii_start().starts_with(b"#"))
}

/// Returns the instant of a time, in nanoseconds since 1970.
pub(super) fn instant(clock: &mut LocalClock, time: CellTime<'_>, line: u64) -> Option<i64> {
    match time {
        CellTime::Instant(ns) => Some(clock.known(ns)),
        CellTime::Local(time) => clock.local(time, line),
        CellTime::Named(time, word) => clock.named(time, word, line),
    }
}
