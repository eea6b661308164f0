//! Makes binary schemas at run time, for data whose columns are not known at compile time.

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatbuffers_reflection::reflection::{self, AdvancedFeatures, BaseType};

use super::compiled::{CompiledSchema, MetricKind};
use super::error::SchemaError;

/// Slot of the first field of a table. The next constant is the number of bytes between two slots.
const FIRST_SLOT: u16 = 4;
const SLOT_BYTES: u16 = 2;

/// A table of a new schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTable {
    /// Full name, such as `flatcap.imported.Row`.
    pub name: String,
    /// The fields, in the order of their slots.
    pub fields: Vec<NewField>,
}

/// A field of a new schema. A numeric field without a value is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewField {
    /// Name, which consists of letters, digits and underscores.
    pub name: String,
    /// The type.
    pub content: NewContent,
    /// The attribute `unit`.
    pub unit: Option<String>,
    /// The metric kind, which states how successive values relate.
    pub kind: MetricKind,
    /// Whether the field identifies an element of a list.
    pub is_identity: bool,
    /// The value that means "absent". This is `max` or `min`, as in the attribute `absent`.
    pub absent: Option<&'static str>,
    /// Whether all bits of the values are significant, as in an address. This is the attribute
    /// `bits`.
    pub uses_all_bits: bool,
    /// The comment for people. It may be empty.
    pub documentation: String,
}

/// The type of a new field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewContent {
    /// `bool`.
    Bool,
    /// `long`.
    Signed,
    /// `ulong`.
    Unsigned,
    /// `double`.
    Float,
    /// `string`.
    Text,
    /// The table with this full name.
    Table(String),
    /// A list of the table with this full name.
    Tables(String),
    /// A list of numbers, bools or strings.
    List(Box<Self>),
}

impl NewField {
    /// Creates a field of this type without attributes.
    pub fn new(name: impl Into<String>, content: NewContent) -> Self {
        Self {
            name: name.into(),
            content,
            unit: None,
            kind: MetricKind::Unknown,
            is_identity: false,
            absent: None,
            uses_all_bits: false,
            documentation: String::new(),
        }
    }
}

/// Returns the slot of a field in the vtable. `position` is the position of the field in the table.
pub fn slot_of(position: usize) -> u16 {
    // The conversion cannot fail for a valid schema, because schemas with more fields are refused.
    u16::try_from(position)
        .unwrap_or(u16::MAX / SLOT_BYTES)
        .saturating_mul(SLOT_BYTES)
        .saturating_add(FIRST_SLOT)
}

/// Returns the binary schema (.bfbs) of these tables, as flatc would write it.
///
/// # Errors
/// Returns the errors of [`CompiledSchema::compile`], for example for an invalid or duplicate name,
/// for too many fields, or for a missing table.
pub fn binary_schema(tables: &[NewTable], root: &str) -> Result<Vec<u8>, SchemaError> {
    // Readers search objects and fields by name, so these must be sorted by name.
    let mut sorted: Vec<&NewTable> = tables.iter().collect();
    sorted.sort_by(|one, other| one.name.cmp(&other.name));
    let mut builder = FlatBufferBuilder::new();
    let mut objects = Vec::with_capacity(sorted.len());
    let mut root_table = None;
    for table in &sorted {
        let object = build_table(&mut builder, table, &sorted);
        if table.name == root {
            root_table = Some(object);
        }
        objects.push(object);
    }
    let objects = Some(builder.create_vector(&objects));
    let enums = Some(builder.create_vector::<WIPOffset<reflection::Enum<'_>>>(&[]));
    let args = reflection::SchemaArgs {
        objects,
        enums,
        root_table,
        advanced_features: AdvancedFeatures::OptionalScalars,
        ..Default::default()
    };
    let schema = reflection::Schema::create(&mut builder, &args);
    builder.finish(schema, Some("BFBS"));
    let bytes = builder.finished_data().to_vec();
    CompiledSchema::compile(&bytes, root)?;
    Ok(bytes)
}

fn build_table<'b>(
    builder: &mut FlatBufferBuilder<'b>,
    table: &NewTable,
    all: &[&NewTable],
) -> WIPOffset<reflection::Object<'b>> {
    let mut numbered: Vec<(usize, &NewField)> = table.fields.iter().enumerate().collect();
    numbered.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let fields: Vec<_> =
        numbered.into_iter().map(|(position, field)| build_field(builder, (position, field), all)).collect();
    let name = Some(builder.create_string(&table.name));
    let fields = Some(builder.create_vector(&fields));
    let args = reflection::ObjectArgs { name, fields, minalign: 1, ..Default::default() };
    reflection::Object::create(builder, &args)
}

fn build_field<'b>(
    builder: &mut FlatBufferBuilder<'b>,
    (position, field): (usize, &NewField),
    all: &[&NewTable],
) -> WIPOffset<reflection::Field<'b>> {
    // The attributes are in the order of their keys.
    let attributes = [
        ("absent", field.absent),
        ("bits", field.uses_all_bits.then_some("")),
        ("identity", field.is_identity.then_some("")),
        ("meaning", field.kind.word()),
        ("unit", field.unit.as_deref()),
    ];
    let mut pairs = Vec::new();
    for (key, value) in attributes {
        let Some(value) = value else { continue };
        let (key, value) = (Some(builder.create_string(key)), Some(builder.create_string(value)));
        pairs.push(reflection::KeyValue::create(builder, &reflection::KeyValueArgs { key, value }));
    }
    let attributes = (!pairs.is_empty()).then(|| builder.create_vector(&pairs));
    let documentation = (!field.documentation.is_empty()).then(|| {
        let line = builder.create_string(&field.documentation);
        builder.create_vector(&[line])
    });
    let (type_args, is_scalar) = type_of(&field.content, all);
    let type_ = Some(reflection::Type::create(builder, &type_args));
    let name = Some(builder.create_string(&field.name));
    let args = reflection::FieldArgs {
        name,
        type_,
        id: u16::try_from(position).unwrap_or(u16::MAX),
        offset: slot_of(position),
        optional: is_scalar,
        attributes,
        documentation,
        ..Default::default()
    };
    reflection::Field::create(builder, &args)
}

