//! What does a binary schema say? Checks one from a file and turns what its root reaches into a plan.

use flatbuffers::{ForwardsUOffset, Vector, VerifierOptions};
use flatbuffers_reflection::reflection::{self, BaseType, KeyValue, Schema};

use super::error::SchemaError;
use super::plan::{Element, Field, Kind, Meaning, Names, Object, Plan};
use super::value::{Scalar, Value};

/// Longest binary schema that is read.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;
/// Most tables and structs in a schema.
pub const OBJECTS_MAX: usize = 1024;
/// Most fields in all tables and structs that the root reaches.
pub const FIELDS_MAX: usize = 16_384;
/// Most values in all enums that fields use.
pub const ENUM_VALUES_MAX: usize = 65_536;
/// Most paths from the root to a field, when every table is opened wherever it is used.
pub const PATHS_MAX: usize = 65_536;
/// Most objects inside one another, the root included: in a schema, and in a payload where a table may lie
/// inside itself.
pub const DEPTH_MAX: usize = 16;
/// Longest name of an object, a field or an enum's value, and longest unit.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest struct.
pub const STRUCT_BYTES_MAX: usize = 1 << 20;

/// How far the verifier follows a schema that shares and nests what it can.
const VERIFIER: VerifierOptions = VerifierOptions {
    max_depth: 8, // Schema, Object or Service, Field or Call, Type, KeyValue
    max_tables: 1 << 18,
    max_apparent_size: 16 * SCHEMA_BYTES_MAX,
    ignore_missing_null_terminator: false,
};

/// Slots of a vtable come behind its own length and the table's.
const FIRST_SLOT: u16 = 4;

/// A binary schema, verified, with no more objects than it may have.
pub(super) fn open(bfbs: &[u8]) -> Result<Schema<'_>, SchemaError> {
    if bfbs.len() > SCHEMA_BYTES_MAX {
        return Err(SchemaError::TooLarge { bytes: bfbs.len(), limit: SCHEMA_BYTES_MAX });
    }
    if bfbs.get(4..8) != Some(b"BFBS") {
        return Err(SchemaError::NotSchema);
    }
    let schema = flatbuffers::root_with_opts::<Schema<'_>>(&VERIFIER, bfbs)
        .map_err(|error| SchemaError::Damaged { error })?;
    at_most(schema.objects().len(), OBJECTS_MAX, "tables and structs")?;
    Ok(schema)
}

pub(super) fn compile(bfbs: &[u8], root: &str) -> Result<Plan, SchemaError> {
    let schema = open(bfbs)?;
    let objects = schema.objects();
    let found = (0..objects.len()).find(|index| {
        let object = objects.get(*index);
        object.name() == root && !object.is_struct()
    });
    let root = found.ok_or_else(|| SchemaError::NoRoot { root: root.to_owned() })?;

    let mut compiler = Compiler {
        schema,
        reached: vec![root],
        enums: Vec::new(),
        enums_reached: Vec::new(),
        fields: 0,
        enum_values: 0,
    };
    let mut plan_objects = Vec::new();
    // An object's index in the plan is its place among those reached, so that fields can name objects that
    // are not compiled yet.
    while let Some(index) = compiler.reached.get(plan_objects.len()) {
        plan_objects.push(compiler.object(objects.get(*index))?);
    }
    let mut paths_left = PATHS_MAX;
    measure(&plan_objects, 0, &mut Vec::new(), &mut paths_left)?;
    Ok(Plan { objects: plan_objects, enums: compiler.enums, root: 0 })
}

type List<'b, T> = Vector<'b, ForwardsUOffset<T>>;

struct Compiler<'b> {
    schema: Schema<'b>,
    /// Indices in the schema of the objects that are needed; the place is the index in the plan.
    reached: Vec<usize>,
    enums: Vec<Names>,
    /// Indices in the schema of the enums in `enums`.
    enums_reached: Vec<usize>,
    /// So far, all objects together.
    fields: usize,
    /// So far, all enums together.
    enum_values: usize,
}

