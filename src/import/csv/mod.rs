//! Imports CSV files: a header, a column that says the time, and columns of values.
//!
//! Each file becomes a source, each row a sample, each column a field of a schema that is made of
//! the header and of all cells: a first reading finds the types, a second one writes the rows. An
//! empty cell is absent. Design: docs/ARCHITECTURE.md, "Import and export".

mod columns;
mod csv_type;
mod records;
mod time_form;

use std::path::{Path, PathBuf};

use flatcap_format::schema::segment::GapCause;
use flatcap_format::schema::{NewTable, binary_schema};
use jiff::tz::TimeZone;

pub use columns::CsvColumns;
pub use csv_type::{CsvType, CsvTypeError};
pub use time_form::{TimeForm, TimeFormError};

use super::payload::{PayloadBuilder, PayloadValue};
use super::source_name::{given_names, source_names};
use super::{ImportError, ImportJob, ImportReport, ImportSource, RunWriter};
use crate::os::clock::NS_PER_S;
use columns::{CsvHeader, header_error};
use csv_type::PossibleTypes;
use records::{CsvRecord, CsvRecords};

/// Full name of the table of a row.
const ROOT: &str = "flatcap.imported.Row";
/// Characters of a cell that an error shows.
const SHOWN_CHARS_MAX: usize = 40;

/// Options of an import.
#[derive(Debug, Clone)]
pub struct CsvOptions {
    /// What is stated about columns.
    pub columns: CsvColumns,
    /// The form of times; recognized by the first one without it.
    pub time_form: Option<TimeForm>,
    /// The zone of times without an offset.
    pub zone: TimeZone,
    /// The byte between cells.
    pub delimiter: u8,
    /// Cells with one of these texts are absent, as empty ones are.
    pub absent: Vec<String>,
    /// Names of the sources, one per file; if empty, derived from the files.
    pub names: Vec<String>,
}

/// The times of the rows of a file.
#[derive(Debug, Default)]
struct RowTimes {
    form: Option<TimeForm>,
    last_ns: Option<i64>,
    rising: u64,  // from one row to the next
    falling: u64, // by a second or more
}

impl RowTimes {
    fn add(&mut self, time: &str, zone: &TimeZone) {
        let Some(wall_ns) = self.form.as_ref().and_then(|form| form.wall_ns(time, zone)) else { return };
        if let Some(last_ns) = self.last_ns.replace(wall_ns) {
            self.rising += u64::from(wall_ns > last_ns);
            self.falling += u64::from(last_ns.saturating_sub(wall_ns) >= NS_PER_S.cast_signed());
        }
    }

    /// A clock that was set back falls once, such rows nearly always. As one step of the clock
    /// after the other they would all be of one monotonic time.
    fn are_newest_first(&self) -> bool {
        self.falling > self.rising
    }
}

/// What the first reading found in a file.
#[derive(Debug)]
struct FoundColumns {
    header: CsvHeader,
    types: Vec<CsvType>,
    time_form: TimeForm,
}

/// Imports the files, each as a run of its own.
///
/// A row with another number of cells than the header, or whose time is not one, is skipped and
/// reported, and takes a number of its source. A cell that is not of its column's type is reported
/// and absent. Uses memory for one row.
///
/// # Errors
/// Any [`ImportError`]. Samples imported before it are kept.
pub fn import(
    files: &[PathBuf],
    options: &CsvOptions,
    job: ImportJob<'_, '_>,
) -> Result<ImportReport, ImportError> {
    let names = match &options.names[..] {
        [] => source_names(files, "csv"),
        given => given_names(given, files.len())?,
    };
    let mut importer = CsvImporter { options, job, report: ImportReport::default(), frames: 0 };
    for (path, name) in files.iter().zip(names) {
        match importer.import_file(path, name) {
            Err(ImportError::Stopped) => {
                importer.report.stopped = true;
                break;
            }
            ended => ended?,
        }
    }
    Ok(importer.report)
}

/// An import in progress.
struct CsvImporter<'a, 's, 'w> {
    options: &'a CsvOptions,
    job: ImportJob<'s, 'w>,
    report: ImportReport,
    frames: u64, // recorded
}

impl<'s> CsvImporter<'_, 's, '_> {
    /// Imports a file as a run of its own: its rows may be of the same time as those of others.
    fn import_file(&mut self, path: &Path, name: String) -> Result<(), ImportError> {
        let mut recording = RunWriter::begin(self.job.storage, self.job.limits.clone())?;
        let result = self.import_rows(path, name, &mut recording);
        if let Err(error @ ImportError::Write(_)) = result {
            return Err(error);
        }
        let totals = recording.finish();
        result?;
        self.report.totals.add(totals?);
        Ok(())
    }