/// Returns the type of a field, and whether the type is a number.
fn type_of(content: &NewContent, all: &[&NewTable]) -> (reflection::TypeArgs, bool) {
    let scalar =
        |base_type, base_size| (reflection::TypeArgs { base_type, base_size, ..Default::default() }, true);
    match content {
        NewContent::Bool => scalar(BaseType::Bool, 1),
        NewContent::Signed => scalar(BaseType::Long, 8),
        NewContent::Unsigned => scalar(BaseType::ULong, 8),
        NewContent::Float => scalar(BaseType::Double, 8),
        NewContent::Text => {
            (reflection::TypeArgs { base_type: BaseType::String, ..Default::default() }, false)
        }
        NewContent::Table(name) => {
            let index = index_of(name, all);
            (reflection::TypeArgs { base_type: BaseType::Obj, index, ..Default::default() }, false)
        }
        NewContent::Tables(name) => {
            let args = reflection::TypeArgs {
                base_type: BaseType::Vector,
                element: BaseType::Obj,
                index: index_of(name, all),
                element_size: 4,
                ..Default::default()
            };
            (args, false)
        }
        NewContent::List(of) => {
            let (element, is_scalar) = type_of(of, all);
            let args = reflection::TypeArgs {
                base_type: BaseType::Vector,
                element: element.base_type,
                element_size: if is_scalar { element.base_size } else { 4 },
                ..Default::default()
            };
            (args, false)
        }
    }
}

/// Returns the index of the table with this name. If the table is missing, compiling the schema
/// fails later.
fn index_of(name: &str, all: &[&NewTable]) -> i32 {
    let index = all.iter().position(|table| table.name == name);
    index.and_then(|index| i32::try_from(index).ok()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Vec<NewTable> {
        let gauge =
            |name: &str, content| NewField { kind: MetricKind::Gauge, ..NewField::new(name, content) };
        let device = NewTable {
            name: "flatcap.test.Device".to_owned(),
            fields: vec![
                NewField {
                    is_identity: true,
                    kind: MetricKind::Text,
                    ..NewField::new("name", NewContent::Text)
                },
                gauge("busy", NewContent::Float),
            ],
        };
        let root = NewTable {
            name: "flatcap.test.All".to_owned(),
            fields: vec![
                NewField {
                    unit: Some("KiB".to_owned()),
                    documentation: "Column \"free %\".".to_owned(),
                    ..gauge("free", NewContent::Unsigned)
                },
                NewField { kind: MetricKind::Counter, ..NewField::new("above", NewContent::Signed) },
                NewField::new("is_on", NewContent::Bool),
                NewField::new("devices", NewContent::Tables(device.name.clone())),
            ],
        };
        vec![root, device]
    }

    // Proves that a new schema compiles, and that its fields keep their attributes and their order.
    // Proves that payloads of the new schema can be read, and that omitted values are absent.
    #[test]
    fn new_schemas_are_read() {
        let bytes = binary_schema(&tables(), "flatcap.test.All").unwrap();
        let schema = CompiledSchema::compile(&bytes, "flatcap.test.All").unwrap();
        let leaves: Vec<_> = schema.fields().collect();
        let paths: Vec<&str> = leaves.iter().map(|leaf| leaf.path.as_str()).collect();
        assert_eq!(paths, ["free", "above", "is_on", "devices.name", "devices.busy"]);
        let free = leaves[0].field;
        assert_eq!(
            (free.type_name(), free.unit(), free.metric_kind()),
            ("ulong", Some("KiB"), MetricKind::Gauge)
        );
        assert_eq!(free.documentation(), "Column \"free %\".");
        assert!(leaves[3].field.is_identity());

        let mut builder = FlatBufferBuilder::new();
        let name = builder.create_string("vda");
        let device = builder.start_table();
        builder.push_slot_always(slot_of(0), name);
        builder.push_slot_always(slot_of(1), 0.5_f64);
        let device = builder.end_table(device);
        let devices = builder.create_vector(&[device]);
        let root = builder.start_table();
        builder.push_slot_always(slot_of(1), -7_i64);
        builder.push_slot_always(slot_of(3), devices);
        let root = builder.end_table(root);
        builder.finish_minimal(root);
        let mut json = Vec::new();
        schema.append_json(builder.finished_data(), &mut json).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
        let expected = serde_json::json!({
            "free": null, "above": -7, "is_on": null, "devices": [{ "name": "vda", "busy": 0.5 }],
        });
        assert_eq!(read, expected);
    }

    // Proves that invalid names, duplicate names and a list of a missing table are rejected.
    #[test]
    fn wrong_tables_are_refused() {
        let with = |field: NewField| {
            let fields = vec![NewField::new("a", NewContent::Float), field];
            binary_schema(&[NewTable { name: "R".to_owned(), fields }], "R").unwrap_err().to_string()
        };
        assert!(with(NewField::new("a", NewContent::Bool)).contains("two fields with one name"));
        assert!(with(NewField::new("a b", NewContent::Bool)).contains("letters, digits or underscores"));
        let missing = NewContent::Tables("S".to_owned());
        assert!(with(NewField::new("b", missing)).contains("its type is not in the schema"));
    }
}
