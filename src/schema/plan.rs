//! In which steps is a payload read? A schema from a file, compiled once, so that a walk looks nothing up.

use super::compile;
use super::error::{DecodeError, SchemaError};
use super::json::JsonWriter;
use super::project;
use super::projection::Projection;
use super::select;
use super::spot::{self, Spot};
use super::value::{Scalar, Value, Visitor};
use super::walk;

/// How to read the payloads of one source: what its binary schema says, in steps.
///
/// ```
/// use flatcap::schema::{Plan, segment};
///
/// let schema = std::fs::read("generated/segment.bfbs")?;
/// let plan = Plan::compile(&schema, "flatcap.segment.Trailer")?.select(&["segment", "run_id"])?;
///
/// let mut builder = flatbuffers::FlatBufferBuilder::new();
/// let fields = segment::TrailerArgs { segment: 7, ..Default::default() };
/// let trailer = segment::Trailer::create(&mut builder, &fields);
/// builder.finish(trailer, None);
///
/// let mut line = Vec::new();
/// plan.append_json(builder.finished_data(), &mut line)?;
/// assert_eq!(line, br#"{"segment":7,"run_id":0}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    /// Every table and struct that the root reaches; fields name them by index.
    pub(super) objects: Vec<Object>,
    /// The names of every enum that a field prints by name; fields name them by index.
    pub(super) enums: Vec<Names>,
    /// Index of the root table in `objects`.
    pub(super) root: usize,
}

impl Plan {
    /// Compiles a binary schema (.bfbs) for payloads whose root is the table of the given full name.
    ///
    /// Deprecated fields are left out, as they are by generated code.
    ///
    /// # Errors
    /// Whatever [`SchemaError`] lists except what paths cause (`NoField`, `NoIndex`, `NotSingle`): the schema is checked in full, as far as the root
    /// reaches, and nothing in it can make a later walk fail.
    pub fn compile(bfbs: &[u8], root: &str) -> Result<Self, SchemaError> {
        compile::compile(bfbs, root)
    }

    /// The same plan with only the fields that the dotted paths name, in the order of the schema. A path
    /// goes through lists without an index (`cores.times.user`: in each of the cores); one that ends early
    /// keeps everything below. What is not selected is not read.
    ///
    /// # Errors
    /// `NoField` for a path that leads nowhere, `TooDeep` for one of more than [`DEPTH_MAX`](super::DEPTH_MAX)
    /// segments.
    pub fn select(&self, paths: &[&str]) -> Result<Self, SchemaError> {
        select::select(self, paths)
    }

    /// The way to single values of each payload, for whoever wants the same few of many payloads: no visitor to keep
    /// them apart, in about half the time of a walk of the selected plan. The dotted paths lead through tables and
    /// structs to a number, truth value or enum each; behind the name of a list comes the index of its element
    /// (`cores.0.times.user`), and an element that a payload does not have is absent.
    ///
    /// # Errors
    /// `NoField` for a path that leads nowhere, `NoIndex` for one through a list without an index, `NotSingle` for one
    /// that leads to an object or a text, `TooDeep` for one through more than [`DEPTH_MAX`](super::DEPTH_MAX) objects.
    pub fn project(&self, paths: &[&str]) -> Result<Projection, SchemaError> {
        project::project(self, paths)
    }

    /// Reads one payload and hands its values to the visitor. Allocates nothing unless it fails.
    ///
    /// # Errors
    /// The first place where the payload does not fit the schema or exceeds a limit; any bytes are safe.
    pub fn walk<V: Visitor>(&self, payload: &[u8], visitor: &mut V) -> Result<(), DecodeError> {
        walk::walk(self, payload, visitor)
    }

    /// Where the numbers of one payload stand. None where the payload does not fit the schema or has more than
    /// [`SPOTS_MAX`](super::SPOTS_MAX) of them. Places may lie behind the payload's end: nothing is read there.
    pub fn spots(&self, payload: &[u8]) -> Option<Vec<Spot>> {
        spot::spots(self, payload)
    }

    /// Appends one payload as a JSON object; after an error the output is as it was.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    pub fn append_json(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), DecodeError> {
        let length = output.len();
        let walked = self.walk(payload, &mut JsonWriter::new(output));
        if walked.is_err() {
            output.truncate(length);
        }
        walked
    }

    /// The fields that hold values, by the paths that [`select`](Self::select) takes, in the order of the
    /// schema. A table inside itself is given as one field, not opened again.
    pub fn fields(&self) -> impl Iterator<Item = Leaf<'_>> {
        Leaves {
            plan: self,
            open: vec![Open { object: self.root, next: 0, path_length: 0 }],
            path: String::new(),
        }
    }

    /// Full name of the root table.
    pub fn root_name(&self) -> &str {
        &self.object(self.root).name
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "compile and select hand out only indices of objects they made"
    )]
    #[inline]
    pub(super) fn object(&self, index: usize) -> &Object {
        &self.objects[index]
    }

    /// What a raw value means by its field: absent, a name, or itself.
    #[inline]
    pub(super) fn interpret(&self, field: &Field, raw: Value<'static>) -> Value<'_> {
        interpret(&self.enums, field.absent, field.enumeration, raw)
    }
}

