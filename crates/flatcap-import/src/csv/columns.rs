//! The columns of a file, with their field names and the properties that options state.

use flatcap_format::schema::{MetricKind, NewField, nearest_name};

use super::cells::Cells;
use super::column_census::ColumnReading;
use super::csv_type::CsvType;
use super::key_search::is_key_name;
use super::layout::is_value;
use super::records::RowWidth;
use super::time_form::{CellTime, TimeForm, is_compact_time, is_date, is_time_of_day};
use super::titles::{is_elapsed, may_be_clock, time_rank, time_unit_ns, unit_of_title};
use crate::error::ImportError;
use crate::field_name::field_names;
use crate::zone_name::zone_named;

/// Maximum number of columns of a file, well below the limit of a schema.
const COLUMNS_MAX: usize = 4096;
/// Maximum number of names in an error, so that the line stays readable.
const NAMED_MAX: usize = 12;

/// The columns that options name, either by their title in the file or by their field name.
#[derive(Debug, Clone, Default)]
pub struct CsvColumns {
    /// The time column, or a date column and a time-of-day column. If empty, the time columns are
    /// recognized by their titles and cells.
    pub time: Vec<String>,
    /// The key columns, which identify devices. If `None`, the key columns are recognized. An empty
    /// list means that the file has no key columns.
    pub keys: Option<Vec<String>>,
    /// Types by column.
    pub types: Vec<(String, CsvType)>,
    /// The type of all other columns. If `None`, their types are derived from their cells.
    pub other_types: Option<CsvType>,
    /// Units by column.
    pub units: Vec<(String, String)>,
    /// Columns whose values are counters.
    pub counters: Vec<String>,
}

/// The columns of a file.
#[derive(Debug)]
pub(super) struct CsvHeader {
    /// Positions of the time columns, the date first.
    pub(super) time: Vec<usize>,
    pub(super) columns: Vec<CsvColumn>,
    /// Position of a column with the time zone of each row.
    pub(super) zone: Option<usize>,
    /// The unit of numeric times in nanoseconds, if the title or the units line states it.
    pub(super) time_unit_ns: Option<i64>,
    /// Positions of the key columns, if an option states them.
    pub(super) keys: Option<Vec<usize>>,
    /// Positions of further columns with times, each of which could be the time column.
    pub(super) other_times: Vec<usize>,
    /// Positions of the stated key columns or, without them, of the columns whose titles are usual
    /// for key columns.
    devices: Vec<usize>,
    /// Whether the time column was recognized by its cells alone, because its title does not
    /// suggest a time.
    pub(super) is_time_guessed: bool,
    /// Whether the title of the time column says that times count from the start of the recording,
    /// not from 1970.
    pub(super) is_time_elapsed: bool,
    row_width: RowWidth,
    titles: Vec<String>,
    /// Whether the line of the titles begins with a comment mark.
    pub(super) has_comment_mark: bool,
}

/// The device of the last row.
#[derive(Debug, Default)]
pub(super) struct LastDevice(Option<String>);

impl LastDevice {
    /// Stores the device of the next row. Returns whether this device differs from the device of
    /// the last row.
    pub(super) fn changes(&mut self, header: &CsvHeader, cells: &Cells) -> bool {
        let Some(device) = header.device_text(cells) else { return false };
        let is_other = self.0.as_ref().is_some_and(|last| *last != device);
        self.0 = Some(device);
        is_other
    }
}

/// A column that becomes a field.
#[derive(Debug)]
pub(super) struct CsvColumn {
    /// The column's position in the file.
    pub(super) position: usize,
    pub(super) title: String,
    pub(super) name: String,
    /// The stated type.
    pub(super) stated: Option<CsvType>,
    stated_unit: Option<String>,
    title_unit: Option<String>,
    is_counter: bool,
}

