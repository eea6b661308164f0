//! One pair of files becomes one run: row by row, the message in front of its book.

use std::path::PathBuf;

use super::lines::{Lines, Text};
use super::model::{MESSAGE, MessageModel, ORDER_BOOK, OrderBookModel, SCHEMA};
use super::row::{self, Fault, LEVEL_BYTES, LINE_BYTES_MAX, Message, Time};
use super::{Kind, Options, Part};
use crate::import::{ImportError, Job, Recording, Report, Source};
use crate::schema::segment::GapCause;

/// Columns of a message.
const MESSAGE_COLUMNS: usize = 6;

/// What all days share.
pub(super) struct Work<'a, 'w> {
    pub(super) job: Job<'a, 'w>,
    pub(super) options: &'a Options,
    /// Of the day that the options name.
    pub(super) midnight_ns: Option<i64>,
    pub(super) report: Report,
    /// Recorded on the days before.
    pub(super) frames: u64,
}

impl Work<'_, '_> {
    /// Imports a message file, an order-book file or both as one run.
    ///
    /// # Errors
    /// Every kind of [`ImportError`].
    pub(super) fn day(&mut self, message: Option<Part>, book: Option<Part>) -> Result<(), ImportError> {
        let mut recording = Recording::begin(self.job.storage, self.job.plan.clone())?;
        let named = [&message, &book].into_iter().flatten().find_map(|part| part.name.clone());
        let named_ns = named.as_ref().and_then(|name| super::name::midnight_ns(name.date));
        let levels = book.as_ref().or(message.as_ref()).and_then(Part::levels);
        let symbol = self.options.symbol.clone().or(named.as_ref().map(|name| name.symbol.clone()));
        let date = self.options.date.or(named.as_ref().map(|name| name.date));
        let source = |kind: &str, root: &str| {
            let labels = [
                ("symbol", symbol.clone()),
                ("date", date.map(|date| date.to_string())),
                ("levels", levels.map(|levels| levels.to_string())),
            ];
            Source {
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
                let model = MessageModel::new();
                let file = self.open(part, MESSAGE_COLUMNS)?;
                takes(&recording, model.payload_bytes())?;
                Ok(Messages { source: recording.add_source(source("message", MESSAGE))?, model, file })
            })
            .transpose()?;
        let books = book
            .map(|part| {
                let levels = part.levels().unwrap_or(1);
                let model = OrderBookModel::new(levels);
                let file = self.open(part, levels * LEVEL_BYTES / size_of::<i64>())?;
                takes(&recording, model.payload_bytes())?;
                let source = recording.add_source(source("orderbook", ORDER_BOOK))?;
                Ok(OrderBooks { source, model, levels: vec![0; levels * LEVEL_BYTES], file })
            })
            .transpose()?;
        let midnight_ns = self.midnight_ns.or(named_ns).unwrap_or(0);
        Day { recording, messages, books, midnight_ns, last_wall_ns: midnight_ns }.import(self)
    }

    fn open(&self, part: Part, columns: usize) -> Result<RowFile, ImportError> {
        let lines = match part.opened {
            Some(lines) => lines,
            None => Lines::new(part.place.open(self.job.course.counter())?),
        };
        Ok(RowFile {
            path: lines.path().to_owned(),
            lines,
            columns,
            is_first: true,
            has_ended: false,
            missing: 0,
        })
    }
}

fn takes(recording: &Recording<'_>, payload_bytes: usize) -> Result<(), ImportError> {
    if recording.takes(payload_bytes) {
        return Ok(());
    }
    Err(ImportError::Options(format!(
        "rows of {payload_bytes} bytes do not fit into the longest frame: raise its limit"
    )))
}

impl Part {
    /// How many levels the rows have or, of messages, the name says that they are about.
    fn levels(&self) -> Option<usize> {
        match self.kind {
            Kind::OrderBook(levels) => Some(levels),
            Kind::Message => self.name.as_ref().map(|name| name.levels),
        }
    }
}

/// A run in the making.
struct Day<'s> {
    recording: Recording<'s>,
    messages: Option<Messages>,
    books: Option<OrderBooks>,
    midnight_ns: i64,
    last_wall_ns: i64, // of the row before; midnight before the first
}

struct Messages {
    file: RowFile,
    source: u16,
    model: MessageModel,
}

struct OrderBooks {
    file: RowFile,
    source: u16,
    model: OrderBookModel,
    levels: Vec<u8>, // of the row that was read last
}

/// A row that was read, one that is damaged, or the end.
type Next<Row> = Option<Result<Row, Damaged>>;

/// Of a damaged row nothing is known but, if that much is right, its time.
#[derive(Clone, Copy)]
struct Damaged(Option<Time>);

