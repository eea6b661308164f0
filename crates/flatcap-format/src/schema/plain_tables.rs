//! Converts payloads that contain arrays of fixed length to tables without such arrays. Every
//! reader of FlatBuffers supports these tables, but many readers, such as Foxglove, do not support
//! such arrays.
//!
//! Structs become tables, arrays of bytes with text become strings, other arrays become vectors,
//! and enum values become their names. The names and the order of the fields do not change. An
//! absent value becomes an omitted field. In a list, an absent number becomes the value that the
//! schema declares for absence, and an absent string becomes empty.

use std::fmt;

use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use super::compiled::{CompiledSchema, ElementType, Field, FieldType};
use super::error::{DecodeError, SchemaError};
use super::new_schema::{NewContent, NewField, NewTable, binary_schema, slot_of};
use super::value::{ColumnType, FieldValue, ScalarType};
use super::visitor::{PathStep, Visitor};

/// Converts the payloads of one schema to tables.
#[derive(Debug)]
pub struct PlainTables {
    compiled: CompiledSchema,
    schema: Vec<u8>,
    writer: PlainWriter,
}

impl PlainTables {
    /// Returns a converter for payloads of a schema, or `None` if the schema has no arrays of fixed
    /// length.
    ///
    /// # Errors
    /// Returns the errors of [`binary_schema`].
    pub fn of(schema: &CompiledSchema) -> Result<Option<Self>, SchemaError> {
        let mut fields = schema.objects.iter().flat_map(|object| &object.fields);
        if !fields.any(|field| matches!(field.value_type, FieldType::Array(..))) {
            return Ok(None);
        }
        let tables: Vec<NewTable> = schema
            .objects
            .iter()
            .map(|object| {
                let fields = object.fields.iter().map(|field| new_field(schema, field)).collect();
                NewTable { name: object.name.to_string(), fields }
            })
            .collect();
        let bytes = binary_schema(&tables, schema.root_name())?;
        Ok(Some(Self { compiled: schema.clone(), schema: bytes, writer: PlainWriter::default() }))
    }

    /// Returns the binary schema of the converted payloads. The name of the root table is the same
    /// as in the original schema.
    pub fn schema(&self) -> &[u8] {
        &self.schema
    }

    /// Converts a payload to tables and returns the new payload.
    ///
    /// # Errors
    /// Fails if the payload does not match its schema.
    pub fn convert(&mut self, payload: &[u8]) -> Result<&[u8], DecodeError> {
        self.writer.builder.reset();
        self.writer.open.clear();
        self.compiled.walk(payload, &mut self.writer)?;
        Ok(self.writer.builder.finished_data())
    }
}

fn new_field(schema: &CompiledSchema, field: &Field) -> NewField {
    let name = |object: usize| schema.object(object).name.to_string();
    let scalar = |scalar: ScalarType| match scalar.column_type() {
        ColumnType::Bool => NewContent::Bool,
        ColumnType::Unsigned => NewContent::Unsigned,
        ColumnType::Signed => NewContent::Signed,
        ColumnType::Float32 | ColumnType::Float => NewContent::Float,
        ColumnType::Text => NewContent::Text,
    };
    let is_list = field.is_list() && !field.is_text;
    let single = match field.value_type {
        _ if field.column_type() == Some(ColumnType::Text) => NewContent::Text,
        FieldType::Object(object)
        | FieldType::Vector(ElementType::Object(object))
        | FieldType::Array(ElementType::Object(object), _) => {
            let content = if is_list { NewContent::Tables } else { NewContent::Table };
            return described(field, content(name(object)));
        }
        FieldType::Scalar(own)
        | FieldType::Vector(ElementType::Scalar(own))
        | FieldType::Array(ElementType::Scalar(own), _) => scalar(own),
        FieldType::String
        | FieldType::Vector(ElementType::String)
        | FieldType::Array(ElementType::String, _) => NewContent::Text,
    };
    described(field, if is_list { NewContent::List(Box::new(single)) } else { single })
}

fn described(field: &Field, content: NewContent) -> NewField {
    let absent = match field.absent {
        Some(FieldValue::Unsigned(_)) => Some("max"),
        Some(FieldValue::Signed(_)) => Some("min"),
        _ => None,
    };
    NewField {
        unit: field.unit().map(str::to_owned),
        kind: field.metric_kind(),
        is_identity: field.is_identity(),
        uses_all_bits: field.uses_all_bits(),
        documentation: field.documentation().to_owned(),
        absent: absent.filter(|_| matches!(content, NewContent::List(_))),
        ..NewField::new(field.name(), content)
    }
}

/// A value that still has to be written, or the offset of a written value.
#[derive(Debug, Clone, Copy)]
enum WrittenValue {
    Absent,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// The offset of a written table, list or string.
    Offset(u32),
}

/// A table or list whose fields or elements are being collected. The objects that it contains are
/// written first.
#[derive(Debug)]
struct OpenNode {
    /// Position of the table or list in the enclosing table, or `None` for an element of a list.
    position: Option<usize>,
    /// The type of the list's elements, or `None` if the elements are tables.
    of: Option<ColumnType>,
    slots: Vec<(Option<usize>, WrittenValue)>,
}