impl CsvHeader {
    /// Builds the header from the titles and the options. Uses the first rows to distinguish date
    /// columns from time-of-day columns.
    ///
    /// # Errors
    /// The error is a message about the header or the options, without the file name.
    #[allow(clippy::too_many_lines, reason = "one option after the other")]
    pub(super) fn new(titles: Vec<String>, stated: &CsvColumns, rows: &[Cells]) -> Result<Self, String> {
        if titles.len() > COLUMNS_MAX {
            return Err(format!("{} columns, at most {COLUMNS_MAX} can be imported", titles.len()));
        }
        let names = field_names(&titles);
        let find = |option: &str, wanted: &str| find(option, wanted, &titles, &names);
        let mut other_times = Vec::new();
        let (time, is_time_guessed) = match &stated.time[..] {
            [] => {
                let found = recognized_time(&titles, rows)?;
                other_times = other_full_times(&titles, rows, &found.0);
                found
            }
            [one] if find("--time", one).is_err() && one.contains(',') => {
                let parts = one.split(',').map(str::trim);
                (parts.map(|part| find("--time", part)).collect::<Result<Vec<_>, _>>()?, false)
            }
            all => (all.iter().map(|own| find("--time", own)).collect::<Result<Vec<_>, _>>()?, false),
        };
        let keys = match &stated.keys {
            None => None,
            Some(keys) => Some(keys.iter().map(|key| find("--key", key)).collect::<Result<Vec<_>, _>>()?),
        };
        let mut columns: Vec<CsvColumn> = titles
            .iter()
            .zip(&names)
            .enumerate()
            .map(|(position, (title, name))| CsvColumn::new((position, title, name), stated.other_types))
            .collect();
        for (wanted, csv_type) in &stated.types {
            let at = find("--type", wanted)?;
            columns.iter_mut().skip(at).take(1).for_each(|column| column.stated = Some(*csv_type));
        }
        for (wanted, unit) in &stated.units {
            let at = find("--unit", wanted)?;
            columns.iter_mut().skip(at).take(1).for_each(|column| column.stated_unit = Some(unit.clone()));
        }
        for wanted in &stated.counters {
            let at = find("--counter", wanted)?;
            columns.iter_mut().skip(at).take(1).for_each(|column| column.is_counter = true);
        }
        columns.retain(|column| !time.contains(&column.position));
        if columns.is_empty() {
            return Err("it has no column beside the time".to_owned());
        }
        let time_unit_ns =
            time.first().and_then(|at| titles.get(*at)).map(String::as_str).and_then(time_unit_ns);
        let zone = zone_column(&titles, &time, rows);
        let usual = titles.iter().enumerate().filter(|(_, title)| is_key_name(title)).map(|(at, _)| at);
        let devices = keys.clone().unwrap_or_else(|| usual.collect());
        let row_width = RowWidth::new(&titles);
        let is_time_elapsed = time.iter().filter_map(|at| titles.get(*at)).any(|title| is_elapsed(title));
        Ok(Self {
            time,
            columns,
            zone,
            time_unit_ns,
            keys,
            other_times,
            devices,
            is_time_guessed,
            is_time_elapsed,
            row_width,
            titles,
            has_comment_mark: false,
        })
    }

    /// Adds the units of the units line, which contains only units.
    pub(super) fn add_units(&mut self, cells: &Cells) {
        let time = self.time.first().and_then(|at| time_unit_ns(&cells.text(*at)));
        self.time_unit_ns = time.or(self.time_unit_ns);
        for column in &mut self.columns {
            let cell = cells.text(column.position);
            let unit = cell.trim_matches(['[', ']', '(', ')']);
            if !unit.is_empty() {
                column.title_unit = Some(unit.to_owned());
            }
        }
    }

    /// Returns the number of columns of the file.
    pub(super) fn width(&self) -> usize {
        self.titles.len()
    }

    /// Returns the title of a column.
    pub(super) fn title(&self, position: usize) -> &str {
        self.titles.get(position).map_or("", String::as_str)
    }

    /// Returns whether a record has as many cells as a row.
    pub(super) fn is_row(&self, cells: &Cells) -> bool {
        self.row_width().is_row(cells)
    }

    /// Returns the number of cells of a row.
    pub(super) fn row_width(&self) -> RowWidth {
        self.row_width
    }

