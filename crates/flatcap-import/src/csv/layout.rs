//! The layout of a file, that is, the delimiter and the line of the header.

use super::cells::{Cells, split_line};
use super::csv_type::{NumberClass, number_class};
use super::numeral::{DecimalMark, numeral};
use super::time_form::{TimeForm, is_time_of_day};
use super::titles::{time_rank, zone_of_line};
use crate::findings::{FindingKind, ImportFindings, Tally};

/// Delimiters that are recognized, the most common first.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Maximum number of lines that are examined.
const LINES_MAX: usize = 200;

/// The layout stated by options.
#[derive(Debug, Clone, Default)]
pub(super) struct StatedLayout<'o> {
    pub(super) delimiter: Option<u8>,
    pub(super) skip_lines: Option<u64>,
    /// Titles of the time columns.
    pub(super) time: &'o [String],
}

/// The layout of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CsvLayout {
    pub(super) delimiter: u8,
    /// The line of the header, counted from 1.
    pub(super) header_line: u64,
    /// The line with the units of the columns, after the header.
    pub(super) units_line: Option<u64>,
    /// The zone named in a line before the header.
    pub(super) zone: Option<String>,
}

/// A line at the start of a file.
struct StartLine<'t> {
    number: u64,
    text: &'t [u8],
}

/// The result of splitting the lines with one delimiter.
struct Fit {
    delimiter: u8,
    header_line: u64,
    units_line: Option<u64>,
    has_time: bool,
    /// Whether the header may be a row of values. The header may be a row of values if one of the
    /// titles is a number or a time, and no title suggests a time.
    is_header_row: bool,
    rows: usize,
    width: usize,
}

impl CsvLayout {
    /// Finds the layout from the start of a file, and adds a finding for each assumption.
    ///
    /// # Errors
    /// The error is a message about `--skip-lines`, without the file name.
    pub(super) fn find(
        start: &[u8],
        is_whole: bool,
        stated: &StatedLayout<'_>,
        findings: &mut ImportFindings,
    ) -> Result<Self, String> {
        let (all, skipped) = start_lines(start, is_whole, stated.skip_lines);
        if let Some(skip) = stated.skip_lines.filter(|_| all.is_empty() && !start.is_empty()) {
            let (count, bytes) = (skipped.len(), start.len());
            let of = if is_whole { "the file".to_owned() } else { format!("its first {bytes} bytes") };
            return Err(format!(
                "--skip-lines {skip}: no line is left for the header, since {of} has {count} lines; state fewer"
            ));
        }
        let separator =
            all.first().filter(|_| stated.skip_lines.is_none()).and_then(|line| separator(line.text));
        let lines = all.get(usize::from(separator.is_some())..).unwrap_or_default();
        let delimiters = match stated.delimiter.or(separator) {
            Some(delimiter) => vec![delimiter],
            None => DELIMITERS.to_vec(),
        };
        let mut fits: Vec<Fit> =
            delimiters.into_iter().map(|delimiter| fit(lines, delimiter, stated)).collect();
        // The sort is stable, so the most common delimiter is chosen if several delimiters fit
        // equally well.
        fits.sort_by_key(|fit| std::cmp::Reverse((fit.has_time, fit.width > 1, fit.rows)));
        let first_line = lines.first().map_or(1, |line| line.number);
        let Some(best) = fits.first() else {
            return Ok(Self { delimiter: b',', header_line: first_line, units_line: None, zone: None });
        };
        let is_stated = stated.skip_lines.is_some();
        let header_line = if is_stated { first_line } else { best.header_line };
        let before = lines.iter().take_while(|line| line.number < header_line);
        let zone = skipped
            .iter()
            .chain(before.clone().map(|line| &line.text))
            .find_map(|line| zone_of_line(&String::from_utf8_lossy(line)).map(str::to_owned));
        let left_out = before.clone().filter(|line| !line.text.starts_with(b"#")).count() as u64;
        if let Some(line) = before.clone().find(|line| !line.text.starts_with(b"#")) {
            let what =
                format!("the header is taken to be in line {header_line}; the lines before it are left out");
            let option = Some(format!("--skip-lines {}", header_line - 1));
            findings.add(FindingKind::Header, Tally { line: line.number, count: left_out }, what, option);
        }
        let other = fits.get(1).filter(|other| {
            other.has_time == best.has_time && other.width > 1 && other.rows == best.rows && best.has_time
        });
        if let Some(other) = other {
            let (own, other) = (char::from(best.delimiter), char::from(other.delimiter));
            let what = format!("cells may be between {own:?} or {other:?}; taken for {own:?}");
            let of = Tally { line: header_line, count: 1 };
            findings.add(FindingKind::Delimiter, of, what, Some(format!("--delimiter '{own}'")));
        }
        if best.is_header_row && !is_stated {
            let what = format!(
                "the titles in line {header_line} have a number or a time, and none says the time: is the header \
                 missing? The line is not imported"
            );
            let of = Tally { line: header_line, count: 1 };
            let option = format!("--skip-lines {} if it is the header, or add a header", header_line - 1);
            findings.add(FindingKind::Header, of, what, Some(option));
        }
        Ok(Self { delimiter: best.delimiter, header_line, units_line: best.units_line, zone })
    }
}