/// The object whose fields are being compiled, and the field.
struct Context<'c> {
    object: &'c str,
    field: &'c str,
    /// Of the object, if it is a struct.
    struct_bytes: Option<usize>,
}

impl Context<'_> {
    fn invalid(&self, what: &'static str) -> SchemaError {
        SchemaError::Invalid { object: self.object.to_owned(), field: self.field.to_owned(), what }
    }

    fn unsupported(&self, what: &'static str) -> SchemaError {
        SchemaError::Unsupported { object: self.object.to_owned(), field: self.field.to_owned(), what }
    }
}

/// What a type of the schema comes to.
struct Shape {
    kind: Kind,
    /// Bytes where the field lies: an offset's for what lies elsewhere.
    bytes: usize,
    type_name: String,
    enumeration: Option<usize>,
}

impl<'b> Compiler<'b> {
    fn object(&mut self, object: reflection::Object<'b>) -> Result<Object, SchemaError> {
        let name = full_name(object.name())?;
        let struct_bytes = struct_bytes(object)?;
        let fields = object.fields();
        self.fields = self.fields.saturating_add(fields.len());
        at_most(self.fields, FIELDS_MAX, "fields")?;
        // The schema sorts them by name.
        let mut by_id: Vec<_> = fields.iter().collect();
        by_id.sort_by_key(reflection::Field::id);
        let context = Context { object: name, field: "", struct_bytes };
        if by_id.iter().zip(by_id.iter().skip(1)).any(|(left, right)| left.id() == right.id()) {
            return Err(context.invalid("two fields with one id"));
        }
        let mut names: Vec<_> = by_id.iter().map(reflection::Field::name).collect();
        names.sort_unstable();
        if names.iter().zip(names.iter().skip(1)).any(|(left, right)| left == right) {
            return Err(context.invalid("two fields with one name"));
        }
        let mut compiled = Vec::with_capacity(by_id.len());
        for field in by_id.into_iter().filter(|field| !field.deprecated()) {
            let context = Context { object: name, field: name_of(field.name(), name)?, struct_bytes };
            compiled.push(Field { index: compiled.len(), ..self.field(field, &context)? });
        }
        Ok(Object { name: name.into(), struct_bytes, fields: compiled.into() })
    }

    fn field(&mut self, field: reflection::Field<'b>, context: &Context<'_>) -> Result<Field, SchemaError> {
        if field.offset64() {
            return Err(context.unsupported("an offset of 64 bits"));
        }
        let shape = self.shape(field.type_(), context)?;
        let at = field.offset();
        match context.struct_bytes {
            None if at < FIRST_SLOT || !at.is_multiple_of(2) => {
                return Err(context.invalid("an impossible slot in the vtable"));
            }
            Some(bytes) if usize::from(at).saturating_add(shape.bytes) > bytes => {
                return Err(context.invalid("it ends behind its struct"));
            }
            _ => {}
        }
        let scalar = match shape.kind {
            Kind::Scalar(scalar)
            | Kind::Vector(Element::Scalar(scalar))
            | Kind::Array(Element::Scalar(scalar), _) => Some(scalar),
            _ => None,
        };
        let attributes = field.attributes();
        let attribute = |key| attribute(attributes, key);
        let absent = match attribute("absent") {
            Some("max") => scalar.and_then(Scalar::unsigned_max).map(Value::Unsigned),
            Some("min") => scalar.and_then(Scalar::signed_min).map(Value::Signed),
            _ => None,
        };
        let is_bytes = scalar == Some(Scalar::U8) && !matches!(shape.kind, Kind::Scalar(_));
        let unit = attribute("unit").filter(|unit| !unit.is_empty());
        if unit.is_some_and(|unit| unit.len() > NAME_BYTES_MAX) {
            return Err(context.invalid("its unit is too long"));
        }
        Ok(Field {
            kind: shape.kind,
            at,
            text: is_bytes && attribute("text").is_some(),
            absent,
            enumeration: shape.enumeration,
            default: default(field, shape.kind),
            index: 0,
            identity: attribute("identity").is_some(),
            meaning: meaning(attribute("meaning")),
            name: context.field.into(),
            type_name: shape.type_name.into(),
            unit: unit.map(Into::into),
            documentation: documentation(field.documentation()).into(),
        })
    }