/// What a raw value means by the value that stands for absence and the index of its enum.
#[inline]
pub(super) fn interpret<'n>(
    enums: &'n [Names],
    absent: Option<Value<'static>>,
    enumeration: Option<usize>,
    raw: Value<'static>,
) -> Value<'n> {
    if absent.is_some() && absent == Some(raw) {
        return Value::Absent;
    }
    let name = enumeration.and_then(|index| enums.get(index)).and_then(|names| names.of(raw));
    name.map_or(raw, Value::Text)
}

/// A table or struct.
#[derive(Debug, Clone)]
pub(super) struct Object {
    /// Full name.
    pub(super) name: Box<str>,
    /// Length in bytes if it is a struct; a table is reached through an offset.
    pub(super) struct_bytes: Option<usize>,
    /// In the order of their ids.
    pub(super) fields: Box<[Field]>,
}

/// One field of a table or struct: what it is called, what it means, how it is read.
#[derive(Debug, Clone)]
pub struct Field {
    pub(super) kind: Kind,
    /// In a table the offset of the field's slot in the vtable, in a struct the field's own offset.
    pub(super) at: u16,
    /// Text in bytes, cut at the first NUL.
    pub(super) text: bool,
    /// The value that stands for absence.
    pub(super) absent: Option<Value<'static>>,
    /// Index into the plan's enums.
    pub(super) enumeration: Option<usize>,
    /// What a table that leaves the field out means.
    pub(super) default: Value<'static>,
    /// Position in its object; what `select` drops is not counted.
    pub(super) index: usize,
    /// Tells an element of a list from others.
    pub(super) identity: bool,
    pub(super) meaning: Meaning,
    pub(super) name: Box<str>,
    pub(super) type_name: Box<str>,
    pub(super) unit: Option<Box<str>>,
    pub(super) documentation: Box<str>,
}

impl Field {
    /// The name in the schema: letters, digits and underscores.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type as schemas spell it: `ulong`, `[string]`, `[ubyte:16]`, or the full name of an enum or object.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The attribute `unit`.
    pub fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    /// The attribute `identity`: by the fields that have it an element of a list is found again in the next sample.
    pub fn is_identity(&self) -> bool {
        self.identity
    }

    /// The attribute `meaning`.
    pub fn meaning(&self) -> Meaning {
        self.meaning
    }

    /// The comment in the schema, its lines joined; empty without one.
    pub fn documentation(&self) -> &str {
        &self.documentation
    }

    /// Position within the object it belongs to, from 0, among the fields that are selected.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether it is one value: a scalar or a text, not an object and not a list.
    pub fn is_single(&self) -> bool {
        self.text || matches!(self.kind, Kind::Scalar(_) | Kind::String)
    }

    /// Whether elements come between it and what it holds.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.kind, Kind::Vector(_) | Kind::Array(..))
    }

    /// The object that it is or that its elements are.
    pub(super) fn nested(&self) -> Option<usize> {
        match self.kind {
            Kind::Object(object)
            | Kind::Vector(Element::Object(object))
            | Kind::Array(Element::Object(object), _) => Some(object),
            _ => None,
        }
    }
}

/// The shape of a field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Scalar(Scalar),
    String,
    Object(usize),
    Vector(Element),
    Array(Element, u16),
}

/// The shape of the elements of a list.
#[derive(Debug, Clone, Copy)]
pub(super) enum Element {
    Scalar(Scalar),
    String,
    Object(usize),
}

/// How values of a field relate to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Only grows; its rate is what matters.
    Counter,
    /// A level that goes up and down.
    Gauge,
    /// One of several states, or an identity.
    State,
    /// Words.
    Text,
    /// The schema does not say.
    Unknown,
}

/// The names of an enum's values.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Sorted by value, each value once; values of 64 unsigned bits wrap, as they do in the schema.
    pub(super) entries: Box<[(i64, Box<str>)]>,
}

impl Names {
    fn of(&self, value: Value<'_>) -> Option<&str> {
        let number = match value {
            Value::Unsigned(number) => number.cast_signed(),
            Value::Signed(number) => number,
            _ => return None,
        };
        let found = self.entries.binary_search_by_key(&number, |(value, _)| *value).ok()?;
        self.entries.get(found).map(|(_, name)| &**name)
    }
}

/// One selected field that holds values.
#[derive(Debug, Clone)]
pub struct Leaf<'p> {
    /// Dotted path from the root.
    pub path: String,
    /// The field at its end.
    pub field: &'p Field,
}

/// The way through the objects of a plan, outermost first.
struct Leaves<'p> {
    plan: &'p Plan,
    open: Vec<Open>,
    path: String,
}

/// An object on the way.
struct Open {
    object: usize,
    /// The field that comes next.
    next: usize,
    /// Length of the path up to the object.
    path_length: usize,
}

impl<'p> Iterator for Leaves<'p> {
    type Item = Leaf<'p>;

    fn next(&mut self) -> Option<Leaf<'p>> {
        loop {
            let open = self.open.last_mut()?;
            self.path.truncate(open.path_length);
            let Some(field) = self.plan.object(open.object).fields.get(open.next) else {
                self.open.pop();
                continue;
            };
            open.next += 1;
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(&field.name);
            match field.nested() {
                Some(object) if self.open.iter().all(|open| open.object != object) => {
                    self.open.push(Open { object, next: 0, path_length: self.path.len() });
                }
                _ => return Some(Leaf { path: self.path.clone(), field }),
            }
        }
    }
}