impl Day<'_> {
    fn import(mut self, work: &mut Work<'_, '_>) -> Result<(), ImportError> {
        let mut finer: u64 = 0;
        let mut seventh: u64 = 0;
        let mut unpaired: u64 = 0;
        loop {
            if !work.job.course.goes_on(work.frames + self.recording.frames()) {
                work.report.stopped = true;
                break;
            }
            let message = match &mut self.messages {
                Some(messages) => messages.file.next(&mut work.report, row::message)?,
                None => None,
            };
            let book = match &mut self.books {
                Some(OrderBooks { file, levels, .. }) => file.next(&mut work.report, |line| {
                    row::order_book(line, levels).map_err(|fault| (fault, None))
                })?,
                None => None,
            };
            if let Some(Ok(row)) = &message {
                finer += u64::from(row.time.is_finer);
                seventh += u64::from(row.has_more);
            }
            unpaired += u64::from(self.messages.is_none() && book.is_some());
            if message.is_none() && book.is_none() {
                break;
            }
            self.rows(message, book)?;
        }
        let Self { recording, messages, books, .. } = self;
        work.frames += recording.frames();
        let files = [messages.map(|messages| messages.file), books.map(|books| books.file)];
        for (what, count) in [
            ("digits of times beyond the nanosecond, kept in the double alone", finer),
            ("seventh columns of messages, which LOBSTER's structure has not", seventh),
            ("times of order books, for want of a message file", unpaired),
        ] {
            if count > 0 {
                *work.report.passed_over.entry(what).or_default() += count;
            }
        }
        for file in files.into_iter().flatten() {
            work.report.bytes += file.lines.offset();
            if file.missing > 0 {
                let what =
                    "it has fewer rows than its partner: the rest of the partner's is imported without it";
                work.report.flaw(&file.path, file.lines.offset(), Some(file.missing), what);
            }
        }
        let written = recording.finish()?;
        work.report.written.sources.extend(written.sources);
        work.report.written.segments += written.segments;
        work.report.written.bytes += written.bytes;
        Ok(())
    }

    /// Records row k of both files.
    #[inline]
    fn rows(&mut self, message: Next<Message>, book: Next<()>) -> Result<(), ImportError> {
        let time = match &message {
            Some(Ok(row)) => Some(row.time),
            Some(Err(Damaged(time))) => *time,
            None => None,
        };
        if let Some(time) = time {
            // Fewer than SECONDS_MAX, which midnight leaves room for.
            self.last_wall_ns = self.midnight_ns.saturating_add(time.ns.cast_signed());
        }
        let wall_ns = self.last_wall_ns;
        if let Some(Messages { file, source, model }) = &mut self.messages {
            match message {
                Some(Ok(row)) => {
                    let fill = |payload: &mut [u8]| model.fill(&row, payload);
                    self.recording.append(*source, wall_ns, model.payload_bytes(), fill)?;
                }
                other => self.recording.skip(*source, 1, file.lost(other.is_some())),
            }
        }
        if let Some(OrderBooks { file, source, model, levels }) = &mut self.books {
            match book {
                Some(Ok(())) => {
                    let seconds = time.map_or(0.0, |time| time.seconds);
                    let fill = |payload: &mut [u8]| model.fill(seconds, levels, payload);
                    self.recording.append(*source, wall_ns, model.payload_bytes(), fill)?;
                }
                other => self.recording.skip(*source, 1, file.lost(other.is_some())),
            }
        }
        Ok(())
    }
}

/// A file that is read row by row.
struct RowFile {
    path: PathBuf,
    lines: Lines,
    columns: usize,
    is_first: bool,
    has_ended: bool,
    missing: u64, // rows that its partner has and it has not
}

impl RowFile {
    /// The next row, as `parse` reads it. What is wrong is in the report.
    #[inline]
    fn next<Row>(
        &mut self,
        report: &mut Report,
        mut parse: impl FnMut(&[u8]) -> Result<Row, (Fault, Option<Time>)>,
    ) -> Result<Next<Row>, ImportError> {
        if self.has_ended {
            return Ok(None);
        }
        while let Some(line) = self.lines.next()? {
            let is_first = std::mem::replace(&mut self.is_first, false);
            let (what, time) = match line.text {
                Text::Whole(text) | Text::Unended(text) => match parse(text) {
                    Ok(row) => return Ok(Some(Ok(row))),
                    Err(_) if is_first && row::is_header(text, self.columns) => {
                        report.pass_over("lines that name columns");
                        continue;
                    }
                    Err((Fault(what), time)) if matches!(line.text, Text::Unended(_)) => {
                        (format!("the last row is cut off: {what}"), time)
                    }
                    Err((Fault(what), time)) => (what, time),
                },
                Text::Blank => ("an empty line among the rows".to_owned(), None),
                Text::Long => (format!("a line of more than {LINE_BYTES_MAX} bytes"), None),
            };
            report.flaw(&self.path, line.offset, Some(1), what);
            return Ok(Some(Err(Damaged(time))));
        }
        self.has_ended = true;
        if let Some(damage) = self.lines.damage() {
            let what = format!("what is packed ends here, damaged or cut off: {damage}");
            report.flaw(&self.path, self.lines.offset(), None, what);
        }
        Ok(None)
    }

    /// Why a row is not recorded that is there or that, since the file has ended, is not.
    #[cold]
    fn lost(&mut self, is_there: bool) -> GapCause {
        self.missing += u64::from(!is_there);
        if is_there || self.lines.damage().is_some() { GapCause::Damaged } else { GapCause::NotReceived }
    }
}
