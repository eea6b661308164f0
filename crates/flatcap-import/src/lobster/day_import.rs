//! Imports one pair of a message file and an order-book file as one run, row by row. Each message
//! is recorded before the order book that results from it.

use std::path::PathBuf;

use flatcap_format::schema::segment::GapCause;
use jiff::civil::Date;

use super::file_name;
use super::input_file::LobsterFile;
use super::lines::{LineReader, LineText};
use super::row::{self, LEVEL_BYTES, LINE_BYTES_MAX, MessageRow, RowError, RowTime};
use super::templates::{MESSAGE, MessageTemplate, ORDER_BOOK, OrderBookTemplate, SCHEMA};
use crate::{ImportError, ImportJob, ImportReport, ImportSource, RunWriter};

/// Number of columns of a message row.
const MESSAGE_COLUMNS: usize = 6;

/// Options of a LOBSTER import.
#[derive(Debug, Clone, Default)]
pub struct LobsterOptions {
    /// The symbol of all files, which overrides the symbols in their names.
    pub symbol: Option<String>,
    /// The date of all files, which overrides the dates in their names. If neither the option nor
    /// the name gives a date, times are relative to 1970-01-01, UTC.
    pub date: Option<Date>,
}

/// State shared by all days of an import.
pub(super) struct LobsterImport<'a, 'w> {
    pub(super) job: ImportJob<'a, 'w>,
    pub(super) options: &'a LobsterOptions,
    /// Midnight of the date given by the options.
    pub(super) midnight_ns: Option<i64>,
    pub(super) report: ImportReport,
    /// Number of frames recorded for previous days.
    pub(super) frames: u64,
}

impl LobsterImport<'_, '_> {
    /// Imports a message file, an order-book file or both as one run.
    ///
    /// # Errors
    /// Any [`ImportError`].
    pub(super) fn import_day(
        &mut self,
        message: Option<LobsterFile>,
        book: Option<LobsterFile>,
    ) -> Result<(), ImportError> {
        let mut recording = RunWriter::begin(self.job.storage, self.job.limits.clone())?;
        let file_name = [&message, &book].into_iter().flatten().find_map(|part| part.name.clone());
        let named_ns = file_name.as_ref().and_then(|name| file_name::midnight_ns(name.date));
        let levels = book.as_ref().or(message.as_ref()).and_then(LobsterFile::levels);
        let symbol = self.options.symbol.clone().or(file_name.as_ref().map(|name| name.symbol.clone()));
        let date = self.options.date.or(file_name.as_ref().map(|name| name.date));
        let source = |kind: &str, root: &str| {
            let labels = [
                ("symbol", symbol.clone()),
                ("date", date.map(|date| date.to_string())),
                ("levels", levels.map(|levels| levels.to_string())),
            ];
            ImportSource {
                name: format!("{}-{kind}", symbol.as_deref().unwrap_or("lobster")),
                labels: labels
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
                    .collect(),
                root: root.to_owned(),
                schema: SCHEMA.to_vec(),
            }
        };
        let messages = message
            .map(|part| {
                let model = MessageTemplate::new();
                let file = self.open(part, MESSAGE_COLUMNS)?;
                check_fits(&recording, model.payload_bytes())?;
                Ok(MessageInput { source: recording.add_source(source("message", MESSAGE))?, model, file })
            })
            .transpose()?;
        let books = book
            .map(|part| {
                let levels = part.levels().unwrap_or(1);
                let model = OrderBookTemplate::new(levels);
                let file = self.open(part, levels * LEVEL_BYTES / size_of::<i64>())?;
                check_fits(&recording, model.payload_bytes())?;
                let source = recording.add_source(source("orderbook", ORDER_BOOK))?;
                Ok(BookInput { source, model, levels: vec![0; levels * LEVEL_BYTES], file })
            })
            .transpose()?;
        let midnight_ns = self.midnight_ns.or(named_ns).unwrap_or(0);
        DayImport { recording, messages, books, midnight_ns, last_wall_ns: midnight_ns }.import(self)
    }