/// Returns the lines of a text, with their numbers counted from 1.
pub(super) fn numbered_lines(text: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = Some(text).filter(|text| !text.is_empty());
    let lines = std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr::memchr2(b'\n', b'\r', text);
        let (line, after) = text.split_at_checked(end.unwrap_or(text.len()))?;
        let after = after.strip_prefix(b"\r\n").unwrap_or(after.get(1..).unwrap_or_default());
        rest = Some(after).filter(|after| !after.is_empty());
        Some(line)
    });
    (1..).zip(lines)
}

/// Returns the lines that are not empty and not excluded by `skip`, and the excluded lines. If the
/// file continues after `start`, an incomplete last line is dropped.
fn start_lines(start: &[u8], is_whole: bool, skip: Option<u64>) -> (Vec<StartLine<'_>>, Vec<&[u8]>) {
    let (mut lines, mut skipped) = (Vec::new(), Vec::new());
    for (number, text) in numbered_lines(start) {
        if skip.is_some_and(|skip| number <= skip) {
            skipped.push(text);
        } else if !text.is_empty() {
            lines.push(StartLine { number, text });
        }
    }
    if !is_whole && lines.len() > 1 && !start.ends_with(b"\n") && !start.ends_with(b"\r") {
        lines.pop();
    }
    lines.truncate(LINES_MAX);
    (lines, skipped)
}

/// Returns the delimiter stated by a first line such as `sep=;`, which Excel writes.
fn separator(line: &[u8]) -> Option<u8> {
    match line.strip_prefix(b"sep=")? {
        [delimiter] => Some(*delimiter),
        _ => None,
    }
}

/// Removes the comment mark (#) from a header.
pub(super) fn without_comment_mark(line: &[u8]) -> &[u8] {
    match line.strip_prefix(b"#") {
        Some(rest) => rest.trim_ascii_start(),
        None => line,
    }
}

/// Returns the number of cells without the empty cells at the end, and the total number of cells.
/// Both numbers are needed because a delimiter at the end of each row adds an empty cell.
fn widths(cells: &Cells) -> (usize, usize) {
    let empty = (0..cells.len()).rev().take_while(|at| cells.get(*at).is_some_and(<[u8]>::is_empty)).count();
    (cells.len() - empty, cells.len())
}

fn is_width(cells: &Cells, width: usize) -> bool {
    let (least, most) = widths(cells);
    least <= width && width <= most
}