    /// Returns whether a record repeats the header, as in concatenated files. Both the record and
    /// the header may have a comment mark.
    pub(super) fn is_repeated(&self, cells: &Cells) -> bool {
        let is_title = |at: usize, title: &str| match at {
            0 => uncommented(&cells.text(0)) == uncommented(title),
            _ => cells.text(at) == title,
        };
        cells.len() == self.titles.len()
            && self.titles.iter().enumerate().all(|(at, title)| is_title(at, title))
    }

    /// Returns whether a record is the header of another table. In such a record, the cell in the
    /// time column is that column's title. If every cell of the record looks like a title, the cell
    /// in the time column may be any title that suggests a time.
    pub(super) fn is_other(&self, cells: &Cells) -> bool {
        let place = self.time.first().copied().unwrap_or(0);
        let in_place = cells.get(place).unwrap_or_default();
        // Every time contains a digit. A record with a digit in the time column is therefore a row
        // and is not examined further.
        if cells.len() < 2 || in_place.is_empty() || in_place.iter().any(u8::is_ascii_digit) {
            return false;
        }
        let (title, own) = (cells.text(place), self.title(place));
        let is_comment = cells.get(0).is_some_and(|cell| cell.starts_with(b"#")) && !self.has_comment_mark;
        if !is_comment && uncommented(&title).eq_ignore_ascii_case(uncommented(own)) {
            return true;
        }
        let is_titles = |at: usize| !cells.text(at).is_empty() && !is_value(&cells.text(at));
        cells.get(0).is_some_and(|cell| !cell.starts_with(b"#"))
            && time_rank(&title).is_some()
            && (0..cells.len()).all(is_titles)
    }

    /// Returns the cells of the time columns of a row, joined by spaces.
    pub(super) fn time_text(&self, cells: &Cells) -> String {
        let parts: Vec<_> = self.time_parts().into_iter().map(|at| cells.text(at)).collect();
        parts.join(" ")
    }

    /// Returns the cells of a row that may name its device, or `None` if no column names devices.
    fn device_text(&self, cells: &Cells) -> Option<String> {
        let parts: Vec<_> = self.devices.iter().map(|at| cells.text(*at)).collect();
        (!parts.is_empty()).then(|| parts.join("\n"))
    }

    /// Returns the positions of the time columns, followed by the zone column.
    pub(super) fn time_parts(&self) -> Vec<usize> {
        self.time.iter().copied().chain(self.zone).collect()
    }

    /// Returns the titles of the first columns whose type no option states, at most `NAMED_MAX`.
    pub(super) fn untyped(&self) -> Vec<&str> {
        let untyped = self.columns.iter().filter(|column| column.stated.is_none());
        untyped.map(|column| column.title.as_str()).take(NAMED_MAX).collect()
    }
}

impl CsvColumn {
    fn new((position, title, name): (usize, &str, &str), stated: Option<CsvType>) -> Self {
        Self {
            position,
            title: title.to_owned(),
            name: name.to_owned(),
            stated,
            stated_unit: None,
            title_unit: unit_of_title(title).map(str::to_owned),
            is_counter: false,
        }
    }

    /// Returns the unit that is stated by an option, found in the cells, or named in the title,
    /// with priority in this order.
    pub(super) fn unit(&self, reading: &ColumnReading) -> Option<String> {
        let own = reading.unit.as_ref().or(self.title_unit.as_ref()).filter(|_| reading.csv_type.is_number());
        self.stated_unit.as_ref().or(own).cloned()
    }

    pub(super) fn is_counter(&self) -> bool {
        self.is_counter
    }

    /// Returns the schema field of the column.
    pub(super) fn field(&self, reading: &ColumnReading) -> NewField {
        let kind = match reading.csv_type {
            _ if self.is_counter => MetricKind::Counter,
            CsvType::Text => MetricKind::Text,
            CsvType::Bool => MetricKind::State,
            CsvType::Unsigned | CsvType::Signed | CsvType::Float => MetricKind::Gauge,
        };
        let documentation =
            if self.title == self.name { String::new() } else { format!("Column {:?}.", self.title) };
        let field = NewField::new(&self.name, reading.csv_type.content());
        NewField {
            unit: self.unit(reading),
            kind,
            documentation,
            uses_all_bits: reading.uses_all_bits && reading.csv_type == CsvType::Unsigned,
            ..field
        }
    }
}

