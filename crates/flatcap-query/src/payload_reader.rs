//! Reads fields of single payloads, one after the other, for rules. Uses neither batches nor files.

use flatcap_format::schema::{
    ColumnType, CompiledSchema, DecodeError, FieldValue, LeafField, MetricKind, SchemaError, Sparse,
};

use super::collector::walk_payload;
use super::elements::ElementNames;
use super::error::{ConditionError, QueryError};
use super::path::{ElementPick, FieldPath};
use super::path_text::{exact_path, source_path};
use super::plan::{SourcePlan, TableInfo, picked_path};
use super::resolve::{KnownSource, SelectedField, resolve, spelled};
use super::struct_rows::StructElements;
use super::table_rows::TableRows;
use super::template_cache::TemplateCache;

/// Maximum number of fields that an error lists.
const LISTED_MAX: usize = 5;

/// The field to which a path leads, if the path leads to only one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedField {
    /// Position of the field's source in the list of searched sources.
    pub source: usize,
    /// The path, including the name of the source, with `[*]` after each list, such as
    /// `disk.devices[*].reads`.
    pub path: String,
    /// The path of the innermost list with its selected elements, such as `devices[vda]`. `None` if
    /// the field is not in a list.
    pub list: Option<Box<str>>,
    /// Whether the path selects all elements of each list.
    pub is_every_element: bool,
    /// The type of the values.
    pub column_type: ColumnType,
    /// The name of the type in the schema.
    pub type_name: Box<str>,
    /// The attribute `unit`.
    pub unit: Option<Box<str>>,
    /// The metric kind, such as counter or gauge, which states how successive values relate.
    pub kind: MetricKind,
    /// The path of the field that contains the range of this counter. The range is the value at
    /// which the counter wraps to 0.
    pub range: Option<FieldPath>,
    /// States which samples omit existing elements of the list.
    pub sparse: SparseSamples,
}

/// States which samples of a source omit existing elements of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SparseSamples {
    /// Only samples that were cut omit elements.
    #[default]
    Cut,
    /// Any sample may omit elements.
    Any,
    /// Samples that were cut may omit elements, and so may samples in which this field is not 0.
    Unless0(FieldPath),
}

/// An element of a list in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadElement {
    /// The element's number.
    pub number: u32,
    /// The id of the first element in the payload that has the same identity. Elements with the
    /// same identity cannot be distinguished in the next payload.
    pub first: u32,
}

/// Finds the field to which a path leads, in sources with these names and schemas.
///
/// # Errors
/// No field has the path, several fields have the path, or the path does not fit the schema.
pub fn locate_field(
    sources: &[(&str, &CompiledSchema)],
    path: &FieldPath,
) -> Result<LocatedField, QueryError> {
    let known: Vec<KnownSource<'_>> = sources
        .iter()
        .map(|(name, schema)| KnownSource { name, id: None, schema, is_computed: false })
        .collect();
    let (source, selected) = locate(&known, path)?;
    let located = sources.get(source).and_then(|own| LocatedField::of((source, own.0), own.1, &selected));
    located.ok_or_else(|| QueryError::NoField { path: path.to_string(), nearest: Vec::new() })
}

impl LocatedField {
    /// Returns a field of the source at this position, or `None` if it has no column.
    pub(super) fn of(
        (source, name): (usize, &str),
        schema: &CompiledSchema,
        selected: &SelectedField,
    ) -> Option<Self> {
        let leaf = schema.fields().nth(selected.leaf)?;
        let column_type = leaf.field.column_type()?;
        let object = |end: usize| leaf.path.get(..end).unwrap_or_default();
        let range = leaf.field.wraps_at().and_then(|range| {
            let own = leaf.path.rfind('.').map_or("", object);
            let path = match leaf.lists.last().filter(|end| **end <= own.len()) {
                None if own.is_empty() => range.to_owned(),
                None => format!("{own}.{range}"),
                Some(end) => {
                    let list = picked_path(&leaf, *end, &selected.picks);
                    format!("{list}{}.{range}", own.get(*end..).unwrap_or_default())
                }
            };
            exact_path(name, &path).parse().ok()
        });
        let sparse = match leaf.lists.first().and_then(|end| schema.sparse(object(*end))) {
            None => SparseSamples::Cut,
            Some(Sparse::Always) => SparseSamples::Any,
            Some(Sparse::Unless0(field)) => {
                exact_path(name, field).parse().map_or(SparseSamples::Any, SparseSamples::Unless0)
            }
        };
        Some(Self {
            source,
            path: source_path(name, &spelled(&leaf)),
            list: leaf.lists.last().map(|end| picked_path(&leaf, *end, &selected.picks)),
            is_every_element: selected.picks.iter().all(|pick| *pick == ElementPick::All),
            column_type,
            type_name: leaf.field.type_name().into(),
            unit: leaf.field.unit().map(Into::into),
            kind: leaf.field.metric_kind(),
            range,
            sparse,
        })
    }
}

/// Returns the source and the field to which a path leads.
pub(super) fn locate(
    sources: &[KnownSource<'_>],
    path: &FieldPath,
) -> Result<(usize, SelectedField), QueryError> {
    let found = resolve(sources, std::slice::from_ref(path))?;
    let mut found: Vec<(usize, SelectedField)> = found
        .into_iter()
        .enumerate()
        .flat_map(|(source, fields)| fields.into_iter().map(move |field| (source, field)))
        .collect();
    // Sources with one name are alike, so the first of these sources represents them.
    let path_of = |(source, field): &(usize, SelectedField)| {
        let source = sources.get(*source)?;
        Some((source.name, spelled(&source.schema.fields().nth(field.leaf)?)))
    };
    if let Some(first) = found.first().and_then(path_of)
        && found.iter().all(|other| path_of(other).as_ref() == Some(&first))
        && found.iter().all(|(_, field)| found.first().is_some_and(|(_, own)| own.picks == field.picks))
    {
        found.truncate(1);
    }
    if found.len() != 1 {
        let name = |(source, field): &(usize, SelectedField)| {
            let source = sources.get(*source)?;
            let leaf: LeafField<'_> = source.schema.fields().nth(field.leaf)?;
            Some(source_path(source.name, &spelled(&leaf)))
        };
        let fields: Vec<String> = found.iter().take(LISTED_MAX).filter_map(name).collect();
        let (path, count) = (path.to_string(), found.len());
        return Err(ConditionError::Several { path, count, fields: fields.join(", ") }.into());
    }
    found.pop().ok_or_else(|| QueryError::NoField { path: path.to_string(), nearest: Vec::new() })
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
    /// The same errors as [`locate_field`].
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

    use super::super::tests::files;
    use super::super::{Query, QueryItem, RecordedSource, Recording};
    use super::*;

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

    // Proves that a path to several fields is rejected, and that a path to no field is rejected.
    #[test]
    fn a_path_must_mean_one_field() {
        let schema = include_bytes!("../../../generated/host/process.bfbs");
        let schema = CompiledSchema::compile(schema, "flatcap.host.Process").unwrap();
        let locate = |path: &str| locate_field(&[("process", &schema)], &path.parse().unwrap());
        assert!(locate("process.processes[*]").unwrap_err().to_string().contains("name one of them"));
        assert!(locate("proces.count").unwrap_err().to_string().contains("process.count"));
        let found = locate("process.exits[signal=9].pid").unwrap();
        assert_eq!(found.path, "process.exits[*].pid");
        assert_eq!(found.list.as_deref(), Some("exits[signal=9]"));
        assert!(!found.is_every_element && locate("count").unwrap().is_every_element);
    }
}
