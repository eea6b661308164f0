//! `fields`: lists the fields of recordings with type, unit, kind and meaning, from the schemas in
//! the files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flatcap_format::schema::nearest_name;
use flatcap_query::{FieldInfo, Recording, SourceFields};
use serde::Serialize;

use super::error::CliError;
use super::recordings::{default_recordings, no_segments};
use super::terminal::Output;
use super::{ExitStatus, human};

/// The word that is printed if the schema does not declare a kind.
const UNKNOWN_KIND: &str = "unknown";
/// Minimum width of the column with the meaning. If less space is left, the meaning is printed on a
/// separate line.
const MEANING_WIDTH_MIN: usize = 24;

/// Show the fields of recordings: path, type, unit, kind, and meaning.
///
/// The paths are in the form that dump --fields takes. Everything is from the schemas in the files,
/// so this also works for recordings of other versions.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A segment or a directory of segments [default: ./flatcap-data, else /var/lib/flatcap], and a
    /// source [default: all].
    #[arg(value_name = "PATH] [SOURCE", num_args = 0..=2)]
    places: Vec<String>,
    /// Show only fields whose path or meaning contains this text, in upper or lower case.
    #[arg(long, value_name = "WORD")]
    search: Option<String>,
    /// Print a JSON array instead of tables.
    #[arg(long)]
    json: bool,
}

/// A field in JSON.
#[derive(Debug, Serialize)]
struct FieldRecord<'f> {
    source: &'f str,
    field: &'f str,
    #[serde(rename = "type")]
    type_name: &'f str,
    unit: Option<&'f str>,
    kind: &'static str,
    meaning: &'f str,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitStatus, CliError> {
    let (paths, source) = places(&args.places);
    let recording = Recording::open_with_added_sources(&paths)?;
    let mut sources = recording.fields();
    if sources.is_empty() {
        return Err(no_segments(&paths));
    }
    if let Some(name) = source {
        check_source(name, &sources)?;
        sources.retain(|known| known.source == name);
    }
    if let Some(word) = &args.search {
        let word = word.to_lowercase();
        let has_word = |text: &str| text.to_lowercase().contains(&word);
        for source in &mut sources {
            let name = &source.source;
            source
                .fields
                .retain(|field| has_word(&format!("{name}.{}", field.path)) || has_word(&field.meaning));
        }
        sources.retain(|source| !source.fields.is_empty());
        if sources.is_empty() {
            return Err(CliError::NoMatch(format!(
                "no field's path or meaning contains {word:?}; flatcap fields without --search shows all"
            )));
        }
    }
    if args.json {
        print_json(&sources, out)?;
    } else {
        print_tables(&sources, Output::Stdout.width_to_fit(), out)?;
    }
    Ok(ExitStatus::Done)
}

/// Returns the paths and the source that the arguments name. A single argument is a path if the
/// path exists or there is no default recording. Otherwise it is a source.
fn places(places: &[String]) -> (Vec<PathBuf>, Option<&str>) {
    match places {
        [] => (default_recordings(), None),
        [one] if Path::new(one).exists() || default_recordings().is_empty() => (vec![one.into()], None),
        [one] => (default_recordings(), Some(one)),
        [path, source, ..] => (vec![path.into()], Some(source)),
    }
}

fn check_source(name: &str, sources: &[SourceFields]) -> Result<(), CliError> {
    if sources.iter().any(|known| known.source == name) {
        return Ok(());
    }
    let known = || sources.iter().map(|known| &*known.source);
    let near = nearest_name(name, known()).map(|near| format!("; the nearest name is {near}"));
    let known = known().collect::<Vec<_>>().join(", ");
    Err(CliError::Usage(format!(
        "{name}: no such path, and no such source in these recordings{}; they have {known}",
        near.unwrap_or_default()
    )))
}

fn print_json(sources: &[SourceFields], out: &mut dyn Write) -> io::Result<()> {
    let records: Vec<FieldRecord<'_>> = sources
        .iter()
        .flat_map(|source| source.fields.iter().map(move |field| (source, field)))
        .map(|(source, field)| FieldRecord {
            source: &source.source,
            field: &field.full_path,
            type_name: &field.type_name,
            unit: field.unit.as_deref(),
            kind: field.kind.word().unwrap_or(UNKNOWN_KIND),
            meaning: &field.meaning,
        })
        .collect();
    super::print_json(&records, out)
}

