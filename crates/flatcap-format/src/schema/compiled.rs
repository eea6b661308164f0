//! Compiled schemas. A binary schema is resolved only once, so that decoding a payload needs no
//! lookups.

use super::error::SchemaError;
use super::plain_name::is_plain_field_name;
use super::value::{ColumnType, FieldValue, ScalarType};

/// Maximum nesting depth of objects, including the root. The limit applies to schemas and to
/// payloads. The nesting of a payload is limited too, because a table may contain itself.
pub const DEPTH_MAX: usize = 16;

/// A binary schema compiled for decoding the payloads of one source.
///
/// ```
/// use flatcap_format::schema::{CompiledSchema, segment};
///
/// let schema = std::fs::read("generated/segment.bfbs")?;
/// let schema = CompiledSchema::compile(&schema, "flatcap.segment.Trailer")?;
/// let schema = schema.select(&["segment", "run_id"])?;
///
/// let mut builder = flatbuffers::FlatBufferBuilder::new();
/// let fields = segment::TrailerArgs { segment: 7, ..Default::default() };
/// let trailer = segment::Trailer::create(&mut builder, &fields);
/// builder.finish(trailer, None);
///
/// let mut line = Vec::new();
/// schema.append_json(builder.finished_data(), &mut line)?;
/// assert_eq!(line, br#"{"segment":7,"run_id":0}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct CompiledSchema {
    /// All tables and structs that the root reaches. Fields refer to these objects by index.
    pub(super) objects: Vec<CompiledObject>,
    /// The value names of all enums that fields use. Fields refer to these lists by index.
    pub(super) enums: Vec<EnumNames>,
    /// Index of the root table in `objects`.
    pub(super) root: usize,
    /// Whether there is no schema. In this case, the whole payload is the only field.
    pub(super) is_opaque: bool,
}

/// The name of the only field of a payload without a schema.
const PAYLOAD_FIELD: &str = "payload";

impl CompiledSchema {
    /// Iterates over the fields that contain values, in the order of the schema. Each field has a
    /// path that [`select`](Self::select) accepts. A table within a table of the same type is one
    /// field and is not expanded. Fields with a name that no path can contain are left out (see
    /// [`unnamed_fields`](Self::unnamed_fields)).
    pub fn fields(&self) -> impl Iterator<Item = LeafField<'_>> {
        let fields = LeafFields {
            schema: self,
            open: vec![OpenObject {
                object: self.root,
                next: 0,
                path_length: 0,
                is_list: false,
                is_detail: false,
            }],
            path: String::new(),
        };
        fields.filter(|leaf| leaf.path.split('.').all(is_plain_field_name))
    }

    /// Returns the names of fields that no path can contain. flatc does not make schemas with such
    /// names.
    pub fn unnamed_fields(&self) -> impl Iterator<Item = &str> {
        let fields = self.objects.iter().flat_map(|object| &object.fields);
        fields.map(|field| &*field.name).filter(|name| !is_plain_field_name(name))
    }

    /// Returns the compiled schema for a source with this binary schema and this root table. An
    /// opaque source has neither a schema nor a root. The payload of an opaque source is one string
    /// field named `payload`. A payload that is not UTF-8 is escaped, like every other string that
    /// is not UTF-8.
    ///
    /// # Errors
    /// Returns the same errors as [`compile`](Self::compile).
    pub fn of_source(bfbs: &[u8], root: &str) -> Result<Self, SchemaError> {
        if bfbs.is_empty() && root.is_empty() { Ok(Self::opaque()) } else { Self::compile(bfbs, root) }
    }

    fn opaque() -> Self {
        let payload = Field {
            value_type: FieldType::String,
            at: 0,
            is_text: false,
            absent: None,
            enumeration: None,
            default: FieldValue::Absent,
            index: 0,
            is_identity: false,
            is_detail: false,
            is_required: true,
            uses_all_bits: false,
            metric_kind: MetricKind::Text,
            usage: Usage::Use,
            wraps_at: None,
            sparse: None,
            name: PAYLOAD_FIELD.into(),
            type_name: "string".into(),
            unit: None,
            documentation: "The whole payload, which has no schema.".into(),
        };
        let root = CompiledObject {
            name: Box::default(),
            struct_bytes: None,
            has_events: false,
            fields: Box::new([payload]),
        };
        Self { objects: vec![root], enums: Vec::new(), root: 0, is_opaque: true }
    }

    /// Returns whether the source has no schema, so that the payload is the only field.
    pub fn is_opaque(&self) -> bool {
        self.is_opaque
    }

    /// Returns the full name of the root table.
    pub fn root_name(&self) -> &str {
        &self.object(self.root).name
    }

    /// Returns the samples that leave out elements of a list of the root table, or `None` if every
    /// sample contains all elements.
    pub fn sparse(&self, list: &str) -> Option<&Sparse> {
        self.object(self.root).fields.iter().find(|field| *field.name == *list)?.sparse.as_ref()
    }

    /// Returns whether the root table has the attribute `events`. The attribute means that a
    /// payload is a batch of events. Each event has its own time, and the numbers do not form a
    /// series of samples.
    pub fn has_events(&self) -> bool {
        self.object(self.root).has_events
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "compile and select hand out only indices of objects they made"
    )]
    #[inline]
    pub(super) fn object(&self, index: usize) -> &CompiledObject {
        &self.objects[index]
    }

    /// Converts a raw value according to the attributes of its field. The result is absence, the
    /// name of an enum value, or the unchanged value.
    #[inline]
    pub(super) fn interpret(&self, field: &Field, raw: FieldValue<'static>) -> FieldValue<'_> {
        interpret(&self.enums, field.absent, field.enumeration, raw)
    }
}

