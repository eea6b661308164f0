//! `import csv`.

use std::io::Write;

use super::{ImportArgs, import};
use crate::cli::ExitStatus;
use crate::cli::error::CliError;
use crate::cli::time_printer::zone_of;
use crate::import::csv::{self, CsvColumns, CsvOptions, CsvType, TimeForm};

/// Import CSV files: a header, a column that says the time, and columns of values.
///
/// Each file becomes a run with one source, each row a sample, each column a field, whose type all
/// of its cells decide: bool, unsigned, integer, float, else text. An empty cell is absent. Columns
/// are named by their titles, or by their names as fields: letters, digits and underscores. Rows
/// are in the order of their times, the oldest first.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    common: ImportArgs,
    /// Column that says the time [default: time, timestamp, datetime, date or a similar title].
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// Form of times: iso (2026-11-22T21:05:37+01:00, 2026-11-22 21:05:37), s, ms, us or ns since
    /// 1970, or a pattern as of date(1), such as "%d.%m.%Y %H:%M:%S" [default: that of the first
    /// row].
    #[arg(long, value_name = "FORM")]
    time_format: Option<TimeForm>,
    /// Read times without an offset as UTC instead of in the local time zone (TZ).
    #[arg(long)]
    utc: bool,
    /// Unit of a column, for people and conversions: bytes, KiB, ms, %, ...; can be repeated.
    #[arg(long = "unit", value_name = "COLUMN=UNIT", value_parser = pair)]
    units: Vec<(String, String)>,
    /// Type of a column, or of all others: bool, unsigned, integer, float or text; can be repeated.
    /// A cell of another type is reported and left out.
    #[arg(long = "type", value_name = "[COLUMN=]TYPE", value_parser = stated_type)]
    types: Vec<(Option<String>, CsvType)>,
    /// Columns that count since some start, so that --rate shows their change per second.
    #[arg(long = "counter", value_name = "COLUMN,...", value_delimiter = ',')]
    counters: Vec<String>,
    /// Text of a cell without a value, such as NA; can be repeated.
    #[arg(long, value_name = "TEXT")]
    absent: Vec<String>,
    /// Character between cells; tab for a tab character.
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// Name of the source, instead of the file name; with several files once for each, in their
    /// order.
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    if let Some(twice) = stated_twice(&args.types) {
        return Err(CliError::Usage(twice));
    }
    let named = args.types.iter().filter_map(|(column, csv_type)| Some((column.clone()?, *csv_type)));
    let other_types = args.types.iter().find(|(column, _)| column.is_none()).map(|(_, csv_type)| *csv_type);
    let zone = zone_of(args.utc)?;
    let options = CsvOptions {
        columns: CsvColumns {
            time: args.time.clone(),
            types: named.collect(),
            other_types,
            units: args.units.clone(),
            counters: args.counters.clone(),
        },
        time_form: args.time_format.clone(),
        zone,
        delimiter: args.delimiter,
        absent: args.absent.clone(),
        names: args.names.clone(),
    };
    import(&args.common, |files, job| csv::import(files, &options, job), out)
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
    let csv_type = word.parse::<CsvType>().map_err(|error| error.to_string())?;
    Ok((column.map(str::to_owned), csv_type))
}

/// Returns an error if a column has two types, or all others have.
fn stated_twice(types: &[(Option<String>, CsvType)]) -> Option<String> {
    let twice = types.iter().enumerate().find_map(|(at, (column, csv_type))| {
        let (_, before) = types.iter().take(at).find(|(other, _)| other == column)?;
        Some((column, before, csv_type))
    });
    twice.map(|(column, before, csv_type)| {
        let of = column.as_ref().map_or("all other columns".to_owned(), |column| format!("column {column}"));
        format!("--type states two types of {of}: {} and {}; keep one", before.name(), csv_type.name())
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

    // Proves that arguments are parsed, and that mistakes are answered with the form.
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
