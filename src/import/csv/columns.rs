//! The columns of a file: their names as fields, and what was stated about them.

use csv::ByteRecord;
use flatcap_format::schema::{MetricKind, NewField, nearest_name};

use super::csv_type::CsvType;
use crate::import::error::ImportError;
use crate::import::field_name::field_names;

/// Most columns of a file: what a schema holds with room to spare.
const COLUMNS_MAX: usize = 4096;
/// Names of columns that say the time, if none is stated: the first of these that a file has.
const TIME_NAMES: [&str; 10] =
    ["time", "timestamp", "datetime", "date_time", "_time", "ts", "date", "wall_ns", "epoch", "unix"];
/// Most names that an error lists: a line stays readable.
const NAMED_MAX: usize = 12;

/// Columns that a user names, by their title in the file or by their name as a field.
#[derive(Debug, Clone, Default)]
pub struct CsvColumns {
    /// The column that says the time; recognized by its name without it.
    pub time: Option<String>,
    /// Types by column.
    pub types: Vec<(String, CsvType)>,
    /// The type of all other columns; found by their cells without it.
    pub other_types: Option<CsvType>,
    /// Units by column.
    pub units: Vec<(String, String)>,
    /// Columns of counters.
    pub counters: Vec<String>,
}

/// The columns of a file.
#[derive(Debug)]
pub(super) struct CsvHeader {
    /// Position of the column that says the time.
    pub(super) time: usize,
    pub(super) columns: Vec<CsvColumn>,
}

/// A column that becomes a field.
#[derive(Debug)]
pub(super) struct CsvColumn {
    /// Its position in the file.
    pub(super) position: usize,
    pub(super) title: String,
    pub(super) name: String,
    /// The stated type.
    pub(super) stated: Option<CsvType>,
    unit: Option<String>,
    is_counter: bool,
    /// A cell needs all of 64 bits.
    pub(super) uses_all_bits: bool,
}

impl CsvHeader {
    /// Returns the columns of a header, with what was stated about them.
    ///
    /// # Errors
    /// What is wrong with the header or the statements, without the file.
    pub(super) fn new(record: &ByteRecord, stated: &CsvColumns) -> Result<Self, String> {
        if record.len() > COLUMNS_MAX {
            return Err(format!("{} columns, at most {COLUMNS_MAX} can be imported", record.len()));
        }
        let titles: Vec<String> =
            record.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect();
        let names = field_names(&titles);
        let find = |option: &str, wanted: &str| find(option, wanted, &titles, &names);
        let time = match &stated.time {
            Some(wanted) => find("--time", wanted)?,
            None => TIME_NAMES
                .iter()
                .find_map(|known| titles.iter().position(|title| title.eq_ignore_ascii_case(known)))
                .ok_or_else(|| {
                    format!("which column says the time? name one of {} with --time", listed(&titles))
                })?,
        };
        let mut columns: Vec<CsvColumn> = titles
            .iter()
            .zip(&names)
            .enumerate()
            .map(|(position, (title, name))| CsvColumn {
                position,
                title: title.clone(),
                name: name.clone(),
                stated: stated.other_types,
                unit: None,
                is_counter: false,
                uses_all_bits: false,
            })
            .collect();
        for (wanted, csv_type) in &stated.types {
            let at = find("--type", wanted)?;
            columns.iter_mut().skip(at).take(1).for_each(|column| column.stated = Some(*csv_type));
        }
        for (wanted, unit) in &stated.units {
            let at = find("--unit", wanted)?;
            columns.iter_mut().skip(at).take(1).for_each(|column| column.unit = Some(unit.clone()));
        }
        for wanted in &stated.counters {
            let at = find("--counter", wanted)?;
            columns.iter_mut().skip(at).take(1).for_each(|column| column.is_counter = true);
        }
        columns.retain(|column| column.position != time);
        if columns.is_empty() {
            return Err("it has no column beside the time".to_owned());
        }
        Ok(Self { time, columns })
    }

    /// Returns the number of columns of the file.
    pub(super) fn width(&self) -> usize {
        self.columns.len() + 1
    }