fn print_tables(sources: &[SourceFields], width: usize, out: &mut dyn Write) -> io::Result<()> {
    for (number, source) in sources.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        print_source(source, width, out)?;
    }
    Ok(())
}

/// Prints the fields of one source. Each field takes one line if its meaning fits on that line,
/// too.
fn print_source(source: &SourceFields, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let name = human::escaped(&source.source);
    if source.fields.is_empty() {
        return writeln!(out, "{name}: its schema is malformed or empty, so it has no fields");
    }
    let differs = source.fields.iter().any(|field| !field.is_in_all_runs);
    let rows: Vec<[String; 5]> = source
        .fields
        .iter()
        .map(|field| {
            let mark = if field.is_in_all_runs { "" } else { "*" };
            [
                human::escaped(&field.full_path).into_owned(),
                human::escaped(short_type(&field.type_name)).into_owned(),
                human::escaped(field.unit.as_deref().unwrap_or("-")).into_owned(),
                format!("{}{mark}", field.kind.word().unwrap_or(UNKNOWN_KIND)),
                human::escaped(first_sentence(field)).into_owned(),
            ]
        })
        .collect();
    let header = ["field", "type", "unit", "kind"];
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain(header.get(column).map(|name| name.len())).max().unwrap_or_default()
        })
        .collect();
    let line = |cells: &[&str]| -> String {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
        padded.collect::<Vec<_>>().concat()
    };
    let used: usize = widths.iter().map(|width| width + 2).sum();
    let is_beside = used + MEANING_WIDTH_MIN <= width;
    writeln!(out, "{}{}", line(&header), if is_beside { "meaning" } else { "" }.trim_end())?;
    for [field, type_name, unit, kind, meaning] in &rows {
        let row = line(&[field, type_name, unit, kind]);
        if is_beside {
            writeln!(out, "{}", format!("{row}{}", cut(meaning, width - used)).trim_end())?;
        } else {
            writeln!(out, "{}", row.trim_end())?;
            if !meaning.is_empty() {
                writeln!(out, "    {}", cut(meaning, width.saturating_sub(4)))?;
            }
        }
    }
    if differs {
        writeln!(out, "* not in every run with this type, unit and kind")?;
    }
    Ok(())
}

/// Returns the name of a type without its namespace.
fn short_type(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Returns the first sentence of a field's comment, without the full stop.
fn first_sentence(field: &FieldInfo) -> &str {
    let end = field.meaning.find(". ").unwrap_or(field.meaning.len());
    field.meaning.get(..end).unwrap_or_default().trim_end_matches('.')
}

/// Returns a string that is not wider than `width`. If part of the string is cut off, the result
/// ends with dots.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use flatcap_format::schema::MetricKind;

    use super::*;

    fn field(path: &str, is_in_all_runs: bool) -> FieldInfo {
        FieldInfo {
            full_path: format!("cpu.{path}"),
            path: path.to_owned(),
            type_name: "ulong".to_owned(),
            unit: Some("jiffies".to_owned()),
            uses_all_bits: false,
            kind: MetricKind::Counter,
            meaning: "Time in programs of ordinary priority, guests included. And more.".to_owned(),
            is_in_all_runs,
        }
    }

    fn printed(fields: Vec<FieldInfo>, width: usize) -> String {
        let source = SourceFields { source: "cpu".to_owned(), period_ns: 0, fields, is_computed: false };
        let mut out = Vec::new();
        print_tables(&[source], width, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    // Proves that lines fit the width, and that the meaning is one sentence in the line of the
    // field or below it. Also proves that a field is marked if only some runs have it.
    #[test]
    fn lines_fit_the_width() {
        let text = printed(vec![field("total.user", true), field("cores[*].times.user", false)], 80);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("cpu.total.user           ulong  jiffies  counter   Time in"), "{text}");
        assert!(
            text.contains("counter*") && text.ends_with("* not in every run with this type, unit and kind\n")
        );
        let wide = printed(vec![field("total.user", true)], 200);
        assert!(
            wide.ends_with("counter  Time in programs of ordinary priority, guests included\n"),
            "{wide}"
        );
        let narrow = printed(vec![field("a_name_that_is_so_long_that_little_remains", true)], 80);
        assert!(narrow.lines().all(|line| line.len() <= 80) && narrow.contains("\n    Time in"), "{narrow}");
    }
}