/// Returns whether each row begins with a cell for which the header has no title. R writes the
/// names of rows in this way. Each time is then one column to the right of its title.
pub(super) fn has_row_names(titles: &[String], rows: &[Cells]) -> bool {
    let Some(time) = titles.iter().position(|title| time_rank(title).is_some()) else { return false };
    let is_shifted = |cells: &Cells| {
        cells.len() == titles.len() + 1
            && !is_calendar(&cells.text(time))
            && is_calendar(&cells.text(time + 1))
    };
    !rows.is_empty() && rows.iter().all(is_shifted)
}

/// Returns whether a text is a date, with or without a time of day. A number is not treated as a
/// date, because it may have any meaning.
fn is_calendar(text: &str) -> bool {
    TimeForm::candidates(text).first().is_some_and(|form| !matches!(form, TimeForm::SinceEpoch(_)))
}

/// Returns a title without its comment mark. In joined files, a byte order mark may precede the
/// comment mark.
fn uncommented(title: &str) -> &str {
    let title = title.trim_start_matches('\u{feff}');
    title.strip_prefix('#').map_or(title, str::trim_start)
}

/// Returns the column with the time zone of each row, if the times themselves have no zone.
fn zone_column(titles: &[String], time: &[usize], rows: &[Cells]) -> Option<usize> {
    let is_zone = |title: &String| {
        let plain: String = title.chars().filter(|character| character.is_alphanumeric()).collect();
        ["tz", "timezone", "zone", "zeitzone", "utcoffset"]
            .iter()
            .any(|name| plain.eq_ignore_ascii_case(name))
    };
    let position = titles.iter().position(is_zone).filter(|at| !time.contains(at))?;
    let is_local = |cells: &Cells| {
        let parts: Vec<_> = time.iter().map(|at| cells.text(*at)).collect();
        let text = parts.join(" ");
        let form = TimeForm::candidates(&text).into_iter().next();
        form.is_some_and(|form| matches!(form.read(&text), Some(CellTime::Local(_))))
    };
    let are = |cells: &&Cells| zone_named(&cells.text(position)).is_some() && is_local(cells);
    (rows.iter().filter(are).count() * 2 > rows.len()).then_some(position)
}

/// Returns the time columns, and whether they are a guess. The columns are recognized by their
/// titles, and their cells distinguish dates from times of day. If no title suggests a time and
/// exactly one column has dates, this column is the time column.
fn recognized_time(titles: &[String], rows: &[Cells]) -> Result<(Vec<usize>, bool), String> {
    let are_most = |position: usize, is_so: &dyn Fn(&str) -> bool| {
        let texts = rows.iter().map(|cells| cells.text(position)).filter(|text| !text.is_empty());
        let (all, so) = texts.fold((0, 0), |(all, so), text| (all + 1, so + usize::from(is_so(&text))));
        so * 2 > all
    };
    let is_full =
        |text: &str| !TimeForm::candidates(text).is_empty() && !is_date(text) && !is_compact_time(text);
    let mut named: Vec<(usize, usize)> =
        titles.iter().enumerate().filter_map(|(at, title)| Some((time_rank(title)?, at))).collect();
    named.sort_unstable();
    let named: Vec<usize> = named.into_iter().map(|(_, at)| at).collect();
    if let Some(full) = named.iter().find(|at| are_most(**at, &is_full)) {
        return Ok((vec![*full], false));
    }
    let date = named.iter().copied().find(|at| are_most(*at, &is_date));
    let clock = || {
        (0..titles.len()).find(|at| {
            titles.get(*at).is_some_and(|title| {
                let is_compact = time_rank(title).is_some() && are_most(*at, &is_compact_time);
                may_be_clock(title) && (is_compact || are_most(*at, &is_time_of_day))
            })
        })
    };
    // If several rows have the same date, the only column with times of day is probably the time of
    // the rows.
    let untitled_clock = |date: usize| {
        let is_shared =
            rows.iter().zip(rows.iter().skip(1)).any(|(one, next)| one.get(date) == next.get(date));
        let mut clocks = (0..titles.len()).filter(|at| is_shared && are_most(*at, &is_time_of_day));
        clocks.next().filter(|_| clocks.next().is_none())
    };
    if let Some(date) = date {
        let named_clock = clock();
        let guessed = if named_clock.is_none() { untitled_clock(date) } else { None };
        return Ok((std::iter::once(date).chain(named_clock.or(guessed)).collect(), guessed.is_some()));
    }
    if let Some(first) = named.first() {
        return Ok((vec![*first], false));
    }
    let others: Vec<usize> = (0..titles.len()).filter(|at| are_most(*at, &is_calendar)).collect();
    match others[..] {
        [only] => {
            let clock = clock().or_else(|| untitled_clock(only));
            let clock = clock.filter(|clock| *clock != only && are_most(only, &is_date));
            Ok((std::iter::once(only).chain(clock).collect(), true))
        }
        _ => Err(format!("which column says the time? name one of {} with --time", listed(titles))),
    }
}

