//! Compiles a binary schema. Verifies the schema and resolves all types that the root reaches.
//!
//! The limits below bound the time and memory that a damaged or hostile schema can cost.

use flatbuffers::{ForwardsUOffset, Vector, VerifierOptions};
use flatbuffers_reflection::reflection::{self, BaseType, KeyValue, Schema};

use super::compiled::{
    CompiledObject, CompiledSchema, DEPTH_MAX, ElementType, EnumNames, Field, FieldType, MetricKind, Sparse,
    Usage,
};
use super::error::SchemaError;
use super::value::{FieldValue, ScalarType};

/// Maximum length of a binary schema, in bytes.
pub(crate) const SCHEMA_BYTES_MAX: usize = 1 << 20;
/// Maximum number of tables and structs in a schema.
pub(crate) const OBJECTS_MAX: usize = 1024;
/// Maximum number of fields in all tables and structs that the root reaches.
pub(crate) const FIELDS_MAX: usize = 16_384;
/// Maximum number of values in all enums that fields use.
pub(crate) const ENUM_VALUES_MAX: usize = 65_536;
/// Maximum number of paths from the root to a field. If several fields have the same table as their
/// type, the paths into this table count once for each of these fields.
pub(crate) const PATHS_MAX: usize = 65_536;
/// Maximum length of a unit, or of the name of an object, a field or an enum value, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a struct, in bytes.
pub(crate) const STRUCT_BYTES_MAX: usize = 1 << 20;

/// Limits of the verifier. The limits are high enough for a schema that shares and nests tables as
/// much as possible.
// The verifier counts tables and bytes at each use, so sharing may add up to more than the length
// of a valid file. The limits bound the cost of a hostile file.
const VERIFIER: VerifierOptions = VerifierOptions {
    max_depth: 8, // Schema, Object or Service, Field or Call, Type, KeyValue
    max_tables: 1 << 18,
    max_apparent_size: 16 * SCHEMA_BYTES_MAX,
    ignore_missing_null_terminator: false,
};

/// The slot of the first field in a vtable. The length of the vtable and the length of the table
/// precede this slot.
const FIRST_SLOT: u16 = 4;

/// Verifies a binary schema and checks the number of its objects.
pub(super) fn open(bfbs: &[u8]) -> Result<Schema<'_>, SchemaError> {
    // The cheap checks come first. So the verifier never gets more bytes than the limit, and a file
    // of another kind is not reported as damaged. The verifier itself ignores the identifier.
    if bfbs.len() > SCHEMA_BYTES_MAX {
        return Err(SchemaError::TooLarge { bytes: bfbs.len(), limit: SCHEMA_BYTES_MAX });
    }
    if bfbs.get(4..8) != Some(b"BFBS") {
        return Err(SchemaError::NotSchema);
    }
    let schema = flatbuffers::root_with_opts::<Schema<'_>>(&VERIFIER, bfbs)
        .map_err(|error| SchemaError::Damaged { error })?;
    // The number of objects is limited here, because `position_or_push` searches the indices of
    // objects linearly.
    at_most(schema.objects().len(), OBJECTS_MAX, "tables and structs")?;
    Ok(schema)
}

impl CompiledSchema {
    /// Compiles a binary schema (.bfbs) for payloads whose root is the table with the given full
    /// name.
    ///
    /// Omits deprecated fields, as generated code does.
    ///
    /// # Errors
    /// Any [`SchemaError`] except `NoField`. All types that the root reaches are checked, so a
    /// later walk cannot fail because of the schema.
    pub fn compile(bfbs: &[u8], root: &str) -> Result<Self, SchemaError> {
        let schema = open(bfbs)?;
        let objects = schema.objects();
        // This search is linear, because the verifier does not check that a schema is sorted by
        // name. A forged schema may be unsorted. A struct cannot be the root of a payload, because
        // a root has a vtable.
        let found = (0..objects.len()).find(|index| {
            let object = objects.get(*index);
            object.name() == root && !object.is_struct()
        });
        let root = found.ok_or_else(|| SchemaError::NoRoot { root: root.to_owned() })?;

        let mut compiler = SchemaCompiler {
            schema,
            reached: vec![root],
            enums: Vec::new(),
            enums_reached: Vec::new(),
            fields: 0,
            enum_values: 0,
        };
        let mut compiled_objects = Vec::new();
        // The index of a compiled object is its position in `reached`, so fields can refer to
        // objects that are not compiled yet.
        while let Some(index) = compiler.reached.get(compiled_objects.len()) {
            compiled_objects.push(compiler.object(objects.get(*index))?);
        }
        // If each table of a chain has several fields of the next table's type, the number of paths
        // grows exponentially. So limits on objects and fields do not bound the number of paths.
        // The paths can be counted only after all objects are compiled, so this check is the last.
        let mut paths_left = PATHS_MAX;
        check_paths(&compiled_objects, 0, &mut Vec::new(), &mut paths_left)?;
        Ok(Self { objects: compiled_objects, enums: compiler.enums, root: 0, is_opaque: false })
    }
}