#[derive(Default)]
struct PlainWriter {
    builder: FlatBufferBuilder<'static>,
    open: Vec<OpenNode>,
}

impl fmt::Debug for PlainWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainWriter").field("open", &self.open).finish_non_exhaustive()
    }
}

impl PlainWriter {
    fn begin(&mut self, step: PathStep<'_>) {
        let of = step.field().and_then(Field::column_type);
        self.open.push(OpenNode { position: position(step), of, slots: Vec::new() });
    }

    /// Adds a value to the innermost open table or list. If no table or list is open, the value is
    /// the root, which finishes the payload.
    fn add(&mut self, position: Option<usize>, slot: WrittenValue) {
        match (self.open.last_mut(), slot) {
            (Some(open), slot) => open.slots.push((position, slot)),
            (None, WrittenValue::Offset(root)) => self.builder.finish_minimal(written(root)),
            (None, _) => {}
        }
    }

    fn text(&mut self, text: &str) -> WrittenValue {
        WrittenValue::Offset(self.builder.create_string(text).value())
    }

    /// Writes a list. An element cannot be omitted, so an absent number becomes the value that the
    /// schema declares for absence.
    fn list(&mut self, of: Option<ColumnType>, values: &[(Option<usize>, WrittenValue)]) -> WrittenValue {
        let builder = &mut self.builder;
        let values = values.iter().map(|(_, value)| *value);
        WrittenValue::Offset(match of {
            Some(ColumnType::Bool) => {
                let all: Vec<bool> = values.map(|value| matches!(value, WrittenValue::Bool(true))).collect();
                builder.create_vector(&all).value()
            }
            Some(ColumnType::Unsigned) => {
                let number =
                    |value| if let WrittenValue::Unsigned(number) = value { number } else { u64::MAX };
                builder.create_vector(&values.map(number).collect::<Vec<u64>>()).value()
            }
            Some(ColumnType::Signed) => {
                let number = |value| if let WrittenValue::Signed(number) = value { number } else { i64::MIN };
                builder.create_vector(&values.map(number).collect::<Vec<i64>>()).value()
            }
            Some(ColumnType::Float32 | ColumnType::Float) => {
                let number = |value| if let WrittenValue::Float(number) = value { number } else { f64::NAN };
                builder.create_vector(&values.map(number).collect::<Vec<f64>>()).value()
            }
            Some(ColumnType::Text) | None => {
                let empty = builder.create_string("").value();
                let at = |value| written(if let WrittenValue::Offset(at) = value { at } else { empty });
                let all: Vec<WIPOffset<UnionWIPOffset>> = values.map(at).collect();
                builder.create_vector(&all).value()
            }
        })
    }
}

impl Visitor for PlainWriter {
    fn begin_object(&mut self, step: PathStep<'_>) {
        self.begin(step);
    }

    fn end_object(&mut self) {
        let Some(table) = self.open.pop() else { return };
        let start = self.builder.start_table();
        for (position, slot) in table.slots {
            let Some(position) = position else { continue };
            let at = slot_of(position);
            match slot {
                WrittenValue::Absent => {}
                WrittenValue::Bool(value) => self.builder.push_slot_always(at, value),
                WrittenValue::Unsigned(value) => self.builder.push_slot_always(at, value),
                WrittenValue::Signed(value) => self.builder.push_slot_always(at, value),
                WrittenValue::Float(value) => self.builder.push_slot_always(at, value),
                WrittenValue::Offset(value) => self.builder.push_slot_always(at, written(value)),
            }
        }
        let offset = self.builder.end_table(start);
        self.add(table.position, WrittenValue::Offset(offset.value()));
    }

    fn begin_list(&mut self, step: PathStep<'_>, _length: usize) {
        self.begin(step);
    }

    fn end_list(&mut self) {
        let Some(list) = self.open.pop() else { return };
        let slot = self.list(list.of, &list.slots);
        self.add(list.position, slot);
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        let is_named = step.field().is_some_and(|field| field.column_type() == Some(ColumnType::Text));
        let slot = match value {
            FieldValue::Absent => WrittenValue::Absent,
            FieldValue::Text(text) => self.text(text),
            // An enum value that has no name is written as a number.
            FieldValue::Unsigned(number) if is_named => self.text(&number.to_string()),
            FieldValue::Signed(number) if is_named => self.text(&number.to_string()),
            FieldValue::Unsigned(number) => WrittenValue::Unsigned(number),
            FieldValue::Signed(number) => WrittenValue::Signed(number),
            FieldValue::Float32(number) => WrittenValue::Float(number.into()),
            FieldValue::Float(number) => WrittenValue::Float(number),
            FieldValue::Bool(value) => WrittenValue::Bool(value),
        };
        self.add(position(step), slot);
    }
}

/// Returns the offset of a written table, list or string.
fn written(at: u32) -> WIPOffset<UnionWIPOffset> {
    WIPOffset::new(at)
}

/// Returns the position of a field in its table, or `None` for the root and for an element of a
/// list.
fn position(step: PathStep<'_>) -> Option<usize> {
    match step {
        PathStep::Field(field) => Some(field.index()),
        PathStep::Root | PathStep::Element(..) => None,
    }
}