    fn open(&self, part: LobsterFile, columns: usize) -> Result<RowReader, ImportError> {
        let lines = match part.lines {
            Some(lines) => lines,
            None => LineReader::new(part.location.open(self.job.progress.context())?),
        };
        Ok(RowReader {
            path: lines.path().to_owned(),
            lines,
            columns,
            is_first: true,
            has_ended: false,
            missing: 0,
        })
    }
}

fn check_fits(recording: &RunWriter<'_>, payload_bytes: usize) -> Result<(), ImportError> {
    if recording.fits(payload_bytes) {
        return Ok(());
    }
    Err(ImportError::Options(format!(
        "rows of {payload_bytes} bytes exceed the frame limit; raise frame_max"
    )))
}

/// A run that is being imported.
struct DayImport<'s> {
    recording: RunWriter<'s>,
    messages: Option<MessageInput>,
    books: Option<BookInput>,
    midnight_ns: i64,
    last_wall_ns: i64, // of the previous row; midnight before the first
}

struct MessageInput {
    file: RowReader,
    source: u16,
    model: MessageTemplate,
}

struct BookInput {
    file: RowReader,
    source: u16,
    model: OrderBookTemplate,
    levels: Vec<u8>, // of the row that was read last
}

/// A row, a damaged row, or the end of the file.
type NextRow<Row> = Option<Result<Row, DamagedRow>>;

/// A damaged row, with its time if the time is valid.
#[derive(Clone, Copy)]
struct DamagedRow(Option<RowTime>);

impl DayImport<'_> {
    fn import(mut self, work: &mut LobsterImport<'_, '_>) -> Result<(), ImportError> {
        let mut finer_times: u64 = 0;
        let mut seventh_columns: u64 = 0;
        let mut unpaired_books: u64 = 0;
        loop {
            let (message, book) = match self.next_rows(work) {
                Err(ImportError::Stopped) => {
                    work.report.stopped = true;
                    break;
                }
                rows => rows?,
            };
            if let Some(Ok(row)) = &message {
                finer_times += u64::from(row.time.is_truncated);
                seventh_columns += u64::from(row.has_extra_column);
            }
            unpaired_books += u64::from(self.messages.is_none() && book.is_some());
            if message.is_none() && book.is_none() {
                break;
            }
            self.record_rows(message, book)?;
        }
        let Self { recording, messages, books, .. } = self;
        work.frames += recording.frames();
        let files = [messages.map(|messages| messages.file), books.map(|books| books.file)];
        for (what, count) in [
            ("digits of times below a nanosecond (kept in the field time)", finer_times),
            ("seventh columns of messages", seventh_columns),
            ("times of order books (no message file)", unpaired_books),
        ] {
            if count > 0 {
                *work.report.skipped.entry(what).or_default() += count;
            }
        }
        for file in files.into_iter().flatten() {
            work.report.bytes += file.lines.offset();
            if file.missing > 0 {
                let what =
                    "the file has fewer rows than its partner; the partner's other rows are imported alone";
                work.report.add_flaw(&file.path, file.lines.offset(), Some(file.missing), what);
            }
        }
        let written = recording.finish()?;
        work.report.totals.sources.extend(written.sources);
        work.report.totals.segments += written.segments;
        work.report.totals.bytes += written.bytes;
        Ok(())
    }

    /// Reads the next row of each file. Both rows have the same index.
    #[inline]
    fn next_rows(
        &mut self,
        work: &mut LobsterImport<'_, '_>,
    ) -> Result<(NextRow<MessageRow>, NextRow<()>), ImportError> {
        if !work.job.progress.should_continue(work.frames + self.recording.frames()) {
            return Err(ImportError::Stopped);
        }
        let message = match &mut self.messages {
            Some(messages) => messages.file.next(&mut work.report, row::parse_message)?,
            None => None,
        };
        let book = match &mut self.books {
            Some(BookInput { file, levels, .. }) => file.next(&mut work.report, |line| {
                row::parse_order_book(line, levels).map_err(|fault| (fault, None))
            })?,
            None => None,
        };
        Ok((message, book))
    }

    /// Records one row of each file. Both rows have the same index.
    #[inline]
    fn record_rows(&mut self, message: NextRow<MessageRow>, book: NextRow<()>) -> Result<(), ImportError> {
        let time = match &message {
            Some(Ok(row)) => Some(row.time),
            Some(Err(DamagedRow(time))) => *time,
            None => None,
        };
        if let Some(time) = time {
            // The sum cannot overflow. A date is accepted only if the time two days after its
            // midnight fits into 64 bits, and times are less than SECONDS_MAX.
            self.last_wall_ns = self.midnight_ns.saturating_add(time.ns.cast_signed());
        }
        let wall_ns = self.last_wall_ns;
        if let Some(MessageInput { file, source, model }) = &mut self.messages {
            match message {
                Some(Ok(row)) => {
                    let fill = |payload: &mut [u8]| model.fill(&row, payload);
                    self.recording.append(*source, wall_ns, model.payload_bytes(), fill)?;
                }
                other => self.recording.skip(*source, 1, file.loss_cause(other.is_some())),
            }
        }
        if let Some(BookInput { file, source, model, levels }) = &mut self.books {
            match book {
                Some(Ok(())) => {
                    let seconds = time.map_or(0.0, |time| time.seconds);
                    let fill = |payload: &mut [u8]| model.fill(seconds, levels, payload);
                    self.recording.append(*source, wall_ns, model.payload_bytes(), fill)?;
                }
                other => self.recording.skip(*source, 1, file.loss_cause(other.is_some())),
            }
        }
        Ok(())
    }
}

