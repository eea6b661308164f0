//! The field to which a path leads, if the path leads to only one field.

use flatcap_format::schema::{ColumnType, CompiledSchema, LeafField, MetricKind, Sparse};

use super::path::{ElementPick, FieldPath};
use super::path_text::{exact_path, source_path};
use super::resolve::{KnownSource, SelectedField, picked_path, resolve, spelled};
use crate::error::{ConditionError, QueryError};

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
    /// The metric kind, such as counter or gauge, which describes how successive values are
    /// related.
    pub kind: MetricKind,
    /// The path of the field that contains the range of this counter. The range is the value at
    /// which the counter wraps to 0.
    pub range: Option<FieldPath>,
    /// Specifies which samples omit existing elements of the list.
    pub sparse: SparseSamples,
}

/// Specifies which samples of a source omit existing elements of a list.
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
    /// Returns a field of the source at this position, or `None` if the field has no column.
    pub(crate) fn of(
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
pub(crate) fn locate(
    sources: &[KnownSource<'_>],
    path: &FieldPath,
) -> Result<(usize, SelectedField), QueryError> {
    let found = resolve(sources, std::slice::from_ref(path))?;
    let mut found: Vec<(usize, SelectedField)> = found
        .into_iter()
        .enumerate()
        .flat_map(|(source, fields)| fields.into_iter().map(move |field| (source, field)))
        .collect();
    // Fields with the same path in sources with the same name count as one field, so the first of
    // them represents all.
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

#[cfg(test)]
mod tests {
    use super::*;

    // Proves that a path to several fields is rejected, and that a path to no field is rejected.
    #[test]
    fn a_path_must_mean_one_field() {
        let schema = include_bytes!("../../../../generated/host/process.bfbs");
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
