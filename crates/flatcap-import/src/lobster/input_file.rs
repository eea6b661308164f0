//! The input files. This module recognizes the kind of a text's rows by content and name, also
//! within archives.

use std::path::Path;

use super::archive::{self, TextLocation};
use super::file_name::LobsterName;
use super::lines::LineReader;
use super::row::{self, LEVELS_MAX, RowKind};
use crate::input::InputContext;
use crate::{ImportError, ImportProgress, ImportReport};

/// First bytes of a ZIP archive with entries, and of an empty archive.
const ZIP_MAGICS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// First bytes of a 7z archive, the format in which LOBSTER delivers large requests.
const SEVEN_ZIP_MAGIC: &[u8] = b"7z\xBC\xAF\x27\x1C";

/// A text with rows of one kind.
#[derive(Debug)]
pub(super) struct LobsterFile {
    pub(super) location: TextLocation,
    pub(super) name: Option<LobsterName>,
    pub(super) kind: RowKind,
    /// The open reader of standard input or of a pipe, which cannot be opened again. `None` for
    /// other files.
    pub(super) lines: Option<LineReader>,
}

impl LobsterFile {
    /// Returns the number of levels of the rows. For messages, this is the number in the file name.
    pub(super) fn levels(&self) -> Option<usize> {
        match self.kind {
            RowKind::OrderBook(levels) => Some(levels),
            RowKind::Message => self.name.as_ref().map(|name| name.levels),
        }
    }
}

/// Finds the LOBSTER files in an input file and appends them to `parts`.
pub(super) fn inspect_file(
    path: &Path,
    course: &ImportProgress<'_>,
    parts: &mut Vec<LobsterFile>,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let place = TextLocation::File(path.to_owned());
    let is_pipe =
        path.as_os_str() == "-" || std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    // The importer reads a regular file again later, and counts its bytes then.
    let context = if is_pipe { course.context() } else { InputContext::default() };
    let mut lines = LineReader::new(place.open(context)?);
    let start = lines.peek()?;
    let refuse = |what: &str| Err(ImportError::Kind { path: path.to_owned(), what: what.to_owned() });
    if start.starts_with(SEVEN_ZIP_MAGIC) {
        return refuse("a 7z archive: unpack it first");
    }
    if ZIP_MAGICS.iter().any(|magic| start.starts_with(magic)) {
        return if is_pipe {
            refuse(
                "a ZIP archive cannot be read from standard input or a pipe, because two of its entries are read at once; give it as a file",
            )
        } else if lines.is_packed() {
            refuse("a ZIP archive within gzip; decompress it first")
        } else {
            inspect_archive(path, parts, report)
        };
    }
    let name = place.file_name().and_then(LobsterName::parse);
    match detect_content(&mut lines, name.as_ref())? {
        TextContent::Rows(kind) => {
            let opened = is_pipe.then_some(lines);
            parts.push(LobsterFile { location: place, name, kind, lines: opened });
        }
        TextContent::Empty => report.count_skipped("empty files"),
        TextContent::Damaged(damage) => {
            report.add_flaw(path, 0, None, format!("nothing can be decompressed: {damage}"));
        }
        TextContent::Other => {
            return refuse(&format!(
                "neither a LOBSTER message file (rows of 6 columns: time, event type, order ID, size, price, direction) nor an order-book \
                 file (rows of 4 whole numbers for each of at most {LEVELS_MAX} levels)"
            ));
        }
    }
    Ok(())
}

/// Finds the LOBSTER files in an archive and appends them to `parts`.
fn inspect_archive(
    path: &Path,
    parts: &mut Vec<LobsterFile>,
    report: &mut ImportReport,
) -> Result<(), ImportError> {
    let contents = archive::contents(path)?;
    for (offset, why) in contents.flaws {
        report.add_flaw(path, offset, None, why);
    }
    for entry in contents.entries {
        let place = TextLocation::Entry(path.to_owned(), entry);
        let name = place.file_name().and_then(LobsterName::parse);
        let mut lines = LineReader::new(place.open(InputContext::default())?);
        match detect_content(&mut lines, name.as_ref())? {
            TextContent::Rows(kind) => parts.push(LobsterFile { location: place, name, kind, lines: None }),
            TextContent::Empty => report.count_skipped("empty files"),
            TextContent::Damaged(damage) => {
                report.add_flaw(
                    &place.display_path(),
                    0,
                    None,
                    format!("nothing can be decompressed: {damage}"),
                );
            }
            // Archives of LOBSTER contain an explanatory text file, which is not imported.
            TextContent::Other if name.is_none() => {
                report.count_skipped("archive entries that are not LOBSTER files");
            }
            TextContent::Other => {
                report.add_flaw(
                    &place.display_path(),
                    0,
                    None,
                    "does not begin with a row of a message or an order book",
                );
            }
        }
    }
    Ok(())
}

/// The content of a text.
enum TextContent {
    Rows(RowKind),
    Empty,
    /// A text that is damaged before its kind can be detected.
    Damaged(String),
    Other,
}

/// Detects the content of a text from its first bytes. The kind of an empty text comes from its
/// name.
fn detect_content(lines: &mut LineReader, name: Option<&LobsterName>) -> Result<TextContent, ImportError> {
    let start = lines.peek()?;
    let is_empty = start.iter().all(u8::is_ascii_whitespace);
    Ok(match (detect_kind(start), lines.damage()) {
        (Some(kind), _) => TextContent::Rows(kind),
        (None, Some(damage)) => TextContent::Damaged(damage.to_owned()),
        (None, None) if is_empty => name.map_or(TextContent::Empty, |name| TextContent::Rows(name.kind)),
        (None, None) => TextContent::Other,
    })
}

/// Returns the kind of the rows, which is detected from the first complete row.
fn detect_kind(start: &[u8]) -> Option<RowKind> {
    let lines = start.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.is_empty()).find_map(|line| match row::count_levels(line) {
        Some(levels) => Some(RowKind::OrderBook(levels)),
        None => row::parse_message(line).is_ok().then_some(RowKind::Message),
    })
}
