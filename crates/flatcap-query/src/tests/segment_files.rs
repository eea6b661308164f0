//! Compares queries of real segment files with the payloads in these files, which are walked one by
//! one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};
use flatcap_format::schema::{CompiledSchema, FieldValue};
use serde_json::Value;

use super::*;

/// Returns the files in a folder below tests/ that can be opened.
pub(crate) fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "bin")).collect();
    found.sort();
    found
}

/// Returns the payloads of a file as JSON. The key of a payload has the source, the sequence number
/// and the monotonic time of its sample.
fn payloads(path: &Path) -> BTreeMap<(String, u64, u64), Value> {
    let mut reader = MergedReader::open(&[path.to_owned()], ReplayFilter::default()).unwrap();
    let (mut schemas, mut found) = (BTreeMap::new(), BTreeMap::new());
    let add = |schemas: &mut BTreeMap<u16, (String, CompiledSchema)>,
               source: &flatcap_format::segment::SourceInfo| {
        if let Ok(schema) = CompiledSchema::of_source(&source.schema, &source.root) {
            schemas.insert(source.id, (source.name.clone(), schema));
        }
    };
    while let Some(item) = reader.next().unwrap() {
        match item {
            ReplayItem::Header(header, _) => {
                schemas.clear();
                header.sources.iter().for_each(|source| add(&mut schemas, source));
            }
            ReplayItem::Source(source, _) => add(&mut schemas, source),
            ReplayItem::Sample(sample) => {
                let sample = sample.telemetry;
                let Some((name, schema)) = schemas.get(&sample.source) else { continue };
                let mut line = Vec::new();
                if schema.append_json(sample.payload, &mut line).is_ok() {
                    let value = serde_json::from_slice(&line).unwrap();
                    found.insert((name.clone(), sample.seq, sample.mono_ns), value);
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the values at a path of names. If the path leads through lists, returns the values of
/// all their elements. In the path, a list's name ends with `[*]`. An absent list has no elements.
fn values_at<'v>(value: &'v Value, path: &[&str], found: &mut Vec<&'v Value>) {
    let Some((step, rest)) = path.split_first() else { return found.push(value) };
    let (name, is_list) = step.strip_suffix("[*]").map_or((*step, false), |name| (name, true));
    match value.get(name) {
        Some(Value::Array(elements)) if is_list => {
            for element in elements {
                values_at(element, rest, found);
            }
        }
        Some(_) if is_list => {}
        Some(field) => values_at(field, rest, found),
        None => found.push(&Value::Null),
    }
}

/// Returns whether a value of a column equals the value in JSON.
fn is_same(value: FieldValue<'_>, json: &Value) -> bool {
    match (value, json) {
        (FieldValue::Text(text), Value::String(other)) => text == other,
        (FieldValue::Text(text), Value::Number(other)) => text == other.to_string(),
        (FieldValue::Unsigned(number), json) => json.as_u64() == Some(number),
        (FieldValue::Signed(number), json) => json.as_i64() == Some(number),
        (FieldValue::Bool(value), json) => json.as_bool() == Some(value),
        (FieldValue::Float(number), json) if number.is_finite() => json.as_f64() == Some(number),
        (FieldValue::Float32(number), json) if number.is_finite() => {
            json.to_string().parse::<f32>().ok() == Some(number)
        }
        (FieldValue::Absent | FieldValue::Float(_) | FieldValue::Float32(_), json) => json.is_null(),
        (FieldValue::Text(_), _) => false,
    }
}

/// Queries fields of a file. Returns the batches, their tables and the names of elements.
fn asked(path: &Path, fields: &[&str]) -> (Vec<ColumnBatch>, Vec<TableInfo>, ElementNames) {
    let recording = Recording::open(&[path.to_owned()]).unwrap();
    let fields = fields.iter().map(|field| field.parse().unwrap()).collect();
    let query = Query { fields, ..Query::default() };
    let mut results = recording.query(&query).unwrap();
    let mut batches = Vec::new();
    while let Some(item) = results.next().unwrap() {
        if let QueryItem::Batch(batch) = item {
            batches.push(batch);
        }
    }
    (batches, results.tables().to_vec(), results.elements().clone())
}

// Proves that a query of all fields returns each value in the samples of all conformance and corpus
// files exactly once, in the order of the payload.
#[test]
fn all_values_are_returned() {
    let mut compared = 0;
    for path in files("conformance").into_iter().chain(files("corpus")) {
        let Ok(recording) = Recording::open(std::slice::from_ref(&path)) else { continue };
        if recording.sources().is_empty() {
            continue;
        }
        let expected = payloads(&path);
        let (batches, tables, _) = asked(&path, &[]);
        let mut seen = BTreeMap::new();
        for batch in &batches {
            let table = &tables[batch.table];
            for (column, info) in batch.columns.iter().zip(&table.columns) {
                let mut by_sample: BTreeMap<usize, Vec<FieldValue<'_>>> =
                    (0..batch.times.len()).map(|sample| (sample, Vec::new())).collect();
                for row in 0..batch.rows() {
                    by_sample.get_mut(&batch.sample(row)).unwrap().push(column.get(row));
                }
                let dotted = table.path(info);
                let names: Vec<&str> = dotted.split('.').collect();
                for (sample, values) in by_sample {
                    let key =
                        (table.source.to_string(), batch.times.seq[sample], batch.times.mono_ns[sample]);
                    let Some(json) = expected.get(&key) else { panic!("{path:?}: {key:?}") };
                    let mut wanted = Vec::new();
                    values_at(json, &names, &mut wanted);
                    if table.list.is_some() && wanted.iter().all(|value| value.is_null()) && values.is_empty()
                    {
                        wanted.clear();
                    }
                    let same = values.len() == wanted.len()
                        && values.iter().zip(&wanted).all(|(value, json)| is_same(*value, json));
                    assert!(same, "{path:?} {dotted} {key:?}: {values:?} for {wanted:?}");
                    *seen.entry((key, dotted.clone())).or_insert(0) += 1;
                    compared += values.len();
                }
            }
        }
        assert!(seen.values().all(|count| *count == 1), "{path:?}: each sample once");
        let samples: std::collections::BTreeSet<_> = seen.keys().map(|(key, _)| key.clone()).collect();
        assert_eq!(samples.len(), expected.len(), "{path:?}: all samples");
    }
    assert!(compared > 5_000, "{compared} values compared");
}

// Proves that queries of one field, and of a few fields in another order, return the same values as
// a query of all fields.
#[test]
fn parts_are_as_the_whole() {
    for path in files("conformance") {
        let (batches, tables, _) = asked(&path, &[]);
        let mut whole: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for batch in &batches {
            let table = &tables[batch.table];
            for (column, info) in batch.columns.iter().zip(&table.columns) {
                let path = format!("{}.{}", table.source, table.path(info));
                let values = whole.entry(path).or_default();
                values.extend((0..batch.rows()).map(|row| format!("{:?}", column.get(row))));
            }
        }
        let paths: Vec<&str> = whole.keys().map(String::as_str).collect();
        let some: Vec<&str> = paths.iter().rev().step_by(3).copied().collect();
        for fields in paths.iter().map(|path| vec![*path]).chain([some]) {
            let (batches, tables, _) = asked(&path, &fields);
            let mut part: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for batch in &batches {
                let table = &tables[batch.table];
                for (column, info) in batch.columns.iter().zip(&table.columns) {
                    assert_eq!(fields[info.order], format!("{}.{}", table.source, table.path(info)));
                    let values = part.entry(fields[info.order].to_owned()).or_default();
                    values.extend((0..batch.rows()).map(|row| format!("{:?}", column.get(row))));
                }
            }
            for field in fields {
                assert_eq!(part.get(field), whole.get(field), "{path:?} {field}");
            }
        }
    }
}