type OffsetVector<'b, T> = Vector<'b, ForwardsUOffset<T>>;

struct SchemaCompiler<'b> {
    schema: Schema<'b>,
    /// The schema indices of all objects that the root refers to, directly or indirectly. The
    /// position of an object in this list is its index in the compiled schema.
    reached: Vec<usize>,
    enums: Vec<EnumNames>,
    /// The indices, in the schema, of the enums in `enums`.
    enums_reached: Vec<usize>,
    /// Number of fields so far, in all objects.
    fields: usize,
    /// Number of values so far, in all enums.
    enum_values: usize,
}

/// The object and the field that are being compiled.
struct FieldContext<'c> {
    object: &'c str,
    field: &'c str,
    /// Length of the object, if it is a struct.
    struct_bytes: Option<usize>,
}

impl FieldContext<'_> {
    fn invalid(&self, what: &'static str) -> SchemaError {
        SchemaError::Invalid { object: self.object.to_owned(), field: self.field.to_owned(), what }
    }

    fn unsupported(&self, what: &'static str) -> SchemaError {
        SchemaError::Unsupported { object: self.object.to_owned(), field: self.field.to_owned(), what }
    }
}

/// A resolved type of the schema.
struct ResolvedType {
    kind: FieldType,
    /// Length of the bytes at the field's offset. For tables, strings and vectors, this is the
    /// length of an offset.
    bytes: usize,
    type_name: String,
    enumeration: Option<usize>,
}

impl<'b> SchemaCompiler<'b> {
    fn object(&mut self, object: reflection::Object<'b>) -> Result<CompiledObject, SchemaError> {
        let name = checked_full_name(object.name())?;
        let struct_bytes = struct_bytes(object)?;
        let fields = object.fields();
        self.fields = self.fields.saturating_add(fields.len());
        // The number of fields is checked before the fields are collected, because collecting them
        // allocates memory for each field.
        at_most(self.fields, FIELDS_MAX, "fields")?;
        // The schema sorts fields by name, but the compiled fields must be in the order of their
        // ids.
        let mut by_id: Vec<_> = fields.iter().collect();
        by_id.sort_by_key(reflection::Field::id);
        let context = FieldContext { object: name, field: "", struct_bytes };
        if by_id.iter().zip(by_id.iter().skip(1)).any(|(left, right)| left.id() == right.id()) {
            return Err(context.invalid("two fields with one id"));
        }
        // Names must be unique because paths and JSON keys must be unique. The names are sorted
        // here, because a forged schema may be unsorted.
        let mut names: Vec<_> = by_id.iter().map(reflection::Field::name).collect();
        names.sort_unstable();
        if names.iter().zip(names.iter().skip(1)).any(|(left, right)| left == right) {
            return Err(context.invalid("two fields with one name"));
        }
        // Leaving out deprecated fields does not move other fields, because slots come from
        // `offset` and not from the position.
        let mut compiled = Vec::with_capacity(by_id.len());
        for field in by_id.into_iter().filter(|field| !field.deprecated()) {
            let context =
                FieldContext { object: name, field: checked_name(field.name(), name)?, struct_bytes };
            compiled.push(Field { index: compiled.len(), ..self.field(field, &context)? });
        }
        let has_events = attribute(object.attributes(), "events").is_some();
        Ok(CompiledObject { name: name.into(), struct_bytes, has_events, fields: compiled.into() })
    }

