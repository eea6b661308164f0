//! Imports CSV files with a header, time columns and value columns.
//!
//! Each file becomes a run, each row a sample and each column a field. The schema is derived from
//! the header and all cells. A first pass (`survey`) decides how to read the file, and reports its
//! assumptions. A second pass (`row_writer`) writes the rows. An empty cell is a missing value.
//! Design: docs/ARCHITECTURE.md, "Import and export".

mod calendar;
mod cells;
mod column_census;
mod columns;
mod csv_type;
mod interpretation;
mod key_search;
mod layout;
mod lines;
mod numeral;
mod options;
mod records;
mod row_writer;
mod sections;
mod survey;
mod text_encoding;
mod time_form;
mod titles;

use std::path::{Path, PathBuf};

pub use super::row_times::RowOrder;
pub use calendar::DateOrder;
pub use columns::CsvColumns;
pub use csv_type::CsvType;
pub use interpretation::{ColumnCheck, CsvCheck, GapCheck, TimeCheck};
pub use numeral::DecimalMark;
pub use options::CsvOptions;
pub use text_encoding::TextEncoding;
pub use time_form::TimeForm;

use cells::{Cells, split_line};
use column_census::ColumnReading;
use columns::{CsvHeader, has_row_names, header_error};
use flatcap_format::storage::Storage;
use interpretation::Interpretation;
use layout::{CsvLayout, StatedLayout, numbered_lines};
use records::{CsvRecords, RowShape};
use row_writer::CsvRowWriter;
use survey::{Survey, Surveyed};
use text_encoding::DecodedInput;
use titles::zone_of_title;

use super::findings::{FindingKind, ImportFindings, option_with};
use super::local_clock::{LocalZone, ZoneOrigin};
use super::source_name::{given_names, source_names};
use super::{ImportError, ImportJob, ImportLimits, ImportProgress, ImportReport, RunWriter};

/// Length of the start of a file that is examined for the layout, in bytes.
const START_BYTES: usize = 64 << 10;
/// Number of rows that are examined for the time columns.
const SAMPLE_ROWS: usize = 100;

/// Imports each file as a run.
///
/// Skips and reports rows with an invalid time, and rows with more or fewer cells than the header.
/// A skipped row still takes a sequence number of its source. A cell with another type than its
/// column is reported, and its value is missing. The importer holds only one row in memory. If the
/// importer must sort the rows by time, it holds all rows of a file.
///
/// # Errors
/// Any [`ImportError`]. Samples imported before the error are kept.
pub fn import(
    files: &[PathBuf],
    options: &CsvOptions,
    job: ImportJob<'_, '_>,
) -> Result<ImportReport, ImportError> {
    let names = match &options.names[..] {
        [] => source_names(files, "csv"),
        given => given_names(given, files.len())?,
    };
    let ImportJob { storage, limits, progress } = job;
    let mut importer = CsvImporter { options, progress, report: ImportReport::default(), frames: 0 };
    for (path, name) in files.iter().zip(names) {
        match importer.import_file(path, name, (storage, &limits)) {
            Err(ImportError::Stopped) => {
                importer.report.stopped = true;
                break;
            }
            ended => ended?,
        }
    }
    Ok(importer.report)
}

