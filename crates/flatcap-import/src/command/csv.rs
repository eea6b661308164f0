//! `import csv`.

use std::io::Write;
use std::path::PathBuf;

use crate::csv::{self, CsvColumns, CsvOptions, CsvType, DecimalMark, RowOrder, TextEncoding, TimeForm};
use crate::zone_name::stated_zone;
use jiff::tz::TimeZone;

use super::{CommonArguments, ImportCommandError, ImportEnd, csv_check, import};
use flatcap_text::time_printer::zone_of;

/// Import CSV files with a header, a time column and value columns.
///
/// Each file becomes a run with one source, or with one source per device. Each row becomes a
/// sample and each column a field. The cells of a column decide its type: bool, unsigned, integer,
/// float or text. An empty cell is a missing value. Options name a column by its title or by its
/// field name (letters, digits and underscores).
///
/// flatcap recognizes the encoding, delimiter, header, decimal mark, units, time format, time zone,
/// row order and key columns. If a file is ambiguous, flatcap assumes one interpretation and exits
/// with 3. It reports the assumption with its line and the option that sets the property. --check
/// prints the interpretation and imports nothing.
#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
#[derive(Debug, clap::Args)]
pub(super) struct CsvArguments {
    /// Files to import, in this order; gzip files are decompressed; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Directory for the segments; created if missing. The directory must not be in use by a
    /// recorder.
    #[arg(long, value_name = "DIR", required_unless_present = "check")]
    data_dir: Option<PathBuf>,
    /// Print how the files would be read: columns, types, units, times, gaps. Write nothing.
    #[arg(long)]
    check: bool,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
    /// Time column, or DATE,TIME for two columns [default: the column with the title time,
    /// timestamp, datetime, date or similar].
    #[arg(long, value_name = "COLUMN")]
    time: Vec<String>,
    /// Time format: iso (2026-11-22T21:05:37+01:00, 2026-11-22 21:05:37) or a pattern as in
    /// date(1), such as "%d.%m.%Y %H:%M:%S". The formats ymd, dmy and mdy state the order of the
    /// parts of a date. The formats s, ms, us and ns state the unit of a number since 1970
    /// [default: the format of most rows].
    #[arg(long, value_name = "FORM")]
    time_format: Option<TimeForm>,
    /// Interpret times without an offset as UTC.
    #[arg(long)]
    utc: bool,
    /// Time zone of times without an offset, such as Europe/Berlin, CET or +01:00 [default: the
    /// zone that the file names, else the local time zone (TZ)].
    #[arg(long, value_name = "ZONE", value_parser = stated_zone, conflicts_with = "utc")]
    zone: Option<TimeZone>,
    /// Order of rows: file or time. With the value file, rows keep their order, and a backward step
    /// in time means that the clock was set back. With the value time, rows are sorted [default:
    /// chosen from the times].
    #[arg(long, value_name = "ORDER", value_parser = order)]
    order: Option<RowOrder>,
    /// Key columns, which identify devices, such as host,disk. Each device becomes a source with
    /// these labels [default: recognized if rows have the same time].
    #[arg(long = "key", value_name = "COLUMN,...", value_delimiter = ',')]
    keys: Vec<String>,
    /// Import all rows as one series, even if several rows have the same time.
    #[arg(long, conflicts_with = "keys")]
    no_key: bool,
    /// Unit of a column for display and conversions, such as bytes, KiB, ms or %; can be repeated
    /// [default: the unit in its cells, or in brackets in its title].
    #[arg(long = "unit", value_name = "COLUMN=UNIT", value_parser = pair)]
    units: Vec<(String, String)>,
    /// Type of a column, or of all other columns: bool, unsigned, integer, float or text; can be
    /// repeated. Cells of another type are reported and left out.
    #[arg(long = "type", value_name = "[COLUMN=]TYPE", value_parser = stated_type)]
    types: Vec<(Option<String>, CsvType)>,
    /// Counter columns: --rate shows their change per second.
    #[arg(long = "counter", value_name = "COLUMN,...", value_delimiter = ',')]
    counters: Vec<String>,
    /// Word for a missing value, such as NA; can be repeated.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    absent: Vec<String>,
    /// Delimiter between cells: one ASCII character, or tab [default: recognized].
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Decimal mark: . or , [default: the mark of most numbers].
    #[arg(long, value_name = "MARK")]
    decimal: Option<DecimalMark>,
    /// Number of lines before the header [default: recognized].
    #[arg(long, value_name = "COUNT")]
    skip_lines: Option<u64>,
    /// Encoding: utf-8, utf-16le, utf-16be or latin1 (Windows-1252) [default: recognized].
    #[arg(long, value_name = "ENCODING")]
    encoding: Option<TextEncoding>,
    /// Name of the source [default: the file name]. With several files, repeat the option once per
    /// file, in the same order.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
}

