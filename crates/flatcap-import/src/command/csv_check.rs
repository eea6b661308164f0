//! `import csv --check`: prints how flatcap would interpret the files, and imports nothing.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::csv::{self, CsvCheck, CsvOptions, RowOrder};
use crate::{ImportFinding, ImportFlaw};
use flatcap_text::human;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::{ImportCommandError, ImportEnd, check_files, print_flaws, print_json, with_progress};
use flatcap_text::time_printer::TimePrinter;

/// Column widths, in the order of the header. The table fits into 80 characters.
const TITLE_WIDTH: usize = 20;
const NAME_WIDTH: usize = 18;
const UNIT_WIDTH: usize = 7;
const VALUES_WIDTH: usize = 8;
const ABSENT_WIDTH: usize = 10;

/// The result of the check as JSON.
#[derive(Serialize)]
struct CheckObject<'a> {
    files: &'a [CsvCheck],
    findings: &'a [ImportFinding],
    flaws: &'a [ImportFlaw],
}

pub(super) fn run(
    files: &[PathBuf],
    options: &CsvOptions,
    is_json: bool,
    zone: TimeZone,
    out: &mut dyn Write,
) -> Result<ImportEnd, ImportCommandError> {
    check_files(files)?;
    let (report, checks) = with_progress(files, |progress| csv::check(files, options, progress))?;
    if is_json {
        let object = CheckObject { files: &checks, findings: &report.findings, flaws: &report.flaws };
        print_json(&object, out)?;
    } else {
        let mut times = TimePrinter::new(zone);
        for check in &checks {
            print(check, &mut times, out)?;
        }
    }
    print_flaws(&report)?;
    if report.stopped {
        writeln!(io::stderr(), "flatcap: stopped by a signal: the rest of the input is not checked")?;
        return Ok(ImportEnd::Failed);
    }
    let has_skipped = checks.iter().any(|check| check.skipped_rows > 0);
    Ok(if report.is_complete() && !has_skipped { ImportEnd::Complete } else { ImportEnd::Incomplete })
}

fn print(check: &CsvCheck, times: &mut TimePrinter, out: &mut dyn Write) -> io::Result<()> {
    let (encoding, decimal, line) = (check.encoding, check.decimal, check.header_line);
    writeln!(out, "{}", human::escaped(&check.file))?;
    writeln!(
        out,
        "  text     {encoding}, cells between {:?}, decimal {decimal}, header in line {line}",
        check.delimiter
    )?;
    let time = &check.time;
    let zone = time.zone.as_ref().map(|zone| format!(", {zone}")).unwrap_or_default();
    let titles = human::printable(&time.columns.join(" and "));
    writeln!(out, "  time     {titles}: {}{zone}", human::escaped(&time.form))?;
    if let (Some(first), Some(last)) = (time.first_ns, time.last_ns) {
        writeln!(out, "           {} to {}", times.milliseconds(first), times.milliseconds(last))?;
    }
    let order = match check.order {
        RowOrder::File => "in the order of the file",
        RowOrder::Time => "sorted by time",
    };
    let step = time.usual_step_ns.map(|ns| format!(", mostly {} apart", length(ns))).unwrap_or_default();
    writeln!(out, "  rows     {}, {order}{step}", check.rows)?;
    if check.skipped_rows > 0 {
        writeln!(out, "           {} are skipped: they have another width, or no time", check.skipped_rows)?;
    }
    if !check.keys.is_empty() {
        writeln!(out, "  devices  told apart by {}", human::printable(&check.keys.join(", ")))?;
    }
    for gap in &time.gaps {
        writeln!(out, "  gap      {} before line {}", length(gap.step_ns), gap.line)?;
    }
    put_row(["column", "field", "type", "unit", "values", "absent"], out)?;
    for column in &check.columns {
        let csv_type = if column.counter { "counter" } else { column.csv_type };
        let (unit, values) = (column.unit.as_deref().unwrap_or_default(), column.values.to_string());
        put_row([&column.title, &column.name, csv_type, unit, &values, &column.absent.join(" ")], out)?;
    }
    Ok(())
}

fn put_row([title, name, csv_type, unit, values, absent]: [&str; 6], out: &mut dyn Write) -> io::Result<()> {
    let cut = |text: &str, width| human::shortened(&human::printable(text), width);
    let (title, name) = (cut(title, TITLE_WIDTH), cut(name, NAME_WIDTH));
    let (unit, absent) = (cut(unit, UNIT_WIDTH), cut(absent, ABSENT_WIDTH));
    let line = format!(
        "  {title:TITLE_WIDTH$} {name:NAME_WIDTH$} {csv_type:8} {unit:UNIT_WIDTH$} {values:>VALUES_WIDTH$}  {absent}"
    );
    writeln!(out, "{}", line.trim_end())
}

/// Formats a duration for people.
fn length(ns: i64) -> String {
    human::latency(ns.unsigned_abs())
}