/// Converts a raw value. `absent` is the value that means absence, and `enumeration` is the index
/// of the field's enum.
#[inline]
pub(super) fn interpret<'n>(
    enums: &'n [EnumNames],
    absent: Option<FieldValue<'static>>,
    enumeration: Option<usize>,
    raw: FieldValue<'static>,
) -> FieldValue<'n> {
    // The value for absence is compared with defaults, too. If the default represents absence, an
    // omitted field is absent. Absence has priority over the name of an enum value.
    if absent.is_some() && absent == Some(raw) {
        return FieldValue::Absent;
    }
    // A value without a name stays a number, so that nothing is lost.
    let name = enumeration.and_then(|index| enums.get(index)).and_then(|names| names.of(raw));
    name.map_or(raw, FieldValue::Text)
}

/// A table or struct.
#[derive(Debug, Clone)]
pub(super) struct CompiledObject {
    /// Full name.
    pub(super) name: Box<str>,
    /// Length of a struct in bytes, or `None` for a table, which is reached through an offset.
    pub(super) struct_bytes: Option<usize>,
    /// Whether the object has the attribute `events`.
    pub(super) has_events: bool,
    /// The fields in the order of their ids.
    pub(super) fields: Box<[Field]>,
}

/// One field of a table or struct, with its name, its attributes and the information to decode it.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "attributes, each of which a field has or not")]
pub struct Field {
    pub(super) value_type: FieldType,
    /// In a table, the field's slot in the vtable. In a struct, the offset of the field's value.
    pub(super) at: u16,
    /// Whether the field consists of bytes that contain a text. The text ends at the first NUL.
    pub(super) is_text: bool,
    /// The value that represents absence.
    pub(super) absent: Option<FieldValue<'static>>,
    /// Index of the list with the value names of the field's enum.
    pub(super) enumeration: Option<usize>,
    /// The value that the field has if a table omits it.
    pub(super) default: FieldValue<'static>,
    /// Position of the field in its object, counting only selected fields.
    pub(super) index: usize,
    /// Whether the field identifies an element of a list.
    pub(super) is_identity: bool,
    /// Whether the field is a list that repeats another list in more detail.
    pub(super) is_detail: bool,
    /// Whether a table without the field is invalid.
    pub(super) is_required: bool,
    /// Whether all bits of the field's 64-bit values are significant.
    pub(super) uses_all_bits: bool,
    pub(super) metric_kind: MetricKind,
    pub(super) usage: Usage,
    /// The name of another field of the same object. That field contains the value at which the
    /// counter wraps to 0.
    pub(super) wraps_at: Option<Box<str>>,
    /// The samples that leave out elements of the list. `None` if every sample contains all
    /// elements.
    pub(super) sparse: Option<Sparse>,
    pub(super) name: Box<str>,
    pub(super) type_name: Box<str>,
    pub(super) unit: Option<Box<str>>,
    pub(super) documentation: Box<str>,
}