    fn field(
        &mut self,
        field: reflection::Field<'b>,
        context: &FieldContext<'_>,
    ) -> Result<Field, SchemaError> {
        // If such an offset were read as 32 bits, it would lead to a wrong location.
        if field.offset64() {
            return Err(context.unsupported("an offset of 64 bits"));
        }
        let resolved = self.resolve_type(field.type_(), context)?;
        let at = field.offset();
        // In a table, `offset` is a slot of two bytes in the vtable. In a struct, it is the offset
        // of the value. The check that a field ends within its struct ensures that the field cannot
        // reach into the next element of a list.
        match context.struct_bytes {
            None if at < FIRST_SLOT || !at.is_multiple_of(2) => {
                return Err(context.invalid("an impossible slot in the vtable"));
            }
            Some(bytes) if usize::from(at).saturating_add(resolved.bytes) > bytes => {
                return Err(context.invalid("it ends past the end of its struct"));
            }
            _ => {}
        }
        // The attributes of a list apply to each element.
        let scalar = match resolved.kind {
            FieldType::Scalar(scalar)
            | FieldType::Vector(ElementType::Scalar(scalar))
            | FieldType::Array(ElementType::Scalar(scalar), _) => Some(scalar),
            _ => None,
        };
        let attributes = field.attributes();
        let attribute = |key| attribute(attributes, key);
        // The attribute has no effect on types that have no such value. Values of these types are
        // read unchanged, and the schema is not rejected.
        let absent = match attribute("absent") {
            Some("max") => scalar.and_then(ScalarType::highest),
            Some("min") => scalar.and_then(ScalarType::signed_min).map(FieldValue::Signed),
            _ => None,
        };
        // Combinations of flags have no names, so they stay numbers.
        let is_flags = field.type_().index() >= 0 && resolved.enumeration.is_none();
        let is_bytes = scalar == Some(ScalarType::U8) && !matches!(resolved.kind, FieldType::Scalar(_));
        let unit = attribute("unit").filter(|unit| !unit.is_empty());
        // Unlike a name, a unit may contain any characters. Only the length of a unit is limited.
        if unit.is_some_and(|unit| unit.len() > NAME_BYTES_MAX) {
            return Err(context.invalid("its unit is too long"));
        }
        Ok(Field {
            value_type: resolved.kind,
            at,
            is_text: is_bytes && attribute("text").is_some(),
            absent,
            enumeration: resolved.enumeration,
            default: default(field, resolved.kind),
            index: 0,
            is_identity: attribute("identity").is_some(),
            is_detail: attribute("detail").is_some(),
            is_required: field.required(),
            uses_all_bits: scalar == Some(ScalarType::U64) && (is_flags || attribute("bits").is_some()),
            metric_kind: metric_kind(attribute("meaning")),
            usage: usage(attribute("usage")),
            wraps_at: attribute("wraps_at").filter(|name| !name.is_empty()).map(Into::into),
            sparse: sparse(attribute("sparse"), context),
            name: context.field.into(),
            type_name: resolved.type_name.into(),
            unit: unit.map(Into::into),
            documentation: documentation(field.documentation()).into(),
        })
    }

