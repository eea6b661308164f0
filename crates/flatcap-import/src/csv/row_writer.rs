//! The second pass, which writes the rows of a file as samples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flatcap_format::schema::segment::GapCause;
use flatcap_format::schema::{NewTable, binary_schema};

use super::cells::Cells;
use super::column_census::shown;
use super::columns::{LastDevice, header_error};
use super::interpretation::Interpretation;
use super::records::CsvRecord;
use super::sections::{RecordPart, Sections};
use super::survey::{instant, is_comment};
use crate::findings::ImportFindings;
use crate::local_clock::LocalClock;
use crate::payload::PayloadBuilder;
use crate::row_times::{RowOrder, RowTimes};
use crate::{ImportError, ImportReport, ImportSource, RunWriter};

/// Full name of the root table.
const ROOT: &str = "flatcap.imported.Row";
/// Maximum number of devices in a file. Each device is a source.
const DEVICES_MAX: usize = 1000;

/// A row that is held until all rows can be sorted.
struct HeldRow {
    wall_ns: i64,
    source: u16,
    /// The payload, or `None` for a skipped row. A skipped row also uses one sample number of its
    /// source.
    payload: Option<Box<[u8]>>,
}

/// Writes the rows of a file.
pub(super) struct CsvRowWriter<'i, 's> {
    path: PathBuf,
    name: String,
    schema: Vec<u8>,
    interpretation: &'i Interpretation,
    sections: Sections,
    clock: LocalClock,
    last_device: LastDevice,
    times: RowTimes,
    run: RunWriter<'s>,
    /// Ids of the sources. The key is the text of the cells in the key columns.
    sources: BTreeMap<Vec<String>, u16>,
    /// Number of rows that were skipped before the first source existed.
    skipped: u64,
    held: Vec<HeldRow>,
    payload: PayloadBuilder,
    frames: u64,
}

impl<'i, 's> CsvRowWriter<'i, 's> {
    /// Starts writing the rows of a file.
    ///
    /// # Errors
    /// The columns do not form a valid schema, or the run has too many sources.
    pub(super) fn begin(
        run: RunWriter<'s>,
        (path, name): (&Path, String),
        interpretation: &'i Interpretation,
    ) -> Result<Self, ImportError> {
        let typed = interpretation.header.columns.iter().zip(&interpretation.readings);
        let fields = typed.map(|(column, reading)| column.field(reading)).collect();
        let table = NewTable { name: ROOT.to_owned(), fields };
        let schema = binary_schema(&[table], ROOT).map_err(|error| header_error(path, &error.to_string()))?;
        let clock = LocalClock::new(interpretation.zone.clone(), interpretation.is_newest_first);
        let mut writer = Self {
            path: path.to_owned(),
            name,
            schema,
            interpretation,
            sections: Sections::default(),
            clock,
            last_device: LastDevice::default(),
            times: RowTimes::default(),
            run,
            sources: BTreeMap::new(),
            skipped: 0,
            held: Vec::new(),
            payload: PayloadBuilder::default(),
            frames: 0,
        };
        if interpretation.keys.is_empty() {
            writer.add_source(Vec::new())?;
        }
        Ok(writer)
    }

    /// Returns the number of rows so far, including held rows.
    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Writes a record.
    ///
    /// # Errors
    /// [`ImportError::Write`].
    pub(super) fn write(
        &mut self,
        record: &CsvRecord<'_>,
        report: &mut ImportReport,
    ) -> Result<(), ImportError> {
        let CsvRecord { cells, line, offset, quote_fault } = *record;
        let header = &self.interpretation.header;
        let part = self.sections.part(header, cells, line);
        if part != RecordPart::Own {
            let is_header = part == RecordPart::Header;
            report.count_skipped(if is_header { "repeated headers" } else { "lines of other tables" });
            return Ok(());
        }
        if let Some(fault) = quote_fault.filter(|_| !is_comment(cells)) {
            let what = format!("line {line}: {fault}; the row is skipped");
            self.skip_row(what, offset, report);
            return Ok(());
        }
        let is_row = quote_fault.is_none() && header.is_row(cells);
        let time = header.time_text(cells);
        let found = self.interpretation.time(&time).filter(|_| is_row);
        if is_row {
            self.clock.set_other_device(self.last_device.changes(header, cells));
        }
        let wall_ns = found.and_then(|time| instant(&mut self.clock, time, line));
        let Some(wall_ns) = wall_ns else {
            if is_comment(cells) {
                report.count_skipped("comments");
                return Ok(());
            }
            let width = header.width();
            let what = if is_row {
                let (time, form) = (shown(&time), self.interpretation.time_form.name());
                format!("line {line}: {time:?} is no time ({form}); the row is skipped")
            } else {
                format!("line {line} has {} cells, the header {width}; the row is skipped", cells.len())
            };
            self.skip_row(what, offset, report);
            return Ok(());
        };
        self.times.add(wall_ns, line);
        let Some(source) = self.source_of(cells)? else {
            let what = format!("line {line}: more than {DEVICES_MAX} devices; the row is skipped");
            self.skip_row(what, offset, report);
            return Ok(());
        };
        let interpretation = self.interpretation;
        let mut values = Vec::with_capacity(interpretation.readings.len());
        for (column, reading) in interpretation.header.columns.iter().zip(&interpretation.readings) {
            let value = interpretation.value(cells, column, reading);
            if value == Err(()) {
                let (cell, kind) = (cells.text(column.position), reading.csv_type.as_str());
                let (at, title) = (column.position + 1, &column.title);
                let what = format!(
                    "line {line}, column {at} ({title}): {:?} is not {kind}; the value is left out",
                    shown(&cell)
                );
                report.add_flaw(&self.path, offset, None, what);
            }
            values.push(value.unwrap_or(None));
        }
        let payload = self.payload.table(&values);
        if !self.run.fits(payload.len()) {
            let what = format!("line {line}: a row of {} bytes exceeds the frame limit", payload.len());
            self.skip_row(what, offset, report);
            return Ok(());
        }
        self.frames += 1;
        if interpretation.order == RowOrder::Time {
            self.held.push(HeldRow { wall_ns, source, payload: Some(payload.into()) });
            return Ok(());
        }
        self.run.append(source, wall_ns, payload.len(), |place| place.copy_from_slice(payload))
    }