pub(super) fn run(args: &CsvArguments, out: &mut dyn Write) -> Result<ImportEnd, ImportCommandError> {
    if let Some(twice) = stated_twice(&args.types) {
        return Err(ImportCommandError::Usage(twice));
    }
    let named = args.types.iter().filter_map(|(column, csv_type)| Some((column.clone()?, *csv_type)));
    let other_types = args.types.iter().find(|(column, _)| column.is_none()).map(|(_, csv_type)| *csv_type);
    let keys =
        if args.no_key { Some(Vec::new()) } else { Some(args.keys.clone()).filter(|keys| !keys.is_empty()) };
    let host_zone = zone_of(args.utc)?;
    let options = CsvOptions {
        columns: CsvColumns {
            time: args.time.clone(),
            keys,
            types: named.collect(),
            other_types,
            units: args.units.clone(),
            counters: args.counters.clone(),
        },
        time_form: args.time_format.clone(),
        zone: if args.utc { Some(TimeZone::UTC) } else { args.zone.clone() },
        host_zone: host_zone.clone(),
        delimiter: args.delimiter,
        decimal: args.decimal,
        skip_lines: args.skip_lines,
        encoding: args.encoding,
        order: args.order,
        absent: args.absent.clone(),
        names: args.names.clone(),
    };
    if args.check {
        return csv_check::run(&args.files, &options, args.json, host_zone, out);
    }
    let data_dir = args.data_dir.clone().unwrap_or_default();
    let common = CommonArguments { files: args.files.clone(), data_dir, json: args.json };
    import(&common, |files, job| csv::import(files, &options, job), out)
}

fn order(text: &str) -> Result<RowOrder, String> {
    match text {
        "file" => Ok(RowOrder::File),
        "time" => Ok(RowOrder::Time),
        _ => Err("use file or time".to_owned()),
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((column, value)) if !column.is_empty() && !value.is_empty() => {
            Ok((column.to_owned(), value.to_owned()))
        }
        _ => Err("write COLUMN=UNIT, such as size=bytes".to_owned()),
    }
}

fn stated_type(text: &str) -> Result<(Option<String>, CsvType), String> {
    let (column, word) = text.rsplit_once('=').map_or((None, text), |(column, word)| (Some(column), word));
    let csv_type = word.parse::<CsvType>().map_err(str::to_owned)?;
    Ok((column.map(str::to_owned), csv_type))
}

/// Returns an error message if the options state the type of one column twice, or the type of all
/// other columns twice.
fn stated_twice(types: &[(Option<String>, CsvType)]) -> Option<String> {
    let twice = types.iter().enumerate().find_map(|(at, (column, csv_type))| {
        let (_, before) = types.iter().take(at).find(|(other, _)| other == column)?;
        Some((column, before, csv_type))
    });
    twice.map(|(column, before, csv_type)| {
        let of = column.as_ref().map_or("all other columns".to_owned(), |column| format!("column {column}"));
        format!("--type states two types of {of}: {} and {}; keep one", before.as_str(), csv_type.as_str())
    })
}

fn delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok(b'\t'),
        (_, [byte]) if !matches!(byte, b'"' | b'\r' | b'\n') => Ok(*byte),
        _ => Err("one character of ASCII, such as ; or |, or tab".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that arguments are parsed, and that error messages show the expected form of an
    // argument.
    #[test]
    fn arguments_are_parsed() {
        assert_eq!(pair("a=b=KiB"), Ok(("a=b".to_owned(), "KiB".to_owned())));
        assert!(pair("size").unwrap_err().contains("size=bytes") && pair("=x").is_err());
        assert_eq!(stated_type("a=float"), Ok((Some("a".to_owned()), CsvType::Float)));
        assert_eq!(stated_type("text"), Ok((None, CsvType::Text)));
        assert!(stated_type("a=number").is_err());
        let types = |texts: &[&str]| texts.iter().map(|text| stated_type(text).unwrap()).collect::<Vec<_>>();
        assert_eq!(stated_twice(&types(&["a=float", "text", "b=float"])), None);
        let error = stated_twice(&types(&["text", "a=float", "bool"])).unwrap();
        assert_eq!(error, "--type states two types of all other columns: text and bool; keep one");
        assert_eq!((delimiter(";"), delimiter("tab")), (Ok(b';'), Ok(b'\t')));
        assert!(delimiter("").is_err() && delimiter("ab").is_err() && delimiter("\"").is_err());
    }
}