fn fit(lines: &[StartLine<'_>], delimiter: u8, stated: &StatedLayout<'_>) -> Fit {
    let split =
        |line: &StartLine<'_>| split_line(without_comment_mark(line.text), delimiter).unwrap_or_default();
    let cells: Vec<Cells> = lines.iter().map(split).collect();
    let is_time = |title: &str| match stated.time {
        [] => time_rank(title).is_some(),
        stated => stated.iter().any(|own| own == title || own.split(',').any(|part| part == title)),
    };
    let has_time = |cells: &Cells| (0..cells.len()).any(|at| is_time(&cells.text(at)));
    let is_comment = |at: usize| lines.get(at).is_some_and(|line| line.text.starts_with(b"#"));
    // Finds the most frequent width. Lines in the second half count twice, because they are more
    // likely to be rows than lines before the header.
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for (at, cells) in cells.iter().enumerate().filter(|(at, _)| !is_comment(*at)) {
        let weight = if at >= lines.len() / 2 { 2 } else { 1 };
        match counts.iter_mut().find(|(width, _)| *width == cells.len()) {
            Some((_, count)) => *count += weight,
            None => counts.push((cells.len(), weight)),
        }
    }
    let width = counts.iter().max_by_key(|(width, count)| (*count, *width)).map_or(1, |(width, _)| *width);
    let fits = |at: usize| cells.get(at).is_some_and(|cells| is_width(cells, width));
    let is_row = |at: usize| {
        fits(at) && !is_comment(at) && cells.get(at).is_some_and(|cells| !has_time(cells) && has_value(cells))
    };
    let first_row = (0..cells.len()).find(|at| is_row(*at)).unwrap_or(cells.len());
    let is_title_line = |at: usize| {
        cells.get(at).is_some_and(|cells| {
            has_time(cells) && cells.iter().take(width.min(cells.len())).all(|cell| !cell.is_empty())
        })
    };
    // If each row ends with a delimiter, the header may have one cell less than a row.
    let is_shorter =
        |at: usize| is_title_line(at) && cells.get(at).is_some_and(|cells| cells.len() + 1 == width);
    let before: Vec<usize> = (0..first_row).filter(|at| fits(*at) || is_shorter(*at)).collect();
    let own = before.iter().find(|at| is_title_line(**at) && !is_comment(**at));
    let own = own.or_else(|| before.iter().rev().find(|at| is_title_line(**at)));
    let own = own.or_else(|| before.iter().rev().find(|at| !is_comment(**at)));
    // If no line has titles, the first line is the header.
    let first = (0..cells.len()).find(|at| !is_comment(*at)).unwrap_or(0);
    // A first line with titles is the header even if most lines have another width, because lines
    // within a quoted cell can have any width.
    let is_first_titles = is_title_line(first) && cells.get(first).is_some_and(|cells| !has_value(cells));
    // A comment in the first line can contain the titles of the rows directly after it. The rows of
    // other tables in the file may have another width.
    let is_comment_titles = is_comment(0)
        && is_title_line(0)
        && cells.first().is_some_and(|titles| {
            let is_own = |row: &Cells| !is_comment(1) && is_width(row, titles.len()) && has_value(row);
            !has_value(titles) && cells.get(1).is_some_and(is_own)
        });
    let header = match own {
        _ if is_comment_titles => 0,
        Some(own) if !is_first_titles && width >= 2 => *own,
        _ => first,
    };
    let number = |at: usize| lines.get(at).map_or(1, |line| line.number);
    let is_units = |at: usize| fits(at) && at < first_row && cells.get(at).is_some_and(are_units);
    let rows = (header + 1..cells.len()).filter(|at| fits(*at)).count();
    Fit {
        delimiter,
        header_line: number(header),
        units_line: Some(header + 1).filter(|at| is_units(*at)).map(number),
        has_time: cells.get(header).is_some_and(has_time),
        is_header_row: cells.get(header).is_some_and(|cells| {
            let says_time = |at| is_time(&cells.text(at)) && !is_value(&cells.text(at));
            has_value(cells) && !(0..cells.len()).any(says_time)
        }),
        rows,
        width,
    }
}

/// Returns whether a line has a number or a time, which titles do not have.
fn has_value(cells: &Cells) -> bool {
    (0..cells.len()).any(|at| is_value(&cells.text(at)))
}

/// Returns whether a cell is a number or a time.
pub(super) fn is_value(cell: &str) -> bool {
    let is_number = |mark| {
        numeral(cell, mark).is_some_and(|found| matches!(number_class(&found.number), NumberClass::Number(_)))
    };
    !cell.is_empty()
        && (is_number(DecimalMark::Point)
            || is_number(DecimalMark::Comma)
            || is_time_of_day(cell)
            || !TimeForm::candidates(cell).is_empty())
}

/// Returns whether a line has only units, for example `s,%,MiB` or `,[V],[A]`.
fn are_units(cells: &Cells) -> bool {
    let mut has_any = false;
    let are_all = (0..cells.len()).all(|at| {
        let cell = cells.text(at);
        let inner = cell.trim_matches(['[', ']', '(', ')']);
        has_any |= !inner.is_empty();
        cell.is_empty() || super::titles::unit_of_title(&format!("[{inner}]")).is_some()
    });
    are_all && has_any
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn find(text: &str, stated: &StatedLayout<'_>) -> (CsvLayout, usize) {
        let mut findings = ImportFindings::new(Path::new("a"));
        let layout = CsvLayout::find(text.as_bytes(), true, stated, &mut findings).unwrap();
        (layout, findings.into_sorted().len())
    }

    // Proves that delimiter and header are found in files of many programs, and that skipped lines
    // are reported unless they are comments.
    #[test]
    fn layouts_are_found() {
        for (text, delimiter, header_line, found) in [
            ("time,a\n1700000000,1\n", b',', 1, 0),
            ("time;a;b\n2024-01-01;1,5;2,5\n", b';', 1, 0),
            ("time\ta,b\n1700000000\t1\n", b'\t', 1, 0),
            ("sep=;\ntime;a\n1700000000;1\n", b';', 2, 0),
            ("# host a\n# made, by b\ntime,a\n1700000000,1\n", b',', 3, 0),
            ("#time,a\n1700000000,1\n", b',', 1, 0),
            ("# a file, of b\n# time,a\n1700000000,1\n", b',', 2, 0),
            ("os,cpu,gpu\nDebian,AMD,\nfps,time\n88.3,100\n88.1,200\n", b',', 3, 1),
            (
                "\"Dstat\"\n\"Host:\",\"h\",,,\"u\"\n\n\"epoch\",\"cpu\",,\n\"epoch\",\"usr\",\"sys\",\"idl\"\n17.1,1,2,97\n",
                b',',
                5,
                1,
            ),
            ("Report\n\ntime,a,\n1,2,\n3,4,\n", b',', 3, 1),
            ("time,1,2\n1700000000,1,2\n", b',', 1, 0),
            ("when,a\n1700000000,1\n", b',', 1, 0),
            ("2024-01-01 00:00:00,1\n2024-01-01 00:00:01,2\n", b',', 1, 1),
            ("1700000000;x\n1700000001;y\n", b';', 1, 1),
            ("time,a\nx,soon\n1700000000,1\n", b',', 1, 0),
            ("time,a,b\n1,\"x\ny, z\nv\",1\n2,c,2\n", b',', 1, 0),
            ("time a\n1 2\n", b',', 1, 0),
            ("", b',', 1, 0),
        ] {
            let (layout, count) = find(text, &StatedLayout::default());
            let got = (layout.delimiter, layout.header_line, count);
            assert_eq!(got, (delimiter, header_line, found), "{text}");
        }
        let stated = StatedLayout { skip_lines: Some(2), ..StatedLayout::default() };
        let (layout, count) = find("os,cpu\nDebian,AMD\n\nfps,elapsed\n88.3,100\n", &stated);
        assert_eq!((layout.header_line, count), (4, 0), "an empty line is no header");
        let stated = StatedLayout { skip_lines: Some(0), ..StatedLayout::default() };
        assert_eq!(find("when,1,2\n1700000000,1,2\n", &stated).1, 0, "the header is stated");
        let time = ["1700000000".to_owned()];
        let stated = StatedLayout { time: &time, ..StatedLayout::default() };
        assert_eq!(find("1700000000,1\n1700000001,2\n", &stated).1, 1, "the title is a time");
    }

    // Proves that skipping more lines than the file has is an error, and that an empty file is not
    // an error.
    #[test]
    fn skipped_lines_exist() {
        for (text, skip, is_refused) in
            [("time,a\n1,2\n", 1, false), ("time,a\n1,2\n", 2, true), ("", 2, false)]
        {
            let stated = StatedLayout { skip_lines: Some(skip), ..StatedLayout::default() };
            let mut findings = ImportFindings::new(Path::new("a"));
            let found = CsvLayout::find(text.as_bytes(), true, &stated, &mut findings);
            assert_eq!(found.is_err(), is_refused, "{text:?} {skip} {found:?}");
            assert!(found.err().is_none_or(|what| what.contains("the file has 2 lines")));
        }
    }

    // Proves that a units line, and a zone before the header, are found.
    #[test]
    fn units_and_zones_are_found() {
        let (layout, _) =
            find("# timezone: CET\ntime,a,b\ns,V,[A]\n1700000000,1,2\n", &StatedLayout::default());
        assert_eq!((layout.units_line, layout.zone.as_deref()), (Some(3), Some("CET")));
        let (layout, _) = find("time,a\nabc,def\n1700000000,1\n", &StatedLayout::default());
        assert_eq!(layout.units_line, None);
    }
}
