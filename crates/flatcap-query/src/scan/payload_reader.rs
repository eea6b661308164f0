//! Reads fields of single payloads, one after the other, for rules. Uses neither batches nor files.

use flatcap_format::schema::{ColumnType, CompiledSchema, DecodeError, FieldValue, SchemaError};

use super::collector::walk_payload;
use super::struct_rows::StructElements;
use super::table_rows::TableRows;
use super::template_cache::TemplateCache;
use crate::error::QueryError;
use crate::names::elements::ElementNames;
use crate::names::located_field::locate;
use crate::names::path::FieldPath;
use crate::names::resolve::KnownSource;
use crate::plan::{SourcePlan, TableInfo};

/// An element of a list in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadElement {
    /// The element's number.
    pub number: u32,
    /// The id of the first element in the payload that has the same identity. Elements with the
    /// same identity cannot be distinguished in the next payload.
    pub first: u32,
}

/// Reads some fields of a source's payloads.
///
/// Identity fields distinguish the elements of lists, as in a query. Elements get ids in the order
/// of their first appearance. Memory grows with the number of elements, until
/// [`forget`](Self::forget) is called.
#[derive(Debug)]
pub struct PayloadReader {
    plan: SourcePlan,
    /// The table and column of each field.
    places: Vec<(usize, usize)>,
    /// The rows of the payload that is being read. The tables are empty between payloads.
    tables: Vec<TableRows>,
    templates: TemplateCache,
    structs: StructElements,
    names: ElementNames,
}

impl PayloadReader {
    /// Creates a reader of the fields to which these paths lead in one source. Elements of the
    /// lists in `unnamed_lists`, such as `process.exits`, get no ids.
    ///
    /// # Errors
    /// The same errors as [`locate_field`](crate::locate_field).
    pub fn new(
        source: &str,
        schema: &CompiledSchema,
        paths: &[FieldPath],
        unnamed_lists: &[&str],
    ) -> Result<Self, QueryError> {
        let known = [KnownSource { name: source, id: None, schema, is_computed: false }];
        let selected = paths.iter().map(|path| locate(&known, path).map(|(_, field)| field));
        let selected = selected.collect::<Result<Vec<_>, _>>()?;
        let mut lists: Vec<String> = Vec::new();
        let number = |list: &str| {
            if unnamed_lists.contains(&list) {
                return None;
            }
            let known = lists.iter().position(|known| known == list);
            let number = known.unwrap_or_else(|| {
                lists.push(list.to_owned());
                lists.len() - 1
            });
            u32::try_from(number).ok()
        };
        let none = |error: SchemaError| QueryError::NoField { path: error.to_string(), nearest: Vec::new() };
        let plan = SourcePlan::new(source, schema, &selected, number).map_err(none)?;
        let places = plan.places.iter().map(|place| place.unwrap_or((usize::MAX, usize::MAX))).collect();
        let tables = plan.tables.iter().map(TableRows::new).collect();
        Ok(Self {
            plan,
            places,
            tables,
            templates: TemplateCache::default(),
            structs: StructElements::default(),
            names: ElementNames::default(),
        })
    }

