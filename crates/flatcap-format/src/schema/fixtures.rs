//! Fixtures for the tests of this module. They are schemas and payloads that flatc wrote
//! (tests/data/schema), and schemas that flatc would reject.

use flatbuffers::{FlatBufferBuilder, WIPOffset};
use flatbuffers_reflection::reflection::{self, BaseType};

use super::compiled::CompiledSchema;
use super::value::FieldValue;
use super::visitor::{PathStep, Visitor};

pub(super) const SHAPES: &[u8] = include_bytes!("../../../../tests/data/schema/shapes.bfbs");
pub(super) const SHAPES_PAYLOAD: &[u8] = include_bytes!("../../../../tests/data/schema/shapes.bin");
pub(super) const SHAPES_FLATC_JSON: &str = include_str!("../../../../tests/data/schema/shapes.judged.json");
pub(super) const MARKED: &[u8] = include_bytes!("../../../../tests/data/schema/marked.bfbs");
pub(super) const MARKED_PAYLOAD: &[u8] = include_bytes!("../../../../tests/data/schema/marked.bin");
pub(super) const RECURSIVE: &[u8] = include_bytes!("../../../../tests/data/schema/recursive.bfbs");

pub(super) fn shapes() -> CompiledSchema {
    CompiledSchema::compile(SHAPES, "flatcap.test.Shapes").unwrap()
}

pub(super) fn marked() -> CompiledSchema {
    CompiledSchema::compile(MARKED, "flatcap.test.Marked").unwrap()
}

pub(super) fn recursive() -> CompiledSchema {
    CompiledSchema::compile(RECURSIVE, "flatcap.test.Node").unwrap()
}

/// Returns a payload as JSON text.
pub(super) fn json(plan: &CompiledSchema, payload: &[u8]) -> String {
    let mut line = Vec::new();
    plan.append_json(payload, &mut line).unwrap();
    String::from_utf8(line).unwrap()
}

/// Counts the values that a walk passes to it, so that the compiler cannot remove the walk. Also
/// checks that each begin has a matching end.
#[derive(Debug, Default)]
pub(super) struct CountingVisitor {
    pub(super) calls: usize,
    pub(super) depth: usize,
    pub(super) text_bytes: usize,
}

impl Visitor for CountingVisitor {
    fn begin_object(&mut self, step: PathStep<'_>) {
        assert_eq!(step.field().is_none(), self.depth == 0);
        self.calls += 1;
        self.depth += 1;
    }

    fn end_object(&mut self) {
        self.depth -= 1;
    }

    fn begin_list(&mut self, _place: PathStep<'_>, _length: usize) {
        self.calls += 1;
        self.depth += 1;
    }

    fn end_list(&mut self) {
        self.depth -= 1;
    }

    fn value(&mut self, step: PathStep<'_>, value: FieldValue<'_>) {
        assert!(step.field().is_some());
        self.calls += 1;
        if let FieldValue::Text(text) = value {
            self.text_bytes += text.len();
        }
    }
}

/// A field of a forged schema.
#[derive(Debug, Clone)]
pub(super) struct ForgedField {
    pub(super) name: &'static str,
    pub(super) id: u16,
    pub(super) offset: u16,
    pub(super) base: BaseType,
    pub(super) element: BaseType,
    pub(super) index: i32,
    pub(super) fixed_length: u16,
}

impl ForgedField {
    /// Creates the only field of a table, or the first field of a struct, at the given offset.
    pub(super) fn new(base: BaseType, index: i32, offset: u16) -> Self {
        Self { name: "field", id: 0, offset, base, element: BaseType::None, index, fixed_length: 0 }
    }
}

/// An object of a forged schema. The object is a struct if it has a size.
#[derive(Debug, Clone)]
pub(super) struct ForgedObject {
    pub(super) name: String,
    pub(super) struct_bytes: Option<i32>,
    pub(super) fields: Vec<ForgedField>,
}

impl ForgedObject {
    pub(super) fn table(name: &str, fields: Vec<ForgedField>) -> Self {
        Self { name: name.to_owned(), struct_bytes: None, fields }
    }

    pub(super) fn structure(name: &str, bytes: i32, fields: Vec<ForgedField>) -> Self {
        Self { name: name.to_owned(), struct_bytes: Some(bytes), fields }
    }
}

/// Builds a binary schema of these objects, without enums.
pub(super) fn forge(objects: &[ForgedObject]) -> Vec<u8> {
    forge_with(objects, &[])
}

/// Builds a binary schema of these objects, and adds one enum of bit flags for each of these types.
pub(super) fn forge_with(objects: &[ForgedObject], flags: &[BaseType]) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let made: Vec<_> = objects.iter().map(|object| forge_object(&mut builder, object)).collect();
    let objects = Some(builder.create_vector(&made));
    let enums: Vec<_> = flags.iter().map(|base| forge_flags(&mut builder, *base)).collect();
    let enums = Some(builder.create_vector(&enums));
    let args = reflection::SchemaArgs { objects, enums, ..Default::default() };
    let schema = reflection::Schema::create(&mut builder, &args);
    builder.finish(schema, Some("BFBS"));
    builder.finished_data().to_vec()
}

fn forge_flags<'b>(
    builder: &mut FlatBufferBuilder<'b>,
    base_type: BaseType,
) -> WIPOffset<reflection::Enum<'b>> {
    let type_args = reflection::TypeArgs { base_type, ..Default::default() };
    let underlying_type = Some(reflection::Type::create(builder, &type_args));
    let key = Some(builder.create_string("bit_flags"));
    let attribute = reflection::KeyValue::create(builder, &reflection::KeyValueArgs { key, value: None });
    let attributes = Some(builder.create_vector(&[attribute]));
    let values = Some(builder.create_vector::<WIPOffset<reflection::EnumVal<'_>>>(&[]));
    let name = Some(builder.create_string("Flags"));
    let args = reflection::EnumArgs { name, values, underlying_type, attributes, ..Default::default() };
    reflection::Enum::create(builder, &args)
}

fn forge_object<'b>(
    builder: &mut FlatBufferBuilder<'b>,
    object: &ForgedObject,
) -> WIPOffset<reflection::Object<'b>> {
    let mut fields = Vec::new();
    for field in &object.fields {
        let type_args = reflection::TypeArgs {
            base_type: field.base,
            element: field.element,
            index: field.index,
            fixed_length: field.fixed_length,
            ..Default::default()
        };
        let type_ = Some(reflection::Type::create(builder, &type_args));
        let name = Some(builder.create_shared_string(field.name));
        let (id, offset) = (field.id, field.offset);
        let args = reflection::FieldArgs { name, type_, id, offset, ..Default::default() };
        fields.push(reflection::Field::create(builder, &args));
    }
    let name = Some(builder.create_string(&object.name));
    let fields = Some(builder.create_vector(&fields));
    let is_struct = object.struct_bytes.is_some();
    let bytesize = object.struct_bytes.unwrap_or_default();
    let args = reflection::ObjectArgs { name, fields, is_struct, bytesize, ..Default::default() };
    reflection::Object::create(builder, &args)
}