    fn shape(&mut self, r#type: reflection::Type<'b>, context: &Context<'_>) -> Result<Shape, SchemaError> {
        let base = r#type.base_type();
        if base != BaseType::Vector && base != BaseType::Array {
            let (element, bytes, type_name, enumeration) = self.element(base, r#type, context)?;
            let kind = match element {
                Element::Scalar(scalar) => Kind::Scalar(scalar),
                Element::String => Kind::String,
                Element::Object(object) => Kind::Object(object),
            };
            return Ok(Shape { kind, bytes, type_name, enumeration });
        }
        let (element, bytes, name, enumeration) = self.element(r#type.element(), r#type, context)?;
        match (base, context.struct_bytes) {
            (BaseType::Vector, None) => {
                let type_name = format!("[{name}]");
                Ok(Shape { kind: Kind::Vector(element), bytes: OFFSET_BYTES, type_name, enumeration })
            }
            (BaseType::Array, Some(_)) => {
                let length = r#type.fixed_length();
                let bytes = bytes.saturating_mul(length.into());
                let type_name = format!("[{name}:{length}]");
                Ok(Shape { kind: Kind::Array(element, length), bytes, type_name, enumeration })
            }
            (BaseType::Array, None) => Err(context.invalid("an array outside a struct")),
            _ => Err(context.invalid("a vector inside a struct")),
        }
    }

    /// What one value of a base type comes to: shape, bytes, name of the type, names of the values.
    fn element(
        &mut self,
        base: BaseType,
        r#type: reflection::Type<'b>,
        context: &Context<'_>,
    ) -> Result<(Element, usize, String, Option<usize>), SchemaError> {
        if let Some(scalar) = scalar(base) {
            let (name, enumeration) = self.enumeration(r#type, context)?;
            let name = name.unwrap_or(scalar.name()).to_owned();
            return Ok((Element::Scalar(scalar), scalar.size(), name, enumeration));
        }
        let in_struct = context.struct_bytes.is_some();
        match base {
            BaseType::String if !in_struct => Ok((Element::String, OFFSET_BYTES, "string".to_owned(), None)),
            BaseType::Obj => {
                let objects = self.schema.objects();
                let index = usize::try_from(r#type.index()).ok().filter(|index| *index < objects.len());
                let index = index.ok_or_else(|| context.invalid("its type is not in the schema"))?;
                let object = objects.get(index);
                let name = full_name(object.name())?;
                let bytes = struct_bytes(object)?;
                if in_struct && bytes.is_none() {
                    return Err(context.invalid("a table inside a struct"));
                }
                let element = Element::Object(position(&mut self.reached, index));
                Ok((element, bytes.unwrap_or(OFFSET_BYTES), name.to_owned(), None))
            }
            BaseType::String => Err(context.invalid("a string inside a struct")),
            BaseType::UType | BaseType::Union => Err(context.unsupported("a union")),
            BaseType::Vector64 => Err(context.unsupported("a vector with a length of 64 bits")),
            _ => Err(context.unsupported("its type")),
        }
    }

    /// The enum's name, and the index of its values' names unless they are bits to be combined.
    fn enumeration(
        &mut self,
        r#type: reflection::Type<'b>,
        context: &Context<'_>,
    ) -> Result<(Option<&'b str>, Option<usize>), SchemaError> {
        let Ok(index) = usize::try_from(r#type.index()) else {
            return Ok((None, None));
        };
        let enums = self.schema.enums();
        if index >= enums.len() {
            return Err(context.invalid("its enum is not in the schema"));
        }
        let found = enums.get(index);
        let name = full_name(found.name())?;
        if found.is_union() {
            return Err(context.unsupported("a union"));
        }
        if attribute(found.attributes(), "bit_flags").is_some() {
            return Ok((Some(name), None));
        }
        let position = position(&mut self.enums_reached, index);
        if position == self.enums.len() {
            let values = found.values();
            self.enum_values = self.enum_values.saturating_add(values.len());
            at_most(self.enum_values, ENUM_VALUES_MAX, "values of enums")?;
            let mut entries = Vec::with_capacity(values.len());
            for value in values {
                entries.push((value.value(), name_of(value.name(), name)?.into()));
            }
            entries.sort_by_key(|(value, _)| *value);
            entries.dedup_by_key(|(value, _)| *value);
            self.enums.push(Names { entries: entries.into() });
        }
        Ok((Some(name), Some(position)))
    }
}

const OFFSET_BYTES: usize = 4;

/// Follows every path from an object, to bound what anyone who unfolds the schema has to do. A table inside
/// itself ends its path; a struct inside itself has no size.
fn measure(
    objects: &[Object],
    index: usize,
    open: &mut Vec<usize>,
    paths_left: &mut usize,
) -> Result<(), SchemaError> {
    let Some(object) = objects.get(index) else {
        return Ok(());
    };
    if open.contains(&index) {
        let Some(_) = object.struct_bytes else {
            return Ok(());
        };
        let what = "a struct inside itself";
        return Err(SchemaError::Invalid { object: object.name.to_string(), field: String::new(), what });
    }
    if open.len() >= DEPTH_MAX {
        return Err(SchemaError::TooDeep { object: object.name.to_string(), limit: DEPTH_MAX });
    }
    open.push(index);
    for field in &object.fields {
        let left = paths_left.checked_sub(1);
        *paths_left = left.ok_or(SchemaError::TooMany { what: "paths to fields", limit: PATHS_MAX })?;
        if let Some(nested) = field.nested() {
            measure(objects, nested, open, paths_left)?;
        }
    }
    open.pop();
    Ok(())
}

/// Where the index stands in the list, at its end if it is new.
fn position(reached: &mut Vec<usize>, index: usize) -> usize {
    reached.iter().position(|known| *known == index).unwrap_or_else(|| {
        reached.push(index);
        reached.len() - 1
    })
}

/// The length of a struct, none for a table.
fn struct_bytes(object: reflection::Object<'_>) -> Result<Option<usize>, SchemaError> {
    if !object.is_struct() {
        return Ok(None);
    }
    match usize::try_from(object.bytesize()) {
        Ok(bytes) if (1..=STRUCT_BYTES_MAX).contains(&bytes) => Ok(Some(bytes)),
        _ => Err(SchemaError::Invalid {
            object: full_name(object.name())?.to_owned(),
            field: String::new(),
            what: "an impossible size of a struct",
        }),
    }
}

fn scalar(base: BaseType) -> Option<Scalar> {
    Some(match base {
        BaseType::Bool => Scalar::Bool,
        BaseType::Byte => Scalar::I8,
        BaseType::UByte => Scalar::U8,
        BaseType::Short => Scalar::I16,
        BaseType::UShort => Scalar::U16,
        BaseType::Int => Scalar::I32,
        BaseType::UInt => Scalar::U32,
        BaseType::Long => Scalar::I64,
        BaseType::ULong => Scalar::U64,
        BaseType::Float => Scalar::F32,
        BaseType::Double => Scalar::F64,
        _ => return None,
    })
}

/// What a table that leaves the field out means by it. flatc 25.12.19 writes 0 for unsigned defaults above
/// `i64::MAX`, so a schema should have none.
fn default(field: reflection::Field<'_>, kind: Kind) -> Value<'static> {
    let Kind::Scalar(scalar) = kind else {
        return Value::Absent;
    };
    if field.optional() {
        return Value::Absent;
    }
    let integer = field.default_integer();
    match scalar {
        Scalar::Bool => Value::Bool(integer != 0),
        Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::U64 => Value::Unsigned(integer.cast_unsigned()),
        Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 => Value::Signed(integer),
        Scalar::F32 => Value::Float32(narrow(field.default_real())),
        Scalar::F64 => Value::Float(field.default_real()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the schema holds the defaults of 32 bits in 64")]
fn narrow(real: f64) -> f32 {
    real as f32
}

fn meaning(attribute: Option<&str>) -> Meaning {
    match attribute {
        Some("counter") => Meaning::Counter,
        Some("gauge") => Meaning::Gauge,
        Some("state") => Meaning::State,
        Some("text") => Meaning::Text,
        _ => Meaning::Unknown,
    }
}

fn attribute<'b>(attributes: Option<List<'b, KeyValue<'b>>>, key: &str) -> Option<&'b str> {
    let found = attributes?.iter().find(|attribute| attribute.key() == key)?;
    Some(found.value().unwrap_or_default())
}

fn documentation(lines: Option<List<'_, &str>>) -> String {
    let mut text = String::new();
    for line in lines.into_iter().flatten().map(str::trim).filter(|line| !line.is_empty()) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line);
    }
    text
}

/// A name that can stand in a dotted path, in JSON and on a terminal as it is.
fn name_of<'b>(name: &'b str, object: &str) -> Result<&'b str, SchemaError> {
    let fits = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits {
        return Ok(name);
    }
    let what = "a name that is not made of up to 255 letters, digits and underscores";
    Err(SchemaError::Invalid { object: object.to_owned(), field: shown(name), what })
}

/// A name of an object or enum with its namespace.
fn full_name(name: &str) -> Result<&str, SchemaError> {
    if name.len() <= NAME_BYTES_MAX && name.split('.').all(|part| name_of(part, "").is_ok()) {
        return Ok(name);
    }
    let what = "a full name that is not made of up to 255 letters, digits, underscores and dots";
    Err(SchemaError::Invalid { object: shown(name), field: String::new(), what })
}

/// As much of a bad name as a message can bear; control characters are left out.
fn shown(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(NAME_BYTES_MAX).collect()
}

fn at_most(count: usize, limit: usize, what: &'static str) -> Result<(), SchemaError> {
    if count > limit { Err(SchemaError::TooMany { what, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{
        Forged, ForgedObject, MARKED, RECURSIVE, SHAPES, SHAPES_PAYLOAD, Tally, forge, marked, shapes,
    };
    use super::*;
    use crate::effort;

    fn refused(objects: &[ForgedObject]) -> String {
        Plan::compile(&forge(objects), "R").unwrap_err().to_string()
    }

    fn list_of(base: BaseType, element: BaseType, index: i32, fixed_length: u16) -> Forged {
        Forged { element, fixed_length, ..Forged::new(base, index, FIRST_SLOT) }
    }

    #[test]
    fn fields_carry_what_attributes_and_comments_say() {
        // Goal: names, types, units, meanings and comments reach the plan. Method: a schema with all of them.
        let plan = marked();
        let leaves: Vec<_> = plan.fields().collect();
        let paths: Vec<_> = leaves.iter().map(|leaf| leaf.path.as_str()).collect();
        let expected = "total.user total.system cores.id cores.times.user cores.times.system cores.states causes \
            unit.name unit.heat unit.small note raw load state odd";
        assert_eq!(paths.join(" "), expected);
        let of = |path: &str| leaves.iter().find(|leaf| leaf.path == path).unwrap().field;
        assert_eq!(of("total.user").unit(), Some("ns"));
        assert_eq!(of("total.user").meaning(), Meaning::Counter);
        assert_eq!(of("total.user").documentation(), "Time in user code.");
        assert_eq!(of("total.user").type_name(), "ulong");
        assert_eq!(of("unit.name").documentation(), "How the kernel calls it, with zeros behind.");
        assert_eq!(of("unit.name").meaning(), Meaning::Text);
        assert_eq!(of("unit.name").type_name(), "[ubyte:8]");
        assert_eq!(of("unit.heat").meaning(), Meaning::Gauge);
        assert_eq!(of("cores.states").type_name(), "[flatcap.test.State]");
        assert_eq!(of("causes").type_name(), "flatcap.test.Causes");
        assert_eq!(of("state").unit(), None);
        assert_eq!(of("odd").meaning(), Meaning::Unknown);
        assert_eq!(of("odd").documentation(), "");
        assert_eq!(plan.root_name(), "flatcap.test.Marked");
    }

    #[test]
    fn ids_order_the_fields_and_deprecated_ones_are_left_out() {
        // Goal: the order is that of the ids, not of declaration or name. Method: a schema that mixes them.
        let plan = shapes();
        let root = plan.object(plan.root);
        let names: Vec<_> = root.fields.iter().map(Field::name).collect();
        let expected = "scalars untouched maybe text point grid leaf numbers ratios flags moods points leaves words \
            last";
        assert_eq!(names.join(" "), expected);
        assert!(root.fields.iter().enumerate().all(|(index, field)| field.index() == index));
    }

    #[test]
    fn a_root_must_be_a_table_of_the_schema() {
        // Goal: a wrong root, no schema, and too long a schema are told apart. Method: one of each.
        let compile = |bfbs: &[u8], root| Plan::compile(bfbs, root).unwrap_err().to_string();
        assert_eq!(compile(SHAPES, "flatcap.test.None"), "the schema has no table flatcap.test.None");
        assert_eq!(compile(SHAPES, "flatcap.test.Point"), "the schema has no table flatcap.test.Point");
        assert_eq!(compile(b"", "R"), "not a binary schema (no identifier BFBS)");
        assert_eq!(compile(SHAPES_PAYLOAD, "R"), "not a binary schema (no identifier BFBS)");
        let long = vec![0; SCHEMA_BYTES_MAX + 1];
        assert_eq!(compile(&long, "R"), "the schema has 1048577 bytes, the limit is 1048576");
    }

    #[test]
    fn unions_are_refused_only_where_the_root_reaches_them() {
        // Goal: what cannot be decoded is refused by name. Method: a schema with unions beside the root.
        let compile =
            |root: &str| Plan::compile(RECURSIVE, root).map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(compile("flatcap.test.Node"), Ok(()));
        for (root, field) in
            [("Unreached", "choice_type"), ("Chosen", "either_type"), ("ChosenList", "all_type")]
        {
            let expected = format!("flatcap.test.{root}, field {field:?}: a union is not supported");
            assert_eq!(compile(&format!("flatcap.test.{root}")), Err(expected));
        }
    }

    #[test]
    fn contradictions_of_a_forged_schema_are_named() {
        // Goal: no contradiction passes into a plan. Method: one forged schema for each.
        let table = |field| vec![ForgedObject::table("R", vec![field])];
        let with = |field, other| vec![ForgedObject::table("R", vec![field]), other];
        let structure = |bytes, field| {
            let holder = Forged::new(BaseType::Obj, 1, FIRST_SLOT);
            with(holder, ForgedObject::structure("S", bytes, vec![field]))
        };
        let int = Forged::new(BaseType::Int, -1, FIRST_SLOT);
        let array = |element, index| Forged { offset: 0, ..list_of(BaseType::Array, element, index, 65_535) };
        let cases = [
            (table(Forged::new(BaseType::Obj, 7, FIRST_SLOT)), "its type is not in the schema"),
            (table(Forged::new(BaseType::Obj, -1, FIRST_SLOT)), "its type is not in the schema"),
            (table(Forged::new(BaseType::Int, 3, FIRST_SLOT)), "its enum is not in the schema"),
            (table(Forged::new(BaseType(77), -1, FIRST_SLOT)), "its type is not supported"),
            (table(Forged::new(BaseType(-5), -1, FIRST_SLOT)), "its type is not supported"),
            (table(Forged::new(BaseType::None, -1, FIRST_SLOT)), "its type is not supported"),
            (table(Forged::new(BaseType::Vector64, -1, FIRST_SLOT)), "of 64 bits is not supported"),
            (table(list_of(BaseType::Vector, BaseType::Union, 0, 0)), "a union is not supported"),
            (table(list_of(BaseType::Vector, BaseType::Vector, 0, 0)), "its type is not supported"),
            (table(list_of(BaseType::Array, BaseType::Int, -1, 3)), "an array outside a struct"),
            (table(Forged::new(BaseType::Int, -1, 2)), "an impossible slot"),
            (table(Forged::new(BaseType::Int, -1, 7)), "an impossible slot"),
            (table(Forged { name: "a.b", ..int.clone() }), "a name that is not made of"),
            (table(Forged { name: "a\u{1b}[31m", ..int.clone() }), "a name that is not made of"),
            (structure(0, int.clone()), "an impossible size of a struct"),
            (structure(-4, int.clone()), "an impossible size of a struct"),
            (structure(i32::MAX, int.clone()), "an impossible size of a struct"),
            (structure(8, Forged { offset: 5, ..int.clone() }), "it ends behind its struct"),
            (structure(8, Forged { offset: u16::MAX, ..int.clone() }), "it ends behind its struct"),
            (structure(8, array(BaseType::ULong, -1)), "it ends behind its struct"),
            (structure(8, Forged::new(BaseType::Obj, 0, 0)), "a table inside a struct"),
            (structure(8, Forged::new(BaseType::String, -1, 0)), "a string inside a struct"),
            (structure(8, list_of(BaseType::Vector, BaseType::Int, -1, 0)), "a vector inside a struct"),
            (structure(8, Forged::new(BaseType::Obj, 1, 0)), "a struct inside itself"),
        ];
        for (objects, expected) in cases {
            let message = refused(&objects);
            assert!(message.contains(expected), "{message:?} instead of {expected:?}");
        }
    }

    #[test]
    fn two_fields_may_share_neither_id_nor_name() {
        // Goal: paths and JSON keys are unique. Method: forged twins.
        let field = Forged::new(BaseType::Int, -1, FIRST_SLOT);
        let other = Forged { name: "other", ..field.clone() };
        let message = refused(&[ForgedObject::table("R", vec![field.clone(), other])]);
        assert!(message.contains("two fields with one id"), "{message}");
        let twin = Forged { id: 1, ..field.clone() };
        let message = refused(&[ForgedObject::table("R", vec![field, twin])]);
        assert!(message.contains("two fields with one name"), "{message}");
    }

    #[test]
    fn work_on_a_forged_schema_is_bounded() {
        // Goal: no schema costs time or memory without end. Method: the shapes that unfold most.
        let name = |index: usize| if index == 0 { "R".to_owned() } else { format!("T{index}") };
        let chain = |length: usize, width: u16| {
            let object = |index: usize| {
                let next = i32::try_from((index + 1).min(length - 1)).unwrap();
                let names = ["a", "b", "c", "d"];
                let fields = (0..width).map(|id| Forged {
                    name: names[usize::from(id)],
                    id,
                    ..Forged::new(BaseType::Obj, next, FIRST_SLOT + 2 * id)
                });
                ForgedObject::table(&name(index), fields.collect())
            };
            (0..length).map(object).collect::<Vec<_>>()
        };
        // A chain's last table lies in itself, so it ends there.
        assert!(Plan::compile(&forge(&chain(DEPTH_MAX, 1)), "R").is_ok());
        assert_eq!(refused(&chain(DEPTH_MAX + 1, 1)), "T16 lies deeper than 16 objects inside one another");
        assert_eq!(refused(&chain(DEPTH_MAX, 4)), "the schema has more than 65536 paths to fields");
        assert_eq!(refused(&chain(OBJECTS_MAX + 1, 1)), "the schema has more than 1024 tables and structs");
    }

    #[test]
    fn any_damage_to_a_schema_is_an_error_or_another_plan() {
        // Goal: no bytes in a schema make it or its plan panic. Method: every bit flipped, every truncation,
        // and what still compiles reads a payload.
        let cases = [(SHAPES, "flatcap.test.Shapes"), (MARKED, "flatcap.test.Marked")];
        for (schema, root) in cases {
            let check = |bytes: &[u8]| {
                let Ok(plan) = Plan::compile(bytes, root) else { return false };
                assert!(plan.fields().count() <= PATHS_MAX);
                let mut tally = Tally::default();
                plan.walk(SHAPES_PAYLOAD, &mut tally).is_ok()
            };
            for length in (0..schema.len()).step_by(effort::of(5, 1)) {
                check(&schema[..length]);
            }
            let mut bytes = schema.to_vec();
            for position in (0..bytes.len()).step_by(effort::of(5, 1)) {
                for bit in 0..8 {
                    bytes[position] ^= 1 << bit;
                    check(&bytes);
                    bytes[position] ^= 1 << bit;
                }
            }
        }
    }
}