    fn resolve_type(
        &mut self,
        r#type: reflection::Type<'b>,
        context: &FieldContext<'_>,
    ) -> Result<ResolvedType, SchemaError> {
        let base = r#type.base_type();
        if base != BaseType::Vector && base != BaseType::Array {
            let (element, bytes, type_name, enumeration) = self.resolve_element(base, r#type, context)?;
            let kind = match element {
                ElementType::Scalar(scalar) => FieldType::Scalar(scalar),
                ElementType::String => FieldType::String,
                ElementType::Object(object) => FieldType::Object(object),
            };
            return Ok(ResolvedType { kind, bytes, type_name, enumeration });
        }
        let (element, bytes, name, enumeration) = self.resolve_element(r#type.element(), r#type, context)?;
        match (base, context.struct_bytes) {
            (BaseType::Vector, None) => {
                let type_name = format!("[{name}]");
                Ok(ResolvedType {
                    kind: FieldType::Vector(element),
                    bytes: OFFSET_BYTES,
                    type_name,
                    enumeration,
                })
            }
            (BaseType::Array, Some(_)) => {
                let length = r#type.fixed_length();
                let bytes = bytes.saturating_mul(length.into());
                let type_name = format!("[{name}:{length}]");
                Ok(ResolvedType { kind: FieldType::Array(element, length), bytes, type_name, enumeration })
            }
            (BaseType::Array, None) => Err(context.invalid("an array outside a struct")),
            _ => Err(context.invalid("a vector inside a struct")),
        }
    }

    /// Resolves the type of a single value or list element. Returns the type, its length in bytes
    /// and its name. For an enum, also returns the index of the list of value names.
    fn resolve_element(
        &mut self,
        base: BaseType,
        r#type: reflection::Type<'b>,
        context: &FieldContext<'_>,
    ) -> Result<(ElementType, usize, String, Option<usize>), SchemaError> {
        // The base type of an enum is an integer type. `enumeration` finds the enum.
        if let Some(scalar) = scalar(base) {
            let (name, enumeration) = self.enumeration(r#type, context)?;
            let name = name.unwrap_or(scalar.name()).to_owned();
            return Ok((ElementType::Scalar(scalar), scalar.size(), name, enumeration));
        }
        let in_struct = context.struct_bytes.is_some();
        match base {
            BaseType::String if !in_struct => {
                Ok((ElementType::String, OFFSET_BYTES, "string".to_owned(), None))
            }
            BaseType::Obj => {
                let objects = self.schema.objects();
                // The verifier checks offsets but not indices, and `get` panics if an index is out
                // of range.
                let index = usize::try_from(r#type.index()).ok().filter(|index| *index < objects.len());
                let index = index.ok_or_else(|| context.invalid("its type is not in the schema"))?;
                let object = objects.get(index);
                let name = checked_full_name(object.name())?;
                let bytes = struct_bytes(object)?;
                // A table is reached through an offset, and a struct cannot contain an offset.
                if in_struct && bytes.is_none() {
                    return Err(context.invalid("a table inside a struct"));
                }
                let element = ElementType::Object(position_or_push(&mut self.reached, index));
                Ok((element, bytes.unwrap_or(OFFSET_BYTES), name.to_owned(), None))
            }
            BaseType::String => Err(context.invalid("a string inside a struct")),
            // The type field of a union determines how the value field is decoded. So neither of
            // the two fields can be decoded alone.
            BaseType::UType | BaseType::Union => Err(context.unsupported("a union")),
            BaseType::Vector64 => Err(context.unsupported("a vector with a length of 64 bits")),
            _ => Err(context.unsupported("its type")),
        }
    }

    /// Returns the name of the enum, and the index of the list of its value names. There is no
    /// index if the values are bit flags.
    fn enumeration(
        &mut self,
        r#type: reflection::Type<'b>,
        context: &FieldContext<'_>,
    ) -> Result<(Option<&'b str>, Option<usize>), SchemaError> {
        // An index of -1 means that the type is not an enum.
        let Ok(index) = usize::try_from(r#type.index()) else {
            return Ok((None, None));
        };
        let enums = self.schema.enums();
        if index >= enums.len() {
            return Err(context.invalid("its enum is not in the schema"));
        }
        let found = enums.get(index);
        let name = checked_full_name(found.name())?;
        if found.is_union() {
            return Err(context.unsupported("a union"));
        }
        // A combination of flags has no name, so flags stay numbers.
        if attribute(found.attributes(), "bit_flags").is_some() {
            return Ok((Some(name), None));
        }
        let position = position_or_push(&mut self.enums_reached, index);
        // `enums_reached` and `enums` grow together, so a position at the end of `enums` belongs to
        // a new enum.
        if position == self.enums.len() {
            let values = found.values();
            self.enum_values = self.enum_values.saturating_add(values.len());
            at_most(self.enum_values, ENUM_VALUES_MAX, "values of enums")?;
            // The number of values is checked before memory is allocated for their names.
            let mut entries = Vec::with_capacity(values.len());
            for value in values {
                entries.push((value.value(), checked_name(value.name(), name)?.into()));
            }
            // Later lookups are binary searches, so the entries are sorted by value. The sort is
            // stable, so if a value has several names, the first name is kept.
            entries.sort_by_key(|(value, _)| *value);
            entries.dedup_by_key(|(value, _)| *value);
            self.enums.push(EnumNames { entries: entries.into() });
        }
        Ok((Some(name), Some(position)))
    }
}

const OFFSET_BYTES: usize = 4;

/// Follows every path from an object and counts the paths, to limit the work of code that expands
/// the schema. A path ends at a table that contains itself. A struct that contains itself has no
/// size, so it is an error.
fn check_paths(
    objects: &[CompiledObject],
    index: usize,
    open_objects: &mut Vec<usize>,
    paths_left: &mut usize,
) -> Result<(), SchemaError> {
    let Some(object) = objects.get(index) else {
        return Ok(());
    };
    if open_objects.contains(&index) {
        let Some(_) = object.struct_bytes else {
            return Ok(());
        };
        let what = "a struct that contains itself";
        return Err(SchemaError::Invalid { object: object.name.to_string(), field: String::new(), what });
    }
    // This limit bounds the recursion, and so also the size of the stack.
    if open_objects.len() >= DEPTH_MAX {
        return Err(SchemaError::TooDeep { object: object.name.to_string(), limit: DEPTH_MAX });
    }
    open_objects.push(index);
    for field in &object.fields {
        let left = paths_left.checked_sub(1);
        *paths_left = left.ok_or(SchemaError::TooMany { what: "paths to fields", limit: PATHS_MAX })?;
        if let Some(nested) = field.nested() {
            check_paths(objects, nested, open_objects, paths_left)?;
        }
    }
    open_objects.pop();
    Ok(())
}

/// Returns the position of `index` in the list. Appends `index` if the list does not contain it.
fn position_or_push(reached: &mut Vec<usize>, index: usize) -> usize {
    // The search is linear because there are few types. A forged schema causes at most one search
    // per field.
    reached.iter().position(|known| *known == index).unwrap_or_else(|| {
        reached.push(index);
        reached.len() - 1
    })
}

/// Returns the length of a struct, or `None` for a table.
fn struct_bytes(object: reflection::Object<'_>) -> Result<Option<usize>, SchemaError> {
    if !object.is_struct() {
        return Ok(None);
    }
    // The size of a struct is the distance between list elements. If the size were 0, a list of any
    // length would fit into a payload.
    match usize::try_from(object.bytesize()) {
        Ok(bytes) if (1..=STRUCT_BYTES_MAX).contains(&bytes) => Ok(Some(bytes)),
        _ => Err(SchemaError::Invalid {
            object: checked_full_name(object.name())?.to_owned(),
            field: String::new(),
            what: "an impossible size of a struct",
        }),
    }
}

fn scalar(base: BaseType) -> Option<ScalarType> {
    Some(match base {
        BaseType::Bool => ScalarType::Bool,
        BaseType::Byte => ScalarType::I8,
        BaseType::UByte => ScalarType::U8,
        BaseType::Short => ScalarType::I16,
        BaseType::UShort => ScalarType::U16,
        BaseType::Int => ScalarType::I32,
        BaseType::UInt => ScalarType::U32,
        BaseType::Long => ScalarType::I64,
        BaseType::ULong => ScalarType::U64,
        BaseType::Float => ScalarType::F32,
        BaseType::Double => ScalarType::F64,
        _ => return None,
    })
}

/// Returns the value that a field has if its table omits the field. flatc 25.12.19 writes 0 for
/// unsigned defaults above `i64::MAX`, so a schema should not have such defaults.
fn default(field: reflection::Field<'_>, kind: FieldType) -> FieldValue<'static> {
    // If an object, list or string is omitted, its value is absent. Only scalars have defaults.
    let FieldType::Scalar(scalar) = kind else {
        return FieldValue::Absent;
    };
    if field.optional() {
        return FieldValue::Absent;
    }
    let integer = field.default_integer();
    match scalar {
        ScalarType::Bool => FieldValue::Bool(integer != 0),
        ScalarType::U8 | ScalarType::U16 | ScalarType::U32 | ScalarType::U64 => {
            FieldValue::Unsigned(integer.cast_unsigned())
        }
        ScalarType::I8 | ScalarType::I16 | ScalarType::I32 | ScalarType::I64 => FieldValue::Signed(integer),
        ScalarType::F32 => FieldValue::Float32(narrow(field.default_real())),
        ScalarType::F64 => FieldValue::Float(field.default_real()),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the schema holds the defaults of 32 bits in 64")]
fn narrow(real: f64) -> f32 {
    real as f32
}

fn metric_kind(attribute: Option<&str>) -> MetricKind {
    match attribute {
        Some("counter") => MetricKind::Counter,
        Some("gauge") => MetricKind::Gauge,
        Some("state") => MetricKind::State,
        Some("text") => MetricKind::Text,
        _ => MetricKind::Unknown,
    }
}

/// Returns which samples leave out elements of a list, as the attribute `sparse` states.
fn sparse(attribute: Option<&str>, context: &FieldContext<'_>) -> Option<Sparse> {
    match attribute {
        // Process schemas that are older than the attribute have the same lists. Command lines and
        // groups belong to the processes in the list.
        None if context.object == "flatcap.host.Process"
            && ["processes", "command_lines", "groups"].contains(&context.field) =>
        {
            Some(Sparse::Unless0("skipped".into()))
        }
        None => None,
        Some("") => Some(Sparse::Always),
        Some(field) => Some(Sparse::Unless0(field.into())),
    }
}

fn usage(attribute: Option<&str>) -> Usage {
    match attribute {
        Some("wait") => Usage::Wait,
        Some("reservation") => Usage::Reservation,
        Some("cache") => Usage::Cache,
        Some("release") => Usage::Release,
        Some("failure") => Usage::Failure,
        _ => Usage::Use,
    }
}

fn attribute<'b>(attributes: Option<OffsetVector<'b, KeyValue<'b>>>, key: &str) -> Option<&'b str> {
    let found = attributes?.iter().find(|attribute| attribute.key() == key)?;
    // An attribute without a value, such as `identity`, is present and has an empty value.
    Some(found.value().unwrap_or_default())
}

fn documentation(lines: Option<OffsetVector<'_, &str>>) -> String {
    let mut text = String::new();
    for line in lines.into_iter().flatten().map(str::trim).filter(|line| !line.is_empty()) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line);
    }
    text
}

/// Checks that a name can be used without escapes in a dotted path, in JSON and on a terminal.
fn checked_name<'b>(name: &'b str, object: &str) -> Result<&'b str, SchemaError> {
    let fits = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if fits {
        return Ok(name);
    }
    let what = "its name must be 1 to 255 letters, digits or underscores";
    Err(SchemaError::Invalid { object: object.to_owned(), field: printable(name), what })
}

/// Checks the full name of an object or enum, which contains the namespace.
fn checked_full_name(name: &str) -> Result<&str, SchemaError> {
    if name.len() <= NAME_BYTES_MAX && name.split('.').all(|part| checked_name(part, "").is_ok()) {
        return Ok(name);
    }
    let what = "its full name must be up to 255 letters, digits, underscores and dots";
    Err(SchemaError::Invalid { object: printable(name), field: String::new(), what })
}

/// Shortens an invalid name for a message and removes control characters.
fn printable(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(NAME_BYTES_MAX).collect()
}

fn at_most(count: usize, limit: usize, what: &'static str) -> Result<(), SchemaError> {
    if count > limit { Err(SchemaError::TooMany { what, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{
        CountingVisitor, ForgedField, ForgedObject, MARKED, RECURSIVE, SHAPES, SHAPES_PAYLOAD, forge,
        forge_with, marked, shapes,
    };
    use super::*;
    use crate::testing::effort;

    fn refused(objects: &[ForgedObject]) -> String {
        CompiledSchema::compile(&forge(objects), "R").unwrap_err().to_string()
    }

    fn list_of(base: BaseType, element: BaseType, index: i32, fixed_length: u16) -> ForgedField {
        ForgedField { element, fixed_length, ..ForgedField::new(base, index, FIRST_SLOT) }
    }

    #[test]
    fn attributes_and_comments_are_compiled() {
        // Proves that a compiled schema has the names, types, units, metric kinds, usages and
        // comments of the fields.
        let plan = marked();
        let leaves: Vec<_> = plan.fields().collect();
        let paths: Vec<_> = leaves.iter().map(|leaf| leaf.path.as_str()).collect();
        let expected = "total.user total.system cores.id cores.times.user cores.times.system cores.states causes \
            unit.name unit.heat unit.small note raw load state odd";
        assert_eq!(paths.join(" "), expected);
        let of = |path: &str| leaves.iter().find(|leaf| leaf.path == path).unwrap().field;
        assert_eq!(of("total.user").unit(), Some("ns"));
        assert_eq!(of("total.user").metric_kind(), MetricKind::Counter);
        assert_eq!(of("total.user").documentation(), "Time in user code.");
        assert_eq!(of("total.user").type_name(), "ulong");
        assert_eq!(of("unit.name").documentation(), "How the kernel calls it, with zeros behind.");
        assert_eq!(of("unit.name").metric_kind(), MetricKind::Text);
        assert_eq!(of("unit.name").type_name(), "[ubyte:8]");
        assert_eq!(of("unit.heat").metric_kind(), MetricKind::Gauge);
        assert_eq!(of("cores.states").type_name(), "[flatcap.test.State]");
        assert_eq!(of("causes").type_name(), "flatcap.test.Causes");
        assert_eq!(of("state").unit(), None);
        assert_eq!(of("odd").metric_kind(), MetricKind::Unknown);
        assert_eq!(of("odd").documentation(), "");
        let usages =
            ["total.user", "total.system", "unit.heat", "unit.small", "load"].map(|path| of(path).usage());
        assert_eq!(usages, [Usage::Use, Usage::Wait, Usage::Reservation, Usage::Cache, Usage::Use]);
        assert_eq!(usage(Some("release")), Usage::Release);
        assert_eq!(usage(Some("failure")), Usage::Failure);
        assert_eq!(plan.root_name(), "flatcap.test.Marked");
    }

    #[test]
    fn ids_order_the_fields_and_deprecated_ones_are_left_out() {
        // Proves that fields are ordered by their ids, not by declaration or name, and that
        // deprecated fields are left out.
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
        // Proves that a wrong root, a file that is not a schema, and a schema that is too long
        // cause different errors.
        let compile = |bfbs: &[u8], root| CompiledSchema::compile(bfbs, root).unwrap_err().to_string();
        assert_eq!(compile(SHAPES, "flatcap.test.None"), "the schema has no table flatcap.test.None");
        assert_eq!(compile(SHAPES, "flatcap.test.Point"), "the schema has no table flatcap.test.Point");
        assert_eq!(compile(b"", "R"), "not a binary schema (.bfbs): identifier BFBS is missing");
        assert_eq!(compile(SHAPES_PAYLOAD, "R"), "not a binary schema (.bfbs): identifier BFBS is missing");
        let long = vec![0; SCHEMA_BYTES_MAX + 1];
        assert_eq!(compile(&long, "R"), "the schema has 1048577 bytes, the limit is 1048576");
    }

    #[test]
    fn unions_are_refused_only_where_the_root_reaches_them() {
        // Proves that types that cannot be decoded are rejected only if the root reaches them, and
        // that the error names the type.
        let compile = |root: &str| {
            CompiledSchema::compile(RECURSIVE, root).map(|_| ()).map_err(|error| error.to_string())
        };
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
        // Proves that every contradiction in a forged schema is rejected.
        let table = |field| vec![ForgedObject::table("R", vec![field])];
        let with = |field, other| vec![ForgedObject::table("R", vec![field]), other];
        let structure = |bytes, field| {
            let holder = ForgedField::new(BaseType::Obj, 1, FIRST_SLOT);
            with(holder, ForgedObject::structure("S", bytes, vec![field]))
        };
        let int = ForgedField::new(BaseType::Int, -1, FIRST_SLOT);
        let array =
            |element, index| ForgedField { offset: 0, ..list_of(BaseType::Array, element, index, 65_535) };
        let cases = [
            (table(ForgedField::new(BaseType::Obj, 7, FIRST_SLOT)), "its type is not in the schema"),
            (table(ForgedField::new(BaseType::Obj, -1, FIRST_SLOT)), "its type is not in the schema"),
            (table(ForgedField::new(BaseType::Int, 3, FIRST_SLOT)), "its enum is not in the schema"),
            (table(ForgedField::new(BaseType(77), -1, FIRST_SLOT)), "its type is not supported"),
            (table(ForgedField::new(BaseType(-5), -1, FIRST_SLOT)), "its type is not supported"),
            (table(ForgedField::new(BaseType::None, -1, FIRST_SLOT)), "its type is not supported"),
            (table(ForgedField::new(BaseType::Vector64, -1, FIRST_SLOT)), "of 64 bits is not supported"),
            (table(list_of(BaseType::Vector, BaseType::Union, 0, 0)), "a union is not supported"),
            (table(list_of(BaseType::Vector, BaseType::Vector, 0, 0)), "its type is not supported"),
            (table(list_of(BaseType::Array, BaseType::Int, -1, 3)), "an array outside a struct"),
            (table(ForgedField::new(BaseType::Int, -1, 2)), "an impossible slot"),
            (table(ForgedField::new(BaseType::Int, -1, 7)), "an impossible slot"),
            (table(ForgedField { name: "a.b", ..int.clone() }), "its name must be 1 to 255"),
            (table(ForgedField { name: "a\u{1b}[31m", ..int.clone() }), "its name must be 1 to 255"),
            (structure(0, int.clone()), "an impossible size of a struct"),
            (structure(-4, int.clone()), "an impossible size of a struct"),
            (structure(i32::MAX, int.clone()), "an impossible size of a struct"),
            (structure(8, ForgedField { offset: 5, ..int.clone() }), "it ends past the end of its struct"),
            (
                structure(8, ForgedField { offset: u16::MAX, ..int.clone() }),
                "it ends past the end of its struct",
            ),
            (structure(8, array(BaseType::ULong, -1)), "it ends past the end of its struct"),
            (structure(8, ForgedField::new(BaseType::Obj, 0, 0)), "a table inside a struct"),
            (structure(8, ForgedField::new(BaseType::String, -1, 0)), "a string inside a struct"),
            (structure(8, list_of(BaseType::Vector, BaseType::Int, -1, 0)), "a vector inside a struct"),
            (structure(8, ForgedField::new(BaseType::Obj, 1, 0)), "a struct that contains itself"),
        ];
        for (objects, expected) in cases {
            let message = refused(&objects);
            assert!(message.contains(expected), "{message:?} instead of {expected:?}");
        }
    }

    #[test]
    fn two_fields_may_share_neither_id_nor_name() {
        // Proves that paths and JSON keys are unique because duplicate ids and names are rejected.
        let field = ForgedField::new(BaseType::Int, -1, FIRST_SLOT);
        let other = ForgedField { name: "other", ..field.clone() };
        let message = refused(&[ForgedObject::table("R", vec![field.clone(), other])]);
        assert!(message.contains("two fields with one id"), "{message}");
        let twin = ForgedField { id: 1, ..field.clone() };
        let message = refused(&[ForgedObject::table("R", vec![field, twin])]);
        assert!(message.contains("two fields with one name"), "{message}");
    }

    #[test]
    fn work_on_a_forged_schema_is_bounded() {
        // Proves that time and memory are bounded even for the schemas that expand the most.
        let name = |index: usize| if index == 0 { "R".to_owned() } else { format!("T{index}") };
        let chain = |length: usize, width: u16| {
            let object = |index: usize| {
                let next = i32::try_from((index + 1).min(length - 1)).unwrap();
                let names = ["a", "b", "c", "d"];
                let fields = (0..width).map(|id| ForgedField {
                    name: names[usize::from(id)],
                    id,
                    ..ForgedField::new(BaseType::Obj, next, FIRST_SLOT + 2 * id)
                });
                ForgedObject::table(&name(index), fields.collect())
            };
            (0..length).map(object).collect::<Vec<_>>()
        };
        // The last table of a chain contains itself, so the chain ends there.
        assert!(CompiledSchema::compile(&forge(&chain(DEPTH_MAX, 1)), "R").is_ok());
        assert_eq!(refused(&chain(DEPTH_MAX + 1, 1)), "T16 is nested deeper than 16 objects");
        assert_eq!(refused(&chain(DEPTH_MAX, 4)), "the schema has more than 65536 paths to fields");
        assert_eq!(refused(&chain(OBJECTS_MAX + 1, 1)), "the schema has more than 1024 tables and structs");
    }

    #[test]
    fn any_damage_to_a_schema_is_an_error_or_another_schema() {
        // Proves that no damage of a schema causes a panic. Every bit is flipped, and every
        // truncation is tested. Each damaged schema that still compiles is used to decode a
        // payload.
        let cases = [(SHAPES, "flatcap.test.Shapes"), (MARKED, "flatcap.test.Marked")];
        for (schema, root) in cases {
            let check = |bytes: &[u8]| {
                let Ok(plan) = CompiledSchema::compile(bytes, root) else { return false };
                assert!(plan.fields().count() <= PATHS_MAX);
                let mut tally = CountingVisitor::default();
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

    #[test]
    fn all_bits_of_flags_count() {
        // Proves that all bits of 64-bit flags are significant, so that exports keep the flags
        // unsigned. Proves that 64-bit numbers and 32-bit flags are treated as plain numbers.
        for (base, index, uses_all_bits) in
            [(BaseType::ULong, 0, true), (BaseType::ULong, -1, false), (BaseType::UInt, 0, false)]
        {
            let table =
                ForgedObject::table("flatcap.Forged", vec![ForgedField::new(base, index, FIRST_SLOT)]);
            let schema = forge_with(&[table], &[base]);
            let compiled = CompiledSchema::compile(&schema, "flatcap.Forged").unwrap();
            let fields: Vec<bool> = compiled.fields().map(|leaf| leaf.field.uses_all_bits()).collect();
            assert_eq!(fields, [uses_all_bits], "{base:?} {index}");
        }
    }
}