    /// Writes the held rows. If `findings` is given, adds the assumptions to it, for example about
    /// times. This is necessary for a pipe, because no first pass reports the assumptions.
    ///
    /// # Errors
    /// [`ImportError::Write`].
    pub(super) fn finish(
        mut self,
        findings: Option<&mut ImportFindings>,
    ) -> Result<RunWriter<'s>, ImportError> {
        if let Some(findings) = findings {
            self.sections.report(findings);
            self.clock.report(findings);
            let option = "import a file, of which the rows can be sorted";
            self.times.report_kept(findings, Some(option));
        }
        self.held.sort_by_key(|row| row.wall_ns);
        for row in &self.held {
            match &row.payload {
                Some(payload) => {
                    let fill = |place: &mut [u8]| place.copy_from_slice(payload);
                    self.run.append(row.source, row.wall_ns, payload.len(), fill)?;
                }
                None => self.run.skip(row.source, 1, GapCause::Damaged),
            }
        }
        Ok(self.run)
    }

    /// Returns the source of a row, or `None` if the file has too many devices.
    fn source_of(&mut self, cells: &Cells) -> Result<Option<u16>, ImportError> {
        let keys = self.interpretation.keys.iter();
        let values: Vec<String> = keys.map(|at| cells.text(*at).into_owned()).collect();
        if let Some(source) = self.sources.get(&values) {
            return Ok(Some(*source));
        }
        if self.sources.len() >= DEVICES_MAX {
            return Ok(None);
        }
        self.add_source(values).map(Some)
    }

    fn add_source(&mut self, values: Vec<String>) -> Result<u16, ImportError> {
        let header = &self.interpretation.header;
        let name_of = |position: usize| {
            let column = header.columns.iter().find(|column| column.position == position);
            column.map_or_else(|| format!("column_{}", position + 1), |column| column.name.clone())
        };
        let mut labels = vec![("file".to_owned(), self.path.display().to_string())];
        for (position, value) in self.interpretation.keys.iter().zip(&values) {
            let name = name_of(*position);
            let name = if name == "file" { "file_2".to_owned() } else { name };
            labels.push((name, value.clone()));
        }
        let (name, schema) = (self.name.clone(), self.schema.clone());
        let source = self.run.add_source(ImportSource { name, labels, root: ROOT.to_owned(), schema })?;
        self.sources.insert(values, source);
        self.run.skip(source, std::mem::take(&mut self.skipped), GapCause::Damaged);
        Ok(source)
    }

    /// Skips a row. The skipped row uses one sample number of the last held row's source. If no row
    /// is held, the skipped row uses a sample number of the first source.
    fn skip_row(&mut self, what: String, offset: u64, report: &mut ImportReport) {
        report.add_flaw(&self.path, offset, Some(1), what);
        let last = self.held.last().map(|row| (row.source, row.wall_ns));
        match (self.interpretation.order, last, self.sources.values().next()) {
            (RowOrder::Time, Some((source, wall_ns)), _) => {
                self.held.push(HeldRow { wall_ns, source, payload: None });
            }
            (_, _, Some(source)) => self.run.skip(*source, 1, GapCause::Damaged),
            (_, _, None) => self.skipped += 1,
        }
    }
}