/// A file that is read row by row.
struct RowReader {
    path: PathBuf,
    lines: LineReader,
    columns: usize,
    is_first: bool,
    has_ended: bool,
    missing: u64, // rows that only its partner has
}

impl RowReader {
    /// Returns the next row, parsed by `parse`. Reports invalid rows.
    #[inline]
    fn next<Row>(
        &mut self,
        report: &mut ImportReport,
        mut parse: impl FnMut(&[u8]) -> Result<Row, (RowError, Option<RowTime>)>,
    ) -> Result<NextRow<Row>, ImportError> {
        if self.has_ended {
            return Ok(None);
        }
        while let Some(line) = self.lines.next()? {
            let is_first = std::mem::replace(&mut self.is_first, false);
            let (what, time) = match line.text {
                LineText::Complete(text) | LineText::Unended(text) => match parse(text) {
                    Ok(row) => return Ok(Some(Ok(row))),
                    Err(_) if is_first && row::is_header(text, self.columns) => {
                        report.count_skipped("header lines");
                        continue;
                    }
                    Err((RowError(what), time)) if matches!(line.text, LineText::Unended(_)) => {
                        (format!("the last row is cut off: {what}"), time)
                    }
                    Err((RowError(what), time)) => (what, time),
                },
                LineText::Blank => ("an empty line among the rows".to_owned(), None),
                LineText::TooLong => (format!("a line of more than {LINE_BYTES_MAX} bytes"), None),
            };
            report.add_flaw(&self.path, line.offset, Some(1), what);
            return Ok(Some(Err(DamagedRow(time))));
        }
        self.has_ended = true;
        if let Some(damage) = self.lines.damage() {
            let what = format!("the compressed data is damaged or truncated here: {damage}");
            report.add_flaw(&self.path, self.lines.offset(), None, what);
        }
        Ok(None)
    }

    /// Returns the cause of a lost row. The row is damaged, or it is missing because the file has
    /// ended.
    #[cold]
    fn loss_cause(&mut self, is_there: bool) -> GapCause {
        self.missing += u64::from(!is_there);
        if is_there || self.lines.damage().is_some() { GapCause::Damaged } else { GapCause::NotReceived }
    }
}