    fn import_rows(
        &mut self,
        path: &Path,
        name: String,
        recording: &mut RunWriter<'s>,
    ) -> Result<(), ImportError> {
        let found = if path.is_file() { self.inspect(path)? } else { None };
        let mut records = self.open(path)?;
        let found = match found {
            Some(found) => Some(found),
            None => self.stated_columns(&mut records)?,
        };
        // Without columns, the file is empty, or damaged in its first rows.
        if let Some(found) = found {
            if path.is_file() {
                // The header, which the first reading has seen.
                records.next()?;
            }
            let source = recording.add_source(self.source(path, name, &found)?)?;
            self.write_rows((recording, source), &found, &mut records)?;
        }
        self.report.bytes += records.offset();
        if let Some(damage) = records.damage() {
            let (at, damage) = (records.offset(), damage.to_owned());
            self.report.add_flaw(path, at, None, damage);
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> Result<CsvRecords, ImportError> {
        Ok(CsvRecords::new(self.job.progress.open(path)?, self.options.delimiter))
    }

    /// Reads a whole file for the types of its columns. Returns none for an empty one.
    fn inspect(&mut self, path: &Path) -> Result<Option<FoundColumns>, ImportError> {
        let mut records = self.open(path)?;
        let Some(first) = records.next()? else { return Ok(None) };
        let mut header = self.header(path, &first)?;
        let mut types: Vec<PossibleTypes> = header.columns.iter().map(|_| PossibleTypes::all()).collect();
        let mut times = RowTimes::default();
        while let Some(CsvRecord { cells, line, .. }) = records.next()? {
            if cells.len() != header.width() {
                continue;
            }
            let time = String::from_utf8_lossy(cells.get(header.time).unwrap_or_default());
            let time = time.trim();
            if times.form.is_none() {
                times.form = Some(self.time_form(path, line, time)?);
            }
            times.add(time, &self.options.zone);
            for (column, types) in header.columns.iter().zip(&mut types) {
                let cell = String::from_utf8_lossy(cells.get(column.position).unwrap_or_default());
                let cell = cell.trim();
                if !self.is_absent(cell) {
                    types.add(cell);
                }
            }
            if !self.job.progress.should_continue(self.frames) {
                return Err(ImportError::Stopped);
            }
        }
        if times.are_newest_first() {
            let at = header.time + 1;
            let what = format!(
                "the times in column {at} fall from row to row: sort the rows by time, the oldest first"
            );
            return Err(header_error(path, &what));
        }
        for (column, types) in header.columns.iter_mut().zip(&types) {
            column.uses_all_bits = types.uses_all_bits();
        }
        // Without rows there is nothing to read.
        let time_form = times.form.unwrap_or(TimeForm::Iso);
        let found = header.columns.iter().zip(types);
        let types = found.map(|(column, types)| column.stated.unwrap_or(types.narrowest())).collect();
        Ok(Some(FoundColumns { header, types, time_form }))
    }

    /// Reads the header of a pipe, which cannot be read twice. Returns none if it is empty.
    fn stated_columns(&mut self, records: &mut CsvRecords) -> Result<Option<FoundColumns>, ImportError> {
        let path = records.path().to_owned();
        let Some(first) = records.next()? else { return Ok(None) };
        let header = self.header(&path, &first)?;
        let untyped = header.untyped();
        if !untyped.is_empty() {
            return Err(header_error(
                &path,
                &format!(
                    "types are found by reading the input twice, which a pipe does not allow; import a file, or state \
                     the type of all columns (--type float) or of each (--type {}=float)",
                    untyped.join("=float --type ")
                ),
            ));
        }
        let types = header.columns.iter().filter_map(|column| column.stated).collect();
        let Some(time_form) = self.options.time_form.clone() else {
            let what = "the form of times is found by reading the input twice; state it with --time-format";
            return Err(header_error(&path, what));
        };
        Ok(Some(FoundColumns { header, types, time_form }))
    }

    fn header(&self, path: &Path, first: &CsvRecord<'_>) -> Result<CsvHeader, ImportError> {
        CsvHeader::new(first.cells, &self.options.columns).map_err(|what| header_error(path, &what))
    }

    /// Returns the stated form of times, or that of the first one.
    fn time_form(&self, path: &Path, line: u64, text: &str) -> Result<TimeForm, ImportError> {
        if let Some(stated) = &self.options.time_form {
            return Ok(stated.clone());
        }
        TimeForm::recognize(text, &self.options.zone).ok_or_else(|| {
            let what = format!(
                "line {line}: the time {:?} has no form that is recognized; state it with --time-format, such as \
                 \"%d.%m.%Y %H:%M:%S\" or s, or name another column with --time",
                shown(text)
            );
            header_error(path, &what)
        })
    }

    fn source(
        &mut self,
        path: &Path,
        name: String,
        found: &FoundColumns,
    ) -> Result<ImportSource, ImportError> {
        let typed = found.header.columns.iter().zip(&found.types);
        let fields = typed.map(|(column, csv_type)| column.field(*csv_type)).collect();
        let table = NewTable { name: ROOT.to_owned(), fields };
        let schema = binary_schema(&[table], ROOT).map_err(|error| header_error(path, &error.to_string()))?;
        self.report.recognized.push(format!("{}: {}", path.display(), found.described()));
        let labels = vec![("file".to_owned(), path.display().to_string())];
        Ok(ImportSource { name, labels, root: ROOT.to_owned(), schema })
    }

    fn write_rows(
        &mut self,
        (recording, source): (&mut RunWriter<'s>, u16),
        found: &FoundColumns,
        records: &mut CsvRecords,
    ) -> Result<(), ImportError> {
        let path = records.path().to_owned();
        let mut payload = PayloadBuilder::default();
        while let Some(record) = records.next()? {
            self.write_row((recording, source), found, &record, (&path, &mut payload))?;
            if !self.job.progress.should_continue(self.frames) {
                return Err(ImportError::Stopped);
            }
        }
        Ok(())
    }

    fn write_row(
        &mut self,
        (recording, source): (&mut RunWriter<'s>, u16),
        found: &FoundColumns,
        record: &CsvRecord<'_>,
        (path, payload): (&Path, &mut PayloadBuilder),
    ) -> Result<(), ImportError> {
        let CsvRecord { cells, line, offset } = *record;
        let width = found.header.width();
        if cells.len() != width {
            let what =
                format!("line {line} has {} cells, the header {width}; the row is skipped", cells.len());
            self.skip_row((recording, source), (path, offset), what);
            return Ok(());
        }
        let time = String::from_utf8_lossy(cells.get(found.header.time).unwrap_or_default());
        let Some(wall_ns) = found.time_form.wall_ns(time.trim(), &self.options.zone) else {
            let (time, form) = (shown(&time), found.time_form.name());
            let what = format!("line {line}: {time:?} is no time ({form}); the row is skipped");
            self.skip_row((recording, source), (path, offset), what);
            return Ok(());
        };
        let mut values = Vec::with_capacity(found.types.len());
        for (column, csv_type) in found.header.columns.iter().zip(&found.types) {
            let bytes = cells.get(column.position).unwrap_or_default();
            let value = self.value(bytes, *csv_type);
            if value == Err(()) {
                let (cell, kind) = (String::from_utf8_lossy(bytes), csv_type.name());
                let (at, title) = (column.position + 1, &column.title);
                let what = format!(
                    "line {line}, column {at} ({title}): {:?} is not {kind}; the value is left out",
                    shown(&cell)
                );
                self.report.add_flaw(path, offset, None, what);
            }
            values.push(value.unwrap_or(None));
        }
        let payload = payload.table(&values);
        if !recording.fits(payload.len()) {
            let what = format!("line {line}: a row of {} bytes exceeds the frame limit", payload.len());
            self.skip_row((recording, source), (path, offset), what);
            return Ok(());
        }
        self.frames += 1;
        recording.append(source, wall_ns, payload.len(), |place| place.copy_from_slice(payload))
    }

    /// Returns the value of a cell; none if it is absent.
    fn value<'t>(&self, bytes: &'t [u8], csv_type: CsvType) -> Result<Option<PayloadValue<'t>>, ()> {
        let text = std::str::from_utf8(bytes).map_err(|_| ())?;
        let trimmed = text.trim();
        if self.is_absent(trimmed) {
            return Ok(None);
        }
        let cell = if csv_type == CsvType::Text { text } else { trimmed };
        csv_type.value(cell).map(Some).ok_or(())
    }

    fn is_absent(&self, cell: &str) -> bool {
        cell.is_empty() || self.options.absent.iter().any(|absent| absent == cell)
    }

    fn skip_row(
        &mut self,
        (recording, source): (&mut RunWriter<'s>, u16),
        (path, offset): (&Path, u64),
        what: String,
    ) {
        self.report.add_flaw(path, offset, Some(1), what);
        recording.skip(source, 1, GapCause::Damaged);
    }
}

impl FoundColumns {
    /// Describes what was recognized: `time is column 1 (ISO 8601); other columns: 2 float,
    /// 1 text`.
    fn described(&self) -> String {
        let count = |wanted: CsvType| self.types.iter().filter(|own| **own == wanted).count();
        let all = [CsvType::Bool, CsvType::Unsigned, CsvType::Signed, CsvType::Float, CsvType::Text];
        let counted = all.map(|kind| (count(kind), kind.name()));
        let types = counted.iter().filter(|(count, _)| *count > 0);
        let types: Vec<String> = types.map(|(count, name)| format!("{count} {name}")).collect();
        let (at, form) = (self.header.time + 1, self.time_form.name());
        format!("time is column {at} ({form}); other columns: {}", types.join(", "))
    }
}

/// Returns the start of a cell, for an error.
fn shown(cell: &str) -> String {
    let start: String = cell.chars().take(SHOWN_CHARS_MAX).collect();
    if start.len() < cell.len() { start + "..." } else { start }
}

#[cfg(test)]
mod tests;