impl Field {
    /// Returns the field's name in the schema. The name consists of letters, digits and
    /// underscores.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type as it is written in schemas, for example `ulong`, `[string]` or
    /// `[ubyte:16]`. For an enum or object, this is its full name.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// Returns the attribute `unit`.
    pub fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// Returns whether the field has the attribute `identity`. Fields with this attribute identify
    /// an element of a list from one sample to the next.
    pub fn is_identity(&self) -> bool {
        self.is_identity
    }

    /// Returns whether all bits of the field's values of type `ulong` are significant, as in an
    /// address, a hash or a set of flags. This is true if the field has the attribute `bits` or its
    /// type is an enum with `bit_flags`.
    pub fn uses_all_bits(&self) -> bool {
        self.uses_all_bits
    }

    /// Returns the metric kind that the attribute `meaning` states.
    pub fn metric_kind(&self) -> MetricKind {
        self.metric_kind
    }

    /// Returns the usage that the values measure, as stated by the attribute `usage`.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the attribute `wraps_at`. This is the name of another field of the same object. That
    /// field contains the value at which the counter wraps to 0.
    pub fn wraps_at(&self) -> Option<&str> {
        self.wraps_at.as_deref()
    }

    /// Returns the comment in the schema, with its lines joined. The result is empty if there is no
    /// comment.
    pub fn documentation(&self) -> &str {
        &self.documentation
    }

    /// Returns the position of the field, from 0, among the selected fields of its object.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns whether the field is a single value, that is, a scalar or a string and not an object
    /// or a list.
    pub fn is_single(&self) -> bool {
        self.is_text || matches!(self.value_type, FieldType::Scalar(_) | FieldType::String)
    }

    /// Returns the type of the field's values. For a list, returns the type of its elements.
    /// Returns `None` for an object.
    pub fn column_type(&self) -> Option<ColumnType> {
        if self.is_text || self.enumeration.is_some() {
            return Some(ColumnType::Text);
        }
        match self.value_type {
            FieldType::String
            | FieldType::Vector(ElementType::String)
            | FieldType::Array(ElementType::String, _) => Some(ColumnType::Text),
            FieldType::Scalar(scalar)
            | FieldType::Vector(ElementType::Scalar(scalar))
            | FieldType::Array(ElementType::Scalar(scalar), _) => Some(scalar.column_type()),
            FieldType::Object(_)
            | FieldType::Vector(ElementType::Object(_))
            | FieldType::Array(ElementType::Object(_), _) => None,
        }
    }

    /// Returns whether the field is a vector or array.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.value_type, FieldType::Vector(_) | FieldType::Array(..))
    }

    /// Returns the index of the field's object type or element type, or `None` if the field
    /// contains no objects.
    pub(super) fn nested(&self) -> Option<usize> {
        match self.value_type {
            FieldType::Object(object)
            | FieldType::Vector(ElementType::Object(object))
            | FieldType::Array(ElementType::Object(object), _) => Some(object),
            _ => None,
        }
    }
}

/// The type of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldType {
    Scalar(ScalarType),
    String,
    Object(usize),
    Vector(ElementType),
    Array(ElementType, u16),
}

/// The type of the elements of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum ElementType {
    Scalar(ScalarType),
    String,
    Object(usize),
}

/// The kind of a metric. It states how successive values of a field relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// The value only grows. Readers are interested in its rate.
    Counter,
    /// A level that rises and falls.
    Gauge,
    /// One of several states, or an identity.
    State,
    /// Text.
    Text,
    /// The schema does not declare a kind.
    Unknown,
}

impl MetricKind {
    /// Returns the word that schemas use for the kind, or `None` for [`Unknown`](Self::Unknown).
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Counter => Some("counter"),
            Self::Gauge => Some("gauge"),
            Self::State => Some("state"),
            Self::Text => Some("text"),
            Self::Unknown => None,
        }
    }
}