/// Returns the columns that could be the time column instead of the recognized one. The titles of
/// these columns suggest times, and the times in their cells differ from the times in the
/// recognized column.
fn other_full_times(titles: &[String], rows: &[Cells], time: &[usize]) -> Vec<usize> {
    let [own] = time else { return Vec::new() };
    let instant = |cells: &Cells, at: usize| {
        let text = cells.text(at).into_owned();
        let form = TimeForm::candidates(&text).into_iter().next()?;
        let read = form.read(&text)?;
        let is_full = !is_date(&text) && !is_compact_time(&text) && !form.is_doubtful(read);
        is_full.then(|| format!("{read:?}"))
    };
    let is_other = |at: &usize| {
        let pairs = rows.iter().map(|cells| (instant(cells, *at), instant(cells, *own)));
        let pairs: Vec<_> = pairs.filter(|(other, _)| other.is_some()).collect();
        pairs.len() * 2 > rows.len() && pairs.iter().any(|(other, own)| other != own)
    };
    let named = titles.iter().enumerate().filter(|(_, title)| time_rank(title).is_some());
    named.map(|(at, _)| at).filter(|at| at != own).filter(is_other).collect()
}

/// Returns the position of the column that an option names.
fn find(option: &str, wanted: &str, titles: &[String], names: &[String]) -> Result<usize, String> {
    let by_title = titles.iter().position(|title| title == wanted);
    let found = by_title.or_else(|| names.iter().position(|name| name == wanted));
    found.ok_or_else(|| {
        let near = nearest_name(wanted, titles.iter().map(String::as_str));
        let near = near.map(|near| format!("; the nearest is {near}")).unwrap_or_default();
        format!("{option} {wanted}: no such column{near}; it has {}", listed(titles))
    })
}