    /// Reads the fields of a payload. Calls `take` for each value. The arguments are the index of
    /// the field, the element if the field is in a list, and the value. The calls are in the order
    /// of the fields. The calls for one field are in the order of the payload. Fields of one list
    /// have the same elements in the same order.
    ///
    /// # Errors
    /// The payload does not fit its schema. If there is an error, `take` is not called.
    #[inline]
    pub fn read(
        &mut self,
        payload: &[u8],
        mut take: impl FnMut(usize, Option<PayloadElement>, FieldValue<'_>),
    ) -> Result<(), DecodeError> {
        let Self { plan, places, tables, templates, structs, names } = self;
        let element =
            |names: &ElementNames, number: u32| PayloadElement { number, first: names.first_of(number) };
        if let Some((template, is_same)) = templates.find(payload) {
            if !is_same {
                template.name_elements(names);
            }
            for (field, (table, column)) in places.iter().enumerate() {
                if let Some(value) = template.read_single(&plan.schema, payload, field) {
                    take(field, None, value);
                    continue;
                }
                let info = plan.tables.get(*table).and_then(|table| table.columns.get(*column));
                let is_text = info.is_some_and(|info| info.column_type == ColumnType::Text);
                template.read_column(&plan.schema, payload, (*table, *column), |number, value| {
                    let element = number.map(|number| element(names, number));
                    match value {
                        // This is an enum value without a name. Its string is its number, as in
                        // columns.
                        FieldValue::Unsigned(number) if is_text => {
                            take(field, element, FieldValue::Text(&number.to_string()));
                        }
                        FieldValue::Signed(number) if is_text => {
                            take(field, element, FieldValue::Text(&number.to_string()));
                        }
                        other => take(field, element, other),
                    }
                });
            }
            return Ok(());
        }
        let walked = walk_payload(plan, (tables, Some(structs), names), payload, 0);
        if walked.is_ok() {
            for (field, (table, column)) in places.iter().enumerate() {
                let Some(rows) = tables.get(*table) else { continue };
                let Some(values) = rows.columns.get(*column) else { continue };
                for row in 0..rows.rows() {
                    let own = rows.elements.get(row).map(|number| element(names, *number));
                    take(field, own, values.get(row));
                }
            }
            templates.learn(plan, payload, names);
        }
        for table in tables {
            table.truncate(0);
        }
        walked
    }

    /// Returns the index and the description of the table that contains a field. Fields in the same
    /// table have the same elements.
    pub fn table(&self, field: usize) -> Option<(usize, &TableInfo)> {
        let (table, _) = self.places.get(field)?;
        Some((*table, self.plan.tables.get(*table)?))
    }

    /// Returns the latest label of an element, such as `vda` or `postgres[812]`.
    pub fn label(&self, element: u32) -> &str {
        self.names.label(self.names.latest(element))
    }

    /// Returns the number of elements that have an id.
    pub fn elements(&self) -> usize {
        self.names.len()
    }

    /// Removes all elements. Elements that appear after this call get new ids.
    pub fn forget(&mut self) {
        self.names = ElementNames::default();
        // The structs and templates refer to elements by their earlier numbers.
        self.structs = StructElements::default();
        self.templates = TemplateCache::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use flatcap_format::replay::{MergedReader, ReplayFilter, ReplayItem};

    use super::*;
    use crate::names::resolve::spelled;
    use crate::tests::segment_files::files;
    use crate::{Query, QueryItem, RecordedSource, Recording};

    type Values = BTreeMap<(u64, String), Vec<String>>;

    /// Returns the values of each field of a source that a query returns.
    fn queried(path: &std::path::Path, source: &str, field: &FieldPath) -> Values {
        let recording = Recording::open(&[path.to_owned()]).unwrap();
        let mut results =
            recording.query(&Query { fields: vec![field.clone()], ..Query::default() }).unwrap();
        let mut found = Values::new();
        while let Some(item) = results.next().unwrap() {
            let QueryItem::Batch(batch) = item else { continue };
            let table = results.tables()[batch.table].clone();
            if *table.source != *source {
                continue;
            }
            for row in 0..batch.rows() {
                let seq = batch.times.seq[batch.sample(row)];
                for column in &batch.columns {
                    let element = batch.name(row).map(|name| results.elements().label(name));
                    let value = format!("{element:?} {:?}", column.get(row));
                    found.entry((seq, field.to_string())).or_default().push(value);
                }
            }
        }
        found
    }

    /// Reads these fields of a source payload by payload, and returns their values. Returns `None`
    /// if there is no reader for the paths.
    fn read_one_by_one(
        path: &std::path::Path,
        source: &RecordedSource,
        fields: &[FieldPath],
    ) -> Option<Values> {
        let mut reader = PayloadReader::new(&source.name, source.schema.as_ref()?, fields, &[]).ok()?;
        let (mut found, mut id) = (Values::new(), None);
        let mut replay = MergedReader::open(&[path.to_owned()], ReplayFilter::default()).unwrap();
        while let Some(item) = replay.next().unwrap() {
            let sample = match item {
                ReplayItem::Header(header, _) => {
                    id = header.sources.iter().find(|own| own.name == source.name).map(|own| own.id);
                    continue;
                }
                ReplayItem::Source(own, _) if own.name == source.name => {
                    id = Some(own.id);
                    continue;
                }
                ReplayItem::Sample(sample) if Some(sample.telemetry.source) == id => sample.telemetry,
                _ => continue,
            };
            let mut read: Vec<(usize, Option<u32>, String)> = Vec::new();
            let taken = reader.read(sample.payload, |field, element, value| {
                read.push((field, element.map(|element| element.number), format!("{value:?}")));
            });
            for (field, element, value) in read {
                assert!(taken.is_ok());
                let element = element.map(|element| reader.label(element));
                let key = (sample.seq, fields[field].to_string());
                found.entry(key).or_default().push(format!("{element:?} {value}"));
            }
        }
        Some(found)
    }

    // Proves that values that are read payload by payload equal the values of a query, for each
    // field of each source in all conformance and corpus files.
    #[test]
    fn payloads_have_the_values_of_a_query() {
        let mut compared = 0;
        for path in files("conformance").into_iter().chain(files("corpus")) {
            let Ok(recording) = Recording::open(std::slice::from_ref(&path)) else { continue };
            for source in recording.sources() {
                let Some(schema) = &source.schema else { continue };
                let fields: Vec<FieldPath> = schema
                    .fields()
                    .filter(|leaf| leaf.field.column_type().is_some())
                    .map(|leaf| format!("{}.{}", source.name, spelled(&leaf)).parse().unwrap())
                    .collect();
                let Some(found) = read_one_by_one(&path, source, &fields) else { continue };
                let expected: Values =
                    fields.iter().flat_map(|field| queried(&path, &source.name, field)).collect();
                for (key, values) in &expected {
                    assert_eq!(found.get(key), Some(values), "{} {key:?}", path.display());
                }
                assert_eq!(found.len(), expected.len(), "{}", path.display());
                compared += found.len();
            }
        }
        assert!(compared > 100, "{compared} values were compared");
    }
}