/// Specifies how a field's values relate to the use of a resource. Only the ranking of suspects
/// uses this information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// The part of a resource that is used. This is the default for fields that declare no usage.
    Use,
    /// Time that was spent waiting. This time grows if others use the resource more.
    Wait,
    /// A part of a resource that is reserved but not necessarily used, such as address space.
    Reservation,
    /// Memory in which the kernel caches data that may be needed again, and memory that the kernel
    /// keeps free for this purpose. The value grows with the amount of data that is read. The
    /// kernel can free this memory at any time.
    Cache,
    /// Released parts of a resource, such as discarded blocks. No device transfers the data of
    /// these parts.
    Release,
    /// Failures, such as processes that were killed because of lack of memory. A single failure may
    /// be the cause of an incident.
    Failure,
}

/// Specifies the samples that leave out existing elements of a list. The attribute `sparse` states
/// this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sparse {
    /// Any sample.
    Always,
    /// The samples in which this field of the root table is not 0.
    Unless0(Box<str>),
}

/// The names of an enum's values.
#[derive(Debug, Clone)]
pub(super) struct EnumNames {
    /// The entries in the order of their values, with one entry for each value. Unsigned 64-bit
    /// values are stored as signed values with the same bits, as in the schema.
    pub(super) entries: Box<[(i64, Box<str>)]>,
}

impl EnumNames {
    fn of(&self, value: FieldValue<'_>) -> Option<&str> {
        let number = match value {
            FieldValue::Unsigned(number) => number.cast_signed(),
            FieldValue::Signed(number) => number,
            _ => return None,
        };
        let found = self.entries.binary_search_by_key(&number, |(value, _)| *value).ok()?;
        self.entries.get(found).map(|(_, name)| &**name)
    }
}

/// A selected field that contains values.
#[derive(Debug, Clone)]
pub struct LeafField<'p> {
    /// Path from the root, with field names joined by dots.
    pub path: String,
    /// The field at the end of the path.
    pub field: &'p Field,
    /// Lengths of all prefixes of the path that lead to a list, in bytes, shortest first.
    pub lists: Vec<usize>,
    /// The position of each field on the path within the object that contains the field.
    pub positions: Vec<usize>,
    /// Whether the field is in a list with the attribute `detail`, which repeats another list in
    /// more detail.
    pub is_detail: bool,
}

/// An iterator over leaf fields. `open` contains the current objects, outermost first.
struct LeafFields<'p> {
    schema: &'p CompiledSchema,
    open: Vec<OpenObject>,
    path: String,
}

/// An object whose fields are being listed.
struct OpenObject {
    object: usize,
    /// The next field.
    next: usize,
    /// Length of the path to the object.
    path_length: usize,
    /// Whether the path leads to a list of these objects.
    is_list: bool,
    /// Whether the innermost list has the attribute `detail`.
    is_detail: bool,
}

impl<'p> LeafFields<'p> {
    /// Returns the field at the current path.
    fn leaf(&self, field: &'p Field) -> LeafField<'p> {
        let lists = self.open.iter().filter(|open| open.is_list).map(|open| open.path_length);
        let own = (field.is_list() && !field.is_text).then_some(self.path.len());
        LeafField {
            path: self.path.clone(),
            field,
            lists: lists.chain(own).collect(),
            positions: self.open.iter().map(|open| open.next - 1).collect(),
            is_detail: self.open.iter().any(|open| open.is_detail),
        }
    }
}

impl<'p> Iterator for LeafFields<'p> {
    type Item = LeafField<'p>;

    fn next(&mut self) -> Option<LeafField<'p>> {
        loop {
            let open = self.open.last_mut()?;
            self.path.truncate(open.path_length);
            let Some(field) = self.schema.object(open.object).fields.get(open.next) else {
                self.open.pop();
                continue;
            };
            open.next += 1;
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(&field.name);
            // A table within a table of the same type is not opened, because it would expand
            // without end. `PATHS_MAX` bounds the number of all other fields.
            match field.nested() {
                Some(object) if self.open.iter().all(|open| open.object != object) => {
                    let (path_length, is_list) = (self.path.len(), field.is_list());
                    let is_detail = field.is_detail;
                    self.open.push(OpenObject { object, next: 0, path_length, is_list, is_detail });
                }
                _ => return Some(self.leaf(field)),
            }
        }
    }
}