/// Returns how the files would be imported, with a finding for each assumption. Writes nothing.
///
/// # Errors
/// Any [`ImportError`] except write errors.
pub fn check(
    files: &[PathBuf],
    options: &CsvOptions,
    progress: ImportProgress<'_>,
) -> Result<(ImportReport, Vec<CsvCheck>), ImportError> {
    let mut importer = CsvImporter { options, progress, report: ImportReport::default(), frames: 0 };
    let mut checks = Vec::new();
    for path in files {
        let mut findings = ImportFindings::new(path);
        let surveyed = importer.survey(path, options.encoding, &mut findings);
        importer.report.findings.extend(findings.into_sorted());
        match surveyed {
            Ok(None) => {}
            Ok(Some(Surveyed { check, damage, .. })) => {
                checks.push(check);
                if let Some((offset, what)) = damage {
                    importer.report.add_flaw(path, offset, None, what);
                }
            }
            Err(ImportError::Stopped) => {
                importer.report.stopped = true;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok((importer.report, checks))
}

/// An import in progress.
struct CsvImporter<'a, 'w> {
    options: &'a CsvOptions,
    progress: ImportProgress<'w>,
    report: ImportReport,
    frames: u64, // recorded
}

/// A file whose header was read.
struct OpenFile {
    records: CsvRecords,
    encoding: TextEncoding,
    layout: CsvLayout,
    header: CsvHeader,
    /// The header record.
    titles: Cells,
}

impl CsvImporter<'_, '_> {
    /// Imports a file as a separate run, because the times of several files may overlap.
    fn import_file(
        &mut self,
        path: &Path,
        name: String,
        (storage, limits): (&dyn Storage, &ImportLimits),
    ) -> Result<(), ImportError> {
        let mut findings = ImportFindings::new(path);
        let run = RunWriter::begin(storage, limits.clone())?;
        let result = if path.is_file() {
            self.import_seen_file(path, name, run, &mut findings)
        } else {
            self.import_pipe(path, name, run, &mut findings)
        };
        self.report.findings.extend(findings.into_sorted());
        result
    }

    /// Imports a file that can be read twice.
    fn import_seen_file(
        &mut self,
        path: &Path,
        name: String,
        run: RunWriter<'_>,
        findings: &mut ImportFindings,
    ) -> Result<(), ImportError> {
        let Some(surveyed) = self.survey(path, self.options.encoding, findings)? else { return Ok(()) };
        let interpretation = surveyed.interpretation;
        // The first pass has reported these findings already.
        let mut known = ImportFindings::new(path);
        let file = self.open(path, Some(interpretation.encoding), &mut known)?;
        let Some(file) = file else { return Ok(()) };
        self.write_rows((file.records, run), name, &interpretation, None)
    }

    /// Imports a pipe. A pipe cannot be read twice, so options must state the time format and all
    /// types.
    fn import_pipe(
        &mut self,
        path: &Path,
        name: String,
        run: RunWriter<'_>,
        findings: &mut ImportFindings,
    ) -> Result<(), ImportError> {
        let Some(file) = self.open(path, self.options.encoding, findings)? else { return Ok(()) };
        let (records, interpretation) = self.stated(path, file)?;
        self.write_rows((records, run), name, &interpretation, Some(findings))
    }

    fn write_rows(
        &mut self,
        (mut records, run): (CsvRecords, RunWriter<'_>),
        name: String,
        interpretation: &Interpretation,
        findings: Option<&mut ImportFindings>,
    ) -> Result<(), ImportError> {
        let path = records.path().to_owned();
        self.report.recognized.push(format!("{}: {}", path.display(), interpretation.described()));
        let mut writer = CsvRowWriter::begin(run, (&path, name), interpretation)?;
        let frames = self.frames;
        let result = loop {
            let record = match records.next() {
                Ok(Some(record)) => record,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if Some(record.line) == interpretation.layout.units_line {
                continue;
            }
            writer.write(&record, &mut self.report)?;
            self.frames = frames + writer.frames();
            if !self.progress.should_continue(self.frames) {
                break Err(ImportError::Stopped);
            }
        };
        // Rows that were read before an error are sealed.
        self.report.totals.add(writer.finish(findings)?.finish()?);
        result?;
        self.end(&path, &records);
        Ok(())
    }

    /// Adds the length of a file to the report, and a flaw if its end could not be read.
    fn end(&mut self, path: &Path, records: &CsvRecords) {
        self.report.bytes += records.bytes_read();
        if let Some(damage) = records.damage() {
            self.report.add_flaw(path, records.offset(), None, damage);
        }
    }

    /// Runs the first pass, which reads the whole file and decides its interpretation. Returns
    /// `None` if the file is empty.
    fn survey(
        &mut self,
        path: &Path,
        encoding: Option<TextEncoding>,
        findings: &mut ImportFindings,
    ) -> Result<Option<Surveyed>, ImportError> {
        let mut own = ImportFindings::new(path);
        let Some(file) = self.open(path, encoding, &mut own)? else { return Ok(None) };
        let OpenFile { mut records, encoding, layout, header, titles } = file;
        let zone = self.zone(&layout, &header);
        let (units_line, header_line) = (layout.units_line, layout.header_line);
        let mut survey = Survey::new(self.options, encoding, (layout, header), zone);
        survey.add_header(&titles, header_line);
        while let Some(record) = records.next()? {
            if Some(record.line) != units_line {
                survey.add(&record);
            }
            if !self.progress.should_continue(self.frames) {
                return Err(ImportError::Stopped);
            }
        }
        if let Some((other, of)) = survey.other_encoding().filter(|_| path.is_file()) {
            let what = "bytes are no UTF-8; the text is taken for Latin-1 (Windows-1252)";
            let option = Some(format!("--encoding {}", other.name()));
            findings.add(FindingKind::Encoding, of, what, option);
            return self.survey(path, Some(other), findings);
        }
        findings.append(own);
        let surveyed = survey.finish(path, findings)?;
        let damage = records.damage().map(|what| (records.offset(), what.to_owned()));
        Ok(Some(Surveyed { damage, ..surveyed }))
    }

    /// Opens a file and reads its header. Returns `None` if the file is empty, or damaged before
    /// the end of the header.
    fn open(
        &mut self,
        path: &Path,
        encoding: Option<TextEncoding>,
        findings: &mut ImportFindings,
    ) -> Result<Option<OpenFile>, ImportError> {
        let opened = DecodedInput::open(self.progress.open(path)?, START_BYTES, !path.is_file());
        let mut input = opened.map_err(ImportError::read(path))?;
        if let Some(encoding) = encoding {
            input.set_encoding(encoding);
        }
        let encoding = input.encoding();
        let start = input.start_text();
        let is_whole = input.start().len() < START_BYTES;
        let columns = &self.options.columns;
        let stated = StatedLayout {
            delimiter: self.options.delimiter,
            skip_lines: self.options.skip_lines,
            time: &columns.time,
        };
        let layout =
            CsvLayout::find(&start, is_whole, &stated, findings).map_err(|what| header_error(path, &what))?;
        let mut records = CsvRecords::new(input, layout.delimiter);
        for _ in 1..layout.header_line {
            records.next_line()?;
        }
        let Some(titles) = records.header()? else {
            self.end(path, &records);
            return Ok(None);
        };
        let after = numbered_lines(&start).skip_while(|(number, _)| *number <= layout.header_line);
        let rows: Vec<Cells> = after
            .map(|(_, line)| line)
            .filter(|line| !line.starts_with(b"#"))
            .filter_map(|line| split_line(line, layout.delimiter))
            .filter(|cells| cells.len() >= titles.len())
            .take(SAMPLE_ROWS)
            .collect();
        let mut names: Vec<String> =
            titles.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect();
        if has_row_names(&names, &rows) {
            names.insert(0, String::new());
        }
        let mut header = CsvHeader::new(names, columns, &rows).map_err(|what| header_error(path, &what))?;
        header.has_comment_mark = records.has_comment_mark();
        if let Some(units) = layout.units_line {
            let line = numbered_lines(&start).find(|(number, _)| *number == units);
            let cells = line.and_then(|(_, line)| split_line(line, layout.delimiter));
            header.add_units(&cells.unwrap_or_default());
        }
        let time_form = self.options.time_form.clone();
        records.set_shape(RowShape { width: header.row_width(), time: header.time_parts(), time_form });
        Ok(Some(OpenFile { records, encoding, layout, header, titles }))
    }

    /// Returns the zone of times without an offset. An option states this zone, the file names it,
    /// or it is the zone of the host.
    fn zone(&self, layout: &CsvLayout, header: &CsvHeader) -> LocalZone {
        if let Some(zone) = &self.options.zone {
            return LocalZone::new(zone.clone(), ZoneOrigin::Option);
        }
        let titles = header.time.iter().find_map(|at| zone_of_title(header.title(*at)));
        let host_zone = &self.options.host_zone;
        match titles.or(layout.zone.as_deref()) {
            Some(name) => LocalZone::of_file(name, host_zone),
            None => LocalZone::new(host_zone.clone(), ZoneOrigin::Host),
        }
    }

    /// Returns the interpretation of an input that is a pipe. Options must state its time format
    /// and all types.
    fn stated(&self, path: &Path, file: OpenFile) -> Result<(CsvRecords, Interpretation), ImportError> {
        let OpenFile { records, encoding, layout, header, .. } = file;
        let untyped = header.untyped();
        if !untyped.is_empty() {
            let each: Vec<String> =
                untyped.iter().map(|title| option_with("--type", &format!("{title}=float"))).collect();
            let what = format!(
                "types are found by reading the input twice, which a pipe does not allow; import a file, or state \
                 the type of all columns (--type float) or of each ({})",
                each.join(" ")
            );
            return Err(header_error(path, &what));
        }
        let Some(time_form) = self.options.time_form.clone() else {
            let what = "the form of times is found by reading the input twice; state it with --time-format";
            return Err(header_error(path, what));
        };
        if self.options.order == Some(RowOrder::Time) {
            let what = "rows of a pipe are not sorted: import a file, or omit --order time";
            return Err(header_error(path, what));
        }
        let reading =
            |csv_type| ColumnReading { csv_type, unit: None, absent: Vec::new(), uses_all_bits: false };
        let readings = header.columns.iter().filter_map(|column| column.stated).map(reading).collect();
        let zone = self.zone(&layout, &header);
        let interpretation = Interpretation {
            encoding,
            layout,
            keys: header.keys.clone().unwrap_or_default(),
            header,
            decimal: self.options.decimal.unwrap_or(DecimalMark::Point),
            readings,
            time_form,
            by_digits: false,
            zone,
            uses_zone: false,
            order: RowOrder::File,
            is_newest_first: false,
            absent: self.options.absent.clone(),
        };
        Ok((records, interpretation))
    }
}

#[cfg(test)]
mod tests;
