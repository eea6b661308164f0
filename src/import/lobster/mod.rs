//! LOBSTER: message and order-book files, plain, packed by gzip, or in ZIP archives.
//!
//! Columns, event types and names as in lobsterdata.com/info/DataStructure.php. Whether a file has messages or books is told by its first
//! whole row; symbol and day by its name, because nothing else has them. A message file and an order-book file whose names say the same
//! day are a pair: row k of the book has the time of row k of the messages. Each pair becomes a run of its own, with number k for row k in
//! both sources. Design: docs/ARCHITECTURE.md, "Import".

mod archive;
mod day;
mod lines;
mod model;
mod name;
mod pairing;
mod row;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use jiff::civil::Date;

pub use archive::ENTRIES_MAX;
pub use row::LEVELS_MAX;

use super::{Course, ImportError, Job, Report};
use archive::Place;
use day::Work;
use lines::Lines;
use name::Name;

/// First bytes of a ZIP archive with entries, and of one without.
const ZIP_MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// First bytes of a 7z archive, as which LOBSTER delivers large requests.
const SEVEN_ZIP_MAGIC: &[u8] = b"7z\xBC\xAF\x27\x1C";

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The symbol of all files, whatever their names say.
    pub symbol: Option<String>,
    /// The day of all files, whatever their names say. Without it and without a name that says it times are counted from 1970-01-01, UTC.
    pub date: Option<Date>,
}

/// What the rows of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    /// With so many levels.
    OrderBook(usize),
}

/// A text with rows of one kind.
#[derive(Debug)]
struct Part {
    place: Place,
    name: Option<Name>,
    kind: Kind,
    /// Standard input or a pipe, which cannot be opened again.
    opened: Option<Lines>,
}

/// Imports the files.
///
/// # Errors
/// Every kind of [`ImportError`].
pub fn import(files: &[PathBuf], options: &Options, job: Job<'_, '_>) -> Result<Report, ImportError> {
    if let Some(symbol) = options.symbol.as_deref().filter(|symbol| !name::is_symbol(symbol)) {
        let what = "no symbol: 1 to 32 visible ASCII characters without / and \\, not beginning with a dot";
        return Err(ImportError::Options(format!("symbol {symbol:?}: {what}")));
    }
    let mut report = Report::default();
    let mut parts = Vec::new();
    for path in files {
        look(path, &job.course, &mut parts, &mut report)?;
    }
    if let Some(part) = pairing::repeated(&parts) {
        let path = part.place.path();
        let what =
            format!("{}: another file has the same rows by its name: name one of them", path.display());
        return Err(ImportError::Options(what));
    }
    let pairs = pairing::pairs(&parts);
    let midnight_ns = match options.date {
        Some(date) if pairs.len() > 1 => {
            let what = format!(
                "the date {date} is that of one day, but the files hold {}: import them one by one",
                pairs.len()
            );
            return Err(ImportError::Options(what));
        }
        Some(date) => Some(name::midnight_ns(date).ok_or_else(|| {
            ImportError::Options(format!("the date {date} does not fit: choose one from 1678 to 2261"))
        })?),
        None => None,
    };
    let mut parts: Vec<Option<Part>> = parts.into_iter().map(Some).collect();
    let mut take = |index: Option<usize>| index.and_then(|index| parts.get_mut(index)?.take());
    let mut work = Work { job, options, midnight_ns, report, frames: 0 };
    for (message, book) in pairs {
        if !work.report.stopped {
            work.day(take(message), take(book))?;
        }
    }
    Ok(work.report)
}

/// What a file holds, appended to `parts`.
fn look(
    path: &Path,
    course: &Course<'_>,
    parts: &mut Vec<Part>,
    report: &mut Report,
) -> Result<(), ImportError> {
    let place = Place::File(path.to_owned());
    let is_pipe =
        path.as_os_str() == "-" || std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    // What is read again is counted then.
    let bytes = if is_pipe { course.counter() } else { Rc::default() };
    let mut lines = Lines::new(place.open(bytes)?);
    let begin = lines.peek()?;
    let refuse = |what: &str| Err(ImportError::Kind { path: path.to_owned(), what: what.to_owned() });
    if begin.starts_with(SEVEN_ZIP_MAGIC) {
        return refuse("a 7z archive: unpack it first");
    }
    if ZIP_MAGICS.iter().any(|magic| begin.starts_with(magic)) {
        return if is_pipe {
            refuse(
                "a ZIP archive cannot be read from standard input or a pipe, since two of its entries are read at once: name it as a file",
            )
        } else if lines.is_packed() {
            refuse("a ZIP archive within gzip: unpack it first")
        } else {
            look_into(path, parts, report)
        };
    }
    let name = place.file_name().and_then(Name::parse);
    match found(&mut lines, name.as_ref())? {
        Found::Rows(kind) => {
            let opened = is_pipe.then_some(lines);
            parts.push(Part { place, name, kind, opened });
        }
        Found::Nothing => report.pass_over("empty files"),
        Found::Damage(damage) => report.flaw(path, 0, None, format!("nothing can be unpacked: {damage}")),
        Found::Other => {
            return refuse(&format!(
                "neither a LOBSTER message file (rows of 6 columns: time, event type, order ID, size, price, direction) nor an order-book \
                 file (rows of 4 whole numbers for each of at most {LEVELS_MAX} levels)"
            ));
        }
    }
    Ok(())
}

/// What an archive holds, appended to `parts`.
fn look_into(path: &Path, parts: &mut Vec<Part>, report: &mut Report) -> Result<(), ImportError> {
    let contents = archive::contents(path)?;
    for (offset, why) in contents.flaws {
        report.flaw(path, offset, None, why);
    }
    for entry in contents.entries {
        let place = Place::Entry(path.to_owned(), entry);
        let name = place.file_name().and_then(Name::parse);
        let mut lines = Lines::new(place.open(Rc::default())?);
        match found(&mut lines, name.as_ref())? {
            Found::Rows(kind) => parts.push(Part { place, name, kind, opened: None }),
            Found::Nothing => report.pass_over("empty files"),
            Found::Damage(damage) => {
                report.flaw(&place.path(), 0, None, format!("nothing can be unpacked: {damage}"));
            }
            // Archives bring a text that explains them.
            Found::Other if name.is_none() => {
                report.pass_over("entries of archives that are no LOBSTER files");
            }
            Found::Other => {
                report.flaw(&place.path(), 0, None, "no row of a message or an order book at its begin");
            }
        }
    }
    Ok(())
}

/// What a text holds.
enum Found {
    Rows(Kind),
    Nothing,
    /// Nothing that could be unpacked tells its kind.
    Damage(String),
    Other,
}

/// What a text holds, by its begin. That nothing is in it tells no kind: then its name does.
fn found(lines: &mut Lines, name: Option<&Name>) -> Result<Found, ImportError> {
    let begin = lines.peek()?;
    let is_empty = begin.iter().all(u8::is_ascii_whitespace);
    Ok(match (kind(begin), lines.damage()) {
        (Some(kind), _) => Found::Rows(kind),
        (None, Some(damage)) => Found::Damage(damage.to_owned()),
        (None, None) if is_empty => name.map_or(Found::Nothing, |name| Found::Rows(name.kind)),
        (None, None) => Found::Other,
    })
}

/// What the rows of a file are, by the first whole row of its begin.
fn kind(begin: &[u8]) -> Option<Kind> {
    let lines = begin.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty()).find_map(|line| match row::levels(line) {
        Some(levels) => Some(Kind::OrderBook(levels)),
        None => row::message(line).is_ok().then_some(Kind::Message),
    })
}