    /// Returns the columns whose type is not stated.
    pub(super) fn untyped(&self) -> Vec<&str> {
        let untyped = self.columns.iter().filter(|column| column.stated.is_none());
        untyped.map(|column| column.title.as_str()).take(NAMED_MAX).collect()
    }
}

impl CsvColumn {
    /// Returns the field of the column in the schema.
    pub(super) fn field(&self, csv_type: CsvType) -> NewField {
        let kind = match csv_type {
            _ if self.is_counter => MetricKind::Counter,
            CsvType::Text => MetricKind::Text,
            CsvType::Bool => MetricKind::State,
            CsvType::Unsigned | CsvType::Signed | CsvType::Float => MetricKind::Gauge,
        };
        let documentation =
            if self.title == self.name { String::new() } else { format!("Column {:?}.", self.title) };
        let field = NewField::new(&self.name, csv_type.content());
        NewField {
            unit: self.unit.clone(),
            kind,
            documentation,
            uses_all_bits: self.uses_all_bits && csv_type == CsvType::Unsigned,
            ..field
        }
    }
}

/// Returns the position of a column that an option names.
fn find(option: &str, wanted: &str, titles: &[String], names: &[String]) -> Result<usize, String> {
    let by_title = titles.iter().position(|title| title == wanted);
    let found = by_title.or_else(|| names.iter().position(|name| name == wanted));
    found.ok_or_else(|| {
        let near = nearest_name(wanted, titles.iter().map(String::as_str));
        let near = near.map(|near| format!("; the nearest is {near}")).unwrap_or_default();
        format!("{option} {wanted}: no such column{near}; it has {}", listed(titles))
    })
}

fn listed(titles: &[String]) -> String {
    let more = if titles.len() > NAMED_MAX { ", ..." } else { "" };
    titles.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ") + more
}

/// Returns the error of a header.
pub(super) fn header_error(path: &std::path::Path, what: &str) -> ImportError {
    ImportError::Kind { path: path.to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titles(all: &[&str]) -> ByteRecord {
        ByteRecord::from(all.to_vec())
    }

    // Proves that the time is found by its name or as stated, and that statements apply to the
    // columns that they name.
    #[test]
    fn statements_apply_to_columns() {
        let record = titles(&["host", "Timestamp", "cpu user", "reads"]);
        let stated = CsvColumns {
            types: vec![("cpu_user".to_owned(), CsvType::Float)],
            units: vec![("cpu user".to_owned(), "%".to_owned())],
            counters: vec!["reads".to_owned()],
            ..CsvColumns::default()
        };
        let header = CsvHeader::new(&record, &stated).unwrap();
        assert_eq!((header.time, header.width()), (1, 4));
        assert_eq!(header.untyped(), ["host", "reads"]);
        let field = header.columns[1].field(CsvType::Float);
        assert_eq!(
            (&*field.name, field.unit.as_deref(), field.kind),
            ("cpu_user", Some("%"), MetricKind::Gauge)
        );
        assert_eq!(field.documentation, "Column \"cpu user\".");
        assert_eq!(header.columns[2].field(CsvType::Unsigned).kind, MetricKind::Counter);
        let named = CsvColumns { time: Some("host".to_owned()), ..CsvColumns::default() };
        assert_eq!(CsvHeader::new(&record, &named).unwrap().time, 0);
    }

    // Proves that mistakes name the option, the value and the columns there are.
    #[test]
    fn mistakes_are_explained() {
        let record = titles(&["when", "value"]);
        let error = |stated: CsvColumns| CsvHeader::new(&record, &stated).unwrap_err();
        assert_eq!(
            error(CsvColumns::default()),
            "which column says the time? name one of when, value with --time"
        );
        let wrong = CsvColumns { time: Some("valu".to_owned()), ..CsvColumns::default() };
        assert_eq!(error(wrong), "--time valu: no such column; the nearest is value; it has when, value");
        let alone = CsvHeader::new(&titles(&["time"]), &CsvColumns::default());
        assert_eq!(alone.unwrap_err(), "it has no column beside the time");
    }
}