fn listed(titles: &[String]) -> String {
    let more = if titles.len() > NAMED_MAX { ", ..." } else { "" };
    titles.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

/// Returns an error about the header of a file.
pub(super) fn header_error(path: &std::path::Path, what: &str) -> ImportError {
    ImportError::Kind { path: path.to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(all: &[&str]) -> Vec<String> {
        all.iter().map(|title| (*title).to_owned()).collect()
    }

    fn header(all: &[&str], stated: &CsvColumns) -> Result<CsvHeader, String> {
        CsvHeader::new(titles(all), stated, &[])
    }

    fn reading(csv_type: CsvType) -> ColumnReading {
        ColumnReading { csv_type, unit: None, absent: Vec::new(), uses_all_bits: false }
    }

    // Proves that the time column is found by its title or by an option, and that options apply to
    // the columns that they name.
    #[test]
    fn statements_apply_to_columns() {
        let all = ["host", "Timestamp", "cpu user", "reads", "power [W]"];
        let stated = CsvColumns {
            types: vec![("cpu_user".to_owned(), CsvType::Float)],
            units: vec![("cpu user".to_owned(), "%".to_owned())],
            counters: vec!["reads".to_owned()],
            keys: Some(vec!["host".to_owned()]),
            ..CsvColumns::default()
        };
        let found = header(&all, &stated).unwrap();
        assert_eq!((&found.time[..], found.width(), found.keys.clone()), (&[1][..], 5, Some(vec![0])));
        assert_eq!(found.untyped(), ["host", "reads", "power [W]"]);
        let field = found.columns[1].field(&reading(CsvType::Float));
        assert_eq!(
            (&*field.name, field.unit.as_deref(), field.kind),
            ("cpu_user", Some("%"), MetricKind::Gauge)
        );
        assert_eq!(field.documentation, "Column \"cpu user\".");
        assert_eq!(found.columns[2].field(&reading(CsvType::Unsigned)).kind, MetricKind::Counter);
        assert_eq!(found.columns[3].field(&reading(CsvType::Float)).unit.as_deref(), Some("W"));
        assert_eq!(found.columns[3].field(&reading(CsvType::Text)).unit, None, "a text has no unit");
        let named = CsvColumns { time: vec!["host".to_owned()], ..CsvColumns::default() };
        assert_eq!(header(&all, &named).unwrap().time, [0]);
    }

    // Proves that a date column and a time-of-day column form the time, whether or not an option
    // states them. The test also proves that a column with the full time has priority.
    #[test]
    fn two_columns_say_the_time() {
        let row = |line: &str| [super::super::cells::split_line(line.as_bytes(), b',').unwrap()];
        let found = |all: &[&str], line: &str| {
            let found = CsvHeader::new(titles(all), &CsvColumns::default(), &row(line))?;
            Ok::<_, String>((found.time, found.is_time_guessed))
        };
        assert_eq!(found(&["Time", "Date", "a"], "00:00:01,2024-01-01,1"), Ok((vec![1, 0], false)));
        assert_eq!(found(&["Datum", "Uhrzeit", "a"], "01.02.2024,00:00:01,1"), Ok((vec![0, 1], false)));
        assert_eq!(found(&["date", "time", "a"], "2024-01-01,1700000000,1"), Ok((vec![1], false)));
        assert_eq!(found(&["date", "time", "a"], "20240101,023000,1"), Ok((vec![0, 1], false)));
        assert_eq!(found(&["date", "a"], "2024-01-01,1"), Ok((vec![0], false)));
        assert_eq!(found(&["when", "a"], "2024-01-01 00:00:00,1"), Ok((vec![0], true)));
        assert!(found(&["from", "to", "a"], "2024-01-01 00:00:00,2024-01-01 00:00:00,1").is_err());
        for stated in [vec!["d,t"], vec!["d", "t"]] {
            let stated = CsvColumns { time: titles(&stated), ..CsvColumns::default() };
            assert_eq!(header(&["t", "d", "a"], &stated).unwrap().time, [1, 0]);
        }
    }

    // Proves that empty extra cells at the end of a row are ignored, and that other differences in
    // width are not ignored.
    #[test]
    fn empty_ends_of_rows_are_no_cells() {
        let cells = |line: &str| super::super::cells::split_line(line.as_bytes(), b',').unwrap();
        let plain = header(&["time", "a"], &CsvColumns::default()).unwrap();
        assert!(plain.is_row(&cells("1,2")) && plain.is_row(&cells("1,2,, ")));
        assert!(!plain.is_row(&cells("1")) && !plain.is_row(&cells("1,2,3")));
        let open = header(&["time", "a", ""], &CsvColumns::default()).unwrap();
        assert!(open.is_row(&cells("1,2")) && open.is_row(&cells("1,2,3")) && !open.is_row(&cells("1")));
        assert!(plain.is_repeated(&cells("time, a")) && !plain.is_repeated(&cells("time,b")));
    }

    // Proves that errors name the option, the value and the existing columns.
    #[test]
    fn mistakes_are_explained() {
        let all = ["when", "value"];
        let error = |stated: CsvColumns| header(&all, &stated).unwrap_err();
        assert_eq!(
            error(CsvColumns::default()),
            "which column says the time? name one of when, value with --time"
        );
        let wrong = CsvColumns { time: vec!["valu".to_owned()], ..CsvColumns::default() };
        assert_eq!(error(wrong), "--time valu: no such column; the nearest is value; it has when, value");
        assert_eq!(
            header(&["time"], &CsvColumns::default()).unwrap_err(),
            "it has no column beside the time"
        );
    }
}
